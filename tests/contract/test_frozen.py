"""Contract v1 only grows: two providers written before runtime configs pass their own tests against this tree.

`frozen/` has the toy provider and the provider of docs/providers/tutorial.md as of the release before runtime configs,
each with the tests and the digests of its time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FROZEN = Path(__file__).parent / "frozen"

ENTRY_POINTS = """[airunway.providers]
acme = airunway_acme.provider:provider
frozen-toy = airunway_frozen_toy.provider:provider

[airunway.simulators]
acme = airunway_acme_simulator.operator:simulator
"""

GENERATED = "test_the_chart_grants_what_the_kinds_need"
"""A chart is generated for a release of AI Runway: this one's processes read runtime configs, so it grants that too."""


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["acme", "toy"])
def test_a_provider_written_before_runtime_configs_passes_its_tests_unchanged(provider: str, tmp_path: Path) -> None:
    metadata = tmp_path / "airunway_frozen-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: airunway-frozen\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    sources = [str(tmp_path), *(str(FROZEN / each / "src") for each in ("acme", "toy"))]
    options = ["-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", f"not {GENERATED}", "test_conformance.py"],
        cwd=FROZEN / provider / "tests",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
