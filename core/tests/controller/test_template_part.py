"""What the template adds to the core's decision: choice, record, and what keeps."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.api import names
from airunway.process.deployment_cache import DeploymentProjection
from airunway.resource import Resource, copy_of, filled, text_at
from airunway.revisions.revision import TEMPLATE as PART
from airunway.revisions.revision import hash_of, revision_in
from airunway.revisions.same_spec import adopted_by
from airunway.templates.contribution import contribution_of
from airunway.templates.expansion import OWN_SPEC
from airunway.templates.part import TemplatePart, TemplateSource, source_among, taken_of, template_part

TEMPLATE: Resource = {
    "kind": "ModelTemplate",
    "metadata": {"name": "fast", "namespace": "team"},
    "spec": {"modelName": "org/m", "defaults": {"engine": {"args": {"a": "1"}}}},
}
DEPLOYMENT: Resource = {
    "metadata": {"name": "d", "namespace": "team", "uid": "u", "generation": 1},
    "spec": {"templateRef": {"name": "fast"}, "scaling": {"replicas": 1}},
}


def part_of(deployment: Resource, templates: TemplateSource, **how: Any) -> TemplatePart:
    """The part of a deployment as the cache has it."""
    if OWN_SPEC not in deployment:
        deployment = DeploymentProjection([names.CORE_MANAGER])(copy_of(deployment))
    return template_part(deployment, templates, **how)


def source(*found: Resource) -> TemplateSource:
    return source_among(found)


def cached(part: TemplatePart, *, served: bool = False, held: bool = True, **spec: Any) -> Resource:
    """The deployment as the cache has it once `part` was written; `spec` replaces fields of the user's own spec."""
    before = text_at(revision_in(part.deployment), "adopted")
    adopted = adopted_by(part.deployment, before)
    revision = {"takenFor": taken_of(part.deployment), **filled(adopted=adopted, template=part.value)}
    status: Resource = {**part.status, "revision": {"hash": hash_of(revision), **revision}}
    if served:
        status["conditions"] = [{"type": "Served", "status": "True"}]
    finalizers = [names.provider_finalizer("p")] if held else []
    stored = {
        **DEPLOYMENT,
        "metadata": {**DEPLOYMENT["metadata"], "finalizers": finalizers},
        "spec": {**DEPLOYMENT["spec"], **spec},
        "status": status,
    }
    return DeploymentProjection([names.CORE_MANAGER])(copy_of(stored))


def edited(args: str = "2") -> Resource:
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], "defaults": {"engine": {"args": {"a": args}}}}}


def flags(part: TemplatePart) -> object:
    return part.deployment["spec"]["engine"]["args"]


def test_the_first_pass_works_on_the_effective_spec_and_records_it() -> None:
    part = part_of(DEPLOYMENT, source(TEMPLATE))
    assert part.deployment["spec"] == {
        "model": {"id": "org/m"},
        "engine": {"args": {"a": "1"}},
        "scaling": {"replicas": 1},
    }
    recorded = part.status["effectiveTemplate"]
    assert recorded["ref"] == {"kind": "ModelTemplate", "namespace": "team", "name": "fast"}
    assert recorded["scope"] == "Namespace"
    assert part.condition is not None
    assert (part.condition.status, part.condition.reason) == (True, "TemplateFound")
    again = part_of(cached(part), source(TEMPLATE))
    assert again.status == part.status, "a second pass writes nothing"
    assert again.deployment["spec"] == part.deployment["spec"]


def test_what_serves_keeps_its_record_until_its_own_spec_changes() -> None:
    first = part_of(DEPLOYMENT, source(TEMPLATE))
    kept = part_of(cached(first, served=True), source(edited()))
    assert flags(kept) == {"a": "1"}
    waiting = kept.status["effectiveTemplate"]
    assert waiting == {**first.status["effectiveTemplate"], "newerHash": contribution_of(edited()).hash}
    assert kept.condition is not None
    assert "as it was before its last change" in kept.condition.message
    assert "takes the new values (engine)" in kept.condition.message
    back = part_of(cached(kept, served=True), source(TEMPLATE))
    assert back.status == first.status, "an edit that is taken back leaves nothing"
    for passing in ({"scaling": {"replicas": 4}}, {"suspend": True}, {"gateway": {"enabled": True}}):
        assert flags(part_of(cached(first, served=True, **passing), source(edited()))) == {"a": "1"}, passing
    taken = part_of(cached(first, served=True, env=[{"name": "A", "value": "1"}]), source(edited()))
    assert flags(taken) == {"a": "2"}
    assert flags(part_of(cached(first), source(edited()))) == {"a": "2"}, "it has not served yet"
    assert flags(part_of(cached(first, served=True), source(edited()), granted={PART})) == {"a": "2"}


