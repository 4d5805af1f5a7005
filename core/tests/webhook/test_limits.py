"""What reaches the webhook's port without being a review (H3), while good reviews are answered and things go on.

What needs no API server to be seen, each single limit, is in test_port.py.

Times are those of `Limits`, made short here; what is asserted are answers, counts and the server's own accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from core.tests.webhook.conftest import Deployment, Register, head, status_of
from tests.support.reviews import Streams, WebhookClient, connected, exchanged, review_of
from tests.support.webhook import local_settings, running_webhook

from airunway.controller.application import CoreApplication, CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.process.connections import Cause
from airunway.process.metrics import Metrics
from airunway.resource import condition_of, key_of
from airunway.webhook import WebhookSettings
from airunway.webhook.application import Webhook
from airunway.webhook.server import AdmissionServer, Limits
from airunway_testing.eventually import PATIENCE, eventually

pytestmark = pytest.mark.apiserver

Good = Callable[[], Awaitable[None]]

MIB = 2**20
SHORT = Limits(handshake_seconds=1.0, head_seconds=1.0, body_seconds=1.0, wait_seconds=1.0)
PATIENT = Limits(handshake_seconds=60.0, head_seconds=60.0, body_seconds=60.0)
"""Nothing ends by time while a test looks on."""


@dataclass
class Port:
    """A running webhook with its limits, and ways to treat it badly."""

    limits: Limits
    place: WebhookSettings
    core: CoreApplication | None = None
    made: list[tuple[Webhook, Metrics]] = field(default_factory=list)

    @property
    def server(self) -> AdmissionServer:
        return self.made[0][0].server

    def turned_away(self, cause: Cause) -> float:
        value = self.made[0][1].registry.get_sample_value("airunway_webhook_turned_away_total", {"cause": cause})
        assert value is not None
        return value

    def connection(self, *, tls: bool = True) -> AbstractAsyncContextManager[Streams]:
        """An open connection whose certificate is not verified."""
        return connected(self.place.bind_address, tls=tls)

    async def raw(self, *parts: bytes) -> bytes:
        """What comes back for these bytes, until the server ends the connection."""
        return await exchanged(self.place.bind_address, *parts)


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> Limits:
    """Set by `indirect` parameters; else short times."""
    found: Limits = getattr(request, "param", SHORT)
    return found


@pytest.fixture
def port(kubeconfig: Path, namespace: str, installed: None, limits: Limits) -> Iterator[Port]:
    with local_settings(namespace=namespace) as place:
        result = Port(limits, place)
        only_here = CoreSettings(namespaces=(namespace,))
        made = lambda webhook, metrics: result.made.append((webhook, metrics))  # noqa: E731
        with running_webhook(kubeconfig, place, settings=only_here, limits=limits, on_made=made) as core:
            result.core = core
            yield result


@pytest.fixture
async def good(port: Port, client: Client, deployment: Deployment) -> Good:
    """Asks for a good review on a new connection, and has the controller reconcile what it lets in."""
    number = 0

    async def ask() -> None:
        nonlocal number
        number += 1
        async with WebhookClient(client, port.place) as asking:
            assert await asking.problems(deployment()) == []
        obj = deployment(f"good-{number}")
        await client.create(MODEL_DEPLOYMENT, obj)
        async with asyncio.timeout(PATIENCE):
            while condition_of(await client.get(MODEL_DEPLOYMENT, key_of(obj)), "Validated") is None:
                await asyncio.sleep(0.02)

    return ask


# ---------------------------------------------------------------------------------------------- H3a: connections


@pytest.mark.parametrize("limits", [PATIENT], indirect=True)
@pytest.mark.parametrize("tls", [True, False], ids=["idle", "no handshake"])
async def test_idle_connections_beyond_the_limit_keep_nobody_out(port: Port, good: Good, tls: bool) -> None:
    """Of 200, fifty at a time: each new one ends the one that waits longest."""
    async with AsyncExitStack() as stack:
        for _ in range(4):
            opening = [stack.enter_async_context(port.connection(tls=tls)) for _ in range(50)]
            for one in opening:
                with suppress(OSError):
                    await one
        await good()
        assert port.server.connections.most <= port.limits.connections
        assert port.turned_away(Cause.CONNECTIONS) >= 200 - port.limits.connections


# --------------------------------------------------------------------------------------------- H3b: bodies and memory


@pytest.mark.parametrize("limits", [PATIENT], indirect=True)
async def test_h3b_unfinished_bodies_have_a_budget_and_keep_nobody_out(port: Port, good: Good) -> None:
    """Two of 15.7 MB are refused; of twenty just below the limit sixteen are read, and the others have to wait."""
    part = b" " * (port.limits.body_bytes - 2)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            assert status_of(await port.raw(head(15_700_000))) == 413
        for _ in range(20):
            _, writer = await stack.enter_async_context(port.connection())
            writer.write(head(port.limits.body_bytes) + part)
        intake = port.server.intake
        await eventually(lambda: port.turned_away(Cause.BUSY) >= 4)
        assert intake.held_bytes <= port.limits.memory_bytes + MIB
        await good()
        assert intake.most_held_bytes <= port.limits.memory_bytes + MIB
        assert intake.held_bytes >= port.limits.memory_bytes
    await eventually(lambda: intake.held_bytes == 0)


async def test_h3b_large_reviews_are_answered(port: Port, client: Client, deployment: Deployment) -> None:
    """Somebody who repairs an object as large as the API server stores them; reviews of that size go aside."""
    old = deployment(provider={"overrides": {"x": "v" * 1_500_000}})
    new = deployment(provider={"overrides": {"x": "w" * 10_000}, "name": "nobody"})
    async with WebhookClient(client, port.place) as asking:
        [problem] = await asking.problems(new, old=old)
        assert "nobody" in problem
        assert await asking.problems(deployment(), old=old) == []


# ---------------------------------------------------------------------------------------------------- H3c: floods


@pytest.mark.parametrize("limits", [Limits(reviews=4, wait_seconds=0.05)], indirect=True)
async def test_h3c_a_flood_of_reviews_is_answered_or_told_to_come_back(
    port: Port, client: Client, deployment: Deployment, good: Good, register: Register
) -> None:
    """Each by another user, so that each asks the API server; whatever is judged, few are at a time."""
    await register()
    seen: list[int] = []

    async def flood(worker: int) -> None:
        async with WebhookClient(client, port.place) as asking:
            for number in range(20):
                review = review_of(deployment(), user=f"user-{worker}-{number}", groups=[])
                seen.append((await asking.post(orjson.dumps(review)))[0])

    async with asyncio.TaskGroup() as group:
        for worker in range(10):
            group.create_task(flood(worker))
    assert len(seen) == 200
    assert set(seen) <= {200, 503}
    assert seen.count(503) == port.turned_away(Cause.BUSY)
    assert port.server.intake.most_judged <= 4
    await good()
    assert port.server.intake.judged == 0


async def test_h3c_a_flood_of_large_reviews_stops_neither_reviews_nor_reconciling(
    port: Port, client: Client, deployment: Deployment, good: Good
) -> None:
    done = asyncio.Event()
    seen: list[int] = []
    body = orjson.dumps(review_of(deployment(env=[{"name": f"A{n}", "value": "x" * 40} for n in range(20_000)])))
    assert port.server.intake.is_large(len(body))

    async def flood() -> None:
        async with WebhookClient(client, port.place) as asking:
            while not done.is_set():
                seen.append((await asking.post(body))[0])

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(flood())
        await eventually(lambda: len(seen) >= 3)
        await good()
        done.set()
    assert set(seen) <= {200, 503}
    assert 200 in seen
