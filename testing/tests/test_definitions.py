"""CRDs of tests: what is as wanted is left alone, and what another changed or removed meanwhile is put right."""

from __future__ import annotations

import pytest

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client
from airunway.resource import ObjectKey, Resource, dig, key_of, uid_of
from airunway_testing.operator import install_definitions, remove_definition
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.apiserver


@pytest.fixture
def definition() -> Resource:
    return load_simulator("toy").custom_resource_definitions()[0]


async def live(client: Client, definition: Resource) -> Resource:
    return await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(definition))


async def test_what_is_as_wanted_is_not_written(client: Client, definition: Resource) -> None:
    await install_definitions(client, [definition])
    before = await live(client, definition)
    await install_definitions(client, [definition])
    assert (await live(client, definition))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_an_edit_of_another_is_undone(client: Client, definition: Resource) -> None:
    await install_definitions(client, [definition])
    wanted = dig(await live(client, definition), "spec", "names", "shortNames", default=[])
    edit = {"spec": {"names": {"shortNames": ["edited"]}}}
    await client.merge_patch(CUSTOM_RESOURCE_DEFINITION, key_of(definition), edit)
    await install_definitions(client, [{**definition, "spec": with_short_names(definition, wanted)}])
    assert dig(await live(client, definition), "spec", "names", "shortNames", default=[]) == wanted


def with_short_names(definition: Resource, names: list[str]) -> Resource:
    spec: Resource = definition["spec"]
    return {**spec, "names": {**spec["names"], "shortNames": names}}


async def test_one_that_was_removed_is_made_again(client: Client, definition: Resource) -> None:
    await install_definitions(client, [definition])
    before = uid_of(await live(client, definition))
    await remove_definition(client, key_of(definition).name)
    await install_definitions(client, [definition])
    assert uid_of(await live(client, definition)) != before


async def test_another_definition_of_the_same_name_is_written(client: Client, definition: Resource) -> None:
    await install_definitions(client, [definition])
    try:
        await install_definitions(client, [{**definition, "spec": with_short_names(definition, ["another"])}])
        key = ObjectKey("", key_of(definition).name)
        found = await client.get(CUSTOM_RESOURCE_DEFINITION, key)
        assert dig(found, "spec", "names", "shortNames") == ["another"]
    finally:
        await remove_definition(client, key_of(definition).name)
