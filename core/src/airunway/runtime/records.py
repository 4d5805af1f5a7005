"""What the objects of a deployment record of how they were made, as annotations, and what a change of it means. Pure.

- `names.TRANSFORMER` makes an object the primary one.
- `names.RUNTIME_SETTINGS` has the settings that the primary object was made with and keeps:
  ``{"for": <digest of the spec>, "config": <name of the runtime config>, "provider": {...}, "pods": {...}, "cache":
  {...}, "gateway": {...}, "adopted": <value of the adopt annotation>}``; what is empty is left out.
- `names.WRITTEN_FOR` has the digest of the whole input of the translation (`written_for`).
- `REPLACE_ON_CHANGE` and `INTERRUPTS_ON_CHANGE` have digests of what recreates or interrupts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import orjson

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.api.rules import MAX_REPLICAS
from airunway.plugins.contract import Gateway, Interruption, ModelCache, RuntimeSettings, Transformer
from airunway.resource import (
    Resource,
    annotations_of,
    canonical_json,
    controller_owner,
    dig,
    digest,
    filled,
    list_at,
    managed_by,
    mapping_at,
)
from airunway.revisions.same_spec import lasting_spec, upstream_spec


def is_primary(live: Resource) -> bool:
    """Whether an object of ours is the deployment's primary one, of any kind and name.

    It has the transformer annotation. Operators copy annotations onto objects that they create; those are controlled by
    another owner.
    """
    owner = controller_owner(live)
    return names.TRANSFORMER in annotations_of(live) and (owner is None or owner.get("kind") == "ModelDeployment")


# -------------------------------------------------------------------------------------------------------- the settings


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the primary object was made with."""

    lasting: str
    """Digest of the spec, as in `SpecDigests.lasting`."""
    config: str | None = None
    """Name of the runtime config that the spec named; None in a record of a release without runtime configs."""
    provider: Mapping[str, object] = field(default_factory=dict)
    """The provider's own kept settings."""
    pods: RuntimeSettings = field(default_factory=RuntimeSettings)
    """The pod settings of the runtime config."""
    cache: ModelCache | None = None
    """The model cache that its pods mount."""
    gateway: Gateway | None = None
    """The gateway for which the object was made, where the provider decides about a pool."""
    adopted: str = ""
    """The last value of the adopt annotation: it stays in effect when the annotation is removed."""
    stored: Resource = field(default_factory=dict, compare=False)
    """The record as it was read; empty for a new one."""

    def as_json(self) -> Resource:
        """The value of the annotation."""
        if self.stored:
            return self.stored
        cache, gateway = self.cache, self.gateway
        parts: Resource = {
            "config": self.config,
            "provider": dict(self.provider),
            "pods": settings_record(self.pods),
            "adopted": self.adopted,
        }
        if cache is not None:  # all that is not recorded of it has its default value in `_cache_in`
            parts["cache"] = filled(
                claim=cache.claim,
                subPath=cache.sub_path,
                mountPath=cache.mount_path,
                path=cache.path,
                accessMode=cache.access_mode,
            )
        if gateway is not None:
            parts["gateway"] = {"name": gateway.name, "namespace": gateway.namespace, "usesPool": gateway.uses_pool}
        return {"for": self.lasting, **filled(**parts)}


def new_record(record: Record, *, before: Record | None) -> Record:
    """Returns the record to write: `before` where it says the same. A record alone is no reason to write."""
    if before is None or before.config not in (None, record.config) or before.adopted not in ("", record.adopted):
        return record
    same = replace(record, config=before.config, adopted=before.adopted).as_json() == before.as_json()
    return before if same else record


def read_record(primary: Resource | None, manager: str) -> Record | None:
    """Returns the record on a primary object; None if there is none, it is no JSON object, or another manager wrote it.

    Total for any JSON: what does not fit counts as empty.
    """
    found = _map_in(primary, names.RUNTIME_SETTINGS) if primary is not None else None
    if primary is None or found is None or not _is_ours(primary, names.RUNTIME_SETTINGS, manager):
        return None
    provider, config, adopted = found.get("provider"), found.get("config"), found.get("adopted")
    return Record(
        lasting=str(found.get("for", "")),
        config=config if isinstance(config, str) else None,
        provider=provider if isinstance(provider, dict) else {},
        pods=settings_of_record(found.get("pods")),
        cache=_cache_in(found.get("cache")),
        gateway=_gateway_in(found.get("gateway")),
        adopted=adopted if isinstance(adopted, str) else "",
        stored=found,
    )


