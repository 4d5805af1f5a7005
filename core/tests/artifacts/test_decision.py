"""What becomes of one ModelArtifact, case by case."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.artifacts.claims import (
    access_mode_of,
    artifact_name,
    claim_name,
    class_name_of,
    content_name,
    job_name,
    size_with_headroom,
)
from airunway.artifacts.decision import (
    ArtifactDecision,
    ArtifactFacts,
    decide_artifact,
)
from airunway.artifacts.deployments import CacheFacts, CacheRequest, artifact_of, decide_cache, is_usable, request_of
from airunway.artifacts.jobs import JobStep, bound_to, next_attempt, result_of
from airunway.artifacts.status import is_made
from airunway.configs.resolution import resolve
from airunway.resource import Resource, condition_of, copy_of, dig, format_time
from airunway.status.conditions import Condition
from airunway.status.rootcause import RootCause

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIGEST = f"sha256:{'a' * 64}"
MADE = {"airunway.ai/managed-by": "airunway", "airunway.ai/part": "model-cache"}
SIZED = {"bytes": 5 * 2**30, "files": 3, "revision": "c0ffee"}
FETCHED = {**SIZED, "digest": DIGEST}


def artifact(*, status: Resource | None = None, labels: Resource | None = None, **spec: Any) -> Resource:
    spec = {"source": {"uri": "hf://a/b"}, **spec}
    name = content_name(spec, "ml") if labels == MADE else "llama"
    metadata = {"name": name, "namespace": "ml", "uid": "u1", "generation": 1, "labels": labels or {}}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def facts(obj: Resource, *, config: Resource | None = None, **more: Any) -> ArtifactFacts:
    named = {"metadata": {"name": "default", "namespace": "ml"}, "spec": config} if config is not None else None
    resolution = resolve("default", namespaced=named, cluster=None)
    base: dict[str, Any] = {"resolution": resolution, "users": ("chat",), "image": "d:1", "now": NOW}
    return ArtifactFacts(artifact=obj, **(base | more))


def after(decision: ArtifactDecision, before: ArtifactFacts, **more: Any) -> ArtifactFacts:
    """The next facts: the status is written, claims and Jobs of the decision exist."""
    objects = decision.objects or ()
    claims = tuple(
        {**o, "metadata": {**o["metadata"], "uid": f"uid-{o['metadata']['name']}"}, "status": {"phase": "Bound"}}
        for o in objects
        if o["kind"] == "PersistentVolumeClaim"
    )
    jobs = (*before.jobs, *(o for o in objects if o["kind"] == "Job"))
    found = {"claims": claims, "jobs": jobs} | more
    return replace(before, artifact={**before.artifact, "status": decision.status}, **found)


def ended(before: ArtifactFacts, message: object, *, complete: bool, at: datetime = NOW) -> ArtifactFacts:
    """The last Job has ended, and its pod said `message`."""
    job = before.jobs[-1]
    step = job["spec"]["template"]["spec"]["containers"][0]["name"]
    condition = {"type": "Complete" if complete else "Failed", "status": "True", "lastTransitionTime": format_time(at)}
    text = message if isinstance(message, str) else json.dumps({"v": 1, "command": step, **(message or {})})  # type: ignore[dict-item]
    state = {"exitCode": 0 if complete else 3, "message": text, "finishedAt": format_time(at)}
    pod = {
        "metadata": {"name": "p", "labels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]}},
        "status": {"containerStatuses": [{"name": step, "state": {"terminated": state}}]},
    }
    return replace(before, jobs=(*before.jobs[:-1], {**job, "status": {"conditions": [condition]}}), pods=(pod,))


def measured() -> ArtifactFacts:
    """The size is known, claim and download Job exist."""
    first = facts(artifact())
    sized = ended(after(decide_artifact(first), first), {"ok": SIZED}, complete=True)
    return after(decide_artifact(sized), sized)


def ready(**told: Any) -> ArtifactFacts:
    done = ended(measured(), {"ok": {**FETCHED, **told}}, complete=True)
    return after(decide_artifact(done), done, claims=done.claims)


def running() -> ArtifactFacts:
    """The weights are fetched by a pod."""
    found = measured()
    return replace(found, pods=(pod_of(found, "Running"),))


def pod_of(found: ArtifactFacts, phase: str) -> Resource:
    labels = {"batch.kubernetes.io/job-name": found.jobs[-1]["metadata"]["name"]}
    return {"metadata": {"name": "p", "labels": labels}, "status": {"phase": phase}}


def of_class(name: str, claims: tuple[Resource, ...]) -> tuple[Resource, ...]:
    return tuple({**claim, "spec": {**claim["spec"], "storageClassName": name}} for claim in claims)


def state(decision: ArtifactDecision) -> tuple[str, str]:
    assert decision.status is not None
    return decision.status["phase"], decision.status["reason"]


def kinds(decision: ArtifactDecision) -> list[str]:
    return [each["kind"] for each in decision.objects or ()]


def test_from_nothing_to_ready() -> None:
    first = facts(artifact())
    assert kinds(decide_artifact(first)) == ["Job"]
    assert [c["spec"]["resources"]["requests"]["storage"] for c in measured().claims] == ["6Gi"]
    decision = decide_artifact(running())
    assert (state(decision), decision.wants_slot) == (("Progressing", "Downloading"), True)
    finished = decide_artifact(ready())
    assert (state(finished), finished.wants_slot, kinds(finished)) == (
        ("Ready", "Ready"),
        False,
        ["PersistentVolumeClaim"],
    )
    assert finished.status is not None
    assert finished.status["completed"]["digest"] == DIGEST
    assert finished.status == ready().artifact["status"]  # a pass at rest writes nothing


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"type": "LORA", "rank": 16, "baseModel": "org/base"}, {"type": "LORA", "rank": 16, "baseModel": "org/base"}),
        ({"problem": "adapter_config.json is no JSON"}, {"problem": "adapter_config.json is no JSON"}),
        ({"type": "LORA", "rank": True, "baseModel": 3}, {"type": "LORA"}),
        ({"rank": 2**40, "type": ""}, None),
        ("junk", None),
    ],
)
def test_what_the_files_say_of_an_adapter_is_kept_with_the_proof(told: Any, kept: Resource | None) -> None:
    done = ready(adapter=told)
    assert done.artifact["status"].get("adapter") == kept
    assert decide_artifact(done).status == done.artifact["status"], "a pass at rest writes nothing"


def test_weights_that_are_no_adapter_say_nothing_of_one() -> None:
    assert "adapter" not in ready().artifact["status"]


UNREADABLE: list[Any] = [
    *("", "junk", "[1]", "x" * 5000),
    *({"ok": {**SIZED, "bytes": size}} for size in (0, -1, 2**60, True)),
    *({"ok": 1}, {"v": 2, "ok": SIZED}, {"command": "x", "ok": SIZED}),
]


@pytest.mark.parametrize("message", UNREADABLE)
def test_a2_a_size_that_cannot_be_is_retried_and_never_ready(message: object) -> None:
    first = facts(artifact())
    begun = after(decide_artifact(first), first)
    failed = decide_artifact(ended(begun, message, complete=True))
    assert state(failed)[0] == "Failed"
    assert failed.requeue_after == 60
    later = replace(after(failed, ended(begun, message, complete=True)), now=NOW + timedelta(minutes=2))
    assert kinds(decide_artifact(later)) == ["Job"]


def test_what_the_policy_does_not_allow_starts_no_job_and_takes_no_complete_weights_away() -> None:
    refused = decide_artifact(facts(artifact(), config={}, not_allowed="RuntimeConfig 'default' is not allowed"))
    assert refused.objects is None
    assert refused.status is not None
    condition = condition_of({"status": refused.status}, "RuntimeConfigReady") or {}
    assert (condition["status"], condition["reason"]) == ("False", "NotAllowed")
    assert condition["message"] == "RuntimeConfig 'default' is not allowed"
    assert (refused.status["phase"], refused.status["reason"]) == ("Pending", "NotAllowed")
    later = decide_artifact(replace(ready(), not_allowed="no"))
    assert later.objects is None
    assert is_usable({**ready().artifact, "status": later.status})


def test_h2_an_artifact_with_a_variable_that_names_code_gets_no_job_and_says_what_is_allowed() -> None:
    decision = decide_artifact(facts(artifact(env=[{"name": "PYTHONPATH", "value": "/cache/model"}])))
    assert decision.objects is None
    assert condition_of({"status": decision.status}, "DownloadReady")["reason"] == "InvalidSpec"  # type: ignore[index]
    assert "PYTHONPATH: allowed are AIRUNWAY_*, AWS_*, HF_*" in str(decision.status)


def test_a2_the_pod_of_another_job_says_nothing() -> None:
    done = ended(measured(), {"ok": FETCHED}, complete=True)
    foreign = {**done.pods[0], "metadata": {"name": "p", "labels": {"batch.kubernetes.io/job-name": "other"}}}
    lagging = decide_artifact(replace(done, pods=(foreign,)))
    assert (state(lagging)[0], lagging.requeue_after) == ("Progressing", 5), "the watch of pods may lag"
    assert state(decide_artifact(replace(done, pods=(foreign,), now=NOW + timedelta(seconds=5))))[0] == "Failed"


def test_a3_a_job_that_is_gone_is_made_again_under_its_name() -> None:
    running = measured()
    again = decide_artifact(replace(running, jobs=()))
    assert [o["metadata"]["name"] for o in again.objects or () if o["kind"] == "Job"] == [
        running.jobs[-1]["metadata"]["name"]
    ]
    assert kinds(decide_artifact(replace(ready(), jobs=(), pods=()))) == ["PersistentVolumeClaim"]


def test_a6_without_users_it_goes_after_five_minutes_unless_it_is_ready() -> None:
    alone = replace(facts(artifact(labels=MADE)), users=())
    left = decide_artifact(alone)
    assert (left.delete_self, left.requeue_after) == (False, 300)
    assert decide_artifact(replace(after(left, alone), now=NOW + timedelta(minutes=5))).delete_self
    assert not decide_artifact(replace(after(left, alone), users=("b",), now=NOW + timedelta(hours=1))).delete_self
    users_own = replace(facts(artifact()), users=())
    later = replace(after(decide_artifact(users_own), users_own), now=NOW + timedelta(days=9))
    assert not decide_artifact(later).delete_self


@pytest.mark.parametrize(("retention", "hours", "gone"), [({}, 999, False), ({"policy": "DeleteUnused"}, 24, True)])
def test_a32_a_ready_one_stays_or_goes_after_its_time(retention: Resource, hours: int, gone: bool) -> None:
    done = ready()
    status = {**done.artifact["status"], "mode": "Shared", "unusedSince": format_time(NOW)}
    obj = artifact(labels=MADE, status=status)
    obj["spec"]["retention"] = retention
    unused = replace(done, artifact=obj, users=())
    assert not decide_artifact(replace(unused, now=NOW + timedelta(hours=hours - 1))).delete_self
    assert decide_artifact(replace(unused, now=NOW + timedelta(hours=hours))).delete_self is gone
    assert not decide_artifact(replace(unused, now=NOW - timedelta(hours=9))).delete_self
    assert not decide_artifact(replace(unused, users=("a",), now=NOW + timedelta(days=99))).delete_self


def test_a12_a_full_claim_waits_for_a_larger_size() -> None:
    full = ended(measured(), {"error": {"reason": "StorageFull", "message": "no space"}}, complete=False)
    failed = decide_artifact(full)
    assert (state(failed), failed.requeue_after, failed.wants_slot) == (("Failed", "StorageFull"), None, False)
    assert failed.status is not None
    assert "set spec.size" in failed.status["message"]
    kept = after(failed, full, claims=full.claims)
    assert kinds(decide_artifact(replace(kept, now=NOW + timedelta(days=1)))) == ["PersistentVolumeClaim"]
    larger = {**kept.artifact, "spec": {**kept.artifact["spec"], "size": "10Gi"}}
    old = kept.claims[0]["metadata"]["name"]
    expandable = replace(kept, artifact=larger, classes={"": {"allowVolumeExpansion": True}})
    raised = decide_artifact(expandable)
    assert next(o["metadata"]["name"] for o in raised.objects or ()) == old
    assert (kinds(raised), state(raised)[1]) == (["PersistentVolumeClaim"], "PvcPending")
    grown = replace(after(raised, expandable), claims=(of_size(full, "10Gi"),))
    assert kinds(decide_artifact(grown)) == ["PersistentVolumeClaim", "Job"]
    anew = decide_artifact(replace(kept, artifact=larger, classes={"": {}}))
    assert next(o["metadata"]["name"] for o in anew.objects or ()) != old
    assert kinds(anew) == ["PersistentVolumeClaim", "Job"]
    queued = replace(grown, slot=False)
    waiting = decide_artifact(queued)
    assert state(waiting)[1] == "Queued"
    started = replace(after(waiting, queued), slot=True)
    assert kinds(decide_artifact(started)) == ["PersistentVolumeClaim", "Job"]


def of_size(found: ArtifactFacts, asked: str, has: str = "", *, waits_for_pod: bool = False) -> Resource:
    """The claim of which so much was asked, and whose volume has so much."""
    (claim,) = found.claims
    conditions = [{"type": "FileSystemResizePending", "status": "True"}] if waits_for_pod else []
    return {
        **claim,
        "spec": {**claim["spec"], "resources": {"requests": {"storage": asked}}},
        "status": {"phase": "Bound", "capacity": {"storage": has or asked}, "conditions": conditions},
    }


def filled_up(found: ArtifactFacts) -> ArtifactFacts:
    """The claim is full, and the status says so."""
    full = ended(found, {"error": {"reason": "StorageFull", "message": "no space"}}, complete=False)
    return after(decide_artifact(full), full, claims=full.claims)


@pytest.mark.parametrize("job", [True, False])
def test_a12_no_try_begins_before_the_volume_has_grown(job: bool) -> None:
    """A driver expands the volume some time after the claim asks for more; a pod that starts before fills it again."""
    full = filled_up(replace(measured(), classes={"": {"allowVolumeExpansion": True}}))
    if not job:
        full = replace(full, jobs=(), pods=())
    full = replace(full, artifact={**full.artifact, "spec": {**full.artifact["spec"], "size": "10Gi"}})
    for claim in (full.claims[0], of_size(full, "6Gi"), of_size(full, "10Gi", "6Gi"), of_size(full, "10Gi", "8Gi")):
        waiting = decide_artifact(replace(full, claims=(claim,)))
        assert kinds(waiting) == ["PersistentVolumeClaim"]
        assert (state(waiting), waiting.requeue_after, waiting.wants_slot) == (("Starting", "PvcPending"), None, False)
        assert waiting.status is not None
        assert waiting.status["allocatedSize"] == "6Gi"
        assert "being expanded to 10Gi" in condition_of({"status": waiting.status}, "DownloadReady")["message"]  # type: ignore[index]
        full = replace(full, artifact={**full.artifact, "status": waiting.status})
    for claim in (of_size(full, "10Gi"), of_size(full, "10Gi", "6Gi", waits_for_pod=True)):
        grown = replace(full, claims=(claim,))
        decision = decide_artifact(grown)
        assert (kinds(decision), decision.wants_slot) == (["PersistentVolumeClaim", "Job"], True)
        assert (decision.status or {})["allocatedSize"] == "10Gi"
        again = filled_up(after(decision, grown, claims=(claim,)))
        assert kinds(decide_artifact(replace(again, now=NOW + timedelta(days=1)))) == ["PersistentVolumeClaim"]


@pytest.mark.parametrize("job", [True, False])
def test_a12_more_headroom_starts_nothing_on_a_full_claim_that_cannot_grow(job: bool) -> None:
    full = filled_up(replace(measured(), classes={"": {}}))
    if not job:
        full = replace(full, jobs=(), pods=())
    more = facts(full.artifact, config={"storage": {"pvcHeadroomPercent": 100}}).resolution
    waiting = decide_artifact(replace(full, resolution=more))
    assert (kinds(waiting), state(waiting)) == (["PersistentVolumeClaim"], ("Failed", "StorageFull"))
    assert waiting.status is not None
    assert "the claim has 6Gi: set spec.size" in waiting.status["message"]
    assert waiting.requeue_after is None or waiting.requeue_after > 0


@pytest.mark.parametrize("job", [True, False])
def test_a12_a_claim_that_was_expanded_by_hand_is_tried_again(job: bool) -> None:
    full = filled_up(replace(measured(), classes={"": {"allowVolumeExpansion": True}}))
    if not job:
        full = replace(full, jobs=(), pods=())
    raised = replace(full, claims=(of_size(full, "10Gi", "6Gi"),))
    waiting = decide_artifact(raised)
    assert (kinds(waiting), state(waiting)[1]) == (["PersistentVolumeClaim"], "PvcPending")
    grown = after(waiting, raised, claims=(of_size(full, "10Gi"),))
    grown = replace(grown, artifact={**grown.artifact, "spec": {**grown.artifact["spec"], "size": "10Gi"}})
    assert kinds(decide_artifact(grown)) == ["PersistentVolumeClaim", "Job"]


def test_a12_a_volume_that_was_larger_from_the_start_has_not_grown() -> None:
    """A driver rounds sizes up, and an earlier release recorded the size that was asked for."""
    full = replace(filled_up(replace(measured(), classes={"": {}})), jobs=(), pods=())
    status = {**full.artifact["status"], "allocatedSize": "6Gi"}
    rounded = replace(full, artifact={**full.artifact, "status": status}, claims=(of_size(full, "6Gi", "8Gi"),))
    assert kinds(decide_artifact(rounded)) == ["PersistentVolumeClaim"]


def test_a_job_that_is_deleted_while_its_pod_waits_for_the_claim_is_made_again() -> None:
    cause = RootCause(
        code="Storage.PvcPending",
        object="Pod/ml/p",
        field="",
        message="not bound",
        since=NOW,
        remedy="",
        reason="PvcPending",
    )
    running = replace(measured(), cause=cause)
    waiting = after(decide_artifact(running), running, claims=running.claims, jobs=())
    assert state(decide_artifact(running))[1] == "PvcPending"
    assert kinds(decide_artifact(waiting)) == ["PersistentVolumeClaim", "Job"]


@pytest.mark.parametrize("child", ["StorageReady", "DownloadReady"])
def test_a13_a_refused_object_is_said_and_counts_as_one_try(child: str) -> None:
    no = Condition(type=child, status=False, reason="QuotaExceeded", message="exceeded quota")
    for stage in (facts(artifact()), measured()):
        refused = replace(stage, jobs=(), refused=no)
        first = decide_artifact(refused)
        assert condition_of({"status": first.status}, child)["reason"] == "QuotaExceeded"  # type: ignore[index]
        again = replace(refused, artifact={**refused.artifact, "status": first.status}, now=NOW + timedelta(minutes=1))
        assert (again.artifact["status"]["download"], kinds(decide_artifact(again))) == (
            decide_artifact(again).status["download"],  # type: ignore[index]
            kinds(first),
        )


def test_a_complete_artifact_stays_ready_without_its_class_and_with_a_claim_that_cannot_grow() -> None:
    no = Condition(type="StorageReady", status=False, reason="QuotaExceeded", message="exceeded quota")
    for change in ({"claims": of_class("gone", ready().claims)}, {"refused": no}):
        assert state(decide_artifact(replace(ready(), **change))) == ("Ready", "Ready")


def test_a34_numbers_that_no_status_can_hold_are_no_progress() -> None:
    for answer in ({"totalBytes": 2**63, "downloadedBytes": 1}, {"totalBytes": 0, "downloadedBytes": 0}):
        decision = decide_artifact(replace(measured(), progress=answer))
        assert "progress" not in (decision.status or {})
    fast = {"totalBytes": 10, "downloadedBytes": 1, "bytesPerSecond": 2**63}
    assert decide_artifact(replace(measured(), progress=fast)).status["progress"] == {  # type: ignore[index]
        "totalBytes": 10,
        "downloadedBytes": 1,
        "percentage": 10,
    }


def test_a13_a_missing_class() -> None:
    decision = decide_artifact(facts(artifact(size="1Gi", storageClassName="fast")))
    assert state(decision) == ("NotAvailable", "StorageClassNotFound")
    assert decision.status is not None
    assert "fast" in condition_of({"status": decision.status}, "StorageReady")["message"]  # type: ignore[index]


@pytest.mark.parametrize("gone", ["old", "new"])
def test_a13_a_claim_that_is_made_anew_names_its_own_class(gone: str) -> None:
    """The default class was edited after the claim was made: the new claim has the new one."""
    full = filled_up(measured())
    full = replace(full, artifact={**full.artifact, "spec": {**full.artifact["spec"], "size": "10Gi"}})
    edited = facts(full.artifact, config={"storage": {"defaultStorageClassName": "new"}}).resolution
    classes: dict[str, Resource] = {name: {} for name in ("old", "new") if name != gone}
    decision = decide_artifact(replace(full, claims=of_class("old", full.claims), classes=classes, resolution=edited))
    storage = condition_of({"status": decision.status}, "StorageReady") or {}
    claim = (decision.objects or ())[0]
    assert claim["spec"]["storageClassName"] == "new"
    assert storage["reason"] == ("StorageClassNotFound" if gone == "new" else "Starting")


def test_a13_a_class_that_goes_stops_no_download_on_a_bound_claim() -> None:
    fetching = replace(running(), claims=of_class("gone", measured().claims))
    decision = decide_artifact(fetching)
    assert (state(decision), decision.wants_slot) == (("Progressing", "Downloading"), True)
    assert fetching.jobs[-1]["metadata"]["name"] in decision.kept
    assert state(decide_artifact(ended(fetching, {"ok": FETCHED}, complete=True)))[0] == "Ready"
    pending = replace(fetching, claims=({**fetching.claims[0], "status": {"phase": "Pending"}},))
    waiting = decide_artifact(pending)
    assert (state(waiting), waiting.wants_slot) == (("NotAvailable", "StorageClassNotFound"), True)
    assert not decide_artifact(replace(pending, jobs=())).wants_slot


def test_a_download_that_runs_keeps_its_slot_while_its_config_is_missing() -> None:
    missing = resolve("gone", namespaced=None, cluster=None)
    decision = decide_artifact(replace(measured(), resolution=missing))
    assert (decision.wants_slot, decision.objects) == (True, None)
    assert not decide_artifact(replace(measured(), jobs=(), resolution=missing)).wants_slot


def test_a_claim_that_exists_decides_the_class() -> None:
    first = facts(artifact(size="1Gi"), config={"storage": {"defaultStorageClassName": "old"}})
    claim = after(decide_artifact(first), first).claims[0]
    edited = facts(artifact(size="1Gi"), config={"storage": {"defaultStorageClassName": "new"}}).resolution.config
    assert class_name_of(artifact(), edited, claim) == "old"
    assert class_name_of(artifact(), edited, None) == "new"
    assert class_name_of(artifact(storageClassName="own"), edited, None) == "own"


def test_a16_the_access_mode_is_that_of_the_claim_else_of_the_artifact_else_of_its_own_config() -> None:
    config = facts(artifact(), config={"storage": {"accessMode": "ReadWriteOnce"}}).resolution.config
    claim = {"spec": {"accessModes": ["ReadWriteOncePod"]}}
    found = [
        access_mode_of(artifact(accessMode="ReadOnlyMany"), config, claim),
        access_mode_of(artifact(accessMode="ReadOnlyMany"), config, None),
        access_mode_of(artifact(), config, {}),
        access_mode_of(artifact(), None, None),
    ]
    assert found == ["ReadWriteOncePod", "ReadOnlyMany", "ReadWriteOnce", "ReadWriteMany"]
    users_own = artifact()
    deployment = {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "d", "generation": 1},
        "spec": {
            "model": {"id": "a/b", "cache": {"mode": "Shared", "artifactName": "llama"}},
            "scaling": {"replicas": 3},
        },
        "status": {"conditions": [{"type": "Validated", "status": "True", "observedGeneration": 1}]},
    }
    asked = CacheFacts(
        deployment=deployment,
        request=request_of(deployment, None),
        artifact=users_own,
        engine={"name": "vllm", "modelCache": True},
    )
    reasons = [
        said.reason
        for mode in ("ReadWriteMany", "ReadWriteOnce")
        if (said := decide_cache(replace(asked, access_mode=mode)).condition) is not None
    ]
    assert reasons == ["Starting", "AccessModeConflict"]


@pytest.mark.parametrize(("size", "remark"), [(None, False), ("6Gi", False), ("7Gi", True)])
def test_a_size_that_is_raised_later_is_said_to_change_nothing(size: str | None, remark: bool) -> None:
    cache = {"mode": "Shared", **({"size": size} if size else {})}
    validated = {"type": "Validated", "status": "True", "observedGeneration": 1}
    deployment = {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "d1", "generation": 1},
        "spec": {"model": {"id": "a/b", "cache": cache}},
        "status": {"conditions": [validated]},
    }
    request, engine = request_of(deployment, None), {"name": "vllm", "modelCache": True}
    said = decide_cache(
        CacheFacts(deployment=deployment, request=request, artifact=whole(request, ready()), engine=engine)
    ).condition
    assert said is not None
    assert (said.reason, "raise spec.size of ModelArtifact" in said.message) == ("Ready", remark)


def whole(request: CacheRequest | None, done: ArtifactFacts) -> Resource:
    """The artifact of a request, complete."""
    assert request is not None
    assert request.artifact is not None
    return {**request.artifact, "status": {**done.artifact["status"], "mode": "Shared"}}


POISON: list[Resource] = [
    {"env": [{"name": "HF_ENDPOINT", "value": "https://evil.example"}]},
    {"source": {"uri": "hf://a/b", "revision": "evil-branch"}},
    {"source": {"uri": "hf://a/b", "include": ["pickle.bin"]}},
    {"source": {"uri": "hf://evil/b"}},
    {"downloaderImage": "registry.evil.example/downloader"},
    {"runtimeConfigName": "evil"},
    {"secrets": {"huggingFaceToken": "hers"}},
    {"serviceAccountName": "hers"},
    {"imagePullSecrets": [{"name": "hers"}]},
    {"caBundle": {"configMap": "hers"}},
]


def test_an_artifact_whose_digest_meets_that_of_another_content_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten digits can be met by trying revisions; here all digests are equal."""
    monkeypatch.setattr("airunway.artifacts.claims.digest", lambda _, *, length: "0" * length)
    validated = {"type": "Validated", "status": "True", "observedGeneration": 1}
    deployment: Resource = {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "d1", "generation": 1},
        "spec": {"model": {"id": "a/b", "cache": {"mode": "Shared"}}},
        "status": {"conditions": [validated]},
    }
    request = request_of(deployment, None)
    assert request is not None
    own = whole(request, ready())
    evil = {**own, "spec": {**own["spec"], "source": {"uri": "hf://evil/b", "revision": "found"}}}
    assert is_made(evil)
    for artifact, reason in ((own, "Ready"), (evil, "ResourceConflict")):
        engine = {"name": "vllm", "modelCache": True}
        decision = decide_cache(CacheFacts(deployment=deployment, request=request, artifact=artifact, engine=engine))
        assert (decision.condition.reason if decision.condition else "") == reason


