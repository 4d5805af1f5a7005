"""Kills at any write, faults on any request, any JSON: afterwards the state is that of an undisturbed run."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.audit import AuditReader
from tests.support.faultproxy import CHAOS, Fault, FaultProxy

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import ApiError, BadRequest, Client, Invalid, Kind, NotFound, Reflector
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, controller_owner, copy_of, dig, is_true, uid_of
from airunway.revisions.revision import is_in_effect
from airunway.revisions.same_spec import taken_for
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import Limits, gone, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
WRITES = ("create", "update", "patch", "apply", "delete")

Make = Callable[..., Resource]


def running(deployment: Resource) -> bool:
    return dig(deployment, "status", "phase") == "Running" and is_true(deployment, "Ready")


def running_at(generation: int) -> Callable[[Resource], bool]:
    return lambda d: running(d) and dig(d, "status", "observedGeneration") == generation


def essence(deployment: Resource) -> Resource:
    """A deployment's status without times and generations, and without what differs from one object to the next.

    The digests of a revision depend on the model, which users change: they are held against the spec instead.
    """
    assert is_in_effect(deployment)
    status = copy_of(deployment["status"])
    for passing in ("selection", "observedGeneration"):
        status.pop(passing, None)
    assert status["revision"].pop("takenFor") == taken_for(deployment["spec"], "")
    assert status["revision"].pop("hash") == status["provider"].pop("revision")
    status["conditions"] = [
        {key: value for key, value in condition.items() if key not in ("lastTransitionTime", "observedGeneration")}
        for condition in status["conditions"]
    ]
    # A label of what serves already waits for the next change of the spec; which came first is left to the storm.
    waits = "changed pod settings ("
    if warnings := [each for each in status.pop("warnings", []) if not each.startswith(waits)]:
        status["warnings"] = warnings
    return status


async def writes_seen(proxy: FaultProxy, count: int) -> None:
    while sum(r.verb in WRITES and r.resource != "events" for r in proxy.requests) < count:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("part", ["core", "provider"])
@pytest.mark.parametrize("kill_after", [1, 2, 3, 4])
async def test_a_kill_after_any_write_changes_nothing(
    part: str,
    kill_after: int,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    namespace: str,
    audit_log: Path,
) -> None:
    """The part is cut off and cancelled while its n-th write is under way or just answered, and started again.

    Its farewell runs into nothing. For SIGKILL see `test_kill.py`.
    """
    audit = AuditReader(audit_log)
    key = ObjectKey(namespace, "gemma")
    async with AsyncExitStack() as undisturbed:
        await undisturbed.enter_async_context(running_simulator(kubeconfig, kaito, level="api"))
        other = running_provider(kubeconfig, kaito) if part == "core" else running_core(kubeconfig)
        await undisturbed.enter_async_context(other)
        async with FaultProxy(kubeconfig) as proxy:
            victim = running_core(proxy.kubeconfig) if part == "core" else running_provider(proxy.kubeconfig, kaito)
            async with victim:
                before = sum(r.verb in WRITES and r.resource != "events" for r in proxy.requests)
                await client.create(MODEL_DEPLOYMENT, manifest())
                # The core writes once only: then the kill comes when everything is done, which must hurt no more.
                await asyncio.wait(
                    [
                        asyncio.ensure_future(writes_seen(proxy, before + kill_after)),
                        asyncio.ensure_future(until(client, key, running)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                proxy.cut_all()
        revived = running_core(kubeconfig) if part == "core" else running_provider(kubeconfig, kaito)
        async with revived:
            await until(client, key, running)
    ours = [r for r in audit.read() if r.namespace == namespace and r.writes and r.name == "gemma" and r.code < 300]
    writes = Counter(r.resource for r in ours if r.agent in ("core", "provider-kaito"))
    assert writes["workspaces"] <= 1  # none where the kill cut off the answer: the audit log has that as a failure
    assert writes["modeldeployments"] <= 1  # the finalizer: none where the kill cut off the answer to the only one
    deployment = await client.get(MODEL_DEPLOYMENT, key)
    assert deployment["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
    (workspace,) = await client.list_all(WORKSPACE, namespace=namespace)
    assert workspace["metadata"]["generation"] == 1


FAULTS = (*CHAOS, Fault("hang"), Fault("freeze", after_events=1))
"""Everything that the proxy can do: stale and half-open connections too."""

SHORT = Limits(request=1.5, silence=2.5)
"""So that a request without an answer, or a half-open watch, is noticed within the test."""


async def user_of(client: Client, make: Make, key: ObjectKey, rng: random.Random) -> bool:
    """Somebody who changes their mind about one deployment; whether it is to be there in the end."""
    await client.create(MODEL_DEPLOYMENT, make(key.name))
    wanted = True
    for number in range(3):
        await asyncio.sleep(rng.uniform(0, 0.4))
        deed = rng.choice(("another model", "label", "suspend", "drift", "lose", "delete"))
        if deed == "another model":
            await edit(client, key, {"spec": {"model": {"id": f"google/other-gguf/{number}.gguf"}}})
        elif deed == "label":
            await edit(client, key, {"metadata": {"labels": {"airunway.ai/team": f"t{number}"}}})
        elif deed == "suspend":
            await edit(client, key, {"spec": {"suspend": True}})
            await asyncio.sleep(rng.uniform(0, 0.3))
            await edit(client, key, {"spec": {"suspend": False}})
        elif deed == "drift":
            with suppress(NotFound):
                drift = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}
                await client.merge_patch(WORKSPACE, key, drift, manager="somebody")
        elif deed == "lose":
            with suppress(NotFound):
                await client.delete(WORKSPACE, key)
        elif deed == "delete":
            await client.delete(MODEL_DEPLOYMENT, key)
            wanted = rng.random() < 0.5
            if not wanted:
                return False
            await gone(client, MODEL_DEPLOYMENT, key)
            await client.create(MODEL_DEPLOYMENT, make(key.name))
    return wanted


async def edit(client: Client, key: ObjectKey, patch: Resource) -> None:
    await client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="user")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_under_chaos_everything_converges_to_the_same_state(
    seed: int,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    namespace: str,
) -> None:
    """Every fault there is, for core and provider at once, while users edit, suspend, delete and meddle.

    What is done, and which faults meet which requests, follows from the seed.
    """
    ahead = timedelta()
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_simulator(kubeconfig, kaito, level="api"),
        running_core(proxy.kubeconfig, limits=SHORT),
        running_provider(proxy.kubeconfig, kaito, limits=SHORT, clock=lambda: datetime.now(UTC) + ahead),
    ):
        await client.create(MODEL_DEPLOYMENT, manifest("calm"))
        calm = essence(await until(client, ObjectKey(namespace, "calm"), running))
        proxy.unleash(seed=seed, rate=0.2, faults=FAULTS)
        keys = [ObjectKey(namespace, f"storm-{number}") for number in range(8)]
        users = [user_of(client, manifest, key, random.Random(f"{seed} {key.name}")) for key in keys]
        wanted = await asyncio.gather(*users)
        await asyncio.sleep(1)
        proxy.clear()
        ahead = timedelta(minutes=3)  # whatever is debounced by minutes has had them
        for key, stays in zip(keys, wanted, strict=True):
            if not stays:
                await gone(client, MODEL_DEPLOYMENT, key)
                continue
            await edit(client, key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}})
            deployment = await until(client, key, settled)
            assert json.loads(json.dumps(essence(deployment)).replace(key.name, "calm")) == calm
            assert deployment["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        there = [ObjectKey(namespace, "calm"), *(key for key, stays in zip(keys, wanted, strict=True) if stays)]
        await only_workspaces_of(client, there)


def settled(deployment: Resource) -> bool:
    """Running, everybody has spoken about the newest generation, and no retry is due that a fault has left behind."""
    generation = deployment["metadata"]["generation"]
    spoken = {dig(condition, "observedGeneration") for condition in dig(deployment, "status", "conditions", default=[])}
    reached = is_true(deployment, "DependenciesReachable")
    return running_at(generation)(deployment) and spoken == {generation} and reached


async def only_workspaces_of(client: Client, keys: list[ObjectKey]) -> None:
    """Each deployment has exactly its own Workspace, and there is no other; the garbage collector may need a moment."""
    owners = {key.name: uid_of(await client.get(MODEL_DEPLOYMENT, key)) for key in keys}
    found: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE):
        while True:
            workspaces = await client.list_all(WORKSPACE, namespace=keys[0].namespace)
            found = {w["metadata"]["name"]: str((controller_owner(w) or {}).get("uid")) for w in workspaces}
            if found.keys() <= owners.keys():
                break
            await asyncio.sleep(0.05)
    assert found == owners


def any_json(rng: random.Random, depth: int = 3) -> Any:
    scalars: list[Any] = [None, True, -1, 2**40, 0.5, "", "x" * 300, "🦙", "kaito", [], {}]
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(scalars)
    if rng.random() < 0.4:
        return [any_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    words = ["spec", "name", "type", "status", "conditions", "replicas", "gpu", "count", "🦙", ""]
    return {rng.choice(words): any_json(rng, depth - 1) for _ in range(rng.randrange(4))}


def assert_clear(error: ApiError) -> None:
    """Anything but 400 and 422 would have been raised; those must say something."""
    assert len(error.message) > 20


async def test_garbage_gets_a_clear_answer_and_others_go_on(
    operator: None, client: Client, manifest: Make, namespace: str
) -> None:
    """Straight to the API, past kubectl: specs, free-form fields, and statuses as an upstream might write them."""
    rng = random.Random(7)
    accepted = 0
    for number in range(120):
        name = f"garbage-{number}"
        body = manifest(name)
        target = rng.choice(["spec", "engine", "overrides", "affinity", "resources", "env", "metadata"])
        if target == "spec":
            body["spec"] = any_json(rng)
        elif target == "metadata":
            body["metadata"]["annotations"] = any_json(rng)
        elif target == "overrides":
            body["spec"]["provider"] = {"name": "kaito", "overrides": any_json(rng)}
        else:
            body["spec"][target] = any_json(rng)
        try:
            await client.create(MODEL_DEPLOYMENT, body)
            accepted += 1
        except (BadRequest, Invalid) as error:
            assert_clear(error)
    assert accepted > 5
    await client.create(MODEL_DEPLOYMENT, manifest("sane"))
    await until(client, ObjectKey(namespace, "sane"), running)
    for number in range(30):
        status = {"state": rng.choice(["Ready", "", "🦙", "Failed"]), "conditions": [], "workerNodes": ["x"]}
        try:
            await client.merge_patch(
                WORKSPACE,
                ObjectKey(namespace, "sane"),
                {"status": {**status, "performance": any_json(rng)}, "metadata": {"annotations": {"n": str(number)}}},
                subresource="status",
                manager="upstream",
            )
        except (BadRequest, Invalid) as error:
            assert_clear(error)
    await client.create(MODEL_DEPLOYMENT, manifest("sane-too"))
    await until(client, ObjectKey(namespace, "sane-too"), running)
    deployments = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)
    reading = asyncio.create_task(deployments.run())
    await deployments.synced.wait()
    reading.cancel()
    unheard = [key.name for key, obj in deployments.items() if dig(obj, "status", "reason") == "WaitingForController"]
    assert unheard == []  # whatever was accepted has a status that says what becomes of it


async def test_an_object_nested_too_deeply_hides_no_other(
    operator: None, client: Client, manifest: Make, namespace: str, kubectl: Kubectl
) -> None:
    """The API server stores what no ordinary decoder reads; it must cost the one who made it, and nobody else."""
    body = manifest("deep")
    body["spec"]["provider"] = {"name": "kaito", "overrides": {"resource": "DEEP"}}
    text = json.dumps(body).replace('"DEEP"', '{"a":' * 1200 + "1" + "}" * 1200)
    kubectl("create", "--raw", MODEL_DEPLOYMENT.path(namespace=namespace), "-f", "-", stdin=text)
    await client.create(MODEL_DEPLOYMENT, manifest("shallow"))
    await until(client, ObjectKey(namespace, "shallow"), running)
    deep = await until(client, ObjectKey(namespace, "deep"), lambda d: condition_of(d, "Validated") is not None)
    assert not is_true(deep, "Validated")
    assert "nested more than 64 deep" in deep["status"]["message"]
    await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, "deep"))


async def test_19_two_writers_lose_nothing(operator: None, client: Client, manifest: Make, namespace: str) -> None:
    """Core and provider write the same status at the same time, again and again: every condition stays."""
    key = ObjectKey(namespace, "gemma")
    await client.create(MODEL_DEPLOYMENT, manifest())
    await until(client, key, running)
    for number in range(10):
        state = "NotReady" if number % 2 else "Ready"
        await asyncio.gather(
            client.merge_patch(
                MODEL_DEPLOYMENT, key, {"spec": {"gateway": {"modelName": f"m-{number}"}}}, manager="user"
            ),
            client.merge_patch(WORKSPACE, key, {"status": {"state": state}}, subresource="status", manager="upstream"),
        )
    final = await until(
        client,
        key,
        lambda d: running(d) and dig(d, "status", "observedGeneration") == d["metadata"]["generation"],
    )
    types = {condition["type"] for condition in final["status"]["conditions"]}
    assert types >= {
        "Validated",
        "EngineSelected",
        "ProviderSelected",
        "ConfigValid",
        "AuthValid",
        "DependenciesReachable",
        "ProviderCompatible",
        "ResourceCreated",
        "Ready",
    }
    writers = {
        entry["manager"]: entry["fieldsV1"]["f:status"]
        for entry in final["metadata"]["managedFields"]
        if entry.get("subresource") == "status"
    }
    owned = {manager: set(fields["f:conditions"]) for manager, fields in writers.items()}
    core, provider = owned[names.CORE_MANAGER], owned[names.provider_manager("kaito")]
    assert core & provider <= {'k:{"type":"Ready"}'}  # handed over from core to provider; nothing else is shared