def _map_in(obj: Resource, annotation: str) -> dict[str, Any] | None:
    """The JSON map in an annotation; None if there is none or it is invalid (any user may have written it)."""
    text = annotations_of(obj).get(annotation)
    try:
        found = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def settings_record(settings: RuntimeSettings) -> Resource:
    """Returns the settings as JSON, without what is empty: the key ``pods`` of the annotation."""
    record: Resource = {
        "env": [dict(entry) for entry in settings.env],
        "imagePullSecrets": list(settings.image_pull_secrets),
        "token": settings.token,
        "labels": dict(settings.labels),
    }
    return filled(**record)


def settings_of_record(record: object) -> RuntimeSettings:
    """Returns the settings of a record. Total for any JSON: what does not fit is left out."""
    token = dig(record, "token")
    return RuntimeSettings(
        env=tuple(each for each in list_at(record, "env") if isinstance(dig(each, "name"), str)),
        labels={label: value for label, value in mapping_at(record, "labels").items() if isinstance(value, str)},
        image_pull_secrets=tuple(each for each in list_at(record, "imagePullSecrets") if isinstance(each, str)),
        token=token if isinstance(token, str) else "",
    )


def _cache_in(found: object) -> ModelCache | None:
    claim, sub, mount, path, mode = (
        dig(found, key, default="") for key in ("claim", "subPath", "mountPath", "path", "accessMode")
    )
    texts = [each for each in (claim, sub, mount, path, mode) if isinstance(each, str)]
    if len(texts) < 5 or not claim or not mount:
        return None
    return ModelCache(claim=claim, sub_path=sub, mount_path=mount, path=path, access_mode=mode)


def _gateway_in(found: object) -> Gateway | None:
    name, namespace = dig(found, "name"), dig(found, "namespace")
    if not isinstance(name, str) or not isinstance(namespace, str):
        return None
    return Gateway(name=name, namespace=namespace, uses_pool=dig(found, "usesPool") is True)


def _is_ours(obj: Resource, annotation: str, manager: str) -> bool:
    """Whether we applied the annotation's current value. A preview's object has no managedFields and counts as ours."""
    return not isinstance(dig(obj, "metadata", "managedFields"), list) or any(
        dig(entry, "fieldsV1", "f:metadata", "f:annotations", f"f:{annotation}") is not None
        for entry in managed_by(obj, manager)
    )


# ------------------------------------------------------------------------------------ what a translation is written for


_HASH_LENGTH = 16


class SpecDigests(NamedTuple):
    """Digests of the input of a translation."""

    wanted: str
    """Digest of the whole input."""
    lasting: str
    """Digest without replica counts and ``suspend``: scaling must not take a new transformer."""


def written_for(deployment: Resource, typed: ModelDeployment, *, before: Record | None = None) -> SpecDigests:
    """Digests of a translation's input: the spec (`revisions.same_spec`), the engine, and the adopt annotation.

    `typed` is the same object, parsed; `before` is the record of the live object.
    """
    others, essence = _beside_spec(deployment, before), typed.spec.to_essence()
    return SpecDigests(
        wanted=_input_digest(upstream_spec(essence), others), lasting=_input_digest(lasting_spec(essence), others)
    )


def _beside_spec(deployment: Resource, before: Record | None = None) -> tuple[str, str]:
    """The engine and the adopted value."""
    return dig(deployment, "status", "engine", "type", default=""), adopted_by(deployment, before)


def adopted_by(deployment: Resource, before: Record | None) -> str:
    """The value of the adopt annotation, or the last one that was recorded: its removal is no new value."""
    return annotations_of(deployment).get(names.ADOPT) or (before.adopted if before is not None else "")


def _input_digest(spec: Mapping[str, object], others: tuple[str, str]) -> str:
    return digest([spec, *others], length=_HASH_LENGTH)


