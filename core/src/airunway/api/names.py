"""The names that AI Runway puts on objects: group, labels, annotations, finalizers, field managers; and limits."""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "ADOPT",
    "API_VERSION",
    "COMPONENT",
    "CORE_MANAGER",
    "DEPLOYMENT_UID",
    "DRY_RUN",
    "FINALIZER_TIMEOUT",
    "GROUP",
    "MANAGED_BY",
    "MANAGED_BY_VALUE",
    "MAX_NAME_LENGTH",
    "MODEL_DEPLOYMENT",
    "PAUSED",
    "PROVIDER",
    "RUNTIME_SETTINGS",
    "SPEC_HASH",
    "TRANSFORMER",
    "VERSION",
    "WRITTEN_FOR",
    "guard_manager",
    "provider_finalizer",
    "provider_manager",
    "provider_of_finalizer",
    "provider_of_manager",
    "whose",
]

GROUP = "airunway.ai"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MANAGED_BY = f"{GROUP}/managed-by"
MANAGED_BY_VALUE = "airunway"
MODEL_DEPLOYMENT = f"{GROUP}/model-deployment"
"""Label with the deployment's name, on every object made for it and on its pods where the upstream allows."""

PROVIDER = f"{GROUP}/provider"
"""Label with the provider's name, on every object and pod that it makes: it touches no others (spec ruling 26)."""

COMPONENT = f"{GROUP}/component"
"""Label that tells the pods of one deployment apart where we write them: ``server``, ``prefill``, ``decode``, …"""

ADOPT = f"{GROUP}/adopt"
"""Annotation on a ModelDeployment: a new value takes the newest transformer and version for what runs (ruling 27)."""

WRITTEN_FOR = f"{GROUP}/written-for"
"""Annotation on the primary upstream object: digest of the part of the deployment that it was written for."""

RUNTIME_SETTINGS = f"{GROUP}/runtime-settings"
"""Annotation on the primary upstream object: the settings that it was made with and keeps, and a digest of the part of
the deployment whose change takes newer ones (ruling 23)."""

PAUSED = f"{GROUP}/reconcile-paused"
"""Annotation: exactly ``"true"`` stops reconciliation (deletion goes on)."""
DRY_RUN = f"{GROUP}/dry-run"
SPEC_HASH = f"{GROUP}/spec-hash"
"""Annotation on upstream objects: digest of what was applied last."""

TRANSFORMER = f"{GROUP}/transformer"
"""Annotation on the primary upstream object: the transformer that wrote it."""

DEPLOYMENT_UID = f"{GROUP}/deployment-uid"
"""Annotation on upstream objects: the uid of their deployment, for when somebody removes the owner reference."""

MAX_NAME_LENGTH = 52
"""Longest name of a ModelDeployment: derived names (pods, revisions, routes) must stay within 63 characters."""

FINALIZER_TIMEOUT = timedelta(minutes=5)
"""Time from its deletion after which a deployment is not held any longer, whatever the cause (spec ruling 21)."""

CORE_MANAGER = "airunway-controller"


def provider_manager(provider: str) -> str:
    """The field manager of a provider's writes (spec ruling 14)."""
    return f"airunway-provider-{provider}"


def provider_of_manager(manager: str) -> str:
    """The provider whose field manager that is; empty if it is none of a provider's."""
    prefix = provider_manager("")
    return manager.removeprefix(prefix) if manager.startswith(prefix) else ""


def guard_manager(namespace: str) -> str:
    """The field manager of what the core in that namespace tells the guards of providers."""
    return f"airunway-guard-{namespace}"


def provider_finalizer(provider: str) -> str:
    """The finalizer that a provider holds on its ModelDeployments while something upstream may exist."""
    return f"{GROUP}/{provider}-provider"


def provider_of_finalizer(finalizer: str) -> str:
    """The provider whose finalizer that is; empty if it is none of a provider's."""
    prefix, suffix = f"{GROUP}/", "-provider"
    if not (finalizer.startswith(prefix) and finalizer.endswith(suffix)):
        return ""
    return finalizer[len(prefix) : -len(suffix)]


def whose(deployment: str, *, provider: str) -> dict[str, str]:
    """The labels that say whose an object or a pod is, by the names of the deployment and of the provider."""
    return {MANAGED_BY: MANAGED_BY_VALUE, MODEL_DEPLOYMENT: deployment, PROVIDER: provider}
