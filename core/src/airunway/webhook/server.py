"""The admission server that kopf runs: limits requests, answers reviews, loads a new certificate without a restart.

kopf's own `WebhookServer` restarts the listener for a new certificate, reads it from files, and cannot return the
causes of a refusal. kopf starts and stops this one (``settings.admission.server``); reviews do not pass through kopf.

Limits of connections are in `process/connections.py`; the other ports of the process have them too. Small bodies need
no budget, because there are no more of them than connections. Large bodies have a budget of their own, so that a client
that sends many of them blocks only other large reviews.

Sizes follow from the API server: it stores objects of up to 1.5 MiB, a review has at most two of them, and the API
server waits `TIMEOUT_SECONDS` for a verdict. The memory budget follows from that of the process (300
MiB): large bodies get 64 MiB, and only one large review at a time is decoded, which takes 25 times its size.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import kopf
import orjson
from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube.decoding import decoded, shallow
from airunway.process.connections import (
    Cause,
    ConnectionLimits,
    Connections,
    OnTurnedAway,
    connection_of,
    listening,
)
from airunway.process.probes import parse_address
from airunway.resource import Resource, dig, key_of, list_at
from airunway.webhook.admission import Admission, ReviewResult, User, at_once
from airunway.webhook.certificates import Material, serving_ends
from airunway.webhook.configuration import PATH, TIMEOUT_SECONDS, trust_clients_of

log = logging.getLogger(__name__)

_KIB, _MIB = 2**10, 2**20


class TurnedAway(Exception):
    """A request that is answered with an HTTP `status` and a text instead of a verdict."""

    def __init__(self, cause: Cause, status: int, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Limits(ConnectionLimits):
    """The limits of the webhook's port."""

    body_seconds: float = 5.0
    """Seconds from the end of the head to the end of the body."""

    wait_seconds: float = 3.0
    """Seconds that a request waits for its turn before it is refused with 503."""

    body_bytes: int = 4 * _MIB
    """Maximum bytes of a body: two objects of 1.5 MiB, the user, and JSON escapes."""

    large_bytes: int = 32 * _KIB
    """Bytes above which a body is large. Nearly none is, so a flood of large ones does not affect the others."""

    memory_bytes: int = 64 * _MIB
    """Memory for the bodies of large reviews, each counted as `body_bytes`."""

    reviews: int = 32
    """Maximum concurrent reviews; most of the time they wait for the API server."""


_LONGEST_REST = 0.1
"""Maximum seconds of a pause: an iteration of the loop may have been long for other reasons than the review."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RequestLimiter:
    """Admits requests. `held_bytes` and `judged` are the bytes and reviews in flight; ``most_…`` are their maxima."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._room = asyncio.Semaphore(max(1, limits.memory_bytes // limits.body_bytes))
        self._turns = asyncio.Semaphore(limits.reviews)
        self._large = asyncio.Lock()
        self._pace = Pace()
        self.held_bytes = self.most_held_bytes = 0
        self.judged = self.most_judged = 0

    def is_large(self, size: int) -> bool:
        """Whether a body of that many bytes is decoded and reviewed in a thread."""
        return size > self._limits.large_bytes

    @asynccontextmanager
    async def review(self, request: web.Request) -> AsyncIterator[bytearray]:
        """The body of a review, once it is its turn. Raises TurnedAway."""
        size = self._size_of(request)
        async with AsyncExitStack() as stack:
            if self.is_large(size):
                await stack.enter_async_context(_turn(self._room, self._limits.wait_seconds))
            self.held_bytes += size
            self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)
            stack.callback(self._release, size)
            body = await self._read(request, size)
            connection_of(request).judging = True
            await stack.enter_async_context(_turn(self._turns, self._limits.wait_seconds))
            if self.is_large(size):
                await stack.enter_async_context(_turn(self._large, self._limits.wait_seconds))
            await self._pace.begin()
            self.judged += 1
            self.most_judged = max(self.most_judged, self.judged)
            stack.callback(self._judged)
            yield body

    def _release(self, size: int) -> None:
        self.held_bytes -= size

    def _judged(self) -> None:
        self.judged -= 1

    def _size_of(self, request: web.Request) -> int:
        """The body's size according to the head; nothing of the body has been read yet."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise TurnedAway(Cause.HEAD, 415, "send the review as it is: encodings are not understood")
        size = request.content_length
        if size is None:
            raise TurnedAway(Cause.HEAD, 411, "send the review with a Content-Length")
        if size > self._limits.body_bytes:
            text = f"a review may have {self._limits.body_bytes} bytes, not {size}"
            raise TurnedAway(Cause.SIZE, 413, text)
        return size

    async def _read(self, request: web.Request, size: int) -> bytearray:
        body = bytearray()
        whole = False
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.content.iter_any():
                    body += chunk
            whole = True
        except TimeoutError as error:
            text = f"{len(body)} of {size} bytes after {self._limits.body_seconds:g} seconds"
            raise TurnedAway(Cause.BODY, 408, text) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            raise TurnedAway(Cause.BODY, 400, f"the body broke off after {len(body)} bytes") from error
        finally:
            if not whole:
                body.clear()  # the error keeps this frame alive, and aiohttp keeps the error
        return body


class Pace:
    """Starts one review at a time, and then pauses for as long as the loop's iteration took in which it started.

    The controller runs in the same loop, and one of its passes needs about ten iterations. If fifty reviews started in
    each, the pass would wait for hundreds of them.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def begin(self) -> None:
        """Return when the next review may start, in the order of the calls."""
        loop = asyncio.get_running_loop()
        await self._turn.acquire()
        try:
            if (rest := self._not_before - loop.time()) > 0:
                await asyncio.sleep(rest)
        except asyncio.CancelledError:
            self._turn.release()
            raise
        loop.call_soon(self._begun, loop.time())

    def _begun(self, at: float) -> None:
        """The iteration of the loop is over."""
        now = asyncio.get_running_loop().time()
        self._not_before = now + min(now - at, _LONGEST_REST)
        self._turn.release()


