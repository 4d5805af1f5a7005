"""Every documented event, seen in a real run; and that trouble which repeats itself floods nobody."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.first_seen import SKEW
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import EVENT, POD, Client, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, copy_of, dig, format_time, is_true, owner_reference, uid_of
from airunway.runtime.application import ProviderSettings
from airunway.status.events import EVENTS
from airunway_kaito_simulator.kinds import WORKSPACE
from airunway_testing.operator import install_definitions, running_core, running_provider, running_simulator, until
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.apiserver

ELSEWHERE = {
    *("FinalizerTimeout", "ServiceInterrupted", "UnverifiedSchema", "UnsupportedSchema"),
    *("RouteReady", "RouteNotReady", "RouteConflict", "ShareChanged", "RuntimeConfigChanged"),
    *("ModelCacheReady", "DownloadFailed"),
    *("TemplateReady", "GPUNotAvailable", "InsufficientCapacity", "DiscoveryStarted", "DiscoveryFailed"),
    *("TemplatesMade", "ScanFailed", "ScaledObjectReady", "AutoscalerNotReady"),
}
"""Events that need a world of their own, and have a test of their own: below, in tests/kuberay/test_life.py,
core/tests/gateway/test_routes.py, test_conflicts.py and test_groups.py, core/tests/controller/test_runtime_configs.py,
tests/modelcache/test_cache.py, tests/catalogue, catalogue/tests/test_sources.py and tests/vllm/test_autoscaling.py.
"""

RELATED = {
    "ResourceCreated",
    "ResourceUpdated",
    "ResourceRecreated",
    "DriftDetected",
    "ProviderError",
    "SecretNotFound",
}
"""Events that are about an upstream object as well."""

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Told = Callable[[Client, ObjectKey, str], Awaitable[Resource]]
Eventually = Callable[..., Awaitable[None]]


class Seen(Protocol):
    """Of what conftest.py's story showed: what is looked at here."""

    namespace: str
    events: list[Resource]


def phase_is(phase: str) -> Callable[[Resource], bool]:
    return lambda deployment: dig(deployment, "status", "phase") == phase


async def gone(client: Client, key: ObjectKey) -> bool:
    try:
        await client.get(MODEL_DEPLOYMENT, key)
    except NotFound:
        return True
    return False


def looks_like(event: Resource) -> None:
    """An event has everything that its entry in the registry says."""
    registered = EVENTS[event["reason"]]
    reporters = [f"{names.GROUP}/{emitter.value.replace('<name>', 'kaito')}" for emitter in registered.emitters]
    assert event["type"] == registered.type
    assert event["action"] == registered.action
    assert event["reportingController"] in reporters
    assert event["regarding"]["kind"] in ("ModelDeployment", MODEL_ARTIFACT.kind)
    pattern = ".+".join(re.escape(part) for part in re.split(r"<[^>]+>", registered.note))
    assert re.match(pattern, event["note"]), event["note"]


@pytest.mark.parametrize("reason", sorted(EVENTS.keys() - ELSEWHERE))
def test_every_event_is_seen(seen: Seen, reason: str) -> None:
    found = [event for event in seen.events if event["reason"] == reason]
    assert found, sorted({event["reason"] for event in seen.events})
    for event in found:
        looks_like(event)
        of_artifact = event["regarding"]["kind"] == MODEL_ARTIFACT.kind
        made = ("PersistentVolumeClaim", "Job") if of_artifact else ("Workspace",)
        assert dig(event, "related", "kind") in (made if reason in RELATED else (None,))


def test_no_event_is_unknown(seen: Seen) -> None:
    ours = {event["reason"] for event in seen.events if event["reportingController"].startswith(names.GROUP)}
    assert ours <= set(EVENTS)


def test_nothing_is_told_twice(seen: Seen) -> None:
    notes = [(event["regarding"]["name"], event.get("related"), event["note"]) for event in seen.events]
    assert [note for note in notes if notes.count(note) > 1] == []


def test_the_events_of_a_life_are_in_their_order(seen: Seen) -> None:
    """By name, as an API server lists them and kubectl shows them."""
    story = [event for event in seen.events if event["regarding"]["name"] == "story"]
    reasons = [event["reason"] for event in sorted(story, key=lambda event: str(event["metadata"]["name"]))]
    order = ["EngineSelected", "ProviderSelected", "ResourceCreated", "ResourceUpdated", "DriftDetected"]
    order += ["ResourceRecreated", "ResourceCreated", "ProviderError"]
    assert [reason for reason in reasons if reason in order] == order


# -------------------------------------------------------------------------------------------- events by themselves


