"""Stored releases of the Gateway API and of the Inference Extension (``../shared/upstream-crds``), for tests.

for release in gateway_releases(recordings, API):
    await install_definitions(client, release.definitions())
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tests.support.releases import definition, stored_releases

from airunway.resource import Resource

API = frozenset(f"{plural}.gateway.networking.k8s.io" for plural in ("gatewayclasses", "gateways", "httproutes"))
"""CRDs of the Gateway API that AI Runway meets."""
EXTENSION = frozenset({"inferencepools.inference.networking.k8s.io"})
"""CRDs of the Inference Extension that AI Runway meets."""


@dataclass(frozen=True, kw_only=True)
class GatewayRelease:
    """Releases of one project that have the same CRDs, all of them kept."""

    label: str
    files: tuple[Path, ...]

    def definitions(self) -> list[Resource]:
        """The CRDs, byte for byte the upstream's."""
        return [definition(file) for file in self.files]


def gateway_releases(recordings: Path, crds: Collection[str]) -> list[GatewayRelease]:
    """The stored releases that have these CRDs, oldest first; `recordings` is the folder ``../shared``."""
    return [
        GatewayRelease(label=f"{release.upstream} {release.label}", files=tuple(filter(None, release.files.values())))
        for release in stored_releases(recordings / "upstream-crds", crds)
        if release.is_kept and release.files.keys() == set(crds)
    ]
