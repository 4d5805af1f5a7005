"""A kubelet that serves logs: a node of this machine, whose pods run nothing and write what a test says.

    async with running_kubelet(client, folder, node="logs-0") as kubelet:
        await kubelet.place(pod)                       # creates it on the node; the test writes its status
        kubelet.write("llama-0", "model", "loading weights")
        kubelet.end("llama-0", "model")                # this run; what is written now is the next one's

KWOK leaves its pods alone. The API server asks the kubelet of the pod's node for a log, and does not check its
certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from aiohttp import web
from tests.support.faults import BY_HAND

from airunway.kube import NODE, POD, Client, NotFound
from airunway.resource import ObjectKey, Resource, annotations_of, dig
from airunway_testing.controlplane.certificates import new_authority


@dataclass(kw_only=True)
class _Run:
    """One run of a container, and what it has written."""

    lines: list[tuple[float, bytes]] = field(default_factory=list)
    ended: bool = False


class Kubelet:
    """The logs of the node's containers, by names of pod and container; `open` counts the requests that follow one."""

    def __init__(self, client: Client, node: str) -> None:
        self._client, self._node = client, node
        self._runs: dict[tuple[str, str], list[_Run]] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.open = 0

    async def place(self, pod: Resource) -> Resource:
        """Create a pod on the node, which the simulated nodes leave alone; the API server's answer."""
        metadata = {**pod["metadata"], "annotations": {**annotations_of(pod), **BY_HAND}}
        body = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": self._node}}
        return await self._client.create(POD, body)

    def write(self, pod: str, container: str, *lines: str | bytes) -> None:
        """Add lines to the current run of a container."""
        run = self._of(pod, container)[-1]
        run.lines += [(monotonic(), line.encode() if isinstance(line, str) else line) for line in lines]
        self._notify()

    def end(self, pod: str, container: str) -> None:
        """End the current run of a container: further lines are the next run's."""
        runs = self._of(pod, container)
        runs[-1].ended = True
        runs.append(_Run())
        self._notify()

    def _of(self, pod: str, container: str) -> list[_Run]:
        return self._runs.setdefault((pod, container), [_Run()])

    def _notify(self) -> None:
        async def tell() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer as a kubelet: ``/containerLogs/{namespace}/{pod}/{container}``."""
        pod, container, query = request.match_info["pod"], request.match_info["container"], request.query
        runs = self._runs.get((pod, container))
        previous = query.get("previous") == "true"
        if runs is None or (previous and len(runs) < 2):
            problem = f'previous terminated container "{container}" in pod "{pod}" not found'
            return web.Response(status=400, text=problem)
        waits = not runs[-1].lines and len(runs) > 1 and query.get("follow") != "true"
        run = runs[-2] if previous or waits else runs[-1]
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        place = self._first(run, query.get("tailLines"), query.get("sinceSeconds"))
        self.open += 1
        try:
            while True:
                text = b"".join(line + b"\n" for _, line in run.lines[place:])
                place = len(run.lines)
                if text:
                    await response.write(text)
                if query.get("follow") != "true" or run.ended:
                    return response
                async with self._changed:
                    await self._changed.wait_for(lambda: len(run.lines) > place or run.ended)  # noqa: B023
        finally:
            self.open -= 1

    @staticmethod
    def _first(run: _Run, tail: str | None, since: str | None) -> int:
        place = max(0, len(run.lines) - int(tail)) if tail is not None else 0
        while since is not None and place < len(run.lines) and run.lines[place][0] < monotonic() - int(since):
            place += 1
        return place


@asynccontextmanager
async def running_kubelet(client: Client, folder: Path, *, node: str) -> AsyncIterator[Kubelet]:
    """A node and its kubelet for as long as the context lasts; `folder` takes its certificate."""
    kubelet = Kubelet(client, node)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", kubelet.serve)
    pair = new_authority(folder / "kubelet-ca", name="kubelet-ca").server(
        folder / "kubelet", name=node, hosts=("127.0.0.1",)
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    address: tuple[str, int] = runner.addresses[0]
    try:
        # Created with its status, as kubelets do it: KWOK would initialize a node that is not ready.
        status = {
            "addresses": [{"type": "InternalIP", "address": address[0]}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": address[1]}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await client.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status})
        yield kubelet
    finally:
        pods = await client.list_all(POD, field_selector=f"spec.nodeName={node}")
        for pod in pods:
            with suppress(NotFound):
                where = ObjectKey(dig(pod, "metadata", "namespace"), dig(pod, "metadata", "name"))
                await client.delete(POD, where, grace_seconds=0)
        with suppress(NotFound):
            await client.delete(NODE, ObjectKey("", node))
        await runner.cleanup()
