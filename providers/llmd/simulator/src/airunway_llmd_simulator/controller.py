"""Runs the simulated programs in a cluster with pods: they set readiness and exit status of their pods.

Nodes are simulated: a pod is Ready at once unless its annotation says otherwise
(`airunway_testing.controlplane.stages`). The API server's own authorizer decides what a picker may read.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from time import monotonic

from airunway.kube import CONFIG_MAP, POD, Client, Kind, KubeError, NotFound, Reflector, is_served, strip_managed_fields
from airunway.resource import ObjectKey, Resource, annotations_of, dig, format_time, is_deleting, key_of, uid_of
from airunway_llmd_simulator.picker import START, Cluster, Process, Readable, health, looked, started
from airunway_llmd_simulator.programs import Ended, picker_of, sidecar_of
from airunway_testing.controlplane.stages import OUTCOME

log = logging.getLogger(__name__)

MANAGER = "simulated-llm-d"
INFERENCE_POOL = Kind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")
LOOK = 0.2
"""Seconds between two passes over all pods."""

ASK = 1.0
"""Seconds between two queries to the API server about served kinds and one picker's rights."""

RESTART = 5.0
"""Seconds until an exited process is restarted; a kubelet waits for up to five minutes."""

_FOLLOWED: dict[Readable, Kind] = {
    ("", "pods"): POD,
    ("inference.networking.k8s.io", "inferencepools"): INFERENCE_POOL,
    **{
        (group, plural): Kind(group, "v1alpha2", kind, plural)
        for group in ("llm-d.ai", "inference.networking.x-k8s.io")
        for kind, plural in (
            ("InferenceObjective", "inferenceobjectives"),
            ("InferenceModelRewrite", "inferencemodelrewrites"),
        )
    },
}


