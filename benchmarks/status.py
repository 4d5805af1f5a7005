"""How long does a provider read the status of a RayService with many workers, and the runtime what becomes of it?

Pure Python, no cluster. `translate_status` alone, and the whole of a pass that needs no API server: with the pods,
their diagnosis and the deployment's status. Once where all is well, and once where the application has failed on every
worker with a traceback as long as Ray's are. Prints JSON.

    uv run python -m benchmarks.status --workers 64
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from benchmarks.common import heading
from tests.support.status_replay import StatusReplay

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Observed
from airunway.plugins.host import assumed_context
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.status.evidence import Evidence, pod_facts

BUDGET_MS = 5.0
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CLUSTER = "llama-abcde"
TRACEBACK = "\n".join(f'  File "/ray/serve/_private/replica_{n}.py", line {n}, in call' for n in range(80))


def deployment(workers: int) -> Resource:
    groups = {"prefill": workers // 2, "decode": workers - workers // 2}
    return {
        "metadata": {"name": "llama", "namespace": "ml", "generation": 1},
        "spec": {
            "model": {"id": "o/m"},
            "provider": {"name": "kuberay"},
            "serving": {"mode": "disaggregated"},
            "scaling": {r: {"replicas": n, "gpu": {"count": 1}, "memory": "8Gi"} for r, n in groups.items()},
        },
        "status": {},
    }


def upstream(workers: int, *, fails: bool) -> tuple[Resource, Resource]:
    """The RayService, and the RayCluster that it names."""
    said = f"Traceback:\n{TRACEBACK}\nRuntimeError: worker died" if fails else ""
    parts = {f"LLMServer:{n}": {"status": "UNHEALTHY" if fails else "HEALTHY", "message": said} for n in range(workers)}
    app = {"status": "DEPLOY_FAILED" if fails else "RUNNING", "message": said, "serveDeploymentStatuses": parts}
    ready = {"type": "Ready", "status": "False" if fails else "True", "reason": "Initializing", "message": "m"}
    side = {"rayClusterName": CLUSTER, "applicationStatuses": {"llm": app}}
    status = {"observedGeneration": 1, "conditions": [ready], f"{'pending' if fails else 'active'}ServiceStatus": side}
    service = {"kind": "RayService", "metadata": {"name": "llama", "generation": 1}, "status": status}
    head = {"type": "HeadPodReady", "status": "True"}
    counts = {"readyWorkerReplicas": workers, "state": "ready", "conditions": [head]}
    return service, {"kind": "RayCluster", "metadata": {"name": CLUSTER}, "status": counts}


def pod(number: int) -> Resource:
    group = "headgroup" if number == 0 else ("prefill-workers", "decode-workers")[number % 2]
    return {
        "metadata": {
            "name": f"{CLUSTER}-{number}",
            "namespace": "ml",
            "creationTimestamp": "2026-11-21T11:00:00Z",
            "labels": {"ray.io/group": group},
            "ownerReferences": [{"kind": "RayCluster", "name": CLUSTER, "controller": True}],
        },
        "spec": {"nodeName": "gpu"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "ray-worker", "ready": True, "restartCount": 0, "state": {"running": {}}}],
        },
    }


def timed(work: Callable[[], object], samples: int) -> dict[str, float]:
    """Milliseconds on a processor, which others' work on the machine is not in."""
    taken: list[float] = []
    for number in range(-20, samples):
        if number == 0:
            gc.collect()
            taken = []
        begun = time.thread_time()
        work()
        taken.append((time.thread_time() - begun) * 1000)
    cuts = statistics.quantiles(taken, n=100)
    return {name: round(value, 3) for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(taken)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--samples", type=int, default=1000)
    arguments = parser.parse_args()
    host, wanted = load("kuberay"), deployment(arguments.workers)
    manifest, typed, context = host.manifest, parse_deployment(wanted), assumed_context(host, engine="vllm", now=NOW)
    result: dict[str, object] = {**heading("status"), "workers": arguments.workers, "budget_ms": BUDGET_MS}
    for case, fails in (("running", False), ("failing", True)):
        service, cluster = upstream(arguments.workers, fails=fails)
        observed = Observed(primary=service, objects=(service, cluster))
        facts = tuple(
            pod_facts(pod(n), role_label=manifest.role_label, serving_roles=manifest.serving_roles)
            for n in range(arguments.workers + 1)
        )
        replay, evidence = StatusReplay(host=host, deployment={**wanted}), Evidence(pods=facts)
        read = timed(partial(host.translate_status, typed, observed, context), arguments.samples)
        whole = timed(partial(replay.reconcile, observed, evidence, now=NOW), arguments.samples)
        result[case] = {
            "phase": replay.deployment["status"]["phase"],
            "translate_status_ms": read,
            "with_pods_and_diagnosis_ms": whole,
            "within_budget": read["p99"] <= BUDGET_MS,
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
