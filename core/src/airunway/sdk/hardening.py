"""How restricted a pod is: what the Pod Security Standard ``restricted`` asks for, as far as an image allows it.

A transformer says by the feature `HARDENED` that its pods are written so; released ones that do not say it go on as
they were (spec ruling 27). An engine's image often runs as root and keeps what it loads in root's home: that it must
not is the deployment's to say (``spec.securityContext``). Helpers (pickers, sidecars) have images that never do.
"""

from __future__ import annotations

from airunway.resource import Resource

__all__ = ["HARDENED", "container_security", "pod_security"]

HARDENED = "hardened"
"""Feature of a transformer: pods have no token of an account that they were not given, and no privileges."""


def pod_security() -> Resource:
    """The ``securityContext`` of a pod: the container runtime's own filter of system calls."""
    return {"seccompProfile": {"type": "RuntimeDefault"}}


def container_security(*, helper: bool = False) -> Resource:
    """The ``securityContext`` of a container. A `helper` never runs as root; its image has a user of a number."""
    user = {"runAsNonRoot": True} if helper else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **user}
