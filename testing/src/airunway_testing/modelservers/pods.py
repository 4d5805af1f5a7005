"""A played model server for each simulated pod that serves a deployment, with its log.

    async with pods_answer(plane.kubeconfig, plane.egress_socket, folder):   # a control plane with egress=True
        ...  # `airunway chat`, `top` and `logs` work for every provider's deployments

A pod that is Ready and belongs to a deployment answers on every port, as the engine in the deployment's status: chats
with the words of the prompt in reverse order, and metrics of what it has answered. Where a deployment has several roles
each pod answers so, also a router. Endpoint pickers and other pods do not answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from airunway.api import names
from airunway.engines.metrics import ENGINE_METRICS
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import NODE, POD, Client, Reflector, load_config, strip_managed_fields, user_agent_of
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of, uid_of
from airunway.snapshots.loads import engine_of, ready_pods
from airunway.snapshots.reading import pod_sources
from airunway.templates.expansion import effective
from airunway_testing.background import in_background
from airunway_testing.engine_load import EngineLoad
from airunway_testing.model_server import ModelServer, Serves, model_server
from airunway_testing.modelservers.egress import Address, egress_proxy
from airunway_testing.modelservers.logs import Log, log_server

KUBELET_PORT = 10250
"""Port of the kubelets, in the status of the nodes."""

_SIMULATED = ipaddress.ip_network("10.244.0.0/16")
"""Addresses of simulated pods."""

_PAUSE = 0.05
"""Seconds for each token: an answer can be watched."""


class PlayedServers:
    """The servers of pods; each starts when its pod is asked for the first time, and ends with the pod."""

    def __init__(self, client: Client, *, processes: Sequence[Path], stack: AsyncExitStack) -> None:
        self._processes = tuple(processes)
        self._stack = stack
        self._pods = Reflector(client, POD, project=strip_managed_fields())
        self._deployments = Reflector(client, MODEL_DEPLOYMENT, project=strip_managed_fields())
        self._closing: set[asyncio.Task[None]] = set()
        self._servers: dict[str, ModelServer] = {}
        self._stops: dict[str, AsyncExitStack] = {}
        self._logs: dict[str, Log] = {}
        self._starting = asyncio.Lock()
        self.kubelets: dict[str, Address] = {}
        """Where the logs of each node's pods are served."""

    async def run(self) -> None:
        """Read pods and deployments until cancelled."""
        self._pods.add_handler(self._on_pod)
        async with asyncio.TaskGroup() as group:
            for each in (self._pods, self._deployments):
                group.create_task(each.run())

    async def find(self, host: str, port: int) -> Address | None:
        """Where a connection of the API server leads."""
        if port == KUBELET_PORT and host in self.kubelets:
            return self.kubelets[host]
        pod = next((pod for _, pod in self._pods.items() if dig(pod, "status", "podIP") == host), None)
        if pod is not None and (server := await self._server_of(pod)) is not None:
            return server.address, server.port
        return None if pod is not None or _is_simulated(host) else (host, port)

    def log_of(self, key: ObjectKey, container: str, *, previous: bool) -> Log:
        """The log of a container. Raises LookupError."""
        pod = self._pods.get(key)
        if pod is None:
            raise LookupError(f'pod "{key.name}" not found')
        listed = dig(pod, "status", "containerStatuses", default=[])
        status: Resource = next((each for each in listed if each["name"] == container), {})
        for folder in self._processes:
            if (path := folder / f"{key.namespace}-{key.name}.log").is_file():
                return _of_process(path)
        if (ended := dig(status, "lastState" if previous else "state", "terminated")) is not None:
            log = Log(f"simulated: the container ended with exit code {ended['exitCode']} ({ended['reason']})")
            log.ended = True
            return log
        if previous or dig(status, "state", "running") is None:
            run = "previous terminated container" if previous else "running container"
            raise LookupError(f'{run} "{container}" in pod "{key.name}" not found')
        first = dig(pod, "spec", "containers")[0]["name"]
        if container != first or not ready_pods([pod]) or (deployment := self._deployment_of(pod)) is None:
            return Log()
        return self._log(pod, deployment)

    def _log(self, pod: Resource, deployment: Resource) -> Log:
        if (log := self._logs.get(uid_of(pod))) is None:
            engine, model = engine_of(deployment), _served_name(deployment)
            text = "no model is loaded; it answers with the words of the prompt in reverse order"
            log = self._logs[uid_of(pod)] = Log(f"INFO: played {engine} serves {model}: {text}")
        return log

    def _deployment_of(self, pod: Resource) -> Resource | None:
        """The deployment that a pod serves: by our label, or by the selector in the deployment's status."""
        key, labels = key_of(pod), labels_of(pod)
        if named := labels.get(names.MODEL_DEPLOYMENT):
            return self._deployments.get(ObjectKey(key.namespace, named))
        for owner, deployment in self._deployments.items():
            selectors = [source.label_selector.partition("=") for source in pod_sources(deployment)]
            if owner.namespace == key.namespace and any(labels.get(label) == value for label, _, value in selectors):
                return deployment
        return None

    async def _server_of(self, pod: Resource) -> ModelServer | None:
        """The server of a pod that serves; None for others."""
        deployment = self._deployment_of(pod)
        if deployment is None or not ready_pods([pod]):
            return None
        uid, engine = uid_of(pod), engine_of(deployment)
        async with self._starting:
            if (server := self._servers.get(uid)) is None:
                stop = self._stops[uid] = await self._stack.enter_async_context(AsyncExitStack())
                server = await stop.enter_async_context(model_server(models={}, address="127.0.0.1"))
                server.pause, server.say = _PAUSE, self._log(pod, deployment).write
                server.load = EngineLoad(engine) if engine in ENGINE_METRICS else None
                self._servers[uid] = server
        server.models = {_served_name(deployment): Serves.CHAT}
        return server

    def _on_pod(self, _key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if old is None or (new is not None and uid_of(new) == uid_of(old)):
            return
        uid = uid_of(old)
        if (log := self._logs.pop(uid, None)) is not None:
            log.ended = True
        if self._servers.pop(uid, None) is not None:
            closing = asyncio.create_task(self._stops.pop(uid).aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _served_name(deployment: Resource) -> str:
    model = dig(effective(deployment), "spec", "model")
    return str(dig(model, "servedName") or str(dig(model, "id", default="")).rstrip("/").rpartition("/")[2])


def _of_process(path: Path) -> Log:
    """The log of a process as it is now."""
    log = Log(*path.read_text(encoding="utf-8", errors="replace").splitlines())
    log.ended = True
    return log


def _is_simulated(host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in _SIMULATED
    except ValueError:
        return False


@asynccontextmanager
async def pods_answer(
    kubeconfig: Path, socket: Path, folder: Path, *, processes: Sequence[Path] = ()
) -> AsyncIterator[PlayedServers]:
    """Pods of deployments answer, and all pods have logs, while the context lasts.

    `socket` is the control plane's `egress_socket`, `folder` takes a certificate. `processes` are the folders of
    pod runners, with the logs of the pods that they run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    async with (
        Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("model-servers")) as client,
        AsyncExitStack() as stack,
    ):
        played = PlayedServers(client, processes=processes, stack=stack)
        port = await stack.enter_async_context(log_server(folder, played.log_of))
        played.kubelets = dict.fromkeys(await _name_kubelets(client), ("127.0.0.1", port))
        async with in_background(played.run()), egress_proxy(socket, played.find):
            yield played


async def _name_kubelets(client: Client) -> list[str]:
    """Write into each node where its kubelet is, which simulated nodes do not say; gives the hosts."""
    hosts = [key_of(node).name for node in await client.list_all(NODE)]
    for host in hosts:
        status = {
            "addresses": [{"type": "Hostname", "address": host}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        }
        await client.merge_patch(NODE, ObjectKey("", host), {"status": status}, subresource="status")
    return hosts
