"""Kubeconfig files."""

import base64
import os
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from airunway_testing.controlplane.certificates import KeyPair


def write_kubeconfig(path: Path, *, server: str, authority: Path, client: KeyPair, user: str) -> Path:
    """Write a kubeconfig that holds everything itself (certificates inline), readable by its owner only."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "airunway", "cluster": {"server": server, "certificate-authority-data": _inline(authority)}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _inline(client.certificate),
                    "client-key-data": _inline(client.key),
                },
            }
        ],
        "contexts": [{"name": "airunway", "context": {"cluster": "airunway", "user": user, "namespace": "default"}}],
        "current-context": "airunway",
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(content, file, sort_keys=False)
    return path


def file_name(user: str, groups: Sequence[str]) -> str:
    """A file name for a user's credentials: readable, and different for different groups."""
    return re.sub(r"[^A-Za-z0-9.-]", lambda match: f"_{ord(match[0]):x}_", "+".join([user, *groups]))


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
