"""Runs every check on a snapshot, and lists what could not be checked."""

from __future__ import annotations

from dataclasses import dataclass

from airunway import __version__
from airunway.doctor import (
    checks_admission,
    checks_cluster,
    checks_cluster_resources,
    checks_configs,
    checks_model_cache,
    checks_processes,
    checks_providers,
)
from airunway.doctor.findings import CHECKS, DoctorCheck, DoctorFinding, Severity
from airunway.doctor.guards import comparable
from airunway.doctor.rights import unknown_providers
from airunway.doctor.snapshot import Snapshot, Unseen
from airunway.redaction import bounded

__all__ = ["DoctorReport", "run_checks"]

_MODULES = (
    checks_cluster,
    checks_processes,
    checks_admission,
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
            DoctorFinding(check=check, object=found.object, what=bounded(found.what), do=bounded(found.do) or check.do)
            for found in check.find(snapshot)
        ]
    findings.sort(key=lambda finding: (_ORDER[finding.severity], finding.code, finding.object))
    return DoctorReport(
        snapshot=snapshot,
        findings=tuple(findings),
        done=tuple(done),
        skipped=tuple(skipped),
        unseen=(
            *snapshot.unseen,
            *_without_plugin(snapshot),
            *_incomparable(snapshot),
            *_unpublished(snapshot),
            *_outside(snapshot),
        ),
    )


def _without_plugin(snapshot: Snapshot) -> list[Unseen]:
    """Running providers whose rights are unknown here."""
    missing = unknown_providers(snapshot.components or (), list(snapshot.plugins))
    return [
        Unseen(
            part="rights",
            what=f"rights of provider {name}",
            why="its plugin is not installed beside this command",
        )
        for name in missing
    ]


def _incomparable(snapshot: Snapshot) -> list[Unseen]:
    """Guards of another release: this command does not know their expected content."""
    return [
        Unseen(
            part="guards",
            what=f"the guards of {component.name}",
            why=f"they are those of {component.version}, and this command is {__version__}",
        )
        for component in snapshot.components or ()
        if component.guarded and not comparable(component)
    ]


def _unpublished(snapshot: Snapshot) -> list[Unseen]:
    """Processes that have not published their settings."""
    return [
        Unseen(
            part="settings",
            what=f"how {component.name} runs",
            why="no Lease says so: it has never led, runs without --leader-elect, or is of an older release",
        )
        for component in snapshot.components or ()
        if not component.known
    ]


def _outside(snapshot: Snapshot) -> list[Unseen]:
    """Processes that run outside of the cluster."""
    if not snapshot.runs_outside:
        return []
    return [
        Unseen(
            part="components",
            what="the processes of core and providers",
            why="no Deployment runs them: they run outside of the cluster, as in a sandbox",
        )
    ]
