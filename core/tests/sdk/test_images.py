"""Which release an image is of, and tables by release."""

from __future__ import annotations

import pytest

from airunway.sdk import Version, newest, release_in, tag_of


@pytest.mark.parametrize(
    ("image", "tag", "release"),
    [
        ("r/x:1.3.1", "1.3.1", (1, 3, 1)),
        ("r:5000/x:v0.6.0", "v0.6.0", (0, 6, 0)),
        ("r/x:1.4.0-rc.1", "1.4.0-rc.1", (1, 4, 0)),
        ("r/x:0.7.0.post1", "0.7.0.post1", (0, 7, 0)),
        ("r/x:1.3.1@sha256:00", "1.3.1", (1, 3, 1)),
        ("r:5000/x", "", None),
        ("r/x@sha256:1.3.1", "", None),
        ("r/x:latest", "latest", None),
        ("r/x:1.3", "1.3", None),
        ("r/x:11111.0.0", "11111.0.0", None),
        ("r/x:١.٣.١", "١.٣.١", None),
        (":", "", None),
    ],
)
def test_the_release_in_a_tag(image: str, tag: str, release: Version | None) -> None:
    assert (tag_of(image), release_in(image)) == (tag, release)


def test_what_is_said_of_a_release_holds_until_another_is_in_the_table() -> None:
    table = {(1, 4, 0): "new", (1, 0, 0): "old"}
    found = [newest(table, release) for release in ((1, 0, 0), (1, 3, 9), (1, 4, 0), (9, 0, 0))]
    assert found == ["old", "old", "new", "new"]


def test_of_a_release_before_the_first_nothing_is_known() -> None:
    with pytest.raises(LookupError, match=r"nothing is known of release \(0, 9, 0\): the oldest is \(1, 0, 0\)"):
        newest({(1, 0, 0): "old"}, (0, 9, 0))
