"""Decides what becomes of one ModelArtifact: its claim, its Jobs, its status (spec/platform.md, "Model cache"). Pure.

Example: the size check of ``llama-4f1c09ab2e`` has ended with 14.9 GB. The decision has a claim of 16Gi, the Job that
fetches the weights, and ``Progressing/Downloading``.

The steps are config → size → claim → download → Ready. What an attempt came to is recorded in the status, so that a
restart repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.artifacts.claims import (
    Wish,
    claim_name,
    claim_of,
    claim_verdict,
    is_smaller,
    job_name,
    labels_for,
    possible,
    room_of,
    size_with_headroom,
)
from airunway.artifacts.jobs import (
    MAX_BYTES,
    PERMANENT_EXIT,
    SETTINGS,
    Result,
    Step,
    claim_of_job,
    end_of_try,
    exit_code,
    fills,
    finished,
    job_of,
    newest_pod,
    next_attempt,
    result_of,
)
from airunway.artifacts.verdict import status_of
from airunway.configs import EffectiveConfig, Resolution, parse_duration
from airunway.resource import (
    Resource,
    condition_of,
    controller_owner,
    dig,
    format_time,
    is_deleting,
    key_of,
    labels_of,
    uid_of,
)
from airunway.status import CAPACITY_PATIENCE, DEPENDENCY_GRACE, Condition
from airunway.status.evidence import parse_moment
from airunway.status.rootcause import RootCause
from airunway.status.summary import Verdict

__all__ = [
    "ArtifactDecision",
    "ArtifactFacts",
    "Flags",
    "access_mode_of",
    "class_name_of",
    "decide_artifact",
    "is_complete",
    "is_made",
    "present_claim",
]

_ABANDONED = timedelta(minutes=5)
"""How long a made artifact that is not complete stays without a user."""

_POD_LAG = timedelta(seconds=5)
"""How long the watch of pods may lag behind that of Jobs; until then a Job without its pod's result has not failed."""

_TTL = timedelta(hours=24)
"""``retention.ttlAfterUnused`` if the spec does not say it."""

_MOST_ATTEMPTS = 2**31
"""A larger count in a status is none that this part has written."""

_NAMED = 16
"""Users that the status names."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The options of the part."""

    image: str
    """``--downloader-image``."""


@dataclass(frozen=True, kw_only=True)
class ArtifactFacts:
    """Everything that the decision depends on."""

    artifact: Resource
    """The ModelArtifact."""
    resolution: Resolution
    """The runtime config that it follows."""
    claims: tuple[Resource, ...] = ()
    """Claims that are the artifact's."""
    jobs: tuple[Resource, ...] = ()
    """Its Jobs."""
    pods: tuple[Resource, ...] = ()
    """Pods of its Jobs."""
    class_found: bool = True
    """Whether the StorageClass of its claim exists, or none is named."""
    storage_class: Resource | None = None
    """That StorageClass; None if it is not known."""
    users: tuple[str, ...] = ()
    """Names of the deployments that use it."""
    progress: Resource | None = None
    """The newest answer of the running download; None if there is none."""
    cause: RootCause | None = None
    """What its pods, claim and events show; None: nothing is wrong."""
    refused: Condition | None = None
    """What kept the last pass from writing its objects."""
    slot: bool = True
    """Whether a download may start now."""
    flags: Flags
    """The options of the part."""
    now: datetime
    """The current time."""


@dataclass(frozen=True, kw_only=True)
class ArtifactDecision:
    """What to make and what to say."""

    objects: tuple[Resource, ...] | None = None
    """Its claim, and a Job to create. None: everything stays as it is."""
    kept: frozenset[str] = frozenset()
    """Names of the Jobs that stay as they are; other Jobs and claims of ours are deleted."""
    status: Resource | None = None
    """The whole status of the artifact; None: it stays as it is."""
    requeue_after: float | None = None
    """Seconds after which time alone changes the decision."""
    wants_slot: bool = False
    """Whether it downloads, or waits for its turn."""
    delete_self: bool = False
    """Nothing uses it any more."""