def with_counts_of(mark: str, deployment: Resource, typed: ModelDeployment) -> ModelDeployment | None:
    """Returns the deployment with the replica counts of the spec whose digest (`SpecDigests.wanted`) is `mark`; None if
    more than counts and ``suspend`` has changed since.

    For objects without a record, which has the digest without counts. A deployment has at most `MAX_REPLICAS` of each
    role, so all counts can be tried.
    """
    scaling, counts = typed.spec.scaling, range(MAX_REPLICAS + 1)
    others, spec = _beside_spec(deployment), upstream_spec(typed.spec.to_essence())
    spec.pop("suspend", None)
    of_roles = {key: value for key, value in (spec.pop("scaling", None) or {}).items() if key != "replicas"}
    if of_roles:
        tried = (
            (scaling.replicas, dict(zip(of_roles, each, strict=True))) for each in product(counts, repeat=len(of_roles))
        )
    else:
        tried = ((count, {}) for count in counts)
    for replicas, by_role in tried:
        found = {role: _with_count(of_roles[role], count) for role, count in by_role.items()}
        wanted = _with_count(found, replicas)
        if _input_digest({**spec, "scaling": wanted} if wanted else spec, others) == mark:
            roles = {role: getattr(scaling, role).model_copy(update={"replicas": n}) for role, n in by_role.items()}
            counted = scaling.model_copy(update={"replicas": replicas, **roles})
            return typed.model_copy(update={"spec": typed.spec.model_copy(update={"scaling": counted})})
    return None


def _with_count(worker: Mapping[str, object], count: int) -> Resource:
    """A part of ``scaling`` with a count; the default value is left out, as in every digest."""
    others = {key: value for key, value in worker.items() if key != "replicas"}
    return others if count == 1 else {**others, "replicas": count}


# -------------------------------------------------------------------------------- what a change recreates or interrupts


_SHORT = 8


def identity_of(deployment: ModelDeployment, engine: str) -> dict[str, object]:
    """The fields whose change replaces the upstream object."""
    spec = deployment.spec
    return {
        "spec.model.id": spec.model.id or "",
        "spec.model.source": spec.model.source,
        "spec.engine.type": engine,
        "spec.serving.mode": spec.serving.mode,
    }


def replacement_record(values: Mapping[str, Mapping[str, object]]) -> str:
    """Returns the value of `REPLACE_ON_CHANGE`: a digest of each of `values`, by group; empty if there are none."""
    digests = {
        group: {name: digest(value, length=_SHORT) for name, value in named.items()}
        for group, named in values.items()
        if named
    }
    return canonical_json(digests).decode() if digests else ""


def interruption_record(interrupts: Mapping[str, Interruption]) -> str:
    """Returns the value of `INTERRUPTS_ON_CHANGE`: a digest of each value, with the message when it changes."""
    outages = {name: [digest(found.value, length=_SHORT), found.message] for name, found in interrupts.items()}
    return canonical_json(outages).decode()


def recreate_causes(live: Resource, desired: Resource, *, transformers: Sequence[Transformer] = ()) -> list[str]:
    """What changed that cannot be changed in place: fields of the deployment, or paths of the upstream object.

    Empty if the change can be applied, if there is none, or if the annotation was removed (an apply restores it).
    `transformers` tell in which version the live object was written: it may be read in another one that is served.
    """
    before, after = _recorded(live), _recorded(desired)
    groups = ["deployment", "topology"]
    writer = annotations_of(live).get(names.TRANSFORMER)
    written = next((each.api_version for each in transformers if each.name == writer), live.get("apiVersion"))
    if written == desired.get("apiVersion") or not is_primary(live):
        groups.append("object")  # paths of another version would all differ
    causes = []
    for group in groups:
        old, new = before.get(group, {}), after.get(group, {})
        # Only paths in both records: one that a newer provider has begun to record is no change of the deployment.
        causes += [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return sorted(causes)


def interruptions(live: Resource, desired: Resource) -> list[str]:
    """The messages about outages to announce before `live` is changed to `desired` in place."""
    before, after = _recorded_outages(live), _recorded_outages(desired)
    changed = (name for name in before.keys() & after.keys() if before[name][0] != after[name][0])
    return [after[name][1] for name in sorted(changed) if after[name][1]]


def _recorded_outages(obj: Resource) -> dict[str, tuple[str, str]]:
    return {
        name: (entry[0], entry[1])
        for name, entry in (_map_in(obj, names.INTERRUPTS_ON_CHANGE) or {}).items()
        if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)
    }


def _recorded(obj: Resource) -> dict[str, dict[str, str]]:
    groups = _map_in(obj, names.REPLACE_ON_CHANGE) or {}
    return {name: values for name, values in groups.items() if isinstance(values, dict)}
