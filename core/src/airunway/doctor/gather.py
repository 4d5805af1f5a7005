"""Reads the snapshot, without any write and without the contents of Secrets; parts that cannot be read are left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from airunway.api import names
from airunway.doctor.components import OURS, ProcessDeployment, components_in
from airunway.doctor.guards import expected_guards
from airunway.doctor.rights import expected_rights
from airunway.doctor.snapshot import GATEWAY_GROUP, POOL_GROUPS, Call, Right, Snapshot, Unseen
from airunway.doctor.webhook_comparison import configuration_names, services_of
from airunway.gateway.caches import GATEWAY
from airunway.kinds import (
    CLUSTER_MODEL_TEMPLATE,
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_ARTIFACT,
    MODEL_DEPLOYMENT,
    MODEL_SOURCE,
    MODEL_TEMPLATE,
    RUNTIME_CONFIG,
)
from airunway.kube import (
    CLUSTER_ROLE,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SERVICE,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    ApiError,
    Client,
    ErrorKind,
    Forbidden,
    Kind,
    KubeError,
    NotFound,
    served_kinds,
)
from airunway.plugins.host import ProviderHost
from airunway.process.effective_settings import EffectiveSettings, published_in
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.webhook.configuration import CONFIGURATION_KIND, webhooks_of
from airunway.webhook.secret import SECRET

__all__ = ["gather"]

_GATEWAY_CLASS = Kind(GATEWAY_GROUP, "v1", "GatewayClass", "gatewayclasses", namespaced=False)
_POLICY = Kind(
    CONFIGURATION_KIND.group, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
)
_BINDING = Kind(
    CONFIGURATION_KIND.group,
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
_KINDS = (
    MODEL_DEPLOYMENT,
    INFERENCE_PROVIDER_CONFIG,
    RUNTIME_CONFIG,
    CLUSTER_RUNTIME_CONFIG,
    MODEL_ARTIFACT,
    MODEL_TEMPLATE,
    CLUSTER_MODEL_TEMPLATE,
    MODEL_SOURCE,
)
"""Our kinds, by whose CRDs the installation is judged."""

_HELM = "owner=helm"
"""The label of the Secrets in which Helm stores releases; name, revision and status are labels too."""

_AT_ONCE = 32
"""Maximum concurrent requests: priority and fairness does not serve a user more at once."""

T = TypeVar("T")


async def gather(
    client: Client, *, namespace: str, hosts: Sequence[ProviderHost], limit: int = 500, clock: Any = None
) -> Snapshot:
    """Read everything; `namespace` is where AI Runway runs, `hosts` are the provider plugins installed here.

    Of nodes and deployments at most `limit` are read; `unseen` records that there are more. Raises KubeError if the API
    server does not even return its version.
    """
    kubernetes = await client.version()
    here = (clock or datetime.now)(UTC)
    there = client.server_time or here
    reader = _Reader(client, namespace=namespace, hosts=hosts, limit=limit)
    ahead = there - here
    snapshot = Snapshot(
        server=client.config.server,
        kubernetes=kubernetes,
        now=there,
        ahead=ahead if abs(ahead) > timedelta(seconds=1) else timedelta(),  # the server's time has whole seconds
        namespace=namespace,
        plugins={host.name: host.manifest.version for host in hosts},
    )
    snapshot = replace(snapshot, **await reader.first())
    snapshot = replace(snapshot, **await reader.second(snapshot))
    return replace(snapshot, unseen=tuple(sorted(reader.unseen, key=lambda unseen: unseen.part)))


class _Reader:
    def __init__(self, client: Client, *, namespace: str, hosts: Sequence[ProviderHost], limit: int) -> None:
        self._client = client
        self._namespace = namespace
        self._hosts = hosts
        self._limit = limit
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.unseen: list[Unseen] = []

    async def first(self) -> dict[str, Any]:
        """The parts that depend on no other part."""
        return await self._parts(
            definitions=("AI Runway's CRDs", self._definitions()),
            components=(f"Deployments in {self._namespace}", self._components()),
            pods=(f"pods in {self._namespace}", self._pods()),
            replica_sets=(f"ReplicaSets in {self._namespace}", self._replica_sets()),
            releases=(f"releases of Helm in {self._namespace} (metadata of Secrets)", self._releases()),
            elsewhere=("Deployments of AI Runway in other namespaces", self._elsewhere()),
            leases=(f"Leases in {self._namespace}", self._leases()),
            policies=("ValidatingAdmissionPolicies", self._all(_POLICY)),
            bindings=("ValidatingAdmissionPolicyBindings", self._all(_BINDING)),
            providers=("InferenceProviderConfigs", self._providers()),
            nodes=("nodes", self._some("nodes", NODE)),
            storage_classes=("StorageClasses", self._all(STORAGE_CLASS)),
            gateway_classes=("GatewayClasses", self._all(_GATEWAY_CLASS)),
            gateways=("Gateways", self._all(GATEWAY)),
            picker_roles=(
                f"ClusterRole {names.ENDPOINT_PICKER_ROLE}",
                self._named(CLUSTER_ROLE, [names.ENDPOINT_PICKER_ROLE]),
            ),
            runtime_configs=("RuntimeConfigs", self._all(RUNTIME_CONFIG)),
            cluster_runtime_configs=("ClusterRuntimeConfigs", self._all(CLUSTER_RUNTIME_CONFIG)),
            deployments=("ModelDeployments", self._some("deployments", MODEL_DEPLOYMENT)),
            artifacts=("ModelArtifacts", self._some("artifacts", MODEL_ARTIFACT)),
        )

    async def second(self, first: Snapshot) -> dict[str, Any]:
        """The parts that depend on those of `first`."""
        wanted: dict[str, tuple[str, Awaitable[Any]]] = {}
        components, providers = first.components, first.providers
        if components is not None:
            watched = {name for component in components for name in component.watched} | {self._namespace}
            keys = {ObjectKey(component.key.namespace, component.account) for component in components}
            wanted["namespaces"] = ("namespaces", self._namespaces(watched))
            wanted["accounts"] = ("service accounts", self._there(SERVICE_ACCOUNT, keys))
            wanted["configurations"] = ("ValidatingWebhookConfigurations", self._configurations(components))
            wanted["rights"] = (
                "rights of the accounts",
                self._rights(expected_rights(components, self._hosts)),
            )
            where = next((component.watched[0] for component in first.cores if component.watched), "default")
            if first.definitions:
                wanted["call"] = ("the webhooks that ModelDeployments pass", self._call(where))
        if providers is not None:
            groups = {str(kind.get("group")) for config in providers for kind in _required(config) if kind.get("group")}
            wanted["served"] = ("the API server's kinds", self._served({*groups, GATEWAY_GROUP, *POOL_GROUPS}))
            homes = {_home(config) for config in providers} - {""}
            wanted["controllers"] = ("Deployments of upstreams", self._controllers(homes))
        found = await self._parts(**wanted)
        if components is not None:
            found["guards"] = {each.name: expected_guards(each, self._hosts) for each in components}
        if found.get("configurations") is not None:
            services = services_of(found["configurations"].values())
            found |= await self._parts(endpoints=("endpoints of the webhook", self._endpoints(services)))
        return found

    async def _parts(self, **wanted: tuple[str, Awaitable[Any]]) -> dict[str, Any]:
        answers = await asyncio.gather(*(self._see(part, *each) for part, each in wanted.items()))
        return dict(zip(wanted, answers, strict=True))

    async def _see(self, part: str, what: str, answer: Awaitable[T]) -> T | None:
        try:
            return await answer
        except KubeError as error:
            why = f"you may not: {error}" if isinstance(error, Forbidden) else str(error)
            self.unseen.append(Unseen(part=part, what=what, why=bounded(why, 300)))
            return None

    # ------------------------------------------------------------------------------------------------- single parts

    async def _definitions(self) -> dict[str, Resource]:
        return await self._named(
            CUSTOM_RESOURCE_DEFINITION,
            [f"{kind.plural}.{kind.group}" for kind in _KINDS],
        )

    async def _components(self) -> tuple[Any, ...]:
        deployments, published = await asyncio.gather(
            self._client.list_all(DEPLOYMENT, namespace=self._namespace), self._published(namespace=self._namespace)
        )
        return tuple(components_in(deployments, published))

    async def _published(self, *, namespace: str = "") -> list[EffectiveSettings]:
        """The published settings of processes; empty if Leases may not be listed."""
        try:
            return published_in(await self._client.list_all(LEASE, namespace=namespace, label_selector=OURS))
        except Forbidden:
            return []

    async def _pods(self) -> tuple[Resource, ...]:
        return tuple(await self._client.list_all(POD, namespace=self._namespace))

    async def _elsewhere(self) -> tuple[ProcessDeployment, ...]:
        deployments, published = await asyncio.gather(
            self._client.list_all(DEPLOYMENT, label_selector=OURS), self._published()
        )
        found = components_in(deployments, published)
        return tuple(component for component in found if component.key.namespace != self._namespace)

    async def _leases(self) -> dict[str, Resource]:
        found = await self._client.list_all(LEASE, namespace=self._namespace)
        return {key_of(lease).name: lease for lease in found}

    async def _replica_sets(self) -> tuple[Resource, ...]:
        return tuple(await self._client.list_all(REPLICA_SET, namespace=self._namespace))

    async def _releases(self) -> tuple[Resource, ...]:
        return tuple(await self._client.list_metadata(SECRET, namespace=self._namespace, label_selector=_HELM))

    async def _configurations(self, components: Sequence[ProcessDeployment]) -> dict[str, Resource]:
        named = configuration_names(components)
        found = {key_of(live).name: live for live in await self._all(CONFIGURATION_KIND)}
        return {name: live for name, live in found.items() if name in named or webhooks_of(live)}

    async def _providers(self) -> tuple[Resource, ...]:
        return await self._all(INFERENCE_PROVIDER_CONFIG)

    async def _all(self, kind: Kind) -> tuple[Resource, ...]:
        try:
            return tuple(await self._client.list_all(kind))
        except NotFound:  # the kind is not installed
            return ()

    async def _some(self, part: str, kind: Kind) -> tuple[Resource, ...]:
        """The first page; further pages are recorded as unread."""
        try:
            async with aclosing(self._client.pages(kind, limit=self._limit)) as pages:
                async for page in pages:
                    if page.continue_token:
                        what = f"{kind.plural} after the first {len(page.items)}"
                        self.unseen.append(Unseen(part=part, what=what, why="no more are looked at"))
                    return tuple(page.items)
        except NotFound:
            pass
        return ()

    async def _get(self, kind: Kind, key: ObjectKey) -> Resource | None:
        async with self._slots:
            return await self._client.find(kind, key)

    async def _named(self, kind: Kind, wanted: Iterable[str]) -> dict[str, Resource]:
        """The existing objects with these names, of a cluster-scoped kind."""
        listed = sorted(set(wanted))
        found = await asyncio.gather(*(self._get(kind, ObjectKey("", name)) for name in listed))
        return {name: obj for name, obj in zip(listed, found, strict=True) if obj is not None}

    async def _there(self, kind: Kind, keys: Iterable[ObjectKey]) -> dict[ObjectKey, bool]:
        listed = sorted(set(keys))
        found = await asyncio.gather(*(self._get(kind, key) for key in listed))
        return {key: obj is not None for key, obj in zip(listed, found, strict=True)}

    async def _namespaces(self, wanted: Iterable[str]) -> dict[str, Resource | None]:
        found = await self._named(NAMESPACE, listed := sorted(set(wanted)))
        return {name: found.get(name) for name in listed}

    async def _endpoints(self, services: Iterable[ObjectKey]) -> dict[ObjectKey, int | None]:
        async def ready(key: ObjectKey) -> int | None:
            if await self._get(SERVICE, key) is None:
                return None
            selector = f"kubernetes.io/service-name={key.name}"
            slices = await self._client.list_all(ENDPOINT_SLICE, namespace=key.namespace, label_selector=selector)
            return sum(
                1
                for slice_ in slices
                for endpoint in slice_.get("endpoints") or ()
                if dig(endpoint, "conditions", "ready", default=True)
            )

        listed = sorted(set(services))
        return dict(zip(listed, await asyncio.gather(*map(ready, listed)), strict=True))

    async def _rights(self, wanted: Iterable[Right]) -> dict[Right, bool]:
        async def allowed(right: Right) -> bool:
            namespace, _, _ = right.user.removeprefix("system:serviceaccount:").partition(":")
            async with self._slots:
                answer = await self._client.subject_access_review(
                    user=right.user,
                    groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
                    verb=right.verb,
                    kind=Kind(right.group, "*", "", right.resource),
                    subresource=right.subresource,
                    namespace=right.namespace,
                    name=right.name,
                )
            return answer.allowed

        listed = list(dict.fromkeys(wanted))
        return dict(zip(listed, await asyncio.gather(*map(allowed, listed)), strict=True))

    async def _call(self, namespace: str) -> Call:
        """Dry-run a creation, to test that webhooks can be called; a refusal by a webhook is a successful call."""
        probe: Resource = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"generateName": "airunway-doctor-", "namespace": namespace},
            "spec": {"model": {"id": "airunway/doctor"}},
        }
        try:
            await self._client.create(MODEL_DEPLOYMENT, probe, dry_run=True)
        except ApiError as error:
            if error.kind is ErrorKind.WEBHOOK_FAILED:
                return Call(failed=error.message)
            if error.kind is ErrorKind.FORBIDDEN or error.status >= 500:
                raise
        return Call()

    async def _served(self, groups: Iterable[str]) -> dict[str, dict[str, dict[str, str]]]:
        async def kinds(group: str) -> dict[str, dict[str, str]]:
            async with self._slots:
                found = await served_kinds(self._client, group)
            return {version: {name: kind.plural for name, kind in kinds.items()} for version, kinds in found.items()}

        listed = sorted(set(groups))
        return dict(zip(listed, await asyncio.gather(*map(kinds, listed)), strict=True))

    async def _controllers(self, namespaces: Iterable[str]) -> dict[str, tuple[Resource, ...]]:
        listed = sorted(set(namespaces))
        found = await asyncio.gather(*(self._client.list_all(DEPLOYMENT, namespace=name) for name in listed))
        return {name: tuple(deployments) for name, deployments in zip(listed, found, strict=True)}


def _required(config: Resource) -> list[Resource]:
    return [kind for kind in dig(config, "spec", "upstream", default=[]) if kind.get("requiresCRD") is True]


def _home(config: Resource) -> str:
    """The namespace in which the provider's upstream is installed, according to its config."""
    return str(dig(config, "spec", "installation", "defaultNamespace", default=""))
