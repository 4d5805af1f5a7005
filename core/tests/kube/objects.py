"""ConfigMaps, which most tests of the client write."""

from __future__ import annotations

from airunway.resource import Resource

ME = "airunway-tests"
"""Whom the tests write as."""


def config_map(namespace: str, name: str, *, labels: dict[str, str] | None = None, **data: str) -> Resource:
    metadata: Resource = {"namespace": namespace, "name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
