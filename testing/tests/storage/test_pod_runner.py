"""The played kubelet on a real cluster: pods of a Job run as processes, and end in every way that real ones do."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from airunway.kube import JOB, POD, Client, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway_testing.eventually import Eventually
from airunway_testing.storage.pod_runner import PlayedPod, PodRunner, running_pod_runner
from airunway_testing.storage.provisioner import Provisioner

pytestmark = pytest.mark.cluster

MakeClass = Callable[..., Awaitable[str]]
Claim = Callable[..., Awaitable[ObjectKey]]
SECRET = Kind("", "v1", "Secret", "secrets")

PROGRAM = '''
"""A program that does what its last word says, with the environment of a downloader."""
import http.server, json, os, pathlib, sys, time

folder, what = pathlib.Path(sys.argv[-2].removeprefix("--into=")), sys.argv[-1]
(folder / "environment").write_text(json.dumps(dict(os.environ)))
(pathlib.Path(os.environ["TMPDIR"]) / "scratch").write_text("")
if what == "wait":
    class Progress(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"downloadedBytes": 7}')
    port = int(os.environ["AIRUNWAY_PROGRESS_PORT"])
    http.server.HTTPServer(("127.0.0.1", port), Progress).serve_forever()
pathlib.Path(os.environ["AIRUNWAY_TERMINATION_LOG"]).write_text(json.dumps({"said": what}))
sys.exit(int(what))
'''


@pytest.fixture
async def runner(kubeconfig: Path, provisioner: Provisioner, tmp_path: Path) -> AsyncIterator[PodRunner]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    programs = {"airunway-download": (sys.executable, str(script))}
    folder = tmp_path / "runner"
    async with running_pod_runner(kubeconfig, provisioner.volumes, folder, programs=programs) as running:
        yield running


@pytest.fixture
async def weights(make_class: MakeClass, claim: Claim) -> str:
    return (await claim("weights", await make_class(waits=True))).name


async def make_job(
    client: Client, namespace: str, what: str, claim: str, *, image: str = "example.test/downloader:1", **pod: object
) -> str:
    """A Job as the model cache makes one; gives its name."""
    container = {
        "name": "download",
        "image": image,
        "command": ["airunway-download", "download", "--into=/cache", what],
        "ports": [{"name": "progress", "containerPort": 8080}],
        "env": [
            {"name": "CACHE", "value": "/cache/model"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    template = {
        "metadata": {"labels": {"airunway.ai/artifact": "llama"}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [
                {"name": "cache", "persistentVolumeClaim": {"claimName": claim}},
                {"name": "tmp", "emptyDir": {}},
            ],
            **pod,
        },
    }
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    spec = {
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }
    metadata = {"name": "llama-download", "namespace": namespace}
    await client.create(JOB, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    return "llama-download"


async def make_secret(client: Client, namespace: str) -> None:
    data = {"token": base64.b64encode(b"hf_secret").decode()}
    metadata = {"name": "hub", "namespace": namespace}
    await client.create(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


async def job_ended(client: Client, eventually: Eventually, namespace: str) -> tuple[str, str]:
    """How the Job ended, and why."""

    async def look() -> tuple[str, str] | None:
        job = await client.get(JOB, ObjectKey(namespace, "llama-download"))
        for name in ("Complete", "Failed"):
            condition = condition_of(job, name)
            if condition is not None and condition["status"] == "True":
                return name, str(condition.get("reason", ""))
        return None

    found = await eventually(look)
    assert isinstance(found, tuple)
    return found


async def status_with(client: Client, eventually: Eventually, played: PlayedPod, state: str) -> Resource:
    """The pod, once its container is in a state."""

    async def look() -> Resource | None:
        pod = await client.get(POD, played.key)
        return pod if state in dig(pod, "status", "containerStatuses", default=[{"state": {}}])[0]["state"] else None

    found = await eventually(look)
    assert isinstance(found, dict)
    return found


def alive(played: PlayedPod) -> bool:
    return played.process is not None and Path(f"/proc/{played.process.pid}").exists() and played.running


async def test_a_pod_runs_with_its_environment_and_its_claim_and_says_how_it_ended(
    client: Client, namespace: str, provisioner: Provisioner, runner: PodRunner, weights: str, eventually: Eventually
) -> None:
    await make_secret(client, namespace)
    played = await runner.started(await make_job(client, namespace, "0", weights))
    assert await job_ended(client, eventually, namespace) == ("Complete", "CompletionsReached")
    pod = await client.get(POD, played.key)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["status"]["phase"], ended["exitCode"], ended["message"]) == ("Succeeded", 0, '{"said": "0"}')
    (volume,) = (provisioner.volumes.files(name) for name in provisioner.volumes)
    environment = json.loads((volume / "environment").read_text())
    assert environment["CACHE"] == f"{volume}/model"
    assert environment["HF_TOKEN"] == "hf_secret"
    assert environment["WHERE"] == namespace
    assert "HTTP_PROXY" not in environment
    assert (played.folder / "tmp" / "scratch").exists()


async def test_init_containers_run_one_after_the_other_and_none_after_one_that_fails(
    client: Client, namespace: str, runner: PodRunner, eventually: Eventually
) -> None:
    def container(name: str, what: str) -> Resource:
        mounts = [{"name": "tmp", "mountPath": "/tmp"}]
        args = ["--into=/tmp", what]
        policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        return {"name": name, "image": "example.test/a:1", "args": args, "volumeMounts": mounts, **policy}

    containers = [container("first", "0"), container("second", "no-number"), container("third", "0")]
    pod = {
        "restartPolicy": "Never",
        "initContainers": containers[:2],
        "containers": containers[2:],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": {"airunway.ai/artifact": "llama"}}, "spec": pod}
    metadata = {"name": "llama-download", "namespace": namespace}
    spec = {"backoffLimit": 0, "template": template}
    await client.create(JOB, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    played = await runner.started("llama-download")
    assert await job_ended(client, eventually, namespace) == ("Failed", "BackoffLimitExceeded")
    status = (await client.get(POD, played.key))["status"]
    first, second = (each["state"]["terminated"] for each in status["initContainerStatuses"])
    assert (first["exitCode"], first["message"]) == (0, '{"said": "0"}')
    assert second["exitCode"] == 1
    assert second["message"] == '{"said": "no-number"}', "a message of its own goes before the log"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_progress_is_served_on_the_pods_own_address_while_it_runs(
    client: Client, namespace: str, runner: PodRunner, weights: str, eventually: Eventually
) -> None:
    await make_secret(client, namespace)
    played = await runner.started(await make_job(client, namespace, "wait", weights))
    pod = await status_with(client, eventually, played, "running")
    url = f"http://{pod['status']['podIP']}:8080/progress"
    async with aiohttp.ClientSession() as session:

        async def answer() -> str | None:
            try:
                async with session.get(url) as response:
                    return await response.text()
            except aiohttp.ClientError:
                return None  # the program does not listen yet

        assert await eventually(answer) == '{"downloadedBytes": 7}'
        runner.progress = b"junk"
        assert await answer() == "junk"
        runner.progress = "refused"
        assert await answer() is None


@pytest.mark.parametrize(("code", "reason"), [("3", "PodFailurePolicy"), ("1", "BackoffLimitExceeded")])
async def test_a_permanent_and_a_transient_error(
    client: Client, namespace: str, runner: PodRunner, weights: str, eventually: Eventually, code: str, reason: str
) -> None:
    await make_secret(client, namespace)
    played = await runner.started(await make_job(client, namespace, code, weights))
    assert await job_ended(client, eventually, namespace) == ("Failed", reason)
    assert (await client.get(POD, played.key))["status"]["phase"] == "Failed"


@pytest.mark.slow  # the Job controller waits ten seconds before it replaces a pod
async def test_a_killed_pod_counts_and_an_evicted_one_is_replaced(
    client: Client, namespace: str, runner: PodRunner, weights: str, eventually: Eventually
) -> None:
    await make_secret(client, namespace)
    job = await make_job(client, namespace, "wait", weights)
    first = await runner.started(job)
    await runner.evict(first.key)
    pod = await status_with(client, eventually, first, "terminated")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Evicted")

    async def second() -> PlayedPod | None:
        played = await runner.started(job)
        return played if played.uid != first.uid else None

    replaced = await eventually(second)
    assert isinstance(replaced, PlayedPod)
    await runner.kill(replaced.key, reason="OOMKilled")
    assert await job_ended(client, eventually, namespace) == ("Failed", "BackoffLimitExceeded")
    ended = (await status_with(client, eventually, replaced, "terminated"))["status"]["containerStatuses"][0]["state"]
    assert (ended["terminated"]["exitCode"], ended["terminated"]["reason"]) == (137, "OOMKilled")


async def test_a_lost_nodes_pod_goes_on_until_the_node_is_back(
    client: Client, namespace: str, runner: PodRunner, weights: str, eventually: Eventually
) -> None:
    await make_secret(client, namespace)
    played = await runner.started(await make_job(client, namespace, "wait", weights))
    await status_with(client, eventually, played, "running")
    runner.lose_node(played.node)
    await client.delete(JOB, ObjectKey(namespace, "llama-download"))

    async def deleting() -> bool:
        pod = await client.get(POD, played.key)
        return bool(dig(pod, "metadata", "deletionTimestamp")) and dig(pod, "status", "phase") == "Running"

    await eventually(deleting)
    assert alive(played)
    runner.find_node(played.node)

    async def gone() -> bool:
        return await client.find(POD, played.key) is None and not alive(played)

    await eventually(gone)


async def test_an_image_that_cannot_be_pulled_and_a_secret_that_is_missing(
    client: Client, namespace: str, runner: PodRunner, weights: str, eventually: Eventually
) -> None:
    runner.unpullable.add("example.test/downloader:1")
    await make_job(client, namespace, "0", weights)

    async def waiting() -> str:
        pods = await client.list_all(POD, namespace=namespace)
        statuses = [each for pod in pods for each in dig(pod, "status", "containerStatuses", default=[])]
        return (
            statuses[0]["state"]["waiting"]["reason"] + statuses[0]["state"]["waiting"]["message"] if statuses else ""
        )

    def shows(text: str) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return text in await waiting()

        return look

    await eventually(shows("ImagePullBackOff"))
    runner.unpullable.clear()
    await eventually(shows('secret "hub" not found'))
    assert all(each.process is None for each in runner.pods.values())
    await make_secret(client, namespace)
    assert await job_ended(client, eventually, namespace) == ("Complete", "CompletionsReached")


async def test_processes_end_with_the_runner(
    kubeconfig: Path, client: Client, namespace: str, provisioner: Provisioner, weights: str, tmp_path: Path
) -> None:
    await make_secret(client, namespace)
    programs = {"airunway-download": (sys.executable, "-c", "import time; time.sleep(600)")}
    async with running_pod_runner(kubeconfig, provisioner.volumes, tmp_path / "r", programs=programs) as running:
        played = await running.started(await make_job(client, namespace, "wait", weights))
        assert played.process is not None
        os.kill(played.process.pid, 0)
    assert played.process.returncode == -9
    assert key_of(await client.get(POD, played.key)) == played.key
