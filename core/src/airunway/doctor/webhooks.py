"""The webhook as the command line of the core has it, and what its configuration says. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airunway.doctor.components import Component
from airunway.resource import ObjectKey, Resource, dig
from airunway.webhook.configuration import webhooks_of
from airunway.webhook.settings import CONFIGURATION, SECRET_NAME, WebhookSettings, webhook_settings

__all__ = ["configuration_names", "configuration_of", "services_of", "settings_of"]


def configuration_of(component: Component) -> str:
    """The name of the ValidatingWebhookConfiguration that a core keeps, or would keep."""
    return component.options.get("webhook-configuration", CONFIGURATION)


def configuration_names(components: Sequence[Component]) -> set[str]:
    """The configurations that matter: each core's, and the usual one, which may have been left behind."""
    return {CONFIGURATION, *(configuration_of(component) for component in components if component.core)}


def settings_of(component: Component) -> WebhookSettings | None:
    """The webhook that the core is told to serve; None for none, or for options with which it does not even start."""
    options = component.options
    try:
        return webhook_settings(
            bind_address=options.get("webhook-bind-address", "0"),
            service=options.get("webhook-service", ""),
            url=options.get("webhook-url", ""),
            namespace=component.key.namespace,
            secret=options.get("webhook-secret", SECRET_NAME),
            configuration=configuration_of(component),
            manage_configuration=component.on("webhook-manage-configuration"),
            access_review=options.get("webhook-access-review") != "false",
            access_review_pods=component.on("webhook-access-review-pods"),
        )
    except ValueError:
        return None


def services_of(configurations: Iterable[Resource]) -> list[ObjectKey]:
    """The Services by which the API server reaches our webhooks."""
    services = (dig(webhook, "clientConfig", "service") for live in configurations for webhook in webhooks_of(live))
    return [ObjectKey(str(service.get("namespace")), str(service.get("name"))) for service in services if service]
