"""What generic tools make of an object: the rules of kstatus for kinds that it does not know.

kstatus is the library (sigs.k8s.io/cli-utils) with which Flux, kpt and Helm decide whether what they applied is there.
Written from its documentation: deletion counts first, then a generation that was not observed, then ``Reconciling``
and ``Stalled`` in the order in which they stand, then ``Ready``; an object that has none of these counts as current.
"""

from __future__ import annotations

from enum import StrEnum

from airunway.resource import Resource, dig


class Health(StrEnum):
    """The verdicts of kstatus; Failed ends the waiting of a tool that fails fast, as Flux does."""

    TERMINATING = "Terminating"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    CURRENT = "Current"


def health(obj: Resource) -> Health:
    """The verdict on an object as it stands."""
    if dig(obj, "metadata", "deletionTimestamp"):
        return Health.TERMINATING
    observed = dig(obj, "status", "observedGeneration")
    if observed is not None and observed != dig(obj, "metadata", "generation"):
        return Health.IN_PROGRESS
    conditions = dig(obj, "status", "conditions", default=[])
    for condition in conditions:
        if (condition["type"], condition["status"]) == ("Reconciling", "True"):
            return Health.IN_PROGRESS
        if (condition["type"], condition["status"]) == ("Stalled", "True"):
            return Health.FAILED
    for condition in conditions:
        if condition["type"] == "Ready":
            return Health.CURRENT if condition["status"] == "True" else Health.IN_PROGRESS
    return Health.CURRENT
