"""``airunway logs`` through a real API server, from a kubelet that has what a test writes."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import BACK_OFF, ended, running
from tests.support.kubelet import Kubelet
from tests.support.served import write_status
from tests.view.conftest import Grant, Run, is_on_page

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, POD, SERVICE_ACCOUNT, Client
from airunway.resource import ObjectKey, Resource, uid_of
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE, Eventually

pytestmark = pytest.mark.cluster

KILLED = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version"


async def pod(
    client: Client,
    kubelet: Kubelet,
    key: ObjectKey,
    name: str,
    role: str,
    /,
    labels: dict[str, str] | None = None,
    **states: Resource | tuple[Any, ...],
) -> None:
    """A pod of the deployment; `states` are those of its containers, or pairs of state and last state."""
    labels = labels or {"airunway.ai/model-deployment": key.name, "airunway.ai/component": role}
    containers = [{"name": each, "image": "registry.example/engine:1"} for each in states if each != "setup"]
    setup = [{"name": "setup", "image": "registry.example/setup:1"}] if "setup" in states else []
    async with asyncio.timeout(PATIENCE):
        while not await client.find(SERVICE_ACCOUNT, ObjectKey(key.namespace, "default")):
            await asyncio.sleep(0.05)  # without its account the API server takes no pod
    body: Resource = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": key.namespace, "labels": labels},
        "spec": {"containers": containers, "initContainers": setup},
    }
    await kubelet.place(body)
    await state(client, key, name, **states)


async def state(client: Client, key: ObjectKey, name: str, **states: Resource | tuple[Any, ...]) -> None:
    """Write a pod's status as its kubelet would."""
    found = []
    for each, given in states.items():
        now, last = given if isinstance(given, tuple) else (given, {})
        restarts = 1 if last else 0
        found.append(
            {
                "name": each,
                "image": "registry.example/engine:1",
                "imageID": "",
                "ready": "running" in now and not last,
                "restartCount": restarts,
                "state": now,
                "lastState": last,
            }
        )
    status = {
        "phase": "Running",
        "containerStatuses": [each for each in found if each["name"] != "setup"],
        "initContainerStatuses": [each for each in found if each["name"] == "setup"],
    }
    await client.merge_patch(POD, ObjectKey(key.namespace, name), {"status": status}, subresource="status")


async def test_without_flags_the_run_that_crashed_is_printed(
    client: Client, kubelet: Kubelet, key: ObjectKey, run: Run
) -> None:
    await pod(
        client, kubelet, key, "llama-0", "decode", setup=ended(0, "Completed"), model=(BACK_OFF, ended(1, "Error"))
    )
    await pod(client, kubelet, key, "llama-1", "prefill", model=running())
    kubelet.write("llama-0", "setup", "prepared")
    kubelet.write("llama-0", "model", *(f"step {number}" for number in range(300)), KILLED)
    kubelet.end("llama-0", "model")
    kubelet.write("llama-0", "model", "starting again")
    kubelet.write("llama-1", "model", "\x1b]0;owned\x07serving \x1b[31mred\x1b[0m \u202egnp.exe", "x" * 100_000)

    every = await run("logs", "md/llama", "-n", key.namespace)
    assert every.code == 0, every
    lines = every.out.splitlines()
    assert lines[0] == "[decode/llama-0 setup] prepared"
    assert f"[decode/llama-0 model] {KILLED}" in lines
    assert "[decode/llama-0 model] step 299" in lines
    assert "[decode/llama-0 model] step 99" not in lines
    assert not any("starting again" in line for line in lines)
    assert "exit code 1" in every.err
    assert "[prefill/llama-1] serving red gnp.exe" in lines
    assert max(map(len, lines)) < 17_000
    assert all(line.isprintable() for line in lines)
    assert is_on_page("logs md/llama", every.out), every.out

    whole = await run("logs", "md/llama", "-n", key.namespace, "--all", "--role", "decode")
    assert "[decode/llama-0 model] step 0" in whole.out.splitlines()
    assert "llama-1" not in whole.out
    before = await run("logs", "md/llama", "-n", key.namespace, "-p", "--tail", "1", "--since", "1h")
    assert before.out == f"[decode/llama-0 model] {KILLED}\n"
    unknown = await run("logs", "md/llama", "-n", key.namespace, "--role", "encode")
    assert unknown.code == 1, unknown
    assert "(roles: decode, prefill)" in unknown.err
    nowhere = await run("logs", "md/llama", "--context", "nowhere")
    assert (nowhere.code, "nowhere" in nowhere.err) == (1, True)


