"""How fast, and with how many writes, does the gateway part make routes?

N deployments on one Gateway of a simulated controller, with the core as a process of its own and the part in it:
writes for each, seconds from the route's acceptance to ``GatewayReady``, requests at rest and at a restart, memory.
The bound of the same run is the same two writes (a route, a status) by a client that does nothing else. Then, without
a cluster, the claims of 10,000 deployments are computed anew. Prints JSON.

    uv run python -m benchmarks.routes --deployments 1000 --pools 20
    uv run python -m benchmarks.routes --deployments 10000 --pools 0    # memory; takes some ten minutes
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.common import concurrently, heading, percentiles, rss_mib, say
from tests.support.audit import AuditReader, Request

from airunway.api import names
from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CLUSTER_ROLE, DEPLOYMENT, NAMESPACE, SERVICE, Client, Reflector, load_config
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway.routing.claims import Claim, Claimant, ClaimKind, Claims, claimant_of
from airunway.routing.intent import Facts, claims_of
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.gatewayapi.controller import running_gateway_controller
from airunway_testing.gatewayapi.kinds import GATEWAY, GATEWAY_CLASS, definitions, gateway, gateway_class
from airunway_testing.operator import install_definitions

CLAIMS_BUDGET_S = 2.0
"""Seconds for the claims of 10,000 deployments with prefixes of each other."""
READY_BUDGET_MS = {"p50": 50.0, "p99": 250.0}
"""From a route's acceptance to GatewayReady (issue 21)."""
WRITES_BUDGET = {"service": 2, "pool": 9}
"""Writes of the part for one deployment (issue 21)."""
REST_BUDGET = 1.0
"""Requests per second at rest (issue 21)."""
MEMORY_BUDGET_MIB = {1_000: 125.0, 10_000: 380.0}
"""Resident memory of the core with so many deployments that have a route, at most (issue 21)."""

SPACE = "load"
PROVIDER = "nobody"
_PLAYER = names.provider_manager(PROVIDER)


class Core:
    """The core as a process of its own, with the gateway part."""

    def __init__(self, kubeconfig: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-routes-"))
        self._kubeconfig = kubeconfig
        self.processes = Processes(self._folder, keep=False)

    async def start(self) -> None:
        """Start, and return when it is ready."""
        marker = self._folder / "ready"
        marker.unlink(missing_ok=True)
        command = [sys.executable, "-m", "airunway", "controller", "--kubeconfig", str(self._kubeconfig)]
        quiet = ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
        self.processes.start("core", [*command, *quiet, "--ready-file", str(marker)], environment=dict(os.environ))
        while not marker.exists():
            if self.processes.exited():
                sys.exit(self.processes.log("core").read_text())
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        self.processes.stop("core", grace=10.0)

    @property
    def rss(self) -> dict[str, float]:
        return rss_mib(self.processes.pids["core"])


def deployment(name: str) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "model": {"id": f"org/{name}"},
            "engine": {"type": "vllm"},
            "resources": {"gpu": {"count": 1}},
            "gateway": {"enabled": True, "pathTemplate": "/{.metadata.namespace}/{.metadata.name}"},
        },
    }


async def prepare(client: Client) -> None:
    """CRDs, Gateway, the one Service of all model servers, the role of pickers, and a provider that is played."""
    await install_definitions(client, definitions())
    for kind, body in (
        (NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}),
        (GATEWAY_CLASS, gateway_class()),
        (GATEWAY, gateway("inference", SPACE)),
        (CLUSTER_ROLE, _role()),
        (SERVICE, _service()),
    ):
        await client.create(kind, body)
    engine = {
        "name": "vllm",
        "servingModes": ["aggregated"],
        "gpuSupport": True,
        "pathRouting": True,
        "gateway": {"endpointPicker": {}},
    }
    upstream = [{"group": "", "kind": "ConfigMap", "versions": ["v1"], "requiresCRD": False}]
    config = {
        "apiVersion": names.API_VERSION,
        "kind": "InferenceProviderConfig",
        "metadata": {"name": PROVIDER},
        "spec": {"capabilities": {"engines": [engine]}, "upstream": upstream},
    }
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="benchmark")
    key = ObjectKey("", PROVIDER)
    await client.merge_patch(INFERENCE_PROVIDER_CONFIG, key, {"status": {"ready": True}}, subresource="status")


