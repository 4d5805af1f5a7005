"""How long does a user wait for the admission webhook at a steady rate of requests?

The webhook is the process `airunway controller`, asked over TLS as an API server asks it: reviews leave on a fixed
schedule, whether earlier ones were answered or not, and each is timed from the moment at which it was due (so that a
stall counts for every request it holds up). Three mixes: one user (whose rights are remembered for some seconds), a new
user for every review (each asks the API server), and refusals. Prints JSON.

    uv run python benchmarks/webhook.py --rate 200 --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.reviews import WebhookClient, review_of

from airunway import __version__
from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, Client, load_config
from airunway.resource import ObjectKey, Resource
from airunway.webhook import webhook_settings
from airunway_testing.controlplane import KUBERNETES_VERSION, ControlPlane
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions

PROVIDERS = 5
POLICY = """
rules:
  - images: ["ghcr.io/*", "docker.io/*"]
  - namespaceSelector: {matchLabels: {team: load}}
    providers: ["provider-*"]
    gpuTypes: [nvidia.com/gpu]
"""


def deployment(number: int, *, provider: str) -> Resource:
    spec: Resource = {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "engine": {"type": "vllm", "contextLength": 8192, "args": {"gpu-memory-utilization": "0.9"}},
        "resources": {"gpu": {"count": 1, "type": "nvidia.com/gpu"}, "memory": "64Gi", "cpu": "8"},
        "scaling": {"replicas": 1},
        "env": [{"name": f"VARIABLE_{n}", "value": str(n)} for n in range(10)],
    }
    if provider:
        spec["provider"] = {"name": provider, "overrides": {"frontend": {"replicas": 2}}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": f"load-{number}", "namespace": "load", "uid": f"uid-{number}"},
        "spec": spec,
    }


async def register(client: Client) -> None:
    """Providers with rules, so that a deployment which names none is selected for."""
    for number in range(PROVIDERS):
        engine = {"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": False}
        rules = [{"condition": f"spec.resources.gpu.count > {n}", "priority": n * 10} for n in range(5)]
        config = {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": f"provider-{number}"},
            "spec": {
                "capabilities": {"engines": [engine]},
                "selectionRules": rules,
                "upstream": [{"group": "", "kind": "ConfigMap", "versions": ["v1"], "requiresCRD": False}],
            },
        }
        await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="benchmark")
        await client.merge_patch(
            INFERENCE_PROVIDER_CONFIG,
            ObjectKey("", f"provider-{number}"),
            {"status": {"ready": True}},
            subresource="status",
        )


async def steadily(ask: Callable[[int], Any], *, rate: float, seconds: float) -> list[float]:
    """Milliseconds of each request, from when it was due."""
    taken: list[float] = []

    async def one(number: int, due: float) -> None:
        await ask(number)
        taken.append((time.perf_counter() - due) * 1000)

    start = time.perf_counter() + 0.1
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(number, due))
    return taken


def percentiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=1000, method="inclusive")
    picked = {"p50": cuts[499], "p90": cuts[899], "p99": cuts[989], "p999": cuts[998], "max": max(values)}
    return {"samples": len(values), **{name: round(value, 2) for name, value in picked.items()}}


async def run(arguments: argparse.Namespace, plane: ControlPlane, port: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="airunway-benchmark-"))
    (folder / "policy.yaml").write_text(POLICY)
    parts = Processes(folder, keep=False)
    url = f"https://127.0.0.1:{port}"
    settings = webhook_settings(bind_address=f"127.0.0.1:{port}", url=url, namespace="default")
    assert settings is not None
    result: dict[str, Any] = {}
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        try:
            await install_definitions(client)
            await register(client)
            metadata = {"name": "load", "labels": {"team": "load"}}
            await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            command = [sys.executable, "-m", "airunway", "controller", "--kubeconfig", str(plane.kubeconfig)]
            command += ["--webhook-bind-address", settings.bind_address, "--webhook-url", url]
            command += ["--webhook-manage-configuration", "--policy", str(folder / "policy.yaml")]
            command += ["--ready-file", str(folder / "ready"), "--log-level", "warning"]

            async def created(number: int) -> None:
                obj = deployment(number, provider="provider-1")
                del obj["metadata"]["uid"]
                await client.create(MODEL_DEPLOYMENT, obj, dry_run=True)

            say("the API server without a webhook")
            await steadily(created, rate=arguments.rate, seconds=2)
            result["api_server_alone_ms"] = percentiles(
                await steadily(created, rate=arguments.rate, seconds=arguments.seconds)
            )
            parts.start("core", command, environment={**os.environ, "POD_NAMESPACE": "default"})
            while not (folder / "ready").exists():
                if exited := parts.exited():
                    raise SystemExit(f"the controller ended: {exited}, {parts.log('core').read_text()}")
                await asyncio.sleep(0.05)
            async with WebhookClient(client, settings) as webhook:

                async def same_user(number: int) -> None:
                    review = review_of(deployment(number, provider="" if number % 2 else "provider-1"))
                    assert (await webhook.ask(review))["allowed"]

                async def new_user(number: int) -> None:
                    obj = deployment(number, provider="provider-2")
                    assert (await webhook.ask(review_of(obj, user=f"user-{number}")))["allowed"]

                async def refused(number: int) -> None:
                    assert not (await webhook.ask(review_of(deployment(number, provider="nobody"))))["allowed"]

                mixes = {
                    "one_user": same_user,
                    "a_new_user_each": new_user,
                    "refused": refused,
                    "through_the_api_server": created,
                }
                for name, ask in mixes.items():
                    say(name)
                    await steadily(ask, rate=arguments.rate, seconds=2)
                    gc.collect()
                    taken = await steadily(ask, rate=arguments.rate, seconds=arguments.seconds)
                    result[f"{name}_ms"] = percentiles(taken)
            rss = Path(f"/proc/{parts.pids['core']}/status").read_text()
        finally:
            parts.close(grace=5.0)
    memory = next(line for line in rss.splitlines() if line.startswith("VmRSS"))
    return {
        "benchmark": "webhook",
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "requests_per_second": arguments.rate,
        **result,
        "rss_mib": round(int(memory.split()[1]) / 1024),
        "budget_p99_ms": 30,
    }


def say(text: str) -> None:
    print(f"{text} …", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0, help="reviews a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each mix is kept up")
    arguments = parser.parse_args()
    with ControlPlane("api", report=say) as plane, reserved_ports(1) as (port,):
        print(json.dumps(asyncio.run(run(arguments, plane, port)), indent=2))


if __name__ == "__main__":
    main()
