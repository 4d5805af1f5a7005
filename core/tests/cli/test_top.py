"""The screen of ``airunway top``, and which pods and ports it asks: of usual objects and of any."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any, cast

import pytest
from core.tests.any_json import anything, changed
from core.tests.view.test_views import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.cli.top import top_lines
from airunway.kube import Client, Kind
from airunway.resource import ObjectKey, Resource
from airunway.sdk.picker import COMPONENT
from airunway.snapshots.loads import PodMetrics, _places, engine_of, ready_pods
from airunway.snapshots.serving import endpoint_of
from airunway.view import Unseen
from airunway.view.engine_metrics import LoadRow, PodLoad, SampleReader, load_row


def pod(*ports: tuple[str, int], **labels: str) -> Resource:
    containers = [{"ports": [{"name": name, "containerPort": port} for name, port in ports]}]
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": "a", "labels": labels}, "spec": {"containers": containers}, "status": status}


def deployment(**endpoint: Any) -> Resource:
    metadata = {"name": "llama", "namespace": "ml"}
    return {"metadata": metadata, "status": {"endpoint": endpoint, "engine": {"type": "vllm"}}}


def row(name: str = "llama", *loads: PodLoad) -> LoadRow:
    return load_row(namespace="ml", name=name, engine="vllm", loads=loads)


def text_of(*rows: LoadRow, wide: bool = False) -> list[str]:
    return [line.text for line in top_lines(list(rows), wide=wide)]


def test_ports_for_metrics_come_first_then_the_one_that_answers() -> None:
    found = pod(("http", 8000), ("system", 9090), ("grpc", 9000))
    assert [port for port, _ in _places(deployment(targetPort=8001), found, "vllm")] == [9090, 8001, 8000, 9000]
    assert [path for _, path in _places(deployment(), pod(("http", 8000)), "trtllm")] == [
        "/prometheus/metrics",
        "/metrics",
    ]


def test_only_pods_that_serve_are_asked() -> None:
    picker = pod(**{"airunway.ai/component": COMPONENT})
    download = pod(**{"airunway.ai/artifact": "weights"})
    starting = {**pod(), "status": {}}
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ready_pods([picker, download, starting, leaving, pod()]) == [pod()]


class RayClient:
    """A cluster of Ray as KubeRay makes it: the engine's numbers are on the port ``metrics`` of the worker."""

    def __init__(self, worker: list[str]) -> None:
        self.asked: list[tuple[str, int]] = []
        self._worker = worker
        head = pod(("serve", 8000), ("metrics", 8080), **{"ray.io/node-type": "head"})
        worker_pod = pod(("metrics", 8080), **{"ray.io/node-type": "worker"})
        head["metadata"] |= {"name": "head", "namespace": "ml", "uid": "h"}
        worker_pod["metadata"] |= {"name": "worker", "namespace": "ml", "uid": "w"}
        for each in (head, worker_pod):
            each["metadata"]["labels"]["airunway.ai/model-deployment"] = "llama"
        self._pods = [head, worker_pod]

    async def list_all(self, kind: Kind, **_: Any) -> list[Resource]:
        return self._pods if kind.kind == "Pod" else [deployment(targetPort=8000)]

    async def proxied(self, _: Kind, key: ObjectKey, *, port: int, **__: Any) -> AsyncIterator[str]:
        self.asked.append((key.name, port))
        yield "ray_node_cpu_count 8"
        for text in self._worker if key.name == "worker" else ():
            yield text


@pytest.mark.parametrize("numbers", [['ray_vllm_num_requests_running{WorkerId="a"} 3'], []])
async def test_of_a_ray_cluster_the_worker_that_serves_counts_on_rays_own_port(numbers: list[str]) -> None:
    client = RayClient(numbers)
    (found,) = await PodMetrics(cast("Client", client), ObjectKey("ml", "")).rows()
    assert (found.pods, found.reporting) == (1, len(numbers))
    assert ("worker", 8080) in client.asked
    if numbers:
        assert ("worker", 8000) not in client.asked
        assert found.running == 3
        assert found.unseen == ()
    else:
        assert [each.why for each in found.unseen] == [
            each.why for each in found.unseen if "log_engine_metrics" in each.why
        ]
        assert found.unseen


def test_a_question_mark_has_its_reason_and_reasons_are_bounded() -> None:
    rows = [row(f"md-{number}", PodLoad(pod="a", unseen=Unseen(what="m", why=f"why {number}"))) for number in range(50)]
    lines = text_of(*rows, wide=True)
    assert lines[1].split()[:4] == ["ml", "md-0", "vllm", "0/1"]
    assert lines[1].split()[4:] == ["?"] * 6
    assert lines[-1] == "  42 more reasons: -o json has all"
    assert text_of() == ["There are no deployments."]
    same = [row(f"md-{number}") for number in range(50)]
    assert text_of(*same)[-1].startswith("  md-0 and 49 more: metrics: the deployment has no ready pod")


def test_hostile_texts_become_plain_bounded_lines() -> None:
    unseen = Unseen(what=HOSTILE, why=HOSTILE, right=HOSTILE)
    hostile = load_row(namespace=HOSTILE, name=HOSTILE, engine=HOSTILE, loads=[PodLoad(pod=HOSTILE, unseen=unseen)])
    assert len(hostile.name) <= 253
    reader = SampleReader()
    for part in (HOSTILE, f"vllm:{HOSTILE}", f'vllm:num_requests_running{{x="{HOSTILE}"}} 3'):
        reader.line(part)
    sampled = row("llama", PodLoad(pod="a", samples=(reader.sample(0.0),)))
    for line in text_of(hostile, sampled, wide=True)[:3]:
        assert line.isprintable()


@settings(max_examples=150, deadline=None)
@given(st.randoms())
def test_any_json_is_read(chance: Random) -> None:
    base = deployment(service="llama", port=80, targetPort=8000, pool={"port": 8000})
    spoiled = {**base, "status": changed(chance, base["status"], anything)}
    spec = changed(chance, pod(("http", 8000))["spec"], anything)
    status = changed(chance, pod()["status"], anything)
    found = {**pod(("http", 8000)), "spec": spec, "status": status}
    assert isinstance(engine_of(spoiled), str)
    assert len(ready_pods([found])) <= 1
    assert all(0 < port < 65536 for port, _ in _places(spoiled, found, "vllm"))
    endpoint = endpoint_of(spoiled)
    assert endpoint is None or 0 < endpoint.port < 65536
