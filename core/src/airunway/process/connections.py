"""Opens listening sockets and limits the connections of a port: their number, and the time of each step.

Any client that reaches the port can open connections. A new connection is therefore never refused in favour of an idle
one: at the limit, the connection that has waited longest for its peer is closed, first one that has had no answer yet.
A connection whose request is being processed stays.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

log = logging.getLogger(__name__)


_NO_IPV6 = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


@contextmanager
def listening(host: str, port: int, *, who: str = "", backlog: int = 128) -> Iterator[socket.socket]:
    """A socket that listens while the context is open.

    An empty `host` means every address: in an IPv6-only cluster the kubelet connects by IPv6. Raises OSError, naming
    `who` and the address.
    """
    try:
        listener = _bound(host, port, backlog)
    except (OSError, UnicodeError) as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        text = " ".join(filter(None, (who, f"cannot listen on {where}: {_reason(error)}")))
        raise OSError(getattr(error, "errno", None) or errno.EINVAL, text) from error
    with listener:
        listener.setblocking(False)
        yield listener


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "not a host name"
    if isinstance(error, socket.gaierror):  # its numbers are not those of the operating system
        return error.strerror or str(error)
    return os.strerror(error.errno or 0)


def _bound(host: str, port: int, backlog: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:  # the kernel knows IPv6, and it is disabled
                raise
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if host:
        socket.getaddrinfo(host, port, family)  # of a failure `create_server` keeps only the number
    return socket.create_server((host, port), family=family, backlog=backlog)


_GOODBYE_SECONDS = 1.0
"""Seconds that a peer has to close TLS properly and to read why it was turned away."""

_PAUSE_SECONDS = 0.1
"""Seconds until the next accept if the process has no file descriptor left."""


class Cause(StrEnum):
    """Why a connection or request was turned away; values of a metric's label."""

    CONNECTIONS = "connections"
    HANDSHAKE = "handshake"
    HEAD = "head"
    SIZE = "size"
    BODY = "body"
    BUSY = "busy"


OnTurnedAway = Callable[[Cause], None]


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits of a port."""

    connections: int = 128
    """Maximum of open connections, including unfinished handshakes."""

    accept_seconds: float = 0.01
    """Seconds between two accepts while more than half of the connections are open. In a flood each new connection
    replaces one: at this pace a connection lives for about a second, which is enough for a handshake and a verdict,
    and the handshakes leave CPU time to the controller.
    """

    handshake_seconds: float = 5.0
    head_seconds: float = 5.0
    """Seconds from the handshake to the end of the first request's head."""

    idle_seconds: float = 120.0
    """Seconds between requests; API servers close unused connections after 90 s."""

    head_lines: int = 32
    """Maximum lines of a request's head."""
    line_bytes: int = 4 * 2**10
    """Maximum bytes of a header or of the request line."""


_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Connection(web.RequestHandler):
    """One connection, from accept to end."""

    def __init__(self, connections: Connections, server: web.Server, limits: ConnectionLimits) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_seconds,
            access_log=None,  # type: ignore[arg-type] # as aiohttp's own runner takes it: there is none
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            max_headers=limits.head_lines,
            lingering_time=_GOODBYE_SECONDS,
            auto_decompress=False,  # API servers do not compress, and a small compressed body can become large
        )
        self._connections = connections
        self._head_seconds = limits.head_seconds
        self._patience: asyncio.TimerHandle | None = None
        self.waits_since = loop.time()
        self.proven = False
        """Whether it has had a useful answer (a verdict): API servers keep such connections and use them again."""
        self.judging = False
        """Whether its request is being processed; otherwise we wait for the peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._patience = asyncio.get_running_loop().call_later(self._head_seconds, self._too_slow)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.requested()
        self._connections.forget(self)
        super().connection_lost(exc)

    def requested(self) -> None:
        """The first request's head is complete."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def answered(self, *, proven: bool) -> None:
        """Its request has an answer; it waits for the next one."""
        self.judging = False
        self.proven = self.proven or proven
        self.waits_since = asyncio.get_running_loop().time()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP or is too large. aiohttp would log each with a traceback."""
        if status == 500:
            return super().handle_error(request, status, exc, message)
        self._connections.on_turned_away(Cause.HEAD)
        self.requested()
        large = isinstance(exc, LineTooLong) or (isinstance(exc, BadHttpMessage) and "Too many" in exc.message)
        status, text = (431, "the request's head is too large") if large else (status, "this is not HTTP/1.1")
        response = web.Response(status=status, text=text)
        response.force_close()
        return response

    def _too_slow(self) -> None:
        self._patience = None
        self._connections.on_turned_away(Cause.HEAD)
        if self.transport is not None:
            self.transport.write(_TOO_SLOW)
        self.force_close()


class Connections:
    """Accepts connections, with TLS if there is a context, up to the limit.

    `port` names the port in the log.
    """

    def __init__(
        self, tls: ssl.SSLContext | None, limits: ConnectionLimits, *, port: str, on_turned_away: OnTurnedAway
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._port = port
        self._open: dict[Connection, asyncio.Task[None]] = {}
        self.on_turned_away = on_turned_away
        self.most = 0
        """The highest number of connections that were open at a time."""

    def __len__(self) -> int:
        return len(self._open)

    async def accept(self, listener: socket.socket, server: web.Server) -> None:
        """Serve the connections to `listener` until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    peer, _ = await loop.sock_accept(listener)
                except OSError as error:  # no file descriptors left, or the peer has closed already
                    log.warning("%s could not accept a connection: %s", self._port, error)
                    self.on_turned_away(Cause.CONNECTIONS)
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                if len(self._open) >= self._limits.connections:
                    self.on_turned_away(Cause.CONNECTIONS)
                    if not self._make_room():
                        peer.close()
                        continue
                connection = Connection(self, server, self._limits)
                self._open[connection] = asyncio.create_task(self._welcome(connection, peer), name="handshake")
                self.most = max(self.most, len(self._open))
                crowded = 2 * len(self._open) > self._limits.connections
                await asyncio.sleep(self._limits.accept_seconds if crowded else 0)
        finally:
            unfinished = [task for task in self._open.values() if not task.done()]
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    async def _welcome(self, connection: Connection, peer: socket.socket) -> None:
        """Do the handshake; afterwards the connection runs by itself."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                peer,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.handshake_seconds if self._tls else None,
                ssl_shutdown_timeout=_GOODBYE_SECONDS if self._tls else None,
            )
        except OSError:  # no TLS, too slow, closed, or without the client certificate that we require
            self.forget(connection)
            self.on_turned_away(Cause.HANDSHAKE)
        except BaseException:
            self.forget(connection)
            with suppress(OSError):
                peer.close()
            raise

    def _make_room(self) -> bool:
        """Close one connection that waits for its peer; False if there is none."""
        waiting = [connection for connection in self._open if not connection.judging]
        if not waiting:
            return False
        connection = min(waiting, key=lambda one: (one.proven, one.waits_since))
        handshake = self._open.pop(connection)
        if handshake.done():
            connection.abort()
        else:
            handshake.cancel()
        return True


def connection_of(request: web.BaseRequest) -> Connection:
    """The connection of a request."""
    protocol: Any = request.protocol
    if not isinstance(protocol, Connection):
        raise TypeError(f"a request by {type(protocol).__name__}")
    return protocol
