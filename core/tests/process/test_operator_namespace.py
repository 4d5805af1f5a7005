"""Which namespace is the operator's."""

from __future__ import annotations

from pathlib import Path

import pytest

from airunway.process.effective_settings import operator_namespace


@pytest.mark.parametrize(
    ("environment", "mounted", "expected"),
    [
        ({"AIRUNWAY_OPERATOR_NAMESPACE": "a", "POD_NAMESPACE": "b"}, "c", "a"),
        ({"AIRUNWAY_OPERATOR_NAMESPACE": "", "POD_NAMESPACE": "b"}, "c", "b"),
        ({"POD_NAMESPACE": " "}, "c\n", "c"),
        ({}, "c", "c"),
        ({}, "", "airunway-system"),
        ({}, None, "airunway-system"),
    ],
)
def test_the_first_that_says_it_counts(
    tmp_path: Path, environment: dict[str, str], mounted: str | None, expected: str
) -> None:
    if mounted is not None:
        (tmp_path / "namespace").write_text(mounted)
    assert operator_namespace(environment, account=tmp_path) == expected
