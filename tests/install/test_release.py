"""A release is whole, of one version, signed if there is a key, and the same for the same commit."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)
from tests.install.helm import APPLICATIONS
from tests.install.keys import new_key
from tests.install.verifying import check_files
from tools.archives import unpack
from tools.changelog import changelog
from tools.charts.package import DIGEST, package_charts, render
from tools.generated import ROOT
from tools.home import links
from tools.publish import PublishError, uploads
from tools.release import ReleaseError, main, release
from tools.supply.oci import Layout
from tools.supply.provenance import PREDICATE
from tools.supply.signing import Signer

from airunway import __version__
from airunway.api.crds import custom_resource_definitions

pytestmark = [pytest.mark.chart, pytest.mark.slow]

REGISTRY = "registry.internal/team"


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer(key=new_key())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Path:
    target = tmp_path_factory.mktemp("release") / "made"
    release(__version__, target, registry=REGISTRY, images=[], signer=signer)
    return target


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The release, for a test that changes it."""
    return shutil.copytree(made, tmp_path / "copied")


def test_it_is_whole_and_of_one_version(made: Path) -> None:
    names = sorted(path.name for path in (made / "python").iterdir())
    assert {re.sub(r"-.*", "", name) for name in names} >= {"airunway", "airunway_kaito", "airunway_vllm"}
    assert len(names) == 2 * len({re.sub(r"-.*", "", name) for name in names}), "a wheel and an sdist of each"
    assert all(f"-{__version__}" in name for name in names)
    packages = {path.name for path in (made / "charts").iterdir()}
    assert packages == {f"{chart}-{__version__}.tgz" for chart in ("airunway-common", *APPLICATIONS)}
    assert {path.name for path in (made / "charts-oci").glob("*.tar")} == {
        f"{chart}.oci.tar" for chart in ("airunway-common", *APPLICATIONS)
    }


def test_a_release_has_the_changelog(made: Path) -> None:
    changes = (made / "CHANGELOG.md").read_text()
    assert changes.startswith(f"## {__version__} (")
    assert changes == changelog(__version__, re.findall(r"\((.*)\)", changes)[0])


def test_it_has_notes_for_who_upgrades() -> None:
    page = ROOT / "docs" / "releases" / f"{__version__}.md"
    assert page.exists(), "what has to be known before an upgrade to this release"
    assert f"]({page.name})" in (page.parent / "README.md").read_text()


def test_it_is_checked_by_the_commands_of_the_page(copied: Path) -> None:
    check_files(copied)


@pytest.mark.parametrize("name", ["checksums.txt", "install.yaml", f"charts/airunway-{__version__}.tgz"])
def test_a_changed_byte_is_found_by_the_commands_of_the_page(copied: Path, name: str) -> None:
    content = bytearray((copied / name).read_bytes())
    content[10] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(AssertionError, match=r"FAILED|failure"):
        check_files(copied)


def test_another_key_is_found_out(copied: Path) -> None:
    (copied / "signing-key.pub").write_bytes(Signer(key=new_key()).public())
    with pytest.raises(AssertionError, match="failure"):
        check_files(copied)


