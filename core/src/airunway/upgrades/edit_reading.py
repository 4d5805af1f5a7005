"""Reads what the plan of an edited deployment depends on, and has the API server judge the edit by a dry run.

Nothing is written: the deployment itself is sent with ``dryRun=All``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airunway.api import names
from airunway.artifacts.deployments import wants_cache
from airunway.configs.resolution import config_name
from airunway.kinds import (
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_ARTIFACT,
    MODEL_DEPLOYMENT,
    RUNTIME_CONFIG,
)
from airunway.kube import Client, Kind, served_kinds_by_name
from airunway.plugins.host import ProviderHost
from airunway.process.effective_settings import published_in
from airunway.resource import LAST_APPLIED, ObjectKey, Resource, annotations_of, dig, key_of
from airunway.runtime.crd_versions import detect
from airunway.runtime.informers import kind_in
from airunway.runtime.preview import plan_name
from airunway.runtime.records import is_primary
from airunway.snapshots.followed import read_for, with_given
from airunway.snapshots.reader import Listed, Reader
from airunway.status.beside import beside
from airunway.status.conditions import PART_NAMES
from airunway.templates.expansion import TEMPLATE_READY, effective
from airunway.templates.part import source_among, template_part
from airunway.unseen import Unseen
from airunway.upgrades.edits import EditFacts, LiveUpstream, UpstreamPlan, assigned, deletions, planned, unnamed
from airunway.upgrades.forecast import Cluster
from airunway.upgrades.preflight import (
    ProviderRun,
    definition_names,
    objects_of,
    provider_run_in,
    read_kinds,
    read_leases,
)
from airunway.view.plan import DeploymentPlan, edit_step

_MANAGER = "kubectl"
_CLIENT_SIDE = "kubectl-client-side-apply"

Load = Callable[[str], ProviderHost | None]
Choose = Callable[[Sequence[Resource], Resource], str]
Store = Callable[[Client, Resource, Resource | None], Awaitable[Resource]]


@dataclass(frozen=True, kw_only=True)
class _Cluster:
    """What is read once for all deployments."""

    providers: tuple[Resource, ...]
    leases: Listed
    version: tuple[int, int]


class EditReader:
    """Plans edited deployments of one cluster, which is read as far as they need it."""

    def __init__(
        self,
        client: Client,
        *,
        load: Load,
        choose: Choose,
        configs: Sequence[Resource] = (),
        templates: Sequence[Resource] = (),
        store: Store | None = None,
    ) -> None:
        """`load` gives the plugin of a provider, or None if it is not installed here; `choose` the provider that a
        deployment without one gets (empty: none) among InferenceProviderConfigs. `configs` and `templates` are applied
        together with the deployments. `store` returns what the API server would store of an edited deployment, given
        the live one; by default as ``kubectl apply``.
        """
        self._client = client
        self._load = load
        self._choose = choose
        self._configs = tuple(configs)
        self._templates = tuple(templates)
        self._store = store or dry_run
        self._read: _Cluster | None = None
        self._clusters: dict[str, tuple[Cluster, tuple[Unseen, ...]]] = {}

    async def plan(self, edited: Resource) -> DeploymentPlan:
        """The plan of one edited deployment. Raises KubeError, also where the API server refuses the edit, and
        PluginError.
        """
        key, now = key_of(edited), datetime.now(UTC)
        live = await self._client.find(MODEL_DEPLOYMENT, key)
        stored = await self._store(self._client, edited, live)
        stored = {**stored, "apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind}
        self._read = read = self._read or await self._read_cluster()
        templates = await read_for(self._client, [stored])
        found_templates = with_given(templates.items, self._templates)
        expanded = template_part(stored, source_among(found_templates)).deployment
        around = replace(await self._around(expanded, read), templates=tuple(found_templates))
        before = str(dig(stored, "status", "provider", "name", default=""))
        if not before and (chosen := self._choose(read.providers, expanded)):
            stored = {**stored, "status": {**(stored.get("status") or {}), "provider": {"name": chosen}}}
        deployment = assigned(stored, around, now=now)
        provider = str(dig(deployment, "status", "provider", "name", default=""))
        found, notes, unseen = await self._upstream(deployment, around, provider, before=before, now=now)
        moved = provider and before not in ("", provider)
        interrupts = moved or any(step.action == "recreate" or step.interrupts for step in found.steps)
        way = filter(None, [beside(stored) if interrupts else ""])
        return DeploymentPlan(
            namespace=key.namespace,
            name=key.name,
            engine=str(dig(deployment, "status", "engine", "type", default="")),
            provider=provider,
            provider_before=before,
            deployment=edit_step({**live, "kind": MODEL_DEPLOYMENT.kind} if live is not None else None, stored),
            steps=found.steps,
            waits=found.waits,
            warnings=found.warnings,
            notes=(*found.notes, *_follows(live, stored, deployment), *notes, *way),
            unseen=(*unseen, *templates.unseen),
        )

    async def _read_cluster(self) -> _Cluster:
        leases = await read_leases(self._client)
        providers = await self._client.list_all(INFERENCE_PROVIDER_CONFIG)
        return _Cluster(providers=tuple(providers), leases=leases, version=await self._client.version())

    async def _around(self, deployment: Resource, read: _Cluster) -> EditFacts:
        """What core and parts depend on. Raises KubeError."""
        name, namespace = config_name(deployment), key_of(deployment).namespace
        configs = [config for config in self._configs if key_of(config).name == name]
        given = {config["kind"] for config in configs if key_of(config).namespace in ("", namespace)}
        for kind, key in ((RUNTIME_CONFIG, ObjectKey(namespace, name)), (CLUSTER_RUNTIME_CONFIG, ObjectKey("", name))):
            found = await self._client.find(kind, key) if kind.kind not in given else None
            configs += [{**found, "kind": kind.kind}] if found is not None else []
        artifacts: list[Resource] = []
        if wants_cache(deployment):
            artifacts = await self._client.list_all(MODEL_ARTIFACT, namespace=namespace)
        core = next((each for each in published_in(read.leases.items) if each.manager == names.CORE_MANAGER), None)
        off = {part for part in PART_NAMES if core is not None and core.options.get(part) == "off"}
        return EditFacts(
            providers=read.providers,
            configs=tuple(configs),
            artifacts=tuple(artifacts),
            parts=tuple(part for part in PART_NAMES if part not in off),
        )

    async def _upstream(
        self, deployment: Resource, around: EditFacts, provider: str, *, before: str, now: datetime
    ) -> tuple[UpstreamPlan, tuple[str, ...], tuple[Unseen, ...]]:
        """The plan for the upstream objects, what was assumed for it, and what is missing in it."""
        if not provider:
            return UpstreamPlan(waits=tuple(_reasons(deployment))), (), ()
        gone, missing = await self._handed_over(deployment, before) if before not in ("", provider) else ((), ())
        host = self._load(provider)
        if host is None:
            return UpstreamPlan(steps=gone), (), (*missing, _no_plugin(deployment, provider))
        assert self._read is not None, "the cluster is read first"
        run = provider_run_in(self._read.leases, provider)
        assumed = (f"assumed for provider {provider}: {run.assumed}",) if run.assumed else ()
        cluster, unread = await self._cluster(host)
        live = await self._live(host, deployment, cluster, run)
        wanted = unnamed(host, deployment, around, live, now=now)
        live = await self._with_foreign(host, live, wanted)
        found = planned(host, deployment, around, live, now=now)
        notes = (f"{before} deletes its objects first, then {provider} creates its own",) if gone else ()
        plan = UpstreamPlan(
            steps=(*gone, *found.steps), waits=found.waits, warnings=found.warnings, notes=(*notes, *found.notes)
        )
        return plan, assumed, (*missing, *unread)

    async def _cluster(self, host: ProviderHost) -> tuple[Cluster, tuple[Unseen, ...]]:
        """The provider's kinds; without the right to read CRDs their served versions, with the newest transformers."""
        if host.name not in self._clusters:
            self._clusters[host.name] = await self._read_kinds(host)
        return self._clusters[host.name]

    async def _read_kinds(self, host: ProviderHost) -> tuple[Cluster, tuple[Unseen, ...]]:
        assert self._read is not None, "the cluster is read before a provider's kinds"
        kinds = read_kinds(self._client, host, self._read.version)
        right = "get customresourcedefinitions.apiextensions.k8s.io"
        found = await Reader(self._client).see(f"the CRDs of {host.name}", kinds, right=right)
        if not isinstance(found, Unseen):
            return found, ()
        served = await served_kinds_by_name(self._client)
        definitions = {
            (kind.group, kind.kind): _unread(versions)
            for kind in definition_names(host).values()
            if (versions := served.get((kind.group, kind.kind)))
        }
        why = "you have no right to them: the plan is for the newest schema that the plugin knows"
        return Cluster(definitions=definitions, kubernetes=self._read.version), (replace(found, why=why),)

    async def _live(self, host: ProviderHost, deployment: Resource, cluster: Cluster, run: ProviderRun) -> LiveUpstream:
        """The deployment's objects. Raises KubeError."""
        key = key_of(deployment)
        written = [kind for kind in host.manifest.upstream if kind.write]
        lists = await asyncio.gather(
            *(objects_of(self._client, host, kind, cluster, key.namespace, deployment=key.name) for kind in written)
        )
        objects = [obj for listed in lists for obj in listed]
        primary = next((obj for obj in objects if is_primary(obj)), None)
        selected: list[Resource] = []
        for kind in host.manifest.upstream if primary is not None else ():
            version = _served_version(host, kind, cluster)
            if kind.select and version and primary is not None:
                label = f"{kind.select}={key_of(primary).name}"
                selected += await self._client.list_all(
                    kind_in(kind, version), namespace=key.namespace, label_selector=label
                )
        return LiveUpstream(
            cluster=cluster,
            settings=host.settings(dict(run.settings)),
            verify=run.verify,
            objects=tuple(objects),
            selected=tuple(selected),
        )

    async def _with_foreign(self, host: ProviderHost, live: LiveUpstream, wanted: Sequence[Resource]) -> LiveUpstream:
        """With the objects of others that have the name of a wanted one. Raises KubeError."""
        found = []
        for obj in wanted:
            group, _, version = str(obj["apiVersion"]).rpartition("/")
            kind = next(each for each in host.manifest.upstream if (each.group, each.kind) == (group, obj["kind"]))
            there = await self._client.find(kind_in(kind, version), key_of(obj))
            found += [{**there, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}] if there is not None else []
        return replace(live, foreign=tuple(found))

    async def _handed_over(self, deployment: Resource, before: str) -> tuple[tuple[Any, ...], tuple[Unseen, ...]]:
        """What the previous provider deletes."""
        host = self._load(before)
        if host is None:
            text = f"plugin {before} is not installed here"
            return (), (Unseen(what=f"the objects of {before}, all of which are deleted", why=text),)
        cluster, unread = await self._cluster(host)
        return deletions((await self._live(host, deployment, cluster, ProviderRun())).objects), unread


