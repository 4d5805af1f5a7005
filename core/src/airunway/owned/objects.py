"""Which objects belong to an owner and which are foreign, and what we write on ours. Pure.

Example: the gateway part's HTTPRoute of the deployment ``llama`` has the owner reference of ``llama``, the label
``airunway.ai/model-deployment: llama`` and the mark ``airunway.ai/part: gateway``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from airunway.api import names
from airunway.resource import Resource, controller_owner, dig, digest, key_of, owner_reference, uid_of

_HASH_LENGTH = 16


class Identity(NamedTuple):
    """The identity of an object in any version; its namespace is the owner's."""

    group: str
    kind: str
    name: str


class Mark(NamedTuple):
    """The label that distinguishes the objects of one writer from those of other writers for the same owner."""

    key: str
    """For example ``airunway.ai/provider`` or ``airunway.ai/part``."""
    value: str

    @property
    def selector(self) -> str:
        """The label selector of these objects."""
        return f"{self.key}={self.value}"


def identity_in(obj: Resource) -> Identity:
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    return Identity(group, str(obj.get("kind")), str(dig(obj, "metadata", "name")))


def named(obj: Resource) -> str:
    return f"{obj.get('kind')} '{key_of(obj).name}'"


def is_ours(live: Resource, owner: Resource, mark: Mark) -> bool:
    """Whether the writer with this mark created the object for exactly this owner (by uid).

    An object without a controlling owner is recognised by its annotation: the next apply restores the reference.
    Objects of the same owner with another mark are not ours.
    """
    if dig(live, "metadata", "labels", mark.key) != mark.value:
        return False
    uid = owner["metadata"]["uid"]
    references = dig(live, "metadata", "ownerReferences")
    if isinstance(references, list) and any(isinstance(ref, dict) and ref.get("uid") == uid for ref in references):
        return True
    return controller_owner(live) is None and dig(live, "metadata", "annotations", names.DEPLOYMENT_UID) == uid


def our_labels(owner: Resource, mark: Mark) -> dict[str, str]:
    """The labels of every object that is made for the owner: who manages it, its deployment, and the mark."""
    found = {names.MANAGED_BY: names.MANAGED_BY_VALUE}
    if owner["kind"] == "ModelDeployment":
        found[names.MODEL_DEPLOYMENT] = owner["metadata"]["name"]
    return {**found, mark.key: mark.value}


def complete(
    obj: Resource, *, owner: Resource, labels: Mapping[str, str], propagated: Mapping[str, str] | None = None
) -> Resource:
    """The object with the owner's namespace, an owner reference, labels, and the annotations that `plan_of` needs.

    The object's own labels have precedence over `propagated` ones, and `labels` (`our_labels`) over both. The object
    needs ``metadata.name``; the owner may lack a uid (in a preview).
    """
    meta = {**obj["metadata"], "namespace": owner["metadata"]["namespace"]}
    meta["labels"] = {**(propagated or {}), **(meta.get("labels") or {}), **labels}
    annotations = dict(meta.get("annotations") or {})
    # Hashed before the owner is set: its uid identifies the owner and is no part of the request.
    hashed = {**obj, "metadata": {**meta, "annotations": annotations}}
    meta["annotations"] = {**annotations, names.SPEC_HASH: digest(hashed, length=_HASH_LENGTH)}
    if uid := uid_of(owner):
        meta["annotations"][names.DEPLOYMENT_UID] = uid
    meta["ownerReferences"] = [owner_reference(owner)]
    return {**obj, "metadata": meta}
