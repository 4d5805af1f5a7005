"""Checks 03: the webhook that a core serves, compared with the live configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import product

from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import ProcessDeployment, Snapshot
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig
from airunway.validation.policy import NAMESPACE_NAME, PolicyError, read_selector
from airunway.webhook.certificates import RENEWED_BY, ROTATE_AHEAD, authority_ends
from airunway.webhook.configuration import (
    CONFIGURATION,
    CONFIGURATION_KIND,
    SECRET_NAME,
    WebhookSettings,
    bundles_in,
    configuration_object,
    webhook_settings,
    webhooks_of,
)


def configuration_names(components: Sequence[ProcessDeployment]) -> set[str]:
    """The names of the cores' configurations, and the default one, which an earlier installation may have left."""
    return {CONFIGURATION, *(_configuration_of(component) for component in components if component.core)}


def _configuration_of(core: ProcessDeployment) -> str:
    return core.options.get("webhook-configuration", CONFIGURATION)


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
            configuration=_configuration_of(component),
            manage_configuration=component.on("webhook-manage-configuration"),
            access_review=options.get("webhook-access-review") != "false",
            access_review_pods=component.on("webhook-access-review-pods"),
            access_review_routes=options.get("webhook-access-review-routes") != "false",
        )
    except ValueError:
        return None


def services_of(configurations: Iterable[Resource]) -> list[ObjectKey]:
    """The Services that the API server calls for our webhooks."""
    services = (dig(webhook, "clientConfig", "service") for live in configurations for webhook in webhooks_of(live))
    return [ObjectKey(str(service.get("namespace")), str(service.get("name"))) for service in services if service]


def _name(configuration: str) -> str:
    return f"{CONFIGURATION_KIND.kind}/{configuration}"


def _serving(seen: Snapshot) -> Iterator[tuple[ProcessDeployment, WebhookSettings, Resource | None]]:
    """The cores that serve the webhook, each with its settings and its live configuration (None: it does not exist)."""
    for core in seen.cores:
        if (settings := settings_of(core)) is not None:
            yield core, settings, (seen.configurations or {}).get(settings.configuration)


def _authorities(seen: Snapshot) -> Iterator[tuple[str, bytes, datetime | None]]:
    """The CA bundles of live configurations: the configuration's name in a finding, the bundle, and when it ends."""
    for _, settings, live in _serving(seen):
        for bundle in bundles_in(live or {}):
            yield _name(settings.configuration), bundle, authority_ends(bundle)


@error(
    "ARW0301",
    "The webhook is served, but the API server does not call it",
    why="Without its ValidatingWebhookConfiguration the API server sends it nothing: providers, rights and policy of a "
    "namespace are not checked at admission.",
    do="Install it with the chart, or start the core with --webhook-manage-configuration.",
    needs=("components", "configurations"),
)
def _uncalled(seen: Snapshot) -> Iterator[Found]:
    for core, settings, live in _serving(seen):
        if live is None:
            yield Found(_name(settings.configuration), f"It is not there; {core.key.name} serves the webhook.")
        elif not webhooks_of(live):
            yield Found(_name(settings.configuration), "It has no webhook of AI Runway in it.")


@error(
    "ARW0302",
    "The API server trusts no certificate of the webhook",
    why="A call to a webhook without a CA bundle fails, and with failurePolicy Fail every new spec is refused.",
    do="The core's leader puts the bundle in. If it leads, its log says what keeps it: most often the right to patch "
    "this object by name, or a tool that writes caBundle.",
    needs=("components", "configurations"),
)
def _untrusted(seen: Snapshot) -> Iterator[Found]:
    for name, bundle, ends in _authorities(seen):
        if ends is None:
            yield Found(name, "Its caBundle holds no certificate." if bundle else "It has no caBundle.")


@error(
    "ARW0303",
    "The webhook's authority has ended",
    why="The API server refuses its certificate, and with failurePolicy Fail every new spec is refused.",
    do="Restart the core, which makes a new one; look at its log for what kept the leader from doing so in time.",
    needs=("components", "configurations"),
)
def _ended(seen: Snapshot) -> Iterator[Found]:
    for name, _, ends in _authorities(seen):
        if ends is not None and ends <= seen.now:
            yield Found(name, f"Every certificate in its caBundle ended by {ends:%Y-%m-%d}.")


