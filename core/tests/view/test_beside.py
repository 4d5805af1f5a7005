"""What a plan says of an edit that interrupts a deployment with a route (docs/side-by-side.md)."""

from __future__ import annotations

import pytest

from airunway.resource import Resource
from airunway.upgrades.edits import BESIDE, beside
from airunway.view.plan import plan_step

WORKSPACE: Resource = {"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "metadata": {"name": "llama"}}
ROUTED: Resource = {"status": {"gateway": {"url": "http://192.0.2.1/ml/llama"}}}


@pytest.mark.parametrize(
    ("deployment", "action", "interrupts", "said"),
    [
        (ROUTED, "recreate", (), [BESIDE]),
        (ROUTED, "update", ("one replica is replaced",), [BESIDE]),
        (ROUTED, "update", (), []),
        ({}, "recreate", (), []),
    ],
)
def test_an_edit_that_interrupts_a_routed_deployment_names_the_way_without_an_outage(
    deployment: Resource, action: str, interrupts: tuple[str, ...], said: list[str]
) -> None:
    step = plan_step(action, WORKSPACE, WORKSPACE, primary=True, interrupts=interrupts)
    assert beside(deployment, [step]) == said
    assert "docs/side-by-side.md" in BESIDE
