"""One deployment: headline, root cause with remedy, conditions, timeline, pods, tree."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from airunway.api import names
from airunway.api.names import foreign_finalizers, provider_of_finalizer
from airunway.resource import Resource, condition_of, dig, finalizers_of, is_deleting, is_integer, list_at, uid_of
from airunway.revisions.revision import is_in_effect
from airunway.selection.facts import is_refusal_open
from airunway.status.conditions import CONDITIONS
from airunway.status.evidence import own_words, parse_moment
from airunway.status.reasons import CODES
from airunway.templates.choice import request_of
from airunway.templates.expansion import TEMPLATE_READY, effective_model
from airunway.unseen import Unseen, reasons_of
from airunway.view.base import ViewModel, line, word
from airunway.view.pods import PHASES, Health, PodRow, pod_row
from airunway.view.tree import TreeNode, tree_of

_GOOD = {condition.name: condition.good for condition in CONDITIONS}
_PLACE = {condition.name: place for place, condition in enumerate(CONDITIONS)}
_INFORMATIVE = frozenset({"Served"})
"""Conditions that record a fact: False is nothing to worry about."""

LONGEST = 100
"""Entries of a timeline that are kept, the newest."""


@dataclass(frozen=True, kw_only=True)
class DeploymentSnapshot:
    """Objects as the API server sent them. Nothing here is checked: a user may have written any of it."""

    deployment: Resource
    """The ModelDeployment."""
    pods: tuple[Resource, ...] | Unseen
    """Its pods, those of the parts (endpoint picker, download) included."""
    events: tuple[Resource, ...] | Unseen
    """Events of ``v1`` about the deployment, and warnings of its namespace."""
    objects: tuple[Resource, ...] = ()
    """Its other objects."""
    unseen: tuple[Unseen, ...] = ()
    """What was not read of the other objects, and parts of lists that were cut."""


@dataclass(frozen=True, kw_only=True)
class CauseView(ViewModel):
    """The one fault that explains why the deployment is not ready."""

    code: str
    """Kind of fault, such as ``ImagePull.NotFound``."""
    object: str
    """``Kind/namespace/name`` of the object that shows it."""
    field: str
    """Field of the deployment to look at; may be empty."""
    evidence: str
    """What was observed."""
    remedy: str
    """What to do; empty for a code that this release does not know."""
    link: str
    """Page about the remedy; empty for a code that this release does not know."""
    since: datetime | None
    """When it was first observed."""


@dataclass(frozen=True, kw_only=True)
class ConditionRow(ViewModel):
    """One condition."""

    type: str
    """Its type."""
    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str
    """Why, as one word."""
    message: str
    """Why, as a sentence."""
    since: datetime | None
    """When `status` changed last."""
    good: bool
    """Whether that is how it is when all is well."""


@dataclass(frozen=True, kw_only=True)
class TemplateUse(ViewModel):
    """The model template of a deployment."""

    asked: str
    """What was asked for, such as ``template fast`` or ``model org/m, metric latency``."""
    kind: str
    """``ModelTemplate`` or ``ClusterModelTemplate``; empty before one is found."""
    name: str
    """Name of the template in use; empty before one is found."""
    status: str
    """Status of the condition TemplateReady; empty before it is written."""
    reason: str
    """Its reason."""


@dataclass(frozen=True, kw_only=True)
class RevisionView(ViewModel):
    """What the deployment runs with, and what of it is newer and not taken."""

    hash: str
    """Hash of the revision; empty while a part of it is not decided."""
    in_effect: bool
    """Whether the provider's objects were written from it."""
    pending: tuple[str, ...]
    """What waits, by name, such as ``env HF_HOME``."""
    waits_for: str
    """``change``, ``rollout``, or the part that is not decided."""
    since: datetime | None
    """Since when something waits."""
    newer: tuple[str, ...]
    """What its provider would write otherwise: newer transformers, and what they change."""


