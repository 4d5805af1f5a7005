"""Builds the Jobs that measure and fetch weights, and reads what they came to (docs/model-cache.md). Pure.

Both run the downloader's image under the Pod Security Standard `restricted`, without a token of the API. The result is
the termination message: ``{"v": 1, "command": "download", "ok": {"bytes": 5, "files": 2, "digest": "sha256:…"}}``. A
message that is none of these counts as a failed try, never as a success.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

import orjson

from airunway.api import names
from airunway.artifacts.claims import labels_for
from airunway.configs.resolution import BUILT_IN, CABundle, EffectiveConfig, ca_bundle_at
from airunway.redaction import bounded, redacted
from airunway.resource import (
    Resource,
    annotations_of,
    copy_of,
    dig,
    entries_at,
    filled,
    is_integer,
    key_of,
    labels_of,
    list_at,
    mapping_at,
    number_at,
    text_at,
    uid_of,
)
from airunway.status.evidence import QUEUE_LABEL, parse_moment
from airunway.status.reasons import REASONS, Category, category_of

PROGRESS_PORT = 8080
"""Port of the pod at which a download answers how far it is."""

USER = 65532
"""User and group of the pods."""

CACHE_PATH = "/cache"
"""Where a download mounts the claim."""

SCRATCH_PATH = "/tmp"
"""Where the pods may write what is not kept."""

ENVIRONMENT = (
    "AIRUNWAY_*",
    "AWS_*",
    "HF_*",
    *(case(f"{scheme}_proxy") for case in (str.upper, str.lower) for scheme in ("http", "https", "all", "no")),
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables that the downloader reads. The guard refuses a Job with any other: some name code that a program loads, as
``PYTHONPATH`` and ``LD_PRELOAD`` do."""

CA_VOLUME, CA_PATH = "ca-bundle", "/etc/airunway/ca"
"""The volume with the authorities that a Job trusts, and where it is mounted."""
CA_FILE = f"{CA_PATH}/ca.crt"
"""The file in it."""
CA_VARIABLE = "AIRUNWAY_CA_FILE"
"""The variable that names the file to the downloader; an artifact cannot set it to another one."""

_CLAIM = "weights"
_TOKEN_KEY = "HF_TOKEN"
_CLAIM_VARIABLE = "AIRUNWAY_CLAIM_UID"


class JobStep(StrEnum):
    """What a Job does; also the command of the downloader and the name of its container."""

    CHECK_SIZE = "check-size"
    DOWNLOAD = "download"


@dataclass(frozen=True, kw_only=True)
class _Settings:
    component: str
    """Value of the component label."""
    ttl: int
    """Seconds for which a finished Job stays."""
    deadline: int
    """Seconds after which the Job fails; the next try of a download goes on where it ended."""
    memory: tuple[str, str]
    """Requested and most memory."""


SETTINGS = {
    JobStep.CHECK_SIZE: _Settings(component="check-size", ttl=300, deadline=600, memory=("64Mi", "256Mi")),
    JobStep.DOWNLOAD: _Settings(component="model-storage", ttl=600, deadline=86_400, memory=("256Mi", "1Gi")),
}
"""The limits of each step, by the specification's table."""


def job_of(
    artifact: Resource,
    step: JobStep,
    *,
    name: str,
    image: str,
    revision: str,
    claim: str,
    config: EffectiveConfig | None,
) -> Resource:
    """The Job of a step, without owner and namespace. `claim` is mounted by a download only."""
    settings, spec = SETTINGS[step], mapping_at(artifact, "spec")
    labels = labels_for(artifact, config, settings.component)
    container: Resource = {
        "name": step.value,
        "image": image,
        "args": [step.value, *_arguments(spec, step, revision)],
        "env": _environment(artifact, config),
        "resources": {
            "requests": {"cpu": "100m", "memory": settings.memory[0]},
            "limits": {"memory": settings.memory[1]},
        },
        "securityContext": restricted_container(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH_PATH}],
    }
    volumes: list[Resource] = [{"name": "scratch", "emptyDir": {}}]
    if step is JobStep.DOWNLOAD:
        container["ports"] = [{"name": "progress", "containerPort": PROGRESS_PORT, "protocol": "TCP"}]
        container["volumeMounts"].append({"name": _CLAIM, "mountPath": CACHE_PATH})
        volumes.append({"name": _CLAIM, "persistentVolumeClaim": {"claimName": claim}})
    if (bundle := ca_bundle_at(spec) or (config or BUILT_IN).ca_bundle) is not None:
        container["env"] += [{"name": CA_VARIABLE, "value": CA_FILE}]
        container["volumeMounts"].append(ca_mount())
        volumes.append(ca_volume(bundle))
    pod = filled(
        restartPolicy="Never",
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        serviceAccountName=spec.get("serviceAccountName"),
        imagePullSecrets=_pull_secrets(spec, config),
        nodeSelector=spec.get("nodeSelector"),
        tolerations=spec.get("tolerations"),
        securityContext={**restricted_pod(), "fsGroupChangePolicy": "OnRootMismatch"},
        containers=[container],
        volumes=volumes,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 2,
            "ttlSecondsAfterFinished": settings.ttl,
            "activeDeadlineSeconds": settings.deadline,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _failure_rules(step)},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def ca_volume(bundle: CABundle) -> Resource:
    """The volume of a Job's pod with exactly one file of a ConfigMap."""
    items = [{"key": bundle.key, "path": CA_FILE.rpartition("/")[2]}]
    return {"name": CA_VOLUME, "configMap": {"name": bundle.config_map, "items": items}}


