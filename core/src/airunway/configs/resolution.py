"""Which runtime config a deployment follows, what it says, and its hash (docs/runtime-configs.md).

A deployment in the namespace ``ml-team`` without a ``runtimeConfigName`` follows the RuntimeConfig ``default`` of
``ml-team``, else the ClusterRuntimeConfig ``default``, else none. The API server refuses wrong types, and so do the
commands that read a config from a file. `problems_of` names what the CRD cannot refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from airunway.configs.canonical import (
    CAPACITY_BLOCKED_AFTER,
    DEPENDENCY_GRACE_PERIOD,
    canonical,
    canonical_duration,
    merge,
    parse_duration,
    stored,
)
from airunway.configs.path_template import PathTemplateError, parse_template, render_path
from airunway.configs.patterns import pattern_problem, selected
from airunway.resource import (
    Resource,
    canonical_json,
    condition_of,
    dig,
    digest,
    filled,
    is_integer,
    kept,
    list_at,
    mapping_at,
    text_at,
)

DEFAULT = "default"
"""Name of the config that counts for deployments that name none."""

CONFIG_READY = "RuntimeConfigReady"
"""Condition of a deployment: its runtime config was found and can be used. The core writes it."""

NOT_ALLOWED = "NotAllowed"
"""Reason of that condition: the policy does not allow what the config gives to pods."""

MAX_POD_SETTINGS = 32 * 1024
"""Bytes of the canonical JSON of environment, pull secrets and token: they are recorded in the status of each user."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a config that cannot be used."""

    field: str
    """Such as ``spec.labelPropagation.match[1]``."""
    message: str
    """What is wrong and what to write."""


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
    splits_pools: bool = False
    """A rule for several deployments of a group leads to their InferencePools."""


@dataclass(frozen=True, kw_only=True)
class StorageChoice:
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


@dataclass(frozen=True, kw_only=True)
class CABundle:
    """Certificates of authorities in a ConfigMap."""

    config_map: str
    """Its name."""
    key: str
    """The key that has them in PEM."""


def ca_bundle_at(part: object, *path: str) -> CABundle | None:
    """The ``caBundle`` of an object at that path; None if there is none that can be. Total for any JSON."""
    found = dig(part, *path, "caBundle")
    name = text_at(found, "configMap")
    return CABundle(config_map=name, key=text_at(found, "key") or "ca.crt") if name else None


class Scope(StrEnum):
    """Where the effective config comes from."""

    NAMESPACE = "Namespace"
    CLUSTER = "Cluster"
    MERGED = "Merged"
    """The namespace's config over the cluster's (``inherit: Cluster``)."""