async def test_the_end_of_a_pod_that_is_gone_is_known_from_the_deployment(
    client: Client, kubelet: Kubelet, key: ObjectKey, run: Run
) -> None:
    moment = "2026-01-01T00:00:00.000000Z"
    uid = uid_of(await client.get(MODEL_DEPLOYMENT, key))  # an earlier deployment of this name had its own pods
    event = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": "llama.1", "namespace": key.namespace},
        "regarding": {"kind": "ModelDeployment", "namespace": key.namespace, "name": key.name, "uid": uid},
        "type": "Warning",
        "reason": "CrashLoopBackOff",
        "action": "Report",
        "note": f"Pod llama-0, container model: ended with exit code 1: {KILLED}.",
        "eventTime": moment,
        "reportingController": "tests",
        "reportingInstance": "tests",
    }
    await client.create(EVENT, event)
    # A StatefulSet gives the new pod the name of the one that is gone.
    await pod(client, kubelet, key, "llama-0", "", model=running())
    kubelet.write("llama-0", "model", "loading")
    found = await run("logs", "md/llama", "-n", key.namespace)
    assert found.out.splitlines() == [
        f"[llama-0 model] ended with exit code 1: {KILLED}.",
        "[llama-0] loading",
    ], found.err


async def test_following_prints_pods_that_come_and_runs_that_begin(
    client: Client, kubelet: Kubelet, key: ObjectKey, kubeconfig: Path, eventually: Eventually
) -> None:
    await pod(client, kubelet, key, "llama-0", "", model=running())
    kubelet.write("llama-0", "model", "first")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway", "logs", "md/llama", "-f", "-n", key.namespace),
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None

    async def next_line() -> str:
        async with asyncio.timeout(PATIENCE):
            assert process.stdout is not None
            return (await process.stdout.readline()).decode().rstrip()

    try:
        assert await next_line() == "[llama-0] first"
        kubelet.write("llama-0", "model", "second")
        assert await next_line() == "[llama-0] second"
        await pod(client, kubelet, key, "llama-1", "", model=running())
        kubelet.write("llama-1", "model", "the new pod")
        assert await next_line() == "[llama-1] the new pod"
        kubelet.end("llama-0", "model")
        kubelet.write("llama-0", "model", "the next run")
        await state(client, key, "llama-0", model=(running(), ended(1, "Error")))
        assert await next_line() == "[llama-0] the next run"
    finally:
        process.terminate()
        await process.wait()
    await eventually(lambda: kubelet.open == 0)  # the API server's requests end with the reader


