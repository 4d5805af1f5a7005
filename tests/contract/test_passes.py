"""How often a pass asks its provider: each hook once, and for the status once more where the pass wrote something."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.contract import test_versions
from tests.contract.test_versions import ready, registry, toys, waits
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import toy_host

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import ObjectKey, dig, labels_of, uid_of
from airunway.runtime.reconcile import ProviderReconciler
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, phase_is, running_at
from airunway_testing.operator import gone, install_definitions, until
from airunway_testing.toy.names import TOY, TOY_OLD
from airunway_testing.toy.provider import provider

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

toys_as_before = test_versions.toys_as_before
HOOKS = ("can_handle", "translate_spec", "translate_status")


class Asked(NamedTuple):
    """How often one pass called each hook."""

    can_handle: int
    translate_spec: int
    translate_status: int


AT_REST = Asked(1, 1, 1)


class Passes(list[Asked]):
    """Every pass of a provider from its start on. `hooks` are the toy's own, counted."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self.hooks = {name: self._counted(name, getattr(provider, name)) for name in HOOKS}

    def _counted(self, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self._calls[name] += 1
            return hook(*given)

        return call

    def ended(self) -> None:
        self.append(Asked(*(self._calls[name] for name in HOOKS)))
        self._calls.clear()

    async def further(self, count: int) -> list[Asked]:
        """The passes from the given one on; waits until there is one."""
        async with asyncio.timeout(PATIENCE):
            while len(self) <= count:
                await asyncio.sleep(0.05)
        return self[count:]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Passes]:
    """Of one deployment alone: passes over several at once could not be told apart."""
    found, real = Passes(), ProviderReconciler.reconcile

    async def reconcile(self: ProviderReconciler, key: ObjectKey) -> float | None:
        try:
            return await real(self, key)
        finally:
            found.ended()

    monkeypatch.setattr(ProviderReconciler, "reconcile", reconcile)
    yield found
    assert max(map(max, found)) <= 2


async def poke(client: Client, key: ObjectKey, number: int) -> None:
    """Change an annotation that a pass looks at, and that changes nothing."""
    annotated = {"metadata": {"annotations": {"airunway.ai/tests": str(number)}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, annotated, manager="user")


async def test_each_hook_is_asked_once_in_a_pass_and_the_status_again_after_a_write(
    operator: Operator, client: Client, passes: Passes
) -> None:
    await operator.provider(toy_host(**passes.hooks))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    assert await operator.at_rest() == []
    for number in range(3):
        begun = len(passes)
        await poke(client, key, number)
        assert set(await passes.further(begun)) == {AT_REST}

    for spec in ({"scaling": {"replicas": 2}}, {"model": {"id": "org/another"}}):  # in place, and made anew
        await until(client, key, running_at(await operator.edit(key, **spec)))
    drift = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}
    await client.merge_patch(TOY, key, drift, manager="somebody")
    await operator.exists(TOY, key, lambda toy: labels_of(toy).get(names.MODEL_DEPLOYMENT) == key.name)
    assert await operator.at_rest() == []
    assert max(each.can_handle for each in passes) == 1
    assert max(each.translate_spec for each in passes) == 1
    assert max(each.translate_status for each in passes) == 2


async def test_a_pass_asks_for_no_more_than_it_uses(operator: Operator, client: Client, passes: Passes) -> None:
    """A plan alone, what is paused, what is suspended, and what goes."""
    await operator.provider(toy_host(**passes.hooks))
    key = await operator.deploy()
    await until(client, key, running_at(1))

    async def annotate(name: str, value: str | None) -> None:
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {name: value}}}, manager="user")

    await annotate(names.DRY_RUN, "true")
    generation = await operator.edit(key, scaling={"replicas": 2})
    await until(client, key, condition_is("DryRun", "True"))
    await annotate(names.DRY_RUN, None)
    await until(client, key, running_at(generation))
    assert max(each.translate_spec for each in passes) == 1

    await annotate(names.PAUSED, "true")
    await until(client, key, condition_is("Paused", "True"))
    assert await operator.at_rest() == []
    begun = len(passes)
    await poke(client, key, 1)
    assert set(await passes.further(begun)) == {Asked(0, 0, 0)}
    await annotate(names.PAUSED, None)

    await operator.edit(key, suspend=True)
    await until(client, key, lambda found: dig(found, "status", "reason") == "Suspended")
    assert await operator.at_rest() == []
    begun = len(passes)
    await poke(client, key, 2)
    assert set(await passes.further(begun)) == {Asked(1, 0, 0)}

    begun = len(passes)
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
    assert set(await passes.further(begun)) == {Asked(0, 0, 0)}


async def test_a_newer_transformer_that_waits_is_compared_once_for_each_spec(
    toys_as_before: None, operator: Operator, client: Client, passes: Passes
) -> None:
    await install_definitions(client, [toys("v1alpha1", storage="v1alpha1")])
    await operator.provider(toy_host(**passes.hooks, transformers=registry()), simulated=False)
    key = await operator.deploy()
    toy = await operator.exists(TOY_OLD, key)
    await ready(client, TOY_OLD, toy)
    await until(client, key, phase_is("Running"))
    await install_definitions(client, [toys("v1alpha1", "v1beta1", storage="v1alpha1")])
    await until(client, key, waits)
    assert await operator.at_rest(TOY_OLD) == []
    assert max(each.translate_spec for each in passes) == 2, "one of them is the comparison"
    for number in range(3):
        begun = len(passes)
        touched = {"metadata": {"annotations": {"example.com/number": str(number)}}}
        await client.merge_patch(TOY_OLD, key, touched, manager="somebody")
        assert set(await passes.further(begun)) == {AT_REST}, "it is known by now"
    assert uid_of(await client.get(TOY_OLD, key)) == uid_of(toy)