@dataclass(frozen=True, kw_only=True)
class EffectiveConfig:
    """The config that a deployment follows, merged, with all defaults."""

    name: str
    """Of the RuntimeConfig or ClusterRuntimeConfig."""
    namespace: str
    """Of the RuntimeConfig; empty for a ClusterRuntimeConfig."""
    scope: Scope
    """Where it comes from."""
    hash: str
    """sha256 of the canonical JSON of `spec`: 64 hexadecimal digits."""
    spec: Resource = field(hash=False)
    """Canonical (docs/runtime-configs.md), unknown fields included. Not to be changed."""
    problems: tuple[Problem, ...] = ()
    """What in it cannot be used."""
    too_large: bool = False
    """Whether the pod settings have more than 32 KiB of JSON."""
    own: Resource = field(default_factory=dict, hash=False)
    """What the RuntimeConfig of the namespace itself says; empty for a ClusterRuntimeConfig. Not to be changed."""

    @cached_property
    def env(self) -> tuple[Resource, ...]:
        """Environment variables of serving pods and of our Jobs, as in a pod. Not to be changed."""
        return _env(self.spec)

    @cached_property
    def image_pull_secrets(self) -> tuple[str, ...]:
        """Names of Secrets in the deployment's namespace."""
        return _pull_secrets(self.spec)

    @cached_property
    def token(self) -> str:
        """Name of the Secret with the Hugging Face token under the key ``HF_TOKEN``; or empty."""
        return text_at(self.spec, "secrets", "huggingFaceToken")

    @cached_property
    def runtime_class(self) -> str:
        """RuntimeClass of pods with GPUs; or empty."""
        return text_at(self.spec, "runtimeClassName")

    @cached_property
    def ca_bundle(self) -> CABundle | None:
        """Authorities that our Jobs trust."""
        return ca_bundle_at(self.spec)

    @cached_property
    def routing(self) -> Routing:
        """What it says about routes."""
        found, ref = dig(self.spec, "routing"), dig(self.spec, "routing", "gatewayRef")
        enabled, template, timeout = (dig(found, key) for key in ("enabled", "pathTemplate", "requestTimeout"))
        annotations, name = dig(found, "annotations"), text_at(ref, "name")
        chosen = GatewayChoice(name=name, namespace=text_at(ref, "namespace"), section_name=text_at(ref, "sectionName"))
        return Routing(
            enabled=enabled if isinstance(enabled, bool) else None,
            gateway=chosen if name else None,
            path_template=template if isinstance(template, str) else None,
            request_timeout=canonical_duration(timeout) if parse_duration(timeout) is not None else "",
            annotations={key: value for key, value in annotations.items() if isinstance(value, str)}
            if isinstance(annotations, dict)
            else {},
            splits_pools=dig(found, "split") == "Pool",
        )

    @cached_property
    def storage(self) -> StorageChoice:
        """What it says about claims."""
        return StorageChoice(
            class_name=text_at(self.spec, "storage", "defaultStorageClassName"),
            headroom_percent=_whole_number(dig(self.spec, "storage", "pvcHeadroomPercent"), 10, least=0),
            access_mode=text_at(self.spec, "storage", "accessMode") or "ReadWriteMany",
        )

    @cached_property
    def status_policy(self) -> StatusPolicy:
        """When a state becomes a fault."""

        return status_policy_of(self.spec.get("statusPolicy"))

    @property
    def prometheus(self) -> Resource:
        """The Prometheus for autoscalers, as the config has it; empty if it names none that can be."""
        found = mapping_at(self.spec, "autoscaling", "prometheus")
        address = text_at(found, "serverAddress")
        if not address.startswith(("http://", "https://")):
            return {}
        return filled(serverAddress=address, authentication=kept(found.get("authentication"), "kind", "name"))

    @property
    def rollout(self) -> Rollout:
        """When deployments that serve take changed pod settings."""
        return Rollout.IMMEDIATELY if self.spec.get("rollout") == Rollout.IMMEDIATELY else Rollout.ON_NEXT_CHANGE

    @property
    def rolls_out_providers(self) -> bool:
        """Whether deployments that serve take the defaults and transformers of a newer provider, in waves."""
        return self.spec.get("rolloutProviders") == Rollout.IMMEDIATELY

    @property
    def max_concurrent_rollouts(self) -> int:
        """How many deployments are changed at a time with ``rollout: Immediately``; at least 1."""
        return _whole_number(self.spec.get("maxConcurrentRollouts"), 1, least=1)

    @cached_property
    def label_patterns(self) -> tuple[str, ...]:
        """Patterns of the labels to propagate; none if propagation is off. Malformed ones match nothing."""
        if dig(self.spec, "labelPropagation", "enabled") is not True:
            return ()
        return tuple(each for each in list_at(self.spec, "labelPropagation", "match") if isinstance(each, str))

    @property
    def title(self) -> str:
        """Kind and name for a message, such as ``RuntimeConfig ml/fast``."""
        of_cluster = f"ClusterRuntimeConfig {self.name}"
        if self.scope is Scope.CLUSTER:
            return of_cluster
        return self._of_namespace + (f" with {of_cluster}" if self.scope is Scope.MERGED else "")

    def origin_of(self, *path: str) -> str:
        """Kind and name of the object that a field below ``spec`` comes from."""
        lower = self.scope is Scope.CLUSTER or (self.scope is Scope.MERGED and dig(self.own, *path) is None)
        return f"ClusterRuntimeConfig {self.name}" if lower else self._of_namespace

    @property
    def _of_namespace(self) -> str:
        return f"RuntimeConfig {self.namespace}/{self.name}"

    def status(self) -> Resource:
        """Returns which config it is, as in ``status.effectiveRuntimeConfig``."""
        if self.scope is Scope.CLUSTER:
            reference = {"clusterRef": {"kind": "ClusterRuntimeConfig", "name": self.name}}
        else:
            reference = {"namespaceRef": {"kind": "RuntimeConfig", "namespace": self.namespace, "name": self.name}}
        return {**reference, "scope": self.scope.value, "hash": self.hash}

    def status_for_provider(self, deployment: Resource) -> Resource:
        """Returns ``status.effectiveRuntimeConfig``, with what the deployment's provider needs of the config live."""
        policy = kept(self.spec.get("statusPolicy"), "dependencyGracePeriod", "capacityBlockedAfter")
        return {
            **self.status(),
            **filled(
                labelPatterns=list(self.label_patterns),
                statusPolicy=policy,
                routing=self.routing.enabled,
                prometheus=self.prometheus if is_autoscaled(deployment) else {},
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What the look-up of a config found."""

    name: str
    """The name that was looked up."""
    config: EffectiveConfig | None
    """None if there is no config of that name."""
    missing: bool = False
    """Whether neither kind has the name, and the name is not ``default``."""


def status_policy_of(found: object) -> StatusPolicy:
    """Returns what a ``statusPolicy`` says, of a config or of the status of a deployment. Total for any JSON."""

    def time(name: str, default: str) -> timedelta:
        given = parse_duration(dig(found, name))
        return given if given is not None else parse_duration(default) or timedelta()

    return StatusPolicy(
        grace=time("dependencyGracePeriod", DEPENDENCY_GRACE_PERIOD),
        patience=time("capacityBlockedAfter", CAPACITY_BLOCKED_AFTER),
    )


def is_autoscaled(deployment: Resource) -> bool:
    """Returns whether the number of replicas follows the load. Total for any JSON."""
    return dig(deployment, "spec", "scaling", "autoscaling") is not None


def config_name(obj: Resource) -> str:
    """Returns the name of the config that a deployment (or artifact) follows. Total for any JSON."""
    return text_at(obj, "spec", "runtimeConfigName") or DEFAULT


def resolve(name: str, *, namespaced: Resource | None, cluster: Resource | None) -> Resolution:
    """Returns the config that counts, given the RuntimeConfig and the ClusterRuntimeConfig of that name, if any.

    Total: where a config has something that cannot be used, the result has a problem.
    """
    name = name or DEFAULT
    lower: Any = cluster if isinstance(cluster, dict) else None
    upper: Resource = {}
    if isinstance(namespaced, dict):
        upper = stored(namespaced)
        namespace = text_at(namespaced, "metadata", "namespace")
        if upper.get("inherit") == "Cluster" and lower is not None:
            spec, scope = merge(stored(lower), upper), Scope.MERGED
        else:
            spec, scope = merge({}, upper), Scope.NAMESPACE
    elif lower is not None:
        spec, scope, namespace = merge({}, stored(lower)), Scope.CLUSTER, ""
    else:
        return Resolution(name=name, config=None, missing=name != DEFAULT)
    return Resolution(name=name, config=_effective(spec, name=name, namespace=namespace, scope=scope, own=upper))


def _effective(
    spec: Resource, *, name: str, namespace: str, scope: Scope, own: Resource | None = None
) -> EffectiveConfig:
    effective = canonical(spec)
    return EffectiveConfig(
        name=name,
        namespace=namespace,
        scope=scope,
        hash=digest(effective),
        spec=effective,
        problems=tuple(problems_of(effective)),
        too_large=_pod_settings_size(effective) > MAX_POD_SETTINGS,
        own=own or {},
    )


def is_published(user: Resource, config: EffectiveConfig) -> bool:
    """Whether the status of a deployment (or artifact) says that it follows this config, with this content."""
    published = dig(user, "status", "effectiveRuntimeConfig")
    return kept(published, "namespaceRef", "clusterRef", "scope", "hash") == config.status()


def awaits_verdict(deployment: Resource, config: EffectiveConfig | None) -> bool:
    """Whether the core has not yet judged a RuntimeConfig: until then, its parts do nothing with it. A core without the
    condition judges none.
    """
    if config is None or config.scope is Scope.CLUSTER or condition_of(deployment, CONFIG_READY) is None:
        return False
    return not is_published(deployment, config)


def is_refused(deployment: Resource) -> bool:
    """Whether the policy does not allow the config that the core has published on a deployment."""
    return (condition_of(deployment, CONFIG_READY) or {}).get("reason") == NOT_ALLOWED


def check(config: Resource) -> tuple[Problem, ...]:
    """Returns what cannot be used in one stored config, looked at by itself: its condition ``ConfigValid``."""
    return tuple(problems_of(stored(config)))


def propagated(
    labels: Mapping[str, str], config: EffectiveConfig | None, *, reserved: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the labels of a deployment that its objects and pods get, below those that our code sets on them.

    `reserved` are the keys that a provider keeps for itself (see `is_reserved`).
    """
    return selected(labels, (config or BUILT_IN).label_patterns, reserved=reserved)


# -------------------------------------------------------------------------------------------------------- route


class RoutingRequest(StrEnum):
    """What is to be made for a deployment."""

    OFF = "Off"
    """Nothing."""
    WHERE_POSSIBLE = "WherePossible"
    """The model-name rule, where both APIs are served and one Gateway is usable; no condition."""
    REQUIRED = "Required"
    """Path rule and model-name rule; a missing piece is a condition."""


def routing_request(deployment: Resource, config: EffectiveConfig | None) -> RoutingRequest:
    """Returns what deployment and config together ask for. Total for any JSON.

    A ``false`` of the config counts where the deployment does not say ``enabled``, also if it has a path template.
    """
    return routing_request_with(deployment, (config or BUILT_IN).routing.enabled)


def routing_request_with(deployment: Resource, default: bool | None) -> RoutingRequest:
    """Returns the same with `default`, what the config says of routes (None: nothing)."""
    enabled = dig(deployment, "spec", "gateway", "enabled")
    if enabled is False or (default is False and enabled is not True):
        return RoutingRequest.OFF
    template = dig(deployment, "spec", "gateway", "pathTemplate")
    if enabled is True or default is True or template not in (None, ""):
        return RoutingRequest.REQUIRED
    return RoutingRequest.WHERE_POSSIBLE


class PathTemplate(NamedTuple):
    """The template of a deployment's path, and where it comes from."""

    text: object
    """Text, unless the deployment has something else there, which the API server refuses."""
    of_deployment: bool = False
    of_config: bool = False

    @property
    def is_default(self) -> bool:
        """Whether neither the deployment nor its config has a template."""
        return not (self.of_deployment or self.of_config)


def path_template_of(deployment: Resource, config: EffectiveConfig | None) -> PathTemplate:
    """Returns the deployment's own template, else the config's, else that of ``/<namespace>/<uid>``."""
    own = dig(deployment, "spec", "gateway", "pathTemplate")
    if own not in (None, ""):
        return PathTemplate(own, of_deployment=True)
    if config is not None and config.routing.path_template:
        return PathTemplate(config.routing.path_template, of_config=True)
    return PathTemplate("/{.metadata.namespace}/{.metadata.uid}")


def path_of(deployment: Resource, config: EffectiveConfig | None) -> str:
    """Returns the deployment's path, by the template of `path_template_of`.

    Raises PathTemplateError, and nothing else, if there is no such path.
    """
    template = path_template_of(deployment, config)
    if not isinstance(template.text, str):
        raise PathTemplateError("spec.gateway.pathTemplate must be text")
    # The second segment of the default path is the uid, which no server answers: a namespace may be called ``chat``.
    return render_path(template.text, deployment, reserved=template.is_default)


# ------------------------------------------------------------------------------------------------ readers of a spec


def _whole_number(value: object, default: int, *, least: int) -> int:
    return value if is_integer(value) and value >= least else default


def _is_variable(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and entry["name"] != ""
        and isinstance(entry.get("value"), str | None)
        and isinstance(entry.get("valueFrom"), dict | None)
    )


def _env(spec: Resource) -> tuple[Resource, ...]:
    return tuple(entry for entry in list_at(spec, "env") if _is_variable(entry))


def _pull_secrets(spec: Resource) -> tuple[str, ...]:
    found = (text_at(entry, "name") for entry in list_at(spec, "imagePullSecrets"))
    return tuple(dict.fromkeys(name for name in found if name))


# ------------------------------------------------------------------------------------------------------------- problems


def _pod_settings_size(spec: Resource) -> int:
    """Returns the bytes of the pod settings as canonical JSON."""
    settings = {
        "env": _env(spec),
        "imagePullSecrets": _pull_secrets(spec),
        "token": text_at(spec, "secrets", "huggingFaceToken"),
    }
    return len(canonical_json(settings))


def problems_of(spec: Resource) -> Iterator[Problem]:
    """Yields what cannot be used in a spec, stored or effective, although its CRD allows it."""
    for index, pattern in enumerate(list_at(spec, "labelPropagation", "match")):
        wrong = pattern_problem(pattern)
        if wrong is not None:
            at = f"spec.labelPropagation.match[{index}]"
            yield Problem(field=at, message=f"{wrong}; the pattern is passed over")
    template = text_at(spec, "routing", "pathTemplate")
    if template:
        try:
            parse_template(template)
        except PathTemplateError as error:
            yield Problem(field="spec.routing.pathTemplate", message=str(error))
    size = _pod_settings_size(spec)
    if size > MAX_POD_SETTINGS:
        yield Problem(
            field="spec.env",
            message=f"the settings of pods (env, imagePullSecrets, token) have {size} bytes of JSON, more than "
            f"{MAX_POD_SETTINGS}: put large values into a ConfigMap and name it with valueFrom",
        )


BUILT_IN = _effective({}, name="", namespace="", scope=Scope.CLUSTER)
"""What counts where there is no config: the defaults. It is no config, so nothing follows or reports it."""
