"""The simulated KAITO without pods, on a real API server."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from airunway.kube import Client, Invalid, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway_kaito_simulator import names
from airunway_kaito_simulator.admission import refusals_on_update
from airunway_kaito_simulator.kinds import WORKSPACE
from airunway_testing.simulators import ScenarioError, load_simulator, simulators_for
from airunway_testing.simulators.scenarios import ANNOTATION as SCENARIO
from airunway_testing.simulators.writes import merged

pytestmark = pytest.mark.apiserver

Look = Callable[[Kind, ObjectKey], Awaitable[Resource | None]]
TEMPLATE: Resource = {"template": {"spec": {"containers": [{"name": "model", "image": "registry.example/model:1"}]}}}
PRESET: Resource = {"preset": {"name": "microsoft/Phi-4-mini-instruct", "accessMode": "public"}}


async def test_instant_makes_every_workspace_ready_with_one_write_each(
    client: Client, workspace_crd: str, namespace: str, workspace: Any, play: Any, eventually: Any, audit_log: Path
) -> None:
    await play(level="api")
    made = [workspace(f"w{index}", inference=TEMPLATE, count=1 + index % 2) for index in range(20)]
    await asyncio.gather(*(client.create(WORKSPACE, obj) for obj in made))

    async def all_ready() -> bool:
        found = await client.list_all(WORKSPACE, namespace=namespace)
        return len(found) == 20 and all(dig(obj, "status", "state") == "Ready" for obj in found)

    await eventually(all_ready)
    for obj in await client.list_all(WORKSPACE, namespace=namespace):
        assert [c["type"] for c in obj["status"]["conditions"]] == [
            "NodesReady",
            "ResourceReady",
            "InferenceReady",
            "WorkspaceSucceeded",
        ]
        assert all(c["status"] == "True" for c in obj["status"]["conditions"])
        assert obj["status"]["targetNodeCount"] == obj["resource"]["count"] == len(obj["status"]["workerNodes"])
    assert len(writes_of(audit_log, namespace)) == 20


def writes_of(audit_log: Path, namespace: str) -> list[Resource]:
    """Completed writes onto Workspaces of the namespace by the simulator."""
    events = [json.loads(line) for line in audit_log.read_text().splitlines()]
    return [
        event
        for event in events
        if event["verb"] in ("patch", "update")
        and event["stage"] == "ResponseComplete"
        and dig(event, "objectRef", "resource") == "workspaces"
        and dig(event, "objectRef", "namespace") == namespace
    ]


async def test_an_edit_is_answered_for_its_generation(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, eventually: Any, look: Look
) -> None:
    await play(level="api", scenario="instant")
    key = ObjectKey(namespace, "edited")
    await client.create(WORKSPACE, workspace("edited", inference=PRESET))
    await eventually(lambda: ready_for(look, key, 1))
    await client.merge_patch(WORKSPACE, key, {"inference": {"config": "other"}})
    await eventually(lambda: ready_for(look, key, 2))


async def ready_for(look: Look, key: ObjectKey, generation: int) -> bool:
    condition = condition_of(await look(WORKSPACE, key) or {}, "WorkspaceSucceeded") or {}
    return (condition.get("status"), condition.get("observedGeneration")) == ("True", generation)


@pytest.mark.parametrize(
    ("scenario", "state", "reason"),
    [
        ("never-ready", "Pending", "WorkspaceInferenceStatusPending"),
        ("fails:ImagePullError", "Pending", "ImagePullError"),
        ("degrades:ContainerOOMKilled", "NotReady", "ContainerOOMKilled"),
        ("no-nodes", "Pending", "WorkspaceInferenceStatusPending"),
    ],
)
async def test_an_annotation_chooses_another_answer(
    client: Client,
    workspace_crd: str,
    namespace: str,
    workspace: Any,
    play: Any,
    eventually: Any,
    look: Look,
    scenario: str,
    state: str,
    reason: str,
) -> None:
    await play(level="api")
    key = ObjectKey(namespace, "scripted")
    await client.create(WORKSPACE, workspace("scripted", inference=TEMPLATE, annotations={SCENARIO: scenario}))

    async def answered() -> Resource | None:
        obj = await look(WORKSPACE, key)
        return obj if dig(obj, "status", "state") else None

    obj = await eventually(answered)
    assert obj["status"]["state"] == state
    inference = condition_of(obj, "InferenceReady") or {}
    assert (inference["status"], inference["reason"]) == ("False", reason)
    assert is_true(obj, "NodesReady") == (scenario != "no-nodes")
    assert not is_true(obj, "WorkspaceSucceeded")


async def test_a_workspace_recovers_when_its_scenario_is_taken_away(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, eventually: Any, look: Look
) -> None:
    await play(level="api")
    key = ObjectKey(namespace, "recovers")
    failing = {SCENARIO: "no-nodes"}
    await client.create(WORKSPACE, workspace("recovers", inference=TEMPLATE, annotations=failing))

    async def state() -> object:
        return dig(await look(WORKSPACE, key), "status", "state")

    await eventually(state)
    assert await state() == "Pending"
    await client.merge_patch(WORKSPACE, key, {"metadata": {"annotations": {SCENARIO: None}}})
    await eventually(lambda: ready_for(look, key, 1))
    await client.merge_patch(WORKSPACE, key, {"metadata": {"annotations": failing}})

    async def degraded() -> bool:
        return await state() == "NotReady"

    await eventually(degraded)
    obj = await look(WORKSPACE, key)
    assert obj is not None
    assert "workerNodes" not in obj["status"]


async def test_an_unknown_scenario_says_so_in_the_conditions(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, eventually: Any, look: Look
) -> None:
    await play(level="api")
    key = ObjectKey(namespace, "unknown")
    await client.create(WORKSPACE, workspace("unknown", inference=TEMPLATE, annotations={SCENARIO: "explode"}))

    async def conditions() -> object:
        return dig(await look(WORKSPACE, key), "status", "conditions")

    for condition in await eventually(conditions):
        assert "(last reconcile error: 'explode' is not a scenario" in condition["message"]


async def test_lingers_holds_a_deleted_workspace_until_the_scenario_goes(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, eventually: Any, look: Look
) -> None:
    await play(level="api")
    key = ObjectKey(namespace, "lingers")
    await client.create(WORKSPACE, workspace("lingers", inference=TEMPLATE, annotations={SCENARIO: "lingers"}))

    async def held() -> bool:
        obj = await look(WORKSPACE, key)
        return names.FINALIZER in dig(obj, "metadata", "finalizers", default=[]) and is_true(
            obj or {}, "WorkspaceSucceeded"
        )

    await eventually(held)
    await client.delete(WORKSPACE, key)
    obj = await look(WORKSPACE, key)
    assert dig(obj, "metadata", "deletionTimestamp")
    await client.merge_patch(WORKSPACE, key, {"metadata": {"annotations": {SCENARIO: None}}})

    async def gone() -> bool:
        return await look(WORKSPACE, key) is None

    await eventually(gone)


EDITS: dict[str, tuple[Resource, Resource]] = {
    "count": (PRESET, {"resource": {"count": 2}}),
    "label selector": (PRESET, {"resource": {"labelSelector": {"matchLabels": {"other": "label"}}}}),
    "partition": (PRESET, {"resource": {"partition": {"mode": "accelerator", "count": 1}}}),
    "instance type": (PRESET, {"resource": {"instanceType": "Standard_NC24ads_A100_v4"}}),
    "preset name": (PRESET, {"inference": {"preset": {"name": "other/model"}}}),
    "access secret": (PRESET, {"inference": {"preset": {"presetOptions": {"modelAccessSecret": "token"}}}}),
    "preset to template": (PRESET, {"inference": {"preset": None, **TEMPLATE}}),
    "no inference": (TEMPLATE, {"inference": None}),
    "template to preset": (TEMPLATE, {"inference": {"template": None, **PRESET}}),
}


@pytest.mark.parametrize(("inference", "patch"), EDITS.values(), ids=EDITS)
async def test_the_minimal_crd_refuses_what_the_webhook_refuses_in_its_words(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, inference: Resource, patch: Resource
) -> None:
    old = await client.create(WORKSPACE, workspace("fixed", inference=inference))
    expected = refusals_on_update(old, merged(old, patch))
    assert expected
    with pytest.raises(Invalid) as refused:
        await client.merge_patch(WORKSPACE, ObjectKey(namespace, "fixed"), patch)
    for message in expected:
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("inference", "patch"),
    [
        (PRESET, {"inference": {"config": "settings"}}),
        (PRESET, {"inference": {"adapters": [{"source": {"name": "a", "image": "registry.example/a:1"}}]}}),
        (TEMPLATE, {"inference": {"template": {"spec": {"containers": [{"name": "model", "image": "other"}]}}}}),
        (TEMPLATE, {"metadata": {"labels": {"a": "b"}}}),
    ],
)
async def test_the_minimal_crd_admits_what_the_webhook_admits(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, inference: Resource, patch: Resource
) -> None:
    old = await client.create(WORKSPACE, workspace("edited", inference=inference))
    new = await client.merge_patch(WORKSPACE, ObjectKey(namespace, "edited"), patch)
    assert refusals_on_update(old, new) == []
    assert new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]


async def test_the_minimal_crd_keeps_a_whole_pod_template(client: Client, minimal_crd: None, workspace: Any) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "futureField": [{"x": 1}]}]}}
    made = await client.create(
        WORKSPACE, workspace("whole", inference={"template": template}), field_validation="Strict"
    )
    assert made["inference"]["template"] == template


async def test_the_command_plays_until_it_is_told_to_stop(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, eventually: Any, look: Look, kubeconfig: Path
) -> None:
    key = ObjectKey(namespace, "commanded")
    await client.create(WORKSPACE, workspace("commanded", inference=TEMPLATE))
    program = "from airunway_testing.cli.simulate import simulate; simulate()"
    options = ["kaito", "--level", "api", "--scenario", "fails:Unschedulable", "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, *options)
    try:

        async def answered() -> bool:
            assert process.returncode is None
            condition = condition_of(await look(WORKSPACE, key) or {}, "InferenceReady") or {}
            return condition.get("reason") == "Unschedulable"

        await eventually(answered)
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


async def test_the_command_names_what_it_can_play() -> None:
    program = "from airunway_testing.cli.simulate import simulate; simulate()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "nosuch", stderr=asyncio.subprocess.PIPE, env={"COLUMNS": "200"}
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert re.search(r"'nosuch' is not simulated; choose from: .*\bkaito\b", errors.decode())


async def test_scenarios_are_refused_where_pods_decide(client: Client) -> None:
    with pytest.raises(ScenarioError, match="level cluster"):
        await load_simulator("kaito").run(client, level="cluster", scenario="instant", stop=asyncio.Event())
    with pytest.raises(ScenarioError, match="'explode' is not a scenario"):
        await load_simulator("kaito").run(client, level="api", scenario="explode", stop=asyncio.Event())


def test_a_simulator_is_found_by_the_kind_it_acts_on() -> None:
    assert simulators_for([("kaito.sh", "Workspace"), ("", "ConfigMap")]) == [load_simulator("kaito")]
    assert simulators_for([("kaito.sh", "ModelMirror")]) == []
