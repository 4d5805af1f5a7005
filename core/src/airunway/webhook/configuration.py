"""The ValidatingWebhookConfiguration: what it must say, and the CA bundle that we put into it.

The chart brings the object and never says anything about the CA bundle, which is ours alone by server-side apply.
Where there is no chart (`manage_configuration`), all of it is ours.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Kind
from airunway.resource import Resource, dig
from airunway.webhook.settings import PATH, WEBHOOK, WebhookSettings

__all__ = [
    "CONFIGURATION_KIND",
    "MATCH_CONDITIONS",
    "TIMEOUT_SECONDS",
    "bundles_in",
    "configuration_object",
    "injection",
    "webhooks_of",
]

CONFIGURATION_KIND = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)

MATCH_CONDITIONS: tuple[Resource, ...] = (
    {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
    {"name": "spec-changed", "expression": "oldObject == null || object.spec != oldObject.spec"},
)
"""When the API server calls us at all: deletion, finalizers, labels and status never depend on the webhook, so that
`failurePolicy: Fail` cannot hold anything back but new specs."""

TIMEOUT_SECONDS = 10
"""How long the API server waits for a verdict."""


def configuration_object(settings: WebhookSettings, *, bundle: bytes, namespaces: Sequence[str] = ()) -> Resource:
    """The whole configuration; `namespaces` limits it to those (empty: all)."""
    client: Resource = {"caBundle": b64encode(bundle).decode()}
    if settings.service is not None:
        service = settings.service
        client["service"] = {"name": service.name, "namespace": service.namespace, "path": PATH, "port": 443}
    else:
        client["url"] = f"{settings.url}{PATH}"
    webhook: Resource = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Fail",
        "matchConditions": [dict(condition) for condition in MATCH_CONDITIONS],
        "matchPolicy": "Equivalent",
        "rules": [
            {
                "apiGroups": [names.GROUP],
                "apiVersions": [names.VERSION],
                "operations": ["CREATE", "UPDATE"],
                "resources": [MODEL_DEPLOYMENT.plural],
                "scope": "Namespaced",
            }
        ],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }
    if namespaces:
        expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(set(namespaces))}
        webhook["namespaceSelector"] = {"matchExpressions": [expression]}
    return {
        "apiVersion": CONFIGURATION_KIND.api_version,
        "kind": CONFIGURATION_KIND.kind,
        "metadata": {"name": settings.configuration, "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE}},
        "webhooks": [webhook],
    }


def injection(live: Resource, *, bundle: bytes) -> Resource | None:
    """What to apply so that our webhooks in `live` trust `bundle`; None if it has none of ours."""
    ours = [str(webhook["name"]) for webhook in webhooks_of(live)]
    if not ours:
        return None
    encoded = b64encode(bundle).decode()
    return {
        "apiVersion": CONFIGURATION_KIND.api_version,
        "kind": CONFIGURATION_KIND.kind,
        "metadata": {"name": live["metadata"]["name"], "uid": live["metadata"]["uid"]},
        "webhooks": [{"name": name, "clientConfig": {"caBundle": encoded}} for name in ours],
    }


def bundles_in(live: Resource) -> list[bytes]:
    """The CA bundle of each of our webhooks; an empty one for a webhook that has none."""
    found = []
    for webhook in webhooks_of(live):
        text = dig(webhook, "clientConfig", "caBundle", default="")
        try:
            found.append(b64decode(text, validate=True) if isinstance(text, str) else b"")
        except (Base64Error, ValueError):
            found.append(b"")
    return found


def webhooks_of(live: Resource) -> list[Resource]:
    """Those of our webhooks that a configuration has."""
    webhooks = live.get("webhooks")
    return [
        webhook
        for webhook in (webhooks if isinstance(webhooks, list) else ())
        if isinstance(webhook, dict) and str(webhook.get("name")).endswith(names.GROUP)
    ]
