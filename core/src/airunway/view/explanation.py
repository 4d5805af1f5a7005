"""Why a deployment gets its engine and provider: every provider with its checks, and what would change the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.selection.advice import Advice, FieldEdit
from airunway.selection.explanation import Explanation
from airunway.selection.provider import EXPLICIT, Candidate
from airunway.view.base import ViewModel, line, word


@dataclass(frozen=True, kw_only=True)
class CheckRow(ViewModel):
    """One check that failed, or one rule of a provider."""

    name: str
    """Its name; ``rule`` for a rule of the provider."""
    detail: str
    """The field and what is wrong with it; for a rule its result, priority and condition."""


@dataclass(frozen=True, kw_only=True)
class CandidateRow(ViewModel):
    """One provider."""

    name: str
    """Its name."""
    verdict: str
    """``selected``, ``eligible`` or ``rejected``."""
    score: int
    """What its rules give; the highest score of the eligible ones is selected."""
    checks: tuple[CheckRow, ...]
    """Failed checks, then its rules; empty if nothing speaks against it and it has no rules."""
    why_not: str
    """Why it is not selected, as a sentence; a short one if it is."""
    changes: tuple[str, ...]
    """What has to change so that it is: edits of the spec, and what an administrator has to do."""


@dataclass(frozen=True, kw_only=True)
class ExplanationView(ViewModel):
    """The selection of one deployment."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    model: str
    """Model id."""
    violations: tuple[str, ...]
    """What is wrong with the spec, or what the policy forbids; while there is one, nothing is created or changed."""
    parsed: bool
    """Whether the spec could be read; if not, only the violations are known."""
    engine: str
    """The engine that the providers were checked for; empty if none fits."""
    engine_reason: str
    """Why this engine, or why none."""
    provider: str
    """The provider that it has or would get; empty if none."""
    provider_reason: str
    """Why this provider, or why none."""
    warnings: tuple[str, ...]
    """Warnings of that provider's plugin."""
    candidates: tuple[CandidateRow, ...]
    """All providers, by name."""


def explanation_view(explanation: Explanation) -> ExplanationView:
    """Returns the view of an explanation."""
    engine = explanation.engine
    return ExplanationView(
        namespace=word(explanation.key.namespace),
        name=word(explanation.key.name),
        model=line(explanation.model),
        violations=tuple(line(_at(each.path, each.message)) for each in explanation.violations),
        parsed=engine is not None,
        engine=word(engine.engine) if engine is not None else "",
        engine_reason=line(engine.reason or engine.message) if engine is not None else "",
        provider=word(explanation.provider),
        provider_reason=line(explanation.message),
        warnings=tuple(map(line, explanation.warnings)),
        candidates=tuple(_candidate(explanation, candidate) for candidate in explanation.candidates),
    )


def _at(path: str, message: str) -> str:
    return f"{path}: {message}" if path else message


def _candidate(explanation: Explanation, candidate: Candidate) -> CandidateRow:
    why_not, changes = _why_not(explanation, candidate)
    return CandidateRow(
        name=word(candidate.name),
        verdict=explanation.verdict(candidate).value,
        score=candidate.score,
        checks=tuple(_checks(candidate)),
        why_not=line(why_not),
        changes=tuple(map(line, changes)),
    )


def _checks(candidate: Candidate) -> Iterator[CheckRow]:
    for check in candidate.failed:
        yield CheckRow(name=word(check.name), detail=line(_at(check.path, check.message)))
    for rule in candidate.rules:
        result = "error" if rule.value is None else str(rule.value).lower()
        error = f": {rule.error}" if rule.error else ""
        yield CheckRow(name="rule", detail=line(f"{result} (priority {rule.priority}) {rule.condition}{error}"))


def _why_not(explanation: Explanation, candidate: Candidate) -> tuple[str, list[str]]:
    """The sentence, and what would have to change."""
    name = candidate.name
    advice = dict(explanation.advice).get(name)
    if advice is None:
        return f"{name} is selected.", []
    if (refusal := candidate.refusal) is not None and not explanation.violations:
        return f"{name} refuses this spec ({refusal.reason}): {refusal.message}", []
    chosen = explanation.engine.engine if explanation.engine is not None else None
    if candidate.eligible and chosen is not None and not explanation.violations:
        why = f"{name} is eligible, but {_rival(explanation, candidate)}. To select it anyway:"
        return why, [f"set spec.provider.name to {name}"]
    if advice.changes is None:
        why = f"No change of the spec makes {name} eligible."
    elif advice.changes or advice.obstacles:
        why = f"{name} would be eligible:"
    else:
        why = f"{name} would be eligible if the spec were valid."
    return why, list(_changes(name, advice))


def _rival(explanation: Explanation, candidate: Candidate) -> str:
    if "(kept:" in explanation.message:
        return f"{explanation.provider} is already selected, and the selection does not change"
    if explanation.message == EXPLICIT:
        return f"the spec names {explanation.provider}"
    best = next((c for c in explanation.candidates if c.name == explanation.provider), None)
    if best is None:
        return "no provider is selected"
    if best.score == candidate.score:
        return f"{best.name} has the same score ({best.score}) and comes first by name"
    return f"{best.name} has the higher score ({best.score} against {candidate.score})"


def _changes(name: str, advice: Advice) -> Iterator[str]:
    for change in advice.changes or ():
        yield _edit(change)
    yield from advice.obstacles
    if advice.changes is not None and not advice.selected:
        yield f"to have it selected as well: set spec.provider.name to {name}"


def _edit(change: FieldEdit) -> str:
    now = "absent" if change.before is None else change.before
    if change.after is None:
        return f"remove {change.path} (now: {now})"
    return f"set {change.path} to {change.after} (now: {now})"
