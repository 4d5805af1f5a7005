"""The status over time that recorded runs of the real KubeRay give: what a stranger would read, line by line.

Everything that was recorded of RayService, RayClusters, pods and events goes through the provider, diagnosis and
roll-up, at the recorded times; what the timers ask for happens in between.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from tests.kuberay.replayed import read, statuses
from tests.recorded import recorded_by

from airunway.plugins.host import ProviderHost
from airunway.resource import condition_of
from airunway.status.reasons import CODES as REMEDIES
from airunway.status.scheduling import TOO_MANY_GPUS

STARTS = "Deploying Progressing: the Ray cluster starts"
LOADS = "Deploying Progressing: all pods are ready, and the application is being deployed"
RELOADS = (
    "Deploying Progressing: the application is being deployed anew, and no model is served until the new one has loaded"
)
RUNS = "Running DeploymentReady: "
CHANGES = "Deploying Progressing: KubeRay takes up the change"
STOPS = "Deploying Progressing: KubeRay stops it"
UPGRADES = "Deploying Progressing: Ray cluster "
WORKER_LOST = "Degraded PodsNotReady: 0 of 1 pods are ready (not ready: "
NO_IMAGE = "Failed ImageNotFound: Pod "
BAD_ARGUMENT = (
    "BadArguments: application llm is DEPLOY_FAILED: ValueError: illustrative failure: unknown engine argument"
)
START = [STARTS, LOADS, RUNS]

EXPECTED: dict[str, list[str]] = {
    "a-as-written": START,
    "a-exclude-head": START,
    "a-happy": START,
    "a-happy-instant-pods": START,
    "a-happy-pd": START,
    # KubeRay calls it ready because of the head alone; the pod that has the model is not.
    "a-worker-without-serve-proxy": [STARTS, "Deploying Starting: No pod is ready yet"],
    "b-deploy-failed": [STARTS, LOADS, f"Failed {BAD_ARGUMENT}", STARTS, LOADS, RUNS],
    "b-deploy-failed-then-new-image": [STARTS, LOADS, f"Failed {BAD_ARGUMENT}", STARTS, LOADS, RUNS],
    # The status is frozen with Ready=True: only the pods tell.
    "c-dashboard-down": [*START, WORKER_LOST, RUNS],
    "c-head-pod-lost": [
        *START,
        WORKER_LOST,
        "Degraded PodsNotReady: the head of Ray cluster headlost-b5577 is not ready",
        WORKER_LOST,
        RELOADS,
        RUNS,
    ],
    "c-operator-restart": [
        *START,
        WORKER_LOST,
        "Degraded UpstreamFailed: Number of serve endpoints dropped to 0",
        RUNS,
    ],
    "c-unhealthy": [
        *START,
        "Degraded UpstreamFailed: application llm is UNHEALTHY: illustrative: replica failed health check",
        RUNS,
        WORKER_LOST,
        RUNS,
    ],
    "c-worker-pod-lost": [*START, "Degraded PodsNotReady: No pod is ready", WORKER_LOST, RUNS],
    # Between two crashes the container runs.
    "d-head-crashloop": [
        STARTS,
        "Failed CrashLoopBackOff: Pod headcrash-8kzhw-head-rh6w6, container ray-head: ended with exit code 1",
        STARTS,
        "Failed CrashLoopBackOff: Pod headcrash-8kzhw-head-rh6w6, container ray-head: ended with exit code 1",
    ],
    "d-head-imagepull": [
        STARTS,
        f"{NO_IMAGE}headpull-42wfv-head-lk2bm, container ",
        # For 50 ms only the worker is left, of whose image the kubelet says no more than that it backs off.
        "Degraded ImagePullBackOff: Pod headpull-42wfv-gpu-workers-worker-z8c7b, container wait-gcs-ready: ",
        *START,
    ],
    "d-worker-crashloop-after-running": [
        *START,
        "Degraded UpstreamFailed: application llm is UNHEALTHY: illustrative: actor died",
        "Degraded CrashLoopBackOff: Pod crashafter-mg7hm-gpu-workers-worker-5n54n, container ray-worker: ended with",
    ],
    "d-worker-imagepull": [
        STARTS,
        f"{NO_IMAGE}workerpull-gbzzt-gpu-workers-worker-8sdrq, container wait-gcs-ready: ",
    ],
    "e-quota": [STARTS, "Deploying QuotaExceeded: KubeRay cannot make pods: exceeded quota: gpu, requested: requests."],
    "e-unschedulable": [
        STARTS,
        "Deploying InsufficientCapacity: Pod unsched-d76h9-gpu-workers-worker-5t9x9: cannot be scheduled: 0/6 nodes",
    ],
    "f-replica-change": [*START, CHANGES, RUNS, CHANGES, RUNS],
    "f-serveconfig-in-place": [
        *START,
        *(CHANGES, RELOADS, RUNS),
        *(CHANGES, RELOADS, f"Degraded {BAD_ARGUMENT}"),
        # What is seen of the repair at first is the old application, with the new generation (fact 17).
        *(CHANGES, RELOADS, RUNS),
    ],
    "f-server-side-apply": [*START, CHANGES, RELOADS],
    "f-server-side-apply-with-scalestrategy": [STARTS],
    "f-upgrade-failed-and-reverted": [
        *START,
        *(CHANGES, f"{UPGRADES}upfail-ztfrc starts, upfail-r2sdx serves until it does"),
        f"Degraded {BAD_ARGUMENT}",
        *(CHANGES, f"{UPGRADES}upfail-t4wxb starts, upfail-r2sdx serves until it does"),
        RUNS,
    ],
    "f-upgrade-image": [*START, CHANGES, f"{UPGRADES}upgrade-bgmsj starts, upgrade-r8sh6 serves until it does", RUNS],
    # A strategy that we never write: the change is ignored for good, and nothing says so.
    "f-upgrade-strategy-none": [*START, CHANGES],
    "g-delete-foreground": START,
    "g-delete-operator-down": START,
    "g-delete-while-pending": [STARTS, LOADS],
    "g-owner-deleted": START,
    "h-created-suspended": [STARTS, STOPS, RUNS, *START],
    "h-suspend": [*START, CHANGES, STOPS, RUNS, *START],
    "i-initializing-timeout": [
        STARTS,
        f"{NO_IMAGE}inittmo-g22nb-head-bk9mt, container ",
        "Failed UpstreamFailed: RayService failed to become ready within the configured timeout of 20s.",
    ],
    "i-invalid-name": [
        STARTS,
        "Failed InvalidSpec: The RayService metadata is invalid: RayService name should be a valid",
    ],
    "i-invalid-spec": [
        STARTS,
        "Failed InvalidSpec: The RayService spec is invalid: worker group gpu-workers has minReplicas 9 greater than",
        *START,
    ],
    "i-invalid-spec-after-running": [
        *START,
        CHANGES,
        "Degraded InvalidSpec: The RayService spec is invalid: worker group gpu-workers has minReplicas 9 greater than",
        CHANGES,
    ],
    # KubeRay says nothing of it; the provider always names the port.
    "i-no-serve-port": [STARTS, LOADS],
    "i-put-rejected": [
        STARTS,
        "Failed InvalidSpec: Ray Serve has not taken the configuration: UpdateDeployments fail: 400 Bad Request",
        *START,
    ],
    "i-serveconfig-unparsable": [
        STARTS,
        "Failed InvalidSpec: Ray Serve has not taken the configuration: Failed to update serve applications to the Ray",
    ],
}
"""Phase, reason, and how the message begins, of every recording."""


@pytest.fixture(scope="session")
def traces() -> Path:
    return recorded_by("kuberay-v1.7.0")


@pytest.mark.parametrize("recording", EXPECTED)
def test_what_a_stranger_reads(recording: str, traces: Path, kuberay: ProviderHost) -> None:
    told = [f"{s['phase']} {s['reason']}: {s['message']}" for _, s in statuses(traces / f"{recording}.jsonl", kuberay)]
    expected = EXPECTED[recording]
    # Of what begins alike only the beginning counts: a message may learn more while it stands.
    steps = [next((e for e in expected if text.startswith(e)), text) for text in told]
    assert [step for step, _ in groupby(steps)] == expected


def test_every_recording_is_in_the_table(traces: Path) -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in traces.glob("*.jsonl"))


@pytest.mark.parametrize("recording", EXPECTED)
def test_every_status_is_whole_and_none_contradicts_itself(recording: str, traces: Path, kuberay: ProviderHost) -> None:
    served, seen = False, 0
    for _, status in statuses(traces / f"{recording}.jsonl", kuberay):
        seen += 1
        assert status["phase"] in ("Deploying", "Running", "Degraded", "Failed"), "it exists: not Pending"
        assert status["reason"]
        assert 0 < len(status["message"]) <= 1024
        ready = condition_of({"status": status}, "Ready") or {}
        assert (ready["status"] == "True") == (status["phase"] == "Running")
        assert ready["message"] == status["message"]
        assert not (status["phase"] == "Running" and "rootCause" in status)
        served = served or status["phase"] == "Running"
        assert not (served and status["phase"] == "Failed"), "what has served degrades"
    assert seen == len(list(statuses(traces / f"{recording}.jsonl", kuberay)))
    assert seen > sum(row["kind"] == "RayService" for row in read(traces / f"{recording}.jsonl")) // 2


CODES = {
    "b-deploy-failed": "Engine.BadArgs",
    "d-head-crashloop": "Engine.CrashLoop",
    "d-head-imagepull": "ImagePull.NotFound",
    "d-worker-crashloop-after-running": "Engine.CrashLoop",
    "d-worker-imagepull": "ImagePull.NotFound",
    "e-quota": "Unschedulable.Quota",
    "e-unschedulable": "Unschedulable.InsufficientGPU",
    "i-invalid-spec": "Provider.Rejected",
    "i-put-rejected": "Provider.Rejected",
}


@pytest.mark.parametrize("recording", CODES)
def test_the_root_cause_is_named_with_a_remedy(recording: str, traces: Path, kuberay: ProviderHost) -> None:
    found = [s["rootCause"] for _, s in statuses(traces / f"{recording}.jsonl", kuberay) if "rootCause" in s]
    assert {cause["code"] for cause in found} == {CODES[recording]}
    special = TOO_MANY_GPUS if recording == "e-unschedulable" else ""  # it asks for more than any of the nodes has
    remedies = (REMEDIES[cause["code"]].remedy_for(cause["object"], special) for cause in found)
    assert all(cause["message"].endswith(remedy) for cause, remedy in zip(found, remedies, strict=True))


def test_replicas_are_workers_and_never_the_head(traces: Path, kuberay: ProviderHost) -> None:
    """``numServeEndpoints`` counts the head, too: 7 with six workers (fact 6)."""
    *_, (_, last) = statuses(traces / "a-happy-pd.jsonl", kuberay)
    assert last["replicas"] == {"desired": 6, "ready": 6, "available": 6, "summary": "6/6"}
    assert last["endpoint"]["service"] == "llama-serve-svc"
