"""How long do the pure parts of runtime configs take: resolve + merge + hash, rendering a path, matching labels?

Pure Python, no cluster. Configs and deployments vary, so that nothing is measured twice from a cache. The bound of the
same run is reading and hashing the two stored configs alone (JSON to dicts, sha256). On a machine that others use too,
read the CPU times: the p99 by the clock is then that of the neighbours. Prints JSON.

    uv run python -m benchmarks.configs
    uv run python -m benchmarks.configs --deployments 1000    # on a real API server

The second form measures N deployments that serve under one config. While they are created: the writes of the config's
``usedBy``. When the config is edited: status writes for each deployment by core and provider, upstream writes, and the
time relative to the same number of status writes sent by a plain client to the same API server. When the config of a
single deployment is edited: the passes of core and provider, of which the N others shall cause none. When a field of
``status.gateway`` is written by another manager: the passes of core and provider. At last `--wave` deployments are
rolled out with ``rollout: Immediately``, 4 at a time: writes for each.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson
from benchmarks.common import bound_write, concurrently, cpu_seconds, heading, passes_of, say
from tests.support.audit import AuditReader, Request
from tests.support.operator_process import operator_process

from airunway import __version__
from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, path_of, propagated, resolve
from airunway.kinds import MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import NAMESPACE, Client, load_config
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig, digest
from airunway.revisions.revision import is_in_effect, pending_parts
from airunway_testing.controlplane import ControlPlane
from airunway_testing.expectations import running_at
from airunway_testing.operator import install_definitions, running_simulator
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
STATUS_WRITES_BUDGET = 2
"""Status writes of core and provider together for each deployment of an edited config (issue 21)."""
USED_BY_EVERY = 5.0
"""Seconds between two writes of ``usedBy`` (issue 21)."""
WAVE_LIMIT = 4
"""Deployments of a wave that change at a time."""
WAVE_WRITES_BUDGET = 4
"""Writes of core and provider together for each deployment of a wave (issue 21)."""

METRICS = {"core": "127.0.0.1:18490", "provider": "127.0.0.1:18491"}
_NOT_OF_DEPLOYMENTS = ("events", "leases", "inferenceproviderconfigs", "runtimeconfigs/status")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What each measurement needs."""

    client: Client
    audit: AuditReader
    pids: Mapping[str, int]
    users: Sequence[str]
    """Deployments of the config ``shared``."""

    def writes(self) -> list[Request]:
        """What core and provider wrote since the last call, dry runs left out."""
        agents = (names.CORE_MANAGER, names.provider_manager("toy"))
        return [each for each in self.audit.read() if each.writes and each.agent in agents]


async def passes() -> dict[str, float]:
    """The passes so far over deployments, by part. The core's passes over configs and its gateway's are left out."""
    return {
        part: await asyncio.to_thread(passes_of, address, ("core", "provider-toy")) for part, address in METRICS.items()
    }


async def on_api_server(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    """All measurements on one API server, one after the other."""
    number, wave = arguments.deployments, min(arguments.wave, arguments.deployments)
    if plane.audit_log is None:
        raise RuntimeError("the control plane has no audit log")
    toy = load("toy")
    users, waved = [f"user-{n}" for n in range(number)], [f"wave-{n}" for n in range(wave)]
    async with (
        Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client,
        AsyncExitStack() as on,
    ):
        await install_definitions(client, load_simulator("toy").custom_resource_definitions())
        await client.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_OF_LOAD}}
        )
        for config in ("shared", "single", "waved"):
            await _configure(client, config, "one")
        pids = {}
        for part, command in (("core", ("controller",)), ("provider", ("provider", "run", "toy"))):
            folder = Path(on.enter_context(tempfile.TemporaryDirectory(prefix=f"configs-{part}-")))
            addresses = ("--metrics-bind-address", METRICS[part], "--health-probe-bind-address", "0")
            running = await on.enter_async_context(operator_process(plane.kubeconfig, folder, *command, *addresses))
            pids[part] = running.pid
        await on.enter_async_context(running_simulator(plane.kubeconfig, toy, level="api"))
        stage = Stage(client=client, audit=AuditReader(plane.audit_log), pids=pids, users=users)
        found: dict[str, Any] = {"deployments": number, "used_by": await used_by(stage)}
        await _made(client, ["single"], "single")
        await _made(client, waved, "waved")
        await asyncio.sleep(10)
        found["edit"] = await edited(stage)
        found["edit_of_the_config_of_one"] = await edited_for_one(stage)
        found["neighbour"] = await neighbour(stage)
        found["status_of_a_part"] = await status_of_a_part(stage)
        found["wave"] = await rolled_out(stage, waved)
    found["within_budget"] = {
        "used_by": found["used_by"]["writes"] <= found["used_by"]["budget"],
        "edit_status_writes": found["edit"]["status_writes_each"] <= STATUS_WRITES_BUDGET,
        "edit_upstream_writes": found["edit"]["upstream_writes"] == 0,
        "edit_ratio": found["edit"]["ratio_to_bound"] <= EDIT_BUDGET,
        "passes_of_others": found["edit_of_the_config_of_one"]["passes_of_others"] == 0,
        "neighbour": found["neighbour"]["ratio"] <= NEIGHBOUR_BUDGET,
        "passes_for_a_part": not any(found["status_of_a_part"]["passes"].values()),
        "wave_writes": found["wave"]["writes_each"] <= WAVE_WRITES_BUDGET,
    }
    found["load_average"] = [round(load, 2) for load in os.getloadavg()]
    return found