def test_an_artifact_under_a_derived_name_that_the_part_did_not_make_is_a_conflict() -> None:
    """The thief copies name, labels and source, and adds what serves other weights; each is seen by itself."""
    validated = {"type": "Validated", "status": "True", "observedGeneration": 1}
    deployment: Resource = {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "d1", "generation": 1},
        "spec": {"model": {"id": "a/b", "cache": {"mode": "Shared"}}},
        "status": {"conditions": [validated]},
    }
    request = request_of(deployment, None)
    own = whole(request, ready())
    assert request is not None

    def said(artifact: Resource, deployment: Resource = deployment) -> str:
        asked = CacheFacts(
            deployment=deployment, request=request, artifact=artifact, engine={"name": "vllm", "modelCache": True}
        )
        decision = decide_cache(asked)
        assert decision.condition is not None
        assert decision.condition.status is (decision.condition.reason == "Ready"), decision
        return decision.condition.reason

    assert said(own) == "Ready"
    assert said({**own, "spec": {**own["spec"], "size": "9Gi", "retention": {"policy": "DeleteUnused"}}}) == "Ready"
    unlabelled = {**own, "metadata": {**own["metadata"], "labels": {}}}
    edited_and_edited_back = {**own, "status": {**own["status"], "mode": "User"}}
    poisoned = [{**own, "spec": {**own["spec"], **change}} for change in POISON]
    for thief in (unlabelled, edited_and_edited_back, *poisoned):
        assert said(thief) == "ResourceConflict", thief
        assert artifact_of(deployment, request, thief) is request, "one that was used before is left as well"

    given: Resource = {"spec": {"model": {"cache": {"artifactName": own["metadata"]["name"]}}}}
    with_template = {**deployment, "status": {**deployment["status"], "revision": {"template": given}}}
    request = replace(request, artifact=None)  # a template names the artifact that it keeps
    assert [said(each, with_template) for each in (own, poisoned[0])] == ["Ready", "ResourceConflict"]
    assert said(poisoned[0]) == "Ready", "a user who names an artifact gets what is in it"


