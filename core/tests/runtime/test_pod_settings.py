"""Which pod settings a pass writes after the core has decided on them, and when it may write at all."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.configured import (
    ABSENT,
    NEW,
    NONE,
    OLD,
    config,
    decided,
    env_of,
    is_as,
    live,
    pending,
    view,
    written,
)
from core.tests.runtime.views import NOW, state, with_parts
from hypothesis import given
from hypothesis import strategies as st

from airunway.api import names
from airunway.plugins.contract import EngineCapability, Gateway
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig, labels_of
from airunway.runtime.gate import cache_in, core_faults, gateway_in, settings_in
from airunway.runtime.plan import Do, decide
from airunway.runtime.report import Report, provider_status
from airunway.sdk import NoSettings
from airunway.status.reasons import Category
from airunway.status.rollup import Phase, roll_up

LARGE = config(env=[{"name": f"V{i}", "value": "x" * 1000} for i in range(40)])
GATEWAY: Resource = {"backend": "Pool", "gatewayName": "inference", "gatewayNamespace": "gateways"}


@pytest.fixture
def host(toy: MakeHost) -> ProviderHost:
    return toy(translate_spec=written)


# ----------------------------------------------------------------------------------------------- which settings count


@pytest.mark.parametrize("change", [{}, {"scaling": {"replicas": 3}}, {"gateway": {"enabled": False}}])
def test_c11_c13_what_serves_keeps_its_settings_until_the_spec_changes_in_more_than_replicas(
    host: ProviderHost, plain: MakeDeployment, change: Resource
) -> None:
    obj = live(host, plain(), config(**OLD))
    seen = view(host, plain(**change), config(**NEW), obj)
    assert (pending(seen), seen.in_effect) == (["env B"], True)
    assert "secret-value" not in str(seen.revision)
    decision = decide(seen, host, settings=NoSettings())
    assert (decision.do, env_of(decision), decision.warnings) == (Do.APPLY, ["A"], ())
    assert dig(decision.objects[0], "spec", "replicas") == dig(change, "scaling", "replicas", default=1)


@pytest.mark.parametrize(
    ("deployment", "how"),
    [
        ({"image": "x"}, {}),
        ({"metadata": {"annotations": {names.ADOPT: "now"}}}, {}),
        ({"runtimeConfigName": "gpu"}, {"name": "gpu"}),
        ({}, {"granted": ("settings",)}),
        ({}, {"served": False}),
    ],
    ids=["the spec", "an adoption", "another config", "granted by the core", "it has not served"],
)
def test_c12_c13_c15_the_new_settings_are_taken_with(
    host: ProviderHost, plain: MakeDeployment, deployment: Resource, how: dict[str, Any]
) -> None:
    new = config(how.pop("name", "default"), **NEW)
    obj = live(host, plain(), config(**OLD))
    seen = view(host, plain(**deployment), new, obj, **how)
    assert (pending(seen), seen.in_effect) == ([], False)
    assert env_of(decide(seen, host, settings=NoSettings())) == ["A", "B"]


def test_two_configs_that_are_swapped_are_taken_by_the_deployments_that_name_them(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    """Each names the other's: a name that a user changes is no edit of a shared config."""
    first, second = config("a", **OLD), config("b", **NEW)
    objects = [live(host, plain(runtimeConfigName=name), found) for name, found in (("a", first), ("b", second))]
    after = [
        decided(host, plain(runtimeConfigName="b"), second, objects[0]),
        decided(host, plain(runtimeConfigName="a"), first, objects[1]),
    ]
    assert [env_of(each) for each in after] == [["A", "B"], ["A"]]
    # What is swapped below the same names is such an edit.
    contents = [config("a", **NEW), config("b", **OLD)]
    below = [
        decided(host, plain(runtimeConfigName=found.name), found, obj)
        for found, obj in zip(contents, objects, strict=True)
    ]
    assert [env_of(each) for each in below] == [["A"], ["A", "B"]]
    assert all(is_as(each, obj) for each, obj in zip(below, objects, strict=True))


