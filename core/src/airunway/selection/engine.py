"""Chooses the engine from the capabilities of the providers (spec/core.md, "Order of a pass", step 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airunway.selection.facts import STALE_AFTER, EngineFacts, ProviderFacts, Request

__all__ = ["NO_HEALTHY", "PREFERENCE", "EngineChoice", "choose_engine", "named_engine"]

NO_HEALTHY = "No healthy providers available"

PREFERENCE = ("vllm", "sglang", "trtllm", "llamacpp")
"""Engines in order of preference; all others come after these, by name."""


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The engine and the reason for it."""

    engine: str | None
    """None if no engine fits."""
    reason: str
    """Empty if no engine fits."""
    message: str
    """If no engine fits, it lists what the providers advertise."""
    kept: bool = False
    """Whether it stays because an upstream object was created for it."""


def choose_engine(
    request: Request, providers: Sequence[ProviderFacts], *, explicit: str | None, pinned: str | None, now: datetime
) -> EngineChoice:
    """Returns the engine that the spec names, otherwise the preferred one of those that fit.

    With a pinned provider only its engines count, whether it is ready or not: its capabilities are known, and the
    deployment waits for it. Otherwise providers count that are ready, have a fresh heartbeat, and allow automatic
    selection.
    """
    if explicit:
        return named_engine(explicit)
    if pinned:
        considered = [provider for provider in providers if provider.name == pinned]
        if not considered:
            return _none(f"provider '{pinned}' is not registered, so its engines are not known")
    else:
        considered = [provider for provider in providers if _open(provider, now)]
        if not providers:
            return _none("no providers registered (InferenceProviderConfig resources not found)")
        if not considered:
            named = ", ".join(sorted(p.name for p in providers if p.ready and not _silent(p, now)))
            return _none(
                f"the healthy providers are used only when named: set provider.name ({named})" if named else NO_HEALTHY
            )
    fitting: dict[str, str] = {}
    for provider in sorted(considered, key=lambda p: p.name):
        for engine in provider.engines:
            if fits(engine, request):
                fitting.setdefault(engine.name, provider.name)
    if not fitting:
        with_gpus = replace(request, gpu=True)
        if pinned and any(fits(engine, with_gpus) for provider in considered for engine in provider.engines):
            text = f"provider '{pinned}' requires GPU (set resources.gpu.count > 0)"
            return _none(f"{text}: no engine of it runs on CPU (advertised={_advertised(considered)})")
        return _none(
            f"no engines available from registered providers (hasGPU={str(request.gpu).lower()}, "
            f"servingMode={request.mode}, advertised={_advertised(considered)}); "
            "set resources.gpu.count, change serving.mode, or name engine.type and an image for it"
        )
    best = min(fitting, key=lambda name: (PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE), name))
    return EngineChoice(
        engine=best,
        reason=f"auto-selected from provider {fitting[best]} capabilities",
        message=f"Engine {best} auto-selected from provider capabilities",
    )


def named_engine(name: str) -> EngineChoice:
    """The engine that the spec names."""
    return EngineChoice(engine=name, reason="explicit engine selection", message="Engine explicitly specified in spec")


def fits(engine: EngineFacts, request: Request) -> bool:
    """Whether the engine, as this provider runs it, has the requested device and serving mode."""
    return (engine.gpu if request.gpu else engine.cpu) and request.mode in engine.modes


def _open(provider: ProviderFacts, now: datetime) -> bool:
    return provider.ready and not provider.explicit_only and not _silent(provider, now)


def _silent(provider: ProviderFacts, now: datetime) -> bool:
    silence = provider.silence(now)
    return silence is not None and silence >= STALE_AFTER


def _advertised(providers: Sequence[ProviderFacts]) -> str:
    parts = []
    for provider in sorted(providers, key=lambda p: p.name):
        for engine in sorted(provider.engines, key=lambda e: e.name):
            devices = [word for word, has in (("gpu", engine.gpu), ("cpu", engine.cpu)) if has]
            parts.append(f"{provider.name}/{engine.name}({', '.join([*devices, *sorted(engine.modes)])})")
    return "; ".join(parts) or "nothing"


def _none(message: str) -> EngineChoice:
    return EngineChoice(engine=None, reason="", message=message)
