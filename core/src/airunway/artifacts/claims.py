"""The claims that this part makes: size, class, access mode, state, and names (docs/model-cache.md). Pure.

Example: 14.9 GB measured with 10 % headroom becomes a claim of ``16Gi``; an explicit size is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from airunway.api import names
from airunway.configs.resolution import BUILT_IN, DEFAULT, EffectiveConfig, ca_bundle_at, propagated
from airunway.quantity import parse_quantity
from airunway.resource import (
    Resource,
    controller_owner,
    dig,
    digest,
    is_deleting,
    key_of,
    labels_of,
    list_at,
    mapping_at,
    text_at,
    uid_of,
)
from airunway.status.rollup import Verdict

_GIB = 2**30


def size_with_headroom(measured: int, percent: int) -> str:
    """The size of a claim for so many bytes: with headroom, rounded up to whole GiB."""
    wanted = Decimal(measured) * (100 + max(percent, 0)) / 100
    return f"{max(1, int((wanted / _GIB).to_integral_value(ROUND_CEILING)))}Gi"


def is_smaller(left: object, right: object) -> bool:
    """Whether one quantity is smaller than the other; False if one of them is none."""
    try:
        return parse_quantity(left) < parse_quantity(right)
    except ValueError:
        return False


def artifact_labels(artifact: str, component: str = "") -> dict[str, str]:
    """The labels of an artifact's claim (without a component), Jobs and their pods."""
    found = {
        names.MANAGED_BY: names.MANAGED_BY_VALUE,
        names.PART: names.MODEL_CACHE_PART,
        names.ARTIFACT: artifact,
        names.CACHE_TYPE: "artifact",
    }
    return {**found, names.COMPONENT: component} if component else found


def labels_for(artifact: Resource, config: EffectiveConfig | None, component: str = "") -> dict[str, str]:
    """Labels of what an artifact owns: those of the artifact that its config propagates, then ours."""
    found = labels_of(artifact)
    texts = {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}
    return propagated(texts, config) | artifact_labels(key_of(artifact).name, component)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a claim should be."""

    size: str
    """A quantity."""
    class_name: str | None
    """StorageClass; None: the cluster's default one; empty: none, so that only a volume without a class fits."""
    access_mode: str
    """The only access mode."""


def possible(wish: Wish, live: Resource | None, storage_class: Resource | None) -> Wish:
    """What of a wish a claim that exists can be: it only grows, where its class can expand; class and access mode stay.

    `storage_class` is the class of the claim, None if it is not known.
    """
    if live is None:
        return wish
    allocated = dig(live, "spec", "resources", "requests", "storage")
    modes, class_name = dig(live, "spec", "accessModes"), dig(live, "spec", "storageClassName")
    grows = is_smaller(allocated, wish.size)
    stays = is_smaller(wish.size, allocated) or (grows and dig(storage_class, "allowVolumeExpansion") is not True)
    found = replace(wish, class_name=class_name if isinstance(class_name, str) else None)
    if isinstance(modes, list) and modes and isinstance(modes[0], str):
        found = replace(found, access_mode=modes[0])
    return replace(found, size=str(allocated)) if stays else found


def room_of(claim: Resource | None) -> str:
    """How much fits on a claim: what its volume has, else what was asked for; empty for no claim.

    A volume whose file system only a pod that mounts it can expand counts as expanded.
    """
    request = dig(claim, "spec", "resources", "requests", "storage")
    capacity = dig(claim, "status", "capacity", "storage")
    waits = any(
        (dig(each, "type"), dig(each, "status")) == ("FileSystemResizePending", "True")
        for each in list_at(claim, "status", "conditions")
    )
    found = request if waits or capacity is None else capacity
    return found if isinstance(found, str) else ""


def claim_of(name: str, wish: Wish, *, labels: Mapping[str, str] | None = None) -> Resource:
    """A PersistentVolumeClaim without owner and namespace."""
    spec: Resource = {"accessModes": [wish.access_mode], "resources": {"requests": {"storage": wish.size}}}
    if wish.class_name is not None:
        spec["storageClassName"] = wish.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
    }