@asynccontextmanager
async def _turn(lock: asyncio.Semaphore | asyncio.Lock, patience: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(patience):
            await lock.acquire()
    except TimeoutError as error:
        raise TurnedAway(Cause.BUSY, 503, "too many reviews at a time, try again") from error
    try:
        yield
    finally:
        lock.release()


async def aside(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """The function's result, from a thread, so that the loop with the controller in it continues.

    A thread cannot be stopped. So a cancelled caller waits until it ends, and releases its resources only then.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # the result is not needed
        raise


# ------------------------------------------------------------------------------------------------ the server

_BACKLOG = 128
"""Connections that the system queues until we accept them."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OnReview = Callable[[str, float], None]
"""Called for every review with ``allowed``, ``refused`` or ``failed`` (no verdict), and its duration in seconds."""


class AdmissionServer:
    """Listens on `address` once there is a certificate; passed to kopf as ``settings.admission.server``."""

    def __init__(
        self,
        admission: Admission,
        *,
        address: str,
        client_ca: Path | None = None,
        limits: Limits | None = None,
        on_review: OnReview,
        on_turned_away: OnTurnedAway,
    ) -> None:
        """`client_ca` has the CAs of which one must have signed a client's certificate (None: any client may connect).

        Raises ValueError for a file without certificates, and for the address 0.
        """
        where = parse_address(address)
        if where is None:
            raise ValueError("the webhook's address must not be 0")
        self._where = where
        self._admission = admission
        self._on_review = on_review
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        if client_ca is not None:
            trust_clients_of(self._tls, client_ca)
        self._on_turned_away = on_turned_away
        limits = limits or Limits()
        self.intake = RequestLimiter(limits)
        self.connections = Connections(self._tls, limits, port="the webhook", on_turned_away=self._on_turned_away)
        self._certified = asyncio.Event()
        self._shown = b""
        self.certificate_ends: datetime | None = None
        """When the certificate that is shown ends; None before the first."""
        self.problem = ""
        """Why the Secret's newest certificate is not shown; empty if it is."""
        self.listening = False

    @property
    def unready(self) -> str | None:
        """Why no review can be answered yet, or None."""
        if not self._certified.is_set():
            return self.problem or "the webhook has no certificate yet"
        return None if self.listening else "the webhook does not listen yet"

    def show(self, material: Material | None) -> None:
        """Use this certificate for new connections; one that cannot be used is ignored.

        Open connections continue: the API server checked their certificate when it opened them.
        """
        if material is None or not material.serving:
            return
        pair = material.serving + material.serving_key
        if pair == self._shown:
            self.problem = ""
            return
        try:
            with _as_file(pair) as path:
                # A key that does not fit would take the present one out of the context, and end every handshake.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
                self._tls.load_cert_chain(path)
        except (ssl.SSLError, OSError) as error:
            self.problem = f"the certificate in the webhook's Secret cannot be used: {error}"
            log.error(self.problem)  # noqa: TRY400
            return
        self._shown, self.problem = pair, ""
        self.certificate_ends = serving_ends(material.serving)
        self._certified.set()
        log.info("the webhook shows a new certificate")

    async def __call__(self, _: object) -> AsyncIterator[kopf.WebhookClientConfig]:
        """Serve until closed; the interface that kopf requires of an admission server.

        The argument is kopf's own function for answering a review, which is not used (docs/decisions/0008).
        """
        await self._certified.wait()

        async def handle(request: web.Request) -> web.Response:
            try:
                async with self.intake.review(request) as body:
                    started, verdict = monotonic(), "failed"
                    try:
                        response, verdict = await self._answer(body)
                        return response
                    finally:
                        self._on_review(verdict, monotonic() - started)
            except TurnedAway as refused:
                self._on_turned_away(refused.cause)
                again = {"Retry-After": "1"} if refused.status == 503 else {}
                response = web.Response(status=refused.status, text=str(refused), headers=again)
                response.force_close()
                return response

        application = web.Application(middlewares=[_followed])
        application.router.add_post(PATH, handle)
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=3.0)
        await runner.setup()
        try:
            with listening(*self._where, who="the webhook", backlog=_BACKLOG) as listener:
                self.listening = True
                log.info("the webhook listens on port %d", self._where[1])
                yield {}  # not used: kopf does not manage the configuration
                assert runner.server is not None
                await self.connections.accept(listener, runner.server)
        finally:
            self.listening = False
            await runner.cleanup()

    async def _answer(self, raw: bytearray) -> tuple[web.Response, str]:
        """The response, and the verdict for `OnReview`."""
        large = self.intake.is_large(len(raw))
        run = aside if large else at_once
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS - 1):
                try:
                    body = await run(lambda: shallow(decoded(raw)))
                except orjson.JSONDecodeError as error:
                    return web.Response(status=400, text=f"the review is not JSON: {error}"), "failed"
                raw.clear()
                if (problem := _malformed(body)) is not None:
                    return web.Response(status=400, text=problem), "failed"
                request = body["request"]
                obj, old, user = request["object"], request.get("oldObject"), _user(request["userInfo"])
                answer = await self._admission.review(obj, old=old, user=user, run=run)
        except TimeoutError:
            text = (
                "no verdict in time: the API server did not answer a request of the webhook, or the webhook has too "
                "many reviews; try again"
            )
            return web.Response(status=504, text=text), "failed"
        except Exception:  # the API server must get an answer in any case, and the log the traceback
            log.exception("a review could not be answered")
            text = "the review could not be answered; the log of the webhook says why"
            return web.Response(status=500, text=text), "failed"
        verdict = "allowed"
        if answer.refusal is not None:
            # Without the API server's answer to the webhook's own request there is no verdict.
            verdict = "failed" if answer.refusal.code >= 500 else "refused"
        return web.Response(body=orjson.dumps(_reviewed(body, answer)), content_type="application/json"), verdict


