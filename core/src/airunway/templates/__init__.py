"""Model templates: which one a deployment uses, what it gives, and the effective spec. Pure (platform.md).

What a template gives is in `airunway.templates.contribution`, apart: it needs `artifacts`, and the views do not.
"""

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
from airunway.templates.expansion import (
    OWN_SPEC,
    TEMPLATE_READY,
    Expansion,
    effective,
    effective_model,
    expand,
    is_default,
    own_spec,
    recorded_contribution,
)

__all__ = [
    "CLUSTER_KIND",
    "KIND",
    "OWN_SPEC",
    "TEMPLATE_READY",
    "USABLE",
    "Choice",
    "Expansion",
    "Request",
    "answers",
    "choose",
    "effective",
    "effective_model",
    "expand",
    "is_default",
    "own_spec",
    "recorded_contribution",
    "request_of",
]
