"""Letting go, without an API server: when a held object is looked at again, and what is known of our own write."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.views import NOW, made, state

from airunway.api import names
from airunway.kube import MutationCache
from airunway.process.deployment_cache import DeploymentProjection
from airunway.resource import ObjectKey, Resource, copy_of, format_time, key_of
from airunway.runtime.apply import RETRY, Cleanup
from airunway.runtime.memory import Memory

LINGERS = 10.0
"""Seconds for which nobody is named who holds an object."""


class Server:
    """What a releaser asks of an API server that has one deployment, and no watch that tells of it."""

    def __init__(self, deployment: Resource) -> None:
        self.live = copy_of(deployment)
        self.patches = self.reads = 0
        self.said: list[str] = []
        self.deleted: list[str] = []

    async def find(self, kind: Any, key: ObjectKey) -> Resource:
        self.reads += 1
        return copy_of(self.live)

    async def json_patch(self, kind: Any, key: ObjectKey, operations: list[Resource], *, manager: str) -> Resource:
        test, replace = operations
        assert test["value"] == self.live["metadata"]["finalizers"], "it would refuse another list"
        self.patches += 1
        self.live["metadata"] |= {"finalizers": replace["value"], "resourceVersion": "8"}
        return copy_of(self.live)

    async def delete(self, obj: Resource) -> None:
        """As the writer of upstream objects."""
        self.deleted.append(obj["kind"])

    async def write(self, deployment: Resource, status: Resource) -> None:
        """As the writer of a status."""
        self.said.append(status["message"])


def releaser(server: Server, cached: Resource, *, now: Any, projected: bool = False) -> tuple[Cleanup, MutationCache]:
    manager = names.provider_manager("toy")
    project = DeploymentProjection([manager]) if projected else (lambda obj: obj)
    cache = SimpleNamespace(get=lambda _key: project(copy_of(cached)), add_handler=lambda _handler: None)
    overlay = MutationCache(cache, project=project)
    upstream = SimpleNamespace(unread=lambda: (), views=lambda: ())
    writer = SimpleNamespace(
        client=server,
        manager=manager,
        delete=server.delete,
        runs_pods=lambda obj: obj["kind"] == "ReplicaSet",
    )
    parts: dict[str, Any] = {"writer": writer, "upstream": upstream, "status": server}
    parts["events"] = SimpleNamespace(emit=lambda *_args, **_more: None)
    found = Cleanup(
        **cast("Any", parts), deployments=overlay, finalizer=names.provider_finalizer("toy"), clock=lambda: now
    )
    return found, overlay


def deleted(deployment: Resource, *finalizers: str) -> Resource:
    found = copy_of(deployment)
    found["metadata"] |= {
        "resourceVersion": "7",
        "deletionTimestamp": format_time(NOW),
        "finalizers": [*finalizers, names.provider_finalizer("toy")],
    }
    return found


@pytest.mark.parametrize(("seconds", "again", "named"), [(0, 10.0, False), (4, 6.0, False), (11, 300.0, True)])
async def test_a_held_object_is_looked_at_again_when_its_holders_are_to_be_named(
    toy: MakeHost, plain: MakeDeployment, seconds: int, again: float, named: bool
) -> None:
    """And then not before the five minutes are over: whatever happens to the object tells of itself."""
    host, now = toy(), NOW + timedelta(seconds=seconds)
    deployment = deleted(plain())
    objects = made(host, deployment)
    for obj in objects:
        obj["metadata"] |= {"deletionTimestamp": format_time(NOW), "finalizers": ["example.org/cloud-disks"]}
    server = Server(deployment)
    found, _ = releaser(server, deployment, now=now)
    view = state(host, deployment, *objects, now=now)
    assert await found.release(view, Memory()) == again
    assert again not in (RETRY, 0.0)
    assert [("example.org/cloud-disks" in text) for text in server.said] == [named]
    assert server.patches == 0


async def test_who_let_go_knows_it_before_the_watch_says_so(toy: MakeHost, plain: MakeDeployment) -> None:
    """Else the next pass, which anything may bring, would take off a second time what is gone."""
    host, deployment = toy(), deleted(plain())
    server = Server(deployment)
    found, overlay = releaser(server, deployment, now=NOW)
    for _ in range(2):
        known = overlay.get(key_of(deployment))
        assert known is not None
        assert await found.release(state(host, known), Memory()) is None
    assert (server.patches, server.reads) == (1, 0)


@pytest.mark.parametrize("theirs", ["example.com/x{}", "airunway.ai/x{}-provider"])
async def test_h1_hundreds_of_finalizers_before_ours_keep_nobody_from_letting_go(
    toy: MakeHost, plain: MakeDeployment, theirs: str
) -> None:
    host, others = toy(), [theirs.format(i) for i in range(300)]
    deployment = deleted(plain(), *others)
    server = Server(deployment)
    found, overlay = releaser(server, deployment, now=NOW, projected=True)
    known = overlay.get(key_of(deployment))
    assert known is not None
    assert len(known["metadata"]["finalizers"]) < 100
    assert await found.release(state(host, known), Memory()) is None
    assert server.live["metadata"]["finalizers"] == others
    assert (server.patches, server.reads) == (1, 1)


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        (("Thing", "Service", "ConfigMap"), ["Thing"]),
        (("Thing", "ReplicaSet", "Service"), ["Thing", "ReplicaSet"]),
        (("ReplicaSet", "Service"), ["ReplicaSet"]),
        (("Service", "ConfigMap"), ["Service", "ConfigMap"]),
        ((), []),
    ],
)
async def test_what_the_workloads_refer_to_goes_after_them(
    toy: MakeHost, plain: MakeDeployment, there: tuple[str, ...], gone: list[str]
) -> None:
    """An operator may need it for taking leave."""
    host, deployment = toy(), plain()
    primary = made(host, deployment)[0]
    objects = []
    for kind in there:
        obj = copy_of(primary)
        if kind != "Thing":
            obj |= {"kind": kind, "apiVersion": "v1"}
            del obj["metadata"]["annotations"][names.TRANSFORMER]
        objects.append(obj)
    server = Server(deployment)
    found, _ = releaser(server, deployment, now=NOW)
    assert await found.remove_objects(state(host, deployment, *objects)) is (not there)
    assert server.deleted == gone


async def test_a_deletion_that_only_others_hold_names_their_finalizers(toy: MakeHost, plain: MakeDeployment) -> None:
    """B6: the status said for ever that upstream resources are waited for, which were gone."""
    host, deployment = toy(), deleted(plain(), "corp.example/hold")
    server = Server(deployment)
    found, _ = releaser(server, deployment, now=NOW)
    assert await found.release(state(host, deployment), Memory()) is None
    assert server.live["metadata"]["finalizers"] == ["corp.example/hold"]
    (said,) = server.said
    assert said.startswith("Nothing of it is left upstream")
    assert "corp.example/hold" in said
