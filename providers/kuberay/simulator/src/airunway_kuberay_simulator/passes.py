"""One reconcile pass of the simulated operator, for any `World`: a cluster or a recording.

It combines both controllers: first each RayCluster gets its pods and its status, then the RayService. The pass is
level-triggered: it reads the facts, makes the first missing write, reads again, and so on. The order of writes is as
recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import yaml

from airunway.resource import (
    Resource,
    annotations_of,
    condition_of,
    copy_of,
    dig,
    is_deleting,
    is_true,
    key_of,
    labels_of,
    parse_time,
    uid_of,
)
from airunway_kuberay_simulator import names, status, workload
from airunway_kuberay_simulator.clusters import cluster_writes
from airunway_kuberay_simulator.facts import (
    Create,
    Delete,
    Event,
    Facts,
    Hold,
    LabelHead,
    Send,
    Serve,
    SetSpec,
    Tell,
    World,
    Write,
    WriteStatus,
)
from airunway_kuberay_simulator.status import Side
from airunway_testing.simulators.passes import Outcome

POLL = 2.0
"""Seconds between two passes while a RayService exists."""
DELETION_DELAY = 60.0
"""Seconds until an unused cluster is deleted."""

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST = 47


class _Frozen(Exception):
    """An error of the reconciler: the status stays unchanged, and retries follow with growing delay."""


async def reconcile(world: World) -> Outcome:
    """One pass over one RayService."""
    while True:
        facts = await world.facts()
        if facts is None:
            return Outcome()
        try:
            write = next(_writes(facts), None)
        except _Frozen:
            return Outcome(failed=True)
        if write is None:
            return Outcome(requeue_after=POLL)
        if not await world.write(write):
            return Outcome()


def _writes(facts: Facts) -> Iterator[Write]:
    """The missing writes, in order."""
    service, memory = facts.service, facts.memory
    finalizers = dig(service, "metadata", "finalizers") or []
    for name, cluster in facts.clusters.items():
        if not is_deleting(cluster):
            yield from cluster_writes(facts, name, cluster)
    if is_deleting(service):
        if names.FINALIZER in finalizers:
            yield from _deletions(facts, facts.clusters)
            if not facts.clusters:
                rest = copy_of(service)
                rest["metadata"]["finalizers"] = [f for f in finalizers if f != names.FINALIZER]
                yield Hold(obj=rest)
        return
    if names.FINALIZER not in finalizers:
        yield Hold(obj=workload.rewritten(service))
        return
    if invalid := _invalid(service):
        yield from _refusal(facts, *invalid)
        return
    if _reason(service) == "InitializingTimeout":
        yield from _retired(facts, keep=())
        return
    stopping = dig(service, "spec", "suspend") or is_true(service, "Suspending")
    if stopping:
        yield from _suspension(facts)
        return
    if is_true(service, "Suspended"):
        yield WriteStatus(status=status.resumed(service, now=facts.now))
        return
    active, pending = facts.name("active"), facts.name("pending")
    if (late := _timeout(facts)) and not active:
        yield late
    yield from _retired(facts, keep=(active, pending))
    newest = facts.clusters.get(pending or active)
    if newest is not None and (change := _change(facts, newest, active=active, pending=pending)) is not None:
        yield change
    if not active and not pending:
        yield _new_cluster(facts, active="")
    for name in filter(None, (pending, active)):
        if name not in facts.clusters and facts.clock >= memory.due.setdefault(name, facts.clock + POLL):
            note = f"Created the RayCluster {key_of(service).namespace}/{name}"
            event = Event(type="Normal", reason="CreatedRayCluster", note=note)
            yield Create(obj=workload.ray_cluster(service, name), event=event)
    yield from _serving(facts, active=active, pending=pending)


def _reason(service: Resource) -> str:
    return str((condition_of(service, "Ready") or {}).get("reason", ""))


def _invalid(service: Resource) -> tuple[str, str] | None:
    """Reason of the event and description of the error (fact 10); None for a valid object."""
    name = key_of(service).name
    if len(name) > _LONGEST:
        text = f"RayService name should be no more than {_LONGEST} characters"
        return "InvalidRayServiceMetadata", f"The RayService metadata is invalid: {text}"
    if not _DNS_1035.fullmatch(name):
        text = "RayService name should be a valid DNS1035 label"
        return "InvalidRayServiceMetadata", f"The RayService metadata is invalid: {text}"
    for group in dig(service, "spec", "rayClusterConfig", "workerGroupSpecs") or []:
        low, high = group.get("minReplicas"), group.get("maxReplicas")
        if low is not None and high is not None and low > high:
            text = f"worker group {group['groupName']} has minReplicas {low} greater than maxReplicas {high}"
            return "InvalidRayServiceSpec", f"The RayService spec is invalid: {text}"
    return None


def _refusal(facts: Facts, reason: str, text: str) -> Iterator[Write]:
    """Only a condition is written; the running cluster and its status stay as they are."""
    service = facts.service
    written = copy_of(service.get("status") or {})
    nothing = Side().written()
    for side in ("activeServiceStatus", "pendingServiceStatus"):
        written.setdefault(side, copy_of(nothing))
    status.set_condition(written, "Ready", "False", "ValidationFailed", text, now=facts.now)
    if written != service.get("status"):
        note = f"{key_of(service).namespace}/{key_of(service).name}: {text}"
        yield WriteStatus(status=written, event=Event(type="Warning", reason=reason, note=note))


def _timeout(facts: Facts) -> WriteStatus | None:
    """The status after a start that took too long (fact 12); None before."""
    service = facts.service
    allowed = _seconds(annotations_of(service).get(names.TIMEOUT, ""))
    ready = condition_of(service, "Ready") or {}
    begun, now = parse_time(ready.get("lastTransitionTime")), parse_time(facts.now)
    if not allowed or ready.get("reason") != "Initializing" or begun is None or now is None:
        return None
    spent = (now - begun).total_seconds()
    if spent < allowed:
        return None
    written = copy_of(service["status"])
    limit = annotations_of(service)[names.TIMEOUT]
    text = f"RayService failed to become ready within the configured timeout of {limit}. Time spent initializing: "
    generation = dig(service, "metadata", "generation")
    words = ("False", "InitializingTimeout", f"{text}{spent:.0f}s")
    status.set_condition(written, "Ready", *words, now=facts.now, generation=generation)
    for side in ("activeServiceStatus", "pendingServiceStatus"):
        written[side].pop("rayClusterName", None)
    note = f"RayService initializing timeout exceeded after {spent:.0f}s (configured timeout: {limit})"
    return WriteStatus(status=written, event=Event(type="Warning", reason="RayServiceInitializingTimeout", note=note))


def _seconds(text: str) -> float:
    units = {"h": 3600, "m": 60, "s": 1, "": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms]?)", text))


def _retired(facts: Facts, *, keep: Sequence[str]) -> Iterator[Write]:
    """Deletions of unused clusters after their delay."""
    for name, cluster in facts.clusters.items():
        if name in keep or is_deleting(cluster):
            continue
        if facts.clock >= facts.memory.due.setdefault(f"end of {name}", facts.clock + DELETION_DELAY):
            yield from _deletions(facts, [name])


def _deletions(facts: Facts, clusters: Mapping[str, Resource] | Sequence[str]) -> Iterator[Write]:
    for name in clusters:
        if not is_deleting(facts.clusters[name]):
            note = f"Deleted the RayCluster {key_of(facts.service).namespace}/{name}"
            yield Delete(
                kind="RayCluster", name=name, event=Event(type="Normal", reason="DeletedRayCluster", note=note)
            )


def _suspension(facts: Facts) -> Iterator[Write]:
    service, name = facts.service, key_of(facts.service).name
    if is_true(service, "Suspended"):
        return
    if not is_true(service, "Suspending"):
        facts.memory.due["suspension"] = facts.clock + POLL
        yield WriteStatus(status=status.suspending(service, waits=False, now=facts.now))
        return
    if facts.clock < facts.memory.due.setdefault("suspension", facts.clock):
        return
    own = [f"{name}-head-svc", f"{name}-serve-svc"]
    for service_name in own:
        if service_name in facts.services and not is_deleting(facts.services[service_name]):
            yield Delete(kind="Service", name=service_name)
    yield from _deletions(facts, facts.clusters)
    if facts.clusters or any(service_name in facts.services for service_name in own):
        waits = status.suspending(service, waits=True, now=facts.now)
        if (condition_of(service, "Suspending") or {}).get("reason") != "SuspendInProgress":
            yield WriteStatus(status=waits)
        return
    yield WriteStatus(status=status.suspended(service, now=facts.now))


def _change(facts: Facts, newest: Resource, *, active: str, pending: str) -> Write | None:
    """The write for a changed cluster spec (facts 13 to 16): a new cluster, groups appended in place, or nothing."""
    service = facts.service
    if annotations_of(newest).get(names.HASH) == workload.cluster_hash(service):
        return None
    if active and not pending and workload.appended(service, newest):
        wanted = workload.ray_cluster(service, active)
        wanted["metadata"] = {**newest["metadata"], "annotations": wanted["metadata"]["annotations"]}
        note = f"Updated the active RayCluster {key_of(service).namespace}/{active}"
        event = Event(type="Normal", reason="UpdatedRayCluster", note=note)
        return SetSpec(obj={**wanted, "status": newest.get("status")}, event=event)
    if active and dig(service, "spec", "upgradeStrategy", "type") == "None":
        return None
    return _new_cluster(facts, active=active)


def _new_cluster(facts: Facts, *, active: str) -> WriteStatus:
    """The status with the name of a new cluster; the serving cluster is not queried again until the switch."""
    name = f"{key_of(facts.service).name}-{facts.suffix()}"
    facts.memory.due[name] = facts.clock + POLL
    serving = Side(name=active, cluster=_own_status(facts, active))
    written = status.service_status(
        facts.service, active=serving, pending=Side(name=name), endpoints=facts.endpoints, now=facts.now
    )
    return WriteStatus(status=written)


def _own_status(facts: Facts, name: str) -> Resource | None:
    found = facts.clusters.get(name)
    return found.get("status") if found is not None else None


def _serving(facts: Facts, *, active: str, pending: str) -> Iterator[Write]:
    """Writes for applications, Services and status of the next cluster to serve, or else of the serving one."""
    service, name = facts.service, pending or active
    cluster = facts.clusters.get(name)
    applications: Mapping[str, Resource] = {}
    if cluster is not None and is_true(cluster, "HeadPodReady"):
        head = _head_of(facts, name)
        serve = facts.dashboards.get(name, Serve())
        if head is None or is_deleting(head) or serve.applications is None:
            raise _Frozen
        yield from _configured(facts, name, head, serve)
        yield from _labelled(facts, name, head)
        applications = serve.applications
    running = applications and all(app.get("status") == "RUNNING" for app in applications.values())
    if not pending or running:
        yield from _services(facts, name)
    side = Side(name=name, applications=applications, cluster=_own_status(facts, name))
    other = Side(name=active, cluster=_own_status(facts, active)) if pending and not running else Side()
    written = status.service_status(
        service,
        active=other if pending and not running else side,
        pending=side if pending and not running else Side(),
        endpoints=facts.endpoints,
        now=facts.now,
    )
    if written != service.get("status"):
        yield WriteStatus(status=written)


def _head_of(facts: Facts, name: str) -> Resource | None:
    return next((pod for pod in facts.pods.get(name, ()) if labels_of(pod).get(names.NODE_TYPE) == "head"), None)


def _configured(facts: Facts, name: str, head: Resource, serve: Serve) -> Iterator[Write]:
    """The configuration is sent if it has changed or if the head is a new one (facts 4 and 17)."""
    config = str(dig(facts.service, "spec", "serveConfigV2", default=""))
    if facts.memory.sent.get(name) == (config, uid_of(head)):
        return
    where = f"{key_of(facts.service).namespace}/{name}"
    refusal = serve.refusal
    try:
        yaml.load(config, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        refusal = "error converting YAML to JSON: yaml: line 1: did not find expected node content"
    if refusal:
        event = refused(facts, name, refusal)
        if (config, event.note) not in facts.memory.reported:
            facts.memory.reported.add((config, event.note))
            yield Tell(event=event)
        raise _Frozen
    facts.memory.sent[name] = (config, uid_of(head))
    note = f"Updated serve applications to the RayCluster {where}"
    yield Send(cluster=name, config=config, event=Event(type="Normal", reason="UpdatedServeApplications", note=note))


def refused(facts: Facts, cluster: str, why: str) -> Event:
    """The event for a configuration that Ray Serve refuses; it will be sent again."""
    facts.memory.sent.pop(cluster, None)
    where = f"{key_of(facts.service).namespace}/{cluster}"
    note = f"Failed to update serve applications to the RayCluster {where}: {why}"
    return Event(type="Warning", reason="FailedToUpdateServeApplications", note=note)


def _labelled(facts: Facts, name: str, head: Resource) -> Iterator[Write]:
    if facts.heads is not None:
        serves = facts.heads.get(name, False)
        if (labels_of(head).get(names.SERVE) == "true") != serves:
            yield LabelHead(pod=key_of(head).name, serves=serves)


def _services(facts: Facts, cluster: str) -> Iterator[Write]:
    service = facts.service
    for wanted in (workload.service_of_head(service, cluster), workload.serve_service(service, cluster)):
        name = key_of(wanted).name
        if name.endswith("-serve-svc") and not workload.serve_port(service):
            raise _Frozen  # fact 9: reported only in the operator's log
        held = facts.services.get(name)
        if held is None:
            note = f"Created the service {key_of(service).namespace}/{name}"
            yield Create(obj=wanted, event=Event(type="Normal", reason="CreatedService", note=note))
        elif dig(held, "spec", "selector") != dig(wanted, "spec", "selector"):
            changed = {**held, "spec": {**held["spec"], "selector": wanted["spec"]["selector"]}}
            note = f"Updated the service {key_of(service).namespace}/{name}"
            yield SetSpec(obj=changed, event=Event(type="Normal", reason="UpdatedService", note=note))
