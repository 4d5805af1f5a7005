"""Which pod settings a pass writes, and when it may write at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest
from airunway.runtime.pod_settings import NEWER_PODS_WAIT, changed_settings, keeps
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.configured import (
    MANAGER,
    NEW,
    NONE,
    OLD,
    config,
    decided,
    env_of,
    is_as,
    live,
    published,
    written,
)
from core.tests.runtime.views import NOW, state
from hypothesis import given
from hypothesis import strategies as st

from airunway.api import names
from airunway.configs.resolution import Resolution
from airunway.plugins.contract import EngineCapability, Gateway, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig, labels_of
from airunway.runtime.gate import core_faults
from airunway.runtime.plan import Do
from airunway.runtime.records import new_record, read_record, settings_of_record, settings_record
from airunway.status.reasons import Category
from airunway.status.rollup import Phase, roll_up


@pytest.fixture
def host(toy: MakeHost) -> ProviderHost:
    return toy(translate_spec=written)


# ----------------------------------------------------------------------------------------------- which settings count


@pytest.mark.parametrize("change", [{}, {"scaling": {"replicas": 3}}, {"gateway": {"enabled": False}}])
def test_c11_c13_what_serves_keeps_its_settings_until_the_spec_changes_in_more_than_replicas(
    host: ProviderHost, plain: MakeDeployment, change: Resource
) -> None:
    obj = live(host, plain(), config(**OLD))
    decision = decided(host, published(plain(**change), config(**NEW)), config(**NEW), obj)
    assert env_of(decision) == ["A"]
    (warning,) = decision.warnings
    assert warning.reason == NEWER_PODS_WAIT
    assert "take effect with the next change of the spec" in warning.message
    assert "env B; RuntimeConfig ns/default" in warning.message
    assert "secret-value" not in warning.message
    assert decision.config_hash is None, "the hash of the settings in effect stays"


@pytest.mark.parametrize(
    ("deployment", "how"),
    [
        ({"image": "x"}, {}),
        ({"metadata": {"annotations": {names.ADOPT: "now"}}}, {}),
        ({"runtimeConfigName": "gpu"}, {"name": "gpu"}),
        ({}, {"granted": True}),
        ({}, {"served": False}),
    ],
    ids=["the spec", "an adoption", "another config", "granted by the core", "it has not served"],
)
def test_c12_c13_c15_the_new_settings_are_taken_with(
    host: ProviderHost, plain: MakeDeployment, deployment: Resource, how: dict[str, Any]
) -> None:
    new = config(how.pop("name", "default"), **NEW)
    obj = live(host, plain(), config(**OLD))
    decision = decided(host, published(plain(**deployment), new, **how), new, obj)
    assert (env_of(decision), decision.warnings) == (["A", "B"], ())
    assert new.config is not None
    assert decision.config_hash == new.config.hash


def test_c2_the_default_config_written_out_is_no_change(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    decision = decided(host, published(plain(runtimeConfigName="default"), config(**NEW)), config(**NEW), obj)
    assert env_of(decision) == ["A"]
    assert is_as(decision, obj)


def test_c11_an_edit_of_a_shared_config_writes_nothing_upstream(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    for new in (config(**NEW), config(**OLD, routing={"enabled": True}), config(), NONE):
        assert is_as(decided(host, published(plain(), new), new, obj), obj)


def test_an_edit_that_changes_no_pod_settings_is_in_effect_at_once(host: ProviderHost, plain: MakeDeployment) -> None:
    obj, new = live(host, plain(), config(**OLD)), config(**OLD, storage={"defaultStorageClassName": "fast"})
    decision = decided(host, published(plain(), new), new, obj)
    assert new.config is not None
    assert (decision.config_hash, decision.warnings) == (new.config.hash, ())


def test_settings_that_reach_nothing_upstream_are_in_effect_at_once(host: ProviderHost, plain: MakeDeployment) -> None:
    obj, new = live(host, plain(), config(**OLD)), config(**OLD, imagePullSecrets=[{"name": "pull"}])
    decision = decided(host, published(plain(), new), new, obj)
    assert new.config is not None
    assert (decision.config_hash, decision.warnings) == (new.config.hash, ())
    assert is_as(decision, obj), "nor is the record a reason to write"


def test_c5_a_default_config_that_is_deleted_leaves_the_pods_as_they_are(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(host, plain(), config(**OLD))
    decision = decided(host, published(plain(), NONE), NONE, obj)
    assert env_of(decision) == ["A"]
    assert is_as(decision, obj)
    assert [warning.reason for warning in decision.warnings] == [NEWER_PODS_WAIT]


def test_c14_drift_is_reverted_to_the_recorded_settings(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    obj["spec"]["env"] = [{"name": "BY_HAND", "value": "1"}]
    decision = decided(host, published(plain(), config(**NEW)), config(**NEW), obj)
    assert not is_as(decision, obj)
    assert env_of(decision) == ["A"]


def test_a_new_object_has_a_record_with_or_without_a_config(host: ProviderHost, plain: MakeDeployment) -> None:
    def record(found: Resolution) -> Resource:
        made = decided(host, published(plain(), found, served=False), found).objects[0]
        return orjson.loads(made["metadata"]["annotations"][names.RUNTIME_SETTINGS])  # type: ignore[no-any-return]

    assert record(NONE).keys() == {"for", "config"}
    assert record(config(**OLD))["pods"] == OLD


def test_c15_config_and_deployment_end_in_the_same_object_in_any_order(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    new = config(**NEW, imagePullSecrets=[{"name": "pull"}])
    at_once = decided(host, published(plain(), new, served=False), new).objects[0]
    obj = live(host, plain(), NONE)
    later = decided(host, published(plain(), new, served=False), new, obj).objects[0]
    assert orjson.dumps(at_once, option=orjson.OPT_SORT_KEYS) == orjson.dumps(later, option=orjson.OPT_SORT_KEYS)


def test_a_deployment_that_has_just_become_ready_counts_as_serving(host: ProviderHost, plain: MakeDeployment) -> None:
    """The variable was changed in the second in which the model became ready: the status does not say so yet."""
    obj = live(host, plain(), config(**OLD))
    obj["status"] = {"state": "Ready"}
    decision = decided(host, published(plain(), config(**NEW), served=False), config(**NEW), obj)
    assert env_of(decision) == ["A"]


def test_c27_a_config_that_is_too_large_stops_no_one_and_lets_nothing_new_start(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    large = config(env=[{"name": f"V{i}", "value": "x" * 1000} for i in range(40)])
    obj = live(host, plain(), config(**OLD))
    scaled = decided(host, published(plain(scaling={"replicas": 3}), large), large, obj)
    assert (scaled.do, env_of(scaled), dig(scaled.objects[0], "spec", "replicas")) == (Do.APPLY, ["A"], 3)
    assert any("RuntimeConfig ns/default" in warning.message for warning in scaled.warnings)
    new = decided(host, published(plain(), large, served=False), large)
    assert (new.do, [result.reason for result in new.results]) == (Do.OBSERVE_ONLY, ["InvalidSpec"])
    assert "RuntimeConfig ns/default cannot be used" in new.results[0].message


SETTINGS = st.builds(
    RuntimeSettings,
    env=st.lists(st.fixed_dictionaries({"name": st.text(min_size=1), "value": st.text()})).map(tuple),
    labels=st.dictionaries(st.text(), st.text(), max_size=3),
    image_pull_secrets=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    token=st.text(),
)
BOOLS = st.booleans()


@given(changed=BOOLS, served=BOOLS, granted=BOOLS, frozen=BOOLS)
def test_only_what_serves_keeps_its_settings(*, changed: bool, served: bool, granted: bool, frozen: bool) -> None:
    kept = keeps(changed=changed, served=served, granted=granted, frozen=frozen)
    assert kept == (frozen or (served and not changed and not granted))


@given(SETTINGS)
def test_settings_survive_their_record(settings: RuntimeSettings) -> None:
    assert settings_of_record(orjson.loads(orjson.dumps(settings_record(settings)))) == settings
    assert list(changed_settings(settings, settings)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("for", "config", "provider", "pods", "gateway", "env", "token", "labels", "name", "key")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(JSON, st.integers(0, 60))
def test_any_recorded_annotation_can_be_read(found: object, cut: int) -> None:
    text = orjson.dumps(found).decode()
    for each in (text, text[:cut]):
        record = read_record({"metadata": {"annotations": {names.RUNTIME_SETTINGS: each}}}, MANAGER)
        if record is not None:
            assert new_record(record, before=record) is record
            assert record.as_json() or record.stored == {}


# ------------------------------------------------------------------------------------------------------------ the gate


def test_c17_an_older_core_without_the_condition_counts_as_no_config(host: ProviderHost, plain: MakeDeployment) -> None:
    decision = decided(host, plain(), config(**NEW))
    assert (decision.do, env_of(decision)) == (Do.APPLY, [])


def test_c3_a_named_config_that_is_absent_makes_nothing(host: ProviderHost, plain: MakeDeployment) -> None:
    absent = Resolution(name="gpu", config=None, missing=True)
    deployment = published(plain(runtimeConfigName="gpu"), absent, served=False)
    decision = decided(host, deployment, absent)
    assert (decision.do, decision.objects, decision.silent) == (Do.OBSERVE_ONLY, (), False)
    (fault,) = core_faults(state(host, deployment, resolution=absent), host)
    assert (fault.reason, fault.only_degrades) == ("ConfigNotFound", False)
    assert roll_up([fault], previous=None, created=False, now=NOW).phase is Phase.PENDING


def test_c4_a_named_config_that_is_deleted_degrades_what_serves(host: ProviderHost, plain: MakeDeployment) -> None:
    there, absent = config("gpu", **OLD), Resolution(name="gpu", config=None, missing=True)
    named = plain(runtimeConfigName="gpu")
    obj = live(host, named, there)
    decision = decided(host, published(named, absent), absent, obj)
    assert (decision.do, decision.config_hash) == (Do.OBSERVE_ONLY, None)
    (fault,) = core_faults(state(host, published(named, absent), obj, resolution=absent), host)
    assert roll_up([fault], previous="Running", created=True, served=True, now=NOW).phase is Phase.DEGRADED
    restored = decided(host, published(named, there), there, obj)
    assert is_as(restored, obj)


@pytest.mark.parametrize(("seconds", "served"), [(0, False), (29, True), (31, False), (31, True)])
def test_c16_hashes_that_disagree_are_waited_for_and_said_after_30_seconds(
    host: ProviderHost, plain: MakeDeployment, seconds: int, *, served: bool
) -> None:
    obj = live(host, plain(), config(**OLD))
    theirs = published(plain(), config(**OLD), served=served)
    decision = decided(host, theirs, config(**NEW), obj, disagrees_since=NOW - timedelta(seconds=seconds))
    assert (decision.do, decision.config_hash) == (Do.OBSERVE_ONLY, None)
    said = [(each.reason, each.message) for each in decision.results]
    said += [(each.reason, each.message) for each in decision.warnings]
    texts = [message for reason, message in said if reason == "WaitingForConfig"]
    if seconds < 30:
        assert (texts, decision.gate.again) == ([], 30 - seconds)
    else:
        ours, core = config(**NEW).config, config(**OLD).config
        assert ours is not None
        assert core is not None
        assert [hash_[:12] in texts[0] for hash_ in (ours.hash, core.hash)] == [True, True]
        assert [each.reason for each in decision.results] == ([] if served else ["WaitingForConfig"])


def test_c16_a_new_deployment_waits_silently_at_first(host: ProviderHost, plain: MakeDeployment) -> None:
    decision = decided(host, published(plain(), config(**OLD), served=False), config(**NEW))
    assert (decision.do, decision.silent, decision.objects) == (Do.OBSERVE_ONLY, True, ())


def test_c16_a_changed_spec_is_not_ready_while_it_waits(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    decision = decided(host, published(plain(image="x"), config(**OLD)), config(**NEW), obj)
    assert [result.reason for result in decision.results if result.blocks_ready] == ["WaitingForConfig"]


def test_while_it_waits_its_conditions_and_warnings_stay_as_they_are(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), config(**OLD))
    deployment = published(plain(), config(**OLD))
    created = {"type": "ResourceCreated", "status": "True", "reason": "ResourceCreated", "message": "Thing created"}
    deployment["status"]["conditions"].append(created)
    deployment["status"]["warnings"] = ["spec.x: has no effect"]
    decision = decided(host, deployment, config(**NEW), obj)
    assert [(result.condition, result.message) for result in decision.results] == [("ResourceCreated", "Thing created")]
    assert [warning.message for warning in decision.warnings] == ["spec.x: has no effect"]


# --------------------------------------------------------------------------------------------- the gateway's decision


@pytest.fixture
def pooling(toy: MakeHost) -> ProviderHost:
    engine = EngineCapability(name="vllm", gpu_support=True, cpu_support=True, gateway={"managesInferencePool": True})
    return toy(translate_spec=written, engines=(engine,))


def routed(deployment: Resource, **status: Any) -> Resource:
    found = published(deployment, NONE, served=False)
    engine = {"engine": {"type": "vllm"}}
    return {**found, "status": {**found["status"], **engine, **status}}


def test_a_provider_that_makes_the_pool_waits_for_the_gateway_part_where_a_route_was_asked_for(
    pooling: ProviderHost, plain: MakeDeployment
) -> None:
    asked = plain(gateway={"enabled": True})
    waiting = decided(pooling, routed(asked, parts=["gateway"]), NONE)
    assert [result.reason for result in waiting.results] == ["WaitingForGateway"]
    gateway = {"backend": "Pool", "gatewayName": "inference", "gatewayNamespace": "gateways"}
    told = decided(pooling, routed(asked, parts=["gateway"], gateway=gateway), NONE)
    assert told.context is not None
    assert told.context.gateway == Gateway(name="inference", namespace="gateways", uses_pool=True)
    for deployment in (routed(asked), routed(plain(), parts=["gateway"])):
        assert decided(pooling, deployment, NONE).do is Do.APPLY


def test_the_gateway_s_decision_is_kept_for_as_long_as_the_object_lives(
    pooling: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(pooling, plain(), NONE)
    gateway = {"backend": "Pool", "gatewayName": "inference", "gatewayNamespace": "gateways"}
    asked = routed(plain(gateway={"enabled": True}, image="x"), parts=["gateway"], gateway=gateway)
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
    obj = live(host, plain(), NONE)
    deployment = published(plain(gateway=gateway), NONE, served=served)
    deployment["status"]["parts"] = ["gateway"]
    if reason:
        condition = {"type": "GatewayReady", "status": "False", "reason": reason, "message": "the gateway's words"}
        deployment["status"]["conditions"].append(condition)
    faults = list(core_faults(state(host, deployment, obj, resolution=NONE), host))
    found = [roll_up([fault], previous="Running", created=True, served=served, now=NOW).phase for fault in faults]
    assert found == ([] if phase is None else [phase])


def test_a_route_that_was_asked_for_while_the_part_is_off_is_said_and_not_waited_for(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    deployment = published(plain(gateway={"enabled": True}), NONE)
    (fault,) = core_faults(state(host, deployment, resolution=NONE), host)
    assert (fault.reason, fault.kind) == ("GatewayNotConfigured", Category.SCOPED_CONFIG)
    assert list(core_faults(state(host, plain(gateway={"enabled": True}), resolution=NONE), host)) == [], (
        "an older core"
    )


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
    deployment = published(plain(metadata={"labels": labels}), matching, served=False)
    obj = decided(host, deployment, matching).objects[0]
    found = labels_of(obj)
    assert found["team"] == "red"
    assert found["airunway.ai/size"] == "of the translation"
    assert found[names.MODEL_DEPLOYMENT] == plain()["metadata"]["name"]
    assert not {"other/x", names.COMPONENT} & set(found)
    assert obj["spec"]["podLabels"] == {"team": "red", "airunway.ai/size": "of the user"}


def test_l4_an_edited_label_patches_objects_and_leaves_the_pods(host: ProviderHost, plain: MakeDeployment) -> None:
    matching = config(labelPropagation={"enabled": True, "match": ["team"]})
    obj = live(host, plain(metadata={"labels": {"team": "red"}}), matching)
    blue = published(plain(metadata={"labels": {"team": "blue"}}), matching)
    decision = decided(host, blue, matching, obj)
    assert not is_as(decision, obj)
    assert labels_of(decision.objects[0])["team"] == "blue"
    assert decision.objects[0]["spec"]["podLabels"] == {"team": "red"}
    assert "labels team" in decision.warnings[0].message


def test_reserved_labels_of_a_provider_are_kept_out(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=written, reserved_labels=("thing.io/",))
    matching = config(labelPropagation={"enabled": True, "match": ["*", "*/*"]})
    labels = {"team": "red", "thing.io/shard": "1"}
    obj = decided(host, published(plain(metadata={"labels": labels}), matching, served=False), matching).objects[0]
    assert obj["spec"]["podLabels"] == {"team": "red"}
    assert "thing.io/shard" not in labels_of(obj)
