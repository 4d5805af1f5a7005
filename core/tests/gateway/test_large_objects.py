"""What the gateway part keeps of an object with its label is bounded by the object's JSON, and is read as it was."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.support.memory import memory_of

from airunway.api import names
from airunway.gateway.caches import GatewayCaches
from airunway.process.caches import Caches
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, copy_of, key_of


def gateway_caches() -> GatewayCaches:
    unused: Any = None  # no API server is asked
    return GatewayCaches(
        Caches(unused, project=lambda obj: obj, metrics=Metrics("core")),
        notify=lambda _: None,
        on_reference=lambda _kind, _key: None,
        on_gateway=lambda _: None,
        on_choice=lambda: None,
        trusted=(),
        by_label=False,
    )


def config_map(*, data: Resource | None = None, labels: Resource | None = None) -> Resource:
    mark = {names.PART: names.GATEWAY_PART, names.MODEL_DEPLOYMENT: "m"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": "b",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {**mark, **(labels or {})},
        },
        "data": data or {},
    }


LARGE = {
    "data": config_map(data={f"k{i}": "" for i in range(90_000)}),
    "labels": config_map(labels={f"k{i}": "" for i in range(90_000)}),
}


@pytest.mark.parametrize("title", LARGE)
def test_a_large_object_takes_no_more_memory_than_its_json(title: str) -> None:
    caches, obj = gateway_caches(), LARGE[title]
    assert memory_of(caches._project(copy_of(obj))) <= len(orjson.dumps(obj)) + 4 * 2**10
    view = caches._views["", "ConfigMap"]
    view.objects.note(copy_of(obj))  # as an answer of the API server comes into the cache
    assert view.objects.get(ObjectKey("b", "a")) == obj


def test_an_object_of_a_usual_size_is_kept_as_it_is() -> None:
    obj = config_map(data={"config.yaml": "x" * 4096})
    assert gateway_caches()._project(copy_of(obj)) == obj


def test_large_objects_that_a_user_labels_as_a_deployments_are_not_read_in_a_pass() -> None:
    """Only by name, or with the uid of the deployment."""
    caches = gateway_caches()
    view = caches._views["", "ConfigMap"]
    shared: Any = view.reflector
    reflector = shared._source.reflector
    shared.synced.set()
    for number in range(5):
        obj = copy_of(LARGE["data"])
        obj["metadata"] |= {"name": f"c{number}", "uid": f"u{number}"}
        if number == 3:
            obj["metadata"]["ownerReferences"] = [{"uid": "ours", "kind": "ModelDeployment", "name": "m"}]
        reflector._store(ObjectKey("b", f"c{number}"), None, obj)
    deployment: Resource = {"metadata": {"name": "m", "namespace": "b", "uid": "ours"}}
    assert {key_of(obj).name for obj in caches.known(deployment).values()} == {"c3"}
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1", "namespace": "b"}}
    found = caches.known(deployment, [wanted])
    assert {identity.name for identity in found} == {"c1", "c3"}
    assert all("data" in obj for obj in found.values())
