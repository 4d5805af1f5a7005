"""Loopback ports, reserved from their choice until their use."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Hold `count` free ports of 127.0.0.1 for as long as the context lasts.

    The sockets stay bound but never listen. With SO_REUSEADDR on both sides (Go's listeners set it) Linux lets a
    component listen on such a port, while it never hands the port to anybody who asks for "any free port": neither
    another control plane nor an outgoing connection can take it, not even between stopping a component and starting
    it again.
    """
    with contextlib.ExitStack() as sockets:
        ports: list[int] = []
        for _ in range(count):
            reservation = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reservation.bind(("127.0.0.1", 0))
            ports.append(int(reservation.getsockname()[1]))
        yield ports
