"""What the effective spec of a runtime config says, as plain values; and what in a config cannot be used.

The API server refuses wrong types. Where a config has one all the same, a view has the default, and `problems_of`
names the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from airunway.configs.canonical import (
    CAPACITY_BLOCKED_AFTER,
    DEPENDENCY_GRACE_PERIOD,
    DURATIONS,
    canonical_duration,
    parse_duration,
)
from airunway.configs.path_template import PathTemplateError, parse_template
from airunway.configs.patterns import pattern_error
from airunway.resource import Resource, canonical_json, dig

__all__ = [
    "CONFIG_READY",
    "GRANTED",
    "MAX_POD_SETTINGS",
    "GatewayChoice",
    "Problem",
    "Rollout",
    "Routing",
    "StatusPolicy",
    "Storage",
    "env_of",
    "label_patterns_of",
    "max_concurrent_rollouts_of",
    "pod_settings_size",
    "problems_of",
    "pull_secrets_of",
    "rollout_of",
    "routing_of",
    "status_policy_of",
    "storage_of",
    "text_at",
    "token_of",
]

CONFIG_READY = "RuntimeConfigReady"
"""Condition of a deployment: its runtime config was found and can be used. The core writes it."""

GRANTED = "Granted"
"""``status.effectiveRuntimeConfig.rollout`` of a deployment whose provider may take new pod settings at once."""

MAX_POD_SETTINGS = 32 * 1024
"""Bytes of the canonical JSON of environment, pull secrets and token: they are recorded in an annotation."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a config that cannot be used."""

    field: str
    """Such as ``spec.labelPropagation.match[1]``."""
    message: str
    """What is wrong and what to write."""
    position: int | None = None
    """Index of the character, from 0, where there is one."""


class Rollout(StrEnum):
    """When deployments that serve take changed pod settings."""

    ON_NEXT_CHANGE = "OnNextChange"
    IMMEDIATELY = "Immediately"