@pytest.mark.parametrize("jobs", [True, False])
def test_a14_a_claim_that_is_gone_is_made_anew_under_another_name(jobs: bool) -> None:
    done = ready()
    lost = replace(done, claims=()) if jobs else replace(done, claims=(), jobs=(), pods=())
    decision = decide_artifact(lost)
    assert state(decision)[0] != "Ready"
    assert kinds(decision) == ["PersistentVolumeClaim", "Job"]
    names = [o["metadata"]["name"] for o in decision.objects or ()]
    assert names[0] != done.claims[0]["metadata"]["name"]
    unread = after(decision, lost, claims=())  # the new claim is not in the cache yet
    assert next(o["metadata"]["name"] for o in decide_artifact(unread).objects or ()) == names[0]


@pytest.mark.parametrize("bound", [True, False])
def test_a14_the_finished_job_of_a_claim_that_is_gone_completes_no_other_claim(bound: bool) -> None:
    """The Job ended while the core was away, and its claim was deleted before the status had the proof."""
    running = measured()
    (claim,) = running.claims
    if bound:
        running = replace(running, jobs=(*running.jobs[:-1], bound_to(running.jobs[-1], claim)))
    done = ended(running, {"ok": FETCHED}, complete=True)
    lost = replace(done, claims=())
    first = decide_artifact(lost)
    assert (state(first)[0], kinds(first)) == ("Starting", ["PersistentVolumeClaim", "Job"])
    assert (first.status or {}).get("completed") is None
    anew = after(first, lost)
    assert anew.claims[0]["metadata"]["name"] != claim["metadata"]["name"]
    assert state(decide_artifact(anew))[0] != "Ready"
    if bound:  # a claim of the same name, which an earlier release would have made
        same = {**claim, "metadata": {**claim["metadata"], "uid": "another"}}
        decision = decide_artifact(replace(done, claims=(same,)))
        assert (state(decision)[0], kinds(decision)) == ("Starting", ["PersistentVolumeClaim", "Job"])