def test_the_provenance_is_of_every_file_and_its_envelope_is_signed(made: Path, signer: Signer) -> None:
    statement = json.loads((made / "provenance.json").read_text())
    envelope = json.loads((made / "provenance.intoto.jsonl").read_text())
    assert statement["predicateType"] == PREDICATE
    assert json.loads(base64.b64decode(envelope["payload"])) == statement
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    of_it = {"provenance.json", "provenance.intoto.jsonl", "checksums.txt", "checksums.txt.sig", "signing-key.pub"}
    digests = dict(line.split() for line in (made / "charts-oci" / "digests.txt").read_text().splitlines())
    subjects = {found["name"]: found["digest"]["sha256"] for found in statement["subject"]}
    assert set(subjects) == (files - of_it) | {f"{REGISTRY}/{repository}" for repository in digests}
    for repository, digest in digests.items():
        assert f"sha256:{subjects[f'{REGISTRY}/{repository}']}" == digest
    definition = statement["predicate"]["buildDefinition"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert definition["externalParameters"]["source"]["digest"] == {"gitCommit": commit.strip()}
    assert {found["uri"] for found in definition["resolvedDependencies"]} >= {"uv.lock", "images/base.lock.yaml"}
    assert load_pem_public_key((made / "signing-key.pub").read_bytes()) == signer.key.public_key()


def test_a_chart_is_the_same_in_an_archive_for_registries(made: Path, tmp_path: Path) -> None:
    for layout, tag, repository in uploads(made, tmp_path, folders=("charts-oci",)):
        name = repository.rpartition("/")[2]
        if tag != __version__:
            continue
        digest = layout.tags()[tag]["digest"]
        assert set(layout.tags()) == {tag, *(f"{digest.replace(':', '-')}.{kind}" for kind in ("sig", "att"))}
        manifest = json.loads((layout.folder / "blobs" / digest.replace(":", "/")).read_text())
        (layer,) = manifest["layers"]
        content = (layout.folder / "blobs" / layer["digest"].replace(":", "/")).read_bytes()
        assert content == (made / "charts" / f"{name}-{__version__}.tgz").read_bytes()


def test_an_archive_with_another_content_is_not_published(copied: Path, tmp_path: Path) -> None:
    path = copied / "charts-oci" / "digests.txt"
    path.write_text(re.sub(r"sha256:\w+", f"sha256:{'0' * 64}", path.read_text(), count=1))
    with pytest.raises(PublishError, match=r"charts-oci/airunway.oci.tar does not have sha256:0000"):
        list(uploads(copied, tmp_path / "unpacked", folders=("charts-oci",)))


def test_an_archive_whose_blob_was_exchanged_is_not_published(copied: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "other"
    archive = copied / "charts-oci" / "airunway.oci.tar"
    with tarfile.open(archive) as content:
        unpack(content, unpacked)
    digest = Layout(folder=unpacked).tags()[__version__]["digest"]
    (unpacked / "blobs" / digest.replace(":", "/")).write_text("{}")
    with tarfile.open(archive, "w") as content:
        content.add(unpacked, arcname=".")
    with pytest.raises(PublishError, match=r"airunway.oci.tar: sha256:\w+ has another content"):
        list(uploads(copied, tmp_path / "unpacked", folders=("charts-oci",)))


def test_charts_of_a_release_name_images_by_digest_unless_a_tag_is_given(tmp_path: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    digests = {"airunway/controller": digest}
    charts = package_charts(tmp_path / "with", registry=REGISTRY, time=0, digests=digests)
    assert f"image: {REGISTRY}/airunway/controller:{__version__}@{digest}\n" in _rendered(charts["airunway"])
    assert f"image: {REGISTRY}/airunway/controller:mine\n" in _rendered(charts["airunway"], "image.tag=mine")
    other = f"sha256:{'b' * 64}"
    chosen = _rendered(charts["airunway"], f"image.digest={other}")
    assert f"image: {REGISTRY}/airunway/controller@{other}\n" in chosen
    kaito = _rendered(charts["airunway-provider-kaito"])
    assert f"image: {REGISTRY}/airunway/provider-kaito:{__version__}\n" in kaito, "that image has no digest yet"
    without = package_charts(tmp_path / "without", registry=REGISTRY, time=0)
    assert f"image: {REGISTRY}/airunway/controller:{__version__}\n" in _rendered(without["airunway"])
    for metadata in (ROOT / "charts").glob("*/Chart.yaml"):
        assert DIGEST not in metadata.read_text(), "a checkout knows no digest"


def test_wheels_and_charts_say_where_the_project_is_at_home(made: Path) -> None:
    for wheel in (made / "python").glob("*.whl"):
        with zipfile.ZipFile(wheel) as content:
            (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = message_from_bytes(content.read(name))
        urls = dict(line.split(", ") for line in metadata.get_all("Project-URL") or [])
        assert urls == links(), wheel.name
    for path in (ROOT / "charts").glob("*/Chart.yaml"):
        chart = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        assert chart["home"] == links()["Homepage"]
        assert {"sources", "icon", "maintainers"} <= set(chart)
    assert (ROOT / "docs" / "icon.svg").exists()


def test_a_release_for_the_public_needs_a_key_and_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["release", __version__, "--without-images", "--public", "--output", str(tmp_path / "release")]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 1
    assert "is signed: give --signing-key" in capsys.readouterr().err
    key = tmp_path / "key.pem"
    new = new_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key.write_bytes(new)
    monkeypatch.setattr(sys, "argv", [*command, "--signing-key", str(key)])
    (tmp_path / "pyproject.toml").write_text('[tool.airunway]\nhome = "https://somewhere.example/"\n')
    monkeypatch.setattr("tools.home.ROOT", tmp_path)
    assert main() == 1
    assert "https://somewhere.example is an address for examples: set `home`" in capsys.readouterr().err
    key.write_bytes(b"no key")
    monkeypatch.setattr(sys, "argv", [*command, "--signing-key", str(key)])
    assert main() == 1
    assert "is no private key that can be opened" in capsys.readouterr().err
    assert not (tmp_path / "release").exists()


def test_charts_know_the_registry_and_bring_what_they_depend_on(made: Path) -> None:
    with tarfile.open(made / "charts" / f"airunway-{__version__}.tgz") as package:
        values = package.extractfile("airunway/values.yaml")
        assert values is not None
        assert yaml.load(values, Loader=yaml.CSafeLoader)["image"]["registry"] == REGISTRY
        assert any("airunway-common" in name for name in package.getnames())


def test_the_plain_manifests_are_crds_core_and_its_namespace(made: Path) -> None:
    objects = [obj for obj in yaml.load_all((made / "install.yaml").read_text(), Loader=yaml.CSafeLoader) if obj]
    kinds = [obj["kind"] for obj in objects]
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == len(custom_resource_definitions())
    assert kinds.count("Deployment") == 1
    crds = [obj for obj in yaml.load_all((made / "crds.yaml").read_text(), Loader=yaml.CSafeLoader) if obj]
    assert {obj["kind"] for obj in crds} == {"CustomResourceDefinition"}


def test_it_is_the_same_again(made: Path, tmp_path: Path, signer: Signer) -> None:
    release(__version__, tmp_path / "again", registry=REGISTRY, images=[], signer=signer)
    for name in ("checksums.txt", "checksums.txt.sig"):
        assert (tmp_path / "again" / name).read_text() == (made / name).read_text()
    done = subprocess.run(["sha256sum", "--check", "--quiet", "checksums.txt"], cwd=made, check=False)
    assert done.returncode == 0


def test_another_version_is_refused_and_a_folder_is_not_overwritten(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"catalogue/pyproject.toml has version .*, not 9.9.9: .* change it there"):
        release("9.9.9", tmp_path / "release", registry=REGISTRY, images=[])
    with pytest.raises(ReleaseError, match="is there already"):
        release(__version__, made, registry=REGISTRY, images=[])


def _rendered(chart: Path, *values: str) -> str:
    return render(chart, name="airunway", namespace="airunway-system", values=values)
