"""Rotates the webhook's certificates in the leader; the other replicas only watch the Secret with them.

It is the one Secret that we use, in our own namespace. It is the source of truth: the first writer
wins, and every replica watches it.

A new CA is trusted before it is used: its certificate is added to the CA bundles, then the Secret is written, and the
previous CA stays trusted for a while. So no replica ever serves a certificate that the API server does not trust yet.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from airunway.api import names
from airunway.kube import (
    AlreadyExists,
    ApiError,
    Client,
    Conflict,
    Forbidden,
    Kind,
    KubeError,
    NotFound,
    Reflector,
    is_retryable,
    needs_apply,
    retry_after_of,
)
from airunway.resource import ObjectKey, Resource, annotations_of, dig, format_time, labels_of, managed_by, parse_time
from airunway.webhook.certificates import (
    CertificateAction,
    Material,
    authorities_in,
    decide,
    issue_serving,
    new_authority,
    without_previous,
)
from airunway.webhook.configuration import (
    CONFIGURATION_KIND,
    WEBHOOK,
    WebhookSettings,
    bundles_in,
    configuration_object,
    from_base64,
    injection,
)

log = logging.getLogger(__name__)

MANAGER = "airunway-webhook"
"""The field manager of the CA bundle and of the Secret."""

LONGEST_WAIT = timedelta(hours=1)
"""Longest sleep: wall clocks can jump, so the end of a certificate is not awaited in one sleep."""

RETRY = 5.0
"""Seconds until a failed pass is retried."""

_ROUNDS = 3
"""Writes of the Secret in one pass: more are lost only to something that is no other replica."""

SETTLE = 2.0
"""Seconds in which API servers notice a changed CA bundle (they watch it)."""


class CertRotator:
    """Creates and renews the certificates in the Secret, and writes the CA bundles. Only one process runs it at a time.

    If two do (there is no election, or an isolated leader continues), the Secret's resourceVersion decides: the slower
    one gets a conflict and uses what the other wrote.
    """

    def __init__(
        self,
        client: Client,
        secret: CertificateSecret,
        settings: WebhookSettings,
        *,
        clock: Callable[[], datetime],
        namespaces: Sequence[str] = (),
        settle: float = SETTLE,
    ) -> None:
        self._client = client
        self._secret = secret
        self._settings = settings
        self._clock = clock
        self._namespaces = tuple(namespaces)
        self._settle = settle
        self._changed = asyncio.Event()
        self._missing = ""
        self._error = ""
        self.configured = False
        """Whether the configuration has the CA bundle of the Secret."""
        secret.on_change(lambda _: self._changed.set())

    def remark(self) -> str | None:
        """Why the last pass did not bring everything up to date; None if it did."""
        if self._error:
            return f"the webhook's certificates cannot be kept in order: {self._error}"
        return self._missing or None

    async def run(self) -> None:
        """Keep the certificates valid until cancelled; errors are logged and retried."""
        configurations = Reflector(
            self._client, CONFIGURATION_KIND, field_selector=f"metadata.name={self._settings.configuration}"
        )
        configurations.add_handler(lambda _key, _old, _new: self._changed.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(configurations.run(), name="webhook-configuration")
            while True:
                self._changed.clear()
                try:
                    wait = await self.bring_up_to_date()
                except KubeError as error:
                    self._error = str(error)
                    if not is_retryable(error):
                        log.error("the webhook's certificates cannot be kept in order: %s", error)  # noqa: TRY400
                    wait = max(RETRY, retry_after_of(error))
                try:
                    await asyncio.wait_for(self._changed.wait(), wait)
                except TimeoutError:
                    continue

    async def bring_up_to_date(self) -> float:
        """One pass; returns the seconds until the next pass. Raises KubeError."""
        for _ in range(_ROUNDS):
            live = await self._secret.read()
            material = material_of(live) if live is not None else None
            now = self._clock()
            verdict = decide(material, now=now, hosts=self._settings.hosts)
            if verdict.action is not CertificateAction.KEEP:
                # A jump of our own clock must not make replicas replace valid certificates.
                now = await self._server_time(live, now)
                verdict = decide(material, now=now, hosts=self._settings.hosts)
            if verdict.action is CertificateAction.KEEP:
                assert material is not None
                self._note_presence(await self._inject(material.bundle))
                self._error = ""
                again = LONGEST_WAIT if verdict.look_again is None else min(LONGEST_WAIT, verdict.look_again - now)
                return max(1.0, again.total_seconds())
            log.info("webhook certificates: %s, because %s", verdict.action.value, verdict.why)
            renewed = await self._renewed(material, verdict.action, now)
            if not await self._secret.write(renewed, live=live):
                log.info("webhook certificates: another replica wrote the Secret first; its certificates are used")
        self._error = f"Secret {self._secret.key} was refused {_ROUNDS} times in a row, the last time as a conflict"
        log.warning("webhook certificates: %s", self._error)
        return RETRY

    async def _renewed(self, material: Material | None, action: CertificateAction, now: datetime) -> Material:
        hosts = self._settings.hosts
        if action is CertificateAction.NEW_AUTHORITY:
            live = await self._configuration()
            trusted = _united(*bundles_in(live)) if live is not None else b""
            old = material.bundle if material is not None and authorities_in(material.bundle) else trusted
            renewed = new_authority(now=now, hosts=hosts, previous=old)
            if trusted:
                await self._inject(_united(renewed.bundle, trusted), existing_only=True)
                await asyncio.sleep(self._settle)
            return renewed
        assert material is not None
        if action is CertificateAction.ISSUE_SERVING:
            return issue_serving(material, now=now, hosts=hosts)
        return without_previous(material)

    async def _server_time(self, live: Resource | None, ours: datetime) -> datetime:
        """The API server's clock, which is the one that counts: the API server verifies certificates."""
        theirs = await self._secret.server_time(live)
        if theirs is not None and abs(theirs - ours) > timedelta(minutes=5):
            log.warning("this machine's clock differs from the API server's: %s here, %s there", ours, theirs)
        return ours if theirs is None else theirs

    # ------------------------------------------------------------------------------------------ the configuration

    def _note_presence(self, missing: str) -> None:
        if not missing:
            self.configured = True
        elif missing != self._missing:
            log.warning("%s: API servers send nothing to the webhook until it is there (the chart brings it)", missing)
        self._missing = missing

    async def _inject(self, bundle: bytes, *, existing_only: bool = False) -> str:
        """Write `bundle` (or, if we manage it, the whole configuration); what is missing for that, or empty."""
        named = f"{CONFIGURATION_KIND.kind} {self._settings.configuration}"
        live = await self._configuration()
        if self._settings.manage_configuration and not (existing_only and live is None):
            wanted: Resource | None = configuration_object(self._settings, bundle=bundle, namespaces=self._namespaces)
        elif live is not None:
            wanted = injection(live, bundle=bundle)
        else:
            return f"there is no {named}"  # the watch reports when the chart has created it
        if wanted is None:
            return f"{named} has no webhook {WEBHOOK}"
        if needs_apply(wanted, live, manager=MANAGER):
            await self._client.apply(CONFIGURATION_KIND, wanted, manager=MANAGER, force=True)
            log.info("put the CA bundle into the %s", named)
        return ""

    async def _configuration(self) -> Resource | None:
        return await self._client.find(CONFIGURATION_KIND, ObjectKey("", self._settings.configuration))


