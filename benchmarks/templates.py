"""How long does the choice of a template take, what do 1,000 templates cost at rest, what does an edit of one write?

The first form is pure Python: choose + merge over 200 templates of a model, and its bound of the same run, which is
reading and hashing the chosen template alone (JSON to a dict, sha256). Prints JSON.

    uv run python -m benchmarks.templates
    uv run python -m benchmarks.templates --templates 1000 --users 1000    # on a real API server

The second form starts core, provider and catalogue as processes. The templates are made; memory and CPU of core and
catalogue before and after, requests and writes at rest. Then a template with N users that serve is edited: status
writes for each, upstream writes, and the time relative to the same status writes of a plain client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
from benchmarks.common import bound_write, concurrently, cpu_seconds, heading, rss_mib, say
from benchmarks.configs import spread, timed
from tests.support.audit import AuditReader, Request
from tests.support.operator_process import operator_process

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import NAMESPACE, Client, load_config
from airunway.plugins.registry import load
from airunway.resource import Resource, dig, digest
from airunway.templates.choice import choose, request_of
from airunway.templates.contribution import contribution_of
from airunway.templates.expansion import expand
from airunway_testing.controlplane import ControlPlane
from airunway_testing.expectations import running_at
from airunway_testing.operator import install_definitions, running_simulator
from airunway_testing.simulators import load_simulator

CHOICE_BUDGET_MS = 0.5
"""p99 of choose + merge over 200 templates of a model (issue 23)."""
REST_REQUESTS_BUDGET = 1.0
"""Requests of the catalogue in a second at rest with 1,000 templates (issue 23)."""
CATALOGUE_BUDGET_MIB = 110
"""Memory of the catalogue (issue 23)."""
CORE_BUDGET_MIB = 10
"""What 1,000 templates add to the core's memory (issue 23)."""
STATUS_WRITES_BUDGET = 2
"""Status writes of core and provider together for each user of an edited template, as for a config (issue 21)."""
EDIT_BUDGET = 2.5
"""Seconds of an edit relative to those of the same writes by a plain client, as for a config (issue 21)."""

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
WHERE = "load"
_REST_SECONDS = 60
_NOT_OF_DEPLOYMENTS = ("events", "leases", "inferenceproviderconfigs", "modeltemplates/status")


