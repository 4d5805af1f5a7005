"""The command tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from airunway.cli import processes
from airunway.cli.controlplane import app as controlplane
from airunway.cli.crds import crds
from airunway.cli.explain import explain
from airunway.cli.render import render
from airunway.cli.simulate import simulate
from airunway.cli.validate import validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="airunway",
    help="One Kubernetes API for LLM inference: ModelDeployments, and the providers that run them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
provider = typer.Typer(help="Run and inspect provider plugins.", no_args_is_help=True)
app.add_typer(provider, name="provider")
app.add_typer(controlplane, name="controlplane")
for command in (crds, validate, explain, render, simulate):
    app.command()(command)


@app.command()
def version() -> None:
    """Print the version."""
    from airunway import __version__

    typer.echo(f"airunway {__version__}")


@app.command()
def controller(
    *,
    kubeconfig: processes.Kubeconfig = None,
    context: processes.Context = None,
    enable_provider_selector: Annotated[
        bool, typer.Option(help="Select providers; off: a selector of your own writes status.provider.")
    ] = True,
    watch_namespaces: processes.WatchNamespaces = "",
    policy: Annotated[
        Path | None,
        typer.Option(help="File that says which providers, engines, images and GPU types namespaces may use."),
    ] = None,
    webhook_bind_address: Annotated[
        str, typer.Option(help="Address of the admission webhook, e.g. :9443; 0: none.")
    ] = "0",
    webhook_service: Annotated[
        str, typer.Option(help="Service by which the API server reaches the webhook, as NAME.NAMESPACE.")
    ] = "",
    webhook_url: Annotated[
        str, typer.Option(help="Instead of a Service: URL of the webhook, e.g. https://127.0.0.1:9443.")
    ] = "",
    webhook_secret: Annotated[
        str, typer.Option(help="Secret with the webhook's certificates, in our own namespace.")
    ] = "airunway-webhook-tls",
    webhook_configuration: Annotated[
        str, typer.Option(help="ValidatingWebhookConfiguration whose CA bundle is kept up to date.")
    ] = "airunway-webhook",
    webhook_manage_configuration: Annotated[
        bool,
        typer.Option("--webhook-manage-configuration", help="Write all of that configuration, not only the bundle."),
    ] = False,
    webhook_access_review: Annotated[
        bool, typer.Option(help="Refuse users who may not create the provider's own resource in that namespace.")
    ] = True,
    leader_elect: processes.LeaderElect = False,
    health_probe_bind_address: processes.HealthAddress = "0",
    metrics_bind_address: processes.MetricsAddress = "0",
    log_level: processes.LogLevel = "info",
    log_format: processes.LogFormat = None,
    ready_file: processes.ReadyFile = None,
) -> None:
    """Run the core controller: admission, validation, engine and provider selection."""
    processes.run_controller(
        processes.Common(
            kubeconfig=kubeconfig,
            context=context,
            leader_elect=leader_elect,
            health_address=health_probe_bind_address,
            metrics_address=metrics_bind_address,
            log_level=log_level,
            log_format=log_format,
            ready_file=ready_file,
        ),
        selector=enable_provider_selector,
        watch_namespaces=watch_namespaces,
        policy=policy,
        webhook=processes.WebhookOptions(
            bind_address=webhook_bind_address,
            service=webhook_service,
            url=webhook_url,
            secret=webhook_secret,
            configuration=webhook_configuration,
            manage_configuration=webhook_manage_configuration,
            access_review=webhook_access_review,
        ),
    )


@provider.command("run")
def provider_run(
    name: Annotated[str, typer.Argument(help="The provider's name (its entry point).")],
    *,
    kubeconfig: processes.Kubeconfig = None,
    context: processes.Context = None,
    leader_elect: processes.LeaderElect = False,
    health_probe_bind_address: processes.HealthAddress = "0",
    metrics_bind_address: processes.MetricsAddress = "0",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the provider, KEY=VALUE (a JSON value or text); may be repeated."),
    ] = None,
    unknown_schema: Annotated[
        str, typer.Option(help="What to do about an upstream schema that is not known: Verify or Fail.")
    ] = "Verify",
    watch_namespaces: processes.WatchNamespaces = "",
    log_level: processes.LogLevel = "info",
    log_format: processes.LogFormat = None,
    ready_file: processes.ReadyFile = None,
) -> None:
    """Run one provider: register it, translate its deployments, bring their status back."""
    processes.run_provider(
        processes.Common(
            kubeconfig=kubeconfig,
            context=context,
            leader_elect=leader_elect,
            health_address=health_probe_bind_address,
            metrics_address=metrics_bind_address,
            log_level=log_level,
            log_format=log_format,
            ready_file=ready_file,
        ),
        name=name,
        settings=settings or [],
        unknown_schema=unknown_schema,
        watch_namespaces=watch_namespaces,
    )


@provider.command("list")
def provider_list() -> None:
    """The provider plugins that are installed."""
    from airunway.plugins.registry import discover

    found = discover()
    if not found:
        typer.echo("no provider plugins are installed", err=True)
        raise typer.Exit(1)
    width = max(len(distribution.name) for distribution in found)
    for distribution in found:
        typer.echo(f"{distribution.name:<{width}}  {distribution.distribution} {distribution.version}")


@app.command()
def sandbox(
    *,
    demo: Annotated[bool, typer.Option(help="Apply the samples, show what becomes of them, and end.")] = False,
    level: Annotated[
        str, typer.Option(help="cluster: scheduler, workloads and nodes too; api: no pods, upstreams answer at once.")
    ] = "cluster",
    upstream_crds: Annotated[
        Path | None, typer.Option(help="Install the upstreams' own CRDs from this directory instead of minimal ones.")
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Use this cluster instead of starting one.")] = None,
    context: processes.Context = None,
    keep: Annotated[bool, typer.Option(help="Keep the logs afterwards.")] = False,
) -> None:
    """Run all of AI Runway on this machine: a real control plane, the core, the providers, simulated upstreams."""
    from airunway.cli.sandbox import run_sandbox

    raise typer.Exit(
        run_sandbox(
            demo=demo, level=level, upstream_crds=upstream_crds, kubeconfig=kubeconfig, context=context, keep=keep
        )
    )


def main() -> None:
    """The entry point of the `airunway` and `kubectl airunway` commands."""
    name = Path(sys.argv[0]).name
    app(prog_name="kubectl airunway" if name.startswith("kubectl-") else "airunway")
