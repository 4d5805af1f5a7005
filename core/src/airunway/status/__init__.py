"""Facts in, status out: reasons, conditions, the roll-up to one phase (spec/status.md).

Used by the core and by every provider, so that there is one meaning of each word. Knows nothing of Kubernetes clients.
"""

from airunway.status.conditions import MESSAGE_LIMIT, Condition, as_word, bounded, conditions_in, written
from airunway.status.reasons import REASONS, Category, Reason, category_of
from airunway.status.rollup import (
    CAPACITY_PATIENCE,
    DEPENDENCY_GRACE,
    OVERALL,
    Fault,
    Phase,
    Rollup,
    overall_conditions,
    parent_conditions,
    roll_up,
    since,
)
from airunway.status.served import SERVED, served_before, served_record

__all__ = [
    "CAPACITY_PATIENCE",
    "DEPENDENCY_GRACE",
    "MESSAGE_LIMIT",
    "OVERALL",
    "REASONS",
    "SERVED",
    "Category",
    "Condition",
    "Fault",
    "Phase",
    "Reason",
    "Rollup",
    "as_word",
    "bounded",
    "category_of",
    "conditions_in",
    "overall_conditions",
    "parent_conditions",
    "roll_up",
    "served_before",
    "served_record",
    "since",
    "written",
]
