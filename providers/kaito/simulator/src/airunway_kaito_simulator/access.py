"""Checks the Secret for a preset's model download (``presetOptions.modelAccessSecret``)."""

from __future__ import annotations

from airunway.resource import Resource, dig, key_of


def access_secret(workspace: Resource) -> str:
    """The name of the Secret that must exist before KAITO plans nodes; empty if none is needed.

    KAITO checks it only for presets named like a repository of the model hub, not for aliases (fact 31).
    """
    preset = dig(workspace, "inference", "preset", "name", default="")
    if "/" not in preset:
        return ""
    return str(dig(workspace, "inference", "preset", "presetOptions", "modelAccessSecret", default=""))


def access_error(workspace: Resource, *, secret_exists: bool) -> str:
    """The reconcile error for a missing access Secret; empty if it exists or is not needed (fact 31)."""
    secret = access_secret(workspace)
    if not secret or secret_exists:
        return ""
    model = dig(workspace, "inference", "preset", "name")
    return (
        f'failed to build node estimate request: failed to resolve access token for model "{model}": '
        f"failed to get secret: {secret} in namespace: {key_of(workspace).namespace}, "
        f'error: Secret "{secret}" not found'
    )