def ca_mount() -> Resource:
    """Where a container of ours has that file."""
    return {"name": CA_VOLUME, "mountPath": CA_PATH, "readOnly": True}


def claim_of_job(job: Resource) -> str:
    """Name of the claim that a Job mounts; empty for one that mounts none."""
    for volume in list_at(job, "spec", "template", "spec", "volumes"):
        if isinstance(name := dig(volume, "persistentVolumeClaim", "claimName"), str):
            return name
    return ""


def environment_fault(artifact: Resource) -> str:
    """Why no Job is made for the artifact's variables; empty if the downloader reads all of them."""
    for position, name in enumerate(str(dig(each, "name")) for each in list_at(artifact, "spec", "env")):
        if not _is_read(name):
            return (
                f"spec.env[{position}].name: the downloader gets no variable {bounded(name)}: allowed are "
                f"{', '.join(ENVIRONMENT)}"
            )
    return ""


def _is_read(name: str) -> bool:
    return is_one_of(name, ENVIRONMENT)


def is_one_of(name: str, patterns: Iterable[str]) -> bool:
    """Whether a variable's name is among these, some of which end with ``*``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def bound_to(job: Resource, claim: Resource) -> Resource:
    """The Job with the uid of the claim that it fills: a later claim may have the same name, and its volume content
    of others, which the downloader does not believe.
    """
    made = copy_of(job)
    made["metadata"].setdefault("annotations", {})[names.CLAIM_UID] = uid_of(claim)
    made["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": _CLAIM_VARIABLE, "value": uid_of(claim)})
    return made


def fills(job: Resource, claim: Resource) -> bool:
    """Whether a Job fills exactly this claim."""
    return annotations_of(job).get(names.CLAIM_UID) in (None, "", uid_of(claim))


def restricted_container() -> Resource:
    """The security context of the container of a Job of ours: as the Pod Security Standard ``restricted`` wants it."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def restricted_pod() -> Resource:
    """The security context of the pod of a Job of ours."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _failure_rules(step: JobStep) -> list[Resource]:
    """A disruption is not counted; an error that a new try cannot mend fails the Job at once."""
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": step.value, "operator": "In", "values": [PERMANENT_EXIT]},
        },
    ]


def _arguments(spec: Resource, step: JobStep, revision: str) -> list[str]:
    """The downloader's arguments; the kubelet expands ``$(NAME)``, so dollar signs are doubled."""
    source = mapping_at(spec, "source")
    words = [str(source.get("uri", ""))]
    if step is JobStep.DOWNLOAD:
        words += ["--into", CACHE_PATH]
    if revision := revision or str(source.get("revision") or ""):
        words.append(f"--revision={revision}")
    for name in ("include", "exclude"):
        words += [f"--{name}={each}" for each in list_at(source, name)]
    return [word.replace("$", "$$") for word in words]


def _environment(artifact: Resource, config: EffectiveConfig | None) -> list[Resource]:
    """The config's variables that a downloader reads, then the token, the artifact's variables, and what names it.

    Most variables of a config are for engines, and each could be one by which a program loads code.
    """
    spec = mapping_at(artifact, "spec")
    found = {name: dict(each) for each in (config or BUILT_IN).env if _is_read(name := str(each.get("name")))}
    token = dig(spec, "secrets", "huggingFaceToken") or (config or BUILT_IN).token
    if token:
        source = {"secretKeyRef": {"name": token, "key": _TOKEN_KEY}}
        found[_TOKEN_KEY] = {"name": _TOKEN_KEY, "valueFrom": source}
    found |= {str(each["name"]): dict(each) for each in entries_at(spec, "env") if "name" in each}
    found.pop(_CLAIM_VARIABLE, None)
    found.pop(CA_VARIABLE, None)
    found["AIRUNWAY_ARTIFACT_UID"] = {"name": "AIRUNWAY_ARTIFACT_UID", "value": uid_of(artifact)}
    return list(found.values())


