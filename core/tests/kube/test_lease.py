"""Leader election on the real API server: one leader at a time, whatever happens to the network and the clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from core.tests.kube.servers import scripted_server
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import LEASE, Client, LeaderElector, ServerError, load_config
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import Eventually


class Office:
    """Where candidates lead; it is an error to lead while another does."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.history: list[str] = []

    def lead(self, name: str) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            assert not self.inside, f"{name} leads beside {self.inside}"
            self.inside.add(name)
            self.history.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.inside.discard(name)

        return work


def candidate(client: Client, namespace: str, name: str, **options: object) -> LeaderElector:
    times = {"lease_duration": 1.5, "renew_deadline": 1.0, "retry_period": 0.1}
    return LeaderElector(client, namespace=namespace, name="leader", identity=name, **(times | options))  # type: ignore[arg-type]


class Race:
    """Candidates that run as tasks until the test ends."""

    def __init__(self) -> None:
        self.office = Office()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, elector: LeaderElector) -> None:
        self.tasks[elector.identity] = asyncio.create_task(elector.run(self.office.lead(elector.identity)))

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()

    def is_leading(self, name: str) -> Callable[[], bool]:
        return lambda: self.office.inside == {name}


@pytest.fixture
async def race() -> AsyncIterator[Race]:
    race = Race()
    yield race
    for name in list(race.tasks):
        await race.stop(name)