@dataclass(frozen=True, kw_only=True)
class TimelineEntry(ViewModel):
    """Something that happened."""

    time: datetime
    """When; of an event that was repeated, the last time."""
    source: str
    """``condition``, ``event`` or ``ending`` (of a container)."""
    object: str
    """``Kind/name`` of the object that it is about."""
    reason: str
    """One word."""
    message: str
    """A sentence; may be empty."""
    count: int
    """How often; 1 for anything but an event that was repeated."""
    warning: bool
    """Whether it is bad news."""


@dataclass(frozen=True, kw_only=True)
class WaitOutcome(ViewModel):
    """What ``--wait`` waits for."""

    done: bool
    """Whether nothing better or worse is to come without a change of the spec or the cluster."""
    ready: bool
    """Whether the newest spec is served."""


@dataclass(frozen=True, kw_only=True)
class DeploymentView(ViewModel):
    """One deployment."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    phase: str
    """Phase; ``Unknown`` if no controller has written one."""
    reason: str
    """Why, as one word."""
    message: str
    """Why, as a sentence."""
    health: Health
    """Whether it is all right."""
    since: datetime | None
    """When the condition Ready changed last; of a deployment that is being deleted, when that began."""
    current: bool
    """Whether the status is about the newest spec, or the deployment is being deleted."""
    model: str
    """Model id, also that of the template."""
    template: TemplateUse | None
    """Model template; null for a deployment that names none."""
    engine: str
    """Engine in use; empty before one is chosen."""
    provider: str
    """Provider in use; empty before one is chosen."""
    replicas: str
    """Ready and wanted replicas, such as ``1/2``; empty before the provider has reported them."""
    endpoint: str
    """Address inside the cluster; empty before there is one."""
    url: str
    """Address at the gateway; empty if there is none."""
    header: str
    """Header that a request to `url` needs, as ``NAME: VALUE``; empty if it needs none."""
    share: str
    """What it gets of what its group shares at the gateway; empty if it shares nothing."""
    cause: CauseView | None
    """Root cause; null if none is known."""
    revision: RevisionView | None
    """What it runs with; None before the core has recorded it."""
    conditions: tuple[ConditionRow, ...]
    """All conditions: those of the catalogue in its order, then others by name."""
    warnings: tuple[str, ...]
    """Warnings of the status."""
    pods: tuple[PodRow, ...] | Unseen
    """Pods, those with a problem first."""
    tree: TreeNode
    """The deployment and what is below it."""
    timeline: tuple[TimelineEntry, ...] | Unseen
    """What happened, oldest first."""
    unseen: tuple[Unseen, ...]
    """All that was not seen."""


def deployment_view(snapshot: DeploymentSnapshot) -> DeploymentView:
    """Returns the view of a deployment; total over any JSON objects."""
    deployment = snapshot.deployment
    status = dig(deployment, "status", default={})
    cause = cause_of(deployment) if not is_deleting(deployment) else None
    below = () if isinstance(snapshot.pods, Unseen) else [(pod, pod_row(pod, deployment)) for pod in snapshot.pods]
    rows = tuple(sorted((row for _, row in below), key=lambda row: (row.health.position, row.role, row.name)))
    pods = snapshot.pods if isinstance(snapshot.pods, Unseen) else rows
    timeline: tuple[TimelineEntry, ...] | Unseen
    if isinstance(snapshot.events, Unseen):
        timeline = snapshot.events
    else:
        timeline = timeline_of(deployment, rows, _about(snapshot, snapshot.events, rows))
    unseen = [each for each in (pods, timeline) if isinstance(each, Unseen)]
    phase, reason, message = verdict_of(deployment)
    warnings = dig(status, "warnings")
    share = share_of(deployment)
    return DeploymentView(
        namespace=word(dig(deployment, "metadata", "namespace")),
        name=word(dig(deployment, "metadata", "name")),
        phase=phase,
        reason=reason,
        message=message,
        health=PHASES.get(phase, Health.PROGRESS),
        since=since_of(deployment),
        current=_is_current(deployment) or is_deleting(deployment),
        model=word(effective_model(deployment)),
        template=_template(deployment),
        engine=word(dig(status, "engine", "type")),
        provider=word(dig(status, "provider", "name")),
        replicas=_replicas(deployment),
        endpoint=line(dig(status, "endpoint", "url")),
        url=line(dig(status, "gateway", "url")),
        header=_header(deployment),
        share=share,
        cause=cause,
        revision=_revision(deployment),
        conditions=tuple(_conditions(deployment)),
        warnings=tuple(map(line, warnings[:64])) if isinstance(warnings, list) else (),
        pods=pods,
        tree=tree_of(
            deployment,
            below,
            snapshot.objects,
            phase=phase,
            culprit=cause.object if cause is not None else "",
            share=share,
        ),
        timeline=timeline,
        unseen=reasons_of([*unseen, *snapshot.unseen]),
    )


def cause_of(deployment: Resource) -> CauseView | None:
    """Returns the root cause in the status, with the remedy apart from the evidence; None if there is none."""
    cause = dig(deployment, "status", "rootCause")
    if not isinstance(cause, dict) or not word(cause.get("code")):
        return None
    # Imported here: only a deployment with a cause needs the patterns of messages.
    from airunway.status.remedies import split

    name, object_, message = word(cause.get("code")), line(cause.get("object")), line(cause.get("message"))
    code = CODES.get(name)
    evidence, remedy = split(message, code, object_) if code is not None else (message, "")
    return CauseView(
        code=name,
        object=object_,
        field=word(cause.get("field")),
        evidence=evidence,
        remedy=remedy,
        link=code.link if code is not None else "",
        since=parse_moment(cause.get("since")),
    )


def outcome_of(deployment: Resource) -> WaitOutcome:
    """Returns whether waiting is over: Ready for the newest spec; or Failed, or Stalled for it.

    A provider's refusal is no outcome while the core may still select another provider.
    """
    if not _is_current(deployment) or is_refusal_open(deployment):
        return WaitOutcome(done=False, ready=False)
    ready = (condition_of(deployment, "Ready") or {}).get("status") == "True"
    stalled = (condition_of(deployment, "Stalled") or {}).get("status") == "True"
    return WaitOutcome(done=ready or stalled or dig(deployment, "status", "phase") == "Failed", ready=ready)


def verdict_of(deployment: Resource) -> tuple[str, str, str]:
    """Phase, reason and message. That a deployment is being deleted is known before its provider reports it."""
    status = dig(deployment, "status", default={})
    phase = word(dig(status, "phase")) or "Unknown"
    held = finalizers_of(deployment)
    others = foreign_finalizers(held)
    if not is_deleting(deployment) or (phase == "Terminating" and not (others and others == held)):
        return phase, word(dig(status, "reason")), line(dig(status, "message"))
    if others and others == held:
        text = f"AI Runway has released it; it stays until these finalizers are removed: {', '.join(held)}. If the "
        return "Terminating", "Terminating", line(f"{text}programs that set them are gone for good: kubectl edit")
    text = "it is being deleted"
    if held:
        text += f" and waits until these finalizers are removed: {', '.join(held)}"
    if providers := sorted(filter(None, map(provider_of_finalizer, held))):
        text += (
            f"; provider {' and '.join(map(repr, providers))} deletes its objects first: if this lasts, check that it "
            "runs (kubectl get inferenceproviderconfigs shows its last heartbeat)"
        )
    return "Terminating", "Terminating", line(text)


def since_of(deployment: Resource) -> datetime | None:
    if is_deleting(deployment):
        return parse_moment(dig(deployment, "metadata", "deletionTimestamp"))
    return parse_moment((condition_of(deployment, "Ready") or {}).get("lastTransitionTime"))


def _header(deployment: Resource) -> str:
    """The header by which the route knows the model, where it makes no path for it; a user's own route is not known."""
    gateway = dig(deployment, "status", "gateway")
    model, url, path = line(dig(gateway, "modelName")), line(dig(gateway, "url")), line(dig(gateway, "path"))
    if not (model and url) or path or dig(deployment, "spec", "gateway", "httpRouteRef"):
        return ""
    return f"{names.MODEL_HEADER}: {model}"


