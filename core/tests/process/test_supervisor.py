"""Several applications in one process: each fails by itself, and the probe says which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from airunway.api import names
from airunway.plugins.errors import PluginBroken
from airunway.process import manager as module
from airunway.process.manager import Application, Lead, Supervisor, Work
from airunway.process.refused_credentials import RefusedCredentials
from airunway_testing.eventually import eventually


class Steady:
    """Leads until it is cancelled; takes its time to say goodbye."""

    def __init__(self, *, serving: bool = False) -> None:
        self.serving = serving
        self.problem: str | None = None
        self.left = False

    def unready(self) -> str | None:
        return self.problem

    def register(self, settings: object) -> None:
        """There is nothing to register."""

    async def run(self, lead: Lead) -> None:
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                self.left = True

        await lead(work)


class Broken(Steady):
    """Ends when it is told how: with an exception, or with None just so."""

    def __init__(self, error: BaseException | None, *, serving: bool = False) -> None:
        super().__init__(serving=serving)
        self.error = error

    async def run(self, lead: Lead) -> None:
        if self.error is not None:
            raise self.error


async def at_once(work: Work) -> None:
    await work()


@asynccontextmanager
async def running(makers: dict[str, Callable[[], Application]]) -> AsyncIterator[tuple[Supervisor, asyncio.Task[None]]]:
    parts = Supervisor(makers, lead_of=lambda component: at_once)
    task = asyncio.create_task(parts.run())
    try:
        yield parts, task
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def at_short_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART", (0.01, 0.02))


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no such thing"), ExceptionGroup("group", [RuntimeError("no such thing")]), None],
    ids=["raises", "raises a group", "returns"],
)
async def test_one_that_ends_is_started_again_and_the_other_goes_on(
    at_short_notice: None, error: Exception | None
) -> None:
    steady, made = Steady(), []

    def make() -> Application:
        made.append(Broken(error))
        return made[-1]

    async with running({"core": lambda: steady, "provider": make}) as (parts, task):
        await eventually(lambda: len(made) >= 3 and parts.unready() is not None)
        said = parts.unready() or ""
        assert said.startswith("provider: it ended and is started again (")
        assert ("no such thing" in said) == (error is not None)
        assert not task.done()
        assert not steady.left
    assert steady.left


async def test_one_that_is_cancelled_from_inside_does_not_just_disappear(at_short_notice: None) -> None:
    made = []

    def make() -> Application:
        made.append(Broken(asyncio.CancelledError()))
        return made[-1]

    async with running({"core": Steady, "provider": make}) as (_, task):
        await eventually(lambda: len(made) >= 3)
        assert not task.done()


async def test_one_that_gets_well_is_ready_again(at_short_notice: None) -> None:
    waiting: list[Application] = [Broken(RuntimeError("x")), Broken(RuntimeError("x")), Steady()]
    async with running({"core": Steady, "provider": lambda: waiting.pop(0)}) as (parts, _):
        await eventually(lambda: not waiting and parts.unready() is None)


async def test_one_that_cannot_be_made_is_said_and_costs_nobody_else(at_short_notice: None) -> None:
    def make() -> Application:
        raise PluginBroken("the plugin is broken")

    steady = Steady()
    async with running({"core": lambda: steady, "provider": make}) as (parts, task):
        assert "provider: " in (parts.unready() or "")
        assert "the plugin is broken" in (parts.unready() or "")
        await asyncio.sleep(0.1)
        assert "the plugin is broken" in (parts.unready() or "")
        assert not task.done()
        assert not steady.left


def test_what_is_wrong_with_options_ends_the_start() -> None:
    def make() -> Application:
        raise ValueError("a file without authorities")

    with pytest.raises(ValueError, match="without authorities"):
        Supervisor({"core": make, "provider": Steady}, lead_of=lambda _: at_once)


async def test_the_only_one_ends_the_process_as_it_ended() -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        await Supervisor({"a": lambda: Broken(RuntimeError("no such thing"))}, lead_of=lambda _: at_once).run()
    await Supervisor({"a": lambda: Broken(None)}, lead_of=lambda _: at_once).run()


async def test_the_only_one_is_not_named() -> None:
    steady = Steady()
    steady.problem = "not yet"
    parts = Supervisor({"core": lambda: steady}, lead_of=lambda _: at_once)
    assert parts.unready() == "not yet"


async def test_each_that_is_not_ready_is_named() -> None:
    first, second, third = Steady(), Steady(), Steady()
    parts = Supervisor({"a": lambda: first, "b": lambda: second, "c": lambda: third}, lead_of=lambda _: at_once)
    assert parts.unready() is None
    first.problem = second.problem = "not yet"
    assert parts.unready() == "a: not yet; b: not yet"


async def test_where_reviews_are_served_the_others_are_only_remarked_upon(at_short_notice: None) -> None:
    """An endpoint that is taken out of its Service refuses every write of a user."""
    core, provider = Steady(serving=True), Steady()
    parts = Supervisor({"core": lambda: core, "provider": lambda: provider}, lead_of=lambda _: at_once)
    provider.problem = "not registered"
    assert parts.unready() is None
    assert parts.remark() == "provider: not registered"
    core.problem = "no certificate"
    assert parts.unready() == "core: no certificate"


@pytest.mark.parametrize("part", [names.GATEWAY_MANAGER, names.MODEL_CACHE_MANAGER])
async def test_a_part_of_the_core_that_cannot_work_is_only_remarked_upon(part: str) -> None:
    """A picker image of an unknown release would else hold up the roll-out of a core without a webhook for ever."""
    core, own, provider = Steady(), Steady(), Steady()
    makers = {names.CORE_MANAGER: lambda: core, part: lambda: own, names.provider_manager("x"): lambda: provider}
    parts = Supervisor(makers, lead_of=lambda _: at_once)
    own.problem = "release 'x' is not known"
    assert parts.unready() is None
    assert parts.remark() == f"{part}: release 'x' is not known"
    provider.problem = "not registered"
    assert parts.unready() == "airunway-provider-x: not registered"
    core.problem = "not synced"
    assert parts.unready() == "airunway-controller: not synced; airunway-provider-x: not registered"


async def test_the_process_ends_with_the_part_that_serves() -> None:
    """Its handlers are those of the process: no other can take their place."""
    makers: dict[str, Callable[[], Application]] = {
        "core": lambda: Broken(RuntimeError("no such thing"), serving=True),
        "provider": Steady,
    }
    with pytest.raises(ExceptionGroup) as found:
        await asyncio.wait_for(Supervisor(makers, lead_of=lambda _: at_once).run(), 20)
    assert found.group_contains(RuntimeError, match="no such thing")


async def test_each_leads_by_itself() -> None:
    asked: list[str] = []

    def lead_of(component: str) -> Lead:
        async def lead(work: Callable[[], Awaitable[None]]) -> None:
            asked.append(component)
            await asyncio.Event().wait()

        return lead

    task = asyncio.create_task(Supervisor({"a": Steady, "b": Steady}, lead_of=lead_of).run())
    await eventually(lambda: len(asked) == 2)
    assert sorted(asked) == ["a", "b"]
    task.cancel()
    await asyncio.wait([task])


def test_refused_credentials_are_one_warning_and_after_a_minute_the_process_is_unready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C3: with 401 to every request for seven minutes, /readyz was ok and the log had lines of level info."""
    now = 0.0
    credentials = RefusedCredentials(clock=lambda: now)
    on_request = credentials.noting(lambda *_: None)
    application = Steady()
    parts = Supervisor({"a": lambda: application}, lead_of=lambda _: at_once, credentials=credentials)
    serving = Supervisor({"a": lambda: Steady(serving=True)}, lead_of=lambda _: at_once, credentials=credentials)
    on_request("get", "pods", 401, 0.0)
    assert (parts.unready(), parts.remark()) == (None, None), "a token that was renewed is read at the first 401"
    for now in range(1, 60):  # noqa: B007 - the clock
        on_request("watch", "pods", 401, 0.0)
        on_request("watch", "pods", 0, 0.0)
    assert parts.unready() is None
    assert "refused the credentials of this process (401) for 59 s" in (parts.remark() or "")
    now = 60
    assert "(401) for 60 s" in (parts.unready() or "")
    assert serving.unready() is None, "reviews are answered"
    assert "(401)" in (serving.remark() or "")
    assert [record.levelname for record in caplog.records if "401" in record.message] == ["WARNING"]
    on_request("get", "pods", 403, 0.0)
    assert (parts.unready(), parts.remark()) == (None, None)
