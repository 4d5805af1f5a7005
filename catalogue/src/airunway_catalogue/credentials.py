"""Finds the credentials for a registry in pull Secrets, and reads what it asks for in ``WWW-Authenticate``. Pure.

In a Secret of type ``kubernetes.io/dockerconfigjson`` the entry for ``registry.example/team`` counts for all images
below that folder, the entry for ``registry.example`` for all others; as for kubelets, ``*.example`` counts for every
host with two labels, the second of which is ``example``. What is found is never part of a text: neither of
`repr` nor of a message. ``Bearer realm="https://auth.example/token",service="registry.example"`` (RFC 9110, section
11.6.1) asks for a token of that server.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from airunway.resource import Resource, dig

_KEY = ".dockerconfigjson"
_LONGEST = 2**20
_LONGEST_PATTERN = 512
_GLOB = re.compile(r"[*?\[]")
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


class UnreadableSecret(ValueError):
    """A Secret that has no readable credentials; the text says why, and nothing of its content."""


@dataclass(frozen=True)
class Credentials:
    """User and password for one registry."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of the header Authorization."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def credentials_in(secrets: Iterable[Resource], *, host: str, folder: str) -> Credentials | None:
    """Returns the credentials of the first Secret that has some for the registry. Raises UnreadableSecret."""
    for secret in secrets:
        entries = sorted(_entries(secret), key=lambda each: (_GLOB.search(each[0]) is not None, -len(each[0])))
        for place, entry in entries:
            if _covers(place, host, folder) and (found := _credentials(entry)) is not None:
                return found
    return None


def _entries(secret: Resource) -> Iterator[tuple[str, object]]:
    """The entries of a Secret by registry, without scheme and version of the API."""
    encoded = dig(secret, "data", _KEY)
    if not isinstance(encoded, str):
        raise UnreadableSecret(f"has no key {_KEY}: it must have the type kubernetes.io/dockerconfigjson")
    try:
        document = json.loads(base64.b64decode(encoded[:_LONGEST], validate=True))
    except (ValueError, binascii.Error, RecursionError):
        document = None
    auths = document.get("auths") if isinstance(document, dict) else None
    if not isinstance(auths, dict):
        raise UnreadableSecret(f"has a key {_KEY} that is no configuration of Docker")
    for place, entry in auths.items():
        yield _place(str(place)), entry


def _place(key: str) -> str:
    plain = key.strip().lower().removeprefix("https://").removeprefix("http://").rstrip("/")
    for suffix in ("/v1", "/v2"):
        plain = plain.removesuffix(suffix)
    return plain


def _covers(place: str, host: str, folder: str) -> bool:
    at, _, below = place.partition("/")
    hosts = _DOCKER_HUB if host in _DOCKER_HUB else (host,)
    same = any(_is_for(at.removesuffix(":443"), each.removesuffix(":443")) for each in hosts)
    return same and (not below or f"{folder}/".startswith(f"{below}/"))


def _is_for(pattern: str, host: str) -> bool:
    """Whether an entry is for this host: it is named, or each of its labels matches."""
    if pattern == host:
        return True
    patterns, labels = pattern.split("."), host.split(".")
    return len(pattern) <= _LONGEST_PATTERN and len(patterns) == len(labels) and all(map(fnmatchcase, labels, patterns))


def _credentials(entry: object) -> Credentials | None:
    if not isinstance(entry, dict):
        return None
    user, password = entry.get("username"), entry.get("password")
    if isinstance(user, str) and isinstance(password, str) and user:
        return Credentials(user, password)
    auth = entry.get("auth")
    if not isinstance(auth, str):
        return None
    try:
        user, found, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return Credentials(user, password) if found and user else None


_LONGEST_CHALLENGE = 8192
_SCHEME = re.compile(r"\s*,?\s*([A-Za-z][A-Za-z0-9-]{0,31})(?:\s+|$)(?!=)")
_PARAMETER = re.compile(r"\s*,?\s*([A-Za-z][A-Za-z0-9_-]{0,63})\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+))")


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """One way to prove who one is."""

    scheme: str
    """``bearer``, ``basic`` or another one, in lower case."""
    realm: str = ""
    """Of Bearer the address of the token server."""
    service: str = ""
    """Name under which that server knows the registry."""


def challenges_in(headers: Iterable[str]) -> Iterator[Challenge]:
    """The challenges of all such headers, in their order; Bearer before others. Total for any text."""
    found = [challenge for header in headers for challenge in _challenges(header[:_LONGEST_CHALLENGE])]
    yield from sorted(found, key=lambda each: each.scheme != "bearer")


def _challenges(header: str) -> Iterator[Challenge]:
    at = 0
    while (scheme := _SCHEME.match(header, at)) is not None:
        at = scheme.end()
        parameters: dict[str, str] = {}
        while (found := _PARAMETER.match(header, at)) is not None:
            name, quoted, plain = found.groups()
            parameters.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain)
            at = found.end()
        yield Challenge(
            scheme=scheme[1].lower(), realm=parameters.get("realm", ""), service=parameters.get("service", "")
        )
