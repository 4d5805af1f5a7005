"""Reads what a registry asks for in ``WWW-Authenticate`` (RFC 9110, section 11.6.1). Pure.

``Bearer realm="https://auth.example/token",service="registry.example"`` asks for a token of that server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Challenge", "challenges_in"]

_LONGEST = 8192
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
    found = [challenge for header in headers for challenge in _challenges(header[:_LONGEST])]
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
