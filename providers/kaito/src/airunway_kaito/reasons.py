"""KAITO's reasons and error texts in the words of the reason registry (spec/status.md), as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from airunway.sdk import conditions

__all__ = ["of_condition", "of_error", "of_failure"]

Texts = Sequence[tuple[re.Pattern[str], str]]


def _texts(*pairs: tuple[str, str]) -> Texts:
    return tuple((re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in pairs)


_NODES: Texts = _texts(
    (r"quota", "QuotaExceeded"),
    (r"unauthorized|forbidden|\b40[13]\b", "AuthFailed"),
    (r"insufficient|capacity|sku ?not ?available", "InsufficientCapacity"),
    (r"", "PendingResources"),
)
_ERRORS: Texts = _texts(
    (r'secrets? "[^"]*" not found|failed to get secret', "SecretNotFound"),
    (r"configmaps? .{0,256}not found", "ReferenceNotFound"),
    (r"gated", "GatedModel"),
    (r"\b429\b|too many requests|rate limit", "RateLimited"),
    (r"\b401\b|\b403\b|unauthorized|forbidden", "AuthFailed"),
    (r"no such host|server misbehaving", "DNSFailure"),
    (r"connection refused", "ConnectionRefused"),
    (r"timeout|deadline exceeded", "Timeout"),
    (r"\b50[0-9]\b|internal error", "ServerError"),
)

_CONDITIONS: Mapping[str, str | Texts] = {
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
    "LaunchFailed": _NODES,
    # Up to 0.8 these carry the error of a reconcile.
    "WorkspaceInferenceStatusFailed": (*_ERRORS, *_texts((r"", "UpstreamFailed"))),
    "workspaceResourceStatusFailed": (*_ERRORS, *_NODES[:3], *_texts((r"", "UpstreamFailed"))),
    # These say no more than that it is not ready.
    "WorkspaceInferenceStatusPending": "",
    "WorkspaceInferenceMigration": "",
}

_OF_PODS = {"ImagePullError": conditions.IMAGE_PULL, "Unschedulable": conditions.SCHEDULING}
"""KAITO repeats what a pod says there, in the words of the kubelet and of the scheduler."""


def of_condition(type_: str, reason: str, message: str) -> str:
    """What a condition that is False means; empty where it only says that something is not ready."""
    meaning = _CONDITIONS.get(reason)
    if meaning is None:
        # The reasons of node claims are the cloud provider's: an open list. A new one of KAITO's own shows its message.
        return "Progressing" if type_ == "InferenceReady" else _first(_NODES, f"{reason} {message}")
    if reason in _OF_PODS:
        return conditions.meaning(message, _OF_PODS[reason], otherwise=str(meaning))
    return meaning if isinstance(meaning, str) else _first(meaning, message)


def of_error(error: str) -> str:
    """What a reconcile error means. KAITO tries again, so that an unknown one is no failure."""
    return _first(_ERRORS, error) or "Progressing"


def of_failure(message: str) -> str:
    """What the message of a failed Workspace (up to 0.8) means."""
    return _first(_ERRORS, message) or "UpstreamFailed"


def _first(texts: Texts, message: str) -> str:
    return next((reason for pattern, reason in texts if pattern.search(message)), "")
