"""Defines the options of the commands that start the core and providers; other commands do not import them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, Literal, cast

import click

from airunway.cli.options import context_option, kubeconfig_option
from airunway.cli.parameters import PATH, F, IntRange, option


def _option(*declarations: str, help: str, **settings: Any) -> Any:
    """A field with its option, whose default is the field's."""
    absent: Any = None if "type" in settings else ""
    return field(
        default=settings.get("default", absent), metadata={"option": option(*declarations, help=help, **settings)}
    )


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every long-running command."""

    kubeconfig: Path | None = field(default=None, metadata={"option": kubeconfig_option})
    context: str | None = field(default=None, metadata={"option": context_option})
    watch_namespaces: str = _option(
        "--watch-namespaces",
        help="Namespaces to work in, separated by commas (default: all). A Role in each is enough then.",
    )
    leader_elect: bool = _option(
        "--leader-elect", is_flag=True, default=False, help="Only one replica works at a time, elected by a Lease."
    )
    health_probe_bind_address: str = _option(
        "--health-probe-bind-address", default="0", help="Address of /livez and /readyz, e.g. :8081; 0: none."
    )
    metrics_bind_address: str = _option(
        "--metrics-bind-address", default="0", help="Address of /metrics, e.g. :8080; 0: none. Not that of the probes."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _option(
        "--log-level",
        default="info",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Lowest level that is logged.",
    )
    log_format: Literal["text", "json"] | None = _option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Format of the log (default: text on a terminal, else json).",
    )
    ready_file: Path | None = _option("--ready-file", type=PATH, hidden=True, help="Create this file once ready.")


@dataclass(frozen=True, kw_only=True)
class CoreOptions:
    """Options of the core and of its parts: `gateway` makes routes, `model_cache` fetches weights."""

    enable_provider_selector: bool = _option(
        "--enable-provider-selector/--no-enable-provider-selector",
        default=True,
        help="Select providers. Off: your own controller sets status.provider.",
    )
    policy: Path | None = _option(
        "--policy",
        type=PATH,
        help="Policy file: what each namespace may use (providers, images, service accounts and more).",
    )
    guard_parameters: bool = _option(
        "--guard-parameters",
        is_flag=True,
        default=False,
        help="List the namespaces with deployments on each InferenceProviderConfig; the guards need it.",
    )
    gateway: Literal["auto", "off"] = _option(
        "--gateway",
        default="auto",
        type=click.Choice(["auto", "off"]),
        help="Make routes. auto: where the Gateway API is installed. off: never; what exists stays.",
    )
    gateway_name: str = _option(
        "--gateway-name",
        help="Gateway of deployments whose runtime config names none, as NAMESPACE/NAME (default: the only one, or "
        "the only one with the label airunway.ai/inference-gateway=true, in the namespaces for Gateways).",
    )
    gateway_namespaces: str = _option(
        "--gateway-namespaces",
        help="Namespaces for Gateways, as a,b: only there a Gateway is chosen that nothing names (default: our own "
        "and those with the label airunway.ai/gateways=allowed).",
    )
    epp_image: str = _option(
        "--epp-image", help="Image of the endpoint pickers of routes (default: the one of this release)."
    )
    epp_version: str = _option("--epp-version", help="Release of that image, such as 0.10, if its tag does not say it.")
    model_cache: Literal["on", "off"] = _option(
        "--model-cache",
        default="on",
        type=click.Choice(["on", "off"]),
        help="Fetch weights once (spec.model.cache, ModelArtifacts) and make the claims of sized volumes. off: "
        "never; what exists stays.",
    )
    downloader_image: str = _option(
        "--downloader-image", help="Image of the Jobs that fetch weights (default: the one of this release)."
    )
    max_downloads: int = _option(
        "--max-downloads",
        default=10,
        type=IntRange(min=1),
        help="Downloads of weights at a time; the others wait. Namespaces take turns; of four and more none takes "
        "the last one while it has another.",
    )
    webhook_bind_address: str = _option(
        "--webhook-bind-address", default="0", help="Address of the admission webhook, e.g. :9443; 0: none."
    )
    webhook_service: str = _option("--webhook-service", help="Service of the webhook, as NAME.NAMESPACE.")
    webhook_url: str = _option(
        "--webhook-url", help="Instead of a Service: URL of the webhook, e.g. https://127.0.0.1:9443."
    )
    webhook_secret: str = _option(
        "--webhook-secret",
        default="airunway-webhook-tls",
        help="Secret with the webhook's certificates, in our own namespace.",
    )
    webhook_configuration: str = _option(
        "--webhook-configuration",
        default="airunway-webhook",
        help="ValidatingWebhookConfiguration whose CA bundle is kept up to date.",
    )
    webhook_manage_configuration: bool = _option(
        "--webhook-manage-configuration",
        is_flag=True,
        default=False,
        help="Manage the whole configuration, not only its CA bundle.",
    )
    webhook_access_review: bool = _option(
        "--webhook-access-review/--no-webhook-access-review",
        default=True,
        help="Refuse users who may not create the provider's own resource in that namespace.",
    )
    webhook_access_review_routes: bool = _option(
        "--webhook-access-review-routes/--no-webhook-access-review-routes",
        default=True,
        help="Refuse users who ask for a route and may not create HTTPRoutes in that namespace; with the access "
        "review only.",
    )
    webhook_access_review_pods: bool = _option(
        "--webhook-access-review-pods",
        is_flag=True,
        default=False,
        help="Refuse users who may not create pods in that namespace.",
    )
    webhook_client_ca: Path | None = _option(
        "--webhook-client-ca",
        type=PATH,
        help="PEM file with the CAs of client certificates; only API servers with such a certificate are accepted.",
    )


@dataclass(frozen=True, kw_only=True)
class ProviderOptions:
    """Options of providers."""

    settings: tuple[str, ...] = _option(
        "settings",
        "--set",
        multiple=True,
        default=(),
        help="A setting of the provider, KEY=VALUE (a JSON value or text); of several PROVIDER.KEY=VALUE. "
        "May be repeated.",
    )
    unknown_schema: Literal["Verify", "Fail"] = _option(
        "--unknown-schema",
        default="Verify",
        type=click.Choice(["Verify", "Fail"]),
        help="How to handle an unknown upstream schema. Verify: use the newest known one if a dry run passes. "
        "Fail: refuse.",
    )


def with_options(**groups: type) -> Callable[[F], F]:
    """A decorator that adds the options of dataclasses: the command gets each dataclass under the name given here."""

    def decorate(command: F) -> F:
        @wraps(command)
        def run(**given: Any) -> None:
            read = {
                name: group(**{each.name: given.pop(each.name) for each in fields(group)})
                for name, group in groups.items()
            }
            command(**read, **given)

        for group in reversed(groups.values()):
            for each in reversed(fields(group)):
                each.metadata["option"](run)
        return cast(F, run)

    return decorate
