"""The findings of `airunway doctor`, and the table in which each check registers itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airunway.doctor.snapshot import Snapshot

__all__ = ["AREAS", "CHECKS", "PAGE", "DoctorCheck", "DoctorFinding", "Found", "Severity", "check"]

PAGE = "docs/reference/doctor.md"
"""The page that `tools.doctor_page` writes; findings link into it."""

AREAS = {
    "01": "Cluster and CRDs",
    "02": "Processes",
    "03": "Webhook",
    "04": "Rights",
    "05": "Providers",
    "06": "Upstreams",
    "07": "Nodes, storage, gateway",
    "08": "Deployments",
}
"""Title of each group of codes, by their first two digits."""


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something works by chance, works badly, or will stop working."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a check has seen: of which object (``Kind/namespace/name``, or ``Kind/name``), and what, as a sentence.

    `do` says what to do about just this one, where that is more than what the check says of all.
    """

    object: str
    what: str
    do: str = ""


@dataclass(frozen=True, kw_only=True)
class DoctorCheck:
    """One thing that is looked at.

    `code` never changes its meaning and is never used again. `needs` are the parts of the snapshot without which
    nothing can be said. `why` says what comes of it, `do` what to do.
    """

    code: str
    severity: Severity
    title: str
    why: str
    do: str
    needs: tuple[str, ...]
    find: Callable[[Snapshot], Iterable[Found]]

    @property
    def area(self) -> str:
        return AREAS[self.code[3:5]]

    @property
    def docs(self) -> str:
        """Where the code is explained: an address, as this distribution says where its documentation is."""
        return f"{_documentation()}/{PAGE.removeprefix('docs/')}#{self.code.lower()}"


@dataclass(frozen=True, kw_only=True)
class DoctorFinding:
    """Something that is wrong."""

    check: DoctorCheck
    object: str
    what: str
    do: str

    @property
    def code(self) -> str:
        return self.check.code

    @property
    def severity(self) -> Severity:
        return self.check.severity


@cache
def _documentation() -> str:
    """The address of the documentation: the project URL of that name in the metadata of the wheel. A distribution
    without one, such as a checkout that was never built, has the folder alone.
    """
    try:
        urls = metadata("airunway").get_all("Project-URL") or []
    except PackageNotFoundError:
        urls = []
    named = dict(url.replace(" ", "").split(",", 1) for url in urls if "," in url)
    return str(named.get("Documentation", "docs")).rstrip("/")


CHECKS: dict[str, DoctorCheck] = {}
"""Every check by its code."""


def check(
    code: str, severity: Severity, title: str, *, why: str, do: str, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Snapshot], Iterator[Found]]], Callable[[Snapshot], Iterator[Found]]]:
    """Enters a function into the table of checks. It is pure: a snapshot in, what is wrong out."""

    def enter(find: Callable[[Snapshot], Iterator[Found]]) -> Callable[[Snapshot], Iterator[Found]]:
        if code in CHECKS:
            raise ValueError(f"{code} is taken by {CHECKS[code].title!r}")
        CHECKS[code] = DoctorCheck(code=code, severity=severity, title=title, why=why, do=do, needs=needs, find=find)
        return find

    return enter
