"""What a provider makes of a deployment: the part of a pass that needs no cluster, and all of a preview. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, ParseError, parse_deployment
from airunway.plugins.contract import Context, Finding, Observation, Observed, Upstream
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, labels_of
from airunway.runtime.overrides import check_overrides, merged
from airunway.runtime.plan import complete, identity_of, propagated_labels
from airunway.status.catalogue import CONDITIONS, Writer

__all__ = ["Judgement", "assumed_upstream", "desired_objects", "judge", "observation_of", "parsed"]

_COMPONENT = re.compile(r"[A-Z][A-Za-z0-9]{0,57}")
_CORE_CONDITIONS = frozenset(condition.name for condition in CONDITIONS if condition.writer is Writer.CORE)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether the provider can honour the deployment: not if there are `blockers`. `merge` are its valid overrides."""

    blockers: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    merge: Resource


def parsed(deployment: Resource) -> ModelDeployment:
    """The deployment as plugins see it. Raises ParseError, also for what is too large: a cache lacks most of that."""
    if large := noted_excess(deployment):
        raise ParseError(large[0].path, large[0].message)
    return parse_deployment(deployment)


def judge(host: ProviderHost, deployment: ModelDeployment, context: Context) -> Judgement:
    """What speaks against the deployment: its overrides first, then what the provider says. Raises PluginFault."""
    overrides = check_overrides(deployment.spec.provider.overrides or {}, host.manifest.override_schema)
    compatibility = host.can_handle(deployment, context)
    return Judgement(
        blockers=(*overrides.errors, *compatibility.blockers),
        warnings=(*overrides.unknown, *compatibility.warnings),
        merge=overrides.merge,
    )


def desired_objects(
    host: ProviderHost, deployment: Resource, typed: ModelDeployment, context: Context, *, merge: Resource
) -> list[Resource]:
    """The upstream objects, complete, the primary first. `context.upstream` must be there. Raises PluginFault.

    `deployment` and `typed` are the same object, plain (with namespace and uid) and parsed.
    """
    if context.upstream is None:
        raise ValueError("nothing can be written for an upstream that is not there")
    objects = host.translate_spec(typed, context)
    if merge:
        objects = [merged(objects[0], merge), *objects[1:]]
    return complete(
        objects,
        deployment,
        identity=identity_of(typed, context.engine),
        immutable_paths=host.manifest.immutable_paths,
        labels=propagated_labels(labels_of(deployment)),
        transformer=context.upstream.transformer.name,
    )


def observation_of(
    host: ProviderHost, deployment: ModelDeployment, observed: Observed, context: Context
) -> Observation:
    """What the provider makes of the objects that exist. Raises PluginFault.

    Each component becomes the condition ``<name>Ready``, and no condition has two writers.
    """
    observation = host.translate_status(deployment, observed, context)
    for component in observation.components:
        if not _COMPONENT.fullmatch(component.name) or f"{component.name}Ready" in _CORE_CONDITIONS:
            raise PluginFault(
                f"provider {host.name!r} ({host.origin}): translate_status names a component {component.name!r}: "
                f"{component.name}Ready is a condition that the core writes, or no name of a condition"
            )
    return observation


def assumed_upstream(host: ProviderHost) -> Upstream:
    """The upstream for a preview without a cluster: the preferred version, with its newest transformer.

    Raises PluginFault if the provider has no transformer for any version that it names.
    """
    kind = host.primary_kind
    for version in kind.versions:
        api_version = f"{kind.group}/{version}"
        known = [transformer for transformer in host.transformers if transformer.api_version == api_version]
        if known:
            return Upstream(api_version=api_version, transformer=known[-1])
    raise PluginFault(f"provider {host.name!r} has no transformer for {kind.kind} in {', '.join(kind.versions)}")