async def test_a_finalizer_that_times_out_is_told(
    installed: None, kubeconfig: Path, client: Client, kaito: ProviderHost, manifest: Make, create: Create, told: Told,
    eventually: Eventually, namespace: str,
) -> None:  # fmt: skip
    """With a provider whose clock is further ahead than clocks may be, so that its patience is over at once."""
    own = (namespace,)
    async with (
        running_core(kubeconfig, settings=CoreSettings(namespaces=own)),
        running_provider(
            kubeconfig,
            kaito,
            settings=ProviderSettings(namespaces=own),
            clock=lambda: datetime.now(UTC) + SKEW + timedelta(minutes=5),
        ),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        held = {"metadata": {"finalizers": ["example.org/hold"]}}
        orphan = await client.merge_patch(WORKSPACE, key, held, manager="somebody")
        await client.delete(MODEL_DEPLOYMENT, key)
        event = await told(client, key, "FinalizerTimeout")
        await eventually(lambda: gone(client, key))
    looks_like(event)
    assert f"Workspace {key} may be orphaned" in event["note"]
    assert dig(event, "related", "uid") == uid_of(orphan)
    await client.merge_patch(WORKSPACE, key, {"metadata": {"finalizers": []}}, manager="somebody")


@pytest.mark.parametrize(("verify", "reason"), [(True, "UnverifiedSchema"), (False, "UnsupportedSchema")])
async def test_a_schema_that_nobody_knows_is_told(
    verify: bool, reason: str, kubeconfig: Path, client: Client, kaito: ProviderHost, manifest: Make, create: Create,
    told: Told, eventually: Eventually, namespace: str,
) -> None:  # fmt: skip
    definitions = load_simulator("kaito").custom_resource_definitions()
    newer = copy_of(next(crd for crd in definitions if dig(crd, "spec", "names", "kind") == WORKSPACE.kind))
    for version in newer["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["fromTheFuture"] = {"type": "string"}
    await install_definitions(client, [newer])
    own = (namespace,)
    try:
        async with (
            running_core(kubeconfig, settings=CoreSettings(namespaces=own)),
            running_provider(
                kubeconfig, kaito, settings=ProviderSettings(namespaces=own, verify_unknown_schemas=verify)
            ),
        ):
            key = await create(manifest(provider={"name": "kaito"}))
            event = await told(client, key, reason)
            await client.delete(MODEL_DEPLOYMENT, key)
            await eventually(lambda: gone(client, key))
    finally:
        await install_definitions(client, definitions)
    looks_like(event)


# --------------------------------------------------------------------------------------------------------- no storms


async def make_pod(client: Client, key: ObjectKey) -> ObjectKey:
    """A pod of the deployment on the node of a kubelet that is played by `report`."""
    owner = await client.get(WORKSPACE, key)
    metadata = {
        "name": f"{key.name}-0",
        "namespace": key.namespace,
        "labels": {"kaito.sh/workspace": key.name, names.MODEL_DEPLOYMENT: key.name},
        "ownerReferences": [owner_reference(owner)],
    }
    spec = {"containers": [{"name": "model", "image": "example.org/runner:1"}], "nodeName": "nowhere"}
    await client.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return ObjectKey(key.namespace, f"{key.name}-0")


async def report(client: Client, pod: ObjectKey, *, ready: bool, moment: datetime) -> None:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": format_time(moment)}]
    running = {"running": {"startedAt": format_time(moment - timedelta(hours=1))}}
    container = {"name": "model", "image": "example.org/runner:1", "imageID": "", "restartCount": 0, "state": running}
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container | {"ready": ready}]}
    await client.merge_patch(POD, pod, {"status": status}, subresource="status", manager="kubelet")


async def test_a_model_that_flaps_is_one_event_and_few_writes(
    installed: None, kubeconfig: Path, client: Client, kaito: ProviderHost, manifest: Make, create: Create,
    namespace: str,
) -> None:  # fmt: skip
    flaps, now = 30, datetime.now(UTC)
    own = (namespace,)
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig, settings=CoreSettings(namespaces=own)),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        async with running_provider(proxy.kubeconfig, kaito, settings=ProviderSettings(namespaces=own)):
            key = await create(manifest())
            await until(client, key, phase_is("Running"))
            pod = await make_pod(client, key)
            await report(client, pod, ready=True, moment=now)
            await until(client, key, lambda d: phase_is("Running")(d) and is_true(d, "PodsReady"))
            for number in range(flaps):
                for ready, phase in ((False, "Degraded"), (True, "Running")):
                    await report(client, pod, ready=ready, moment=now + timedelta(seconds=number))
                    await until(client, key, phase_is(phase))
        events = [e for e in await client.list_all(EVENT, namespace=namespace) if e["reason"] == "ProviderError"]
        writes = [r for r in proxy.requests if r.resource == "events" and r.verb in ("create", "patch")]
    # What came last is there, too; and one more if the pod was seen before anything was reported of it.
    assert [dig(event, "series", "count") in (flaps, flaps + 1) for event in events] == [True]
    assert len(writes) < flaps


async def test_a_refusal_that_lasts_is_told_once_however_often_it_is_met(
    installed: None, kubeconfig: Path, client: Client, kaito: ProviderHost, manifest: Make, create: Create, told: Told,
    eventually: Eventually, namespace: str,
) -> None:  # fmt: skip
    own = (namespace,)
    async with FaultProxy(kubeconfig) as proxy, running_core(kubeconfig, settings=CoreSettings(namespaces=own)):
        # In the authorizer's words: any other 403 is a refusal of the object.
        text = 'workspaces.kaito.sh "gemma" is forbidden: User "provider" cannot patch resource "workspaces"'
        fault = Fault("status", verb="apply", resource="workspaces", status=403, reason="Forbidden", count=None)
        proxy.inject(replace(fault, message=text))
        async with running_provider(proxy.kubeconfig, kaito, settings=ProviderSettings(namespaces=own)):
            key = await create(manifest())
            await told(client, key, "ProviderError")
            met = proxy.count("apply", "workspaces")
            for number in range(20):
                touch = {"metadata": {"annotations": {"airunway.ai/touched": str(number)}}}
                await client.merge_patch(MODEL_DEPLOYMENT, key, touch, manager="user")

            async def met_again() -> bool:
                return proxy.count("apply", "workspaces") > met

            await eventually(met_again)
        events = await client.list_all(EVENT, namespace=namespace)
        written = [r for r in proxy.requests if r.resource == "modeldeployments" and r.subresource == "status"]
    told_of = [(e["reason"], dig(e, "series", "count")) for e in events if e["type"] == "Warning"]
    assert told_of == [("ProviderError", None)]
    assert len(written) < 5
