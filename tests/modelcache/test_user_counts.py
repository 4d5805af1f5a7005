"""Many deployments of one model come at once: the artifact's status does not follow each of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airunway.modelcache.artifacts import users_wait
from airunway.resource import Resource

NOW = datetime(2026, 11, 26, tzinfo=UTC)
LIVE: Resource = {"phase": "Starting", "users": 1, "usedBy": ["a"]}
MORE: Resource = {"phase": "Starting", "users": 2, "usedBy": ["a", "b"]}


@pytest.mark.parametrize(
    ("wanted", "reported", "waits"),
    [
        pytest.param(MORE, NOW, 2.0, id="only the users differ, and it was just written"),
        pytest.param({"phase": "Starting", "users": 0, "unusedSince": "now"}, NOW, 2.0, id="no user is left"),
        pytest.param(MORE, NOW - timedelta(seconds=1.5), 0.5, id="the rest of the pause"),
        pytest.param(MORE, NOW - timedelta(seconds=2), None, id="the pause is over"),
        pytest.param(MORE, NOW + timedelta(hours=1), None, id="the clock was ahead"),
        pytest.param(MORE, None, None, id="this process has not written it yet"),
        pytest.param({**MORE, "phase": "Ready"}, NOW, None, id="something else differs, too"),
        pytest.param(LIVE, NOW, None, id="nothing differs"),
    ],
)
def test_a_count_of_users_waits_for_more_of_them(
    wanted: Resource, reported: datetime | None, waits: float | None
) -> None:
    assert users_wait(LIVE, wanted, reported=reported, now=NOW) == waits
