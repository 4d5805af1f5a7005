"""The admission server behind kopf: TLS that follows the Secret without a restart, and answers that name the fields.

kopf routes a review to its handler and makes the answer of what the handler raised; its own `WebhookServer` is not
used because it restarts the listener for a new certificate, reads files for it, and has no place for the causes of a
refusal. The handler keeps nothing: what it is asked and what it found travel in a context variable. kopf itself gets
no more of the objects than their names: it would compare old and new, however large, for nobody.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube.decoding import decoded, shallow
from airunway.process.connections import Connections, OnTurnedAway, connection_of
from airunway.process.lean_kopf import kopf
from airunway.process.probes import parse_address
from airunway.process.sockets import listening
from airunway.resource import Resource, dig, key_of
from airunway.webhook.admission import Admission, Answer, User, at_once
from airunway.webhook.certificates import Material
from airunway.webhook.configuration import TIMEOUT_SECONDS
from airunway.webhook.intake import Intake, aside
from airunway.webhook.limits import Limits, TurnedAway
from airunway.webhook.settings import PATH, trust_clients_of

__all__ = ["AdmissionServer", "OnReview"]

log = logging.getLogger(__name__)

HANDLER = PATH.removeprefix("/")
_BACKLOG = 128
"""Connections that the system keeps for us until we accept them."""


@dataclass(kw_only=True)
class _Asked:
    """One review on its way through kopf."""

    obj: Resource
    old: Resource | None
    large: bool
    answer: Answer | None = None


_asked: ContextVar[_Asked] = ContextVar("asked")

Review = Callable[..., Awaitable[Mapping[str, Any]]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OnReview = Callable[[str, float], None]
"""Told of every review: ``allowed``, ``refused`` or ``failed`` (no verdict was reached), and the seconds it took."""


class AdmissionServer:
    """Listens at `address` once there is a certificate; given to kopf as ``settings.admission.server``."""

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
        """`client_ca` are the authorities by which clients must be certified (None: anybody may ask).

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
        self.intake = Intake(limits)
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
        """Show this certificate from the next connection on; one that cannot be used is passed over.

        Connections that are open go on: the API server checked their certificate when it opened them.
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

    def register(self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings) -> None:
        """Have kopf run this server and give it our handler."""
        settings.admission.server = self
        settings.admission.managed = None  # the configuration object is kept by the leader, see keeper.py
        # kopf logs each refusal as an error of the handler. Refusing is its work; our own errors we log ourselves.
        logging.getLogger("kopf.objects").setLevel(logging.CRITICAL)

        @kopf.on.validate(
            MODEL_DEPLOYMENT.group,
            MODEL_DEPLOYMENT.version,
            MODEL_DEPLOYMENT.plural,
            id=HANDLER,
            operations=["CREATE", "UPDATE"],
            registry=registry,
        )
        async def validate(userinfo: Mapping[str, Any], warnings: list[str], **_: Any) -> None:
            asked = _asked.get()
            answer = await self._admission.review(
                asked.obj, old=asked.old, user=_user(userinfo), run=aside if asked.large else at_once
            )
            asked.answer = answer
            warnings.extend(answer.warnings)
            if answer.refusal is not None:
                raise kopf.AdmissionError(answer.refusal.message, code=answer.refusal.code)

    async def __call__(self, review: Review) -> AsyncIterator[kopf.WebhookClientConfig]:
        """Serve until closed; `review` is kopf's way from a review to its answer."""
        await self._certified.wait()

        async def handle(request: web.Request) -> web.Response:
            try:
                async with self.intake.review(request) as body:
                    return await self._timed(review, body)
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
                yield {}  # nobody reads it: the configuration is not kopf's
                assert runner.server is not None
                await self.connections.accept(listener, runner.server)
        finally:
            self.listening = False
            await runner.cleanup()

    async def _timed(self, review: Review, body: bytearray) -> web.Response:
        started = monotonic()
        verdict = "failed"
        try:
            response, verdict = await self._answer(review, body)
        finally:
            if self._on_review is not None:
                self._on_review(verdict, monotonic() - started)
        return response

    async def _answer(self, review: Review, raw: bytearray) -> tuple[web.Response, str]:
        """The response, and what `OnReview` is told."""
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
                asked = _Asked(obj=request["object"], old=request.get("oldObject"), large=large)
                token = _asked.set(asked)
                try:
                    answer = dict(await review(_named(body), webhook=HANDLER, headers={}, sslpeer={}))
                    named = key_of(asked.obj)
                finally:
                    _asked.reset(token)
                    asked.obj, asked.old = {}, None  # a cancelled timer keeps its context, and so this, until it is due
        except TimeoutError:
            text = "no verdict in time: the API server did not answer the webhook's own question, or there is too much"
            return web.Response(status=504, text=text), "failed"
        except Exception:  # whatever goes wrong, the API server must get an answer, and we the traceback
            log.exception("a review could not be answered")
            text = "the review could not be answered; the log of the webhook says why"
            return web.Response(status=500, text=text), "failed"
        verdict, found = "allowed", asked.answer
        if found is not None and found.refusal is not None:
            # A question of ours that the API server did not answer is no verdict: nobody refused anything.
            verdict = "failed" if found.refusal.code >= 500 else "refused"
            answer["response"] = {**answer["response"], "status": found.refusal.status(named)}
        elif found is None and not dig(answer, "response", "allowed"):
            verdict = "failed"
            log.error("a review failed before a verdict: %s", dig(answer, "response", "status"))
        return web.Response(body=orjson.dumps(answer), content_type="application/json"), verdict


@web.middleware
async def _followed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tells the connection whom it waits for."""
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


def _named(body: Resource) -> Resource:
    """A review as kopf gets it: of the objects their names only. The review is not malformed."""
    request = body["request"]

    def named(obj: Resource | None) -> Resource | None:
        if obj is None:
            return None
        metadata = obj.get("metadata") or {}
        return {"metadata": {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}}

    return {
        **body,
        "request": {**request, "object": named(request["object"]), "oldObject": named(request.get("oldObject"))},
    }


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
    """A path under which OpenSSL, which takes nothing but paths, can read `content`; in memory where the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("airunway-webhook", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by us alone
        file.write(content)
        file.flush()
        yield file.name
