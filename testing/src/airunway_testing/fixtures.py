"""pytest fixtures around a real control plane; a pytest plugin (``-p airunway_testing.fixtures``, or `pytest_plugins`
in a top conftest).

The control planes start when a test first asks for them and serve the whole run. To keep one between runs, start it
with ``airunway controlplane up`` and set the variable that it prints (AIRUNWAY_TEST_KUBECONFIG for the level "api",
AIRUNWAY_TEST_CLUSTER_KUBECONFIG for "cluster"); one of the level "cluster" serves tests for "api" as well. The
options ``--airunway-kubeconfig`` and ``--airunway-context`` run everything on a cluster of one's own.
"""

import asyncio
import contextlib
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pytest

from airunway_testing.controlplane import Cluster, ControlPlaneError, Level, running
from airunway_testing.controlplane.access import named_kubeconfig
from airunway_testing.controlplane.binaries import find_binaries, source_order
from airunway_testing.controlplane.progress import Report
from airunway_testing.kubetools import kubectl_path

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway_testing.eventually import Eventually

_UNAVAILABLE = pytest.StashKey[dict[Level, ControlPlaneError]]()


Ask: TypeAlias = Callable[["Client"], Coroutine[object, object, object]]
"""A request."""

Administrator: TypeAlias = Callable[[Path, Ask], None]
"""Makes a request to the cluster of a kubeconfig, and waits for its end."""


class Kubectl(Protocol):
    """``kubectl("get", "pods", "-n", namespace)`` gives the finished process, with its output as text."""

    def __call__(
        self, *arguments: str, stdin: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, or as the user of another kubeconfig; a failure is an AssertionError
        unless `check` is off.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options to name a cluster of one's own."""
    group = parser.getgroup("airunway")
    group.addoption(
        "--airunway-kubeconfig",
        type=Path,
        default=None,
        help="run tests on this cluster instead of starting control planes",
    )
    group.addoption("--airunway-context", default=None, help="the context to use in --airunway-kubeconfig")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Fetch or build the programs before the first test: that may take minutes, which no test's time limit should
    have to cover.
    """
    unavailable = session.config.stash.setdefault(_UNAVAILABLE, {})
    if session.config.option.collectonly:
        return
    wanted = {level for item in session.items if isinstance(item, pytest.Function) for level in _levels_of(item)}
    for level in sorted(wanted):
        try:
            named = session.config.getoption("airunway_kubeconfig") or named_kubeconfig(level, os.environ)
            if set(source_order(os.environ, cluster_named=named is not None)).isdisjoint(("cluster", "k3s")):
                with _uncaptured(session.config):
                    find_binaries(level, report=_reporter(session.config))
        except ControlPlaneError as error:
            unavailable[level] = error


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """An API server with garbage collection (level "api"), shared by all tests of the run."""
    yield from _running("api", request.config)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with scheduler, workload controllers and simulated GPU nodes, shared by all tests of the run."""
    yield from _running("cluster", request.config)


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The administrator's kubeconfig: of `cluster` for tests that use that fixture or carry that marker, else of
    `control_plane`.
    """
    return _cluster_of(request).kubeconfig


@pytest.fixture
def audit_log(request: pytest.FixtureRequest) -> Path:
    """The audit log of the test's cluster; skips the test where there is none (a cluster that was named)."""
    path = _cluster_of(request).audit_log
    if path is None:
        pytest.skip(
            "the cluster that was named has no audit log that can be read here: `airunway controlplane up` starts "
            "one that has"
        )
    return path


@pytest.fixture
def kubectl(kubeconfig: Path) -> Kubectl:
    """Runs kubectl on the test's cluster."""
    program, default = kubectl_path(), kubeconfig

    def run(
        *arguments: str, stdin: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(program), f"--kubeconfig={kubeconfig or default}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done

    return run


@pytest.fixture
def namespace(kubeconfig: Path, administrator: Administrator) -> Iterator[str]:
    """The name of a new namespace, deleted after the test (without waiting until it is gone)."""
    from airunway.kube import NAMESPACE, NotFound
    from airunway.resource import ObjectKey

    name = f"test-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    administrator(kubeconfig, lambda client: client.create(NAMESPACE, body))
    yield name
    with contextlib.suppress(NotFound):
        administrator(kubeconfig, lambda client: client.delete(NAMESPACE, ObjectKey("", name)))


@pytest.fixture(scope="session")
def administrator() -> Iterator[Administrator]:
    """Makes one request as the administrator of a cluster: ``administrator(kubeconfig, lambda client: ...)``.

    It has an event loop of its own, since a fixture of every test must not use the test's, and keeps its connections:
    to open one takes longer than a request.
    """
    from airunway.kube import Client, load_config

    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="administrator")
    thread.start()
    clients: dict[Path, Client] = {}
    opened = contextlib.AsyncExitStack()

    async def request(kubeconfig: Path, ask: Ask) -> None:
        client = clients.get(kubeconfig)
        if client is None:
            made = Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests")
            client = clients[kubeconfig] = await opened.enter_async_context(made)
        await ask(client)

    def ask_and_wait(kubeconfig: Path, ask: Ask) -> None:
        asyncio.run_coroutine_threadsafe(request(kubeconfig, ask), loop).result()

    yield ask_and_wait
    asyncio.run_coroutine_threadsafe(opened.aclose(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator["Client"]:
    """The administrator's client, in the test's own event loop."""
    from airunway.kube import Client, load_config

    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client:
        yield client


@pytest.fixture
def eventually() -> "Eventually":
    """Looks until there is something true to be seen, and gives that (`airunway_testing.eventually`)."""
    from airunway_testing.eventually import eventually

    return eventually


def _running(level: Level, config: pytest.Config) -> Iterator[Cluster]:
    unavailable = config.stash.get(_UNAVAILABLE, {})
    if level in unavailable:
        raise unavailable[level]
    with running(
        level,
        kubeconfig=config.getoption("airunway_kubeconfig"),
        context=config.getoption("airunway_context"),
        audit="Metadata",
        report=_reporter(config),
    ) as cluster:
        yield cluster


def _levels_of(item: pytest.Function) -> set[Level]:
    """The levels that a test will ask for."""
    levels: set[Level] = set()
    if "control_plane" in item.fixturenames:
        levels.add("api")
    if "cluster" in item.fixturenames:
        levels.add("cluster")
    if not {"kubeconfig", "audit_log"}.isdisjoint(item.fixturenames):
        levels.add(_main_level(item, item.fixturenames))
    return levels


def _main_level(node: pytest.Item, fixture_names: Collection[str]) -> Level:
    on_cluster = "cluster" in fixture_names or node.get_closest_marker("cluster") is not None
    return "cluster" if on_cluster else "api"


def _cluster_of(request: pytest.FixtureRequest) -> Cluster:
    level = _main_level(request.node, request.fixturenames)
    found: Cluster = request.getfixturevalue("cluster" if level == "cluster" else "control_plane")
    return found


def _reporter(config: pytest.Config) -> Report:
    terminal = config.pluginmanager.get_plugin("terminalreporter")

    def report(line: str) -> None:
        if terminal is not None:
            with _uncaptured(config):
                terminal.ensure_newline()
                terminal.write_line(line)

    return report


def _uncaptured(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is None:
        return contextlib.nullcontext()
    uncaptured: contextlib.AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return uncaptured
