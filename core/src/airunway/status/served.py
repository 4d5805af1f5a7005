"""Whether a deployment has served: the record that tells a lost workload from one that never came up.

The phase before cannot tell it: Degraded is also what refused credentials make of a first start. So the first time
that a deployment is ready the condition ``Served`` is written, and it stays as it is while readiness comes and goes:
its `lastTransitionTime` is the first time, its `observedGeneration` the newest generation that was served. It goes
with the upstream object that it is about.
"""

from __future__ import annotations

from datetime import datetime

from airunway.resource import Resource, condition_of, parse_time
from airunway.status.conditions import Condition, written

__all__ = ["SERVED", "served_before", "served_record"]

SERVED = "Served"


def served_before(status: Resource, *, created: datetime | None) -> Resource | None:
    """The condition ``Served`` of a status as it stands, if it counts for an object that was made at `created`.

    Where that is not known (None), it counts.
    """
    record = condition_of({"status": status}, SERVED)
    if record is None or record.get("status") != "True":
        return None
    since = parse_time(record.get("lastTransitionTime"))
    return None if created is not None and since is not None and since < created else record


def served_record(before: Resource | None, *, ready: bool, generation: int, now: datetime) -> Resource | None:
    """The condition ``Served`` that follows on the one before (None: none that counts).

    What of that nobody can read is written anew: kept as it is, no API server would take the status.
    """
    if not ready:
        if before is None:
            return None
        known = before.get("observedGeneration")
        generation = known if isinstance(known, int) else generation
    condition = Condition(type=SERVED, status=True, reason=SERVED, message="The model has been served")
    return written([condition], previous=[before] if before else [], generation=generation, now=now)[0]
