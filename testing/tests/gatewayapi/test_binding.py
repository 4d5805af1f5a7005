"""What a gateway controller makes of its objects, without an API server."""

from __future__ import annotations

import pytest

from airunway_testing.gatewayapi.binding import selected


@pytest.mark.parametrize(
    ("expressions", "labels", "yes"),
    [
        ([("team", "In", ["a", "b"])], {"team": "b"}, True),
        ([("team", "NotIn", ["a"])], {}, True),
        ([("team", "Exists", None)], {}, False),
        ([("team", "DoesNotExist", None)], {"team": "a"}, False),
        ([("team", "Like", ["a"])], {"team": "a"}, False),
    ],
)
def test_label_selectors(expressions: list[tuple[str, str, list[str]]], labels: dict[str, str], yes: bool) -> None:
    terms = [{"key": key, "operator": operator, "values": values} for key, operator, values in expressions]
    assert selected({"matchExpressions": terms}, labels) is yes
