"""Several namespaces read as one, with no more rights than a Role in each of them gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from airunway.kube import CONFIG_MAP, NAMESPACE, NODE, Client, Reflector, UnionReflector, load_config, reflector_of
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE, eventually
from airunway_testing.fixtures import Kubectl

pytestmark = pytest.mark.apiserver

Change = tuple[ObjectKey, bool, bool]


def config_map(namespace: str, name: str, value: str = "1") -> Resource:
    metadata = {"namespace": namespace, "name": name, "labels": {"value": value}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}


@asynccontextmanager
async def following(reflector: UnionReflector | Reflector) -> AsyncIterator[None]:
    running = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await reflector.synced.wait()
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.fixture
def namespaces(kubectl: Kubectl, namespace: str) -> list[str]:
    more = [f"{namespace}-b", f"{namespace}-c"]
    for name in more:
        kubectl("create", "namespace", name)
    return [namespace, *more]


@pytest.fixture
def limited(kubectl: Kubectl, namespaces: list[str], control_plane: Cluster) -> Path:
    """The kubeconfig of a user who may read ConfigMaps in the first two namespaces and nothing else."""
    user = f"reader-{namespaces[0]}"
    for name in namespaces[:2]:
        kubectl("create", "role", "reader", "-n", name, "--verb=get,list,watch", "--resource=configmaps")
        kubectl("create", "rolebinding", "reader", "-n", name, "--role=reader", f"--user={user}")
    return control_plane.kubeconfig_for(user)


async def test_a_role_in_each_namespace_is_enough(client: Client, namespaces: list[str], limited: Path) -> None:
    first, second, third = namespaces
    for name in namespaces:
        await client.create(CONFIG_MAP, config_map(name, "before"))
    async with Client(load_config(kubeconfig=limited)) as reader:
        union = reflector_of(reader, CONFIG_MAP, namespaces=(first, second, first))
        assert isinstance(union, UnionReflector)
        changes: list[Change] = []
        union.add_handler(lambda key, old, new: changes.append((key, old is not None, new is not None)))
        by_value = union.add_index(lambda obj: [obj["metadata"]["labels"]["value"]])
        async with following(union):
            assert sorted(union.keys()) == [ObjectKey(first, "before"), ObjectKey(second, "before")]
            assert ObjectKey(second, "before") in union
            assert list(union) == union.keys()
            assert union.get(ObjectKey(third, "before")) is None
            assert not union.missing
            await client.create(CONFIG_MAP, config_map(second, "later", "2"))
            await client.create(CONFIG_MAP, config_map(third, "later", "2"))
            await client.delete(CONFIG_MAP, ObjectKey(first, "before"))
            await eventually(lambda: len(union) == 2 and ObjectKey(second, "later") in union)
            assert [obj["metadata"]["namespace"] for obj in by_value.get("2")] == [second]
            assert changes[-1] in ((ObjectKey(second, "later"), False, True), (ObjectKey(first, "before"), True, False))
            assert {key.namespace for key, _, _ in changes} == {first, second}
            assert sorted(obj["metadata"]["name"] for obj in union.values()) == ["before", "later"]


async def test_cluster_scoped_kinds_by_name(client: Client, namespaces: list[str]) -> None:
    parts = [Reflector(client, NAMESPACE, field_selector=f"metadata.name={name}") for name in namespaces[:2]]
    union = UnionReflector(parts)
    async with following(union):
        assert {key.name for key in union.keys()} == set(namespaces[:2])  # noqa: SIM118 - not a dict
        assert union.get(ObjectKey("", namespaces[1])) is not None
        assert union.get(ObjectKey("", namespaces[2])) is None


async def test_faults_are_seen_through_the_union(client: Client, namespaces: list[str]) -> None:
    union = reflector_of(client, CONFIG_MAP, namespaces=namespaces)
    assert isinstance(union, UnionReflector)
    causes: list[str] = []
    union.on_restart = causes.append
    assert union.on_restart is not None
    union.on_restart("told")
    assert causes == ["told"]
    union.retry_now()


async def test_what_is_not_limited_is_one_reflector(client: Client) -> None:
    assert isinstance(reflector_of(client, CONFIG_MAP), Reflector)
    assert isinstance(reflector_of(client, CONFIG_MAP, namespaces=("a",)), Reflector)
    assert isinstance(reflector_of(client, NODE, namespaces=("a", "b")), Reflector)


async def test_a_union_of_nothing_or_of_different_kinds_is_an_error(client: Client) -> None:
    with pytest.raises(ValueError, match="one reflector at least"):
        UnionReflector([])
    with pytest.raises(ValueError, match="of the same kind"):
        UnionReflector([Reflector(client, CONFIG_MAP, namespace="a"), Reflector(client, NODE)])
