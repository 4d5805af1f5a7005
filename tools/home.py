"""Where the project is at home: one place, from which wheels, charts and the documentation have it.

python -m tools.home [--check]

`home` in [tool.airunway] of the root's pyproject.toml is the address of the public repository. It is written into the
pyproject.toml of every distribution (`make generate`).
"""

from __future__ import annotations

import re
import sys
import tomllib

from tools.generated import ROOT, write

__all__ = ["generated", "home", "is_public", "links"]

_DISTRIBUTIONS = ("core", "catalogue", "downloader", "testing", "ui", "providers/*", "providers/*/simulator")
_URLS = re.compile(r"^\[project\.urls\]\n(?:[^\[\n].*\n)*", re.MULTILINE)


def home() -> str:
    """The address of the repository, without a slash at its end."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return str(tools["airunway"]["home"]).rstrip("/")


def is_public() -> bool:
    """Whether the owner has set it: ``.example`` is reserved for examples (RFC 2606)."""
    return not home().partition("://")[2].partition("/")[0].endswith(".example")


def links() -> dict[str, str]:
    """What package indices show."""
    return {
        "Homepage": home(),
        "Documentation": f"{home()}/tree/main/docs",
        "Changelog": f"{home()}/blob/main/CHANGELOG.md",
        "Security": f"{home()}/blob/main/SECURITY.md",
    }


def generated() -> dict[str, str]:
    """Every distribution's pyproject.toml by its path from the root."""
    paths = sorted(path for pattern in _DISTRIBUTIONS for path in ROOT.glob(f"{pattern}/pyproject.toml"))
    table = "[project.urls]\n" + "".join(f'{name} = "{address}"\n' for name, address in links().items())
    found = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if _URLS.search(text) is None:
            text = text.replace("[build-system]\n", "[project.urls]\n\n[build-system]\n", 1)
        found[str(path.relative_to(ROOT))] = _URLS.sub(table, text, count=1)
    return found


if __name__ == "__main__":
    sys.exit(write(generated()))
