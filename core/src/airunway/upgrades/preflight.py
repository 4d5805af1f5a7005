"""Forecasts the effect of new upstream CRDs on all deployments of a provider, read from a cluster without any write."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airunway.api import names
from airunway.kinds import CLUSTER_RUNTIME_CONFIG, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, LEASE, Client
from airunway.plugins.contract import UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.process.effective_settings import PART_OF, published_in
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.runtime.crd_versions import Installed, detect
from airunway.runtime.informers import deployment_of, kind_in, written_in
from airunway.schema import has_rules, schema_in, served_versions
from airunway.snapshots.reader import Listed, Reader
from airunway.templates.expansion import effective
from airunway.upgrades.definitions import unacceptable
from airunway.upgrades.forecast import Cluster, Effect, Forecast, forecast


@dataclass(frozen=True, kw_only=True)
class CRDChange:
    """The replacement of one CRD of a provider's kinds."""

    crd: str
    verdict: Installed
    """What the provider would detect."""
    refused: tuple[str, ...] = ()
    """Why the API server would refuse the CRD."""
    notes: tuple[str, ...] = ()
    """What the forecast cannot know."""


@dataclass(frozen=True, kw_only=True)
class ProviderInUse:
    """Kinds, deployments and upstream objects of a provider in a cluster."""

    cluster: Cluster
    deployments: tuple[Resource, ...]
    objects: Mapping[ObjectKey, tuple[Resource, ...]]
    """The upstream objects of each deployment."""
    configs: tuple[Resource, ...] = ()
    """RuntimeConfigs and ClusterRuntimeConfigs."""
    planned: bool = False
    """Whether the deployments are from a file, without objects in a cluster."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The forecasts for a provider's deployments; none if the API server would refuse a CRD."""

    provider: str
    changes: tuple[CRDChange, ...]
    forecasts: tuple[Forecast, ...]

    @property
    def refused(self) -> bool:
        return any(change.refused for change in self.changes)

    @property
    def counts(self) -> Mapping[Effect, int]:
        """Number of deployments per immediate effect."""
        return Counter(found.at_once for found in self.forecasts)

    @property
    def counts_on_change(self) -> Mapping[Effect, int]:
        """Number of deployments per effect of a later change of their spec."""
        return Counter(found.on_change for found in self.forecasts)

    @property
    def harmed_later(self) -> tuple[Forecast, ...]:
        """The deployments that a later change of their spec breaks or recreates because of the upgrade."""
        return tuple(found for found in self.forecasts if found.harmed_later)

    @property
    def is_safe(self) -> bool:
        """Whether nothing breaks or is recreated at once."""
        return not self.refused and not self.counts.get(Effect.BREAK) and not self.counts.get(Effect.RECREATE)


def definition_names(host: ProviderHost) -> dict[str, UpstreamKind]:
    """The upstream kinds of a provider by the names of their CRDs."""
    return {f"{kind.plural}.{kind.group}": kind for kind in host.manifest.upstream if not kind.builtin}


