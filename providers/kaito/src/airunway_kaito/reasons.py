"""Maps KAITO's reasons and error messages to the reason registry (docs/reference/conditions.md), as data."""

from __future__ import annotations

from airunway.sdk.conditions import CREATION, IMAGE_PULL, NETWORK, SCHEDULING, meaning, meanings

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
    ),
    # Before the refused credentials: the API server also answers 403 for a quota, a policy, or a namespace's deletion.
    *CREATION,
    *meanings((r"\b401\b|\b403\b|unauthorized|forbidden", "AuthFailed")),
    *NETWORK,
    *meanings((r"\b50[0-9]\b|internal error", "ServerError")),
)
"""Messages of reconcile errors, which KAITO up to 0.8 also writes into conditions."""

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
    # These only mean "not ready".
    "WorkspaceInferenceStatusPending": "",
    "WorkspaceInferenceMigration": "",
}
_MESSAGES = {
    # KAITO copies the pod's message, which comes from the kubelet or the scheduler.
    "ImagePullError": IMAGE_PULL,
    "Unschedulable": SCHEDULING,
    "LaunchFailed": _NODES,
    "WorkspaceInferenceStatusFailed": ERRORS,
    "workspaceResourceStatusFailed": (*ERRORS, *_NODES),
}
"""Conditions whose message is more precise than their reason."""


def of_condition(type_: str, reason: str, message: str) -> str:
    """The registry's reason for a condition that is False; empty if it only means that something is not ready."""
    if reason in _CONDITIONS:
        return meaning(message, _MESSAGES.get(reason, ()), otherwise=_CONDITIONS[reason])
    # Reasons of node claims come from cloud providers and are an open list. A new reason of KAITO's own is Progressing.
    return (
        "Progressing"
        if type_ == "InferenceReady"
        else meaning(f"{reason} {message}", _NODES, otherwise="PendingResources")
    )
