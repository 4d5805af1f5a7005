"""What a provider's chart takes out of its manifest: rights, and the policies that guard its account.

``python -m airunway_testing.conformance.chart NAME FOLDER`` writes both into the chart in that folder.

The templates are those of the library chart ``airunway-common``. What only a release knows is a mark: ``@account@``
(the user name of the service account), ``@name@`` (of what has no namespace).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from airunway.api.names import provider_manager
from airunway.plugins.contract import ProviderManifest
from airunway.plugins.registry import load
from airunway.process.rights import Rights
from airunway.resource import Resource, copy_of
from airunway.runtime.access import provider_rights
from airunway.webhook.guard import provider_guard

__all__ = ["GUARD", "as_text", "plain_rights", "provider_files"]

GUARD = "@name@-guard"
"""What the policies are called."""


def provider_files(manifest: ProviderManifest) -> dict[str, str]:
    """The files of a provider's chart by their paths in it."""
    facts = {
        "provider": manifest.name,
        "component": provider_manager(manifest.name),
        "rights": plain_rights(provider_rights(manifest)),
    }
    guard = provider_guard(manifest, "@account@", name=GUARD)
    return {"files/provider.yaml": as_text([facts]), "files/guard.yaml": as_text(guard)}


def plain_rights(rights: Rights) -> Resource:
    """Rights as the library chart reads them."""
    return {"cluster": [*rights.cluster], "watched": [*rights.watched], "own": [*rights.own]}


def as_text(objects: Iterable[Resource]) -> str:
    """YAML without anchors."""
    plain = [copy_of(obj) for obj in objects]
    return "# Generated: not to be edited.\n" + yaml.safe_dump_all(plain, sort_keys=False, width=2**16)


def main() -> None:
    """Write the files of an installed provider's chart. Raises PluginError, OSError."""
    name, folder = sys.argv[1:]
    for path, text in provider_files(load(name).manifest).items():
        (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
        (Path(folder) / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
