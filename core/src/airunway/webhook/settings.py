"""How the webhook is reached, and by which names it goes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from airunway.api import names
from airunway.resource import ObjectKey

__all__ = ["CONFIGURATION", "PATH", "SECRET_NAME", "WEBHOOK", "WebhookSettings", "trust_clients_of", "webhook_settings"]

WEBHOOK = f"validate.modeldeployments.{names.GROUP}"
"""The name of our entry in the ValidatingWebhookConfiguration; users see it in refusals."""

CONFIGURATION = "airunway-webhook"
SECRET_NAME = "airunway-webhook-tls"
PATH = "/validate"


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """`service` (name and namespace) or `url` is how the API server reaches the webhook.

    `namespace` is where the Secret `secret` lives. `configuration` is the ValidatingWebhookConfiguration whose CA
    bundle is kept up to date; with `manage_configuration` all of it is ours, otherwise it comes with the chart.
    `access_review` asks whether the user may create the provider's kind, `access_review_pods` whether pods.
    `client_ca` is a file with the authorities by which clients must be certified (None: anybody may ask).
    """

    bind_address: str
    service: ObjectKey | None = None
    url: str = ""
    namespace: str = "airunway-system"
    secret: str = SECRET_NAME
    configuration: str = CONFIGURATION
    manage_configuration: bool = False
    access_review: bool = True
    access_review_pods: bool = False
    client_ca: Path | None = None

    @property
    def hosts(self) -> list[str]:
        """The names that the serving certificate must have; the API server asks for the first."""
        if self.service is None:
            return [urlsplit(self.url).hostname or ""]
        name, namespace = self.service.name, self.service.namespace
        return [f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", f"{name}.{namespace}", name]


def webhook_settings(
    *,
    bind_address: str,
    service: str = "",
    url: str = "",
    namespace: str = "airunway-system",
    secret: str = SECRET_NAME,
    configuration: str = CONFIGURATION,
    manage_configuration: bool = False,
    access_review: bool = True,
    access_review_pods: bool = False,
    client_ca: Path | None = None,
) -> WebhookSettings | None:
    """The settings that the command line amounts to, or None for a webhook that is switched off (address ``0``).

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
        client_ca=client_ca,
    )


def trust_clients_of(tls: ssl.SSLContext, authorities: Path) -> None:
    """Have a server ask clients for a certificate by one of these. Raises ValueError for a file that has none."""
    try:
        tls.load_verify_locations(authorities)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"--webhook-client-ca: no certificates could be read from {authorities}: {error}") from error
    tls.verify_mode = ssl.CERT_REQUIRED