@warning(
    "ARW0304",
    "The webhook's authority is not renewed",
    why=f"The leader renews it {ROTATE_AHEAD.days} days ahead, and has not. When it ends, new specs are refused.",
    do="Look at the log of the core's leader: it says what keeps it (the Secret, or the right to patch this object).",
    needs=("components", "configurations"),
)
def _forgotten(seen: Snapshot) -> Iterator[Found]:
    for name, _, ends in _authorities(seen):
        if ends is not None and seen.now < ends <= seen.now + RENEWED_BY:
            yield Found(name, f"Its caBundle ends on {ends:%Y-%m-%d}.")


@error(
    "ARW0305",
    "The webhook's Service has no ready endpoint",
    why="The API server has no pod to send reviews to, and with failurePolicy Fail every new spec is refused.",
    do="Compare the Service's selector and port with the core's pods; a pod that is not ready is no endpoint.",
    needs=("components", "configurations", "endpoints"),
)
def _unreachable(seen: Snapshot) -> Iterator[Found]:
    for _, settings, live in _serving(seen):
        for key in dict.fromkeys(services_of([live] if live else [])):
            count = (seen.endpoints or {}).get(key)
            if not count:
                what = "It is not there." if count is None else "It has no ready endpoint."
                yield Found(f"Service/{key}", f"{what} {settings.configuration} points to it.")


@error(
    "ARW0306",
    "The API server cannot call a webhook that deployments pass",
    why="It was tried with a creation (dry run). No ModelDeployment can be created or changed.",
    do="Read its words: x509 means certificate or caBundle; refused or timeout means Service, pods or NetworkPolicy. "
    "If the webhook is not ours, its owner has to put it right.",
    needs=("call",),
)
def _failing(seen: Snapshot) -> Iterator[Found]:
    if seen.call:
        yield Found("ModelDeployment", bounded(seen.call, 500))


@error(
    "ARW0307",
    "A webhook configuration was left behind",
    why="The API server asks a webhook that no core here serves: with failurePolicy Fail every new spec is refused.",
    do="Delete the configuration, or switch the webhook on (--webhook-bind-address; in charts: webhook.enabled).",
    needs=("components", "configurations"),
)
def _left(seen: Snapshot) -> Iterator[Found]:
    if not seen.cores or not all(core.known for core in seen.cores):
        return
    served = {settings.configuration for _, settings, _ in _serving(seen)}
    for name, live in (seen.configurations or {}).items():
        services = services_of([live])
        ours = any(key.namespace == seen.namespace for key in services) or (name == CONFIGURATION and not services)
        if name not in served and ours and webhooks_of(live):
            yield Found(_name(name), "It calls a webhook that no core in this namespace serves.")


@error(
    "ARW0308",
    "The webhook is disarmed",
    why="Specs that it would refuse are taken. The core still judges them, after they are stored; what depends on the "
    "user, who may not be allowed to create the provider's resources, is not checked at all.",
    do="Put the configuration back as the chart has it (helm upgrade with the same values; airunway upgrade), and find "
    "who changed it: `kubectl get validatingwebhookconfiguration NAME -o yaml --show-managed-fields`.",
    needs=("components", "configurations", "namespaces"),
)
def _disarmed(seen: Snapshot) -> Iterator[Found]:
    for core, settings, live in _serving(seen):
        watched = {name: seen.labels_of(name) for name in core.watched}
        for what in _bypasses(live or {}, settings, watched=watched, rules=core.comparable):
            yield Found(_name(settings.configuration), what)


def _bypasses(
    live: Resource, settings: WebhookSettings, *, watched: Mapping[str, Mapping[str, str]], rules: bool
) -> Iterator[str]:
    """Why requests bypass the webhook, as sentences, compared with the expected configuration (`configuration_object`).

    `watched` are the namespaces of the core with their labels (empty: all). `rules` is whether rules and match
    conditions are compared, which may differ in another release.
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


def spared(selector: object, watched: Mapping[str, Mapping[str, str]]) -> str:
    """The `watched` namespaces (with their labels; empty: all) that a selector excludes, as text."""
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
