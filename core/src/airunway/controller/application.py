"""The core controller: caches of ModelDeployments and InferenceProviderConfigs, queues and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import kopf

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, config_name, propagated
from airunway.controller.decision import SILENT_AFTER
from airunway.controller.guarded import GuardParameters
from airunway.controller.policies import Policies, PolicyFile
from airunway.controller.provider_configs import ProviderConfigReconciler
from airunway.controller.reconciler import CoreReconciler
from airunway.controller.runtime_configs import PAUSE, RuntimeConfigReconciler
from airunway.controller.waves import Rollouts, behind, progress_of
from airunway.first_seen import FirstSeen
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import (
    AnyReflector,
    Client,
    MutationCache,
    Priority,
    compact_objects,
    wait_until_synced,
)
from airunway.process.base_controller import BaseController, not_synced
from airunway.process.caches import Caches
from airunway.process.config_policy import NamespaceGrants
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Lead
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics, Transitions, deployment_points, provider_points
from airunway.process.predicates import RelevantMetadata, needs_reconcile
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.process.templates import Templates
from airunway.resource import ObjectKey, Resource, condition_of, dig, finalizers_of, kept, key_of, labels_of
from airunway.revisions import revision
from airunway.revisions.revision import pending_parts
from airunway.selection.facts import REFUSED_BY, ProviderFacts, provider_facts
from airunway.status.conditions import PARTS, conditions_in, conditions_of
from airunway.status.rollup import parent_of
from airunway.templates.expansion import Expansion
from airunway.templates.part import TemplateSource, template_part
from airunway.validation import prepare
from airunway.validation.policy import NAMESPACE_NAME, Policy

_WORKERS = 16

_PARTS_FIELDS = ("gateway", "modelCache")
_PARTS_CONDITIONS = frozenset(conditions_of(*PARTS))


@dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """The core's configuration."""

    selector: bool = True
    """Whether the built-in provider selection is on (``--enable-provider-selector``)."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that the core watches; empty: all."""
    policy: PolicyFile | None = None
    """What each namespace may use; None: everything that is not refused everywhere."""
    guard_parameters: str = ""
    """Our own namespace if the parameters of the providers' guards are maintained; otherwise empty."""
    parts: tuple[str, ...] = ()
    """The parts of the core that are on: ``gateway``, ``model-cache``."""


class Part(Protocol):
    """A part that runs in the core's process and uses its caches: the webhook."""

    def unready(self) -> str | None: ...

    def remark(self) -> str | None: ...

    def register(self, settings: kopf.OperatorSettings) -> None: ...

    async def follow(self) -> None:
        """The work of every replica, until cancelled."""
        ...

    async def lead(self) -> None:
        """The work of the leader, until cancelled."""
        ...


