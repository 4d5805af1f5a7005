"""What speaks against a provider that a deployment names, in one set of words for admission and for status.

Data only: what a provider can do is read from its InferenceProviderConfig. The messages are those of the seeds' tables
("<Provider> does not support <engine> engine"), which the provider's own ``can_handle`` gives too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airunway.selection.facts import ProviderFacts, Request

__all__ = ["Misfit", "not_installed", "not_registered", "unsupported"]


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """One thing that the provider cannot do: the field that asks for it, and what to tell."""

    path: str
    message: str


def not_registered(name: str, providers: Iterable[ProviderFacts]) -> str:
    """The message for a provider that no InferenceProviderConfig stands for."""
    registered = ", ".join(sorted(provider.name for provider in providers)) or "none"
    return f"provider '{name}' is not registered (registered: {registered})"


def not_installed(name: str) -> str:
    """The message for a provider whose upstream is not there."""
    return f"Provider '{name}' CRD not installed in cluster"


def unsupported(request: Request, provider: ProviderFacts, *, engine: str | None) -> list[Misfit]:
    """What of `request` the provider does not offer; `engine` None: left open, so that any of its engines will do."""
    title = provider.title or provider.name
    facts = provider.engine(engine) if engine else None
    if engine and facts is None:
        return [Misfit(path="spec.engine.type", message=f"{title} does not support {engine} engine")]
    engines = [facts] if facts is not None else list(provider.engines)
    found = []
    if not any(request.mode in each.modes for each in engines):
        message = f"{title} does not support {request.mode} mode"
        if facts is not None and any(request.mode in each.modes for each in provider.engines):
            message += f" with {engine} engine"
        found.append(Misfit(path="spec.serving.mode", message=message))
    if not request.gpu and not any(each.cpu for each in engines):
        for_engine = f" for {engine} engine" if any(each.cpu for each in provider.engines) else ""
        message = f"{title} requires GPU{for_engine} (set resources.gpu.count > 0)"
        found.append(Misfit(path="spec.resources.gpu.count", message=message))
    return found
