"""How long do the pure parts of runtime configs take: resolve + merge + hash, rendering a path, matching labels?

Pure Python, no cluster. Configs and deployments vary, so that nothing is measured twice from a cache. The bound of the
same run is reading and hashing the two stored configs alone (JSON to dicts, sha256). On a machine that others use too,
read the CPU times: the p99 by the clock is then that of the neighbours. Prints JSON.

    uv run python -m benchmarks.configs
    uv run python -m benchmarks.configs --deployments 200    # an edit of one config, on a real API server

The second form measures N deployments that serve under one config when that config is edited: status writes for each
deployment by core and provider, upstream writes, writes on deployments of another config, and the time relative to the
same number of status writes sent by a plain client to the same API server.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
from benchmarks.common import concurrently, heading, say

from airunway import __version__
from airunway.api import names
from airunway.configs import EffectiveConfig, path_of, propagated, resolve
from airunway.kinds import MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import NAMESPACE, Client, load_config
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig, digest
from airunway_testing.audit import AuditReader
from airunway_testing.controlplane import ControlPlane
from airunway_testing.expectations import running_at
from airunway_testing.killing import own_process
from airunway_testing.operator import install_definitions, running_simulator, until
from airunway_testing.simulators import load_simulator

RESOLVE_BUDGET_MS = 0.3
"""p99 of resolve + merge + hash (issue 21)."""
RENDER_BUDGET_MS = 0.1
"""p99 of rendering a path (issue 21)."""

TEMPLATE = "/ml/{.metadata.namespace}/{.metadata.labels['project']}/{.metadata.name}"


def configs(number: int) -> tuple[Resource, Resource]:
    """A RuntimeConfig that inherits, and the ClusterRuntimeConfig of its name."""
    cluster = {
        "metadata": {"name": "default"},
        "spec": {
            "defaultStorageClassName": "fast-nvme",
            "routing": {
                "gatewayRef": {"name": "inference-gateway", "namespace": "gateways"},
                "annotations": {f"example.com/annotation-{n}": str(number) for n in range(5)},
            },
            "env": [{"name": f"CLUSTER_{n}", "value": f"value {number}"} for n in range(10)],
            "labelPropagation": {"enabled": True, "match": [f"org.example/*-{n}" for n in range(10)]},
        },
    }
    namespaced = {
        "metadata": {"name": "default", "namespace": f"team-{number}"},
        "spec": {
            "inherit": "Cluster",
            "routing": {"enabled": True, "pathTemplate": TEMPLATE, "requestTimeout": "90s"},
            "env": [{"name": f"{('CLUSTER', 'OWN')[n % 2]}_{n}", "value": f"own {number}"} for n in range(10)],
            "imagePullSecrets": [{"name": "registry"}],
            "secrets": {"huggingFaceToken": "hf-token"},
            "statusPolicy": {"capacityBlockedAfter": "30m"},
        },
    }
    return namespaced, cluster


def deployment(number: int) -> Resource:
    return {
        "metadata": {
            "name": f"llama-{number}",
            "namespace": f"team-{number % 50}",
            "uid": f"uid-{number}",
            "labels": {"project": f"project-{number % 9}", **{f"org.example/key-{n}": "x" for n in range(10)}},
        },
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
    }


def effective(number: int) -> EffectiveConfig:
    namespaced, cluster = configs(number)
    found = resolve("default", namespaced=namespaced, cluster=cluster).config
    if found is None:
        raise RuntimeError("the benchmark's own config was not found")
    return found


def timed(prepare: Callable[[int], object], work: Callable[[object], object], samples: int) -> tuple[list[float], ...]:
    """Milliseconds of `work` on what `prepare` returns, by the clock and of CPU, as the garbage collector runs."""
    for number in range(50):
        work(prepare(number))
    gc.collect()
    taken, cpu = [], []
    for number in range(samples):
        prepared = prepare(number + 1000)
        started, busy = time.perf_counter(), time.thread_time()
        work(prepared)
        cpu.append((time.thread_time() - busy) * 1000)
        taken.append((time.perf_counter() - started) * 1000)
    return taken, cpu


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {name: round(value, 4) for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))}


def bound(pair: object) -> object:
    return digest(orjson.loads(orjson.dumps(pair)))


def resolved(pair: object) -> object:
    namespaced, cluster = pair if isinstance(pair, tuple) else (None, None)
    return resolve("default", namespaced=namespaced, cluster=cluster)


# ------------------------------------------------------------------------------------------------- on an API server

NAMESPACE_OF_LOAD = "load"
EDIT_BUDGET = 2.5
"""Seconds of an edit relative to those of the same writes by a plain client (issue 21)."""


async def edited(count: int, plane: ControlPlane) -> dict[str, Any]:
    """Edit the config of `count` deployments that serve; returns writes and seconds."""
    if plane.audit_log is None:
        raise RuntimeError("the control plane has no audit log")
    quiet = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
    toy = load("toy")
    users, others = [f"user-{n}" for n in range(count)], [f"other-{n}" for n in range(count)]
    async with (
        Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client,
        AsyncExitStack() as on,
    ):
        await install_definitions(client, load_simulator("toy").custom_resource_definitions())
        await client.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_OF_LOAD}}
        )
        for config in ("shared", "other"):
            await _configure(client, config, "one")
        for part, command in (("core", ("controller",)), ("provider", ("provider", "run", "toy"))):
            folder = Path(on.enter_context(tempfile.TemporaryDirectory(prefix=f"configs-{part}-")))
            await on.enter_async_context(own_process(plane.kubeconfig, folder, *command, *quiet))
        await on.enter_async_context(running_simulator(plane.kubeconfig, toy, level="api"))

        async def make(name: str) -> None:
            await client.create(MODEL_DEPLOYMENT, _toy(name, "shared" if name.startswith("user") else "other"))

        say(f"{2 * count} deployments")
        await concurrently([*users, *others], make)
        for name in (*users, *others):
            await until(client, ObjectKey(NAMESPACE_OF_LOAD, name), running_at(1), within=600)
        await asyncio.sleep(10)
        audit = AuditReader(plane.audit_log)
        say("the edit")
        started = time.perf_counter()
        stored = await _configure(client, "shared", "two")
        wanted = resolve("shared", namespaced=stored, cluster=None).config
        if wanted is None:
            raise RuntimeError("the edited config was not found")

        def done(deployment: Resource) -> bool:
            hash_, status = wanted.hash, deployment["status"]
            waits = any("takes effect with the next change" in text for text in status.get("warnings") or ())
            in_effect = dig(status, "provider", "runtimeConfigHash") == hash_
            return dig(status, "effectiveRuntimeConfig", "hash") == hash_ and (waits or in_effect)

        while not all(done(each) for each in await _of(client, users)):
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - started
        await asyncio.sleep(6)
        requests = [r for r in audit.read() if r.writes and r.agent and r.agent != "benchmark"]
        statuses = Counter((r.agent, r.name) for r in requests if r.resource == "modeldeployments/status")
        say("the bound")
        again = time.perf_counter()
        for manager in ("bound-core", "bound-provider"):
            await concurrently(users, lambda name, manager=manager: _status_write(client, name, manager))  # type: ignore[misc]
        bound_seconds = time.perf_counter() - again
        own = ("modeldeployments/status", "events", "leases", "inferenceproviderconfigs", "runtimeconfigs/status")
        return {
            "deployments": count,
            "status_writes_each": {
                agent: max((n for (who, name), n in statuses.items() if who == agent and name in users), default=0)
                for agent in sorted({who for who, _ in statuses})
            },
            "status_writes_of_others": sum(n for (_, name), n in statuses.items() if name in others),
            "upstream_writes": sum(not r.resource.startswith(own) for r in requests),
            "writes_of_the_config_status": sum(r.resource == "runtimeconfigs/status" for r in requests),
            "seconds": round(seconds, 2),
            "bound_seconds": round(bound_seconds, 2),
            "ratio_to_bound": round(seconds / bound_seconds, 2),
            "budget_ratio": EDIT_BUDGET,
        }


def _toy(name: str, config: str) -> Resource:
    spec = {
        "model": {"id": "org/model"},
        "engine": {"type": "vllm"},
        "provider": {"name": "toy"},
        "resources": {"gpu": {"count": 1}},
        "runtimeConfigName": config,
    }
    metadata = {"name": name, "namespace": NAMESPACE_OF_LOAD}
    return {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}


async def _configure(client: Client, name: str, value: str) -> Resource:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": RUNTIME_CONFIG.kind,
        "metadata": {"name": name, "namespace": NAMESPACE_OF_LOAD},
        "spec": {"env": [{"name": "STAGE", "value": value}]},
    }
    return await client.apply(RUNTIME_CONFIG, body, manager="platform", force=True)


async def _of(client: Client, wanted: list[str]) -> list[Resource]:
    found = await client.list_all(MODEL_DEPLOYMENT, namespace=NAMESPACE_OF_LOAD)
    return [each for each in found if each["metadata"]["name"] in wanted]


async def _status_write(client: Client, name: str, manager: str) -> None:
    condition = {"type": manager, "status": "True", "reason": "Bound", "message": "", "observedGeneration": 1,
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    body = {key: value for key, value in _toy(name, "shared").items() if key != "spec"}
    wanted = {**body, "status": {"conditions": [condition]}}
    await client.apply(MODEL_DEPLOYMENT, wanted, manager=manager, force=True, subresource="status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5000, help="calls that are timed")
    parser.add_argument("--deployments", type=int, default=0, help="edit the config of so many on an API server")
    arguments = parser.parse_args()
    samples = arguments.samples
    if arguments.deployments:
        with ControlPlane("api", audit="Metadata", report=say) as plane:
            told = asyncio.run(edited(arguments.deployments, plane))
        print(json.dumps({**heading("configs"), "edit": told}, indent=2))
        return
    config = effective(0)

    def rendered(obj: object) -> object:
        return path_of(obj if isinstance(obj, dict) else {}, config)

    def labelled(obj: object) -> object:
        return propagated(obj["metadata"]["labels"] if isinstance(obj, dict) else {}, config)

    times = {
        "bound": timed(configs, bound, samples),
        "resolve": timed(configs, resolved, samples),
        "render": timed(deployment, rendered, samples),
        "propagate": timed(deployment, labelled, samples),
    }
    spreads = {name: {"clock_ms": spread(clock), "cpu_ms": spread(cpu)} for name, (clock, cpu) in times.items()}
    result = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__},
        "samples": samples,
        **spreads,
        "ratio_resolve_to_bound": round(spreads["resolve"]["cpu_ms"]["p50"] / spreads["bound"]["cpu_ms"]["p50"], 1),
        "budget_ms": {"resolve": RESOLVE_BUDGET_MS, "render": RENDER_BUDGET_MS},
        "within_budget": spreads["resolve"]["cpu_ms"]["p99"] <= RESOLVE_BUDGET_MS
        and spreads["render"]["cpu_ms"]["p99"] <= RENDER_BUDGET_MS,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
