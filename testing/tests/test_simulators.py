"""What simulators share: finding them, and operators that make children where there are no controllers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from airunway.kube import DEPLOYMENT, SERVICE, Client
from airunway.resource import ObjectKey, Resource, controller_owner, dig
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import discover_simulators, load_simulator, simulators_for
from airunway_testing.simulators.scripted import Scripted
from airunway_testing.toy.names import GROUP, MANAGER, TOY


def test_one_that_cannot_be_imported_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Author-review, finding 16: it failed the tests of every other provider in the environment."""
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text(
        "[airunway.simulators]\nbroken = no_such_module:it\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        found = discover_simulators()
    assert "broken" not in found
    assert "toy" in found
    assert "'broken' (no_such_module:it) cannot be imported and is passed over" in caplog.text
    assert [each.name for each in simulators_for([(GROUP, "Toy")])] == ["toy"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load_simulator("broken")


def children(toy: Resource, _scenario: object, _now: str) -> list[tuple[Any, Resource]]:
    name, labels = toy["metadata"]["name"], {"app": "toy"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": toy["spec"]["model"]}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    ready = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    return [
        (DEPLOYMENT, {"metadata": {"name": f"{name}-server", "labels": labels}, "spec": spec, "status": ready}),
        (SERVICE, {"metadata": {"name": name}, "spec": {"selector": labels, "ports": [{"port": 80}]}}),
    ]


@pytest.mark.apiserver
async def test_a_scripted_operator_makes_children_with_the_status_of_their_controllers(
    client: Client, namespace: str, eventually: Callable[..., Any]
) -> None:
    """Author-review, finding 3: a provider that reads what its upstream makes becomes Running on level `api`."""
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())

    def own(toy: Resource, scenario: object, now: str) -> list[tuple[Any, Resource]]:
        """Of the toys of this test: on a control plane that tests share there may be others, with less in them."""
        return children(toy, scenario, now) if toy["metadata"]["namespace"] == namespace else []

    scripted = Scripted(
        client,
        TOY,
        lambda toy, _scenario, _now: {"readyReplicas": 1},
        name="toy",
        manager=MANAGER,
        finalizer=f"{GROUP}/tests",
        keep=lambda toy: {"spec": toy.get("spec")},
        children=own,
    )
    working = asyncio.create_task(scripted.run())
    key = ObjectKey(namespace, "llama")
    spec = {"model": "one", "replicas": 1, "size": 1}
    body = {"apiVersion": TOY.api_version, "kind": TOY.kind, "metadata": {"name": "llama", "namespace": namespace}}
    made = await client.create(TOY, {**body, "spec": spec})

    async def seen(model: str) -> bool:
        if working.done():
            working.result()  # which raises: it has no end of its own
        found = await client.list_all(DEPLOYMENT, namespace=namespace)
        return [
            (
                dig(each, "spec", "template", "spec", "containers")[0]["image"],
                dig(each, "status", "readyReplicas"),
                dig(each, "status", "observedGeneration") == dig(each, "metadata", "generation"),
                (controller_owner(each) or {}).get("uid"),
            )
            for each in found
        ] == [(model, 1, True, dig(made, "metadata", "uid"))]

    try:
        await eventually(lambda: seen("one"))
        (service,) = cast(list[Resource], await eventually(lambda: client.list_all(SERVICE, namespace=namespace)))
        assert (service["metadata"]["name"], controller_owner(service) is not None) == ("llama", True)
        await client.merge_patch(TOY, key, {"spec": {"model": "two"}})
        await eventually(lambda: seen("two"))
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await client.delete(TOY, key)