def test_a14_a_job_that_runs_for_an_earlier_claim_of_the_same_name_goes() -> None:
    running = measured()
    (claim,) = running.claims
    job = bound_to(running.jobs[-1], claim)
    assert job["metadata"]["name"] in decide_artifact(replace(running, jobs=(job,))).kept
    same = {**claim, "metadata": {**claim["metadata"], "uid": "another"}}
    decision = decide_artifact(replace(running, jobs=(job,), claims=(same,)))
    assert job["metadata"]["name"] not in decision.kept
    assert kinds(decision) == ["PersistentVolumeClaim", "Job"]


def test_a_status_without_the_uid_of_a_claim_is_not_usable() -> None:
    done = ready().artifact
    assert is_usable(done)
    for proof in ({}, {"claimUID": ""}, None):
        assert not is_usable({**done, "status": {**done["status"], "completed": proof}})


@pytest.mark.parametrize(
    ("reason", "phase", "parent"),
    [
        ("GatedModel", "Degraded", "AuthValid"),
        ("Unauthorized", "Degraded", "AuthValid"),
        ("SourceNotFound", "Failed", "ConfigValid"),
        ("VerificationFailed", "Failed", ""),
        ("Timeout", "Starting", "DependenciesReachable"),
    ],
)
def test_a18_a19_a21_faults_of_the_source(reason: str, phase: str, parent: str) -> None:
    failed = decide_artifact(ended(measured(), {"error": {"reason": reason, "message": "why"}}, complete=False))
    assert state(failed)[0] == phase
    assert not failed.wants_slot
    wrong = [
        type_
        for type_ in ("ConfigValid", "AuthValid", "DependenciesReachable")
        if condition_of({"status": failed.status}, type_)["status"] == "False"  # type: ignore[index]
    ]
    assert wrong == ([parent] if parent else [])


