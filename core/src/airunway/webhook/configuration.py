"""The webhook's settings, and its ValidatingWebhookConfiguration.

The chart creates the object without a CA bundle, which we write by server-side apply. Without a chart
(`manage_configuration`) we write the whole object.
"""

from __future__ import annotations

import ssl
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Kind
from airunway.resource import ObjectKey, Resource, dig, entries_at

WEBHOOK = f"validate.modeldeployments.{names.GROUP}"
"""The name of our entry in the ValidatingWebhookConfiguration; refusals contain it."""

CONFIGURATION = "airunway-webhook"
SECRET_NAME = "airunway-webhook-tls"
PATH = "/validate"


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """The webhook's settings. The API server reaches the webhook by `service` or by `url`."""

    bind_address: str
    service: ObjectKey | None = None
    """Name and namespace of the webhook's Service."""
    url: str = ""
    namespace: str = names.DEFAULT_NAMESPACE
    """The namespace of the Secret."""
    secret: str = SECRET_NAME
    """The name of the Secret with the certificates."""
    configuration: str = CONFIGURATION
    """The ValidatingWebhookConfiguration whose CA bundle is written."""
    manage_configuration: bool = False
    """Whether we write the whole configuration; otherwise the chart creates it."""
    access_review: bool = True
    """Whether to check that the user may create the provider's kind."""
    access_review_pods: bool = False
    """Whether to check that the user may create pods."""
    access_review_routes: bool = True
    """Whether to check that a user who asks for a route may create one; only with `access_review`."""
    client_ca: Path | None = None
    """A file with CAs, one of which must have signed a client's certificate; None: any client may connect."""

    @property
    def hosts(self) -> list[str]:
        """The names in the serving certificate; the API server connects to the first."""
        if self.service is None:
            return [urlsplit(self.url).hostname or ""]
        name, namespace = self.service.name, self.service.namespace
        return [f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", f"{name}.{namespace}", name]


def webhook_settings(
    *,
    bind_address: str,
    service: str = "",
    url: str = "",
    namespace: str = names.DEFAULT_NAMESPACE,
    secret: str = SECRET_NAME,
    configuration: str = CONFIGURATION,
    manage_configuration: bool = False,
    access_review: bool = True,
    access_review_pods: bool = False,
    access_review_routes: bool = True,
    client_ca: Path | None = None,
) -> WebhookSettings | None:
    """The settings from the command-line options, or None if the webhook is off (address ``0``).

    `service` is ``NAME.NAMESPACE``, or ``NAME`` for one in `namespace`. Raises ValueError, naming the option.
    """
    if bind_address == "0":
        return None
    if bool(service) == bool(url):
        raise ValueError("--webhook-bind-address needs one of --webhook-service NAME.NAMESPACE and --webhook-url URL")
    if url:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path.rstrip("/") or parts.query:
            raise ValueError(f"--webhook-url must be like https://127.0.0.1:9443, not {url!r}")
        key = None
    else:
        name, _, where = service.partition(".")
        if not name or "." in where:
            raise ValueError(f"--webhook-service must be NAME or NAME.NAMESPACE, not {service!r}")
        key = ObjectKey(where or namespace, name)
    if client_ca is not None:
        trust_clients_of(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), client_ca)
    return WebhookSettings(
        bind_address=bind_address,
        service=key,
        url=url.rstrip("/"),
        namespace=namespace,
        secret=secret,
        configuration=configuration,
        manage_configuration=manage_configuration,
        access_review=access_review,
        access_review_pods=access_review_pods,
        access_review_routes=access_review_routes,
        client_ca=client_ca,
    )


def trust_clients_of(tls: ssl.SSLContext, authorities: Path) -> None:
    """Require client certificates signed by one of these CAs. Raises ValueError for a file without certificates."""
    try:
        tls.load_verify_locations(authorities)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"--webhook-client-ca: no certificates could be read from {authorities}: {error}") from error
    tls.verify_mode = ssl.CERT_REQUIRED


CONFIGURATION_KIND = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)

_HOLDER_COMES = (
    "object.metadata.?finalizers.orValue([]).exists(f, "
    f"f.startsWith('{names.GROUP}/') && f.endsWith('-provider') && "
    f"f != '{names.GROUP}/' + oldObject.?status.?provider.?name.orValue('') + '-provider' && "
    "!(f in oldObject.metadata.?finalizers.orValue([])))"
)
"""CEL: the finalizer of a provider that is not the chosen one is added. No controller does so."""

MATCH_CONDITIONS: tuple[Resource, ...] = (
    {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
    {
        "name": "spec-or-holder-changed",
        "expression": f"oldObject == null || object.spec != oldObject.spec || {_HOLDER_COMES}",
    },
)
"""Conditions for a call of the webhook: deletions, what controllers change, and changes of labels and status never
depend on it, so that `failurePolicy: Fail` can block only new specs, and finalizers by which a provider would be kept.
"""

TIMEOUT_SECONDS = 10
"""Seconds that the API server waits for a verdict."""


def configuration_object(settings: WebhookSettings, *, bundle: bytes, namespaces: Sequence[str] = ()) -> Resource:
    """The whole configuration; `namespaces` restricts it to those (empty: all)."""
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
    """The object to apply so that our webhooks in `live` trust `bundle`; None if it has none of ours."""
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
    """The CA bundle of each of our webhooks; an empty one for a webhook without."""
    return [from_base64(dig(webhook, "clientConfig", "caBundle")) for webhook in webhooks_of(live)]


def from_base64(text: object) -> bytes:
    """The bytes of a base64 text; empty for anything else."""
    try:
        return b64decode(text, validate=True) if isinstance(text, str) else b""
    except (Base64Error, ValueError):
        return b""


def webhooks_of(live: Resource) -> list[Resource]:
    """Our webhooks in a configuration."""
    return [webhook for webhook in entries_at(live, "webhooks") if str(webhook.get("name")).endswith(names.GROUP)]
