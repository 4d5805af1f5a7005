"""Checks a plugin's data against the contract: manifest and registry at load, results at each call.

Each check is pure and yields the broken rule, and a sentence that names the place and the remedy. What each rule asks
for, and why, is the table in docs/providers/contract.md; the kit for authors has the rest of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from airunway.plugins.contract import (
    Compatibility,
    Component,
    Endpoint,
    EngineCapability,
    Finding,
    Observation,
    Pool,
    ProviderManifest,
    Reading,
    Replicas,
    SelectionRule,
    Transformer,
    Translation,
    UpstreamKind,
    api_version,
    kind_key,
)
from airunway.plugins.settings import settings_problem
from airunway.resource import dig
from airunway.status.conditions import PARTS, ConditionWriter, as_word, conditions_of

# The rules, by the id that users find in messages, in the order of the table. An id is never used again.
ENTRY_POINT = "AR-C-001"
NAME = "AR-C-002"
CONTRACT = "AR-C-003"
ENGINES = "AR-C-004"
SELECTION_RULES = "AR-C-005"
UPSTREAM = "AR-C-006"
KIND = "AR-C-007"
PLACES = "AR-C-008"
PRIMARY = "AR-C-009"
TRANSFORMERS = "AR-C-010"
SETTINGS = "AR-C-011"
SERVING_ROLES = "AR-C-012"
OVERRIDE_SCHEMA = "AR-C-013"
RESERVED_LABELS = "AR-C-014"
HOOKS = "AR-C-015"
TIME = "AR-C-016"
FINDINGS = "AR-C-017"
OBJECTS = "AR-C-018"
REPLACE_ON = "AR-C-019"
COMPONENTS = "AR-C-020"
STATUS_VALUES = "AR-C-021"
PRIMARY_FIRST = "AR-C-022"


class Broken(NamedTuple):
    """A broken rule, by its id, and a sentence that says what is wrong and what to do."""

    rule: str
    text: str


MAX_OBJECTS = 64
"""Limit of objects per deployment, because each is compared in every pass."""

MAX_OBJECT_BYTES = 512 * 1024
"""Size limit of one object as JSON; the API server accepts up to 1.5 MiB, including what it adds."""

PODS = "Pods"
"""The component that the runtime itself reports; reserved for it."""

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_ENGINE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_URL = re.compile(r"https?://[^\s/?#]\S*")
_MAX_URL = 1024
_NAMESAKE = re.compile(r"([a-z0-9][a-z0-9.-]{0,31})?\{name\}([a-z0-9.-]{0,31}[a-z0-9])?")
_COMPONENT = re.compile(r"[A-Z][A-Za-z0-9]{0,57}")
_CORE_CONDITIONS = frozenset(conditions_of(ConditionWriter.CORE, *PARTS))

_CLUSTER_SCOPED = frozenset(
    {
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("networking.k8s.io", "IngressClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "StorageClass"),
    }
)
"""Kubernetes' own cluster-scoped kinds; the scope of other kinds is read from their CRD at run time."""


# ------------------------------------------------------------------------------------------------------ at load


def manifest_problems(manifest: ProviderManifest) -> Iterator[Broken]:
    """Broken rules of the manifest."""
    if not isinstance(manifest.name, str) or not _NAME.fullmatch(manifest.name):
        yield Broken(NAME, f"manifest.name is {manifest.name!r}: a name is at most 40 small letters, digits and '-'")
    yield from _engine_problems(manifest.engines)
    yield from _kind_problems(manifest.upstream)
    if problem := settings_problem(manifest.settings):
        yield Broken(
            SETTINGS, f"manifest.settings: {problem}; settings are a frozen dataclass with a default for every field"
        )
    if manifest.serving_roles and not manifest.role_label:
        yield Broken(
            SERVING_ROLES,
            "manifest.serving_roles are given without a role_label: name the pod label that has them as values",
        )
    if wrong := _schema_problem(manifest.override_schema):
        yield Broken(OVERRIDE_SCHEMA, f"manifest.override_schema is no JSON schema{wrong}")
    for position, rule in enumerate(manifest.selection_rules):
        if not isinstance(rule, SelectionRule) or not isinstance(rule.condition, str) or type(rule.priority) is not int:
            yield Broken(
                SELECTION_RULES,
                f"manifest.selection_rules[{position}] is no SelectionRule with a condition (a text) and a priority (a "
                "whole number)",
            )
    if not isinstance(manifest.reserved_labels, tuple) or not all(
        isinstance(prefix, str) and prefix for prefix in manifest.reserved_labels
    ):
        yield Broken(
            RESERVED_LABELS, "manifest.reserved_labels is a tuple of prefixes of label keys, none of them empty"
        )


