"""The long-running commands: options that they share, and starting them."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunway.kube import Client
    from airunway.process.metrics import Metrics
    from airunway.process.shell import Application

__all__ = [
    "Common",
    "Context",
    "Kubeconfig",
    "WatchNamespaces",
    "WebhookOptions",
    "parse_settings",
    "run_controller",
    "run_provider",
    "with_common",
]

Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig file (default: as kubectl; in a pod its account).")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
LeaderElect = Annotated[
    bool, typer.Option("--leader-elect", help="Only one replica works at a time (a Lease decides).")
]
HealthAddress = Annotated[str, typer.Option(help="Address of /livez and /readyz, e.g. :8081; 0: none.")]
MetricsAddress = Annotated[str, typer.Option(help="Address of /metrics, e.g. :8080; 0: none. Not that of the probes.")]
ReadyFile = Annotated[Path | None, typer.Option(hidden=True, help="Create this file once ready.")]
WatchNamespaces = Annotated[
    str, typer.Option(help="Namespaces to work in, separated by commas (default: all). A Role in each is enough then.")
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="What is logged, and worse.")]
LogFormat = Annotated[
    Literal["text", "json"] | None, typer.Option(help="Format of the log (default: text on a terminal, else json).")
]


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every long-running command is given."""

    kubeconfig: Path | None
    context: str | None
    leader_elect: bool
    health_address: str
    metrics_address: str
    log_level: str
    log_format: str | None
    ready_file: Path | None = None


def _common(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    leader_elect: LeaderElect = False,
    health_probe_bind_address: HealthAddress = "0",
    metrics_bind_address: MetricsAddress = "0",
    log_level: LogLevel = "info",
    log_format: LogFormat = None,
    ready_file: ReadyFile = None,
) -> Common:
    return Common(
        kubeconfig=kubeconfig,
        context=context,
        leader_elect=leader_elect,
        health_address=health_probe_bind_address,
        metrics_address=metrics_bind_address,
        log_level=log_level,
        log_format=log_format,
        ready_file=ready_file,
    )


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """The command for Typer of a function that takes a `Common` first: its own options, then the shared ones."""
    shared = inspect.signature(_common, eval_str=True).parameters
    own = dict(list(inspect.signature(command, eval_str=True).parameters.items())[1:])

    def run(**given: Any) -> None:
        command(_common(**{name: given.pop(name) for name in shared}), **given)

    parameters = {**own, **shared}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """The options ``--webhook-…``; `bind_address` ``0``: there is no webhook."""

    bind_address: str = "0"
    service: str = ""
    url: str = ""
    secret: str = ""
    configuration: str = ""
    manage_configuration: bool = False
    access_review: bool = True
    access_review_pods: bool = False
    client_ca: Path | None = None


def run_controller(
    common: Common, *, selector: bool, watch_namespaces: str, policy: Path | None, webhook: WebhookOptions
) -> None:
    """Run the core controller until it is told to stop."""
    from airunway.api import names
    from airunway.controller.application import CoreApplication, CoreSettings
    from airunway.controller.policies import PolicyFile
    from airunway.process.metrics import Metrics, Role
    from airunway.validation.policy import PolicyError
    from airunway.webhook import Webhook, webhook_settings

    instance = _instance()
    metrics = Metrics(names.CORE_MANAGER, role=Role.CORE)
    given = {name: value for name, value in asdict(webhook).items() if value != ""}
    try:
        admission = webhook_settings(**given, namespace=_own_namespace())
        settings = CoreSettings(
            selector=selector,
            namespaces=_namespaces(watch_namespaces),
            policy=PolicyFile(policy) if policy is not None else None,
        )
    except (PolicyError, ValueError) as error:
        typer.echo(f"airunway: {error}", err=True)
        raise typer.Exit(1) from error

    def make(client: Client) -> Application:
        core = CoreApplication(client=client, instance=instance, settings=settings, metrics=metrics)
        if admission is not None:
            core.add(
                Webhook(
                    client,
                    core,
                    admission,
                    namespaces=settings.namespaces,
                    on_review=metrics.on_review,
                    on_turned_away=metrics.on_turned_away(),
                )
            )
        return core

    _run(common, metrics=metrics, instance=instance, make=make)


def run_provider(
    common: Common, *, name: str, settings: Sequence[str], unknown_schema: str, watch_namespaces: str
) -> None:
    """Run one provider until it is told to stop."""
    from airunway.api import names
    from airunway.plugins.errors import PluginError
    from airunway.plugins.registry import load
    from airunway.process.metrics import Metrics
    from airunway.runtime.application import ProviderApplication, ProviderSettings

    if unknown_schema not in ("Verify", "Fail"):
        raise typer.BadParameter(f"--unknown-schema must be Verify or Fail, not {unknown_schema!r}")
    try:
        host = load(name)
        values = parse_settings(settings)
        host.settings(values)  # a wrong one ends the start
    except PluginError as error:
        typer.echo(f"airunway: {error}", err=True)
        raise typer.Exit(1) from error
    try:
        namespaces = _namespaces(watch_namespaces)
    except ValueError as error:
        typer.echo(f"airunway: {error}", err=True)
        raise typer.Exit(1) from error
    configured = ProviderSettings(
        values=values, verify_unknown_schemas=unknown_schema == "Verify", namespaces=namespaces
    )
    instance = _instance()
    metrics = Metrics(names.provider_manager(name))

    def make(client: Client) -> Application:
        return ProviderApplication(client=client, host=host, instance=instance, settings=configured, metrics=metrics)

    _run(common, metrics=metrics, instance=instance, make=make)


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as a map; a value that is JSON is read as such. Raises typer.BadParameter."""
    import orjson

    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
        try:
            values[key] = orjson.loads(value)
        except orjson.JSONDecodeError:
            values[key] = value
    return values


def _run(common: Common, *, metrics: Metrics, instance: str, make: Callable[[Client], Application]) -> None:
    from airunway.kube import ConfigError, load_config
    from airunway.process.logs import configure_logging
    from airunway.process.probes import parse_address
    from airunway.process.shell import ShellSettings, serve

    try:
        addresses = [parse_address(common.health_address), parse_address(common.metrics_address)]
        if addresses[0] is not None and addresses[0] == addresses[1] and addresses[0][1] != 0:
            raise typer.BadParameter("--metrics-bind-address and --health-probe-bind-address must not be the same")
        configure_logging(
            level=common.log_level, json=None if common.log_format is None else common.log_format == "json"
        )
        config = load_config(kubeconfig=common.kubeconfig, context=common.context)
    except (ConfigError, ValueError) as error:
        typer.echo(f"airunway: {error}", err=True)
        raise typer.Exit(1) from error
    settings = ShellSettings(
        component=metrics.component,
        health_address=common.health_address,
        metrics_address=common.metrics_address,
        leader_election=common.leader_elect,
        namespace=_own_namespace(),
        identity=instance,
        ready_file=common.ready_file,
    )
    try:
        asyncio.run(serve(config, make, settings, metrics=metrics))
    except OSError as error:  # an address that is taken; what the API server does comes as KubeError
        typer.echo(f"airunway: {error}", err=True)
        raise typer.Exit(1) from error


def _own_namespace() -> str:
    return os.environ.get("POD_NAMESPACE", "airunway-system")


def _namespaces(text: str) -> tuple[str, ...]:
    """The namespaces of ``a,b``, each once. Raises ValueError for a name that no namespace can have."""
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    for name in names:
        if len(name) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            raise ValueError(f"--watch-namespaces: {name!r} is not the name of a namespace")
    return names


def _instance() -> str:
    """This process among its replicas: the pod's name where there is one."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
