"""Model templates: which one a deployment uses, what it gives, and the effective spec. Pure (platform.md)."""

from airunway.templates.choice import (
    CLUSTER_KIND,
    KIND,
    USABLE,
    Choice,
    Request,
    answers,
    choose,
    request_of,
)
from airunway.templates.contribution import Contribution, contribution_of, keeps_warm, warm_requests
from airunway.templates.expansion import (
    TEMPLATE_READY,
    Expansion,
    effective,
    effective_model,
    expand,
    is_default,
    recorded_contribution,
)

__all__ = [
    "CLUSTER_KIND",
    "KIND",
    "TEMPLATE_READY",
    "USABLE",
    "Choice",
    "Contribution",
    "Expansion",
    "Request",
    "answers",
    "choose",
    "contribution_of",
    "effective",
    "effective_model",
    "expand",
    "is_default",
    "keeps_warm",
    "recorded_contribution",
    "request_of",
    "warm_requests",
]