async def test_a_missing_right_is_logged_once_and_kept_as_the_problem(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    status, requests, now = 403, 0, 0.0
    lease = {"metadata": {"name": "leader", "namespace": "n"}, "spec": {"holderIdentity": "other"}}

    async def serve(_: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        refusal = {"reason": "Forbidden", "message": 'leases "leader" is forbidden: User "u" cannot get it'}
        return web.json_response(refusal if status == 403 else lease, status=status)

    async with scripted_server(serve) as client:
        elector = candidate(client, "n", "me", retry_period=0.01, clock=lambda: now)
        task = asyncio.create_task(elector.run(Office().lead("me")))
        await eventually(lambda: requests > 10)
        assert elector.problem == (
            'lease n/leader: leases "leader" is forbidden: User "u" cannot get it (403 Forbidden)'
        )
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
        assert not elector.refused
        now = 29.9
        assert not elector.refused
        now = 30.0
        assert elector.refused
        status = 500
        await eventually(lambda: not elector.refused)
        assert elector.problem is not None
        status = 200
        await eventually(lambda: elector.problem is None)
        assert elector.holder == "other"
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.apiserver
async def test_a_graceful_end_hands_over(client: Client, namespace: str, race: Race, eventually: Eventually) -> None:
    changes: list[bool] = []
    # A lease that nobody would wait for within this test: only a release lets the second in.
    long = {"lease_duration": 3600.0, "renew_deadline": 1800.0}
    first = candidate(client, namespace, "first", on_change=changes.append, **long)
    second = candidate(client, namespace, "second", **long)
    race.start(first)
    await eventually(race.is_leading("first"))
    race.start(second)
    await eventually(lambda: second.holder == "first")
    assert (first.leading, second.leading) == (True, False)
    await race.stop("first")
    assert changes == [True, False]
    await eventually(race.is_leading("second"))
    lease = await client.get(LEASE, ObjectKey(namespace, "leader"))
    assert lease["spec"]["holderIdentity"] == "second"
    assert lease["spec"]["leaseTransitions"] == 1
    await race.stop("second")
    released = await client.get(LEASE, ObjectKey(namespace, "leader"))
    assert not released["spec"].get("holderIdentity")


@pytest.mark.apiserver
async def test_the_lease_is_kept_until_the_work_has_ended(
    client: Client, namespace: str, eventually: Eventually
) -> None:
    elector = candidate(client, namespace, "first")
    ending, end = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await end.wait()

    task = asyncio.create_task(elector.run(lead))
    await eventually(lambda: elector.leading)
    task.cancel()
    await ending.wait()
    seen: set[str] = set()
    while len(seen) < 3:  # it goes on renewing
        lease = await client.get(LEASE, ObjectKey(namespace, "leader"))
        assert lease["spec"]["holderIdentity"] == "first"
        seen.add(lease["metadata"]["resourceVersion"])
        await asyncio.sleep(0.02)
    end.set()
    await asyncio.wait({task})
    assert task.cancelled()
    lease = await client.get(LEASE, ObjectKey(namespace, "leader"))
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "fault",
    [
        Fault("hang", resource="leases", count=None),
        Fault("reset", resource="leases", count=None),
        Fault("lose-answer", resource="leases", count=None),
        Fault("status", resource="leases", status=500, count=None),
        Fault("status", resource="leases", status=403, count=None),
    ],
    ids=lambda fault: f"{fault.action} {fault.status}",
)
async def test_a_leader_that_cannot_renew_stops_before_another_starts(
    fault: Fault, client: Client, proxied: Client, proxy: FaultProxy, namespace: str, race: Race, eventually: Eventually
) -> None:
    first, second = candidate(proxied, namespace, "first"), candidate(client, namespace, "second")
    race.start(first)
    await eventually(race.is_leading("first"))
    race.start(second)
    proxy.inject(fault)
    if fault.action == "lose-answer":
        # Its writes still arrive, so nobody else may lead; but it cannot know that, and stops.
        await eventually(lambda: not first.leading)
        assert "second" not in race.office.history
        proxy.clear()
        await eventually(lambda: len(race.office.history) == 2)
        return
    await eventually(race.is_leading("second"))
    assert race.office.history == ["first", "second"]
    assert not first.leading
    # When the first can speak again it waits, and takes over when the second goes.
    proxy.clear()
    await race.stop("second")
    await eventually(race.is_leading("first"))


@pytest.mark.apiserver
async def test_the_deadline_counts_from_the_question_however_late_the_answer_comes(
    proxied: Client, proxy: FaultProxy, namespace: str, race: Race, eventually: Eventually
) -> None:
    """Others count from when the API server took the renewal, which may be as early as that."""
    now, late = 1000.0, 4.9  # just below the limit of an attempt: half of the deadline

    def on_request(verb: str, _resource: str, status: int, _seconds: float) -> None:
        nonlocal now
        if verb in ("create", "update") and status < 300:
            now += late  # the answer took so long

    proxied.session.on_request = on_request
    times = {"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 0.01}
    elector = candidate(proxied, namespace, "first", clock=lambda: now, **times)
    race.start(elector)
    await eventually(race.is_leading("first"))
    renewed = proxy.count("update")
    await eventually(lambda: proxy.count("update") >= renewed + 3)
    assert elector.leading, "late answers alone cost nothing"
    proxy.inject(Fault("status", resource="leases", verb="update", status=500, count=None))
    failed = proxy.count("update")
    await eventually(lambda: proxy.count("update") >= failed + 3)
    assert elector.leading
    asked_at = now - late
    now = asked_at + 9.9
    failed = proxy.count("update")
    await eventually(lambda: proxy.count("update") >= failed + 2)
    assert elector.leading, "nor is it cut short"
    now = asked_at + 10.0
    failed = proxy.count("update")
    await eventually(lambda: not elector.leading or proxy.count("update") >= failed + 5)
    assert not elector.leading


@pytest.mark.apiserver
async def test_single_failures_cost_no_leadership(
    proxied: Client, proxy: FaultProxy, namespace: str, race: Race, eventually: Eventually
) -> None:
    elector = candidate(proxied, namespace, "first", lease_duration=60.0, renew_deadline=40.0)
    race.start(elector)
    await eventually(race.is_leading("first"))
    proxy.inject(
        Fault("status", resource="leases", status=409, reason="Conflict", count=2),
        Fault("status", resource="leases", status=503, count=2),
        Fault("lose-answer", resource="leases"),
        Fault("reset", resource="leases", count=2),
        Fault("garbage", resource="leases"),
    )
    await eventually(lambda: not proxy.pending)
    seen = proxy.count("update")
    await eventually(lambda: proxy.count("update") >= seen + 3)
    assert race.office.history == ["first"]
    assert elector.leading


@pytest.mark.apiserver
async def test_a_lease_taken_away_is_lost_at_once(
    client: Client, namespace: str, race: Race, eventually: Eventually
) -> None:
    elector = candidate(client, namespace, "first", lease_duration=3600.0, renew_deadline=1800.0)
    race.start(elector)
    await eventually(race.is_leading("first"))
    await client.merge_patch(LEASE, ObjectKey(namespace, "leader"), {"spec": {"holderIdentity": "usurper"}})
    await eventually(lambda: not elector.leading and not race.office.inside)
    assert elector.holder == "usurper"


@pytest.mark.apiserver
async def test_a_lease_that_another_holds_by_now_is_not_released(
    client: Client, namespace: str, eventually: Eventually
) -> None:
    """The process ends just after it saw that another one has taken the lease: that one goes on leading."""
    elector = candidate(client, namespace, "first", lease_duration=3600.0, renew_deadline=1800.0)
    ending, end = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await end.wait()

    task = asyncio.create_task(elector.run(lead))
    await eventually(lambda: elector.leading)
    task.cancel()
    await ending.wait()
    key = ObjectKey(namespace, "leader")
    await client.merge_patch(LEASE, key, {"spec": {"holderIdentity": "second"}})
    await eventually(lambda: elector.holder == "second")
    end.set()
    await asyncio.wait({task})
    assert (await client.get(LEASE, key))["spec"]["holderIdentity"] == "second"


@pytest.mark.apiserver
async def test_a_deleted_lease_is_made_again(
    client: Client, namespace: str, race: Race, eventually: Eventually
) -> None:
    elector = candidate(client, namespace, "first")
    race.start(elector)
    await eventually(race.is_leading("first"))
    await client.delete(LEASE, ObjectKey(namespace, "leader"))
    there: list[Resource] = []
    for _ in range(500):
        there = await client.list_all(LEASE, namespace=namespace)
        if there:
            break
        await asyncio.sleep(0.01)
    assert there[0]["spec"]["holderIdentity"] == "first"
    assert race.office.history == ["first"]


@pytest.mark.apiserver
@pytest.mark.parametrize("renewed", ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
async def test_remote_clocks_are_not_trusted(
    renewed: str, client: Client, namespace: str, race: Race, eventually: Eventually
) -> None:
    """Whatever time a lease tells, it has expired only when we have seen it unchanged for its duration."""
    await client.create(
        LEASE,
        {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": namespace, "name": "leader"},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 600, "renewTime": renewed},
        },
    )
    now = 1000.0
    asked = 0

    def count(*_: object) -> None:
        nonlocal asked
        asked += 1

    client.session.on_request = count
    elector = candidate(client, namespace, "first", retry_period=0.01, clock=lambda: now)
    race.start(elector)
    await eventually(lambda: asked >= 5)
    assert not elector.leading
    now += 599
    before = asked
    await eventually(lambda: asked >= before + 5)
    assert not elector.leading
    now += 1
    await eventually(race.is_leading("first"))


@pytest.mark.apiserver
async def test_a_process_that_slept_past_its_deadline_stops(
    client: Client, namespace: str, race: Race, eventually: Eventually
) -> None:
    now = 1000.0
    elector = candidate(client, namespace, "first", clock=lambda: now)
    changes: list[bool] = []
    elector.on_change = changes.append
    race.start(elector)
    await eventually(race.is_leading("first"))
    now += 100
    await eventually(lambda: changes[:2] == [True, False])
    await eventually(lambda: race.office.history == ["first", "first"])


@pytest.mark.apiserver
async def test_work_that_ends_or_fails_releases_the_lease(client: Client, namespace: str) -> None:
    async def finish() -> None:
        return None

    async def fail() -> None:
        raise ServerError(500, message="the work failed")

    elector = candidate(client, namespace, "first")
    await elector.run(finish)
    assert not elector.leading
    with pytest.raises(ServerError, match="the work failed"):
        await elector.run(fail)
    lease = await client.get(LEASE, ObjectKey(namespace, "leader"))
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.apiserver
async def test_many_candidates_never_two_leaders(
    kubeconfig: Path, namespace: str, race: Race, eventually: Eventually
) -> None:
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        names = [f"c{number}" for number in range(6)]
        for name in names:
            race.start(candidate(client, namespace, name))
        for _ in names:
            await eventually(lambda: bool(race.office.inside))
            await race.stop(next(iter(race.office.inside)))
        assert sorted(race.office.history) == names, "each had its turn"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"identity": ""}, "identity"),
        ({"identity": "a", "renew_deadline": 20.0}, "retry_period < renew_deadline < lease_duration"),
        ({"identity": "a", "retry_period": 0.0}, "retry_period < renew_deadline < lease_duration"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    client = Client(load_config(kubeconfig=kubeconfig))
    with pytest.raises(ValueError, match=message):
        LeaderElector(client, namespace="n", name="l", **options)  # type: ignore[arg-type]
