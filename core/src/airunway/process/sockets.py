"""Sockets to be asked on: one host, or every address that the machine has, of either family."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["listening"]

_NO_IPV6 = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


@contextmanager
def listening(host: str, port: int, *, who: str = "", backlog: int = 128) -> Iterator[socket.socket]:
    """A socket that listens for as long as the context lasts.

    Without a `host` on every address: in a cluster that has IPv6 only, the kubelet comes from there. Raises OSError,
    which names the address, and `who` cannot listen there.
    """
    try:
        listener = _bound(host, port, backlog)
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        said = " ".join(filter(None, (who, f"cannot listen on {where}: {os.strerror(error.errno or 0)}")))
        raise OSError(error.errno, said) from error
    with listener:
        listener.setblocking(False)
        yield listener


def _bound(host: str, port: int, backlog: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:  # known to the kernel, and switched off
                raise
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)
