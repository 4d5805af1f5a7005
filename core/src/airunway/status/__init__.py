"""Computes the status from facts: reasons, conditions, and the roll-up to one phase (spec/status.md).

The core and every provider use it. It does not depend on the Kubernetes client.
"""

from airunway.redaction import MESSAGE_LIMIT, bounded
from airunway.status.conditions import (
    SERVED,
    Condition,
    as_word,
    conditions_in,
    served_before,
    served_record,
    written,
    written_on,
)
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
    parent_of,
    roll_up,
    since,
)

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
    "parent_of",
    "roll_up",
    "served_before",
    "served_record",
    "since",
    "written",
    "written_on",
]
