"""What is worth an event in a status that is about to replace another: only what is new in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from airunway.plugins.contract import Finding
from airunway.resource import Resource, condition_of, dig
from airunway.runtime.report import MAX_WARNINGS, Report, warning_text
from airunway.status import Phase, Verdict
from airunway.status.rootcause import RootCause

__all__ = ["Announcement", "announcements"]


_SECRET = re.compile(r'secrets? "([^"]+)" (?:not found|does not exist)')


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """A warning event (status/events.py has its meaning); `related` is the upstream object that it is about, if any."""

    reason: str
    note: str
    related: Resource | None = None


def announcements(
    before: Resource, report: Report, verdict: Verdict, *, cause: RootCause | None = None
) -> Iterator[Announcement]:
    """The events for a deployment that had the status of `before` until now; `cause` is its root cause now."""
    if (
        cause is not None
        and cause.reason == "SecretNotFound"
        and dig(before, "status", "rootCause", "code") != cause.code
    ):
        yield Announcement(reason="SecretNotFound", note=_missing_secret(before, cause), related=report.primary)
    if verdict.phase in (Phase.FAILED, Phase.DEGRADED) and dig(before, "status", "phase") != verdict.phase.value:
        yield Announcement(reason="ProviderError", note=_error(report, verdict), related=report.primary)
    compatible = report.told("ProviderCompatible")
    if compatible is not None:
        known = condition_of(before, "ProviderCompatible") or {}
        news = (known.get("reason"), known.get("message")) != (compatible.reason, compatible.message)
        if news and compatible.reason == "UnverifiedSchema":
            yield Announcement(reason="UnverifiedSchema", note=compatible.message)
        if news and compatible.reason == "UnsupportedSchema":
            yield Announcement(reason="UnsupportedSchema", note=compatible.message)
    # Those beyond the limit are not in the status either, so that nobody could tell whether they are new.
    for finding in report.warnings[:MAX_WARNINGS]:
        if finding.reason == "UnknownOverride" and _is_new(finding, before):
            yield Announcement(reason="UnknownOverride", note=finding.message)


def _is_new(finding: Finding, before: Resource) -> bool:
    return warning_text(finding) not in (dig(before, "status", "warnings") or ())


def _missing_secret(before: Resource, cause: RootCause) -> str:
    named = _SECRET.search(cause.message)
    if named is None:  # a key of a Secret that is there
        return cause.message
    namespace = dig(before, "metadata", "namespace", default="")
    return f"Secret '{named[1]}' not found in namespace '{namespace}': {cause.message}"


def _error(report: Report, verdict: Verdict) -> str:
    """The status message, with the upstream object before it where it is that object which has the error."""
    components = {"Pods", *(c.name for c in (report.observation.components if report.observation else ()))}
    if report.resource is None or verdict.fault is None or verdict.fault.component not in components:
        return verdict.message
    name, kind = dig(report.resource, "metadata", "name"), report.resource.get("kind")
    return f"{kind} '{name}' is in error state: {verdict.message}"
