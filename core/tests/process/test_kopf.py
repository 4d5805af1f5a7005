"""L10: internals of kopf are relied on, so a newer one is taken on purpose only."""

from __future__ import annotations

from importlib.metadata import requires


def test_l10_kopf_has_an_upper_bound() -> None:
    (wanted,) = [each for each in requires("airunway") or () if each.startswith("kopf")]
    assert "<1.46" in wanted
