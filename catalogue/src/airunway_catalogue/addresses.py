"""Where a registry is, and to which addresses it may lead this process (server-side request forgery).

``registry.example/team`` is the host ``registry.example`` and the folder ``team``, in which the image ``llama`` is the
repository ``team/llama``. A registry on the internet may redirect to another host on the internet; one in a private
network may redirect to hosts in private networks. Neither may lead to this machine or to link-local addresses, where
clouds have their metadata.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from airunway.references import is_image


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

    If `home` is not `trusted`, because no administrator has named it, its own address must be public: else a user could
    look for open ports in private networks by the answers.
    """

    def __init__(self, home: str, *, trusted: bool = True, kind: Callable[[str], Kind] = kind_of) -> None:
        self._home = home
        self._at_home = frozenset(Kind) if trusted else frozenset((Kind.OUTSIDE,))
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


_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:[0-9]{1,5})?|\[[0-9A-Fa-f:]{2,45}\](:[0-9]{1,5})?")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

_DOCKER_HUB = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
"""Hosts whose API is on another host, as container runtimes know it."""


@dataclass(frozen=True, kw_only=True)
class RegistryAddress:
    """Where a registry is."""

    name: str
    """As ``spec.registry`` has it; images are named with it."""
    host: str
    """Host of the API, with the port if it has one."""
    folder: str
    """Folder to which image names are relative; empty: none."""
    insecure: bool
    """Whether it speaks plain HTTP."""

    @property
    def url(self) -> URL:
        """The root of the API."""
        return URL(f"{'http' if self.insecure else 'https'}://{self.host}")

    def repository(self, image: str) -> str:
        """The repository of an image below the registry. ``docker.io`` keeps images without owner in ``library``."""
        path = f"{self.folder}/{image}" if self.folder else image
        return f"library/{path}" if self.host == _DOCKER_HUB["docker.io"] and "/" not in path else path

    def image(self, repository: str) -> str | None:
        """The image name of a repository, relative to the folder; None if it is not below the folder."""
        if not self.folder:
            return repository
        below = repository.removeprefix(f"{self.folder}/")
        return below if below != repository else None


def address_of(registry: str, *, insecure: bool) -> RegistryAddress:
    """Returns the address for ``spec.registry``: a host, a host and a port, or one of these and a folder."""
    host, _, folder = registry.partition("/")
    host = host.lower()
    return RegistryAddress(
        name=registry.rstrip("/"), host=_DOCKER_HUB.get(host, host), folder=folder.strip("/"), insecure=insecure
    )


def is_repository(name: object) -> bool:
    """Whether a registry may have a repository of this name."""
    return isinstance(name, str) and len(name) <= 255 and _REPOSITORY.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class ImageReference:
    """Where one image is."""

    host: str
    """The registry, as the reference names it; ``docker.io`` where it names none."""
    repository: str
    """Such as ``team/llama``."""
    version: str
    """Its digest, else its tag."""


def image_of(reference: str) -> ImageReference | None:
    """Where an image is, as container runtimes read a reference; None for a text that is none."""
    if not is_image(reference):
        return None
    name, at, digest = reference.partition("@")
    if at and not DIGEST.fullmatch(digest):
        return None
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", name
    path, colon, tag = path.partition(":")
    if (colon and not TAG.fullmatch(tag)) or not is_repository(path) or not _HOST.fullmatch(host):
        return None
    try:
        address = URL(f"https://{host}").host or ""
    except ValueError:  # a port that cannot be
        return None
    if ":" in address and not is_literal(address):
        return None
    return ImageReference(host=host.lower(), repository=path, version=digest or tag or "latest")
