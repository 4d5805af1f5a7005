"""Decides how a model is reached from outside: Gateway, path and model name, route, pool and picker.

Pure functions over plain dicts and frozen values, without I/O. The gateway part reads the facts, calls `decide` and
writes what it returns.
"""

from __future__ import annotations

from airunway.routing.backends import POOL_GROUP, Backend, BackendKind, Waiting, backend_of, equalities
from airunway.routing.claims import Claim, Claimant, ClaimKind, Claims, Conflict, claimant_of
from airunway.routing.decision import CONFLICT_RETRY, Decision, decide
from airunway.routing.gateways import GATEWAY_GROUP, Choice, Listener, Target, choose, usable
from airunway.routing.intent import CONDITION, MARK, Facts, Flags, Intent, Probe, claims_of, intent_of, own_route
from airunway.routing.pools import Picker, PickerProblem, picker_for, pool_objects
from airunway.routing.routes import MODEL_HEADER, Rules, route
from airunway.routing.verdict import ACCEPTED, Verdict, gateway_status, verdict_of

__all__ = [
    "ACCEPTED",
    "CONDITION",
    "CONFLICT_RETRY",
    "GATEWAY_GROUP",
    "MARK",
    "MODEL_HEADER",
    "POOL_GROUP",
    "Backend",
    "BackendKind",
    "Choice",
    "Claim",
    "ClaimKind",
    "Claimant",
    "Claims",
    "Conflict",
    "Decision",
    "Facts",
    "Flags",
    "Intent",
    "Listener",
    "Picker",
    "PickerProblem",
    "Probe",
    "Rules",
    "Target",
    "Verdict",
    "Waiting",
    "backend_of",
    "choose",
    "claimant_of",
    "claims_of",
    "decide",
    "equalities",
    "gateway_status",
    "intent_of",
    "own_route",
    "picker_for",
    "pool_objects",
    "route",
    "usable",
    "verdict_of",
]
