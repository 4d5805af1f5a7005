"""Computes one phase from the components: the roll-up that the core and every provider share.

Pure and total: from any faults, the previous phase and the time it computes a verdict. No other code sets
a phase, except ``Terminating`` (`runtime.report`). Other kinds (artifacts, templates, sources) are summed up by it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from airunway.redaction import bounded
from airunway.resource import Resource, condition_of, dig, parse_time
from airunway.status.conditions import (
    Condition,
    ConditionWriter,
    as_word,
    conditions_in,
    conditions_of,
    written,
)
from airunway.status.reasons import Category, category_of

DEPENDENCY_GRACE = timedelta(seconds=10)
"""How long a dependency may be unreachable, or an error go on that usually passes, before the phase changes (a
RuntimeConfig can change it)."""

CAPACITY_PATIENCE = timedelta(minutes=15)
"""How long missing capacity counts as normal waiting."""

ALL_READY = "All replicas are ready"
"""How the message of a deployment that is ready begins, whatever its provider: scripts look for it."""

_FINE = {"ConfigValid": "ConfigurationValid", "AuthValid": "AuthenticationValid", "DependenciesReachable": "Reachable"}
"""The reason of each parent condition that is True."""

PARENTS = tuple(_FINE)

OVERALL = ("Ready", "Reconciling", "Stalled")
"""Conditions about the whole deployment, as kstatus defines them; they belong to the owner of the phase."""

_OF_NO_KIND = frozenset({*PARENTS, *OVERALL})
"""Conditions from which no parent is derived, whatever the kind."""
_NO_CHILDREN = _OF_NO_KIND | {*conditions_of(ConditionWriter.GATEWAY)}
"""Conditions of a deployment from which no parent is derived."""


class Phase(StrEnum):
    """``status.phase``."""

    FAILED = "Failed"
    DEGRADED = "Degraded"
    PENDING = "Pending"
    DEPLOYING = "Deploying"
    RUNNING = "Running"
    TERMINATING = "Terminating"


_DEBOUNCED = (Category.CONNECTIVITY, Category.PASSING)
"""Categories of faults that change the phase of what runs only if they last."""

_BADNESS = [Phase.FAILED, Phase.DEGRADED, Phase.PENDING, Phase.DEPLOYING, Phase.RUNNING]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One component that is not ready."""

    component: str
    reason: str
    """A reason of the registry, or an upstream's own."""
    message: str = ""
    """The component's own message."""
    since: datetime | None = None
    """Since when it is not ready; None: just now."""
    pending: bool = False
    """The component waits for something else first (Pending rather than Deploying)."""
    category: Category | None = None
    """Overrides the category of `reason`; needed for a reason that is not registered."""
    only_degrades: bool = False
    """The rest keeps serving: such a fault degrades the deployment and never fails it."""

    @property
    def kind(self) -> Category:
        return self.category or category_of(self.reason)


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """The verdict on the faults of a deployment."""

    phase: Phase
    reason: str
    message: str
    ready: bool | None
    """None if it is not known (a stale fault)."""
    wake_after: float | None = None
    """Seconds after which the verdict changes by time alone; None: never."""
    fault: Fault | None = None
    """The fault that decided."""


