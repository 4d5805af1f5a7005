"""Which runtime config a deployment follows, what it says, and its hash (spec/platform.md, "Resolution" and "Merge").

A deployment in the namespace ``ml-team`` without a ``runtimeConfigName`` follows the RuntimeConfig ``default`` of
``ml-team``, else the ClusterRuntimeConfig ``default``, else none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from airunway.configs import settings
from airunway.configs.canonical import canonical, merge, stored
from airunway.configs.patterns import selected
from airunway.configs.settings import Problem
from airunway.resource import Resource, digest

__all__ = ["DEFAULT", "EffectiveConfig", "Resolution", "Scope", "check", "config_name", "propagated", "resolve"]

DEFAULT = "default"
"""Name of the config that counts for deployments that name none."""

_KIND, _CLUSTER_KIND = "RuntimeConfig", "ClusterRuntimeConfig"


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
    """Canonical (paths.md, section 2), unknown fields included. Not to be changed."""
    problems: tuple[Problem, ...] = ()
    """What in it cannot be used."""
    too_large: bool = False
    """Whether the pod settings have more than 32 KiB of JSON."""

    @cached_property
    def env(self) -> tuple[Resource, ...]:
        """Environment variables of serving pods and of our Jobs, as in a pod. Not to be changed."""
        return settings.env_of(self.spec)

    @cached_property
    def image_pull_secrets(self) -> tuple[str, ...]:
        """Names of Secrets in the deployment's namespace."""
        return settings.pull_secrets_of(self.spec)

    @cached_property
    def token(self) -> str:
        """Name of the Secret with the Hugging Face token under the key ``HF_TOKEN``; or empty."""
        return settings.token_of(self.spec)

    @cached_property
    def routing(self) -> settings.Routing:
        """What it says about routes."""
        return settings.routing_of(self.spec)

    @cached_property
    def storage(self) -> settings.Storage:
        """What it says about claims."""
        return settings.storage_of(self.spec)

    @cached_property
    def status_policy(self) -> settings.StatusPolicy:
        """When a state becomes a fault."""
        return settings.status_policy_of(self.spec)

    @property
    def rollout(self) -> settings.Rollout:
        """When deployments that serve take changed pod settings."""
        return settings.rollout_of(self.spec)

    @property
    def max_concurrent_rollouts(self) -> int:
        """How many deployments are changed at a time with ``rollout: Immediately``; at least 1."""
        return settings.max_concurrent_rollouts_of(self.spec)

    @cached_property
    def label_patterns(self) -> tuple[str, ...]:
        """Patterns of the labels to propagate; none if propagation is off."""
        return settings.label_patterns_of(self.spec)

    def status(self) -> Resource:
        """Returns ``status.effectiveRuntimeConfig`` without ``rollout``, which is the core's."""
        if self.scope is Scope.CLUSTER:
            reference = {"clusterRef": {"kind": _CLUSTER_KIND, "name": self.name}}
        else:
            reference = {"namespaceRef": {"kind": _KIND, "namespace": self.namespace, "name": self.name}}
        return {**reference, "scope": self.scope.value, "hash": self.hash}


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What the look-up of a config found."""

    name: str
    """The name that was looked up."""
    config: EffectiveConfig | None
    """None if there is no config of that name."""
    missing: bool = False
    """Whether neither kind has the name, and the name is not ``default``."""


def config_name(obj: Resource) -> str:
    """Returns the name of the config that a deployment (or artifact) follows. Total for any JSON."""
    return settings.text_at(obj, "spec", "runtimeConfigName") or DEFAULT


def resolve(name: str, *, namespaced: Resource | None, cluster: Resource | None) -> Resolution:
    """Returns the config that counts, given the RuntimeConfig and the ClusterRuntimeConfig of that name, if any.

    Total: where a config has something that cannot be used, the result has a problem.
    """
    name = name or DEFAULT
    lower: Any = cluster if isinstance(cluster, dict) else None
    if isinstance(namespaced, dict):
        upper = stored(namespaced)
        namespace = settings.text_at(namespaced, "metadata", "namespace")
        if upper.get("inherit") == "Cluster" and lower is not None:
            spec, scope = merge(stored(lower), upper), Scope.MERGED
        else:
            spec, scope = merge({}, upper), Scope.NAMESPACE
    elif lower is not None:
        spec, scope, namespace = merge({}, stored(lower)), Scope.CLUSTER, ""
    else:
        return Resolution(name=name, config=None, missing=name != DEFAULT)
    return Resolution(name=name, config=_effective(spec, name=name, namespace=namespace, scope=scope))


def _effective(spec: Resource, *, name: str, namespace: str, scope: Scope) -> EffectiveConfig:
    effective = canonical(spec)
    return EffectiveConfig(
        name=name,
        namespace=namespace,
        scope=scope,
        hash=digest(effective),
        spec=effective,
        problems=tuple(settings.problems_of(effective)),
        too_large=settings.pod_settings_size(effective) > settings.MAX_POD_SETTINGS,
    )


def check(config: Resource) -> tuple[Problem, ...]:
    """Returns what cannot be used in one stored config, looked at by itself: its condition ``ConfigValid``."""
    spec = config.get("spec") if isinstance(config, dict) else None
    if spec is not None and not isinstance(spec, dict):
        return (Problem(field="spec", message="must be an object: it is ignored"),)
    return tuple(settings.problems_of(stored(config)))


def propagated(
    labels: Mapping[str, str], config: EffectiveConfig | None, *, reserved: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the labels of a deployment that its objects and pods get, below those that our code sets on them.

    `reserved` are the keys that a provider keeps for itself (see `is_reserved`).
    """
    return selected(labels, config.label_patterns if config is not None else (), reserved=reserved)