@dataclass(frozen=True, kw_only=True)
class _State:
    """What is known of the artifact so far; each step of a pass returns a new one."""

    claim: Resource | None
    """Its present claim."""
    attempts: int
    """Tries of the current step."""
    last: str | None = None
    """When the last try began."""
    next: datetime | None = None
    """When the next try is due."""
    look: datetime | None = None
    """When to look again for a pod that has not been seen."""
    size: int | None = None
    """Measured size in bytes."""
    revision: str = ""
    """Resolved commit."""
    completed: Resource | None = None
    """The proof of completion."""
    asked: str = ""
    """Size that its claim must have; empty until there is to be one."""
    full: str = ""
    """Size of the claim that the last try filled; empty if none did, or once a larger one is there."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """What each child condition says, by its type."""


def is_made(artifact: Resource) -> bool:
    """Whether this part made the artifact; users' own ones are never deleted."""
    labels = labels_of(artifact)
    return labels.get(names.PART) == names.MODEL_CACHE_PART and labels.get(names.MANAGED_BY) == names.MANAGED_BY_VALUE


def is_complete(artifact: Resource, claim: Resource | None) -> bool:
    """Whether the weights are complete on exactly this claim."""
    proof = dig(artifact, "status", "completed", "claimUID")
    usable = claim is not None and not is_deleting(claim) and dig(claim, "status", "phase") != "Lost"
    return usable and bool(proof) and proof == uid_of(claim or {})


def decide_artifact(facts: ArtifactFacts) -> ArtifactDecision:
    """The decision for one artifact. Total for any JSON."""
    if is_deleting(facts.artifact):
        return ArtifactDecision()
    state = _before(facts)
    unused = _unused_since(facts)
    if (left := _time_left(facts, state, unused)) is not None and left <= 0:
        return ArtifactDecision(delete_self=True)
    config = _config_verdict(facts.resolution, begun=state.claim is not None or state.attempts > 0)
    state.verdicts["RuntimeConfigReady"] = config
    if config.ready is not True:
        decision = _decision(facts, state, objects=None, unused=unused, left=left)
        return replace(decision, wants_slot=_downloads(facts))
    objects, state, wants_slot = _steps(facts, state)
    if facts.refused is not None and state.completed is None:  # a claim that could not grow still has its weights
        refused = facts.refused
        state.verdicts[refused.type] = Verdict(ready=refused.status, reason=refused.reason, message=refused.message)
    decision = _decision(facts, state, objects=objects, unused=unused, left=left)
    return replace(decision, wants_slot=wants_slot or _downloads(facts), kept=_kept_jobs(facts, objects))


def _before(facts: ArtifactFacts) -> _State:
    """What the status says, in so far as it still holds."""
    status = facts.artifact.get("status")
    claim = present_claim(facts.artifact, facts.claims)
    size, attempts = dig(status, "discoveredSizeBytes"), dig(status, "download", "attempts")
    completed = dig(status, "completed")
    return _State(
        claim=claim,
        attempts=attempts if _is_count(attempts) and attempts < _MOST_ATTEMPTS else 0,
        last=_text(dig(status, "download", "lastAttemptTime")) or None,
        next=parse_moment(dig(status, "download", "nextAttemptTime")),
        size=size if _is_count(size) and 0 < size <= MAX_BYTES else None,
        revision=_text(dig(status, "resolvedRevision")),
        completed=completed if is_complete(facts.artifact, claim) and isinstance(completed, dict) else None,
    )


def present_claim(artifact: Resource, claims: Iterable[Resource]) -> Resource | None:
    """The claim that the status names, else any that is not going away: a pass may have ended before its status."""
    alive = [claim for claim in claims if not is_deleting(claim) and dig(claim, "status", "phase") != "Lost"]
    named = dig(artifact, "status", "persistentVolumeClaim")
    alive.sort(key=lambda claim: (key_of(claim).name != named, key_of(claim).name))
    return alive[0] if alive else None


# --------------------------------------------------------------------------------------------------------------- steps


