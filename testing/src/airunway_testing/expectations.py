"""What tests wait for: predicates over a ModelDeployment, for `operator.until` and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from airunway.resource import Resource, condition_of, dig

Expectation: TypeAlias = Callable[[Resource], bool]


def phase_is(phase: str) -> Expectation:
    return lambda deployment: dig(deployment, "status", "phase") == phase


def running_at(generation: int) -> Expectation:
    """Running, and the provider speaks of that generation."""

    def holds(deployment: Resource) -> bool:
        status = deployment.get("status") or {}
        return (status.get("phase"), status.get("observedGeneration")) == ("Running", generation)

    return holds


def has_replicas(wanted: int, ready: int) -> Expectation:
    """So many are wanted, and so many of them are ready."""

    def holds(deployment: Resource) -> bool:
        counts = dig(deployment, "status", "replicas") or {}
        return (counts.get("desired", 0), counts.get("ready", 0)) == (wanted, ready)

    return holds


def condition_is(type_: str, status: str) -> Expectation:
    return lambda deployment: (condition_of(deployment, type_) or {}).get("status") == status


def reason_is(type_: str, reason: str) -> Expectation:
    """The condition has that reason."""
    return lambda deployment: (condition_of(deployment, type_) or {}).get("reason") == reason


def says(text: str) -> Expectation:
    """``status.message`` contains the text."""
    return lambda deployment: text in str(dig(deployment, "status", "message"))


def plan_says(text: str) -> Expectation:
    """The message of the condition ``DryRun`` contains the text."""
    return lambda deployment: text in str((condition_of(deployment, "DryRun") or {}).get("message"))