def _schema_problem(schema: object) -> str:
    """What is wrong with a JSON schema, to be put behind "is no JSON schema"; empty if nothing is."""
    from jsonschema import Draft202012Validator, SchemaError

    if not isinstance(schema, dict):
        return f": it is a {type(schema).__name__}"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f": {error.json_path.removeprefix('$.')}: {error.message[:200]}"
    return ""


def _engine_problems(engines: Sequence[EngineCapability]) -> Iterator[Broken]:
    if not engines:
        yield Broken(ENGINES, "manifest.engines is empty: name at least one engine that the provider runs")
    for position, engine in enumerate(engines):
        if not isinstance(engine, EngineCapability):
            yield Broken(ENGINES, f"manifest.engines[{position}] is a {type(engine).__name__}, not an EngineCapability")
        elif not _ENGINE.fullmatch(engine.name):
            yield Broken(
                ENGINES,
                f"manifest.engines[{position}].name is {engine.name!r}: small letters, digits, '-', '.' and '_' only",
            )
        elif not engine.tasks:
            yield Broken(ENGINES, f"engine {engine.name}: tasks is empty; an engine that generates text has generate")
        elif not set(engine.serving_modes) <= {"aggregated", "disaggregated"} or not engine.serving_modes:
            modes = ", ".join(engine.serving_modes) or "none"
            yield Broken(
                ENGINES, f"engine {engine.name}: serving_modes are {modes}; known are aggregated and disaggregated"
            )
        elif not (engine.gpu_support or engine.cpu_support):
            yield Broken(
                ENGINES, f"engine {engine.name}: neither gpu_support nor cpu_support: nothing could ever run on it"
            )
    for name, count in Counter(e.name for e in engines if isinstance(e, EngineCapability)).items():
        if count > 1:
            yield Broken(ENGINES, f"manifest.engines has {name!r} {count} times: one entry an engine")


def _kind_problems(kinds: Sequence[UpstreamKind]) -> Iterator[Broken]:
    wrong = [position for position, kind in enumerate(kinds) if not isinstance(kind, UpstreamKind)]
    if not kinds or wrong:
        yield Broken(
            UPSTREAM, "manifest.upstream names no UpstreamKind: a provider writes at least one kind, its primary"
        )
        return
    primary = [kind for kind in kinds if kind.primary]
    if len(primary) != 1:
        named = ", ".join(kind.key for kind in primary) or "none"
        yield Broken(UPSTREAM, f"manifest.upstream must mark exactly one kind as primary; marked: {named}")
    for key, count in Counter(kind.key for kind in kinds).items():
        if count > 1:
            yield Broken(
                UPSTREAM, f"manifest.upstream has {key} {count} times: one entry a kind, with all its versions"
            )
    for kind in kinds:
        if not (kind.kind and kind.plural and kind.versions):
            yield Broken(UPSTREAM, f"{kind.key or 'a kind'}: kind, plural and at least one version are needed")
        if (kind.group, kind.kind) in _CLUSTER_SCOPED:
            yield Broken(
                KIND, f"{kind.key} has no namespace: everything of a deployment lives in the deployment's namespace"
            )
        if not kind.write and not kind.select:
            yield Broken(
                KIND, f"{kind.key} is only read (write=False), but no label (select) says which objects of it to read"
            )
        for place in kind.labels:
            if place not in kind.pods:
                yield Broken(
                    PLACES,
                    f"{kind.key}: labels names {place}, which is no place of its pods: add it there, or take it out",
                )
        for key, slash, pattern in (entry.partition("/") for entry in kind.namesakes):
            if slash and not _NAMESAKE.fullmatch(pattern):
                yield Broken(PLACES, f"{kind.key}: the namesake {key}/{pattern} is no name that follows from {{name}}")
            elif slash and key not in {each.key for each in kinds}:
                yield Broken(
                    PLACES,
                    f"{kind.key}: the namesake {key}/{pattern} is of a kind that the manifest does not name: add it",
                )
        for place, reading in kind.readings.items():
            if reading not in tuple(Reading):
                yield Broken(PLACES, f"{kind.key}: {place} is read as {reading!r}; known are {', '.join(Reading)}")
        if kind.primary and not (kind.write and kind.required):
            yield Broken(PRIMARY, f"{kind.key} is primary: it must be written and required")
        if kind.primary and kind.immutable:
            yield Broken(
                PRIMARY, f"{kind.key} is primary: its immutable paths differ by version and stand in its transformers"
            )


