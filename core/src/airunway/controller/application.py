"""The core as a part of a process: what it reads, what a change of it concerns, and its three controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import kopf

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, propagated
from airunway.controller.config_passes import ConfigPasses
from airunway.controller.guarded import GuardParameters
from airunway.controller.policies import Policies, PolicyFile
from airunway.controller.provider_configs import ProviderConfigReconciler
from airunway.controller.providers import Providers, is_held, is_touched
from airunway.controller.reads import concerns_core
from airunway.controller.reconciler import CoreReconciler
from airunway.controller.runtime_configs import PAUSE, RuntimeConfigReconciler
from airunway.controller.waves import Rollouts
from airunway.kube import Client, MutationCache, Priority
from airunway.process.caches import Caches, Source
from airunway.process.config_policy import NamespaceGrants
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Lead
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics, Transitions, deployment_points, provider_points
from airunway.process.part import Part, Work
from airunway.process.predicates import RelevantMetadata
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.process.templates import Templates
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of
from airunway.selection.facts import ProviderFacts
from airunway.templates.expansion import Expansion
from airunway.templates.part import TemplateSource, template_part
from airunway.validation import prepare
from airunway.validation.policy import NAMESPACE_NAME, Policy

_WORKERS = 16


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


class Admission(Source, Protocol):
    """The webhook: a source of the core, whose leader also keeps the webhook's certificates."""

    def remark(self) -> str | None: ...

    def register(self, settings: kopf.OperatorSettings) -> None: ...

    async def lead(self) -> None:
        """The work of the leader, until cancelled."""
        ...


