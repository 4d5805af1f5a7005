"""A Workspace's status as an observation: by hand, as recorded, and whatever comes."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Endpoint, Observation, Observed, Replicas
from airunway.resource import Resource
from airunway.status.reasons import REASONS
from airunway_kaito.status import observation

DEPLOYMENT = parse_deployment({"metadata": {"name": "llama-8b"}, "spec": {"model": {"id": "o/m"}}})


def condition(type_: str, status: str, reason: str, message: str = "", seen: int = 1) -> Resource:
    return {"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": seen}


def workspace(*conditions: Resource, state: str = "", generation: int = 1, **metadata: Any) -> Resource:
    status: Resource = {"conditions": list(conditions), **({"state": state} if state else {})}
    return {"metadata": {"name": "llama-8b", "generation": generation, **metadata}, "status": status}


def observe(primary: Any, context: Any) -> Observation:
    return observation(DEPLOYMENT, Observed(primary=primary))


PENDING = condition("WorkspaceSucceeded", "False", "workspacePending", "workspace is waiting for it")
SUCCEEDED = condition("WorkspaceSucceeded", "True", "workspaceSucceeded", "workspace succeeds")
READY = condition("InferenceReady", "True", "WorkspaceInferenceStatusSuccess", "deployed")


def test_ready(context: Any) -> None:
    found = observe(workspace(READY, SUCCEEDED, state="Ready"), context)
    (component,) = found.components
    assert (component.name, component.ready, component.reason) == ("ProviderResource", True, "Ready")
    assert found.replicas == Replicas(desired=1, ready=1, available=1)
    assert found.endpoint == Endpoint(service="llama-8b", port=80, target_port=5000)
    assert found.selector == "kaito.sh/workspace=llama-8b,statefulset.kubernetes.io/pod-name=llama-8b-0", (
        "its Service's"
    )
    assert found.up_to_date
    assert found.warnings == ()


def test_before_0_9_pods_are_selected_by_their_workspace_alone(context: Any) -> None:
    assert observe(workspace(READY, SUCCEEDED), context).selector == ""


@pytest.mark.parametrize("state", ["", "Pending"])
def test_a_model_that_answers_keeps_its_address_while_its_workspace_is_judged_anew(context: Any, state: str) -> None:
    """The nodes are looked at again, say: whoever uses the model must not lose it for that.

    Before 0.9 there was no state at all, and since then it is `NotReady` only once KAITO has seen the model fail.
    """
    found = observe(workspace(READY, PENDING, state=state), context)
    assert found.components[0].ready is False
    assert found.replicas == Replicas(desired=1)
    assert found.endpoint == Endpoint(service="llama-8b", port=80, target_port=5000)
    silent = condition("InferenceReady", "False", "WorkspaceInferenceStatusPending")
    assert observe(workspace(silent, PENDING, state=state), context).endpoint is None


@pytest.mark.parametrize("primary", [None, {}, {"metadata": {"generation": 1}}, {"status": {"targetNodeCount": 1}}])
def test_nothing_reported_yet(context: Any, primary: Any) -> None:
    found = observe(primary, context)
    assert found.components[0].reason == "Starting"
    assert found.components[0].ready is False
    assert found.components[0].pending is (not primary)
    assert found.endpoint is None
    assert found.replicas == Replicas(desired=1)
    assert not found.up_to_date


@pytest.mark.parametrize(
    ("type_", "reason", "message", "expected"),
    [
        ("InferenceReady", "WorkspaceInferenceStatusPending", "not ready", "Progressing"),
        ("InferenceReady", "ImagePullError", "ErrImagePull: not found", "ImageNotFound"),
        ("InferenceReady", "ImagePullError", "401 Unauthorized", "ImagePullAuthFailure"),
        ("InferenceReady", "ImagePullError", "toomanyrequests: slow down", "RateLimited"),
        ("InferenceReady", "ImagePullError", "(InvalidImageName)", "InvalidImageReference"),
        ("InferenceReady", "ImagePullError", "Back-off pulling image", "ImagePullBackOff"),
        ("InferenceReady", "ContainerCrashLoopBackOff", "exit code 1", "CrashLoopBackOff"),
        ("InferenceReady", "ContainerOOMKilled", "exit code 137", "PodOOMKilled"),
        ("InferenceReady", "ContainerStartError", "exec format", "PodFailed"),
        ("InferenceReady", "PodEvicted", "evicted", "PodEvicted"),
        ("InferenceReady", "Unschedulable", "2 Insufficient nvidia.com/gpu", "InsufficientCapacity"),
        ("InferenceReady", "Unschedulable", "untolerated taint", "FailedScheduling"),
        ("InferenceReady", "ModelStreaming", "30 %", "Downloading"),
        ("InferenceReady", "SomethingNew", "unheard of", "Progressing"),
        ("NodesReady", "NodeNotReady", "Not enough Nodes are ready", "PendingResources"),
        ("NodesReady", "NodePluginsNotReady", "waiting", "PendingResources"),
        ("NodeClaimReady", "NodeClaimNotReady", "not enough", "PendingResources"),
        ("NodeClaimReady", "LaunchFailed", "QuotaExceeded: no", "QuotaExceeded"),
        ("NodeClaimReady", "LaunchFailed", "Unauthorized", "AuthFailed"),
        ("NodeClaimReady", "SkuNotAvailable", "try another zone", "InsufficientCapacity"),
        ("ResourceReady", "ModelMirrorNotReady", "copying", "Downloading"),
    ],
)
def test_reasons(context: Any, type_: str, reason: str, message: str, expected: str) -> None:
    (component,) = observe(
        workspace(condition(type_, "False", reason, message), PENDING, state="Pending"), context
    ).components
    assert (component.reason, component.ready, component.message) == (expected, False, message)
    after_ready = observe(workspace(condition(type_, "False", reason, message), PENDING, state="NotReady"), context)
    assert after_ready.components[0].ready is False
    says_nothing = reason == "WorkspaceInferenceStatusPending"
    assert after_ready.components[0].reason == ("UpstreamFailed" if says_nothing else expected)
    assert after_ready.endpoint is not None


def test_case_33_a_start_without_a_state_is_no_failure(context: Any) -> None:
    """`WorkspaceSucceeded=False` with `workspacePending` is how every start looks, also where `status.state` is not
    there (KAITO before 0.9, and in the first moment)."""
    found = observe(workspace(PENDING), context)
    (component,) = found.components
    assert (component.reason, component.ready, component.message) == (
        "Progressing",
        False,
        "workspace is waiting for it",
    )
    assert found.endpoint is None
    assert found.replicas == Replicas(desired=1)


@pytest.mark.parametrize(
    ("conditions", "state"),
    [((READY,), ""), ((READY, PENDING), ""), ((READY, PENDING), "Pending"), ((PENDING,), "Ready")],
    ids=["InferenceReady alone", "InferenceReady while pending", "the same with a state", "state Ready, not succeeded"],
)
def test_only_a_workspace_that_succeeded_is_ready(context: Any, conditions: tuple[Resource, ...], state: str) -> None:
    """`WorkspaceSucceeded` has the last word, also over `status.state`; `InferenceReady` is one step of it."""
    found = observe(workspace(*conditions, state=state), context)
    assert found.components[0].ready is False
    assert found.components[0].reason in ("Starting", "Progressing")
    assert found.replicas == Replicas(desired=1)


def test_every_reason_is_registered() -> None:
    from airunway_kaito import reasons

    texts = [reasons._NODES, reasons.ERRORS]
    words = {row.reason for table in texts for row in table} | {word for word in reasons._CONDITIONS.values() if word}
    assert words - set(REASONS) == set()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('failed to get secret: hf-token in namespace: n, error: Secret "hf-token" not found', "SecretNotFound"),
        ("Get https://huggingface.co: dial tcp: lookup huggingface.co: no such host", "DNSFailure"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "ConnectionRefused"),
        ("context deadline exceeded", "Timeout"),
        ("unexpected status 429", "RateLimited"),
        ("failed to get model: unexpected status 403 Forbidden", "AuthFailed"),
        # 403 of the API server is not always about credentials.
        (
            'statefulsets.apps "llama" is forbidden: exceeded quota: q, requested: count/statefulsets.apps=1',
            "QuotaExceeded",
        ),
        ('statefulsets.apps "llama" is forbidden: violates PodSecurity "restricted:latest"', "InvalidSpec"),
        ('admission webhook "policy.example.com" denied the request: 403 no', "InvalidSpec"),
        (
            'services "x" is forbidden: unable to create new content in namespace n because it is being terminated',
            "Terminating",
        ),
        ('services is forbidden: User "system:serviceaccount:kaito:w" cannot create resource "services"', "Forbidden"),
        ("something else", "Progressing"),
    ],
)
def test_reconcile_errors_are_taken_out_of_the_messages(context: Any, error: str, expected: str) -> None:
    pending = {**PENDING, "message": f"workspace is waiting (last reconcile error: {error})"}
    (component,) = observe(workspace(pending, state="Pending"), context).components
    assert (component.reason, component.message) == (expected, error)


def test_a_reconcile_error_of_a_serving_workspace_is_a_warning(context: Any) -> None:
    succeeded = {**SUCCEEDED, "message": "workspace succeeds (last reconcile error: something else)"}
    found = observe(workspace(READY, succeeded, state="Ready"), context)
    assert found.components[0].ready is True
    assert [w.message for w in found.warnings] == ["KAITO: something else"]


def test_two_writers_meeting_is_no_error(context: Any) -> None:
    conflict = "Operation cannot be fulfilled: the object has been modified; please apply your changes"
    pending = {**PENDING, "message": f"workspace is waiting (last reconcile error: {conflict})"}
    (component,) = observe(workspace(pending, state="Pending"), context).components
    assert (component.reason, component.message) == ("Progressing", "workspace is waiting")


def test_releases_up_to_0_8(context: Any) -> None:
    failed = condition("WorkspaceSucceeded", "False", "workspaceFailed", "timeout waiting for the inference")
    assert observe(workspace(failed), context).components[0].reason == "Timeout"
    broken = condition("WorkspaceSucceeded", "False", "workspaceFailed", "inference failed")
    (component,) = observe(workspace(broken), context).components
    assert (component.ready, component.reason) == (False, "UpstreamFailed")
    nodes = condition("ResourceReady", "True", "workspaceResourceStatusSuccess")
    assert observe(workspace(nodes), context).components[0].ready is False
    # There a condition that did not change kept its old generation.
    assert observe(workspace(READY, SUCCEEDED, generation=3), context).up_to_date


@pytest.mark.parametrize(("seen", "generation", "up_to_date"), [(1, 1, True), (1, 2, False), (2, 2, True)])
def test_current_is_the_generation_that_kaito_has_seen(
    context: Any, seen: int, generation: int, up_to_date: bool
) -> None:
    succeeded = {**SUCCEEDED, "observedGeneration": seen}
    assert observe(workspace(READY, succeeded, state="Ready", generation=generation), context).up_to_date is up_to_date


def test_deletion(context: Any) -> None:
    gone = workspace(READY, SUCCEEDED, state="Ready", deletionTimestamp="2026-09-01T00:00:00Z")
    found = observe(gone, context)
    assert (found.components[0].ready, found.components[0].reason) == (False, "Progressing")
    assert not found.up_to_date


# ------------------------------------------------------------------------------------------- as it was recorded


def replay(path: Path, context: Any, name: str) -> list[Observation]:
    """What `translate_status` says of each status of one Workspace, up to the script's cleaning up."""
    found = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "Step" and entry["name"] == "end":
            break
        if entry["kind"] == "Workspace" and entry["name"] == name:
            metadata = {key: entry[key] for key in ("name", "generation", "deletionTimestamp") if entry.get(key)}
            primary = None if entry["type"] == "DELETED" else {"metadata": metadata, "status": entry.get("status")}
            found.append(observation(DEPLOYMENT, Observed(primary=primary)))
    return found


