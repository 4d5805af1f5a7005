"""What is installed: parts, each a set of objects that a chart renders to. Pure.

A part is called like its chart: ``airunway-crds``, ``airunway``, ``airunway-provider-NAME``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from airunway.api import names
from airunway.resource import Resource, annotations_of, dig, key_of

__all__ = [
    "CORE",
    "DEFINITIONS",
    "INVENTORY",
    "NAMESPACE",
    "Part",
    "Reference",
    "foreign_owner",
    "in_order",
    "inventory_of",
    "is_definition",
    "is_of_release",
    "namespaces_in",
    "ordered",
    "provider_of",
    "provider_part",
    "read_inventory",
    "reference_of",
]

DEFINITIONS, CORE = "airunway-crds", "airunway"
NAMESPACE = "airunway-system"
"""Where AI Runway runs if nobody says otherwise."""

INVENTORY = "airunway-installed"
"""Name of the ConfigMap that says what was applied, by part: so that an upgrade knows what is no longer wanted."""

_PROVIDER = "airunway-provider-"
_RELEASE = "meta.helm.sh/release-name"

_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")
_LAST = ("Deployment", "ValidatingWebhookConfiguration")
"""Accounts and roles come before what works by them; reviews are asked for once somebody is about to answer them."""


class Reference(NamedTuple):
    """An object by what addresses it, in whatever version; the namespace of one without is empty."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind}/{where}"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part, its objects in the order in which they are applied."""

    name: str
    objects: tuple[Resource, ...]

    @property
    def provider(self) -> str:
        return provider_of(self.name)


def provider_part(provider: str) -> str:
    return f"{_PROVIDER}{provider}"


def provider_of(part: str) -> str:
    """The provider that a part brings; empty for the core and the CRDs."""
    return part.removeprefix(_PROVIDER) if part.startswith(_PROVIDER) else ""


def ordered(objects: Iterable[Resource]) -> tuple[Resource, ...]:
    """The objects in the order in which they are applied."""

    def place(obj: Resource) -> int:
        kind = str(obj.get("kind"))
        if kind in _FIRST:
            return _FIRST.index(kind)
        return len(_FIRST) + 1 + _LAST.index(kind) if kind in _LAST else len(_FIRST)

    return tuple(sorted(objects, key=place))


def in_order(names: Iterable[str]) -> list[str]:
    """Those of the names that are parts', in the order in which parts are brought."""
    found = set(names)
    return [part for part in (DEFINITIONS, CORE) if part in found] + sorted(filter(provider_of, found))


def reference_of(obj: Resource) -> Reference:
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    key = key_of(obj)
    return Reference(group, str(obj.get("kind")), key.namespace, key.name)


def is_definition(obj: Resource) -> bool:
    return obj.get("kind") == "CustomResourceDefinition"


def namespaces_in(parts: Sequence[Part]) -> set[str]:
    """The namespaces that the objects are written for."""
    return {key_of(obj).namespace for part in parts for obj in part.objects} - {""}


def is_of_release(live: Resource, name: str, *, namespace: str) -> bool:
    """Whether an object belongs to a release of Helm."""
    notes = annotations_of(live)
    return (notes.get(_RELEASE), notes.get("meta.helm.sh/release-namespace")) == (name, namespace)


def foreign_owner(live: Resource) -> str:
    """The tool that an object belongs to, with what it is called there; empty where it is nobody's, or ours."""
    notes = annotations_of(live)
    if release := notes.get(_RELEASE):
        return f"Helm's release {release} (helm upgrade {release})"
    if "argocd.argoproj.io/tracking-id" in notes or "argocd.argoproj.io/instance" in (
        dig(live, "metadata", "labels") or {}
    ):
        return "Argo CD (change it where Argo CD reads it)"
    if release := (dig(live, "metadata", "labels") or {}).get("kustomize.toolkit.fluxcd.io/name"):
        return f"Flux's Kustomization {release} (change it where Flux reads it)"
    return ""


def inventory_of(parts: Sequence[Part], previous: dict[str, list[Reference]], *, namespace: str) -> Resource:
    """The ConfigMap that notes what is installed: these parts, and those of before that are not among them."""
    listed = {**previous, **{part.name: [reference_of(obj) for obj in part.objects] for part in parts}}
    data = {name: json.dumps([list(reference) for reference in found]) for name, found in sorted(listed.items())}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": INVENTORY,
            "namespace": namespace,
            "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE},
        },
        "data": data,
    }


def read_inventory(config: Resource | None) -> dict[str, list[Reference]]:
    """What is installed, by part; entries that nobody of ours has written are passed over."""
    found = {}
    for name, text in (dig(config, "data", default={}) or {}).items():
        try:
            found[name] = [Reference(*map(str, entry)) for entry in json.loads(text)]
        except (TypeError, ValueError):
            continue
    return found
