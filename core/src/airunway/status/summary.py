"""Phase and conditions of a kind that is no deployment: an artifact, a template, a source (spec/status.md). Pure.

The roll-up is the deployments' own. A kind gives its children and faults, and names its phases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.resource import Resource, dig, format_time
from airunway.status.conditions import Condition, conditions_in, written
from airunway.status.rollup import (
    CAPACITY_PATIENCE,
    DEPENDENCY_GRACE,
    Fault,
    Phase,
    Rollup,
    overall_conditions,
    parent_conditions,
    roll_up,
)
from airunway.status.rootcause import RootCause

__all__ = ["Summary", "Verdict", "root_cause_status", "stored_conditions", "summary_of"]

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


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What follows from children and faults."""

    generation: int
    """Of the spec."""
    rollup: Rollup
    """The phase, as that of a deployment, and its reason and message."""
    conditions: list[Resource]
    """The children, then the four parents."""


def stored_conditions(obj: Resource) -> list[Resource]:
    """The conditions in the stored status. Total for any JSON."""
    status = obj.get("status")
    return conditions_in(status if isinstance(status, dict) else {})


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
    generation, before = dig(obj, "metadata", "generation"), stored_conditions(obj)
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


def root_cause_status(cause: RootCause, *, field: str) -> Resource:
    """``status.rootCause``; `field` is that of the object to look at."""
    return {
        "code": cause.code,
        "object": cause.object,
        "field": field,
        "message": cause.message,
        "since": format_time(cause.since),
    }
