"""Reads the snapshot, without any write and without the contents of Secrets; parts that cannot be read are left out."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.doctor.checks_accounts import expected_guards, expected_rights
from airunway.doctor.checks_webhook import configuration_names, services_of
from airunway.doctor.snapshot import (
    OURS,
    POOL_GROUPS,
    ProcessDeployment,
    Right,
    SeenPolicyFile,
    Snapshot,
    components_in,
    required_kinds,
    upstream_namespace,
)
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
    CONFIG_MAP,
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
    Kind,
    NotFound,
    served_kinds,
)
from airunway.plugins.host import ProviderHost
from airunway.process.effective_settings import EffectiveSettings, published_in
from airunway.rbac.rights import AddOn
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.snapshots.reader import Reader
from airunway.unseen import Unseen
from airunway.webhook.cert_rotator import SECRET
from airunway.webhook.configuration import CONFIGURATION_KIND, webhooks_of

_GATEWAY_CLASS = Kind(names.GATEWAY_GROUP, "v1", "GatewayClass", "gatewayclasses", namespaced=False)
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

_HELM = "owner=helm"
"""The label of the Secrets in which Helm stores releases; name, revision and status are labels too."""

_AT_ONCE = 32
"""Maximum concurrent requests: priority and fairness does not serve a user more at once."""

_NAMESPACES = 100
"""Maximum namespaces with deployments whose labels are read."""

K = TypeVar("K")
T = TypeVar("T")


async def gather(
    client: Client,
    *,
    namespace: str,
    hosts: Sequence[ProviderHost],
    add_ons: Mapping[str, AddOn] = MappingProxyType({}),
    limit: int = 500,
) -> Snapshot:
    """Read everything; `namespace` is where AI Runway runs, `hosts` are the provider plugins installed here, and
    `add_ons` the add-ons, by field manager.

    Of nodes and deployments at most `limit` are read; `unseen` records that there are more. Raises KubeError if the API
    server does not even return its version.
    """
    kubernetes = await client.version()
    here = datetime.now(UTC)
    there = client.server_time or here
    reader = _Parts(client, namespace=namespace, hosts=hosts, add_ons=add_ons, limit=limit)
    ahead = there - here
    snapshot = Snapshot(
        server=client.config.server,
        kubernetes=kubernetes,
        now=there,
        ahead=ahead if abs(ahead) > timedelta(seconds=1) else timedelta(),  # the server's time has whole seconds
        namespace=namespace,
        plugins={host.name: host.manifest.version for host in hosts},
        add_ons=frozenset(add_ons),
    )
    snapshot = replace(snapshot, **await reader.first())
    snapshot = replace(snapshot, **await reader.second(snapshot))
    return replace(snapshot, unseen={part: tuple(reader.unseen[part]) for part in sorted(reader.unseen)})


class _Parts:
    """Reads the parts; what of them was not read is in `unseen`."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        hosts: Sequence[ProviderHost],
        add_ons: Mapping[str, AddOn],
        limit: int,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._hosts = hosts
        self._add_ons = add_ons
        self._limit = limit
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._reader = Reader(client, tolerant=True)
        self.unseen: defaultdict[str, list[Unseen]] = defaultdict(list)

    async def first(self) -> dict[str, Any]:
        """The parts that depend on no other part."""
        here = self._namespace
        return await self._parts(
            definitions=(
                "AI Runway's CRDs",
                self._named(CUSTOM_RESOURCE_DEFINITION, [key_of(crd).name for crd in custom_resource_definitions()]),
            ),
            components=(f"Deployments in {here}", self._components(here)),
            pods=(f"pods in {here}", self._there(POD, here)),
            replica_sets=(f"ReplicaSets in {here}", self._there(REPLICA_SET, here)),
            releases=(f"releases of Helm in {here} (metadata of Secrets)", self._releases()),
            elsewhere=("Deployments of AI Runway in other namespaces", self._elsewhere()),
            leases=(f"Leases in {here}", self._leases()),
            policies=("ValidatingAdmissionPolicies", self._all(_POLICY)),
            bindings=("ValidatingAdmissionPolicyBindings", self._all(_BINDING)),
            providers=("InferenceProviderConfigs", self._all(INFERENCE_PROVIDER_CONFIG)),
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
            templates=("ModelTemplates and ClusterModelTemplates", self._templates()),
            sources=("ModelSources", self._some("sources", MODEL_SOURCE)),
        )

    async def second(self, first: Snapshot) -> dict[str, Any]:
        """The parts that depend on those of `first`."""
        wanted: dict[str, tuple[str, Awaitable[Any]]] = {}
        components, providers = first.components, first.providers
        if components is not None:
            watched = {name for component in components for name in component.watched} | {self._namespace}
            watched |= {key_of(gateway).namespace for gateway in first.gateways or ()}
            watched |= set(sorted({key_of(each).namespace for each in first.deployments or ()})[:_NAMESPACES])
            accounts = [ObjectKey(component.key.namespace, component.account) for component in components]
            rights = expected_rights(components, self._hosts, self._add_ons)
            find = self._client.find
            namespaces = self._each(sorted(watched), lambda name: find(NAMESPACE, ObjectKey("", name)))
            wanted["namespaces"] = ("namespaces", namespaces)
            wanted["accounts"] = ("service accounts", self._each(accounts, lambda key: find(SERVICE_ACCOUNT, key)))
            wanted["policy_files"] = ("the policy's ConfigMap", self._policies(components))
            wanted["configurations"] = ("ValidatingWebhookConfigurations", self._configurations(components))
            wanted["rights"] = ("rights of the accounts", self._each(rights, self._is_allowed))
            where = next((component.watched[0] for component in first.cores if component.watched), "default")
            if first.definitions:
                wanted["call"] = ("the webhooks that ModelDeployments pass", self._call(where))
        if providers is not None:
            groups = {group for config in providers for group, _, _ in required_kinds(config) if group}
            groups |= {names.GATEWAY_GROUP, *POOL_GROUPS}
            wanted["served"] = ("the API server's kinds", self._each(sorted(groups), self._kinds_of))
            homes = {upstream_namespace(config) for config in providers} - {""}
            controllers = self._each(sorted(homes), lambda home: self._there(DEPLOYMENT, home))
            wanted["controllers"] = ("Deployments of upstreams", controllers)
        found = await self._parts(**wanted)
        if components is not None:
            found["guards"] = {
                each.name: expected_guards(each, self._hosts, self._add_ons, on_fault=self._cannot_make)
                for each in components
            }
        if found.get("configurations") is not None:
            services = sorted(services_of(found["configurations"].values()))
            found |= await self._parts(endpoints=("endpoints of the webhook", self._each(services, self._endpoints_of)))
        return found

    def _cannot_make(self, add_on: str, error: BaseException) -> None:
        why = bounded(f"{type(error).__name__}: {error}", 300)
        self.unseen["guards"].append(Unseen(what=f"guards of {add_on}", why=why))

    async def _parts(self, **wanted: tuple[str, Awaitable[Any]]) -> dict[str, Any]:
        answers = await asyncio.gather(*(self._see(part, *each) for part, each in wanted.items()))
        return dict(zip(wanted, answers, strict=True))

    async def _see(self, part: str, what: str, answer: Awaitable[T]) -> T | None:
        found = await self._reader.see(what, answer)
        if isinstance(found, Unseen):
            self.unseen[part].append(found)
            return None
        return found

    # --------------------------------------------------------------------------------------------------- many objects

    async def _all(self, kind: Kind) -> tuple[Resource, ...]:
        return tuple(await self._client.list_if_served(kind))

    async def _there(self, kind: Kind, namespace: str) -> tuple[Resource, ...]:
        """All objects of a kind that every cluster has: a 404 is an error, and not an empty list."""
        return tuple(await self._client.list_all(kind, namespace=namespace))

    async def _some(self, part: str, kind: Kind) -> tuple[Resource, ...]:
        """The first page; further pages are recorded as unread."""
        try:
            async with aclosing(self._client.pages(kind, limit=self._limit)) as pages:
                async for page in pages:
                    if page.continue_token:
                        what = f"{kind.plural} after the first {len(page.items)}"
                        self.unseen[part].append(Unseen(what=what, why="no more are looked at"))
                    return tuple(page.items)
        except NotFound:
            pass
        return ()

    async def _templates(self) -> tuple[Resource, ...]:
        found = await asyncio.gather(
            *(self._some("templates", kind) for kind in (MODEL_TEMPLATE, CLUSTER_MODEL_TEMPLATE))
        )
        return tuple(template for page in found for template in page)

    async def _named(self, kind: Kind, wanted: Iterable[str]) -> dict[str, Resource]:
        """The existing objects with these names, of a cluster-scoped kind."""
        found = await self._each(sorted(set(wanted)), lambda name: self._client.find(kind, ObjectKey("", name)))
        return {name: obj for name, obj in found.items() if obj is not None}

    async def _each(self, wanted: Iterable[K], read: Callable[[K], Awaitable[T]]) -> dict[K, T]:
        """What `read` returns for each of these, read at the same time."""

        async def in_turn(key: K) -> T:
            async with self._slots:
                return await read(key)

        keys = list(dict.fromkeys(wanted))
        return dict(zip(keys, await asyncio.gather(*map(in_turn, keys)), strict=True))

    # ------------------------------------------------------------------------------------------------- single parts

    async def _components(self, namespace: str) -> tuple[ProcessDeployment, ...]:
        deployments, published = await asyncio.gather(
            self._client.list_all(DEPLOYMENT, namespace=namespace), self._published(namespace=namespace)
        )
        return tuple(components_in(deployments, published))

    async def _elsewhere(self) -> tuple[ProcessDeployment, ...]:
        deployments, published = await asyncio.gather(
            self._client.list_all(DEPLOYMENT, label_selector=OURS), self._published()
        )
        found = components_in(deployments, published)
        return tuple(component for component in found if component.key.namespace != self._namespace)

    async def _published(self, *, namespace: str = "") -> list[EffectiveSettings]:
        """The published settings of processes; empty if Leases may not be listed."""
        listed = await Reader(self._client).list(LEASE, namespace=namespace, label_selector=OURS)
        return published_in(listed.items)

    async def _leases(self) -> dict[str, Resource]:
        return {key_of(lease).name: lease for lease in await self._there(LEASE, self._namespace)}

    async def _releases(self) -> tuple[Resource, ...]:
        return tuple(await self._client.list_metadata(SECRET, namespace=self._namespace, label_selector=_HELM))

    async def _configurations(self, components: Sequence[ProcessDeployment]) -> dict[str, Resource]:
        ours = configuration_names(components)
        found = {key_of(live).name: live for live in await self._all(CONFIGURATION_KIND)}
        return {name: live for name, live in found.items() if name in ours or webhooks_of(live)}

    async def _call(self, namespace: str) -> str:
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
                return error.message
            if error.kind is ErrorKind.FORBIDDEN or error.status >= 500:
                raise
        return ""

    async def _policies(self, components: Sequence[ProcessDeployment]) -> dict[str, SeenPolicyFile]:
        found = {}
        for component in components:
            if component.core and (source := component.policy_at) is not None:
                key = ObjectKey(component.key.namespace, source[0])
                live = await self._client.find(CONFIG_MAP, key)
                text = dig(live or {}, "data", source[1])
                found[component.name] = SeenPolicyFile(
                    config_map=key, key=source[1], text=None if text is None else str(text)
                )
        return found

    # ---------------------------------------------------------------------------------------------- one key's answer

    async def _is_allowed(self, right: Right) -> bool:
        namespace, _, _ = right.user.removeprefix("system:serviceaccount:").partition(":")
        return await self._client.subject_access_review(
            user=right.user,
            groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            verb=right.verb,
            kind=Kind(right.group, "*", "", right.resource),
            subresource=right.subresource,
            namespace=right.namespace,
            name=right.name,
        )

    async def _kinds_of(self, group: str) -> dict[str, dict[str, str]]:
        found = await served_kinds(self._client, group)
        return {version: {name: kind.plural for name, kind in kinds.items()} for version, kinds in found.items()}

    async def _endpoints_of(self, service: ObjectKey) -> int | None:
        """The number of ready endpoints of a Service; None if it does not exist."""
        if await self._client.find(SERVICE, service) is None:
            return None
        selector = f"kubernetes.io/service-name={service.name}"
        slices = await self._client.list_all(ENDPOINT_SLICE, namespace=service.namespace, label_selector=selector)
        endpoints = (endpoint for slice_ in slices for endpoint in slice_.get("endpoints") or ())
        return sum(bool(dig(endpoint, "conditions", "ready", default=True)) for endpoint in endpoints)