GPU: Resource = {"gpu": {"count": 1}}


@pytest.mark.parametrize(
    ("resources", "taken"),
    [
        ({"gpu": {"count": 1, "type": "nvidia.com/gpu"}}, False),
        ({"gpu": {"count": 1, "type": "amd.com/gpu"}}, True),
        ({"gpu": {"count": 2}}, True),
    ],
    ids=["a default of a newer CRD, or one that the user writes out", "another value", "another count"],
)
def test_a_default_value_is_no_change_of_the_deployment_s_own_spec(resources: Resource, taken: bool) -> None:
    deployment = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "resources": GPU}}
    first = part_of(deployment, source(TEMPLATE))
    assert flags(part_of(cached(first, served=True, resources=GPU), source(edited()))) == {"a": "1"}
    now = part_of(cached(first, served=True, resources=resources), source(edited()))
    assert flags(now) == {"a": "2" if taken else "1"}


SIZED: Resource = {"name": "kernels", "size": "20Gi", "mountPath": "/kernels"}


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({"size": "40Gi"}, False),
        ({"storageClassName": "fast"}, False),
        ({"mountPath": "/other"}, True),
    ],
    ids=["a larger claim", "another class", "another path"],
)
def test_a_claim_that_grows_takes_no_newer_template(change: Resource, taken: bool) -> None:
    def model(volume: Resource) -> Resource:
        return {**DEPLOYMENT["spec"].get("model", {}), "storage": {"volumes": [volume]}}

    deployment = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "model": model(SIZED)}}
    first = part_of(deployment, source(TEMPLATE))
    changed = cached(first, served=True, model=model({**SIZED, **change}))
    assert flags(part_of(changed, source(edited()))) == {"a": "2" if taken else "1"}


def test_another_runtime_config_takes_no_newer_template() -> None:
    first = part_of(DEPLOYMENT, source(TEMPLATE))
    assert flags(part_of(cached(first, served=True, runtimeConfigName="x"), source(edited()))) == {"a": "1"}


def annotated(deployment: Resource, **annotations: str) -> Resource:
    return {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}}


def test_the_removal_of_the_adopt_annotation_takes_nothing() -> None:
    adopting = {names.ADOPT: "now"}
    first = part_of(annotated(DEPLOYMENT, **adopting), source(TEMPLATE))
    assert flags(part_of(annotated(cached(first, served=True), **adopting), source(edited()))) == {"a": "1"}
    removed = part_of(cached(first, served=True), source(edited()))
    assert flags(removed) == {"a": "1"}
    later = part_of(cached(removed, served=True), source(edited()))
    assert later.status == removed.status
    again = annotated(cached(removed, served=True), **adopting)
    assert flags(part_of(again, source(edited()))) == {"a": "1"}, "the value that it had before"
    other = annotated(cached(removed, served=True), **{names.ADOPT: "later"})
    assert flags(part_of(other, source(edited()))) == {"a": "2"}
    assert flags(part_of(cached(first, served=True, image="other:1"), source(edited()))) == {"a": "2"}


def with_nodes(*values: str, template: Resource = TEMPLATE) -> Resource:
    """The template as the catalogue leaves it when nodes with these labels are there."""
    requirement = {"key": "gpu", "operator": "In", "values": list(values)}
    return {**template, "status": {"phase": "Ready", "hardware": {"requirements": [requirement]}}}


