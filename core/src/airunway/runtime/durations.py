"""Since when each fault lasts: remembered while the process runs, read out of the status after a restart.

A fault that lasts keeps its beginning whatever else gets better or worse meanwhile; one that goes and comes back begins
anew (spec/status.md, "Debounce").
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airunway.resource import ObjectKey, Resource, dig
from airunway.status import Fault, since
from airunway.status.codes import CODES
from airunway.status.evidence import parse_moment
from airunway.status.rootcause import RootCause

__all__ = ["Durations", "previous_cause"]


class Durations:
    """The beginnings of the faults of every deployment."""

    def __init__(self) -> None:
        self._known: dict[ObjectKey, dict[tuple[str, str], datetime]] = {}

    def date(
        self, key: ObjectKey, faults: Iterable[Fault], *, status: Resource, now: datetime
    ) -> dict[tuple[str, str], datetime]:
        """The beginning of each of `faults`, by component and reason; what is not among them is forgotten.

        Of a fault that this process has not seen before, `status` may tell, else the fault itself; else it begins now.
        """
        known = self._known.get(key, {})
        found: dict[tuple[str, str], datetime] = {}
        for fault in faults:
            name = (fault.component, fault.reason)
            if name not in found:
                begun = known.get(name) or _restored(fault, status) or fault.since or now
                found[name] = min(begun, now)
        if found:
            self._known[key] = found
        else:
            self.forget(key)
        return found

    def forget(self, key: ObjectKey) -> None:
        self._known.pop(key, None)


def _restored(fault: Fault, status: Resource) -> datetime | None:
    """What a status that was written before tells: the root cause exactly, a condition at least a lower bound."""
    cause = previous_cause(status)
    if cause is not None and cause.code in CODES and fault.reason in CODES[cause.code].reasons:
        return cause.since
    conditions = dig(status, "conditions")
    entries = [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
    return since(entries, f"{fault.component}Ready", fault.reason)


def previous_cause(status: Resource) -> RootCause | None:
    """``status.rootCause`` as it stands, or None if there is none (or none that could be ours)."""
    found = dig(status, "rootCause")
    begun = parse_moment(dig(found, "since"))
    code, object_ = dig(found, "code"), dig(found, "object")
    if not isinstance(code, str) or not isinstance(object_, str) or begun is None:
        return None
    return RootCause(
        code=code,
        object=object_,
        field=str(dig(found, "field", default="")),
        message=str(dig(found, "message", default="")),
        since=begun,
        remedy="",
        reason="",
    )
