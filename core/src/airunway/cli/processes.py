"""Starts the long-running commands: builds the core and the providers, and runs them."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from airunway.cli.cluster import fail
from airunway.cli.options import parse_settings
from airunway.cli.process_options import Common, CoreOptions, ProviderOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airunway.kube import Client
    from airunway.plugins.errors import PluginError
    from airunway.plugins.host import ProviderHost
    from airunway.process.caches import Caches
    from airunway.process.effective_settings import EffectiveSettings
    from airunway.process.manager import Application, Factories
    from airunway.process.metrics import Metrics

    Part: TypeAlias = Callable[[Caches, str], Application]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A provider to run: its host, or the error because of which it cannot run (the other providers run without it)."""

    name: str
    host: ProviderHost | None = None
    broken: PluginError | None = None


def installed() -> list[Chosen]:
    """Every installed provider. Ends the command if there is none."""
    from airunway.plugins.registry import discover

    names = list(dict.fromkeys(found.name for found in discover()))
    if not names:
        fail("no provider plugins are installed")
    return [_chosen(name) for name in names]


def named(names: Sequence[str]) -> list[Chosen]:
    """The providers with these names. Ends the command for one that cannot be run."""
    found = [_chosen(name) for name in dict.fromkeys(names)]
    for chosen in found:
        if chosen.broken is not None:
            fail(str(chosen.broken))
    return found


def _chosen(name: str) -> Chosen:
    from airunway.plugins.errors import PluginError
    from airunway.plugins.registry import load

    try:
        return Chosen(name=name, host=load(name))
    except PluginError as error:
        return Chosen(name=name, broken=error)


def run(
    common: Common,
    *,
    core: CoreOptions | None = None,
    providers: Sequence[Chosen] = (),
    given: ProviderOptions | None = None,
) -> None:
    """Run the core (if it has options) and these providers until a signal stops them."""
    from airunway.api import names
    from airunway.plugins.errors import PluginError
    from airunway.process.caches import Caches
    from airunway.process.deployment_cache import DeploymentProjection
    from airunway.process.metric_catalogue import MetricsRole
    from airunway.process.metrics import Metrics
    from airunway.validation.policy import PolicyError

    given = given or ProviderOptions()
    try:
        namespaces = namespaces_of(common.watch_namespaces)
        parts = _core_parts(core, namespaces) if core is not None else {}
        parts |= {
            names.provider_manager(chosen.name): _provider_part(chosen, providers, given, namespaces)
            for chosen in providers
        }
    except (PluginError, PolicyError, ValueError) as error:
        fail(str(error))
    alone = not providers or (core is None and len(providers) == 1)
    component = next(iter(parts)) if alone else "airunway"
    metrics = Metrics(component, role=MetricsRole.CORE if core is not None else MetricsRole.EVERY)
    instance = instance_name()

    def make(client: Client) -> Factories:
        project = DeploymentProjection(list(parts), providers=[p.name for p in providers] if core is None else None)
        caches = Caches(client, project=project, metrics=metrics, namespaces=namespaces)
        return {manager: partial(part, caches, instance) for manager, part in parts.items()}

    effective = dict(_effective(common, core, providers, given, instance=instance))
    serve_parts(common, metrics=metrics, instance=instance, make=make, effective=effective)


