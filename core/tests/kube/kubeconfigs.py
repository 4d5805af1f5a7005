"""Kubeconfigs that tests write."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from airunway.kube.config import Credential, CredentialSource


def kubeconfig_file(path: Path, **changes: Any) -> Path:
    """A kubeconfig whose cluster and user can be replaced."""
    document = {
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": changes.get("cluster", {"server": "https://example.com:6443/"})}],
        "users": [{"name": "u", "user": changes.get("user", {})}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **changes.get("context", {})}}],
    } | changes.get("document", {})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


async def credential_of(source: CredentialSource) -> Credential:
    return await source.credential()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
