"""The namespace of the operator: for Leases, the webhook's Secret, and RuntimeConfigs of cluster-scoped work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airunway.kube.config import SERVICE_ACCOUNT_DIRECTORY

__all__ = ["DEFAULT_NAMESPACE", "operator_namespace"]

DEFAULT_NAMESPACE = "airunway-system"


def operator_namespace(environment: Mapping[str, str], *, account: Path = SERVICE_ACCOUNT_DIRECTORY) -> str:
    """Returns ``AIRUNWAY_OPERATOR_NAMESPACE``, else ``POD_NAMESPACE``, else the namespace of the service account whose
    files are mounted in `account`, else ``airunway-system``. Empty values count as absent. (spec/platform.md,
    "Resolution")
    """
    for variable in ("AIRUNWAY_OPERATOR_NAMESPACE", "POD_NAMESPACE"):
        if found := environment.get(variable, "").strip():
            return found
    try:
        mounted = (account / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        mounted = ""
    return mounted or DEFAULT_NAMESPACE
