"""The status over time that recorded runs of LeaderWorkerSet and of Deployments give: what a person would want to read.

Reviewed against the recordings' numbered facts (tests/recordings/llmd-lws.md).
"""

from __future__ import annotations

from itertools import groupby

import pytest
from tests.llmd.stories import Story, read, statuses
from tests.recorded import recorded_by
from tests.support.status_replay import StatusReplay

from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of

RECORDINGS = recorded_by("llmd-lws")


START = "Deploying Progressing"
RUNNING = "Running DeploymentReady"
LOST = "Degraded PodsNotReady"

EXPECTED: dict[str, list[str]] = {
    "a-exclusive-topology": [START, RUNNING],
    "a-happy-2x3": [START, RUNNING],
    "a-happy": [START, RUNNING],
    "a-no-leader-template": [START, RUNNING],
    "a-server-side-apply": [START, RUNNING],
    "a-size1": [START, RUNNING],
    "a-startup-leaderready": [START, RUNNING],
    "a-subdomain-unique": [START, RUNNING],
    "b-crash-leader-default": [START, RUNNING, START, RUNNING],
    "b-crash-leader-none": [START, RUNNING],
    "b-crash-worker-default": [START, RUNNING, START, RUNNING],
    "b-crash-worker-none": [START, RUNNING],
    "b-crash-worker-recreategroupafterstart": [START, RUNNING, START, RUNNING],
    "b-crashloop-start-none": [START, "Failed CrashLoopBackOff", START, "Failed CrashLoopBackOff", START, RUNNING],
    "b-crashloop-start-recreategroupafterstart": [
        START,
        "Failed CrashLoopBackOff",
        START,
        "Failed CrashLoopBackOff",
        START,
        "Failed RestartLoop",
        RUNNING,
    ],
    "b-crashloop-start-recreategrouponpodrestart": [
        START,
        "Failed CrashLoopBackOff",
        START,
        "Failed CrashLoopBackOff",
        START,
        "Failed RestartLoop",
        RUNNING,
    ],
    "b-deleted-leader": [START, RUNNING, START, RUNNING],
    "b-deleted-worker": [START, RUNNING, START, RUNNING],
    "b-evicted-worker": [START, RUNNING, START, RUNNING],
    "b-imagepull-leader": [START, "Deploying ImagePullBackOff"],
    "b-imagepull-worker": [START, "Deploying ImagePullBackOff"],
    "b-quota": [START, "Deploying QuotaExceeded", START, RUNNING],
    "b-unschedulable-worker": [START, "Deploying FailedScheduling"],
    "b-worker-unready": [START, RUNNING, START, RUNNING, LOST, START, RUNNING],
    "c-replicas-and-template": [START, RUNNING, START, RUNNING],
    "c-rollout-stuck-and-reverted": [
        START,
        RUNNING,
        START,
        "Deploying ImagePullBackOff",
        "Degraded ImagePullBackOff",
        START,
        RUNNING,
    ],
    "c-rollout-surge": [START, RUNNING, START, RUNNING, START],
    "c-rollout": [START, RUNNING, START, RUNNING, START, RUNNING],
    "d-scale-1-3-1-0-1": [
        START,
        RUNNING,
        START,
        RUNNING,
        START,
        RUNNING,
        START,
        RUNNING,
        START,
        RUNNING,
        START,
        RUNNING,
    ],
    "d-scale-by-other-writer": [START, RUNNING, START, RUNNING],
    "d-size-2-3-1-2": [START, RUNNING, START, RUNNING, START, RUNNING, START, RUNNING],
    "e-delete-and-recreate-at-once": [START, RUNNING, LOST, START],
    "e-delete-background": [START, RUNNING],
    "e-delete-foreground": [START, RUNNING, "Deploying Terminating"],
    "e-delete-orphan": [START, RUNNING, "Deploying Terminating"],
    "e-delete-while-pending": [START],
    "g-children-touched-by-hand": [START, RUNNING, START, RUNNING, START, RUNNING, LOST, START, RUNNING],
    "g-owner-deleted": [START, RUNNING],
    "g-service-name-clash-lws-first": [START, RUNNING],
    "g-service-name-clash-ours-first": [START, RUNNING],
    "h-controller-down": [
        START,
        RUNNING,
        "Running ServerError",
        START,
        "Degraded ServerError",
        RUNNING,
        START,
        "Deploying ServerError",
        RUNNING,
    ],
}
"""By recording. A group that was made anew once is progress (its event is in the message); one that is made anew again
and again is not (fact 14). A change, whatever it does to what serves, is progress until it serves (facts 9, 10, 16).
"""

TOLD: dict[str, tuple[str, ...]] = {
    "b-crashloop-start-recreategrouponpodrestart": (
        "LeaderWorkerSet made groups anew: Worker pod big-0-1 failed, deleted leader pod big-0 to recreate group 0",
    ),
    "b-crash-leader-default": ("LeaderWorkerSet made a group anew:",),
    "b-quota": ("exceeded quota",),
    "b-imagepull-worker": ("big-0-1, container modelserver",),
    "h-controller-down": ('failed calling webhook "mpod.kb.io"',),
    "c-rollout": ("1 of them as the newest spec has it",),
}
"""What some message of a recording has to say."""


