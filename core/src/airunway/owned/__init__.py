"""Makes the objects that an owner has: plans, create-only applies, deletions, conflicts and fights.

Providers and parts use it alike. Example: the gateway part completes an HTTPRoute (`complete`), compares it with the
live objects (`plan_of`) and carries the steps out
(`apply_objects`).
"""

from airunway.owned.apply import Applied, apply_objects, write
from airunway.owned.error_policies import POLICIES, ErrorPolicy, Occupied, Refused, policy_of
from airunway.owned.history import (
    FIGHT_PAUSE,
    FIGHT_REVERTS,
    FIGHT_WINDOW,
    Fight,
    WriteHistory,
    fight_text,
    fought,
    is_drift,
)
from airunway.owned.objects import Identity, Mark, complete, identity_in, is_ours, named, our_labels
from airunway.owned.plan import Action, Plan, Rules, Step, conflict_text, plan_of
from airunway.owned.writer import NEVER, Writer, WrittenKind, missing_of

__all__ = [
    "FIGHT_PAUSE",
    "FIGHT_REVERTS",
    "FIGHT_WINDOW",
    "NEVER",
    "POLICIES",
    "Action",
    "Applied",
    "ErrorPolicy",
    "Fight",
    "Identity",
    "Mark",
    "Occupied",
    "Plan",
    "Refused",
    "Rules",
    "Step",
    "WriteHistory",
    "Writer",
    "WrittenKind",
    "apply_objects",
    "complete",
    "conflict_text",
    "fight_text",
    "fought",
    "identity_in",
    "is_drift",
    "is_ours",
    "missing_of",
    "named",
    "our_labels",
    "plan_of",
    "policy_of",
    "write",
]
