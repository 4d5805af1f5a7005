"""Compares the webhook settings that a core publishes with the live configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from airunway.doctor.components import ProcessDeployment
from airunway.resource import ObjectKey, Resource, dig
from airunway.validation.policy import NAMESPACE_NAME, PolicyError, read_selector
from airunway.webhook.configuration import (
    CONFIGURATION,
    SECRET_NAME,
    WebhookSettings,
    configuration_object,
    webhook_settings,
    webhooks_of,
)

__all__ = ["configuration_names", "configuration_of", "disarmed", "services_of", "settings_of", "spared"]

Labels = Mapping[str, Mapping[str, str]]
"""The labels of namespaces, by name."""


def configuration_of(component: ProcessDeployment) -> str:
    """The name of the ValidatingWebhookConfiguration that a core maintains, or would maintain."""
    return component.options.get("webhook-configuration", CONFIGURATION)


def configuration_names(components: Sequence[ProcessDeployment]) -> set[str]:
    """The names of the cores' configurations, and the default one, which an earlier installation may have left."""
    return {CONFIGURATION, *(configuration_of(component) for component in components if component.core)}


def settings_of(component: ProcessDeployment) -> WebhookSettings | None:
    """The webhook that the core serves; None if it serves none, or has not published its settings."""
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
    """The Services that the API server calls for our webhooks."""
    services = (dig(webhook, "clientConfig", "service") for live in configurations for webhook in webhooks_of(live))
    return [ObjectKey(str(service.get("namespace")), str(service.get("name"))) for service in services if service]


def disarmed(live: Resource, settings: WebhookSettings, *, watched: Labels, rules: bool = True) -> Iterator[str]:
    """Why requests bypass the webhook, as sentences, compared with the expected configuration (`configuration_object`).

    `watched` are the namespaces of the core (empty: all). `rules` is whether rules and match conditions are compared,
    which may differ in another release.
    """
    (wanted,) = configuration_object(settings, bundle=b"")["webhooks"]
    for webhook in webhooks_of(live):
        name = webhook.get("name")
        if (policy := webhook.get("failurePolicy")) != wanted["failurePolicy"]:
            yield (
                f"failurePolicy of {name} is {policy}, not {wanted['failurePolicy']}: while the webhook does not "
                "answer, everything passes unchecked."
            )
        if left_out := spared(webhook.get("namespaceSelector"), watched):
            yield f"namespaceSelector of {name} leaves {left_out} out."
        if webhook.get("objectSelector"):
            yield f"objectSelector of {name} leaves out deployments by their labels."
        if rules:
            yield from _uncovered(webhook, wanted)


def spared(selector: object, watched: Labels) -> str:
    """The `watched` namespaces (empty: all) that a selector excludes, as text."""
    try:
        chosen = read_selector(selector, "namespaceSelector")
    except PolicyError:
        return "namespaces that cannot be determined"
    if not watched:
        return "" if not chosen.labels and not chosen.expressions else "all but the selected namespaces"
    return ", ".join(name for name, labels in watched.items() if not chosen.matches({NAMESPACE_NAME: name, **labels}))


def _uncovered(webhook: Resource, wanted: Resource) -> Iterator[str]:
    """The requests for which `wanted` has the API server call the webhook and `webhook` does not, as sentences."""
    name, live = webhook.get("name"), [rule for rule in webhook.get("rules") or () if isinstance(rule, dict)]
    for rule in wanted["rules"]:
        fields = ("apiGroups", "apiVersions", "resources", "operations")
        missing = [
            what
            for what in product(*(rule[field] for field in fields))
            if not any(
                each.get("scope", "*") in ("*", rule["scope"])
                and all({one, "*"} & set(each.get(field) or ()) for field, one in zip(fields, what, strict=True))
                for each in live
            )
        ]
        if missing:
            operations = ", ".join(f"{operation} of {plural}" for _, _, plural, operation in missing)
            yield f"No rule of {name} has {operations}: it passes unchecked."
    known = {condition["expression"] for condition in wanted["matchConditions"]}
    for condition in webhook.get("matchConditions") or ():
        if condition.get("expression") not in known:
            yield (
                f"matchConditions of {name} has {condition.get('name')}, which is not of this release: requests for "
                "which it is false pass unchecked."
            )