def _role() -> Resource:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**kind, "metadata": {"name": names.ENDPOINT_PICKER_ROLE}, "rules": []}


def _service() -> Resource:
    spec = {"selector": {"app": "model"}, "ports": [{"port": 8000, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "model", "namespace": SPACE}, "spec": spec}


async def serve(client: Client, name: str, *, pool: bool) -> None:
    """Write what a provider writes of a deployment that is served."""
    status: Resource = {
        "phase": "Running",
        "reason": "Ready",
        "message": "",
        "observedGeneration": 1,  # with it, the core leaves the phase to the provider
        "endpoint": {"service": "model", "port": 8000, "targetPort": 8000},
    }
    if pool:
        status["selector"] = f"app={name}"
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": {"name": name, "namespace": SPACE}}
    body["status"] = status
    await client.apply(MODEL_DEPLOYMENT, body, manager=_PLAYER, force=True, subresource="status")


async def picker_runs(client: Client, name: str) -> None:
    """Write what the Deployment's controller writes of a picker that is ready."""
    key = ObjectKey(SPACE, f"{name}-epp")
    while await client.find(DEPLOYMENT, key) is None:
        await asyncio.sleep(0.05)
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    conditions = [{"type": "Available", "status": "True", "reason": "x", "message": ""}]
    status = {"observedGeneration": 1, "conditions": conditions, **counts}
    await client.merge_patch(DEPLOYMENT, key, {"status": status}, subresource="status")


class Clock:
    """When a watcher saw each route accepted, and each deployment with GatewayReady."""

    def __init__(self, client: Client) -> None:
        self.accepted: dict[str, float] = {}
        self.ready: dict[str, float] = {}
        self._routes, self._deployments = Reflector(client, HTTP_ROUTE), Reflector(client, MODEL_DEPLOYMENT)
        self._routes.add_handler(self._on_route)
        self._deployments.add_handler(self._on_deployment)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._routes.run())
            group.create_task(self._deployments.run())

    def _on_route(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        parents = dig(new, "status", "parents", default=[])
        if parents and all(is_true({"status": parent}, "Accepted") for parent in parents):
            self.accepted.setdefault(key.name, time.perf_counter())

    def _on_deployment(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        if new is not None and (condition_of(new, "GatewayReady") or {}).get("status") == "True":
            self.ready.setdefault(key.name, time.perf_counter())

    async def until_assigned(self, name: str) -> None:
        """Wait until the core has chosen the provider: before that, no provider writes."""
        while not dig(self._deployments.get(ObjectKey(SPACE, name)), "status", "provider", "name"):
            await asyncio.sleep(0.01)

    async def until_ready(self, number: int) -> None:
        deadline = time.perf_counter() + 1800
        while len(self.ready) < number:
            if time.perf_counter() > deadline:
                sys.exit(f"only {len(self.ready)} of {number} are ready after half an hour")
            await asyncio.sleep(0.02)


def of_part(requests: list[Request]) -> list[Request]:
    """The writes of the process besides events and leases."""
    ours = [each for each in requests if each.agent == names.CORE_MANAGER and each.writes]
    return [each for each in ours if each.resource.split("/")[0] not in _OTHER]


_OTHER = ("events", "leases", "inferenceproviderconfigs", "customresourcedefinitions")


async def bound(client: Client, number: int) -> float:
    """Seconds of the same writes by a client that does nothing else."""

    async def two(name: str) -> None:
        match = {"path": {"type": "PathPrefix", "value": f"/{name}"}}
        rule = {"matches": [match], "backendRefs": [{"name": "model", "port": 8000}]}
        spec = {"parentRefs": [{"name": "none"}], "rules": [rule]}
        body = {"apiVersion": HTTP_ROUTE.api_version, "kind": "HTTPRoute", "spec": spec}
        await client.apply(HTTP_ROUTE, {**body, "metadata": {"name": name, "namespace": SPACE}}, manager="bound")
        status = {"status": {"gateway": {"ready": True}}}
        key = ObjectKey(SPACE, name.replace("bound", "load"))
        await client.merge_patch(MODEL_DEPLOYMENT, key, status, subresource="status", manager="bound", dry_run=False)

    started = time.perf_counter()
    await concurrently([f"bound-{index}" for index in range(number)], two)
    return time.perf_counter() - started


async def measured(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    number, pools = arguments.deployments, arguments.pools
    plain = [f"load-{index}" for index in range(number)]
    pooled = [f"pool-{index}" for index in range(pools)]
    core = Core(plane.kubeconfig)
    assert plane.audit_log is not None
    audit = AuditReader(plane.audit_log)
    async with AsyncExitStack() as stack:
        stack.callback(core.processes.close, grace=5.0)
        client = await stack.enter_async_context(Client(load_config(kubeconfig=plane.kubeconfig), user_agent="bench"))
        await prepare(client)
        await stack.enter_async_context(running_gateway_controller(plane.kubeconfig))
        clock = Clock(client)
        watching = asyncio.create_task(clock.run())
        stack.callback(watching.cancel)
        await core.start()
        say(f"{number} deployments with a route to a Service")
        audit.read()

        async def make(name: str) -> None:
            await client.create(MODEL_DEPLOYMENT, deployment(name))
            await clock.until_assigned(name)
            await serve(client, name, pool=name.startswith("pool"))

        started = time.perf_counter()
        await concurrently(plain, make)
        await clock.until_ready(number)
        seconds = time.perf_counter() - started
        await asyncio.sleep(3)
        routed = of_part(audit.read())
        say(f"{pools} with pool and picker")
        await concurrently(pooled, make)
        await concurrently(pooled, lambda name: picker_runs(client, name))
        await clock.until_ready(number + pools)
        await asyncio.sleep(3)
        with_pool = of_part(audit.read())
        memory = core.rss
        say("one after the other")
        alone = [f"alone-{index}" for index in range(min(number, 100))]
        for name in alone:
            await make(name)
            await clock.until_ready(len(clock.ready) if name in clock.ready else len(clock.ready) + 1)
        say("at rest")
        await asyncio.sleep(10)
        single = of_part(audit.read())
        await asyncio.sleep(arguments.rest)
        resting = [each for each in audit.read() if each.agent == names.CORE_MANAGER]
        core.stop()
        await core.start()
        say("restarted")
        await asyncio.sleep(10)
        restarted = of_part(audit.read())
        after_restart = core.rss
        core.stop()
        bound_seconds = await bound(client, number)
    waited = {name: (clock.ready[name] - clock.accepted[name]) * 1000 for name in clock.ready if name in clock.accepted}
    latency = percentiles([max(0.0, waited[name]) for name in alone])
    rest = {
        "seconds": arguments.rest,
        "writes": len([each for each in resting if each.writes and each.resource not in _OTHER]),
        "requests_per_second": round(len([r for r in resting if r.resource != "leases"]) / arguments.rest, 2),
    }
    most_memory = MEMORY_BUDGET_MIB.get(number)
    per_service, per_pool, per_single = _each(routed, plain), _each(with_pool, pooled), _each(single, alone)
    return {
        "deployments": {"service": number, "pool": pools},
        "seconds_to_ready": round(seconds, 2),
        "bound_seconds": round(bound_seconds, 2),
        "ratio_to_bound": round(seconds / bound_seconds, 1),
        "accepted_to_ready_ms": {
            "one_at_a_time": latency,
            "all_at_once": percentiles([max(0.0, waited[name]) for name in plain]),
        },
        # A burst that keeps the gateway busy for over two seconds is reported: one more write.
        "writes_of_the_part": {"service": per_single, "service_in_a_burst": per_service, "pool": per_pool},
        "at_rest": rest,
        "writes_at_restart": len(restarted),
        "requests": {
            "routes": _kinds(routed),
            "pools": _kinds(with_pool),
            "at_rest": _kinds(resting),
            "restart": _kinds(restarted),
        },
        "memory_mib": {"grown": memory, "restarted": after_restart},
        "within_budget": {
            "accepted_to_ready": all(latency[name] <= most for name, most in READY_BUDGET_MS.items()),
            "writes": per_single["max"] <= WRITES_BUDGET["service"] and per_pool.get("max", 0) <= WRITES_BUDGET["pool"],
            "restart": not restarted,
            "at_rest": not rest["writes"] and rest["requests_per_second"] <= REST_BUDGET,
            **({"memory": max(memory["now"], after_restart["now"]) <= most_memory} if most_memory else {}),
        },
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _kinds(requests: list[Request]) -> dict[str, int]:
    """How many of each verb and kind, by component."""
    return dict(Counter(f"{each.agent}: {each.verb} {each.resource} {each.code}" for each in requests).most_common())


def _each(requests: list[Request], deployments: list[str]) -> dict[str, float]:
    """Writes of the part for each deployment. The core's own write of a deployment's first status is not counted."""
    counts: Counter[str] = Counter()
    for request in requests:
        counts[request.name.removesuffix("-epp")] += 1
    found = [counts[name] - 1 for name in deployments]
    return {"mean": round(sum(found) / len(found), 2), "max": max(found)} if found else {}


def claims_of_many(number: int) -> dict[str, float]:
    """Seconds of computing the claims of so many deployments anew, by the clock and of CPU; and of the parts alone.

    They are of a thousand namespaces, with paths below one prefix, and every tenth path is a prefix of others. Then the
    oldest one releases what excludes all others, and takes it again.
    """
    one = gateway("inference", SPACE)
    made = []
    for index in range(number):
        body = deployment(f"load-{index}")
        body["metadata"]["namespace"] = f"{SPACE}-{index % 1000}"
        below = "" if index % 10 == 0 else "/{.metadata.name}"
        body["spec"]["gateway"]["pathTemplate"] = f"/ml/{{.metadata.namespace}}{below}"
        body["spec"]["gateway"]["gatewayRef"] = {"name": "inference", "namespace": SPACE}
        body["metadata"]["creationTimestamp"] = f"2026-01-01T00:{index // 60 % 60:02}:{index % 60:02}Z"
        body["metadata"]["uid"] = f"uid-{index}"
        made.append(body)
    engine = {"name": "vllm", "pathRouting": True}
    claims = Claims()
    started, busy = time.perf_counter(), time.process_time()
    claims.rebuild(
        (claimant_of(body), claims_of(Facts(deployment=body, engine=engine, gateways=[one])), ()) for body in made
    )
    found = {"clock": time.perf_counter() - started, "cpu": time.process_time() - busy}
    everything = Claim(ObjectKey(SPACE, "inference"), "", ClaimKind.PATH, "/ml")
    oldest = Claimant("2025-01-01T00:00:00Z", "oldest", "oldest")
    for name, its in (("cpu_of_an_oldest_prefix", [everything]), ("cpu_of_its_release", [])):
        busy = time.process_time()
        claims.put(oldest, its)
        found[name] = time.process_time() - busy
    started = time.process_time()
    orders = sorted(made, key=lambda body: str(body["metadata"]["creationTimestamp"]))
    found["bound_cpu"] = time.process_time() - started
    assert len(claims) == len(orders) == number
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--pools", type=int, default=20, help="further deployments with a pool and a picker")
    parser.add_argument("--rest", type=float, default=30.0, help="seconds to count requests at rest")
    parser.add_argument("--claims", type=int, default=10_000)
    arguments = parser.parse_args()
    claims = claims_of_many(arguments.claims)
    with ControlPlane("api", audit="Metadata", report=say) as plane:
        found = asyncio.run(measured(arguments, plane))
    found["claims"] = {"deployments": arguments.claims, "seconds": claims, "budget": CLAIMS_BUDGET_S}
    found["within_budget"]["claims"] = claims["cpu"] <= CLAIMS_BUDGET_S
    print(json.dumps({**heading("routes"), **found}, indent=2))


if __name__ == "__main__":
    main()
