"""KAITO as most tests look at it: one replica is a Workspace, as where no controller of InferenceSets runs."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of, load
from airunway.sdk import setting
from airunway_kaito import provider
from airunway_kaito.settings import Settings


@dataclass(frozen=True, kw_only=True)
class OneWorkspace(Settings):
    """KAITO's settings where one replica is a Workspace."""

    inference_set: Literal["Auto", "Always", "WhenScaled"] = setting("WhenScaled", "As in the provider's own settings.")


def kaito_of_workspaces() -> ProviderHost:
    """KAITO, with `OneWorkspace` as its settings. With its own, a new deployment is an InferenceSet (tests/kaito)."""
    plugin = copy(provider)
    plugin.manifest = replace(provider.manifest, settings=OneWorkspace)
    return host_of("kaito", plugin, origin=load("kaito").origin)
