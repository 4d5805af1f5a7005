"""From components to one phase: the roll-up that the core and every provider share (spec/status.md).

Pure and total: facts, the previous phase and now go in; a verdict comes out, for any input. Nobody sets a phase by
hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from airunway.resource import Resource, parse_time
from airunway.status.conditions import Condition, as_word, bounded
from airunway.status.reasons import Category, category_of

__all__ = [
    "CAPACITY_PATIENCE",
    "DEPENDENCY_GRACE",
    "OVERALL",
    "PARENTS",
    "Fault",
    "Phase",
    "Rollup",
    "overall_conditions",
    "parent_conditions",
    "roll_up",
]

DEPENDENCY_GRACE = timedelta(seconds=10)
"""How long a dependency may be unreachable before the phase says so (seed 003; RuntimeConfig can change it)."""

CAPACITY_PATIENCE = timedelta(minutes=15)
"""How long missing capacity counts as normal waiting."""

PARENTS = ("ConfigValid", "AuthValid", "DependenciesReachable")

OVERALL = ("Ready", "Reconciling", "Stalled")
"""Conditions about the whole, with the meaning that kstatus gives them; whoever owns the phase owns these."""


class Phase(StrEnum):
    """``status.phase`` (spec ruling 16)."""

    FAILED = "Failed"
    DEGRADED = "Degraded"
    PENDING = "Pending"
    DEPLOYING = "Deploying"
    RUNNING = "Running"
    TERMINATING = "Terminating"


_BADNESS = [Phase.FAILED, Phase.DEGRADED, Phase.PENDING, Phase.DEPLOYING, Phase.RUNNING]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is not ready: the component, its reason, its own message, and since when (None: just now)."""

    component: str
    reason: str
    message: str = ""
    since: datetime | None = None
    pending: bool = False
    """True for a component that waits for something else first (Pending rather than Deploying)."""
    category: Category | None = None
    """The category where the reason alone does not tell: a reason that nobody registered."""
    only_degrades: bool = False
    """True where the rest goes on serving: such a fault degrades and never fails."""

    @property
    def kind(self) -> Category:
        return self.category or category_of(self.reason)


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """What the facts amount to.

    `wake_after` is the number of seconds after which time alone changes the verdict; `fault` the one that decided.
    """

    phase: Phase
    reason: str
    message: str
    ready: bool | None
    wake_after: float | None = None
    fault: Fault | None = None


def roll_up(
    faults: Sequence[Fault],
    *,
    previous: str | None,
    created: bool,
    now: datetime,
    served: bool = False,
    running_message: str = "All replicas are ready",
    grace: timedelta = DEPENDENCY_GRACE,
) -> Rollup:
    """The phase, its reason and message, and whether the deployment is ready.

    `previous` is the phase before this pass, `created` whether anything exists upstream, `served` whether what exists
    was Running at any time. The worst phase wins; of equal ones the fault that comes first, and of bad ones last
    those that only keep the phase that was.
    """
    if not faults:
        return Rollup(phase=Phase.RUNNING, reason="Ready", message=running_message, ready=True)
    served = served or previous == Phase.RUNNING.value
    judged = [
        _judge(fault, previous=previous, served=served, created=created, now=now, grace=grace) for fault in faults
    ]
    wake = min((seconds for _, seconds in judged if seconds is not None), default=None)

    def rank(position: int) -> tuple[int, bool, int]:
        # What only keeps a bad phase must not take the reason from the fault that made it so.
        phase, left = judged[position]
        kind = faults[position].kind
        keeps = kind in (Category.STALE, Category.UNKNOWN) or (kind is Category.CONNECTIVITY and left is not None)
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
    fault: Fault, *, previous: str | None, served: bool, created: bool, now: datetime, grace: timedelta
) -> tuple[Phase, float | None]:
    """The phase that one fault alone would give, and after how many seconds time alone would change that."""
    resting = Phase.PENDING if fault.pending or not created else Phase.DEPLOYING
    match fault.kind:
        case Category.CONFIG | Category.EXHAUSTION | Category.WORKLOAD if fault.only_degrades:
            return Phase.DEGRADED, None
        case Category.CONFIG:
            return (Phase.FAILED if created else Phase.PENDING), None
        case Category.SCOPED_CONFIG | Category.AUTH:
            return Phase.DEGRADED, None
        case Category.CONNECTIVITY if resting is Phase.PENDING:
            return Phase.PENDING, None
        case Category.CONNECTIVITY:
            # Degraded is kept too: what was wrong before has not been shown to be right by this.
            kept = next((phase for phase in (Phase.RUNNING, Phase.DEGRADED) if phase.value == previous), resting)
            return _after(fault, grace, before=kept, now=now)
        case Category.CAPACITY:
            # What waits for a node was created and asked for: that is deploying, however long the queue.
            waiting = Phase.DEPLOYING if created else Phase.PENDING
            return _after(fault, CAPACITY_PATIENCE, before=waiting, now=now)
        case Category.EXHAUSTION | Category.WORKLOAD:
            return (Phase.DEGRADED if served else Phase.FAILED), None
        case Category.PROGRESS:
            return resting, None
        case _:  # stale or unknown: nothing is known that would justify another phase than the one before
            return next((phase for phase in _BADNESS if phase.value == previous), resting), None


