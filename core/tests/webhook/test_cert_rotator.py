"""The leader's part on a real API server: one authority whoever else writes, trusted before it is used."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import Client, Conflict, NotFound, load_config
from airunway.resource import ObjectKey, Resource, dig
from airunway.webhook.cert_rotator import RETRY, SECRET, CertificateSecret, CertRotator, material_of, secret_of
from airunway.webhook.certificates import AUTHORITY_LIFETIME, Material, authorities_in, new_authority
from airunway.webhook.configuration import (
    CONFIGURATION_KIND,
    WEBHOOK,
    WebhookSettings,
    bundles_in,
    configuration_object,
)
from airunway_testing.eventually import PATIENCE, eventually

pytestmark = pytest.mark.apiserver

YEAR = timedelta(days=365)
MANAGER = "airunway-webhook"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One Secret and one configuration of their own, and what is to be known of them."""

    client: Client
    settings: WebhookSettings

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.settings.namespace, self.settings.secret)

    def keeper(self, *, clock: Callable[[], datetime] | None = None) -> CertRotator:
        """A keeper as one replica has it."""
        return CertRotator(
            self.client,
            CertificateSecret(self.client, self.key),
            self.settings,
            clock=clock or (lambda: datetime.now(UTC)),
            settle=0.05,
        )

    async def secret(self) -> Resource:
        return await self.client.get(SECRET, self.key)

    async def material(self) -> Material:
        return material_of(await self.secret())

    async def put(self, material: Material) -> None:
        await self.client.create(SECRET, secret_of(material, key=self.key, live=None))

    async def configuration(self) -> Resource:
        return await self.client.get(CONFIGURATION_KIND, ObjectKey("", self.settings.configuration))

    async def trusted(self) -> list[bytes]:
        """The authorities in the CA bundle of our webhook."""
        return authorities_in(bundles_in(await self.configuration())[0])

    async def install(self, *, more: list[Resource] | None = None) -> None:
        """The configuration as a chart brings it: without a CA bundle, and (for the sake of other tests) idle."""
        wanted = configuration_object(self.settings, bundle=b"")
        webhook = wanted["webhooks"][0]
        del webhook["clientConfig"]["caBundle"]
        webhook |= {"failurePolicy": "Ignore", "objectSelector": {"matchLabels": {"never": "there"}}}
        wanted["webhooks"] += more or []
        await self.client.apply(CONFIGURATION_KIND, wanted, manager="helm", force=True)


@pytest.fixture
async def place(client: Client, namespace: str) -> AsyncIterator[Place]:
    settings = WebhookSettings(
        bind_address="127.0.0.1:9443",
        service=ObjectKey(namespace, "hook"),
        namespace=namespace,
        configuration=f"hook-{namespace}",
    )
    yield Place(client=client, settings=settings)
    with suppress(NotFound):
        await client.delete(CONFIGURATION_KIND, ObjectKey("", settings.configuration))


async def test_the_first_pass_makes_everything_and_the_second_writes_nothing(place: Place) -> None:
    await place.install()
    await place.keeper().bring_up_to_date()
    made = await place.material()
    assert await place.trusted() == [made.authority]
    versions = [obj["metadata"]["resourceVersion"] for obj in (await place.secret(), await place.configuration())]
    await place.keeper().bring_up_to_date()
    assert versions == [
        obj["metadata"]["resourceVersion"] for obj in (await place.secret(), await place.configuration())
    ]


async def test_of_the_chart_s_configuration_only_the_bundle_is_ours(place: Place) -> None:
    others = {**configuration_object(place.settings, bundle=b"")["webhooks"][0], "name": "other.example.com"}
    others |= {"failurePolicy": "Ignore", "objectSelector": {"matchLabels": {"never": "there"}}}
    del others["clientConfig"]["caBundle"]
    await place.install(more=[others])
    await place.keeper().bring_up_to_date()
    live = await place.configuration()
    ours = next(e for e in live["metadata"]["managedFields"] if e["manager"] == MANAGER)
    key = f'k:{{"name":"{WEBHOOK}"}}'
    assert ours["fieldsV1"] == {"f:webhooks": {key: {".": {}, "f:clientConfig": {"f:caBundle": {}}, "f:name": {}}}}
    assert "caBundle" not in live["webhooks"][1]["clientConfig"]
    await place.install(more=[others])  # as helm does at each upgrade: no conflict, and the bundle stays
    assert await place.trusted() == [(await place.material()).authority]


