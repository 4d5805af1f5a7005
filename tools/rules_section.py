"""The section "Rules" of docs/providers/contract.md, of the kit's rules: ``python -m tools.rules_section``."""

from __future__ import annotations

import re
from pathlib import Path

from airunway_testing.conformance.rules import section

PAGE = Path(__file__).resolve().parents[1] / "docs/providers/contract.md"


def page() -> str:
    """The page with the section as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"^## Rules\n.*?(?=^## )", lambda _: section(), text, count=1, flags=re.MULTILINE | re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
