"""Kubernetes' own workloads: written for model servers, and read as real controllers wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recorded import recorded_by

from airunway.resource import Resource, dig
from airunway.sdk import Observed, conditions, parse_deployment, workloads
from airunway.status.reasons import REASONS

MakeDeployment = Callable[..., Resource]
POD: Resource = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [{"name": "model"}]}}


def test_a_deployment_selects_its_own_pods_and_keeps_their_labels(plain: MakeDeployment) -> None:
    model = parse_deployment(plain())
    found = workloads.deployment(model, POD, replicas=2, patience=900)
    selector = {"airunway.ai/model-deployment": "llama", "airunway.ai/component": "server"}
    assert found["metadata"]["name"] == "llama"
    assert found["spec"]["selector"] == {"matchLabels": selector}
    assert found["spec"]["template"]["metadata"]["labels"] == {"team": "a", **selector}
    assert (found["spec"]["replicas"], found["spec"]["progressDeadlineSeconds"]) == (2, 900)
    assert POD["metadata"]["labels"] == {"team": "a"}, "what was given is not changed"
    service = workloads.service(model, port=80, target=8000)
    assert service["spec"]["selector"] == selector
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": 8000, "protocol": "TCP"}]


@pytest.mark.parametrize(("surge", "unavailable"), [(0, 1), (1, 0)])
def test_a_roll_out_takes_before_it_makes_unless_there_is_room(
    plain: MakeDeployment, surge: int, unavailable: int
) -> None:
    found = workloads.deployment(parse_deployment(plain()), POD, replicas=1, surge=surge)
    assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": surge, "maxUnavailable": unavailable}


def test_a_group_s_workers_are_no_servers(plain: MakeDeployment) -> None:
    found = workloads.leader_worker_set(
        parse_deployment(plain()), name="llama", leader=POD, worker=POD, size=4, replicas=2
    )
    template = found["spec"]["leaderWorkerTemplate"]
    of = [
        template[which]["metadata"]["labels"]["airunway.ai/component"] for which in ("leaderTemplate", "workerTemplate")
    ]
    assert of == ["server", "server-worker"]
    assert (found["spec"]["replicas"], template["size"], template["restartPolicy"]) == (
        2,
        4,
        "RecreateGroupOnPodRestart",
    )


def test_an_account_has_its_role_and_their_binding_by_one_name() -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    account, role, binding = workloads.account("llama-picker", [rule])
    assert {obj["metadata"]["name"] for obj in (account, role, binding)} == {"llama-picker"}
    assert role["rules"] == [rule]
    assert (binding["roleRef"]["name"], binding["subjects"][0]["name"]) == ("llama-picker", "llama-picker")
    kinds = {(kind.group, kind.kind) for kind in (workloads.SERVICE_ACCOUNT, workloads.ROLE, workloads.ROLE_BINDING)}
    assert kinds == {(str(o["apiVersion"]).rpartition("/")[0], o["kind"]) for o in (account, role, binding)}


def test_what_runs_pods_is_deleted_in_the_foreground() -> None:
    """Gone means that the GPUs are free."""
    assert {workloads.DEPLOYMENT.deletion, workloads.LEADER_WORKER_SET.deletion} == {"Foreground"}
    assert (workloads.DEPLOYMENT.builtin, workloads.LEADER_WORKER_SET.required) == (True, False)


# ----------------------------------------------------------------------------------------------------------- reading


def rolled(*, wanted: int = 2, **status: Any) -> Resource:
    whole = {"observedGeneration": 3, "replicas": wanted, "readyReplicas": wanted, "updatedReplicas": wanted}
    return {
        "kind": "Deployment",
        "metadata": {"generation": 3},
        "spec": {"replicas": wanted},
        "status": {**whole, **status},
    }


def condition(type_: str, status: str, message: str = "", reason: str = "Why") -> Resource:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def test_all_ready_of_the_newest_is_ready() -> None:
    found = workloads.read(rolled(availableReplicas=1))
    assert (found.exists, found.up_to_date, found.ready, found.reason) == (True, True, True, "Ready")
    assert (found.replicas.desired, found.replicas.ready, found.replicas.available) == (2, 2, 1)
    assert found.message == "2 of 2 replicas are ready"


@pytest.mark.parametrize(
    ("changes", "up_to_date"),
    [
        ({"observedGeneration": 2}, False),
        ({"updatedReplicas": 1}, False),
        ({"replicas": 3}, False),
        ({"readyReplicas": 1}, True),
        ({"readyReplicas": None, "updatedReplicas": None, "replicas": None}, False),
    ],
    ids=["not yet seen", "an old one serves", "an old one is still there", "one is not ready", "nothing said"],
)
def test_what_is_not_there_yet_is_progress(changes: Resource, up_to_date: bool) -> None:
    found = workloads.read(rolled(**changes))
    assert (found.ready, found.up_to_date, found.reason) == (False, up_to_date, "Progressing")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"updatedReplicas": 1}, "2 of 2 replicas are ready, 1 of them as the newest spec has it"),
        ({"updatedReplicas": 0}, "2 of 2 replicas are ready, 0 of them as the newest spec has it"),
        # All of the newest are there, and an old one on its way out: nothing more is to be said of the ready ones.
        ({"updatedReplicas": 2, "replicas": 3}, "2 of 2 replicas are ready"),
        ({"updatedReplicas": 1, "readyReplicas": 1}, "1 of 2 replicas are ready"),
    ],
)
def test_how_many_of_the_ready_ones_are_of_the_newest_spec_is_said_only_where_some_are_not(
    status: Resource, text: str
) -> None:
    found = workloads.read(rolled(**status))
    assert (found.ready, found.message) == (False, text)


def test_nothing_waits_and_says_so() -> None:
    nothings: list[object] = [None, {}, [], "x", 3]
    for nothing in nothings:
        found = workloads.read(nothing)
        assert (found.exists, found.ready, found.reason) == (False, False, "Starting")
        assert found.component("Server").pending


def test_scaled_to_nothing_is_ready_once_all_are_gone() -> None:
    assert workloads.read(rolled(wanted=0)).message == "scaled to zero"
    assert not workloads.read(rolled(wanted=0, replicas=1)).ready


def test_a_refused_pod_says_why() -> None:
    quota = condition("ReplicaFailure", "True", 'pods "x" is forbidden: exceeded quota: gpus')
    found = workloads.read(rolled(readyReplicas=0, conditions=[quota]))
    assert (found.reason, found.message) == ("QuotaExceeded", quota["message"])
    leaving = 'pods "x" is forbidden: unable to create new content in namespace ml because it is being terminated'
    gone = condition("ReplicaFailure", "True", leaving)
    assert workloads.read(rolled(readyReplicas=0, conditions=[gone])).reason == "Terminating"
    other = condition("ReplicaFailure", "True", "pod spec is invalid")
    assert workloads.read(rolled(readyReplicas=0, conditions=[other])).reason == "InvalidSpec"
    over = condition("ReplicaFailure", "False", "exceeded quota")
    assert workloads.read(rolled(conditions=[over])).ready, "conditions are judged by their status"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('Internal error occurred: failed calling webhook "pods.example.com": connection refused', "ServerError"),
        ('pods "x" is forbidden: error looking up service account ns/model', "ReferenceNotFound"),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "InvalidSpec"),
        ("of no known kind", "InvalidSpec"),
    ],
)
def test_a_refused_pod_only_degrades_what_serves(message: str, reason: str) -> None:
    failure = condition("ReplicaFailure", "True", message)
    for ready in (0, 1):
        found = workloads.read(rolled(replicas=1, readyReplicas=ready, conditions=[failure]))
        assert (found.reason, found.message, found.only_degrades) == (reason, message, ready > 0)
        assert found.component("Server").only_degrades is (ready > 0)


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-11-21T12:00:00Z"}])
def test_a_roll_out_is_observed_before_it_is_over(metadata: Resource) -> None:
    rolling = rolled(updatedReplicas=1)
    rolling["metadata"] |= metadata
    assert (workloads.read(rolling).observed, workloads.read(rolling).up_to_date) == (True, False)
    assert not workloads.read(rolled(observedGeneration=2)).observed
    assert not workloads.read({**rolled(), "status": {}}).observed


def test_a_service_of_another_group_is_no_endpoint(plain: MakeDeployment) -> None:
    model = parse_deployment(plain())
    other = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": model.metadata.name}}
    observed = Observed(primary=None, objects=(other, {"kind": "Service"}))
    assert observed.find("Service", model.metadata.name) is other
    assert workloads.endpoint(model, observed, 80) is None
    own = {**other, "apiVersion": "v1"}
    assert observed.find("Service", model.metadata.name, group="") is None
    found = workloads.endpoint(model, Observed(primary=None, objects=(other, own)), 80)
    assert found is not None
    assert found.port == 80


def test_a_deadline_that_passed_is_not_the_end() -> None:
    late = condition("Progressing", "False", "has timed out progressing", "ProgressDeadlineExceeded")
    found = workloads.read(rolled(readyReplicas=0, conditions=[late]))
    assert (found.ready, found.reason, found.message) == (False, "Progressing", "has timed out progressing")


def test_what_is_being_deleted_is_not_current() -> None:
    going = rolled()
    going["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    found = workloads.read(going)
    assert (found.ready, found.up_to_date, found.reason) == (False, False, "Terminating")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=6), below, max_size=3),
    max_leaves=8,
)
COUNT = st.integers(-2, 5) | JSON
COUNTS = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "observedGeneration")
OBJECT = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["Deployment", "LeaderWorkerSet"]) | JSON,
        "metadata": st.fixed_dictionaries({}, optional={"generation": COUNT, "deletionTimestamp": JSON}) | JSON,
        "spec": st.fixed_dictionaries({}, optional={"replicas": COUNT}) | JSON,
        "status": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(COUNTS, COUNT) | {"conditions": st.lists(JSON, max_size=3) | JSON},
        )
        | JSON,
    },
)


@settings(max_examples=500)
@given(OBJECT | JSON)
def test_any_json_has_an_answer(obj: Any) -> None:
    found = workloads.read(obj)
    assert found.reason in REASONS or found.reason == "Ready"
    assert found.ready == (found.reason == "Ready")
    assert found.up_to_date or not found.ready
    assert 0 <= found.replicas.ready <= found.replicas.desired
    assert found.component("Server").message == found.message


# ----------------------------------------------------------------------------------------------- as it was recorded


@pytest.fixture(scope="session")
def traces() -> Path:
    """What the real controllers wrote."""
    return recorded_by("llmd-lws")


def recorded(path: Path, kind: str) -> Iterator[tuple[str, Resource]]:
    """Each state of each object of that kind, by name."""
    known: dict[str, Resource] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["kind"] != kind:
            continue
        name = entry["name"]
        if entry.get("event") == "DELETED":
            known.pop(name, None)
            continue
        spec = entry.get("spec") or dig(known.get(name), "spec") or {}
        metadata = {key: entry[key] for key in ("generation", "deletionTimestamp") if entry.get(key)}
        known[name] = {"kind": kind, "metadata": metadata, "spec": spec, "status": entry.get("status") or {}}
        yield name, known[name]


@pytest.mark.parametrize(
    ("recording", "kind", "name", "expected"),
    [
        ("deploy-progress-deadline", "Deployment", "llama-8b", [False, True]),
        ("a-happy", "LeaderWorkerSet", None, [False, True]),
        ("b-imagepull-leader", "LeaderWorkerSet", None, [False]),
    ],
)
def test_a_recorded_start_becomes_ready_once_and_never_too_early(
    traces: Path, recording: str, kind: str, name: str | None, expected: list[bool]
) -> None:
    states = list(recorded(traces / f"{recording}.jsonl", kind))
    assert states
    wanted = name or states[0][0]
    alive = [workloads.read(obj) for n, obj in states if n == wanted and "deletionTimestamp" not in obj["metadata"]]
    assert [ready for ready, _ in groupby(found.ready for found in alive)][: len(expected)] == expected


def test_every_recorded_workload_is_ready_only_with_as_many_ready_replicas_as_wanted(traces: Path) -> None:
    count = 0
    for path in sorted(traces.glob("*.jsonl")):
        for kind in ("Deployment", "LeaderWorkerSet"):
            for _, obj in recorded(path, kind):
                found, status = workloads.read(obj), obj["status"]
                count += 1
                assert found.reason in REASONS or found.reason == "Ready"
                if found.ready:
                    wanted = dig(obj, "spec", "replicas", default=1)
                    assert status.get("readyReplicas", 0) >= wanted, path.name
                    assert status.get("updatedReplicas", 0) >= wanted, path.name
                    assert status.get("replicas", 0) == wanted, path.name
    assert count > 300


# ------------------------------------------------------------------ what an upstream made, without a generation

WANTED: Resource = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "vllm:2",
                "args": ["--seed", "1"],
                "env": [{"name": "A", "value": "1"}],
                "resources": {"requests": {"cpu": "4000m"}},
            }
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {},
        "hostNetwork": False,
    },
}


def made(**main: Any) -> Resource:
    """What an upstream made of it, with a sidecar, variables and tolerations of its own."""
    container = {
        "name": "main",
        "image": "vllm:2",
        "command": ["/bin/sh"],
        "args": ["--port", "80", "--seed", "1"],
        "env": [{"name": "OWN", "value": "x"}, {"name": "A", "value": "1"}],
        "resources": {"requests": {"cpu": "4"}},
        "terminationMessagePath": "/dev/termination-log",
        **main,
    }
    spec = {
        "containers": [{"name": "sidecar", "image": "proxy"}, container],
        "tolerations": [{"key": "own"}, {"key": "gpu", "operator": "Exists"}],
    }
    return {
        "kind": "Deployment",
        "spec": {"template": {"metadata": {"labels": {"team": "a", "app": "x"}}, "spec": spec}},
    }


def test_a_workload_is_made_of_a_pod_that_it_has_and_adds_to() -> None:
    assert workloads.made_of(WANTED, made())
    assert workloads.made_of(WANTED["spec"], made()), "a bare pod spec"
    bare = {"spec": {"worker": made()["spec"]["template"]["spec"]}}
    assert workloads.made_of(WANTED["spec"], bare)


@pytest.mark.parametrize(
    "older",
    [
        {"image": "vllm:1"},
        {"args": ["--port", "80"]},
        {"env": [{"name": "A", "value": "0"}]},
        {"env": None},
        {"resources": {"requests": {"cpu": "2"}}},
        {"name": "other"},
    ],
    ids=str,
)
def test_a_workload_of_an_older_spec_is_told(older: dict[str, Any]) -> None:
    assert not workloads.made_of(WANTED, made(**older))


def test_labels_of_a_template_count_and_nothing_is_made_of_nothing() -> None:
    other = made()
    other["spec"]["template"]["metadata"]["labels"] = {"team": "b"}
    assert not workloads.made_of(WANTED, other)
    empty: tuple[object, ...] = (None, {}, [], "x", {"spec": {"replicas": 1}})
    for nothing in empty:
        assert not workloads.made_of(WANTED, nothing)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
@settings(max_examples=50)
def test_made_of_takes_any_json(found: object) -> None:
    assert workloads.made_of(WANTED, {"spec": {"containers": [{"name": "main", "args": found}]}}) is False


def test_reasons_of_workloads_that_operators_copy_are_no_fault_while_they_start() -> None:
    """As recorded of Deployments and LeaderWorkerSets, and a Job's own."""
    starting = ("MinimumReplicasUnavailable", "NewReplicaSetCreated", "ReplicaSetUpdated", "ProgressDeadlineExceeded")
    for reason in (*starting, "GroupsProgressing", "GroupsUpdating", "CreatingRevision"):
        assert conditions.meaning(reason, conditions.WORKLOAD) == "Progressing", reason
    assert conditions.meaning("FailedCreate", conditions.WORKLOAD) == "InvalidSpec"
    assert conditions.meaning("BackoffLimitExceeded", conditions.WORKLOAD) == "JobFailed"
    assert conditions.meaning("SomethingElse", conditions.WORKLOAD, otherwise="UpstreamFailed") == "UpstreamFailed"
    assert {row.reason for row in conditions.WORKLOAD} <= REASONS.keys()
