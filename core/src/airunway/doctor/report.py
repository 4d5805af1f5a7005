"""Runs every check on a snapshot, and formats the findings as text, or as a document for programs. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from airunway import __version__
from airunway.doctor import (
    checks_accounts,
    checks_cluster,
    checks_cluster_resources,
    checks_configs,
    checks_model_cache,
    checks_processes,
    checks_providers,
    checks_settings,
    checks_webhook,
)
from airunway.doctor.findings import AREAS, CHECKS, DoctorCheck, DoctorFinding, Severity
from airunway.doctor.snapshot import Snapshot
from airunway.redaction import bounded
from airunway.resource import Resource, format_time
from airunway.unseen import Unseen

_MODULES = (
    checks_cluster,
    checks_processes,
    checks_settings,
    checks_webhook,
    checks_accounts,
    checks_providers,
    checks_cluster_resources,
    checks_configs,
    checks_model_cache,
)
"""Importing these modules registers their checks."""

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1}


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """The result of all checks."""

    snapshot: Snapshot
    findings: tuple[DoctorFinding, ...]
    """The findings, the most severe first."""
    done: tuple[DoctorCheck, ...]
    """The checks that were run."""
    skipped: tuple[DoctorCheck, ...]
    """The checks that could not be run."""
    unseen: tuple[Unseen, ...]
    """The parts of the cluster that could not be read."""

    def of(self, severity: Severity) -> list[DoctorFinding]:
        return [finding for finding in self.findings if finding.severity is severity]


def run_checks(snapshot: Snapshot, *, ignored: frozenset[str] = frozenset()) -> DoctorReport:
    """Run every check whose parts of the snapshot were read, except those whose codes are `ignored`."""
    done, skipped, findings = [], [], []
    for code, check in sorted(CHECKS.items()):
        if code in ignored:
            continue
        if any(getattr(snapshot, part) is None for part in check.needs):
            skipped.append(check)
            continue
        done.append(check)
        findings += [
            DoctorFinding(
                check=check,
                object=found.object,
                what=bounded(found.what),
                do=bounded(found.do) or _filled(check.do, found.object),
            )
            for found in check.find(snapshot)
        ]
    findings.sort(key=lambda finding: (_ORDER[finding.severity], finding.code, finding.object))
    return DoctorReport(
        snapshot=snapshot,
        findings=tuple(findings),
        done=tuple(done),
        skipped=tuple(skipped),
        unseen=(*snapshot.all_unseen, *_unknown(snapshot)),
    )


def _filled(text: str, obj: str) -> str:
    """A check's advice with the object's name and namespace in its commands."""
    _, *place = obj.split("/")
    if not place:
        return text
    return text.replace("NAMESPACE", place[0]).replace("NAME", place[-1])


def _unknown(snapshot: Snapshot) -> Iterator[Unseen]:
    """What this command cannot judge, although it could read the cluster."""
    components = snapshot.components or ()
    broken = {each.what for each in snapshot.all_unseen}  # installed, but it cannot be loaded
    running = {provider for component in components for provider in component.providers}
    for provider in sorted(running - set(snapshot.plugins)):
        why = "its plugin is not installed beside this command"
        if f"provider {provider}" not in broken:
            yield Unseen(what=f"rights of provider {provider}", why=why)
    for add_on in sorted({each for component in components for each in component.add_ons} - snapshot.add_ons):
        why = "its distribution is not installed beside this command: compare with `helm template` of its chart"
        if f"add-on {add_on}" not in broken:
            yield Unseen(what=f"rights and guards of {add_on}", why=why)
    for component in components:
        if component.guarded and not component.comparable:
            why = f"they are those of {component.version}, and this command is {__version__}"
            yield Unseen(what=f"the guards of {component.name}", why=why)
    for component in components:
        if not component.known:
            why = "no Lease says so: it has never led, runs without --leader-elect, or is of an older release"
            yield Unseen(what=f"how {component.name} runs", why=why)
    if snapshot.runs_outside:
        why = "no Deployment runs them: they run outside of the cluster, as in a sandbox"
        yield Unseen(what="the processes of core and providers", why=why)


# ------------------------------------------------------------------------------------------------------------ the text

_INDENT = "  "
_FIELD = 6
"""Width of the labels ``why`` and ``do``, so that their texts are aligned."""

_WIDTH = 120
"""Maximum width on a terminal. Without a terminal, lines are not wrapped."""


@dataclass(frozen=True, kw_only=True)
class ReportLine:
    """A line of the report."""

    text: str = ""
    style: str = ""
    """The name of a style of rich; empty: plain."""


_MARKS = {"ok": "✔", Severity.ERROR: "✖", Severity.WARNING: "⚠", "unseen": "◌"}
_WORDS = {"ok": "ok", Severity.ERROR: "!!", Severity.WARNING: "! ", "unseen": "? "}
_STYLES = {"ok": "green", Severity.ERROR: "red", Severity.WARNING: "yellow", "unseen": "dim"}


def lines(found: DoctorReport, *, width: int | None, ascii_only: bool = False) -> Iterator[ReportLine]:
    """The report: the areas, each finding, what could not be read, and the count.

    With a `width` texts are wrapped to it. With `ascii_only` the marks are letters.
    """
    marks = _WORDS if ascii_only else _MARKS
    width = min(width, _WIDTH) if width else None
    seen = found.snapshot
    kubernetes = ".".join(map(str, seen.kubernetes))
    yield ReportLine(
        text=f"airunway {__version__}, namespace {seen.namespace}, {seen.server} (Kubernetes {kubernetes})"
    )
    yield ReportLine()
    for area, state, text in _areas(found):
        yield ReportLine(text=f"{marks[state]} {area:<{max(map(len, AREAS.values()))}}  {text}", style=_STYLES[state])
    for finding in found.findings:
        yield ReportLine()
        yield from _finding(finding, marks[finding.severity], width)
    if found.unseen:
        yield ReportLine()
        yield ReportLine(text="Not looked at:")
        for unseen in found.unseen:
            yield from _folded(f"{marks['unseen']} {unseen.what}: {unseen.why}", width, style="dim")
    yield ReportLine()
    yield ReportLine(text=_count(found))


_OF_PROCESSES = tuple(AREAS[code] for code in ("02", "03", "04"))
"""The areas of what an installation has in the cluster."""


def _areas(found: DoctorReport) -> Iterator[tuple[str, str | Severity, str]]:
    for area in AREAS.values():
        findings = [finding for finding in found.findings if finding.check.area == area]
        done = sum(check.area == area for check in found.done)
        skipped = sum(check.area == area for check in found.skipped)
        counted = f"{done} checks" if not skipped else f"{done} of {done + skipped} checks"
        if findings:
            worst = findings[0].severity  # findings are sorted by severity
            yield area, worst, f"{counted}: {', '.join(dict.fromkeys(finding.code for finding in findings))}"
        elif found.snapshot.runs_outside and area in _OF_PROCESSES:
            yield area, "unseen", "not in the cluster: the processes run outside of it"
        elif done or skipped:
            yield area, "unseen" if skipped else "ok", counted


def _finding(finding: DoctorFinding, mark: str, width: int | None) -> Iterator[ReportLine]:
    yield ReportLine(
        text=f"{mark} {finding.code} {finding.severity.value}: {finding.check.title}", style=_STYLES[finding.severity]
    )
    yield from _folded(f"{finding.object}: {finding.what}", width, style="bold")
    for word, text in (("why", finding.check.why), ("do", finding.do), ("see", finding.check.docs)):
        yield from _folded(f"{word:<{_FIELD}}{text}", width, hang=_FIELD)


def _folded(text: str, width: int | None, *, hang: int = 0, style: str = "") -> Iterator[ReportLine]:
    if width is None:
        yield ReportLine(text=f"{_INDENT}{text}", style=style)
        return
    below = _INDENT + " " * hang
    for line in textwrap.wrap(
        text, width, initial_indent=_INDENT, subsequent_indent=below, break_on_hyphens=False, break_long_words=False
    ):
        yield ReportLine(text=line, style=style)


def _count(found: DoctorReport) -> str:
    errors, warnings = len(found.of(Severity.ERROR)), len(found.of(Severity.WARNING))
    done, all_ = len(found.done), len(found.done) + len(found.skipped)
    checks = f"{all_} checks" if done == all_ else f"{done} of {all_} checks"
    if errors or warnings:
        return f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)} ({checks})."
    if found.skipped:
        return f"Nothing wrong was found by {checks}; the others could not be made."
    if found.snapshot.runs_outside:
        return f"Nothing wrong was found ({checks}); the processes were not looked at."
    return f"Nothing is wrong ({checks})."


def document(found: DoctorReport) -> Resource:
    """The report as JSON. Fields are only ever added."""
    seen = found.snapshot
    return {
        "kind": "DoctorReport",
        "version": __version__,
        "server": seen.server,
        "kubernetes": ".".join(map(str, seen.kubernetes)),
        "namespace": seen.namespace,
        "time": format_time(seen.now),
        "errors": len(found.of(Severity.ERROR)),
        "warnings": len(found.of(Severity.WARNING)),
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity.value,
                "title": finding.check.title,
                "object": finding.object,
                "what": finding.what,
                "why": finding.check.why,
                "do": finding.do,
                "docs": finding.check.docs,
            }
            for finding in found.findings
        ],
        "checks": [check.code for check in found.done],
        "skipped": [check.code for check in found.skipped],
        "notLookedAt": [{"what": unseen.what, "why": unseen.why} for unseen in found.unseen],
    }
