"""How a process runs: the namespace of the operator, and the settings that it publishes for doctor and preflight.

The leader writes them on the Lease of each part whenever it takes or renews it, so that no other request and no other
right is needed. A process without ``--leader-elect`` has no Lease and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from airunway import __version__
from airunway.api import names
from airunway.api.names import GROUP
from airunway.kube.config import SERVICE_ACCOUNT_DIRECTORY
from airunway.redaction import redacted
from airunway.resource import Resource, annotations_of, dig, key_of

ANNOTATION = f"{GROUP}/effective-settings"
"""The annotation of a Lease that holds `EffectiveSettings` as JSON."""

PART_OF = ("app.kubernetes.io/part-of", "airunway")
"""The label of the Deployments of our charts and of the Leases of our processes."""


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """How one part of a process (the core or a provider) runs, or ran when it last led."""

    manager: str
    """The field manager of the part, which is the name of its Lease."""
    pod: str = ""
    """The name of the process that published it, usually its pod."""
    version: str = __version__
    """The release that runs."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the command by their names without dashes, defaults included; a switch is ``true`` or ``false``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The provider's own settings (``--set``)."""
    held: bool = True
    """Whether a process holds the Lease; not in the annotation."""
    namespace: str = ""
    """The namespace of the Lease, in which the process runs; not in the annotation."""

    def annotations(self) -> dict[str, str]:
        """The annotation to publish. Credentials are removed from the settings."""
        value = {name: each for name, each in asdict(self).items() if name not in ("held", "namespace")}
        value["settings"] = {
            name: redacted(each) if isinstance(each, str) else each for name, each in self.settings.items()
        }
        return {ANNOTATION: orjson.dumps(value).decode()}


def published_in(leases: Iterable[Resource]) -> list[EffectiveSettings]:
    """The settings that these Leases publish. Leases without the annotation, or with an unreadable one, are skipped."""
    found = []
    for lease in leases:
        try:
            value = orjson.loads(annotations_of(lease).get(ANNOTATION, ""))
            found.append(
                EffectiveSettings(
                    manager=key_of(lease).name,
                    namespace=key_of(lease).namespace,
                    held=bool(dig(lease, "spec", "holderIdentity")),
                    pod=str(value["pod"]),
                    version=str(value["version"]),
                    options={str(name): str(text) for name, text in value["options"].items()},
                    settings=dict(value["settings"]),
                )
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
            continue  # written by another release or by a user: nothing is known of the process
    return found


def operator_namespace(environment: Mapping[str, str], *, account: Path = SERVICE_ACCOUNT_DIRECTORY) -> str:
    """Returns the namespace of Leases, of the webhook's Secret, and of the RuntimeConfigs of cluster-scoped work.

    It is ``AIRUNWAY_OPERATOR_NAMESPACE``, else ``POD_NAMESPACE``, else the namespace of the service account whose files
    are mounted in `account`, else ``airunway-system``. Empty values count as absent. (docs/runtime-configs.md)
    """
    for variable in ("AIRUNWAY_OPERATOR_NAMESPACE", "POD_NAMESPACE"):
        if found := environment.get(variable, "").strip():
            return found
    try:
        mounted = (account / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        mounted = ""
    return mounted or names.DEFAULT_NAMESPACE
