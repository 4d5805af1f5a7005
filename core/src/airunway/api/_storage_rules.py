"""The validation rules of ``spec.model.storage``: single volumes, all volumes together, and allowed changes."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.api._rule import FORBIDDEN, REQUIRED, ValidationRule, amount_of, is_quantity, quantity_rules
from airunway.resource import Resource

__all__ = ["storage_rules"]

_SYSTEM_PATHS = ("/dev", "/proc", "/sys", "/etc", "/var/run", "/run")

_SIZED_VOLUME_DEFAULTS = {
    "mountPath": "({0}.purpose == 'modelCache' ? '/model-cache' : '/compilation-cache')",
    "purpose": "'custom'",
    "accessMode": "'ReadWriteMany'",
}
"""The defaults of a volume with size: writing one of them into the spec later is no change."""


def _effective(owner: str, field: str, default: str) -> str:
    return f"(has({owner}.{field}) && {owner}.{field} != '' ? {owner}.{field} : {default.format(owner)})"


def storage_rules() -> Iterator[ValidationRule]:
    item = "spec.model.storage.volumes[*]"
    yield ValidationRule(
        path=item,
        expression="has(self.size) || (has(self.claimName) && self.claimName != '')",
        message="claimName is required when size is not set (name an existing PersistentVolumeClaim)",
        field=".claimName",
        reason=REQUIRED,
    )
    yield from quantity_rules(item, "size", example="100Gi")
    yield ValidationRule(
        path=item,
        expression="!has(self.size) || !has(self.readOnly) || !self.readOnly",
        message="readOnly must not be true when size is set (a new claim has to be written first)",
        field=".readOnly",
    )
    for field in ("accessMode", "storageClassName"):
        yield ValidationRule(
            path=item,
            expression=f"!has(self.{field}) || has(self.size)",
            message=f"{field} is only applicable when size is set (an existing claim has its own)",
            field=f".{field}",
            reason=FORBIDDEN,
        )
    mount = "!has(self.mountPath) || self.mountPath == ''"
    yield ValidationRule(
        path=item,
        expression=f"{mount} || self.mountPath.startsWith('/')",
        message="mountPath must be an absolute path (start with /)",
        field=".mountPath",
    )
    yield ValidationRule(
        path=item,
        expression="self.purpose != 'custom' || (has(self.mountPath) && self.mountPath != '')",
        message="mountPath is required when purpose is custom",
        field=".mountPath",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path=item,
        expression=f"{mount} || !(self.mountPath == '/' || self.mountPath.contains('//')"
        " || (self.mountPath + '/').contains('/./') || (self.mountPath + '/').contains('/../'))",
        message="mountPath must name a directory below / plainly (without //, . and ..)",
        field=".mountPath",
    )
    for system in _SYSTEM_PATHS:
        yield ValidationRule(
            path=item,
            expression=f"{mount} || !(self.mountPath == '{system}' || self.mountPath.startsWith('{system}/'))",
            message=f"mountPath must not overlap with system path {system}",
            field=".mountPath",
        )
    yield from _list_rules()
    yield from _cache_rules()


def _cache_rules() -> Iterator[ValidationRule]:
    cached = "has(self.cache) && has(self.cache.mode) && self.cache.mode != 'None'"
    named = "has(self.cache.artifactName) && self.cache.artifactName != ''"
    yield ValidationRule(
        path="spec.model",
        expression=f"!({cached}) || !has(self.source) || self.source == 'huggingface' || ({named})",
        message="cache.mode needs source huggingface, or cache.artifactName: the ModelArtifact that has the weights",
        field=".cache.mode",
    )
    at_cache = "(has(v.mountPath) && v.mountPath != '' ? v.mountPath == '/model-cache' : v.purpose == 'modelCache')"
    yield ValidationRule(
        path="spec.model",
        expression=f"!({cached}) || !has(self.storage) || !has(self.storage.volumes)"
        f" || !self.storage.volumes.exists(v, {at_cache})",
        message="the model cache is mounted at /model-cache: give the volume another mountPath, or set cache.mode None",
        field=".storage.volumes",
    )
    yield from quantity_rules("spec.model.cache", "size", example="100Gi")


def _list_rules() -> Iterator[ValidationRule]:
    storage = "spec.model.storage"
    for purpose in ("modelCache", "compilationCache"):
        yield ValidationRule(
            path=storage,
            expression=f"!has(self.volumes) || self.volumes.filter(v, v.purpose == '{purpose}').size() <= 1",
            message=f"at most one volume with purpose={purpose} is allowed",
            field=".volumes",
        )
    yield ValidationRule(
        path=storage,
        expression="!has(self.volumes) || self.volumes.all(v, !has(v.mountPath) || v.mountPath == ''"
        " || self.volumes.exists_one(w, has(w.mountPath) && w.mountPath == v.mountPath))",
        message="duplicate mount path: every volume needs a mountPath of its own",
        field=".volumes",
    )
    for purpose, path in (("modelCache", "/model-cache"), ("compilationCache", "/compilation-cache")):
        yield ValidationRule(
            path=storage,
            expression=f"!has(self.volumes) || !self.volumes.exists(v, v.purpose == '{purpose}'"
            f" && (!has(v.mountPath) || v.mountPath == '')) || !self.volumes.exists(v, has(v.mountPath)"
            f" && v.mountPath == '{path}')",
            message=f"duplicate mount path: {path} is where the {purpose} volume is mounted by default",
            field=".volumes",
        )
    yield ValidationRule(
        path=storage,
        expression="!has(self.volumes) || self.volumes.all(v, !has(v.claimName) || v.claimName == ''"
        " || self.volumes.exists_one(w, has(w.claimName) && w.claimName == v.claimName))",
        message="duplicate claim name: every volume needs a claim of its own",
        field=".volumes",
    )
    yield ValidationRule(
        path="",
        expression="!has(self.spec.model) || !has(self.spec.model.storage) || !has(self.spec.model.storage.volumes)"
        " || self.spec.model.storage.volumes.all(v, !has(v.size) || !has(v.claimName) || v.claimName == ''"
        " || v.claimName == self.metadata.name + '-' + v.name)",
        message="claimName must not be set when size is set (the claim is created as <deployment>-<volume>)",
        field=".spec.model.storage.volumes",
        reason=FORBIDDEN,
        unless_unchanged="spec.model",
    )
    old = "!has(oldSelf.storage) || !has(oldSelf.storage.volumes)"
    yield ValidationRule(
        path="spec.model",
        expression=f"{old} || oldSelf.storage.volumes.all(o, !has(o.size) || (has(self.storage)"
        " && has(self.storage.volumes) && self.storage.volumes.exists(v, v.name == o.name)))",
        message="a volume with size cannot be removed: delete the ModelDeployment to give up its claim",
        field=".storage.volumes",
        reason=FORBIDDEN,
    )
    same = " && ".join(
        f"{_effective('self', field, default)} == {_effective('oldSelf', field, default)}"
        for field, default in _SIZED_VOLUME_DEFAULTS.items()
    )
    yield ValidationRule(
        path=f"{storage}.volumes[*]",
        expression=f"!has(oldSelf.size) || !isQuantity(string(oldSelf.size)) || (has(self.size) && {same}"
        " && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0"
        " && has(self.storageClassName) == has(oldSelf.storageClassName)"
        " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName))",
        message="a volume with size can only grow once its claim exists: delete the ModelDeployment to change the rest",
        reason=FORBIDDEN,
        check=_keeps_claim,
    )


def _keeps_claim(new: Resource, old: Resource | None) -> bool:
    """Whether a volume requests the same claim as before, or a larger one; true if the old volume had no size."""
    if old is None or not is_quantity(old.get("size")):
        return True
    before, after = amount_of(old["size"]), amount_of(new.get("size"))
    fields = (*_SIZED_VOLUME_DEFAULTS, "storageClassName")
    return (
        before is not None
        and after is not None
        and after >= before
        and all(_meant(new, f) == _meant(old, f) for f in fields)
    )


def _meant(volume: Resource, field: str) -> object:
    if field == "storageClassName":
        return volume.get(field)
    if value := volume.get(field):
        return value
    if field == "mountPath":
        return "/model-cache" if volume.get("purpose") == "modelCache" else "/compilation-cache"
    return {"purpose": "custom", "accessMode": "ReadWriteMany"}[field]
