"""Nothing that serves is restarted by an edit of a shared object: five providers, one config, on a cluster.

Core, gateway part and providers are one process, which is killed and started again in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from tests.platform.fleet import (
    CONFIG,
    SPECS,
    TEAM,
    Fleet,
    gateways,
    hash_of,
    is_of_a_gateway,
    kinds_written,
    prepared,
    process_of,
    upstream_writes,
)
from tests.support.audit import AuditReader
from tests.support.cluster_fixtures import with_gpus

from airunway.kinds import MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import POD, Client, Kind, Reflector
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig, is_deleting, is_true, labels_of
from airunway.revisions.revision import is_in_effect, pending_parts
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.expectations import condition_is, phase_is, reason_is, running_at
from airunway_testing.gatewayapi.controller import running_gateway_controller
from airunway_testing.gatewayapi.kinds import HTTP_ROUTE
from airunway_testing.operator import install_definitions, remove_definition, running_simulator, until
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

SECRET = Kind("", "v1", "Secret", "secrets")
POOLS = "inferencepools.inference.networking.k8s.io"
ALLOWED = 2
"""How many deployments a wave changes at a time."""


APART = {"pool-apart", "ray-apart", "graph-apart"}
"""The shapes whose replicas are counted by role."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What scaling a deployment up by one and back does upstream; {0} is the deployment's name."""

    writes: tuple[str, ...]
    """What we write."""
    touches: tuple[str, ...] = ()
    """Kind and name of objects that are changed and stay, as patterns."""
    adds: tuple[str, ...] = ("Pod",)
    """The kinds of which there are more for as long as there is one replica more."""
    anew: bool = False
    """It is made anew: a Workspace serves one replica, several need an InferenceSet, which then stays one."""
    chosen: bool = False
    """Upstream chooses which replica goes: one that was there before, perhaps."""


SCALING: Mapping[str, Scaling] = {
    "preset": Scaling(  # with the variable that waits for a change it is a template, which has no file of settings
        writes=(
            *("delete workspaces {0}", "patch inferencesets {0}", "patch services {0}", "patch inferencepools {0}"),
            "delete configmaps {0}-inference-config",
        ),
        anew=True,
    ),
    "template": Scaling(
        writes=("delete workspaces {0}", "patch inferencesets {0}", "patch services {0}", "patch inferencepools {0}"),
        anew=True,
    ),
    "set": Scaling(
        writes=("patch inferencesets {0}",),
        touches=("InferenceSet {0}",),
        adds=("Pod", "StatefulSet", "Workspace"),
        chosen=True,
    ),
    "plain": Scaling(writes=("patch deployments {0}",), touches=("Deployment {0}",)),
    "plain-b": Scaling(writes=("patch deployments {0}",), touches=("Deployment {0}",)),
    "group": Scaling(
        writes=("patch leaderworkersets {0}-lws",),
        touches=("LeaderWorkerSet {0}-lws", "StatefulSet {0}-lws"),
        adds=("Pod", "StatefulSet"),
    ),
    "pool": Scaling(writes=("patch deployments {0}",), touches=("Deployment {0}",)),
    "pool-apart": Scaling(
        writes=("patch deployments {0}-prefill", "patch deployments {0}-decode"),
        touches=("Deployment {0}-prefill", "Deployment {0}-decode"),
    ),
    "ray": Scaling(writes=("patch rayservices {0}",), touches=("RayService {0}",)),
    "ray-apart": Scaling(writes=("patch rayservices {0}",), touches=("RayService {0}",)),
    "graph": Scaling(
        writes=("patch dynamographdeployments {0}",),
        touches=("DynamoGraphDeployment {0}", "Deployment {0}-worker-*"),
    ),
    "graph-apart": Scaling(
        writes=("patch dynamographdeployments {0}",),
        touches=("DynamoGraphDeployment {0}", "Deployment {0}-prefill-*", "Deployment {0}-decode-*"),
    ),
}
assert set(SCALING) == set(SPECS)


