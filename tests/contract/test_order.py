"""In which order a provider's objects are tried, written and taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import shape_of, toy_host, usual

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, SERVICE, Client, Kind
from airunway.resource import ObjectKey, dig, is_deleting
from airunway.sdk import Context, ModelDeployment, Translation
from airunway_testing.expectations import condition_is, reason_is, running_at
from airunway_testing.operator import gone, until
from airunway_testing.simulators.scenarios import ANNOTATION
from airunway_testing.toy.names import TOY
from airunway_testing.toy.provider import TRANSFORMERS

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

RESOURCES = {"toys", "services", "configmaps"}


# ------------------------------------------------------------------------------------------------- rehearsed, written


def unverified(**changes: Any) -> Any:
    """The toy, which knows none of the schemas that the cluster serves."""
    unknown = tuple(replace(transformer, schema_hashes=("0" * 64,)) for transformer in TRANSFORMERS)
    return toy_host(transformers=unknown, **changes)


def requests_of(operator: Operator, user: str) -> list[tuple[bool, str]]:
    """What was asked to be written, rehearsals and refusals included: whether it was a dry run, and of what."""
    return [
        (request.dry_run, request.resource)
        for request in operator.requests()
        if request.user == user and request.verb in ("patch", "create") and request.resource in RESOURCES
    ]


async def test_under_an_unknown_schema_all_is_rehearsed_before_the_first_write(
    operator: Operator, client: Client
) -> None:
    """A refused primary would else leave the dependents that were written before it."""
    user = await operator.provider(unverified(), values={"box": False})
    key = await operator.deploy()
    running = await until(client, key, running_at(1))
    assert condition_is("ProviderCompatible", "True")(running)
    assert reason_is("ProviderCompatible", "UnverifiedSchema")(running)
    asked = requests_of(operator, user)
    first = next(position for position, (dry_run, _) in enumerate(asked) if not dry_run)
    assert {resource for _, resource in asked[:first]} == RESOURCES
    assert {resource for dry_run, resource in asked[first:] if not dry_run} == RESOURCES
    # One object alone, which a server that is known takes or refuses as a whole.
    before = len(asked)
    await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    assert requests_of(operator, user)[before:][:2] == [(True, "toys"), (False, "toys")]


def wrong(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """A Toy or a ConfigMap that no API server takes, where that is asked for."""
    toy, service, config = usual(deployment, context).objects
    match shape_of(deployment):
        case "toy":
            toy = {**toy, "spec": {**toy["spec"], "replicas": "many"}}
        case "config":
            config = {**config, "data": {"no key": "of a ConfigMap"}}
    return Translation(objects=(toy, service, config))


@pytest.mark.parametrize("shape", ["toy", "config"])
async def test_under_an_unknown_schema_nothing_is_written_where_one_object_is_refused(
    operator: Operator, client: Client, shape: str
) -> None:
    user = await operator.provider(unverified(translate_spec=wrong), values={"box": False})
    key = await operator.deploy(shape=shape)
    await until(client, key, reason_is("ProviderCompatible", "UnsupportedSchema"))
    asked = requests_of(operator, user)
    assert asked, "it was tried"
    assert [resource for dry_run, resource in asked if not dry_run] == []
    for kind in (TOY, SERVICE, CONFIG_MAP):
        held = await client.list_all(kind, namespace=key.namespace)
        assert not [obj for obj in held if dig(obj, "metadata", "name") in ("llama", "llama-toy")]
    await until(client, key, running_at(await operator.edit(key, shape="")))


# ------------------------------------------------------------------------------------------------------- taken away


async def delete(operator: Operator, client: Client, key: ObjectKey) -> None:
    await client.delete(MODEL_DEPLOYMENT, key)


async def suspend(operator: Operator, client: Client, key: ObjectKey) -> None:
    await operator.edit(key, suspend=True)


async def hand_over(operator: Operator, client: Client, key: ObjectKey) -> None:
    await operator.provider(toy_host(name="toy-two"), simulated=False, values={"box": False})
    await operator.edit(key, provider={"name": "toy-two"})


DEPENDENTS: tuple[tuple[Kind, str], ...] = ((SERVICE, "llama"), (CONFIG_MAP, "llama-toy"))


@pytest.mark.parametrize("end", [delete, suspend, hand_over])
async def test_what_the_primary_refers_to_goes_after_it(
    operator: Operator, client: Client, end: Callable[[Operator, Client, ObjectKey], Awaitable[None]]
) -> None:
    """An operator may need it for taking leave: KAITO cannot delete an InferenceSet without its ConfigMap."""
    user = await operator.provider(toy_host(), values={"box": False})
    key = await operator.deploy()
    await until(client, key, running_at(1))
    lingers = {"metadata": {"annotations": {ANNOTATION: "lingers"}}}
    await client.merge_patch(TOY, key, lingers, manager="tests")
    await operator.exists(
        TOY, key, lambda toy: bool(toy["metadata"].get("finalizers")), what="the operator's finalizer"
    )
    await end(operator, client, key)
    await operator.exists(TOY, key, is_deleting, what="its deletion")
    assert await operator.at_rest(SERVICE, CONFIG_MAP) == []
    for kind, name in DEPENDENTS:
        assert not is_deleting(await client.get(kind, operator.key(name)))
    deleted = [write for write in operator.writes(user) if write.startswith("delete")]
    assert set(deleted) == {"delete toys llama"}
    instant = {"metadata": {"annotations": {ANNOTATION: "instant"}}}
    await client.merge_patch(TOY, key, instant, manager="tests")
    if end is delete:
        await gone(client, MODEL_DEPLOYMENT, key)
    elif end is suspend:
        await until(client, key, lambda found: dig(found, "status", "message") == "Suspended")
    else:
        await until(client, key, running_at(2))
    deleted = [write for write in operator.writes(user) if write.startswith("delete")]
    assert deleted[0] == "delete toys llama"
    assert set(deleted[1:]) == {"delete services llama", "delete configmaps llama-toy"}