def _config_verdict(resolution: Resolution, *, begun: bool) -> Verdict:
    if resolution.missing:
        text = f"there is neither a RuntimeConfig nor a ClusterRuntimeConfig {resolution.name}"
        return Verdict(ready=False, reason="ConfigNotFound", message=text)
    if resolution.config is None:
        return Verdict(ready=True, reason="UsingDefaults", message="there is no runtime config, and none is needed")
    if resolution.config.too_large and not begun:
        text = f"the runtime config {resolution.config.name} has more than 32 KiB of pod settings: make it smaller"
        return Verdict(ready=False, reason="InvalidSpec", message=text)
    return Verdict(ready=True, reason="ConfigFound", message=f"follows the runtime config {resolution.config.name}")


def _steps(facts: ArtifactFacts, state: _State) -> tuple[tuple[Resource, ...] | None, _State, bool]:
    """The objects that must exist, the new state, and whether a download slot is needed."""
    if state.claim is None and state.size is None and not _explicit_size(facts.artifact):
        job, state = _step(facts, state, Step.CHECK_SIZE, claim="")
        if state.size is None:
            return (job,) if job is not None else (), state, False
        state = replace(state, attempts=0, next=None, last=None)
    claim, state = _claim(facts, state)
    if state.completed is not None:
        state.verdicts["DownloadReady"] = _complete(state)
        return (claim,), state, False
    if not facts.class_found and dig(state.claim, "status", "phase") != "Bound":
        return (claim,), _waits(state, "Starting", "the download waits for the claim"), False
    name = str(claim["metadata"]["name"])
    job, state = _step(facts, state, Step.DOWNLOAD, claim=name)
    if state.completed is not None:
        return (claim,), state, False
    queued = state.verdicts["DownloadReady"].reason == "Queued"
    return (claim, job) if job is not None else (claim,), state, job is not None or queued


def _downloads(facts: ArtifactFacts) -> bool:
    """Whether a download runs; one that failed and waits for its next try holds back no other."""
    component = SETTINGS[Step.DOWNLOAD].component
    return any(labels_of(job).get(names.COMPONENT) == component and not finished(job) for job in facts.jobs)


def _complete(state: _State) -> Verdict:
    files, size = dig(state.completed, "files"), dig(state.completed, "bytes")
    return Verdict(ready=True, reason="Verified", message=f"{files} files with {size} bytes are complete and verified")


def _waits(state: _State, reason: str, message: str) -> _State:
    state.verdicts["DownloadReady"] = Verdict(ready=False, reason=reason, message=message)
    return state


def _step(facts: ArtifactFacts, state: _State, step: Step, *, claim: str) -> tuple[Resource | None, _State]:
    """The Job to create for the step (None: none), and the state with what the step came to."""
    uid, name = uid_of(facts.artifact), key_of(facts.artifact).name
    if state.attempts:
        own = job_name(name, step, uid=uid, attempt=state.attempts)
        live = next((job for job in facts.jobs if key_of(job).name == own), None)
        if live is not None and not is_deleting(live) and _is_for(live, claim, state.claim):
            return _follow(facts, state, step, live, claim=claim)
        if live is None and state.next is not None:
            return _wait_for_next(facts, state, step, claim=claim)
        if live is None and (full := _filled(facts, state)) is not None:
            return None, full
        if live is None:
            return _start(facts, state, step, claim=claim, attempt=state.attempts)
    return _start(facts, state, step, claim=claim, attempt=state.attempts + 1)


def _is_for(job: Resource, claim: str, live: Resource | None) -> bool:
    """Whether a Job is for the claim of that name, of which `live` is None before it is made or while a watch lags."""
    if not (named := claim_of_job(job)):
        return True
    return named == claim and (fills(job, live) if live is not None else not finished(job))


