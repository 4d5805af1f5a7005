"""What providers have refused of a deployment, which selection counts as a verdict (spec ruling 33). Pure.

A provider refuses with ``ProviderCompatible=False`` for the present generation. While nothing exists of a deployment
that names no provider, the next candidate is chosen, and ``status.selection`` keeps who refused and why. Any other
generation is a new question to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airunway.api.names import GROUP, provider_of_finalizer, provider_of_manager
from airunway.resource import Resource, condition_of, dig

__all__ = ["REFUSED_BY", "ProviderRefusal", "is_undecided", "refusals", "refused_by"]

REFUSED_BY = f"{GROUP}/refused-by"
"""Where a cached object has the answer of `refused_by`, in its metadata; never on an object of an API server."""

_WORDS = 192
"""Characters of a refusal that are kept: those of 32 providers have room in ``status.selection``."""

_CONDITION = "ProviderCompatible"
_OWNED = f'k:{{"type":"{_CONDITION}"}}'


@dataclass(frozen=True, kw_only=True)
class ProviderRefusal:
    """A provider's own words on the deployment of one generation."""

    generation: int
    reason: str
    message: str


def is_undecided(deployment: Resource) -> bool:
    """Whether another provider may be chosen yet: the spec names none, and nothing of the deployment exists."""
    if dig(deployment, "spec", "provider", "name") or dig(deployment, "status", "provider", "resourceName"):
        return False
    return not any(provider_of_finalizer(str(each)) for each in dig(deployment, "metadata", "finalizers", default=[]))


def refusals(deployment: Resource) -> dict[str, ProviderRefusal]:
    """By provider, what was refused of the present generation: as recorded before, and by the present provider."""
    generation = dig(deployment, "metadata", "generation", default=0)
    found = {}
    for candidate in dig(deployment, "status", "selection", "candidates", default=[]):
        entry = dig(candidate, "refusal")
        if isinstance(entry, Mapping) and entry.get("generation") == generation:
            found[str(candidate.get("name"))] = _refusal(entry, generation)
    present = dig(deployment, "status", "provider", "name")
    if present in refused_by(deployment):
        found[present] = _refusal(condition_of(deployment, _CONDITION) or {}, generation)
    return found


def refused_by(deployment: Resource) -> tuple[str, ...]:
    """The providers whose word ``ProviderCompatible=False`` of this generation is.

    The condition stays for a moment when another provider is chosen, and that one may say the same: only the owners of
    the field tell whose it is.
    """
    known = dig(deployment, "metadata", REFUSED_BY)
    if known is not None:
        return tuple(known)
    condition = condition_of(deployment, _CONDITION) or {}
    generation = dig(deployment, "metadata", "generation")
    if condition.get("status") != "False" or condition.get("observedGeneration") != generation:
        return ()
    owners = [
        provider_of_manager(str(entry.get("manager")))
        for entry in dig(deployment, "metadata", "managedFields", default=[])
        if isinstance(entry, Mapping) and dig(entry, "fieldsV1", "f:status", "f:conditions", _OWNED) is not None
    ]
    return tuple(sorted({owner for owner in owners if owner}))


def _refusal(said: Mapping[str, object], generation: int) -> ProviderRefusal:
    message = str(said.get("message", ""))
    if len(message) > _WORDS:
        message = f"{message[: _WORDS - 1]}…"
    return ProviderRefusal(generation=generation, reason=str(said.get("reason", ""))[:_WORDS], message=message)
