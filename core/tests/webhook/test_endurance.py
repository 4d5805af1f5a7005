"""What the webhook withstands: new certificates under load, many reviews, any body, and its own end."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from core.tests.webhook.conftest import Deployment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.reviews import WebhookClient, review_of
from tests.support.webhook import running_webhook

from airunway.controller.application import CoreApplication, CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import ApiError, Client
from airunway.resource import ObjectKey, dig
from airunway.webhook import WebhookSettings
from airunway.webhook.cert_rotator import SECRET
from airunway_testing.eventually import PATIENCE

pytestmark = pytest.mark.apiserver


async def test_certificates_change_under_load_and_no_request_fails(
    core: CoreApplication, client: Client, place: WebhookSettings, deployment: Deployment
) -> None:
    key = ObjectKey(place.namespace, place.secret)
    first = await client.get(SECRET, key)
    done = asyncio.Event()
    asked = 0

    async def ask() -> None:
        nonlocal asked
        while not done.is_set():
            await client.create(MODEL_DEPLOYMENT, deployment(), dry_run=True)
            asked += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(ask())
        await client.delete(SECRET, key)
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(ApiError):
                    if (await client.get(SECRET, key))["metadata"]["uid"] != dig(first, "metadata", "uid"):
                        break
                await asyncio.sleep(0.02)
        before = asked
        async with asyncio.timeout(PATIENCE):
            while asked < before + 40:
                await asyncio.sleep(0.02)
        done.set()
    async with WebhookClient(client, place) as asking:  # trusts the new Secret only: the new certificate is shown
        assert await asking.problems(deployment()) == []


async def test_reviews_leave_nothing_behind(webhook: WebhookClient, deployment: Deployment) -> None:
    """kopf keeps a record for each uid of the updates that pass through it: none do."""

    def records() -> int:
        gc.collect()
        return sum(type(obj).__name__ in ("ResourceMemory", "Memo") for obj in gc.get_objects())

    before = records()
    for number in range(200):
        old = deployment(suspend=False)
        old["metadata"]["uid"] = f"uid-{number}"
        new = deployment(suspend=True)
        new["metadata"]["uid"] = f"uid-{number}"
        assert await webhook.problems(new, old=old) == []
    assert records() <= before + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


async def test_any_body_gets_a_clear_answer(webhook: WebhookClient, deployment: Deployment) -> None:
    good = review_of(deployment())
    bodies: list[Any] = []

    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(JSON, st.sampled_from(["", "kind", *good["request"]]), st.sampled_from(["", *deployment(), "x"]))
    def collect(junk: Any, field: str, inner: str) -> None:
        body = orjson.loads(orjson.dumps(good))
        if not field:
            body = junk
        elif field == "kind":
            body["kind"] = junk
        elif field == "object" and inner:
            body["request"]["object"][inner] = junk
        else:
            body["request"][field] = junk
        bodies.append(body)

    collect()
    for body in bodies:
        try:
            encoded = orjson.dumps(body)
        except TypeError:
            continue  # an integer that does not fit 64 bits
        status, answer = await webhook.post(encoded)
        assert status in (200, 400), (status, answer, body)
    for raw in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        assert (await webhook.post(raw))[0] == 400
    assert (await webhook.post(orjson.dumps(good), path="/other"))[0] == 404
    assert (await webhook.post(b" " * (17 * 2**20)))[0] == 413
    assert await webhook.problems(deployment()) == []


@contextmanager
def counting_threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    deadline = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_it_ends_without_leaving_anything(
    kubeconfig: Path, place: WebhookSettings, namespace: str, installed: None
) -> None:
    with counting_threads(), running_webhook(kubeconfig, place, settings=CoreSettings(namespaces=(namespace,))):
        pass