def test_a21_a_delay_that_the_server_asks_for_is_honoured() -> None:
    error = {"reason": "RateLimited", "message": "429", "retryAfter": 7200}
    failed = decide_artifact(ended(measured(), {"error": error}, complete=False))
    assert failed.status is not None
    assert failed.status["download"]["nextAttemptTime"] == format_time(NOW + timedelta(hours=2))


def test_a25_headroom() -> None:
    sizes = [size_with_headroom(n, p) for n, p in ((1, 0), (2**30, 0), (2**30, 100), (2**30 + 1, 0), (4 * 2**30, 10))]
    assert sizes == ["1Gi", "1Gi", "2Gi", "2Gi", "5Gi"]
    assert decide_artifact(facts(artifact(size="1500Mi"))).objects[0]["spec"]["resources"]["requests"] == {  # type: ignore[index]
        "storage": "1500Mi"
    }


def test_a26_attempts_and_next_time_survive_a_restart() -> None:
    failing = ended(measured(), {"error": {"reason": "SourceNotFound", "message": "x"}}, complete=False)
    failed = decide_artifact(failing)
    gone = replace(after(failed, failing, claims=failing.claims), jobs=(), pods=())
    waits = decide_artifact(replace(gone, now=NOW + timedelta(minutes=30)))
    assert (kinds(waits), waits.requeue_after) == (["PersistentVolumeClaim"], 1800)
    again = decide_artifact(replace(gone, now=NOW + timedelta(minutes=60)))
    assert again.status is not None
    assert (again.status["download"]["attempts"], kinds(again)) == (2, ["PersistentVolumeClaim", "Job"])


