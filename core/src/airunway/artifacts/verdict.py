"""Phase and conditions of an artifact, by the status library that deployments use too (spec/status.md). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.resource import Resource, dig, format_time, key_of
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
    overall_conditions,
    parent_conditions,
    roll_up,
    since,
    written,
)
from airunway.status.codes import code_of_download
from airunway.status.rootcause import Distance, RootCause, Symptom, root_cause_of

__all__ = ["Verdict", "status_of"]

_CHILDREN = ("RuntimeConfigReady", "StorageReady", "DownloadReady")

_NOT_AVAILABLE = frozenset({"StorageClassNotFound"})
"""Reasons for which an artifact is NotAvailable."""

_FIELDS = {
    "Model.AuthGated": "spec.secrets.huggingFaceToken",
    "Model.DownloadStalled": "spec.source.uri",
    "Model.NotFound": "spec.source.uri",
    "Storage.ClassMissing": "spec.storageClassName",
    "Storage.Full": "spec.size",
    "Storage.PvcPending": "spec.storageClassName",
    "Unschedulable.Quota": "spec.size",
}
"""The field of an artifact to look at, where a code names one of a deployment."""

_AT_WORK = frozenset({"Downloading", "Verifying"})


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one child condition says."""

    ready: bool | None
    """None: not known."""
    reason: str
    """A reason of the registry."""
    message: str
    """Why, as a sentence."""


def status_of(
    artifact: Resource,
    verdicts: Mapping[str, Verdict],
    *,
    created: bool,
    now: datetime,
    cause: RootCause | None = None,
    grace: timedelta = DEPENDENCY_GRACE,
    patience: timedelta = CAPACITY_PATIENCE,
) -> tuple[Resource, float | None]:
    """Phase, reason, message, root cause and conditions; and after how many seconds they change by time alone."""
    found_status = artifact.get("status")
    before = conditions_in(found_status if isinstance(found_status, dict) else {})
    generation = dig(artifact, "metadata", "generation")
    generation = generation if type(generation) is int else 0
    children = [Condition(type=t, status=v.ready, reason=v.reason, message=v.message) for t, v in verdicts.items()]
    faults = [
        Fault(component=t, reason=v.reason, message=v.message, since=since(before, t, v.reason) or now)
        for t in _CHILDREN
        if (v := verdicts.get(t)) is not None and v.ready is not True and not _harmless(t, v, verdicts)
    ]
    previous = dig(artifact, "status", "phase")
    rollup = roll_up(
        faults,
        previous=_as_deployment(previous),
        created=created,
        now=now,
        running_message="The weights are complete and verified",
        grace=grace,
        patience=patience,
    )
    own = [Condition(type=c.type, status=c.status, reason=c.reason, message=c.message) for c in children]
    found = written(own, previous=before, generation=generation, now=now)
    overall = [c for c in overall_conditions(rollup) if c.type == "Ready"]
    conditions = written(
        [*own, *parent_conditions(found, of_parts=True), *overall], previous=before, generation=generation, now=now
    )
    status: Resource = {
        "observedGeneration": generation,
        "phase": _phase(rollup),
        "reason": rollup.reason,
        "message": rollup.message,
        "conditions": conditions,
    }
    cause = cause or _cause_of(artifact, faults, now=now)
    if cause is not None and rollup.phase is not Phase.RUNNING:
        status["rootCause"] = {
            "code": cause.code,
            "object": cause.object,
            "field": _FIELDS.get(cause.code, cause.field),
            "message": cause.message,
            "since": format_time(cause.since),
        }
    return status, rollup.wake_after


def _cause_of(artifact: Resource, faults: Iterable[Fault], *, now: datetime) -> RootCause | None:
    """The root cause that the conditions' reasons name: what the downloader reports is in no pod that is alive."""
    key = key_of(artifact)
    symptoms = [
        Symptom(
            reason=fault.reason,
            code=code_of_download(fault.reason),
            object=f"ModelArtifact/{key.namespace}/{key.name}",
            message=fault.message,
            since=fault.since,
            distance=Distance.REPORT,
        )
        for fault in faults
        if category_of(fault.reason) is not Category.PROGRESS
    ]
    return root_cause_of(symptoms, now=now)


def _harmless(type_: str, verdict: Verdict, verdicts: Mapping[str, Verdict]) -> bool:
    """A claim that is not bound yet is no reason of its own while the download says something."""
    return type_ == "StorageReady" and category_of(verdict.reason) is Category.PROGRESS and "DownloadReady" in verdicts


def _phase(rollup: Rollup) -> str:
    match rollup.phase:
        case Phase.RUNNING:
            return "Ready"
        case _ if rollup.reason in _NOT_AVAILABLE:
            return "NotAvailable"
        case Phase.DEPLOYING if rollup.reason in _AT_WORK:
            return "Progressing"
        case Phase.PENDING:
            return "Pending"
        case Phase.DEPLOYING:
            return "Pending" if rollup.reason == "Queued" else "Starting"
        case _:
            return rollup.phase.value


def _as_deployment(phase: object) -> str | None:
    """The phase of a deployment that counts as much."""
    return {"Ready": "Running", "Starting": "Deploying", "Progressing": "Deploying", "NotAvailable": "Degraded"}.get(
        str(phase), str(phase) if phase else None
    )
