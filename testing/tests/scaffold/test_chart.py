"""The chart of the skeleton: over the library that our own charts are over, and as strict as they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from airunway.resource import Resource, dig
from airunway_testing.kubetools import KubeToolMissingError, helm_path
from airunway_testing.scaffold import write_skeleton

pytestmark = pytest.mark.chart

CHARTS = Path(__file__).parents[3] / "charts"


@pytest.fixture(scope="module", params=["acme", "four-words-of-a-name"])
def chart(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of a new provider, with the library where `helm dependency update` would put it."""
    folder = tmp_path_factory.mktemp("skeleton")
    write_skeleton(request.param, folder)
    shutil.copytree(CHARTS / "airunway-common", folder / "chart" / "charts" / "airunway-common")
    return folder / "chart"


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    try:
        program = helm_path(4)
    except KubeToolMissingError as error:
        pytest.skip(str(error))
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def rendered(chart: Path, *options: str) -> list[Resource]:
    done = helm("template", "mine", chart, "--namespace", "airunway-system", *options)
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.safe_load_all(done.stdout) if obj]


def test_lint_finds_nothing(chart: Path) -> None:
    done = helm("lint", "--strict", chart)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_objects_fit_the_schemas_of_each_kubernetes(chart: Path, version: str) -> None:
    values = ("--set=networkPolicy.enabled=true", "--set=watchNamespaces={team-a}")
    for obj in [*rendered(chart), *rendered(chart, *values)]:
        kubernetes_validate.validate(obj, version, strict=True)


def test_its_pods_are_as_restricted_as_ours_and_run_the_provider(chart: Path) -> None:
    objects = rendered(chart, "--set=settings.image=registry.internal/vllm:1")
    (pod,) = [dig(obj, "spec", "template", "spec") for obj in objects if obj["kind"] == "Deployment"]
    (container,) = pod["containers"]
    name = chart.parent.glob("simulator/src/*/crds/*.yaml")
    (provider,) = [path.stem for path in name]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["args"][:3] == ["provider", "run", provider]
    assert '--set=image="registry.internal/vllm:1"' in container["args"]
    assert container["image"] == f"registry.example/airunway-{provider}:0.1.0"
    kinds = {obj["kind"] for obj in objects}
    assert {"PodDisruptionBudget", "ValidatingAdmissionPolicy", "ClusterRole", "Role", "ServiceAccount"} <= kinds


@pytest.mark.parametrize("value", ["replicaz=2", "settings.imagge=x", "image.digest=sha256:12"])
def test_a_wrong_value_is_refused_by_its_name(chart: Path, value: str) -> None:
    refused = helm("template", "mine", chart, "--set", value)
    assert refused.returncode != 0
    assert value.partition("=")[0].rpartition(".")[2] in refused.stderr


def test_the_library_is_named_with_the_versions_that_it_works_with(chart: Path) -> None:
    (dependency,) = yaml.safe_load((chart / "Chart.yaml").read_text())["dependencies"]
    library = yaml.safe_load((CHARTS / "airunway-common" / "Chart.yaml").read_text())
    assert dependency["name"] == library["name"]
    assert dependency["version"] == f"~{library['version'].rpartition('.')[0]}.0"
    assert json.loads((chart / "values.schema.json").read_text())["additionalProperties"] is False