def settings(env: str, *, pull: str = "", token: str = "", gateway: str = "first", **more: Any) -> Resource:
    secrets: Resource = {"secrets": {"huggingFaceToken": token}} if token else {}
    pulls: Resource = {"imagePullSecrets": [{"name": pull}]} if pull else {}
    return {
        "env": [{"name": "STAGE", "value": env}] if env else [],
        "labelPropagation": {"enabled": True, "match": ["example.org/*"]},
        "routing": {"enabled": True, "gatewayRef": {"name": gateway}},
        **secrets,
        **pulls,
        **more,
    }


@pytest.mark.parametrize(
    "copies",
    [pytest.param(1, id="12"), pytest.param(5, id="60", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
async def test_an_edit_of_a_shared_object_restarts_nothing_that_serves(
    copies: int,
    kubeconfig: Path,
    client: Client,
    namespace: str,
    audit_log: Path,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    await remove_definition(client, POOLS)
    await prepared(client, extension=False)
    shapes = {f"{name}-{number}" if number else name: name for name in SPECS for number in range(copies)}
    fleet = Fleet(client=client, namespace=namespace, names=list(shapes), kinds=kinds_written())
    hosts = [load(name) for name in ("kaito", "vllm", "llmd", "kuberay", "dynamo")]
    async with (
        with_gpus(client, 80 * copies),
        gateways(client, namespace, "first", "second"),
        running_simulator(kubeconfig, *hosts, level="cluster"),
        running_gateway_controller(kubeconfig),
    ):
        try:
            await _story(fleet, shapes, kubeconfig, audit_log, tmp_path, eventually)
        finally:
            (crd,) = load_simulator("llmd").custom_resource_definitions()
            await install_definitions(client, [crd])


async def _story(
    fleet: Fleet,
    shapes: Mapping[str, str],
    kubeconfig: Path,
    audit_log: Path,
    folder: Path,
    eventually: Eventually,
) -> None:
    client, namespace = fleet.client, fleet.namespace
    for name in ("hf-old", "hf-new"):  # KAITO itself asks for the Secret of a preset
        metadata: Resource = {"name": name, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"HF_TOKEN": name}}
        await client.create(SECRET, body)
    # With a variable, all presets would be templates (KAITO's presets take none): the first one comes while they serve.
    await fleet.configure(**settings("", token="hf-old"))
    async with process_of(kubeconfig, folder) as process:
        for name, shape in shapes.items():
            await fleet.deploy(name, **SPECS[shape])
        await fleet.every(running_at(1), what="Running")
        await fleet.settled()
        before, audit = await fleet.standing(), AuditReader(audit_log)
        made = {kind for kind, _ in before}
        assert {"Workspace", "InferenceSet", "LeaderWorkerSet", "RayService", "DynamoGraphDeployment"} <= made

        await _followed(fleet, settings("two", token="hf-old"))
        await _followed(fleet, settings("two", pull="registry", token="hf-old"))
        await _followed(fleet, settings("two", pull="registry", token="hf-new"))
        await fleet.every(_waits_for_a_change, what="the status to say that newer settings wait")
        assert upstream_writes(audit.read(), namespace) == []

        label = {"metadata": {"labels": {TEAM: "two"}}}
        await client.merge_patch(MODEL_DEPLOYMENT, fleet.key("template"), label, manager="user")
        workspace = next(kind for kind in fleet.kinds if kind.kind == "Workspace")

        async def labelled() -> bool:
            return labels_of(await client.get(workspace, fleet.key("template"))).get(TEAM) == "two"

        await eventually(labelled)
        await fleet.settled()
        written = upstream_writes(audit.read(), namespace)
        assert {"patch workspaces template"} <= set(written)
        assert _beside(written, "template") == []

        now = settings("two", pull="registry", token="hf-new", gateway="second")
        await _followed(fleet, now)

        async def rerouted() -> bool:
            routes = await client.list_all(HTTP_ROUTE, namespace=namespace)
            return {dig(each, "spec", "parentRefs", default=[{}])[0].get("name") for each in routes} == {"second"}

        await eventually(rerouted)
        assert _beside(upstream_writes(audit.read(), namespace)) == []
        process.kill()

    await client.delete(RUNTIME_CONFIG, fleet.key(CONFIG))
    async with process_of(kubeconfig, folder) as process:
        await fleet.every(reason_is("RuntimeConfigReady", "ConfigNotFound"), what="the missing config")
        await fleet.every(phase_is("Degraded"), what="Degraded")
        await _followed(fleet, now)
        await fleet.every(phase_is("Running"), what="Running again")
        await fleet.settled()
        assert _beside(upstream_writes(audit.read(), namespace)) == []
        assert await fleet.standing() == before

        (crd,) = load_simulator("llmd").custom_resource_definitions()
        await install_definitions(client, [crd])
        pools = [name for name in fleet.names if dig(SPECS[shapes[name]], "provider", "name") == "llmd"]
        await fleet.every(condition_is("PickerReady", "True"), what="a picker", names=pools)
        await fleet.every(_through_a_pool, what="a pool behind the route", names=[*pools, "plain", "preset"])
        await fleet.settled()
        written = upstream_writes(audit.read(), namespace)
        assert _beside(written, *pools) == []
        assert await fleet.standing() == before
        process.kill()

    async with process_of(kubeconfig, folder) as process:
        await _scaled_all(fleet, shapes, by=1)
        wide = await fleet.standing()
        await _scaled_all(fleet, shapes, by=0)
        narrow = await fleet.standing()
        for name, shape in shapes.items():
            _only_scaled(name, SCALING[shape], *(_of(name, shapes, seen) for seen in (before, wide, narrow)))
        lines = {re.sub("-config-[0-9a-f]+$", "-config", line) for line in upstream_writes(audit.read(), namespace)}
        # A new InferenceSet has never served: made before the core has given the newest, it is made once more.
        again = {f"delete inferencesets {name}" for name, shape in shapes.items() if SCALING[shape].anew}
        expected = {line.format(name) for name, shape in shapes.items() for line in SCALING[shape].writes}
        assert lines - again == expected
        process.kill()

    async with process_of(kubeconfig, folder):
        await until(client, fleet.key("plain-b"), phase_is("Running"))
        generation = await fleet.edit("plain-b", {"image": "registry.example/team/vllm:2.0"})
        await until(client, fleet.key("plain-b"), _scaled(generation, 1), what="the new image")
        await fleet.settled()
        assert await _stage_of(client, namespace, "plain-b") == "two"
        assert await _stage_of(client, namespace, "plain") == "absent"
        assert set(upstream_writes(audit.read(), namespace)) == {"patch deployments plain-b"}
        after = await fleet.standing()
        mine = {entry for entry in set(after) ^ set(narrow) if not entry[1].startswith("plain-b")}
        assert mine == set()

        async with Observed(client, namespace) as observed:
            await _followed(fleet, {**now, "rollout": "Immediately", "maxConcurrentRollouts": ALLOWED})
            # Two at a time: the last waits for all others.
            within = PATIENCE * len(fleet.names)
            await fleet.every(_has_all, what="the config's settings in effect", within=within)
        assert observed.most <= ALLOWED, observed.worst

        async def renewed() -> bool:
            return {await _stage_of(client, namespace, name) for name in fleet.names} == {"two"}

        await eventually(renewed)  # KubeRay keeps the pods of the previous Ray cluster for a moment


class Observed:
    """Counts, at every event, how many deployments are being changed: not Ready, or granted and not done."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.most = 0
        self.worst: Sequence[str] = ()
        self._states: dict[ObjectKey, bool] = {}
        self._reflector = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        self._states[key] = new is not None and not is_true(new, "Ready")
        busy = sorted(key.name for key, changing in self._states.items() if changing)
        if len(busy) > self.most:
            self.most, self.worst = len(busy), busy

    async def __aenter__(self) -> Observed:
        import asyncio

        self._reflector.add_handler(self._on_change)
        self._task = asyncio.create_task(self._reflector.run())
        await self._reflector.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


async def _followed(fleet: Fleet, spec: Resource) -> None:
    """Write the config, and wait until every deployment names its hash."""
    from airunway.configs.resolution import resolve

    await fleet.configure(**spec)
    config = await fleet.client.get(RUNTIME_CONFIG, fleet.key(CONFIG))
    effective = resolve(CONFIG, namespaced=config, cluster=None).config
    assert effective is not None
    await fleet.every(lambda found: hash_of(found) == effective.hash, what="the config's hash")


async def _scaled_all(fleet: Fleet, shapes: Mapping[str, str], *, by: int) -> None:
    """Give every deployment so many replicas more than it was made with, and wait until they serve."""
    expected = {}
    for name, shape in shapes.items():
        wanted = dig(SPECS[shape], "scaling", "replicas", default=1) + by
        role: Resource = {"replicas": wanted}
        spec = {"scaling": {"prefill": role, "decode": role} if shape in APART else role}
        generation = await fleet.edit(name, spec)
        expected[name] = _scaled(generation, 2 * wanted if shape in APART else wanted)
    for name, holds in expected.items():
        await until(fleet.client, fleet.key(name), holds, what="other replicas")
    await fleet.settled()


Standing = dict[tuple[str, str], tuple[str, int]]


def _of(name: str, names: Iterable[str], standing: Standing) -> Standing:
    """What stands of one deployment: all that has its name, or begins with it and with no longer one."""

    def is_of(obj: str, name: str) -> bool:
        return obj == name or obj.startswith(f"{name}-")

    longer = [each for each in names if is_of(each, name) and each != name]
    return {
        (kind, obj): seen
        for (kind, obj), seen in standing.items()
        if is_of(obj, name) and not any(is_of(obj, each) for each in longer)
    }


def _only_scaled(name: str, scaling: Scaling, before: Standing, wide: Standing, narrow: Standing) -> None:
    """Assert that scaling up and back did to a deployment what it may do, and nothing else."""
    assert before, name
    if scaling.anew:
        assert _uids(wide).isdisjoint(_uids(before)), name
        assert _uids(narrow) < _uids(wide), name
        assert [kind for kind, _ in narrow].count("InferenceSet") == 1, name
        return
    assert _uids(wide) > _uids(before), name
    assert {kind for kind, _, _ in _uids(wide) - _uids(before)} == set(scaling.adds), name
    if scaling.chosen:
        assert _uids(narrow) < _uids(wide), name
        assert sorted(kind for kind, _ in narrow) == sorted(kind for kind, _ in before), name
    else:
        assert _uids(narrow) == _uids(before), name
    changed = {f"{kind} {obj}" for (kind, obj), seen in narrow.items() if before.get((kind, obj), seen) != seen}
    touched = [pattern.format(name) for pattern in scaling.touches]
    assert all(any(fnmatch(each, pattern) for pattern in touched) for each in changed), (name, changed)
    assert all(any(fnmatch(each, pattern) for each in changed) for pattern in touched), (name, changed)


def _waits_for_a_change(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "revision", "pending", "parts") == ["settings"])


def _through_a_pool(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "gateway", "backend") == "Pool")


def _scaled(generation: int, replicas: int) -> Callable[[Resource], bool]:
    def holds(deployment: Resource) -> bool:
        return running_at(generation)(deployment) and dig(deployment, "status", "replicas", "ready") == replicas

    return holds


def _has_all(deployment: Resource) -> bool:
    """Whether what serves has all that the config gives. One that had it before keeps the older ``configHash``."""
    return is_in_effect(deployment) and not pending_parts(deployment) and is_true(deployment, "Ready")


_PARTS = ("httproutes", "inferencepools")


def _beside(written: Sequence[str], *names: str) -> list[str]:
    """The writes that concern no route or pool of the part and none of these deployments."""
    return [
        line
        for line in written
        if line.split()[1] not in _PARTS
        and not line.split()[2].endswith("-epp")
        and not any(line.split()[2] == name or line.split()[2].startswith(f"{name}-") for name in names)
    ]


def _uids(standing: Standing) -> set[tuple[str, str, str]]:
    return {(*entry, uid) for entry, (uid, _) in standing.items()}


async def _stage_of(client: Client, namespace: str, name: str) -> str:
    """The value of the config's variable in the serving pods of a deployment; "absent" where it has none."""
    label = f"airunway.ai/model-deployment={name}"
    found = await client.list_all(POD, namespace=namespace, label_selector=label)
    values = set()
    for pod in found:
        if not is_deleting(pod) and not is_of_a_gateway(pod):
            variables = [each for container in pod["spec"]["containers"] for each in container.get("env", ())]
            values |= {each.get("value", "") for each in variables if each["name"] == "STAGE"} or {"absent"}
    return ",".join(sorted(values))
