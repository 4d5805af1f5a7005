"""Claims of volumes: what is made, and what StorageReady says, for each state of the claims."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from core.tests.any_json import anything, changed
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.api.bounds import EXCESS
from airunway.api.modeldeployment import volume_claim_name
from airunway.artifacts.deployments import CacheFacts, decide_cache
from airunway.artifacts.volumes import VolumeFacts, claims_named, decide_volumes, has_volumes
from airunway.configs.resolution import resolve
from airunway.resource import Resource, dig
from airunway.status.rollup import Verdict

UID = "11111111-1111-1111-1111-111111111111"
SIZED = {"name": "kernels", "size": "20Gi", "mountPath": "/kernels"}
NAMED = {"name": "data", "claimName": "data", "mountPath": "/data"}


def deployment(*volumes: Resource, annotations: Resource | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "ml", "uid": UID, "generation": 3, "annotations": annotations or {}},
        "spec": {"model": {"id": "a/b", "storage": {"volumes": list(volumes)}}, **spec},
        "status": {
            "provider": {"name": "vllm"},
            "conditions": [{"type": "Validated", "status": "True", "observedGeneration": 3}],
        },
    }


def claim(name: str = "llama-kernels", *, phase: str = "Bound", size: str = "20Gi", **metadata: Any) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ml", **metadata},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": phase, "capacity": {"storage": size}},
    }


def owned_by(uid: str, kind: str = "ModelDeployment", name: str = "llama") -> list[Resource]:
    return [{"apiVersion": "airunway.ai/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": True}]


def facts(*volumes: Resource, live: Resource | None = None, ours: bool = True, **more: Any) -> VolumeFacts:
    found = {live["metadata"]["name"]: live} if live is not None else {}
    return VolumeFacts(
        deployment=more.pop("deployment", deployment(*volumes)),
        claims=found,
        ours=frozenset(found) if ours else frozenset(),
        classes=more.pop("classes", {"shared": {"allowVolumeExpansion": True}}),
        **more,
    )


GROWN = {**SIZED, "size": "40Gi"}
DRY = {"airunway.ai/dry-run": "true"}
STUCK: dict[str, Resource] = {"shared": {"allowVolumeExpansion": False}}
WAITS: dict[str, Resource] = {"shared": {"volumeBindingMode": "WaitForFirstConsumer"}}


@pytest.mark.parametrize(
    ("given", "made", "reason", "text"),
    [
        pytest.param(facts(SIZED), ["20Gi"], "Starting", "created", id="nothing there"),
        pytest.param(facts(SIZED, live=claim()), ["20Gi"], "Bound", "is bound", id="bound"),
        pytest.param(facts(GROWN, live=claim()), ["40Gi"], "Bound", "is bound", id="grown"),
        pytest.param(facts(GROWN, live=claim(), classes=STUCK), ["20Gi"], "Bound", "stays at 20Gi", id="cannot grow"),
        pytest.param(facts(SIZED, live=claim(size="40Gi")), ["40Gi"], "Bound", "is bound", id="never shrinks"),
        pytest.param(
            facts(SIZED, live=claim(phase="Pending"), classes=WAITS),
            ["20Gi"],
            "PvcPending",
            "the model's pod",
            id="waits for its first pod",
        ),
        pytest.param(facts(SIZED, live=claim(phase="Lost")), ["20Gi"], "PvcLost", "has lost", id="lost"),
        pytest.param(
            facts(SIZED, live=claim(deletionTimestamp="2026-01-01T00:00:00Z")),
            [],
            "PvcLost",
            "is being deleted",
            id="deleted by hand",
        ),
        pytest.param(
            facts(SIZED, live=claim(ownerReferences=owned_by("other")), ours=False),
            [],
            "Starting",
            "earlier owner",
            id="A39: of an earlier deployment of this name",
        ),
        pytest.param(facts(SIZED, live=claim(), ours=False), [], "ResourceConflict", "claimName", id="A30: foreign"),
        pytest.param(
            facts(SIZED, live=claim(ownerReferences=owned_by("other", name="another")), ours=False),
            [],
            "ResourceConflict",
            "does not belong",
            id="A30: of another deployment",
        ),
        pytest.param(
            facts({**SIZED, "storageClassName": "gone"}),
            ["20Gi"],
            "StorageClassNotFound",
            "no StorageClass gone",
            id="A13: class missing",
        ),
        pytest.param(
            facts(SIZED, refused={"llama-kernels": Verdict(ready=False, reason="QuotaExceeded", message="no room")}),
            ["20Gi"],
            "QuotaExceeded",
            "no room",
            id="A13: quota",
        ),
        pytest.param(facts(NAMED), [], "ReferenceNotFound", "no PersistentVolumeClaim data", id="named, missing"),
        pytest.param(facts(NAMED, live=claim("data"), ours=False), [], "Bound", "is bound", id="named, there"),
        pytest.param(
            facts({**SIZED, "name": "other"}, NAMED),
            ["20Gi"],
            "ReferenceNotFound",
            "the claim is created",
            id="a fault comes before what is on its way",
        ),
        pytest.param(
            facts(deployment=deployment(SIZED, suspend=True)), [], "Suspended", "when it is resumed", id="suspended"
        ),
        pytest.param(
            facts(deployment=deployment(SIZED, annotations={"airunway.ai/dry-run": "true"})),
            [],
            "DryRun",
            "would create the claims llama-kernels",
            id="X5: dry run",
        ),
        pytest.param(
            facts(live=claim(), deployment=deployment(GROWN, annotations=DRY)),
            [],
            "Bound",
            "dry run: would expand claim llama-kernels from 20Gi to 40Gi",
            id="X5: dry run of a claim that grows",
        ),
        pytest.param(
            facts(live=claim(), deployment=deployment(GROWN, {**SIZED, "name": "new"}, annotations=DRY)),
            [],
            "DryRun",
            "would create the claims llama-new; would expand claim llama-kernels from 20Gi to 40Gi",
            id="X5: dry run of both",
        ),
        pytest.param(
            facts(live=claim(), deployment=deployment(SIZED, annotations=DRY)),
            [],
            "Bound",
            "is bound",
            id="X5: dry run without a change",
        ),
        pytest.param(
            facts(deployment=deployment(SIZED, annotations={"airunway.ai/dry-run": "false"})),
            ["20Gi"],
            "Starting",
            "the claim is created",
            id="X5: no dry run",
        ),
        pytest.param(facts(SIZED, config_unusable=True), [], "WaitingForConfig", "wait for it", id="config missing"),
    ],
)
def test_what_is_made_and_said(given: VolumeFacts, made: list[str], reason: str, text: str) -> None:
    decision = decide_volumes(given)
    assert [dig(each, "spec", "resources", "requests", "storage") for each in decision.claims] == made
    assert decision.condition is not None
    assert (decision.condition.reason, decision.condition.status) == (reason, reason == "Bound")
    assert text in decision.condition.message


@pytest.mark.parametrize(
    ("volume", "config", "class_name", "mode"),
    [
        (SIZED, None, None, "ReadWriteMany"),
        (SIZED, {"defaultStorageClassName": "fast", "accessMode": "ReadWriteOnce"}, "fast", "ReadWriteOnce"),
        (
            SIZED | {"storageClassName": "own", "accessMode": "ReadWriteMany"},
            {"accessMode": "ReadWriteOnce"},
            "own",
            "ReadWriteMany",
        ),
        (SIZED | {"storageClassName": ""}, {"defaultStorageClassName": "fast"}, "", "ReadWriteMany"),
    ],
    ids=["neither", "the config's", "the volume's", "explicitly no class"],
)
def test_class_and_access_mode(volume: Resource, config: Resource | None, class_name: str | None, mode: str) -> None:
    source = {"metadata": {"name": "default", "namespace": "ml"}, "spec": {"storage": config or {}}}
    resolution = resolve("default", namespaced=source if config else None, cluster=None)
    (made,) = decide_volumes(facts(volume, config=resolution.config)).claims
    assert (made["spec"].get("storageClassName"), made["spec"]["accessModes"]) == (class_name, [mode])


def test_what_is_not_decided_yet_is_left_as_it_is() -> None:
    invalid, unassigned, paused = (deployment(SIZED) for _ in range(3))
    invalid["metadata"]["generation"] = 4
    del unassigned["status"]["provider"]
    paused["metadata"]["annotations"] = {"airunway.ai/reconcile-paused": "true"}
    for each in (invalid, unassigned, paused):
        decision = decide_volumes(facts(deployment=each))
        assert (decision.write_status, decision.claims) == (False, ())
    none = decide_volumes(facts(deployment=deployment()))
    assert (none.write_status, none.condition) == (True, None)


@pytest.mark.parametrize(("over", "writes"), [({}, True), ({EXCESS: [["metadata.labels", "too large", "x"]]}, False)])
def test_what_is_known_of_an_object_over_the_limits_of_size_stays(over: Resource, writes: bool) -> None:
    """It is cached without its volumes and its cache: that is no wish to have none."""
    outline = {**deployment(), **over}
    assert decide_volumes(facts(deployment=outline)).write_status is writes
    assert decide_cache(CacheFacts(deployment=outline, request=None)).write_status is writes
    newer = {**outline, "metadata": {**outline["metadata"], "generation": 4}}
    assert not decide_cache(CacheFacts(deployment=newer, request=None)).write_status, "not validated yet"


def test_a28_names_of_claims_are_short_valid_and_different() -> None:
    assert volume_claim_name("llama", "kernels") == "llama-kernels"
    longest = [volume_claim_name("l" * 52, f"{'v' * 60}{i}") for i in range(3)]
    assert len({*longest}) == 3
    assert all(len(name) <= 63 and name[-1].isalnum() for name in longest)
    sized = {"name": "v" * 63, "size": "1Gi", "mountPath": "/v"}
    assert claims_named(deployment(sized, NAMED)) == (volume_claim_name("llama", "v" * 63), "data")


@settings(max_examples=300, deadline=None)
@given(st.randoms())
def test_any_json_gives_a_decision(chance: Random) -> None:
    """Values of deployment and claim are anything; their names are the API server's own."""
    base, live = deployment(SIZED, NAMED), claim()
    hostile = {**changed(chance, base, anything), "metadata": base["metadata"]}
    found = {**changed(chance, live, anything), "metadata": live["metadata"]}
    has_volumes(hostile)
    decision = decide_volumes(facts(deployment=hostile, live=found, ours=bool(chance.randrange(2))))
    assert decision.condition is None or isinstance(decision.condition.message, str)
    assert all(isinstance(each["metadata"]["name"], str) for each in decision.claims)
