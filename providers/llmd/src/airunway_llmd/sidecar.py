"""The routing sidecar of decode pods, which has prompts prefilled by prefill workers.

It sends the rest of each request to the vLLM container beside it. Its behaviour was recorded for 0.7 to 0.10. It exits
with code 0 after a flag value that it does not support, which looks like a completed container; unsupported values are
therefore refused before anything is created.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import (
    SERVING_PORT,
    Context,
    Finding,
    ModelDeployment,
    Resource,
    bad_override,
    blocker,
    container_security,
    helper_resources,
    ignored,
    picker,
)
from airunway_llmd.settings import Settings

SERVER_PORT = 8200
"""Port of vLLM behind the sidecar, which has `SERVING_PORT`: all members of a pool have the same port."""

NIXL = "nixlv2"
_NATIVE = (1, 29)
_BASE = (NIXL, "shared-storage")


@dataclass(frozen=True, kw_only=True)
class _Release:
    """What the sidecars of one release support (recorded)."""

    server_port: str = "--vllm-port"
    """Flag for vLLM's port."""
    connectors: tuple[str, ...] = _BASE
    """Connectors for vLLM."""
    undivided: tuple[str, ...] = ()
    """Request paths that decode workers handle alone."""


_RELEASES = {
    (0, 7): _Release(undivided=("/v1/messages", "/v1/responses")),
    (0, 8): _Release(undivided=("/v1/messages",)),
    (0, 9): _Release(connectors=(*_BASE, "mooncake")),
    (0, 10): _Release(server_port="--model-server-port", connectors=(*_BASE, "mooncake", "offloading")),
}


def connector_of(deployment: ModelDeployment) -> str:
    """The sidecar's name for the way in which key-value blocks move from prefill to decode."""
    return str(deployment.spec.provider.overrides.get("connector", NIXL))


def sidecar_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Why the sidecar would not run."""
    image, release = context.settings.sidecar_image, _release(context)
    if release is None:
        known = ", ".join(f"v{major}.{minor}" for major, minor in _RELEASES)
        yield blocker(
            "spec.serving.mode",
            f"the flags of the routing sidecar {image} are not known: known are {known}; set the provider setting "
            "sidecarImage to an image with such a tag, or sidecarVersion to the release that it is of",
        )
    elif (connector := connector_of(deployment)) not in release.connectors:
        known = ", ".join(release.connectors)
        yield bad_override(
            "connector", f"the routing sidecar {image} has no connector {connector!r}: use one of {known}"
        )
    if context.kubernetes < _NATIVE:
        major, minor = context.kubernetes
        yield blocker(
            "spec.serving.mode",
            f"disaggregated mode needs native sidecars (Kubernetes 1.29), and the cluster is {major}.{minor}: use mode "
            "aggregated",
        )


def sidecar_warnings(context: Context[Settings]) -> Iterator[Finding]:
    """Requests that the sidecar does not divide between prefill and decode."""
    release = _release(context)
    if release is not None and release.undivided:
        paths = " and ".join(release.undivided)
        text = (
            f"the routing sidecar {context.settings.sidecar_image} has prompts of {paths} prefilled by decode workers"
        )
        yield ignored("", text)


def sidecar(deployment: ModelDeployment, context: Context[Settings], *, hardened: bool) -> Resource:
    """The sidecar container; a `hardened` one never runs as root.

    It has no probes: its health page is fine even while vLLM is down, and the pod is ready when vLLM is.
    """
    release = _release(context)
    assert release is not None, "can_handle refuses an unknown one"
    resources = helper_resources(deployment, {})
    return {
        **({"resources": resources} if resources else {}),
        "name": "routing-sidecar",
        "image": context.settings.sidecar_image,
        "args": [
            f"--port={SERVING_PORT}",
            f"{release.server_port}={SERVER_PORT}",
            f"--kv-connector={connector_of(deployment)}",
            # With the default, true, it refuses plain HTTP.
            "--secure-proxy=false",
        ],
        "ports": [{"name": "sidecar", "containerPort": SERVING_PORT, "protocol": "TCP"}],
        "securityContext": container_security(helper=hardened),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _release(context: Context[Settings]) -> _Release | None:
    version = picker.version_of(context.settings.sidecar_image, context.settings.sidecar_version)
    return _RELEASES.get(version) if version is not None else None
