"""What was read of one deployment: the input of its view."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.api import names
from airunway.resource import Resource, dig, labels_of
from airunway.view.unseen import Unseen

__all__ = ["DeploymentSnapshot", "role_of"]


@dataclass(frozen=True, kw_only=True)
class DeploymentSnapshot:
    """Objects as the API server sent them. Nothing here is checked: a user may have written any of it."""

    deployment: Resource
    """The ModelDeployment."""
    pods: tuple[Resource, ...] | Unseen
    """Its pods, those of the parts (endpoint picker, download) included."""
    events: tuple[Resource, ...] | Unseen
    """Events of ``v1`` about the deployment, and warnings of its namespace."""
    objects: tuple[Resource, ...] = ()
    """Its other objects."""
    unseen: tuple[Unseen, ...] = ()
    """What was not read of the other objects, and parts of lists that were cut."""


def role_of(pod: Resource, deployment: Resource) -> str:
    """Returns what a pod does in its deployment: ``decode``, ``server``, …; empty if nothing tells it.

    It is our label, else the label that ``status.selector`` requires beside the one that names the deployment's object.
    """
    labels = labels_of(pod)
    if not isinstance(labels, dict):
        return ""
    keys = [names.COMPONENT, *_other_labels(dig(deployment, "status", "selector"))]
    own = dig(pod, "metadata", "name")
    return next((value for key in keys if isinstance(value := labels.get(key), str) and value and value != own), "")


def _other_labels(selector: object) -> list[str]:
    """The keys of a selector after the first: ``a=x,b in (y,z)`` gives ``b``."""
    if not isinstance(selector, str) or len(selector) > 1024:
        return []
    _, _, rest = selector.partition(",")
    key = rest.split("=")[0].split(" in ")[0].strip().removesuffix("!")
    # Kubernetes' own labels name one pod or one index of a set.
    return [key] if key and not key.partition("/")[0].endswith("kubernetes.io") else []