async def used_by(stage: Stage) -> dict[str, Any]:
    """Create all users at once, and count the writes of the config's status."""
    say(f"{len(stage.users)} deployments")
    stage.audit.read()
    started = time.perf_counter()
    await _made(stage.client, stage.users, "shared")
    await asyncio.sleep(USED_BY_EVERY + 1)
    seconds = time.perf_counter() - started
    config = await stage.client.get(RUNTIME_CONFIG, ObjectKey(NAMESPACE_OF_LOAD, "shared"))
    written = [each for each in stage.writes() if each.resource == "runtimeconfigs/status" and each.name == "shared"]
    return {
        "used_by": dig(config, "status", "usedBy"),
        "seconds": round(seconds, 1),
        "writes": len(written),
        "budget": 1 + int(seconds / USED_BY_EVERY),
    }


async def edited(stage: Stage) -> dict[str, Any]:
    """Edit the config of all users; returns writes and seconds."""
    client, users = stage.client, stage.users
    say("the edit")
    stage.audit.read()
    busy = {part: cpu_seconds(pid) for part, pid in stage.pids.items()}
    started = time.perf_counter()
    stored = await _configure(client, "shared", "two")
    wanted = resolve("shared", namespaced=stored, cluster=None).config
    if wanted is None:
        raise RuntimeError("the edited config was not found")

    def done(deployment: Resource) -> bool:
        hash_, status = wanted.hash, deployment["status"]
        waits = bool(pending_parts(deployment))
        in_effect = is_in_effect(deployment) and dig(status, "revision", "settings", "configHash") == hash_
        return dig(status, "effectiveRuntimeConfig", "hash") == hash_ and (waits or in_effect)

    while not all(done(each) for each in await _of(client, users)):
        await asyncio.sleep(0.25)
    seconds = time.perf_counter() - started
    busy = {part: round(cpu_seconds(pid) - busy[part], 2) for part, pid in stage.pids.items()}
    await asyncio.sleep(6)
    written = stage.writes()
    statuses = Counter(each.name for each in written if each.resource == "modeldeployments/status")
    say("the bound")
    again = time.perf_counter()
    for manager in ("bound-core", "bound-provider"):
        await concurrently(users, lambda name, manager=manager: bound_write(client, _toy(name, "shared"), manager))  # type: ignore[misc]
    bound_seconds = time.perf_counter() - again
    await _settled()
    own = ("modeldeployments/status", *_NOT_OF_DEPLOYMENTS)
    return {
        "status_writes_each": max((statuses[name] for name in users), default=0),
        "status_writes_of_others": sum(statuses.values()) - sum(statuses[name] for name in users),
        "upstream_writes": sum(not each.resource.startswith(own) for each in written),
        "writes_of_the_config_status": sum(each.resource == "runtimeconfigs/status" for each in written),
        "cpu_seconds": busy,
        "seconds": round(seconds, 2),
        "bound_seconds": round(bound_seconds, 2),
        "ratio_to_bound": round(seconds / bound_seconds, 2),
        "budget_ratio": EDIT_BUDGET,
    }


async def edited_for_one(stage: Stage) -> dict[str, Any]:
    """Edit the config of a single deployment beside all others; returns the passes that this causes.

    All passes beyond `PASSES_OF_ONE` count as those of others: one pass of each would be as many as there are.
    """
    say("the config of one")
    before = await passes()
    await _configure(stage.client, "single", "two")
    await asyncio.sleep(5)
    caused = {part: int(number - before[part]) for part, number in (await passes()).items()}
    return {"passes": caused, "passes_of_others": max(0, sum(caused.values()) - PASSES_OF_ONE)}


async def neighbour(stage: Stage) -> dict[str, Any]:
    """Edit a deployment of another config alone, and beside one edit a second of the config of all users; returns how
    long it takes until its status is about the edit.
    """
    say("a neighbour")
    await _settled()
    alone = [await _answered(stage.client, f"alone-{number}") for number in range(_EDITS)]

    async def edit_again_and_again() -> None:
        for number in count():
            await _configure(stage.client, "shared", f"again-{number}")
            await asyncio.sleep(1)

    editing = asyncio.create_task(edit_again_and_again())
    try:
        beside = [await _answered(stage.client, f"beside-{number}") for number in range(_EDITS)]
    finally:
        editing.cancel()
    await _settled()
    middle = statistics.median(beside) / statistics.median(alone)
    return {"alone": spread(alone), "beside": spread(beside), "ratio": round(middle, 2), "budget": NEIGHBOUR_BUDGET}


NEIGHBOUR_BUDGET = 2.0
"""Seconds until an edit is answered beside edits of the config of others, relative to those without (issue 35)."""
_EDITS = 12