@web.middleware
async def _followed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Records on the connection whether it waits for us or for its peer."""
    connection = connection_of(request)
    connection.requested()
    proven = False
    try:
        response = await handler(request)
        proven = response.status == 200
    finally:
        connection.answered(proven=proven)
    return response


def _reviewed(body: Resource, answer: ReviewResult) -> Resource:
    """The AdmissionReview with the response; kubectl shows the causes of a refusal by field."""
    request = body["request"]
    response: Resource = {"uid": request["uid"], "allowed": answer.refusal is None}
    if answer.refusal is not None:
        response["status"] = answer.refusal.status(key_of(request["object"]))
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return {"apiVersion": body.get("apiVersion"), "kind": body["kind"], "response": response}


def _malformed(body: object) -> str | None:
    """What is wrong with a review that no API server would send, or None."""
    request = dig(body, "request")
    if dig(body, "kind") != "AdmissionReview" or not isinstance(request, dict):
        return "the body is not an AdmissionReview with a request"
    kind = {"group": MODEL_DEPLOYMENT.group, "version": MODEL_DEPLOYMENT.version, "resource": MODEL_DEPLOYMENT.plural}
    if request.get("resource") != kind:
        return f"reviews of {MODEL_DEPLOYMENT} only, not of {str(request.get('resource'))[:200]}"
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return f"operations CREATE and UPDATE of the object only, not {str(request.get('operation'))[:200]}"
    if not isinstance(request.get("uid"), str) or not isinstance(dig(request, "userInfo"), dict):
        return "the request has no uid or no userInfo"
    old = request.get("oldObject")
    for name, obj in (("object", request.get("object")), ("oldObject", {} if old is None else old)):
        metadata = dig(obj, "metadata", default={})
        if not isinstance(obj, dict) or not isinstance(metadata, dict):
            return f"the request's {name} is not an object"
        if any(not isinstance(metadata.get(field, ""), str) for field in ("name", "namespace", "uid")):
            return f"the request's {name} has metadata that no API server sends"
    return None


def _user(info: Mapping[str, Any]) -> User:
    extra = info.get("extra")
    return User(
        name=str(info.get("username") or ""),
        uid=str(info.get("uid") or ""),
        groups=tuple(str(group) for group in list_at(info, "groups")),
        extra={
            str(name): tuple(str(value) for value in values)
            for name, values in (extra.items() if isinstance(extra, dict) else ())
            if isinstance(values, list)
        },
    )


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path from which OpenSSL, which accepts only paths, can read `content`; in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("airunway-webhook", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # only our own user can read it
        file.write(content)
        file.flush()
        yield file.name