def _start(
    facts: ArtifactFacts, state: _State, step: Step, *, claim: str, attempt: int
) -> tuple[Resource | None, _State]:
    if step is Step.DOWNLOAD and not facts.slot:
        text = "other downloads come first (--max-downloads); this one starts when one of them ends"
        return None, _waits(state, "Queued", text)
    job = job_of(
        facts.artifact,
        step,
        name=job_name(key_of(facts.artifact).name, step, uid=uid_of(facts.artifact), attempt=attempt),
        image=_text(dig(facts.artifact, "spec", "downloaderImage")) or facts.flags.image,
        revision=state.revision,
        claim=claim,
        config=facts.resolution.config,
    )
    began = state.last if attempt == state.attempts else None  # the same try: its Job may exist already
    started = replace(state, attempts=attempt, last=began or format_time(facts.now), next=None)
    text = "the size of the weights is measured" if step is Step.CHECK_SIZE else "the download starts"
    return job, _waits(started, "JobRunning" if step is Step.CHECK_SIZE else "Starting", text)


def _follow(
    facts: ArtifactFacts, state: _State, step: Step, live: Resource, *, claim: str
) -> tuple[Resource | None, _State]:
    """What a Job that exists came to."""
    ended = finished(live)
    if not ended:
        return None, _running(facts, state, step)
    result = result_of(newest_pod(list(facts.pods), key_of(live).name), command=step.value, container=step.value)
    at = _ended(live)
    if not result.ok and result.at is None and at is not None and abs(facts.now - at) < _POD_LAG:
        return None, replace(_running(facts, state, step), look=facts.now + _POD_LAG)
    if ended == "Complete" and result.ok:
        return None, _succeeded(facts, state, step, result)
    return _failed(facts, state, step, live, result, claim=claim)


def _running(facts: ArtifactFacts, state: _State, step: Step) -> _State:
    if facts.cause is not None:
        return _waits(state, facts.cause.reason, facts.cause.message)
    if (failed := _last_failure(facts, state, step)) is not None:
        return _waits(state, failed.reason, f"{failed.message}; the Job tries it again")
    if step is Step.CHECK_SIZE:
        return _waits(state, "JobRunning", "the size of the weights is measured")
    if dig(facts.progress, "phase") == "Verifying":
        return _waits(state, "Verifying", "the files are compared with what their source says")
    return _waits(state, "Downloading", "the weights are fetched")


def _last_failure(facts: ArtifactFacts, state: _State, step: Step) -> Result | None:
    """What ended the newest pod of a Job that has not given up; None while that pod waits or runs, and after an error
    that fails the Job at once.
    """
    name = job_name(key_of(facts.artifact).name, step, uid=uid_of(facts.artifact), attempt=state.attempts)
    pod = newest_pod(list(facts.pods), name)
    if pod is None or dig(pod, "status", "phase") != "Failed" or dig(pod, "status", "reason") == "Evicted":
        return None
    result = result_of(pod, command=step.value, container=step.value)
    if result.ok or result.at is None or exit_code(pod, container=step.value) == PERMANENT_EXIT:
        return None
    return result


def _succeeded(facts: ArtifactFacts, state: _State, step: Step, result: Result) -> _State:
    revision = result.revision or state.revision
    if step is Step.CHECK_SIZE:
        return replace(state, size=result.bytes, revision=revision)
    completed = {
        "digest": result.digest,
        "files": result.files,
        "bytes": result.bytes,
        "claimUID": uid_of(state.claim or {}),
        "at": format_time(result.at or facts.now),
    }
    done = replace(state, completed=completed, revision=revision, next=None)
    done.verdicts["DownloadReady"] = _complete(done)
    return done


def _failed(
    facts: ArtifactFacts, state: _State, step: Step, live: Resource, result: Result, *, claim: str
) -> tuple[Resource | None, _State]:
    """The next try if its time has come."""
    due = next_attempt(result, attempts=state.attempts, ended=result.at or _ended(live) or facts.now)
    if due is not None and due <= facts.now:
        return _start(facts, state, step, claim=claim, attempt=state.attempts + 1)
    if due is not None:
        text = f"{result.message}; it is tried again at {format_time(due)}"
        return None, _waits(replace(state, next=due), result.reason, text)
    full = _filled(facts, replace(state, next=None), result=result)
    return (None, full) if full is not None else _start(facts, state, step, claim=claim, attempt=state.attempts + 1)


