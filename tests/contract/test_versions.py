"""Kinds and versions that come and go while models run: nothing that runs is made anew for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import shape_of, toy_host, usual

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.resource import ObjectKey, Resource, annotations_of, dig, key_of, uid_of
from airunway.runtime.crd_versions import schema_hash
from airunway.sdk import Compatibility, Context, Finding, ModelDeployment, Transformer, Translation, UpstreamKind
from airunway_testing.expectations import phase_is, running_at
from airunway_testing.operator import gone, install_definitions, remove_definition, until
from airunway_testing.simulators import load_simulator
from airunway_testing.toy import provider
from airunway_testing.toy.names import GROUP, PART, TOY, TOY_BOX, TOY_LABEL, TOY_OLD
from airunway_testing.toy.provider import TRANSFORMERS

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

NO_BOX = "no ToyBox is made"


def definition(kind: str) -> Resource:
    return next(
        crd for crd in load_simulator("toy").custom_resource_definitions() if crd["spec"]["names"]["kind"] == kind
    )


def toys(*served: str, storage: str) -> Resource:
    """The CRD of the Toys with those versions served.

    No version loses the other's fields, as conversions between versions promise: without that, the API server itself
    cannot apply in one version what was applied in another.
    """
    crd = definition("Toy")
    for version in crd["spec"]["versions"]:
        version |= {"served": version["name"] in served, "storage": version["name"] == storage}
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    return crd


def registry() -> tuple[Transformer, ...]:
    """The toy's transformers, which know these schemas."""
    hashes = {
        version["name"]: schema_hash(version["schema"]["openAPIV3Schema"])
        for version in toys(storage="")["spec"]["versions"]
    }
    return tuple(replace(transformer, schema_hashes=(hashes[transformer.name],)) for transformer in TRANSFORMERS)


def warns(text: str) -> Callable[[Resource], bool]:
    return lambda found: text in str(dig(found, "status", "warnings"))


def waits(deployment: Resource) -> bool:
    """Whether the status says that the newer transformer waits."""
    return "v1beta1" in dig(deployment, "status", "provider", "newer", "transformers", default=())


def written_by(name: str) -> Callable[[Resource], bool]:
    return lambda toy: annotations_of(toy).get(names.TRANSFORMER) == name


@pytest.fixture
async def toys_as_before(client: Client) -> AsyncIterator[None]:
    yield
    await install_definitions(client, [definition("Toy")])