def share_of(deployment: Resource) -> str:
    """The share of a deployment, such as ``10 % of group chat, by the route of chat-v1``; with why it has none."""
    group, own = dig(deployment, "status", "gateway", "group"), word(dig(deployment, "metadata", "name"))
    if not isinstance(group, dict):
        return ""
    holder = word(group.get("holder"))
    by = "its own route" if holder == own else f"the route of {holder}"
    share = group.get("share")
    percent = share if isinstance(share, int) else 0
    why = "" if percent else f": {_why_no_share(deployment)}"
    return f"{percent} % of group {word(group.get('name'))}, by {by}{why}"


def _why_no_share(deployment: Resource) -> str:
    ready = condition_of(deployment, "GatewayReady") or {}
    if ready.get("reason") == "GroupMismatch":
        return line(ready.get("message"))
    if dig(deployment, "spec", "gateway", "weight") == 0:
        return "its weight is 0"
    served = (condition_of(deployment, "Served") or {}).get("status") == "True"
    return "it has no ready replica" if served else "it has not served yet"


def _template(deployment: Resource) -> TemplateUse | None:
    spec = dig(deployment, "spec")
    request = request_of(spec) if isinstance(spec, dict) else None
    if request is None:
        return None
    ref = dig(deployment, "status", "effectiveTemplate", "ref")
    condition = condition_of(deployment, TEMPLATE_READY) or {}
    return TemplateUse(
        asked=line(request.text),
        kind=word(dig(ref, "kind")),
        name=word(dig(ref, "name")),
        status=word(condition.get("status")),
        reason=word(condition.get("reason")),
    )


