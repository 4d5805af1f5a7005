"""What a pass is to do about what it has seen: one view in, one decision out, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from core.tests.conftest import TRANSFORMERS, MakeDeployment, MakeHost
from core.tests.runtime.views import NOW, decided, made, reasons, state, there

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.owned.plan import Action, Step
from airunway.plugins.contract import Transformer, Upstream
from airunway.resource import Resource, annotations_of, copy_of
from airunway.runtime.crd_versions import Installed
from airunway.runtime.plan import Decision, Do, decide, observe
from airunway.runtime.records import Record, new_record
from airunway.sdk import Compatibility, Finding, NoSettings
from airunway.status.reasons import Category

# --------------------------------------------------------------------------------------------- nothing, or taking away


def test_what_is_new_is_brought_about(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    decision = decided(host, state(host, plain()))
    assert decision.do is Do.APPLY
    assert decision.plan is not None
    assert [step.action for step in decision.plan.steps] == [Action.CREATE, Action.CREATE]
    assert reasons(decision) == ["CompatibilityVerified"]
    assert decision.context is not None
    assert (decision.context.engine, decision.context.kubernetes, decision.context.now) == ("vllm", (1, 33), NOW)


@pytest.mark.parametrize(
    ("metadata", "status", "do"),
    [
        ({"deletionTimestamp": "2026-11-21T12:00:00Z"}, {}, Do.FINALIZE),
        (
            {"deletionTimestamp": "2026-11-21T12:00:00Z", "annotations": {names.PAUSED: "true"}},
            {},
            Do.FINALIZE,
        ),
        ({"annotations": {names.PAUSED: "true"}}, {}, Do.SKIP),
        ({"annotations": {names.PAUSED: "yes"}}, {}, Do.APPLY),
        ({}, {"provider": {"name": "other"}}, Do.FINALIZE),
        ({"annotations": {names.PAUSED: "true"}}, {"provider": {"name": "other"}}, Do.SKIP),
        ({"annotations": {names.DRY_RUN: "true"}}, {"provider": {"name": "other"}}, Do.SKIP),
        ({"generation": 2}, {}, Do.SKIP),
        ({}, {"conditions": []}, Do.SKIP),
        ({}, {"selection": {"candidates": []}}, Do.SKIP),
        ({"annotations": {names.DRY_RUN: "true"}}, {}, Do.PREVIEW),
        ({"annotations": {names.DRY_RUN: "1"}}, {}, Do.APPLY),
    ],
    ids=[
        "deleted",
        "deleted while paused",
        "paused",
        "only the exact word pauses",
        "given to another",
        "given to another while paused",
        "given to another for a dry run only",
        "not yet validated in this generation",
        "never validated",
        "denied by the policy",
        "dry run",
        "only the exact word previews",
    ],
)
def test_what_is_done_before_anything_is_asked(
    toy: MakeHost, plain: MakeDeployment, metadata: Resource, status: Resource, do: Do
) -> None:
    host = toy()
    assert decided(host, state(host, plain(metadata=metadata, status=status))).do is do


def test_a_denial_takes_nothing_away_that_runs(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment)
    deployment["status"]["selection"] = {"candidates": []}
    assert decided(host, state(host, deployment, *objects)).do is Do.APPLY


def test_a_lost_status_takes_nothing_away_whatever_the_core_knows_by_then(toy: MakeHost, plain: MakeDeployment) -> None:
    """After the restore of a backup the core may find the template gone, or leave the choice to another selector."""
    host = toy()
    objects = made(host, plain())

    def becomes(provider: Resource, *live: Resource, settled: bool = True) -> Do:
        view = state(host, plain(), *live, settled=settled)
        status = {**view.deployment["status"], "provider": provider}
        return decided(host, replace(view, deployment={**view.deployment, "status": status})).do

    assert becomes({}, *objects) is Do.SKIP
    assert becomes({}, settled=False) is Do.SKIP, "what is not seen yet may be there"
    assert becomes({}) is Do.FINALIZE, "there is nothing to take away"
    assert becomes({"name": "other"}, *objects) is Do.FINALIZE
    assert becomes({"resourceName": "llama"}, *objects) is Do.FINALIZE, "a selector has taken its choice back"


def test_nothing_is_done_while_a_cache_is_incomplete(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    assert decided(host, state(host, plain(), settled=False)).do is Do.SKIP


def test_the_provider_before_us_is_waited_for_unless_it_is_a_dry_run(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    finalizer = names.provider_finalizer("other")
    decision = decided(host, state(host, plain(metadata={"finalizers": [finalizer]})))
    (result,) = decision.results
    assert (decision.do, result.reason, result.pending, result.blocks_ready) == (
        Do.OBSERVE_ONLY,
        "WaitingForProvider",
        True,
        True,
    )
    assert finalizer in result.message
    own = plain(metadata={"finalizers": [names.provider_finalizer("toy")]})
    assert decided(host, state(host, own)).do is Do.APPLY
    dry = plain(metadata={"finalizers": [finalizer], "annotations": {names.DRY_RUN: "true"}})
    assert decided(host, state(host, dry)).do is Do.PREVIEW


# -------------------------------------------------------------------------------------------------- only watching


@pytest.mark.parametrize(
    ("reason", "only_degrades"),
    [("ProviderNotFound", True), ("CacheLost", True), ("UpstreamNotInstalled", False), ("WaitingForProvider", False)],
)
def test_real_llmd_4_while_the_named_provider_cannot_take_over_what_runs_is_watched_and_it_is_said(
    toy: MakeHost, plain: MakeDeployment, reason: str, only_degrades: bool
) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment)
    deployment["spec"]["provider"] = {"name": "other"}
    deployment["status"]["conditions"].append(
        {"type": "ProviderSelected", "status": "False", "reason": reason, "message": "provider 'other' is not there"}
    )
    decision = decided(host, state(host, deployment, *objects))
    (result,) = decision.results
    assert (decision.do, result.reason, result.message) == (Do.OBSERVE_ONLY, reason, "provider 'other' is not there")
    assert (result.blocks_ready, result.only_degrades) == (True, only_degrades)
    assert decision.typed is not None, "what runs is still read"
    given_away = {**deployment, "status": {**deployment["status"], "provider": {"name": "other"}}}
    assert decided(host, state(host, given_away, *objects)).do is Do.FINALIZE


def test_an_invalid_spec_is_watched_and_what_runs_is_still_read(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment)
    deployment["status"]["conditions"][0] |= {"status": "False", "message": "spec.model.id is wrong"}
    decision = decided(host, state(host, deployment, *objects))
    assert decision.do is Do.OBSERVE_ONLY
    assert [(result.component, result.reason, result.message) for result in decision.results] == [
        ("Validated", "ValidationFailed", "spec.model.id is wrong")
    ]
    assert decision.typed is not None, "the plugin can be asked how it is"
    nothing = decided(host, state(host, deployment))
    assert (nothing.do, nothing.typed) == (Do.OBSERVE_ONLY, None)


def test_a_spec_that_is_too_large_to_be_kept_is_named_and_never_read(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment)
    deployment[EXCESS] = [["spec.env", "is longer than 256 entries", "FieldValueTooLong"]]
    decision = decided(host, state(host, deployment, *objects))
    assert (decision.do, decision.typed) == (Do.OBSERVE_ONLY, None)
    assert decision.results[0].message == "Validation failed: spec.env: is longer than 256 entries"


@pytest.mark.parametrize("runs", [False, True])
def test_a_required_kind_that_is_missing_is_waited_for(toy: MakeHost, plain: MakeDeployment, runs: bool) -> None:
    host, deployment = toy(), plain()
    installed = there(host)
    installed["toy.example.org", "Thing"] = Installed(upstream=None, reason="UpstreamNotInstalled", message="no CRD")
    objects = made(host, deployment) if runs else []
    decision = decided(host, state(host, deployment, *objects, installed=installed))
    (result,) = decision.results
    assert (decision.do, result.reason, result.pending) == (Do.OBSERVE_ONLY, "UpstreamNotInstalled", True)
    assert result.message == "Provider 'toy' CRD not installed in cluster"
    assert decision.subject == "CustomResourceDefinition/things.toy.example.org"


def test_another_required_kind_that_is_missing_is_named(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(upstream=tuple(replace(kind, required=True) for kind in toy().manifest.upstream))
    installed = there(host)
    installed["toy.example.org", "Option"] = Installed(
        upstream=None, reason="UpstreamNotInstalled", message="no options"
    )
    decision = decided(host, state(host, plain(), installed=installed))
    assert decision.do is Do.OBSERVE_ONLY
    assert decision.results[0].message.endswith("no options")


def test_g3_an_optional_kind_that_is_missing_hinders_nothing_and_is_not_served(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    host = toy()
    installed = there(host)
    installed["toy.example.org", "Option"] = Installed(upstream=None, reason="UpstreamNotInstalled", message="")
    decision = decided(host, state(host, plain(), installed=installed))
    assert decision.do is Do.APPLY
    assert decision.context is not None
    assert set(decision.context.served) == {"Thing.toy.example.org", "ConfigMap"}


@pytest.mark.parametrize("runs", [False, True])
def test_an_unsupported_schema_fails_only_what_does_not_run_yet(
    toy: MakeHost, plain: MakeDeployment, runs: bool
) -> None:
    host, deployment = toy(), plain()
    installed = there(host)
    installed["toy.example.org", "Thing"] = Installed(upstream=None, reason="UnsupportedSchema", message="new schema")
    objects = made(host, deployment) if runs else []
    decision = decided(host, state(host, deployment, *objects, installed=installed))
    (result,) = decision.results
    assert (decision.do, result.condition, result.reason) == (
        Do.OBSERVE_ONLY,
        "ProviderCompatible",
        "UnsupportedSchema",
    )
    assert (result.blocks_ready, result.category) == (not runs, Category.WORKLOAD)


def test_what_the_provider_cannot_do_is_said_and_what_runs_is_left_alone(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment)
    blocker = Finding(path="spec.x", reason="IncompatibleConfiguration", message="cannot be")
    blocked = toy(can_handle=lambda d, c: Compatibility(blockers=(blocker,)))
    decision = decided(blocked, state(blocked, deployment, *objects))
    (result,) = decision.results
    assert (decision.do, decision.plan) == (Do.OBSERVE_ONLY, None)
    assert (result.condition, result.ok, result.message, result.blocks_ready) == (
        "ProviderCompatible",
        False,
        "spec.x: cannot be",
        True,
    )
    suspended = plain(suspend=True)
    decision = decided(blocked, state(blocked, suspended, *objects))
    assert (decision.do, decision.results[0].blocks_ready) == (Do.SUSPEND, False)


@pytest.mark.parametrize(
    ("spec", "served", "only_degrades"),
    [
        ({}, True, True),
        ({"scaling": {"replicas": 3}}, True, True),
        ({"env": [{"name": "A", "value": "1"}]}, True, False),
        ({}, False, False),
    ],
    ids=["unedited", "scaled", "edited", "never served"],
)
def test_ruling_31_what_serves_is_only_degraded_by_what_its_provider_cannot_do_any_more(
    toy: MakeHost, plain: MakeDeployment, spec: Resource, served: bool, only_degrades: bool
) -> None:
    host = toy()
    objects = made(host, plain())
    deployment = plain(**spec)
    if served:
        deployment["status"]["conditions"].append({"type": "Served", "status": "True", "reason": "Served"})
    blocker = Finding(path="spec.x", reason="IncompatibleConfiguration", message="a CRD that came takes this away")
    blocked = toy(can_handle=lambda d, c: Compatibility(blockers=(blocker,)))
    decision = decided(blocked, state(blocked, deployment, *objects))
    (result,) = decision.results
    assert (decision.do, result.blocks_ready, result.only_degrades) == (Do.OBSERVE_ONLY, True, only_degrades)


@pytest.mark.parametrize("hook", ["can_handle", "translate_spec", "translate_status"])
def test_a_plugin_at_fault_costs_the_pass_and_is_told(toy: MakeHost, plain: MakeDeployment, hook: str) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("oops")

    deployment = plain()
    objects = made(toy(), deployment)
    objects[0]["metadata"]["annotations"][names.WRITTEN_FOR] = "an older spec"  # so that it is asked how it is
    host = toy(**{hook: broken})
    decision = decided(host, state(host, deployment, *objects))
    assert (decision.do, reasons(decision)) == (Do.OBSERVE_ONLY, ["ProviderError"])
    assert f"{hook} raised ZeroDivisionError" in decision.results[0].message


# ------------------------------------------------------------------------------------------- suspended, kept, adopted


def test_what_is_suspended_wants_no_objects(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment)
    decision = decided(host, state(host, plain(suspend=True), *objects))
    assert (decision.do, decision.objects, decision.plan) == (Do.SUSPEND, (), None)
    dry = plain(suspend=True, metadata={"annotations": {names.DRY_RUN: "true"}})
    assert decided(host, state(host, dry, *objects)).do is Do.PREVIEW


@pytest.mark.parametrize(
    ("spec", "unmet"),
    [
        ({"runtimeConfigName": "gpu"}, {"type": "RuntimeConfigReady", "reason": "ConfigNotFound"}),
        ({"templateRef": {"name": "small"}}, {"type": "TemplateReady", "reason": "TemplateNotFound"}),
    ],
    ids=["config", "template"],
)
@pytest.mark.parametrize("runs", [True, False])
def test_what_is_suspended_does_not_wait_for_what_only_its_objects_need(
    toy: MakeHost, plain: MakeDeployment, spec: Resource, unmet: Resource, runs: bool
) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment) if runs else []

    def waiting(**changes: Any) -> Resource:
        found = plain(**spec, **changes)
        generation = found["metadata"].get("generation")
        condition = {**unmet, "status": "False", "message": "gone", "observedGeneration": generation}
        found["status"]["conditions"] = [*found["status"]["conditions"], condition]
        return found

    assert decided(host, state(host, waiting(suspend=True), *objects)).do is Do.SUSPEND
    assert decided(host, state(host, waiting(), *objects)).do is Do.OBSERVE_ONLY
    dry = waiting(suspend=True, metadata={"annotations": {names.DRY_RUN: "true"}})
    assert decided(host, state(host, dry, *objects)).do is Do.OBSERVE_ONLY


def writers(decision: Decision) -> tuple[str, list[str]]:
    assert decision.context is not None
    return decision.context.upstream.transformer.name, [finding.reason for finding in decision.warnings]


@pytest.mark.parametrize("writer", ["v1-a", "v2-a"], ids=["an older version", "an older transformer"])
def test_ruling_27_what_exists_is_kept_as_it_was_written_and_a_newer_way_is_announced(
    toy: MakeHost, plain: MakeDeployment, writer: str
) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment, writer=writer)
    decision = decided(host, state(host, deployment, *objects))
    assert writers(decision) == (writer, ["NewerTransformerWaits"])
    assert "v2-b" in decision.warnings[0].message
    assert decision.plan is not None
    assert not decision.plan.of(Action.REPLACE)


def test_ruling_27_what_was_written_in_a_version_that_is_gone_is_adopted_in_place_with_a_change_of_the_spec(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    """Paths of the two versions say different things: only a change of identity recreates."""
    host = toy()
    installed = there(host)
    newest = installed["toy.example.org", "Thing"]
    installed["toy.example.org", "Thing"] = replace(newest, served=newest.served[:1])

    def step_of(writer: str, **spec: Any) -> Step:
        objects = made(host, plain(), writer=writer)
        objects[0]["apiVersion"] = "toy.example.org/v2"  # as the API server has it now
        decision = decided(host, state(host, plain(**spec), *objects, installed=installed))
        assert decision.plan is not None
        return decision.plan.primary

    larger = {"resources": {"gpu": {"count": 2}}}
    assert step_of("v1-a", **larger).action is Action.UPDATE
    other = step_of("v1-a", **larger, model={"id": "org/other"})
    assert (other.action, other.causes) == (Action.REPLACE, ("spec.model.id",))
    same_version = step_of("v2-a", **larger)
    assert (same_version.action, same_version.causes) == (Action.REPLACE, ("spec.size",))


def test_ruling_27_a_plan_of_another_kind_is_kept_by_the_transformer_of_that_kind(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    """As a LeaderWorkerSet in place of a Deployment: what is newest of the primary kind says nothing of it."""
    option = "Option.toy.example.org"

    def as_option(deployment: Any, context: Any) -> Any:
        writer = context.served[option].transformer.name
        metadata = {"name": deployment.metadata.name}
        return [{"apiVersion": "toy.example.org/v1", "kind": "Option", "metadata": metadata, "spec": {"w": writer}}]

    ways = [Transformer(name=f"option-{n}", api_version="toy.example.org/v1", kind="Option") for n in ("a", "b")]
    older, newer = (toy(transformers=[*TRANSFORMERS, *ways[:n]], translate_spec=as_option) for n in (1, 2))
    deployment = plain()
    decision = decided(newer, state(newer, deployment, *made(older, deployment)))
    (result,) = [finding for finding in decision.warnings if finding.reason == "NewerTransformerWaits"]
    assert "transformer option-a; transformer option-b takes effect" in result.message
    assert [obj["spec"] for obj in decision.objects] == [{"w": "option-a"}]
    taken = decided(newer, state(newer, deployment, *made(newer, deployment)))
    assert "NewerTransformerWaits" not in [finding.reason for finding in taken.warnings]


def test_ruling_27_a_newer_way_that_refuses_the_spec_is_announced_as_a_refusal(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    """The next change takes the newest way, and so is refused: "is taken with the next change" would be false."""
    blocker = Finding(path="spec.x", reason="InvalidOverride", message="v2 calls it y")

    def refuses(_: Any, context: Any) -> Compatibility:
        return Compatibility(blockers=(blocker,) if context.upstream.transformer.name == "v2-b" else ())

    host, deployment = toy(can_handle=refuses), plain()
    objects = made(toy(), deployment, writer="v1-a")
    decision = decided(host, state(host, deployment, *objects))
    assert decision.do is Do.APPLY
    assert [(each.reason, each.message) for each in decision.warnings] == [
        (
            "NewerTransformerWaits",
            "the next change of the spec will be refused because of transformer v2-b: spec.x: v2 calls it y",
        )
    ]
    assert decided(host, state(host, plain(image="other"), *objects)).do is Do.OBSERVE_ONLY, "it is refused"


def test_ruling_27_a_newer_way_that_writes_the_same_is_no_news(toy: MakeHost, plain: MakeDeployment) -> None:
    def the_same(deployment: Any, context: Any) -> Any:
        return [{"apiVersion": context.upstream.api_version, "kind": "Thing", "metadata": {"name": "llama"}}]

    host, deployment = toy(translate_spec=the_same), plain()
    decision = decided(host, state(host, deployment, *made(host, deployment, writer="v2-a")))
    writer, warnings = writers(decision)
    assert writer == "v2-a"
    assert "NewerTransformerWaits" not in warnings


@pytest.mark.parametrize("change", ["spec", "adopt"])
def test_ruling_27_a_change_of_the_spec_or_an_adoption_takes_the_newest(
    toy: MakeHost, plain: MakeDeployment, change: str
) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment, writer="v2-a")
    newer = plain(image="new") if change == "spec" else plain(metadata={"annotations": {names.ADOPT: "today"}})
    assert writers(decided(host, state(host, newer, *objects))) == ("v2-b", [])


def test_ruling_27_an_adopt_annotation_that_is_removed_adopts_nothing(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()

    def adopting(value: str, **spec: Any) -> Resource:
        return plain(**spec, metadata={"annotations": {names.ADOPT: value} if value else {}})

    objects = made(host, adopting("monday"), writer="v2-a")

    def writer_of(deployment: Resource) -> str:
        return writers(decided(host, state(host, deployment, *objects)))[0]

    assert [writer_of(adopting(value)) for value in ("monday", "", "tuesday")] == ["v2-a", "v2-a", "v2-b"]
    assert writer_of(adopting("", scaling={"replicas": 2})) == "v2-a"
    # The record keeps the value: after a change without the annotation, the same value is still no new one.
    changed = decided(host, state(host, adopting("", image="new"), *objects))
    record = orjson.loads(annotations_of(changed.objects[0])[names.RUNTIME_SETTINGS])
    assert record["adopted"] == "monday"
    objects = made(host, adopting("monday", image="new"), writer="v2-a")
    assert writer_of(adopting("", image="new")) == "v2-a"


def test_a_record_without_the_adopted_value_is_not_written_for_it_alone() -> None:
    before = Record(lasting="x", config="default")
    assert new_record(replace(before, adopted="monday"), before=before) is before
    adopted = replace(before, adopted="monday")
    assert new_record(replace(before, adopted="tuesday"), before=adopted).adopted == "tuesday"


def test_a_dead_object_is_made_anew_by_the_next_change_and_not_before(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    objects = made(host, deployment, state="Dead")
    same = decided(host, state(host, deployment, *objects))
    assert same.plan is not None
    assert same.plan.primary.action is not Action.REPLACE
    changed = decided(host, state(host, plain(image="other"), *objects))
    assert changed.plan is not None
    assert (changed.plan.primary.action, changed.plan.primary.causes) == (Action.REPLACE, ("the Thing is dead",))


@pytest.mark.parametrize("current", [True, False])
def test_what_is_no_longer_wanted_goes_only_once_the_newest_spec_serves(
    toy: MakeHost, plain: MakeDeployment, current: bool
) -> None:
    host, deployment = toy(), plain()
    thing, config = made(host, deployment)
    old = copy_of(config)
    old["metadata"]["name"] = "llama-old-config"

    def status(deployment: Any, observed: Any, context: Any) -> Any:
        observation = toy().translate_status(deployment, observed, context)
        return replace(observation, up_to_date=current)

    watching = toy(translate_status=status)
    decision = decided(watching, state(watching, deployment, thing, config, old))
    assert decision.plan is not None
    assert len(decision.plan.of(Action.DELETE)) == 1
    assert decision.deletes_obsolete is current


def test_an_unverified_schema_is_said_and_goes_on(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    installed = there(host)
    upstream = Upstream(
        api_version="toy.example.org/v2",
        transformer=Transformer(name="v2-b", api_version="toy.example.org/v2"),
        verified=False,
    )
    verdict = Installed(upstream=upstream, reason="UnverifiedSchema", message="unheard of", served=(upstream,))
    installed["toy.example.org", "Thing"] = verdict
    decision = decided(host, state(host, plain(), installed=installed))
    (result,) = decision.results
    assert (decision.do, result.ok, result.reason, result.message) == (Do.APPLY, True, "UnverifiedSchema", "unheard of")
    assert not decision.verified
    suspended = decided(host, state(host, plain(suspend=True), installed=installed))
    assert reasons(suspended) == ["UnverifiedSchema"]


def test_ruling_13_an_unverified_schema_of_any_kind_that_is_written_is_said(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    """As a LeaderWorkerSet or an InferencePool: what is written of it is dry-run first."""

    def with_option(deployment: Any, context: Any) -> list[Resource]:
        metadata = {"name": deployment.metadata.name}
        kinds = ("Thing", "Option") if deployment.spec.image else ("Thing",)
        return [{"apiVersion": "toy.example.org/v1", "kind": kind, "metadata": metadata} for kind in kinds]

    host = toy(translate_spec=with_option)
    installed = there(host)
    option = installed["toy.example.org", "Option"].upstream
    assert option is not None
    unknown = replace(option, verified=False)
    installed["toy.example.org", "Option"] = Installed(
        upstream=unknown, reason="UnverifiedSchema", message="new options", served=(unknown,)
    )
    decision = decided(host, state(host, plain(image="own"), installed=installed))
    (result,) = decision.results
    assert (decision.do, decision.verified) == (Do.APPLY, False)
    assert (result.reason, result.message) == ("UnverifiedSchema", "new options")
    without = decided(host, state(host, plain(), installed=installed))
    assert (without.verified, reasons(without)) == (True, ["CompatibilityVerified"])


def test_decisions_are_the_same_for_the_same_view(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    view = state(host, deployment, *made(host, deployment, writer="v1-a"))
    assert decide(view, host, settings=NoSettings()).objects == decide(view, host, settings=NoSettings()).objects


def test_a_translation_is_told_which_kind_runs(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), plain()
    assert [
        decision.context.live_kind
        for decision in (
            decided(host, state(host, deployment)),
            decided(host, state(host, deployment, *made(host, deployment))),
        )
        if decision.context is not None
    ] == ["", "Thing.toy.example.org"]


# --------------------------------------------------------------------------------------------- which metadata is read


def test_what_a_plugin_reads_of_the_metadata_is_noted(toy: MakeHost, plain: MakeDeployment) -> None:
    """Other labels and annotations bring no pass: nothing can come of them."""
    host = toy()
    decided(host, state(host, plain()))
    assert host.metadata_reads == set()

    def can_handle(deployment: Any, _: Any) -> Compatibility:
        team = deployment.metadata.labels.get("team")
        return Compatibility(warnings=(Finding(path="", reason="Team", message=str(team)),))

    host = toy(can_handle=can_handle)
    decided(host, state(host, plain()))
    assert host.metadata_reads == {"labels"}

    def translate_status(deployment: Any, observed: Any, context: Any) -> Any:
        assert deployment.metadata.annotations == {}
        return usual_host.translate_status(deployment, observed, context)

    usual_host, host = host, toy(translate_status=translate_status)
    primary, *others = made(host, plain())
    view = state(host, plain(), primary, *others)
    decision = decided(host, view)
    observe(host, decision, view)
    assert host.metadata_reads == {"annotations"}