def _united(*bundles: bytes) -> bytes:
    return b"".join(dict.fromkeys(pem for bundle in bundles for pem in authorities_in(bundle)))


# ------------------------------------------------------------------------------------------------ the Secret

SECRET = Kind("", "v1", "Secret", "secrets")
_CLOCK = f"{names.GROUP}/clock"
_PREVIOUS_UNTIL = f"{names.GROUP}/trust-previous-until"
_FIELDS = {
    "ca.crt": "authority",
    "ca.key": "authority_key",
    "tls.crt": "serving",
    "tls.key": "serving_key",
    "ca-previous.crt": "previous",
}


def material_of(secret: Resource) -> Material:
    """The contents of a Secret; absent or invalid values are empty."""
    parts = {field: from_base64(dig(secret, "data", key)) for key, field in _FIELDS.items()}
    return Material(**parts, previous_until=parse_time(annotations_of(secret).get(_PREVIOUS_UNTIL)))


def secret_of(material: Material, *, key: ObjectKey, live: Resource | None) -> Resource:
    """The Secret with that material; it replaces `live`, whose labels and annotations it keeps."""
    annotations = {k: v for k, v in annotations_of(live or {}).items() if k != _PREVIOUS_UNTIL}
    if material.previous_until is not None:
        annotations[_PREVIOUS_UNTIL] = format_time(material.previous_until)
    metadata: Resource = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {**labels_of(live or {}), names.MANAGED_BY: names.MANAGED_BY_VALUE},
        "annotations": annotations,
    }
    if live is not None:
        metadata |= {field: live["metadata"][field] for field in ("resourceVersion", "uid")}
    data = {entry: b64encode(value).decode() for entry, field in _FIELDS.items() if (value := getattr(material, field))}
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "type": dig(live or {}, "type", default="Opaque"),
        "metadata": metadata,
        "data": data,
    }


