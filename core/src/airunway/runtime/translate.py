"""Translates a deployment by a provider's plugin and completes the objects so that they can be applied.

Completing adds the namespace, the owner, labels, and annotations: the transformer that wrote the object, what it was
written for, and digests of everything whose change needs a new object. Overrides are
checked and merged here (docs/providers/contract.md): admission checks the same list of forbidden keys, and a
deployment can reach the provider without any webhook.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema
import orjson

from airunway.api import names
from airunway.api.base import ParseError
from airunway.api.bounds import MAX_CAUSES, noted_excess
from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.api.rules import FORBIDDEN_OVERRIDES
from airunway.configs.patterns import is_reserved, selected
from airunway.json_path import JsonPath, entries, values_at
from airunway.owned import objects as owned_objects
from airunway.owned.objects import identity_in, our_labels
from airunway.plugins.contract import Context, Finding, Interruption
from airunway.plugins.host import ProviderHost
from airunway.quantity import parse_quantity
from airunway.resource import Resource, canonical_json, copy_of, dig, labels_of, list_at, text_at
from airunway.revisions.same_spec import CLAIM_FIELDS
from airunway.runtime.autoscaling import clamp, follows_itself, unmeasured
from airunway.runtime.records import (
    identity_of,
    interruption_record,
    replacement_record,
    written_for,
)
from airunway.runtime.state import provider_mark
from airunway.runtime.weights import dropped, image_findings, with_image
from airunway.schema import unknown_fields
from airunway.sdk.fields import ignored_fields, ignored_pod_settings, tracked
from airunway.sdk.pods import RESERVED, pod_templates
from airunway.status.conditions import parts_of
from airunway.typed_pods import typed_pods

_VOLUME = "spec.model.storage.volumes[]"


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
    typed = parse_deployment(deployment)
    clamp(typed, deployment)
    return typed


def translate(
    host: ProviderHost,
    deployment: Resource,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    wanted_for: str | None = None,
) -> TranslationResult:
    """The blockers of the deployment, or its desired objects. Raises PluginFault.

    `deployment` and `typed` are the same object, plain (with namespace and uid) and parsed; `wanted_for` is the result
    of `written_for`, if known already. The hash of the revision in its status is noted on the primary object. Objects
    get the labels that match the patterns in its status, and pods those of the context. The plugin never sees overrides
    that its schema refuses. A field that the user set and the provider never read is reported here.
    """
    unclaimed = [] if names.MODEL_CACHE_PART in parts_of(deployment) else unclaimed_volumes(typed)
    overrides = check_overrides(typed.spec.provider.overrides or {}, host.manifest.override_schema)
    if overrides.errors:  # the plugin never sees them
        return TranslationResult(blockers=(*unclaimed, *overrides.errors), warnings=overrides.unknown)
    context = with_image(typed, context)
    about_image = list(image_findings(typed, context, host))
    view, reads = tracked(typed)
    compatibility = host.can_handle(view, context)
    host.metadata_reads |= reads.metadata
    blockers = (
        *unclaimed,
        *(found for refuses, found in about_image if refuses),
        *compatibility.blockers,
        *unmeasured(host, typed, context.engine),
    )
    warnings = (
        *overrides.unknown,
        *(found for refuses, found in about_image if not refuses),
        *compatibility.warnings,
    )
    if blockers or typed.spec.suspend:
        return TranslationResult(blockers=blockers, warnings=warnings)
    translation = host.translate_spec(view, context)
    host.metadata_reads |= reads.metadata
    objects = list(translation.objects)
    if overrides.merge:
        for part in placed(overrides.merge, translation.overrides_at):
            objects[0] = merged(objects[0], part)
    objects, reserved = with_workload_metadata(host, typed, objects)
    warnings = (*warnings, *reserved)
    objects = [typed_pods(obj) for obj in objects]
    warned = {finding.path for finding in warnings}
    provided = ["spec.model.cache", "spec.model.uri"] if context.cache is not None else []
    if not follows_itself(host, context.engine):  # it reaches the provider as scaling.replicas
        provided.append("spec.scaling.autoscaling")
    if f"{_VOLUME}.claimName" in reads.paths:  # these reach the provider as the claim
        provided += [f"{_VOLUME}.{field}" for field in CLAIM_FIELDS]
    ignored = [
        *(finding for finding in ignored_fields(typed, reads, provided=tuple(provided)) if finding.path not in warned),
        *ignored_pod_settings(typed, context, translation.objects, named=warnings),
    ]
    whose = our_labels(deployment, provider_mark(host.name))
    kinds = [host.kinds[identity_in(obj)[:2]] for obj in objects]
    # The primary object is written by a transformer of its own kind, or by the primary kind's.
    own = context.served.get(kinds[0].key)
    writer = context.upstream.transformer if kinds[0].primary or own is None else own.transformer
    desired = complete(
        objects,
        deployment,
        labels=whose,
        transformer=writer.name,
        wanted_for=wanted_for or written_for(deployment, typed),
        revision=text_at(deployment, "status", "revision", "hash"),
        propagated=propagated_labels(host, deployment),
        identity=identity_of(typed, context.engine),
        topology=translation.replace_on,
        interrupts=translation.interrupts,
        immutable=[writer.immutable, *(kind.immutable for kind in kinds[1:])],
        pod_labels=[kind.labels.values() for kind in kinds],
    )
    if lost := tuple(dropped(context.live, desired[0], context)):
        return TranslationResult(blockers=lost, warnings=warnings)
    return TranslationResult(blockers=(), warnings=(*warnings, *ignored), objects=tuple(desired))


def propagated_labels(host: ProviderHost, deployment: Resource) -> dict[str, str]:
    """The deployment's labels that its objects get, by the patterns in its status."""
    return selected(
        labels_of(deployment),
        list_at(deployment, "status", "effectiveRuntimeConfig", "labelPatterns"),
        reserved=host.manifest.reserved_labels,
    )