def _pull_secrets(spec: Resource, config: EffectiveConfig | None) -> list[Resource]:
    named = [str(each.get("name")) for each in entries_at(spec, "imagePullSecrets")]
    return [{"name": name} for name in dict.fromkeys((*named, *(config or BUILT_IN).image_pull_secrets))]


# ------------------------------------------------------------------------------------------------------------- results


MAX_BYTES = 2**50
"""Largest size that is believed, in bytes: one PiB."""

PERMANENT_EXIT = 3
"""Exit code of the downloader for errors that a new try cannot mend: the Job fails at once."""

_MOST = 4096
_MOST_WORDS, _HIGHEST_RANK = 253, 2**16
_REVISION = re.compile(r"[0-9a-f]{1,64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one step."""

    ok: bool
    """Whether the step did its work."""
    bytes: int = 0
    """Size of all files."""
    files: int = 0
    """Number of files."""
    revision: str = ""
    """Commit that was resolved; empty for S3."""
    digest: str = ""
    """Digest over all files; empty for a size check."""
    adapter: Mapping[str, Any] | None = None
    """What the files say of a LoRA adapter; None if they are none."""
    reason: str = ""
    """Why it failed: a reason of the registry."""
    message: str = ""
    """Why it failed, as a sentence."""
    retry_after: float | None = None
    """Seconds that the server asked to wait."""
    at: datetime | None = None
    """When the pod ended; None if it is not known."""


def result_of(pod: Resource | None, step: JobStep) -> Result:
    """The result of a Job's last pod. Without a pod, or with a message that cannot be read, it is a failure."""
    if pod is None:
        return _failed("JobFailed", "the pod of the Job was deleted, and its result with it")
    state = _terminated(pod, step)
    if state is None:
        return _failed("JobFailed", "the pod of the Job has no result", at=None)
    at = parse_moment(dig(state, "finishedAt"))
    if state.get("reason") == "OOMKilled":
        return _failed("PodOOMKilled", "the container used more memory than its limit", at=at)
    text = state.get("message")
    found = _parsed(text)
    if found is None or found.get("command") != step or found.get("v") != 1:
        return _failed("JobFailed", _unreadable(state, text), at=at)
    if isinstance(error := found.get("error"), dict):
        return _error(error, at=at)
    return _success(found.get("ok"), step, at=at)


def _success(ok: object, step: JobStep, *, at: datetime | None) -> Result:
    size, files, digest = dig(ok, "bytes"), dig(ok, "files"), dig(ok, "digest", default="")
    if not is_integer(size) or not 0 < size <= MAX_BYTES or not is_integer(files) or files < 1:
        return _failed(
            "VerificationFailed", f"the downloader reports a size that cannot be: {bounded(str(size))}", at=at
        )
    if step is JobStep.DOWNLOAD and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        return _failed("VerificationFailed", "the downloader reports no digest of what it fetched", at=at)
    revision = dig(ok, "revision", default="")
    return Result(
        ok=True,
        bytes=size,
        files=files,
        digest=digest if isinstance(digest, str) else "",
        revision=revision if isinstance(revision, str) and _REVISION.fullmatch(revision) else "",
        adapter=_adapter(dig(ok, "adapter")),
        at=at,
    )


def _adapter(found: object) -> Resource | None:
    rank = dig(found, "rank")
    texts = {name: _words(dig(found, name))[:_MOST_WORDS] for name in ("type", "baseModel", "problem")}
    return filled(**texts, rank=rank if is_integer(rank) and 0 < rank <= _HIGHEST_RANK else None) or None


def _error(error: Resource, *, at: datetime | None) -> Result:
    reason, after = error.get("reason"), error.get("retryAfter")
    known = isinstance(reason, str) and reason in REASONS
    return Result(
        ok=False,
        reason=str(reason) if known else "JobFailed",
        message=_words(error.get("message")) or "the downloader gives no reason",
        retry_after=float(after) if isinstance(after, int | float) and 0 <= after <= 86_400 else None,
        at=at,
    )


def _failed(reason: str, message: str, *, at: datetime | None = None) -> Result:
    return Result(ok=False, reason=reason, message=message, at=at)


def _unreadable(state: Resource, text: object) -> str:
    code = state.get("exitCode")
    message = f": {_words(text)}" if text else ""
    return f"the download ended with exit code {code} and no result that can be read{message}"


def _words(text: object) -> str:
    return bounded(redacted(text)) if isinstance(text, str) else ""


def _parsed(text: object) -> Resource | None:
    if not isinstance(text, str) or len(text) > _MOST:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _terminated(pod: Resource, step: JobStep) -> Resource | None:
    for status in list_at(pod, "status", "containerStatuses"):
        if dig(status, "name") == step.value:
            state = dig(status, "state", "terminated")
            return state if isinstance(state, dict) else None
    return None


def exit_code(pod: Resource, step: JobStep) -> object:
    """The exit code of a pod's container; None if it has not ended."""
    return dig(_terminated(pod, step), "exitCode")


POD_LAG = timedelta(seconds=5)
"""How long the watch of pods may lag behind that of Jobs; until then a Job without its pod's result has not failed."""

_MOST_ATTEMPTS = 2**31
"""A larger count in a status is none that a controller of ours has written."""


def attempts_at(obj: object, *path: str) -> int:
    """The count of tries at `path` of a status; 0 if there is none that can be."""
    count = number_at(obj, *path)
    return count if 0 < count < _MOST_ATTEMPTS else 0


def end_of(job: Resource) -> Resource | None:
    """The condition with which a Job has ended."""
    ends = (each for each in entries_at(job, "status", "conditions") if each.get("type") in ("Complete", "Failed"))
    return next((each for each in ends if each.get("status") == "True"), None)


def held_job(job: Resource) -> str:
    """What holds a Job of ours that another controller has suspended; empty if none has."""
    if dig(job, "spec", "suspend") is not True:
        return ""
    key, queue = key_of(job), labels_of(job).get(QUEUE_LABEL, "")
    if not queue:
        return (
            f"another controller has suspended Job {key.name}: see kubectl describe job {key.name} -n {key.namespace}"
        )
    return (
        f"Kueue holds Job {key.name} until its LocalQueue {bounded(queue)} has room: see kubectl describe workloads -n "
        f"{key.namespace}"
    )


def finished(job: Resource) -> str:
    """``Complete`` or ``Failed`` if the Job has ended; else empty."""
    return text_at(end_of(job), "type")


def ended_at(job: Resource) -> datetime | None:
    """When the Job ended; None if it has not, or does not say it."""
    return parse_moment(dig(end_of(job), "lastTransitionTime"))


def downloads(obj: Resource) -> bool:
    """Whether a Job, or a Job's pod, fetches weights."""
    return labels_of(obj).get(names.COMPONENT) == SETTINGS[JobStep.DOWNLOAD].component


def newest_pod(pods: Iterable[Resource], job: str) -> Resource | None:
    """The newest pod of the Job of that name that has ended or runs; None if there is none."""
    own = [pod for pod in pods if labels_of(pod).get("batch.kubernetes.io/job-name") == job]
    return max(own, key=lambda pod: str(dig(pod, "metadata", "creationTimestamp", default="")), default=None)


_FIRST, _LONGEST = timedelta(minutes=1), timedelta(hours=1)
"""Shortest and longest time between two tries; a fault of the configuration is tried again after the longest."""


def pause_after(attempts: int) -> timedelta:
    """The time between the end of a try and the next one, after `attempts` tries: a minute, doubled by each try."""
    return min(_LONGEST, _FIRST * (1 << min(max(attempts, 1) - 1, 10)))


def next_attempt(result: Result, *, attempts: int, ended: datetime) -> datetime | None:
    """When the step is tried again after `attempts` tries; None: only after a change of the spec (a full volume)."""
    category = category_of(result.reason)
    if result.reason == "StorageFull":
        return None
    if category is Category.CONFIG:
        return ended + _LONGEST
    asked = result.retry_after or 0.0
    # A server that asks for more than an hour gets it.
    return ended + max(pause_after(attempts), timedelta(seconds=asked))


_SKEW = timedelta(minutes=1)
"""How much later than ours a recorded time may be."""


def is_due(due: datetime, *, last: datetime | None, now: datetime) -> bool:
    """Whether the recorded time of the next try has come, or is that of a clock that was ahead: by it, the `last` try
    was later than now.
    """
    return due <= now or (last is not None and last > now + _SKEW)


def end_of_try(reason: str, *, attempts: int, due: datetime) -> datetime | None:
    """When the try ended that failed with `reason` and after which the next one is due; None if that is not known, as
    after an answer with which a server may have asked for more time.
    """
    if reason in _MAY_ASK or category_of(reason) is Category.PROGRESS:
        return None
    next_due = next_attempt(Result(ok=False, reason=reason), attempts=attempts, ended=due)
    return due - (next_due - due) if next_due is not None else None


_MAY_ASK = frozenset({"", "RateLimited", "ServerError"})
"""Reasons with which the downloader says how long a server asks it to wait; and none, which says nothing."""