def roll_up(
    faults: Sequence[Fault],
    *,
    previous: str | None,
    created: bool,
    now: datetime,
    served: bool = False,
    running_reason: str = "Ready",
    running_message: str = ALL_READY,
    grace: timedelta = DEPENDENCY_GRACE,
    patience: timedelta = CAPACITY_PATIENCE,
) -> Rollup:
    """Returns the phase, its reason and message, and whether the deployment is ready.

    `previous` is the phase before this pass; `created`: upstream objects exist; `served`: they were Running at some
    time. `grace` and `patience` are those of the runtime config's ``statusPolicy``: how long a dependency may be
    unreachable, and how long missing capacity counts as normal waiting. The worst phase wins. Of faults with the same
    phase the first decides; for Failed and Degraded, a fault that only keeps the previous phase decides last.
    """
    if not faults:
        return Rollup(phase=Phase.RUNNING, reason=running_reason, message=running_message, ready=True)
    served = served or previous == Phase.RUNNING.value
    judged = [
        _judge(fault, previous=previous, served=served, created=created, now=now, grace=grace, patience=patience)
        for fault in faults
    ]
    wake = min((seconds for _, seconds in judged if seconds is not None), default=None)

    def rank(position: int) -> tuple[int, bool, int]:
        # A fault that only keeps a bad phase must not replace the reason of the fault that caused it.
        phase, left = judged[position]
        kind = faults[position].kind
        keeps = kind in (Category.STALE, Category.UNKNOWN) or (kind in _DEBOUNCED and left is not None)
        return _BADNESS.index(phase), keeps and phase in (Phase.FAILED, Phase.DEGRADED), position

    position = min(range(len(judged)), key=rank)
    fault, phase = faults[position], judged[position][0]
    stale = fault.kind is Category.STALE
    return Rollup(
        phase=phase,
        reason="AuthFailed" if fault.kind is Category.AUTH else as_word(fault.reason),
        message=bounded(fault.message or f"{fault.component} is not ready: {fault.reason}"),
        ready=None if stale else phase is Phase.RUNNING,
        wake_after=wake,
        fault=fault,
    )


def _judge(
    fault: Fault,
    *,
    previous: str | None,
    served: bool,
    created: bool,
    now: datetime,
    grace: timedelta,
    patience: timedelta,
) -> tuple[Phase, float | None]:
    """Returns the phase for this fault alone, and after how many seconds it changes by time alone (None: never)."""
    resting = Phase.PENDING if fault.pending or not created else Phase.DEPLOYING
    match fault.kind:
        case Category.CONFIG | Category.EXHAUSTION | Category.WORKLOAD if fault.only_degrades:
            return Phase.DEGRADED, None
        case Category.CONFIG:
            return (Phase.FAILED if created else Phase.PENDING), None
        case Category.SCOPED_CONFIG | Category.AUTH:
            return Phase.DEGRADED, None
        case Category.CONNECTIVITY | Category.PASSING if resting is Phase.PENDING:
            return Phase.PENDING, None
        case Category.CONNECTIVITY | Category.PASSING:
            # Degraded is kept too: neither shows that the earlier fault is gone.
            kept = next((phase for phase in (Phase.RUNNING, Phase.DEGRADED) if phase.value == previous), resting)
            return _after(fault, grace, before=kept, now=now)
        case Category.CAPACITY:
            # The pods exist and wait for a node: that is deploying, however long the queue.
            waiting = Phase.DEPLOYING if created else Phase.PENDING
            return _after(fault, patience, before=waiting, now=now)
        case Category.EXHAUSTION | Category.WORKLOAD:
            return (Phase.DEGRADED if served else Phase.FAILED), None
        case Category.PROGRESS:
            return resting, None
        case _:  # stale or unknown: there is no evidence for a change, so the previous phase is kept
            return next((phase for phase in _BADNESS if phase.value == previous), resting), None


def _after(fault: Fault, patience: timedelta, *, before: Phase, now: datetime) -> tuple[Phase, float | None]:
    """Returns `before` until the fault is as old as `patience`, and Degraded after that."""
    left = ((fault.since or now) + patience - now).total_seconds()
    return (before, left) if left > 0 else (Phase.DEGRADED, None)


_TO_COME = frozenset({"ProviderNotFound"})
"""Faults of a spec that others can mend as well: a provider that is named may register later."""