async def test_without_a_configuration_the_secret_is_made_all_the_same(place: Place) -> None:
    await place.keeper().bring_up_to_date()
    assert (await place.material()).serving
    with pytest.raises(NotFound):
        await place.configuration()


async def test_two_replicas_that_race_end_with_one_authority(place: Place) -> None:
    await place.install()
    for _ in range(5):
        with suppress(NotFound):
            await place.client.delete(SECRET, place.key)
        keepers = [place.keeper() for _ in range(3)]
        await asyncio.gather(*(keeper.bring_up_to_date() for keeper in keepers))
        version = (await place.secret())["metadata"]["resourceVersion"]
        await asyncio.gather(*(keeper.bring_up_to_date() for keeper in keepers))
        secret = await place.secret()
        assert secret["metadata"]["resourceVersion"] == version
        assert material_of(secret).authority in await place.trusted()


async def test_a_secret_that_was_deleted(place: Place) -> None:
    """The API server trusts the new authority before the Secret shows it, and the old one on for a while."""
    await place.install()
    await place.keeper().bring_up_to_date()
    before = await place.material()
    await place.client.delete(SECRET, place.key)
    await place.keeper().bring_up_to_date()
    after = await place.material()
    assert after.authority != before.authority
    assert await place.trusted() == [after.authority, before.authority]
    trusted_at = int((await place.configuration())["metadata"]["resourceVersion"])
    assert trusted_at < int((await place.secret())["metadata"]["resourceVersion"])


async def test_an_authority_that_has_ended(place: Place) -> None:
    long_ago = datetime.now(UTC) - AUTHORITY_LIFETIME - YEAR
    ended = new_authority(now=long_ago, hosts=place.settings.hosts)
    await place.put(ended)
    await place.install()
    await place.keeper().bring_up_to_date()
    made = await place.material()
    assert made.authority != ended.authority
    assert await place.trusted() == [made.authority]


async def test_a_serving_certificate_that_ends_soon_keeps_its_authority(place: Place) -> None:
    old = new_authority(now=datetime.now(UTC) - timedelta(days=300), hosts=place.settings.hosts)
    await place.put(old)
    await place.install()
    await place.keeper().bring_up_to_date()
    made = await place.material()
    assert made.authority == old.authority
    assert made.serving != old.serving
    assert await place.trusted() == [old.authority]


async def test_the_previous_authority_goes_when_its_time_is_over(place: Place) -> None:
    now = datetime.now(UTC)
    old = new_authority(now=now, hosts=place.settings.hosts)
    both = new_authority(
        now=now - timedelta(hours=2), hosts=place.settings.hosts, previous=old.bundle, overlap=timedelta(hours=1)
    )
    await place.put(both)
    await place.install()
    await place.keeper().bring_up_to_date()
    assert await place.trusted() == [both.authority]
    assert (await place.material()).previous == b""


@pytest.mark.parametrize("jump", [11 * YEAR, -5 * YEAR, 300 * timedelta(days=1)])
async def test_a_clock_that_jumps_here_changes_nothing(place: Place, jump: timedelta) -> None:
    await place.install()
    await place.keeper().bring_up_to_date()
    before = await place.secret()
    wait = await place.keeper(clock=lambda: datetime.now(UTC) + jump).bring_up_to_date()
    assert (await place.secret())["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert 0 < wait <= 3600


async def test_what_is_first_made_under_a_wrong_clock_is_good_by_the_api_server_s(place: Place) -> None:
    await place.keeper(clock=lambda: datetime.now(UTC) + 11 * YEAR).bring_up_to_date()
    version = (await place.secret())["metadata"]["resourceVersion"]
    await place.keeper().bring_up_to_date()
    assert (await place.secret())["metadata"]["resourceVersion"] == version


async def test_a_garbled_secret_is_made_anew_and_keeps_what_others_wrote(place: Place) -> None:
    garbled = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": place.key.name, "namespace": place.key.namespace, "labels": {"their": "own"}},
        "data": {"ca.crt": b64encode(b"garbage").decode()},
    }
    await place.client.create(SECRET, garbled)
    await place.keeper().bring_up_to_date()
    secret = await place.secret()
    assert material_of(secret).serving
    assert dig(secret, "metadata", "labels", "their") == "own"


