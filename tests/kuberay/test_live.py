"""Real Ray behind the simulated operator (``-m ray``): ModelDeployment, provider, RayService, operator, Ray and back.

Ray, its dashboard, Serve's controller, proxies, replicas and Ray Serve LLM's builders are real, in the environment
``.airunway/ray-<version>`` of ``make test-ray``; played are the operator, the pods, the engine and vLLM's modules. Ray
asks for a token. The operator sends ``serveConfigV2`` to Ray's REST API, which tells it of applications.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from tests.kuberay.conftest import KUBERAY
from tests.support.deployed_operator import Operator
from tests.support.faults import has_cause

from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway_kuberay_simulator import SimulatedKubeRay
from airunway_kuberay_simulator.scenarios import Pretended
from airunway_testing.expectations import has_replicas, running_at
from airunway_testing.operator import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
PARTS = ROOT / "providers" / "kuberay" / "tests" / "ray"
RELEASE = "2.56.0"
"""That of the default image."""
ENVIRONMENT = ROOT / ".airunway" / f"ray-{RELEASE}"
APPLICATIONS = "/api/serve/applications/"
PACE = 0.25
"""Seconds of the operator that one second takes: it asks Ray twice a second."""
LONG = 300.0
"""Seconds that one step may take on a busy machine."""
MODEL: Resource = {**KUBERAY, "model": {"id": "o/m", "servedName": "m"}}


@dataclass(kw_only=True)
class Ray:
    """A Ray that runs here, as the operator's dashboard: its address, where requests are taken, and its token."""

    dashboard: str
    port: int
    token: str
    session: aiohttp.ClientSession
    refusals: list[str] = field(default_factory=list)

    async def send(self, config: str) -> str:
        """On a machine where a port of its own takes the requests, and no pods have proxies."""
        found = json.loads(config)
        found["http_options"] = {"host": "127.0.0.1", "port": self.port}
        found["proxy_location"] = "HeadOnly"
        headers = authorized(self.token)
        async with self.session.put(self.dashboard + APPLICATIONS, json=found, headers=headers) as answer:
            if answer.status == 200:
                return ""
            self.refusals.append(f"{answer.status} {(await answer.text())[:300]}")
            return f"UpdateDeployments fail: {self.refusals[-1]}"

    async def applications(self) -> Mapping[str, Resource] | None:
        try:
            async with self.session.get(self.dashboard + APPLICATIONS, headers=authorized(self.token)) as answer:
                found = await answer.json()
        except (aiohttp.ClientError, ValueError):
            return None
        result: Resource = dig(found, "applications", default={})
        return result

    async def pids(self, name: str) -> set[int]:
        """The processes of the replicas of the deployment whose name begins so, as far as they run."""
        app = (await self.applications() or {}).get("llm") or {}
        parts = [part for key, part in (app.get("deployments") or {}).items() if key.startswith(name)]
        return {r["pid"] for part in parts for r in part.get("replicas") or [] if r["state"] == "RUNNING"}

    async def grows(self, name: str, count: int) -> set[int]:
        """The processes, once there are so many."""
        async with asyncio.timeout(LONG):
            while len(found := await self.pids(name)) != count:
                await asyncio.sleep(0.5)
        return found


def authorized(token: str) -> dict[str, str]:
    return {"x-ray-authorization": f"Bearer {token}"}


@dataclass
class Users:
    """Clients that ask without a pause, and what became of their requests."""

    ray: Ray
    answered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    async def run(self) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "stream": False}
        address = f"http://127.0.0.1:{self.ray.port}/v1/chat/completions"
        while True:
            try:
                async with self.ray.session.post(address, json=body) as answer:
                    text = await answer.text()
                    if answer.status == 200:
                        self.answered[json.loads(text)["choices"][0]["message"]["content"]] += 1
                    else:
                        self.failed.append(f"{answer.status} {text[:200]}")
            except aiohttp.ClientError as error:
                self.failed.append(repr(error))
            await asyncio.sleep(0.02)

    def __str__(self) -> str:
        return f"{sum(self.answered.values())} requests, {len(self.failed)} failed {self.failed[:1]}"


