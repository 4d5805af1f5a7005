"""Which cache a pass mounts, and when it may write at all."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from airunway.runtime.pod_settings import NEWER_PODS_WAIT, NEWER_WEIGHTS_WAIT
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.configured import MANAGER, NEW, NONE, OLD, config, decided, is_as, published, written
from core.tests.runtime.test_lost_record import LOST, last_record, without_record
from core.tests.runtime.views import NOW, state

from airunway.api import names
from airunway.configs.resolution import Resolution
from airunway.owned.plan import Action
from airunway.plugins.contract import EngineCapability, ModelCache
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.registry import load
from airunway.plugins.settings import runtime_settings
from airunway.resource import Resource, annotations_of, copy_of, dig, format_time, labels_of
from airunway.runtime.gate import cache_reads, core_faults
from airunway.runtime.plan import Decision, Do, decide
from airunway.runtime.records import read_record
from airunway.runtime.translate import parsed, translate
from airunway.sdk import Compatibility, Finding, Translation, cache_mounts, pod_blockers
from airunway.status.evidence import Evidence, PodFacts
from airunway.status.rollup import roll_up

SHARED: Resource = {"id": "org/model", "cache": {"mode": "Shared"}}
OTHER: Resource = {"id": "org/other", "cache": {"mode": "Shared"}}
FIRST = ModelCache(claim="first", sub_path="model", path="/model-cache", access_mode="ReadWriteMany")
ONCE = replace(FIRST, access_mode="ReadWriteOnce")


def mounted(deployment: Any, context: Any) -> Translation:
    """A Thing with what the pods mount."""
    (obj,) = written(deployment, context)
    volumes, mounts = cache_mounts(context)
    return Translation(objects=({**obj, "spec": {**obj["spec"], "volumes": volumes, "mounts": mounts}},))


@pytest.fixture
def host(toy: MakeHost) -> ProviderHost:
    return toy(
        translate_spec=mounted,
        can_handle=lambda deployment, context: Compatibility(blockers=tuple(pod_blockers(deployment, context))),
        engines=(
            EngineCapability(name="vllm", gpu_support=True, model_cache=True),
            EngineCapability(name="none", gpu_support=True),
        ),
    )


def made(host: ProviderHost, deployment: Resource, cache: ModelCache | None, found: Resolution = NONE) -> Resource:
    """What was made of the deployment with that cache, as the API server has it."""
    runtime = runtime_settings(found.config, labels_of(deployment))
    context = replace(assumed_context(host, engine="vllm", now=NOW), runtime=runtime, cache=cache)
    obj = copy_of(translate(host, deployment, parsed(deployment), context, config=found.config).objects[0])
    fields: Resource = {f"f:{key}": {} for key in obj["metadata"]["annotations"]}
    entry = {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:annotations": fields}}}
    obj["metadata"] |= {
        "uid": "uid-1",
        "creationTimestamp": format_time(NOW - timedelta(hours=1)),
        "managedFields": [{**entry, "apiVersion": obj["apiVersion"]}],
    }
    return {**obj, "status": {"state": "Starting"}}


def answered(
    deployment: Resource,
    reason: str = "Ready",
    *,
    claim: str = "",
    on: bool = True,
    served: bool = True,
    mode: str = "ReadWriteMany",
    of_older: bool = False,
    message: str = "the part's words",
    found: Resolution = NONE,
    **status: Any,
) -> Resource:
    """The deployment with what core and part say about its cache."""
    after = published(deployment, found, served=served)
    generation = deployment["metadata"]["generation"]
    condition = {
        "type": "ModelCacheReady",
        "status": "True" if reason == "Ready" else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation - 1 if of_older else generation,
        "lastTransitionTime": format_time(NOW),
    }
    cache = {
        "artifactName": "weights",
        **({"claimName": claim} if claim else {}),
        "mountPath": "/model-cache",
        "path": "/model-cache",
        "ready": reason == "Ready",
        **({"accessMode": mode} if reason == "Ready" else {}),
    }
    said: Resource = {"modelCache": cache} if reason else {}
    conditions = [*after["status"]["conditions"], *([condition] if reason else [])]
    parts = {"parts": ["model-cache"]} if on else {}
    return {**after, "status": {**after["status"], **said, **parts, "conditions": conditions, **status}}


def claims(decision: Decision) -> list[str]:
    return [volume["persistentVolumeClaim"]["claimName"] for volume in decision.objects[0]["spec"]["volumes"]]


def phase(host: ProviderHost, deployment: Resource, *live: Resource, served: bool = True) -> tuple[str, str]:
    """Phase and message that follow from the cache alone."""
    faults = list(core_faults(state(host, deployment, *live, resolution=NONE), host))
    found = roll_up(faults, previous="Running" if served else None, created=bool(live), served=served, now=NOW)
    return found.phase.value, found.message


# ------------------------------------------------------------------------------------------------------------ the gate


@pytest.mark.parametrize(
    ("how", "phase_", "said"),
    [
        ({"reason": "", "served": False}, "Running", "has answered"),
        ({"reason": "Downloading", "served": False}, "Pending", "(Downloading)"),
        ({"reason": "GatedModel", "served": False}, "Degraded", "the part's words"),
        ({"reason": "AccessModeConflict", "served": False}, "Pending", "the part's words"),
        ({"reason": "Ready", "claim": "first", "of_older": True, "served": False}, "Running", "has answered"),
        ({"reason": "Ready", "claim": "first", "on": False, "served": False}, "Pending", "--model-cache=on"),
        ({"reason": "", "on": False, "served": False}, "Pending", "--model-cache=on"),
    ],
    ids=["not answered", "downloading", "gated", "conflict", "of an older spec", "part off", "part off from the start"],
)
def test_a42_nothing_is_made_before_the_weights_are_ready_for_this_spec(
    host: ProviderHost, plain: MakeDeployment, how: dict[str, Any], phase_: str, said: str
) -> None:
    deployment = answered(plain(model=SHARED), **how)
    decision = decided(host, deployment, NONE)
    assert (decision.do, decision.objects, decision.silent) == (Do.OBSERVE_ONLY, (), False)
    found, message = phase(host, deployment, served=False)
    texts = [result.message for result in decision.results] or [message]
    assert (found, [said in text for text in texts]) == (phase_, [True])


@pytest.mark.parametrize(
    ("reason", "on", "asked"),
    [("Downloading", True, True), ("", True, False), ("GatedModel", True, False), ("Downloading", False, False)],
)
def test_a_refusal_does_not_wait_for_the_weights(
    host: ProviderHost, toy: MakeHost, plain: MakeDeployment, reason: str, on: bool, asked: bool
) -> None:
    mounts: list[ModelCache | None] = []

    def can_handle(_deployment: Any, context: Any) -> Compatibility:
        mounts.append(context.cache)
        blocker = Finding(path="spec.affinity", reason="IncompatibleConfiguration", message="cannot be")
        return Compatibility(blockers=(blocker, replace(blocker, reason="AccessModeConflict", message="too many")))

    refusing = toy(can_handle=can_handle, engines=host.manifest.engines)
    decision = decided(refusing, answered(plain(model=SHARED), reason, on=on, served=False), NONE)
    assert (decision.do, decision.objects, decision.plan) == (Do.OBSERVE_ONLY, (), None)
    refusals = [result for result in decision.results if result.condition == "ProviderCompatible"]
    assert [(result.reason, result.message) for result in refusals] == (
        [("IncompatibleConfiguration", "spec.affinity: cannot be")] if asked else []
    )
    assert [mount is not None and mount.mount_path == "/model-cache" for mount in mounts] == [True] * asked


def test_ready_weights_are_mounted_and_recorded(host: ProviderHost, plain: MakeDeployment) -> None:
    deployment = answered(plain(model=SHARED), claim="first", served=False)
    decision = decided(host, deployment, NONE)
    assert (decision.do, claims(decision)) == (Do.APPLY, ["first"])
    (mount,) = decision.objects[0]["spec"]["mounts"]
    assert (mount["subPath"], mount["mountPath"], mount["readOnly"]) == ("model", "/model-cache", True)
    record = orjson.loads(annotations_of(decision.objects[0])[names.RUNTIME_SETTINGS])
    assert record["cache"] == {
        "claim": "first",
        "subPath": "model",
        "mountPath": "/model-cache",
        "path": "/model-cache",
        "accessMode": "ReadWriteMany",
    }
    assert is_as(decided(host, answered(plain(model=SHARED), claim="first"), NONE, made(host, deployment, FIRST)),
                 made(host, deployment, FIRST))  # fmt: skip


@pytest.mark.parametrize(
    ("published_for", "made_"),
    [("new", True), (None, True), ("old", False)],
    ids=["for this template", "by a part of an older release", "for the template as it was"],
)
@pytest.mark.parametrize("alive", [False, True], ids=["nothing exists", "it serves"])
def test_an_edited_template_waits_for_its_own_weights(
    host: ProviderHost, plain: MakeDeployment, published_for: str | None, made_: bool, alive: bool
) -> None:
    template: Resource = {"effectiveTemplate": {"hash": "new", "spec": {}}}
    deployment = answered(plain(model=OTHER), claim="first", served=alive, **template)
    if published_for is not None:
        deployment["status"]["modelCache"]["templateHash"] = published_for
    objects = [made(host, plain(model=SHARED), FIRST)] if alive else []
    decision = decided(host, deployment, NONE, *objects)
    assert decision.do is (Do.APPLY if made_ else Do.OBSERVE_ONLY)
    if not made_:
        (result,) = [result for result in decision.results if result.blocks_ready]
        assert result.reason == "WaitingForModelCache"


def test_a_record_says_nothing_of_a_cache_that_is_not_there(host: ProviderHost, plain: MakeDeployment) -> None:
    record = orjson.loads(annotations_of(made(host, plain(), None))[names.RUNTIME_SETTINGS])
    assert record.keys() == {"for", "config"}


def test_a43_a_provider_that_cannot_mount_refuses_and_does_not_wait(host: ProviderHost, plain: MakeDeployment) -> None:
    deployment = answered(plain(model=SHARED), "", served=False, engine={"type": "none"})
    decision = decided(host, deployment, NONE)
    assert [(result.condition, result.reason) for result in decision.results] == [
        ("ProviderCompatible", "IncompatibleConfiguration")
    ]
    assert list(core_faults(state(host, deployment, resolution=NONE), host)) == []


def test_an_older_core_without_parts_says_that_the_part_is_off(host: ProviderHost, plain: MakeDeployment) -> None:
    (fault,) = core_faults(state(host, plain(model=SHARED), resolution=NONE), host)
    assert (fault.reason, fault.component) == ("ModelCacheNotEnabled", "ModelCache")


def test_the_config_comes_first_and_the_gateway_last(host: ProviderHost, plain: MakeDeployment) -> None:
    deployment = answered(plain(model=SHARED), claim="first", served=False, found=config(**OLD))
    decision = decided(host, deployment, config(**NEW))
    assert (decision.do, decision.silent) == (Do.OBSERVE_ONLY, True), "the configs disagree: too early to say anything"


# --------------------------------------------------------------------------------------------------------- what serves

ADOPTED: Resource = {"metadata": {"annotations": {names.ADOPT: "now"}}}


@pytest.mark.parametrize(
    ("spec", "how", "expected"),
    [
        ({}, {"reason": "CacheLost", "claim": "first"}, "first"),
        ({}, {"reason": "Ready", "claim": "second"}, "first"),
        ({"scaling": {"replicas": 3}}, {"reason": "CacheLost", "claim": "first"}, "first"),
        ({"scaling": {"replicas": 3}}, {"reason": "Ready", "claim": "second"}, "first"),
        ({"scaling": {"replicas": 3}}, {"reason": "Ready", "claim": "second", "of_older": True}, "first"),
        ({"gateway": {"enabled": False}}, {"reason": "Ready", "claim": "second"}, "first"),
        ({}, {"reason": "Ready", "claim": "first", "on": False}, "first"),
        ({}, {"reason": "", "on": False}, "first"),
        ({}, {"reason": "WaitingForConfig"}, "first"),
        ({"image": "x"}, {"reason": "Ready", "claim": "second"}, "second"),
        (ADOPTED, {"reason": "Ready", "claim": "second"}, "second"),
        ({}, {"reason": "Ready", "claim": "second", "rollout": {"claimName": "second"}}, "second"),
        ({}, {"reason": "Ready", "claim": "second", "rollout": {"claimName": "older"}}, "first"),
        ({}, {"reason": "Ready", "claim": "second", "served": False}, "second"),
        ({}, {"reason": "CacheLost", "claim": "first", "served": False}, "first"),
        ({"model": {**SHARED, "cache": {"mode": "None"}}}, {"reason": "Ready", "claim": "first"}, ""),
        ({"model": OTHER}, {"reason": "Ready", "claim": "second"}, "second"),
    ],
    ids=[
        "lost",
        "fetched anew",
        "lost and scaled",
        "fetched anew and scaled",
        "scaled, not answered yet",
        "fetched anew, routing off",
        "part switched off",
        "part of an older core",
        "the part waits for its config",
        "an image with the new copy",
        "adopted",
        "granted",
        "a grant for an earlier copy",
        "fetched anew before it served",
        "lost before it served",
        "cache switched off",
        "another model that is Ready",
    ],
)
def test_a15_a33_a46_what_serves_keeps_its_claim_until(
    host: ProviderHost, plain: MakeDeployment, spec: Resource, how: dict[str, Any], expected: str
) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    deployment = answered(plain(**{"model": SHARED, **spec}), **how)
    decision = decided(host, deployment, NONE, obj)
    assert (decision.do, claims(decision)) == (Do.APPLY, [expected] if expected else [])
    if not spec and expected == "first":
        assert is_as(decision, obj), "nothing is written"
    waits = [warning for warning in decision.warnings if warning.reason == NEWER_WEIGHTS_WAIT]
    assert [("second" in warning.message, "first" in warning.message) for warning in waits] == (
        [(True, True)] if (how["reason"], how.get("claim"), expected) == ("Ready", "second", "first")
        and not how.get("of_older") else []
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "late", "phase_"),
    [
        ({"reason": "Downloading"}, "once the model cache is Ready", "Running"),
        ({"reason": "Ready", "claim": "first", "of_older": True}, "once the model cache is Ready", "Running"),
        ({"reason": "CacheLost", "claim": "first"}, "once the model cache is Ready", "Degraded"),
        ({"reason": "GatedModel"}, "once the model cache is Ready", "Degraded"),
        ({"reason": "Ready", "claim": "first", "on": False}, "--model-cache=on", "Degraded"),
    ],
    ids=["downloading", "not answered yet", "lost", "gated", "part off"],
)
@pytest.mark.parametrize("spec", [{"model": OTHER}, {"image": "x"}, ADOPTED], ids=["model", "image", "adoption"])
def test_a33_a_changed_spec_waits_for_its_weights_and_the_live_object_stays(
    host: ProviderHost, plain: MakeDeployment, spec: Resource, how: dict[str, Any], late: str, phase_: str
) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    deployment = answered(plain(**{"model": SHARED, **spec}), **how)
    decision = decided(host, deployment, NONE, obj)
    assert (decision.do, decision.objects, decision.plan) == (Do.OBSERVE_ONLY, (), None)
    (result,) = [result for result in decision.results if result.blocks_ready]
    assert (result.reason, late in result.message) == ("WaitingForModelCache", True)
    assert phase(host, deployment, obj)[0] == phase_
    assert decision.context is not None
    assert decision.context.cache == FIRST, "the live object is read with the cache that it has"


@pytest.mark.parametrize("ready", [0, 1], ids=["no pod serves", "one of its pods serves"])
def test_a15_a_new_copy_is_taken_at_once_where_no_pod_serves(
    host: ProviderHost, plain: MakeDeployment, ready: int
) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    pods = tuple(PodFacts(namespace="ml", name=f"p-{each}", uid=f"u-{each}", ready=each < ready) for each in range(2))
    deployment = answered(plain(model=SHARED), claim="second")
    decision = decided(host, deployment, NONE, obj, evidence=Evidence(pods=pods))
    assert claims(decision) == (["first"] if ready else ["second"])


def test_a_new_copy_takes_no_newer_variables_along_and_a_wave_of_a_config_no_claim(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = made(host, plain(model=SHARED), FIRST, config(**OLD))
    rollout: dict[str, Any] = {"rollout": {"claimName": "second"}}
    granted = answered(plain(model=SHARED), claim="second", found=config(**NEW), **rollout)
    decision = decided(host, granted, config(**NEW), obj)
    assert (claims(decision), [entry["name"] for entry in decision.objects[0]["spec"]["env"]]) == (["second"], ["A"])
    assert [warning.reason for warning in decision.warnings] == [NEWER_PODS_WAIT]
    assert decision.config_hash is None
    found = config(**NEW).config
    assert found is not None
    effective: dict[str, Any] = {"effectiveRuntimeConfig": found.status() | {"rollout": "Granted"}}
    wave = answered(plain(model=SHARED), claim="second", found=config(**NEW), **effective)
    decision = decided(host, wave, config(**NEW), obj)
    assert (claims(decision), len(decision.objects[0]["spec"]["env"])) == (["first"], 2)
    assert [warning.reason for warning in decision.warnings] == [NEWER_WEIGHTS_WAIT]


def test_drift_is_reverted_to_the_recorded_claim(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    obj["spec"]["volumes"] = []
    decision = decided(host, answered(plain(model=SHARED), "CacheLost", claim="first"), NONE, obj)
    assert (decision.do, claims(decision), is_as(decision, obj)) == (Do.APPLY, ["first"], False)


def test_a16_scaled_up_on_a_claim_for_one_pod_leaves_what_runs(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = made(host, plain(model=SHARED), ONCE)
    scaled = plain(model=SHARED, scaling={"replicas": 3})
    conflict = answered(scaled, "AccessModeConflict", claim="first")
    decision = decided(host, conflict, NONE, obj)
    assert (decision.do, decision.objects) == (Do.OBSERVE_ONLY, ())
    assert phase(host, conflict, obj) == ("Degraded", "the part's words")
    early = decided(host, answered(scaled, claim="first", mode="ReadWriteOnce", of_older=True), NONE, obj)
    assert (early.do, early.objects) == (Do.OBSERVE_ONLY, ()), "the part has not answered for three replicas yet"
    off = decided(host, answered(scaled, claim="first", on=False), NONE, obj)
    (refused,) = [result for result in off.results if result.blocks_ready]
    assert (refused.reason, refused.only_degrades) == ("AccessModeConflict", True)


def test_a20_a_provider_that_takes_over_mounts_the_same_claim(host: ProviderHost, plain: MakeDeployment) -> None:
    deployment = answered(plain(model=SHARED), claim="first")
    taken = {**deployment, "metadata": {**deployment["metadata"], "finalizers": ["airunway.ai/old-provider"]}}
    assert decided(host, taken, NONE).do is Do.OBSERVE_ONLY, "the previous provider's objects go first"
    assert claims(decided(host, deployment, NONE)) == ["first"]


# ----------------------------------------------------------------------------------------------------- a lost record


@LOST
def test_a_lost_record_is_restored_with_its_claim(host: ProviderHost, plain: MakeDeployment, lost: Any) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    for deployment in (
        answered(plain(model=SHARED), claim="second"),
        answered(plain(model=SHARED), "CacheLost", claim="first"),
        answered(plain(model=SHARED), "", on=False),
    ):
        decision = decided(host, deployment, NONE, lost(obj), remembered=last_record(obj))
        assert is_as(decision, obj)


@LOST
@pytest.mark.parametrize(
    ("how", "spec", "expected"),
    [
        ({"claim": "first"}, {}, ["first"]),
        ({"claim": "first"}, {"scaling": {"replicas": 3}}, ["first"]),
        ({"claim": "second"}, {}, None),
        ({"reason": "CacheLost", "claim": "first"}, {}, None),
        ({"claim": "first", "on": False}, {}, None),
        ({"claim": "second"}, {"image": "x"}, ["second"]),
        ({"claim": "second", "rollout": {"claimName": "second"}}, {}, ["second"]),
    ],
    ids=["its claim is Ready", "and it is scaled", "another is Ready", "lost", "part off", "the spec", "granted"],
)
def test_after_a_restart_an_object_without_a_record_is_not_written_unless_its_claim_is_known(
    host: ProviderHost,
    plain: MakeDeployment,
    lost: Any,
    how: dict[str, Any],
    spec: Resource,
    expected: list[str] | None,
) -> None:
    obj = lost(made(host, plain(model=SHARED), FIRST))
    decision = decided(host, answered(plain(**{"model": SHARED, **spec}), **how), NONE, obj)
    if expected is None:
        assert (decision.do, decision.objects) == (Do.OBSERVE_ONLY, ())
    else:
        assert (decision.do, claims(decision)) == (Do.APPLY, expected)


def test_the_record_of_a_cache_can_be_read_whatever_stands_there(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    record = read_record(obj, MANAGER)
    assert record is not None
    assert record.cache == FIRST
    values: tuple[object, ...] = (
        None,
        1,
        [],
        {},
        {"claim": 1},
        {"claim": "", "mountPath": "/x"},
        {"claim": "x", "path": []},
    )
    for broken in values:
        text = orjson.dumps({"for": "x", "cache": broken}).decode()
        edited = {**obj, "metadata": {**obj["metadata"], "annotations": {names.RUNTIME_SETTINGS: text}}}
        found = read_record(edited, MANAGER)
        assert found is not None
        assert found.cache is None
    assert read_record(without_record(obj), MANAGER) is None


# ------------------------------------------------------------------------------------------- dry run, suspend, passes


@pytest.mark.parametrize(
    ("how", "claim", "said"),
    [
        ({"claim": "first"}, "first", "pods mount claim first at /model-cache"),
        ({"reason": "DryRun", "message": "would create it"}, "weights-cache", "ModelArtifact weights at /model-cache"),
        ({"reason": "Downloading"}, "weights-cache", "ModelArtifact weights at /model-cache: the part's words"),
    ],
)
def test_x5_a_dry_run_says_what_would_be_mounted(
    host: ProviderHost, plain: MakeDeployment, how: dict[str, Any], claim: str, said: str
) -> None:
    asked = plain(model=SHARED, metadata={"annotations": {names.DRY_RUN: "true"}})
    decision = decided(host, answered(asked, served=False, **how), NONE)
    assert (decision.do, claims(decision)) == (Do.PREVIEW, [claim])
    assert said in decision.gate.planned


def test_x5_a_dry_run_with_a_fault_of_the_cache_says_the_fault(host: ProviderHost, plain: MakeDeployment) -> None:
    asked = plain(model=SHARED, metadata={"annotations": {names.DRY_RUN: "true"}})
    for how in ({"reason": "AccessModeConflict"}, {"reason": "", "on": False}):
        assert decided(host, answered(asked, served=False, **how), NONE).do is Do.OBSERVE_ONLY


@pytest.mark.parametrize("how", [{"reason": "Suspended"}, {"reason": "", "on": False}, {"reason": "CacheLost"}])
def test_suspending_waits_for_no_cache(host: ProviderHost, plain: MakeDeployment, how: dict[str, Any]) -> None:
    obj = made(host, plain(model=SHARED), FIRST)
    deployment = answered(plain(model=SHARED, suspend=True), **how)
    for live in ((obj,), ()):
        decision = decided(host, deployment, NONE, *live)
        assert decision.do is Do.SUSPEND
        assert [result.ok for result in decision.results if result.condition == "ProviderCompatible"] == [True]
    assert list(core_faults(state(host, deployment, resolution=NONE), host)) == []


@pytest.mark.parametrize("reason", ["Downloading", "CacheLost"])
def test_progress_of_a_download_is_no_part_of_what_a_pass_reads(
    host: ProviderHost, plain: MakeDeployment, reason: str
) -> None:
    steps = [answered(plain(model=SHARED), reason, message=f"weights: {step} % of 140 GB") for step in (10, 20)]
    assert cache_reads(steps[0]) == cache_reads(steps[1])
    texts = {phase(host, step, served=False) for step in steps}
    assert len(texts) == 1, "nor of what it says"
    assert cache_reads(answered(plain(model=SHARED), "Verifying")) != cache_reads(steps[0])
    assert cache_reads(answered(plain(), reason)) is None, "nothing is asked for"
    gated = [answered(plain(model=SHARED), "GatedModel", message=text) for text in ("a", "b")]
    assert cache_reads(gated[0]) != cache_reads(gated[1])
    granted = answered(plain(model=SHARED), reason, rollout={"claimName": "second"})
    assert cache_reads(granted) != cache_reads(steps[0])
    assert dig(granted, "status", "rollout", "claimName") == "second"


# --------------------------------------------------------------------------------------------------------------- KAITO


@pytest.mark.parametrize(
    "how",
    [{"reason": "CacheLost", "claim": "first"}, {"reason": "", "on": False}, {"reason": "Ready", "claim": "second"}],
    ids=["lost", "part off", "fetched anew"],
)
def test_a46_a_kaito_template_does_not_become_a_preset_while_its_weights_are_fetched(
    plain: MakeDeployment, how: dict[str, Any]
) -> None:
    kaito, inference = load("kaito"), ("spec", "template", "inference")  # of an InferenceSet
    given: Resource = {"provider": {"name": "kaito"}}
    context = replace(assumed_context(kaito, engine="vllm", now=NOW), cache=FIRST)
    asked = plain(model=SHARED, status=given)
    obj = copy_of(translate(kaito, asked, parsed(asked), context).objects[0])
    obj["metadata"] |= {"uid": "workspace", "creationTimestamp": format_time(NOW - timedelta(hours=1))}
    decision = decide(state(kaito, answered(asked, **how), obj, resolution=NONE), kaito, settings=kaito.settings({}))
    assert "template" in dig(decision.objects[0], *inference)
    assert decision.plan is not None
    assert Action.REPLACE not in [step.action for step in decision.plan.steps]
    off = plain(model={"id": "org/model"}, status=given)
    decision = decide(state(kaito, answered(off, **how), obj, resolution=NONE), kaito, settings=kaito.settings({}))
    assert "preset" in dig(decision.objects[0], *inference), "the cache goes with the change of the spec"
