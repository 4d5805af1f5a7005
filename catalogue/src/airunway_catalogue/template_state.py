"""Decides what a template's state is, and what is done about its discovery (docs/catalogue.md). Pure.

Example: a template asks for two MI300X, which a node has, and for discovery. The decision begins a try: it is recorded
in the status. The next decision creates the Job of that try, and the one after that records that the Job exists.

A try is recorded before its Job is created, and every decision reads only what is recorded and what exists. So a
process that ends between any two writes neither counts a try twice nor creates a second Job for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from airunway.artifacts.jobs import POD_LAG, attempts_at, ended_at, finished, is_due, newest_pod
from airunway.artifacts.status import config_verdict
from airunway.configs.resolution import BUILT_IN, Resolution, StatusPolicy
from airunway.redaction import bounded
from airunway.resource import (
    Resource,
    condition_of,
    dig,
    entries_at,
    filled,
    format_time,
    is_deleting,
    key_of,
    text_at,
    uid_of,
)
from airunway.status.conditions import Condition, conditions_in
from airunway.status.evidence import parse_moment
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Fault, Phase, Rollup, Verdict, since, summary_of
from airunway.status.rootcause import RootCause, root_cause_status
from airunway.templates.contribution import Contribution, contribution_of
from airunway.templates.limits import excess_of
from airunway_catalogue.discovery import (
    NO_SHELL,
    TTL,
    Entrypoint,
    Request,
    job_name,
    job_of,
    next_attempt,
    request_of,
    spec_hash,
)
from airunway_catalogue.hardware import HardwareFit, settled
from airunway_catalogue.outcomes import has_ended, outcome_of

DISCOVERED = "Discovered"
"""Reason of DiscoveryReady while what the image reported for this spec is in the status."""

_MOST_ARTIFACTS = 16


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that the decision depends on."""

    template: Resource
    """The ModelTemplate or ClusterModelTemplate, with its kind."""
    resolution: Resolution
    """The runtime config that it follows."""
    hardware: HardwareFit
    """What the nodes have for it."""
    jobs: tuple[Resource, ...] = ()
    """Its Jobs."""
    pods: tuple[Resource, ...] = ()
    """Pods of its Jobs."""
    kept: tuple[str, ...] = ()
    """Names of the ModelArtifacts that it keeps, whether they exist or not."""
    artifacts: tuple[Resource, ...] = ()
    """Those of them that exist."""
    users: int | None = None
    """Deployments that use it; None: not all are known."""
    cause: RootCause | None = None
    """What the pods of its Jobs show; None: nothing is wrong."""
    refused: Condition | None = None
    """What kept the last pass from creating its Job."""
    slot: bool = True
    """Whether a discovery may run now."""
    entrypoint: Entrypoint | None = None
    """The program of its image, as its registry has it; None: that has not been read."""
    now: datetime
    """The current time."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to say and what to do; the status is written first."""

    status: Resource | None = None
    """The whole status; None: it stays as it is."""
    create: Resource | None = None
    """The Job to create, without owner and namespace."""
    delete: tuple[Resource, ...] = ()
    """Jobs to delete."""
    wants_slot: bool = False
    """Whether a discovery runs, or waits for its turn."""
    wants_entrypoint: bool = False
    """Whether a discovery waits for the image's entrypoint."""
    requeue_after: float | None = None
    """Seconds after which time alone changes the decision."""


@dataclass(frozen=True, kw_only=True)
class _Discovery:
    """The state of discovery; each step of a decision returns a new one."""

    verdict: Verdict
    """What DiscoveryReady says."""
    attempts: int = 0
    """Tries so far."""
    last: str = ""
    """When the last one began."""
    next: datetime | None = None
    """When the next one is due."""
    hash: str = ""
    """Digest of what the tries are about; empty: there is nothing to discover."""
    job: str = ""
    """Job of the last try, once it exists."""
    profile: Resource | None = field(default=None, hash=False)
    """What was reported."""
    sources: tuple[Resource, ...] = field(default=(), hash=False)
    """Where the weights are."""
    create: Resource | None = field(default=None, hash=False)
    """The Job to create."""
    delete: tuple[Resource, ...] = field(default=(), hash=False)
    """Jobs to delete."""
    wants_slot: bool = False
    """Whether a discovery runs, or waits for its turn."""
    wants_entrypoint: bool = False
    """Whether it waits for the image's entrypoint."""
    shell: bool = True
    """False: a try has shown that the image has no shell."""
    look: datetime | None = None
    """When to look again for what has not been seen."""


