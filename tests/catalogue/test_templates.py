"""The state of templates on a real API server: configs, hardware, users; no Jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.catalogue.conftest import MODEL, Ground, reasons, running_catalogue
from tests.support.audit import AuditReader, Request

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import EVENT, NODE, Client
from airunway.resource import ObjectKey, Resource, dig
from airunway_catalogue import application
from airunway_catalogue.application import CatalogueApplication

pytestmark = pytest.mark.apiserver

MI300X = {"amd.com/gpu.device-id": "74a1", "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}


@pytest.mark.parametrize("shared", [False, True], ids=["namespaced", "cluster"])
async def test_a_template_without_demands_is_ready_at_once(
    ground: Ground, catalogue: CatalogueApplication, *, shared: bool
) -> None:
    key = await ground.template(cluster=shared)
    ready = await ground.until(key, "Ready")
    assert reasons(ready) == {
        "AuthValid": ("True", "AuthenticationValid"),
        "CacheReady": ("True", "NotEnabled"),
        "ConfigValid": ("True", "ConfigurationValid"),
        "DependenciesReachable": ("True", "Reachable"),
        "DiscoveryReady": ("True", "NotRequested"),
        "HardwareReady": ("True", "NotRequested"),
        "Ready": ("True", "Ready"),
        "RuntimeConfigReady": ("True", "UsingDefaults"),
    }
    assert catalogue.unready() is None


async def test_a_node_that_comes_makes_a_template_ready_and_one_that_goes_takes_it_away(
    ground: Ground, catalogue: CatalogueApplication, resource: str
) -> None:
    key = await ground.template(hardware={"gpu": {"count": 2, "type": resource, "model": "MI300X"}})
    missing = await ground.until(key, "NotAvailable", reason="GPUNotAvailable")
    assert f"no node has 2 x {resource} of model MI300X" in missing["status"]["message"]
    assert reasons(missing)["HardwareReady"] == ("False", "GPUNotAvailable")
    await ground.event(key, "GPUNotAvailable")
    await ground.node("other", labels={"amd.com/gpu.device-id": "740f"}, capacity={resource: "8"})
    name = await ground.node("right", labels=MI300X, capacity={resource: "8", "cpu": "8"})
    ready = await ground.until(key, "Ready")
    assert ready["status"]["hardware"] == {
        "resource": resource,
        "nodes": 1,
        "models": ["MI300X"],
        "tier": 53,
        "requirements": [{"key": "amd.com/gpu.device-id", "operator": "In", "values": ["74a1"]}],
        "summary": "2 x MI300X",
    }
    await ground.remove_node(name)
    gone = await ground.until(key, "NotAvailable")
    assert f"nodes have 8 x {resource} MI210 (64 GiB) on 1 node" in gone["status"]["message"]


async def test_the_cpus_of_a_node_with_the_gpus_count(
    ground: Ground, catalogue: CatalogueApplication, resource: str
) -> None:
    await ground.node("small", labels=MI300X, capacity={resource: "8", "cpu": "16"})
    gpu = {"count": 2, "type": resource, "model": "MI300X"}
    key = await ground.template(hardware={"gpu": gpu, "cpu": "9000m"})
    ready = await ground.until(key, "Ready")
    assert dig(ready, "status", "hardware", "nodes") == 1
    greedy = await ground.template("greedy", hardware={"gpu": gpu, "cpu": "32"})
    missing = await ground.until(greedy, "NotAvailable", reason="InsufficientCapacity")
    assert missing["status"]["message"] == (
        f"no node has 2 x {resource} of model MI300X and 32 CPUs: the largest node with these GPUs has 16 CPUs"
    )
    await ground.event(greedy, "InsufficientCapacity")
    plain = await ground.template("plain", hardware={"cpu": "500"})
    missing = await ground.until(plain, "NotAvailable", reason="InsufficientCapacity")
    assert dig(missing, "status", "hardware", "summary") == "0 of 500 CPUs"
    await ground.node("large", labels={}, capacity={"cpu": "512"})
    ready = await ground.until(plain, "Ready")
    assert ready["status"]["hardware"] == {"nodes": 1, "summary": "500 CPUs"}


async def test_maintenance_takes_no_template_away_and_heartbeats_write_nothing(
    ground: Ground, catalogue: CatalogueApplication, resource: str, audit_log: Path
) -> None:
    name = await ground.node("right", labels=MI300X, capacity={resource: "8", "cpu": "8"})
    key = await ground.template(hardware={"gpu": {"count": 2, "type": resource, "model": "MI300X"}})
    await ground.until(key, "Ready")
    audit = AuditReader(audit_log)

    async def said(text: str) -> bool:
        live = await ground.get(key)
        assert live["status"]["phase"] == "Ready"
        condition = next(each for each in live["status"]["conditions"] if each["type"] == "HardwareReady")
        return bool(condition["message"] == text)

    node = ObjectKey("", name)
    await ground.client.merge_patch(NODE, node, {"spec": {"unschedulable": True}})
    await ground.eventually(lambda: said("1 node has 2 x MI300X; it is cordoned or not Ready"))
    assert dig(await ground.get(key), "status", "hardware", "nodesOutOfService") == 1
    await ground.client.merge_patch(NODE, node, {"spec": {"unschedulable": None}})
    await ground.eventually(lambda: said("1 node has 2 x MI300X"))
    await _beat(ground, node, ready="Unknown", second=0)
    await ground.eventually(lambda: said("1 node has 2 x MI300X; it is cordoned or not Ready"))
    before = await ground.get(key)
    audit.read()
    for second in range(1, 20):
        await _beat(ground, node, ready="Unknown", second=second)
    last = await ground.template("last")
    await ground.until(last, "Ready")
    await asyncio.sleep(4)  # longer than a cordon waits
    assert await ground.get(key) == before
    assert len(status_writes(audit, ground)) == 1, "only that of the template that was made meanwhile"


async def _beat(ground: Ground, node: ObjectKey, *, ready: str, second: int) -> None:
    """A heartbeat, as a kubelet or the node controller writes it."""
    conditions = [
        {
            "type": "Ready",
            "status": ready,
            "reason": "KubeletReady",
            "lastHeartbeatTime": f"2026-01-01T00:00:{second:02}Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    await ground.client.merge_patch(NODE, node, {"status": {"conditions": conditions}}, subresource="status")


async def test_a_label_that_a_node_gets_later_counts(
    ground: Ground, catalogue: CatalogueApplication, resource: str
) -> None:
    name = await ground.node("bare", labels={}, capacity={resource: "8"})
    key = await ground.template(hardware={"gpu": {"type": resource, "minVram": "128Gi"}}, cluster=True)
    await ground.until(key, "NotAvailable")
    await ground.client.merge_patch(NODE, ObjectKey("", name), {"metadata": {"labels": {"amd.com/gpu.vram": "192G"}}})
    ready = await ground.until(key, "Ready")
    assert dig(ready, "status", "hardware", "requirements") == [
        {"key": "amd.com/gpu.vram", "operator": "In", "values": ["192G"]}
    ]


@pytest.mark.parametrize("shared", [False, True], ids=["namespaced", "cluster"])
async def test_a_template_follows_the_config_of_its_namespace_or_of_the_operators(
    ground: Ground, catalogue: CatalogueApplication, *, shared: bool
) -> None:
    where = ground.home if shared else ground.namespace
    key = await ground.template(cluster=shared, runtimeConfigName="team")
    missing = await ground.until(key, "Pending", reason="ConfigNotFound")
    assert reasons(missing)["ConfigValid"] == ("False", "ConfigNotFound")
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "RuntimeConfig",
        "metadata": {"name": "team", "namespace": where},
        "spec": {"env": [{"name": "A", "value": "1"}]},
    }
    await ground.client.apply(RUNTIME_CONFIG, body, manager="platform", force=True)
    ready = await ground.until(key, "Ready")
    reference = {"kind": "RuntimeConfig", "namespace": where, "name": "team"}
    assert ready["status"]["effectiveRuntimeConfig"]["namespaceRef"] == reference


async def use(ground: Ground, name: str, template: ObjectKey | None) -> None:
    """A deployment, with the status that the core gives it."""
    metadata = {"name": name, "namespace": ground.namespace}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata}
    await ground.client.apply(
        MODEL_DEPLOYMENT, {**body, "spec": {"templateRef": {"modelName": MODEL}}}, manager="tests", force=True
    )
    status: Resource = {"phase": "Pending"}
    if template is not None:
        ref: Resource = {"kind": "ClusterModelTemplate", "name": template.name}
        if template.namespace:
            ref = {"kind": "ModelTemplate", "namespace": template.namespace, "name": template.name}
        status["effectiveTemplate"] = {"ref": ref, "scope": "Namespace"}
    await ground.client.apply(
        MODEL_DEPLOYMENT, {**body, "status": status}, manager=names.CORE_MANAGER, force=True, subresource="status"
    )


def status_writes(audit: AuditReader, ground: Ground) -> list[Request]:
    """The writes of templates' statuses in the namespace since the last look."""
    where = ("modeltemplates/status", ground.namespace)
    return [each for each in audit.read() if (each.resource, each.namespace) == where]