async def dry_run(client: Client, edited: Resource, live: Resource | None) -> Resource:
    """What ``kubectl apply`` would store, defaulted and admitted by the API server. Raises KubeError.

    A deployment that was applied on the client's side has the annotation of the last applied file: fields that are no
    longer in the file are removed. Any other one is applied on the server's side, as kubectl's field manager.
    """
    metadata = {key: value for key, value in edited["metadata"].items() if key != "managedFields"}
    document = {**{key: value for key, value in edited.items() if key != "status"}, "metadata": metadata}
    key = key_of(edited)
    last = annotations_of(live or {}).get(LAST_APPLIED)
    if live is None or not last:
        return await client.apply(MODEL_DEPLOYMENT, document, manager=_MANAGER, force=True, dry_run=True)
    # kubectl records the annotations that it found beside its own, and so never removes all of them.
    document = {**document, "metadata": {"annotations": {}, **metadata}}
    try:
        original = json.loads(last)
    except ValueError:
        original = {}
    patch = three_way(original, document)
    return await client.merge_patch(
        MODEL_DEPLOYMENT, key, patch, manager=_CLIENT_SIDE, dry_run=True, field_validation="Strict"
    )


def three_way(original: object, wanted: Resource) -> Resource:
    """The merge patch that sets what is `wanted` and removes what was in the `original` file and is not any more."""
    patch = dict(wanted)
    for key, value in original.items() if isinstance(original, dict) else ():
        if key not in wanted:
            patch[key] = None
        elif isinstance(value, dict) and isinstance(wanted[key], dict):
            patch[key] = three_way(value, wanted[key])
    return patch


