"""Labels and annotations of AI Runway that a provider reads, or sets on objects and pods."""

from airunway.api.names import (
    ADOPT,
    COMPONENT,
    GROUP,
    MANAGED_BY,
    MODEL_DEPLOYMENT,
    PART,
    PAUSED,
    PROVIDER,
    whose,
)

__all__ = ["ADOPT", "COMPONENT", "GROUP", "MANAGED_BY", "MODEL_DEPLOYMENT", "PART", "PAUSED", "PROVIDER", "whose"]