def _revision(deployment: Resource) -> RevisionView | None:
    revision, newer = dig(deployment, "status", "revision"), dig(deployment, "status", "provider", "newer")
    if not isinstance(revision, dict):
        return None
    pending = [*list_at(newer, "transformers"), *list_at(newer, "changes")]
    return RevisionView(
        hash=word(revision.get("hash")),
        in_effect=is_in_effect(deployment),
        pending=tuple(map(line, list_at(revision, "pending", "changes")[:64])),
        waits_for=word(dig(revision, "pending", "waitsFor")),
        since=parse_moment(dig(revision, "pending", "since")),
        newer=tuple(map(line, pending[:64])),
    )


def _is_current(deployment: Resource) -> bool:
    """Whether Ready was written for the newest spec."""
    generation = dig(deployment, "metadata", "generation")
    ready = condition_of(deployment, "Ready") or {}
    observed = ready.get("observedGeneration", dig(deployment, "status", "observedGeneration"))
    return observed is not None and observed == generation


def _replicas(deployment: Resource) -> str:
    replicas = dig(deployment, "status", "replicas")
    ready, desired = dig(replicas, "ready", default=0), dig(replicas, "desired")
    return f"{ready}/{desired}" if is_integer(ready) and is_integer(desired) else ""


def _conditions(deployment: Resource) -> Iterator[ConditionRow]:
    found = [each for each in list_at(deployment, "status", "conditions")[:64] if isinstance(each, dict)]
    rows = []
    for each in found:
        type_, status = word(each.get("type")), word(each.get("status"))
        good = _GOOD.get(type_, "True")
        row = ConditionRow(
            type=type_,
            status=status,
            reason=word(each.get("reason")),
            message=line(each.get("message")),
            since=parse_moment(each.get("lastTransitionTime")),
            good=type_ in _INFORMATIVE or status in good.split(" or "),
        )
        rows.append(row)
    yield from sorted(rows, key=lambda row: (_PLACE.get(row.type, len(_PLACE)), row.type))