def required(part: TemplatePart) -> object:
    """The values of the label that the nodes of the deployment must have."""
    nodes = part.deployment["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return nodes["nodeSelectorTerms"][0]["matchExpressions"][0]["values"]


def running(part: TemplatePart, *, served: bool = True, ready: int = 1, desired: int = 1, cause: str = "") -> Resource:
    """The deployment once its provider has made an object, with so many pods."""
    found = cached(part, served=served)
    found["status"]["provider"] = {"name": "p", "resourceName": "d"}
    found["status"]["replicas"] = {"desired": desired, "ready": ready}
    if cause:
        found["status"]["rootCause"] = {"code": cause}
    return found


def test_a_node_that_comes_is_no_edit_of_the_template() -> None:
    before, after = with_nodes("a"), with_nodes("a", "b")
    assert contribution_of(before).hash == contribution_of(after).hash == contribution_of(TEMPLATE).hash
    first = part_of(DEPLOYMENT, source(before))
    for served in (True, False):
        for granted in (True, False):
            deployment = running(first, served=served, ready=int(served))
            kept = part_of(deployment, source(after), granted={PART} if granted else ())
            assert required(kept) == ["a"], f"{served=} {granted=}: pods that run are not replaced"
            assert "newerHash" not in kept.status["effectiveTemplate"]
            assert kept.status == first.status
            assert kept.newest == kept.value, "nothing newer waits"
            assert kept.condition is not None
            assert "takes that for the nodes of today" in kept.condition.message
    gone = part_of(running(first), source(TEMPLATE))
    assert required(gone) == ["a"], "nor does a node that goes"


def test_the_newest_nodes_are_taken_with_the_next_change_and_before_anything_exists() -> None:
    first, after = part_of(DEPLOYMENT, source(with_nodes("a"))), source(with_nodes("a", "b"))
    assert required(part_of(cached(first), after)) == ["a", "b"], "nothing exists of it"
    edited_spec = running(first)
    own = {**DEPLOYMENT["spec"], "env": [{"name": "A", "value": "1"}]}
    edited_spec["airunway.ai/own-spec"] = own
    assert required(part_of(edited_spec, after)) == ["a", "b"], "its own spec was edited"
    adopted = running(first)
    adopted["metadata"] = {**adopted["metadata"], "annotations": {names.ADOPT: "now"}}
    assert required(part_of(adopted, after)) == ["a", "b"]
    both = source(with_nodes("a", "b", template=edited()))
    assert required(part_of(running(first), both)) == ["a"], "an edit of the template waits as before"
    assert required(part_of(running(first), both, granted={PART})) == ["a", "b"], "and brings the newest nodes"


@pytest.mark.parametrize("served", [True, False])
def test_a_replica_that_finds_no_node_takes_the_newest_ones(served: bool) -> None:
    first, after = part_of(DEPLOYMENT, source(with_nodes("a"))), source(with_nodes("a", "b"))
    for cause in ("Unschedulable.TaintOrSelector", "Unschedulable.InsufficientGPU"):
        taken = part_of(running(first, served=served, ready=0, cause=cause), after)
        assert required(taken) == ["a", "b"], cause
        assert taken.status["effectiveTemplate"]["hash"] == first.status["effectiveTemplate"]["hash"]
        several = running(first, served=served, ready=0, desired=2, cause=cause)
        assert required(part_of(several, after)) == ["a"], "the other one may run"
        assert required(part_of(running(first, served=served, cause=cause), after)) == ["a"], "it serves"
    pulling = running(first, served=served, ready=0, cause="ImagePull.Auth")
    assert required(part_of(pulling, after)) == ["a"], "it has a node"


@pytest.mark.parametrize("ready", [0, 1])
def test_a_record_from_before_the_catalogue_s_first_status_gets_its_node_affinity(ready: int) -> None:
    own: Resource = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
    for affinity in ({}, own):
        new = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "defaults": {"affinity": affinity} if affinity else {}}}
        first, after = part_of(DEPLOYMENT, source(new)), source(with_nodes("a", template=new))
        taken = part_of(running(first, served=False, ready=ready), after)
        assert required(taken) == ["a"], "its pods may be on any node"
        again = part_of(running(taken, served=False, ready=ready), source(with_nodes("a", "b", template=new)))
        assert required(again) == ["a"], "and a node that comes replaces none of them"


def test_what_serves_without_node_affinity_keeps_running_and_says_so() -> None:
    first, after = part_of(DEPLOYMENT, source(TEMPLATE)), source(with_nodes("a"))
    kept = part_of(running(first), after)
    assert kept.status == first.status
    assert kept.condition is not None
    assert "without the node affinity for its GPUs, which was not known" in kept.condition.message
    assert required(part_of(running(first, ready=0, cause="Unschedulable.InsufficientGPU"), after)) == ["a"]


def test_a_template_that_is_deleted_leaves_what_was_recorded() -> None:
    first = part_of(DEPLOYMENT, source(TEMPLATE))
    gone = part_of(cached(first, served=True), source())
    assert gone.status == first.status
    assert not gone.unresolved
    assert gone.fault is not None
    assert (gone.fault.reason, gone.fault.only_degrades) == ("TemplateNotFound", True)
    assert gone.deployment["spec"]["model"] == {"id": "org/m"}


