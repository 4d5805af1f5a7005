"""Selection under a policy: what is left of the providers for a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from airunway.selection.facts import ProviderFacts
from airunway.validation.policy import Grants

__all__ = ["denied", "granted"]


def granted(providers: Iterable[ProviderFacts], grants: Grants) -> list[ProviderFacts]:
    """The providers that the namespace may use, each with only the engines that it may use."""
    if grants.providers is None and grants.engines is None:
        return list(providers)
    return [
        replace(provider, engines=tuple(e for e in provider.engines if grants.allows_engine(e.name)))
        for provider in providers
        if grants.allows_provider(provider.name)
    ]


def denied(providers: Iterable[ProviderFacts], grants: Grants) -> frozenset[str]:
    """The names of the providers that the namespace may not use."""
    return frozenset(provider.name for provider in providers if not grants.allows_provider(provider.name))
