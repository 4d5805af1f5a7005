"""A release is whole, of one version, and the same for the same commit."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from tests.install.helm import APPLICATIONS
from tools.release import ReleaseError, release

from airunway import __version__

pytestmark = [pytest.mark.chart, pytest.mark.slow]

REGISTRY = "registry.internal/team"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("release") / "made"
    release(__version__, target, registry=REGISTRY, images=None)
    return target


def test_it_is_whole_and_of_one_version(made: Path) -> None:
    names = sorted(path.name for path in (made / "python").iterdir())
    assert {re.sub(r"-.*", "", name) for name in names} >= {"airunway", "airunway_kaito", "airunway_vllm"}
    assert len(names) == 2 * len({re.sub(r"-.*", "", name) for name in names}), "a wheel and an sdist of each"
    assert all(f"-{__version__}" in name for name in names)
    packages = {path.name for path in (made / "charts").iterdir()}
    assert packages == {f"{chart}-{__version__}.tgz" for chart in ("airunway-common", *APPLICATIONS)}
    assert __version__ in (made / "CHANGELOG.md").read_text()


def test_charts_know_the_registry_and_bring_what_they_depend_on(made: Path) -> None:
    with tarfile.open(made / "charts" / f"airunway-{__version__}.tgz") as package:
        values = package.extractfile("airunway/values.yaml")
        assert values is not None
        assert yaml.safe_load(values)["image"]["registry"] == REGISTRY
        assert any("airunway-common" in name for name in package.getnames())


def test_the_plain_manifests_are_crds_core_and_its_namespace(made: Path) -> None:
    objects = [obj for obj in yaml.safe_load_all((made / "install.yaml").read_text()) if obj]
    kinds = [obj["kind"] for obj in objects]
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == 2
    assert kinds.count("Deployment") == 1
    crds = [obj for obj in yaml.safe_load_all((made / "crds.yaml").read_text()) if obj]
    assert {obj["kind"] for obj in crds} == {"CustomResourceDefinition"}


def test_it_is_the_same_again(made: Path, tmp_path: Path) -> None:
    release(__version__, tmp_path / "again", registry=REGISTRY, images=None)
    assert (tmp_path / "again" / "checksums.txt").read_text() == (made / "checksums.txt").read_text()
    done = subprocess.run(["sha256sum", "--check", "--quiet", "checksums.txt"], cwd=made, check=False)
    assert done.returncode == 0


def test_another_version_is_refused_and_a_folder_is_not_overwritten(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"core/pyproject.toml has version .*, not 9.9.9: .* change it there"):
        release("9.9.9", tmp_path / "release", registry=REGISTRY, images=None)
    with pytest.raises(ReleaseError, match="is there already"):
        release(__version__, made, registry=REGISTRY, images=None)
