"""A provider's translation of a deployment, completed so that it can be applied. Pure; needs no cluster.

Completed means: namespace, owner, labels, and annotations for the transformer that wrote it, what it was written for,
and digests of everything whose change needs a new object (spec rulings 9, 10, 26, 27).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airunway.api import names
from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, ParseError, parse_deployment
from airunway.json_path import values_at
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
    owner_reference,
    uid_of,
)
from airunway.runtime.override_check import check_overrides, merged, placed
from airunway.runtime.recreation import _SHORT, INTERRUPTS_ON_CHANGE, REPLACE_ON_CHANGE, _outages, identity_of
from airunway.runtime.state import identity_in
from airunway.sdk.fields import ignored_fields, tracked
from airunway.sdk.pods import pod_templates
from airunway.validation import without_effect

__all__ = [
    "SpecDigests",
    "TranslationResult",
    "complete",
    "parsed",
    "propagated_labels",
    "selector_of",
    "translate",
    "written_for",
]


@dataclass(frozen=True, kw_only=True)
class TranslationResult:
    """Whether the provider can honour the deployment, and how."""

    blockers: tuple[Finding, ...]
    """Why it cannot; empty: it can."""
    warnings: tuple[Finding, ...]
    """What the user should know."""
    objects: tuple[Resource, ...] = ()
    """The desired objects, complete, the primary first; none with blockers, or while suspended."""


def parsed(deployment: Resource) -> ModelDeployment:
    """The deployment as plugins see it. Raises ParseError, also for what is too large: a cache lacks most of that."""
    if large := noted_excess(deployment):
        raise ParseError(large[0].path, large[0].message)
    return parse_deployment(deployment)


def translate(
    host: ProviderHost,
    deployment: Resource,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    digests: SpecDigests | None = None,
    records: bool = True,
) -> TranslationResult:
    """The blockers of the deployment, else its desired objects. Raises PluginFault.

    `deployment` and `typed` are the same object, plain (with namespace and uid) and parsed; `digests` is what
    `written_for` says of it, where that is known already. With `records` the settings that what runs keeps are noted on
    the primary object. Overrides that the provider's schema refuses are not shown to
    the plugin. A field that the user set and the provider never read is reported here (ruling 18).
    """
    unclaimed = _unclaimed(typed)
    overrides = check_overrides(typed.spec.provider.overrides or {}, host.manifest.override_schema)
    if overrides.errors:  # the plugin never sees overrides that the schema refuses
        return TranslationResult(blockers=(*unclaimed, *overrides.errors), warnings=overrides.unknown)
    view, reads = tracked(typed)
    compatibility = host.can_handle(view, context)
    host.heeds |= reads.metadata
    blockers = (*unclaimed, *compatibility.blockers)
    unused = (
        Finding(path=path, reason="FieldIgnored", message=message)
        for path, message in without_effect(deployment).items()
    )
    warnings = (*overrides.unknown, *compatibility.warnings, *unused)
    if blockers or typed.spec.suspend:
        return TranslationResult(blockers=blockers, warnings=warnings)
    translation = host.translate_spec(view, context)
    host.heeds |= reads.metadata
    objects = list(translation.objects)
    if overrides.merge:
        for part in placed(overrides.merge, translation.overrides_at):
            objects[0] = merged(objects[0], part)
    warned = {finding.path for finding in warnings}
    provided = ("spec.model.cache",) if context.cache is not None else ()
    ignored = (finding for finding in ignored_fields(typed, reads, provided=provided) if finding.path not in warned)
    digests = digests or written_for(deployment, typed)
    kept = kept_settings(context.settings) if records else {}
    desired = complete(
        objects,
        deployment,
        provider=host.name,
        transformer=_writer(host, objects[0], context).name,
        wanted_for=digests.wanted,
        settings={"for": digests.lasting, "provider": kept} if kept else None,
        identity=identity_of(typed, context.engine),
        topology=translation.replace_on,
        interrupts=translation.interrupts,
        immutable=[_immutable(host, obj, context, primary=i == 0) for i, obj in enumerate(objects)],
        pod_labels=[_kind(host, obj).labels.values() for obj in objects],
    )
    return TranslationResult(blockers=(), warnings=(*warnings, *ignored), objects=tuple(desired))


def _unclaimed(typed: ModelDeployment) -> list[Finding]:
    """Volumes with a size of their own: their claims are not created yet, and pods would wait for them for ever."""
    return [
        Finding(
            path=f"spec.model.storage.volumes[{position}].size",
            reason="IncompatibleConfiguration",
            message=f"volume {volume.name}: claims are not created from size yet; create a PersistentVolumeClaim, "
            "name it in claimName and take size out",
        )
        for position, volume in enumerate(typed.spec.model.storage.volumes)
        if volume.size is not None
    ]


def _writer(host: ProviderHost, primary: Resource, context: Context[Any]) -> Transformer:
    """The transformer that a primary object is written by: one of its own kind, or the primary kind's."""
    kind = _kind(host, primary)
    served = context.served.get(kind.key)
    return context.upstream.transformer if kind.primary or served is None else served.transformer