class SimulatedPrograms:
    """All endpoint pickers and routing sidecars of the cluster; `run` works until it is cancelled."""

    def __init__(self, client: Client) -> None:
        self._client = client
        slim = strip_managed_fields()
        self._pods = Reflector(client, POD, project=slim)
        self._pools = Reflector(client, INFERENCE_POOL, project=slim)
        self._running: dict[str, Process | Ended] = {}
        self._ended: dict[str, float] = {}
        self._readable: dict[str, tuple[float, frozenset[Readable]]] = {}
        self._served: tuple[float, frozenset[Readable]] = (float("-inf"), frozenset())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in (self._pods, self._pools):
                group.create_task(reflector.run(), name=f"simulated-llm-d-{reflector.kind.plural}")
            while True:
                await self._look()
                await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        alive = set()
        for pod in self._pods.values():
            container = _picker_in(pod)
            if is_deleting(pod) or not dig(pod, "spec", "nodeName"):
                continue
            alive.add(uid_of(pod))
            try:
                if container is not None:
                    await self._play(pod, container, await self._what_is_served())
                else:
                    await self._start_sidecars(pod)
            except (KubeError, TimeoutError) as error:
                log.info("%s: %s", key_of(pod), error)  # retried in the next pass
        for uid in self._running.keys() - alive:
            self._running.pop(uid, None)
            self._ended.pop(uid, None)
            self._readable.pop(uid, None)

    async def _what_is_served(self) -> frozenset[Readable]:
        asked, known = self._served
        if monotonic() - asked >= ASK:
            found = [(what, await is_served(self._client, kind)) for what, kind in _FOLLOWED.items()]
            known = frozenset(what for what, there in found if there)
            self._served = (monotonic(), known)
        return known

    # ------------------------------------------------------------------------------------------------------- pickers

    async def _play(self, pod: Resource, container: Resource, served: frozenset[Readable]) -> None:
        uid, now = uid_of(pod), monotonic()
        pool = ObjectKey(key_of(pod).namespace, _flag(container, "pool-name"))
        exists = self._pools.synced.is_set() and self._pools.get(pool) is not None
        state = self._running.get(uid)
        settled = isinstance(state, Process) and state.synced
        readable = _all() if settled else await self._may_read(pod, served)
        cluster = Cluster(served=served, readable=readable, pool=exists)
        if state is None or (isinstance(state, Ended) and now - self._ended[uid] >= RESTART):
            state = await self._start(pod, container, cluster, now)
        elif isinstance(state, Process):
            state = looked(state, cluster, now)
        before, self._running[uid] = self._running.get(uid), state
        if not isinstance(state, Ended):
            outcome = None if health(state, cluster) == "SERVING" else "NotReady"
            await self._mark(pod, outcome, revived=isinstance(before, Ended))
        elif state is not before:
            self._ended[uid] = now
            if state != before:
                await self._write(pod, _crashed(container["name"], container["image"], state))

    async def _start(self, pod: Resource, container: Resource, cluster: Cluster, now: float) -> Process | Ended:
        program = picker_of(container["image"])
        if program is None:
            return Ended(code=1, words=f"the simulator knows no program of the image {container['image']}")
        config = await self._config(pod, container)
        # Simulated nodes make a pod Ready at once; unready during the start, it would look like a failure.
        begun = program.start(container.get("args") or [], config) or started(program, cluster, now - START)
        return looked(begun, cluster, now) if isinstance(begun, Process) else begun

    async def _config(self, pod: Resource, container: Resource) -> str | None:
        name = _flag(container, "config-file").rpartition("/")[2]
        for volume in dig(pod, "spec", "volumes", default=[]):
            if name and (source := dig(volume, "configMap", "name")):
                found = await self._client.get(CONFIG_MAP, ObjectKey(key_of(pod).namespace, source))
                return str(dig(found, "data", default={}).get(name, ""))
        return None

    async def _may_read(self, pod: Resource, served: frozenset[Readable]) -> frozenset[Readable]:
        uid, now = uid_of(pod), monotonic()
        asked, known = self._readable.get(uid, (0.0, frozenset()))
        if known and now - asked < ASK:
            return known
        namespace = key_of(pod).namespace
        user = f"system:serviceaccount:{namespace}:{dig(pod, 'spec', 'serviceAccountName', default='default')}"
        allowed = set()
        for what in served:
            kind = _FOLLOWED[what]
            if await self._client.subject_access_review(user=user, verb="watch", kind=kind, namespace=namespace):
                allowed.add(what)
        self._readable[uid] = (now, frozenset(allowed))
        return frozenset(allowed)

    # ------------------------------------------------------------------------------------------------------ sidecars

    async def _start_sidecars(self, pod: Resource) -> None:
        uid = uid_of(pod)
        if uid in self._running:
            return
        for container in dig(pod, "spec", "initContainers", default=[]):
            program = sidecar_of(container.get("image", "")) if "sidecar" in container.get("image", "") else None
            end = program.start(container.get("args") or []) if program is not None else None
            if end is not None:
                self._running[uid] = end
                await self._write(pod, _crashed(container["name"], container["image"], end, init=True))

    # -------------------------------------------------------------------------------------------------------- writing

    async def _mark(self, pod: Resource, outcome: str | None, *, revived: bool) -> None:
        """Set the readiness annotation, except on a pod whose status a test (and not this simulator) writes."""
        if annotations_of(pod).get(OUTCOME) not in ((outcome,) if revived else (outcome, "ByHand")):
            patch = {"metadata": {"annotations": {OUTCOME: outcome}, "uid": uid_of(pod)}}
            await self._patch(pod, patch)

    async def _write(self, pod: Resource, status: Resource) -> None:
        await self._patch(pod, {"metadata": {"annotations": {OUTCOME: "ByHand"}, "uid": uid_of(pod)}})
        await self._patch(pod, {"status": status}, subresource="status")

    async def _patch(self, pod: Resource, patch: Resource, *, subresource: str = "") -> None:
        try:
            await self._client.merge_patch(POD, key_of(pod), patch, manager=MANAGER, subresource=subresource)
        except NotFound:
            return  # deleted meanwhile


def _all() -> frozenset[Readable]:
    return frozenset(_FOLLOWED)


def _picker_in(pod: Resource) -> Resource | None:
    for container in dig(pod, "spec", "containers", default=[]):
        if any(word.partition("=")[0] == "--pool-name" for word in container.get("args") or []):
            found: Resource = container
            return found
    return None


def _flag(container: Resource, name: str) -> str:
    for word in container.get("args") or []:
        if word.startswith(f"--{name}="):
            return str(word.partition("=")[2])
    return ""


def _crashed(name: str, image: str, end: Ended, *, init: bool = False) -> Resource:
    """The status of a pod whose container exits repeatedly, as a kubelet writes it."""
    now = format_time(datetime.now(UTC))
    reason = "Completed" if end.code == 0 else "Error"
    last = {"exitCode": end.code, "reason": reason, "message": end.line, "startedAt": now, "finishedAt": now}
    status = {
        "name": name,
        "image": image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": f"back-off restarting failed container={name}"}},
        "lastState": {"terminated": last},
    }
    unready = {"status": "False", "reason": "ContainersNotReady", "lastTransitionTime": now}
    return {
        "phase": "Pending" if init else "Running",
        "conditions": [{"type": "Ready", **unready}, {"type": "ContainersReady", **unready}],
        "initContainerStatuses" if init else "containerStatuses": [status],
    }