def with_workload_metadata(
    host: ProviderHost, typed: ModelDeployment, objects: Sequence[Resource]
) -> tuple[list[Resource], list[Finding]]:
    """The objects with the labels and annotations of ``spec.workload.metadata``, and warnings for reserved keys.

    The primary object gets them, and every other workload of serving pods (prefill workers). What a translation writes
    itself has precedence.
    """
    wanted, findings = typed.spec.workload.metadata, []
    given: dict[str, dict[str, str]] = {}
    for name, entries_ in (("labels", wanted.labels), ("annotations", wanted.annotations)):
        for key, value in entries_.items():
            if is_reserved(key, (*RESERVED, *host.manifest.reserved_labels)):
                path = f"spec.workload.metadata.{name}[{key:.100}]"
                text = f"{key:.100} is reserved for the operators and is not put on the workload: remove it"
                findings.append(Finding(path=path, reason="FieldIgnored", message=text))
            else:
                given.setdefault(name, {})[key] = value
    if not given:
        return list(objects), findings
    result = []
    for position, obj in enumerate(objects):
        serves = dig(obj, "metadata", "labels", names.COMPONENT) in host.manifest.serving_roles
        if position == 0 or (serves and next(pod_templates(obj), None) is not None):
            metadata = obj["metadata"]
            added = {name: {**values, **(metadata.get(name) or {})} for name, values in given.items()}
            obj = {**obj, "metadata": {**metadata, **added}}
        result.append(obj)
    return result, findings


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


def complete(
    objects: Sequence[Resource],
    deployment: Resource,
    *,
    labels: Mapping[str, str],
    transformer: str,
    wanted_for: str,
    revision: str = "",
    propagated: Mapping[str, str] | None = None,
    identity: Mapping[str, object],
    topology: Mapping[str, object],
    immutable: Sequence[Sequence[str]],
    pod_labels: Sequence[Iterable[str]] = (),
    interrupts: Mapping[str, Interruption] | None = None,
) -> list[Resource]:
    """The translated objects with namespace, owner reference, labels and annotations; the primary stays first.

    - `wanted_for` are the digests of what the primary is written for (`written_for`); `revision` is the hash of what
      the deployment runs with (empty: it has no revision).
    - `labels` are ours (`our_labels`), and `propagated` are the deployment's that its objects get.
    - A new object is needed when a value of `identity` or `topology` changes. `immutable` has the paths of each object
      that cannot be changed in place.
    - Our labels have precedence over the translation's, and those over propagated ones. The labels that identify a
      pod's deployment are also set in every pod template, and at the paths in `pod_labels` where pods are outside of a
      template.
    - `interrupts` are the translation's interruptions by changes in place.
    """
    result = []
    for position, (translated, paths) in enumerate(zip(objects, immutable, strict=True)):
        obj = _with_pod_labels(translated, labels, places=pod_labels[position] if pod_labels else ())
        annotations = dict(obj["metadata"].get("annotations") or {})
        record = {"object": {path: dig(obj, *path.removesuffix(".*").split(".")) for path in paths}}
        if position == 0:
            annotations[names.TRANSFORMER] = transformer
            annotations[names.WRITTEN_FOR] = wanted_for
            if revision:
                annotations[names.REVISION] = revision
            record |= {"deployment": dict(identity), "topology": dict(topology)}
            if interrupts:
                annotations[names.INTERRUPTS_ON_CHANGE] = interruption_record(interrupts)
        if recorded := replacement_record(record):
            annotations[names.REPLACE_ON_CHANGE] = recorded
        obj = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
        result.append(owned_objects.complete(obj, owner=deployment, labels=labels, propagated=propagated))
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


def unclaimed_volumes(typed: ModelDeployment) -> list[Finding]:
    """Volumes with a size where that part is off: pods would wait for their claims forever."""
    return [
        Finding(
            path=f"spec.model.storage.volumes[{position}].size",
            reason="IncompatibleConfiguration",
            message=f"volume {volume.name}: claims are created from size by the model cache part, which is off: start "
            "the controller with --model-cache=on (chart airunway: modelCache.enabled: true), or create a "
            "PersistentVolumeClaim, name it in claimName and take size out",
        )
        for position, volume in enumerate(typed.spec.model.storage.volumes)
        if volume.size is not None
    ]


# ------------------------------------------------------------------------------------------------------------ overrides


