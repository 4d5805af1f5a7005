"""The server of the pages: routes, cookies, headers, and one stream of changes for each visible page."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias
from urllib.parse import urlencode

import orjson
from aiohttp import web

from airunway.kube import ApiError, Forbidden, KubeError
from airunway.redaction import bounded
from airunway.resource import ObjectKey
from airunway.snapshots.reader import denied
from airunway_ui.guard import COOKIE, FORBIDDEN, HEADERS, Asked, Guard, Refusal
from airunway_ui.identity import Identity
from airunway_ui.render import rendered
from airunway_ui.tree import Node, Patch, parsed, patches
from airunway_ui.watches import Shared, TooMany, Watches, soon

log = logging.getLogger(__name__)

MOST_STREAMS = 8
MOST_LOGS = 4
"""Logs, and answers of models, that one person reads at a time."""

MOST_BODY = 2 * 2**20
_CALM = 0.1
"""Seconds between two batches of changes."""

_BEAT = 15.0
"""Seconds after which a stream without changes says that it lives."""

_VERSION = "_v"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Draw: TypeAlias = Callable[[], Awaitable["Drawn"]]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a page shows now."""

    title: str
    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(kw_only=True)
class Site:
    """One person's pages."""

    guard: Guard
    identity: Identity
    watches: Watches
    streams: int = 0
    logs: int = 0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @asynccontextmanager
    async def a_log(self) -> AsyncIterator[None]:
        """A place for a log or an answer. Raises TooMany."""
        if self.logs >= MOST_LOGS:
            raise TooMany(f"{MOST_LOGS} logs and answers are open: close some of them")
        self.logs += 1
        try:
            yield
        finally:
            self.logs -= 1


SITE: web.AppKey[Site] = web.AppKey("site", Site)


def runner_of(site: Site) -> web.AppRunner:
    """Returns what serves the pages of a site. A page that is closed ends what it has asked for."""
    return web.AppRunner(_application(site), access_log=None, shutdown_timeout=1.0, handler_cancellation=True)


def _application(site: Site) -> web.Application:
    from airunway_ui import ask, details, edit, listing, reasons

    app = web.Application(middlewares=[_answers], client_max_size=MOST_BODY)
    app[SITE] = site
    edit.prepare(app)
    app.router.add_get("/login", _log_in)
    app.router.add_get("/static/{name}", _static)
    for routes in (listing.ROUTES, details.ROUTES, reasons.ROUTES, ask.ROUTES, edit.ROUTES):
        for method, path, handler in routes:
            app.router.add_route(method, path, handler)
    app.on_shutdown.append(_end_streams)
    # A preparation signal reaches streams, too, whose headers are sent before their handler returns.
    app.on_response_prepare.append(_with_headers)
    return app


async def _with_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value


async def _end_streams(app: web.Application) -> None:
    for task in app[SITE].tasks:
        task.cancel()


