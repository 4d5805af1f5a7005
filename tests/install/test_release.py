"""A release is whole, of one version, and the same for the same commit."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from tests.install.helm import APPLICATIONS
from tests.install.images import NAMES, Images
from tools.release import ReleaseError, release

from airunway import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REGISTRY = "registry.internal/team"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("release") / "made"
    release(__version__, target, registry=REGISTRY, images=None)
    return target


@pytest.mark.chart
def test_it_is_whole_and_of_one_version(made: Path) -> None:
    names = sorted(path.name for path in (made / "python").iterdir())
    assert {re.sub(r"-.*", "", name) for name in names} >= {"airunway", "airunway_kaito", "airunway_vllm"}
    assert len(names) == 2 * len({re.sub(r"-.*", "", name) for name in names}), "a wheel and an sdist of each"
    assert all(f"-{__version__}" in name for name in names)
    packages = {path.name for path in (made / "charts").iterdir()}
    assert packages == {f"{chart}-{__version__}.tgz" for chart in APPLICATIONS}
    assert __version__ in (made / "CHANGELOG.md").read_text()


@pytest.mark.chart
def test_charts_know_the_registry_and_bring_what_they_depend_on(made: Path) -> None:
    with tarfile.open(made / "charts" / f"airunway-{__version__}.tgz") as package:
        values = package.extractfile("airunway/values.yaml")
        assert values is not None
        assert yaml.safe_load(values)["image"]["registry"] == REGISTRY
        assert any("airunway-common" in name for name in package.getnames())


@pytest.mark.chart
def test_the_plain_manifests_are_crds_core_and_its_namespace(made: Path) -> None:
    objects = [obj for obj in yaml.safe_load_all((made / "install.yaml").read_text()) if obj]
    kinds = [obj["kind"] for obj in objects]
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == 2
    assert kinds.count("Deployment") == 1
    crds = [obj for obj in yaml.safe_load_all((made / "crds.yaml").read_text()) if obj]
    assert {obj["kind"] for obj in crds} == {"CustomResourceDefinition"}


@pytest.mark.chart
def test_it_is_the_same_again(made: Path, tmp_path: Path) -> None:
    release(__version__, tmp_path / "again", registry=REGISTRY, images=None)
    assert (tmp_path / "again" / "checksums.txt").read_text() == (made / "checksums.txt").read_text()
    done = subprocess.run(["sha256sum", "--check", "--quiet", "checksums.txt"], cwd=made, check=False)
    assert done.returncode == 0


@pytest.mark.chart
def test_another_version_is_refused_and_a_folder_is_not_overwritten(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"core/pyproject.toml has version .*, not 9.9.9: .* change it there"):
        release("9.9.9", tmp_path / "release", registry=REGISTRY, images=None)
    with pytest.raises(ReleaseError, match="is there already"):
        release(__version__, made, registry=REGISTRY, images=None)


@pytest.mark.image
def test_images_are_archives_with_digests_and_bills(images: Images, tmp_path: Path) -> None:
    release(__version__, tmp_path / "release", registry=REGISTRY, images=images.builder)
    folder = tmp_path / "release" / "images"
    assert {path.name for path in folder.glob("*.oci.tar")} == {f"{name}.oci.tar" for name in NAMES}
    digests = dict(line.split() for line in (folder / "digests.txt").read_text().splitlines())
    assert set(digests) == {f"airunway/{name}" for name in NAMES}
    assert {path.name for path in (tmp_path / "release" / "sboms").iterdir()} == {
        f"airunway-{name}.cdx.json" for name in NAMES
    }
    for name in NAMES:
        with tarfile.open(folder / f"{name}.oci.tar") as archive:
            assert "blobs/" + digests[f"airunway/{name}"].replace(":", "/") in archive.getnames()
