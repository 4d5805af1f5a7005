"""Finalizers on the real API server: put on and taken off, and nothing else changes."""

from __future__ import annotations

import pytest

from airunway.kube import CONFIG_MAP, Client, Conflict, NotFound, add_finalizer, remove_finalizers
from airunway.resource import Resource, key_of

pytestmark = pytest.mark.apiserver

ME, OURS, THEIRS = "airunway-tests", "tests.airunway.ai/ours", "example.org/theirs"


async def applied(client: Client, namespace: str, *finalizers: str) -> Resource:
    """An object of a user who calls themselves by our name."""
    metadata = {"namespace": namespace, "name": "x", **({"finalizers": list(finalizers)} if finalizers else {})}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}
    return await client.apply(CONFIG_MAP, body, manager=ME)


@pytest.mark.parametrize("present", [(), (THEIRS,)], ids=["the first", "beside another"])
async def test_s2_a_finalizer_takes_nothing_from_a_user_who_has_our_name(
    client: Client, namespace: str, present: tuple[str, ...]
) -> None:
    before = await applied(client, namespace, *present)
    held = await add_finalizer(client, CONFIG_MAP, before, OURS, manager=ME)
    assert held["data"] == {"a": "1"}
    assert held["metadata"]["finalizers"] == [*present, OURS]
    again = await remove_finalizers(client, CONFIG_MAP, held, (OURS,), manager=ME)
    assert again is not None
    assert again["metadata"].get("finalizers", []) == list(present)
    await client.merge_patch(CONFIG_MAP, key_of(before), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("present", [(), (THEIRS,)])
async def test_s2_finalizers_that_changed_meanwhile_are_not_overwritten(
    client: Client, namespace: str, present: tuple[str, ...]
) -> None:
    before = await applied(client, namespace, *present)
    newer = {"metadata": {"finalizers": [*present, "example.org/newer"]}}
    await client.merge_patch(CONFIG_MAP, key_of(before), newer)
    with pytest.raises(Conflict, match="the finalizers changed meanwhile"):
        await add_finalizer(client, CONFIG_MAP, before, OURS, manager=ME)
    live = await client.get(CONFIG_MAP, key_of(before))
    assert live["metadata"]["finalizers"] == [*present, "example.org/newer"]
    await client.merge_patch(CONFIG_MAP, key_of(before), {"metadata": {"finalizers": None}})


async def test_s2_an_object_of_another_life_is_not_held(client: Client, namespace: str) -> None:
    before = await applied(client, namespace)
    await client.delete(CONFIG_MAP, key_of(before))
    with pytest.raises(NotFound):
        await add_finalizer(client, CONFIG_MAP, before, OURS, manager=ME)
    await applied(client, namespace)
    with pytest.raises(Conflict):
        await add_finalizer(client, CONFIG_MAP, before, OURS, manager=ME)
