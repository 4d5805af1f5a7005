"""The AI Runway provider for KAITO: a ModelDeployment becomes a `kaito.sh` Workspace, and its status comes back.

Translation and data only; the loop that applies and watches is the provider runtime's (spec/providers.md). `provider`
is the plugin object that the entry point names.
"""

from airunway_kaito.provider import provider

__all__ = ["provider"]
