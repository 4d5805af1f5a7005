"""Engine and provider selection: pure, deterministic, and able to say why (spec/core.md, "Selection")."""

from airunway.selection.engine import NO_HEALTHY, PREFERENCE, EngineChoice, choose_engine
from airunway.selection.facts import (
    AVAILABLE,
    HEARTBEAT_INTERVAL,
    STALE_AFTER,
    EngineFacts,
    ProviderFacts,
    Request,
    UpstreamFacts,
    is_available,
    provider_facts,
    request_of,
)
from airunway.selection.grants import (
    choose_granted_engine,
    choose_willing_engine,
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
    FailedCheck,
    ProviderChoice,
    choose_provider,
    weigh,
    weigh_at_best,
)
from airunway.selection.record import is_denied, recorded
from airunway.selection.refusals import REFUSED_BY, ProviderRefusal, is_undecided, refusals, refused_by
from airunway.selection.rules import RuleResult, evaluate_rules, score_of

__all__ = [
    "AVAILABLE",
    "HEARTBEAT_INTERVAL",
    "NO_HEALTHY",
    "PREFERENCE",
    "REFUSED_BY",
    "STALE_AFTER",
    "Candidate",
    "EngineChoice",
    "EngineFacts",
    "FailedCheck",
    "Misfit",
    "ProviderChoice",
    "ProviderFacts",
    "ProviderRefusal",
    "Request",
    "RuleResult",
    "UpstreamFacts",
    "choose_engine",
    "choose_granted_engine",
    "choose_provider",
    "choose_willing_engine",
    "denied",
    "evaluate_rules",
    "forbidden_by",
    "forbidden_now",
    "granted",
    "is_accepted",
    "is_available",
    "is_denied",
    "is_undecided",
    "not_installed",
    "not_registered",
    "provider_facts",
    "recorded",
    "refusals",
    "refused_by",
    "request_of",
    "score_of",
    "unsettled",
    "unsupported",
    "weigh",
    "weigh_at_best",
]