ROOT = "spec.provider.overrides"


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """The result of checking a deployment's overrides."""

    errors: tuple[Finding, ...]
    """Findings that stop the deployment."""
    unknown: tuple[Finding, ...]
    """Unknown keys: they become warnings and are not merged."""
    merge: Resource
    """The part of the overrides that is merged into the primary object."""


def check_overrides(overrides: Resource, schema: Resource) -> Overrides:
    """Check overrides against the provider's JSON schema.

    Properties marked ``x-airunway-typed: true``, also in maps, are read by the translation and are not merged. A
    property with ``x-airunway-ceiling`` is a quantity between 0 and the ceiling. If the schema has no properties, every
    key is unknown.
    """
    if not overrides:
        return Overrides(errors=(), unknown=(), merge={})
    schema = {"type": "object", "properties": {}, **schema}
    errors = [
        Finding(
            path=str(place),
            reason="InvalidOverride",
            message=f'overriding "{key}" is not allowed for security reasons: remove it',
        )
        for place, key in islice(_forbidden(overrides), MAX_CAUSES)
    ]
    wrong = (
        problem
        for problem in _validator(canonical_json(schema)).iter_errors(overrides)
        if problem.validator != "additionalProperties"  # reported below as unknown, with the nearest key
    )
    for problem in islice(wrong, MAX_CAUSES):
        place = JsonPath(None, ROOT)
        for step in problem.absolute_path:
            place = JsonPath(place, step)
        path = str(place)
        types = problem.validator_value
        wrong_type = f"must be of type {' or '.join(types) if isinstance(types, list) else types}"
        # Without the value: it may be anything.
        text = wrong_type if problem.validator == "type" else problem.message[:200]
        errors.append(Finding(path=path, reason="InvalidOverride", message=text))
    merge = deepcopy(overrides)
    passed_over = list(unknown_fields(merge, schema, path=ROOT, metadata=False, lenient=True))
    unknown = []
    for field in passed_over[:MAX_CAUSES]:
        path = str(field.path)
        near = get_close_matches(field.key[:100], field.known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(field.known)) or 'none'}"
        text = f"unknown override {path.removeprefix(f'{ROOT}.')!r} is passed over{hint}"
        unknown.append(Finding(path=path, reason="UnknownOverride", message=text))
    for field in passed_over:
        del field.holder[field.key]
    merge = _without_typed({key: value for key, value in merge.items() if key in schema["properties"]}, schema)
    return Overrides(errors=tuple(errors), unknown=tuple(unknown), merge=merge)


def _without_typed(overrides: Resource, schema: Resource) -> Resource:
    """The overrides without the keys that the translation reads itself, and without maps that have no other key."""
    left = {}
    for key, value in overrides.items():
        described = dig(schema, "properties", key, default={})
        if dig(described, "x-airunway-typed"):
            continue
        kept = _without_typed(value, described) if isinstance(value, dict) else value
        if kept or not value:
            left[key] = kept
    return left


def _within_ceiling(_: object, ceiling: str, value: object, __: object) -> Iterator[jsonschema.ValidationError]:
    """The keyword ``x-airunway-ceiling``: a quantity between 0 and the ceiling."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return  # the keyword ``type`` reports other types
    try:
        amount = parse_quantity(str(value))
    except ValueError as error:
        yield jsonschema.ValidationError(str(error))
        return
    if not 0 <= amount <= parse_quantity(ceiling):
        yield jsonschema.ValidationError(f"must be between 0 and {ceiling}")


def _matching(_: object, pattern: str, value: object, __: object) -> Iterator[jsonschema.ValidationError]:
    """The keyword ``pattern``: in JSON Schema ``$`` matches only at the end, in Python also before a last newline."""
    if isinstance(value, str) and not re.search(_END.sub(r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"does not match {pattern!r}")


_END = re.compile(r"(?<!\\)\$\Z")
_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"x-airunway-ceiling": _within_ceiling, "pattern": _matching}
)


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Any:
    return _Validator(orjson.loads(schema))


def _forbidden(overrides: Resource) -> Iterator[tuple[JsonPath, str]]:
    for place, key, _ in entries(overrides, ROOT, below=lambda key: key not in FORBIDDEN_OVERRIDES):
        if key in FORBIDDEN_OVERRIDES:
            yield place, key


def merged(base: Resource, overlay: Resource) -> Resource:
    """`base` with `overlay` merged in: maps merge key by key, null removes, everything else (lists too) replaces."""
    result: dict[str, Any] = dict(base)
    for key, value in overlay.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def placed(overlay: Resource, places: Mapping[str, str]) -> Iterator[Resource]:
    """Split `overlay` into parts that are merged one after the other.

    The value at each path of `places` is moved to the path given for it (longer paths first); the rest comes last,
    unmoved.
    """
    rest = copy_of(overlay)
    for path in sorted(places, key=len, reverse=True):
        *above, key = path.split(".")
        holder = dig(rest, *above) if above else rest
        if isinstance(holder, dict) and key in holder:
            part = holder.pop(key)
            for step in reversed(places[path].split(".")):
                part = {step: part}
            yield part
    yield rest
