"""The distributions as their users get them: wheels in a clean environment, without the workspace."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed; nothing of this environment reaches it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("VIRTUAL_ENV", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("wheels")
    run(UV, "build", "--all-packages", "--wheel", "--out-dir", out, cwd=ROOT)
    return {path.name.split("-")[0]: path for path in out.glob("*.whl")}


def test_wheels_find_each_other_by_entry_point(wheels: dict[str, Path], tmp_path: Path) -> None:
    assert set(wheels) == {"airunway", "airunway_kaito", "airunway_vllm"}
    run(UV, "venv", "--quiet", "--python", sys.executable, "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, *wheels.values(), cwd=tmp_path)
    airunway = tmp_path / "env" / "bin" / "airunway"
    listed = [line.split() for line in run(airunway, "provider", "list", cwd=tmp_path).splitlines()]
    assert listed == [["kaito", "airunway-kaito", "0.1.0"], ["vllm", "airunway-vllm", "0.1.0"]]
    crds = run(airunway, "crds", cwd=tmp_path)
    assert crds.count("kind: CustomResourceDefinition") == 2
    loaded = run(
        python,
        "-c",
        "import airunway, airunway_kaito; from airunway.plugins.registry import load;"
        "print(load('kaito').origin, airunway.__file__)",
        cwd=tmp_path,
    )
    assert loaded.startswith("airunway-kaito 0.1.0")
    assert str(tmp_path) in loaded


def test_wheels_carry_licence_types_and_data(wheels: dict[str, Path]) -> None:
    for name, path in wheels.items():
        names = zipfile.ZipFile(path).namelist()
        assert any(entry.endswith("licenses/LICENSE") for entry in names), name
        assert f"{name}/py.typed" in names
    core = zipfile.ZipFile(wheels["airunway"]).namelist()
    for data in (
        "airunway/sandbox/samples/gemma-cpu.yaml",
        "airunway/testing/controlplane/go/main.go",
        "airunway/testing/controlplane/go/go.sum",
        "airunway/testing/simulators/crds/kaito-workspaces.yaml",
    ):
        assert data in core
    assert sum(entry.startswith("airunway/api/crds/") and entry.endswith(".yaml") for entry in core) == 2
