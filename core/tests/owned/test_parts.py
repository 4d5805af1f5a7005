"""Makes objects as a part does, on a real API server: with an owner, a mark and a field manager, and no provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from core.tests.kube.objects import config_map
from core.tests.kube.recorders import wait_for_events
from core.tests.kube.running import running

from airunway.api import names
from airunway.kube import (
    CONFIG_MAP,
    SERVICE,
    AnyReflector,
    Client,
    Conflict,
    ErrorKind,
    EventRecorder,
    Kind,
    MutationCache,
    NotFound,
    Reflector,
    compact_objects,
)
from airunway.owned import apply
from airunway.owned.apply import FIGHT_REVERTS, Applied, WriteHistory, apply_objects, fight_text
from airunway.owned.objects import Identity, Mark, complete, identity_in, our_labels
from airunway.owned.plan import Action, conflict_text, plan_of
from airunway.owned.writer import Writer
from airunway.resource import ObjectKey, Resource, copy_of, dig, key_of, labels_of, uid_of
from airunway_testing.eventually import Eventually

pytestmark = pytest.mark.apiserver

MANAGER = "airunway-part-of-tests"
MARK = Mark("airunway.ai/part", "tests")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class Written:
    """A kind that the part writes."""

    kind: Kind
    objects: MutationCache
    reflector: AnyReflector


@dataclass(kw_only=True)
class Part:
    """A part that makes ConfigMaps and Services for one owner."""

    client: Client
    owner: Resource
    writer: Writer
    events: EventRecorder
    caches: dict[str, Written]
    mark: Mark = MARK
    history: WriteHistory = field(default_factory=WriteHistory)
    propagated: dict[str, str] = field(default_factory=dict)
    asked: set[tuple[str, ObjectKey]] = field(default_factory=set)
    """Everything that was ever wanted: the watch may not have delivered it yet."""

    def wanted(self, *objects: Resource) -> list[Resource]:
        ours = our_labels(self.owner, self.mark)
        return [complete(obj, owner=self.owner, labels=ours, propagated=self.propagated) for obj in objects]

    def live(self, wanted: Sequence[Resource] = ()) -> dict[Identity, Resource]:
        """The part's objects, and the known ones with the names of the wanted objects."""
        self.asked |= {(obj["kind"], key_of(obj)) for obj in wanted}
        keys = {(one.kind.kind, key_of(obj)) for one in self.caches.values() for obj in one.reflector.values()}
        found = [self.caches[kind].objects.get(key) for kind, key in keys | self.asked if kind in self.caches]
        return {identity_in(obj): obj for obj in found if obj is not None}

    async def apply(self, *objects: Resource, now: datetime = NOW, dependent: Sequence[str] = ()) -> Applied:
        wanted = self.wanted(*objects)
        return await apply_objects(
            self.writer,
            wanted,
            self.live(wanted),
            owner=self.owner,
            mark=self.mark,
            events=self.events,
            history=self.history,
            now=now,
            dependent=[identity_in(obj) for obj in wanted if key_of(obj).name in dependent],
        )

    def actions(self, *objects: Resource) -> list[Action]:
        wanted = self.wanted(*objects)
        plan = plan_of(wanted, self.live(wanted), owner=self.owner, mark=self.mark, manager=MANAGER)
        return [step.action for step in plan.steps]


def data(name: str = "a", *, labels: dict[str, str] | None = None, **values: str) -> Resource:
    metadata: Resource = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": values}


@asynccontextmanager
async def part_of(client: Client, owner: Resource, *, mark: Mark = MARK) -> AsyncIterator[Part]:
    """A part with filled caches of the objects that carry its mark."""
    project = compact_objects(MANAGER)
    namespace, caches = key_of(owner).namespace, {}
    for kind in (CONFIG_MAP, SERVICE):
        selector = f"{mark.key}={mark.value}"
        reflector = Reflector(client, kind, namespace=namespace, label_selector=selector, project=project)
        caches[kind.kind] = Written(kind=kind, objects=MutationCache(reflector, project=project), reflector=reflector)
    first, second = caches.values()
    recorder = EventRecorder(client, component="airunway-tests")
    writer = Writer(client=client, manager=MANAGER, kind_of=lambda obj: caches.get(obj["kind"]))
    async with running(first.reflector), running(second.reflector), running(recorder):
        await first.reflector.synced.wait()
        await second.reflector.synced.wait()
        yield Part(client=client, owner=owner, writer=writer, events=recorder, caches=caches, mark=mark)


@pytest.fixture
async def owner(client: Client, namespace: str) -> Resource:
    """An object that can own others; its kind does not matter to the API server."""
    made = await client.create(CONFIG_MAP, config_map(namespace, "llama"))
    return {"apiVersion": "v1", "kind": "ConfigMap", **made}


