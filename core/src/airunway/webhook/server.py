"""The admission server that kopf runs: it answers reviews and loads a new certificate without a restart.

kopf's own `WebhookServer` restarts the listener for a new certificate, reads it from files, and cannot return the
causes of a refusal. kopf starts and stops this one (``settings.admission.server``); reviews do not pass through kopf.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import kopf
import orjson
from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube.decoding import decoded, shallow
from airunway.process.connections import Connections, OnTurnedAway, connection_of, listening
from airunway.process.probes import parse_address
from airunway.resource import Resource, dig, key_of
from airunway.webhook.admission import Admission, ReviewResult, User, at_once
from airunway.webhook.certificates import Material
from airunway.webhook.configuration import PATH, TIMEOUT_SECONDS, trust_clients_of
from airunway.webhook.request_limits import Limits, RequestLimiter, TurnedAway, aside

__all__ = ["AdmissionServer", "OnReview"]

log = logging.getLogger(__name__)

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
        on_review: OnReview | None = None,
        on_turned_away: OnTurnedAway | None = None,
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
        self._on_turned_away = on_turned_away or (lambda _cause: None)
        limits = limits or Limits()
        self.intake = RequestLimiter(limits)
        self.connections = Connections(self._tls, limits, port="the webhook", on_turned_away=self._on_turned_away)
        self._certified = asyncio.Event()
        self._shown = b""
        self.listening = False

    @property
    def unready(self) -> str | None:
        """Why no review can be answered yet, or None."""
        if not self._certified.is_set():
            return "the webhook has no certificate yet"
        return None if self.listening else "the webhook does not listen yet"

    def show(self, material: Material | None) -> None:
        """Use this certificate for new connections; one that cannot be used is ignored.

        Open connections continue: the API server checked their certificate when it opened them.
        """
        if material is None or not material.serving or material.serving == self._shown:
            return
        try:
            with _as_file(material.serving + material.serving_key) as path:
                self._tls.load_cert_chain(path)
        except (ssl.SSLError, OSError) as error:
            log.error("the certificate in the webhook's Secret cannot be used: %s", error)  # noqa: TRY400
            return
        self._shown = material.serving
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
                    return await self._timed(body)
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

    async def _timed(self, body: bytearray) -> web.Response:
        started = monotonic()
        verdict = "failed"
        try:
            response, verdict = await self._answer(body)
        finally:
            if self._on_review is not None:
                self._on_review(verdict, monotonic() - started)
        return response

    async def _answer(self, raw: bytearray) -> tuple[web.Response, str]:
        """The response, and the verdict for `OnReview`."""
        large = self.intake.is_large(len(raw))
        run = aside if large else at_once
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS - 1):
                try:
                    body = await run(_value_of, raw)
                except orjson.JSONDecodeError as error:
                    return web.Response(status=400, text=f"the review is not JSON: {error}"), "failed"
                raw.clear()
                if (problem := _malformed(body)) is not None:
                    return web.Response(status=400, text=problem), "failed"
                request = body["request"]
                obj, old, user = request["object"], request.get("oldObject"), _user(request["userInfo"])
                answer = await self._admission.review(obj, old=old, user=user, run=run)
        except TimeoutError:
            text = "no verdict in time: the API server did not answer the webhook's own question, or there is too much"
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


def _value_of(raw: bytearray) -> Any:
    """The JSON value of a body. Raises orjson.JSONDecodeError."""
    return shallow(decoded(raw))


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
    groups, extra = info.get("groups"), info.get("extra")
    return User(
        name=str(info.get("username") or ""),
        uid=str(info.get("uid") or ""),
        groups=tuple(str(group) for group in groups) if isinstance(groups, list) else (),
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
