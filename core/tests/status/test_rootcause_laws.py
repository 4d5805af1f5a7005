"""Laws of the root-cause engine: any JSON in the place of pods, events, claims and jobs gives a cause or none."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.redaction import MESSAGE_LIMIT
from airunway.resource import Resource, format_time
from airunway.status.evidence import Evidence, claim_facts, event_facts, job_facts, pod_facts
from airunway.status.reasons import CODES
from airunway.status.rootcause import RootCause, find_root_cause, find_symptoms

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
IMAGE = "registry.example/team/vllm:1.0"

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MOMENTS = [
    "",
    "nonsense",
    "2026-11-21T11:59:50Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-11-21T12:00:00Z",
]
REASON_WORDS = [
    "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "ContainerCreating",
    "OOMKilled", "Error", "StartError", "Evicted", "Unschedulable", "FailedMount", "FailedCreate", "Failed",
    "Unhealthy", "ProvisioningFailed", "FailedToRetrieveImagePullSecret", "",
]  # fmt: skip
TEXTS = [
    'pods "llama-0" is forbidden: exceeded quota: gpus, requested: pods=1',
    f'failed to pull and unpack image "{IMAGE}": not found',
    "RepositoryNotFoundError: 401 Client Error.\n\nRepository Not Found for url: https://huggingface.co/x.\n",
    "3 Insufficient nvidia.com/gpu",
    'secret "x" not found',
    "401 Unauthorized",
    "",
    "\n\n",
]


@st.composite
def nearly(draw: st.DrawFn, shape: object) -> object:
    """Something of the shape of a Kubernetes object in which any value may be anything else."""
    if draw(st.integers(0, 9)) == 0:
        return draw(json)
    if isinstance(shape, dict):
        return {key: draw(nearly(value)) for key, value in shape.items() if draw(st.integers(0, 5))}
    if isinstance(shape, list):
        return [draw(nearly(shape[0])) for _ in range(draw(st.integers(0, 2)))]
    match shape:
        case "time":
            return draw(st.sampled_from(MOMENTS))
        case "reason":
            return draw(st.sampled_from(REASON_WORDS))
        case "text":
            return draw(st.sampled_from(TEXTS))
        case "bool":
            return draw(st.booleans())
        case "int":
            return draw(st.sampled_from([0, 1, 2, 3, 137, -1]))
        case "truth":
            return draw(st.sampled_from(["True", "False", "Unknown"]))
        case _:
            return shape


ENDED = {"terminated": {"exitCode": "int", "reason": "reason", "message": "text", "finishedAt": "time"}}
STATE = {"waiting": {"reason": "reason", "message": "text"}, "running": {}, **ENDED}
CONTAINERS = [
    {"name": "model", "image": IMAGE, "ready": "bool", "restartCount": "int", "state": STATE, "lastState": ENDED}
]
POD_SHAPE = {
    "metadata": {
        "name": "llama-0",
        "namespace": "ml",
        "uid": "uid-llama-0",
        "creationTimestamp": "time",
        "labels": {"controller-revision-hash": "llama-1"},
        "ownerReferences": [{"kind": "StatefulSet", "name": "llama", "controller": "bool"}],
    },
    "spec": {"nodeName": "gpu-0", "volumes": [{"persistentVolumeClaim": {"claimName": "weights"}}]},
    "status": {
        "phase": "Pending",
        "reason": "reason",
        "message": "text",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "truth",
                "reason": "reason",
                "message": "text",
                "lastTransitionTime": "time",
            },
        ],
        "containerStatuses": CONTAINERS,
        "initContainerStatuses": CONTAINERS,
    },
}
EVENT_SHAPE = {
    "metadata": {"name": "e", "namespace": "ml"},
    "regarding": {"kind": "Pod", "namespace": "ml", "name": "llama-0", "uid": "uid-llama-0"},
    "reason": "reason",
    "note": "text",
    "eventTime": "time",
    "deprecatedFirstTimestamp": "time",
    "deprecatedLastTimestamp": "time",
    "series": {"lastObservedTime": "time"},
}
CLAIM_SHAPE = {"metadata": {"name": "weights", "namespace": "ml"}, "status": {"phase": "Pending"}}
JOB_SHAPE = {
    "metadata": {"name": "load", "namespace": "ml"},
    "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "reason", "lastTransitionTime": "time"}]},
}


def objects(shape: Resource) -> st.SearchStrategy[list[Any]]:
    return st.lists(nearly(shape).filter(lambda value: isinstance(value, dict)), max_size=3)


@settings(max_examples=400, deadline=None)
@given(objects(POD_SHAPE), objects(EVENT_SHAPE), objects(CLAIM_SHAPE), objects(JOB_SHAPE), st.booleans(), st.randoms())
def test_any_evidence_gives_a_cause_or_none_whatever_its_order(
    pods: list[Resource],
    events: list[Resource],
    claims: list[Resource],
    jobs: list[Resource],
    served: bool,
    shuffled: random.Random,
) -> None:
    found = Evidence(
        pods=tuple(map(pod_facts, pods)),
        events=tuple(map(event_facts, events)),
        claims=tuple(map(claim_facts, claims)),
        jobs=tuple(map(job_facts, jobs)),
        served=served,
    )
    cause = find_root_cause(found, now=NOW)
    lists: list[list[Any]] = [list(found.pods), list(found.events), list(found.claims), list(found.jobs)]
    for list_ in lists:
        shuffled.shuffle(list_)
    other = Evidence(
        pods=tuple(lists[0]), events=tuple(lists[1]), claims=tuple(lists[2]), jobs=tuple(lists[3]), served=served
    )
    assert find_root_cause(other, now=NOW) == cause
    assert find_symptoms(Evidence(), now=NOW, previous=cause) == ()
    if cause is not None:
        check(cause)
        assert find_root_cause(found, now=NOW + timedelta(seconds=1), previous=cause) is not None


def check(cause: RootCause) -> None:
    assert cause.code in CODES
    assert cause.reason in CODES[cause.code].reasons
    assert 0 < len(cause.message) <= MESSAGE_LIMIT
    assert cause.since <= NOW
    assert format_time(cause.since)
