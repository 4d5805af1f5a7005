"""What is worth an event in a status that is about to replace another: only what is new in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.plugins.contract import Finding
from airunway.resource import Resource, condition_of, dig
from airunway.runtime.report import Report, warning_text
from airunway.status import Phase, Verdict
from airunway.status.rootcause import RootCause

__all__ = ["Announcement", "announcements"]


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """A warning event (status/events.py has its meaning)."""

    reason: str
    note: str


def announcements(
    before: Resource, report: Report, verdict: Verdict, *, cause: RootCause | None = None
) -> Iterator[Announcement]:
    """The events for a deployment that had the status of `before` until now; `cause` is its root cause now."""
    if (
        cause is not None
        and cause.reason == "SecretNotFound"
        and dig(before, "status", "rootCause", "code") != cause.code
    ):
        yield Announcement(reason="SecretNotFound", note=cause.message)
    if verdict.phase in (Phase.FAILED, Phase.DEGRADED) and dig(before, "status", "phase") != verdict.phase.value:
        yield Announcement(reason="ProviderError", note=verdict.message)
    compatible = report.compatible
    if compatible is not None and compatible.ok and compatible.reason == "UnverifiedSchema":
        known = condition_of(before, "ProviderCompatible") or {}
        if (known.get("reason"), known.get("message")) != (compatible.reason, compatible.message):
            yield Announcement(reason="UnverifiedSchema", note=compatible.message)
    for finding in report.warnings:
        if finding.reason == "UnknownOverride" and _is_new(finding, before):
            yield Announcement(reason="UnknownOverride", note=finding.message)


def _is_new(finding: Finding, before: Resource) -> bool:
    return warning_text(finding) not in (dig(before, "status", "warnings") or ())