class CoreApplication:
    """The core controller, from start to stop."""

    def __init__(
        self,
        *,
        client: Client,
        instance: str = names.CORE_MANAGER,
        settings: CoreSettings | None = None,
        caches: Caches | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings = settings or CoreSettings()
        caches = caches or Caches(
            client,
            project=DeploymentProjection([names.CORE_MANAGER]),
            metrics=Metrics(names.CORE_MANAGER, role=MetricsRole.CORE),
            namespaces=settings.namespaces,
        )
        self._settings = settings
        self._metrics = caches.metrics
        self._clock = clock or (lambda: datetime.now(UTC))
        self._client = client
        self._parts: list[Part] = []
        self._base = BaseController(caches, component=names.CORE_MANAGER, instance=instance)
        self._deployments = self._base.deployments
        self._queue = self._base.queue("core")
        self._config_queue = self._base.queue("configs")
        self._runtime_config_queue = self._base.queue("runtime-configs")
        self._runtime_configs = RuntimeConfigs(
            caches,
            deployments=self._deployments,
            on_change=lambda cause, users: self._base.enqueue_all(cause, among=users, damped=True),
        )
        self._templates = Templates(
            caches,
            deployments=self._deployments,
            on_change=lambda cause, users: self._base.enqueue_all(cause, among=users),
        )
        self._template_source = TemplateSource(
            choose=lambda request, namespace: self._templates.choose(request, namespace=namespace),
            find=self._templates.find,
            contribution=self._templates.contribution,
        )
        project = compact_objects(names.CORE_MANAGER)
        self._configs = caches.of(INFERENCE_PROVIDER_CONFIG, project=project)
        self._facts: dict[str, ProviderFacts] = {}
        self._heartbeats: FirstSeen[str] = FirstSeen(self._clock)
        self._policies: Policies | None = None
        if settings.policy is not None:
            self._policies = Policies(
                client, settings.policy, namespaces=settings.namespaces, on_change=self._on_policy_change
            )
            caches.one(NamespaceGrants).of = self._policies.grants_of
        self._grants = caches.one(NamespaceGrants)
        self._guarded: GuardParameters | None = None
        if settings.guard_parameters:
            self._guarded = GuardParameters(
                client,
                home=settings.guard_parameters,
                configs=self._configs,
                deployments=lambda: (deployment for _, deployment in self._deployments.items()),
                namespaces=settings.namespaces,
            )
        self._known = self._base.overlay()
        self._relevant = RelevantMetadata(by_labels=self._propagated)
        self._rollouts = Rollouts()
        self._runtime_config_reconciler = RuntimeConfigReconciler(
            client=client,
            configs=self._runtime_configs,
            everywhere=not settings.namespaces,
            rollouts=self._rollouts,
            clock=self._clock,
            on_grant=self._queue.add,
        )
        self._reconciler = CoreReconciler(
            client=client,
            deployments=self._known,
            providers=lambda: self._facts,
            events=self._base.events,
            selector=settings.selector,
            policies=self._policies,
            guarded=self._guarded,
            clock=self._clock,
            resolve=self._runtime_configs.resolve,
            granted=self._rollouts.granted,
            parts=settings.parts,
            templates=self._template_source,
        )
        self._config_reconciler = ProviderConfigReconciler(
            client=client,
            configs=MutationCache(self._configs, project=project),
            clock=self._clock,
            silence_of=self._silence_of,
            on_silence=self._on_silence,
        )
        self._transitions = Transitions(self._metrics, providers=self._facts, clock=self._clock)
        self._metrics.add_source("deployments", lambda: deployment_points(self._deployments.items()))
        self._metrics.add_source(
            "providers", lambda: provider_points(self._configs.items(), silence_of=self._silence_of)
        )

    def unready(self) -> str | None:
        """Why the core cannot work yet, or None."""
        return (
            not_synced(self._caches())
            or self._runtime_configs.unready()
            or self._templates.unready()
            or next((problem for part in self._parts if (problem := part.unready()) is not None), None)
        )

    def remark(self) -> str | None:
        """What is wrong with a part of the process although the core can work, or None."""
        return "; ".join(filter(None, (part.remark() for part in self._parts))) or None

    def _caches(self) -> list[AnyReflector]:
        caches: list[AnyReflector] = [self._deployments, self._configs]
        if self._policies is not None:
            caches.append(self._policies.reflector)
        return caches

    # ---------------------------------------------------------------------------------------------- what parts see

    def add(self, part: Part) -> None:
        """Run `part` with the core; to be called before `run`."""
        self._parts.append(part)

    @property
    def selector(self) -> bool:
        return self._settings.selector

    @property
    def policy(self) -> Policy:
        """The policy in force; without a file, it has only what is refused everywhere."""
        return Policy() if self._policies is None else self._policies.policy

    def watches(self, namespace: str) -> bool:
        """Whether the core watches deployments in that namespace."""
        return not self._settings.namespaces or namespace in self._settings.namespaces

    def providers(self) -> Mapping[str, ProviderFacts]:
        return self._facts

    def with_template(self, deployment: Resource) -> Expansion:
        """A deployment as it was sent, with its effective spec."""
        part = template_part(deployment, self._template_source)
        ref = dig(part.status, "effectiveTemplate", "ref")
        named = (dig(ref, field, default="") for field in ("namespace", "name"))
        return Expansion(
            deployment=None if part.unresolved else part.deployment,
            origin=f"{ref['kind']} {'/'.join(filter(None, named))}" if ref and part.condition is not None else "",
            problem=part.fault.message if part.fault is not None else "",
        )

    @property
    def makes_routes(self) -> bool:
        """Whether the gateway part is on."""
        return names.GATEWAY_PART in self._settings.parts

    def config_of(self, deployment: Resource) -> EffectiveConfig | None:
        """The runtime config that a deployment follows."""
        return self._runtime_configs.resolve(deployment).config

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace to which the policy's selectors apply. Raises KubeError."""
        if self._policies is None:
            return {NAMESPACE_NAME: namespace}
        return await self._policies.labels_of(namespace)

    @property
    def serving(self) -> bool:
        """Whether kopf runs an admission server for the core."""
        return bool(self._parts)

    def register(self, settings: kopf.OperatorSettings) -> None:
        """Let kopf run the admission server."""
        for part in self._parts:
            part.register(settings)

    # --------------------------------------------------------------------------------------------------- running

    async def run(self, lead: Lead) -> None:
        """Watch the API server until cancelled; reconcile while leading."""
        self._known.add_listener(self._on_deployment)
        self._deployments.add_handler(self._transitions)
        self._deployments.add_handler(self._on_user)
        self._configs.add_handler(self._on_config)
        self._runtime_configs.namespaced.add_handler(self._on_runtime_config)
        self._runtime_configs.cluster.add_handler(self._on_runtime_config)
        await self._base.run(self._follow, lead, self._work)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._configs.run(), name="configs")
        group.create_task(self._runtime_configs.run(), name="runtime configs")
        group.create_task(self._templates.run(), name="templates")
        if self._policies is not None:
            group.create_task(self._policies.run(), name="policies")
        for part in self._parts:
            group.create_task(part.follow(), name=type(part).__name__)
        await asyncio.to_thread(prepare)
        await wait_until_synced(self._caches())
        await self._runtime_configs.read()
        await self._templates.read()

    async def _work(self) -> None:
        """The leader's part. It reconciles everything once: an earlier leader may have been stopped in any pass."""
        if self._guarded is not None:
            self._guarded.begin()
        self._base.enqueue_all("lead", lambda _: True)
        for key in self._configs.keys():  # noqa: SIM118 - not a dict
            self._config_queue.add(key, Priority.BULK)
        for cache in (self._runtime_configs.namespaced, self._runtime_configs.cluster):
            for key in cache.keys():  # noqa: SIM118 - not a dict
                self._runtime_config_queue.add(key, Priority.BULK)
        self._rollouts.begin(self._deployments.values(), now=self._clock())
        for deployment in self._deployments.values():
            if pending_parts(deployment):
                self._runtime_config_queue.add(self._wave_of(deployment), Priority.BULK)
        controller = self._base.controller
        deployments = controller(
            "core", self._queue, self._reconciler.reconcile, provider_of=self._provider_of, workers=_WORKERS
        )
        configs = controller(
            "configs",
            self._config_queue,
            self._config_reconciler.reconcile,
            provider_of=lambda key: key.name,
            workers=1,
        )
        runtime_configs = controller(
            "runtime-configs",
            self._runtime_config_queue,
            self._reconcile_runtime_config,
            provider_of=lambda _: "",
            workers=1,
        )
        self._transitions.counting = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(deployments.run(), name="workers")
                group.create_task(configs.run(), name="config-workers")
                group.create_task(runtime_configs.run(), name="runtime-config-workers")
                if self._guarded is not None:
                    group.create_task(self._guarded.run(), name="guard-parameters (leader)")
                for part in self._parts:
                    group.create_task(part.lead(), name=f"{type(part).__name__} (leader)")
        finally:
            self._transitions.counting = False

    def _provider_of(self, key: ObjectKey) -> str:
        """The provider in a deployment's status if its config is registered (a status may have any text); else
        empty.
        """
        provider = dig(self._deployments.get(key), "status", "provider", "name")
        return provider if provider in self._facts else ""

    def _propagated(self, deployment: Resource) -> object:
        """The deployment's labels that its pods get: they are a part of its revision."""
        return propagated(labels_of(deployment), self._runtime_configs.resolve(deployment).config)

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if (
            old is None
            or new is None
            or needs_reconcile(
                *_without_parts(old, new), manager=names.CORE_MANAGER, echo=echo, relevant=self._relevant
            )
            # A second provider may refuse in the same second with the same message: then only the status's manager
            # changes.
            or dig(old, "metadata", REFUSED_BY) != dig(new, "metadata", REFUSED_BY)
        ):
            self._base.enqueue(key, old, new)

    # ------------------------------------------------------------------------------------------- runtime configs

    async def _reconcile_runtime_config(self, key: ObjectKey) -> float | None:
        self._runtime_config_queue.rest(key, PAUSE)
        return await self._runtime_config_reconciler.reconcile(key)

    def _on_runtime_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._runtime_config_queue.add(key)
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        if key.namespace:  # the users of the ClusterRuntimeConfig may be others now
            self._count_users(ObjectKey("", key.name))
            return
        for other in self._runtime_configs.namespaced.keys():  # noqa: SIM118 - not a dict
            if other.name == key.name:
                self._runtime_config_queue.add(other)  # it may inherit

    def _on_user(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """A deployment has come, gone, named another config, or moved on in a rollout."""
        names_ = {(key_of(each).namespace, config_name(each)) for each in (old, new) if each is not None}
        if old is None or new is None or len(names_) > 1:
            for namespace, name in names_:
                self._count_users(ObjectKey(namespace, name))
                self._count_users(ObjectKey("", name))
            if new is None and old is not None and self._rollouts.is_under_way(key):  # another one may be granted
                self._rollouts.forget(key)
                self._runtime_config_queue.add(self._wave_of(old))
            elif new is not None and pending_parts(new):
                self._runtime_config_queue.add(self._wave_of(new))
            return
        waits = behind(old, revision.PARTS) or behind(new, revision.PARTS) or self._rollouts.is_under_way(key)
        if waits and progress_of(old) != progress_of(new):
            self._runtime_config_queue.add(self._wave_of(new))

    def _wave_of(self, deployment: Resource) -> ObjectKey:
        """The key of the pass that grants a deployment: its effective config, or the name that it looks up in vain."""
        config = self._runtime_configs.resolve(deployment).config
        if config is not None:
            return ObjectKey(config.namespace, config.name)
        return ObjectKey(key_of(deployment).namespace, config_name(deployment))

    def _count_users(self, config: ObjectKey) -> None:
        if config in (self._runtime_configs.namespaced if config.namespace else self._runtime_configs.cluster):
            self._runtime_config_queue.add(config)

    def _on_policy_change(self, namespace: str) -> None:
        self._base.enqueue_all(
            ("policy", namespace), lambda deployment: namespace in ("", key_of(deployment).namespace)
        )
        self._grants.announce(namespace)

    def _on_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        before = self._facts.pop(key.name, None)
        now = self._clock()
        if new is not None:
            facts = provider_facts(new)
            heard = self._heartbeats.since(key.name, facts.heartbeat, doubted=SILENT_AFTER)
            self._facts[key.name] = replace(facts, heard=heard)
        else:
            self._heartbeats.forget(key.name)
            self._metrics.forget(provider=key.name)
        self._config_queue.add(key)
        after = self._facts.get(key.name)
        if _standing(before, now) == _standing(after, now):
            return  # a further heartbeat of a fresh provider changes no selection
        self._base.enqueue_all(("config", key.name), lambda deployment: _is_touched(deployment, key.name))

    def _silence_of(self, provider: str) -> timedelta | None:
        facts = self._facts.get(provider)
        return None if facts is None else facts.silence(self._clock())

    def _on_silence(self, provider: str) -> None:
        self._base.enqueue_all(
            ("silence", provider),
            lambda deployment: (
                dig(deployment, "status", "provider", "name") == provider or _is_held(deployment, provider)
            ),
        )


def _without_parts(old: Resource, new: Resource) -> tuple[Resource, Resource]:
    """Both objects without what the core's parts have written, if nothing has changed of it that the core reads."""
    if _of_parts(old) == _of_parts(new) or _for_revision(old) != _for_revision(new):
        return old, new
    return _stripped(old), _stripped(new)


def _for_revision(deployment: Resource) -> tuple[object, ...]:
    """What of the parts' answers a revision is made from (`revisions.wanted`)."""
    cache, gateway = dig(deployment, "status", "modelCache"), dig(deployment, "status", "gateway")
    answers = (condition_of(deployment, type_) or {} for type_ in ("ModelCacheReady", "GatewayReady"))
    return (
        kept(cache, "artifactName", "claimName", "path", "mountPath", "accessMode", "templateHash", "ready"),
        kept(gateway, "gatewayName", "gatewayNamespace", "backend"),
        [(each.get("status"), each.get("observedGeneration")) for each in answers],
    )


def _of_parts(deployment: Resource) -> tuple[object, ...]:
    status = deployment.get("status") or {}
    conditions = [each for each in conditions_in(status) if not _is_read(each)]
    return *(status.get(field) for field in _PARTS_FIELDS), conditions


def _stripped(deployment: Resource) -> Resource:
    status = deployment.get("status") or {}
    kept = {field: value for field, value in status.items() if field not in _PARTS_FIELDS}
    kept["conditions"] = [each for each in conditions_in(status) if _is_read(each)]
    return {**deployment, "status": kept}


def _is_read(condition: Resource) -> bool:
    """Whether the core reads a condition: of those of its parts only faults from which it derives a parent, and a lost
    cache, which holds back another provider.
    """
    if condition["type"] not in _PARTS_CONDITIONS:
        return True
    return parent_of(condition) is not None or condition.get("reason") == "CacheLost"


def _is_touched(deployment: Resource, provider: str) -> bool:
    """Whether a change of a provider's standing can change the result for the deployment.

    A selection stays once it is made (docs/selection.md). So only deployments are affected that have none, whose
    engine or config is missing, or whose provider refuses them.
    """
    chosen = dig(deployment, "status", "provider", "name")
    named = (chosen, dig(deployment, "spec", "provider", "name"))
    refused = dig(deployment, "metadata", REFUSED_BY)  # all known providers refused: another one may accept
    return chosen is None or bool(refused) or provider in named or _is_held(deployment, provider)


def _is_held(deployment: Resource, provider: str) -> bool:
    return names.provider_finalizer(provider) in finalizers_of(deployment)


def _standing(facts: ProviderFacts | None, now: datetime) -> tuple[object, ...] | None:
    """Everything about a provider that selection uses, with the heartbeat reduced to fresh and silent."""
    if facts is None:
        return None
    stale, silent = facts.is_stale(now), facts.is_silent(SILENT_AFTER, now=now)
    return (
        facts.ready,
        stale,
        silent,
        facts.installed,
        facts.explicit_only,
        facts.engines,
        facts.rules,
        facts.translation,
    )