def decide_template(facts: Facts) -> Decision:
    """The decision for one template. Total for any JSON."""
    template = facts.template
    if is_deleting(template):
        return Decision()
    verdicts = {"RuntimeConfigReady": config_verdict(facts.resolution), "HardwareReady": _hardware(facts)}
    found = _discovery(facts, blocked=_blocked(verdicts))
    verdicts["DiscoveryReady"] = found.verdict
    verdicts["CacheReady"], cache = _cache(facts)
    assert tuple(verdicts) == CHILDREN, "the children are in the order of the status"
    config = facts.resolution.config
    policy = (config or BUILT_IN).status_policy
    discovery = filled(
        attempts=found.attempts or None,
        lastAttemptTime=found.last,
        nextAttemptTime=format_time(found.next) if found.next is not None else None,
        specHash=found.hash,
        job=found.job,
    )
    if not found.shell:
        discovery["shell"] = False
    published: Resource = {
        "effectiveRuntimeConfig": config.status() if config is not None else None,
        "profile": found.profile,
        "modelSources": [dict(each) for each in found.sources] or None,
        "hardware": settled(facts.hardware, dig(template, "status", "hardware")).status(),
        "discovery": discovery or None,
        "cache": cache,
        "usedBy": facts.users,
    }
    parts = {key: value for key, value in published.items() if value is not None}
    status, wake = status_of(
        template,
        verdicts,
        contribution=contribution_of({**template, "status": parts}),
        created=found.attempts > 0,
        served=found.profile is not None,
        policy=policy,
        cause=facts.cause,
        now=facts.now,
    )
    status |= parts
    times = [each for each in (found.next, found.look) if each is not None]
    waits = [seconds for each in times if (seconds := (each - facts.now).total_seconds()) > 0]
    waits += [wake] if wake is not None else []
    return Decision(
        status=status,
        create=found.create,
        delete=found.delete,
        wants_slot=found.wants_slot,
        wants_entrypoint=found.wants_entrypoint,
        requeue_after=min(waits, default=None),
    )


def open_job(template: Resource) -> str:
    """The name of the Job of a try that was begun and whose outcome is not recorded; empty if there is none."""
    request, inline = request_of(template), dig(template, "spec", "modelSources")
    if request is None or not request.image or (isinstance(inline, list) and inline):
        return ""
    state = _recorded(template, spec_hash(request))
    return "" if state.verdict.ready or state.next is not None else _name(template, state)


# --------------------------------------------------------------------------------------------------- config, hardware


def _hardware(facts: Facts) -> Verdict:
    fit = facts.hardware
    if excess_of(facts.template) is not None:
        return _unread("what hardware it needs is not known")
    return Verdict(ready=fit.available, reason=fit.reason, message=fit.message)


def _unread(what: str, *, ready: bool | None = None) -> Verdict:
    """Of a spec over the limits only an outline is kept: nothing of the rest may be taken for absent."""
    return Verdict(ready=ready, reason="InvalidSpec", message=f"the spec is too large to be read: {what}")


def _blocked(verdicts: dict[str, Verdict]) -> Verdict | None:
    """Why no discovery begins now; None if it may."""
    config, hardware = verdicts["RuntimeConfigReady"], verdicts["HardwareReady"]
    if not config.ready:
        return Verdict(ready=False, reason="WaitingForConfig", message="discovery waits for the runtime config")
    if not hardware.ready:
        text = "discovery waits for the hardware: an image is asked once the cluster can run it"
        return Verdict(ready=False, reason=hardware.reason, message=text)
    return None


# ---------------------------------------------------------------------------------------------------------- discovery


def _discovery(facts: Facts, *, blocked: Verdict | None) -> _Discovery:
    template = facts.template
    request = request_of(template)
    inline = dig(template, "spec", "modelSources")
    unfinished = tuple(job for job in facts.jobs if not finished(job))
    if excess_of(template) is not None:
        return _Discovery(verdict=_unread("no image is asked", ready=False), delete=unfinished)
    if isinstance(inline, list) and inline:
        text = (
            f"spec.modelSources names {len(inline)} source{'s' if len(inline) > 1 else ''}: nothing is to be discovered"
        )
        return _Discovery(verdict=Verdict(ready=True, reason="InlineModelSources", message=text), delete=unfinished)
    if request is None:
        text = "spec.discovery is not set: no image is asked"
        return _Discovery(verdict=Verdict(ready=True, reason="NotRequested", message=text), delete=unfinished)
    if not request.image:
        text = "spec.discovery.image: name an image to ask, here or in spec.defaults.image"
        return _Discovery(verdict=Verdict(ready=False, reason="InvalidSpec", message=text), delete=unfinished)
    state = _recorded(template, spec_hash(request))
    state = replace(state, delete=tuple(job for job in unfinished if key_of(job).name != _name(template, state)))
    if state.verdict.ready:
        return replace(state, delete=unfinished)
    if state.attempts and state.next is None:
        return _open(facts, state, request)
    if state.next is not None and not is_due(state.next, last=parse_moment(state.last), now=facts.now):
        return replace(state, delete=unfinished)
    return _begin(facts, replace(state, delete=unfinished), request, blocked=blocked)