def _effective(
    common: Common, core: CoreOptions | None, providers: Sequence[Chosen], given: ProviderOptions, *, instance: str
) -> Iterator[tuple[str, EffectiveSettings]]:
    """The published settings of each part, by the part's component."""
    from airunway.api import names
    from airunway.process.effective_settings import EffectiveSettings

    shared = {
        "leader-elect": _text(common.leader_elect),
        "watch-namespaces": ",".join(namespaces_of(common.watch_namespaces)),
    }
    if core is not None:
        every = {name.replace("_", "-"): _text(value) for name, value in asdict(core).items()}
        of_core = {name: text for name, text in every.items() if text or not name.startswith("webhook-")}
        options_of_parts = {
            names.GATEWAY_MANAGER: ("gateway", "gateway-name", "gateway-namespaces", "epp-image", "epp-version"),
            names.MODEL_CACHE_MANAGER: ("model-cache", "downloader-image", "max-downloads"),
        }
        options = {names.CORE_MANAGER: of_core} | {
            manager: {name: of_core[name] for name in options_of_parts[manager]} for manager in _managers_of_parts(core)
        }
        for manager, own in options.items():
            yield manager, EffectiveSettings(manager=manager, pod=instance, options=shared | own)
    for chosen in providers:
        manager = names.provider_manager(chosen.name)
        yield (
            manager,
            EffectiveSettings(
                manager=manager,
                pod=instance,
                options=shared | {"unknown-schema": given.unknown_schema},
                settings=_settings_of(chosen, providers, given),
            ),
        )


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _managers_of_parts(core: CoreOptions) -> dict[str, str]:
    """The parts of the core that are on: their field managers, with their names in ``status.parts``."""
    from airunway.api import names

    found = {}
    if core.gateway != "off":
        found[names.GATEWAY_MANAGER] = names.GATEWAY_PART
    if core.model_cache != "off":
        found[names.MODEL_CACHE_MANAGER] = names.MODEL_CACHE_PART
    return found


def _core_parts(core: CoreOptions, namespaces: tuple[str, ...]) -> dict[str, Part]:
    """The core and its parts that are on, by their field managers. Raises PolicyError or ValueError for invalid
    options.
    """
    from airunway.api import names

    makers = {names.GATEWAY_MANAGER: _gateway_part, names.MODEL_CACHE_MANAGER: _model_cache_part}
    found = {names.CORE_MANAGER: _core_part(core, namespaces)}
    return found | {manager: makers[manager](core) for manager in _managers_of_parts(core)}


def _core_part(options: CoreOptions, namespaces: tuple[str, ...]) -> Part:
    """A function that creates the core. Raises PolicyError or ValueError for invalid options."""
    from airunway.controller.application import CoreApplication, CoreSettings
    from airunway.controller.policies import PolicyFile
    from airunway.webhook import webhook_settings

    prefix = "webhook_"
    given = {name: value for name, value in asdict(options).items() if name.startswith(prefix) and value != ""}
    admission = webhook_settings(
        **{name.removeprefix(prefix): value for name, value in given.items()}, namespace=own_namespace()
    )
    settings = CoreSettings(
        selector=options.enable_provider_selector,
        namespaces=namespaces,
        policy=PolicyFile(options.policy) if options.policy is not None else None,
        guard_parameters=own_namespace() if options.guard_parameters else "",
        parts=tuple(_managers_of_parts(options).values()),
    )

    def make(caches: Caches, instance: str) -> CoreApplication:
        client, metrics = caches.client, caches.metrics
        core = CoreApplication(client=client, instance=instance, settings=settings, caches=caches)
        if admission is not None:
            from airunway.webhook.application import Webhook  # with what makes certificates: 8 MiB

            webhook = Webhook(
                client,
                core,
                admission,
                namespaces=namespaces,
                on_review=metrics.on_review,
                on_turned_away=metrics.on_turned_away(),
            )
            metrics.add_source("webhook", webhook.points)
            core.add(webhook)
        return core

    return make


def _gateway_part(options: CoreOptions) -> Part:
    """A function that creates the part that makes routes. Raises ValueError for invalid options."""
    from airunway.gateway.application import GatewayApplication, GatewaySettings

    namespace, _, name = options.gateway_name.partition("/")
    if options.gateway_name and (not namespace or not name or "/" in name):
        raise ValueError(f"--gateway-name: {options.gateway_name!r} is not NAMESPACE/NAME: write both")
    settings = GatewaySettings(
        gateway_name=options.gateway_name,
        gateway_namespaces=namespaces_of(options.gateway_namespaces, option="--gateway-namespaces"),
        home=own_namespace(),
        picker_version=options.epp_version,
    )
    if options.epp_image:
        settings = replace(settings, picker_image=options.epp_image)

    def make(caches: Caches, instance: str) -> GatewayApplication:
        return GatewayApplication(client=caches.client, caches=caches, instance=instance, settings=settings)

    return make


def _model_cache_part(options: CoreOptions) -> Part:
    """A function that creates the part that fetches weights."""
    from airunway.modelcache.application import ModelCacheApplication, ModelCacheSettings

    settings = ModelCacheSettings(max_downloads=options.max_downloads)
    if options.downloader_image:
        settings = replace(settings, image=options.downloader_image)

    def make(caches: Caches, instance: str) -> ModelCacheApplication:
        return ModelCacheApplication(client=caches.client, caches=caches, instance=instance, settings=settings)

    return make


