"""Which pods are asked how far a download is: few, whatever the number of pods that look like a download's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from airunway.api import names
from airunway.artifacts.jobs import SETTINGS, JobStep
from airunway.modelcache.downloads import running_downloads
from airunway.process.jobs import Slots
from airunway.resource import ObjectKey, Resource, key_of, labels_of


def pod(artifact: str, number: int, *, phase: str = "Running", step: JobStep = JobStep.DOWNLOAD) -> Resource:
    return {
        "metadata": {
            "namespace": "team",
            "name": f"{artifact}-{number}",
            "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
            "labels": {names.ARTIFACT: artifact, names.COMPONENT: SETTINGS[step].component},
        },
        "status": {"phase": phase, "podIP": f"10.0.{number // 256}.{number % 256}"},
    }


class FakeCaches:
    """The caches, which count how often the objects of an artifact are looked up."""

    def __init__(self, pods: list[Resource]) -> None:
        self.pods = {key_of(each): each for each in pods}
        self.looked_up = 0

    def artifact(self, key: ObjectKey) -> Resource:
        return {"metadata": {"namespace": key.namespace, "name": key.name, "uid": f"uid-{key.name}"}}

    def owned(self, artifact: Resource) -> Any:
        self.looked_up += 1
        name = key_of(artifact).name
        return SimpleNamespace(
            pods=tuple(each for each in self.pods.values() if labels_of(each)[names.ARTIFACT] == name)
        )


def slots_of(most: int, *holders: str) -> Slots:
    slots = Slots(most, wake=lambda _: None)
    for name in holders:
        slots.claim(ObjectKey("team", name))
    return slots


def asked(caches: Any, slots: Slots) -> list[tuple[str, str, str]]:
    return [(each.artifact.name, each.uid, each.ip) for each in running_downloads(caches, slots)]


def test_of_many_pods_of_one_artifact_the_newest_is_asked() -> None:
    caches = FakeCaches([pod("a", number) for number in range(2000)])
    assert asked(caches, slots_of(10, "a")) == [("a", "uid-a", f"10.0.{1999 // 256}.{1999 % 256}")]
    assert caches.looked_up == 1


def test_no_more_are_asked_than_there_are_slots_and_those_with_a_slot_come_first() -> None:
    caches = FakeCaches([pod(f"a{number}", number) for number in range(300)])
    found = asked(caches, slots_of(3, "a250", "a299"))
    assert {name for name, _, _ in found[:2]} == {"a250", "a299"}
    assert len(found) == caches.looked_up == 3


def test_only_pods_that_download_and_run_are_asked() -> None:
    pods = [
        pod("a", 1, phase="Pending"),
        pod("b", 2, step=JobStep.CHECK_SIZE),
        pod("c", 3),
        pod("c", 4, phase="Failed"),
    ]
    assert asked(FakeCaches(pods), slots_of(10)) == [("c", "uid-c", "10.0.0.3")]