UNREACHED = {"error": {"reason": "ConnectionRefused", "message": "the hub refuses connections"}}


def test_a_dependency_stays_unreachable_until_it_answers_and_degrades_ten_seconds_later() -> None:
    """A new pod, a new try and a wait for a slot are no success of the hub; bytes are."""

    def said(found: ArtifactFacts) -> tuple[str, str, str]:
        status = decide_artifact(found).status
        parent = condition_of({"status": status}, "DependenciesReachable") or {}
        return (status or {})["phase"], parent["status"], parent["lastTransitionTime"]

    def at(found: ArtifactFacts, seconds: float, **more: Any) -> ArtifactFacts:
        """The next pass, after the status of the last one was written."""
        decision = decide_artifact(found)
        return replace(found, artifact={**found.artifact, "status": decision.status}, now=when(seconds), **more)

    def when(seconds: float) -> datetime:
        return NOW + timedelta(seconds=seconds)

    begun = running()
    pod = begun.pods[0]
    failed = ended(begun, UNREACHED, complete=False).pods[0]
    failed = {**failed, "status": {**failed["status"], "phase": "Failed"}}
    failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 1
    turned = format_time(when(40))
    first = at(begun, 40, pods=(failed,))
    assert said(first) == ("Starting", "False", turned)
    assert decide_artifact(first).requeue_after == 10
    again = at(first, 43, pods=({**pod, "metadata": {**pod["metadata"], "name": "q"}},))
    assert said(again) == ("Starting", "False", turned), "the next pod has not reached anything"
    assert said(at(again, 49.9)) == ("Starting", "False", turned)
    later = at(again, 50)
    assert said(later) == ("Degraded", "False", turned)
    over = at(later, 60, **vars_of(ended(later, UNREACHED, complete=False, at=when(60))))
    assert said(over) == ("Degraded", "False", turned)
    queued = at(over, 1000, jobs=(), slot=False)
    assert said(queued) == ("Degraded", "False", turned)
    tried = at(queued, 1001, slot=True)
    assert decide_artifact(tried).objects is not None
    assert said(tried) == ("Degraded", "False", turned), "a new try is no success"
    assert "is being tried again" in (decide_artifact(tried).status or {})["message"]
    for child in ("DownloadReady", "StorageReady"):
        no = Condition(type=child, status=False, reason="QuotaExceeded", message="exceeded quota")
        refused = at(tried, 1002, refused=no)
        assert (condition_of({"status": decide_artifact(refused).status}, child) or {})["reason"] == "QuotaExceeded"
        assert said(refused)[1:] == ("False", turned), "a quota is no success of the hub"
        assert said(at(refused, 1003, refused=None))[1:] == ("False", turned)
    answered = at(tried, 1010, progress={"totalBytes": 100, "downloadedBytes": 7, "phase": "Downloading"})
    assert said(answered) == ("Starting", "True", format_time(when(1010)))


def vars_of(found: ArtifactFacts) -> dict[str, Any]:
    return {"jobs": found.jobs, "pods": found.pods}


@pytest.mark.parametrize("queue", ["team", ""])
def test_a_job_that_another_controller_has_suspended_says_what_holds_it(queue: str) -> None:
    found = measured()
    job = copy_of(found.jobs[-1])
    job["spec"]["suspend"] = True
    job["metadata"] |= {"namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": queue}}
    decision = decide_artifact(replace(found, jobs=(job,)))
    assert state(decision) == ("Starting", "Starting")
    told = "LocalQueue team has room: see kubectl describe workloads -n ml" if queue else "another controller"
    assert told in dig(decision.status, "message")


def test_a_job_that_kubernetes_ended_says_that_it_took_too_long() -> None:
    began = running()
    job = began.jobs[-1]
    assert job["spec"]["activeDeadlineSeconds"] == 86_400
    end = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": format_time(NOW)}
    over = replace(began, jobs=({**job, "status": {"conditions": [end]}},), pods=(), now=NOW + timedelta(seconds=30))
    condition = condition_of({"status": decide_artifact(over).status}, "DownloadReady") or {}
    assert condition["reason"] == "Timeout"
    assert "did not end within 24 h" in condition["message"]


def test_a_made_artifact_that_failed_is_tried_no_more_while_nothing_uses_it() -> None:
    first = facts(artifact(labels=MADE, size="5Gi"))
    begun = after(decide_artifact(first), first)
    failed = ended(begun, {"error": {"reason": "Unauthorized", "message": "no token"}}, complete=False)
    waiting = after(decide_artifact(failed), failed, claims=failed.claims, jobs=failed.jobs)
    due = replace(waiting, jobs=(), pods=(), now=NOW + timedelta(minutes=2))
    assert kinds(decide_artifact(due)) == ["PersistentVolumeClaim", "Job"]
    unused = decide_artifact(replace(due, users=()))
    assert (kinds(unused), unused.delete_self) == (["PersistentVolumeClaim"], False)
    assert state(unused) == ("Degraded", "AuthFailed")


def test_authorities_are_mounted_as_one_file_and_named_to_the_downloader() -> None:
    """Those of the artifact come before those of the config, and a variable cannot name another file."""
    forged = [{"name": "AIRUNWAY_CA_FILE", "value": "/cache/model/ca.crt"}]
    own = {"configMap": "own", "key": "root.pem"}
    cases: list[tuple[Resource, Resource, tuple[str, str] | None]] = [
        (artifact(caBundle=own, env=forged), {"caBundle": {"configMap": "shared"}}, ("own", "root.pem")),
        (artifact(), {"caBundle": {"configMap": "shared"}}, ("shared", "ca.crt")),
        (artifact(env=forged), {}, None),
    ]
    for obj, config, wanted in cases:
        job = next(each for each in decide_artifact(facts(obj, config=config)).objects or () if each["kind"] == "Job")
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        found = [each["configMap"] for each in pod["volumes"] if "configMap" in each]
        named = [each["value"] for each in container["env"] if each["name"] == "AIRUNWAY_CA_FILE"]
        if wanted is None:
            assert (found, named) == ([], [])
            continue
        assert found == [{"name": wanted[0], "items": [{"key": wanted[1], "path": "ca.crt"}]}]
        assert named == ["/etc/airunway/ca/ca.crt"]
        assert {"name": "ca-bundle", "mountPath": "/etc/airunway/ca", "readOnly": True} in container["volumeMounts"]


