"""Chooses the provider, with a verdict on every candidate, and writes the verdicts (docs/selection.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import orjson

from airunway.cel import CelError, CelProgram, compile_expression
from airunway.redaction import sanitized
from airunway.resource import Resource, dig, format_time
from airunway.selection.facts import STALE_AFTER, ProviderFacts, ProviderRefusal, Request

MAX_WORK = 1_000_000_000
"""Characters that all rules of one provider together may touch for one deployment: at most half a second.

A bound on each rule alone would let a provider with many rules block the controller many times as long.
"""


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """The result of one rule for one spec."""

    condition: str
    priority: int
    value: bool | None
    """None if the rule could not be evaluated."""
    error: str = ""
    """Why it could not be evaluated."""


@lru_cache(maxsize=4096)
def _compiled(condition: str) -> CelProgram | str:
    """Returns the program of a rule, or its error text. Cached: rules change rarely, selections are frequent."""
    try:
        return compile_expression(condition, variables=("spec",))
    except CelError as error:
        return str(error)


def evaluate_rules(rules: Iterable[tuple[str, int]], request: Request) -> list[RuleResult]:
    """Returns each rule's result for a request, in the order of the rules."""
    left = MAX_WORK
    results = []
    for condition, priority in rules:
        result, work = _evaluate(condition, priority, request, left)
        results.append(result)
        left -= work
    return results


def _evaluate(condition: str, priority: int, request: Request, left: int) -> tuple[RuleResult, int]:
    """Returns the result, and how much of the work that is `left` it may have cost."""

    def failed(error: str, work: int = 0) -> tuple[RuleResult, int]:
        return RuleResult(condition=condition, priority=priority, value=None, error=error), work

    program = _compiled(condition)
    if isinstance(program, str):
        return failed(program)
    size = request.size
    if isinstance(size, str):
        return failed(size)
    work = 0
    try:
        work = program.work(size)
        if work > left:
            return failed("too expensive after the provider's rules before it: together they could run for long")
        value = program.evaluate({"spec": request.spec}, size=size)
    except CelError as error:
        return failed(str(error), work)
    if not isinstance(value, bool):
        return failed(f"gives {type(value).__name__}, not bool", work)
    return RuleResult(condition=condition, priority=priority, value=value), work


def score_of(results: Iterable[RuleResult]) -> int:
    """Returns the highest priority of the rules that are true; 0 if none is (priorities are not added up)."""
    return max((result.priority for result in results if result.value), default=0)


NO_HEALTHY = "No healthy providers available"
NO_COMPATIBLE = 'no provider can run this spec: status.selection and "airunway explain" show what each one lacks'
EXPLICIT = "explicit provider selection"
"""Why a provider is chosen that the spec names."""


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
    failed: list[FailedCheck] = []

    def fail(name: str, path: str, message: str) -> None:
        failed.append(FailedCheck(name=name, path=path, message=message))

    if denied:
        fail("policy", "spec.provider.name", DENIED)
    if not provider.ready:
        fail("ready", "", "the provider is not ready (status.ready is not true)")
    if provider.heartbeat is not None and provider.is_stale(now):
        # The time and not the age: the same facts must give the same text, or every pass would write the status.
        since = f"{int(STALE_AFTER.total_seconds())} s ago or longer"
        fail("heartbeat", "", f"its last heartbeat was at {format_time(provider.heartbeat)}, {since}")
    if provider.explicit_only:
        fail("selection", "spec.provider.name", f"it is only used when spec.provider.name is {provider.name}")
    facts = provider.engine(engine)
    if facts is None:
        has = ", ".join(sorted(e.name for e in provider.engines)) or "none"
        fail("engine", "spec.engine.type", f"engine {engine} is not among its engines ({has})")
    else:
        if request.gpu and not facts.gpu:
            fail("gpu", "spec.resources.gpu.count", f"it runs {engine} without GPUs only")
        if not request.gpu and not facts.cpu:
            fail("cpu", "spec.resources.gpu.count", f"it needs a GPU to run {engine}")
        if request.mode not in facts.modes:
            modes = ", ".join(sorted(facts.modes)) or "none"
            fail("mode", "spec.serving.mode", f"it serves {engine} in these modes: {modes}")
        for need in facts.lacks(request):
            fail("capability", "spec", f"it does not have the capability {need} for {engine}")
    if refusal is not None:
        fail(REFUSED, "", f"it refuses this spec: {refusal.message} ({refusal.reason})")
    results = tuple(evaluate_rules(provider.rules, request))
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


def not_registered(name: str, providers: Iterable[ProviderFacts]) -> str:
    """The message for a provider without an InferenceProviderConfig."""
    registered = ", ".join(sorted(provider.name for provider in providers)) or "none"
    return (
        f"provider '{name}' is not registered (registered: {registered}): install its chart, or name a registered one"
    )


