"""The command tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from airunway.cli import processes
from airunway.cli.crds import crds
from airunway.cli.development import CommandTree, ProviderTree
from airunway.cli.explain import explain
from airunway.cli.flags import SwitchCommand
from airunway.cli.render import render
from airunway.cli.validate import validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="airunway",
    cls=CommandTree,
    help="One Kubernetes API for LLM inference: ModelDeployments, and the providers that run them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options off at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
provider = typer.Typer(cls=ProviderTree, help="Run, inspect and write provider plugins.", no_args_is_help=True)
app.add_typer(provider, name="provider")
for command, summary in (
    (crds, "Print the CustomResourceDefinitions as YAML."),
    (validate, "Check manifests as the API server would, without one."),
    (explain, "Say why a deployment gets its engine and provider, or none."),
    (render, "Print what a provider would create, without a cluster."),
):
    app.command(short_help=summary)(command)


@app.command()
def version() -> None:
    """Print the version."""
    from airunway import __version__

    typer.echo(f"airunway {__version__}")


@app.command(short_help="Run the core controller.", cls=SwitchCommand)
@processes.with_common
def controller(
    common: processes.Common,
    *,
    enable_provider_selector: Annotated[
        bool, typer.Option(help="Select providers; off: a selector of your own writes status.provider.")
    ] = True,
    watch_namespaces: processes.WatchNamespaces = "",
    policy: Annotated[
        Path | None,
        typer.Option(help="File that says what namespaces may use: providers, images, service accounts and more."),
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
    webhook_access_review_pods: Annotated[
        bool,
        typer.Option("--webhook-access-review-pods", help="Refuse users who may not create pods in that namespace."),
    ] = False,
    webhook_client_ca: Annotated[
        Path | None,
        typer.Option(help="File with the authorities (PEM) by which the API server must be certified to the webhook."),
    ] = None,
) -> None:
    """Run the core controller: admission, validation, engine and provider selection."""
    processes.run_controller(
        common,
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
            access_review_pods=webhook_access_review_pods,
            client_ca=webhook_client_ca,
        ),
    )


@provider.command("run", cls=SwitchCommand)
@processes.with_common
def provider_run(
    common: processes.Common,
    name: Annotated[str, typer.Argument(help="The provider's name (its entry point).")],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the provider, KEY=VALUE (a JSON value or text); may be repeated."),
    ] = None,
    unknown_schema: Annotated[
        Literal["Verify", "Fail"],
        typer.Option(
            help="What to do about an upstream schema that is not known. Verify: use the newest that is, if a dry-run "
            "passes. Fail: refuse."
        ),
    ] = "Verify",
    watch_namespaces: processes.WatchNamespaces = "",
) -> None:
    """Run one provider: register it, translate its deployments, bring their status back."""
    processes.run_provider(
        common,
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


def main() -> None:
    """The entry point of the `airunway` and `kubectl airunway` commands."""
    name = Path(sys.argv[0]).name
    app(prog_name="kubectl airunway" if name.startswith("kubectl-") else "airunway")
