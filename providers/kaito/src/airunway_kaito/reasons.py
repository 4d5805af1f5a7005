"""KAITO's reasons and error texts in the words of the reason registry (spec/status.md), as data."""

from __future__ import annotations

from airunway.sdk.conditions import IMAGE_PULL, NETWORK, SCHEDULING, meaning, meanings

__all__ = ["ERRORS", "of_condition"]

_NODES = meanings(
    (r"quota", "QuotaExceeded"),
    (r"unauthorized|forbidden|\b40[13]\b", "AuthFailed"),
    (r"insufficient|capacity|sku ?not ?available", "InsufficientCapacity"),
)
ERRORS = (
    *meanings(
        (r'secrets? "[^"]*" not found|failed to get secret', "SecretNotFound"),
        (r"configmaps? .{0,256}not found", "ReferenceNotFound"),
        (r"gated", "GatedModel"),
        (r"\b429\b|too many requests|rate limit", "RateLimited"),
        (r"\b401\b|\b403\b|unauthorized|forbidden", "AuthFailed"),
    ),
    *NETWORK,
    *meanings((r"\b50[0-9]\b|internal error", "ServerError")),
)
"""What a reconcile reports, in conditions too up to 0.8."""

_CONDITIONS = {
    "ImagePullError": "ImagePullBackOff",
    "ContainerCrashLoopBackOff": "CrashLoopBackOff",
    "ContainerOOMKilled": "PodOOMKilled",
    "ContainerStartError": "PodFailed",
    "PodEvicted": "PodEvicted",
    "NodeDiskPressure": "InsufficientCapacity",
    "NodeMemoryPressure": "InsufficientCapacity",
    "Unschedulable": "FailedScheduling",
    "SASTokenFetchFailed": "AuthFailed",
    "ModelStreaming": "Downloading",
    "ModelMirrorNotReady": "Downloading",
    "NodeNotReady": "PendingResources",
    "NodePluginsNotReady": "PendingResources",
    "NodeClaimNotReady": "PendingResources",
    "CreatingUpNodeClaims": "PendingResources",
    "workspaceResourceStatusNotReady": "PendingResources",
    "NodeNotFound": "PendingResources",
    "LaunchFailed": "PendingResources",
    "WorkspaceInferenceStatusFailed": "UpstreamFailed",
    "workspaceResourceStatusFailed": "UpstreamFailed",
    # These say no more than that it is not ready.
    "WorkspaceInferenceStatusPending": "",
    "WorkspaceInferenceMigration": "",
}
_MESSAGES = {
    # KAITO repeats what a pod says there, in the words of the kubelet and of the scheduler.
    "ImagePullError": IMAGE_PULL,
    "Unschedulable": SCHEDULING,
    "LaunchFailed": _NODES,
    "WorkspaceInferenceStatusFailed": ERRORS,
    "workspaceResourceStatusFailed": (*ERRORS, *_NODES),
}
"""Where the message says it more precisely than the reason."""


def of_condition(type_: str, reason: str, message: str) -> str:
    """What a condition that is False means; empty where it only says that something is not ready."""
    if reason in _CONDITIONS:
        return meaning(message, _MESSAGES.get(reason, ()), otherwise=_CONDITIONS[reason])
    # The reasons of node claims are the cloud provider's: an open list. A new one of KAITO's own shows its message.
    return (
        "Progressing"
        if type_ == "InferenceReady"
        else meaning(f"{reason} {message}", _NODES, otherwise="PendingResources")
    )