def registry_problems(manifest: ProviderManifest, transformers: Sequence[object]) -> Iterator[Broken]:
    """Broken rules of the schema registry, given the manifest."""
    known = [t for t in transformers if isinstance(t, Transformer)]
    if len(known) != len(transformers):
        yield Broken(TRANSFORMERS, "transformers() gives something that is no Transformer")
        return
    primary = next((kind for kind in manifest.upstream if kind.primary), None)
    kinds = {kind.kind: kind for kind in manifest.upstream}
    settings = {setting.name for setting in dataclasses.fields(manifest.settings)}
    for transformer in known:
        kind = kinds.get(transformer.kind) if transformer.kind else primary
        if kind is None:
            yield Broken(
                TRANSFORMERS,
                f"transformer {transformer.name!r} is for {transformer.kind!r}, which the manifest does not name",
            )
        elif transformer.api_version not in _versions_of(kind):
            yield Broken(
                TRANSFORMERS,
                f"transformer {transformer.name!r} writes {transformer.api_version}; "
                f"the manifest names {kind.key} in {', '.join(_versions_of(kind))}",
            )
        for name in sorted(transformer.defaults.keys() - settings):
            yield Broken(
                TRANSFORMERS, f"transformer {transformer.name!r} has a default for {name!r}, which is no setting"
            )
    for name, count in Counter(t.name for t in known).items():
        if count > 1 or not name:
            yield Broken(
                TRANSFORMERS, f"transformer {name!r} stands in the registry {count} times: each has a name of its own"
            )
    if primary is not None and not any(t.kind in ("", primary.kind) for t in known):
        yield Broken(TRANSFORMERS, f"no transformer writes the primary kind {primary.key}")


def _versions_of(kind: UpstreamKind) -> list[str]:
    return [api_version(kind, version) for version in kind.versions]


# ------------------------------------------------------------------------------------------------------ per call


def compatibility_problems(found: Compatibility) -> Iterator[Broken]:
    for name in ("blockers", "warnings"):
        entries = getattr(found, name)
        if not isinstance(entries, (tuple, list)) or not all(map(_is_finding, entries)):
            yield Broken(FINDINGS, f"Compatibility.{name} must be a tuple of Finding(path, reason, message), all texts")