def _after(fault: Fault, patience: timedelta, *, before: Phase, now: datetime) -> tuple[Phase, float | None]:
    """`before` until the fault is as old as `patience`, Degraded from then on."""
    left = ((fault.since or now) + patience - now).total_seconds()
    return (before, left) if left > 0 else (Phase.DEGRADED, None)


def overall_conditions(verdict: Rollup) -> list[Condition]:
    """``Ready``, ``Reconciling`` and ``Stalled``: what generic tools read (kstatus, and with it Flux and cli-utils).

    kstatus decides by ``Reconciling=True`` (InProgress), ``Stalled=True`` (Failed), then ``Ready``. Stalled is what
    failed and what only a change of the spec can help; a degraded deployment is neither: it may recover by itself.
    All three are always there, since an entry of a list map whose owners differ cannot be dropped by one of them.
    """
    config = verdict.fault is not None and verdict.fault.kind is Category.CONFIG
    stalled = verdict.phase is Phase.FAILED or (verdict.phase is Phase.PENDING and config)
    reconciling = verdict.phase in (Phase.PENDING, Phase.DEPLOYING) and not stalled
    ready = Condition(type="Ready", status=verdict.ready, reason=verdict.reason, message=verdict.message)
    return [ready, _abnormal("Reconciling", reconciling, verdict), _abnormal("Stalled", stalled, verdict)]


def _abnormal(type_: str, status: bool, verdict: Rollup) -> Condition:
    if not status:
        return Condition(type=type_, status=False, reason=f"Not{type_}")
    return Condition(type=type_, status=True, reason=verdict.reason, message=verdict.message)


def parent_conditions(conditions: Iterable[Resource]) -> list[Condition]:
    """``ConfigValid``, ``AuthValid`` and ``DependenciesReachable``, derived from all other conditions that are False.

    Unknown counts too where somebody has not been heard of (Stale). Always all three; each carries the reason and
    message of the first child (by type) that speaks against it.
    """
    against: dict[str, Resource] = {}
    parent_of = {
        Category.CONFIG: "ConfigValid",
        Category.AUTH: "AuthValid",
        Category.CONNECTIVITY: "DependenciesReachable",
        Category.STALE: "DependenciesReachable",
    }
    for child in sorted(conditions, key=lambda c: str(c.get("type"))):
        # The overall ones repeat what a child already says; parents must not feed on themselves.
        if child.get("type") in (*PARENTS, *OVERALL) or child.get("status") not in ("False", "Unknown"):
            continue
        category = category_of(str(child.get("reason")))
        parent = parent_of.get(category)
        if parent is not None and (child.get("status") == "False" or category is Category.STALE):
            against.setdefault(parent, child)
    fine = {
        "ConfigValid": "ConfigurationValid",
        "AuthValid": "AuthenticationValid",
        "DependenciesReachable": "Reachable",
    }
    return [
        Condition(type=parent, status=True, reason=fine[parent])
        if parent not in against
        else Condition(
            type=parent,
            status=False,
            reason=str(against[parent]["reason"]),
            message=str(against[parent].get("message", "")),
        )
        for parent in PARENTS
    ]


def since(conditions: Iterable[Resource], type_: str, reason: str) -> datetime | None:
    """Since when the condition has been not True with that reason, or None if it was not before."""
    for condition in conditions:
        if condition.get("type") == type_ and condition.get("status") != "True" and condition.get("reason") == reason:
            return parse_time(condition.get("lastTransitionTime"))
    return None
