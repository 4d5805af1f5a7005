"""Explains why a deployment has, or would get, its engine and provider: the data of ``airunway explain``. Pure.

It calls the same functions as the core, so that it agrees with ``status.selection``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from airunway.api.base import ParseError
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.selection.advice import Advice, advise
from airunway.selection.choice import (
    EngineChoice,
    forbidden_by,
    forbidden_now,
    select_engine,
    select_provider,
    unsettled,
)
from airunway.selection.facts import ProviderFacts, ProviderRefusal, is_undecided, refusals
from airunway.selection.provider import EXPLICIT, NO_HEALTHY, Candidate, not_registered
from airunway.status.conditions import is_validated
from airunway.validation import Violation, validate
from airunway.validation.policy import NAMESPACE_NAME, Grants, Policy


class CandidateVerdict(StrEnum):
    SELECTED = "selected"
    ELIGIBLE = "eligible"
    REJECTED = "rejected"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The selection of one deployment. If the spec cannot be parsed, only `key`, `model` and `violations` are set."""

    key: ObjectKey
    model: str
    violations: tuple[Violation, ...]
    """What is wrong with the spec, or what the policy forbids."""
    engine: EngineChoice | None = None
    """The engine that the candidates were checked for.

    If no engine fits (`engine.engine` is None), each candidate was checked for its own best-fitting engine.
    """
    provider: str | None = None
    """The provider that the deployment has or would get; None: none."""
    message: str = ""
    """Why this provider, or why none."""
    warnings: tuple[str, ...] = ()
    """The warnings of that provider, if its plugin was called."""
    candidates: tuple[Candidate, ...] = ()
    """All providers, by name."""
    advice: tuple[tuple[str, Advice], ...] = ()
    """Advice for every provider that was not selected; for all providers while the spec is invalid."""

    def verdict(self, candidate: Candidate) -> CandidateVerdict:
        if candidate.name == self.provider:
            return CandidateVerdict.SELECTED
        return CandidateVerdict.ELIGIBLE if candidate.eligible else CandidateVerdict.REJECTED

    def as_resource(self) -> Resource:
        """As JSON, in a stable form for scripts."""
        advice = dict(self.advice)
        return {
            "namespace": self.key.namespace,
            "name": self.key.name,
            "model": self.model,
            "valid": not self.violations,
            "violations": [{"path": v.path, "message": v.message} for v in self.violations],
            "engine": {
                "type": self.engine.engine if self.engine else None,
                "message": (self.engine.reason or self.engine.message) if self.engine else "",
            },
            "provider": {"name": self.provider, "message": self.message},
            "warnings": [*self.warnings],
            "candidates": [
                {
                    "name": candidate.name,
                    "verdict": self.verdict(candidate).value,
                    "score": candidate.score,
                    "failed": [{"check": c.name, "path": c.path, "message": c.message} for c in candidate.failed],
                    "rules": [
                        {
                            "condition": rule.condition,
                            "priority": rule.priority,
                            "result": rule.value,
                            **({"error": rule.error} if rule.error else {}),
                        }
                        for rule in candidate.rules
                    ],
                    **_advice_resource(advice.get(candidate.name)),
                }
                for candidate in self.candidates
            ],
        }


def _advice_resource(advice: Advice | None) -> Resource:
    if advice is None:
        return {}
    changes = (
        None if advice.changes is None else [{"path": c.path, "from": c.before, "to": c.after} for c in advice.changes]
    )
    return {"smallestChange": changes, "obstacles": list(advice.obstacles), "wouldBeSelected": advice.selected}