def _recorded(template: Resource, hash_: str) -> _Discovery:
    """What the status says, in so far as it is about this spec; an earlier spec's profile stays until the next one."""
    status = template.get("status")
    profile = dig(status, "profile")
    kept = _Discovery(
        verdict=Verdict(ready=False, reason="Starting", message="the image has not been asked yet"),
        hash=hash_,
        profile=profile if isinstance(profile, dict) else None,
        sources=tuple(entries_at(status, "modelSources")),
    )
    record = dig(status, "discovery")
    if not isinstance(record, dict) or record.get("specHash") != hash_:
        return kept
    state = replace(
        kept,
        attempts=attempts_at(record, "attempts"),
        last=text_at(record.get("lastAttemptTime")),
        next=parse_moment(record.get("nextAttemptTime")),
        job=text_at(record.get("job")),
        shell=record.get("shell") is not False,
    )
    before = condition_of(template, "DiscoveryReady") or {}
    if before.get("status") == "True" and before.get("reason") == DISCOVERED and state.profile is not None:
        return replace(state, verdict=_discovered(state), next=None)
    if state.next is not None and before.get("status") == "False":
        reason, message = text_at(before.get("reason")) or "JobFailed", text_at(before.get("message"))
        return replace(state, verdict=Verdict(ready=False, reason=reason, message=message))
    return state


def _discovered(state: _Discovery) -> Verdict:
    number = len(state.sources)
    text = f"the image reported its profile and {number} source{'' if number == 1 else 's'} of weights"
    return Verdict(ready=True, reason=DISCOVERED, message=text)


def _name(template: Resource, state: _Discovery) -> str:
    """The Job of the recorded try; empty if none was begun."""
    if not state.attempts:
        return ""
    uid = uid_of(template)
    return job_name(key_of(template).name, uid=uid, hash_=state.hash, attempt=state.attempts)


def _begin(facts: Facts, state: _Discovery, request: Request, *, blocked: Verdict | None) -> _Discovery:
    """Record a new try, if nothing is in its way; its Job is created by the next decision."""
    if blocked is not None:
        return replace(state, verdict=blocked)
    if state.delete:  # two Jobs at a time would take one slot
        return _waiting(state, "Starting", "the Job of an earlier try must end first")
    if not facts.slot:
        return replace(_queued(state), wants_slot=True)
    if _entrypoint(facts, state, request) is None:  # before the try is recorded: its Job must follow soon
        return _reading(state)
    begun = replace(state, attempts=state.attempts + 1, last=format_time(facts.now), next=None, wants_slot=True)
    return _waiting(begun, "Starting", "the image is about to be asked")


def _queued(state: _Discovery) -> _Discovery:
    text = "other discoveries come first (--max-discoveries); this one starts when one ends and it is its turn"
    return _waiting(state, "Queued", text)


def _reading(state: _Discovery) -> _Discovery:
    text = "the image's entrypoint is read from its registry"
    return replace(_waiting(state, "Starting", text), wants_slot=True, wants_entrypoint=True)


def _entrypoint(facts: Facts, state: _Discovery, request: Request) -> Entrypoint | None:
    """The program to run; None: it has to be read from the registry first."""
    if not state.shell:
        return Entrypoint(why=NO_SHELL)
    return Entrypoint(words=request.command) if request.command else facts.entrypoint


def _waiting(state: _Discovery, reason: str, message: str) -> _Discovery:
    return replace(state, verdict=Verdict(ready=False, reason=reason, message=message))


def _open(facts: Facts, state: _Discovery, request: Request) -> _Discovery:
    """A try that was begun, and whose outcome is not recorded."""
    name = _name(facts.template, state)
    job = next((each for each in facts.jobs if key_of(each).name == name), None)
    if job is not None:
        return _follow(facts, replace(state, job=name), job)
    if state.job == name:
        return _failed(facts, state, "JobFailed", f"the Job {name} is gone, and with it what the image reported")
    if not _may_be_unmade(facts, state):
        return _failed(
            facts, state, "JobFailed", f"it is not known whether the Job {name} was made, and it is not there"
        )
    if facts.refused is not None:
        state = _waiting(state, facts.refused.reason, facts.refused.message)
    elif not facts.slot:
        return replace(_queued(state), wants_slot=True)
    else:
        state = _waiting(state, "Starting", "the image is about to be asked")
    entrypoint = _entrypoint(facts, state, request)
    if entrypoint is None:  # the process was started again in the meantime
        return _reading(state)
    config = facts.resolution.config
    made = job_of(facts.template, request, name=name, config=config, entrypoint=entrypoint)
    return replace(state, create=made, wants_slot=True)


