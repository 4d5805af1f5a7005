"""Chooses the provider, with a verdict on every candidate (spec/core.md, "Selection")."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airunway.resource import format_time
from airunway.selection.engine import NO_HEALTHY
from airunway.selection.facts import STALE_AFTER, ProviderFacts, ProviderRefusal, Request
from airunway.selection.rules import RuleResult, evaluate_rules, score_of

__all__ = [
    "DENIED",
    "REFUSED",
    "Candidate",
    "FailedCheck",
    "Misfit",
    "ProviderChoice",
    "choose_provider",
    "not_installed",
    "not_registered",
    "unsupported",
    "weigh",
    "weigh_at_best",
]

NO_COMPATIBLE = "no compatible provider found for this configuration"


DENIED = "the policy does not allow it in this namespace"
"""The first reason of a candidate that a policy denies."""

REFUSED = "refused"
"""The name of the check that fails if the provider itself refused the spec."""


@dataclass(frozen=True, kw_only=True)
class FailedCheck:
    """One reason against a candidate."""

    name: str
    """Stable name of the check."""
    path: str
    """The field of the spec that it concerns; may be empty."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The verdict on one provider; it is eligible if no check failed."""

    name: str
    failed: tuple[FailedCheck, ...]
    rules: tuple[RuleResult, ...]
    score: int
    refusal: ProviderRefusal | None = None
    """The provider's own refusal of this generation of the spec."""

    @property
    def eligible(self) -> bool:
        return not self.failed


@dataclass(frozen=True, kw_only=True)
class ProviderChoice:
    """The provider and the reason for it; `provider` is None if none is eligible, and `message` reports that."""

    provider: str | None
    reason: str
    message: str
    candidates: tuple[Candidate, ...]


def choose_provider(
    request: Request,
    providers: Sequence[ProviderFacts],
    *,
    engine: str,
    now: datetime,
    denied: Collection[str] = (),
    refused: Mapping[str, ProviderRefusal] | None = None,
) -> ProviderChoice:
    """Returns the eligible candidate with the highest score; of equal ones the first by name.

    `denied` are the providers that a policy does not allow here; `refused` those that refused the spec. If there is no
    eligible candidate, the best one whose only failed check is its own refusal is chosen, so that it can report the
    reason.
    """
    refused = refused or {}
    candidates = tuple(
        weigh(
            request,
            provider,
            engine=engine,
            now=now,
            denied=provider.name in denied,
            refusal=refused.get(provider.name),
        )
        for provider in sorted(providers, key=lambda p: p.name)
    )
    eligible = [candidate for candidate in candidates if candidate.eligible] or [
        candidate for candidate in candidates if all(check.name == REFUSED for check in candidate.failed)
    ]
    if not eligible:
        healthy = any(not any(check.name in ("ready", "heartbeat") for check in c.failed) for c in candidates)
        message = NO_COMPATIBLE if healthy else NO_HEALTHY
        return ProviderChoice(provider=None, reason="", message=message, candidates=candidates)
    best = min(eligible, key=lambda candidate: (-candidate.score, candidate.name))
    reason = f"matched capabilities: engine={engine}, gpu={str(request.gpu).lower()}, mode={request.mode}"
    message = f"Provider {best.name} auto-selected"
    if passed_over := ", ".join(sorted(each.name for each in candidates if each.refusal and each is not best)):
        message += f"; refused by {passed_over} (status.selection says why)"
    return ProviderChoice(provider=best.name, reason=reason, message=message, candidates=candidates)


def weigh(
    request: Request,
    provider: ProviderFacts,
    *,
    engine: str,
    now: datetime,
    denied: bool = False,
    refusal: ProviderRefusal | None = None,
) -> Candidate:
    """Returns every check that this provider fails, and the results of its rules."""
    failed = []
    if denied:
        failed.append(FailedCheck(name="policy", path="spec.provider.name", message=DENIED))
    if not provider.ready:
        failed.append(
            FailedCheck(name="ready", path="", message="the provider is not ready (status.ready is not true)")
        )
    silence = provider.silence(now)
    if provider.heartbeat is not None and silence is not None and silence >= STALE_AFTER:
        # The time and not the age: the same facts must give the same text, or every pass would write the status.
        text = (
            f"its last heartbeat was at {format_time(provider.heartbeat)}, "
            f"{int(STALE_AFTER.total_seconds())} s ago or longer"
        )
        failed.append(FailedCheck(name="heartbeat", path="", message=text))
    if provider.explicit_only:
        text = f"it is only used when spec.provider.name is {provider.name}"
        failed.append(FailedCheck(name="selection", path="spec.provider.name", message=text))
    facts = provider.engine(engine)
    if facts is None:
        has = ", ".join(sorted(e.name for e in provider.engines)) or "none"
        failed.append(
            FailedCheck(
                name="engine", path="spec.engine.type", message=f"engine {engine} is not among its engines ({has})"
            )
        )
    else:
        if request.gpu and not facts.gpu:
            failed.append(
                FailedCheck(name="gpu", path="spec.resources.gpu.count", message=f"it runs {engine} without GPUs only")
            )
        if not request.gpu and not facts.cpu:
            failed.append(
                FailedCheck(name="cpu", path="spec.resources.gpu.count", message=f"it needs a GPU to run {engine}")
            )
        if request.mode not in facts.modes:
            modes = ", ".join(sorted(facts.modes)) or "none"
            failed.append(
                FailedCheck(
                    name="mode", path="spec.serving.mode", message=f"it serves {engine} in these modes: {modes}"
                )
            )
        failed += [
            FailedCheck(name="capability", path="spec", message=f"it does not have the capability {need} for {engine}")
            for need in sorted(request.needs - facts.flags)
        ]
    if refusal is not None:
        failed.append(
            FailedCheck(name=REFUSED, path="", message=f"it refuses this spec: {refusal.message} ({refusal.reason})")
        )
    results = tuple(evaluate_rules(provider.rules, request.spec, size=request.size))
    return Candidate(name=provider.name, failed=tuple(failed), rules=results, score=score_of(results), refusal=refusal)


def weigh_at_best(
    request: Request,
    provider: ProviderFacts,
    *,
    now: datetime,
    denied: bool = False,
    refusal: ProviderRefusal | None = None,
) -> Candidate:
    """Checks the provider for its own engine with the fewest failed checks; used if no engine could be chosen."""
    names = [engine.name for engine in provider.engines] or [""]
    weighed = [weigh(request, provider, engine=name, now=now, denied=denied, refusal=refusal) for name in names]
    return min(weighed, key=lambda candidate: len(candidate.failed))


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """One request that the provider cannot serve."""

    path: str
    """The field that requests it."""
    message: str


def not_registered(name: str, providers: Iterable[ProviderFacts]) -> str:
    """The message for a provider without an InferenceProviderConfig."""
    registered = ", ".join(sorted(provider.name for provider in providers)) or "none"
    return f"provider '{name}' is not registered (registered: {registered})"


def not_installed(name: str) -> str:
    """The message for a provider whose upstream is not installed."""
    return f"Provider '{name}' CRD not installed in cluster"


def unsupported(request: Request, provider: ProviderFacts, *, engine: str | None) -> list[Misfit]:
    """Returns what of `request` the provider does not offer; `engine` None: any of its engines may be used."""
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
