"""The findings of `airunway doctor`, and the table in which each check registers itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, metadata
from urllib.parse import urlsplit

from airunway.doctor.snapshot import Snapshot

PAGE = "docs/reference/doctor.md"
"""The page that `tools.doctor_page` writes; findings link to it."""

AREAS = {
    "01": "Cluster and CRDs",
    "02": "Processes",
    "03": "Webhook",
    "04": "Rights",
    "05": "Providers",
    "06": "Upstreams",
    "07": "Nodes, storage, gateway",
    "08": "Deployments",
    "09": "Runtime configs and routes",
    "10": "Model cache",
}
"""Title of each group of codes, by the first two digits."""


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something works by chance or badly, or will stop working."""


@dataclass(frozen=True)
class Found:
    """One result of a check."""

    object: str
    """The object, as ``Kind/namespace/name`` or ``Kind/name``."""
    what: str
    """What is wrong with it, as a sentence."""
    do: str = field(default="", kw_only=True)
    """What to do about this object, if that is more specific than the check's text."""


Find = Callable[[Snapshot], Iterator[Found]]
"""A check: it takes a snapshot and yields what is wrong."""


@dataclass(frozen=True, kw_only=True)
class DoctorCheck:
    """One check."""

    code: str
    """Never changes its meaning and is never reused."""
    severity: Severity
    title: str
    why: str
    """The consequence."""
    do: str
    """What to do."""
    needs: tuple[str, ...]
    """The parts of the snapshot that the check requires."""
    find: Find

    @property
    def area(self) -> str:
        return AREAS[self.code[3:5]]

    @property
    def docs(self) -> str:
        """The address of the code's explanation in the documentation."""
        return f"{_documentation()}/{PAGE.removeprefix('docs/')}#{self.code.lower()}"


@dataclass(frozen=True, kw_only=True)
class DoctorFinding:
    """One problem that a check has found."""

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
    """The address of the documentation: the project URL ``Documentation`` in the wheel's metadata. Without one, and
    before there is one (the placeholder of a checkout, which no browser finds), it is the folder ``docs``.
    """
    try:
        urls = metadata("airunway").get_all("Project-URL") or []
    except PackageNotFoundError:
        urls = []
    named = dict(url.replace(" ", "").split(",", 1) for url in urls if "," in url)
    address = str(named.get("Documentation", "docs")).rstrip("/")
    return "docs" if (urlsplit(address).hostname or "").endswith(".example") else address


CHECKS: dict[str, DoctorCheck] = {}
"""Every check by its code."""


def check(
    severity: Severity, code: str, title: str, *, why: str, do: str, needs: tuple[str, ...] = ()
) -> Callable[[Find], Find]:
    """Register a function as a check. It is pure."""

    def enter(find: Find) -> Find:
        if code in CHECKS:
            raise ValueError(f"{code} is taken by {CHECKS[code].title!r}")
        CHECKS[code] = DoctorCheck(code=code, severity=severity, title=title, why=why, do=do, needs=needs, find=find)
        return find

    return enter


error = partial(check, Severity.ERROR)
warning = partial(check, Severity.WARNING)
