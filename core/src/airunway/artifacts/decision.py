"""Decides what becomes of one ModelArtifact: its claim, its Jobs, its status (docs/model-cache.md). Pure.

Example: the size check of ``llama-4f1c09ab2e`` has ended with 14.9 GB. The decision has a claim of 16Gi, the Job that
fetches the weights, and ``Progressing/Downloading``.

The steps are config → size → claim → download → Ready. What an attempt came to is recorded in the status, so that a
restart repeats nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airunway.artifacts.claims import (
    Wish,
    access_mode_of,
    claim_name,
    claim_of,
    claim_verdict,
    class_name_of,
    explicit_size,
    is_complete,
    is_smaller,
    job_name,
    labels_for,
    possible,
    present_claim,
    room_of,
    size_with_headroom,
)
from airunway.artifacts.jobs import (
    MAX_BYTES,
    PERMANENT_EXIT,
    POD_LAG,
    SETTINGS,
    JobStep,
    Result,
    attempts_at,
    claim_of_job,
    downloads,
    end_of,
    end_of_try,
    ended_at,
    environment_fault,
    exit_code,
    fills,
    finished,
    held_job,
    is_due,
    job_of,
    newest_pod,
    next_attempt,
    result_of,
)
from airunway.artifacts.status import config_verdict, is_count, is_made, mode_of, progress_of, status_of
from airunway.configs.canonical import parse_duration
from airunway.configs.resolution import BUILT_IN, NOT_ALLOWED, Resolution
from airunway.resource import (
    Resource,
    condition_of,
    controller_owner,
    dig,
    filled,
    format_time,
    is_deleting,
    key_of,
    text_at,
    uid_of,
)
from airunway.status.conditions import Condition
from airunway.status.evidence import parse_moment
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Verdict, not_reached_yet
from airunway.status.rootcause import RootCause

_ABANDONED = timedelta(minutes=5)
"""How long a made artifact that is not complete stays without a user."""

_UNASKED = frozenset({Category.CAPACITY, Category.EXHAUSTION, Category.PROGRESS})
"""Categories of what happens before the source is asked, or without its answer."""

_TTL = timedelta(hours=24)
"""``retention.ttlAfterUnused`` if the spec does not say it."""

_START = timedelta(minutes=5)
"""How long a download keeps its slot before its pod runs: one that cannot start must not hold back those of others."""

_NAMED = 16
"""Users that the status names."""


@dataclass(frozen=True, kw_only=True)
class ArtifactFacts:
    """Everything that the decision depends on."""

    artifact: Resource
    """The ModelArtifact."""
    resolution: Resolution
    """The runtime config that it follows."""
    not_allowed: str = ""
    """Why the policy does not let it follow that config; empty if it does."""
    claims: tuple[Resource, ...] = ()
    """Claims that are the artifact's."""
    jobs: tuple[Resource, ...] = ()
    """Its Jobs."""
    pods: tuple[Resource, ...] = ()
    """Pods of its Jobs."""
    classes: Mapping[str, Resource] = field(default_factory=dict)
    """The StorageClasses of the cluster, by name."""
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
    image: str
    """``--downloader-image``."""
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


def decide_artifact(facts: ArtifactFacts) -> ArtifactDecision:
    """The decision for one artifact. Total for any JSON."""
    if is_deleting(facts.artifact):
        return ArtifactDecision()
    work = _Work(facts)
    left = work.seconds_left()
    if left is not None and left <= 0:
        return ArtifactDecision(delete_self=True)
    work.verdicts["RuntimeConfigReady"] = config = work.config_verdict()
    if config.ready is not True:
        return work.decision(objects=None, left=left)
    if (fault := environment_fault(facts.artifact)) and not work.completed:
        work.verdicts["DownloadReady"] = Verdict(ready=False, reason="InvalidSpec", message=fault)
        return work.decision(objects=None, left=left)
    objects = work.objects()
    if (no := facts.refused) is not None and not work.completed:  # a claim that could not grow still has its weights
        work.verdicts[no.type] = Verdict(ready=no.status, reason=no.reason, message=no.message)
    return work.decision(objects=objects, left=left)