def _wait_for_next(facts: ArtifactFacts, state: _State, step: Step, *, claim: str) -> tuple[Resource | None, _State]:
    """The failed Job is gone and its next try is recorded."""
    if state.next is None or state.next <= facts.now or _deleted_by_hand(facts, state, step):
        return _start(facts, state, step, claim=claim, attempt=state.attempts + 1)
    return None, _kept(facts, state)


def _deleted_by_hand(facts: ArtifactFacts, state: _State, step: Step) -> bool:
    """Whether the Job went before its time to live was over: a user asks for a new try."""
    reason = _text(dig(condition_of(facts.artifact, "DownloadReady"), "reason"))
    if reason == "Queued":  # it was asked for, and waits for its turn
        return True
    ended = end_of_try(reason, attempts=state.attempts, due=state.next) if state.next is not None else None
    since = ended or parse_moment(state.last)  # the time to live begins with the Job's end, which is after its start
    return since is not None and since <= facts.now < since + timedelta(seconds=SETTINGS[step].ttl)


def _kept(facts: ArtifactFacts, state: _State) -> _State:
    """What the last try came to, as the status has it."""
    before = condition_of(facts.artifact, "DownloadReady")
    if before is None or before.get("status") != "False":
        return _waits(state, "JobFailed", "the last try failed")
    return _waits(state, _text(before.get("reason")) or "JobFailed", _text(before.get("message")))


def _filled(facts: ArtifactFacts, state: _State, *, result: Result | None = None) -> _State | None:
    """The state while the claim that the last try filled has not grown; None if a new try may begin.

    `result` is that try's, if its Job is still there. Else the reason in the status says what the try came to:
    PvcPending, that a larger volume was asked for.
    """
    before = _text(dig(condition_of(facts.artifact, "DownloadReady"), "reason"))
    if before == "Queued" or (result is None and before not in ("StorageFull", "PvcPending")):
        return None
    if state.claim is None and state.asked:
        return None  # made anew
    room, recorded = room_of(state.claim), _text(dig(facts.artifact, "status", "allocatedSize"))
    grows = is_smaller(room, state.asked)
    if before == "PvcPending" and result is None and not grows:
        return None
    grown = is_smaller(recorded, dig(state.claim, "spec", "resources", "requests", "storage"))
    full = recorded if grown else room
    if grows:
        text = f"the volume of claim {key_of(state.claim or {}).name} is being expanded to {state.asked}"
        return _waits(replace(state, full=full), "PvcPending", f"{text}; then the download is tried again")
    if is_smaller(full, room):
        return None
    waits = replace(state, full=full)
    if result is None:
        return _kept(facts, waits)
    hint = f"the claim has {room or _wanted_size(facts, state)}: set spec.size of ModelArtifact"
    return _waits(waits, result.reason, f"{result.message}; {hint} {key_of(facts.artifact).name} to more")


def _kept_jobs(facts: ArtifactFacts, objects: tuple[Resource, ...] | None) -> frozenset[str]:
    """Jobs that have ended stay until their time to live is over; one that runs for another claim goes."""
    claim = next((str(o["metadata"]["name"]) for o in objects or () if o["kind"] == "PersistentVolumeClaim"), "")
    live = next((each for each in facts.claims if key_of(each).name == claim), None)
    return frozenset(
        key_of(job).name
        for job in facts.jobs
        if is_deleting(job) or finished(job) or objects is None or _is_for(job, claim, live)
    )


