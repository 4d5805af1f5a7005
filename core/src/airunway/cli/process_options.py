"""Defines the options of the commands that start the core and providers; other commands do not import them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from airunway.cli.options import Context, Kubeconfig


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every long-running command."""

    kubeconfig: Kubeconfig = None
    context: Context = None
    watch_namespaces: Annotated[
        str,
        typer.Option(help="Namespaces to work in, separated by commas (default: all). A Role in each is enough then."),
    ] = ""
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect", help="Only one replica works at a time, elected by a Lease.")
    ] = False
    health_probe_bind_address: Annotated[
        str, typer.Option(help="Address of /livez and /readyz, e.g. :8081; 0: none.")
    ] = "0"
    metrics_bind_address: Annotated[
        str, typer.Option(help="Address of /metrics, e.g. :8080; 0: none. Not that of the probes.")
    ] = "0"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="Lowest level that is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(help="Format of the log (default: text on a terminal, else json)."),
    ] = None
    ready_file: Annotated[Path | None, typer.Option(hidden=True, help="Create this file once ready.")] = None


@dataclass(frozen=True, kw_only=True)
class CoreOptions:
    """Options of the core and of its parts: `gateway` makes routes, `model_cache` fetches weights."""

    enable_provider_selector: Annotated[
        bool, typer.Option(help="Select providers. Off: your own controller sets status.provider.")
    ] = True
    policy: Annotated[
        Path | None,
        typer.Option(help="Policy file: what each namespace may use (providers, images, service accounts and more)."),
    ] = None
    guard_parameters: Annotated[
        bool,
        typer.Option(
            "--guard-parameters",
            help="List the namespaces with deployments on each InferenceProviderConfig; the guards need it.",
        ),
    ] = False
    gateway: Annotated[
        Literal["auto", "off"],
        typer.Option(help="Make routes. auto: where the Gateway API is installed. off: never; what exists stays."),
    ] = "auto"
    gateway_name: Annotated[
        str,
        typer.Option(
            help="Gateway of deployments whose runtime config names none, as NAMESPACE/NAME (default: the only one, or "
            "the only one with the label airunway.ai/inference-gateway=true, in the namespaces for Gateways)."
        ),
    ] = ""
    gateway_namespaces: Annotated[
        str,
        typer.Option(
            help="Namespaces for Gateways, as a,b: only there a Gateway is chosen that nothing names (default: our own "
            "and those with the label airunway.ai/gateways=allowed)."
        ),
    ] = ""
    epp_image: Annotated[
        str, typer.Option(help="Image of the endpoint pickers of routes (default: the one of this release).")
    ] = ""
    epp_version: Annotated[
        str, typer.Option(help="Release of that image, such as 0.10, if its tag does not say it.")
    ] = ""
    model_cache: Annotated[
        Literal["on", "off"],
        typer.Option(
            help="Fetch weights once (spec.model.cache, ModelArtifacts) and make the claims of sized volumes. off: "
            "never; what exists stays."
        ),
    ] = "on"
    downloader_image: Annotated[
        str, typer.Option(help="Image of the Jobs that fetch weights (default: the one of this release).")
    ] = ""
    max_downloads: Annotated[
        int,
        typer.Option(
            min=1,
            help="Downloads of weights at a time; the others wait. Namespaces take turns; of four and more none takes "
            "the last one while it has another.",
        ),
    ] = 10
    webhook_bind_address: Annotated[
        str, typer.Option(help="Address of the admission webhook, e.g. :9443; 0: none.")
    ] = "0"
    webhook_service: Annotated[str, typer.Option(help="Service of the webhook, as NAME.NAMESPACE.")] = ""
    webhook_url: Annotated[
        str, typer.Option(help="Instead of a Service: URL of the webhook, e.g. https://127.0.0.1:9443.")
    ] = ""
    webhook_secret: Annotated[
        str, typer.Option(help="Secret with the webhook's certificates, in our own namespace.")
    ] = "airunway-webhook-tls"
    webhook_configuration: Annotated[
        str, typer.Option(help="ValidatingWebhookConfiguration whose CA bundle is kept up to date.")
    ] = "airunway-webhook"
    webhook_manage_configuration: Annotated[
        bool,
        typer.Option("--webhook-manage-configuration", help="Manage the whole configuration, not only its CA bundle."),
    ] = False
    webhook_access_review: Annotated[
        bool, typer.Option(help="Refuse users who may not create the provider's own resource in that namespace.")
    ] = True
    webhook_access_review_routes: Annotated[
        bool,
        typer.Option(
            help="Refuse users who ask for a route and may not create HTTPRoutes in that namespace; with the access "
            "review only."
        ),
    ] = True
    webhook_access_review_pods: Annotated[
        bool,
        typer.Option("--webhook-access-review-pods", help="Refuse users who may not create pods in that namespace."),
    ] = False
    webhook_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="PEM file with the CAs of client certificates; only API servers with such a certificate are accepted."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ProviderOptions:
    """Options of providers."""

    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of the provider, KEY=VALUE (a JSON value or text); of several PROVIDER.KEY=VALUE. "
            "May be repeated.",
        ),
    ] = None
    unknown_schema: Annotated[
        Literal["Verify", "Fail"],
        typer.Option(
            help="How to handle an unknown upstream schema. Verify: use the newest known one if a dry run passes. "
            "Fail: refuse."
        ),
    ] = "Verify"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator for Typer commands: each argument that is a dataclass of options becomes its fields.

    The command's own options come first.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: each.annotation for name, each in parameters.items() if is_dataclass(each.annotation)
    }
    fields = {name: dict(inspect.signature(group, eval_str=True).parameters) for name, group in groups.items()}
    options = {name: each for name, each in parameters.items() if name not in groups}
    for shared in fields.values():
        options |= shared

    def run(**given: Any) -> None:
        read = {name: group(**{field: given.pop(field) for field in fields[name]}) for name, group in groups.items()}
        command(**read, **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    return run