def template(number: int, *, value: str = "one", model: str = MODEL) -> Resource:
    """One of the templates; each has a rank of its own by its tier."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": f"template-{number}", "namespace": WHERE, "uid": f"uid-{number}"},
        "spec": {
            "modelName": model,
            "metric": ("latency", "throughput")[number % 2],
            "precision": ("fp8", "bf16", "int4")[number % 3],
            "defaults": {
                "engine": {"type": "vllm", "args": {"max-num-seqs": str(number)}},
                "image": "registry.example/vllm:1.0",
                "env": [{"name": f"V_{n}", "value": value} for n in range(10)],
                "resources": {"gpu": {"count": 1}},
            },
        },
        "status": {"phase": "Ready", "hardware": {"tier": number}},
    }


def _pure(samples: int) -> dict[str, Any]:
    templates = [template(number) for number in range(200)]
    contributions = {each["metadata"]["name"]: contribution_of(each) for each in templates}

    def prepared(number: int) -> object:
        asked = {"modelName": MODEL, **({"metric": "latency"} if number % 2 else {})}
        return {"templateRef": asked, "env": [{"name": f"V_{number % 10}", "value": f"own {number}"}]}

    def chosen(spec: object) -> object:
        assert isinstance(spec, dict)
        request = request_of(spec)
        assert request is not None
        choice = choose(
            request,
            namespaced=templates,
            cluster=(),
            unusable=lambda template: contributions[template["metadata"]["name"]].unusable,
        )
        assert choice.chosen is not None
        return expand(spec, contributions[choice.chosen.key.name].spec)

    def bound(_: object) -> object:
        return digest(orjson.loads(orjson.dumps(templates[-1])))

    taken, cpu = timed(prepared, chosen, samples)
    bound_taken, _ = timed(prepared, bound, samples)
    found = {"milliseconds": spread(taken), "cpu_milliseconds": spread(cpu), "bound_milliseconds": spread(bound_taken)}
    return {**found, "budget_p99_ms": CHOICE_BUDGET_MS, "within_budget": spread(cpu)["p99"] <= CHOICE_BUDGET_MS}


async def on_api_server(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    """Rest and edit on one API server."""
    if plane.audit_log is None:
        raise RuntimeError("the control plane has no audit log")
    toy, audit = load("toy"), AuditReader(plane.audit_log)
    async with (
        Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client,
        AsyncExitStack() as on,
    ):
        await install_definitions(client, load_simulator("toy").custom_resource_definitions())
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WHERE}})
        pids = {}
        commands = (("core", ("controller",)), ("provider", ("provider", "run", "toy")), ("catalogue", ("catalogue",)))
        for part, command in commands:
            folder = Path(on.enter_context(tempfile.TemporaryDirectory(prefix=f"templates-{part}-")))
            quiet = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
            running = await on.enter_async_context(operator_process(plane.kubeconfig, folder, *command, *quiet))
            pids[part] = running.pid
        await on.enter_async_context(running_simulator(plane.kubeconfig, toy, level="api"))
        await asyncio.sleep(10)
        found: dict[str, Any] = {"templates": arguments.templates, "users": arguments.users}
        found["rest"] = await _rest(client, audit, pids, arguments.templates)
        found["edit"] = await _edit(client, audit, arguments.users)
    rest, edit = found["rest"], found["edit"]
    found["within_budget"] = {
        "rest_writes": rest["writes"] == 0,
        "rest_requests": rest["catalogue_requests_per_second"] <= REST_REQUESTS_BUDGET,
        "catalogue_memory": rest["catalogue_mib"] <= CATALOGUE_BUDGET_MIB,
        "core_memory": rest["core_mib_more"] <= CORE_BUDGET_MIB,
        "edit_status_writes": edit["status_writes_each"] <= STATUS_WRITES_BUDGET,
        "edit_upstream_writes": edit["upstream_writes"] == 0,
        "edit_ratio": edit["ratio_to_bound"] <= EDIT_BUDGET,
    }
    found["load_average"] = [round(load, 2) for load in os.getloadavg()]
    return found


async def _rest(client: Client, audit: AuditReader, pids: dict[str, int], count: int) -> dict[str, Any]:
    """Make the templates; returns what they cost, and what happens in a minute of rest."""
    say(f"{count} templates")
    before = rss_mib(pids["core"])["now"]

    async def make(name: str) -> None:
        body = template(int(name), model=f"model-{int(name) // 5}")
        del body["status"], body["metadata"]["uid"]
        await client.create(MODEL_TEMPLATE, body)

    await concurrently(map(str, range(count)), make)
    while not all(dig(each, "status", "phase") for each in await client.list_all(MODEL_TEMPLATE, namespace=WHERE)):
        await asyncio.sleep(1)
    await asyncio.sleep(15)
    say(f"{_REST_SECONDS} seconds of rest")
    audit.read()
    busy = cpu_seconds(pids["catalogue"])
    await asyncio.sleep(_REST_SECONDS)
    seen = [each for each in audit.read() if each.agent]
    ours = [each for each in seen if each.agent == "airunway-catalogue"]
    return {
        "writes": sum(
            each.writes and each.resource not in ("leases", "inferenceproviderconfigs/status") for each in seen
        ),
        "catalogue_requests_per_second": round(len(ours) / _REST_SECONDS, 2),
        "catalogue_cpu_share": round((cpu_seconds(pids["catalogue"]) - busy) / _REST_SECONDS, 4),
        "catalogue_mib": rss_mib(pids["catalogue"])["now"],
        "core_mib_more": round(rss_mib(pids["core"])["now"] - before, 1),
    }


async def _edit(client: Client, audit: AuditReader, count: int) -> dict[str, Any]:
    """Edit a template with so many users that serve; returns writes and seconds."""
    users = [f"user-{n}" for n in range(count)]
    say(f"{count} users")
    await _write(client, "one")

    async def make(name: str) -> None:
        await client.create(MODEL_DEPLOYMENT, _deployment(name))

    await concurrently(users, make)
    async with asyncio.timeout(900):
        while not all(running_at(1)(each) for each in await _of(client, users)):
            await asyncio.sleep(1)
    await asyncio.sleep(10)
    say("the edit")
    audit.read()
    started = time.perf_counter()
    await _write(client, "two")

    def done(deployment: Resource) -> bool:
        return any("newer ones take effect" in text for text in dig(deployment, "status", "warnings") or ())

    async with asyncio.timeout(600):
        while not all(done(each) for each in await _of(client, users)):
            await asyncio.sleep(0.25)
    seconds = time.perf_counter() - started
    await asyncio.sleep(6)
    written = [each for each in audit.read() if _is_ours(each)]
    statuses = Counter(each.name for each in written if each.resource == "modeldeployments/status")
    say("the bound")
    again = time.perf_counter()
    for manager in ("bound-core", "bound-provider"):
        await concurrently(users, lambda name, manager=manager: bound_write(client, _deployment(name), manager))  # type: ignore[misc]
    bound_seconds = time.perf_counter() - again
    own = ("modeldeployments/status", *_NOT_OF_DEPLOYMENTS)
    return {
        "status_writes_each": max((statuses[name] for name in users), default=0),
        "upstream_writes": sum(not each.resource.startswith(own) for each in written),
        "seconds": round(seconds, 2),
        "bound_seconds": round(bound_seconds, 2),
        "ratio_to_bound": round(seconds / bound_seconds, 2),
    }


def _is_ours(request: Request) -> bool:
    return request.writes and request.agent in (names.CORE_MANAGER, names.provider_manager("toy"))


async def _write(client: Client, value: str) -> None:
    body = template(0, value=value)
    del body["status"], body["metadata"]["uid"]
    body["metadata"]["name"] = "shared"
    await client.apply(MODEL_TEMPLATE, body, manager="platform", force=True)


def _deployment(name: str) -> Resource:
    spec = {"templateRef": {"name": "shared"}, "provider": {"name": "toy"}}
    metadata = {"name": name, "namespace": WHERE}
    return {"apiVersion": names.API_VERSION, "kind": MODEL_DEPLOYMENT.kind, "metadata": metadata, "spec": spec}


async def _of(client: Client, wanted: Sequence[str]) -> list[Resource]:
    found, chosen = await client.list_all(MODEL_DEPLOYMENT, namespace=WHERE), frozenset(wanted)
    return [each for each in found if each["metadata"]["name"] in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5000, help="choices that are timed")
    parser.add_argument("--templates", type=int, default=0, help="make so many on an API server")
    parser.add_argument("--users", type=int, default=1000, help="deployments of the template that is edited")
    arguments = parser.parse_args()
    if arguments.templates:
        with ControlPlane("api", audit="Metadata", report=say) as plane:
            found = asyncio.run(on_api_server(arguments, plane))
    else:
        found = _pure(arguments.samples)
    print(json.dumps({**heading("templates"), **found}, indent=2))


if __name__ == "__main__":
    main()