class _Work:
    """What is known of an artifact in one pass: at first what its status says, as far as it still holds; each step adds
    what it came to.
    """

    def __init__(self, facts: ArtifactFacts) -> None:
        self.facts, self.artifact, self.config = facts, facts.artifact, facts.resolution.config
        status = self.artifact.get("status")
        self.name, self.uid = key_of(self.artifact).name, uid_of(self.artifact)
        self.claim = present_claim(self.artifact, facts.claims)
        """Its present claim; None once another one is to be made."""
        self.target = ""
        """Name of the claim that is filled; empty before there is to be one."""
        self.attempts = attempts_at(status, "download", "attempts")
        """Tries of the current step."""
        self.last = text_at(status, "download", "lastAttemptTime")
        """When the last try began; empty if none did."""
        self.next = parse_moment(dig(status, "download", "nextAttemptTime"))
        """When the next try is due."""
        self.look: datetime | None = None
        """When to look again for a pod that has not been seen."""
        self.until: datetime | None = None
        """Until when a download that has not started keeps its slot; None: it has started, or there is none."""
        size = dig(status, "discoveredSizeBytes")
        self.size: int | None = size if is_count(size) and 0 < size <= MAX_BYTES else None
        """Measured size in bytes."""
        self.revision = text_at(status, "resolvedRevision")
        """Resolved commit."""
        completed = dig(status, "completed") if is_complete(self.artifact, self.claim) else None
        self.completed: Resource | None = completed if isinstance(completed, dict) else None
        self.adapter = dig(status, "adapter") if self.completed else None
        """The proof of completion."""
        self.asked = ""
        """Size that its claim must have; empty until there is to be one."""
        self.full = ""
        """Size of the claim that the last try filled; empty if none did, or once a larger one is there."""
        self.recorded = condition_of(self.artifact, "DownloadReady") or {}
        """What the status says about the last try."""
        self.unused = None if facts.users else parse_moment(dig(status, "unusedSince")) or facts.now
        """Since when nothing uses it; None while something does."""
        self.wants_slot = any(self._takes_slot(job) for job in facts.jobs)
        """Whether it downloads or waits for its turn; a try that failed and waits for the next holds back no other."""
        self.verdicts: dict[str, Verdict] = {}
        """What each child condition says, by its type."""

    def _takes_slot(self, job: Resource) -> bool:
        """Whether a Job fetches, or may be about to: its pod runs or has run, or nothing is wrong and it is new."""
        if not downloads(job) or finished(job):
            return False
        pod, now = newest_pod(self.facts.pods, key_of(job).name), self.facts.now
        if _has_begun(pod):
            return True
        cause = self.facts.cause
        if cause is not None and category_of(cause.reason) is not Category.PROGRESS:
            return False
        made = parse_moment(dig(pod, "metadata", "creationTimestamp"))
        began = max((each for each in (parse_moment(self.last), made) if each is not None and each <= now), default=now)
        self.until = began + _START
        return now < self.until

    def seconds_left(self) -> float | None:
        """Seconds until the artifact is deleted because nothing uses it; None: it stays."""
        if self.unused is None or not is_made(self.artifact) or controller_owner(self.artifact) is not None:
            return None
        if not self.completed:
            return (self.unused + _ABANDONED - self.facts.now).total_seconds()
        if dig(self.artifact, "spec", "retention", "policy") != "DeleteUnused":
            return None
        ttl = parse_duration(text_at(self.artifact, "spec", "retention", "ttlAfterUnused")) or _TTL
        return (self.unused + ttl - self.facts.now).total_seconds()

    def config_verdict(self) -> Verdict:
        """Whether the runtime config can be used. One that has grown too large stops nothing that has begun."""
        if self.facts.not_allowed:
            return Verdict(ready=False, reason=NOT_ALLOWED, message=self.facts.not_allowed)
        config = self.config
        if config is not None and config.too_large and self.claim is None and not self.attempts:
            text = f"{config.title} has more than 32 KiB of pod settings: make it smaller"
            return Verdict(ready=False, reason="InvalidSpec", message=text)
        return config_verdict(self.facts.resolution)

    # ---------------------------------------------------------------------------------------------------------- steps

    def objects(self) -> tuple[Resource, ...]:
        """The claim that must exist, and the Job to create, if any."""
        if self.claim is None and self.size is None and not explicit_size(self.artifact):
            job = self._step(JobStep.CHECK_SIZE)
            if self.size is None:
                return (job,) if job is not None else ()
            self.attempts, self.last, self.next = 0, "", None
        claim = self._wanted_claim()
        if self.completed:
            self._say_complete()
            return (claim,)
        class_name = class_name_of(self.artifact, self.config, self.claim)
        if class_name and class_name not in self.facts.classes and dig(self.claim, "status", "phase") != "Bound":
            self._say("Starting", "the download waits for the claim")
            return (claim,)
        self.target = str(claim["metadata"]["name"])
        job = self._step(JobStep.DOWNLOAD)
        self.wants_slot |= job is not None or self.verdicts["DownloadReady"].reason == "Queued"
        return (claim, job) if job is not None else (claim,)

    def _say(self, reason: str, message: str) -> None:
        self.verdicts["DownloadReady"] = Verdict(ready=False, reason=reason, message=message)

    def _say_again(self) -> None:
        """What the last try came to, as the status has it."""
        if self.recorded.get("status") == "False":
            self._say(text_at(self.recorded, "reason") or "JobFailed", text_at(self.recorded, "message"))
        else:
            self._say("JobFailed", "the last try failed")

    def _say_complete(self) -> None:
        files, size = dig(self.completed, "files"), dig(self.completed, "bytes")
        text = f"{files} files with {size} bytes are complete and verified"
        self.verdicts["DownloadReady"] = Verdict(ready=True, reason="Verified", message=text)

    def _job_name(self, step: JobStep, attempt: int) -> str:
        return job_name(self.name, step, uid=self.uid, attempt=attempt)

    def _step(self, step: JobStep) -> Resource | None:
        """The Job to create for a step; None: there is none to create now."""
        if not self.attempts:
            return self._start(step, attempt=1)
        name = self._job_name(step, self.attempts)
        live = next((job for job in self.facts.jobs if key_of(job).name == name), None)
        if live is not None:
            if is_deleting(live) or not _is_for(live, self.target, self.claim):
                return self._start(step, attempt=self.attempts + 1)
            return self._follow(step, live)
        if self.next is not None:  # the failed Job is gone, and its next try is recorded
            due = is_due(self.next, last=parse_moment(self.last), now=self.facts.now)
            if due or self._is_deleted_by_hand(step):
                return self._start(step, attempt=self.attempts + 1)
            self._say_again()
            return None
        return None if self._waits_for_room() else self._start(step, attempt=self.attempts)

    def _start(self, step: JobStep, *, attempt: int) -> Resource | None:
        """The Job of a try; None while other downloads come first, or while nothing uses what failed."""
        if self.unused is not None and is_made(self.artifact) and attempt > 1:
            self._say_again()
            return None
        if step is JobStep.DOWNLOAD and not self.facts.slot:
            self.next = min(self.next, self.facts.now) if self.next is not None else None
            self._say(
                "Queued",
                "other downloads come first (--max-downloads); this one starts when one ends and it is its turn",
            )
            return None
        if attempt != self.attempts or not self.last:  # else the same try: its Job may exist already
            self.last = format_time(self.facts.now)
        self.attempts, self.next = attempt, None
        if step is JobStep.CHECK_SIZE:
            self._say("JobRunning", "the size of the weights is measured")
        else:
            self._say("Starting", "the download starts")
        return job_of(
            self.artifact,
            step,
            name=self._job_name(step, attempt),
            image=text_at(self.artifact, "spec", "downloaderImage") or self.facts.image,
            revision=self.revision,
            claim=self.target,
            config=self.config,
        )

    def _follow(self, step: JobStep, live: Resource) -> Resource | None:
        """What a Job that exists came to; the Job of the next try if its time has come."""
        end, ended, now = finished(live), ended_at(live), self.facts.now
        if not end:
            self._say_running(step, live)
            return None
        result = result_of(newest_pod(self.facts.pods, key_of(live).name), step)
        if not result.ok and dig(end_of(live), "reason") == "DeadlineExceeded":
            result = _out_of_time(step, ended or now)
        if not result.ok and result.at is None and ended is not None and abs(now - ended) < POD_LAG:
            self._say_running(step, live)
            self.look = now + POD_LAG
            return None
        if end == "Complete" and result.ok:
            self._note_success(step, result)
            return None
        # A pod ends before its Job does; its own time is that of the node's clock, which may be ahead.
        at = min((each for each in (result.at, ended) if each is not None), default=now)
        due = next_attempt(result, attempts=self.attempts, ended=at)
        if due is not None and due > now:
            self.next = due
            self._say(result.reason, f"{result.message.rstrip('.')}; it is tried again at {format_time(due)}")
            return None
        if due is None and self._waits_for_room(result):
            self.next = None
            return None
        return self._start(step, attempt=self.attempts + 1)

    def _say_running(self, step: JobStep, job: Resource) -> None:
        if self.facts.cause is not None:
            self._say(self.facts.cause.reason, self.facts.cause.message)
        elif (failed := self._last_failure(step)) is not None:
            self._say(failed.reason, f"{failed.message}; the Job tries it again")
        elif held := held_job(job):
            self._say("Starting", held)
        elif step is JobStep.CHECK_SIZE:
            self._say("JobRunning", "the size of the weights is measured")
        elif dig(self.facts.progress, "phase") == "Verifying":
            self._say("Verifying", "the files are compared with what their source says")
        elif finished(job) or _has_begun(newest_pod(self.facts.pods, key_of(job).name)):
            self._say("Downloading", "the weights are fetched")
        else:
            self._say("Starting", "the pod of the download has not started yet")

    def _last_failure(self, step: JobStep) -> Result | None:
        """What ended the newest pod of a Job that has not given up; None while that pod waits or runs, and after an
        error that fails the Job at once.
        """
        pod = newest_pod(self.facts.pods, self._job_name(step, self.attempts))
        if pod is None or dig(pod, "status", "phase") != "Failed" or dig(pod, "status", "reason") == "Evicted":
            return None
        result = result_of(pod, step)
        if result.ok or result.at is None or exit_code(pod, step) == PERMANENT_EXIT:
            return None
        return result

    def _note_success(self, step: JobStep, result: Result) -> None:
        self.revision = result.revision or self.revision
        if step is JobStep.CHECK_SIZE:
            self.size = result.bytes
            return
        self.completed = {
            "digest": result.digest,
            "files": result.files,
            "bytes": result.bytes,
            "claimUID": uid_of(self.claim or {}),
            "at": format_time(result.at or self.facts.now),
        }
        self.adapter = dict(result.adapter) if result.adapter is not None else None
        self.next = None
        self._say_complete()

    def _is_deleted_by_hand(self, step: JobStep) -> bool:
        """Whether the Job went before its time to live was over: a user asks for a new try."""
        reason = text_at(self.recorded, "reason")
        if reason == "Queued":  # it was asked for, and waits for its turn
            return True
        ended = end_of_try(reason, attempts=self.attempts, due=self.next) if self.next is not None else None
        since = ended or parse_moment(self.last)  # the time to live begins with the Job's end, which is after its start
        return since is not None and since <= self.facts.now < since + timedelta(seconds=SETTINGS[step].ttl)

    def _waits_for_room(self, result: Result | None = None) -> bool:
        """Whether the claim that the last try filled has not grown; otherwise a new try may begin.

        `result` is that try's, if its Job is still there. Else the reason in the status says what the try came to:
        PvcPending, that a larger volume was asked for.
        """
        before = text_at(self.recorded, "reason")
        if before == "Queued" or (result is None and before not in ("StorageFull", "PvcPending")):
            return False
        if self.claim is None and self.asked:
            return False  # made anew
        room, recorded = room_of(self.claim), text_at(self.artifact, "status", "allocatedSize")
        grows = is_smaller(room, self.asked)
        if before == "PvcPending" and result is None and not grows:
            return False
        grown = is_smaller(recorded, dig(self.claim, "spec", "resources", "requests", "storage"))
        full = recorded if grown else room
        if grows:
            text = f"the volume of claim {key_of(self.claim or {}).name} is being expanded to {self.asked}"
            self._say("PvcPending", f"{text}; then the download is tried again")
        elif is_smaller(full, room):
            return False
        elif result is None:
            self._say_again()
        else:
            hint = f"the claim has {room or self._wanted_size()}: set spec.size of ModelArtifact"
            self._say(result.reason, f"{result.message}; {hint} {self.name} to more")
        self.full = full
        return True

    # ---------------------------------------------------------------------------------------------------------- claim

    def _wanted_size(self) -> str:
        percent = (self.config or BUILT_IN).storage.headroom_percent
        return explicit_size(self.artifact) or size_with_headroom(self.size or 1, percent)

    def _wanted_claim(self) -> Resource:
        """The claim that must exist. StorageReady says what is with the one that there is."""
        wish = Wish(
            size=self._wanted_size(),
            class_name=class_name_of(self.artifact, self.config, None) or None,
            access_mode=access_mode_of(self.artifact, self.config, None),
        )
        storage_class = self.facts.classes.get(class_name_of(self.artifact, self.config, self.claim))
        can_be = possible(wish, self.claim, storage_class)
        if is_smaller(can_be.size, wish.size) and not self.completed and explicit_size(self.artifact):
            self.claim, can_be = None, wish  # made anew: it is not complete, and a larger one cannot be had otherwise
        self.asked = can_be.size
        self.verdicts["StorageReady"] = claim_verdict(
            self.claim,
            class_name=class_name_of(self.artifact, self.config, self.claim),
            classes=self.facts.classes,
            first_user="the download's pod",
        )
        name = key_of(self.claim).name if self.claim is not None else self._free_name()
        return claim_of(name, can_be, labels=labels_for(self.artifact, self.config))

    def _free_name(self) -> str:
        """A name for a new claim: not that of a claim that was lost, that a Job has filled, or that is going away while
        pods still mount it.
        """
        named = text_at(self.artifact, "status", "persistentVolumeClaim")
        taken = {key_of(claim).name for claim in self.facts.claims}
        taken |= {claim_of_job(job) for job in self.facts.jobs if finished(job)}
        if named and named not in taken and dig(self.artifact, "status", "completed") is None:
            return named  # the claim of an earlier pass, which may not be in the cache yet
        taken.add(named)
        names = (claim_name(self.name, uid=self.uid, attempt=attempt) for attempt in range(len(taken) + 1))
        return next(name for name in names if name not in taken)

    # --------------------------------------------------------------------------------------------------------- status

    def decision(self, *, objects: tuple[Resource, ...] | None, left: float | None) -> ArtifactDecision:
        """The decision with the whole status."""
        now, config, before = self.facts.now, self.config, self.artifact.get("status")
        policy = (config or BUILT_IN).status_policy
        said, answered = self.verdicts.get("DownloadReady"), self._has_answered()
        if said is not None and not answered:
            self.verdicts["DownloadReady"] = not_reached_yet(self.recorded, said)
        status, wake = status_of(
            self.artifact,
            self.verdicts,
            created=bool(self.attempts or self.claim),
            answered=answered
            or (said is not None and (said.ready is True or category_of(said.reason) not in _UNASKED)),
            now=now,
            cause=self.facts.cause,
            grace=policy.grace,
            patience=policy.patience,
        )
        claim = next((each for each in objects or () if each["kind"] == "PersistentVolumeClaim"), None)
        allocated = dig(claim, "spec", "resources", "requests", "storage") or dig(before, "allocatedSize")
        download = filled(
            attempts=self.attempts or None,
            lastAttemptTime=self.last,
            nextAttemptTime=format_time(self.next) if self.next is not None else None,
        )
        parts: Resource = {
            "mode": mode_of(self.artifact),
            "progress": progress_of(self.artifact, self.completed, self.facts.progress, now=now),
            "download": download or None,
            "discoveredSizeBytes": self.size,
            "allocatedSize": self.full or allocated,
            "headroomPercent": (config or BUILT_IN).storage.headroom_percent,
            "resolvedRevision": self.revision or None,
            "persistentVolumeClaim": dig(claim, "metadata", "name") or dig(before, "persistentVolumeClaim"),
            "completed": self.completed,
            "adapter": self.adapter,
            "users": len(self.facts.users),
            "usedBy": sorted(self.facts.users)[:_NAMED] or None,
            "unusedSince": format_time(self.unused) if self.unused is not None else None,
            "effectiveRuntimeConfig": config.status() if config is not None else None,
        }
        status |= {key: value for key, value in parts.items() if value is not None}
        # A try that is due and has not begun waits for a change: a slot, its config, its class.
        due = (self.next - now).total_seconds() if self.next is not None and self.next > now else None
        looks = [(each - now).total_seconds() for each in (self.look, self.until) if each is not None and each > now]
        waits = [each for each in (wake, left, due, *looks) if each is not None]
        return ArtifactDecision(
            objects=objects,
            kept=self._kept_jobs(claim),
            status=status,
            requeue_after=max(0.0, min(waits)) if waits else None,
            wants_slot=self.wants_slot,
        )

    def _has_answered(self) -> bool:
        """Whether the source has given something since the status was written: bytes, or the size of the weights."""
        before, progress = self.artifact.get("status"), self.facts.progress
        done, known = dig(progress, "downloadedBytes"), dig(before, "progress", "downloadedBytes")
        fetched = is_count(done) and done > (known if is_count(known) else 0)
        measured = self.size is not None and dig(before, "discoveredSizeBytes") != self.size
        return fetched or measured or dig(progress, "phase") == "Verifying"

    def _kept_jobs(self, claim: Resource | None) -> frozenset[str]:
        """Jobs that have ended stay until their time to live is over; one that runs for another claim goes."""
        name = text_at(claim, "metadata", "name")
        live = next((each for each in self.facts.claims if key_of(each).name == name), None)
        jobs = self.facts.jobs
        return frozenset(
            key_of(job).name for job in jobs if is_deleting(job) or finished(job) or _is_for(job, name, live)
        )


def _out_of_time(step: JobStep, ended: datetime) -> Result:
    """What a Job came to that Kubernetes ended: its pod had no time to say anything."""
    hours = SETTINGS[step].deadline / 3600
    what = "the download goes on where it is" if step is JobStep.DOWNLOAD else "the source answers too slowly"
    return Result(ok=False, reason="Timeout", message=f"the Job did not end within {hours:.3g} h; {what}", at=ended)


def _has_begun(pod: Resource | None) -> bool:
    """Whether the pod of a Job runs, or has ended; one that could never be scheduled has not."""
    return dig(pod, "status", "phase") in ("Running", "Succeeded", "Failed")


def _is_for(job: Resource, claim: str, live: Resource | None) -> bool:
    """Whether a Job is for the claim of that name, of which `live` is None before it is made or while a watch lags."""
    if not (named := claim_of_job(job)):
        return True
    return named == claim and (fills(job, live) if live is not None else not finished(job))