def _ended(job: Resource) -> datetime | None:
    conditions = dig(job, "status", "conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if dig(each, "type") in ("Failed", "Complete") and dig(each, "status") == "True":
            return parse_moment(dig(each, "lastTransitionTime"))
    return None


# --------------------------------------------------------------------------------------------------------------- claim


def _explicit_size(artifact: Resource) -> str:
    size = dig(artifact, "spec", "size")
    return str(size) if size not in (None, "") else ""


def _wanted_size(facts: ArtifactFacts, state: _State) -> str:
    if explicit := _explicit_size(facts.artifact):
        return explicit
    config = facts.resolution.config
    percent = config.storage.headroom_percent if config is not None else 10
    return size_with_headroom(state.size or 1, percent)


def _claim(facts: ArtifactFacts, state: _State) -> tuple[Resource, _State]:
    """The claim that must exist, and the state with what StorageReady says."""
    artifact, live = facts.artifact, state.claim
    config = facts.resolution.config
    wish = Wish(
        size=_wanted_size(facts, state),
        class_name=class_name_of(artifact, config, None) or None,
        access_mode=access_mode_of(artifact, config, None),
    )
    can_be = possible(wish, live, facts.storage_class)
    if is_smaller(can_be.size, wish.size) and state.completed is None and _explicit_size(artifact):
        live, can_be = None, wish  # made anew: it is not complete, and a larger one cannot be had otherwise
    claim = claim_of(
        key_of(live).name if live is not None else _free_name(facts, state),
        can_be,
        labels=labels_for(artifact, config),
    )
    state.verdicts["StorageReady"] = claim_verdict(
        live,
        class_name=class_name_of(artifact, config, live),
        class_found=facts.class_found,
        storage_class=facts.storage_class,
        first_user="the download's pod",
    )
    return claim, replace(state, claim=live, asked=can_be.size)


def class_name_of(artifact: Resource, config: EffectiveConfig | None, claim: Resource | None) -> str:
    """Name of the StorageClass of an artifact's claim: that of the claim if there is one, else that of the next one.
    Empty: the cluster's default class, or none.
    """
    if claim is not None:
        return _text(dig(claim, "spec", "storageClassName"))
    own = _text(dig(artifact, "spec", "storageClassName"))
    return own or (config.storage.class_name if config is not None else "")


def access_mode_of(artifact: Resource, config: EffectiveConfig | None, claim: Resource | None) -> str:
    """Access mode of an artifact's claim: that of the claim if there is one, else that of the next one."""
    modes = dig(claim, "spec", "accessModes")
    own = _text(modes[0]) if isinstance(modes, list) and modes else ""
    usual = config.storage.access_mode if config is not None else "ReadWriteMany"
    return own or _text(dig(artifact, "spec", "accessMode")) or usual


def _free_name(facts: ArtifactFacts, state: _State) -> str:
    """A name for a new claim: not that of a claim that was lost, that a Job has filled, or that is going away while
    pods still mount it.
    """
    artifact = facts.artifact
    named = _text(dig(artifact, "status", "persistentVolumeClaim"))
    taken = {key_of(claim).name for claim in facts.claims}
    taken |= {claim_of_job(job) for job in facts.jobs if finished(job)}
    if named and named not in taken and dig(artifact, "status", "completed") is None:
        return named  # the claim of an earlier pass, which may not be in the cache yet
    taken.add(named)
    for attempt in range(len(taken) + 1):
        name = claim_name(key_of(artifact).name, uid=uid_of(artifact), attempt=attempt)
        if name not in taken:
            return name
    raise AssertionError("there are more names than taken ones")


# ----------------------------------------------------------------------------------------------------------- retention


def _unused_since(facts: ArtifactFacts) -> datetime | None:
    """Since when nothing uses it; None while something does."""
    if facts.users:
        return None
    return parse_moment(dig(facts.artifact, "status", "unusedSince")) or facts.now


def _time_left(facts: ArtifactFacts, state: _State, unused: datetime | None) -> float | None:
    """Seconds until the artifact is deleted because nothing uses it; None: it stays."""
    artifact = facts.artifact
    if unused is None or not is_made(artifact) or controller_owner(artifact) is not None:
        return None
    if state.completed is None:
        return (unused + _ABANDONED - facts.now).total_seconds()
    if dig(artifact, "spec", "retention", "policy") != "DeleteUnused":
        return None
    ttl = parse_duration(_text(dig(artifact, "spec", "retention", "ttlAfterUnused"))) or _TTL
    return (unused + ttl - facts.now).total_seconds()


# -------------------------------------------------------------------------------------------------------------- status


def _decision(
    facts: ArtifactFacts,
    state: _State,
    *,
    objects: tuple[Resource, ...] | None,
    unused: datetime | None,
    left: float | None,
) -> ArtifactDecision:
    now, config = facts.now, facts.resolution.config
    policy = config.status_policy if config is not None else None
    status, wake = status_of(
        facts.artifact,
        state.verdicts,
        created=bool(state.attempts or state.claim),
        now=now,
        cause=facts.cause,
        grace=policy.grace if policy is not None else DEPENDENCY_GRACE,
        patience=policy.patience if policy is not None else CAPACITY_PATIENCE,
    )
    claim = next((o["metadata"]["name"] for o in objects or () if o["kind"] == "PersistentVolumeClaim"), None)
    allocated = next(
        (o["spec"]["resources"]["requests"]["storage"] for o in objects or () if o["kind"] == "PersistentVolumeClaim"),
        dig(facts.artifact, "status", "allocatedSize"),
    )
    download = {
        "attempts": state.attempts or None,
        "lastAttemptTime": state.last,
        "nextAttemptTime": format_time(state.next) if state.next is not None else None,
    }
    parts: Resource = {
        "mode": _mode(facts.artifact),
        "progress": _progress(facts, state),
        "download": {key: value for key, value in download.items() if value is not None} or None,
        "discoveredSizeBytes": state.size,
        "allocatedSize": state.full or allocated,
        "headroomPercent": config.storage.headroom_percent if config is not None else 10,
        "resolvedRevision": state.revision or None,
        "persistentVolumeClaim": claim or dig(facts.artifact, "status", "persistentVolumeClaim"),
        "completed": state.completed,
        "users": len(facts.users),
        "usedBy": sorted(facts.users)[:_NAMED] or None,
        "unusedSince": format_time(unused) if unused is not None else None,
        "effectiveRuntimeConfig": config.status() if config is not None else None,
    }
    status |= {key: value for key, value in parts.items() if value is not None}
    # A try that is due and has not begun waits for a change: a slot, its config, its class.
    due = (state.next - now).total_seconds() if state.next is not None and state.next > now else None
    look = (state.look - now).total_seconds() if state.look is not None else None
    waits = [each for each in (wake, left, due, look) if each is not None]
    return ArtifactDecision(objects=objects, status=status, requeue_after=max(0.0, min(waits)) if waits else None)


def _progress(facts: ArtifactFacts, state: _State) -> Resource | None:
    if state.completed is not None:
        total = dig(state.completed, "bytes")
        return {"totalBytes": total, "downloadedBytes": total, "percentage": 100}
    total, done, speed = (dig(facts.progress, key) for key in ("totalBytes", "downloadedBytes", "bytesPerSecond"))
    if not _is_count(total) or not _is_count(done) or not 0 < total <= MAX_BYTES:
        found = dig(facts.artifact, "status", "progress")
        return found if isinstance(found, dict) and dig(found, "percentage") != 100 else None
    done = min(done, total)
    found = {"totalBytes": total, "downloadedBytes": done, "percentage": done * 100 // total}
    before = dig(facts.artifact, "status", "progress")
    same = ("totalBytes", total), ("downloadedBytes", done), ("bytesPerSecond", speed or None)
    if isinstance(before, dict) and all(before.get(key) == value for key, value in same):
        return before  # the same answer: a new estimate alone is worth no write
    if _is_count(speed) and 0 < speed <= MAX_BYTES:
        left = min((total - done) / speed, timedelta(days=365).total_seconds())
        found |= {"bytesPerSecond": speed, "estimatedCompletion": format_time(facts.now + timedelta(seconds=left))}
    return found


def _mode(artifact: Resource) -> str:
    if not is_made(artifact):
        return "User"
    return "Dedicated" if controller_owner(artifact) is not None else "Shared"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
