"""Where upstream kinds can carry pods, probes, annotations and metadata of what they make: each place is one that
guards look at, or refuse, in every release (H2, M2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.releases import definition, stored_releases

from airunway.plugins.contract import UpstreamKind
from airunway.plugins.registry import load
from airunway.rbac.pod_rules import marks_of, places_of
from airunway.resource import Resource, dig

PROVIDERS = ("dynamo", "kaito", "kuberay", "llmd", "vllm")
KINDS = {
    kind.key: kind for name in PROVIDERS for kind in load(name).manifest.upstream if kind.write and not kind.builtin
}

DANGEROUS = frozenset(
    {
        "capabilities",
        "containers",
        "externalIPs",
        "externalName",
        "httpGet",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPath",
        "hostPort",
        "nodeName",
        "podSpec",
        "podTemplate",
        "privileged",
        "procMount",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "tcpSocket",
        "volumeSource",
        "volumes",
    }
)
"""Fields that pods, containers and Services have, and harmless things do not."""

HARMLESS = frozenset(
    {
        # How it is rolled out.
        ("InferenceSet.kaito.sh", "spec.updateStrategy"),
        # The configuration of Dynamo's picker: plugins and their parameters.
        ("DynamoGraphDeployment.nvidia.com", "spec.components[*].eppConfig.config"),
        ("DynamoGraphDeployment.nvidia.com", "spec.services.*.eppConfig.config"),
        # What a KEDA trigger measures, and how: parameters with free names.
        ("ScaledObject.keda.sh", "spec.triggers[*].metadata"),
    }
)
"""Places that take anything, and that no pod is made of."""


def suspects(schema: Resource, path: str = "") -> Iterator[str]:
    """The places in a schema with a dangerous field, or that take anything."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource"):
        yield path
    for name, below in dig(schema, "properties", default={}).items():
        where = f"{path}.{name}" if path else name
        if name in DANGEROUS or name.lower().endswith("annotations"):
            yield where
        elif name == "metadata" and not dig(below, "properties"):  # any
            yield f"{where}.annotations"
        yield from suspects(below, where)
    for key, step in (("items", "[*]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield from suspects(schema[key], path + step)


def is_below(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


def holes(kind: UpstreamKind, crd: Resource) -> Iterator[str]:
    seen = (*places_of(kind), *kind.containers, *kind.unused, *kind.probes, *marks_of(kind))
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for name, below in dig(schema, "properties", default={}).items():
            if name in ("apiVersion", "kind", "metadata", "status"):
                continue
            for path in suspects(below, name):
                # A pod template is looked at by the place of its spec.
                inside = any(is_below(path, place) or place == f"{path}.spec" for place in seen)
                inside |= path.endswith(".metadata") and f"{path}.annotations" in seen
                known = any(kind.key == key and is_below(path, place) for key, place in HARMLESS)
                if not inside and not known:
                    yield f"{version['name']}: {path}"


@pytest.mark.parametrize("key", sorted(KINDS))
def test_no_place_for_pods_is_forgotten(recordings: Path, key: str) -> None:
    kind = KINDS[key]
    name = f"{kind.plural}.{kind.group}"
    releases = stored_releases(recordings / "upstream-crds", {name})
    files = {path for release in releases for path in release.files.values() if path is not None}
    if not files:
        pytest.skip(f"no release of {name} is kept beside the checkout")
    found = {hole for path in files for hole in holes(kind, definition(path))}
    assert sorted(found) == []


def test_a_forgotten_place_is_found() -> None:
    pod = {"type": "object", "properties": {"containers": {"type": "array"}, "hostNetwork": {"type": "boolean"}}}
    workers = {"type": "object", "additionalProperties": {"type": "object", "properties": {"podSpec": pod}}}
    raw = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    probe = {"type": "object", "properties": {"httpGet": {"type": "object"}}}
    notes = {"type": "object", "additionalProperties": {"type": "string"}}
    further = {"probe": probe, "headAnnotations": notes, "metadata": {"type": "object"}}
    spec = {
        "type": "object",
        "properties": {"workers": workers, "raw": raw, "replicas": {"type": "integer"}, **further},
    }
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}}]}}
    kind = UpstreamKind(group="a.b", kind="Thing", plural="things", versions=("v1",))
    assert "v1: spec.workers.*.podSpec" in set(holes(kind, crd))
    found = set(holes(kind, crd))
    assert {f"v1: spec.{name}" for name in ("raw", "probe.httpGet", "headAnnotations", "metadata.annotations")} <= found
    declared = UpstreamKind(
        group="a.b",
        kind="Thing",
        plural="things",
        versions=("v1",),
        pods=("spec.workers.*.podSpec",),
        unused=("spec.raw",),
        probes=("spec.probe",),
        annotations=("spec.headAnnotations", "spec.metadata.annotations"),
    )
    assert list(holes(declared, crd)) == []