START = ["Starting", "Progressing"]
RUNNING = "Ready"
LOST = "UpstreamFailed"
RECORDED: dict[str, tuple[str, list[str]]] = {
    "a1-preset-byo": ("llama-8b", [*START, RUNNING, LOST, RUNNING]),
    "a2-preset-benchmark": ("llama-8b", [*START, RUNNING]),
    "b1-template": ("llama-8b", [*START, RUNNING]),
    "c1-cpu-llamacpp": ("gemma-cpu", [*START, RUNNING]),
    "d1-no-node": (
        "llama-8b",
        [
            START[0],
            "PendingResources",
            START[1],
            "InsufficientCapacity",
            RUNNING,
            "PendingResources",
        ],
    ),
    "d2-unschedulable": ("llama-8b", [*START, "InsufficientCapacity"]),
    "e1-imagepull": ("llama-8b", [*START, "ImageNotFound", RUNNING]),
    "e2-crashloop-start": ("llama-8b", [*START, "CrashLoopBackOff", START[1], RUNNING]),
    "e3-crashloop-after-ready": ("llama-8b", [*START, RUNNING, LOST, "CrashLoopBackOff", RUNNING]),
    "e4-oom-after-ready": (
        "llama-8b",
        [*START, RUNNING, "PodOOMKilled", RUNNING, "PodOOMKilled"],
    ),
    "e5-evicted": ("llama-8b", [*START, RUNNING, LOST, RUNNING]),
    "h2-delete-pending": ("llama-8b", [*START, "Starting"]),
    "j1-secret-missing": ("llama-8b", [START[0], "SecretNotFound"]),
    "j2-secret-missing-then-created": ("llama-8b", [START[0], "SecretNotFound", START[1], RUNNING]),
    "l1-node-notready": ("llama-8b", [*START, RUNNING, LOST, "PendingResources", LOST, RUNNING]),
    "n1-nap": (
        "llama-8b",
        [
            START[0],
            "PendingResources",
            "QuotaExceeded",
            "PendingResources",
            START[1],
            RUNNING,
            "Progressing",
            "Starting",
        ],
    ),
}


