"""The one value for what was not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """Something that was not read. It stands where a list or a number would: absence would mean that there is none."""

    what: str
    """What is not known, such as ``pods``."""
    why: str
    """Why, as a sentence without a full stop."""
    right: str = ""
    """Verb and resource that RBAC has to allow, such as ``list pods in namespace ml``; empty if no right is missing."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" + (f" (needs the right to {self.right})" if self.right else "")

    def as_resource(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return asdict(self)


def reasons_of(unseen: Iterable[Unseen]) -> tuple[Unseen, ...]:
    """Returns each once, those that need a right first."""
    return tuple(sorted(dict.fromkeys(unseen), key=lambda each: (not each.right, each.what)))
