"""Engine and provider selection: pure, deterministic, and able to say why (spec/core.md, "Selection")."""

from airunway.selection.engine import NO_HEALTHY, PREFERENCE, EngineChoice, choose_engine
from airunway.selection.facts import (
    HEARTBEAT_INTERVAL,
    STALE_AFTER,
    EngineFacts,
    ProviderFacts,
    Request,
    UpstreamFacts,
    provider_facts,
    request_of,
)
from airunway.selection.grants import (
    choose_granted_engine,
    denied,
    forbidden_by,
    forbidden_now,
    granted,
    is_accepted,
    unsettled,
)
from airunway.selection.pinned import Misfit, not_installed, not_registered, unsupported
from airunway.selection.provider import (
    Candidate,
    Check,
    ProviderChoice,
    choose_provider,
    weigh,
    weigh_at_best,
)
from airunway.selection.record import is_denied, recorded
from airunway.selection.rules import RuleResult, evaluate_rules, score_of

__all__ = [
    "HEARTBEAT_INTERVAL",
    "NO_HEALTHY",
    "PREFERENCE",
    "STALE_AFTER",
    "Candidate",
    "Check",
    "EngineChoice",
    "EngineFacts",
    "Misfit",
    "ProviderChoice",
    "ProviderFacts",
    "Request",
    "RuleResult",
    "UpstreamFacts",
    "choose_engine",
    "choose_granted_engine",
    "choose_provider",
    "denied",
    "evaluate_rules",
    "forbidden_by",
    "forbidden_now",
    "granted",
    "is_accepted",
    "is_denied",
    "not_installed",
    "not_registered",
    "provider_facts",
    "recorded",
    "request_of",
    "score_of",
    "unsettled",
    "unsupported",
    "weigh",
    "weigh_at_best",
]