def _may_be_unmade(facts: Facts, state: _Discovery) -> bool:
    """Whether the Job of a try cannot have come and gone: a finished one stays for its time to live."""
    if facts.refused is not None:
        return True
    began = parse_moment(state.last)
    return began is not None and facts.now < began + TTL


def _follow(facts: Facts, state: _Discovery, job: Resource) -> _Discovery:
    """What a Job that exists came to."""
    ended = finished(job)
    if not ended:
        cause = facts.cause
        if cause is not None and category_of(cause.reason) in (Category.CONFIG, Category.AUTH):
            # It would wait for ever, and keep a slot from others.
            failed = _failed(facts, state, cause.reason, cause.message)
            return replace(failed, delete=(*failed.delete, job))
        reason, text = (
            ("JobRunning", "the image is asked for its profile") if cause is None else (cause.reason, cause.message)
        )
        return replace(_waiting(state, reason, text), wants_slot=True)
    at = ended_at(job)
    pod = newest_pod(list(facts.pods), key_of(job).name)
    if not has_ended(job, pod) and at is not None and abs(facts.now - at) < POD_LAG:
        return replace(_waiting(state, "JobRunning", "the Job has ended; its pod is read next"), look=at + POD_LAG)
    outcome = outcome_of(job, pod)
    if outcome.report is None:
        state = replace(state, shell=state.shell and outcome.shell)
        return _failed(facts, state, outcome.reason, outcome.message, ended=at)
    done = replace(state, profile=outcome.report.profile, sources=outcome.report.sources, next=None)
    return replace(done, verdict=_discovered(done))


def _failed(facts: Facts, state: _Discovery, reason: str, message: str, *, ended: datetime | None = None) -> _Discovery:
    """Record that a try failed, and when the next one comes."""
    due = next_attempt(attempts=state.attempts, ended=min(ended or facts.now, facts.now))
    text = f"try {state.attempts} failed: {bounded(message, 800)}; the next one is at {format_time(due)}"
    return replace(_waiting(state, reason, text), next=due)


# -------------------------------------------------------------------------------------------------------------- cache


def _cache(facts: Facts) -> tuple[Verdict, Resource | None]:
    """CacheReady and ``status.cache``, by the ModelArtifacts that the template keeps."""
    template = facts.template
    if excess_of(template) is not None:
        return _unread("it keeps no weights warm"), None
    if not key_of(template).namespace or dig(template, "spec", "caching", "enabled") is not True:
        return Verdict(ready=True, reason="NotEnabled", message="spec.caching is not enabled"), None
    if not facts.kept:
        text = "which weights are to be kept is known once the image has reported where they are"
        return Verdict(ready=False, reason="WaitingForModelCache", message=text), None
    there = {key_of(each).name: each for each in facts.artifacts if not is_deleting(each)}
    names = sorted(facts.kept)
    late = [name for name in names if dig(there.get(name), "status", "phase") != "Ready"]
    summary = f"{len(names) - len(late)}/{len(names)}"
    cache = {
        "ready": len(names) - len(late),
        "total": len(names),
        "summary": summary,
        "artifacts": names[:_MOST_ARTIFACTS],
    }
    if not late:
        return Verdict(ready=True, reason="Warm", message=f"the weights are complete: {summary}"), cache
    # One that is at fault says more than one that is not there yet.
    first = next((name for name in late if name in there), late[0])
    late_status = dig(there.get(first), "status")
    reason = text_at(late_status, "reason") or "WaitingForModelCache"
    text = text_at(late_status, "message") or ("it has no status yet" if first in there else "it does not exist yet")
    return Verdict(ready=False, reason=reason, message=f"{summary} are complete; ModelArtifact {first}: {text}"), cache


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
    policy: StatusPolicy,
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
        [verdict.condition(type_) for type_, verdict in verdicts.items()],
        faults,
        created=created,
        served=served,
        not_available=Phase.PENDING,  # it is no fault that a later one could hide
        failures=failures,
        running_message="; ".join(["The template can be used", *contribution.ignored]),
        now=now,
        grace=policy.grace,
        patience=policy.patience,
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
    elif (known := dig(template, "status", "rootCause")) and dig(template, "status", "reason") == rollup.reason:
        status["rootCause"] = known  # its pod went with the Job; the failure stands until the next try
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
    """What is not known is no fault of its own. Weights that are on their way keep no deployment from using the
    template: it waits for them itself.
    """
    return verdict.ready is None or (type_ == "CacheReady" and category_of(verdict.reason) not in _OF_THE_WEIGHTS)


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