def claim_verdict(
    live: Resource | None, *, class_name: str, classes: Mapping[str, Resource], first_user: str
) -> Verdict:
    """Whether a claim is there and bound. `class_name` is empty where none is named; `first_user` is the pod with which
    a class that waits for one binds it.
    """
    phase = dig(live, "status", "phase")
    if live is not None and phase == "Bound":
        return Verdict(ready=True, reason="Bound", message=f"claim {key_of(live).name} is bound")
    if live is not None and phase == "Lost":
        text = f"claim {key_of(live).name} has lost its volume: delete the claim, and fill the new one again"
        return Verdict(ready=False, reason="PvcLost", message=text)
    if class_name and class_name not in classes:
        text = f"there is no StorageClass {class_name}: create it, or name another one"
        return Verdict(ready=False, reason="StorageClassNotFound", message=text)
    if live is None:
        return Verdict(ready=False, reason="Starting", message="the claim is created")
    if dig(classes.get(class_name), "volumeBindingMode") == "WaitForFirstConsumer":
        text = f"claim {key_of(live).name} is bound when {first_user} is scheduled"
        return Verdict(ready=False, reason="PvcPending", message=text)
    of = f" of StorageClass {class_name}" if class_name else ""
    return Verdict(ready=False, reason="PvcPending", message=f"claim {key_of(live).name}{of} is not bound yet")


# ------------------------------------------------------------------------------------------------ an artifact's claim


def present_claim(artifact: Resource, claims: Iterable[Resource]) -> Resource | None:
    """The claim that the status names, else any that is not going away: a pass may have ended before its status."""
    alive = [claim for claim in claims if not is_deleting(claim) and dig(claim, "status", "phase") != "Lost"]
    named = dig(artifact, "status", "persistentVolumeClaim")
    return min(alive, key=lambda claim: (key_of(claim).name != named, key_of(claim).name), default=None)


def is_complete(artifact: Resource, claim: Resource | None) -> bool:
    """Whether the weights are complete on exactly this claim."""
    proof = dig(artifact, "status", "completed", "claimUID")
    usable = claim is not None and not is_deleting(claim) and dig(claim, "status", "phase") != "Lost"
    return usable and bool(proof) and proof == uid_of(claim or {})


def explicit_size(artifact: Resource) -> str:
    """The size that the spec asks for; empty if it is to be measured."""
    size = dig(artifact, "spec", "size")
    return str(size) if size not in (None, "") else ""


def class_name_of(artifact: Resource, config: EffectiveConfig | None, claim: Resource | None) -> str:
    """Name of the StorageClass of an artifact's claim: that of the claim if there is one, else that of the next one.
    Empty: the cluster's default class, or none.
    """
    if claim is not None:
        return text_at(claim, "spec", "storageClassName")
    return text_at(artifact, "spec", "storageClassName") or (config or BUILT_IN).storage.class_name


def access_mode_of(artifact: Resource, config: EffectiveConfig | None, claim: Resource | None) -> str:
    """Access mode of an artifact's claim: that of the claim if there is one, else that of the next one."""
    modes = dig(claim, "spec", "accessModes")
    own = modes[0] if isinstance(modes, list) and modes and isinstance(modes[0], str) else ""
    return own or text_at(artifact, "spec", "accessMode") or (config or BUILT_IN).storage.access_mode


# --------------------------------------------------------------------------------------------------------------- names


SLUG_LENGTH = 41
"""Characters of a model's part of an artifact's name: with '-' and 10 digits of a digest it has at most 52."""

_DIGITS = 10
_SHORT = 8
_LONGEST = 63
_NO_NAME = re.compile(r"[^a-z0-9]+")


def artifact_name(uri: str, *key: object) -> str:
    """The name of a made artifact: a slug of the model and a digest over everything that tells two artifacts apart."""
    last = uri.rstrip("/").rpartition("/")[2]
    return f"{_slug(last, SLUG_LENGTH)}-{digest([uri, *key], length=_DIGITS)}"


