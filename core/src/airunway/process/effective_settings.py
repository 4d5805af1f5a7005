"""How a process runs, published on the Lease of each of its parts: doctor and preflight read it there.

The leader writes it whenever it takes or renews the Lease, so that no further request and no further right is needed. A
process without ``--leader-elect`` has no Lease and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from airunway import __version__
from airunway.api.names import GROUP
from airunway.redaction import redacted
from airunway.resource import Resource, annotations_of, dig, key_of

__all__ = ["ANNOTATION", "PART_OF", "EffectiveSettings", "published_in"]

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
    """The pod, or another name of the process, that published it."""
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
        """The annotation to publish. What looks like a credential is left out of the settings."""
        value = {name: each for name, each in asdict(self).items() if name not in ("held", "namespace")}
        value["settings"] = {
            name: redacted(each) if isinstance(each, str) else each for name, each in self.settings.items()
        }
        return {ANNOTATION: orjson.dumps(value).decode()}


def published_in(leases: Iterable[Resource]) -> list[EffectiveSettings]:
    """What these Leases publish. A Lease without the annotation, or with one that cannot be read, has nothing."""
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
            continue  # another release wrote it, or a user did: nothing is known of the process
    return found
