"""The roles of a provider for its chart, out of its manifest: ``python -m airunway_testing.conformance.roles NAME``."""

from __future__ import annotations

import sys

import yaml

from airunway.api.names import provider_manager
from airunway.plugins.registry import load
from airunway.process.rights import roles
from airunway.resource import copy_of
from airunway.runtime.access import provider_rights

__all__ = ["chart_roles"]

_NAMESPACE = "{{ .Release.Namespace }}"


def chart_roles(name: str) -> str:
    """A chart's template with all that the installed provider of that name needs to be allowed. Raises PluginError."""
    account = provider_manager(name)
    subject = {"kind": "ServiceAccount", "namespace": _NAMESPACE, "name": account}
    granted = roles(provider_rights(load(name).manifest), name=account, namespace=_NAMESPACE, subject=subject)
    return yaml.safe_dump_all([copy_of(obj) for obj in granted], sort_keys=False, width=2**16)


if __name__ == "__main__":
    sys.stdout.write(chart_roles(sys.argv[1]))
