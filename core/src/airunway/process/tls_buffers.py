"""How much memory one TLS connection of this process has.

asyncio gives each connection a buffer of 256 KiB for what comes in, written full of zeros, and asks for as much again
for every read, while a TLS record has 16 KiB at most. A process of ours has some twenty connections to the API server,
and a webhook that is flooded 128.
"""

from __future__ import annotations

from asyncio import sslproto

__all__ = ["BUFFER", "small_tls_buffers"]

BUFFER = 32 * 2**10
"""Bytes for one connection: two records."""


def small_tls_buffers() -> None:
    """For every TLS connection that asyncio opens or takes from now on.

    The class and its attribute are not documented; they are the same from Python 3.11 to 3.14, and a test says when
    they are not. Without them connections are only larger.
    """
    sslproto.SSLProtocol.max_size = BUFFER