@pytest.fixture
async def part(client: Client, owner: Resource) -> AsyncIterator[Part]:
    async with part_of(client, owner) as part:
        yield part


async def live_map(part: Part, name: str = "a") -> Resource:
    return await part.client.get(CONFIG_MAP, ObjectKey(key_of(part.owner).namespace, name))


async def edit(part: Part, name: str, patch: Resource) -> Resource:
    key = ObjectKey(key_of(part.owner).namespace, name)
    return await part.client.merge_patch(CONFIG_MAP, key, patch, manager="editor")


async def test_what_is_wanted_is_created_and_belongs_to_the_owner(part: Part) -> None:
    applied = await part.apply(data("a", x="1"), data("b", y="2"))
    assert [identity.name for identity in applied.live] == ["a", "b"]
    found = await live_map(part)
    assert found["data"] == {"x": "1"}
    (reference,) = found["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == (uid_of(part.owner), True)
    assert labels_of(found) == {names.MANAGED_BY: names.MANAGED_BY_VALUE, MARK.key: MARK.value}
    (event,) = await wait_for_events(part.client, key_of(part.owner).namespace, lambda events: len(events) == 1)
    assert (event["reason"], event["note"]) == ("ResourceCreated", "Created ConfigMap 'b' with ConfigMap 'a'")


async def test_what_is_as_wanted_is_not_written_again(part: Part) -> None:
    await part.apply(data(x="1"))
    before = await live_map(part)
    assert part.actions(data(x="1")) == [Action.KEEP]
    applied = await part.apply(data(x="1"))
    assert applied.live.keys() == {Identity("", "ConfigMap", "a")}
    assert dig(await live_map(part), "metadata", "resourceVersion") == dig(before, "metadata", "resourceVersion")


async def test_what_is_no_longer_wanted_is_deleted_after_the_rest_is_written(
    part: Part, eventually: Eventually
) -> None:
    await part.apply(data("a"), data("b"))
    assert part.actions(data("c")) == [Action.CREATE, Action.DELETE, Action.DELETE]
    await part.apply(data("c"))
    await live_map(part, "c")
    for name in ("a", "b"):
        with pytest.raises(NotFound):
            await live_map(part, name)
    await eventually(lambda: part.actions() == [Action.DELETE])
    await part.apply()
    with pytest.raises(NotFound):
        await live_map(part, "c")


async def test_labels_and_annotations_are_synced_in_place_and_withdrawn(part: Part, eventually: Eventually) -> None:
    part.propagated = {"team": "x", "cost": "7", MARK.key: "wrong"}
    mine = data(labels={"cost": "own"}, x="1")
    await part.apply(mine)
    first = await live_map(part)
    found = labels_of(first)
    assert (found["team"], found["cost"], found[MARK.key]) == ("x", "own", MARK.value)
    part.propagated = {"cost": "8"}
    annotated = copy_of(mine)
    annotated["metadata"]["annotations"] = {"example.org/a": "b"}
    assert part.actions(annotated) == [Action.UPDATE]
    await part.apply(annotated)
    second = await live_map(part)
    assert uid_of(second) == uid_of(first)
    assert "team" not in labels_of(second)
    assert labels_of(second)["cost"] == "own"
    assert second["metadata"]["annotations"]["example.org/a"] == "b"


async def test_a_label_of_another_writer_stays(part: Part, eventually: Eventually) -> None:
    await part.apply(data(x="1"))
    edited = await edit(part, "a", {"metadata": {"labels": {"theirs": "1"}}})
    cache, version = part.caches["ConfigMap"].objects, dig(edited, "metadata", "resourceVersion")
    key = key_of(edited)
    await eventually(lambda: dig(cache.get(key), "metadata", "resourceVersion") == version)
    assert part.actions(data(x="1")) == [Action.KEEP]


async def test_a_foreign_object_is_never_overwritten_and_the_others_are_written(part: Part) -> None:
    """No cache of the part shows the object: it carries no mark. The create finds it."""
    namespace = key_of(part.owner).namespace
    web = await part.client.create(CONFIG_MAP, config_map(namespace, "web"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": uid_of(web), "controller": True}
    theirs = config_map(namespace, "a", theirs="yes")
    theirs["metadata"]["ownerReferences"] = [reference]
    before = await part.client.create(CONFIG_MAP, theirs)
    applied = await part.apply(data("a", x="1"), data("b"))
    (step,) = applied.foreign
    assert step.wanted is not None
    assert step.live is not None
    assert conflict_text(step.wanted, step.live, owner_kind="ModelArtifact") == (
        f"ConfigMap {namespace}/a exists but is not managed by this ModelArtifact (owned by ConfigMap/web); "
        "rename one of them or delete it"
    )
    assert applied.again == apply.CONFLICT_RETRY
    assert [identity.name for identity in applied.live] == ["b"]
    after = await live_map(part)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert after["data"] == {"theirs": "yes"}


async def test_two_parts_of_one_owner_do_not_touch_each_other_s_objects(part: Part) -> None:
    async with part_of(part.client, part.owner, mark=Mark(MARK.key, "other")) as other:
        await part.apply(data("a", x="1"))
        applied = await other.apply(data("a", x="2"), data("b"))
        assert [step.action for step in applied.foreign] == [Action.FOREIGN]
        assert (await live_map(part))["data"] == {"x": "1"}
        await part.apply()
        await live_map(part, "b")
        with pytest.raises(NotFound):
            await live_map(part, "a")


async def test_an_object_of_a_deployment_of_the_same_name_is_foreign(part: Part, owner: Resource) -> None:
    await part.apply(data("a", x="1"))
    again = {**owner, "metadata": {**owner["metadata"], "uid": "another"}}
    async with part_of(part.client, again) as successor:
        assert successor.actions(data("a", x="1")) == [Action.FOREIGN]


async def test_an_object_replaced_in_the_meantime_is_not_taken_over(part: Part) -> None:
    """The apply and the delete carry the uid of the object that the plan has seen."""
    await part.apply(data(x="1"))
    seen = part.live()[Identity("", "ConfigMap", "a")]
    await part.client.delete(CONFIG_MAP, key_of(seen))
    theirs = await part.client.create(CONFIG_MAP, config_map(key_of(seen).namespace, "a", theirs="yes"))
    with pytest.raises(Conflict):
        await part.writer.apply(part.wanted(data(x="2"))[0], seen)
    with pytest.raises(Conflict):
        await part.writer.delete(seen)
    assert uid_of(await live_map(part)) == uid_of(theirs)


async def test_drift_is_reverted_and_a_fight_is_slowed_down(part: Part, eventually: Eventually) -> None:
    await part.apply(data(x="1"))
    cache = part.caches["ConfigMap"].objects
    applied = None
    for number in range(FIGHT_REVERTS + 2):
        edited = await edit(part, "a", {"data": {"x": f"theirs-{number}"}})
        key = key_of(edited)
        await eventually(lambda value=f"theirs-{number}", key=key: dig(cache.get(key), "data", "x") == value)  # type: ignore[misc]
        applied = await part.apply(data(x="1"), now=NOW + timedelta(seconds=number))
    assert applied is not None
    assert (await live_map(part))["data"] == {"x": f"theirs-{FIGHT_REVERTS + 1}"}, "held back"
    assert "ConfigMap 'a' was changed and reverted more than 5 times" in fight_text(applied.fought)
    assert applied.again is not None
    assert applied.again > 0
    later = await part.apply(data(x="1"), now=NOW + timedelta(seconds=FIGHT_REVERTS + 1 + 31))
    assert (await live_map(part))["data"] == {"x": "1"}
    assert later.fought
    events = await wait_for_events(
        part.client,
        key_of(part.owner).namespace,
        lambda events: any(event["reason"] == "DriftDetected" for event in events),
    )
    (drift,) = [event for event in events if event["reason"] == "DriftDetected"]
    assert drift["note"] == "ConfigMap 'a' was modified directly, reconciling: data.x (by editor)"


NO_PORTS: Resource = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": []}}
"""An object that the API server refuses."""


async def test_a_refused_object_is_named_and_keeps_nothing_else_from_being_written(part: Part) -> None:
    await part.apply(data("obsolete", x="1"))
    applied = await part.apply(data("before", x="1"), NO_PORTS, data("after", x="1"))
    (refusal,) = applied.refused
    assert str(refusal).startswith("Service 's' was refused")
    assert refusal.policy.reason == "InvalidSpec"
    assert sorted(one.name for one in applied.live) == ["after", "before"]
    for name in ("before", "after"):
        assert (await live_map(part, name))["data"] == {"x": "1"}
    with pytest.raises(NotFound):
        await live_map(part, "obsolete")


async def test_an_object_that_depends_on_a_refused_one_is_left_as_it_is(part: Part) -> None:
    await part.apply(data("a", x="1"))
    applied = await part.apply(NO_PORTS, data("a", x="2"), dependent=("a",))
    assert len(applied.refused) == 1
    assert (await live_map(part))["data"] == {"x": "1"}
    await part.apply(data("a", x="2"), dependent=("a",))
    assert (await live_map(part))["data"] == {"x": "2"}


async def test_a_kind_that_is_not_served_is_refused_without_a_request(part: Part) -> None:
    route: Resource = {"apiVersion": "example.org/v1", "kind": "Route", "metadata": {"name": "r"}}
    (refusal,) = (await part.apply(route)).refused
    assert "does not serve Route in" in str(refusal)
    assert refusal.kind is ErrorKind.KIND_NOT_SERVED
    assert refusal.policy.pending