async def _answered(client: Client, value: str) -> float:
    """Seconds from an edit of the deployment ``single`` to a status about it."""
    key, edit = ObjectKey(NAMESPACE_OF_LOAD, "single"), {"spec": {"env": [{"name": "NEIGHBOUR", "value": value}]}}
    started = time.perf_counter()
    edited = await client.merge_patch(MODEL_DEPLOYMENT, key, edit)
    generation = edited["metadata"]["generation"]
    async with asyncio.timeout(60):
        while dig(await client.get(MODEL_DEPLOYMENT, key), "status", "observedGeneration") != generation:
            await asyncio.sleep(0.02)
    seconds = time.perf_counter() - started
    await asyncio.sleep(0.7)  # not always in the same part of the second
    return seconds


PASSES_OF_ONE = 8
"""Passes of core and provider over a deployment whose config is edited, with those after their own status writes."""


async def status_of_a_part(stage: Stage) -> dict[str, Any]:
    """Write ``status.gateway`` of every user by another manager; returns the passes that this causes."""
    say("status.gateway")
    before = await passes()
    await concurrently(stage.users, lambda name: _gateway_status(stage.client, name))
    await asyncio.sleep(5)
    return {"writes": len(stage.users), "passes": {k: int(n - before[k]) for k, n in (await passes()).items()}}


async def rolled_out(stage: Stage, waved: list[str]) -> dict[str, Any]:
    """Edit a config with ``rollout: Immediately``; returns the writes until all serve with the new settings."""
    say(f"a wave of {len(waved)}")
    stage.audit.read()
    started = time.perf_counter()
    stored = await _configure(stage.client, "waved", "two", rollout="Immediately", maxConcurrentRollouts=WAVE_LIMIT)
    wanted = resolve("waved", namespaced=stored, cluster=None).config
    if wanted is None:
        raise RuntimeError("the edited config was not found")

    def done(deployment: Resource) -> bool:
        used = dig(deployment, "status", "revision", "settings", "configHash")
        return is_in_effect(deployment) and used == wanted.hash and running_at(1)(deployment)

    while not all(done(each) for each in await _of(stage.client, waved)):
        if time.perf_counter() - started > 300:
            raise RuntimeError("the wave has not ended after five minutes")
        await asyncio.sleep(0.25)
    seconds = time.perf_counter() - started
    await asyncio.sleep(6)
    written = [each for each in stage.writes() if not each.resource.startswith(_NOT_OF_DEPLOYMENTS)]
    each = Counter(request.name for request in written)
    kinds = Counter(f"{request.agent}: {request.verb} {request.resource}" for request in written)
    return {
        "deployments": len(waved),
        "at_a_time": WAVE_LIMIT,
        "seconds": round(seconds, 1),
        "writes_each": max(each[name] for name in waved),
        "writes_mean": round(sum(each[name] for name in waved) / len(waved), 2),
        "writes": dict(kinds.most_common()),
    }


async def _made(client: Client, deployments: Sequence[str], config: str) -> None:
    """Create deployments, and return when all are Running."""

    async def make(name: str) -> None:
        await client.create(MODEL_DEPLOYMENT, _toy(name, config))

    await concurrently(deployments, make)
    async with asyncio.timeout(900):
        while not all(running_at(1)(each) for each in await _of(client, deployments)):
            await asyncio.sleep(1)


async def _settled() -> None:
    """Return when neither core nor provider has made a pass for three seconds."""
    before: dict[str, float] = {}
    while (now := await passes()) != before:
        before = now
        await asyncio.sleep(3)


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


async def _configure(client: Client, name: str, value: str, **further: object) -> Resource:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": RUNTIME_CONFIG.kind,
        "metadata": {"name": name, "namespace": NAMESPACE_OF_LOAD},
        "spec": {"env": [{"name": "STAGE", "value": value}], **further},
    }
    return await client.apply(RUNTIME_CONFIG, body, manager="platform", force=True)


async def _of(client: Client, wanted: Sequence[str]) -> list[Resource]:
    found, chosen = await client.list_all(MODEL_DEPLOYMENT, namespace=NAMESPACE_OF_LOAD), frozenset(wanted)
    return [each for each in found if each["metadata"]["name"] in chosen]


async def _gateway_status(client: Client, name: str) -> None:
    body = {key: value for key, value in _toy(name, "shared").items() if key != "spec"}
    body["status"] = {"gateway": {"url": f"https://gateway.example/{name}"}}
    await client.apply(MODEL_DEPLOYMENT, body, manager="another-part", force=True, subresource="status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5000, help="calls that are timed")
    parser.add_argument("--deployments", type=int, default=0, help="edit the config of so many on an API server")
    parser.add_argument("--wave", type=int, default=100, help="deployments that are rolled out at the end")
    arguments = parser.parse_args()
    samples = arguments.samples
    if arguments.deployments:
        with ControlPlane("api", audit="Metadata", report=say) as plane:
            found = asyncio.run(on_api_server(arguments, plane))
        print(json.dumps({**heading("configs"), **found}, indent=2))
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
