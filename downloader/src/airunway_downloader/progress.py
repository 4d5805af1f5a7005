"""How far a download is, and the HTTP endpoint that says so: ``GET /progress``."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["Listing", "Downloading", "Verifying", "Done"]

_WINDOW_S = 10.0
"""Seconds over which the speed is measured."""
_ANSWER_S = 2.0
"""Seconds that one client may take; clients are served one after another."""


class Progress:
    """Counts bytes; safe to use from several threads."""

    def __init__(self, artifact: str = "") -> None:
        self._artifact = artifact
        self._lock = threading.Lock()
        self._phase: Phase = "Listing"
        self._total = 0
        self._done = 0
        self._fetched = 0
        self._last_byte = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque([(self._last_byte, 0)])

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        with self._lock:
            self._phase = phase

    def expect(self, total: int) -> None:
        """Set the bytes of all files, and count from zero."""
        with self._lock:
            self._total, self._done = total, 0

    def found(self, count: int) -> None:
        """Count bytes that were there already; negative: bytes that are no good."""
        with self._lock:
            self._done += count

    def received(self, count: int) -> None:
        """Count bytes that a server sent."""
        now = time.monotonic()
        with self._lock:
            self._done += count
            self._fetched += count
            self._last_byte = now
            if now - self._samples[-1][0] >= 1:
                self._samples.append((now, self._fetched))
                while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW_S:
                    self._samples.popleft()

    @property
    def fetched(self) -> int:
        """Bytes that servers sent."""
        return self._fetched

    def idle_seconds(self) -> float:
        """Seconds since a server sent a byte."""
        return time.monotonic() - self._last_byte

    def answer(self) -> bytes:
        """The JSON of the endpoint, at most 4 KiB."""
        with self._lock:
            began, before = self._samples[0]
            passed = time.monotonic() - began
            found = {
                "artifact": self._artifact[:256],
                "totalBytes": self._total,
                "downloadedBytes": max(0, min(self._done, self._total)),
                "bytesPerSecond": int((self._fetched - before) / passed) if passed > 0 else 0,
                "phase": self._phase,
            }
        return json.dumps(found).encode()


class _Server(HTTPServer):
    def __init__(self, progress: Progress, host: str, port: int) -> None:
        self.progress = progress
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:  # IPv4 too, whatever the system's default is
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer's own would look for the name of the host.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that leave: their failures are no part of the download."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _ANSWER_S
    server: _Server

    def do_GET(self) -> None:
        body = self.server.progress.answer() if self.path == "/progress" else b"{}"
        self.send_response(200 if self.path == "/progress" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "airunway-download"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the core asks every ten seconds."""


def serve_progress(progress: Progress, *, host: str, port: int) -> int:
    """Serve `progress` from a thread until the process ends; returns the port, 0 where none could be opened.

    `host`: address to listen on; empty: every one of the pod, IPv4 and IPv6. A download goes on without the endpoint.
    """
    for address in (host,) if host else ("::", "0.0.0.0"):
        try:
            server = _Server(progress, address, port)
        except OSError as error:
            sys.stderr.write(f"progress cannot be served on port {port} of {address}: {error.strerror}\n")
            continue
        threading.Thread(target=_serve, args=(server,), name="progress", daemon=True).start()
        return int(server.server_address[1])
    return 0


def _serve(server: _Server) -> None:
    leave_signals_to_main()
    server.serve_forever()


def leave_signals_to_main() -> None:
    """Called by each thread: Python handles signals in the main one, which sleeps on if another gets them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