async def test_a_write_that_comes_too_late_is_none(place: Place) -> None:
    secret = CertificateSecret(place.client, place.key)
    first = new_authority(now=datetime.now(UTC), hosts=place.settings.hosts)
    assert await secret.write(first, live=None)
    live = await secret.read()
    assert not await secret.write(first, live=None)
    assert await secret.write(first, live={**(live or {}), "metadata": {**(live or {})["metadata"]}})
    newer = {**first.__dict__, "previous": b"x"}
    assert await secret.write(Material(**newer), live=await secret.read())
    assert not await secret.write(first, live=live)
    await place.client.delete(SECRET, place.key)
    assert not await secret.write(first, live=live)


async def test_without_the_namespace_a_pass_is_an_error_and_no_race(place: Place) -> None:
    secret = CertificateSecret(place.client, ObjectKey("no-such-namespace", "hook"))
    made = new_authority(now=datetime.now(UTC), hosts=place.settings.hosts)
    with pytest.raises(NotFound, match="no-such-namespace"):
        await secret.write(made, live=None)
    keeper = CertRotator(place.client, secret, place.settings, clock=lambda: datetime.now(UTC), settle=0.05)
    with pytest.raises(NotFound, match="no-such-namespace"):
        await keeper.bring_up_to_date()


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_conflict_that_stays_is_retried_later(place: Place, kubeconfig: Path, verb: str) -> None:
    now = datetime.now(UTC)
    if verb == "update":
        await place.put(new_authority(now=now - 2 * AUTHORITY_LIFETIME, hosts=place.settings.hosts))
    async with FaultProxy(kubeconfig) as proxy, Client(load_config(kubeconfig=proxy.kubeconfig)) as client:
        written = Fault("status", verb=verb, status=409, count=1000, where=lambda each: "dryRun" not in each.query)
        proxy.inject(written)
        keeper = CertRotator(client, CertificateSecret(client, place.key), place.settings, clock=lambda: now)
        async with asyncio.timeout(PATIENCE):
            assert await keeper.bring_up_to_date() == RETRY
        assert "was refused 3 times in a row, the last time as a conflict" in str(keeper.remark())
        assert proxy.count(verb, "secrets") <= 8  # half of them are dry runs, for the server's clock
        proxy.clear()
        assert await keeper.bring_up_to_date() > RETRY
        assert "conflict" not in str(keeper.remark())


async def test_a_configuration_without_a_webhook_of_ours_is_not_called_missing(place: Place) -> None:
    await place.install()
    live = await place.configuration()
    live["webhooks"][0]["name"] = "other.example.com"
    await place.client.replace(CONFIGURATION_KIND, live, manager="somebody")
    keeper = place.keeper()
    await keeper.bring_up_to_date()
    assert keeper.remark() == f"ValidatingWebhookConfiguration {place.settings.configuration} has no webhook {WEBHOOK}"
    assert not keeper.configured


async def test_while_it_runs_a_lost_bundle_and_a_late_configuration_are_put_right(place: Place) -> None:
    keeper = place.keeper()
    running = asyncio.create_task(keeper.run())
    try:
        await until_made(place)
        await eventually(lambda: keeper.remark() is not None)
        missing = f"there is no ValidatingWebhookConfiguration {place.settings.configuration}"
        assert keeper.remark() == missing
        await place.install()
        await until_trusted(place)
        await eventually(lambda: keeper.remark() is None)
        live = await place.configuration()
        live["webhooks"][0]["clientConfig"].pop("caBundle")
        while True:
            try:
                await place.client.replace(CONFIGURATION_KIND, live, manager="somebody")
                break
            except Conflict:
                live["metadata"]["resourceVersion"] = (await place.configuration())["metadata"]["resourceVersion"]
        await until_trusted(place)
        await place.client.delete(CONFIGURATION_KIND, ObjectKey("", place.settings.configuration))
        await place.install()
        await until_trusted(place)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def until_made(place: Place) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                if (await place.material()).serving:
                    return
            await asyncio.sleep(0.02)


async def until_trusted(place: Place) -> None:
    async with asyncio.timeout(PATIENCE):
        while await place.trusted() != [(await place.material()).authority]:
            await asyncio.sleep(0.02)