def _provider_part(
    chosen: Chosen, among: Sequence[Chosen], given: ProviderOptions, namespaces: tuple[str, ...]
) -> Part:
    """A function that creates a provider. Raises SettingsError for invalid settings."""
    from airunway.runtime.application import ProviderApplication, ProviderSettings

    values = _settings_of(chosen, among, given)
    if chosen.host is not None:
        values = {**_of_the_cluster(chosen.host, os.environ), **values}
        chosen.host.settings(values)  # invalid settings stop the start
    settings = ProviderSettings(
        values=values, verify_unknown_schemas=given.unknown_schema == "Verify", namespaces=namespaces
    )

    def make(caches: Caches, instance: str) -> ProviderApplication:
        host = chosen.host
        if host is None:
            raise chosen.broken or RuntimeError(f"provider {chosen.name!r} cannot be run")
        return ProviderApplication(client=caches.client, host=host, instance=instance, settings=settings, caches=caches)

    return make


def _of_the_cluster(host: ProviderHost, environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings that the process reads from its pod: the family of the cluster's addresses.

    The kubelet gives every pod the address of the API server's Service, which has the family that pods have first.
    """
    if "ip_family" not in {field.name for field in fields(host.manifest.settings)}:
        return {}
    return {"ipFamily": "IPv6" if ":" in environment.get("KUBERNETES_SERVICE_HOST", "") else "IPv4"}


def _settings_of(chosen: Chosen, among: Sequence[Chosen], given: ProviderOptions) -> dict[str, Any]:
    """The settings of one provider out of ``--set``; of several providers, ``PROVIDER.KEY=VALUE`` names one.

    Raises ValueError for a text that names none of them.
    """
    names, found = [each.name for each in among], []
    for text in given.settings or ():
        provider, dot, rest = text.partition(".")
        if dot and provider in names:
            found += [rest] if provider == chosen.name else []
        elif len(names) == 1:
            found.append(text)
        else:
            raise ValueError(f"--set {text}: write PROVIDER.KEY=VALUE; the providers are {', '.join(names)}")
    return parse_settings(found)


def serve_parts(
    common: Common,
    *,
    metrics: Metrics,
    instance: str,
    make: Callable[[Client], Factories],
    effective: Mapping[str, EffectiveSettings],
) -> None:
    from airunway.kube import ConfigError, load_config
    from airunway.process.logs import configure_logging
    from airunway.process.manager import ManagerSettings, serve
    from airunway.process.probes import parse_address

    try:
        addresses = [parse_address(common.health_probe_bind_address), parse_address(common.metrics_bind_address)]
        if addresses[0] is not None and addresses[0] == addresses[1] and addresses[0][1] != 0:
            raise click.BadParameter("--metrics-bind-address and --health-probe-bind-address must not be the same")
        configure_logging(
            level=common.log_level, json=None if common.log_format is None else common.log_format == "json"
        )
        config = load_config(kubeconfig=common.kubeconfig, context=common.context)
    except (ConfigError, ValueError) as error:
        fail(str(error))
    settings = ManagerSettings(
        component=metrics.component,
        health_address=common.health_probe_bind_address,
        metrics_address=common.metrics_bind_address,
        leader_election=common.leader_elect,
        namespace=own_namespace(),
        identity=instance,
        effective=effective,
        ready_file=common.ready_file,
    )
    try:
        asyncio.run(serve(config, make, settings, metrics=metrics))
    except OSError as error:  # an address in use; errors of the API server are KubeError
        fail(str(error))


def own_namespace() -> str:
    from airunway.process.effective_settings import operator_namespace

    return operator_namespace(os.environ)


def namespaces_of(text: str, *, option: str = "--watch-namespaces") -> tuple[str, ...]:
    """The namespaces of ``a,b``, each once. Raises ValueError for a name that no namespace can have."""
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    for name in names:
        if len(name) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            raise ValueError(f"{option}: {name!r} is not a valid namespace name")
    return names


def instance_name() -> str:
    """The name of this process among its replicas: the pod's name if there is one."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
