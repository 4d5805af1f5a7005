"""Translates a deployment by a provider's plugin and completes the objects so that they can be applied. Pure.

Completing adds the namespace, the owner, labels, and annotations: the transformer that wrote the object, what it was
written for, and digests of everything whose change needs a new object (spec rulings 9, 10, 26, 27).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from airunway.api import names
from airunway.api.base import ParseError
from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.api.rules import MAX_REPLICAS
from airunway.configs import EffectiveConfig, config_name, propagated
from airunway.json_path import values_at
from airunway.owned import objects as owned_objects
from airunway.owned.objects import identity_in, our_labels
from airunway.plugins.contract import Context, Finding, Interruption, Transformer, UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import kept_settings
from airunway.resource import (
    Resource,
    annotations_of,
    canonical_json,
    copy_of,
    dig,
    digest,
    labels_of,
)
from airunway.runtime.override_check import check_overrides, merged, placed
from airunway.runtime.recreation import (
    INTERRUPTS_ON_CHANGE,
    REPLACE_ON_CHANGE,
    identity_of,
    interruption_record,
    replacement_record,
)
from airunway.runtime.settings_record import Record, new_record
from airunway.runtime.state import provider_mark
from airunway.sdk.fields import ignored_fields, ignored_pod_settings, tracked
from airunway.sdk.pods import pod_templates
from airunway.status.parts import parts_of

__all__ = [
    "SpecDigests",
    "TooLarge",
    "TranslationResult",
    "complete",
    "parsed",
    "selector_of",
    "translate",
    "unclaimed_volumes",
    "with_counts_of",
    "written_for",
]


@dataclass(frozen=True, kw_only=True)
class TranslationResult:
    """The blockers or the desired objects of a deployment."""

    blockers: tuple[Finding, ...]
    """Why the provider cannot run it; empty if it can."""
    warnings: tuple[Finding, ...]
    """Warnings for the user."""
    objects: tuple[Resource, ...] = ()
    """The desired, complete objects, the primary first; empty with blockers or while suspended."""


class TooLarge(ParseError):
    """The deployment exceeds size limits: a cache keeps only an outline of it."""


def parsed(deployment: Resource) -> ModelDeployment:
    """The deployment as plugins see it. Raises ParseError, and TooLarge with all limits that it exceeds."""
    if large := noted_excess(deployment):
        raise TooLarge("", "; ".join(f"{each.path}: {each.message}" for each in large))
    return parse_deployment(deployment)


def translate(
    host: ProviderHost,
    deployment: Resource,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    digests: SpecDigests | None = None,
    records: bool = True,
    before: Record | None = None,
    config: EffectiveConfig | None = None,
    frozen: bool = False,
) -> TranslationResult:
    """The blockers of the deployment, or its desired objects. Raises PluginFault.

    `deployment` and `typed` are the same object, plain (with namespace and uid) and parsed; `digests` is the result of
    `written_for`, if known already. With `records` the settings in the context are recorded on the primary object;
    `before` is the record that it has, which stays where it says the same. `config` decides which of the
    deployment's labels the objects get; pods get those of the context. With `frozen` the pod settings of the config
    that the spec names are not used, and the record keeps the name that it has. The plugin never sees overrides that
    its schema refuses. A field that the user set and the provider never read is reported here (ruling 18).
    """
    unclaimed = [] if names.MODEL_CACHE_PART in parts_of(deployment) else unclaimed_volumes(typed)
    overrides = check_overrides(typed.spec.provider.overrides or {}, host.manifest.override_schema)
    if overrides.errors:  # the plugin never sees them
        return TranslationResult(blockers=(*unclaimed, *overrides.errors), warnings=overrides.unknown)
    view, reads = tracked(typed)
    compatibility = host.can_handle(view, context)
    host.heeds |= reads.metadata
    blockers = (*unclaimed, *compatibility.blockers)
    warnings = (*overrides.unknown, *compatibility.warnings)
    if blockers or typed.spec.suspend:
        return TranslationResult(blockers=blockers, warnings=warnings)
    translation = host.translate_spec(view, context)
    host.heeds |= reads.metadata
    objects = list(translation.objects)
    if overrides.merge:
        for part in placed(overrides.merge, translation.overrides_at):
            objects[0] = merged(objects[0], part)
    warned = {finding.path for finding in warnings}
    provided = (*_claim_fields(reads.paths), *(("spec.model.cache",) if context.cache is not None else ()))
    ignored = [
        *(finding for finding in ignored_fields(typed, reads, provided=provided) if finding.path not in warned),
        *ignored_pod_settings(typed, context, translation.objects, named=warnings),
    ]
    digests = digests or written_for(deployment, typed)
    record = Record(
        lasting=digests.lasting,
        config=config_name(deployment) if not frozen else before.config if before is not None else None,
        provider=kept_settings(context.settings),
        pods=context.runtime,
        cache=context.cache,
        gateway=context.gateway if before is None or context.spec_changed else before.gateway,
    )
    desired = complete(
        objects,
        deployment,
        provider=host.name,
        transformer=_writer(host, objects[0], context).name,
        wanted_for=digests.wanted,
        settings=new_record(record, before=before).as_json() if records else None,
        inherited=propagated(labels_of(deployment), config, reserved=host.manifest.reserved_labels),
        identity=identity_of(typed, context.engine),
        topology=translation.replace_on,
        interrupts=translation.interrupts,
        immutable=[_immutable(host, obj, context, primary=i == 0) for i, obj in enumerate(objects)],
        pod_labels=[_kind(host, obj).labels.values() for obj in objects],
    )
    return TranslationResult(blockers=(), warnings=(*warnings, *ignored), objects=tuple(desired))


def _writer(host: ProviderHost, primary: Resource, context: Context[Any]) -> Transformer:
    """The transformer that writes a primary object: one of the object's own kind, or the primary kind's."""
    kind = _kind(host, primary)
    served = context.served.get(kind.key)
    return context.upstream.transformer if kind.primary or served is None else served.transformer


def _immutable(host: ProviderHost, obj: Resource, context: Context[Any], *, primary: bool) -> tuple[str, ...]:
    return _writer(host, obj, context).immutable if primary else _kind(host, obj).immutable


def _kind(host: ProviderHost, obj: Resource) -> UpstreamKind:
    identity = identity_in(obj)
    return host.kinds[identity.group, identity.kind]


def selector_of(host: ProviderHost, deployment: str, primary: str) -> str:
    """The label selector of the serving pods, for the scale subresource and so for every HPA."""
    label = host.manifest.pod_labels[0] if host.manifest.pod_labels else names.MODEL_DEPLOYMENT
    value = deployment if label == names.MODEL_DEPLOYMENT else primary
    parts = [f"{label}={value}"]
    roles = host.manifest.serving_roles
    if roles and host.manifest.role_label:
        of = f"={roles[0]}" if len(roles) == 1 else f" in ({','.join(roles)})"
        parts.append(f"{host.manifest.role_label}{of}")
    return ",".join(parts)


# ---------------------------------------------------------------------------------------- what is noted on the objects


_HASH_LENGTH = 16


_PASSING = ("suspend", "scaling")
"""Parts of the spec whose change does not take a newer transformer or settings, in addition to `_NOT_UPSTREAM`; of
``scaling`` only the replica counts.
"""


_NOT_UPSTREAM = ("gateway", "runtimeConfigName")
"""Parts of the spec that the translation never writes into an upstream object."""


class SpecDigests(NamedTuple):
    """Digests of the input of a translation."""

    wanted: str
    """Digest of the whole input."""
    lasting: str
    """Digest without replica counts and ``suspend``: scaling must not take a new transformer (rulings 23 and 27)."""


def written_for(deployment: Resource, typed: ModelDeployment) -> SpecDigests:
    """Digests of a translation's input: the spec without `_NOT_UPSTREAM`, the engine, and the adopt annotation.

    Default values are left out: the API server sets those of the CRD and a preview does not, and a default value that a
    newer release adds must not count as a change of every deployment. `typed` is the same object, parsed.
    """
    others = _beside_spec(deployment)
    spec = _upstream_spec(typed)
    lasting = {key: value for key, value in spec.items() if key not in _PASSING}
    if scaling := _without_counts(spec.get("scaling") or {}):
        lasting["scaling"] = scaling
    return SpecDigests(wanted=_input_digest(spec, others), lasting=_input_digest(lasting, others))


def _upstream_spec(typed: ModelDeployment) -> Resource:
    return _without_claims({key: value for key, value in typed.spec.to_essence().items() if key not in _NOT_UPSTREAM})


def _beside_spec(deployment: Resource) -> tuple[str, str]:
    """The engine and the adopt annotation."""
    return dig(deployment, "status", "engine", "type", default=""), annotations_of(deployment).get(names.ADOPT, "")


def _input_digest(spec: Mapping[str, object], others: tuple[str, str]) -> str:
    return digest([spec, *others], length=_HASH_LENGTH)


def with_counts_of(mark: str, deployment: Resource, typed: ModelDeployment) -> ModelDeployment | None:
    """Returns the deployment with the replica counts of the spec whose digest (`SpecDigests.wanted`) is `mark`; None if
    more than counts and ``suspend`` has changed since.

    For objects without a record, which has the digest without counts. A deployment has at most `MAX_REPLICAS` of each
    role, so all counts can be tried.
    """
    scaling, counts = typed.spec.scaling, range(MAX_REPLICAS + 1)
    others, spec = _beside_spec(deployment), _upstream_spec(typed)
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


def _without_counts(scaling: Mapping[str, object]) -> dict[str, object]:
    """The roles without their replica counts."""
    return {
        role: {key: value for key, value in worker.items() if key != "replicas"}
        for role, worker in scaling.items()
        if isinstance(worker, dict)
    }


def complete(
    objects: Sequence[Resource],
    deployment: Resource,
    *,
    provider: str,
    transformer: str,
    wanted_for: str,
    settings: Mapping[str, object] | None = None,
    inherited: Mapping[str, str] | None = None,
    identity: Mapping[str, object],
    topology: Mapping[str, object],
    immutable: Sequence[Sequence[str]],
    pod_labels: Sequence[Iterable[str]] = (),
    interrupts: Mapping[str, Interruption] | None = None,
) -> list[Resource]:
    """The translated objects with namespace, owner reference, labels and annotations; the primary stays first.

    - `wanted_for` is the digest of what the primary is written for (`written_for`); `settings` is the record of the
      settings with which it was created (None: no record).
    - `inherited` are the deployment's labels that its objects get.
    - A new object is needed when a value of `identity` or `topology` changes. `immutable` has the paths of each object
      that cannot be changed in place.
    - Our labels have precedence over the translation's, and those over propagated ones. The labels that identify a
      pod's deployment are also set in every pod template, and at the paths in `pod_labels` where pods are outside of a
      template.
    - `interrupts` are the translation's interruptions by changes in place.
    """
    whose = our_labels(deployment, provider_mark(provider))
    result = []
    for position, (translated, paths) in enumerate(zip(objects, immutable, strict=True)):
        obj = _with_pod_labels(translated, whose, places=pod_labels[position] if pod_labels else ())
        annotations = dict(obj["metadata"].get("annotations") or {})
        record = {"object": {path: _at(obj, path.removesuffix(".*").split(".")) for path in paths}}
        if position == 0:
            annotations[names.TRANSFORMER] = transformer
            annotations[names.WRITTEN_FOR] = wanted_for
            if settings is not None:
                annotations[names.RUNTIME_SETTINGS] = canonical_json(settings).decode()
            record |= {"deployment": dict(identity), "topology": dict(topology)}
            if interrupts:
                annotations[INTERRUPTS_ON_CHANGE] = interruption_record(interrupts)
        if recorded := replacement_record(record):
            annotations[REPLACE_ON_CHANGE] = recorded
        obj = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
        result.append(owned_objects.complete(obj, owner=deployment, labels=whose, propagated=inherited))
    return result


def _with_pod_labels(obj: Resource, whose: Mapping[str, str], *, places: Iterable[str]) -> Resource:
    places = [place for place in places if place]
    if not places and next(pod_templates(obj), None) is None:
        return obj
    obj = copy_of(obj)
    for template in pod_templates(obj):
        meta = template.get("metadata")
        meta = template["metadata"] = dict(meta) if isinstance(meta, dict) else {}
        meta["labels"] = {**(meta.get("labels") or {}), **whose}
    for place in places:
        above, _, last = place.rpartition(".")
        for node in values_at(obj, above):
            if isinstance(node, dict):
                node[last] = {**(dig(node, last) or {}), **whose}
    return obj


def _at(obj: Resource, steps: Sequence[str]) -> object:
    node: object = obj
    for step in steps:
        node = node.get(step) if isinstance(node, dict) else None
    return node


# --------------------------------------------------------------------------------- volumes whose claims the core makes


_OF_CLAIMS = ("size", "storageClassName", "accessMode")

_VOLUME = "spec.model.storage.volumes[]"


def _claim_fields(read: Collection[str]) -> tuple[str, ...]:
    """Fields of the spec that reach a provider as the claim of a volume, if it has read the claim's name."""
    return tuple(f"{_VOLUME}.{field}" for field in _OF_CLAIMS) if f"{_VOLUME}.claimName" in read else ()


def unclaimed_volumes(typed: ModelDeployment) -> list[Finding]:
    """Volumes with a size where that part is off: pods would wait for their claims forever."""
    return [
        Finding(
            path=f"spec.model.storage.volumes[{position}].size",
            reason="IncompatibleConfiguration",
            message=f"volume {volume.name}: claims are created from size by the model cache part, which is off: start "
            "the controller with --model-cache=on, or create a PersistentVolumeClaim, name it in claimName and take "
            "size out",
        )
        for position, volume in enumerate(typed.spec.model.storage.volumes)
        if volume.size is not None
    ]


def _without_claims(spec: Resource) -> Resource:
    """A spec without what only concerns claims of volumes: a claim that grows is no change for what mounts it."""
    volumes = dig(spec, "model", "storage", "volumes")
    if not isinstance(volumes, list) or not any(dig(volume, "size") is not None for volume in volumes):
        return spec
    kept = [{key: value for key, value in volume.items() if key not in _OF_CLAIMS} for volume in volumes]
    model = spec["model"]
    return {**spec, "model": {**model, "storage": {**model["storage"], "volumes": kept}}}