def group(host: ProviderHost) -> Story:
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 16}}}
    deployment = {"metadata": {"name": "big", "namespace": "ml"}, "spec": spec, "status": {}}
    return Story(replayed=StatusReplay(host=host, deployment=deployment), names={"big": "big-lws"})


def plain(host: ProviderHost) -> Story:
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}}
    deployment = {"metadata": {"name": "llama-8b", "namespace": "ml"}, "spec": spec, "status": {}}
    return Story(replayed=StatusReplay(host=host, deployment=deployment), names={"llama-8b": "llama-8b"})


def apart(host: ProviderHost) -> Story:
    roles = {role: {"replicas": n, "gpu": {"count": 2}, "memory": "1Gi"} for role, n in (("prefill", 2), ("decode", 4))}
    spec = {"model": {"id": "o/m"}, "serving": {"mode": "disaggregated"}, "scaling": roles}
    name = "llama-70b-pd"
    deployment = {"metadata": {"name": name, "namespace": "ml"}, "spec": spec, "status": {}}
    names = {f"{name}-{part}": f"{name}-{part}" for part in ("decode", "prefill", "epp")}
    return Story(replayed=StatusReplay(host=host, deployment=deployment), names=names)


def steps(told: list[str]) -> list[str]:
    return [step for step, _ in groupby(told)]


@pytest.mark.parametrize("recording", EXPECTED)
def test_what_a_stranger_reads_of_a_group(recording: str, llmd: ProviderHost) -> None:
    found = list(statuses(RECORDINGS / f"{recording}.jsonl", group(llmd)))
    assert steps([f"{s['phase']} {s['reason']}" for s in found]) == EXPECTED[recording]
    messages = "\n".join(s["message"] for s in found)
    assert [text for text in TOLD.get(recording, ()) if text not in messages] == []


def test_every_recording_of_a_group_is_in_the_table() -> None:
    with_group = {path.stem for path in RECORDINGS.glob("*.jsonl") if any(e.get("name") == "big" for e in read(path))}
    assert with_group == set(EXPECTED)


def test_prefill_and_decode_are_told_apart(llmd: ProviderHost) -> None:
    told = [
        f"{status['phase']} {status['reason']}: {status['message'].partition('. Read')[0]}"
        for status in statuses(RECORDINGS / "deploy-pd-status.jsonl", apart(llmd))
    ]
    crashed = "Pod llama-70b-pd-decode-cb6d66b66-gfq25, container modelserver: ended with exit code"
    newest = "prefill: 2 of 2 replicas are ready, {} of them as the newest spec has it"
    assert steps(told) == [
        "Pending Starting: prefill: it does not exist yet",
        "Pending Starting: picker: it does not exist yet",
        f"{START}: decode: 0 of 4 replicas are ready; no request is answered until a decode worker is ready",
        *(f"{START}: decode: {n} of 4 replicas are ready" for n in (1, 2, 3)),
        f"{START}: picker: 0 of 1 replicas are ready",
        f"{RUNNING}: All replicas are ready: Deployment llama-70b-pd-decode",
        f"Degraded CrashLoopBackOff: {crashed} 0",
        f"{START}: decode: 3 of 4 replicas are ready",
        f"Degraded CrashLoopBackOff: {crashed} 1",
        f"{START}: decode: 3 of 4 replicas are ready",
        f"{RUNNING}: All replicas are ready: Deployment llama-70b-pd-decode",
        f"{START}: prefill: 2 of 2 replicas are ready",
        f"{START}: {newest.format(0)}",
        f"{START}: {newest.format(1)}",
        "Deploying ImagePullBackOff: Pod llama-70b-pd-prefill-cd8f85486-ph7tt, container modelserver: image "
        '"registry.example/vllm:1" cannot be pulled: .',
        f'{START}: prefill: ReplicaSet "llama-70b-pd-prefill-cd8f85486" has timed out progressing.',
        f"{START}: {newest.format(1)}",
        f"{START}: prefill: 2 of 2 replicas are ready",
    ], "the recorder kept neither images nor the kubelet's words, and stops before the roll-out is through"


def test_a_deadline_that_was_exceeded_is_told_and_is_not_the_end(llmd: ProviderHost) -> None:
    """Fact 44: it is not final."""
    found = list(statuses(RECORDINGS / "deploy-progress-deadline.jsonl", plain(llmd)))
    assert steps([f"{s['phase']} {s['reason']}" for s in found]) == [START, RUNNING]
    assert "timed out progressing" in found[-2]["message"]


@pytest.mark.parametrize("recording", EXPECTED)
def test_every_status_is_whole_and_none_contradicts_itself(recording: str, llmd: ProviderHost) -> None:
    for status in statuses(RECORDINGS / f"{recording}.jsonl", group(llmd)):
        assert status["phase"] in ("Deploying", "Running", "Degraded", "Failed"), "it exists: not Pending"
        assert 0 < len(status["message"]) <= 1024
        ready: Resource = condition_of({"status": status}, "Ready") or {}
        if ready["status"] == "True":
            assert (status["phase"], status["replicas"]["ready"]) == ("Running", status["replicas"]["desired"])
            assert "rootCause" not in status
