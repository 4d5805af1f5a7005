"""Decides how a model is reached from outside: Gateway, path and model name, route, pool and picker.

Pure functions over plain dicts and frozen values, without I/O. The gateway part reads the facts, calls `decide` and
writes what it returns.
"""

from __future__ import annotations

from airunway.routing.backends import (
    Backend,
    BackendKind,
    Picker,
    Waiting,
    backend_of,
    equalities,
    picker_for,
    pool_objects,
)
from airunway.routing.claims import Claim, Claimant, ClaimKind, Claims, Conflict, claimant_of
from airunway.routing.decision import Decision, decide
from airunway.routing.gateways import (
    ChosenGateway,
    Target,
    choose,
    gateway_status,
    usable,
    verdict_of,
)
from airunway.routing.intent import CONDITION, MARK, Facts, Flags, Probe, claims_of, intent_of
from airunway.routing.routes import MODEL_HEADER, Rules, route

__all__ = [
    "CONDITION",
    "MARK",
    "MODEL_HEADER",
    "Backend",
    "BackendKind",
    "ChosenGateway",
    "Claim",
    "ClaimKind",
    "Claimant",
    "Claims",
    "Conflict",
    "Decision",
    "Facts",
    "Flags",
    "Picker",
    "Probe",
    "Rules",
    "Target",
    "Waiting",
    "backend_of",
    "choose",
    "claimant_of",
    "claims_of",
    "decide",
    "equalities",
    "gateway_status",
    "intent_of",
    "picker_for",
    "pool_objects",
    "route",
    "usable",
    "verdict_of",
]
