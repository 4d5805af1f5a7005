"""The webhook, a source of the core: every replica serves reviews, the leader rotates certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import kopf

from airunway.kube import Client
from airunway.process.connections import OnTurnedAway
from airunway.process.metrics import Point
from airunway.resource import ObjectKey
from airunway.webhook.admission import AccessReviewer, Admission, ClusterView
from airunway.webhook.cert_rotator import SETTLE, CertificateSecret, CertRotator
from airunway.webhook.certificates import RENEWED_BY
from airunway.webhook.configuration import WebhookSettings
from airunway.webhook.server import AdmissionServer, Limits, OnReview


class Webhook:
    """Watches the Secret, serves reviews, and (while leading) rotates certificates; `view` is the core."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        settings: WebhookSettings,
        *,
        namespaces: Sequence[str] = (),
        clock: Callable[[], datetime] | None = None,
        settle: float = SETTLE,
        on_review: OnReview,
        on_turned_away: OnTurnedAway,
        limits: Limits | None = None,
    ) -> None:
        """Raises ValueError for settings that cannot be used."""
        clock = self._clock = clock or (lambda: datetime.now(UTC))
        reviewer = AccessReviewer(client)
        self.admission = Admission(
            view,
            access=reviewer if settings.access_review else None,
            pods=reviewer if settings.access_review_pods else None,
            routes=reviewer if settings.access_review and settings.access_review_routes else None,
        )
        self.server = AdmissionServer(
            self.admission,
            address=settings.bind_address,
            client_ca=settings.client_ca,
            limits=limits,
            on_review=on_review,
            on_turned_away=on_turned_away,
        )
        self._secret = CertificateSecret(client, ObjectKey(settings.namespace, settings.secret))
        self._keeper = CertRotator(
            client,
            self._secret,
            settings,
            clock=clock,
            namespaces=namespaces,
            settle=settle,
        )
        self._secret.on_change(self.server.show)
        self._configuration = settings.configuration
        self._leading = False

    def unready(self) -> str | None:
        """Why reviews cannot be answered yet, or are not sent yet; otherwise None.

        The API server sends them once the configuration trusts our certificate. The leader writes that, and is not
        ready before. Once ready it stays so: being unready would not bring back a configuration that is deleted later.
        """
        if self.server.unready is not None:
            return self.server.unready
        if self._leading and not self._keeper.configured:
            return f"the ValidatingWebhookConfiguration {self._configuration} does not have our certificate yet"
        return None

    def remark(self) -> str | None:
        """What is wrong with the certificates although reviews are answered; otherwise None."""
        kept = self._keeper.remark() if self._leading else None
        return "; ".join(filter(None, (self.server.problem, self._age(), kept))) or None

    def _age(self) -> str:
        ends, now = self.server.certificate_ends, self._clock()
        if ends is None or ends > now + RENEWED_BY:
            return ""
        if ends > now:
            return f"the webhook's certificate ends on {ends:%Y-%m-%d} and is not renewed"
        return f"the webhook's certificate ended on {ends:%Y-%m-%d}: API servers refuse its answers"

    def points(self) -> Iterator[Point]:
        """The metrics that are read: when the certificate that this replica shows ends."""
        if (ends := self.server.certificate_ends) is not None:
            yield "airunway_webhook_certificate_expiry_timestamp_seconds", (), ends.timestamp()

    def register(self, settings: kopf.OperatorSettings) -> None:
        """Let kopf run the admission server."""
        settings.admission.server = self.server

    async def read(self) -> None:
        """Nothing to wait for: the core leads before there are certificates, because its leader makes them."""

    async def run(self) -> None:
        """The work of every replica, until cancelled."""
        await self._secret.follow()

    async def lead(self) -> None:
        """The work of the leader, until cancelled."""
        self._leading = True
        try:
            await self._keeper.run()
        finally:
            self._leading = False
