"""Phase and conditions of a template, by the status library that deployments use too (spec/status.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from airunway.configs import StatusPolicy
from airunway.resource import Resource
from airunway.status import (
    CAPACITY_PATIENCE,
    DEPENDENCY_GRACE,
    Category,
    Condition,
    Fault,
    Phase,
    Rollup,
    category_of,
    conditions_in,
    since,
)
from airunway.status.rollup import Verdict, summary_of
from airunway.status.rootcause import RootCause, root_cause_status
from airunway.templates import Contribution

__all__ = ["CHILDREN", "status_of"]

CHILDREN = ("RuntimeConfigReady", "HardwareReady", "DiscoveryReady", "CacheReady")
"""The children, in the order in which they decide."""

_AT_WORK = frozenset({"JobRunning", "Pulling"})


def status_of(
    template: Resource,
    verdicts: Mapping[str, Verdict],
    *,
    contribution: Contribution,
    created: bool,
    served: bool,
    policy: StatusPolicy | None,
    cause: RootCause | None,
    now: datetime,
) -> tuple[Resource, float | None]:
    """Phase, reason, message, root cause and conditions; and after how many seconds they change by time alone.

    `contribution` is what it gives to deployments. `created`: an image was asked; `served`: it has reported before, so
    that a fault now degrades.
    """
    before = conditions_in(template.get("status"))
    faults = [
        Fault(
            component=type_,
            reason=verdict.reason,
            message=verdict.message,
            since=since(before, type_, verdict.reason) or now,
            only_degrades=type_ == "CacheReady",
        )
        for type_ in CHILDREN
        if (verdict := verdicts[type_]).ready is not True and not _harmless(type_, verdict)
    ]
    failures: list[Resource] = []
    if contribution.unusable:
        message = f"no deployment can use it: {contribution.unusable}"
        faults.insert(0, Fault(component="Spec", reason="InvalidSpec", message=message))
        failures.append({"type": "Spec", "status": "False", "reason": "InvalidSpec", "message": message})
    summary = summary_of(
        template,
        [Condition(type=t, status=v.ready, reason=v.reason, message=v.message) for t, v in verdicts.items()],
        faults,
        created=created,
        served=served,
        not_available=Phase.PENDING,  # it is no fault that a later one could hide
        failures=failures,
        running_message="; ".join(["The template can be used", *contribution.ignored]),
        now=now,
        grace=policy.grace if policy is not None else DEPENDENCY_GRACE,
        patience=policy.patience if policy is not None else CAPACITY_PATIENCE,
    )
    rollup = summary.rollup
    status: Resource = {
        "observedGeneration": summary.generation,
        "phase": _phase(rollup, served=served),
        "reason": rollup.reason,
        "message": rollup.message,
        "conditions": summary.conditions,
    }
    if cause is not None and rollup.phase is not Phase.RUNNING:
        status["rootCause"] = root_cause_status(cause, field=_FIELDS.get(cause.code, "spec.discovery"))
    return status, rollup.wake_after


_FIELDS = {
    "ImagePull.Auth": "spec.imagePullSecrets",
    "ImagePull.NotFound": "spec.discovery.image",
    "ImagePull.RateLimited": "spec.imagePullSecrets",
    "Secret.NotFound": "spec.defaults.env",
    "Unschedulable.Quota": "spec.discovery",
}
"""The field of a template to look at, where a code names one of a deployment."""


_OF_THE_WEIGHTS = (Category.CONFIG, Category.AUTH, Category.EXHAUSTION, Category.WORKLOAD)
"""Faults of weights that degrade a template; others pass."""


def _harmless(type_: str, verdict: Verdict) -> bool:
    """Weights that are on their way keep no deployment from using the template: it waits for them itself."""
    return type_ == "CacheReady" and category_of(verdict.reason) not in _OF_THE_WEIGHTS


def _phase(rollup: Rollup, *, served: bool) -> str:
    """The phase of a template. One that is Degraded can be used; one whose image never reported cannot."""
    unreported = rollup.fault is not None and rollup.fault.component == "DiscoveryReady" and not served
    match rollup.phase:
        case Phase.RUNNING:
            return "Ready"
        case _ if rollup.fault is not None and rollup.fault.component == "HardwareReady":
            return "NotAvailable"
        case Phase.DEPLOYING if rollup.reason in _AT_WORK:
            return "Progressing"
        case Phase.DEPLOYING:
            return "Pending" if rollup.reason == "Queued" else "Starting"
        case Phase.DEGRADED if unreported:
            return "Failed"
        case _:
            return rollup.phase.value
