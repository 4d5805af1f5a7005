"""Security contexts that meet the Pod Security Standard ``restricted``, as far as the image allows.

A transformer has the feature `HARDENED` if its pods are hardened; released transformers without it keep their output
(spec ruling 27). Many engine images run as root and write to root's home, so running as another user is up to the
deployment (``spec.securityContext``). The images of helpers (pickers, sidecars) never need root.
"""

from __future__ import annotations

from airunway.resource import Resource

__all__ = ["HARDENED", "container_security", "pod_security"]

HARDENED = "hardened"
"""Feature of a transformer: pods get no ServiceAccount token unless requested, and no privileges."""


def pod_security() -> Resource:
    """The ``securityContext`` of a pod, with the container runtime's default seccomp profile."""
    return {"seccompProfile": {"type": "RuntimeDefault"}}


def container_security(*, helper: bool = False) -> Resource:
    """The ``securityContext`` of a container. A `helper` never runs as root; its image must have a numeric user."""
    user = {"runAsNonRoot": True} if helper else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **user}