@pytest.mark.parametrize("scenario", RECORDED)
def test_recorded_sequences(upstream_traces: Path, context: Any, scenario: str) -> None:
    name, expected = RECORDED[scenario]
    seen = [o.components[0].reason for o in replay(upstream_traces / f"{scenario}.jsonl", context, name)]
    assert [reason for reason, _ in groupby(seen)] == expected


def test_an_edit_is_not_current_until_kaito_has_seen_it(upstream_traces: Path, context: Any) -> None:
    found = replay(upstream_traces / "f1-edits.jsonl", context, "llama-8b")
    ready = [o.up_to_date for o in found if o.components[0].ready is True]
    assert ready.count(False) >= 2
    assert ready[-1]


def test_the_failed_benchmark_of_a_serving_model_is_a_warning(upstream_traces: Path, context: Any) -> None:
    warnings = [o.warnings for o in replay(upstream_traces / "a2-preset-benchmark.jsonl", context, "llama-8b")]
    assert any(w and w[0].reason == "BenchmarkFailed" and "KAITO_BENCHMARK_RESULT" in w[0].message for w in warnings)
    assert warnings[-1] == ()


def test_every_recorded_status_has_an_answer(upstream_traces: Path, context: Any) -> None:
    count = 0
    for path in sorted(upstream_traces.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] in ("Workspace", "InferenceSet", "MultiRoleInference"):
                primary = {"metadata": {"generation": entry.get("generation")}, "status": entry.get("status")}
                assert len(observation(DEPLOYMENT, Observed(primary=primary)).components) == 1
                count += 1
    assert count > 300