def test_a26_times_of_clocks_that_were_ahead_delay_no_try() -> None:
    error = {"error": {"reason": "SourceNotFound", "message": "x"}}
    failing = ended(measured(), error, complete=False)
    gone = replace(after(decide_artifact(failing), failing, claims=failing.claims), jobs=(), pods=())
    again = decide_artifact(replace(gone, now=NOW - timedelta(days=1)))  # ours was ahead
    assert kinds(again) == ["PersistentVolumeClaim", "Job"]
    ahead = ended(measured(), error, complete=False, at=NOW + timedelta(days=1))  # the node's is
    failed = decide_artifact(replace(ahead, jobs=failing.jobs))
    assert failed.status is not None
    assert failed.status["download"]["nextAttemptTime"] == format_time(NOW + timedelta(hours=1))


def test_a27_a_failed_job_that_is_deleted_by_hand_is_tried_at_once() -> None:
    failing = ended(measured(), {"error": {"reason": "Timeout", "message": "x"}}, complete=False)
    gone = replace(after(decide_artifact(failing), failing, claims=failing.claims), jobs=(), pods=())
    assert kinds(decide_artifact(gone)) == ["PersistentVolumeClaim", "Job"]


@pytest.mark.parametrize(
    ("reason", "attempts", "minutes", "by_hand"),
    [
        ("Timeout", 5, 5, True),
        ("Timeout", 5, 11, False),  # after its time to live the Job goes by itself
        ("SourceNotFound", 1, 5, True),
        ("SourceNotFound", 1, 11, False),
        ("RateLimited", 5, 5, False),  # when the try ended is not known: the server may have asked for more time
    ],
)
def test_a27_a_job_of_a_long_try_that_is_deleted_by_hand_is_tried_at_once(
    reason: str, attempts: int, minutes: int, by_hand: bool
) -> None:
    """The try ran for three hours, and its Job would stay for ten minutes after its end."""
    running = measured()
    running = replace(running, jobs=(renamed(running.jobs[-1], attempts),))
    download = {"attempts": attempts, "lastAttemptTime": format_time(NOW - timedelta(hours=3))}
    running = replace(
        running, artifact={**running.artifact, "status": {**running.artifact["status"], "download": download}}
    )
    failing = ended(running, {"error": {"reason": reason, "message": "x"}}, complete=False)
    gone = after(decide_artifact(failing), failing, claims=failing.claims, jobs=(), pods=())
    later = replace(gone, now=NOW + timedelta(minutes=minutes))
    decision = decide_artifact(later)
    assert ("Job" in kinds(decision)) is by_hand
    if by_hand:
        queued = replace(later, slot=False)
        waiting = after(decide_artifact(queued), queued, claims=failing.claims)
        assert decide_artifact(replace(waiting, now=NOW + timedelta(minutes=12))).wants_slot
        assert "Job" in kinds(decide_artifact(replace(waiting, slot=True)))


def renamed(job: Resource, attempt: int) -> Resource:
    """The Job of a later try."""
    name = job_name("llama", "download", uid="u1", attempt=attempt)
    return {**job, "metadata": {**job["metadata"], "name": name}}