def test_a_config_of_another_name_and_the_same_content_is_noted_so_that_its_next_edit_waits(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj, renamed = live(host, plain(), config(**OLD)), plain(runtimeConfigName="gpu")
    seen = view(host, renamed, config("gpu", **OLD), obj)
    assert decide(seen, host, settings=NoSettings()).objects[0]["spec"] == obj["spec"]
    after = view(host, {**renamed, "status": seen.deployment["status"]}, config("gpu", **NEW), obj)
    assert (env_of(decide(after, host, settings=NoSettings())), pending(after)) == (["A"], ["env B"])


def test_a_config_that_was_edited_twice_while_the_core_was_down_waits_as_it_is_now(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(host, plain(), config(**OLD))
    third = config(env=[*OLD["env"], {"name": "C", "value": "3"}])
    once = view(host, plain(), config(**NEW), obj)
    again = view(host, {**plain(), "status": once.deployment["status"]}, third, obj)
    assert (pending(once), pending(again)) == (["env B"], ["env C"])
    assert pending(view(host, {**plain(), "status": again.deployment["status"]}, config(**OLD), obj)) == []


def test_c2_the_default_config_written_out_is_no_change(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    assert is_as(decided(host, plain(runtimeConfigName="default"), config(**NEW), obj), obj)


def test_c11_an_edit_or_the_deletion_of_a_shared_config_writes_nothing_upstream(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(host, plain(), config(**OLD))
    for new in (config(**NEW), config(**OLD, routing={"enabled": True}), config(), NONE):
        assert is_as(decided(host, plain(), new, obj), obj)
    assert pending(view(host, plain(), NONE, obj)) == ["env A"]


def test_what_waits_is_named_within_the_bounds_of_the_status(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    many = config(env=[{"name": f"VARIABLE_{i}", "value": "x"} for i in range(250)])
    (change,) = pending(view(host, plain(), many, obj))
    assert change.startswith("env A, VARIABLE_0, ")
    assert (len(change), change[-1]) == (1024, "…")


def test_an_edit_that_changes_no_pod_settings_waits_for_nothing(host: ProviderHost, plain: MakeDeployment) -> None:
    obj, new = live(host, plain(), config(**OLD)), config(**OLD, storage={"defaultStorageClassName": "fast"})
    seen = view(host, plain(), new, obj)
    assert (pending(seen), seen.in_effect) == ([], True)


def test_c14_drift_is_reverted_to_the_recorded_settings(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    obj["spec"]["env"] = [{"name": "BY_HAND", "value": "1"}]
    decision = decided(host, plain(), config(**NEW), obj)
    assert not is_as(decision, obj)
    assert env_of(decision) == ["A"]


def test_c15_config_and_deployment_end_in_the_same_object_in_any_order(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    new = config(**NEW, imagePullSecrets=[{"name": "pull"}])
    at_once = decided(host, plain(), new).objects[0]
    later = decided(host, plain(), new, live(host, plain(), NONE), served=False).objects[0]
    assert orjson.dumps(at_once, option=orjson.OPT_SORT_KEYS) == orjson.dumps(later, option=orjson.OPT_SORT_KEYS)


def test_c27_a_config_that_is_too_large_stops_no_one_and_lets_nothing_new_start(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(host, plain(), config(**OLD))
    scaled = decided(host, plain(scaling={"replicas": 3}), LARGE, obj)
    assert (scaled.do, env_of(scaled), dig(scaled.objects[0], "spec", "replicas")) == (Do.APPLY, ["A"], 3)
    new = view(host, plain(), LARGE)
    assert decide(new, host, settings=NoSettings()).do is Do.OBSERVE_ONLY
    (fault,) = core_faults(new, host)
    assert fault.reason == "InvalidSpec"
    assert "RuntimeConfig 'default' of namespace 'ns' have more than" in fault.message


@pytest.mark.parametrize("spec", [{}, {"image": "x"}], ids=["renamed", "renamed and edited"])
def test_c27_a_config_that_is_named_while_it_cannot_be_used_is_taken_once_it_can(
    host: ProviderHost, plain: MakeDeployment, spec: Resource
) -> None:
    obj = live(host, plain(), config(**OLD))
    renamed = plain(runtimeConfigName="gpu", **spec)
    large = config("gpu", env=[{"name": f"V{i}", "value": "x" * 1000} for i in range(40)])
    frozen = view(host, renamed, large, obj)
    decision = decide(frozen, host, settings=NoSettings())
    assert (decision.do, env_of(decision)) == (Do.APPLY, ["A"])
    after = {**renamed, "status": frozen.deployment["status"]}
    assert env_of(decided(host, after, config("gpu", **NEW), obj)) == ["A", "B"]


@pytest.mark.parametrize(("said", "published"), [("new", "new"), (None, "old")], ids=["of this one", "of another one"])
def test_the_provider_publishes_the_revision_of_its_object_once_it_is_written(
    plain: MakeDeployment, said: str | None, published: str
) -> None:
    deployment = plain(status={"provider": {"revision": "old", "newer": {"changes": ["image engine:2"]}}})
    thing = {"kind": "Thing", "metadata": {"name": "llama"}}
    nothing_newer: Resource | None = {} if said else None
    report = Report(resource=thing, revision=said, newer=nothing_newer)
    status, _ = provider_status(deployment, report, faults=[], now=NOW)
    assert status["provider"]["revision"] == published
    assert ("newer" in status["provider"]) is (said is None)


def test_a_status_that_is_wiped_writes_nothing_unless_something_newer_waited(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    """A backup was restored: nothing says any more that it has served."""
    obj = live(host, plain(), config(**OLD))
    same, newer = (view(host, view(host, plain(), found).deployment, found, obj, served=False)
                   for found in (config(**OLD), config(**NEW)))  # fmt: skip
    assert is_as(decide(same, host, settings=NoSettings()), obj)
    assert env_of(decide(newer, host, settings=NoSettings())) == ["A", "B"]


def test_a_provider_that_is_renamed_makes_its_objects_from_the_newest(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=written)
    deployment = view(host, plain(), config(**OLD), live(host, plain(), config(**OLD))).deployment
    before = with_parts(deployment, provider={"name": "toy-before", "transformers": {"Thing.toy.example.org": "v1-a"}})
    obj = live(host, plain(), config(**OLD))
    seen = view(host, before, config(**NEW), obj)
    assert (seen.revision["provider"]["name"], pending(seen)) == ("toy", [])
    decision = decide(seen, host, settings=NoSettings())
    assert decision.context is not None
    assert (env_of(decision), decision.context.upstream.transformer.name) == (["A", "B"], "v2-b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("settings", "cache", "gateway", "env", "token", "labels", "name", "claim", "usesPool")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_revision_can_be_read(found: Any) -> None:
    revision = found if isinstance(found, dict) else {}
    settings = settings_in(revision, reserved=())
    assert all(isinstance(entry["name"], str) for entry in settings.env)
    assert (cache_in(revision) or gateway_in(revision) or settings) is not None


# ------------------------------------------------------------------------------------------------------------ the gate


def test_nothing_is_written_before_the_core_has_recorded_a_revision(host: ProviderHost, plain: MakeDeployment) -> None:
    """Nor of one that another writer has changed: its hash is not that of its parts."""
    obj = live(host, plain(), config(**OLD))
    forged = with_parts(view(host, plain(), NONE, obj).deployment)
    forged["status"]["revision"] = {**forged["status"]["revision"], "settings": {"env": [{"name": "EVIL"}]}}
    for deployment in (plain(status={"revision": {}}), forged):
        new, changed = (decide(state(host, deployment, *live_), host, settings=NoSettings()) for live_ in ((), (obj,)))
        assert [(each.do, each.objects) for each in (new, changed)] == [(Do.OBSERVE_ONLY, ())] * 2
        for each in (new, changed):
            assert [result.reason for result in each.results if result.blocks_ready] == ["WaitingForRevision"]


def test_while_it_waits_its_conditions_and_warnings_stay_as_they_are(host: ProviderHost, plain: MakeDeployment) -> None:
    obj, deployment = live(host, plain(), config(**OLD)), plain(status={"revision": {}})
    created = {"type": "ResourceCreated", "status": "True", "reason": "ResourceCreated", "message": "Thing created"}
    deployment["status"]["conditions"].append(created)
    deployment["status"]["warnings"] = ["spec.x: has no effect"]
    decision = decide(state(host, deployment, obj), host, settings=NoSettings())
    kept = [result.message for result in decision.results if result.condition == "ResourceCreated"]
    assert (kept, [warning.message for warning in decision.warnings]) == (["Thing created"], ["spec.x: has no effect"])


def test_c3_a_named_config_that_is_absent_makes_nothing(host: ProviderHost, plain: MakeDeployment) -> None:
    seen = view(host, plain(runtimeConfigName="gpu"), ABSENT)
    decision = decide(seen, host, settings=NoSettings())
    assert (decision.do, decision.objects, decision.silent) == (Do.OBSERVE_ONLY, (), False)
    (fault,) = core_faults(seen, host)
    assert (fault.reason, fault.only_degrades) == ("ConfigNotFound", False)
    assert roll_up([fault], previous=None, created=False, now=NOW).phase is Phase.PENDING


def test_c4_a_named_config_that_is_deleted_degrades_what_serves_and_it_can_still_be_scaled(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    named = plain(runtimeConfigName="gpu")
    obj = live(host, named, config("gpu", **OLD))
    seen = view(host, named, ABSENT, obj)
    assert is_as(decide(seen, host, settings=NoSettings()), obj)
    (fault,) = core_faults(seen, host)
    assert roll_up([fault], previous="Running", created=True, served=True, now=NOW).phase is Phase.DEGRADED
    scaled = decided(host, plain(runtimeConfigName="gpu", scaling={"replicas": 3}), ABSENT, obj)
    assert (scaled.do, env_of(scaled), dig(scaled.objects[0], "spec", "replicas")) == (Do.APPLY, ["A"], 3)


# --------------------------------------------------------------------------------------------- the gateway's decision


@pytest.fixture
def pooling(toy: MakeHost) -> ProviderHost:
    engine = EngineCapability(name="vllm", gpu_support=True, cpu_support=True, gateway={"managesInferencePool": True})
    return toy(translate_spec=written, engines=(engine,))


def test_a_provider_that_makes_the_pool_waits_for_the_gateway_part_where_a_route_was_asked_for(
    pooling: ProviderHost, plain: MakeDeployment
) -> None:
    asked: Resource = {"gateway": {"enabled": True}}
    waiting = decided(pooling, plain(**asked, status={"parts": ["gateway"]}), NONE)
    assert [result.reason for result in waiting.results] == ["WaitingForGateway"]
    told = decided(pooling, plain(**asked, status={"parts": ["gateway"], "gateway": GATEWAY}), NONE)
    assert told.context is not None
    assert told.context.gateway == Gateway(name="inference", namespace="gateways", uses_pool=True)
    for deployment in (plain(**asked), plain(status={"parts": ["gateway"]})):
        assert decided(pooling, deployment, NONE).do is Do.APPLY


def test_the_gateway_s_decision_is_kept_for_as_long_as_the_object_lives(
    pooling: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(pooling, plain(), NONE)
    status = {"parts": ["gateway"], "gateway": GATEWAY, "provider": {"name": "toy", "resourceName": "llama"}}
    asked = plain(gateway={"enabled": True}, image="x", status=status)
    assert dig(decided(pooling, asked, NONE, obj).objects[0], "spec", "gateway") == ""


# ---------------------------------------------------------------------------------------------- conditions of others


@pytest.mark.parametrize(
    ("gateway", "reason", "served", "phase"),
    [
        ({"enabled": True}, "RouteConflict", True, Phase.DEGRADED),
        ({"enabled": True}, "RouteConflict", False, Phase.DEGRADED),
        ({"pathTemplate": "/x"}, "NoGateway", True, Phase.DEGRADED),
        ({"enabled": True}, "WaitingForGateway", False, Phase.DEPLOYING),
        ({"enabled": True}, "WaitingForGateway", True, None),
        ({"enabled": True}, "", False, Phase.DEPLOYING),
        ({"enabled": True}, "", True, None),
        ({}, "RouteConflict", True, None),
        ({"enabled": False}, "RouteConflict", True, None),
    ],
)
def test_routing_counts_for_the_phase_only_where_it_was_asked_for(
    host: ProviderHost, plain: MakeDeployment, gateway: Resource, reason: str, *, served: bool, phase: Phase | None
) -> None:
    obj, deployment = live(host, plain(), NONE), plain(gateway=gateway, status={"parts": ["gateway"]})
    if reason:
        condition = {"type": "GatewayReady", "status": "False", "reason": reason, "message": "the gateway's words"}
        deployment["status"]["conditions"].append(condition)
    faults = list(core_faults(view(host, deployment, NONE, obj, served=served), host))
    found = [roll_up([fault], previous="Running", created=True, served=served, now=NOW).phase for fault in faults]
    assert found == ([] if phase is None else [phase])


def test_a_route_that_was_asked_for_while_the_part_is_off_is_said_and_not_waited_for(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    (fault,) = core_faults(view(host, plain(gateway={"enabled": True}), NONE), host)
    assert (fault.reason, fault.kind) == ("GatewayNotConfigured", Category.SCOPED_CONFIG)


# -------------------------------------------------------------------------------------------------------------- labels


def test_l2_l3_labels_of_objects_come_below_the_translation_s_and_never_are_ours(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    labels = {
        "team": "red",
        "other/x": "1",
        "airunway.ai/size": "of the user",
        names.MODEL_DEPLOYMENT: "other",
        names.COMPONENT: "mine",
    }
    matching = config(labelPropagation={"enabled": True, "match": ["team"]})
    obj = decided(host, plain(metadata={"labels": labels}), matching).objects[0]
    found = labels_of(obj)
    assert found["team"] == "red"
    assert found["airunway.ai/size"] == "of the translation"
    assert found[names.MODEL_DEPLOYMENT] == plain()["metadata"]["name"]
    assert not {"other/x", names.COMPONENT} & set(found)
    assert obj["spec"]["podLabels"] == {"team": "red", "airunway.ai/size": "of the user"}


def test_l4_an_edited_label_patches_objects_and_leaves_the_pods(host: ProviderHost, plain: MakeDeployment) -> None:
    matching = config(labelPropagation={"enabled": True, "match": ["team"]})
    obj = live(host, plain(metadata={"labels": {"team": "red"}}), matching)
    seen = view(host, plain(metadata={"labels": {"team": "blue"}}), matching, obj)
    decision = decide(seen, host, settings=NoSettings())
    assert not is_as(decision, obj)
    assert labels_of(decision.objects[0])["team"] == "blue"
    assert decision.objects[0]["spec"]["podLabels"] == {"team": "red"}
    assert pending(seen) == ["labels team"]


def test_reserved_labels_of_a_provider_are_kept_out(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=written, reserved_labels=("thing.io/",))
    matching = config(labelPropagation={"enabled": True, "match": ["*", "*/*"]})
    labels = {"team": "red", "thing.io/shard": "1"}
    obj = decided(host, plain(metadata={"labels": labels}), matching).objects[0]
    assert obj["spec"]["podLabels"] == {"team": "red"}
    assert "thing.io/shard" not in labels_of(obj)
