"""`airunway doctor` against a real API server: nothing on a healthy installation, and each of many faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.doctor import CHECKS
from airunway.resource import Resource

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

TABLE: list[Resource] = yaml.safe_load((Path(__file__).parent / "misconfigurations.yaml").read_text())


async def test_nothing_is_found_on_a_healthy_installation(installation: Any, doctor: Any) -> None:
    report = doctor("--failure-threshold", "warning")
    assert report.document["findings"] == []
    assert report.document["notLookedAt"] == []
    assert sorted(report.document["checks"]) == sorted(CHECKS), "every check was made"
    assert report.code == 0


@pytest.mark.parametrize("case", TABLE, ids=[case["fault"] for case in TABLE])
async def test_each_misconfiguration_is_found_and_nothing_else(installation: Any, doctor: Any, case: Resource) -> None:
    for step in case["steps"]:
        await installation.do(step)
    report = doctor()
    told = [(finding["code"], finding["object"], finding["what"]) for finding in report.document["findings"]]
    assert report.codes == sorted(case["finds"]), told
    for words in case.get("says", ()):
        assert any(words in " ".join(each) for each in told), (words, told)
    worst = {CHECKS[code].severity.value for code in case["finds"]}
    assert report.code == (3 if "error" in worst else 0)
