"""Who may ask for what: the host's name, links for one use, cookies, the page's token. Pure; `server` applies it.

The pages are at ``http://<random>.localhost:<port>``: a cookie of 127.0.0.1 goes to every port of it, so to any other
program that listens there. The name is checked with each request, because any page of the internet can have its own
name resolve to 127.0.0.1. https://fetch.spec.whatwg.org/#http-cookie, https://owasp.org/www-community/attacks/DNS_Rebinding
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

COOKIE = "airunway-session"

LINK_SECONDS = 60.0
"""How long a link works that nobody has used."""

_MOST_SESSIONS = 16
_MOST_LINKS = 8

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer` a browser sends `Origin: null` with the forms of our own pages.
    "Referrer-Policy": "same-origin",
    "Server": "airunway",
}
"""Headers of every answer."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What of a request decides whether it is answered."""

    method: str
    path: str
    host: str
    cookie: str = ""
    site: str = ""
    """``Sec-Fetch-Site``; empty: the browser did not send it."""
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer that tells nothing."""

    status: int
    text: str


FORBIDDEN = Refusal(status=403, text="Forbidden")
_METHOD = Refusal(status=405, text="Method Not Allowed")


@dataclass(kw_only=True)
class Guard:
    """The sessions of one server."""

    port: int
    name: str = field(default_factory=lambda: f"{secrets.token_hex(8)}.localhost")
    clock: Callable[[], float] = monotonic
    _links: dict[str, float] = field(default_factory=dict)
    _sessions: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The only value of ``Host`` that is answered."""
        return f"{self.name}:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def link(self) -> str:
        """A new link for one use."""
        key = secrets.token_urlsafe(32)
        self._links[key] = self.clock() + LINK_SECONDS
        while len(self._links) > _MOST_LINKS:
            self._links.pop(next(iter(self._links)))
        return f"{self.origin}/login?key={key}"

    def log_in(self, key: str) -> str | None:
        """The cookie of a new session, for a link's key that is neither used nor old; None otherwise."""
        ends = self._links.pop(key, None)
        if ends is None or self.clock() > ends:
            return None
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = secrets.token_urlsafe(32)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        return cookie

    def token(self, cookie: str) -> str:
        """What a form of this session's pages sends back; empty for no session."""
        return self._sessions.get(cookie, "")

    def token_is_right(self, cookie: str, token: str) -> bool:
        """Whether a form is one of this session's pages."""
        wanted = self.token(cookie)
        return bool(wanted) and hmac.compare_digest(wanted.encode(), token.encode(errors="replace"))

    def refusal(self, asked: Asked) -> Refusal | None:
        """Why a request is not answered; None if it is. The token of a form is checked once its body is read."""
        if asked.host != self.host:
            return FORBIDDEN
        if asked.method not in ("GET", "POST"):
            return _METHOD
        if asked.path == "/login":
            return None if asked.method == "GET" else _METHOD
        if asked.cookie not in self._sessions:
            return FORBIDDEN
        if asked.method == "POST":
            if asked.site != "same-origin" or asked.origin not in ("", self.origin):
                return FORBIDDEN
        elif asked.site not in ("", "same-origin", "none"):
            return FORBIDDEN
        return None