def translation_problems(
    found: Translation, manifest: ProviderManifest, transformers: Sequence[Transformer]
) -> Iterator[Broken]:
    objects = found.objects
    if not isinstance(objects, (tuple, list)) or not objects:
        yield Broken(OBJECTS, "it has no object: the primary one is always wanted")
        return
    if len(objects) > MAX_OBJECTS:
        yield Broken(OBJECTS, f"it has {len(objects)} objects; at most {MAX_OBJECTS} can be kept for one deployment")
        return
    written = {(version, kind.kind) for kind in manifest.upstream if kind.write for version in _versions_of(kind)}
    seen: Counter[tuple[str, str]] = Counter()
    for position, obj in enumerate(objects):
        metadata = dig(obj, "metadata")
        name = dig(metadata, "name")
        if not isinstance(metadata, dict) or not isinstance(name, str) or not _OBJECT_NAME.fullmatch(name):
            yield Broken(
                OBJECTS, f"object {position} has no metadata.name that Kubernetes takes (found {str(name)[:64]!r})"
            )
            continue
        identity = (str(obj.get("apiVersion")), str(obj.get("kind")))
        if identity not in written:
            yield Broken(
                OBJECTS,
                f"object {position} is a {identity[1]} of {identity[0]}, which the manifest does not name as written",
            )
        if "namespace" in metadata or "ownerReferences" in metadata:
            yield Broken(OBJECTS, f"object {position} sets its namespace or owner: the runtime does")
        group = identity[0].rpartition("/")[0]
        seen[kind_key(group, identity[1]), name] += 1
        try:
            size = len(orjson.dumps(obj))
        except (TypeError, orjson.JSONEncodeError) as error:
            where = _no_json(obj) or str(error)
            yield Broken(
                OBJECTS,
                f"object {position} is not JSON: {where}; airunway.sdk.as_json makes JSON of a field of a deployment",
            )
            continue
        if size > MAX_OBJECT_BYTES:
            yield Broken(
                OBJECTS,
                f"object {position} ({identity[1]} {name!r}) has {size} bytes; at most {MAX_OBJECT_BYTES} are taken",
            )
    yield from _first_object_problems(objects[0], manifest, transformers)
    for (kind, name), count in seen.items():
        if count > 1:
            yield Broken(OBJECTS, f"{kind} {name!r} is wanted {count} times")
    try:
        orjson.dumps(dict(found.replace_on))
    except (TypeError, ValueError, orjson.JSONEncodeError):
        yield Broken(REPLACE_ON, "replace_on must be a mapping from names to anything that JSON can say")
    if not isinstance(found.overrides_at, Mapping) or not all(
        isinstance(path, str) and path for entry in found.overrides_at.items() for path in entry
    ):
        yield Broken(
            REPLACE_ON, "overrides_at must be a mapping from paths of the overrides to paths of the primary object"
        )


def _first_object_problems(
    obj: object, manifest: ProviderManifest, transformers: Sequence[Transformer]
) -> Iterator[Broken]:
    """The first object is the primary one: with a Service in its place a deployment would start for ever."""
    group, name = str(dig(obj, "apiVersion", default="")).rpartition("/")[0], dig(obj, "kind")
    kind = next((kind for kind in manifest.upstream if (kind.group, kind.kind) == (group, name)), None)
    if kind is not None and not kind.primary and kind.kind not in {each.kind for each in transformers}:
        first = next((each.key for each in manifest.upstream if each.primary), "")
        yield Broken(PRIMARY_FIRST, f"object 0 is a {name}, and no transformer writes a {name}: put the {first} first")


def _no_json(obj: object) -> str:
    """The first place of an object that JSON cannot express, with its type; empty if there is none."""
    pending: list[tuple[str, object]] = [("", obj)]
    seen: set[int] = set()  # an object may contain itself
    while pending:
        path, node = pending.pop()
        if isinstance(node, dict | list | tuple):
            if id(node) in seen:
                continue
            seen.add(id(node))
        if isinstance(node, dict):
            key = next((key for key in node if not isinstance(key, str)), "")
            if not isinstance(key, str):
                return f"{path.lstrip('.') or 'it'} has the key {str(key)[:64]!r}, a {type(key).__name__}"
            pending.extend((f"{path}.{key}", value) for key, value in reversed(node.items()))
        elif isinstance(node, list | tuple):
            pending.extend((f"{path}[{i}]", value) for i, value in reversed(list(enumerate(node))))
        elif node is not None and not isinstance(node, str | int | float | bool):
            return f"{path.lstrip('.')} is a {type(node).__name__}"
    return ""


