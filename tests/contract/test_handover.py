"""From one provider to the next: what serves is let go only for one that can take it."""

from __future__ import annotations

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import toy_host

from airunway.api import names
from airunway.kube import Client
from airunway.resource import dig, labels_of, uid_of
from airunway_testing.expectations import reason_is, running_at
from airunway_testing.operator import until
from airunway_testing.toy.names import TOY

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]


async def test_real_llmd_4_a_provider_that_nobody_registered_takes_nothing_away_and_is_said_at_once(
    operator: Operator, client: Client
) -> None:
    """No webhook runs here: it would have refused the name."""
    user = await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    before = await client.get(TOY, key)
    generation = await operator.edit(key, provider={"name": "other"}, scaling={"replicas": 3})
    said = await until(client, key, reason_is("ProviderSelected", "ProviderNotFound"))
    assert dig(said, "status", "provider", "name") == "toy"
    degraded = await until(client, key, lambda d: dig(d, "status", "observedGeneration") == generation)
    assert (degraded["status"]["phase"], degraded["status"]["reason"]) == ("Degraded", "ProviderNotFound")
    assert "provider 'other' is not registered (registered: toy)" in degraded["status"]["message"]
    assert "what provider 'toy' runs stays" in degraded["status"]["message"]
    assert await operator.at_rest(TOY) == []
    live = await client.get(TOY, key)
    assert (uid_of(live), dig(live, "spec", "replicas")) == (uid_of(before), dig(before, "spec", "replicas"))
    assert [write for write in operator.writes(user) if write.startswith("delete")] == []
    # Whoever has the name registers: now it is handed over.
    await operator.provider(toy_host(name="other"), simulated=False)
    running = await until(client, key, running_at(generation))
    assert dig(running, "status", "provider", "name") == "other"
    live = await client.get(TOY, key)
    assert uid_of(live) != uid_of(before)
    assert labels_of(live)[names.PROVIDER] == "other"


async def test_real_llmd_4_the_mistake_is_taken_back_without_a_trace(operator: Operator, client: Client) -> None:
    await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    before = await client.get(TOY, key)
    await operator.edit(key, provider={"name": "tyo"})
    await until(client, key, reason_is("ProviderSelected", "ProviderNotFound"))
    await until(client, key, running_at(await operator.edit(key, provider={"name": "toy"})))
    assert uid_of(await client.get(TOY, key)) == uid_of(before)
