"""For every test of the workspace: how hypothesis runs, and what it means that the recordings are not there.

No deadline: tests assert behaviour, and these machines are noisy. In CI the examples are the same in every run, so that
a change is judged by itself; everywhere else new ones are tried.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.runner import call_and_report
from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")

pytest_plugins = ("tools.second_look", "tools.longest_first", "tools.slow_files")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool | None, bool | None]:
    """A time limit that runs out while a report is made fails that test; without this, it ends the whole run."""
    try:
        return (yield)
    except pytest.fail.Exception as late:
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome="failed",
            longrepr=str(late),
            when="call",
        )
        item.ihook.pytest_runtest_logreport(report=report)
        call_and_report(item, "teardown", nextitem=nextitem)
        return True


SOON = {
    # An object that is not ours and has the name of one of ours; a ClusterRole that is missing.
    "owned.apply.CONFLICT_RETRY": 1.0,  # 15
    "runtime.apply.CONFLICT_RETRY": 1.0,  # 15
    "routing.decision.CONFLICT_RETRY": 1.0,  # 60
    "gateway.reconciler._ROLE_RETRY": 1.0,  # 15
    # The users of an artifact.
    "modelcache.application._USERS_LATER": 0.5,  # 5
    "modelcache.artifacts._USERS_PAUSE": 0.2,  # 2
    # Workloads that were too many to read in one pass because of events about them.
    "runtime.memory.READ_ON": 0.2,  # 5
}
"""Seconds until the next look, in tests on an API server; the comments have production's."""


@pytest.fixture(autouse=True)
def looks_again_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an API server, tests do not sit out waits that are there to spare a large cluster: `SOON`."""
    if {"apiserver", "cluster"}.intersection(marker.name for marker in request.node.iter_markers()):
        for name, seconds in SOON.items():
            monkeypatch.setattr(f"airunway.{name}", seconds)


@pytest.fixture
def events_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is repeated is written again after a second, not after ten."""
    monkeypatch.setattr("airunway.kube.events._FIRST_INTERVAL", 1.0)


RECORDINGS = (
    "upstream-crds/kaito",
    "upstream-crds/kuberay",
    "upstream-crds/lws",
)


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder with other projects' CRDs: ``../shared``, data beside the checkout and no part of it.

    Without it a test skips, and says so. In CI (variable `CI`) it fails, so that a green run has checked the CRDs
    (unless `AIRUNWAY_WITHOUT_RECORDINGS=1` says that none are meant to be there).
    """
    folder = Path(__file__).resolve().parent.parent / "shared"
    missing = [part for part in RECORDINGS if not (folder / part).is_dir()]
    if not missing:
        return folder
    text = f"not beside the checkout: {', '.join(f'../shared/{part}' for part in missing)}"
    if os.environ.get("CI") and os.environ.get("AIRUNWAY_WITHOUT_RECORDINGS") != "1":
        pytest.fail(f"{text}. Put it there, or set AIRUNWAY_WITHOUT_RECORDINGS=1 if this run is meant to go without")
    pytest.skip(text)