class asking:  # noqa: N801
    """Has clients ask while the block runs."""

    def __init__(self, ray: Ray, count: int) -> None:
        self.users, self._count = Users(ray), count

    async def __aenter__(self) -> Users:
        self._tasks = [asyncio.create_task(self.users.run()) for _ in range(self._count)]
        return self.users

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.users.failed += [repr(end) for end in ended if not isinstance(end, asyncio.CancelledError)]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
async def ray() -> AsyncIterator[Ray]:
    if not (ENVIRONMENT / "bin" / "ray").exists():
        pytest.skip("needs real Ray: make test-ray")
    gcs, dashboard, agent, client, port = free_ports(5)
    token = secrets.token_hex(32)
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY")},
            "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(PARTS / "stubs"),
            "VLLM_STUB_FIELDS": str(PARTS / "vllm" / "0.22.0.json"),
            "RAYLLM_VLLM_ENGINE_CLS": "played_engine.PlayedEngine",
            # Below `uv run` Ray would start its workers by uv, too, in an environment that is not its own: none begins.
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "240",
            # A busy machine takes longer than Ray expects.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
            "RAY_raylet_start_wait_time_s": "120",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "HF_HUB_OFFLINE": "1",
            "HOME": folder,
        }
        words = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
        words += [f"--ray-client-server-port={client}", "--num-cpus=24", "--num-gpus=8", f"--temp-dir={folder}"]
        words += ["--object-store-memory=100000000", "--include-dashboard=true", "--block", "--disable-usage-stats"]
        with (Path(folder) / "ray.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(ENVIRONMENT / "bin" / "ray"),
                "start",
                "--head",
                *words,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
                made = Ray(dashboard=f"http://127.0.0.1:{dashboard}", port=port, token=token, session=session)
                async with asyncio.timeout(360):
                    while await made.applications() is None:
                        assert process.returncode is None, (Path(folder) / "ray.log").read_text()
                        await asyncio.sleep(1)
                yield made
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


@pytest.fixture
async def played(operator: Operator, client: Client, kuberay: ProviderHost, ray: Ray) -> AsyncIterator[Operator]:
    """The provider, and the simulated KubeRay, whose every Ray cluster is the real one."""
    await operator.provider(kuberay, simulated=False)
    upstream = SimulatedKubeRay(client, pretended=Pretended(""), dashboard=ray, pace=PACE)
    running = asyncio.create_task(upstream.run())
    yield operator
    await operator.clear()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def counts(wanted: int, generation: int) -> Callable[[Resource], bool]:
    return lambda found: running_at(generation)(found) and has_replicas(wanted, wanted)(found)


async def test_real_ray_serves_scales_fails_and_recovers(
    played: Operator, client: Client, ray: Ray, capsys: pytest.CaptureFixture[str]
) -> None:
    """Findings 1, 2, 4, 10 and 18.2, in one life."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {text}")
            sys.stdout.flush()

    for path, body in (("/api/serve/applications/", {"applications": []}), ("/api/jobs/", {"entrypoint": "id"})):
        method = "PUT" if "serve" in path else "POST"
        async with ray.session.request(method, ray.dashboard + path, json=body, headers=authorized("no")) as refused:
            assert refused.status in (401, 403), "who has no token runs no code here"
    say("without the token: refused")

    key = await played.deploy(**MODEL)
    becomes = partial(until, client, key, within=LONG)
    await becomes(counts(1, 1), what="the first replica")
    (pid,), (taker,) = await ray.pids("LLMServer:"), await ray.pids("OpenAiIngress")
    say(f"Running, served by pid {pid}, ingress {taker}; PUTs refused before: {len(ray.refusals)}")

    async with asking(ray, 4) as users:
        generation = await played.edit(key, scaling={"replicas": 4})
        await becomes(counts(4, generation), what="four replicas")
        four, takers = await ray.pids("LLMServer:"), await ray.pids("OpenAiIngress")
        say(f"4 replicas: {sorted(four)}, ingress {sorted(takers)}")
        assert pid in four, "what served goes on"
        assert taker in takers
        generation = await played.edit(key, scaling={"replicas": 1})
        await becomes(counts(1, generation), what="one replica")
        one = await ray.pids("LLMServer:")
        assert one < four, "nothing was loaded anew"
    say(f"1 -> 4 -> 1: {users}")
    assert users.failed[:3] == []
    assert sum(users.answered.values()) > 10

    async with asking(ray, 12) as users:
        generation = await played.edit(key, provider={"overrides": {"autoscaling": {"maxReplicas": 3}}})
        three = await ray.grows("LLMServer:", 3)
        await becomes(counts(3, generation), what="three replicas, by Ray's autoscaling")
        assert one < three, "turning it on restarts nothing"
        generation = await played.edit(key, provider={"overrides": None})
        await becomes(counts(1, generation), what="one replica again")
        left = await ray.pids("LLMServer:")
        assert left < three, "nor does turning it off"
    say(f"autoscaled without a target of its own, {sorted(three)}, and back, {sorted(left)}: {users}")
    assert users.failed[:3] == []

    await played.edit(key, engine={"contextLength": 131072})
    first = await becomes(has_cause("Engine.OutOfMemory"), what="the root cause")
    assert "tries again" in first["status"]["message"], "at the first failed try of three"
    assert first["status"]["replicas"]["available"] == 0, "the only replica was stopped first: no model meanwhile"
    failed = await becomes(lambda found: "DEPLOY_FAILED" in found["status"]["message"], what="DEPLOY_FAILED")
    assert (failed["status"]["phase"], failed["status"]["reason"]) == ("Degraded", "GPUOutOfMemory")
    assert failed["status"]["replicas"]["summary"] == "0/1"
    assert await ray.pids("LLMServer:") == set()
    say(f"an engine that does not fit: {failed['status']['message'][:120]}")
    generation = await played.edit(key, engine={"contextLength": 4096})
    await becomes(counts(1, generation), what="the repaired model")
    say("repaired: Running\n")


async def test_real_ray_scales_prefill_and_decode_in_place(
    played: Operator, client: Client, ray: Ray, capsys: pytest.CaptureFixture[str]
) -> None:
    def sizes(prefill: int, decode: int) -> Resource:
        roles = {"prefill": prefill, "decode": decode}
        return {role: {"replicas": n, "gpu": {"count": 1}, "memory": "8Gi"} for role, n in roles.items()}

    split: Resource = {"serving": {"mode": "disaggregated"}, "resources": {}, "scaling": sizes(1, 1)}
    key = await played.deploy(**MODEL, **split)
    becomes = partial(until, client, key, within=LONG)
    await becomes(counts(2, 1), what="one of each")
    before = {name: await ray.pids(name) for name in ("Prefill:", "Decode:")}
    async with asking(ray, 4) as users:
        generation = await played.edit(key, scaling=sizes(2, 3))
        await becomes(counts(5, generation), what="two and three")
        grown = {name: await ray.pids(name) for name in before}
        assert [len(pids) for pids in grown.values()] == [2, 3]
        assert all(before[name] < grown[name] for name in before), "what served goes on"
        generation = await played.edit(key, scaling=sizes(1, 1))
        await becomes(counts(2, generation), what="one of each again")
        after = {name: await ray.pids(name) for name in before}
        assert all(after[name] < grown[name] for name in before), "nothing was loaded anew"
    with capsys.disabled():
        sys.stdout.write(f"\n  prefill and decode 1+1 -> 2+3 -> 1+1, {grown}: {users}\n")
    assert users.failed[:3] == []
    assert sum(users.answered.values()) > 10


async def test_real_ray_wakes_a_model_from_zero_at_a_request(
    played: Operator, client: Client, ray: Ray, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``overrides.autoscaling`` with no replica at least promises. That it goes back to none was not waited for."""
    scales = {"name": "kuberay", "overrides": {"autoscaling": {"maxReplicas": 2}}}
    key = await played.deploy(**{**MODEL, "scaling": {"replicas": 0}, "provider": scales})
    asleep = await until(client, key, running_at(1), within=LONG)
    assert await ray.pids("LLMServer:") == set()
    async with asking(ray, 1) as users:
        await ray.grows("LLMServer:", 1)
        woken = await until(client, key, counts(1, 1), within=LONG)
        async with asyncio.timeout(LONG):
            while not users.answered:
                await asyncio.sleep(0.2)
    said = [found["status"]["replicas"]["summary"] for found in (asleep, woken)]
    with capsys.disabled():
        sys.stdout.write(f"\n  from zero: {said}, {users}\n")
    assert users.failed == []
