"""Whose an object is: what others made beside a provider's objects is never touched, and stops nothing but itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import shape_of, toy_host, usual

from airunway.api import names
from airunway.kube import CONFIG_MAP, SERVICE, Client
from airunway.resource import ObjectKey, Resource, annotations_of, dig, is_deleting, labels_of, owner_reference, uid_of
from airunway.sdk import Context, ModelDeployment, Translation
from airunway_testing.expectations import condition_is, phase_is, reason_is, running_at
from airunway_testing.operator import gone, until
from airunway_testing.toy.names import TOY

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]


def version_of(obj: Resource) -> tuple[str, object]:
    return uid_of(obj), dig(obj, "metadata", "resourceVersion")


async def test_g5_b7_what_the_core_and_other_providers_made_for_the_deployment_is_never_touched(
    operator: Operator, client: Client
) -> None:
    await operator.provider(toy_host())
    key = await operator.deploy()
    deployment = await until(client, key, running_at(1))
    theirs = []
    for name, labels in (("of-the-core", {}), ("of-another", {names.PROVIDER: "another"})):
        metadata: Resource = {
            "name": name,
            "namespace": key.namespace,
            "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.MODEL_DEPLOYMENT: key.name, **labels},
            "annotations": {names.TRANSFORMER: "v1beta1", names.DEPLOYMENT_UID: uid_of(deployment)},
            "ownerReferences": [owner_reference(deployment)],
        }
        spec = {"ports": [{"port": 80}], "selector": {"app": "none"}}
        theirs.append((SERVICE, await client.create(SERVICE, {**_empty(SERVICE, metadata), "spec": spec})))
        theirs.append((CONFIG_MAP, await client.create(CONFIG_MAP, {**_empty(CONFIG_MAP, metadata), "data": {}})))
        toy = {**_empty(TOY, metadata), "spec": {"model": "another"}}
        theirs.append((TOY, await client.create(TOY, toy)))
    before = await client.get(TOY, key)
    await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    after = await client.get(TOY, key)
    assert (uid_of(after), dig(after, "spec", "replicas")) == (uid_of(before), 2)
    await until(client, key, running_at(await operator.edit(key, model={"id": "org/other"})))  # made anew
    await operator.edit(key, suspend=True)
    await until(client, key, lambda found: dig(found, "status", "message") == "Suspended")
    assert await operator.absent(TOY, key)
    for kind, made in theirs:
        live = await client.get(kind, ObjectKey(key.namespace, made["metadata"]["name"]))
        assert uid_of(live) == uid_of(made)
        if kind is not TOY:  # the simulated operator works on every Toy
            assert version_of(live) == version_of(made)
    user = operator.user(names.provider_manager("toy"))
    assert [write for write in operator.writes(user) if write.rpartition(" ")[2].startswith("of-")] == []


def _empty(kind: Any, metadata: Resource) -> Resource:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


async def test_g5_two_providers_of_one_upstream_leave_each_other_s_objects_alone(
    operator: Operator, client: Client
) -> None:
    await operator.provider(toy_host())
    await operator.provider(toy_host(name="toy-two"), simulated=False)
    one = await operator.deploy("one")
    two = await operator.deploy("two", provider={"name": "toy-two"})
    for key, name in ((one, "toy"), (two, "toy-two")):
        await until(client, key, running_at(1))
        assert labels_of(await client.get(TOY, key))[names.PROVIDER] == name
    users = {name: operator.writes(operator.user(names.provider_manager(name))) for name in ("toy", "toy-two")}
    assert not [write for write in users["toy"] if "two" in write]
    assert not [write for write in users["toy-two"] if write.endswith((" one", " one-toy"))]


async def test_g6b_an_operator_s_child_with_our_labels_and_annotations_is_not_taken_for_the_primary(
    operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    primary = await client.get(TOY, key)
    copied: Resource = {
        "name": "a-child",  # comes first in every order
        "namespace": key.namespace,
        "labels": labels_of(primary),
        "annotations": annotations_of(primary),
        "ownerReferences": [owner_reference(primary)],
    }
    await client.create(TOY, {**_empty(TOY, copied), "spec": primary["spec"]})
    running = await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    assert dig(running, "status", "provider", "resourceName") == key.name
    assert dig(await client.get(TOY, key), "spec", "replicas") == 2
    assert dig(await client.get(TOY, operator.key("a-child")), "spec", "replicas") == 1
    assert [write for write in operator.writes(user) if "a-child" in write or write.startswith("delete")] == []


def more(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """One ConfigMap more where that is asked for."""
    toys = usual(deployment, context)
    if shape_of(deployment) != "more":
        return toys
    another = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}, "data": {"ours": "yes"}}
    return Translation(objects=(*toys.objects, another))


async def test_g16_b7_a_foreign_dependent_holds_back_a_change_and_what_runs_goes_on_serving(
    operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host(translate_spec=more))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    toy = await client.get(TOY, key)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ours": "no"}}
    foreign = await client.create(CONFIG_MAP, {**body, "metadata": {"name": "more", "namespace": key.namespace}})
    await operator.edit(key, shape="more")
    blocked = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
    status = blocked["status"]
    assert "/more exists but is not managed by this ModelDeployment" in status["message"]
    # The newest spec is held back, so it is no longer Running as asked for; but it serves.
    assert (status["phase"], status["replicas"]["ready"]) == ("Degraded", 1)
    assert status["endpoint"]["service"] == key.name
    assert version_of(await client.get(CONFIG_MAP, operator.key("more"))) == version_of(foreign)
    assert uid_of(await client.get(TOY, key)) == uid_of(toy)
    assert [write for write in operator.writes(user) if write.startswith("delete")] == []
    assert await operator.at_rest(TOY) == []
    await client.delete(CONFIG_MAP, operator.key("more"))
    # Nothing of ours watches what is somebody else's: it is looked at again after a while, or with the next change.
    await operator.edit(key, scaling={"replicas": 2})
    await until(client, key, running_at(3))
    assert dig(await client.get(CONFIG_MAP, operator.key("more")), "data", "ours") == "yes"


async def test_a_foreign_dependent_holds_back_a_recreate_and_what_runs_goes_on_serving(
    operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host(translate_spec=more))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    toy = await client.get(TOY, key)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ours": "no"}}
    await client.create(CONFIG_MAP, {**body, "metadata": {"name": "more", "namespace": key.namespace}})
    await operator.edit(key, shape="more", model={"id": "org/other"})
    blocked = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
    assert "/more exists but is not managed by this ModelDeployment" in blocked["status"]["message"]
    assert (blocked["status"]["phase"], blocked["status"]["replicas"]["ready"]) == ("Degraded", 1)
    assert await operator.at_rest(TOY) == []
    live = await client.get(TOY, key)
    assert (uid_of(live), is_deleting(live)) == (uid_of(toy), False)
    assert [write for write in operator.writes(user) if write.startswith("delete")] == []
    await client.delete(CONFIG_MAP, operator.key("more"))
    await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    assert uid_of(await client.get(TOY, key)) != uid_of(toy)


async def test_g16_a_dependent_that_becomes_somebody_else_s_leaves_the_deployment_running(
    operator: Operator, client: Client
) -> None:
    await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    config = operator.key("llama-toy")
    taken = {"metadata": {"labels": None, "annotations": None, "ownerReferences": None}}
    after = await client.merge_patch(CONFIG_MAP, config, taken, manager="somebody")
    blocked = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
    assert blocked["status"]["phase"] == "Running"
    assert blocked["status"]["endpoint"]["service"] == key.name
    assert version_of(await client.get(CONFIG_MAP, config)) == version_of(after)


async def test_g16_at_the_beginning_the_primary_waits_for_a_dependent_whose_name_is_taken(
    operator: Operator, client: Client
) -> None:
    await operator.provider(toy_host())
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    await client.create(CONFIG_MAP, {**body, "metadata": {"name": "llama-toy", "namespace": operator.key().namespace}})
    key = await operator.deploy()
    blocked = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
    assert blocked["status"]["phase"] == "Pending"
    assert "llama-toy exists but is not managed by this ModelDeployment" in blocked["status"]["message"]
    assert await operator.absent(TOY, key)
    await client.delete(CONFIG_MAP, operator.key("llama-toy"))
    await gone(client, CONFIG_MAP, operator.key("llama-toy"))
    await operator.edit(key, scaling={"replicas": 2})
    await until(client, key, phase_is("Running"))
    await until(client, key, condition_is("ResourceCreated", "True"))
