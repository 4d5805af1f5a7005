"""An object without a record keeps what it was made with: the record was lost, or it was made before there were any."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
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

from airunway.api import names
from airunway.configs.resolution import Resolution
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, annotations_of, copy_of, uid_of
from airunway.runtime.plan import Decision, Do
from airunway.runtime.records import Record, read_record, with_counts_of, written_for
from airunway.runtime.translate import parsed

ROLE: Resource = {"replicas": 2, "gpu": {"count": 1}, "memory": "1Gi"}
LARGE: Resource = {"env": [{"name": f"V{i}", "value": "x" * 1000} for i in range(40)]}


@pytest.fixture
def host(toy: MakeHost) -> ProviderHost:
    return toy(translate_spec=written)


def without_record(obj: Resource) -> Resource:
    """The object after ``kubectl annotate thing llama airunway.ai/runtime-settings-``."""
    found = copy_of(obj)
    del found["metadata"]["annotations"][names.RUNTIME_SETTINGS]
    del found["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"][f"f:{names.RUNTIME_SETTINGS}"]
    return found


def with_edited_record(obj: Resource) -> Resource:
    """The object after another writer has put a record without settings there."""
    found = without_record(obj)
    found["metadata"]["annotations"][names.RUNTIME_SETTINGS] = '{"for":"x"}'
    theirs: Resource = {"f:metadata": {"f:annotations": {f"f:{names.RUNTIME_SETTINGS}": {}}}}
    found["metadata"]["managedFields"].append({"manager": "kubectl", "operation": "Update", "fieldsV1": theirs})
    return found


def last_record(obj: Resource) -> dict[str, Record]:
    """What a process remembers that has read the object before."""
    record = read_record(obj, MANAGER)
    assert record is not None
    return {uid_of(obj): record}


def recorded(decision: Decision) -> Resource:
    found: Resource = orjson.loads(annotations_of(decision.objects[0])[names.RUNTIME_SETTINGS])
    return found


MADE = config(**OLD)
"""The config under which the objects of lost records were made."""

LOST = pytest.mark.parametrize("lost", [without_record, with_edited_record], ids=["removed", "edited"])


# -------------------------------------------------------------------------------------------------- the record is lost


@LOST
@pytest.mark.parametrize("change", [{}, {"scaling": {"replicas": 3}}], ids=["nothing else", "scaled"])
@pytest.mark.parametrize("now", [OLD, NEW, {}], ids=["the same config", "a newer config", "an empty config"])
def test_a_lost_record_is_restored_by_the_process_that_has_read_it(
    host: ProviderHost, plain: MakeDeployment, lost: Any, change: Resource, now: Resource
) -> None:
    obj, found = live(host, plain(), config(**OLD)), config(**now)
    remembered = last_record(obj)
    decision = decided(host, published(plain(**change), found, in_effect=MADE), found, lost(obj), remembered=remembered)
    assert env_of(decision) == ["A"]
    assert recorded(decision)["pods"] == OLD
    assert is_as(decision, obj) or change, "with its record the object is as it was"


@LOST
@pytest.mark.parametrize("change", [{}, {"scaling": {"replicas": 3}}], ids=["nothing else", "scaled"])
def test_after_a_restart_an_object_with_the_current_settings_gets_a_record_of_them(
    host: ProviderHost, plain: MakeDeployment, lost: Any, change: Resource
) -> None:
    obj = lost(live(host, plain(), config(**OLD)))
    decision = decided(host, published(plain(**change), config(**OLD), in_effect=MADE), config(**OLD), obj)
    assert (decision.do, env_of(decision), recorded(decision)["pods"]) == (Do.APPLY, ["A"], OLD)
    assert decision.warnings == ()


@LOST
@pytest.mark.parametrize("now", [config(**NEW), NONE], ids=["a newer config", "no config"])
def test_after_a_restart_an_object_with_other_settings_is_not_written(
    host: ProviderHost, plain: MakeDeployment, lost: Any, now: Resolution
) -> None:
    obj = lost(live(host, plain(), config(**OLD)))
    for change in ({}, {"scaling": {"replicas": 3}}):
        decision = decided(host, published(plain(**change), now, in_effect=MADE), now, obj)
        assert (decision.do, decision.objects, decision.plan) == (Do.OBSERVE_ONLY, (), None)
        assert decision.config_hash is None, "the hash of the settings in effect stays"
        (warning,) = decision.warnings
        assert warning.reason == "PodSettingsUnknown"
        assert "Thing 'llama'" in warning.message
        assert names.ADOPT in warning.message
        assert [result.reason for result in decision.results if result.blocks_ready] == (
            ["WaitingForConfig"] if change else []
        )


@pytest.mark.parametrize(
    ("deployment", "how"),
    [({"image": "x"}, {}), ({"metadata": {"annotations": {names.ADOPT: "now"}}}, {}), ({}, {"granted": True})],
    ids=["the spec", "an adoption", "granted by the core"],
)
def test_an_object_whose_settings_are_not_known_takes_the_current_ones_with(
    host: ProviderHost, plain: MakeDeployment, deployment: Resource, how: dict[str, Any]
) -> None:
    obj = without_record(live(host, plain(), config(**OLD)))
    decision = decided(host, published(plain(**deployment), config(**NEW), in_effect=MADE, **how), config(**NEW), obj)
    assert (decision.do, env_of(decision), recorded(decision)["pods"]) == (Do.APPLY, ["A", "B"], NEW)


def test_a_lost_record_is_no_cause_to_take_another_image_of_the_provider(toy: MakeHost, plain: MakeDeployment) -> None:
    """The live object is neither what the provider would write without settings nor with the current ones."""
    host = toy(translate_spec=lambda deployment, context: _imaged(deployment, context, image="engine:1"))
    newer = toy(translate_spec=lambda deployment, context: _imaged(deployment, context, image="engine:2"))
    obj = without_record(live(host, plain(), config(**OLD)))
    assert decided(newer, published(plain(), config(**OLD), in_effect=MADE), config(**OLD), obj).do is Do.OBSERVE_ONLY


def _imaged(deployment: Any, context: Any, *, image: str) -> list[Resource]:
    (obj,) = written(deployment, context)
    return [{**obj, "spec": {**obj["spec"], "image": image}}]


def test_the_settings_of_a_lost_record_are_compared_by_content_where_the_digest_of_the_last_write_is_lost_too(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = without_record(live(host, plain(), config(**OLD)))
    del obj["metadata"]["annotations"][names.SPEC_HASH]
    decision = decided(host, published(plain(), config(**OLD), in_effect=MADE), config(**OLD), obj)
    assert (decision.do, env_of(decision)) == (Do.APPLY, ["A"])
    obj["spec"]["env"] = [{"name": "BY_HAND", "value": "1"}]
    assert decided(host, published(plain(), config(**OLD), in_effect=MADE), config(**OLD), obj).do is Do.OBSERVE_ONLY


# ------------------------------------------------------------------------------------------- made without a record


@pytest.mark.parametrize("change", [{}, {"scaling": {"replicas": 3}}, {"gateway": {"enabled": False}}])
def test_an_object_of_an_earlier_release_takes_no_config_when_it_is_scaled(
    host: ProviderHost, plain: MakeDeployment, change: Resource
) -> None:
    obj = live(host, plain(), NONE, records=False)
    decision = decided(host, published(plain(**change), config(**NEW)), config(**NEW), obj)
    assert (decision.do, env_of(decision)) == (Do.APPLY, [])
    assert [warning.reason for warning in decision.warnings] == ["NewerPodSettingsWait"]
    assert decision.config_hash is None


def test_a_scaled_object_of_an_earlier_release_has_a_record_from_then_on(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(host, plain(), NONE, records=False)
    scaled = plain(scaling={"replicas": 3})
    decision = decided(host, published(scaled, config(**NEW)), config(**NEW), obj)
    assert recorded(decision) == {"for": written_for(scaled, parsed(scaled)).lasting, "config": "default"}
    changed = decided(host, published(plain(image="x"), config(**NEW)), config(**NEW), obj)
    assert (env_of(changed), recorded(changed)["pods"]) == (["A", "B"], NEW)


def test_an_object_of_an_earlier_release_has_no_pod_settings_and_is_not_written(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    labelled = plain(metadata={"labels": {"airunway.ai/tenant": "red"}})
    obj = live(host, plain(), NONE, records=False)
    obj["metadata"]["labels"]["airunway.ai/tenant"] = "red"
    for new in (config(**NEW), NONE):
        decision = decided(host, published(labelled, new), new, obj)
        assert (env_of(decision), decision.objects[0]["spec"]["podLabels"]) == ([], {})
        assert names.RUNTIME_SETTINGS not in decision.objects[0]["metadata"]["annotations"]


def test_an_object_of_an_earlier_release_is_not_held_because_the_provider_writes_another_image(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    host = toy(translate_spec=lambda deployment, context: _imaged(deployment, context, image="engine:1"))
    newer = toy(translate_spec=lambda deployment, context: _imaged(deployment, context, image="engine:2"))
    obj = live(host, plain(), NONE, records=False)
    assert decided(newer, published(plain(scaling={"replicas": 3}), NONE), NONE, obj).do is Do.APPLY


def test_drift_of_an_object_of_an_earlier_release_is_reverted(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = live(host, plain(), NONE, records=False)
    obj["spec"]["env"] = [{"name": "BY_HAND", "value": "1"}]
    decision = decided(host, published(plain(), config(**NEW)), config(**NEW), obj)
    assert (decision.do, env_of(decision)) == (Do.APPLY, [])


def test_ruling_27_a_scaled_object_of_an_earlier_release_keeps_its_transformer(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    from core.tests.runtime.views import made

    host = toy()
    obj = made(host, plain(), writer="v2-a")[0]
    del obj["metadata"]["annotations"][names.RUNTIME_SETTINGS]

    def writer(**change: Any) -> str:
        decision = decided(host, published(plain(**change), NONE), NONE, obj)
        assert decision.context is not None
        return decision.context.upstream.transformer.name

    assert [writer(scaling={"replicas": 5}), writer(image="x")] == ["v2-a", "v2-b"]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({}, {"scaling": {"replicas": 4}}, True),
        ({"scaling": {"replicas": 4}}, {}, True),
        ({"scaling": {"replicas": 0}}, {"scaling": {"replicas": 32}}, True),
        ({}, {"suspend": True, "scaling": {"replicas": 2}}, True),
        ({"scaling": {"prefill": ROLE, "decode": ROLE}},
         {"scaling": {"prefill": {**ROLE, "replicas": 1}, "decode": {**ROLE, "replicas": 7}}}, True),
        ({"scaling": {"prefill": ROLE, "decode": ROLE}},
         {"scaling": {"prefill": {**ROLE, "memory": "2Gi"}, "decode": {**ROLE, "replicas": 7}}}, False),
        ({}, {"scaling": {"replicas": 4}, "image": "x"}, False),
        ({}, {"metadata": {"annotations": {names.ADOPT: "now"}}, "scaling": {"replicas": 4}}, False),
    ],
)  # fmt: skip
def test_replica_counts_are_told_from_other_changes_by_the_digest_of_what_was_written(
    plain: MakeDeployment, before: Resource, after: Resource, *, same: bool
) -> None:
    old, new = plain(**before), plain(**after)
    mark = written_for(old, parsed(old)).wanted
    found = with_counts_of(mark, new, parsed(new))
    assert (found is not None) == same
    if found is not None:
        assert found.spec.scaling == parsed(old).spec.scaling


# -------------------------------------------------------------------------------------- a config that cannot be used


def test_c27_a_name_of_a_config_that_cannot_be_used_is_recorded_once_its_settings_are_taken(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(host, plain(), config(**OLD))
    renamed, large, usable = plain(runtimeConfigName="gpu"), config("gpu", **LARGE), config("gpu", **NEW)
    frozen = decided(host, published(renamed, large), large, obj)
    assert is_as(frozen, obj), "nothing was applied, so nothing is recorded"
    edited = decided(host, published(plain(runtimeConfigName="gpu", image="x"), large), large, obj)
    assert (env_of(edited), recorded(edited)["config"]) == (["A"], "default")
    after = {**obj, **copy_of(edited.objects[0])}
    after["metadata"] |= {key: obj["metadata"][key] for key in ("uid", "creationTimestamp", "managedFields")}
    for deployment, there in ((renamed, obj), (plain(runtimeConfigName="gpu", image="x"), after)):
        mended = decided(host, published(deployment, usable), usable, there)
        assert (env_of(mended), recorded(mended)["config"]) == (["A", "B"], "gpu")


def test_a_new_object_of_a_usable_config_has_its_name(host: ProviderHost, plain: MakeDeployment) -> None:
    usable = config("gpu", **NEW)
    decision = decided(host, published(plain(runtimeConfigName="gpu"), usable, served=False), usable)
    assert recorded(decision)["config"] == "gpu"
