"""``airunway top`` through a real API server, with model servers behind pods, and with a played Prometheus."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.kubelet import Kubelet
from tests.support.served import create_deployment, place_pod, write_status
from tests.view.conftest import Grant, Run, is_on_page

from airunway.kube import Client, load_config
from airunway.resource import ObjectKey, Resource, key_of
from airunway.snapshots.loads import deployments_and_pods
from airunway.view import Unseen
from airunway_testing.eventually import PATIENCE
from airunway_testing.model_server import ModelServer, Serves, answering, model_server, never, sending

pytestmark = pytest.mark.cluster


def metrics(*, tokens: int, running: int = 3) -> str:
    """What vLLM reports."""
    return f"""
vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 1.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.5
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.1"}} 10.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="1.0"}} 20.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf"}} 20.0
"""


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server(models={"llama": Serves.CHAT}, metrics=metrics(tokens=100)) as server:
        yield server


async def shown(run: Run, *arguments: str, kubeconfig: Path | None = None) -> dict[str, Any]:
    """The rows by name, as JSON."""
    done = await run("top", *arguments, "-o", "json", kubeconfig=kubeconfig)
    assert done.code == 0, done
    return {row["name"]: row for row in json.loads(done.out)["items"]}


async def test_a_table_of_what_engines_report(
    client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer, run: Run
) -> None:
    await place_pod(client, kubelet, key, "llama-0", server)
    await place_pod(client, kubelet, key, "llama-1", server)
    await write_status(client, key, engine={"type": "vllm"}, phase="Running", reason="Ready")
    quiet = ObjectKey(key.namespace, "quiet")
    await create_deployment(client, quiet, alone=False)
    rows = await shown(run, "-n", key.namespace, "--window", "500ms")
    llama = rows["llama"]
    assert (llama["running"], llama["waiting"], llama["kvUse"], llama["reporting"]) == (6, 2, 0.5, 2)
    assert (llama["firstTokenP50"], llama["firstTokenOf"], llama["tokensPerSecond"]) == (0.1, "start", 0)
    assert rows["quiet"]["running"]["why"] == "the deployment has no ready pod"
    assert {each.path for each in server.received} == {"/metrics"}
    table = await run("top", "-n", key.namespace)
    assert is_on_page("top -n ml", table.out), table
    one = await run("top", "md/llama", "-n", key.namespace)
    assert "quiet" not in one.out
    names = await run("top", "-n", key.namespace, "-o", "name")
    assert names.out == "modeldeployment.airunway.ai/llama\nmodeldeployment.airunway.ai/quiet\n", names
    every = await run("top", "-A")
    assert every.out.splitlines()[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert any(line.split()[:2] == [key.namespace, "llama"] for line in every.out.splitlines())
    nowhere = await run("top", "--context", "nowhere")
    assert (nowhere.code, "nowhere" in nowhere.err) == (1, True)


async def test_watching_takes_rates_from_the_growth_of_counters(
    client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer, kubeconfig: Path
) -> None:
    await place_pod(client, kubelet, key, "llama-0", server)
    await write_status(client, key, engine={"type": "vllm"})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway", "top", "md/llama", "-w", "-o", "json", "-n", key.namespace),
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        speeds: list[float] = []
        async with asyncio.timeout(PATIENCE):
            while not speeds or not speeds[-1]:
                text = (await process.stdout.readline()).decode()
                if '"tokensPerSecond"' in text:
                    speeds.append(float(text.split(":")[1].strip(" ,\n")))
                    server.metrics = metrics(tokens=1100)
        assert speeds[0] == 0
        assert 0 < speeds[-1] <= 1000
    finally:
        process.terminate()
        await process.wait()


def names_of(pods: Sequence[Resource] | Unseen) -> list[str]:
    assert not isinstance(pods, Unseen)
    return [key_of(pod).name for pod in pods]


async def test_pods_without_our_label_take_few_lists(
    client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer, kubeconfig: Path
) -> None:
    label = "kaito.sh/workspace"
    every = [ObjectKey(key.namespace, f"preset-{number}") for number in range(70)]
    for each in every:
        await create_deployment(client, each, alone=False)
        await write_status(client, each, selector=f"{label}={each.name},apps.kubernetes.io/pod-index=0")
    odd = ObjectKey(key.namespace, "odd")
    await create_deployment(client, odd, alone=False)
    await write_status(client, odd, selector="app notin (x)")
    for name in ("preset-0", "preset-69", "stranger"):
        await place_pod(client, kubelet, key, f"pod-of-{name}", server, labels={label: name})
    await place_pod(client, kubelet, key, "llama-0", server)
    requests: list[tuple[str, str]] = []
    async with Client(load_config(kubeconfig=kubeconfig)) as counted:
        counted.session.on_request = lambda verb, resource, *_: requests.append((verb, resource))
        for scope in (ObjectKey(key.namespace, ""), ObjectKey("", "")):
            requests.clear()
            _, found = await deployments_and_pods(counted, scope)
            # Deployments, pods with our label, two lists of 64 values at most, and one of another sort of selector.
            assert sorted(requests) == [("list", "modeldeployments"), *[("list", "pods")] * 4]
            pods = {owner.name: names_of(listed) for owner, listed in found.items()}
            assert {name: listed for name, listed in pods.items() if listed and name != "odd"} == {
                "llama": ["llama-0"],
                "preset-0": ["pod-of-preset-0"],
                "preset-69": ["pod-of-preset-69"],
            }
            assert len(pods["odd"]) == 4
        one = await deployments_and_pods(counted, ObjectKey(key.namespace, "preset-69"))
        assert names_of(one[1][every[-1]]) == ["pod-of-preset-69"]


async def test_without_the_right_it_is_named_and_nothing_is_zero(
    client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer, run: Run, grant: Grant
) -> None:
    await place_pod(client, kubelet, key, "llama-0", server)
    where = ("-n", key.namespace)
    viewer = await grant("view")
    row = (await shown(run, *where, kubeconfig=viewer))["llama"]
    right = f"get pods/proxy in namespace {key.namespace}"
    for value in ("running", "waiting", "kvUse", "firstTokenP50", "firstTokenP95", "tokensPerSecond"):
        assert row[value]["right"] == right
    assert server.received == []
    table = await run("top", *where, kubeconfig=viewer)
    assert f"  llama: metrics: you have no right to it (needs the right to {right})" in table.out.splitlines()
    assert table.out.splitlines()[1].split()[3:] == ["?"] * 6
    without_pods = await grant()
    row = (await shown(run, *where, kubeconfig=without_pods))["llama"]
    assert row["running"]["right"] == f"list pods in namespace {key.namespace}"
    refused = await run("top", "-A", kubeconfig=viewer)
    assert (refused.code, refused.err.count("\n")) == (1, 1), refused
    assert "no right to list modeldeployments.airunway.ai in the cluster" in refused.err


async def test_servers_that_report_nothing_or_anything(
    client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer, run: Run
) -> None:
    await place_pod(client, kubelet, key, "llama-0", server)
    await write_status(client, key, engine={"type": "llamacpp"})
    faults = {
        "llama.cpp reports them with --metrics": answering("", status=501),
        "none that are known": answering("<html>\x1b[2J" * 1000, content_type="text/html"),
        "HTTP 500": answering("boom", status=500),
        "does not answer": never(),
        "does not report vllm_num_requests_running; it has vllm_odd": answering(
            "vllm:odd 1\n", content_type="text/plain"
        ),
        "more than": sending(b"vllm:num_requests_running 1\n" * 2**15, times=64),
    }
    for says, fault in faults.items():
        server.faults["/metrics"] = fault
        for _ in range(3):  # on a busy machine a server may answer too late
            done = await run("top", "-n", key.namespace, "--window", "100ms")
            if says in done.out or "does not answer" not in done.out:
                break
        assert done.code == 0, done
        assert says in done.out, (says, done.out)
        assert done.out.splitlines()[1].split()[3] == "?", done.out
        assert len(done.out) < 4000
        assert all(line.isprintable() for line in done.out.splitlines())


@asynccontextmanager
async def prometheus(results: Sequence[tuple[str, Any]], queries: list[str]) -> AsyncIterator[str]:
    """Answers instant queries: the first result whose word is in the query."""

    async def answer(request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        queries.append(query)
        found: Any = next((result for word, result in results if word in query), [])
        if isinstance(found, str):
            return web.Response(status=503, text=found)
        data = {"resultType": "vector", "result": found}
        return web.json_response({"status": "success", "data": data})

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_prometheus_is_asked_five_times_for_any_number_of_deployments(
    client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer, run: Run
) -> None:
    await place_pod(client, kubelet, key, "llama-0", server)
    await create_deployment(client, ObjectKey(key.namespace, "quiet"), alone=False)
    labels = {"namespace": key.namespace, "pod": "llama-0"}

    def series(value: str, **more: str) -> dict[str, Any]:
        return {"metric": {**labels, **more}, "value": [1.0, value]}

    results = [
        ("num_requests_running", [series("3"), {"metric": "\x1b", "value": 1}, series("NaN")]),
        ("num_requests_waiting", []),
        ("kv_cache_usage_perc", [series("0.25")]),
        ("generation_tokens", [series("42.5")]),
        ("time_to_first_token", [series("1", le="0.1"), series("2", le="1.0"), series("2", le="+Inf")]),
    ]
    queries: list[str] = []
    async with prometheus(results, queries) as url:
        rows = await shown(run, "-n", key.namespace, "--prometheus", url)
        assert len(queries) == 5
        assert all(f'namespace="{key.namespace}"' in query for query in queries)
        llama = rows["llama"]
        assert (llama["kvUse"], llama["tokensPerSecond"], llama["firstTokenP50"]) == (0.25, 42.5, 0.1)
        assert llama["waiting"]["why"] == "Prometheus has no such series of its pods"
        assert rows["quiet"]["running"]["why"] == "the deployment has no ready pod"
        assert server.received == []
    async with prometheus([("", "no healthy \x1b[2J upstream")], []) as url:
        failed = await run("top", "-n", key.namespace, "--prometheus", url)
        assert (failed.code, failed.err.count("\n")) == (1, 1), failed
        assert "HTTP 503, not JSON: no healthy  upstream" in failed.err
    gone = await run("top", "-n", key.namespace, "--prometheus", url)
    assert (gone.code, "it does not answer" in gone.err) == (1, True), gone
