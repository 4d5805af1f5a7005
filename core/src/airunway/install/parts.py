"""What is installed: parts, each a set of objects that a chart renders to. Pure.

A part is called like its chart: ``airunway-crds``, ``airunway``, ``airunway-provider-NAME``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from airunway.api import names
from airunway.resource import Resource, annotations_of, dig, key_of, labels_of

__all__ = [
    "CORE",
    "DEFINITIONS",
    "INVENTORY",
    "NAMESPACE",
    "Owner",
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
_RELEASE, _RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_ARGO_CD = "argocd-controller"
"""Its field manager: by default it tells what is its own by a label that Helm's charts have too."""

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


class Owner(NamedTuple):
    """A tool that an object belongs to, with what it is called there, and how one goes on with that tool."""

    who: str
    do: str
    is_helm: bool = False


def is_of_release(live: Resource, name: str, *, namespace: str) -> bool:
    """Whether an object belongs to a release of Helm."""
    notes = annotations_of(live)
    return (notes.get(_RELEASE), notes.get(_RELEASE_NAMESPACE)) == (name, namespace)


def foreign_owner(live: Resource) -> Owner | None:
    """The tool that an object belongs to; None where it is nobody's, or ours.

    Tools that read charts from elsewhere come first: Flux's objects are those of a release of Helm too.
    """
    notes, labels = annotations_of(live), labels_of(live)
    if release := labels.get("helm.toolkit.fluxcd.io/name"):
        where = labels.get("helm.toolkit.fluxcd.io/namespace", "")
        return Owner(f"Flux's HelmRelease {where}/{release}", "change it where Flux reads it")
    if release := labels.get("kustomize.toolkit.fluxcd.io/name"):
        return Owner(f"Flux's Kustomization {release}", "change it where Flux reads it")
    managers = {str(entry.get("manager")) for entry in dig(live, "metadata", "managedFields", default=[])}
    if "argocd.argoproj.io/tracking-id" in notes or "argocd.argoproj.io/instance" in labels or _ARGO_CD in managers:
        return Owner("Argo CD", "change it where Argo CD reads it")
    if release := notes.get(_RELEASE):
        where = notes.get(_RELEASE_NAMESPACE, "")
        return Owner(
            f"Helm's release {where}/{release}",
            f"put helm on PATH, or go on with: helm upgrade --install {release} CHART --namespace {where}; where that "
            f"release is gone, take the annotation {_RELEASE} off",
            is_helm=True,
        )
    return None


def inventory_of(listed: Mapping[str, Iterable[Reference]], *, namespace: str) -> Resource:
    """The ConfigMap that notes what is installed, by part."""
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
