"""What a run made goes again: whatever else goes wrong, and nothing of somebody else's with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from airunway.api.crds import custom_resource_definitions
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Client, Kind, KubeError, NotFound
from airunway.resource import ObjectKey, Resource, key_of
from airunway_testing.e2e.ground import LABEL, Ground

RUN = "0a1b2c3d"
OURS = {"metadata": {"name": f"airunway-e2e-{RUN}", "uid": "1", "labels": {LABEL: RUN}}}


class Cluster:
    """Objects by kind; `broken` kinds cannot be listed."""

    def __init__(self, objects: dict[str, list[Resource]], *, broken: str = "") -> None:
        self.objects, self.broken = objects, broken

    async def list_all(self, kind: Kind, *, namespace: str = "", label_selector: str = "") -> list[Resource]:
        if kind.kind == self.broken:
            raise KubeError("the server is having a bad day")
        key, _, value = label_selector.partition("=")
        there = self.objects.get(kind.kind, [])
        return [
            obj
            for obj in there
            if namespace in ("", obj["metadata"].get("namespace"))
            and (not key or obj["metadata"].get("labels", {}).get(key) == value)
        ]

    async def delete(self, kind: Kind, key: ObjectKey, **_: Any) -> None:
        self.objects[kind.kind] = [obj for obj in self.objects[kind.kind] if key_of(obj) != key]

    async def get(self, kind: Kind, key: ObjectKey) -> Resource:
        for obj in self.objects.get(kind.kind, []):
            if key_of(obj) == key:
                return obj
        raise NotFound(404, "NotFound", str(key))


def ground(cluster: Cluster) -> Ground:
    return Ground(cast(Client, cluster), kubeconfig=Path("none"), context="", run=RUN)


def definitions() -> list[Resource]:
    return [{**crd, "metadata": {**crd["metadata"], "labels": {LABEL: RUN}}} for crd in custom_resource_definitions()]


@pytest.mark.parametrize("broken", ["", MODEL_DEPLOYMENT.kind])
async def test_the_namespace_goes_whatever_becomes_of_the_deployments_in_it(broken: str) -> None:
    cluster = Cluster({"Namespace": [OURS, {"metadata": {"name": "default"}}]}, broken=broken)
    left = await ground(cluster).close()
    assert [key_of(obj).name for obj in cluster.objects["Namespace"]] == ["default"]
    assert left == (["cleaning up, delete deployments: the server is having a bad day"] if broken else [])


async def test_a_definition_that_somebody_has_begun_to_use_is_kept_and_named() -> None:
    theirs: Resource = {"metadata": {"name": "llama", "namespace": "team", "uid": "2"}}
    cluster = Cluster({"CustomResourceDefinition": definitions(), MODEL_DEPLOYMENT.kind: [theirs]})
    (left,) = await ground(cluster).close()
    assert [key_of(crd).name for crd in cluster.objects["CustomResourceDefinition"]] == [
        f"{MODEL_DEPLOYMENT.plural}.{MODEL_DEPLOYMENT.group}"
    ]
    assert "team/llama" in left
    assert cluster.objects[MODEL_DEPLOYMENT.kind] == [theirs]


async def test_definitions_that_nobody_uses_go() -> None:
    cluster = Cluster({"CustomResourceDefinition": definitions()})
    assert await ground(cluster).close() == []
    assert await cluster.list_all(CUSTOM_RESOURCE_DEFINITION) == []
    assert await cluster.list_all(NAMESPACE) == []
