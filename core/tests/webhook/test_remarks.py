"""What is wrong with the webhook's certificates stands in `/readyz`, although reviews are answered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.controller.application import CoreApplication
from airunway.kube import Forbidden
from airunway.resource import ObjectKey
from airunway.webhook import WebhookSettings, webhook_settings
from airunway.webhook.application import Webhook
from airunway.webhook.cert_rotator import CertificateSecret, CertRotator
from airunway.webhook.certificates import Material, new_authority

NOW = datetime(2026, 11, 23, 6, 10, tzinfo=UTC)
UNUSED: Any = None  # no API server is asked


def settings() -> WebhookSettings:
    made = webhook_settings(bind_address="127.0.0.1:0", url="https://127.0.0.1:9443", namespace="airunway-system")
    assert made is not None
    return made


def webhook() -> Webhook:
    return Webhook(
        UNUSED, UNUSED, settings(), clock=lambda: NOW, on_review=lambda *_: None, on_turned_away=lambda *_: None
    )


def issued(age: timedelta) -> Material:
    return new_authority(now=NOW - age, hosts=["127.0.0.1"])


@pytest.mark.parametrize(
    ("days", "remark"),
    [
        (0, None),
        (300, None),  # the leader renews it 90 days ahead
        (306, "the webhook's certificate ends on 2027-01-21 and is not renewed"),
        (366, "the webhook's certificate ended on 2026-11-22: API servers refuse its answers"),
    ],
)
def test_a_certificate_that_ends_soon_or_has_ended(days: int, remark: str | None) -> None:
    part = webhook()
    part.server.show(issued(timedelta(days=days)))
    assert part.remark() == remark


def test_a_certificate_that_cannot_be_used() -> None:
    part, good, other = webhook(), issued(timedelta()), issued(timedelta())
    mixed = Material(**{**vars(other), "serving_key": good.serving_key})
    part.server.show(mixed)
    assert "cannot be used" in str(part.server.unready), "there is no earlier one"
    part.server.show(good)
    assert part.remark() is None
    part.server.show(mixed)
    assert str(part.remark()).startswith("the certificate in the webhook's Secret cannot be used: ")
    part.server.show(issued(timedelta()))
    assert part.remark() is None


async def test_a_secret_that_may_not_be_read() -> None:
    class Refusing:
        async def find(self, *_: object) -> None:
            raise Forbidden(403, "Forbidden", "secrets is forbidden")

    client: Any = Refusing()
    secret = CertificateSecret(client, ObjectKey("airunway-system", "tls"))
    keeper = CertRotator(client, secret, settings(), clock=lambda: NOW)
    assert keeper.remark() is None
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        while keeper.remark() is None:
            await asyncio.sleep(0.01)
    running.cancel()
    assert "the webhook's certificates cannot be kept in order: " in str(keeper.remark())
    assert "secrets is forbidden" in str(keeper.remark())


async def test_the_core_shows_the_remark() -> None:
    core, part = CoreApplication(client=UNUSED), webhook()
    core.add(part)
    assert core.remark() is None
    part.server.show(issued(timedelta(days=366)))
    assert core.remark() == part.remark() is not None
