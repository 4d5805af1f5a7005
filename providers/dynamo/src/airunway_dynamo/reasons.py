"""Dynamo's reasons and error texts in the words of the reason registry (spec/status.md), as data."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airunway.sdk.conditions import CREATION, meaning

__all__ = ["of"]

_NO_FAULT = "Progressing"

_REASONS: Mapping[str, str] = {
    # "Not ready" is also how an image that cannot be pulled looks, and a crash: the pods say which.
    "some_resources_are_not_ready": _NO_FAULT,
    "pods_not_ready": _NO_FAULT,
    "updating": _NO_FAULT,
    "mixed_not_ready_reasons": _NO_FAULT,
    "rolling_update_in_progress": _NO_FAULT,
    "waiting_for_checkpoint": _NO_FAULT,
    "insufficient_capacity": "InsufficientCapacity",
    "rolling_update_failed": "UpstreamFailed",
    "no_multinode_orchestrator_available": "IncompatibleConfiguration",
    "unsupported_workload_provider": "IncompatibleConfiguration",
    "selected_workload_provider_unavailable": "IncompatibleConfiguration",
}

_ERRORS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (r"the object has been modified|already exists", _NO_FAULT),
        (r"exceeds the \d{1,4}-character", "NameTooLong"),
        (r"is immutable|must have at least one|required value|invalid value", "InvalidSpec"),
        (r"no such host|server misbehaving", "DNSFailure"),
        (r"connection refused", "ConnectionRefused"),
        (r"timeout|deadline exceeded", "Timeout"),
    )
)


def of(reason: str, *, state: str, message: str) -> str:
    """What a graph that is not ready means.

    An error of the operator is tried again by itself, so that one which nobody knows is something out of reach, told
    once it lasts.
    """
    if reason in _REASONS:
        return _REASONS[reason]
    if state != "failed":
        return _NO_FAULT
    for pattern, found in _ERRORS:
        if pattern.search(message):
            return found
    return meaning(message, CREATION, otherwise="DependenciesUnreachable")
