"""What starts a worker, by the release of the runtime image."""

import pytest

from airunway.sdk import newest
from airunway_dynamo.runtimes import EVENTS, ROLES, RUNTIMES, is_release


@pytest.mark.parametrize(
    ("image", "semantic"),
    [
        ("r/x:1.3.1", True),
        ("r:5000/x:v0.6.0", True),
        ("r/x:1.4.0-rc.1", True),
        ("r/x:1.4.0-20260801", True),
        ("r/x:1.4.0-0512", False),
        ("r/x:1.4.0-dev.07", False),
        ("r/x:0.7.0.post1", False),
        ("r/x:1.3.1-", False),
        ("r/x:1.3.1@sha256:00", True),
        ("r/x@sha256:1.3.1", False),
        ("r/x:latest", False),
        ("r/x:1.3", False),
        ("", False),
    ],
)
def test_the_operator_reads_semantic_versions_only(image: str, semantic: bool) -> None:
    assert is_release(image) is semantic


@pytest.mark.parametrize("engine", RUNTIMES)
def test_every_engine_knows_both_roles_in_every_release(engine: str) -> None:
    for version in ((0, 4, 1), (0, 6, 1), (1, 0, 0), (9, 9, 9)):
        roles = newest(ROLES[engine], version)
        assert roles["prefill"] != roles.get("decode", ())
        assert "" not in roles, "one that does both is told nothing"
    assert newest(EVENTS[engine], (1, 3, 1)) != ()