def explain(
    deployment: Resource,
    providers: Sequence[ProviderFacts],
    *,
    now: datetime,
    policy: Policy | None = None,
    namespace_labels: Mapping[str, str] | None = None,
    asked: Callable[[str, str], ProviderRefusal | None] | None = None,
) -> Explanation:
    """Explains a ModelDeployment in its present state: a provider or engine that was chosen stays, as in the core.

    `policy` is the core's. `namespace_labels` are those of the deployment's namespace (its name is added).
    `asked(provider, engine)` returns the provider's refusal of the deployment, if its plugin is available here. It is
    not called for a provider whose refusal the deployment already records.
    """
    policy = policy or Policy()
    labels = {**(namespace_labels or {}), NAMESPACE_NAME: key_of(deployment).namespace}
    grants = policy.grants(labels)
    accepted = is_validated(deployment)
    violations = tuple(unsettled(deployment, validate(deployment), accepted=accepted))
    violations = violations or tuple(forbidden_now(policy, deployment, namespace_labels=labels, accepted=accepted))
    model = str(dig(deployment, "spec", "model", "id", default=""))
    explanation = Explanation(key=key_of(deployment), model=model, violations=violations)
    spec = deployment.get("spec")
    refused: Mapping[str, ProviderRefusal] = refusals(deployment) if is_undecided(deployment) else {}
    kept = dig(deployment, "status", "provider", "name")
    if kept in refused:
        kept = None

    def engine_without(refused: Collection[str]) -> EngineChoice:
        choice = select_engine(deployment, providers, refused=refused, grants=grants, before=kept, now=now)
        if not choice.kept:
            return choice
        made = dig(deployment, "status", "provider", default={})
        what = f"{made.get('resourceKind', 'the upstream object')} {made.get('resourceName')}"
        return replace(choice, reason=f"{choice.reason} (kept: {what} exists)", message="")

    try:
        engine = engine_without(refused)
        if asked is not None and not violations:
            refused, engine = _asked(providers, asked, engine, engine_without, refused=refused, kept=kept)
        provider, message, candidates = _provider(
            deployment, engine, providers, kept=kept, refused=refused, grants=grants, now=now
        )
    except ParseError as error:
        if violations:
            return explanation
        violation = Violation(path="spec", message=str(error), reason="FieldValueInvalid")
        return Explanation(key=explanation.key, model=model, violations=(violation,))
    if dig(spec, "provider", "name"):
        kept = None

    def advice(facts: ProviderFacts) -> Advice:
        """The smallest change that also makes the spec valid; if there is none, one that adds no violations."""
        for tolerated in (set[tuple[str, str]](), {(v.path, v.message) for v in violations}):

            def valid(edited: Resource, tolerated: set[tuple[str, str]] = tolerated) -> bool:
                changed = {**deployment, "spec": edited}
                found = validate(changed) or forbidden_by(policy, changed, namespace_labels=labels)
                # A policy that forbids the provider itself is reported as an obstacle, not as a violation.
                return all((v.path, v.message) in tolerated or v.path == "spec.provider.name" for v in found)

            given = advise(spec or {}, facts, providers, now=now, grants=grants, kept=kept, valid=valid)
            if given.changes is not None or not violations:
                break
        return given

    return Explanation(
        key=explanation.key,
        model=model,
        violations=violations,
        engine=engine,
        provider=provider,
        message=message,
        candidates=candidates,
        advice=tuple(
            (facts.name, advice(facts))
            for facts in sorted(providers, key=lambda p: p.name)
            if facts.name != provider or violations
        ),
    )


def undecided(deployment: Resource, *, message: str) -> Explanation:
    """Explains a ModelDeployment of which only its own spec is known: what is wrong with that, and `message`."""
    violations = tuple(validate(deployment))
    return Explanation(key=key_of(deployment), model="", violations=violations, message=message)


def _asked(
    providers: Sequence[ProviderFacts],
    asked: Callable[[str, str], ProviderRefusal | None],
    engine: EngineChoice,
    engine_without: Callable[[Collection[str]], EngineChoice],
    *,
    refused: Mapping[str, ProviderRefusal],
    kept: str | None,
) -> tuple[Mapping[str, ProviderRefusal], EngineChoice]:
    """Returns the refusals and the engine that remains; the providers of a newly chosen engine are asked too."""
    found = dict(refused)
    for _ in providers:
        if engine.engine is None:
            break
        heard = {
            facts.name: answer
            for facts in providers
            if facts.name not in found
            and not facts.explicit_only
            and facts.engine(engine.engine) is not None
            and (answer := asked(facts.name, engine.engine)) is not None
        }
        if not heard:
            break
        found |= heard
        engine = engine_without([name for name in found if name != kept])
    return found, engine


def _provider(
    deployment: Resource,
    engine: EngineChoice,
    providers: Sequence[ProviderFacts],
    *,
    kept: str | None,
    refused: Mapping[str, ProviderRefusal],
    grants: Grants,
    now: datetime,
) -> tuple[str | None, str, tuple[Candidate, ...]]:
    """Returns the provider, the reason, and all candidates."""
    explicit = dig(deployment, "spec", "provider", "name")
    registered = any(provider.name == explicit for provider in providers)
    choice = select_provider(deployment, providers, engine=engine.engine, grants=grants, refused=refused, now=now)
    if engine.engine is None:
        message = not_registered(explicit, providers) if explicit and not registered else engine.message
        return None, message, choice.candidates
    if explicit and not registered:
        return None, not_registered(explicit, providers), choice.candidates
    if explicit:
        # A provider that is only used when named is named here, so this check does not count.
        candidates = tuple(
            replace(candidate, failed=tuple(check for check in candidate.failed if check.name != "selection"))
            if candidate.name == explicit
            else candidate
            for candidate in choice.candidates
        )
        return explicit, EXPLICIT, candidates
    if kept:
        reason = dig(deployment, "status", "provider", "selectedReason", default="")
        return kept, f"{reason} (kept: a provider that was selected stays)", choice.candidates
    if choice.provider is None and not providers:
        return None, f"{NO_HEALTHY}: none is registered", ()
    return choice.provider, choice.reason or choice.message, choice.candidates