@dataclass(frozen=True, kw_only=True)
class GatewayChoice:
    """The Gateway that a config names."""

    name: str
    namespace: str = ""
    """Empty: that of the deployment."""
    section_name: str = ""
    """Name of a listener; empty: all listeners."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """What a config says about routes."""

    enabled: bool | None = None
    """None: the config does not say it."""
    gateway: GatewayChoice | None = None
    """None: the config names none."""
    path_template: str | None = None
    """None or empty: the default path."""
    request_timeout: str = ""
    """A duration in canonical form; empty: the gateway's."""
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Of the route."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """What a config says about claims."""

    class_name: str = ""
    """Empty: the StorageClass of the cluster."""
    headroom_percent: int = 10
    """Space added to a measured size."""
    access_mode: str = "ReadWriteMany"
    """Of claims that name none."""


@dataclass(frozen=True, kw_only=True)
class StatusPolicy:
    """When a state becomes a fault."""

    grace: timedelta
    """How long a dependency may be unreachable."""
    patience: timedelta
    """How long a deployment may wait for capacity, and a rollout may take."""


# ---------------------------------------------------------------------------------------------------------------- views


def text_at(spec: object, *path: str) -> str:
    """Returns the text at a path; the empty text if there is none."""
    value = dig(spec, *path)
    return value if isinstance(value, str) else ""


def _whole_number(value: object, default: int, *, least: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else default


def _elements(spec: Resource, *path: str) -> list[Any]:
    value = dig(spec, *path)
    return value if isinstance(value, list) else []


def env_of(spec: Resource) -> tuple[Resource, ...]:
    return tuple(entry for entry in _elements(spec, "env") if _is_variable(entry))


def _is_variable(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and entry["name"] != ""
        and isinstance(entry.get("value"), str | None)
        and isinstance(entry.get("valueFrom"), dict | None)
    )


def pull_secrets_of(spec: Resource) -> tuple[str, ...]:
    found = (text_at(entry, "name") for entry in _elements(spec, "imagePullSecrets"))
    return tuple(dict.fromkeys(name for name in found if name))


def token_of(spec: Resource) -> str:
    return text_at(spec, "secrets", "huggingFaceToken")


def routing_of(spec: Resource) -> Routing:
    enabled, template = dig(spec, "routing", "enabled"), dig(spec, "routing", "pathTemplate")
    timeout, annotations = dig(spec, "routing", "requestTimeout"), dig(spec, "routing", "annotations")
    name = text_at(spec, "routing", "gatewayRef", "name")
    chosen = GatewayChoice(
        name=name,
        namespace=text_at(spec, "routing", "gatewayRef", "namespace"),
        section_name=text_at(spec, "routing", "gatewayRef", "sectionName"),
    )
    return Routing(
        enabled=enabled if isinstance(enabled, bool) else None,
        gateway=chosen if name else None,
        path_template=template if isinstance(template, str) else None,
        request_timeout=canonical_duration(timeout) if parse_duration(timeout) is not None else "",
        annotations={key: value for key, value in annotations.items() if isinstance(value, str)}
        if isinstance(annotations, dict)
        else {},
    )


def storage_of(spec: Resource) -> Storage:
    return Storage(
        class_name=text_at(spec, "storage", "defaultStorageClassName"),
        headroom_percent=_whole_number(dig(spec, "storage", "pvcHeadroomPercent"), 10, least=0),
        access_mode=text_at(spec, "storage", "accessMode") or "ReadWriteMany",
    )


def status_policy_of(spec: Resource) -> StatusPolicy:
    def time(name: str, default: str) -> timedelta:
        found = parse_duration(dig(spec, "statusPolicy", name))
        return found if found is not None else parse_duration(default) or timedelta()

    return StatusPolicy(
        grace=time("dependencyGracePeriod", DEPENDENCY_GRACE_PERIOD),
        patience=time("capacityBlockedAfter", CAPACITY_BLOCKED_AFTER),
    )


def rollout_of(spec: Resource) -> Rollout:
    return Rollout.IMMEDIATELY if spec.get("rollout") == Rollout.IMMEDIATELY else Rollout.ON_NEXT_CHANGE


def max_concurrent_rollouts_of(spec: Resource) -> int:
    return _whole_number(spec.get("maxConcurrentRollouts"), 1, least=1)


def label_patterns_of(spec: Resource) -> tuple[str, ...]:
    """Returns the patterns, none if propagation is off. Malformed ones match nothing."""
    if dig(spec, "labelPropagation", "enabled") is not True:
        return ()
    return tuple(each for each in _elements(spec, "labelPropagation", "match") if isinstance(each, str))


# ------------------------------------------------------------------------------------------------------------- problems


def pod_settings_size(spec: Resource) -> int:
    """Returns the bytes of the pod settings as canonical JSON."""
    settings = {"env": env_of(spec), "imagePullSecrets": pull_secrets_of(spec), "token": token_of(spec)}
    return len(canonical_json(settings))


_OBJECTS: tuple[tuple[str, ...], ...] = (
    ("storage",),
    ("routing",),
    ("routing", "gatewayRef"),
    ("routing", "annotations"),
    ("secrets",),
    ("labelPropagation",),
    ("statusPolicy",),
)
_LISTS: tuple[tuple[str, ...], ...] = (("env",), ("imagePullSecrets",), ("labelPropagation", "match"))


def problems_of(spec: Resource) -> Iterator[Problem]:
    """Yields what cannot be used in a spec, stored or effective."""
    for path in _OBJECTS:
        if not isinstance(dig(spec, *path), dict | None):
            yield Problem(field=_name(path), message="must be an object: it is ignored")
    for path in _LISTS:
        if not isinstance(dig(spec, *path), list | None):
            yield Problem(field=_name(path), message="must be a list: it is ignored")
    for index, entry in enumerate(_elements(spec, "env")):
        if not _is_variable(entry):
            yield Problem(field=f"spec.env[{index}]", message="must be an object with a name: it is ignored")
    for path in DURATIONS:
        value = dig(spec, *path)
        if value not in (None, "") and parse_duration(value) is None:
            message = f"{'.'.join(path)} must be a duration such as 10s, 5m or 1h"
            yield Problem(field=_name(path), message=message)
    for index, pattern in enumerate(_elements(spec, "labelPropagation", "match")):
        error = pattern_error(pattern)
        if error is not None:
            yield Problem(
                field=f"spec.labelPropagation.match[{index}]",
                message=f"{error}; the pattern is passed over",
                position=error.position,
            )
    yield from _template_problems(dig(spec, "routing", "pathTemplate"))
    size = pod_settings_size(spec)
    if size > MAX_POD_SETTINGS:
        yield Problem(
            field="spec.env",
            message=f"the settings of pods (env, imagePullSecrets, token) have {size} bytes of JSON, more than "
            f"{MAX_POD_SETTINGS}: put large values into a ConfigMap and name it with valueFrom",
        )


def _template_problems(template: object) -> Iterator[Problem]:
    if template in (None, ""):
        return
    at = "spec.routing.pathTemplate"
    if not isinstance(template, str):
        yield Problem(field=at, message="must be text, such as /{.metadata.namespace}/{.metadata.name}")
        return
    try:
        parse_template(template)
    except PathTemplateError as error:
        yield Problem(field=at, message=str(error), position=error.position)


def _name(path: tuple[str, ...]) -> str:
    return "spec." + ".".join(path)