def overall_conditions(verdict: Rollup) -> list[Condition]:
    """Returns ``Ready``, ``Reconciling`` and ``Stalled``, for generic tools (kstatus, and with it Flux and cli-utils).

    kstatus checks ``Reconciling=True`` (InProgress), ``Stalled=True`` (Failed), then ``Ready``. Stalled means that the
    deployment failed, or that only a change of the spec can help. A degraded deployment is neither reconciling nor
    stalled: it may recover by itself. All three are always returned: one of several owners of a list map's entry cannot
    remove it.
    """
    fault = verdict.fault
    config = fault is not None and fault.kind is Category.CONFIG and fault.reason not in _TO_COME
    stalled = verdict.phase is Phase.FAILED or (verdict.phase is Phase.PENDING and config)
    reconciling = verdict.phase in (Phase.PENDING, Phase.DEPLOYING) and not stalled
    found = [Condition(type="Ready", status=verdict.ready, reason=verdict.reason, message=verdict.message)]
    for type_, status in (("Reconciling", reconciling), ("Stalled", stalled)):
        reason, message = (verdict.reason, verdict.message) if status else (f"Not{type_}", "")
        found.append(Condition(type=type_, status=status, reason=reason, message=message))
    return found


_PARENT_OF = {
    Category.CONFIG: "ConfigValid",
    Category.AUTH: "AuthValid",
    Category.CONNECTIVITY: "DependenciesReachable",
    Category.STALE: "DependenciesReachable",
}


def parent_of(condition: Resource, *, of_parts: bool = False) -> str | None:
    """Returns the parent that a condition makes False; None if it makes none False.

    Unknown counts too if the reason is Stale (a missing heartbeat). `of_parts` is as for `parent_conditions`.
    """
    # The overall conditions repeat their children, and the parents must not be derived from themselves.
    if condition.get("type") in (_OF_NO_KIND if of_parts else _NO_CHILDREN):
        return None
    category, status = category_of(str(condition.get("reason"))), condition.get("status")
    counts = status == "False" or (status == "Unknown" and category is Category.STALE)
    return _PARENT_OF.get(category) if counts else None


def parent_conditions(conditions: Iterable[Resource], *, of_parts: bool = False) -> list[Condition]:
    """Returns ``ConfigValid``, ``AuthValid`` and ``DependenciesReachable``, derived from all other False conditions.

    Conditions of the gateway part do not count: a refused route is no fault of the deployment's own configuration.
    With `of_parts` they count, for a kind that a part reconciles. All three are always returned; a False one has the
    reason and message of its first child, sorted by type.
    """
    against: dict[str, Resource] = {}
    for child in sorted(conditions, key=lambda c: str(c.get("type"))):
        if (parent := parent_of(child, of_parts=of_parts)) is not None:
            against.setdefault(parent, child)
    found = []
    for parent, fine in _FINE.items():
        child = against.get(parent, {"reason": fine})
        reason, message = str(child["reason"]), str(child.get("message", ""))
        found.append(Condition(type=parent, status=parent not in against, reason=reason, message=message))
    return found


def unreachable_since(status: object) -> datetime | None:
    """Since when ``DependenciesReachable`` is False in a status; None if it is not.

    The grace of a connectivity fault counts from this moment, whichever pod, try or object showed it first.
    """
    condition = condition_of({"status": status}, "DependenciesReachable")
    found = condition is not None and condition.get("status") == "False"
    return parse_time(condition.get("lastTransitionTime")) if condition is not None and found else None


def still_unreachable(before: Resource | None, reason: str) -> bool:
    """Whether a child condition that would report `reason` keeps the connectivity fault that it had before.

    A new pod, a new try or another object only makes progress: that is no success of the dependency, and must not turn
    ``DependenciesReachable`` True for a moment. Only the caller knows a success; then it does not ask.
    """
    if before is None or before.get("status") != "False":
        return False
    was = category_of(str(before.get("reason")))
    return was is Category.CONNECTIVITY and category_of(reason) in (Category.PROGRESS, Category.UNKNOWN)


def since(conditions: Iterable[Resource], type_: str, reason: str) -> datetime | None:
    """Returns since when the condition has been False or Unknown with that reason; None if it was not.

    For a dependency that is out of reach it is when ``DependenciesReachable`` turned False: the component may have been
    False before, while it only worked.
    """
    if category_of(reason) is Category.CONNECTIVITY:
        parents = (each for each in conditions if each.get("type") == _REACHABLE and each.get("status") == "False")
        return next((parse_time(each.get("lastTransitionTime")) for each in parents), None)
    for condition in conditions:
        if condition.get("type") == type_ and condition.get("status") != "True" and condition.get("reason") == reason:
            return parse_time(condition.get("lastTransitionTime"))
    return None


