"""A tenant who edits a deployment without end: nothing is done for what nothing looks at, and the rest in good time."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import toy_host

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.process import base_controller
from airunway.resource import Resource, dig, labels_of
from airunway.sdk import Compatibility, Context, ModelDeployment
from airunway_testing.expectations import running_at
from airunway_testing.operator import until
from airunway_testing.toy.names import TOY

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

EDITS = 150


class Passes:
    """The toy, and how often it was asked: once in each pass."""

    def __init__(self) -> None:
        self.count = 0

    def can_handle(self, deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
        self.count += 1
        return Compatibility()


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a slow machine, which edits more slowly, shows it too."""
    monkeypatch.setattr(base_controller, "INTERVAL", 10.0)


def most(seconds: float) -> int:
    """Writes of one object for edits that went on for so long: the first one's, and the last one's, included."""
    return 1 + base_controller.BURST + int(seconds / base_controller.INTERVAL) + 2


async def test_l3_a_foreign_annotation_or_label_brings_no_pass(operator: Operator, client: Client) -> None:
    passes = Passes()
    await operator.provider(toy_host(can_handle=passes.can_handle))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    assert await operator.at_rest() == []
    before = passes.count
    for number in range(EDITS):
        where = "labels" if number % 2 else "annotations"
        foreign = {"metadata": {where: {"example.com/number": str(number)}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, foreign, manager="tenant")
    # The watch tells in order: once the provider has seen this, it has seen all of those.
    ours = {"metadata": {"labels": {"airunway.ai/last": "one"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, ours, manager="tenant")
    await operator.exists(TOY, key, lambda toy: labels_of(toy).get("airunway.ai/last") == "one")
    assert await operator.at_rest() == []
    assert passes.count <= before + EDITS // 15, "the label that is handed on, and what came back of it"


async def test_l3_a_spec_that_changes_at_full_speed_is_written_in_good_time(
    slowly: None, operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    begun = monotonic()
    for number in range(EDITS):
        generation = await operator.edit(key, scaling={"replicas": number % 3 + 1})
    await until(client, key, running_at(generation))
    assert dig(await client.get(TOY, key), "spec", "replicas") == (EDITS - 1) % 3 + 1, "the last word counts"
    seconds = monotonic() - begun
    assert operator.writes(user).count("patch toys llama") <= most(seconds)
    # The core has a verdict on each generation that it looks at; the provider waits for it.
    assert operator.writes(operator.core).count("patch modeldeployments llama") <= 3 + most(seconds)


async def test_l3_a_label_that_is_handed_on_is_written_in_good_time(
    slowly: None, operator: Operator, client: Client
) -> None:
    user = await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    begun = monotonic()
    for number in range(EDITS):
        label: Resource = {"metadata": {"labels": {"airunway.ai/anything": str(number)}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, label, manager="tenant")
    last = str(EDITS - 1)
    await operator.exists(TOY, key, lambda toy: labels_of(toy).get("airunway.ai/anything") == last)
    writes = operator.writes(user)
    for name in ("toys llama", "services llama", "configmaps llama-toy"):
        assert writes.count(f"patch {name}") <= most(monotonic() - begun), name
