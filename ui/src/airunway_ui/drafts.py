"""A deployment that is written: its short form, its YAML, and how one follows from the other. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.redaction import bounded
from airunway.resource import LAST_APPLIED, Resource, annotations_of, copy_of, dig, key_of, labels_of
from airunway.tools.manifests import ManifestError, read_manifests
from airunway_ui.details import dumped

LONGEST = 2**20
"""Bytes of the YAML of one deployment."""


class DraftError(ValueError):
    """What was typed is no deployment; the message says where and why."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of the form."""

    name: str
    path: tuple[str, ...]
    label: str
    hint: str = ""
    number: bool = False
    more: bool = False
    """Whether it is shown under "more"."""
    longest: int = 253


FIELDS = (
    Field(name="name", path=("metadata", "name"), label="Name", longest=63),
    Field(name="namespace", path=("metadata", "namespace"), label="Namespace", longest=63),
    Field(name="model", path=("spec", "model", "id"), label="Model", hint="owner/name", longest=1024),
    Field(name="template", path=("spec", "templateRef", "name"), label="Template"),
    Field(
        name="context",
        path=("spec", "engine", "contextLength"),
        label="Context in tokens",
        number=True,
        hint="model's own",
    ),
    Field(name="gpus", path=("spec", "resources", "gpu", "count"), label="GPUs of a replica", number=True),
    Field(name="replicas", path=("spec", "scaling", "replicas"), label="Replicas", number=True, hint="1"),
    Field(
        name="secret",
        path=("spec", "secrets", "huggingFaceToken"),
        label="Secret with the token",
        hint="of a gated model",
    ),
    Field(name="provider", path=("spec", "provider", "name"), label="Provider", hint="selected", more=True),
    Field(name="engine", path=("spec", "engine", "type"), label="Engine", hint="selected", more=True),
    Field(name="served", path=("spec", "model", "servedName"), label="Served name", more=True),
    Field(name="memory", path=("spec", "resources", "memory"), label="Memory", hint="32Gi", more=True),
    Field(name="cpu", path=("spec", "resources", "cpu"), label="CPUs", more=True),
    Field(name="image", path=("spec", "image"), label="Image", hint="the provider's", more=True, longest=1024),
    Field(name="group", path=("spec", "gateway", "group"), label="Group at the gateway", more=True),
    Field(name="weight", path=("spec", "gateway", "weight"), label="Weight in the group", number=True, more=True),
)
"""The short form; all else is in the YAML beside it."""


def read(text: str) -> Resource:
    """Returns the deployment that a YAML text is. Raises DraftError."""
    size = len(text.encode(errors="replace"))
    if size > LONGEST:
        raise DraftError(f"the YAML has {size:,} bytes: at most {LONGEST:,} are sent")
    try:
        documents = list(read_manifests(io.StringIO(text)))
    except ManifestError as error:
        raise DraftError(bounded(str(error), 500)) from error
    if len(documents) != 1:
        raise DraftError(f"the YAML has {len(documents)} documents: write one ModelDeployment")
    found = documents[0]
    kind, version = found.get("kind"), found.get("apiVersion")
    if kind != MODEL_DEPLOYMENT.kind or version != MODEL_DEPLOYMENT.api_version:
        raise DraftError(
            f"it is a {bounded(str(kind), 80)} of {bounded(str(version), 80)}: this page writes a "
            f"{MODEL_DEPLOYMENT.kind} of {MODEL_DEPLOYMENT.api_version}"
        )
    for part in ("metadata", "spec"):
        if not isinstance(found.get(part), dict):
            raise DraftError(f"{part}: must be an object")
    return found


def fields_of(deployment: Resource) -> dict[str, str]:
    """Returns the values of the form; empty for what is not set, or is no text or number."""
    found = {}
    for field in FIELDS:
        value = dig(deployment, *field.path)
        plain = isinstance(value, str | int) and not isinstance(value, bool)
        found[field.name] = str(value) if plain else ""
    return found


def with_fields(deployment: Resource, values: Mapping[str, str]) -> tuple[Resource, dict[str, str]]:
    """Returns the deployment with the values of the form, and what is wrong with those by field.

    A value that is wrong is not taken. An empty one removes its field, and what is empty around it.
    """
    made, errors = copy_of(deployment), {}
    for field in FIELDS:
        text = values.get(field.name, "").strip()
        if text == fields_of(made)[field.name]:
            continue
        if field.number and text and not (text.isascii() and re.fullmatch(r"-?[0-9]{1,10}", text)):
            errors[field.name] = f"{bounded(text, 40)!r} is no whole number"
            continue
        if len(text) > field.longest:
            errors[field.name] = f"it has more than {field.longest} characters"
            continue
        _set(made, field.path, (int(text) if field.number else text) if text else None)
    return made, errors


