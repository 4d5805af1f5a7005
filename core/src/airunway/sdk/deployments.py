"""What a deployment asks for, read as several providers need it."""

from __future__ import annotations

from typing import Any

from airunway.api.modeldeployment import ModelDeployment
from airunway.resource import dig

__all__ = ["image_of", "is_disaggregated", "nodes_for", "overridden", "replicas_of"]


def image_of(deployment: ModelDeployment) -> str:
    """The image that the deployment names; empty where the engine's default is meant.

    ``spec.engine.image`` counts before ``spec.image``.
    """
    return deployment.spec.engine.image or deployment.spec.image or ""


def is_disaggregated(deployment: ModelDeployment) -> bool:
    """Whether prefill and decode have workers of their own."""
    return deployment.spec.serving.mode == "disaggregated"


def nodes_for(gpus: int, limit: int) -> int:
    """Over how many nodes, of `limit` GPUs each, that many GPUs are spread; one where there are none."""
    return max(1, -(-gpus // limit))


def overridden(deployment: ModelDeployment, *path: str, default: Any = None) -> Any:
    """What ``spec.provider.overrides`` says at `path`, else `default`."""
    return dig(deployment.spec.provider.overrides, *path, default=default)


def replicas_of(deployment: ModelDeployment, role: str = "") -> int:
    """How many replicas are wanted, or workers of that `role` (``prefill`` or ``decode``).

    Of workers that the deployment does not describe there are as many as replicas.
    """
    scaling = deployment.spec.scaling
    worker = {"prefill": scaling.prefill, "decode": scaling.decode}.get(role)
    return scaling.replicas if worker is None else worker.replicas
