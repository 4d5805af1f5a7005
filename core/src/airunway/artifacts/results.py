"""Reads what a Job's pod said at its end: the termination message of the downloader. Pure and total.

Example: ``{"v": 1, "command": "download", "ok": {"bytes": 5, "files": 2, "digest": "sha256:…"}}``. A message that is
none of these counts as a failed try, never as a success.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from airunway.redaction import bounded, redacted
from airunway.resource import Resource, dig, labels_of
from airunway.status import REASONS, Category, category_of
from airunway.status.evidence import parse_moment

__all__ = [
    "LONGEST",
    "MAX_BYTES",
    "PERMANENT_EXIT",
    "Result",
    "end_of_try",
    "exit_code",
    "finished",
    "newest_pod",
    "next_attempt",
    "result_of",
]

MAX_BYTES = 2**50
"""Largest size that is believed, in bytes: one PiB."""

PERMANENT_EXIT = 3
"""Exit code of the downloader for errors that a new try cannot mend: the Job fails at once."""

_MOST = 4096
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
    reason: str = ""
    """Why it failed: a reason of the registry."""
    message: str = ""
    """Why it failed, as a sentence."""
    retry_after: float | None = None
    """Seconds that the server asked to wait."""
    at: datetime | None = None
    """When the pod ended; None if it is not known."""


def result_of(pod: Resource | None, *, command: str, container: str) -> Result:
    """The result of a Job's last pod. Without a pod, or with a message that cannot be read, it is a failure."""
    if pod is None:
        return _failed("JobFailed", "the pod of the Job is gone, and with it its result")
    state = _terminated(pod, container)
    if state is None:
        return _failed("JobFailed", "the pod of the Job has no result", at=None)
    at = parse_moment(dig(state, "finishedAt"))
    if state.get("reason") == "OOMKilled":
        return _failed("PodOOMKilled", "the container used more memory than its limit", at=at)
    text = state.get("message")
    found = _parsed(text)
    if found is None or found.get("command") != command or found.get("v") != 1:
        return _failed("JobFailed", _unreadable(state, text), at=at)
    if isinstance(error := found.get("error"), dict):
        return _error(error, at=at)
    return _success(found.get("ok"), command=command, at=at)


def _success(ok: object, *, command: str, at: datetime | None) -> Result:
    size, files, digest = dig(ok, "bytes"), dig(ok, "files"), dig(ok, "digest", default="")
    if not _count(size) or not 0 < size <= MAX_BYTES or not _count(files) or files < 1:
        return _failed(
            "VerificationFailed", f"the downloader reports a size that cannot be: {bounded(str(size))}", at=at
        )
    if command == "download" and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        return _failed("VerificationFailed", "the downloader reports no digest of what it fetched", at=at)
    revision = dig(ok, "revision", default="")
    return Result(
        ok=True,
        bytes=size,
        files=files,
        digest=digest if isinstance(digest, str) else "",
        revision=revision if isinstance(revision, str) and _REVISION.fullmatch(revision) else "",
        at=at,
    )


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
    said = f": {_words(text)}" if text else ""
    return f"the download ended with exit code {code} and no result that can be read{said}"


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


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _terminated(pod: Resource, container: str) -> Resource | None:
    statuses = dig(pod, "status", "containerStatuses")
    for status in statuses if isinstance(statuses, list) else ():
        if dig(status, "name") == container:
            state = dig(status, "state", "terminated")
            return state if isinstance(state, dict) else None
    return None


def exit_code(pod: Resource, *, container: str) -> object:
    """The exit code of a pod's container; None if it has not ended."""
    return dig(_terminated(pod, container), "exitCode")


def finished(job: Resource) -> str:
    """``Complete`` or ``Failed`` if the Job has ended; else empty."""
    conditions = dig(job, "status", "conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if dig(each, "status") == "True" and dig(each, "type") in ("Complete", "Failed"):
            return str(each["type"])
    return ""


def newest_pod(pods: list[Resource], job: str) -> Resource | None:
    """The newest pod of the Job of that name that has ended or runs; None if there is none."""
    own = [pod for pod in pods if labels_of(pod).get("batch.kubernetes.io/job-name") == job]
    return max(own, key=lambda pod: str(dig(pod, "metadata", "creationTimestamp", default="")), default=None)


_FIRST = 60.0
LONGEST = timedelta(hours=1)
"""Longest time between two tries; a fault of the configuration is tried again after this time."""


def next_attempt(result: Result, *, attempts: int, ended: datetime) -> datetime | None:
    """When the step is tried again after `attempts` tries; None: only after a change of the spec (a full volume)."""
    category = category_of(result.reason)
    if result.reason == "StorageFull":
        return None
    if category is Category.CONFIG:
        return ended + LONGEST
    seconds = _FIRST * 2 ** min(max(attempts, 1) - 1, 10)
    asked = result.retry_after or 0.0
    # A server that asks for more than an hour gets it.
    return ended + max(min(LONGEST, timedelta(seconds=seconds)), timedelta(seconds=asked))


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
