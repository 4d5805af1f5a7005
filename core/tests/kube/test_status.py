"""Writing one's part of a status: over the object that it was judged of, and over no other of its name."""

from __future__ import annotations

import pytest

from airunway.kube import Client, Conflict, Kind, MutationCache, Reflector, StatusWriter
from airunway.resource import ObjectKey, Resource

pytestmark = pytest.mark.apiserver

ME = "airunway-tests"


@pytest.fixture
def key(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "w")


@pytest.fixture
def body(widget: Kind, key: ObjectKey) -> Resource:
    metadata = {"namespace": key.namespace, "name": key.name}
    return {"apiVersion": widget.api_version, "kind": widget.kind, "metadata": metadata, "spec": {}}


@pytest.fixture
def writer(client: Client, widget: Kind) -> StatusWriter:
    return StatusWriter(client=client, kind=widget, objects=MutationCache(Reflector(client, widget)), manager=ME)


async def test_what_is_said_of_one_object_is_not_written_to_the_next_of_its_name(
    client: Client, widget: Kind, key: ObjectKey, body: Resource, writer: StatusWriter
) -> None:
    old = await client.create(widget, body)
    await client.delete(widget, key)
    await client.create(widget, body)
    with pytest.raises(Conflict) as refused:
        await writer.write(old, {"provider": {"name": "of the old one"}})
    assert not refused.value.causes
    assert "status" not in await client.get(widget, key)


async def test_an_object_that_is_gone_is_no_trouble(
    client: Client, widget: Kind, key: ObjectKey, body: Resource, writer: StatusWriter
) -> None:
    old = await client.create(widget, body)
    await client.delete(widget, key)
    assert not await writer.write(old, {"phase": "Running"})


async def test_what_was_judged_of_an_older_state_is_judged_again(
    client: Client, widget: Kind, key: ObjectKey, body: Resource, writer: StatusWriter
) -> None:
    old = await client.create(widget, body)
    newer = await client.merge_patch(widget, key, {"spec": {"changed": True}})
    with pytest.raises(Conflict):
        await writer.write(old, {"phase": "Running"})
    assert await writer.write(newer, {"phase": "Running"})
    assert (await client.get(widget, key))["status"] == {"phase": "Running"}


async def test_a_field_of_somebody_else_s_is_a_conflict_that_says_whose(
    client: Client, widget: Kind, key: ObjectKey, body: Resource, writer: StatusWriter
) -> None:
    await client.create(widget, body)
    live = await client.merge_patch(widget, key, {"status": {"phase": "x"}}, subresource="status", manager="somebody")
    with pytest.raises(Conflict) as refused:
        await writer.write(live, {"phase": "Running"}, force=False)
    assert any("somebody" in str(cause) for cause in refused.value.causes)
    assert await writer.write(live, {"phase": "Running"})