async def test_g4_b8_a_newer_version_is_served_and_an_old_one_goes_and_nothing_is_made_anew(
    toys_as_before: None, operator: Operator, client: Client
) -> None:
    await install_definitions(client, [toys("v1alpha1", storage="v1alpha1")])
    user = await operator.provider(toy_host(transformers=registry()), simulated=False)  # which works with v1beta1
    keys = [await operator.deploy(f"m{number}") for number in range(5)]
    uids = {}
    for key in keys:
        toy = await operator.exists(TOY_OLD, key)
        assert written_by("v1alpha1")(toy)
        uids[key] = uid_of(toy)
        await ready(client, TOY_OLD, toy)
        await until(client, key, phase_is("Running"))

    await install_definitions(client, [toys("v1alpha1", "v1beta1", storage="v1alpha1")])
    for key in keys:
        await until(client, key, waits)
    assert await operator.at_rest(TOY_OLD) == []
    for key in keys:
        assert written_by("v1alpha1")(await client.get(TOY_OLD, key)), "an object keeps version and transformer"

    adopted, *others = keys
    adopt = {"metadata": {"annotations": {names.ADOPT: "1"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, adopted, adopt, manager="user")
    toy = await operator.exists(TOY, adopted, written_by("v1beta1"))
    assert (dig(toy, "spec", "motor"), uid_of(toy)) == ("vllm", uids[adopted])
    await until(client, adopted, lambda found: not waits(found))
    for key in others:
        assert written_by("v1alpha1")(await client.get(TOY_OLD, key)), "one adoption is one deployment's"
    assert await operator.at_rest(TOY, TOY_OLD) == []

    await install_definitions(client, [toys("v1beta1", storage="v1beta1")])
    for key in keys:
        toy = await operator.exists(TOY, key, written_by("v1beta1"))
        assert (dig(toy, "spec", "motor"), uid_of(toy)) == ("vllm", uids[key])
        await well(client, TOY, toy)
        await until(client, key, lambda found: not waits(found) and phase_is("Running")(found))
    assert [write for write in operator.writes(user) if write.startswith("delete")] == []


async def ready(client: Client, kind: Kind, toy: Resource) -> None:
    """Be the operator: the simulated one needs v1beta1."""
    name = key_of(toy).name
    part = {"name": name, "namespace": key_of(toy).namespace, "labels": {TOY_LABEL: name}}
    await client.create(PART, {"apiVersion": PART.api_version, "kind": PART.kind, "metadata": part})
    await well(client, kind, toy)


async def well(client: Client, kind: Kind, toy: Resource) -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"conditions": [condition], "readyReplicas": 1, "observedGeneration": dig(toy, "metadata", "generation")}
    await client.merge_patch(kind, key_of(toy), {"status": status}, subresource="status", manager="tests")


def without_box(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
    if f"ToyBox.{GROUP}" in context.served:
        return Compatibility()
    return Compatibility(warnings=(Finding(path="", reason="NoBox", message=NO_BOX),))


async def test_g2_b7_an_optional_kind_is_used_from_when_it_is_served_without_touching_what_runs(
    operator: Operator, client: Client
) -> None:
    crd = definition("ToyBox")
    await remove_definition(client, key_of(crd).name)
    user = await operator.provider(toy_host(can_handle=without_box))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    await until(client, key, warns(NO_BOX))
    toy = await client.get(TOY, key)
    await install_definitions(client, [crd])
    await operator.exists(TOY_BOX, key)
    running = await until(client, key, lambda found: not warns(NO_BOX)(found))
    assert running["status"]["phase"] == "Running"
    after = await client.get(TOY, key)
    assert (uid_of(after), dig(after, "metadata", "generation")) == (uid_of(toy), dig(toy, "metadata", "generation"))
    assert operator.writes(user).count("patch toys llama") == 1


OTHER = Kind("boxes.testing.airunway.ai", "v1", "ToyBox", "toyboxes")


def both_boxes(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """A ToyBox of each group that is served; of one group only if that is asked for."""
    toys = usual(deployment, context)
    name = deployment.metadata.name
    other = context.served.get(f"ToyBox.{OTHER.group}")
    if other is None or shape_of(deployment) == "one":
        return toys
    box = {"apiVersion": other.api_version, "kind": "ToyBox", "metadata": {"name": name}, "spec": {"other": True}}
    return Translation(objects=(*toys.objects, box))


def reverted(content: Resource) -> Callable[[Resource], bool]:
    return lambda found: not content.items() <= found["spec"].items()


@pytest.fixture
async def other_boxes(client: Client) -> AsyncIterator[Resource]:
    """A CRD of another group with the same kind, not installed; gone after the test."""
    crd = definition("ToyBox")
    crd["metadata"]["name"] = f"{OTHER.plural}.{OTHER.group}"
    crd["spec"]["group"] = OTHER.group
    yield crd
    await remove_definition(client, key_of(crd).name)


async def test_g3_one_kind_of_two_groups_is_two_kinds(
    other_boxes: Resource, operator: Operator, client: Client
) -> None:
    other = UpstreamKind(group=OTHER.group, kind="ToyBox", plural="toyboxes", versions=("v1",), required=False)
    user = await operator.provider(toy_host(translate_spec=both_boxes, upstream=(*provider.manifest.upstream, other)))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    box = await operator.exists(TOY_BOX, key)
    await install_definitions(client, [other_boxes])
    await operator.exists(OTHER, key)
    # Both are followed: what is changed in one of them is set back there.
    for kind, content in ((TOY_BOX, {"toy": "x"}), (OTHER, {"other": False})):
        await client.merge_patch(kind, key, {"spec": content}, manager="tests")
        await operator.exists(kind, key, reverted(content))
    assert await operator.at_rest(TOY_BOX, OTHER) == []
    await operator.edit(key, shape="one")
    await gone(client, OTHER, key)
    assert uid_of(await client.get(TOY_BOX, ObjectKey(key.namespace, key.name))) == uid_of(box)
    assert operator.writes(user).count("delete toyboxes llama") == 1
