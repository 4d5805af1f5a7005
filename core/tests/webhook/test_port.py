"""The webhook's port by itself, on the loopback: what no API server sends is ended or refused, and each for its cause.

The same limits as in test_limits.py, where there is an API server behind the port. Times are made short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, cast

import aiohttp
import orjson
import pytest
from core.tests.webhook.conftest import head, status_of
from cryptography import x509
from tests.support.reviews import Streams, connected, exchanged, review_of, unverified

from airunway.process.connections import Cause
from airunway.resource import Resource
from airunway.webhook import server as server_module
from airunway.webhook.admission import Admission, ReviewResult
from airunway.webhook.certificates import Material, new_authority
from airunway.webhook.configuration import PATH
from airunway.webhook.server import AdmissionServer, Limits
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.eventually import PATIENCE, eventually

MIB = 2**20
SHORT = Limits(handshake_seconds=0.5, head_seconds=0.5, body_seconds=0.5, wait_seconds=0.2, accept_seconds=0)
OBJECT: Resource = {"metadata": {"name": "llama", "namespace": "team"}, "spec": {}}


def material() -> Material:
    return new_authority(now=datetime.now(UTC), hosts=["127.0.0.1"])


@dataclass
class Port:
    """A port that lets everything in once `judges` is set."""

    number: int
    judges: asyncio.Event = field(default_factory=asyncio.Event)
    turned_away: list[Cause] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    judged: int = 0
    fault: Exception | None = None
    server: AdmissionServer = field(init=False)

    async def review(self, _: Resource, **__: Any) -> ReviewResult:
        """As `Admission`: the verdict on an object."""
        self.judged += 1
        await self.judges.wait()
        if self.fault is not None:
            raise self.fault
        return ReviewResult()

    def connection(self, *, tls: bool = True) -> AbstractAsyncContextManager[Streams]:
        """An open connection whose certificate is not verified."""
        return connected(f"127.0.0.1:{self.number}", tls=tls)

    async def raw(self, *parts: bytes) -> bytes:
        """What comes back for these bytes, until the server ends the connection."""
        return await exchanged(f"127.0.0.1:{self.number}", *parts)

    async def post(self, body: bytes, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"https://127.0.0.1:{self.number}{PATH}", data=BytesIO(body), headers=headers, ssl=unverified()
            ) as answer,
        ):
            return answer.status, await answer.read(), answer.headers


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> Limits:
    found: Limits = getattr(request, "param", SHORT)
    return found


@pytest.fixture
async def port(limits: Limits) -> AsyncIterator[Port]:
    with reserved_ports(1) as (number,):
        found = Port(number)
        server = found.server = AdmissionServer(
            cast("Admission", found),
            address=f"127.0.0.1:{number}",
            limits=limits,
            on_turned_away=found.turned_away.append,
            on_review=lambda verdict, _: found.verdicts.append(verdict),
        )
        assert server.unready == "the webhook has no certificate yet"
        server.show(material())
        assert server.unready == "the webhook does not listen yet"
        found.judges.set()

        async def serve() -> None:
            async for _ in server(None):
                pass

        serving = asyncio.create_task(serve())
        await eventually(lambda: server.listening)
        assert server.unready is None
        yield found
        serving.cancel()
        await asyncio.wait([serving])


REVIEW = orjson.dumps(review_of(OBJECT))


# --------------------------------------------------------------------------------------------------- time and heads


async def test_a_connection_without_a_handshake_ends(port: Port) -> None:
    async with port.connection(tls=False) as (reader, _), asyncio.timeout(PATIENCE):
        assert await reader.read() == b""
    assert port.turned_away == [Cause.HANDSHAKE]
    assert len(port.server.connections) == 0


@pytest.mark.parametrize("sent", [b"", b"POST /val", b"POST /validate HTTP/1.1\r\nHost: a\r\nX-"])
async def test_a_head_that_does_not_come_ends_with_408(port: Port, sent: bytes) -> None:
    assert status_of(await port.raw(sent)) == 408
    assert port.turned_away == [Cause.HEAD]


@pytest.mark.parametrize("sent", [b"", b"{"])
async def test_a_body_that_does_not_come_ends_with_408(port: Port, sent: bytes) -> None:
    assert status_of(await port.raw(head(1000), sent)) == 408
    assert port.turned_away == [Cause.BODY]
    assert port.server.intake.held_bytes == 0


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["X-Long: " + "x" * 5000], 431),
        ([f"X-{number}: x" for number in range(50)], 431),
        (["Content-Encoding: gzip"], 415),
        (["not a header"], 400),
    ],
)
async def test_heads_that_no_api_server_sends(port: Port, lines: list[str], status: int) -> None:
    assert status_of(await port.raw(head(2, *lines), b"{}")) == status
    assert port.turned_away == [Cause.HEAD]
    assert port.judged == 0


async def test_a_body_of_unknown_length_is_refused_with_411(port: Port) -> None:
    lines = [f"POST {PATH} HTTP/1.1", "Host: webhook", "Transfer-Encoding: chunked", "", "2", "{}", "0", "", ""]
    assert status_of(await port.raw("\r\n".join(lines).encode())) == 411


async def test_a_body_above_the_limit_is_refused_unread_and_one_at_the_limit_is_not(port: Port) -> None:
    assert status_of(await port.raw(head(4 * MIB + 1))) == 413
    assert port.turned_away == [Cause.SIZE]
    assert port.server.intake.most_held_bytes == 0
    body = REVIEW + b" " * (4 * MIB - len(REVIEW))
    assert (await port.post(body))[0] == 200


async def test_a_body_that_breaks_off_is_forgotten(port: Port) -> None:
    async with port.connection() as (_, writer):
        writer.write(head(3 * MIB) + b" " * MIB)
        await writer.drain()
        await eventually(lambda: port.server.intake.held_bytes == 3 * MIB)
    await eventually(lambda: port.server.intake.held_bytes == 0)
    await eventually(lambda: len(port.server.connections) == 0)


# ------------------------------------------------------------------------------------------------------ what it holds


PATIENT = Limits(handshake_seconds=60, head_seconds=60, body_seconds=60, wait_seconds=0.2, accept_seconds=0)


@pytest.mark.parametrize("limits", [Limits(connections=4, head_seconds=60, accept_seconds=0)], indirect=True)
async def test_where_there_is_no_room_the_one_goes_that_waited_longest_and_never_had_a_verdict(port: Port) -> None:
    async with AsyncExitStack() as stack:
        proven = await stack.enter_async_context(port.connection())
        proven[1].write(head(len(REVIEW)) + REVIEW)
        async with asyncio.timeout(PATIENCE):
            await proven[0].readuntil(b'"allowed":true')
        port.judges.clear()
        judged = await stack.enter_async_context(port.connection())
        judged[1].write(head(len(REVIEW)) + REVIEW)
        await eventually(lambda: port.judged == 2)
        idle = [await stack.enter_async_context(port.connection()) for _ in range(4)]
        async with asyncio.timeout(PATIENCE):
            for reader, _ in idle[:2]:
                assert await reader.read() == b""
        assert port.turned_away == [Cause.CONNECTIONS] * 2
        assert (len(port.server.connections), port.server.connections.most) == (4, 4)
        port.judges.set()
        for reader, writer in (proven, judged):
            if writer is proven[1]:
                writer.write(head(len(REVIEW)) + REVIEW)
            async with asyncio.timeout(PATIENCE):
                await reader.readuntil(b'"allowed":true')


@pytest.mark.parametrize(
    "limits",
    [Limits(body_seconds=60, wait_seconds=0.2, memory_bytes=8 * MIB, accept_seconds=0)],
    indirect=True,
)
async def test_large_bodies_have_a_budget_and_small_reviews_pass_beside_them(port: Port) -> None:
    """Two of four MiB are read; a third has to wait, and is told to come back."""
    async with AsyncExitStack() as stack:
        for _ in range(2):
            _, writer = await stack.enter_async_context(port.connection())
            writer.write(head(4 * MIB) + b" " * MIB)
        await eventually(lambda: port.server.intake.held_bytes == 8 * MIB)
        status, _, headers = await port.post(REVIEW + b" " * MIB)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert port.turned_away == [Cause.BUSY]
        assert (await port.post(REVIEW + b" " * (32 * 2**10 - len(REVIEW))))[0] == 200, "small: up to 32 KiB"
        assert (await port.post(REVIEW + b" " * (32 * 2**10 - len(REVIEW) + 1)))[0] == 503
    await eventually(lambda: port.server.intake.held_bytes == 0)
    assert (await port.post(REVIEW + b" " * MIB))[0] == 200


@pytest.mark.parametrize("limits", [Limits(reviews=3, wait_seconds=0.2, accept_seconds=0)], indirect=True)
async def test_so_many_reviews_at_a_time_and_the_others_are_told_to_come_back(port: Port) -> None:
    port.judges.clear()
    asked = [asyncio.create_task(port.post(REVIEW)) for _ in range(5)]
    await eventually(lambda: len(port.turned_away) == 2)
    assert port.server.intake.most_judged == port.judged == 3
    port.judges.set()
    assert sorted(status for status, _, _ in await asyncio.gather(*asked)) == [200, 200, 200, 503, 503]
    assert port.turned_away == [Cause.BUSY] * 2
    assert port.server.intake.judged == 0


@pytest.mark.parametrize("limits", [PATIENT], indirect=True)
async def test_of_large_reviews_one_is_judged_at_a_time(port: Port) -> None:
    port.judges.clear()
    large = REVIEW + b" " * MIB
    first = asyncio.create_task(port.post(large))
    await eventually(lambda: port.judged == 1)
    assert (await port.post(large))[0] == 503
    small = asyncio.create_task(port.post(REVIEW))
    await eventually(lambda: port.judged == 2)
    port.judges.set()
    assert {(await first)[0], (await small)[0]} == {200}


# ------------------------------------------------------------------------------------------------------- what it says


async def test_a_verdict_is_told_and_counted(port: Port) -> None:
    status, body, _ = await port.post(REVIEW)
    assert (status, orjson.loads(body)["response"]["allowed"]) == (200, True)
    assert port.verdicts == ["allowed"]


def changed(**request: Any) -> bytes:
    review = review_of(OBJECT)
    return orjson.dumps({**review, "request": {**review["request"], **request}})


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", b"not JSON"),
        (b"[]", b"not an AdmissionReview"),
        (orjson.dumps({**review_of(OBJECT), "kind": "Pod"}), b"not an AdmissionReview"),
        (orjson.dumps({"kind": "AdmissionReview", "request": []}), b"not an AdmissionReview"),
        (
            changed(resource={"group": "", "version": "v1", "resource": "pods"}),
            b"reviews of modeldeployments.airunway.ai only",
        ),
        (changed(operation="DELETE"), b"operations CREATE and UPDATE"),
        (changed(subResource="status"), b"operations CREATE and UPDATE"),
        (changed(uid=7), b"no uid or no userInfo"),
        (changed(userInfo=None), b"no uid or no userInfo"),
        (changed(object=None), b"request's object is not an object"),
        (changed(oldObject=[]), b"request's oldObject is not an object"),
        (changed(object={"metadata": {"name": 7}}), b"request's object has metadata"),
    ],
)
async def test_what_no_api_server_sends_is_answered_with_400_and_not_judged(
    port: Port, body: bytes, text: bytes
) -> None:
    status, answer, _ = await port.post(body)
    assert status == 400
    assert text in answer
    assert (port.judged, port.verdicts) == (0, ["failed"])


async def test_what_goes_wrong_inside_is_an_answer_too(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    port.fault = RuntimeError("of ours")
    status, answer, _ = await port.post(REVIEW)
    assert (status, port.verdicts) == (500, ["failed"])
    assert b"of ours" not in answer
    assert "of ours" in caplog.text


async def test_without_a_verdict_in_time_the_api_server_is_told_before_it_gives_up(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "TIMEOUT_SECONDS", 1.2)
    port.judges.clear()
    status, answer, _ = await port.post(REVIEW)
    assert (status, port.verdicts) == (504, ["failed"])
    assert b"no verdict in time" in answer


async def test_the_certificate_changes_without_a_new_listener_and_a_broken_one_is_passed_over(port: Port) -> None:
    async def shown() -> bytes:
        async with port.connection() as (_, writer):
            found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return found

    first_material = material()
    port.server.show(first_material)
    first = await shown()
    ends = port.server.certificate_ends
    port.server.show(None)
    port.server.show(Material(serving=b"nonsense", serving_key=b"nonsense"))
    for unfit in (first_material.serving, material().serving):
        port.server.show(Material(serving=unfit, serving_key=material().serving_key))
        assert "cannot be used" in port.server.problem
        assert await shown() == first, "the key that is in use stays"
    assert port.server.certificate_ends == ends
    port.server.show(first_material)
    assert port.server.problem == "", "the Secret is as before"
    port.server.show(material())
    assert await shown() != first
    presented = x509.load_der_x509_certificate(await shown())
    assert port.server.certificate_ends == presented.not_valid_after_utc
    assert (await port.post(REVIEW))[0] == 200
