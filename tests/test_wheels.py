"""The distributions as their users get them: wheels in a clean environment, without the workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airunway.api.crds import custom_resource_definitions
from airunway.kube import Client, load_config
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import remove_definition

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")

pytestmark = pytest.mark.slow

OURS = {
    f"{kind}.airunway.ai"
    for kind in (
        "clusterruntimeconfigs",
        "inferenceproviderconfigs",
        "clustermodeltemplates",
        "modelartifacts",
        "modelsources",
        "modeltemplates",
        "modeldeployments",
        "runtimeconfigs",
    )
}
PLAIN = """
apiVersion: airunway.ai/v1alpha1
kind: ModelDeployment
metadata: {name: plain}
spec:
  model: {id: meta-llama/Llama-3.1-8B-Instruct}
  resources: {gpu: {count: 1}}
"""


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


def environment(folder: Path, *requirements: str, wheels: dict[str, Path]) -> Path:
    """The ``bin`` of a new environment with these requirements; ours come from the wheels and from nowhere else."""
    run(UV, "venv", "--quiet", "--python", sys.executable, "env", cwd=folder)
    found = wheels["airunway"].parent
    python = folder / "env" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "--find-links", found, *requirements, cwd=folder)
    return python.parent


def test_wheels_find_each_other_by_entry_point(wheels: dict[str, Path], tmp_path: Path) -> None:
    assert set(wheels) == {
        "airunway",
        "airunway_catalogue",
        "airunway_testing",
        "airunway_ui",
        "airunway_downloader",
        "airunway_dynamo",
        "airunway_dynamo_simulator",
        "airunway_kaito",
        "airunway_kaito_simulator",
        "airunway_kuberay",
        "airunway_kuberay_simulator",
        "airunway_llmd",
        "airunway_llmd_simulator",
        "airunway_vllm",
        "airunway_vllm_simulator",
    }
    programs = environment(tmp_path, "airunway-kaito", wheels=wheels)
    assert run(programs / "airunway", "provider", "list", cwd=tmp_path).split() == ["kaito", "airunway-kaito", "0.1.0"]
    crds = run(programs / "airunway", "crds", cwd=tmp_path)
    assert crds.count("kind: CustomResourceDefinition") == len(custom_resource_definitions())
    loaded = run(
        programs / "python",
        "-c",
        "import airunway, airunway_kaito; from airunway.plugins.registry import load;"
        "print(load('kaito').origin, airunway.__file__)",
        cwd=tmp_path,
    )
    assert loaded.startswith("airunway-kaito 0.1.0")
    assert str(tmp_path) in loaded


def test_the_downloader_alone_is_a_command_and_brings_nothing_of_the_core(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    programs = environment(tmp_path, "airunway-downloader", wheels=wheels)
    assert run(programs / "airunway-download", "--version", cwd=tmp_path) == "airunway-download 0.1.0\n"
    assert "check-size" in run(programs / "airunway-download", "--help", cwd=tmp_path)
    listed = run(UV, "pip", "list", "--format=freeze", "--python", programs / "python", cwd=tmp_path)
    assert {line.partition("==")[0] for line in listed.split()} == {"airunway-downloader", "urllib3"}


def test_the_downloader_is_installed_from_its_folder(tmp_path: Path) -> None:
    run(UV, "venv", "--quiet", "--python", sys.executable, "env", cwd=tmp_path)
    programs = tmp_path / "env" / "bin"
    run(UV, "pip", "install", "--quiet", "--python", programs / "python", ROOT / "downloader", cwd=tmp_path)
    assert run(programs / "airunway-download", "--version", cwd=tmp_path) == "airunway-download 0.1.0\n"


@pytest.mark.parametrize(
    "command",
    [
        ["sandbox", "--demo"],
        ["controlplane", "up"],
        ["simulate", "--help"],
        ["provider", "new", "acme", "--directory", "there"],
        ["provider", "check", "kaito"],
    ],
)
def test_commands_of_the_sandbox_say_what_to_install(
    wheels: dict[str, Path], tmp_path: Path, command: list[str]
) -> None:
    programs = environment(tmp_path, "airunway", wheels=wheels)
    done = subprocess.run([programs / "airunway", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'airunway[sandbox]'" in done.stderr


def test_the_command_of_an_add_on_says_what_to_install(wheels: dict[str, Path], tmp_path: Path) -> None:
    programs = environment(tmp_path, "airunway", wheels=wheels)
    done = subprocess.run(
        [programs / "airunway", "catalogue", "--leader-elect"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "`airunway catalogue` is not installed: pip install airunway-catalogue" in done.stderr


def test_the_sandbox_is_an_extra(wheels: dict[str, Path], tmp_path: Path) -> None:
    programs = environment(tmp_path, "airunway[sandbox]", "airunway-kaito-simulator", wheels=wheels)
    assert "--demo" in run(programs / "airunway", "sandbox", "--help", cwd=tmp_path)
    program = "from airunway_testing.simulators import discover_simulators; print(*discover_simulators())"
    assert run(programs / "python", "-c", program, cwd=tmp_path).split() == ["gateway", "kaito", "toy"]
    installed = run(UV, "pip", "list", "--python", programs / "python", cwd=tmp_path)
    assert "pytest" not in installed


def test_b9_pytest_finds_the_fixtures_by_itself(wheels: dict[str, Path], tmp_path: Path) -> None:
    programs = environment(tmp_path, "airunway-testing[pytest]", wheels=wheels)
    shown = run(programs / "python", "-m", "pytest", "--fixtures", "-q", cwd=tmp_path)
    assert "kubectl" in shown
    assert "airunway_testing" in shown


def test_wheels_carry_licence_types_and_data(wheels: dict[str, Path]) -> None:
    for name, path in wheels.items():
        names = zipfile.ZipFile(path).namelist()
        assert any(entry.endswith("licenses/LICENSE") for entry in names), name
        assert f"{name}/py.typed" in names
    for wheel, data in (
        ("airunway_testing", "airunway_testing/sandbox/samples/typo.yaml"),
        ("airunway_testing", "airunway_testing/toy/crds/toys.yaml"),
        ("airunway_testing", "airunway_testing/scaffold/template/.gitignore.template"),
        ("airunway_dynamo", "airunway_dynamo/samples/index.toml"),
        ("airunway_dynamo_simulator", "airunway_dynamo_simulator/crds/dynamographdeployments.yaml"),
        ("airunway_dynamo_simulator", "airunway_dynamo_simulator/grove/podcliques.yaml"),
        ("airunway_kaito", "airunway_kaito/samples/index.toml"),
        ("airunway_testing", "airunway_testing/controlplane/go/main.go"),
        ("airunway_testing", "airunway_testing/controlplane/go/go.sum"),
        ("airunway_kaito_simulator", "airunway_kaito_simulator/crds/workspaces.yaml"),
        ("airunway_kuberay", "airunway_kuberay/samples/index.toml"),
        ("airunway_kuberay_simulator", "airunway_kuberay_simulator/crds/rayservices.yaml"),
        ("airunway_llmd", "airunway_llmd/samples/index.toml"),
        ("airunway_llmd_simulator", "airunway_llmd_simulator/crds/inferencepools.yaml"),
        ("airunway_vllm", "airunway_vllm/samples/index.toml"),
        ("airunway_vllm_simulator", "airunway_vllm_simulator/crds/leaderworkersets.yaml"),
    ):
        assert data in zipfile.ZipFile(wheels[wheel]).namelist()
    core = zipfile.ZipFile(wheels["airunway"]).namelist()
    assert sum(entry.startswith("airunway/api/crds/") and entry.endswith(".yaml") for entry in core) == len(
        custom_resource_definitions()
    )


def test_the_core_is_production_code_only(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["airunway"]) as core:
        for entry in core.namelist():
            assert not {"testing", "sandbox", "simulators", "controlplane", "samples"} & set(entry.split("/")), entry
            source = core.read(entry).decode() if entry.endswith(".py") else ""
            assert not re.search(r"^\s*(import|from) (pytest|hypothesis|testcontainers)\b", source, re.M), entry
            assert "airunway_testing" not in source, entry


def definitions(kubectl: Kubectl) -> list[str]:
    """The names of the CRDs that the cluster has."""
    return [name.partition("/")[2] for name in kubectl("get", "crd", "-o", "name").stdout.split()]


async def remove(kubeconfig: Path, definitions: list[str]) -> None:
    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client:
        for definition in definitions:
            await remove_definition(client, definition)


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_model_runs_from_wheels_without_a_foreign_crd(
    wheels: dict[str, Path], tmp_path: Path, kubeconfig: Path, kubectl: Kubectl, namespace: str
) -> None:
    """Core and airunway-vllm as the two processes that a user starts: a Deployment, and nobody's operator."""
    foreign = sorted(set(definitions(kubectl)) - OURS)
    asyncio.run(remove(kubeconfig, foreign))  # of other tests on the same API server
    programs = environment(tmp_path, "airunway-vllm", wheels=wheels)
    kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=run(programs / "airunway", "crds", cwd=tmp_path)
    )
    kubectl("wait", "--for=condition=Established", "crd/modeldeployments.airunway.ai", "--timeout=60s")
    kubectl("wait", "--for=condition=Established", "crd/inferenceproviderconfigs.airunway.ai", "--timeout=60s")
    assert set(definitions(kubectl)) == OURS
    commands = [["controller"], ["provider", "run", "vllm"]]
    with contextlib.ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((tmp_path / f"{command[0]}.log").open("w"))
            started = [str(programs / "airunway"), *command, "--kubeconfig", str(kubeconfig)]
            process = stack.enter_context(subprocess.Popen(started, cwd=tmp_path, stdout=log, stderr=log))
            stack.callback(process.terminate)
        kubectl("apply", "-n", namespace, "-f", "-", stdin=PLAIN)
        kubectl("wait", "-n", namespace, "--for=jsonpath={.status.phase}=Running", "md/plain", "--timeout=120s")
        owners = kubectl("get", "deployment", "plain", "-n", namespace, "-o", "jsonpath={.metadata.ownerReferences}")
        assert "ModelDeployment" in owners.stdout
        kubectl("delete", "md", "plain", "-n", namespace, "--timeout=60s")