def test_another_reference_that_finds_nothing_leaves_the_deployment_unresolved() -> None:
    first = part_of(DEPLOYMENT, source(TEMPLATE))
    other = part_of(cached(first, served=True, templateRef={"name": "absent"}), source(TEMPLATE))
    assert other.unresolved
    assert other.deployment["spec"]["templateRef"] == {"name": "absent"}, "a provider sees that it has to wait"
    assert other.deployment["spec"]["model"] == {"id": "org/m"}, "and what runs"
    assert other.status == first.status


def test_nothing_recorded_and_no_template_waits() -> None:
    part = part_of(DEPLOYMENT, source())
    assert part.unresolved
    assert part.status == {}
    assert part.fault is not None
    assert (part.fault.reason, part.fault.pending) == ("TemplateNotFound", True)


def test_the_choice_by_model_stays_once_something_exists() -> None:
    spec: Resource = {"templateRef": {"modelName": "org/m"}}
    ready = {"status": {"phase": "Ready"}}
    plain = {**TEMPLATE, **ready}
    better = {
        **plain,
        "metadata": {"name": "better", "namespace": "team"},
        "spec": {**TEMPLATE["spec"], "optimized": True},
    }
    first = part_of({**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], **spec}}, source(plain))
    stays = part_of(cached(first, **spec), source(plain, better))
    assert stays.status["effectiveTemplate"]["ref"]["name"] == "fast"
    free = part_of(cached(first, held=False, **spec), source(plain, better))
    assert free.status["effectiveTemplate"]["ref"]["name"] == "better"


def made_again(**spec: Any) -> Resource:
    """A Ready template with the name of the first one, for something else."""
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}, "status": {"phase": "Ready"}}


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        ({"modelName": "org/m"}, {"modelName": "org/other"}),
        ({"modelName": "org/m", "metric": "latency"}, {"metric": "throughput"}),
        ({"modelName": "org/m", "precision": "fp8"}, {"precision": "bf16"}),
    ],
)
@pytest.mark.parametrize("served", [True, False])
def test_a_template_made_again_for_something_else_is_not_what_was_asked_for(
    asked: Resource, other: Resource, served: bool
) -> None:
    spec: Resource = {"templateRef": asked}
    before = made_again(metric="latency", precision="fp8")
    first = part_of({**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], **spec}}, source(before))
    assert first.status["effectiveTemplate"]["ref"]["name"] == "fast"
    after = made_again(**{"metric": "latency", "precision": "fp8", **other})
    change: Resource = {"env": [{"name": "A", "value": "1"}]}
    for own in ({}, change):
        for granted in (True, False):
            gone = part_of(
                cached(first, served=served, **spec, **own), source(after), granted={PART} if granted else ()
            )
            assert gone.fault is not None, "the deployment gets no other model"
            assert (gone.fault.reason, gone.status) == ("TemplateNotFound", first.status)
            assert gone.deployment["spec"]["model"] == {"id": "org/m"}
    second: Resource = {**before, "metadata": {"name": "second", "namespace": "team"}}
    found = part_of(cached(first, served=served, **spec, **change), source(after, second))
    assert found.status["effectiveTemplate"]["ref"]["name"] == "second", "another one for the same request is taken"


def test_a_template_that_is_asked_for_by_name_is_what_has_the_name() -> None:
    first = part_of(DEPLOYMENT, source(TEMPLATE))
    taken = part_of(cached(first), source(made_again(modelName="org/other")))
    assert taken.deployment["spec"]["model"] == {"id": "org/other"}


def test_a_template_that_cannot_be_used_is_named_with_its_field() -> None:
    s3 = {**TEMPLATE, "spec": {"modelName": "org/m", "modelSources": [{"uri": "s3://bucket/m"}]}}
    part = part_of(DEPLOYMENT, source(s3))
    assert part.fault is not None
    assert part.fault.reason == "InvalidSpec"
    assert "ModelTemplate 'fast' of namespace 'team' cannot be used: spec.modelSources" in part.fault.message


def test_a_deployment_without_template_is_passed_on_as_it_is() -> None:
    plain: Resource = {"metadata": {"name": "d", "namespace": "team"}, "spec": {"model": {"id": "org/m"}}}
    part = template_part(plain, source(TEMPLATE))
    assert part == TemplatePart(deployment=plain, status={})
