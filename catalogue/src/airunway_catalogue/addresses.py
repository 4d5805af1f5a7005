"""Keeps a registry from making this process ask addresses inside the network (server-side request forgery).

A registry on the internet may redirect to another host on the internet; one in a private network may redirect to hosts
in private networks. Neither may lead to this machine or to link-local addresses, where clouds have their metadata.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from enum import StrEnum

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

__all__ = ["AddressGuard", "GuardedResolver", "InsideAddress", "Kind", "UntrustedHome", "is_literal", "kind_of"]


class Kind(StrEnum):
    """Who can be reached at an address."""

    OUTSIDE = "public"
    PRIVATE = "private"
    LINK_LOCAL = "link-local"
    LOOPBACK = "loopback"
    OTHER = "reserved"


class InsideAddress(OSError):
    """A host has an address that it must not have; the text is the kind of that address."""


class UntrustedHome(InsideAddress):
    """A registry that no administrator has named has an address that only those may have that one has named."""


_SHARED = ipaddress.ip_network("100.64.0.0/10")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def kind_of(address: str) -> Kind:
    """Of what kind an IP address is; an IPv4 address inside an IPv6 address counts."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return Kind.OTHER
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return kind_of(str(inner))
    if ip.is_loopback:
        return Kind.LOOPBACK
    if ip.is_link_local or str(ip) == "fd00:ec2::254":  # the metadata service of a cloud over IPv6
        return Kind.LINK_LOCAL
    if ip.is_unspecified or ip.is_multicast or ip.is_reserved:
        return Kind.OTHER
    if ip.is_private or (isinstance(ip, ipaddress.IPv4Address) and ip in _SHARED):
        return Kind.PRIVATE
    return Kind.OUTSIDE if ip.is_global else Kind.OTHER


class AddressGuard:
    """The addresses to which requests for one registry may go: those of `home`, public ones, and those of its kind.

    If `home` is not `trusted`, its own address must be a public or a private one.
    """

    def __init__(self, home: str, *, trusted: bool = True, kind: Callable[[str], Kind] = kind_of) -> None:
        self._home = home
        self._at_home = frozenset(Kind) if trusted else frozenset((Kind.OUTSIDE, Kind.PRIVATE))
        self._kind = kind
        self._allowed = {Kind.OUTSIDE}
        if is_literal(home):
            self._allowed |= {kind(home)} & self._at_home

    def check_literal(self, host: str) -> None:
        """Check a host that is an address itself, for which no name is resolved. Raises InsideAddress."""
        if is_literal(host):
            self.check(host, [host])

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Check the addresses of a host. Raises InsideAddress if any of them is not allowed."""
        kinds = [self._kind(address) for address in addresses]
        if host == self._home:
            if wrong := next((kind for kind in kinds if kind not in self._at_home), None):
                raise UntrustedHome(f"a {wrong} address")
            self._allowed.update(kinds)
            return
        if wrong := next((kind for kind in kinds if kind not in self._allowed), None):
            raise InsideAddress(f"a {wrong} address")


def is_literal(host: str) -> bool:
    """Whether a host is an IP address and no name."""
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


class GuardedResolver(AbstractResolver):
    """Resolves names and checks every address before a connection is made: a name cannot change in between."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host. Raises OSError."""
        found = await self._inner.resolve(host, port, family)
        self._guard.check(host, [each["host"] for each in found])
        return found

    async def close(self) -> None:
        """Nothing is kept."""
        await self._inner.close()
