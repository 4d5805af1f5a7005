"""Which cache a pass mounts, and when it may write at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.configured import NEW, NONE, OLD, config, decided, is_as, pending, view, written
from core.tests.runtime.views import NOW, stored

from airunway.api import names
from airunway.configs.resolution import Resolution
from airunway.owned.plan import Action
from airunway.plugins.contract import EngineCapability, ModelCache
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource, dig, format_time
from airunway.revisions.revision import is_in_effect, waits_for
from airunway.runtime.gate import cache_reads, core_faults
from airunway.runtime.plan import Decision, Do, decide
from airunway.sdk import Compatibility, Finding, NoSettings, Translation, cache_mounts, pod_blockers
from airunway.status.rollup import roll_up

SHARED: Resource = {"id": "org/model", "cache": {"mode": "Shared"}}
OTHER: Resource = {"id": "org/other", "cache": {"mode": "Shared"}}
FIRST = ModelCache(claim="first", sub_path="model", path="/model-cache", access_mode="ReadWriteMany")


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


def made(
    host: ProviderHost, deployment: Resource, *, mode: str = "ReadWriteMany", found: Resolution = NONE, **how: Any
) -> Resource:
    """What was made of the deployment with the claim "first", as the API server has it."""
    asked = answered(deployment, claim="first", mode=mode)
    decision = decide(view(host, asked, found, **how), host, settings=host.settings({}))
    return stored(decision.objects[0], says="Starting")


def answered(
    deployment: Resource,
    reason: str = "Ready",
    *,
    claim: str = "",
    on: bool = True,
    mode: str = "ReadWriteMany",
    of_older: bool = False,
    message: str = "the part's words",
    **status: Any,
) -> Resource:
    """The deployment with what the part says about its cache."""
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
    before: Resource = deployment["status"]
    conditions = [*before["conditions"], *([condition] if reason else [])]
    parts = {"parts": ["model-cache"]} if on else {}
    return {**deployment, "status": {**before, **said, **parts, "conditions": conditions, **status}}


def claims(decision: Decision) -> list[str]:
    return [volume["persistentVolumeClaim"]["claimName"] for volume in decision.objects[0]["spec"]["volumes"]]


def phase(host: ProviderHost, deployment: Resource, *live: Resource, served: bool = True) -> tuple[str, str]:
    """Phase and message that follow from the cache alone."""
    faults = list(core_faults(view(host, deployment, NONE, *live, served=served), host))
    found = roll_up(faults, previous="Running" if served else None, created=bool(live), served=served, now=NOW)
    return found.phase.value, found.message


# ------------------------------------------------------------------------------------------------------------ the gate


@pytest.mark.parametrize(
    ("how", "phase_", "said"),
    [
        ({"reason": ""}, "Running", "has answered"),
        ({"reason": "Downloading"}, "Pending", "(Downloading)"),
        ({"reason": "GatedModel"}, "Degraded", "the part's words"),
        ({"reason": "AccessModeConflict"}, "Pending", "the part's words"),
        ({"reason": "Ready", "claim": "first", "of_older": True}, "Running", "has answered"),
        ({"reason": "Ready", "claim": "first", "on": False}, "Pending", "--model-cache=on"),
        ({"reason": "", "on": False}, "Pending", "--model-cache=on"),
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
    decision = decided(refusing, answered(plain(model=SHARED), reason, on=on), NONE)
    assert (decision.do, decision.objects, decision.plan) == (Do.OBSERVE_ONLY, (), None)
    refusals = [result for result in decision.results if result.condition == "ProviderCompatible"]
    assert [(result.reason, result.message) for result in refusals] == (
        [("IncompatibleConfiguration", "spec.affinity: cannot be")] if asked else []
    )
    assert [mount is not None and mount.mount_path == "/model-cache" for mount in mounts] == [True] * asked


def test_ready_weights_are_mounted_and_recorded(host: ProviderHost, plain: MakeDeployment) -> None:
    deployment = answered(plain(model=SHARED), claim="first")
    seen = view(host, deployment, NONE)
    decision = decide(seen, host, settings=NoSettings())
    assert (decision.do, claims(decision)) == (Do.APPLY, ["first"])
    (mount,) = decision.objects[0]["spec"]["mounts"]
    assert (mount["subPath"], mount["mountPath"], mount["readOnly"]) == ("model", "/model-cache", True)
    assert seen.revision["cache"] == {
        "artifact": "weights",
        "claim": "first",
        "path": "/model-cache",
        "mountPath": "/model-cache",
        "accessMode": "ReadWriteMany",
    }
    assert is_as(decided(host, deployment, NONE, made(host, plain(model=SHARED))), made(host, plain(model=SHARED)))
    assert "cache" not in view(host, plain(), NONE).revision, "nothing is said of a cache that is not asked for"


def test_a43_a_provider_that_cannot_mount_refuses_and_does_not_wait(host: ProviderHost, plain: MakeDeployment) -> None:
    deployment = answered(plain(model=SHARED, engine={"type": "none"}), "")
    decision = decided(host, deployment, NONE)
    assert [(result.condition, result.reason) for result in decision.results] == [
        ("ProviderCompatible", "IncompatibleConfiguration")
    ]
    assert list(core_faults(view(host, deployment, NONE), host)) == []


def test_a_part_that_is_off_is_said(host: ProviderHost, plain: MakeDeployment) -> None:
    (fault,) = core_faults(view(host, plain(model=SHARED), NONE), host)
    assert (fault.reason, fault.component) == ("ModelCacheNotEnabled", "ModelCache")


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
        ({}, {"reason": "Ready", "claim": "second", "granted": ("cache",)}, "second"),
        ({}, {"reason": "Ready", "claim": "second", "granted": ("settings",)}, "first"),
        ({"runtimeConfigName": "gpu"}, {"reason": "Ready", "claim": "second", "found": config("gpu", **NEW)}, "second"),
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
        "a grant for a part that has nothing newer",
        "another config",
        "fetched anew before it served",
        "lost before it served",
        "cache switched off",
        "another model that is Ready",
    ],
)
def test_a15_a33_a46_what_serves_keeps_its_claim_until(
    host: ProviderHost, plain: MakeDeployment, spec: Resource, how: dict[str, Any], expected: str
) -> None:
    obj = made(host, plain(model=SHARED))
    core = {name: how.pop(name) for name in ("granted", "served") if name in how}
    found = how.pop("found", NONE)
    seen = view(host, answered(plain(**{"model": SHARED, **spec}), **how), found, obj, **core)
    decision = decide(seen, host, settings=NoSettings())
    assert (decision.do, claims(decision)) == (Do.APPLY, [expected] if expected else [])
    if not spec and expected == "first":
        assert is_as(decision, obj), "nothing is written"
    newer = (how["reason"], how.get("claim"), expected) == ("Ready", "second", "first") and not how.get("of_older")
    assert pending(seen) == (["claim second"] if newer else [])


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
def test_a33_a_changed_spec_waits_for_its_weights_with_its_replicas_and_the_live_object_stays(
    host: ProviderHost, plain: MakeDeployment, spec: Resource, how: dict[str, Any], late: str, phase_: str
) -> None:
    obj = made(host, plain(model=SHARED))
    deployment = answered(plain(**{"model": SHARED, **spec, "scaling": {"replicas": 3}}), **how)
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
    deployment = answered(plain(model=SHARED), claim="second", replicas={"desired": 2, "ready": ready})
    decision = decided(host, deployment, NONE, made(host, plain(model=SHARED)))
    assert claims(decision) == (["first"] if ready else ["second"])


def test_an_artifact_that_is_deleted_under_a_model_that_serves_changes_nothing(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    obj = made(host, plain(model=SHARED))
    gone = answered(plain(model=SHARED), "", message="")
    seen = view(host, gone, NONE, obj)
    assert (is_as(decide(seen, host, settings=NoSettings()), obj), pending(seen)) == (True, [])
    wiped = view(host, view(host, gone, NONE).deployment, NONE, obj, served=False)
    assert (waits_for(wiped.deployment), is_in_effect(wiped.deployment)) == ("cache", False)
    assert decide(wiped, host, settings=NoSettings()).do is Do.OBSERVE_ONLY, "its claim is known to its part alone"


def test_a_new_copy_takes_no_newer_variables_along_and_newer_variables_take_a_new_copy(
    host: ProviderHost, plain: MakeDeployment
) -> None:
    """Pods that start anew must not start on a claim that is lost."""
    obj = made(host, plain(model=SHARED), found=config(**OLD))
    taken = {}
    for part in ("cache", "settings"):
        seen = view(host, answered(plain(model=SHARED), claim="second"), config(**NEW), obj, granted=(part,))
        decision = decide(seen, host, settings=NoSettings())
        taken[part] = (claims(decision), [entry["name"] for entry in decision.objects[0]["spec"]["env"]], pending(seen))
    assert taken == {"cache": (["second"], ["A"], ["env B"]), "settings": (["second"], ["A", "B"], [])}


def test_drift_is_reverted_to_the_recorded_claim(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = made(host, plain(model=SHARED))
    obj["spec"]["volumes"] = []
    decision = decided(host, answered(plain(model=SHARED), "CacheLost", claim="first"), NONE, obj)
    assert (decision.do, claims(decision), is_as(decision, obj)) == (Do.APPLY, ["first"], False)


def test_a16_scaled_up_on_a_claim_for_one_pod_leaves_what_runs(host: ProviderHost, plain: MakeDeployment) -> None:
    obj = made(host, plain(model=SHARED), mode="ReadWriteOnce")
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
    decision = decided(host, answered(asked, **how), NONE)
    assert (decision.do, claims(decision)) == (Do.PREVIEW, [claim])
    assert said in decision.gate.planned


def test_x5_a_dry_run_with_a_fault_of_the_cache_says_the_fault(host: ProviderHost, plain: MakeDeployment) -> None:
    asked = plain(model=SHARED, metadata={"annotations": {names.DRY_RUN: "true"}})
    for how in ({"reason": "AccessModeConflict"}, {"reason": "", "on": False}):
        assert decided(host, answered(asked, **how), NONE).do is Do.OBSERVE_ONLY


@pytest.mark.parametrize("how", [{"reason": "Suspended"}, {"reason": "", "on": False}, {"reason": "CacheLost"}])
def test_suspending_waits_for_no_cache(host: ProviderHost, plain: MakeDeployment, how: dict[str, Any]) -> None:
    obj = made(host, plain(model=SHARED))
    deployment = answered(plain(model=SHARED, suspend=True), **how)
    for live in ((obj,), ()):
        decision = decided(host, deployment, NONE, *live)
        assert decision.do is Do.SUSPEND
        assert [result.ok for result in decision.results if result.condition == "ProviderCompatible"] == [True]
    assert list(core_faults(view(host, deployment, NONE), host)) == []


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
    obj = made(kaito, plain(model=SHARED, status=given))
    decision = decided_by(kaito, answered(plain(model=SHARED, status=given), **how), obj)
    assert "template" in dig(decision.objects[0], *inference)
    assert decision.plan is not None
    assert Action.REPLACE not in [step.action for step in decision.plan.steps]
    decision = decided_by(kaito, answered(plain(model={"id": "org/model"}, status=given), **how), obj)
    assert "preset" in dig(decision.objects[0], *inference), "the cache goes with the change of the spec"


def decided_by(host: ProviderHost, deployment: Resource, obj: Resource) -> Decision:
    return decide(view(host, deployment, NONE, obj), host, settings=host.settings({}))
