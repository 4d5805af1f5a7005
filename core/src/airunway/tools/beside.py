"""Makes the manifest of a second version beside a deployment that runs (docs/side-by-side.md). Pure.

Example: beside ``chat-v1`` with an image of its own, ``chat-v2`` has the same spec with the other image, the same
group, and weight 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from airunway.resource import Resource, copy_of, dig, kept, key_of, labels_of, mapping_at, text_at, uid_of

_LONGEST = 63
_DIGITS = "0123456789"

_OTHERS = ("helm.sh", "argocd.argoproj.io")
_FLUX = ".toolkit.fluxcd.io"
_OF_HELM = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by")


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is different about the second version; empty: the same."""

    name: str
    model: str = ""
    provider: str = ""
    engine: str = ""
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The second version, and what is to be known about it."""

    manifest: Resource
    remarks: tuple[str, ...] = ()


def next_name(name: str) -> str:
    """The name of the next version: ``chat-v2`` for ``chat-v1``, ``chat-2`` for ``chat``."""
    beginning = name.rstrip(_DIGITS)
    ending = str(int(name[len(beginning) :]) + 1) if beginning != name else "-2"
    return beginning[: _LONGEST - len(ending)] + ending


def _is_of_a_tool(label: str) -> bool:
    """Whether a tool knows by a label what it has made: it would take a copy for its own object, and may delete it."""
    prefix = label.partition("/")[0]
    return label in _OF_HELM or prefix in _OTHERS or prefix.endswith(_FLUX)


def beside(live: Resource, changes: Changes) -> Beside:
    """The second version of a deployment as the API server has it: a copy of its spec with the changes."""
    spec = copy_of(mapping_at(live, "spec"))
    spec.pop("suspend", None)
    remarks = [*_grouped(live, spec), *_changed(live, spec, changes)]
    namespace, labels = key_of(live).namespace, labels_of(live)
    metadata: Resource = {"name": changes.name, "namespace": namespace}
    if same := {key: value for key, value in labels.items() if not _is_of_a_tool(key)}:
        metadata["labels"] = same
    manifest = {**kept(live, "apiVersion", "kind"), "metadata": metadata, "spec": spec}
    return Beside(manifest=manifest, remarks=(*remarks, *_apart(live, spec)))


def _grouped(live: Resource, spec: Resource) -> Iterator[str]:
    """Put the second version into the group of the first one, with weight 0."""
    key, gateway = key_of(live), spec.setdefault("gateway", {})
    group = text_at(gateway, "group")
    if not group:
        group = key.name.replace(".", "-")[:_LONGEST].strip("-")
        edit = json.dumps({"spec": {"gateway": {"group": group}}}, separators=(",", ":"))
        yield (
            f"ModelDeployment {key} needs a group, too: kubectl patch md {key.name} --namespace {key.namespace} "
            f"--type merge -p '{edit}'"
        )
    if gateway.pop("httpRouteRef", None):
        yield (
            f"ModelDeployment {key} has a route of its own (spec.gateway.httpRouteRef), which excludes a group: give "
            "the Services of both weights in that route, or remove the field"
        )
    elif dig(gateway, "enabled") is False or not dig(live, "status", "gateway", "url"):
        yield f"ModelDeployment {key} has no route: a group asks for none by itself (docs/routing.md)"
    gateway.update(group=group, weight=0)


def _changed(live: Resource, spec: Resource, changes: Changes) -> Iterator[str]:
    """Change the spec of the second version."""
    if changes.model:
        model = spec.setdefault("model", {})
        model["id"] = changes.model
        name = text_at(live, "status", "gateway", "modelName")
        if name and not text_at(model, "servedName") and not text_at(spec, "gateway", "modelName"):
            model["servedName"] = name  # clients go on with the name that they know
        if text_at(model, "revision"):
            yield f"spec.model.revision is left out: it is one of {dig(live, 'spec', 'model', 'id')}"
            del model["revision"]
    before = text_at(live, "status", "provider", "name") or text_at(spec, "provider", "name")
    if changes.provider:
        provider = spec.setdefault("provider", {})
        provider["name"] = changes.provider
        if changes.provider != before and provider.pop("overrides", None):
            yield f"spec.provider.overrides is left out: provider {before or '(none)'} reads it"
    if changes.engine:
        spec.setdefault("engine", {})["type"] = changes.engine
    if changes.image:
        has_own = bool(text_at(spec, "engine", "image"))
        (spec["engine"] if has_own else spec)["image"] = changes.image


def _apart(live: Resource, spec: Resource) -> Iterator[str]:
    """What the two do not share by themselves."""
    path, template = text_at(live, "status", "gateway", "path"), text_at(spec, "gateway", "pathTemplate")
    own = any(field in template for field in (".metadata.name}", ".metadata.uid}"))
    if not template:  # that of the config, or the default
        own = bool({key_of(live).name, uid_of(live)} & set(path.split("/")))
    if path and own:
        yield (
            f"the second one has a path of its own, on which it can be tried; to give it requests of {path}, set "
            f"spec.gateway.pathTemplate to {path}"
        )
