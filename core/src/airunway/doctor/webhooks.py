"""The webhook as the command line of the core has it, what its configuration says, and the guards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airunway.api import names
from airunway.cel import CelError, compile_expression
from airunway.doctor.components import Component
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.webhook.configuration import webhooks_of
from airunway.webhook.guard import GUARD
from airunway.webhook.settings import CONFIGURATION, SECRET_NAME, WebhookSettings, webhook_settings

__all__ = ["configuration_names", "configuration_of", "is_guard", "services_of", "settings_of", "shuts_out"]


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


def is_guard(policy: Resource) -> bool:
    """Whether a ValidatingAdmissionPolicy is about AI Runway's kinds, or was made by us for those of upstreams."""
    rules = dig(policy, "spec", "matchConstraints", "resourceRules", default=[])
    ours = any(names.GROUP in dig(rule, "apiGroups", default=[]) for rule in rules)
    return ours or key_of(policy).name.startswith(f"{GUARD}-")


def shuts_out(policy: Resource, user: str) -> bool:
    """Whether a policy keeps this account from the status of every ModelDeployment (`guard.status_guard` makes one).

    A condition that cannot be evaluated here shuts nobody out.
    """
    rules = dig(policy, "spec", "matchConstraints", "resourceRules", default=[])
    resources = [resource for rule in rules for resource in dig(rule, "resources", default=[])]
    verdicts = [dig(each, "expression") for each in dig(policy, "spec", "validations", default=[])]
    if resources != [f"{MODEL_DEPLOYMENT.plural}/status"] or set(verdicts) != {"false"}:
        return False
    request = {"request": {"userInfo": {"username": user}}}
    conditions = dig(policy, "spec", "matchConditions", default=[])
    try:
        return all(
            compile_expression(str(dig(each, "expression")), variables=["request"]).evaluate(request) is True
            for each in conditions
        )
    except CelError:
        return False


def services_of(configurations: Iterable[Resource]) -> list[ObjectKey]:
    """The Services by which the API server reaches our webhooks."""
    services = (dig(webhook, "clientConfig", "service") for live in configurations for webhook in webhooks_of(live))
    return [ObjectKey(str(service.get("namespace")), str(service.get("name"))) for service in services if service]
