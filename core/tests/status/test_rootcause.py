"""Evidence → root cause. The texts are those of kubelet, containerd, CRI-O, scheduler, API server and engines."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
import yaml
from tests.support.evidence import (
    IMAGE,
    NOW,
    QUOTA,
    at,
    container,
    crashed,
    ended,
    event,
    evidence,
    pod,
    refusal,
    unschedulable,
    waiting,
)

from airunway.resource import Resource
from airunway.status.evidence import (
    Evidence,
    Reported,
    claim_facts,
    job_facts,
)
from airunway.status.reasons import CODES, REASONS, code_of_reason
from airunway.status.remedies import split
from airunway.status.rootcause import find_root_cause, find_symptoms
from airunway.status.texts import MessagePattern, first_meaning

POD_ROWS: list[Resource] = yaml.safe_load((Path(__file__).parent / "podcauses.yaml").read_text())


def status_of(row: Resource) -> Resource:
    """The pod status that a row of the table describes."""
    if "unschedulable" in row:
        return unschedulable(row["unschedulable"])
    if "waiting" in row:
        return waiting(row["waiting"]["reason"], row["waiting"].get("message", ""))
    if "crashed" in row:
        how = row["crashed"]
        return crashed(how["exitCode"], how.get("message", ""), how.get("reason", "Error"))
    return dict(row["pod"])


@pytest.mark.parametrize("row", POD_ROWS, ids=lambda row: row["case"])
def test_what_a_pod_shows(row: Resource) -> None:
    events = tuple(event(told["reason"], told["note"]) for told in row.get("events", ()))
    found = evidence(pod(**status_of(row)), events=events, served=row.get("served", False))
    first = find_symptoms(found, now=NOW)[0]
    assert (first.code or None, first.reason) == (row["code"], row["reason"])
    assert first.object == "Pod/ml/llama-0"
    assert row["says"] in first.message
    assert "llama-0" in first.message
    cause = find_root_cause(found, now=NOW)
    if row["code"] is None:
        assert cause is None
        return
    assert cause is not None
    assert (cause.code, cause.object, cause.reason) == (row["code"], "Pod/ml/llama-0", row["reason"])
    assert CODES[row["code"]].remedy_for(cause.object, first.remedy) == cause.remedy
    assert cause.message.endswith(f" {cause.remedy}")
    assert "docs/" not in cause.message, "a cluster's user has no checkout"
    assert len(cause.message.encode()) <= 1024
    assert cause.since <= NOW


FINE = [
    ("a pod that is ready", pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}], **crashed(1)), ()),
    ("a pod that is being deleted", pod(metadata={"deletionTimestamp": at(1)}, **crashed(1)), ()),
    ("a pod that the scheduler has not looked at", pod(spec={"nodeName": None}), ()),
    ("containers being made", pod(**waiting("ContainerCreating")), ()),
    (
        "an engine that loads: its probes fail as they must",
        pod(**container(state={"running": {}})),
        (event("Unhealthy", "Startup probe failed: connection refused"),),
    ),
    (
        "restarted once, running, no cause known",
        pod(**container(state={"running": {}}, lastState=ended(1), restartCount=1)),
        (),
    ),
    (
        "ended for the first time, no cause known: it is started again at once",
        pod(phase="Running", **container(state=ended(1))),
        (),
    ),
    (
        "out of memory long before it was ready the last time",
        pod(
            conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": at(10)}],
            **container(state={"running": {}}, lastState=ended(137, "OOMKilled", ago=3600), restartCount=1),
        ),
        (),
    ),
    ("a job's pod that is done", pod(phase="Succeeded", **container(state=ended(0))), ()),
    *(
        (
            f"words that would be a fault, of a pod that {how}",
            pod(phase="Succeeded", **container(state=ended(0, "Completed", words))),
            (),
        )
        for how, words in (
            ("downloaded what it had not", "model config not found in cache, downloading: 404 Client Error"),
            ("tried again", "401 Client Error: Repository Not Found for url, retrying with a token=hf_0123456789"),
        )
    ),
    (
        "an event about an earlier pod of the name",
        pod(**waiting("ContainerCreating")),
        (event("FailedMount", 'secret "x" not found', uid="earlier"),),
    ),
    (
        "a volume that was mounted long since",
        pod(**waiting("ContainerCreating")),
        (event("FailedMount", 'secret "x" not found', ago=3600),),
    ),
]


@pytest.mark.parametrize(("case", "found", "events"), FINE, ids=[row[0] for row in FINE])
def test_what_is_no_fault(case: str, found: Resource, events: tuple[Resource, ...]) -> None:
    assert find_symptoms(evidence(found, events=events), now=NOW) == ()


def test_a_failed_pod_that_was_replaced_is_history() -> None:
    evicted = pod(phase="Failed", reason="Evicted", message="memory", metadata={"creationTimestamp": at(600)})
    after = pod("llama-x", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    assert [s.reason for s in find_symptoms(evidence(evicted), now=NOW)] == ["PodEvicted"]
    assert find_symptoms(evidence(evicted, after), now=NOW) == ()


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present; cannot allocate unhealthy"),
        ("NodeShutdown", "Pod was terminated in response to imminent node shutdown."),
        ("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"),
        ("", ""),
    ],
    ids=lambda text: text[:24],
)
def test_a_pod_that_failed_otherwise_was_not_evicted(reason: str, message: str) -> None:
    (symptom,) = find_symptoms(evidence(pod(phase="Failed", reason=reason, message=message)), now=NOW)
    assert (symptom.reason, symptom.code) == ("PodFailed", "")
    assert symptom.message.startswith(f"Pod llama-0: failed ({reason or 'no reason given'})")
    assert message in symptom.message
    assert "evicted" not in symptom.message


@pytest.mark.parametrize("code", [137, 143])
@pytest.mark.parametrize(
    "told",
    [
        ("BackOff", "Back-off restarting failed container model"),
        ("Killing", "Stopping container model"),
        ("Unhealthy", "Readiness probe failed: connection refused"),
    ],
    ids=lambda told: told[0],
)
def test_a_killed_container_without_a_failed_probe_is_a_crash_loop(told: tuple[str, str], code: int) -> None:
    """A readiness probe restarts nothing, and neither does what the kubelet tells besides."""
    found = find_symptoms(evidence(pod(**crashed(code)), events=(event(*told),)), now=NOW)
    assert [(s.reason, s.code) for s in found] == [("CrashLoopBackOff", "Engine.CrashLoop")]


# ------------------------------------------------------------------------------------------- beside and behind the pods


def test_quota_forbids_the_pods() -> None:
    cause = find_root_cause(evidence(events=(refusal(QUOTA),)), now=NOW)
    assert cause is not None
    assert (cause.code, cause.reason, cause.object) == ("Unschedulable.Quota", "QuotaExceeded", "StatefulSet/ml/llama")
    assert "exceeded quota: gpus" in cause.message
    assert cause.field == "spec.resources"
    assert cause.since == NOW - timedelta(seconds=40)


@pytest.mark.parametrize(
    ("note", "code", "reason"),
    [
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "Provider.Rejected", "InvalidSpec"),
        ('admission webhook "w" denied the request: no', "Provider.Rejected", "InvalidSpec"),
        (
            'error looking up service account ml/x: serviceaccount "x" not found',
            "Provider.Rejected",
            "ReferenceNotFound",
        ),
        (
            'pods is forbidden: User "system:serviceaccount:lws:m" cannot create resource "pods" in API group ""',
            "Provider.Rejected",
            "Forbidden",
        ),
        (
            'pods "x-" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            "RuntimeClass.NotFound",
            "ReferenceNotFound",
        ),
        ("something new", "Provider.Rejected", "InvalidSpec"),
    ],
)
def test_other_refusals(note: str, code: str, reason: str) -> None:
    cause = find_root_cause(evidence(events=(refusal(note),)), now=NOW)
    assert cause is not None
    assert (cause.code, cause.reason) == (code, reason)


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (
            'pods "x" is forbidden: unable to create new content in namespace ml because it is being terminated',
            "Terminating",
        ),
        ("create not allowed while custom resource definition is terminating", "UpstreamNotInstalled"),
    ],
)
def test_a_namespace_or_definition_that_is_deleted_is_no_fault(note: str, reason: str) -> None:
    seen = evidence(events=(refusal(note),))
    assert [(found.reason, found.code) for found in find_symptoms(seen, now=NOW)] == [(reason, "")]
    assert find_root_cause(seen, now=NOW) is None


def test_a_refusal_is_over_once_a_pod_was_made_or_it_is_not_repeated() -> None:
    made = pod(metadata={"creationTimestamp": at(5)})
    assert find_root_cause(evidence(made, events=(refusal(QUOTA, ago=10),)), now=NOW) is None
    older = pod(metadata={"creationTimestamp": at(60)})
    assert find_root_cause(evidence(older, events=(refusal(QUOTA, ago=10),)), now=NOW) is not None
    assert find_root_cause(evidence(events=(refusal(QUOTA, ago=1300),)), now=NOW) is None


def test_a_claim_whose_class_does_not_exist() -> None:
    note = 'storageclass.storage.k8s.io "fast" not found'
    told = event("ProvisioningFailed", note, kind="PersistentVolumeClaim", name="weights", uid="c")
    pending = claim_facts({"metadata": {"name": "weights", "namespace": "ml"}, "status": {"phase": "Pending"}})
    bound = claim_facts({"metadata": {"name": "weights", "namespace": "ml"}, "status": {"phase": "Bound"}})
    waits = pod(
        **{
            **unschedulable("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
            "spec": {"nodeName": None, "volumes": [{"persistentVolumeClaim": {"claimName": "weights"}}]},
        }
    )
    for found in (
        evidence(events=(told,), claims=(pending,)),
        evidence(waits, events=(told,)),  # a claim without our label: the pod that waits for it names it
    ):
        cause = find_root_cause(found, now=NOW)
        assert cause is not None
        assert (cause.code, cause.object) == ("Storage.ClassMissing", "PersistentVolumeClaim/ml/weights")
    assert find_root_cause(evidence(events=(told,), claims=(bound,)), now=NOW) is None
    assert find_root_cause(evidence(events=(told,)), now=NOW) is None


def test_a_pod_that_waits_for_its_claim_names_claim_and_class() -> None:
    """The provisioner of the class does not exist: no event says anything of the claim."""
    waits = pod(
        **{
            **unschedulable("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
            "spec": {"nodeName": None, "volumes": [{"persistentVolumeClaim": {"claimName": "llama-weights"}}]},
        }
    )
    claim = {
        "metadata": {"name": "llama-weights", "namespace": "ml"},
        "spec": {"storageClassName": "fast-nvme"},
        "status": {"phase": "Pending"},
    }
    cause = find_root_cause(evidence(waits, claims=(claim_facts(claim),)), now=NOW)
    assert cause is not None
    assert cause.code == "Storage.PvcPending"
    assert "PersistentVolumeClaim llama-weights (StorageClass fast-nvme)" in cause.message


def test_a_conflict_of_the_provisioner_is_no_fault_of_a_claim() -> None:
    note = 'Error saving claim: Operation cannot be fulfilled on persistentvolumeclaims "weights": the object has been '
    pending = claim_facts({"metadata": {"name": "weights", "namespace": "ml"}, "status": {"phase": "Pending"}})
    for text, found in (
        (f"{note}modified; please apply your changes to the latest version", []),
        (note, ["PvcPending"]),
    ):
        failed = event("ProvisioningFailed", text, kind="PersistentVolumeClaim", name="weights", uid="c")
        symptoms = find_symptoms(evidence(events=(failed,), claims=(pending,)), now=NOW)
        assert [each.reason for each in symptoms] == found


def test_lost_claims_and_failed_jobs_are_shown_without_a_code() -> None:
    lost = claim_facts({"metadata": {"name": "weights", "namespace": "ml"}, "status": {"phase": "Lost"}})
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "has reached the limit",
    }
    job = job_facts({"metadata": {"name": "load", "namespace": "ml"}, "status": {"conditions": [condition]}})
    symptoms = find_symptoms(Evidence(claims=(lost,), jobs=(job,)), now=NOW)
    assert [(s.reason, s.object) for s in symptoms] == [
        ("PvcLost", "PersistentVolumeClaim/ml/weights"),
        ("JobFailed", "Job/ml/load"),
    ]


def test_a_report_counts_where_nothing_nearer_tells() -> None:
    report = Reported(reason="ImageNotFound", object="Workspace/ml/llama", message="image pull failed")
    cause = find_root_cause(Evidence(reports=(report,)), now=NOW)
    assert cause is not None
    assert (cause.code, cause.object, cause.of_pods) == ("ImagePull.NotFound", "Workspace/ml/llama", False)
    nearer = find_root_cause(evidence(pod(**crashed(137, reason="OOMKilled")), reports=(report,)), now=NOW)
    assert nearer is not None
    assert nearer.code == "Engine.OutOfMemory"


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("UpstreamNotInstalled", "not installed", "Upstream.NotInstalled"),
        ("StaleStatus", "silent", "Provider.Stale"),
        ("InvalidSpec", "refused", "Provider.Rejected"),
        ("InsufficientCapacity", "2 Insufficient nvidia.com/gpu", "Unschedulable.InsufficientGPU"),
        ("InsufficientCapacity", "the zone has no machines", ""),
        ("Progressing", "working", ""),
    ],
)
def test_what_reports_mean(reason: str, message: str, code: str) -> None:
    cause = find_root_cause(Evidence(reports=(Reported(reason=reason, message=message),)), now=NOW)
    assert (cause.code if cause else "") == code


def test_an_edit_that_is_refused_because_a_field_is_immutable_says_how_the_object_is_made_anew() -> None:
    refused = (
        "LeaderWorkerSet 'x' was refused: admission webhook \"w\" denied the request: [spec.a: field is immutable]"
    )
    cause = find_root_cause(Evidence(reports=(Reported(reason="InvalidSpec", message=refused),)), now=NOW)
    assert cause is not None
    assert "undo the edit, or set spec.suspend to true" in cause.message
    assert split(cause.message, CODES[cause.code], cause.object) == (cause.evidence, cause.remedy)


def test_the_field_is_the_one_that_names_the_secret() -> None:
    found = evidence(
        pod(**waiting("CreateContainerConfigError", 'secret "hf-token" not found')),
        secrets={"hf-token": "spec.secrets.huggingFaceToken", "other": "spec.env[0]"},
    )
    cause = find_root_cause(found, now=NOW)
    assert cause is not None
    assert cause.field == "spec.secrets.huggingFaceToken"


WEIGHTS = "registry.example/team/weights:1"
PULLED_BY_TAG = f'Back-off pulling image "{WEIGHTS}": ErrImagePull: failed to pull and unpack image "{WEIGHTS}": '


@pytest.mark.parametrize(
    ("reason", "message", "notes", "code", "says"),
    [
        ("ErrImagePull", f"{PULLED_BY_TAG}{WEIGHTS}: not found", (), "ImagePull.NotFound", "not found"),
        (
            "ImagePullBackOff",
            f"{PULLED_BY_TAG}failed to authorize: 401 Unauthorized",
            (),
            "ImagePull.Auth",
            "401 Unauthorized",
        ),
        (
            "ErrImagePull",
            f"{PULLED_BY_TAG}no match for platform in manifest: not found",
            (),
            "ImagePull.NotFound",
            "no match for platform",
        ),
        (
            "ErrImagePull",
            "reading manifest 1 in registry.example/team/weights: manifest unknown",
            (f'Failed to pull image "{WEIGHTS}": reading manifest 1: manifest unknown',),
            "ImagePull.NotFound",
            "manifest unknown",
        ),
    ],
)
def test_an_image_of_weights_that_cannot_be_pulled_is_named_with_its_field(
    reason: str, message: str, notes: tuple[str, ...], code: str, says: str
) -> None:
    """Kubelets report it as the reason of the container that mounts it (kuberuntime_manager.go, 1.36)."""
    mounted = {"volumes": [{"name": "weights", "image": {"reference": WEIGHTS}}], "nodeName": "gpu-0"}
    events = tuple(event("Failed", note) for note in notes)
    cause = find_root_cause(evidence(pod(spec=mounted, **waiting(reason, message)), events=events), now=NOW)
    assert cause is not None
    assert (cause.code, cause.field) == (code, "spec.model.uri")
    assert f'image "{WEIGHTS}" cannot be pulled' in cause.message
    assert says in cause.message


def test_the_image_of_the_engine_is_not_taken_for_that_of_the_weights() -> None:
    mounted = {"volumes": [{"name": "weights", "image": {"reference": WEIGHTS}}], "nodeName": "gpu-0"}
    message = f'Back-off pulling image "{IMAGE}": ErrImagePull: {IMAGE}: not found'
    cause = find_root_cause(evidence(pod(spec=mounted, **waiting("ImagePullBackOff", message))), now=NOW)
    assert cause is not None
    assert (cause.code, cause.field) == ("ImagePull.NotFound", "spec.image")


def test_the_registry_is_complete_and_consistent() -> None:
    spec = (
        "Unschedulable.InsufficientGPU Unschedulable.Quota Unschedulable.TaintOrSelector ImagePull.NotFound "
        "ImagePull.Auth ImagePull.RateLimited Model.AuthGated Model.NotFound Model.DownloadStalled "
        "Storage.ClassMissing Storage.PvcPending Storage.Full Engine.OutOfMemory Engine.BadArgs Engine.CrashLoop "
        "Probe.Timeout Provider.Rejected Provider.Stale Upstream.NotInstalled Secret.NotFound Unschedulable.Gated "
        "Engine.WrongArchitecture Engine.NoGPU Engine.DriverTooOld Engine.GPUUnsupported Engine.ModelUnsupported "
        "Engine.NotWritable Engine.Communication ConfigMap.NotFound RuntimeClass.NotFound "
        "DeviceClass.NotFound ImageVolume.Unsupported"
    )
    assert set(CODES) == set(spec.split())
    for name, code in CODES.items():
        assert name == code.name
        assert set(code.reasons) <= set(REASONS), name
        assert code.meaning.endswith(".")
        assert code.remedy.endswith(".")
    for reason in REASONS:
        code_name = code_of_reason(reason)
        assert not code_name or reason in CODES[code_name].reasons


def test_what_a_pod_said_is_looked_through_once_however_often_it_is_read() -> None:
    """Sixty workers that crash would else cost each pass of their deployment a twentieth of a second."""
    looked: list[str] = []

    class Pattern:
        def search(self, text: str) -> None:
            looked.append(text)

    table = (MessagePattern(cast("re.Pattern[str]", Pattern()), "PodFailed", "", "a test"),)
    for _ in range(3):
        assert first_meaning("one", table) is None
    assert looked == ["one"]
    longer = "x" * 5_000
    for _ in range(2):
        assert first_meaning(longer, table) is None
    assert looked[1:] == [longer, longer], "what is long is not kept"
