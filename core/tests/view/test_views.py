"""The view model: what is shown of objects that are large, odd or hostile, and what of healthy ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from core.tests.any_json import anything, changed
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.cli.status import fleet_lines, status_lines
from airunway.resource import Resource
from airunway.status.reasons import CODES
from airunway.view import DeploymentSnapshot, TreeNode, Unseen, deployment_view
from airunway.view.deployment import LONGEST, DeploymentView, share_of
from airunway.view.fleet import FleetFilter, fleet_view

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u2066 token=hf_0123456789abcdef \r\n\x00" + "x" * 2**20


def deployment(**status: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "ml", "uid": "d", "generation": 2},
        "spec": {"model": {"id": "org/model"}},
        "status": {
            "phase": "Running",
            "reason": "Ready",
            "provider": {"name": "vllm", "resourceKind": "Deployment", "resourceName": "llama"},
            **status,
        },
    }


def owned(kind: str, name: str, uid: str, owner: Resource | None, **rest: Any) -> Resource:
    """An object with a controlling owner."""
    references = []
    if owner is not None:
        meta = owner["metadata"]
        references = [{"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}]
    metadata = {"name": name, "namespace": "ml", "uid": uid, "ownerReferences": references}
    return {"kind": kind, "metadata": metadata, **rest}


def pod(number: int, owner: Resource, *, waiting: str = "", node: str = "gpu-0") -> Resource:
    ready = "False" if waiting else "True"
    state = {"waiting": {"reason": waiting, "message": "back-off"}} if waiting else {"running": {}}
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T11:58:00Z"}}
    container = {"name": "model", "ready": not waiting, "restartCount": 3 if waiting else 0, "state": state}
    if waiting:
        container["lastState"] = last
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [container],
    }
    return owned("Pod", f"llama-{number}", f"p{number}", owner, status=status, spec={"nodeName": node})


def snapshot(**parts: Any) -> DeploymentSnapshot:
    return DeploymentSnapshot(**{"deployment": deployment(), "pods": (), "events": (), **parts})


def every(node: TreeNode) -> list[TreeNode]:
    return [node, *(below for child in node.children for below in every(child))]


def text_of(view: Any, *, width: int | None = None) -> list[str]:
    return [line.text for line in status_lines(view, now=NOW, width=width, ascii_only=False)]


def test_equal_healthy_siblings_are_one_node_and_problems_come_first() -> None:
    workload = owned("Deployment", "llama", "w", deployment(), spec={"replicas": 64}, status={"readyReplicas": 62})
    set_ = owned("ReplicaSet", "llama-5d", "r", workload)
    pods = [pod(number, set_, node=f"gpu-{number % 8}") for number in range(62)]
    pods += [pod(number, set_, waiting="CrashLoopBackOff") for number in (62, 63)]
    for each in pods:
        each["metadata"]["labels"] = {"pod-template-hash": "5d", "airunway.ai/component": "server"}
    view = deployment_view(snapshot(objects=(workload,), pods=tuple(pods)))
    (top,) = view.tree.children
    (unread,) = top.children
    assert (top.kind, top.state, unread.kind, unread.read) == ("Deployment", "62/64 ready", "ReplicaSet", False)
    assert [(node.count, node.state) for node in unread.children] == [
        (1, "CrashLoopBackOff"),
        (1, "CrashLoopBackOff"),
        (62, "Running"),
    ]
    assert len(unread.children[2].nodes) == 8
    lines = text_of(view)
    assert any("llama-62 (server)" in line and "3 restarts" in line and "2m ago" in line for line in lines)
    assert any("62 Pods: llama-0 …" in line and "on 8 nodes" in line for line in lines)


def test_a_deletion_is_shown_before_the_provider_reports_it() -> None:
    gone = deployment(rootCause={"code": "Engine.OutOfMemory"})
    gone["metadata"] |= {"deletionTimestamp": "2026-01-01T11:59:00Z", "generation": 3}
    gone["metadata"]["finalizers"] = ["airunway.ai/vllm-provider"]
    view = deployment_view(snapshot(deployment=gone))
    assert (view.phase, view.tree.state, view.current, view.cause) == ("Terminating", "Terminating", True, None)
    first, second, *_ = text_of(view)
    assert first == "◌ llama in ml is Terminating for 60s"
    assert "finalizers are removed: airunway.ai/vllm-provider; provider 'vllm' deletes its objects first" in second
    reported = {**gone, "status": {**gone["status"], "phase": "Terminating", "message": "Deployment llama goes"}}
    assert text_of(deployment_view(snapshot(deployment=reported)))[1] == "  Deployment llama goes"


def test_the_age_of_ready_is_not_said_of_a_reason_that_may_be_newer() -> None:
    ready = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "2026-01-01T11:59:43Z",
        "observedGeneration": 2,
    }
    degraded = {"phase": "Degraded", "reason": "RouteNotAccepted"}
    shown = deployment_view(snapshot(deployment=deployment(**degraded, conditions=[ready])))
    assert text_of(shown)[0] == "✖ llama in ml is Degraded: RouteNotAccepted, not Ready for 17s"
    shown = deployment_view(snapshot(deployment=deployment(conditions=[{**ready, "status": "True"}])))
    assert text_of(shown)[0] == "✔ llama in ml is Running: Ready for 17s"
    cause = {"code": "ImagePull.NotFound", "object": "Pod/ml/a", "message": "gone", "since": "2026-01-01T11:59:00Z"}
    shown = deployment_view(snapshot(deployment=deployment(**degraded, conditions=[ready], rootCause=cause)))
    assert text_of(shown)[0] == "✖ llama in ml is Degraded: ImagePull.NotFound for 60s"


def test_logs_are_offered_only_where_a_container_has_started() -> None:
    set_ = owned("ReplicaSet", "llama-5d", "r", None)
    crashed, unpulled = pod(0, set_, waiting="CrashLoopBackOff"), pod(1, set_, waiting="ImagePullBackOff")
    del unpulled["status"]["containerStatuses"][0]["lastState"]
    pods = (crashed, unpulled, pod(2, set_))

    def offered(culprit: Resource, seen: tuple[Resource, ...] | Unseen = pods) -> bool:
        cause = {"code": "Engine.CrashLoop", "object": f"Pod/ml/{culprit['metadata']['name']}", "message": "it crashes"}
        view = deployment_view(snapshot(deployment=deployment(phase="Failed", rootCause=cause), pods=seen))
        return "  Logs: airunway logs md/llama -n ml" in text_of(view)

    assert [offered(each) for each in pods] == [True, False, True]
    assert offered(unpulled, Unseen(what="pods", why="you have no right to it"))


def test_fewer_ready_pods_than_the_status_counts_are_named() -> None:
    running = deployment(replicas={"ready": 2, "desired": 2}, message="fine")
    set_ = owned("ReplicaSet", "llama-5d", "r", None)
    picker = pod(9, set_)
    picker["metadata"]["labels"] = {"airunway.ai/component": "picker"}
    broken = (pod(0, set_), pod(1, set_, waiting="CrashLoopBackOff"), picker)
    lines = text_of(deployment_view(snapshot(deployment=running, pods=broken)))
    assert lines[2].startswith("  But only 1 of its 2 pods are ready: if this lasts, provider 'vllm' does not run")
    assert lines[1] == "  fine"
    for pods in ((pod(0, set_), pod(1, set_), picker), ()):
        assert "But only" not in "".join(text_of(deployment_view(snapshot(deployment=running, pods=pods))))


def test_a_deployment_that_the_core_has_not_looked_at_has_no_older_spec() -> None:
    new = deployment(phase="Pending", reason="WaitingForController", message="Waiting for the controller")
    assert text_of(deployment_view(snapshot(deployment=new)))[:2] == [
        "◌ llama in ml is Pending: WaitingForController",
        "  Waiting for the controller: `airunway doctor` shows whether it runs",
    ]


def test_a_paused_deployment_is_shown_as_it_was() -> None:
    paused = deployment(
        conditions=[{"type": "Paused", "status": "True", "reason": "Paused"}], replicas={"ready": 1, "desired": 1}
    )
    head = text_of(deployment_view(snapshot(deployment=paused)))[0]
    assert head == "✔ llama in ml is Running (as it was when reconciliation was paused): Ready"
    broken = pod(0, owned("ReplicaSet", "llama-5d", "r", None), waiting="CrashLoopBackOff")
    assert "But only" not in "".join(text_of(deployment_view(snapshot(deployment=paused, pods=(broken,)))))
    paused["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert "paused" not in text_of(deployment_view(snapshot(deployment=paused)))[0], "a pause stops no deletion"


def test_what_was_not_seen_is_neither_an_empty_list_nor_zero() -> None:
    pods = Unseen(what="pods", why="you have no right to it", right="list pods in namespace ml")
    view = deployment_view(snapshot(pods=pods, events=pods))
    told = view.as_resource()
    assert told["pods"] == told["timeline"] == {"what": "pods", "why": pods.why, "right": pods.right}
    assert told["unseen"] == [told["pods"]]
    assert any("pods not seen" in line and "list pods in namespace ml" in line for line in text_of(view))


def test_a_gateway_that_knows_the_model_by_its_name_alone_is_shown_with_the_header() -> None:
    gateway = {"ready": True, "url": "http://192.0.2.1", "modelName": "model"}
    view = deployment_view(snapshot(deployment=deployment(gateway=gateway)))
    assert view.header == "X-Gateway-Model-Name: model"
    assert "Gateway:  http://192.0.2.1 (requests need the header X-Gateway-Model-Name: model)" in text_of(view)
    by_path = {**gateway, "url": "http://192.0.2.1/ml/llama", "path": "/ml/llama"}
    view = deployment_view(snapshot(deployment=deployment(gateway=by_path)))
    assert (view.header, "Gateway:  http://192.0.2.1/ml/llama" in text_of(view)) == ("", True)
    own_route = deployment(gateway=gateway)
    own_route["spec"]["gateway"] = {"httpRouteRef": "own"}
    assert deployment_view(snapshot(deployment=own_route)).header == ""


def test_the_share_of_a_group_is_shown_with_whose_route_has_the_rule() -> None:
    def of(holder: str) -> DeploymentView:
        gateway = {"ready": True, "group": {"name": "chat", "holder": holder, "share": 10}}
        return deployment_view(snapshot(deployment=deployment(gateway=gateway)))

    assert "Share:    10 % of group chat, by the route of chat-v1" in text_of(of("chat-v1"))
    name = of("chat-v1").name
    assert of(name).share == "10 % of group chat, by its own route"
    assert deployment_view(snapshot(deployment=deployment())).share == ""


@pytest.mark.parametrize(
    ("weight", "condition", "why"),
    [
        (0, {}, "its weight is 0"),
        (1, {}, "it has not served yet"),
        (1, {"type": "Served", "status": "True"}, "it has no ready replica"),
        (1, {"type": "GatewayReady", "reason": "GroupMismatch", "message": "group chat: x"}, "group chat: x"),
    ],
)
def test_a_deployment_without_a_share_says_why(weight: int, condition: Resource, why: str) -> None:
    found = deployment(gateway={"group": {"name": "chat", "holder": "chat-v1", "share": 0}})
    found["spec"]["gateway"] = {"group": "chat", "weight": weight}
    found["status"]["conditions"] = [condition] if condition else []
    assert share_of(found) == f"0 % of group chat, by the route of chat-v1: {why}"


def test_the_template_is_shown_with_its_condition_and_the_model_that_it_gives() -> None:
    given = {"model": {"id": "org/given"}}
    ready = {"type": "TemplateReady", "status": "False", "reason": "TemplateNotFound", "message": "gone"}
    used = deployment(
        effectiveTemplate={"ref": {"kind": "ClusterModelTemplate", "name": "fast"}},
        revision={"template": {"spec": given}},
        conditions=[ready],
    )
    live = {**used, "spec": {"templateRef": {"modelName": "org/m"}}}
    view = deployment_view(DeploymentSnapshot(deployment=live, pods=(), events=()))
    assert view.model == "org/given"
    assert fleet_view([live]).rows[0].model == "org/given"
    shown = [line.text for line in status_lines(view, now=NOW, width=None, ascii_only=True)]
    assert "Template: ClusterModelTemplate fast, TemplateReady=False TemplateNotFound" in shown
    waiting = {**live, "status": {"phase": "Pending", "conditions": [ready]}}
    view = deployment_view(DeploymentSnapshot(deployment=waiting, pods=(), events=()))
    shown = [line.text for line in status_lines(view, now=NOW, width=None, ascii_only=True)]
    assert "Template: none (model org/m was asked for), TemplateReady=False TemplateNotFound" in shown
    without = deployment_view(DeploymentSnapshot(deployment=deployment(), pods=(), events=()))
    assert without.template is None


def test_a_hostile_deployment_is_shown_in_bounded_plain_lines() -> None:
    condition = {"type": "Ready", "status": "False", "reason": "X", "message": HOSTILE}
    cause = {"code": "Engine.CrashLoop", "object": f"Pod/ml/{HOSTILE}", "message": HOSTILE}
    event = {
        "type": "Warning",
        "reason": HOSTILE,
        "message": HOSTILE[:1024],
        "lastTimestamp": "2026-01-01T11:00:00Z",
        "involvedObject": {"kind": "ModelDeployment", "name": "llama"},
    }
    events = tuple({**event, "metadata": {"uid": str(number)}, "count": number + 1} for number in range(10_000))
    spoiled = deployment(message=HOSTILE, rootCause=cause, warnings=[HOSTILE] * 100, conditions=[condition] * 50)
    spoiled["spec"]["model"]["id"] = HOSTILE
    circle = [owned("Job", "-rf", "a", {"kind": "Job", "metadata": {"name": "b", "uid": "b"}})]
    circle += [owned("Job", "b", "b", circle[0])]
    view = deployment_view(snapshot(deployment=spoiled, events=events, objects=tuple(circle)))
    assert not isinstance(view.timeline, Unseen)
    assert len(view.timeline) == LONGEST
    assert {"-rf", "b"} <= {node.name for node in every(view.tree)}
    document = json.dumps(view.as_resource(), ensure_ascii=False)
    assert document.isprintable()
    assert "hf_0123456789abcdef" not in document
    assert len(document) < 400_000
    lines = text_of(view, width=80)
    assert all(line.isprintable() for line in lines)
    assert "\x1b" not in "".join(lines)
    assert max(len(line) for line in lines if " " in line.strip()) <= 1100


@settings(max_examples=100, deadline=None)
@given(st.randoms())
def test_any_json_gives_a_view(chance: Random) -> None:
    workload = owned("Deployment", "llama", "w", deployment(), spec={"replicas": 1}, status={"conditions": []})
    event = {"type": "Warning", "reason": "BackOff", "involvedObject": {"name": "llama"}, "eventTime": "2026-01-01"}
    parts = {"deployment": deployment(), "objects": workload, "pods": pod(1, workload, waiting="X"), "events": event}
    spoiled: dict[str, Any] = {name: changed(chance, part, anything) for name, part in parts.items()}
    for name in ("objects", "pods", "events"):
        spoiled[name] = tuple(each for each in [spoiled[name], parts[name]] if isinstance(each, dict))
    if isinstance(spoiled["deployment"], dict):
        view = deployment_view(DeploymentSnapshot(**spoiled))
        assert json.dumps(view.as_resource(), ensure_ascii=False).isprintable()
        assert all(line.isprintable() for line in text_of(view, width=80))
        assert len(fleet_view([spoiled["deployment"]]).rows) == 1


def test_a_fleet_is_grouped_by_cause_and_filtered() -> None:
    broken = deployment(phase="Failed", reason="ImageNotFound", rootCause={"code": "ImagePull.NotFound"})
    fleet = [deployment(), broken, broken, deployment(phase="Deploying", reason="Starting")]
    view = fleet_view(fleet)
    assert [(group.reason, group.count) for group in view.groups] == [
        ("ImagePull.NotFound", 2),
        ("Starting", 1),
        ("Ready", 1),
    ]
    kept = fleet_view(fleet, FleetFilter(cause="ImagePull", text="LLA"))
    assert (len(kept.rows), kept.total) == (2, 4)


def test_status_of_all_deployments_has_the_worst_first_with_cause_and_remedy() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "X", "lastTransitionTime": "2026-01-01T11:55:00Z"}
    cause = {
        "code": "ImagePull.NotFound",
        "object": "Pod/ml/llama-0",
        "message": f"no such tag {CODES['ImagePull.NotFound'].remedy_for('Pod/ml/llama-0')}",
        "since": "2026-01-01T11:50:00Z",
    }

    def named(name: str, **status: Any) -> Resource:
        found = deployment(**status)
        return {**found, "metadata": {**found["metadata"], "name": name}}

    gone = named("gone", phase="Terminating", message="Waiting until the upstream resources are gone")
    gone["metadata"] |= {"deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["corp.example/hold"]}
    live = [
        named("fine", replicas={"ready": 1, "desired": 1, "summary": "1/1"}),
        named("new", phase="Deploying", reason="Progressing", message="pods start", conditions=[ready]),
        named("broken", phase="Degraded", reason="PodsNotReady", conditions=[ready], rootCause=cause),
        named("dead", phase="Failed", reason="Invalid", message="no such engine"),
        gone,
    ]
    lines = [line.text for line in fleet_lines(fleet_view(live), now=NOW, ascii_only=True, namespace="")]
    heads = [line for line in lines if line[:2] in ("X ", "~ ", "+ ")]
    assert [head.split()[1] for head in heads] == ["ml/dead", "ml/broken", "ml/gone", "ml/new", "ml/fine"]
    at = lines.index("X ml/broken is Degraded: ImagePull.NotFound for 10m")
    assert lines[at + 1] == "  Pod/ml/llama-0: no such tag"
    assert lines[at + 2].startswith("  Remedy: ")
    assert any("corp.example/hold" in line and "Waiting until" not in line for line in lines)
    assert heads[-1] == "+ ml/fine is Running, 1/1 replicas ready"
    assert lines[-1] == "5 deployments: 1 Failed, 1 Degraded, 1 Terminating, 1 Deploying, 1 Running."
    assert [line.text for line in fleet_lines(fleet_view([]), now=NOW, ascii_only=True, namespace="ml")] == [
        "There are no deployments in namespace ml."
    ]


def test_f5_events_of_an_earlier_deployment_of_the_same_name_are_not_shown() -> None:
    def event(number: int, uid: str) -> Resource:
        about = {"kind": "ModelDeployment", "name": "llama", "uid": uid}
        return {
            "metadata": {"uid": f"e{number}"},
            "type": "Warning",
            "reason": f"Reason{number}",
            "message": "(combined from similar events): exceeded quota",
            "lastTimestamp": "2026-01-01T11:00:00Z",
            "involvedObject": about,
        }

    view = deployment_view(snapshot(events=(event(1, "d"), event(2, "of an earlier one"), event(3, ""))))
    assert not isinstance(view.timeline, Unseen)
    told = [entry for entry in view.timeline if entry.source == "event"]
    assert sorted(entry.reason for entry in told) == ["Reason1", "Reason3"]
    assert {entry.message for entry in told} == {"exceeded quota"}, "B7: without the prefix of joined events"


def test_b6_a_deletion_that_another_finalizer_holds_names_it() -> None:
    gone = deployment(phase="Terminating", message="Waiting until the upstream resources are gone")
    gone["metadata"] |= {"deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["corp.example/hold"]}
    view = deployment_view(snapshot(deployment=gone))
    assert "corp.example/hold" in view.message
    assert "Waiting until" not in view.message
    gone["metadata"]["finalizers"].append("airunway.ai/vllm-provider")
    assert deployment_view(snapshot(deployment=gone)).message.startswith("Waiting until")
