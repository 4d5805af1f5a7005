"""What a provider's chart takes out of its manifest: rights, and the policies that guard its account.

``python -m airunway_testing.conformance.chart NAME FOLDER`` writes both, and the settings
of its ``values.schema.json``, into the chart in that folder.

The templates are those of the library chart ``airunway-common``. What only a release knows is a mark: ``@account@``
(the user name of the service account), ``@name@`` (of what has no namespace), ``@namespace@`` (the release's),
``@core@`` (the core's namespace), ``@namespaces@`` (those that are watched, with commas between them).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from airunway.api.names import provider_manager
from airunway.plugins.contract import ProviderManifest
from airunway.plugins.errors import PluginError
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import provider_guard
from airunway.rbac.rights import Rights, provider_rights
from airunway.resource import Resource, copy_of
from airunway_testing.conformance.settings import settings_property

GUARD = "@name@-guard"
"""What the policies are called."""


def provider_files(manifest: ProviderManifest) -> dict[str, str]:
    """The files of a provider's chart by their paths in it."""
    facts = {
        "provider": manifest.name,
        "component": provider_manager(manifest.name),
        "rights": plain_rights(provider_rights(manifest)),
        "tenant": _tenant_rule(manifest),
    }
    guard = provider_guard(
        manifest, "@account@", own="@namespace@", core="@core@", namespaces=["@namespaces@"], name=GUARD
    )
    return {"files/provider.yaml": as_text([facts]), "files/guard.yaml": as_text(guard)}


def _tenant_rule(manifest: ProviderManifest) -> Resource | None:
    """The right that the webhook asks of a user: to create the first upstream kind. None for a built-in kind, which the
    role edit of Kubernetes may create.
    """
    first = next(iter(manifest.upstream), None)
    if first is None or first.builtin:
        return None
    return {"apiGroups": [first.group], "resources": [first.plural], "verbs": ["create"]}


def plain_rights(rights: Rights) -> Resource:
    """Rights as the library chart reads them."""
    return {"cluster": [*rights.cluster], "watched": [*rights.watched], "own": [*rights.own]}


def as_text(objects: Iterable[Resource]) -> str:
    """YAML without anchors."""
    printable = [copy_of(obj) for obj in objects]
    return "# Generated: not to be edited.\n" + yaml.safe_dump_all(printable, sort_keys=False, width=2**16)


def with_settings(schema: str, manifest: ProviderManifest) -> str:
    """A chart's ``values.schema.json`` with the provider's settings as they are now. Raises ValueError, KeyError."""
    found = json.loads(schema)
    found["properties"]["settings"] = {**settings_property(manifest.settings), "additionalProperties": False}
    return json.dumps(found, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files of an installed provider's chart; the exit code is 1, with a sentence, where that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m airunway_testing.conformance.chart",
        description="Write the rights, guard and settings of an installed provider into its chart.",
    )
    parser.add_argument("provider", help="its name: that of its entry point")
    parser.add_argument("chart", type=Path, help="the chart's folder")
    given = parser.parse_args(arguments)
    try:
        manifest = load(given.provider).manifest
        texts = provider_files(manifest)
        schema = given.chart / "values.schema.json"
        if schema.exists():
            texts[schema.name] = with_settings(schema.read_text(encoding="utf-8"), manifest)
        for path, text in texts.items():
            (given.chart / path).parent.mkdir(parents=True, exist_ok=True)
            (given.chart / path).write_text(text, encoding="utf-8")
    except (PluginError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
