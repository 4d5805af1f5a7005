"""Phase, conditions and progress of an artifact, by the status library of deployments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypeGuard

from airunway.api import names
from airunway.artifacts.claims import has_made_content
from airunway.artifacts.jobs import MAX_BYTES
from airunway.configs.resolution import Resolution
from airunway.resource import Resource, controller_owner, dig, format_time, is_integer, key_of, labels_of, text_at
from airunway.status.conditions import conditions_in
from airunway.status.reasons import Category, category_of, code_of_download
from airunway.status.rollup import (
    CAPACITY_PATIENCE,
    DEPENDENCY_GRACE,
    Fault,
    Phase,
    Rollup,
    Verdict,
    not_reached_since,
    since,
    summary_of,
)
from airunway.status.rootcause import Distance, RootCause, Symptom, root_cause_of, root_cause_status

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
    answered: bool = True,
    grace: timedelta = DEPENDENCY_GRACE,
    patience: timedelta = CAPACITY_PATIENCE,
) -> tuple[Resource, float | None]:
    """Phase, reason, message, root cause and conditions; and after how many seconds they change by time alone.

    `answered`: nothing shows that the hub is still out of reach, if it was.
    """
    before = conditions_in(artifact.get("status"))
    faults = [
        Fault(component=t, reason=v.reason, message=v.message, since=since(before, t, v.reason) or now)
        for t in _CHILDREN
        if (v := verdicts.get(t)) is not None and v.ready is not True and not _harmless(t, v, verdicts)
    ]
    summary = summary_of(
        artifact,
        [verdict.condition(type_) for type_, verdict in verdicts.items()],
        faults,
        created=created,
        failures=() if answered else not_reached_since(before, "DownloadReady"),
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


def config_verdict(resolution: Resolution) -> Verdict:
    """Whether the runtime config of an artifact or a template can be used."""
    if resolution.missing:
        text = f"there is neither a RuntimeConfig nor a ClusterRuntimeConfig {resolution.name}"
        return Verdict(ready=False, reason="ConfigNotFound", message=text)
    if resolution.config is None:
        return Verdict(ready=True, reason="UsingDefaults", message="there is no runtime config, and none is needed")
    return Verdict(ready=True, reason="ConfigFound", message=f"follows {resolution.config.title}")


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


def progress_of(
    artifact: Resource, completed: Resource | None, answer: Resource | None, *, now: datetime
) -> Resource | None:
    """``status.progress``: by the proof of completion, else by the newest answer of the download, else as before."""
    if completed:
        total = completed.get("bytes")
        return {"totalBytes": total, "downloadedBytes": total, "percentage": 100}
    before = dig(artifact, "status", "progress")
    total, done, speed = (dig(answer, key) for key in ("totalBytes", "downloadedBytes", "bytesPerSecond"))
    if not is_count(total) or not is_count(done) or not 0 < total <= MAX_BYTES:
        return before if isinstance(before, dict) and before.get("percentage") != 100 else None
    done = min(done, total)
    same = ("totalBytes", total), ("downloadedBytes", done), ("bytesPerSecond", speed or None)
    if isinstance(before, dict) and all(before.get(key) == value for key, value in same):
        return before  # the same answer: a new estimate alone is worth no write
    found: Resource = {"totalBytes": total, "downloadedBytes": done, "percentage": done * 100 // total}
    if is_count(speed) and 0 < speed <= MAX_BYTES:
        left = min((total - done) / speed, timedelta(days=365).total_seconds())
        found |= {"bytesPerSecond": speed, "estimatedCompletion": format_time(now + timedelta(seconds=left))}
    return found


def mode_of(artifact: Resource) -> str:
    """``status.mode``: User, Dedicated or Shared."""
    if not is_made(artifact):
        return "User"
    return "Dedicated" if controller_owner(artifact) is not None else "Shared"


def is_made(artifact: Resource) -> bool:
    """Whether the artifact is one that this part made, and is as it was made; users' own ones are never deleted.

    Users of a namespace can write its labels and its spec, so neither counts alone: the name must be that of the
    content. One that was once seen to be a user's stays that, by its status, which users cannot write.
    """
    labels = labels_of(artifact)
    ours = labels.get(names.PART) == names.MODEL_CACHE_PART and labels.get(names.MANAGED_BY) == names.MANAGED_BY_VALUE
    return ours and text_at(artifact, "status", "mode") != "User" and has_made_content(artifact)


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is an integer that counts something."""
    return is_integer(value) and value >= 0