class Followed:
    """``airunway logs -f`` as it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self, *, error: bool = False) -> str:
        stream = self.process.stderr if error else self.process.stdout
        assert stream is not None
        async with asyncio.timeout(PATIENCE):
            return (await stream.readline()).decode().rstrip()


@asynccontextmanager
async def followed(key: ObjectKey, kubeconfig: Path, *options: str) -> AsyncIterator[Followed]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway", "logs", f"md/{key.name}", "-f", "-n", key.namespace, *options),
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Followed(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_following_prints_pods_that_the_status_names_later(
    client: Client, kubelet: Kubelet, key: ObjectKey, kubeconfig: Path
) -> None:
    async with followed(key, kubeconfig) as logs:
        await pod(client, kubelet, key, "llama-0", "", model=running())
        kubelet.write("llama-0", "model", "first")
        assert await logs.line() == "[llama-0] first"
        for name, labels, status in (
            ("preset-0", {"kaito.sh/workspace": "llama"}, {"selector": "kaito.sh/workspace=llama"}),
            ("fetch", {"airunway.ai/artifact": "weights"}, {"modelCache": {"artifactName": "weights"}}),
        ):
            await pod(client, kubelet, key, name, "", labels=labels, model=running())
            kubelet.write(name, "model", f"out of {name}")
            await write_status(client, key, **status)
            assert await logs.line() == f"[{name}] out of {name}"


async def test_a_role_that_no_pod_has_is_named_once(
    client: Client, kubelet: Kubelet, key: ObjectKey, kubeconfig: Path
) -> None:
    await pod(client, kubelet, key, "llama-0", "decode", model=running())
    kubelet.write("llama-0", "model", "decodes")
    async with followed(key, kubeconfig, "--role", "prefil") as logs:
        assert await logs.line(error=True) == (
            "no pod of md/llama has the role 'prefil' (roles: decode); waiting for one"
        )
        await pod(client, kubelet, key, "llama-1", "prefil", model=running())
        kubelet.write("llama-1", "model", "fills")
        assert await logs.line() == "[prefil/llama-1] fills"
        logs.process.kill()
        _, err = await logs.process.communicate()
        assert b"has the role" not in err


async def test_following_ends_quietly_with_its_reader(
    client: Client, kubelet: Kubelet, key: ObjectKey, kubeconfig: Path
) -> None:
    await pod(client, kubelet, key, "llama-0", "", model=running())
    kubelet.write("llama-0", "model", *(f"step {number}" for number in range(100)))
    command = [sys.executable, "-m", "airunway", "logs", "md/llama", "-f", "-n", key.namespace]
    piped = f"{shlex.join([*command, '--kubeconfig', str(kubeconfig)])} | head -n 1"
    process = await asyncio.create_subprocess_shell(
        piped, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    reading = asyncio.create_task(process.communicate())
    async with asyncio.timeout(PATIENCE):
        while not reading.done():
            kubelet.write("llama-0", "model", "perhaps to a reader that is gone")
            await asyncio.wait([reading], timeout=0.2)
        out, err = await reading
    assert out.decode().startswith("[llama-0] step")
    assert err == b""


async def test_following_names_the_right_that_is_missing(
    client: Client, kubelet: Kubelet, key: ObjectKey, kubeconfig: Path, run: Run, grant: Grant
) -> None:
    await pod(client, kubelet, key, "llama-0", "", model=running())
    kubelet.write("llama-0", "model", "first")
    pods = [("", "pods", "get list"), ("", "pods/log", "get")]
    less = await grant(rules=pods)
    refused = await run("logs", "md/llama", "-f", "-n", key.namespace, kubeconfig=less)
    assert (refused.code, refused.err.count("\n")) == (1, 1), refused
    assert f"no right to watch pods in namespace {key.namespace}" in refused.err
    # Without a watch of the deployment its pods are followed all the same.
    reader = await grant(rules=[("", "pods", "get list watch"), *pods], deployments="get")
    async with followed(key, reader) as logs:
        assert await logs.line() == "[llama-0] first"
        assert "not followed: you have no right to list modeldeployments.airunway.ai" in await logs.line(error=True)


async def test_a_user_without_the_right_is_told_its_name(
    client: Client, kubelet: Kubelet, key: ObjectKey, cluster: Cluster, run: Run
) -> None:
    nobody = cluster.kubeconfig_for("nobody-in-particular")
    for command in ("logs", "status"):
        refused = await run(command, "md/llama", "-n", key.namespace, kubeconfig=nobody)
        assert refused.code == 1
        assert refused.err.count("\n") == 1
        assert f"no right to get modeldeployments.airunway.ai in namespace {key.namespace}" in refused.err
    near = await run("status", "md/lama", "-n", key.namespace)
    assert (near.code, "did you mean md/llama?" in near.err) == (1, True)
    strange = await run("logs", "md/-rf", "-n", key.namespace)
    assert (strange.code, "not a name" in strange.err) == (2, True)