async def test_users_are_counted_once_for_all_changes_of_some_seconds(
    ground: Ground, catalogue: CatalogueApplication, audit_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_USERS_LATER", 3.0)
    key = await ground.template()
    await ground.until(key, "Ready")
    audit = AuditReader(audit_log)
    audit.read()
    for number in range(10):
        await use(ground, f"d{number}", key)

    async def counted(number: int) -> bool:
        return bool(dig(await ground.get(key), "status", "usedBy") == number)

    await ground.eventually(lambda: counted(10))
    await ground.client.delete(MODEL_DEPLOYMENT, ObjectKey(ground.namespace, "d0"))
    await use(ground, "d1", None)
    await ground.eventually(lambda: counted(8))
    writes = status_writes(audit, ground)
    assert 2 <= len(writes) <= 4


async def test_users_of_a_cluster_template_are_counted_where_all_namespaces_are_watched(
    ground: Ground, client: Client
) -> None:
    key = await ground.template(cluster=True)
    await use(ground, "one", key)
    async with running_catalogue(client, namespaces=[], home=ground.home):

        async def counted() -> bool:
            return bool(dig(await ground.get(key), "status", "usedBy") == 1)

        await ground.eventually(counted)
    async with running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home):

        async def unknown() -> bool:
            return "usedBy" not in (await ground.get(key))["status"]

        await ground.eventually(unknown)


