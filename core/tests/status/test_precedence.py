"""Of several faults one is named, and goes on being named; what its message holds, and what it does not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.evidence import (
    IMAGE,
    NOW,
    PULL,
    QUOTA,
    crashed,
    ended,
    evidence,
    pod,
    refusal,
    unschedulable,
    waiting,
)

from airunway.resource import Resource
from airunway.status.evidence import Evidence
from airunway.status.reasons import CODES
from airunway.status.rootcause import find_root_cause, find_symptoms


def test_the_most_specific_then_the_nearest_then_the_oldest() -> None:
    crash = pod("a", **crashed(1))
    taint = pod("b", **unschedulable("3 node(s) had untolerated taint {x: y}"))
    young = pod("c", **unschedulable("3 Insufficient nvidia.com/gpu", ago=10))
    old = pod("d", **unschedulable("3 Insufficient nvidia.com/gpu", ago=99))
    near = pod("e", **crashed(137, reason="OOMKilled"))

    def named(*pods: Resource) -> str:
        cause = find_root_cause(evidence(*pods), now=NOW)
        assert cause is not None
        return cause.object

    assert named(crash, taint) == "Pod/ml/b"
    assert named(crash, taint, young) == "Pod/ml/c"
    assert named(crash, taint, young, old) == "Pod/ml/d"
    assert named(crash, taint, young, old, near) == "Pod/ml/e"  # a container is nearer than the scheduler's word


def test_a_lasting_fault_keeps_its_beginning_and_what_was_learnt() -> None:
    first = find_root_cause(evidence(pod(**crashed(137, reason="OOMKilled"))), now=NOW)
    assert first is not None
    later = NOW + timedelta(minutes=3)
    again = find_root_cause(evidence(pod(**crashed(137, reason="OOMKilled"))), now=later, previous=first)
    assert again == first
    refused = pod(**waiting("ErrImagePull", f"{PULL}unexpected status: 401 Unauthorized"))
    known = find_root_cause(evidence(refused), now=NOW)
    mute = pod(**waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'))
    assert find_root_cause(evidence(mute), now=NOW) is None
    kept = find_root_cause(evidence(mute), now=later, previous=known)
    assert kept is not None
    assert (kept.code, kept.since) == ("ImagePull.Auth", NOW)
    assert find_root_cause(evidence(), now=later, previous=known) is None


def test_both_waiting_reasons_of_one_pull_give_one_message() -> None:
    """Kubernetes alternates between them: the status must not."""
    cause = f"{PULL}{IMAGE}: not found"
    texts = {
        find_symptoms(evidence(pod(**waiting(reason, message))), now=NOW)[0].message
        for reason, message in (
            ("ErrImagePull", cause),
            ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {cause}'),
        )
    }
    assert len(texts) == 1


def test_no_credential_reaches_a_message() -> None:
    words = (
        "RuntimeError: GET https://user:hunter2222@hub.example/x?token=abcdef123456 with hf_abcdefghijklmnop "
        "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30 AKIAABCDEFGHIJKLMNOP"
    )
    cause = find_root_cause(evidence(pod(**crashed(1, words))), now=NOW)
    assert cause is not None
    for secret in ("hunter2222", "abcdef123456", "hf_abcdefghijklmnop", "eyJhbGci", "ABCDEFGHIJKLMNOP"):
        assert secret not in cause.message
    assert "RuntimeError" in cause.message


def test_a_long_traceback_is_cut() -> None:
    cause = find_root_cause(evidence(pod(**crashed(1, "x\n" * 50 + "Error: " + "ü" * 40_000))), now=NOW)
    assert cause is not None
    assert len(cause.message.encode()) <= 1024
    assert cause.message.endswith(cause.remedy)


def test_of_two_pods_that_keep_crashing_the_one_that_was_named_first_stays_the_one() -> None:
    """Each crash is dated anew: the older of two would change with every restart."""

    def crashes(a: float, b: float) -> Evidence:
        text = "back-off 10s restarting failed container=model"
        pods = (
            pod(name, **waiting("CrashLoopBackOff", text, lastState=ended(1, ago=ago), restartCount=3))
            for name, ago in (("a", a), ("b", b))
        )
        return evidence(*pods)

    first = find_root_cause(crashes(20, 10), now=NOW)
    assert first is not None
    assert first.object == "Pod/ml/a"
    later = NOW + timedelta(seconds=1)
    assert find_root_cause(crashes(5, 10), now=later, previous=first) == first
    only_b = find_root_cause(evidence(pod("b", **crashed(1))), now=later, previous=first)
    assert only_b is not None
    assert only_b.object == "Pod/ml/b"


@pytest.mark.parametrize(
    ("object_", "named"), [("Pod/ml/llama-0", "logs llama-0 -n ml"), ("Workspace/ml/x", "the next one while it runs")]
)
def test_real_llmd_5_the_remedy_can_be_typed_as_it_stands(object_: str, named: str) -> None:
    assert named in CODES["Engine.CrashLoop"].remedy_for(object_)
    for code in CODES.values():
        remedy = code.remedy_for(object_)
        assert "<namespace>" not in remedy
        assert "<pod>" not in remedy


def test_what_the_message_says_already_is_not_said_again() -> None:
    told = "0/3 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/3 nodes"
    unplaced = find_symptoms(evidence(pod(**unschedulable(told))), now=NOW)[0].message
    assert unplaced == "Pod llama-0: cannot be scheduled: 0/3 nodes are available: 2 Insufficient nvidia.com/gpu."
    refused = find_symptoms(evidence(events=(refusal(QUOTA),)), now=NOW)[0].message
    assert refused.startswith('StatefulSet llama cannot create its pods: pods "llama-0" is forbidden: exceeded quota')
    pull = f'rpc error: code = NotFound desc = failed to pull and unpack image "{IMAGE}": {IMAGE}: not found'
    pulled = find_symptoms(evidence(pod(**waiting("ErrImagePull", pull))), now=NOW)[0].message
    assert pulled == f'Pod llama-0, container model: image "{IMAGE}" cannot be pulled: {IMAGE}: not found.'
