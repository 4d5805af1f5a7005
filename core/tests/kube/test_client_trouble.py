"""The client when something is wrong: refused connections, answers of middle boxes, hints, redirects."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from aiohttp import web
from core.tests.kube.servers import answering
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import (
    NAMESPACE,
    AlreadyExists,
    ApiError,
    BadRequest,
    Client,
    ClusterConfig,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    MalformedAnswer,
    NotFound,
    RequestTimedOut,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
    api_error,
    is_retryable,
    retry_after_of,
)
from airunway.kube.errors import LONGEST_HINT
from airunway_testing.controlplane.certificates import new_authority


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("status", status=400), BadRequest),
        (Fault("status", status=401), Unauthorized),
        (Fault("status", status=403), Forbidden),
        (Fault("status", status=404), NotFound),
        (Fault("status", status=405), ApiError),
        (Fault("status", status=409), Conflict),
        (Fault("status", status=409, reason="AlreadyExists"), AlreadyExists),
        (Fault("status", status=410), Gone),
        (Fault("status", status=422), Invalid),
        (Fault("status", status=429, retry_after=7), TooManyRequests),
        (Fault("status", status=500), ServerError),
        (Fault("status", status=503), ServerError),
        (Fault("reset", count=2), ConnectionFailed),
        (Fault("lose-answer", count=2), ConnectionFailed),
        (Fault("hang"), RequestTimedOut),
        (Fault("garbage"), MalformedAnswer),
    ],
    ids=lambda value: f"{value.action} {value.status}" if isinstance(value, Fault) else "",
)
async def test_each_trouble_has_its_exception(
    fault: Fault, expected: type[KubeError], proxied: Client, proxy: FaultProxy
) -> None:
    proxy.inject(fault)
    with pytest.raises(expected) as caught:
        await proxied.list_all(NAMESPACE)
    error = caught.value
    assert type(error) is expected
    if isinstance(error, ApiError):
        assert error.status == fault.status
        assert error.message == f"injected {fault.status}"
        assert retry_after_of(error) == (fault.retry_after or 0)
        assert is_retryable(error) == (fault.status in (409, 429, 500, 503))
    else:
        assert isinstance(error, TransportError)
        assert is_retryable(error)
        assert "/api/v1/namespaces" in str(error) or "namespaces" in str(error)
        assert retry_after_of(error) == 0
    assert await proxied.list_all(NAMESPACE), "and the next request is fine"


async def test_a_refused_connection() -> None:
    async with Client(ClusterConfig(server="http://127.0.0.1:1")) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.get_path("/version")
    assert str(caught.value) == "GET /version: cannot connect to 127.0.0.1:1: Connection refused"


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client(ClusterConfig(server="http://127.0.0.1:1")).get_path("/version")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (502, b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (502, b"", ""),
        (500, b"\xff\xfe", "��"),
        (500, b"[1, 2]", ""),
        (500, b'{"message": 3, "details": 4, "reason": null}', "3"),
        (302, b"", ""),
    ],
)
async def test_error_answers_of_middle_boxes(status: int, body: bytes, message: str) -> None:
    async with answering(status, body) as client:
        with pytest.raises(ApiError) as caught:
            await client.get_path("/version")
    assert caught.value.status == status
    assert caught.value.message == message
    assert caught.value.details == {}
    assert caught.value.causes == []
    assert str(status) in str(caught.value)


@pytest.mark.parametrize("value", ["x", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
async def test_a_retry_after_that_is_no_number_is_ignored(value: str) -> None:
    async with answering(429, b"{}", **{"Retry-After": value}) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.get_path("/version")
    assert caught.value.retry_after is None


@pytest.mark.parametrize("value", ["301", "9999999999", "0" * 20 + "9" * 400])
async def test_l8_a_server_s_hint_parks_nothing_for_longer_than_five_minutes(value: str) -> None:
    async with answering(429, b"{}", **{"Retry-After": value}) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.get_path("/version")
    assert caught.value.retry_after == LONGEST_HINT == 300


@pytest.mark.parametrize("value", ["٣", "²", "1" * 5000 + "x"])
async def test_l8_digits_that_http_does_not_know_are_no_number(value: str) -> None:
    async with answering(429, b"{}", **{"Retry-After": value}) as client:
        with pytest.raises(ApiError) as caught:
            await client.get_path("/version")
    assert caught.value.retry_after is None


def test_h1_what_is_kept_of_an_error_answer_is_bounded() -> None:
    """Validation quotes what it refuses, once for each rule."""
    causes = [{"reason": "FieldValueInvalid", "field": "spec", "message": "x" * 100_000}] * 1_000
    error = api_error(422, {"message": "y" * 1_000_000, "details": {"name": "a", "causes": [*causes, 7]}})
    assert len(error.message) == 16 * 2**10
    assert len(error.causes) == 256
    assert {len(cause["message"]) for cause in error.causes} == {1024}
    assert (error.details["name"], error.causes[0]["field"]) == ("a", "spec")


@pytest.mark.parametrize("hint", [301, 10**400, 1e300, float("inf")])
def test_l8_a_hint_in_a_status_is_bounded_whatever_its_size(hint: float) -> None:
    error = api_error(429, {"details": {"retryAfterSeconds": hint}})
    assert error.retry_after == 300


async def test_s9_a_cluster_s_new_authority_is_read_once_the_old_one_no_longer_fits(tmp_path: Path) -> None:
    authorities = [new_authority(tmp_path / f"ca-{number}", name="cluster") for number in (1, 2)]
    pairs = [each.server(tmp_path / f"s{n}", name="api", hosts=["127.0.0.1"]) for n, each in enumerate(authorities)]
    mounted = tmp_path / "ca.crt"
    mounted.write_bytes(authorities[0].files.certificate.read_bytes())

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"major": "1"})

    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        ports = []
        for pair in pairs:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(pair.certificate, pair.key)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            ports.append(runner.addresses[-1][1])
        config = ClusterConfig(
            server=f"https://127.0.0.1:{ports[1]}", ca_data=mounted.read_bytes(), ca_file=mounted
        )  # the server has its new certificate already
        async with Client(config) as client:
            with pytest.raises(ConnectionFailed, match=r"certificate of 127\.0\.0\.1:\d+ is not trusted: \w+"):
                await client.get_path("/version")
            for content in (b"", b"half a fi"):
                mounted.write_bytes(content)
                with pytest.raises(ConnectionFailed):
                    await client.get_path("/version")
                assert client.config.ca_data == config.ca_data, "what cannot be used replaces nothing"
            mounted.write_bytes(authorities[1].files.certificate.read_bytes())
            with pytest.raises(ConnectionFailed):
                await client.get_path("/version")
            assert await client.get_path("/version") == {"major": "1"}
    finally:
        await runner.cleanup()


async def test_a_redirect_is_not_followed() -> None:
    """Credentials must not go where an answer points."""
    async with answering(307, b"", Location="http://127.0.0.1:1/stolen") as client:
        with pytest.raises(ApiError) as caught:
            await client.get_path("/version")
    assert caught.value.status == 307


def test_details_of_a_status() -> None:
    body = {"reason": "TooManyRequests", "details": {"retryAfterSeconds": 3, "causes": [{"field": "a"}, 5]}}
    error = api_error(429, body)
    assert (error.retry_after, error.causes) == (3.0, [{"field": "a"}])
    assert api_error(429, body, retry_after=1.0).retry_after == 1.0
    assert not is_retryable(ValueError("not ours"))
