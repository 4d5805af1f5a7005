"""The routing sidecar of decode pods: it has a prompt prefilled elsewhere and hands the rest to vLLM beside it.

Recorded for 0.7 to 0.10. What it does not understand of a flag's value ends it with exit code 0, which looks like a
container that has done its work: so what it would refuse is refused before anything is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import Context, Finding, ModelDeployment, Resource, container_security, ignored, picker
from airunway_llmd.settings import Settings

__all__ = ["PORT", "SERVER_PORT", "connector_of", "sidecar", "sidecar_blockers", "sidecar_warnings"]

PORT = 8000
"""Where it listens, as prefill and aggregated servers do: all members of a pool have one port."""

SERVER_PORT = 8200
"""Where vLLM listens behind it."""

NIXL = "nixlv2"
_NATIVE = (1, 29)
_BASE = (NIXL, "shared-storage")


@dataclass(frozen=True, kw_only=True)
class _Release:
    """How a release is told where vLLM listens, which connectors for vLLM it knows, and which requests it leaves to the
    decode worker alone (recorded).
    """

    server_port: str = "--vllm-port"
    connectors: tuple[str, ...] = _BASE
    undivided: tuple[str, ...] = ()


_RELEASES = {
    (0, 7): _Release(undivided=("/v1/messages", "/v1/responses")),
    (0, 8): _Release(undivided=("/v1/messages",)),
    (0, 9): _Release(connectors=(*_BASE, "mooncake")),
    (0, 10): _Release(server_port="--model-server-port", connectors=(*_BASE, "mooncake", "offloading")),
}


def connector_of(deployment: ModelDeployment) -> str:
    """How key-value blocks go from prefill to decode, in the sidecar's words."""
    return str(deployment.spec.provider.overrides.get("connector", NIXL))


def sidecar_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Why the sidecar would not run."""
    image, release = context.settings.sidecar_image, _release(context)
    if release is None:
        known = ", ".join(f"v{major}.{minor}" for major, minor in _RELEASES)
        yield Finding(
            path="spec.serving.mode",
            reason="IncompatibleConfiguration",
            message=f"the flags of the routing sidecar {image} are not known: known are {known}; set the provider "
            "setting sidecarImage to an image with such a tag, or sidecarVersion to the release that it is of",
        )
    elif (connector := connector_of(deployment)) not in release.connectors:
        yield Finding(
            path="spec.provider.overrides.connector",
            reason="InvalidOverride",
            message=f"the routing sidecar {image} has no connector {connector!r}: use one of "
            f"{', '.join(release.connectors)}",
        )
    if context.kubernetes < _NATIVE:
        major, minor = context.kubernetes
        yield Finding(
            path="spec.serving.mode",
            reason="IncompatibleConfiguration",
            message=f"disaggregated mode needs native sidecars (Kubernetes 1.29), and the cluster is {major}.{minor}: "
            "use mode aggregated",
        )


def sidecar_warnings(context: Context[Settings]) -> Iterator[Finding]:
    """What the sidecar does not divide between prefill and decode."""
    release = _release(context)
    if release is not None and release.undivided:
        paths = " and ".join(release.undivided)
        text = (
            f"the routing sidecar {context.settings.sidecar_image} has prompts of {paths} prefilled by decode workers"
        )
        yield ignored("", text)


def sidecar(deployment: ModelDeployment, context: Context[Settings], *, hardened: bool) -> Resource:
    """The container, never root where `hardened`. Its own health page is fine while vLLM is down: the pod is as ready
    as vLLM is.
    """
    release = _release(context)
    assert release is not None, "can_handle refuses an unknown one"
    return {
        "name": "routing-sidecar",
        "image": context.settings.sidecar_image,
        "args": [
            f"--port={PORT}",
            f"{release.server_port}={SERVER_PORT}",
            f"--kv-connector={connector_of(deployment)}",
            # True by default, and then it refuses plain HTTP.
            "--secure-proxy=false",
        ],
        "ports": [{"name": "sidecar", "containerPort": PORT, "protocol": "TCP"}],
        "securityContext": container_security(helper=hardened),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _release(context: Context[Settings]) -> _Release | None:
    version = picker.version_of(context.settings.sidecar_image, context.settings.sidecar_version)
    return _RELEASES.get(version) if version is not None else None