class CoreApplication(Part):
    """The core controller."""

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
        super().__init__(caches, component=names.CORE_MANAGER, instance=instance)
        clock = clock or (lambda: datetime.now(UTC))
        self._settings = settings
        self._queue = self._base.queue("core")
        self._config_queue = self._base.queue("configs")
        self._runtime_config_queue = self._base.queue("runtime-configs")
        self._known = self._base.overlay()
        self._known.add_listener(self._on_deployment)
        self._admission: Admission | None = None

        # What the core reads.
        self._providers = Providers(
            caches, clock=clock, on_config=self._config_queue.add, on_standing=self._on_standing
        )
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
        self.sources = (self._providers, self._runtime_configs, self._templates)
        self._grants = caches.one(NamespaceGrants)
        self._policies: Policies | None = None
        if settings.policy is not None:
            self._policies = Policies(
                client, settings.policy, namespaces=settings.namespaces, on_change=self._on_policy_change
            )
            self._grants.of = self._policies.grants_of
            self.sources = (*self.sources, self._policies)

        # What it does.
        self._guarded: GuardParameters | None = None
        if settings.guard_parameters:
            self._guarded = GuardParameters(
                client,
                home=settings.guard_parameters,
                configs=self._providers.configs,
                deployments=self._deployments.values,
                namespaces=settings.namespaces,
            )
            self.tasks = {"guard parameters": self._guarded.run}
        self._relevant = RelevantMetadata(by_labels=self._propagated)
        self._rollouts = Rollouts()
        self._config_passes = ConfigPasses(
            queue=self._runtime_config_queue, configs=self._runtime_configs, rollouts=self._rollouts, clock=clock
        )
        reconciler = CoreReconciler(
            client=client,
            deployments=self._known,
            providers=self._providers.facts,
            events=self._base.events,
            selector=settings.selector,
            policies=self._policies,
            guarded=self._guarded,
            clock=clock,
            configs=self._runtime_configs,
            rollouts=self._rollouts,
            parts=settings.parts,
            templates=self._template_source,
        )
        configs = ProviderConfigReconciler(
            client=client,
            configs=MutationCache(self._providers.configs, project=self._providers.project),
            clock=clock,
            silence_of=self._providers.silence_of,
            on_silence=self._on_silence,
        )
        self._runtime_config_reconciler = RuntimeConfigReconciler(
            client=client,
            configs=self._runtime_configs,
            everywhere=not settings.namespaces,
            rollouts=self._rollouts,
            clock=clock,
            on_grant=self._queue.add,
        )
        self._transitions = Transitions(self.metrics, providers=self._providers.facts, clock=clock)
        self.work = (
            Work(
                "core",
                reconciler.reconcile,
                workers=_WORKERS,
                provider_of=self._provider_of,
                begin=self._begin,
                end=self._end,
            ),
            Work("configs", configs.reconcile, provider_of=lambda key: key.name, begin=self._begin_configs),
            Work(
                "runtime-configs",
                self._reconcile_runtime_config,
                begin=lambda: self._config_passes.begin(self._deployments.values()),
            ),
        )
        self.metrics.add_source("deployments", lambda: deployment_points(self._deployments.items()))
        self.metrics.add_source(
            "providers",
            lambda: provider_points(self._providers.configs.items(), silence_of=self._providers.silence_of),
        )

    # --------------------------------------------------------------------------------------------------- running

    async def run(self, lead: Lead) -> None:
        """Watch the API server until cancelled; reconcile while leading."""
        self._deployments.add_handler(self._transitions)
        self._deployments.add_handler(self._config_passes.on_deployment)
        for cache in (self._runtime_configs.namespaced, self._runtime_configs.cluster):
            cache.add_handler(self._config_passes.on_config)
        await super().run(lead)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        prepared = group.create_task(asyncio.to_thread(prepare), name="rules")
        await super()._follow(group)
        await prepared

    def _begin(self) -> None:
        if self._guarded is not None:
            self._guarded.begin()
        self._base.enqueue_all("lead")
        self._transitions.counting = True

    def _end(self) -> None:
        self._transitions.counting = False

    def _begin_configs(self) -> None:
        for key in self._providers.configs.keys():  # noqa: SIM118 - not a dict
            self._config_queue.add(key, Priority.BULK)

    async def _reconcile_runtime_config(self, key: ObjectKey) -> float | None:
        self._runtime_config_queue.rest(key, PAUSE)
        return await self._runtime_config_reconciler.reconcile(key)

    # ---------------------------------------------------------------------------------------------- what changes

    def _provider_of(self, key: ObjectKey) -> str:
        """The provider in a deployment's status if its config is registered (a status may have any text); else
        empty.
        """
        provider = dig(self._deployments.get(key), "status", "provider", "name")
        return provider if provider in self._providers.facts else ""

    def _propagated(self, deployment: Resource) -> object:
        """The deployment's labels that its pods get: they are a part of its revision."""
        return propagated(labels_of(deployment), self._runtime_configs.resolve(deployment).config)

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if concerns_core(old, new, echo=echo, relevant=self._relevant):
            self._base.enqueue(key, old, new)

    def _on_policy_change(self, namespace: str) -> None:
        self._base.enqueue_all(
            ("policy", namespace), lambda deployment: namespace in ("", key_of(deployment).namespace)
        )
        self._grants.announce(namespace)

    def _on_standing(self, provider: str) -> None:
        self._base.enqueue_all(("config", provider), lambda deployment: is_touched(deployment, provider))

    def _on_silence(self, provider: str) -> None:
        self._base.enqueue_all(
            ("silence", provider),
            lambda deployment: (
                dig(deployment, "status", "provider", "name") == provider or is_held(deployment, provider)
            ),
        )

    # ------------------------------------------------------------------------------------------ what admission asks

    def add(self, admission: Admission) -> None:
        """Answer reviews, too; to be called before `run`."""
        self._admission = admission
        self.sources = (*self.sources, admission)
        self.tasks = {**self.tasks, "admission": admission.lead}

    def remark(self) -> str | None:
        """What is wrong with admission although the core can work, or None."""
        return self._admission.remark() if self._admission is not None else None

    @property
    def serving(self) -> bool:
        """Whether kopf runs an admission server for the core."""
        return self._admission is not None

    def register(self, settings: kopf.OperatorSettings) -> None:
        """Let kopf run the admission server."""
        if self._admission is not None:
            self._admission.register(settings)

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
        return self._providers.facts

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
