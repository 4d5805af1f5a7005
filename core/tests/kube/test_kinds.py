"""Kinds: the paths of their objects, and names that would make another path of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from core.tests.kube.objects import ME

from airunway.kube import CLUSTER_ROLE, CONFIG_MAP, DEPLOYMENT, NAMESPACE, POD, Client, Kind
from airunway.resource import ObjectKey, Resource


@pytest.mark.parametrize(
    ("kind", "where", "path"),
    [
        (POD, {"namespace": "n", "name": "a"}, "/api/v1/namespaces/n/pods/a"),
        (POD, {}, "/api/v1/pods"),
        (
            DEPLOYMENT,
            {"namespace": "n", "name": "a", "subresource": "status"},
            "/apis/apps/v1/namespaces/n/deployments/a/status",
        ),
        (NAMESPACE, {"name": "a"}, "/api/v1/namespaces/a"),
        (NAMESPACE, {"namespace": "n", "name": "a"}, "/api/v1/namespaces/a"),
        (CLUSTER_ROLE, {"name": "system:a b?c"}, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa%20b%3Fc"),
    ],
)
def test_paths(kind: Kind, where: dict[str, str], path: str) -> None:
    assert kind.path(**where) == path


@pytest.mark.parametrize("name", [".", "..", "a/b", "../secrets", "a%2fb"])
def test_names_that_would_change_the_path(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        POD.path(namespace="n", name=name)
    with pytest.raises(ValueError, match="not a name"):
        POD.path(namespace=name)


def test_addresses_that_are_none() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        POD.path(name="a")
    assert (POD.api_version, DEPLOYMENT.api_version) == ("v1", "apps/v1")
    assert (str(POD), str(DEPLOYMENT)) == ("pods", "deployments.apps")


@pytest.mark.apiserver
async def test_a_write_without_a_name(client: Client, namespace: str) -> None:
    nameless: Resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace}}
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: client.apply(CONFIG_MAP, nameless, manager=ME),
        lambda: client.replace(CONFIG_MAP, nameless),
        lambda: client.merge_patch(CONFIG_MAP, ObjectKey(namespace, ""), {}),
        lambda: client.json_patch(CONFIG_MAP, ObjectKey(namespace, ""), []),
        lambda: client.delete(CONFIG_MAP, ObjectKey(namespace, "")),  # would be the whole collection
        lambda: client.get(CONFIG_MAP, ObjectKey(namespace, "")),
    ]
    for write in writes:
        with pytest.raises(ValueError, match=r"metadata\.name"):
            await write()
    generated = nameless | {"metadata": {"namespace": namespace, "generateName": "g-"}}
    assert (await client.create(CONFIG_MAP, generated))["metadata"]["name"].startswith("g-")
