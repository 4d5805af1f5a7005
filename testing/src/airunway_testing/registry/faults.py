"""Faults of the local registry: each fits a kind of request and a repository, for some requests or for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Route: TypeAlias = Literal["catalog", "tags", "manifest", "blob", "token"]
"""What a request asks for."""


@dataclass(frozen=True, kw_only=True)
class HttpStatus:
    """The answer has this status and nothing else."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    """Further headers, such as Retry-After."""


@dataclass(frozen=True, kw_only=True)
class Redirect:
    """The request is redirected."""

    to: str
    """Address, or the path on the same host."""
    status: int = 307


@dataclass(frozen=True, kw_only=True)
class Hang:
    """No answer comes until so many seconds are over."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """200 with this body in place of the answer."""

    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    """Further headers, such as Link."""


Fault: TypeAlias = HttpStatus | Redirect | Hang | Garbage


@dataclass
class _Switched:
    fault: Fault
    route: Route | None
    repository: str | None
    left: int | None


class Faults:
    """The faults that are switched on; the first that fits a request counts."""

    def __init__(self) -> None:
        self._switched: list[_Switched] = []

    def inject(
        self, fault: Fault, *, route: Route | None = None, repository: str | None = None, times: int | None = None
    ) -> None:
        """Switch a fault on for `times` requests (None: until `clear`) of a route and a repository (None: of any)."""
        self._switched.append(_Switched(fault, route, repository, times))

    def clear(self) -> None:
        """Switch all faults off."""
        self._switched.clear()

    def take(self, route: Route, repository: str) -> Fault | None:
        """The fault that this request meets, and one use of it less."""
        for each in self._switched:
            if each.route in (None, route) and each.repository in (None, repository):
                if each.left is not None:
                    each.left -= 1
                    if each.left == 0:
                        self._switched.remove(each)
                return each.fault
        return None