# ------------------------------------------------------------------------------------------------ whatever comes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)
TYPES = ["WorkspaceSucceeded", "InferenceReady", "NodesReady", "ResourceReady", "NodeClaimReady", "WorkspaceDeleting"]
REASON = st.sampled_from(["workspacePending", "workspaceFailed", "BenchmarkFailed", "ImagePullError", "Odd", ""])
TEXT = st.sampled_from(["", "words", "x (last reconcile error: y)", "(last reconcile error: "]) | st.text(max_size=20)
CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES) | JSON,
        "status": st.sampled_from(["True", "False", "Unknown"]) | JSON,
        "reason": REASON | JSON,
        "message": TEXT | JSON,
        "observedGeneration": st.integers(0, 3) | JSON,
    },
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(CONDITION | JSON, max_size=6) | JSON,
        "state": st.sampled_from(["Pending", "Ready", "NotReady", "Failed"]) | JSON,
    },
)
METADATA = st.fixed_dictionaries({}, optional={"generation": st.integers(0, 3) | JSON, "deletionTimestamp": JSON})
WORKSPACE = st.fixed_dictionaries({}, optional={"metadata": METADATA | JSON, "status": STATUS | JSON})


@given(primary=WORKSPACE | JSON)
def test_any_json_has_an_answer(context: Any, primary: Any) -> None:
    found = observe(primary, context)
    (component,) = found.components
    assert isinstance(component.ready, bool)
    assert component.reason in REASONS or component.reason == "Ready"
    assert isinstance(component.message, str)
    assert found.replicas is not None
    assert found.replicas.ready == int(component.ready is True)
