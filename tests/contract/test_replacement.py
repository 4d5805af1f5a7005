"""What cannot be changed in place: announced, the old object gone before the new one is made, never two workloads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import shape_of, toy_host, usual

from airunway.api import names
from airunway.kube import CONFIG_MAP, SERVICE, Client, Kind
from airunway.resource import annotations_of, dig, is_deleting, uid_of
from airunway.sdk import (
    Compatibility,
    Context,
    ModelDeployment,
    Observation,
    Observed,
    Transformer,
    Translation,
    UpstreamKind,
    workloads,
)
from airunway_testing.expectations import phase_is, reason_is, running_at, says
from airunway_testing.operator import gone, until
from airunway_testing.simulators.scenarios import ANNOTATION
from airunway_testing.toy import provider
from airunway_testing.toy.names import TOY, TOY_BOX

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]


WRITES_BOXES = Transformer(
    name="box", api_version=TOY_BOX.api_version, kind=TOY_BOX.kind, schema_hashes=("f5505c12792b",)
)


def shaped(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """A Toy; as asked for a ToyBox in its place, or a Toy of another name, or one of another topology."""
    toys = usual(deployment, context)
    toy, *others = toys.objects
    name = deployment.metadata.name
    match shape_of(deployment):
        case "box":
            box = {"apiVersion": "testing.airunway.ai/v1", "kind": "ToyBox", "metadata": {"name": name}, "spec": {}}
            return Translation(objects=(box, *others))
        case "renamed":
            return Translation(objects=({**toy, "metadata": {"name": f"{name}-decode"}}, *others))
        case "two-roles":
            return Translation(objects=toys.objects, replace_on={"components": ["decode", "prefill"]})
        case "wrong" | "wrong-config" as what:
            size = {**toy["spec"], "size": 7}
            if what == "wrong":
                size["replicas"] = "many"
            else:
                others[1] = {**others[1], "data": {"no key": "of a ConfigMap"}}
            return Translation(objects=({**toy, "spec": size}, *others))
        case data if data.startswith("data:"):
            others[1] = {**others[1], "data": {"greeting": data}}
    return Translation(objects=(toy, *others), replace_on={"components": ["server"]})


def watched(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
    """A ToyBox is as good as a ready Toy: nobody acts on it."""
    primary = observed.primary or {}
    if primary.get("kind") == "ToyBox":
        ready = {"type": "Ready", "status": "True", "reason": "Ready"}
        status = {
            "conditions": [ready],
            "readyReplicas": 1,
            "observedGeneration": dig(primary, "metadata", "generation"),
        }
        observed = replace(observed, primary={**primary, "status": status}, objects=({"kind": "ToyPart"},))
    return provider.translate_status(deployment, observed, context)


@pytest.mark.parametrize(
    ("shape", "kind", "name", "cause"),
    [
        pytest.param("box", TOY_BOX, "llama", "Toy to ToyBox", id="kind"),
        pytest.param("renamed", TOY, "llama-decode", "the name llama to llama-decode", id="name"),
    ],
)
async def test_g6a_a_primary_of_another_kind_or_name_is_made_once_the_old_one_is_gone(
    operator: Operator, client: Client, shape: str, kind: Kind, name: str, cause: str
) -> None:
    transformers = (*provider.transformers(), WRITES_BOXES)
    host = toy_host(translate_spec=shaped, translate_status=watched, transformers=transformers)
    user = await operator.provider(host, values={"box": False})
    key, new = await operator.deploy(), operator.key(name)
    await until(client, key, running_at(1))
    # Its operator takes its time: the finalizer stays until it is told otherwise.
    await client.merge_patch(TOY, key, {"metadata": {"annotations": {ANNOTATION: "lingers"}}}, manager="tests")
    await operator.edit(key, shape=shape)
    await operator.exists(TOY, key, is_deleting, what="its deletion")
    said = await until(client, key, says("Waiting until the old Toy 'llama' is gone"))
    assert (said["status"]["reason"], said["status"]["observedGeneration"]) == ("Recreating", 2)
    assert cause in (await operator.event(key, "ResourceRecreated"))["note"]
    assert await operator.at_rest(SERVICE, CONFIG_MAP) == []
    assert await operator.absent(kind, new), "never two workloads"
    await client.merge_patch(TOY, key, {"metadata": {"annotations": {ANNOTATION: "instant"}}}, manager="tests")
    await gone(client, TOY, key)
    running = await until(client, key, running_at(2))
    assert dig(running, "status", "provider", "resourceName") == name
    primary = await client.get(kind, new)
    assert names.TRANSFORMER in annotations_of(primary)
    history = operator.writes(user)
    assert history.index("delete toys llama") < history.index(f"patch {kind.plural} {name}")
    # And back again: the same rule whatever the kind is.
    await until(client, key, running_at(await operator.edit(key, shape="")))
    await gone(client, kind, new)
    history = operator.writes(user)
    assert history.index(f"delete {kind.plural} {name}") < len(history) - 1 - history[::-1].index("patch toys llama")


def fixed(kind: UpstreamKind) -> UpstreamKind:
    return replace(kind, immutable=("data.*",)) if kind == workloads.CONFIG_MAP else kind


async def test_g6c_a_dependent_with_an_immutable_change_is_replaced_by_itself(
    operator: Operator, client: Client
) -> None:
    host = toy_host(translate_spec=shaped, upstream=tuple(map(fixed, provider.manifest.upstream)))
    user = await operator.provider(host)
    key, config = await operator.deploy(), operator.key("llama-toy")
    await until(client, key, running_at(1))
    before, toy = await client.get(CONFIG_MAP, config), await client.get(TOY, key)
    await until(client, key, running_at(await operator.edit(key, shape="data:other")))
    after = await operator.exists(CONFIG_MAP, config, lambda found: uid_of(found) != uid_of(before))
    assert after["data"] == {"greeting": "data:other"}
    assert uid_of(await client.get(TOY, key)) == uid_of(toy)
    assert "data.* cannot be changed in place" in (await operator.event(key, "ResourceRecreated"))["note"]
    assert [write for write in operator.writes(user) if write.startswith("delete")] == ["delete configmaps llama-toy"]


async def test_g6d_another_topology_needs_a_new_primary_and_nothing_else(operator: Operator, client: Client) -> None:
    user = await operator.provider(toy_host(translate_spec=shaped))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    toy = await client.get(TOY, key)
    await until(client, key, running_at(await operator.edit(key, shape="two-roles")))
    assert uid_of(await client.get(TOY, key)) != uid_of(toy)
    assert "components cannot be changed in place" in (await operator.event(key, "ResourceRecreated"))["note"]
    assert [write for write in operator.writes(user) if write.startswith("delete")] == ["delete toys llama"]


async def test_a_recreate_is_announced_once_and_done_while_a_worse_fault_is_in_the_status(
    operator: Operator, client: Client
) -> None:
    """The status names the route that was asked for in vain, and not the recreate, which is only progress."""
    user = await operator.provider(toy_host(translate_spec=shaped))
    key = await operator.deploy(gateway={"enabled": True})
    await until(client, key, reason_is("ProviderResourceReady", "Ready"))
    found = await until(client, key, phase_is("Degraded"))
    assert found["status"]["reason"] == "GatewayNotConfigured"
    toy = await client.get(TOY, key)
    await operator.edit(key, shape="two-roles")
    await operator.exists(TOY, key, lambda found: uid_of(found) != uid_of(toy), what="the new Toy")
    assert operator.writes(user).count("delete toys llama") == 1
    event = await operator.event(key, "ResourceRecreated")
    assert event.get("series") is None, "announced once"
    # Where nothing is to serve, the missing route is no fault.
    await operator.edit(key, suspend=True)
    suspended = await until(client, key, says("Suspended"))
    assert (suspended["status"]["phase"], suspended["status"]["reason"]) == ("Pending", "Suspended")


async def test_another_serving_mode_is_another_object(operator: Operator, client: Client) -> None:
    engine = replace(provider.manifest.engines[0], serving_modes=("aggregated", "disaggregated"))

    def can_handle(_: ModelDeployment, __: Context) -> Compatibility:
        return Compatibility()  # a Toy that serves in both modes

    user = await operator.provider(toy_host(engines=(engine,), can_handle=can_handle))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    toy = await client.get(TOY, key)
    role = {"replicas": 1, "gpu": {"count": 1}, "memory": "8Gi"}
    scaling = {"prefill": role, "decode": role}
    generation = await operator.edit(key, serving={"mode": "disaggregated"}, scaling=scaling, resources=None)
    await until(client, key, running_at(generation))
    assert uid_of(await client.get(TOY, key)) != uid_of(toy)
    assert "spec.serving.mode" in (await operator.event(key, "ResourceRecreated"))["note"]
    history = operator.writes(user)
    assert history.count("delete toys llama") == 1
    assert history.index("delete toys llama") > history.index("patch toys llama")


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        # The Service and the Toy are both called llama, and so says the refusal.
        pytest.param("wrong", "replicas", id="primary"),
        pytest.param("wrong-config", "ConfigMap", id="dependent"),
    ],
)
async def test_g7_b8_a_recreate_that_is_refused_leaves_what_runs_and_says_so_at_once(
    operator: Operator, client: Client, shape: str, text: str
) -> None:
    user = await operator.provider(toy_host(translate_spec=shaped))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    toy = await client.get(TOY, key)
    await operator.edit(key, shape=shape)
    refused = await until(client, key, lambda found: "was refused" in str(dig(found, "status", "message")))
    assert text in refused["status"]["message"]
    assert dig(refused, "status", "endpoint", "service") == key.name
    tries = [r for r in operator.requests() if r.user == user and r.dry_run and r.code >= 400]
    assert len(tries) <= 2, "it is not kept silent for a few tries"
    live = await client.get(TOY, key)
    assert (uid_of(live), is_deleting(live)) == (uid_of(toy), False)
    assert [write for write in operator.writes(user) if write.startswith("delete")] == []
    await until(client, key, running_at(await operator.edit(key, shape="")))
    assert uid_of(await client.get(TOY, key)) == uid_of(toy)


async def test_g24_what_is_dead_is_made_anew_by_the_next_generation_and_not_before(
    operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    toy = await client.get(TOY, key)
    unrecoverable = {"metadata": {"annotations": {ANNOTATION: "fails:BeyondRepair"}}}
    await client.merge_patch(TOY, key, unrecoverable, manager="tests")
    await until(client, key, reason_is("ProviderResourceReady", "BeyondRepair"))
    assert await operator.at_rest(TOY) == []
    assert uid_of(await client.get(TOY, key)) == uid_of(toy)
    await operator.edit(key, shape="anything")  # of no meaning to the Toy itself
    await until(client, key, running_at(2))
    assert uid_of(await client.get(TOY, key)) != uid_of(toy)
    assert "BeyondRepair" in (await operator.event(key, "ResourceRecreated"))["note"]
    assert operator.writes(user).count("delete toys llama") == 1


async def test_g18_what_is_no_longer_wanted_goes_once_the_primary_serves_the_new_spec(
    operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host(translate_spec=hashed))
    key, old, new = await operator.deploy(shape="a"), operator.key("llama-a"), operator.key("llama-b")
    await until(client, key, running_at(1))
    await client.merge_patch(TOY, key, {"metadata": {"annotations": {ANNOTATION: "silent"}}}, manager="tests")
    await operator.edit(key, shape="b", scaling={"replicas": 2})
    await operator.exists(TOY, key, lambda toy: dig(toy, "spec", "replicas") == 2)
    assert await operator.at_rest(TOY, CONFIG_MAP) == []
    assert not await operator.absent(CONFIG_MAP, old), "pods of before still read it"
    assert not await operator.absent(CONFIG_MAP, new)
    await client.merge_patch(TOY, key, {"metadata": {"annotations": {ANNOTATION: "instant"}}}, manager="tests")
    await gone(client, CONFIG_MAP, old)
    await until(client, key, phase_is("Running"))
    assert [write for write in operator.writes(user) if write.startswith("delete")] == ["delete configmaps llama-a"]


def hashed(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """With a ConfigMap whose name follows its content, as upstreams demand that read it once."""
    toys = usual(deployment, context)
    name = f"{deployment.metadata.name}-{shape_of(deployment)}"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {}}
    return Translation(objects=(*toys.objects, config))