@web.middleware
async def _answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what the guard refuses, and answer errors with a page."""
    site = request.app[SITE]
    hosts = request.headers.getall("Host", [])
    asked = Asked(
        method=request.method,
        path=request.path,
        host=hosts[0] if len(hosts) == 1 else "",
        cookie=request.cookies.get(COOKIE, ""),
        site=request.headers.get("Sec-Fetch-Site", ""),
        origin=request.headers.get("Origin", ""),
    )
    refusal = site.guard.refusal(asked)
    if refusal is not None:
        return _refused(refusal)
    try:
        if request.method == "POST":
            form = await request.post()
            if not site.guard.token_is_right(asked.cookie, str(form.get("token", ""))):
                return _refused(FORBIDDEN)
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return problem_page(request, f"The form has more than {MOST_BODY // 2**20} MiB.", status=413)
    except web.HTTPException as error:
        if error.status in (404, 405):
            return problem_page(request, "There is no such page.", status=error.status)
        raise
    except TooMany as error:
        return problem_page(request, f"{error}.", status=429)
    except Forbidden as error:
        return problem_page(request, f"{denied(error, request.match_info.get('namespace', ''))}.", status=403)
    except ApiError as error:
        status = error.status if 400 <= error.status < 500 else 502
        return problem_page(request, bounded(error.message or str(error), 1000), status=status)
    except KubeError as error:
        return problem_page(request, bounded(str(error), 1000), status=502)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("%s %s failed", request.method, bounded(request.path, 200))
        return problem_page(
            request, "The page cannot be made: an error in airunway ui, which is in its log.", status=500
        )


def _refused(refusal: Refusal) -> web.Response:
    return web.Response(status=refusal.status, text=refusal.text)


def problem_page(request: web.Request, text: str, *, status: int) -> web.Response:
    """A page with one sentence."""
    return page(request, Drawn(title="AI Runway", template="problem.html", values={"text": text}, status=status))


# ------------------------------------------------------------------------------------------------------------ the pages


def context(request: web.Request) -> dict[str, Any]:
    """What every template has."""
    site = request.app[SITE]
    return {
        "token": site.guard.token(request.cookies.get(COOKIE, "")),
        "lost": site.identity.lost,
        "who": site.identity.name,
        "server": site.identity.client.config.server,
        "place": request.path,
        "loading": False,
    }


def page(request: web.Request, drawn: Drawn, *, live: bool = False) -> web.Response:
    """A whole page; with `live` a script keeps its main part up to date."""
    values = {**context(request), **drawn.values}
    main = rendered(drawn.template, values)
    frame = {
        **values,
        "title": drawn.title,
        "main": main,
        "live": live,
        "version": _digest(parsed(main)) if live else "",
    }
    text = rendered("frame.html", frame)
    return web.Response(status=drawn.status, text=text, content_type="text/html")


def _digest(tree: Node) -> str:
    return hashlib.sha256(orjson.dumps(tree)).hexdigest()[:16]


async def live_page(request: web.Request, shared: Shared, draw: Draw) -> web.StreamResponse:
    """A page of what changes: itself, or the stream of its changes."""
    if "text/event-stream" in request.headers.get("Accept", ""):
        return await _stream(request, shared, draw)
    await soon(shared.known())
    return page(request, await draw(), live=True)


async def _stream(request: web.Request, shared: Shared, draw: Draw) -> web.StreamResponse:
    site = request.app[SITE]
    if site.streams >= MOST_STREAMS:
        raise TooMany(f"{MOST_STREAMS} pages are open and visible: close some of them")
    site.streams += 1
    task = asyncio.current_task()
    assert task is not None
    site.tasks.add(task)
    try:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(b"retry: 1000\n\n")
        await _send_changes(request, response, shared, draw)
    except (ConnectionError, asyncio.CancelledError):
        pass  # the page was closed, or the server ends
    finally:
        site.tasks.discard(task)
        site.streams -= 1
    return response


async def _send_changes(request: web.Request, response: web.StreamResponse, shared: Shared, draw: Draw) -> None:
    """Send what changes until the page is closed. A slow reader gets fewer and larger steps, never a queue of them."""
    signals = (shared.signal, request.app[SITE].identity.connection)
    known, title = request.query.get(_VERSION, ""), ""
    tree: Node | None = None
    while True:
        versions = [signal.version for signal in signals]
        drawn = await draw()
        new = parsed(rendered(drawn.template, {**context(request), **drawn.values}))
        main: Node = ["main", {"id": "main"}, new[2]]
        changed: list[Patch] = list(patches(tree, main)) if tree is not None else [main] * (_digest(new) != known)
        if changed or (tree is not None and drawn.title != title):
            data = orjson.dumps({"title": drawn.title, "patches": changed})
            await response.write(b"event: patch\ndata: " + data + b"\n\n")
        tree, title = main, drawn.title
        await asyncio.sleep(_CALM)
        while not await _any_after(signals, versions):
            await response.write(b": still here\n\n")


async def _any_after(signals: tuple[Any, ...], versions: list[int]) -> bool:
    """Whether one of them changes within `_BEAT`."""
    waits = [asyncio.ensure_future(signal.after(version)) for signal, version in zip(signals, versions, strict=True)]
    try:
        done, _ = await asyncio.wait(waits, timeout=_BEAT, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for each in waits:
            each.cancel()


def key_in(request: web.Request) -> ObjectKey:
    """The deployment that a path names. Raises HTTPNotFound for names that no object can have."""
    namespace, name = request.match_info["namespace"], request.match_info["name"]
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        raise web.HTTPNotFound
    return ObjectKey(namespace, name)


def address(path: str, **query: object) -> str:
    """A path with those parts of a query that are not empty."""
    text = urlencode({name: str(value) for name, value in query.items() if value not in ("", None, False)})
    return f"{path}?{text}" if text else path


def see_other(path: str) -> web.Response:
    """To another page, after a form did what it was for."""
    return web.Response(status=303, headers={"Location": path})


# -------------------------------------------------------------------------------------------------- login, static files


async def _log_in(request: web.Request) -> web.Response:
    guard = request.app[SITE].guard
    cookie = guard.log_in(request.query.get("key", ""))
    if cookie is None:
        return _refused(FORBIDDEN)
    # A redirect would go on as what led here, from another site perhaps, and so without the cookie: SameSite=Strict.
    response = web.Response(text=rendered("login.html", {}), content_type="text/html")
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="Strict", path="/")
    return response


_TYPES = {"app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in _TYPES:
        raise web.HTTPNotFound
    body = (files("airunway_ui") / "static" / name).read_bytes()
    return web.Response(body=body, content_type=_TYPES[name], charset="utf-8")
