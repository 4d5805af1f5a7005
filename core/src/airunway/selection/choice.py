"""Selects the engine and the provider of a deployment, within the limits of the policy.

The core's reconciler, ``airunway explain`` and ``airunway render`` all call `select_engine`,
`select_provider` or `provider_for`. docs/selection.md has the order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airunway.api.base import ParseError
from airunway.api.modeldeployment import defaulted_spec
from airunway.resource import Resource, dig
from airunway.selection.facts import EngineFacts, ProviderFacts, ProviderRefusal, Request, holder_of, request_of
from airunway.selection.provider import NO_HEALTHY, ProviderChoice, choose_provider, unsupported, weigh_at_best
from airunway.validation import Violation
from airunway.validation.policy import Grants, Policy, violations

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
    misfit: bool = False
    """Whether the providers are known and none of their engines can run the spec."""


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
        considered = [p for p in providers if p.ready and not p.explicit_only and not p.is_stale(now)]
        if not providers:
            return _none("no provider is registered (no InferenceProviderConfig exists): install the chart of one")
        if not considered:
            named = ", ".join(sorted(p.name for p in providers if p.ready and not p.is_stale(now)))
            return _none(
                f"the healthy providers are used only when named: set provider.name ({named})" if named else NO_HEALTHY
            )
    by_name = sorted(considered, key=lambda p: p.name)
    offers = [(engine, p.name) for p in by_name for engine in p.engines if fits(engine, request)]
    # An engine that some provider runs with all that is needed comes first.
    offers = [(engine, name) for engine, name in offers if _has_all(engine, request)] or offers
    fitting: dict[str, str] = {}
    for engine, name in offers:
        fitting.setdefault(engine.name, name)
    if not fitting:
        with_gpus = replace(request, gpu=True)
        if pinned and any(fits(engine, with_gpus) for provider in considered for engine in provider.engines):
            text = f"provider '{pinned}' requires GPU (set resources.gpu.count > 0)"
            text = f"{text}: no engine of it runs on CPU (advertised={_advertised(considered)})"
            return _none(text, misfit=True)
        return _none(
            f"no engines available from registered providers (hasGPU={str(request.gpu).lower()}, "
            f"servingMode={request.mode}, advertised={_advertised(considered)}); "
            "set resources.gpu.count, change serving.mode, or name engine.type and an image for it",
            misfit=True,
        )
    best = min(fitting, key=preference)
    without = "" if request.gpu else " (no GPU is requested in spec.resources.gpu.count)"
    return EngineChoice(
        engine=best,
        reason=f"auto-selected from provider {fitting[best]} capabilities{without}",
        message=f"Engine {best} auto-selected from provider capabilities",
    )


def preference(name: str) -> tuple[int, str]:
    """The place of an engine among others: those that are known in the order of `PREFERENCE`, then all others."""
    return PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE), name


def named_engine(name: str) -> EngineChoice:
    """The engine that the spec names."""
    return EngineChoice(engine=name, reason="explicit engine selection", message="Engine explicitly specified in spec")


def fits(engine: EngineFacts, request: Request) -> bool:
    """Whether the engine, as this provider runs it, has the requested device and serving mode."""
    return (engine.gpu if request.gpu else engine.cpu) and request.mode in engine.modes


def _has_all(engine: EngineFacts, request: Request) -> bool:
    return fits(engine, request) and not engine.lacks(request)


def misfit(deployment: Resource, provider: ProviderFacts, *, grants: Grants) -> str:
    """Returns why a provider cannot run a deployment, as far as its capabilities tell; empty if it may."""
    engine = dig(deployment, "spec", "engine", "type")
    request = request_of(defaulted_spec(deployment["spec"], engine=engine))
    usable = (each for each in provider.engines if engine in (None, "", each.name) and grants.allows_engine(each.name))
    if any(_has_all(each, request) for each in usable):
        return ""
    found = [each.message for each in unsupported(request, provider, engine=engine)]
    return "; ".join(found) or f"provider '{provider.name}' has no engine with all that the deployment needs"


def _advertised(providers: Sequence[ProviderFacts]) -> str:
    parts = []
    for provider in sorted(providers, key=lambda p: p.name):
        for engine in sorted(provider.engines, key=lambda e: e.name):
            devices = [word for word, has in (("gpu", engine.gpu), ("cpu", engine.cpu)) if has]
            parts.append(f"{provider.name}/{engine.name}({', '.join([*devices, *sorted(engine.modes)])})")
    return "; ".join(parts) or "nothing"


def _none(message: str, *, misfit: bool = False) -> EngineChoice:
    return EngineChoice(engine=None, reason="", message=message, misfit=misfit)


def granted(providers: Iterable[ProviderFacts], grants: Grants) -> list[ProviderFacts]:
    """Returns the providers that the namespace may use, each with only the engines that it may use."""
    if grants.providers is None and grants.engines is None:
        return list(providers)
    return [
        replace(provider, engines=tuple(e for e in provider.engines if grants.allows_engine(e.name)))
        for provider in providers
        if grants.allows_provider(provider.name)
    ]


def denied(providers: Iterable[ProviderFacts], grants: Grants) -> frozenset[str]:
    """Returns the names of the providers that the namespace may not use."""
    return frozenset(provider.name for provider in providers if not grants.allows_provider(provider.name))


def _granted_engine(
    request: Request,
    providers: Sequence[ProviderFacts],
    *,
    grants: Grants,
    pinned: str | None,
    now: datetime,
) -> EngineChoice:
    """`choose_engine` among what the namespace may use; the message mentions the policy if it may be the cause."""
    # A pinned provider is checked with the spec, with a message of its own; here only its engine is open.
    usable = granted(providers, replace(grants, providers=None) if pinned else grants)
    choice = choose_engine(request, usable, explicit=None, pinned=pinned, now=now)
    if choice.engine is None and providers and not usable:
        registered = ", ".join(sorted(provider.name for provider in providers))
        message = f"the policy of this namespace allows none of the registered providers ({registered:.500})"
        return replace(choice, message=message)
    if choice.engine is None and usable != list(providers):
        return replace(choice, message=f"{choice.message}; the policy of this namespace leaves out some of them")
    return choice


def select_engine(
    deployment: Resource,
    providers: Sequence[ProviderFacts],
    *,
    refused: Collection[str],
    grants: Grants,
    before: str | None,
    now: datetime,
) -> EngineChoice:
    """Returns the engine of a deployment. `before` is the provider that it already has and that has not refused it.

    An engine that an upstream object was created for stays (docs/selection.md). Otherwise the engine is chosen among
    the providers that have not `refused` the deployment. If none of them can run it, the refusals do not count: the
    result is the engine of the provider whose refusal is then reported.
    """
    explicit = dig(deployment, "spec", "engine", "type")
    chosen = dig(deployment, "status", "engine", default={})
    if not explicit and chosen.get("type") and dig(deployment, "status", "provider", "resourceName"):
        message = f"Engine {chosen['type']} auto-selected from provider capabilities"
        return EngineChoice(
            engine=chosen["type"], reason=str(chosen.get("selectedReason", "")), message=message, kept=True
        )
    if explicit:
        return named_engine(explicit)
    pinned = dig(deployment, "spec", "provider", "name") or before
    spec = deployment.get("spec") or {}
    request = request_of(defaulted_spec(spec, engine=None))
    if refused and not pinned:
        willing = [provider for provider in providers if provider.name not in refused]
        choice = _granted_engine(request, willing, grants=grants, pinned=None, now=now)
        if choice.engine is not None:
            wanted = request_of(defaulted_spec(spec, engine=choice.engine))
            found = choose_provider(wanted, willing, engine=choice.engine, now=now, denied=denied(willing, grants))
            if found.provider is not None:
                return choice
    return _granted_engine(request, providers, grants=grants, pinned=pinned, now=now)


def select_provider(
    deployment: Resource,
    providers: Sequence[ProviderFacts],
    *,
    engine: str | None,
    grants: Grants,
    refused: Mapping[str, ProviderRefusal],
    now: datetime,
) -> ProviderChoice:
    """Returns every provider as a candidate for the deployment, and the chosen one.

    Without an `engine` no provider is chosen, and each candidate is checked for its own best-fitting engine.
    """
    request = request_of(defaulted_spec(deployment.get("spec") or {}, engine=engine))
    forbidden = denied(providers, grants)
    if engine is not None:
        return choose_provider(request, providers, engine=engine, now=now, denied=forbidden, refused=refused)
    candidates = tuple(
        weigh_at_best(request, each, now=now, denied=each.name in forbidden, refusal=refused.get(each.name))
        for each in sorted(providers, key=lambda provider: provider.name)
    )
    return ProviderChoice(provider=None, reason="", message="", candidates=candidates)


def provider_for(spec: Resource, providers: Sequence[ProviderFacts], *, now: datetime) -> str | None:
    """Returns the provider that a new deployment with this spec gets among `providers`; None if none can run it."""
    pinned, explicit = dig(spec, "provider", "name"), dig(spec, "engine", "type")
    request = request_of(defaulted_spec(spec, engine=explicit))
    engine = choose_engine(request, providers, explicit=explicit, pinned=pinned, now=now).engine
    if pinned or engine is None:
        return pinned or None
    return choose_provider(request_of(defaulted_spec(spec, engine=engine)), providers, engine=engine, now=now).provider


def unsettled(deployment: Resource, found: Sequence[Violation], *, accepted: bool) -> list[Violation]:
    """Returns the violations that count: none for a spec that was `accepted` before, if it can still be parsed.

    A newer release may have more rules; it does not stop what an older release has accepted.
    """
    if not found or not accepted:
        return list(found)
    try:
        defaulted_spec(deployment["spec"], engine=None)
    except ParseError:
        return list(found)
    return []


def forbidden_by(policy: Policy, deployment: Resource, *, namespace_labels: Mapping[str, str]) -> list[Violation]:
    """Returns what the policy forbids of a deployment, with the provider that it names or already has."""
    provider = dig(deployment, "spec", "provider", "name") or dig(deployment, "status", "provider", "name")
    provider = provider or holder_of(deployment)
    engine = dig(deployment, "spec", "engine", "type") or None
    return violations(policy, deployment["spec"], engine=engine, provider=provider, namespace_labels=namespace_labels)


def forbidden_now(
    policy: Policy, deployment: Resource, *, namespace_labels: Mapping[str, str], accepted: bool
) -> list[Violation]:
    """Returns what the policy forbids in a reconcile pass of a deployment that may have been `accepted` before.

    An accepted deployment stays accepted. The exception is a provider that the spec does not name and that was chosen
    later by a custom selector or another writer of the status: it was not part of the review. A provider that has
    already created an upstream object stays.
    """
    if not accepted:
        return forbidden_by(policy, deployment, namespace_labels=namespace_labels)
    chosen = dig(deployment, "status", "provider", default={})
    if dig(deployment, "spec", "provider", "name") or not chosen.get("name") or chosen.get("resourceName"):
        return []
    return violations(policy, {}, engine=None, provider=chosen["name"], namespace_labels=namespace_labels)
