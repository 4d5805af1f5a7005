"""Functions that read common settings out of a ModelDeployment."""

from __future__ import annotations

from typing import Any

from airunway.api.modeldeployment import ModelDeployment
from airunway.resource import dig

__all__ = ["image_of", "is_disaggregated", "nodes_for", "overridden", "replicas_of"]


def image_of(deployment: ModelDeployment) -> str:
    """The image in the deployment (``spec.engine.image``, else ``spec.image``); empty: the engine's default image."""
    return deployment.spec.engine.image or deployment.spec.image or ""


def is_disaggregated(deployment: ModelDeployment) -> bool:
    """Whether prefill and decode run in separate workers."""
    return deployment.spec.serving.mode == "disaggregated"


def nodes_for(gpus: int, limit: int) -> int:
    """The number of nodes, with `limit` GPUs each, that `gpus` GPUs need; at least 1."""
    return max(1, -(-gpus // limit))


def overridden(deployment: ModelDeployment, *path: str, default: Any = None) -> Any:
    """The value at `path` in ``spec.provider.overrides``, else `default`."""
    return dig(deployment.spec.provider.overrides, *path, default=default)


def replicas_of(deployment: ModelDeployment, role: str = "") -> int:
    """The number of replicas, or of workers with the given `role` (``prefill`` or ``decode``).

    A role without its own section in ``spec.scaling`` has as many workers as there are replicas.
    """
    scaling = deployment.spec.scaling
    worker = {"prefill": scaling.prefill, "decode": scaling.decode}.get(role)
    return scaling.replicas if worker is None else worker.replicas