@pytest.mark.parametrize("watches_default", [True, False])
async def test_events_of_a_cluster_template_are_written_where_its_namespace_default_is_watched(
    ground: Ground, client: Client, resource: str, *, watches_default: bool
) -> None:
    """A role in each watched namespace is all that the catalogue has for events."""
    namespaces = [ground.namespace, ground.home, *(["default"] if watches_default else [])]
    async with running_catalogue(client, namespaces=namespaces, home=ground.home):
        key = await ground.template(cluster=True, hardware={"gpu": {"count": 2, "type": resource}})
        await ground.until(key, "NotAvailable")

        async def reported() -> bool:
            found = await client.list_all(EVENT, namespace="default")
            return any(dig(each, "regarding", "name") == key.name for each in found)

        if watches_default:
            await ground.eventually(reported)
        else:
            await ground.template("later", hardware={"gpu": {"count": 2, "type": resource}})
            await ground.event(ObjectKey(ground.namespace, "later"), "GPUNotAvailable")
            assert not await reported()


async def test_nothing_is_written_while_nothing_happens(
    ground: Ground, client: Client, audit_log: Path, resource: str
) -> None:
    """Nor by a process that starts anew."""
    await ground.node("right", labels=MI300X, capacity={resource: "8"})
    plain = await ground.template("plain")
    gpu = await ground.template("gpu", hardware={"gpu": {"count": 2, "type": resource}})
    absent = await ground.template("absent", hardware={"gpu": {"count": 9, "type": resource}})
    async with running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home):
        for key, phase in ((plain, "Ready"), (gpu, "Ready"), (absent, "NotAvailable")):
            await ground.until(key, phase)
    before = [await ground.get(key) for key in (plain, gpu, absent)]
    audit = AuditReader(audit_log)
    audit.read()
    async with running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home) as again:
        await ground.eventually(lambda: again.unready() is None)
        last = await ground.template("last")
        await ground.until(last, "Ready")  # the others came before it in the queue
        await asyncio.sleep(1)
    assert [await ground.get(key) for key in (plain, gpu, absent)] == before
    written = [
        each for each in audit.read() if each.resource == "modeltemplates/status" and each.namespace == ground.namespace
    ]
    assert len(written) == 1


async def test_weights_that_are_kept_are_shown_and_hold_nothing_back(
    ground: Ground, catalogue: CatalogueApplication
) -> None:
    key = await ground.template(caching={"enabled": True}, modelSources=[{"uri": "hf://acme/tiny"}])
    waiting = await ground.until(key, "Ready")
    assert reasons(waiting)["CacheReady"] == ("False", "WaitingForModelCache")
    (name,) = waiting["status"]["cache"]["artifacts"]
    body = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_ARTIFACT.kind,
        "metadata": {"name": name, "namespace": ground.namespace},
    }
    spec = {"source": {"uri": "hf://acme/tiny"}}
    await ground.client.apply(MODEL_ARTIFACT, {**body, "spec": spec}, manager="tests", force=True)
    for phase, reason, shown, after in (
        ("Degraded", "GatedModel", "0/1", "Degraded"),
        ("Ready", "Ready", "1/1", "Ready"),
    ):
        status = {"phase": phase, "reason": reason, "message": "as it is"}
        await ground.client.apply(
            MODEL_ARTIFACT, {**body, "status": status}, manager="tests", force=True, subresource="status"
        )

        async def seen(shown: str = shown, reason: str = reason) -> bool:
            live = await ground.get(key)
            said = reasons(live)["CacheReady"]
            right = said == ("True", "Warm") if shown == "1/1" else said == ("False", reason)
            return right and dig(live, "status", "cache", "summary") == shown

        await ground.eventually(seen)
        await ground.until(key, after)