# ---------------------------------------------------------------------------------------- kinds other than deployments

_REACHABLE = "DependenciesReachable"
_AGAIN = re.compile(r"; (?:it is tried again|the next one is) at \S+$")

_AS_DEPLOYMENT = {"Ready": "Running", "Starting": "Deploying", "Progressing": "Deploying"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one child condition says."""

    ready: bool | None
    """None: not known."""
    reason: str
    """A reason of the registry."""
    message: str
    """Why, as a sentence."""

    def condition(self, type_: str) -> Condition:
        """The condition that says it."""
        return Condition(type=type_, status=self.ready, reason=self.reason, message=self.message)


def not_reached_yet(before: Resource | None, verdict: Verdict) -> Verdict:
    """The verdict on work that goes on, as long as nothing shows that a dependency answers that did not: a new pod or a
    new try is no success of it. `before` is the condition as the status has it.
    """
    known = before or {}
    reason, message = str(known.get("reason")), str(known.get("message", ""))
    failed = known.get("status") == "False" and category_of(reason) is Category.CONNECTIVITY
    if not failed or verdict.ready is True or category_of(verdict.reason) is not Category.PROGRESS:
        return verdict
    return Verdict(ready=False, reason=reason, message=_AGAIN.sub("; it is being tried again", message))


def not_reached_since(before: Iterable[Resource], type_: str) -> tuple[Resource, ...]:
    """The failure of a child to reach its dependency, by the conditions of a status, as one of the `failures` of
    `summary_of`; for a child that now fails before it asks, as by a quota. Empty if it had none.
    """
    known = list(before)
    failed = [
        each
        for each in known
        if each.get("status") == "False" and category_of(str(each.get("reason"))) is Category.CONNECTIVITY
    ]
    children = {each.get("type") for each in failed if parent_of(each, of_parts=True)}
    parent = next((each for each in failed if each.get("type") == _REACHABLE), None)
    if parent is None or (children and type_ not in children):
        return ()
    said = {field: str(parent.get(field, "")) for field in ("reason", "message")}
    return ({"type": type_, "status": "False", **said},)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What follows from children and faults."""

    generation: int
    """Of the spec."""
    rollup: Rollup
    """The phase, as that of a deployment, and its reason and message."""
    conditions: list[Resource]
    """The children and the parents, sorted by type."""


def summary_of(
    obj: Resource,
    children: Sequence[Condition],
    faults: Sequence[Fault],
    *,
    created: bool,
    served: bool = False,
    not_available: Phase = Phase.DEGRADED,
    failures: Sequence[Resource] = (),
    running_message: str,
    now: datetime,
    grace: timedelta = DEPENDENCY_GRACE,
    patience: timedelta = CAPACITY_PATIENCE,
) -> Summary:
    """Returns the summary of an object. Total for any JSON.

    `not_available` is the phase of a deployment as which an earlier NotAvailable counts. `failures` are further
    conditions from which the parents are derived, and which are not written.
    """
    generation, before = dig(obj, "metadata", "generation"), conditions_in(obj.get("status"))
    generation = generation if type(generation) is int and 0 <= generation < 2**63 else 0
    previous = dig(obj, "status", "phase")
    same: Mapping[str, str] = {**_AS_DEPLOYMENT, "NotAvailable": not_available.value}
    rollup = roll_up(
        faults,
        previous=same.get(previous, previous) if isinstance(previous, str) else None,
        created=created,
        served=served,
        now=now,
        running_message=running_message,
        grace=grace,
        patience=patience,
    )
    found = [*written(children, previous=before, generation=generation, now=now), *failures]
    overall = [each for each in overall_conditions(rollup) if each.type == "Ready"]
    conditions = written(
        [*children, *parent_conditions(found, of_parts=True), *overall],
        previous=before,
        generation=generation,
        now=now,
    )
    return Summary(generation=generation, rollup=rollup, conditions=conditions)
