"""Reads and writes the one Secret that we use: the webhook's own certificates, in our own namespace (spec ruling 20).

The Secret is the source of truth: the first writer wins, and every replica watches it.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from datetime import datetime

from airunway.api import names
from airunway.kube import AlreadyExists, ApiError, Client, Conflict, Forbidden, Kind, NotFound, Reflector, is_retryable
from airunway.resource import ObjectKey, Resource, annotations_of, dig, format_time, labels_of, parse_time
from airunway.webhook.certificates import Material

__all__ = ["SECRET", "CertificateSecret", "material_of", "secret_of"]

log = logging.getLogger(__name__)

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
    parts = {field: _decoded(dig(secret, "data", key)) for key, field in _FIELDS.items()}
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

    def __init__(self, client: Client, key: ObjectKey, *, manager: str) -> None:
        self._client = client
        self._manager = manager
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
                await self._create(body)
            else:
                await self._client.replace(SECRET, body, manager=self._manager)
        except (AlreadyExists, Conflict, NotFound):
            return False
        return True

    async def _create(self, body: Resource) -> None:
        try:
            await self._client.create(SECRET, body, manager=self._manager)
        except Forbidden:
            log.error(  # noqa: TRY400 - how to fix it; the error itself is raised
                "Secret %s is not there, and this account may not create it: apply the chart again, or run kubectl "
                "create secret generic %s --namespace %s",
                self.key,
                self.key.name,
                self.key.namespace,
            )
            raise

    async def server_time(self, live: Resource | None) -> datetime | None:
        """The API server's clock, from a dry-run write; None if it cannot be read that way.

        A change of the Secret `live` needs no additional right: managedFields has the time of each manager's write.
        Without a Secret, the right to create one is needed anyway.
        """
        asked = f"{self._manager}-clock"
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
        entries = dig(answer, "metadata", "managedFields", default=[])
        return next((parse_time(entry.get("time")) for entry in entries if entry.get("manager") == asked), None)


def _decoded(value: object) -> bytes:
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else b""
    except (Base64Error, ValueError):
        return b""