async def read_kinds(client: Client, host: ProviderHost, kubernetes: tuple[int, int]) -> Cluster:
    """The provider's kinds in a cluster of that version. Raises KubeError."""
    wanted = definition_names(host)
    found = await asyncio.gather(*(client.find(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", name)) for name in wanted))
    installed = {name: crd for name, crd in zip(wanted, found, strict=True) if crd is not None}
    return with_definitions(host, installed, Cluster(definitions={}, kubernetes=kubernetes))


async def read_running(client: Client, host: ProviderHost, *, namespace: str = "") -> ProviderInUse:
    """Kinds, deployments and objects of the provider, in one `namespace` or (empty) in all. Raises KubeError."""
    cluster = await read_kinds(client, host, await client.version())
    deployments, *objects = await asyncio.gather(
        client.list_all(MODEL_DEPLOYMENT, namespace=namespace),
        *(objects_of(client, host, kind, cluster, namespace) for kind in host.manifest.upstream if kind.write),
    )
    ours = [each for each in deployments if dig(each, "status", "provider", "name") == host.name]
    configs = [
        *await client.list_if_served(RUNTIME_CONFIG, namespace=namespace),
        *await client.list_if_served(CLUSTER_RUNTIME_CONFIG),
    ]
    by_deployment: defaultdict[ObjectKey, list[Resource]] = defaultdict(list)
    for obj in (obj for listed in objects for obj in listed):
        if (of := deployment_of(obj)) is not None:
            by_deployment[of].append(obj)
    return ProviderInUse(
        cluster=cluster,
        deployments=tuple(sorted(map(effective, ours), key=key_of)),
        objects={key: tuple(listed) for key, listed in by_deployment.items()},
        configs=tuple(configs),
    )


async def objects_of(
    client: Client, host: ProviderHost, kind: UpstreamKind, cluster: Cluster, namespace: str, *, deployment: str = ""
) -> list[Resource]:
    """The provider's objects of a kind (with a name only those of that `deployment`), each in the version in which it
    was written, if that is served. Raises KubeError.
    """
    installed = detect(kind, host.transformers_of(kind), cluster.facts(kind), kubernetes=cluster.kubernetes)
    if installed.upstream is None:
        return []
    ours = f"{names.MANAGED_BY}={names.MANAGED_BY_VALUE},{names.PROVIDER}={host.name}"
    if deployment:
        ours += f",{names.MODEL_DEPLOYMENT}={deployment}"
    newest = installed.upstream.api_version
    kinds = {api.api_version: kind_in(kind, api.api_version.rpartition("/")[2]) for api in installed.served}
    listed = await client.list_all(kind_in(kind, newest.rpartition("/")[2]), namespace=namespace, label_selector=ours)

    async def as_written(obj: Resource) -> Resource:
        version = written_in(obj, names.provider_manager(host.name))
        return await client.get(kinds[version], key_of(obj)) if version in kinds and version != newest else obj

    return list(await asyncio.gather(*map(as_written, listed)))


@dataclass(frozen=True, kw_only=True)
class ProviderRun:
    """How a provider runs, or the defaults that are assumed."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The provider's settings by name."""
    verify: bool = True
    """Whether objects are written for an unknown upstream schema (``--unknown-schema Verify``)."""
    source: str = ""
    """The Lease that publishes it; empty if none does."""
    assumed: str = ""
    """What could not be read, and why; empty if it was."""


async def read_provider_run(client: Client, provider: str) -> ProviderRun:
    """How a provider runs, from our processes' Leases in all namespaces. Raises KubeError."""
    return provider_run_in(await read_leases(client), provider)


async def read_leases(client: Client) -> Listed:
    """The Leases of our processes in all namespaces. Raises KubeError."""
    return await Reader(client).list(LEASE, label_selector="=".join(PART_OF))


def provider_run_in(leases: Listed, provider: str) -> ProviderRun:
    """How a provider runs according to these Leases."""
    if leases.unseen:
        return _assumed("you may not list Leases in all namespaces")
    manager = names.provider_manager(provider)
    found = {
        f"Lease/{each.namespace}/{manager}": each for each in published_in(leases.items) if each.manager == manager
    }
    if not found:
        return _assumed(f"no Lease {manager} says how it runs: it has never led, or runs without --leader-elect")
    if len(found) > 1:
        return _assumed(f"several processes run it: {', '.join(found)}")
    ((source, running),) = found.items()
    return ProviderRun(
        settings=running.settings, verify=running.options.get("unknown-schema", "Verify") != "Fail", source=source
    )


def _assumed(why: str) -> ProviderRun:
    return ProviderRun(assumed=f"default settings and --unknown-schema Verify: {why}")


def changes_of(
    host: ProviderHost, definitions: Mapping[str, Resource], cluster: Cluster, *, verify: bool = True
) -> tuple[CRDChange, ...]:
    """The effect of new CRDs (by name) on the provider, which may `verify` unknown schemas, and on the API server."""
    after = with_definitions(host, definitions, cluster)
    found = []
    for name, kind in definition_names(host).items():
        if name in definitions:
            live = cluster.definitions.get((kind.group, kind.kind))
            new = definitions[name]
            rules = [version for version in served_versions(new) if has_rules(schema_in(new, version) or {})]
            found.append(
                CRDChange(
                    crd=name,
                    verdict=detect(kind, host.transformers_of(kind), after.facts(kind), verify=verify),
                    refused=tuple(unacceptable(new, live)) if live is not None else (),
                    notes=tuple(f"{version} has rules in CEL, which preflight does not evaluate" for version in rules),
                )
            )
    return tuple(found)


def preflight(
    host: ProviderHost,
    definitions: Mapping[str, Resource],
    running: ProviderInUse,
    *,
    settings: object,
    verify: bool = True,
) -> Preflight:
    """The forecast for every deployment of the provider with these CRDs (by name).

    `settings` are the provider's; `verify` is whether it writes under unknown schemas. Raises PluginFault.
    """
    changes = changes_of(host, definitions, running.cluster, verify=verify)
    forecasts: list[Forecast] = []
    if not any(change.refused for change in changes):
        after, now = with_definitions(host, definitions, running.cluster), datetime.now(UTC)
        forecasts = [
            forecast(
                host,
                deployment,
                running.objects.get(key_of(deployment), ()),
                before=None if running.planned else running.cluster,
                after=after,
                settings=settings,
                now=now,
                verify=verify,
                configs=running.configs,
            )
            for deployment in running.deployments
        ]
    return Preflight(provider=host.name, changes=changes, forecasts=tuple(forecasts))


def with_definitions(host: ProviderHost, definitions: Mapping[str, Resource], cluster: Cluster) -> Cluster:
    """The cluster with these CRDs (by name) of the provider; those that are not among them are as before."""
    kinds = definition_names(host)
    new = {(kinds[name].group, kinds[name].kind): crd for name, crd in definitions.items() if name in kinds}
    return Cluster(definitions={**cluster.definitions, **new}, kubernetes=cluster.kubernetes)