def _about(snapshot: DeploymentSnapshot, events: Iterable[Resource], pods: Iterable[PodRow]) -> list[Resource]:
    """The events about the deployment and what is below it: warnings are read for the whole namespace."""
    uids = {uid_of(snapshot.deployment), *map(uid_of, snapshot.objects)} - {""}
    own = word(dig(snapshot.deployment, "metadata", "name"))
    known = {("ModelDeployment", own), *(("Pod", pod.name) for pod in pods)}
    for obj in snapshot.objects:
        known.add((word(obj.get("kind")), word(dig(obj, "metadata", "name"))))
    for obj in (*snapshot.objects, *(() if isinstance(snapshot.pods, Unseen) else snapshot.pods)):
        for each in list_at(obj, "metadata", "ownerReferences"):
            known.add((word(dig(each, "kind")), word(dig(each, "name"))))
    if cause := cause_of(snapshot.deployment):
        kind, _, rest = cause.object.partition("/")
        known.add((kind, rest.rpartition("/")[2]))
    found: dict[str, Resource] = {}
    for event in events:
        about = event.get("involvedObject")
        kind_, name_ = dig(about, "kind"), dig(about, "name")
        named = (kind_, name_) if isinstance(kind_, str) and isinstance(name_, str) else ("", "")
        other = named == ("ModelDeployment", own) and dig(about, "uid") not in (None, "", *uids)  # an earlier one
        if not other and (
            dig(about, "uid") in uids
            or named in known
            or dig(event, "metadata", "labels", names.MODEL_DEPLOYMENT) == own
        ):
            found[uid_of(event) or str(len(found))] = event
    return list(found.values())


# --------------------------------------------------------------------------------------------------------- the timeline


def timeline_of(deployment: Resource, pods: Iterable[PodRow], events: Iterable[Resource]) -> tuple[TimelineEntry, ...]:
    """Returns the newest entries, oldest first; what has no time is left out."""
    entries = {*_of_conditions(deployment), *_of_events(events), *_of_endings(pods)}
    ordered = sorted(entries, key=lambda entry: (entry.time, entry.source, entry.object, entry.reason, entry.message))
    return tuple(ordered[-LONGEST:])


def _of_conditions(deployment: Resource) -> Iterator[TimelineEntry]:
    name = word(dig(deployment, "metadata", "name"))
    for condition in list_at(deployment, "status", "conditions")[:64]:
        if not isinstance(condition, dict):
            continue
        time = parse_moment(condition.get("lastTransitionTime"))
        if time is None or time.year == 1970:  # the schema's default, before the first pass
            continue
        yield TimelineEntry(
            time=time,
            source="condition",
            object=f"ModelDeployment/{name}",
            reason=f"{word(condition.get('type'))}={word(condition.get('status'))}",
            message=line(condition.get("message")),
            count=1,
            warning=False,
        )


def _of_events(events: Iterable[Resource]) -> Iterator[TimelineEntry]:
    timed = [(time, event) for event in events if (time := event_time(event)) is not None]
    # Texts are cleaned of the newest only: a namespace can have ten thousand events.
    for time, event in heapq.nlargest(LONGEST, timed, key=lambda entry: entry[0]):
        count = dig(event, "series", "count") or event.get("count")
        yield TimelineEntry(
            time=time,
            source="event",
            object=f"{word(dig(event, 'involvedObject', 'kind'))}/{word(dig(event, 'involvedObject', 'name'))}",
            reason=word(event.get("reason")),
            message=line(own_words(event.get("message"))),
            count=count if isinstance(count, int) and count > 0 else 1,
            warning=event.get("type") == "Warning",
        )


def event_time(event: Resource) -> datetime | None:
    """When an event of ``v1`` happened last."""
    times = (
        dig(event, "series", "lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
    )
    return next((moment for text in times if (moment := parse_moment(text)) is not None), None)


def _of_endings(pods: Iterable[PodRow]) -> Iterator[TimelineEntry]:
    for pod in pods:
        for container in pod.containers:
            ending = container.ending
            if ending is None or ending.finished is None:
                continue
            yield TimelineEntry(
                time=ending.finished,
                source="ending",
                object=f"Pod/{pod.name}",
                reason=ending.reason or "Terminated",
                message=f"container {container.name} ended with exit code {ending.code}"
                + (f": {ending.message}" if ending.message else ""),
                count=1,
                warning=ending.code != 0,
            )