def test_a17_the_download_runs_where_the_deployments_pods_may_run() -> None:
    """A volume that is bound to a zone or node is bound where the download runs."""
    place = {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    deployment = {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "d"},
        "spec": {"model": {"id": "a/b", "cache": {"mode": "Shared"}}, **place},
    }
    request = request_of(deployment, None)
    assert request is not None
    assert request.artifact is not None
    objects = decide_artifact(facts(artifact(**{**request.artifact["spec"], "size": "1Gi"}))).objects
    assert objects is not None
    (pod,) = (each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Job")
    assert {field: pod[field] for field in place} == place


def token_of(obj: Resource, config: Resource) -> object:
    """The variable HF_TOKEN of the Job's container."""
    objects = decide_artifact(facts(obj, config=config)).objects
    assert objects is not None
    (job,) = (each for each in objects if each["kind"] == "Job")
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    (found,) = (
        each.get("value") or each["valueFrom"]["secretKeyRef"]["name"] for each in env if each["name"] == "HF_TOKEN"
    )
    return found


def test_the_artifacts_own_token_comes_before_all_that_its_config_says() -> None:
    variable = [{"name": "HF_TOKEN", "value": "shared"}]
    secret = {"secrets": {"huggingFaceToken": "mine"}}
    assert token_of(artifact(**secret), {"env": variable}) == "mine"
    assert token_of(artifact(), {"env": variable}) == "shared"
    assert token_of(artifact(**secret, env=[{"name": "HF_TOKEN", "value": "own"}]), {"env": variable}) == "own"


def test_a28_names_fit_and_differ() -> None:
    uris = [f"hf://a/{'x' * n}.Y_{n}" for n in (1, 60, 61, 253)] + ["hf://a/B.c", "hf://a/b-c", "hf://a/---"]
    names = [artifact_name(uri, "ns") for uri in uris]
    long = [claim_name("a" * 52, uid="u", attempt=0), claim_name("a" * 51 + "b", uid="v", attempt=0)]
    long += [job_name("a" * 52, "check-size", uid="u", attempt=n) for n in (1, 2)]
    assert len({*names, *long}) == len(names) + len(long)
    assert [n for n in names if len(n) > 52 or not n[0].isalnum() or n != n.lower() or "." in n] == []
    assert [n for n in long if len(n) > 63] == []


CLASS_A, CLASS_B = ({"storage": {"defaultStorageClassName": name}} for name in ("a", "b"))


@pytest.mark.parametrize(
    ("bound", "config", "cache", "kept"),
    [
        ("True", CLASS_B, {}, True),
        ("True", {}, {}, True),
        ("of a user", CLASS_B, {}, False),
        ("False", CLASS_B, {}, False),
        ("True", {**CLASS_B, "secrets": {"huggingFaceToken": "other"}}, {}, False),
        ("True", {"storage": {**CLASS_B["storage"], "accessMode": "ReadWriteOnce"}}, {}, False),
        ("True", CLASS_B, {"storageClassName": "b"}, False),
        ("True", CLASS_B, {"revision": "v2"}, False),
        ("True", CLASS_B, {"mode": "Dedicated"}, False),
    ],
)
def test_a31_an_edited_default_class_starts_no_second_download(
    bound: str, config: Resource, cache: Resource, kept: bool
) -> None:
    """Before the claim is bound nothing was fetched, and another class may be the remedy; so may another token."""

    def under(config: Resource, **asked: Any) -> CacheRequest | None:
        metadata = {"name": "chat", "namespace": "ml", "uid": "d1"}
        obj = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": metadata}
        obj["spec"] = {"model": {"id": "a/b", "cache": {"mode": "Shared", **asked}}}
        named = {"metadata": {"name": "default", "namespace": "ml"}, "spec": config}
        return artifact_of(obj, request_of(obj, resolve("default", namespaced=named, cluster=None).config), live)

    live = None
    first = under(CLASS_A)
    assert first is not None
    assert first.artifact is not None
    conditions = [{"type": "StorageReady", "status": "False" if bound == "False" else "True"}]
    live = {**first.artifact, "status": {"conditions": conditions, "persistentVolumeClaim": "c"}}
    if bound == "of a user":
        live["metadata"] = {**live["metadata"], "labels": {}}
    edited = under(config, **cache)
    assert edited is not None
    assert (edited.name == first.name) is kept


def test_a36_without_a_slot_it_is_queued_without_a_timer() -> None:
    waiting = decide_artifact(replace(measured(), jobs=(), slot=False))
    assert (state(waiting), waiting.wants_slot, waiting.requeue_after) == (("Pending", "Queued"), True, None)


@pytest.mark.parametrize(
    ("phase", "reason", "minutes", "holds"),
    [
        ("", "", 0, True),
        ("Pending", "", 4, True),
        ("Pending", "", 5, False),
        ("", "", 5, False),
        ("Pending", "SecretNotFound", 0, False),
        ("Pending", "InsufficientCapacity", 0, False),
        ("Running", "", 600, True),
        ("Running", "RateLimited", 600, True),
    ],
)
def test_a_download_that_cannot_start_holds_no_slot(phase: str, reason: str, minutes: int, holds: bool) -> None:
    begun = measured()
    known: Any = {"object": "Pod/ml/p", "field": "", "message": "why", "remedy": ""}
    cause = RootCause(reason=reason, code=reason, since=NOW, **known) if reason else None
    pods = (pod_of(begun, phase),) if phase else ()
    decision = decide_artifact(replace(begun, pods=pods, cause=cause, now=NOW + timedelta(minutes=minutes)))
    assert decision.wants_slot is holds
    if phase != "Running":
        assert condition_of({"status": decision.status}, "DownloadReady")["reason"] == (reason or "Starting")  # type: ignore[index]
        starts_soon = holds and not reason
        assert (decision.requeue_after == (5 - minutes) * 60) is starts_soon, "time alone ends the wait"


@pytest.mark.parametrize("why", ["slot", "config", "class"])
def test_a36_a_try_that_is_due_and_cannot_begin_has_no_timer(why: str) -> None:
    failing = ended(measured(), {"error": {"reason": "Timeout", "message": "x"}}, complete=False)
    failed = after(decide_artifact(failing), failing, claims=failing.claims)
    due = replace(failed, jobs=(), pods=(), now=NOW + timedelta(minutes=20))
    hindrances: dict[str, dict[str, Any]] = {
        "slot": {"slot": False},
        "config": {"resolution": resolve("gone", namespaced=None, cluster=None)},
        "class": {"claims": of_class("gone", ({**due.claims[0], "status": {"phase": "Pending"}},))},
    }
    waiting = decide_artifact(replace(due, **hindrances[why]))
    assert waiting.status is not None
    assert "Job" not in kinds(waiting)
    assert waiting.requeue_after is None or waiting.requeue_after > 0
    later = replace(due, artifact={**due.artifact, "status": waiting.status})
    assert kinds(decide_artifact(later)) == ["PersistentVolumeClaim", "Job"], "it begins when nothing hinders it"


def test_labels_of_the_artifact_reach_claim_and_jobs_and_never_win_over_ours() -> None:
    labels = {"team": "x", "other": "y", "airunway.ai/artifact": "not-mine"}
    config = {"labelPropagation": {"enabled": True, "match": ["team"]}}
    decision = decide_artifact(facts(artifact(labels=labels, size="1Gi"), config=config))
    for each in decision.objects or ():
        assert each["metadata"]["labels"]["team"] == "x"
        assert "other" not in each["metadata"]["labels"]
        assert each["metadata"]["labels"]["airunway.ai/artifact"] == "llama"


def test_the_same_answer_of_a_download_changes_no_status() -> None:
    answer = {"totalBytes": 100, "downloadedBytes": 50, "bytesPerSecond": 5}
    running = replace(measured(), progress=answer)
    first = decide_artifact(running)
    assert first.status is not None
    assert first.status["progress"]["percentage"] == 50
    later = replace(after(first, running, claims=running.claims), now=NOW + timedelta(seconds=5))
    assert decide_artifact(later).status == first.status


def test_a5_another_token_is_another_artifact() -> None:
    def deployment(name: str, token: str = "", mode: str = "Shared") -> Resource:
        model = {"id": "a/b", "cache": {"mode": mode}}
        spec = {"model": model, "secrets": {"huggingFaceToken": token}}
        metadata = {"name": name, "namespace": "ml", "uid": name}
        return {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": metadata, "spec": spec}

    made = [deployment("a"), deployment("b"), deployment("c", "s"), deployment("d", mode="Dedicated")]
    names = [found.name for each in made if (found := request_of(each, None)) is not None]
    assert len(names) == 4
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_times_between_tries_double_up_to_an_hour() -> None:
    fault = result_of(None, JobStep.DOWNLOAD)
    found = [next_attempt(fault, attempts=n, ended=NOW) for n in (1, 2, 3, 7, 99)]
    assert [(each - NOW).total_seconds() for each in found if each] == [60, 120, 240, 3600, 3600]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("9999-12-31T23:59:59Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [path, *(place for key, each in below for place in _places(each, (*path, key)))]


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: _with(value[path[0]], path[1:], new)}
    return [_with(each, path[1:], new) if n == path[0] else each for n, each in enumerate(value)]


STAGES = [facts(artifact()), measured(), ended(measured(), {"ok": FETCHED}, complete=True), ready()]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_json_gets_a_decision(data: st.DataObject) -> None:
    """One place of what the API server sent is anything; names and kinds of objects are the API server's own."""
    stage = data.draw(st.sampled_from(STAGES))
    field = data.draw(st.sampled_from(["artifact", "claims", "jobs", "pods", "progress", "classes"]))
    found = getattr(stage, field)
    whole = {**found} if isinstance(found, dict) else list(found or ())
    places = [p for p in _places(whole) if "metadata" not in p[:2] and len(p) > (0 if field == "artifact" else 1)]
    new = data.draw(ANY)
    changed = _with(whole, data.draw(st.sampled_from(places)), new) if places else new
    if field == "classes":
        changed = {"": changed}
    elif field not in ("artifact", "progress"):
        changed = tuple(each for each in changed if isinstance(each, dict)) if isinstance(changed, list) else found
    elif field == "artifact" and not isinstance(changed, dict):
        changed = stage.artifact
    change: dict[str, Any] = {field: changed}
    decision = decide_artifact(replace(stage, **change))
    assert decision.delete_self or decision.status is None or condition_of({"status": decision.status}, "Ready")
