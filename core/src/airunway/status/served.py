"""Records whether a deployment has served, to distinguish a lost workload from one that never came up.

The previous phase is not enough: a first start with refused credentials is Degraded too. So the condition ``Served`` is
written when a deployment is ready for the first time, and stays when it becomes unready. Its `lastTransitionTime` is
the first time, its `observedGeneration` the newest generation that was served. It is dropped with the upstream object.
"""

from __future__ import annotations

from datetime import datetime

from airunway.resource import Resource, condition_of, parse_time
from airunway.status.conditions import Condition, written

__all__ = ["SERVED", "served_before", "served_record"]

SERVED = "Served"


def served_before(status: Resource, *, created: datetime | None) -> Resource | None:
    """Returns the condition ``Served`` of a status, if it counts for an object that was created at `created`.

    It also counts if that time is not known (None).
    """
    record = condition_of({"status": status}, SERVED)
    if record is None or record.get("status") != "True":
        return None
    since = parse_time(record.get("lastTransitionTime"))
    return None if created is not None and since is not None and since < created else record


def served_record(before: Resource | None, *, ready: bool, generation: int, now: datetime) -> Resource | None:
    """Returns the next condition ``Served``; `before` is the previous one that counts (None: there is none).

    Malformed parts of it are written anew, because the API server would refuse the status with them.
    """
    if not ready:
        if before is None:
            return None
        known = before.get("observedGeneration")
        generation = known if type(known) is int else generation  # a bool is an int, but not for the API server
    condition = Condition(type=SERVED, status=True, reason=SERVED, message="The model has been served")
    return written([condition], previous=[before] if before else [], generation=generation, now=now)[0]