def _immutable(host: ProviderHost, obj: Resource, context: Context[Any], *, primary: bool) -> tuple[str, ...]:
    return _writer(host, obj, context).immutable if primary else _kind(host, obj).immutable


def _kind(host: ProviderHost, obj: Resource) -> UpstreamKind:
    identity = identity_in(obj)
    return host.kinds[identity.group, identity.kind]


def selector_of(host: ProviderHost, deployment: str, primary: str) -> str:
    """What selects the serving pods, for the scale subresource and with it every HPA."""
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
"""Parts whose change takes nothing new, beside those that never get there: of ``scaling`` only the replica counts."""


_NOT_UPSTREAM = ("gateway", "runtimeConfigName")
"""Parts of the spec that never reach an upstream object through its translation."""


class SpecDigests(NamedTuple):
    """Digests of what a translation was asked for."""

    wanted: str
    """Of all of it."""
    lasting: str
    """Without replica counts and ``suspend``: scaling must not take a new transformer (spec rulings 23 and 27)."""


def written_for(deployment: Resource, typed: ModelDeployment) -> SpecDigests:
    """Digests of what a translation was asked for: the spec without what never reaches it, the engine, the adoption.

    Without defaults: the API server fills in those of the CRD, a preview does not; and a default that a newer release
    adds must not make every object look as if it was written for something else. `typed` is the same object, parsed.
    """
    comparable = typed.spec.to_essence()
    spec = {key: value for key, value in comparable.items() if key not in _NOT_UPSTREAM}
    engine = dig(deployment, "status", "engine", "type", default="")
    adopted = annotations_of(deployment).get(names.ADOPT, "")
    lasting = {key: value for key, value in spec.items() if key not in _PASSING}
    if scaling := _without_counts(spec.get("scaling") or {}):
        lasting["scaling"] = scaling
    return SpecDigests(*(digest([part, engine, adopted], length=_HASH_LENGTH) for part in (spec, lasting)))


def _without_counts(scaling: Mapping[str, object]) -> dict[str, object]:
    """What the roles ask for, without how many there are of each."""
    return {
        role: {key: value for key, value in worker.items() if key != "replicas"}
        for role, worker in scaling.items()
        if isinstance(worker, dict)
    }


def propagated_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The deployment's own labels that go onto what is made for it: those with our prefix (004 §4.12)."""
    return {key: value for key, value in labels.items() if key.startswith(f"{names.GROUP}/")}


def complete(
    objects: Sequence[Resource],
    deployment: Resource,
    *,
    provider: str,
    transformer: str,
    wanted_for: str,
    settings: Mapping[str, object] | None = None,
    identity: Mapping[str, object],
    topology: Mapping[str, object],
    immutable: Sequence[Sequence[str]],
    pod_labels: Sequence[Iterable[str]] = (),
    interrupts: Mapping[str, Interruption] | None = None,
) -> list[Resource]:
    """The translated objects with namespace, owner reference, labels and annotations; the primary stays first.

    `wanted_for` is what the primary is written for (`written_for`), `settings` the record of what it was made with
    (None: none is written). A new one is needed when something of the
    deployment's `identity` or of its `topology` changes; `immutable` has the paths of each object that cannot be
    changed in place. The labels that we set win over propagated ones and over the translation's; those that
    say whose a pod is go into every pod template too, and to the places that `pod_labels` has for each object, where
    pods stand outside of a template. `interrupts` is what the translation says of outages in place.
    """
    metadata = deployment["metadata"]
    whose = names.whose(metadata["name"], provider=provider)
    ours = {**propagated_labels(labels_of(deployment)), **whose}
    result = []
    for position, (translated, paths) in enumerate(zip(objects, immutable, strict=True)):
        obj = _with_pod_labels(translated, whose, places=pod_labels[position] if pod_labels else ())
        meta = dict(obj["metadata"])
        meta["namespace"] = metadata["namespace"]
        meta["labels"] = {**(meta.get("labels") or {}), **ours}
        annotations = dict(meta.get("annotations") or {})
        record = {"object": {path: _at(obj, path.removesuffix(".*").split(".")) for path in paths}}
        if position == 0:
            annotations[names.TRANSFORMER] = transformer
            annotations[names.WRITTEN_FOR] = wanted_for
            if settings is not None:
                annotations[names.RUNTIME_SETTINGS] = canonical_json(settings).decode()
            record |= {"deployment": dict(identity), "topology": dict(topology)}
            if interrupts:
                annotations[INTERRUPTS_ON_CHANGE] = _outages(interrupts)
        digests = {
            group: {name: digest(value, length=_SHORT) for name, value in values.items()}
            for group, values in record.items()
            if values
        }
        if digests:
            annotations[REPLACE_ON_CHANGE] = canonical_json(digests).decode()
        # Hashed before the owner goes in: its uid says whose object this is, not what was asked for.
        hashed = {**obj, "metadata": {**meta, "annotations": annotations}}
        meta["annotations"] = {**annotations, names.SPEC_HASH: digest(hashed, length=_HASH_LENGTH)}
        if uid := uid_of(deployment):  # a preview's deployment has none
            meta["annotations"][names.DEPLOYMENT_UID] = uid
        meta["ownerReferences"] = [owner_reference(deployment)]
        result.append({**obj, "metadata": meta})
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
