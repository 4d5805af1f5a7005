"""What a step of a pass has to say, once: the condition and the fault are both made from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airunway.status import Category, Condition, Fault

__all__ = ["Told"]


@dataclass(frozen=True, kw_only=True)
class Told:
    """`condition` is the condition's type (empty: none is written), `ok` its status.

    With `hinders` the deployment is not ready because of it; the rest says how, as of a fault: `component` (default:
    the condition), `waits`, `partial`, `category` where the reason alone does not tell, `since`.
    """

    condition: str = ""
    ok: bool = False
    reason: str
    message: str
    hinders: bool = False
    component: str = ""
    waits: bool = False
    partial: bool = False
    category: Category | None = None
    since: datetime | None = None

    def as_condition(self) -> Condition | None:
        if not self.condition:
            return None
        return Condition(type=self.condition, status=self.ok, reason=self.reason, message=self.message)

    def as_fault(self) -> Fault | None:
        if not self.hinders:
            return None
        return Fault(
            component=self.component or self.condition,
            reason=self.reason,
            message=self.message,
            since=self.since,
            waits=self.waits,
            partial=self.partial,
            category=self.category,
        )
