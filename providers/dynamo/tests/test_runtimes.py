"""The release of a runtime image, as its tag has it."""

import pytest

from airunway_dynamo.runtimes import RUNTIMES, is_release, role_flags, router_flags, version_in


@pytest.mark.parametrize(
    ("image", "version", "semantic"),
    [
        ("r/x:1.3.1", (1, 3, 1), True),
        ("r:5000/x:v0.6.0", (0, 6, 0), True),
        ("r/x:1.4.0-rc.1", (1, 4, 0), True),
        ("r/x:0.7.0.post1", (0, 7, 0), False),
        ("r/x:1.3.1@sha256:00", (1, 3, 1), True),
        ("r:5000/x", None, False),
        ("r/x@sha256:1.3.1", None, False),
        ("r/x:latest", None, False),
        ("r/x:1.3", None, False),
        ("r/x:11111.0.0", None, False),
        ("r/x:١.٣.١", None, False),
        ("", None, False),
        (":", None, False),
    ],
)
def test_the_release_in_a_tag(image: str, version: tuple[int, int, int] | None, semantic: bool) -> None:
    assert (version_in(image), is_release(image)) == (version, semantic)


@pytest.mark.parametrize("engine", RUNTIMES)
def test_every_engine_knows_both_roles_in_every_release(engine: str) -> None:
    for version in ((0, 4, 1), (0, 6, 1), (1, 0, 0), (9, 9, 9)):
        assert role_flags(engine, version, "worker") == (), "one that does both is told nothing"
        assert role_flags(engine, version, "prefill") != role_flags(engine, version, "decode")
    assert router_flags(engine, (1, 3, 1)) != ()
    assert router_flags("other", (1, 3, 1)) == role_flags("other", (1, 3, 1), "prefill") == ()
