"""The simulated controller where there are no pods: the status that a scenario says."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.kube import Client
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.simulators.scenarios import ANNOTATION, parse_scenario
from airunway_vllm_simulator import simulator
from airunway_vllm_simulator.kinds import LEADER_WORKER_SET
from airunway_vllm_simulator.scenarios import scripted_status

NOW = "2026-01-01T00:00:00Z"


def conditions(status: Resource) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status.get("conditions", [])}


@pytest.mark.parametrize(
    ("scenario", "ready", "held"),
    [
        ("instant", 3, {"Available": "True"}),
        ("lingers", 3, {"Available": "True"}),
        ("never-ready", None, {"Progressing": "True"}),
        ("fails:Anything", None, {"Progressing": "True"}),
        ("no-nodes", None, {"Progressing": "True"}),
        ("error:words", None, {"Progressing": "True"}),
        ("degrades:Anything", None, {"Available": "False", "Progressing": "True"}),
        ("silent", None, {}),
    ],
)
def test_each_scenario_has_its_status_and_is_written_once(scenario: str, ready: int | None, held: Any) -> None:
    lws: Resource = {"metadata": {"name": "big", "generation": 4}, "spec": {"replicas": 3}}
    status = scripted_status(lws, parse_scenario(scenario), NOW)
    assert (status.get("readyReplicas"), conditions(status)) == (ready, held)
    again = scripted_status({**lws, "status": status}, parse_scenario(scenario), NOW)
    assert scenario.startswith("degrades") or again == status


def test_the_crd_is_for_the_kind_that_is_played() -> None:
    (crd,) = simulator.custom_resource_definitions()
    assert ((dig(crd, "spec", "group"), dig(crd, "spec", "names", "kind")),) == simulator.kinds


@pytest.mark.apiserver
async def test_a_set_is_answered_and_an_annotation_says_otherwise(
    client: Client, play: Any, lws: Any, eventually: Any, namespace: str
) -> None:
    await play(level="api")
    await client.create(LEADER_WORKER_SET, lws("good", replicas=2))
    await client.create(LEADER_WORKER_SET, lws("bad", annotations={ANNOTATION: "never-ready"}))

    async def answered() -> bool:
        good, bad = [await client.get(LEADER_WORKER_SET, ObjectKey(namespace, name)) for name in ("good", "bad")]
        return dig(good, "status", "readyReplicas") == 2 and conditions(bad.get("status") or {}) == {
            "Progressing": "True"
        }

    await eventually(answered)
