"""docs/providers/examples: made as the page says, they hold the contract and live through everything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.console import Shell, steps
from tests.test_tutorial import environment as environment  # noqa: PLC0414 - a fixture of that module

from airunway_testing.controlplane import Cluster

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "providers" / "examples"
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
NAMES = ("nim", "kserve")
MOST_LINES = 250

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name: str) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (EXAMPLES / name).iterdir())
    assert 0 < lines <= MOST_LINES


@pytest.fixture(scope="module")
def made(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, by the commands of the page."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(EXAMPLES, folder / "examples")
    with Shell(folder, {**environment, "TMPDIR": str(folder)}) as shell:
        shell.show("uv venv --quiet && uv pip install --quiet 'airunway[sandbox]' 'airunway-testing[pytest]'", [])
        shell.show("source .venv/bin/activate", [])
        for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
            for command, shown in steps(block):
                shell.show(command, shown)
    return folder


@pytest.mark.cluster
@pytest.mark.parametrize("name", NAMES)
def test_it_holds_the_contract_and_lives_through_everything(
    made: Path, environment: dict[str, str], control_plane: Cluster, cluster: Cluster, name: str
) -> None:
    """All tests of the skeleton, the run end to end too, with the example's provider in it.

    They use the control planes of this run: that they start some themselves is for test_tutorial.py.
    """
    there = {
        "AIRUNWAY_TEST_KUBECONFIG": str(control_plane.kubeconfig),
        "AIRUNWAY_TEST_CLUSTER_KUBECONFIG": str(cluster.kubeconfig),
    }
    python = made / ".venv" / "bin" / "python"
    record = ["-m", "airunway_testing.conformance.digests", name, "tests/digests.json", "--write"]
    chart = ["-m", "airunway_testing.conformance.chart", name, "chart"]
    for arguments in (record, chart, ["-m", "pytest", "-q"]):
        done = subprocess.run(
            [python, *arguments],
            cwd=made / f"airunway-{name}",
            env={**environment, **there, "TMPDIR": str(made)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