def content_name(spec: Resource, namespace: str, *, owner: str = "") -> str:
    """The name of a made artifact with this spec; `owner` is the uid of the deployment that alone uses it.

    Everything that decides what is fetched, from where and as whom is in it, but for the fields that made artifacts
    never have (`_USERS_OWN`).
    """
    return artifact_name(text_at(spec, "source", "uri"), namespace, *_content(spec, owner))


def _content(spec: Resource, owner: str) -> tuple[str, ...]:
    """What a name is made of beside source and namespace."""
    return (
        text_at(spec, "source", "revision"),
        text_at(spec, "storageClassName"),
        text_at(spec, "accessMode"),
        text_at(spec, "secrets", "huggingFaceToken"),
        owner,
        *_of_config(text_at(spec, "runtimeConfigName")),
        *((f"ca:{ca.config_map}/{ca.key}",) if (ca := ca_bundle_at(spec)) is not None else ()),
    )


def is_content_of(artifact: Resource, wanted: Resource) -> bool:
    """Whether an artifact has the very content of the one that the part would make under its name.

    A digest of ten digits can be met by trying revisions, so the name alone proves nothing.
    """

    def content(obj: Resource) -> tuple[str, ...]:
        spec = mapping_at(obj, "spec")
        uri, config = text_at(spec, "source", "uri"), text_at(spec, "runtimeConfigName")
        if key_of(wanted).name == bucket_name(uri, key_of(artifact).namespace, config=config):
            return uri, *_of_config(config)  # no more is in such a name
        return uri, *_content(spec, text_at(controller_owner(obj), "uid"))

    return content(artifact) == content(wanted)


def bucket_name(uri: str, namespace: str, *, config: str = "") -> str:
    """The name of the artifact that a template keeps of weights that no model id names; `config` is its config."""
    return artifact_name(uri, namespace, *_of_config(config))


def _of_config(name: str) -> tuple[str, ...]:
    """A config other than the default one is a part of the key: its variables may name another hub."""
    return (name,) if name not in ("", DEFAULT) else ()


def has_made_content(artifact: Resource) -> bool:
    """Whether an artifact is what the model cache part would make under its name.

    Labels prove nothing, because users of the namespace can write them: the name is a digest over the content, and one
    who copies both has made the very artifact that the part would have made.
    """
    spec, key = artifact.get("spec"), key_of(artifact)
    if any(dig(spec, *path) for path in _USERS_OWN):
        return False
    owner = text_at(controller_owner(artifact), "uid")
    if key.name == content_name(mapping_at(artifact, "spec"), key.namespace, owner=owner):
        return True
    uri, config = text_at(spec, "source", "uri"), text_at(spec, "runtimeConfigName")
    kept = bucket_name(uri, key.namespace, config=config)
    return not (owner or dig(spec, "source", "revision") or dig(spec, "caBundle")) and key.name == kept


_USERS_OWN = (
    ("source", "include"),
    ("source", "exclude"),
    ("env",),
    ("imagePullSecrets",),
    ("serviceAccountName",),
    ("downloaderImage",),
)
"""Fields of an artifact that only a user sets."""


def claim_name(artifact: str, *, uid: str, attempt: int) -> str:
    """The claim of an artifact; `attempt` counts the claims that were lost or too small to go on with."""
    return _derived(artifact, "cache", uid, attempt)


def job_name(artifact: str, step: str, *, uid: str, attempt: int) -> str:
    """The Job of a step (``check-size`` or ``download``)."""
    return _derived(artifact, step, uid, attempt)


def _derived(artifact: str, step: str, uid: str, attempt: int) -> str:
    """``<artifact>-<step>-<hash8>``, at most 63 characters: Job controllers copy the name into a label."""
    ending = f"-{step}-{digest([uid, step, attempt], length=_SHORT)}"
    return f"{_slug(artifact, _LONGEST - len(ending))}{ending}"


def _slug(text: str, longest: int) -> str:
    return _NO_NAME.sub("-", text.lower()).strip("-")[:longest].rstrip("-") or "model"