class CertificateSecret:
    """Reads, writes and watches the Secret."""

    def __init__(self, client: Client, key: ObjectKey) -> None:
        self._client = client
        self.key = key
        self._reflector = Reflector(client, SECRET, namespace=key.namespace, field_selector=f"metadata.name={key.name}")

    def on_change(self, handler: Callable[[Material | None], None]) -> None:
        """Call `handler` at each change with the Secret's contents (None: it is deleted)."""
        self._reflector.add_handler(
            lambda key, _old, new: handler(material_of(new) if new is not None else None) if key == self.key else None
        )

    async def follow(self) -> None:
        """Watch the Secret until cancelled."""
        await self._reflector.run()

    async def read(self) -> Resource | None:
        """The Secret as the API server has it now, or None."""
        return await self._client.find(SECRET, self.key)

    async def write(self, material: Material, *, live: Resource | None) -> bool:
        """Write the Secret unless another replica wrote since `live` was read (None: absent); whether it was
        written.
        """
        body = secret_of(material, key=self.key, live=live)
        try:
            if live is None:
                await self._client.create(SECRET, body, manager=MANAGER)
            else:
                await self._client.replace(SECRET, body, manager=MANAGER)
        except (AlreadyExists, Conflict):
            return False
        except NotFound:
            if live is None:  # the namespace is missing: no other replica can have written
                raise
            return False
        except Forbidden:
            if live is None:
                log.error(  # noqa: TRY400 - how to fix it; the error itself is raised
                    "Secret %s is not there, and this account may not create it: apply the chart again, or run kubectl "
                    "create secret generic %s --namespace %s",
                    self.key,
                    self.key.name,
                    self.key.namespace,
                )
            raise
        return True

    async def server_time(self, live: Resource | None) -> datetime | None:
        """The API server's clock, from a dry-run write; None if it cannot be read that way.

        A change of the Secret `live` needs no additional right: managedFields has the time of each manager's write.
        Without a Secret, the right to create one is needed anyway.
        """
        asked = f"{MANAGER}-clock"
        try:
            if live is None:
                metadata = {"generateName": f"{self.key.name}-clock-", "namespace": self.key.namespace}
                new: Resource = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "metadata": metadata}
                answer = await self._client.create(SECRET, new, dry_run=True)
                return parse_time(dig(answer, "metadata", "creationTimestamp"))
            annotations = {**annotations_of(live), _CLOCK: asked}
            body = {**live, "metadata": {**live["metadata"], "annotations": annotations}}
            answer = await self._client.replace(SECRET, body, manager=asked, dry_run=True)
        except ApiError as error:
            if is_retryable(error):
                raise
            return None
        return next((parse_time(entry.get("time")) for entry in managed_by(answer, asked)), None)