def observation_problems(found: Observation) -> Iterator[Broken]:
    if not isinstance(found.components, (tuple, list)) or not found.components:
        yield Broken(COMPONENTS, "it has no component: without one it is unknown whether the model serves")
        return
    for component in found.components:
        if not isinstance(component, Component):
            yield Broken(COMPONENTS, f"a component is a {type(component).__name__}, not a Component")
        elif not _COMPONENT.fullmatch(component.name):
            yield Broken(COMPONENTS, f"component {component.name!r} makes no name of a condition: one CamelCase word")
        elif component.name == PODS or f"{component.name}Ready" in _CORE_CONDITIONS:
            yield Broken(
                COMPONENTS, f"component {component.name!r}: {component.name}Ready is a condition with another writer"
            )
        elif component.ready not in (True, False, None) or isinstance(component.ready, int) is not isinstance(
            component.ready, bool
        ):
            yield Broken(
                COMPONENTS, f"component {component.name}: ready is {component.ready!r}; it is True, False or None"
            )
        elif not isinstance(component.reason, str) or not component.reason or not isinstance(component.message, str):
            yield Broken(
                COMPONENTS, f"component {component.name}: reason and message are texts, and the reason is not empty"
            )
        elif as_word(component.reason) != component.reason:
            yield Broken(
                COMPONENTS,
                f"component {component.name}: the reason {component.reason[:64]!r} is not one CamelCase word; a "
                "sentence belongs into the message",
            )
        elif not isinstance(component.role, str):
            yield Broken(
                COMPONENTS, f"component {component.name}: role is a {type(component.role).__name__}, not a text"
            )
    names_ = Counter(c.name for c in found.components if isinstance(c, Component))
    for name, count in names_.items():
        if count > 1:
            yield Broken(COMPONENTS, f"component {name!r} is reported {count} times")
    for field, type_ in (("replicas", Replicas), ("endpoint", Endpoint), ("pool", Pool)):
        value = getattr(found, field)
        if value is not None and not isinstance(value, type_):
            yield Broken(STATUS_VALUES, f"{field} is a {type(value).__name__}, not a {type_.__name__}")
    if isinstance(found.replicas, Replicas) and not all(
        isinstance(count, int) and count >= 0 for count in (found.replicas.desired, found.replicas.ready)
    ):
        yield Broken(STATUS_VALUES, "replicas are whole numbers, not below zero")
    if isinstance(found.endpoint, Endpoint):
        yield from _endpoint_problems(found.endpoint)
    if found.refused is not None and not _is_finding(found.refused):
        yield Broken(STATUS_VALUES, "refused is a Finding(path, reason, message), all texts, or None")
    if not isinstance(found.warnings, (tuple, list)) or not all(map(_is_finding, found.warnings)):
        yield Broken(FINDINGS, "warnings must be a tuple of Finding(path, reason, message), all texts")


def _endpoint_problems(found: Endpoint) -> Iterator[Broken]:
    if not isinstance(found.service, str) or not isinstance(found.port, int) or not (found.service or found.url):
        yield Broken(STATUS_VALUES, "endpoint has a Service's name and a port number, or the upstream's own url")
    if not isinstance(found.target_port, int) or not 0 <= found.target_port <= 65535:
        yield Broken(STATUS_VALUES, "endpoint.target_port is the port of the pods, or 0")
    is_url = isinstance(found.url, str) and len(found.url) <= _MAX_URL and _URL.fullmatch(found.url) is not None
    if not is_url and found.url != "":
        yield Broken(
            STATUS_VALUES,
            f"endpoint.url is {str(found.url)[:64]!r}: an http or https address of at most {_MAX_URL} characters",
        )


def _is_finding(entry: object) -> bool:
    return isinstance(entry, Finding) and all(
        isinstance(text, str) for text in (entry.path, entry.reason, entry.message)
    )
