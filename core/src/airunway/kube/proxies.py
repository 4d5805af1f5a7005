"""The proxy to the API server, from the environment, by the rules of Go's ``httpproxy``, which kubectl follows.

`HTTPS_PROXY` (or `HTTP_PROXY` for a server without TLS) names it. Entries of `NO_PROXY` are addresses, networks
(``10.0.0.0/8``), domains with all below them (``corp``), only what is below them (``.corp``, ``*.corp``), each with a
port or without, or ``*``. The loopback interface is never reached through a proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit

from airunway.kube.errors import ConfigError

_Address: TypeAlias = IPv4Address | IPv6Address


def proxy_of(server: str, environ: Mapping[str, str]) -> str:
    """Returns the URL of the proxy to use, or an empty string. Raises ConfigError for one that cannot be used."""
    parts = urlsplit(server)
    name = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    url = _of(environ, name)
    if not url:
        return ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if _bypassed(parts.hostname or "", port, _of(environ, "NO_PROXY")):
        return ""
    return checked(url if "://" in url else f"http://{url}", name)


def checked(url: str, what: str) -> str:
    """Returns the `url` of a proxy. Raises ConfigError, which begins with `what`, for one that cannot be used."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises ValueError for one that is not a port
    except ValueError:
        usable = False
    if not usable:
        shown = url.rpartition("@")[2]  # without a password
        raise ConfigError(f"{what} {shown!r} is not a proxy that can be used: write http://HOST:PORT")
    return url


def _of(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _bypassed(host: str, port: int, no_proxy: str) -> bool:
    address = _address_of(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, address, port) for entry in no_proxy.split(","))


def _matches(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Whether an entry of `NO_PROXY` means this host and port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, separator, wanted = entry.rpartition(":")
    if not separator or (":" in name and not name.startswith("[")):  # an IPv6 address without brackets has no port
        name, wanted = entry, ""
    if wanted not in ("", str(port)):
        return False
    name = name.removeprefix("[").removesuffix("]")
    if not name:
        return False
    if (other := _address_of(name)) is not None:
        return address == other
    domain = name.removeprefix("*")
    return host.endswith(domain) if domain.startswith(".") else host == domain or host.endswith(f".{domain}")


def _address_of(text: str) -> _Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
