"""Phase and conditions of an artifact, by the status library that deployments use too (spec/status.md). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from airunway.resource import Resource, key_of
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
from airunway.status.reasons import code_of_download
from airunway.status.rollup import Verdict, summary_of
from airunway.status.rootcause import Distance, RootCause, Symptom, root_cause_of, root_cause_status

__all__ = ["status_of"]

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
    before = conditions_in(artifact.get("status"))
    faults = [
        Fault(component=t, reason=v.reason, message=v.message, since=since(before, t, v.reason) or now)
        for t in _CHILDREN
        if (v := verdicts.get(t)) is not None and v.ready is not True and not _harmless(t, v, verdicts)
    ]
    summary = summary_of(
        artifact,
        [Condition(type=t, status=v.ready, reason=v.reason, message=v.message) for t, v in verdicts.items()],
        faults,
        created=created,
        running_message="The weights are complete and verified",
        now=now,
        grace=grace,
        patience=patience,
    )
    rollup = summary.rollup
    status: Resource = {
        "observedGeneration": summary.generation,
        "phase": _phase(rollup),
        "reason": rollup.reason,
        "message": rollup.message,
        "conditions": summary.conditions,
    }
    cause = cause or _cause_of(artifact, faults, now=now)
    if cause is not None and rollup.phase is not Phase.RUNNING:
        status["rootCause"] = root_cause_status(cause, field=_FIELDS.get(cause.code, cause.field))
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
