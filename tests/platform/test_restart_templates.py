"""Nothing that serves is restarted by an edit or the removal of a template: five providers, one template, on a cluster.

Core, its parts and providers are one process, which is killed and started again in between.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.platform.fleet import CONFIG, Fleet, is_of_a_gateway, kinds_written, prepared, process_of, upstream_writes
from tests.platform.test_restart import ALLOWED, Observed
from tests.support.audit import AuditReader
from tests.support.cluster_fixtures import with_gpus

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_SOURCE, MODEL_TEMPLATE
from airunway.kube import POD, Client
from airunway.plugins.registry import load
from airunway.resource import Resource, condition_of, dig, is_deleting, is_true
from airunway.revisions.revision import is_in_effect, pending_parts
from airunway_testing.eventually import PATIENCE, eventually
from airunway_testing.expectations import phase_is, reason_is, running_at
from airunway_testing.operator import install_definitions, remove_definition, running_simulator, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

PROVIDERS = ("kaito", "vllm", "llmd", "kuberay", "dynamo")
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
OTHER = "Qwen/Qwen2.5-7B-Instruct"


async def write(fleet: Fleet, name: str, stage: str, *, model: str = MODEL) -> None:
    """A template whose pods have this value in a variable."""
    defaults = {
        "engine": {"type": "vllm"},
        "resources": {"gpu": {"count": 1}},
        "env": [{"name": "STAGE", "value": stage}],
    }
    body = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": name, "namespace": fleet.namespace},
        "spec": {"modelName": model, "defaults": defaults},
    }
    await fleet.client.apply(MODEL_TEMPLATE, body, manager="platform", force=True)


async def _nodes_come(fleet: Fleet, name: str) -> None:
    """What the catalogue writes of a template once it has found nodes for it."""
    requirement = {"key": "type", "operator": "In", "values": ["kwok"]}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": name, "namespace": fleet.namespace},
        "status": {"phase": "Ready", "hardware": {"resource": "nvidia.com/gpu", "requirements": [requirement]}},
    }
    manager = "airunway-catalogue"
    await fleet.client.apply(MODEL_TEMPLATE, body, manager=manager, force=True, subresource="status")


async def test_edits_and_removal_of_a_template_restart_nothing_that_serves(
    kubeconfig: Path, client: Client, namespace: str, audit_log: Path, tmp_path: Path
) -> None:
    await prepared(client, extension=False)
    fleet = Fleet(client=client, namespace=namespace, names=list(PROVIDERS), kinds=kinds_written())
    hosts = [load(name) for name in PROVIDERS]
    async with with_gpus(client, 40), running_simulator(kubeconfig, *hosts, level="cluster"):
        try:
            await _story(fleet, kubeconfig, AuditReader(audit_log), tmp_path)
        finally:
            await install_definitions(client)


async def _story(fleet: Fleet, kubeconfig: Path, audit: AuditReader, folder: Path) -> None:
    client, namespace = fleet.client, fleet.namespace
    await fleet.configure(rollout="OnNextChange")
    await write(fleet, "fast", "one")
    async with process_of(kubeconfig, folder) as process:
        for name in PROVIDERS:
            await _deploy(fleet, name)
        await fleet.every(_serves_with("fast"), what="Running with only a template")
        await fleet.settled()
        before = await fleet.standing()
        assert {"Workspace", "Deployment", "RayService", "DynamoGraphDeployment"} <= {kind for kind, _ in before}
        for name in PROVIDERS:
            assert await _stage_of(fleet, name) == {"one"}, name
        audit.read()

        await write(fleet, "fast", "two")
        await fleet.every(_warns, what="a warning that newer values wait")
        await fleet.settled()
        assert upstream_writes(audit.read(), namespace) == []
        assert await fleet.standing() == before
        process.kill()

    await client.delete(MODEL_TEMPLATE, fleet.key("fast"))
    async with process_of(kubeconfig, folder) as process:
        await fleet.every(reason_is("TemplateReady", "TemplateNotFound"), what="the missing template")
        await fleet.every(phase_is("Degraded"), what="Degraded")
        for kind in (MODEL_TEMPLATE, CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE):
            await remove_definition(client, f"{kind.plural}.{kind.group}")
        await fleet.settled()
        assert upstream_writes(audit.read(), namespace) == []
        assert await fleet.standing() == before
        process.kill()

    async with process_of(kubeconfig, folder) as process:  # it starts without the kinds
        await until(client, fleet.key("vllm"), phase_is("Degraded"))
        await fleet.settled()
        assert upstream_writes(audit.read(), namespace) == []
        assert await fleet.standing() == before
        await install_definitions(client)
        await write(fleet, "fast", "three")
        await fleet.every(phase_is("Running"), what="Running again", within=2 * PATIENCE)
        await fleet.every(_warns, what="a warning that newer values wait")
        await fleet.settled()
        assert upstream_writes(audit.read(), namespace) == []
        assert await fleet.standing() == before

        async with Observed(client, namespace) as observed:
            await fleet.configure(rollout="Immediately", maxConcurrentRollouts=ALLOWED)
            await fleet.every(_has_newest, what="the newest values in effect", within=PATIENCE * len(PROVIDERS))
        assert observed.most <= ALLOWED, observed.worst
        for name in PROVIDERS:
            await _staged(fleet, name, "three")
        await fleet.settled()

        before = await fleet.standing()
        audit.read()
        await _nodes_come(fleet, "fast")
        await fleet.every(_has_no_nodes, what="no node affinity, as before")
        await fleet.settled()
        assert upstream_writes(audit.read(), namespace) == [], "rollout: Immediately is about edits"
        assert await fleet.standing() == before

        await fleet.configure(rollout="OnNextChange")
        await write(fleet, "same", "four")
        await write(fleet, "other", "five", model=OTHER)
        uids = {name: await _primary(fleet, name) for name in PROVIDERS}
        await _renamed(fleet, "same", "four")
        for name in PROVIDERS:
            kept = await _primary(fleet, name) == uids[name]
            assert kept is (name != "kaito"), f"{name}: another variable applies in place; KAITO has no update of pods"
        uids = {name: await _primary(fleet, name) for name in PROVIDERS}
        await _renamed(fleet, "other", "five")
        for name in PROVIDERS:
            assert await _primary(fleet, name) != uids[name], f"{name}: another model is made anew"


async def _deploy(fleet: Fleet, name: str) -> None:
    """A deployment with only a template, and the provider that is to run it."""
    body = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": fleet.namespace},
        "spec": {"templateRef": {"name": "fast"}, "provider": {"name": name}, "runtimeConfigName": CONFIG},
    }
    await fleet.client.create(MODEL_DEPLOYMENT, body, manager="user")


async def _renamed(fleet: Fleet, template: str, stage: str) -> None:
    """Let all name another template, and wait until each serves with it, and with its variable only."""
    generations = {name: await fleet.edit(name, {"templateRef": {"name": template}}) for name in PROVIDERS}
    for name, generation in generations.items():

        def holds(found: Resource, generation: int = generation) -> bool:
            return running_at(generation)(found) and _serves_with(template)(found)

        await until(fleet.client, fleet.key(name), holds, what=f"{name} with template {template}")
        await _staged(fleet, name, stage)
    await fleet.settled()


async def _primary(fleet: Fleet, name: str) -> str:
    """The uid of the upstream object that stands for a deployment."""
    found = await fleet.client.get(MODEL_DEPLOYMENT, fleet.key(name))
    kind, called = (dig(found, "status", "provider", field) for field in ("resourceKind", "resourceName"))
    uid, _ = (await fleet.standing())[str(kind), str(called)]
    return uid


async def _stage_of(fleet: Fleet, name: str) -> set[str]:
    """The values of the template's variable in the serving pods of a deployment."""
    label = f"{names.MODEL_DEPLOYMENT}={name}"
    values: set[Any] = set()
    for pod in await fleet.client.list_all(POD, namespace=fleet.namespace, label_selector=label):
        if not is_deleting(pod) and not is_of_a_gateway(pod):
            variables = [each for container in pod["spec"]["containers"] for each in container.get("env", ())]
            values |= {each.get("value") for each in variables if each["name"] == "STAGE"}
    return values


async def _staged(fleet: Fleet, name: str, stage: str) -> None:
    """Wait until only pods with this value are left: an upstream may let the old ones go after the new ones serve."""

    async def left() -> bool:
        return await _stage_of(fleet, name) == {stage}

    try:
        await eventually(left)
    except AssertionError as error:
        raise AssertionError(f"{name}: {await _stage_of(fleet, name)} instead of {stage}") from error


def _serves_with(template: str) -> Callable[[Resource], bool]:
    def holds(found: Resource) -> bool:
        named = dig(found, "status", "effectiveTemplate", "ref", "name") == template
        return named and phase_is("Running")(found) and _has_newest(found)

    return holds


def _has_newest(found: Resource) -> bool:
    """Whether what serves has all that the template gives."""
    return is_in_effect(found) and not _waits(found) and is_true(found, "Ready")


def _waits(found: Resource) -> bool:
    return dig(found, "status", "effectiveTemplate", "newerHash") is not None


def _has_no_nodes(found: Resource) -> bool:
    text = str(dig(condition_of(found, "TemplateReady"), "message"))
    return phase_is("Running")(found) and "without the node affinity for its GPUs" in text


def _warns(found: Resource) -> bool:
    return pending_parts(found) == {"template"}