def not_installed(name: str) -> str:
    """The message for a provider whose upstream is not installed."""
    return f"Provider '{name}' CRD not installed in cluster"


def unsupported(request: Request, provider: ProviderFacts, *, engine: str | None) -> list[FailedCheck]:
    """Returns what of `request` the provider does not offer; `engine` None: any of its engines may be used."""
    title = provider.title or provider.name
    facts = provider.engine(engine) if engine else None
    if engine and facts is None:
        message = f"{title} does not support {engine} engine"
        return [FailedCheck(name="engine", path="spec.engine.type", message=message)]
    engines = [facts] if facts is not None else list(provider.engines)
    found = []
    if not any(request.mode in each.modes for each in engines):
        message = f"{title} does not support {request.mode} mode"
        if facts is not None and any(request.mode in each.modes for each in provider.engines):
            message += f" with {engine} engine"
        found.append(FailedCheck(name="mode", path="spec.serving.mode", message=message))
    if not request.gpu and not any(each.cpu for each in engines):
        for_engine = f" for {engine} engine" if any(each.cpu for each in provider.engines) else ""
        message = f"{title} requires GPU{for_engine} (set resources.gpu.count > 0)"
        found.append(FailedCheck(name="cpu", path="spec.resources.gpu.count", message=message))
    if not any(request.task in each.tasks for each in engines):
        with_engine = f" with {engine}" if engine else ""
        message = f"{title} runs no models of task {request.task}{with_engine}: name another provider"
        found.append(FailedCheck(name="task", path="spec.model.task", message=message))
    return found


MAX_BYTES = 8 * 1024
"""Limit of the list, as JSON."""

_MAX_CANDIDATES = 32
_CONDITION = 96
_LEVELS = ((8, 256), (4, 192), (2, 128), (1, 96), (0, 0))
"""Reasons per candidate and characters per reason, tried in this order until the list is short enough."""


def recorded(candidates: Sequence[Candidate]) -> list[Resource]:
    """Returns the entries of ``status.selection.candidates``, by name.

    If the list is too long, reasons become fewer and shorter, and then candidates are dropped; eligible ones with the
    highest score stay longest.
    """
    # Rejected candidates without a refusal go first: a lost refusal would have to be requested again.
    kept = sorted(candidates, key=lambda c: (not c.eligible, c.refusal is None, -c.score if c.eligible else 0, c.name))[
        :_MAX_CANDIDATES
    ]
    entries: list[Resource] = []
    for number, length in _LEVELS:
        entries = [_entry(candidate, number, length) for candidate in kept]
        if len(orjson.dumps(entries)) <= MAX_BYTES:
            break
    while len(orjson.dumps(entries)) > MAX_BYTES:
        entries.pop()
    return sorted(entries, key=lambda entry: str(entry["name"]))


def is_denied(deployment: Resource, provider: str) -> bool:
    """Whether the policy denies the provider, or has not been applied to it yet, whatever wrote the choice.

    The verdicts are written together with that on the spec, so a provider that another writer chose must be among them.
    An entry that had no room for its reasons counts as a denial. Without any record nothing is denied.
    """
    candidates = dig(deployment, "status", "selection", "candidates")
    if not isinstance(candidates, list):
        return False
    entry: Resource | None = next((each for each in candidates if dig(each, "name") == provider), None)
    if entry is None:
        return True
    reasons = entry.get("reasons") or []
    return entry.get("eligible") is False and (not reasons or reasons[0].endswith(DENIED))


def _entry(candidate: Candidate, number: int, length: int) -> Resource:
    reasons = [_cut(sanitized(reason), length) for reason in list(_reasons(candidate))[:number]]
    entry = {"name": candidate.name, "eligible": candidate.eligible, "score": candidate.score, "reasons": reasons}
    if (refusal := candidate.refusal) is not None:
        entry["refusal"] = {
            "generation": refusal.generation,
            "reason": sanitized(refusal.reason),
            "message": sanitized(refusal.message),
        }
    return entry


def _reasons(candidate: Candidate) -> Iterator[str]:
    """Yields the failed checks, the errors of its rules, and the rules that are true, the most important first."""
    for check in candidate.failed:
        yield f"{check.path}: {check.message}" if check.path else check.message
    for rule in candidate.rules:
        if rule.value is None:
            yield f"rule '{_cut(rule.condition, _CONDITION)}' failed: {rule.error}"
    for rule in sorted(candidate.rules, key=lambda rule: -rule.priority):
        if rule.value:
            yield f"rule '{_cut(rule.condition, _CONDITION)}' ({rule.priority})"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