def _unread(versions: Sequence[Kind]) -> Resource:
    """A CRD of which only the versions are known: any field is in it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = [{"name": each.version, "served": True, "schema": {"openAPIV3Schema": schema}} for each in versions]
    return {
        "spec": {"scope": "Namespaced", "versions": served},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def _served_version(host: ProviderHost, kind: Any, cluster: Cluster) -> str:
    upstream = detect(kind, host.transformers_of(kind), cluster.facts(kind), kubernetes=cluster.kubernetes).upstream
    return upstream.api_version.rpartition("/")[2] if upstream is not None else ""


def _reasons(deployment: Resource) -> list[str]:
    return [
        f"{each.get('reason')}: {each.get('message')}"
        for each in dig(deployment, "status", "conditions", default=[])
        if each.get("type") in ("Validated", TEMPLATE_READY, "EngineSelected", "ProviderSelected")
        and each.get("status") == "False"
    ] or ["no provider is selected"]


def _no_plugin(deployment: Resource, provider: str) -> Unseen:
    key = key_of(deployment)
    ask = f"kubectl annotate md/{key.name} -n {key.namespace} {names.DRY_RUN}=true"
    return Unseen(
        what="the upstream objects",
        why=f"the plugin of provider {provider} is not installed here. The cluster makes the plan: {ask}, apply the "
        f"edit, and read ConfigMap {plan_name(deployment)}; nothing changes upstream until the annotation is removed",
    )


def _follows(live: Resource | None, stored: Resource, deployment: Resource) -> list[str]:
    """What the core's parts make of the edit; their objects are not in the plan."""
    notes = []
    if live is not None and dig(live, "spec", "gateway") != dig(stored, "spec", "gateway"):
        notes.append("spec.gateway changes: the gateway part changes the route, and restarts no pod")
    cache = ("spec", "model", "cache")
    if dig(effective(live or {}), *cache) != dig(deployment, *cache) and wants_cache(deployment):
        notes.append(
            "spec.model.cache: the model cache part fetches the weights into a claim first, if they are not there"
        )
    return notes
