"""Everything that a pass of the catalogue reads of objects of other writers brings a pass when it changes."""

from __future__ import annotations

from catalogue.tests.world import World, template_of
from core.tests.reading import unheeded

from airunway.resource import Resource, copy_of
from airunway_catalogue.caches import READS_OF_ARTIFACT, READS_OF_DEPLOYMENT, used_template

ARTIFACTS: list[Resource] = [
    {"metadata": {"name": "weights", "namespace": "team", "uid": "u"}, "status": status}
    for status in (
        {"phase": "Ready", "reason": "Ready", "message": ""},
        {"phase": "Failed", "reason": "GatedModel", "message": "accept the licence", "completed": {"claimUID": "c"}},
        {},
    )
]


def test_a_pass_reads_nothing_of_a_kept_artifact_whose_change_brings_no_pass() -> None:
    found = World(template=template_of(caching={"enabled": True}))

    def one_pass(artifact: Resource) -> object:
        found.facts |= {"kept": ("weights",), "artifacts": (artifact,)}
        return found.decide().status

    def wakes(old: Resource, new: Resource) -> bool:
        return READS_OF_ARTIFACT.of(old) != READS_OF_ARTIFACT.of(new)

    assert unheeded(one_pass, wakes, ARTIFACTS, besides=()) == set()
    for artifact in ARTIFACTS:
        assert one_pass(READS_OF_ARTIFACT.project(copy_of(artifact))) == one_pass(artifact)


def test_users_are_counted_by_what_is_kept_of_a_deployment() -> None:
    refs = ({"kind": "ModelTemplate", "name": "fast"}, {"kind": "ClusterModelTemplate", "name": "fast"})
    corpus: list[Resource] = [
        {
            "metadata": {"name": "chat", "namespace": "team", "uid": "u", "labels": {"a": "b"}},
            "status": {"effectiveTemplate": {"ref": ref, "hash": "h"}, "phase": "Running"},
        }
        for ref in refs
    ]

    def users(deployment: Resource) -> object:
        return list(used_template(deployment))

    def wakes(old: Resource, new: Resource) -> bool:
        return READS_OF_DEPLOYMENT.of(old) != READS_OF_DEPLOYMENT.of(new)

    assert unheeded(users, wakes, corpus, besides=()) == set()
    for deployment in corpus:
        kept = READS_OF_DEPLOYMENT.project(copy_of(deployment))
        assert users(kept) == users(deployment)
        assert "phase" not in kept["status"]
