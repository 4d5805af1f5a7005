"""What the runtime remembers of each deployment between passes.

Nothing depends on it after a restart: it dates faults, spaces retries and counts reverts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from airunway.kube import KubeError, retry_after_of
from airunway.owned.error_policies import Refused, policy_of
from airunway.owned.history import WriteHistory
from airunway.plugins.contract import Finding, ModelCache, RuntimeSettings
from airunway.resource import Resource, dig
from airunway.runtime.report import StepResult
from airunway.runtime.retries import Attempts, FailedTry, Subject
from airunway.runtime.settings_record import Record
from airunway.status import DEPENDENCY_GRACE, Fault, since
from airunway.status.evidence import parse_moment
from airunway.status.reasons import CODES
from airunway.status.rootcause import RootCause

__all__ = ["Failure", "Memory", "Waiting", "previous_cause"]

Failure = Refused | KubeError | StepResult
"""The causes of a failed try: an object is refused, the API server fails, or a dry run is refused."""


@dataclass(kw_only=True)
class Waiting:
    """The result of comparing the live objects with what the newest transformer and settings would write."""

    compared: object = None
    """The input of the last comparison."""
    found: tuple[Finding, ...] = ()
    """Its warnings."""
    made_with: dict[str, tuple[RuntimeSettings, ModelCache | None]] = field(default_factory=dict)
    """The pod settings and model cache of a primary object that has no record, by its uid."""


@dataclass(kw_only=True)
class Memory(WriteHistory):
    """What the runtime remembers of one deployment."""

    faults: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """When each fault began, by component and reason."""
    failing: datetime | None = None
    """When writes began to fail; None if they do not."""
    tries: Attempts[Failure] = field(default_factory=Attempts)
    """The last failure and its retry."""
    last_words: str = ""
    """The termination message of the pod that failed last."""
    disagrees_since: datetime | None = None
    """Since when core and provider see different runtime configs; None if they do not."""
    waiting: Waiting = field(default_factory=Waiting)
    """Warnings that a newer transformer or newer settings would be used."""
    records: dict[str, Record] = field(default_factory=dict)
    """The last record of the primary object, by its uid: an edit of the annotation is reverted to it."""

    def failed(self, subject: Subject, failure: Failure) -> FailedTry[Failure]:
        """Note that a try failed. `FailedTry.what` is the earlier failure if the message is the same."""
        match failure:
            case Refused():
                return self.tries.failed(subject, what=failure, text=failure.message, lasts=failure.policy.lasts)
            case StepResult():
                return self.tries.failed(subject, what=failure, text=failure.message)
            case _:
                return self.tries.failed(subject, what=failure, text=str(failure), at_least=retry_after_of(failure))

    def date(self, faults: Iterable[Fault], *, status: Resource, now: datetime) -> dict[tuple[str, str], datetime]:
        """The beginning of each of `faults`, by component and reason; all other faults are forgotten.

        A fault keeps its beginning while it lasts, whatever other faults come and go; one that recurs begins anew. For
        a fault that is new to this process, the beginning is read from `status`, or otherwise from the fault itself.
        """
        found: dict[tuple[str, str], datetime] = {}
        for fault in faults:
            name = (fault.component, fault.reason)
            if name not in found:
                begun = self.faults.get(name) or _restored(fault, status) or fault.since or now
                found[name] = min(begun, now)
        self.faults = found
        return found

    def outage(self, error: KubeError, *, now: datetime) -> StepResult | None:
        """The result for a transient failure to write; None until it lasts for DEPENDENCY_GRACE.

        The cause may be permanent: the upstream's own admission webhook can be behind an API server's 500. Without this
        result a user would wait without seeing a reason.
        """
        begun = self.failing = min(self.failing or now, now)
        if now - begun < DEPENDENCY_GRACE:
            return None
        message = f"The upstream resources cannot be written: {error}"
        reason = policy_of(error).reason
        return StepResult(condition="ResourceCreated", reason=reason, message=message, blocks_ready=True, since=begun)


def _restored(fault: Fault, status: Resource) -> datetime | None:
    """When a fault began according to an earlier status: exactly from a root cause, at the latest from a condition."""
    cause = previous_cause(status)
    if cause is not None and cause.code in CODES and fault.reason in CODES[cause.code].reasons:
        return cause.since
    conditions = dig(status, "conditions")
    entries = [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
    return since(entries, f"{fault.component}Ready", fault.reason)


def previous_cause(status: Resource) -> RootCause | None:
    """The live ``status.rootCause``; None if there is none, or none that we can have written."""
    found = dig(status, "rootCause")
    begun = parse_moment(dig(found, "since"))
    code, object_ = dig(found, "code"), dig(found, "object")
    if not isinstance(code, str) or not isinstance(object_, str) or begun is None:
        return None
    return RootCause(
        code=code,
        object=object_,
        field=str(dig(found, "field", default="")),
        message=str(dig(found, "message", default="")),
        since=begun,
        remedy="",
        reason="",
    )