def _set(node: Resource, path: tuple[str, ...], value: object) -> None:
    head, *rest = path
    if not rest:
        if value is None:
            node.pop(head, None)
        else:
            node[head] = value
        return
    below = node.get(head)
    if not isinstance(below, dict):
        if value is None:
            return
        below = node[head] = {}
    _set(below, tuple(rest), value)
    if not below and head not in ("metadata", "spec"):
        del node[head]


def text_of(deployment: Resource) -> str:
    """Returns its YAML."""
    return dumped(deployment)


def errors_at(causes: Iterable[Resource]) -> dict[str, str]:
    """Returns what the API server says against fields of the form, in its words."""
    found: dict[str, str] = {}
    for cause in causes:
        where, message = str(cause.get("field") or ""), str(cause.get("message") or "")
        for field in FIELDS:
            path = ".".join(field.path)
            if where and (where == path or where.startswith((f"{path}.", f"{path}["))):
                found.setdefault(field.name, bounded(message, 500))
    return found


# ------------------------------------------------------------------------------------------------ where a draft begins


def new(*, namespace: str, model: str = "", template: str = "") -> Resource:
    """Returns the beginning of a deployment."""
    spec: Resource = {"model": {"id": model}} if model or not template else {}
    spec |= {"templateRef": {"name": template}} if template else {"resources": {"gpu": {"count": 1}}}
    metadata: Resource = {"name": name_of(model) if model else "", "namespace": namespace}
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": metadata,
        "spec": spec,
    }


def name_of(model: str) -> str:
    """Returns a deployment's name out of a model's id."""
    name = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    return name[:52].rstrip("-") or "model"


def written(deployment: Resource) -> Resource:
    """Returns what a user has written of a deployment of the cluster: what an edit begins with."""
    key = key_of(deployment)
    metadata: Resource = {"name": key.name, "namespace": key.namespace}
    if labels := labels_of(deployment):
        metadata["labels"] = dict(labels)
    if kept := {name: text for name, text in annotations_of(deployment).items() if name != LAST_APPLIED}:
        metadata["annotations"] = kept
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": metadata,
        "spec": copy_of(dig(deployment, "spec", default={})),
    }


def edited(live: Resource, draft: Resource) -> Resource:
    """Returns the live deployment with the spec, labels and annotations of a draft, as ``kubectl edit`` sends it."""
    metadata = dict(live["metadata"])
    remembered = {name: text for name, text in annotations_of(live).items() if name == LAST_APPLIED}
    for name, kept in (("labels", {}), ("annotations", remembered)):
        value: Any = dig(draft, "metadata", name)
        value = {**(value if isinstance(value, dict) else {}), **kept}
        metadata.pop(name, None)
        if value:
            metadata[name] = value
    rest = {key: value for key, value in live.items() if key not in ("metadata", "spec", "apiVersion", "kind")}
    head = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind}
    return {**head, "metadata": metadata, "spec": draft["spec"], **rest}


def copied(deployment: Resource, *, suffix: str) -> Resource:
    """Returns a draft like a deployment, under another name."""
    draft = written(deployment)
    if annotations := draft["metadata"].pop("annotations", None):  # ours are about the one that has them
        draft["metadata"]["annotations"] = {
            name: text for name, text in annotations.items() if name.partition("/")[0] != names.GROUP
        }
    draft["metadata"]["name"] = f"{draft['metadata']['name'][: 63 - len(suffix)]}{suffix}"
    return draft


def beside(deployment: Resource) -> tuple[Resource, str]:
    """Returns a draft that shares the paths of a deployment and gets no requests yet, and what else is to be done."""
    draft, name = copied(deployment, suffix="-next"), key_of(deployment).name
    group = dig(deployment, "spec", "gateway", "group")
    remark = ""
    if not isinstance(group, str) or not group:
        group = name
        remark = f"{name} is in no group yet: set its spec.gateway.group to {group}, too, so that both share its path"
    gateway = draft["spec"].get("gateway")
    draft["spec"]["gateway"] = {**(gateway if isinstance(gateway, dict) else {}), "group": group, "weight": 0}
    return draft, remark
