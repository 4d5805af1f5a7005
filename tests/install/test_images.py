"""Our images: what is in them and what is not, that building one twice makes the same, and that they run a model.

All that needs images is in this file, so that they are built by one process of a run.
"""

from __future__ import annotations

import json
import re
import stat
import subprocess
import tarfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tests.install.endtoend import live_through
from tests.install.helm import APPLICATIONS, Helm, Major
from tests.install.images import NAMES, Images, identity, mounted
from tests.install.installation import ALL_CHARTS_OF
from tests.install.keys import new_key
from tests.install.node import containers
from tests.install.pages import follow
from tests.install.verifying import check_files, check_image
from tools.archives import unpack
from tools.charts.package import DIGEST
from tools.images.architectures import ARCHITECTURES, Architecture, here
from tools.images.bill import LicenceError, licence_of, problems
from tools.images.build import BASE, CATALOGUE, CONTROLLER, DOWNLOADER, TOOLBOX, packages_by_image
from tools.images.site import stale_entries, uv
from tools.release import release
from tools.supply.oci import Layout
from tools.supply.signing import Signer

import airunway
from airunway.plugins.registry import load

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(600)]

SHELLS = {"sh", "bash", "dash", "busybox", "ash", "zsh"}
TOOLS = {"pip", "pip3", "apt", "apt-get", "dpkg", "curl", "wget", "perl"}


def test_an_image_has_python_and_nothing_else_to_start(images: Images, name: str) -> None:
    with mounted(images.names[name]) as root:
        assert {path.name for path in (root / "usr/bin").iterdir()} == {"python3", "python3.13"}
        assert list((root / "usr/sbin").iterdir()) == []
        everything = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        started = [path for path in everything if path.stat().st_mode & stat.S_IXUSR and path.suffix != ".so"]
        assert not {path.name for path in started} & (SHELLS | TOOLS)
        assert not (root / "opt/airunway/pip").exists()
        assert not [path for path in everything if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
        assert not [path for path in everything if path.stat().st_mode & stat.S_IWOTH]
        assert {path.stat().st_uid for path in everything} == {0}, "nothing belongs to the account that runs it"


def test_an_image_keeps_to_its_budget(images: Images, name: str) -> None:
    """Why it is no smaller: images/README.md. What it is compressed is seen of a release."""
    with mounted(images.names[name]) as root:
        files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        assert sum(path.stat().st_size for path in files) <= (40 if name == DOWNLOADER else 100) << 20


def test_an_image_says_who_runs_it_and_what_it_is(images: Images, name: str) -> None:
    (inspected,) = json.loads(images.podman("image", "inspect", images.names[name]).stdout)
    config = inspected["Config"]
    assert config["User"] == "65532:65532", "a number, so that the kubelet can see that it is not root"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == f"airunway-{name}"
    assert labels["org.opencontainers.image.version"] == airunway.__version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_program_runs_as_a_restricted_pod_runs_it(images: Images, name: str) -> None:
    if name == DOWNLOADER:
        assert images.run(name, "--version").strip() == f"airunway-download {airunway.__version__}"
        return
    assert images.run(name, "version").strip() == f"airunway {airunway.__version__}"
    assert "controller" in images.run(name, "--help")
    if name == CATALOGUE:
        assert "--max-discoveries" in images.run(name, "catalogue", "--help")
    if name in ("controller", CATALOGUE):
        assert images.podman("run", "--rm", images.names[name], "provider", "list", check=False).returncode == 1
    else:
        assert images.run(name, "provider", "list").split()[0] == name.removeprefix("provider-")


def test_rules_are_evaluated_by_the_fast_library(images: Images) -> None:
    """Its extension modules are among those that are pruned: of those that are used none may be missing."""
    program = (
        "from airunway.cel import compile_expression as c; p = c('[1, 2].exists(x, x == spec.n)', variables=['spec']);"
        "print(p.evaluator, p.evaluate({'spec': {'n': 2}}))"
    )
    said = images.run("controller", "-c", program, options=["--entrypoint=/usr/bin/python3.13"])
    assert said.split() == ["cel-cpp", "True"]


def test_every_module_of_ours_and_of_the_provider_can_be_imported(images: Images, name: str) -> None:
    """What is pruned is used by nothing that an image runs (the commands of development are no part of it)."""
    if name in ("controller", DOWNLOADER, CATALOGUE):
        packages = {packages_by_image()[name]}
    else:
        packages = {"airunway", load(name.removeprefix("provider-")).origin.split()[0]}
    modules = {package.replace("-", "_") for package in packages}
    # The downloader's interpreter is isolated: its entry point alone knows where the package is.
    program = f"""
import importlib, pkgutil, sys
sys.path.append("/opt/airunway")
for package in {modules}:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print("all")
"""
    assert images.run(name, "-c", program, options=["--entrypoint=/usr/bin/python3.13"]).split() == ["all"]


def test_a_traceback_names_files_and_shows_our_own_lines(images: Images) -> None:
    program = (
        "import traceback, airunway.quantity as q\ntry: q.parse_quantity('x')\nexcept Exception: traceback.print_exc()"
    )
    options = ["--entrypoint=/usr/bin/python3.13"]
    done = images.podman("run", "--rm", *options, images.names["controller"], "-c", program)
    assert re.search(r'File "/opt/airunway/airunway/quantity.py", line \d+, in \w+\n +\S', done.stderr), done.stderr


def test_the_bill_lists_everything_and_is_inside_and_beside(images: Images, name: str) -> None:
    beside = images.builder.bill_of(name).read_text()
    with mounted(images.names[name]) as root:
        assert (root / "usr/share/sbom/airunway.cdx.json").read_text() == beside
        installed = {PathDistribution(path) for path in (root / "opt/airunway").glob("*.dist-info")}
        wheels = {f"{found.metadata['Name']}=={found.version}" for found in installed}
        packages = {path.name for path in (root / "var/lib/dpkg/status.d").iterdir()}
        copyrights = {path.parent.name for path in (root / "usr/share/doc").glob("*/copyright")}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(beside) is None
    components = json.loads(beside)["components"]
    assert {f"{c['name']}=={c['version']}" for c in components if c["purl"].startswith("pkg:pypi/")} == wheels
    assert {c["name"] for c in components if c["purl"].startswith("pkg:deb/")} == packages
    assert all(c["licenses"] for c in components if c["purl"].startswith("pkg:pypi/"))
    # Some packages share the file of the one that they are built with.
    assert len(copyrights) >= len(packages) - 3


def test_only_what_the_lock_names_is_installed(images: Images, name: str, tmp_path: Path) -> None:
    lock = (Path(__file__).parents[2] / "uv.lock").read_text()
    locked = set(re.findall(r'^name = "([^"]+)"\nversion = "([^"]+)"', lock, re.M))
    with mounted(images.names[name]) as root:
        for path in (root / "opt/airunway").glob("*.dist-info"):
            found = PathDistribution(path)
            normal = re.sub(r"[-_.]+", "-", str(found.metadata["Name"])).lower()
            assert (normal, found.version) in locked


def test_the_same_image_twice(images: Images) -> None:
    """Base and all: the archive is the same byte for byte, and so is what is compiled."""
    before = identity(images.base), identity(images.names["controller"])
    base = images.builder.base()
    again = images.builder.image("controller", base)
    assert (identity(base), identity(again)) == before


def test_nothing_in_the_list_of_what_is_pruned_is_stale(images: Images, tmp_path: Path) -> None:
    unpruned = images.builder.site("controller", tmp_path / "site", prune=False)
    assert stale_entries(unpruned) == []


def test_a_wheel_with_another_hash_is_refused(images: Images, tmp_path: Path) -> None:
    requirement = tmp_path / "requirements.txt"
    requirement.write_text(f"airunway=={airunway.__version__} --hash=sha256:{'0' * 64}\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        uv(
            *("pip", "install", "--target", tmp_path / "site", "--require-hashes", "--no-deps", "--no-index"),
            *("--find-links", images.builder.wheels, "-r", requirement),
        )
    assert "hash mismatch" in failed.value.stderr.lower()


def distribution(folder: Path, metadata: str) -> PathDistribution:
    path = folder / "thing-1.dist-info"
    path.mkdir(exist_ok=True)
    (path / "METADATA").write_text(f"Metadata-Version: 2.4\nName: thing\nVersion: 1\n{metadata}")
    return PathDistribution(path)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\n", "MIT OR Apache-2.0"),
        ("License: MIT\n", "MIT"),
        ("License: see the file\nClassifier: License :: OSI Approved :: MIT License\n", "MIT"),
    ],
)
def test_licences_are_found_in_old_and_new_metadata(tmp_path: Path, metadata: str, licence: str) -> None:
    assert licence_of(distribution(tmp_path, metadata)) == licence
    assert problems([distribution(tmp_path, metadata)]) == []


def test_a_licence_that_is_not_allowed_or_not_known_stops_the_build(tmp_path: Path) -> None:
    (problem,) = problems([distribution(tmp_path, "License-Expression: MIT AND GPL-3.0-only\n")])
    assert problem == "thing is under MIT AND GPL-3.0-only; images/licences.yaml does not allow GPL-3.0-only"
    with pytest.raises(LicenceError, match="names no licence that is known"):
        licence_of(distribution(tmp_path, ""))


def test_a_provider_is_one_layer_on_the_controller(images: Images) -> None:
    def layers(name: str) -> list[str]:
        (inspected,) = json.loads(images.podman("image", "inspect", images.names[name]).stdout)
        return list(inspected["RootFS"]["Layers"])

    for name in NAMES:
        if name.startswith("provider-"):
            assert layers(name)[:-1] == layers("controller"), name


def test_the_downloader_is_one_layer_on_the_base_and_has_nothing_of_the_controller(images: Images) -> None:
    with mounted(images.names[DOWNLOADER]) as root:
        assert not (root / "opt/airunway/airunway").exists()
        installed = {PathDistribution(path).metadata["Name"] for path in (root / "opt/airunway").glob("*.dist-info")}
    assert installed == {"airunway-downloader", "urllib3"}
    options = ["--env=AIRUNWAY_TERMINATION_LOG=/tmp/log"]
    done = images.podman("run", "--rm", *options, images.names[DOWNLOADER], "check-size", "nothing", check=False)
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["reason"] == "InvalidSpec"


def test_the_toolbox_tests_charts_where_nothing_else_is(helms: dict[Major, Helm], images: Images) -> None:
    image = images.builder.image(TOOLBOX, images.base)
    restricted = ["--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp"]
    charts = [f"--volume={helms[4].folder}:/charts:ro", "--workdir=/charts"]

    def run(program: str, *arguments: str) -> str:
        return images.podman("run", *restricted, *charts, f"--entrypoint={program}", image, *arguments).stdout

    try:
        for helm, major in (("helm3", "v3."), ("helm", "v4.")):
            assert run(helm, "version", "--template={{.Version}}").startswith(major)
            assert "0 chart(s) failed" in run(helm, "lint", "--strict", *APPLICATIONS)
        assert "gitVersion" in run("kubectl", "version", "--client", "--output=json")
        said = images.podman("run", *restricted, image, "provider", "list").stdout
        assert {f"provider-{line.split()[0]}" for line in said.splitlines()} == set(NAMES) - {
            "controller",
            DOWNLOADER,
            CATALOGUE,
        }
        components = json.loads(images.builder.bill_of(TOOLBOX).read_text())["components"]
        assert {"helm", "helm3", "kubectl", "airunway", "libc6"} <= {found["name"] for found in components}
    finally:
        subprocess.run(["buildah", "rmi", "--force", image], check=False, capture_output=True)


@pytest.mark.cluster
def test_the_commands_with_the_images(helms: dict[Major, Helm], images: Images, tmp_path: Path) -> None:
    """What the pods run are our images, as their specs say: read-only, no capability, their own account."""
    follow(helms[4], tmp_path, containers(images.configuration), images)


@pytest.mark.cluster
def test_the_end_to_end_run_on_the_images(helms: dict[Major, Helm], images: Images, tmp_path: Path) -> None:
    """Core and vLLM, as containers that the charts' pods ask for."""
    charts = {process: ALL_CHARTS_OF[process] for process in ("core", "vllm")}
    live_through(helms[4], tmp_path, containers(images.configuration), charts, images)


PACKED = (CONTROLLER, DOWNLOADER, "provider-kaito")
"""Of a release, one image of each kind: the catalogue's and those of other providers are packed as this provider's."""


def test_images_of_a_release_are_for_every_architecture_signed_and_named_by_digest(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the other architecture is run: what is in its image is looked at."""
    target, others = tmp_path / "release", [each for each in ARCHITECTURES.values() if each != here()]
    builders = [images.builder, *(images.builder.of(each) for each in others)]
    for made in builders[1:]:
        for name in set(NAMES) - set(PACKED):
            assert made.site(name, tmp_path / made.architecture.name / name, below="airunway").distributions()
    signer = Signer(key=new_key())
    packages = {name: package for name, package in packages_by_image().items() if name in PACKED}
    monkeypatch.setattr("tools.images.build.packages_by_image", lambda: packages)
    release(airunway.__version__, target, registry="registry.internal/team", images=builders, signer=signer)
    try:
        check_files(target)
        check_image(target)
        _check_archives(target)
        for made in builders[1:]:
            _check_contents(made.tag("controller"), made.architecture, like=images.names["controller"])
    finally:
        built = [made.tag(name) for made in builders[1:] for name in (*PACKED, BASE)]
        subprocess.run(["buildah", "rmi", "--force", *built], check=False, capture_output=True)


def _check_archives(target: Path) -> None:
    folder = target / "images"
    assert {path.name for path in folder.glob("*.oci.tar")} == {f"{name}.oci.tar" for name in PACKED}
    digests = dict(line.split() for line in (folder / "digests.txt").read_text().splitlines())
    assert set(digests) == {f"airunway/{name}" for name in PACKED}
    assert {path.name for path in (target / "sboms").iterdir()} == {
        f"airunway-{name}-{architecture}.cdx.json" for name in PACKED for architecture in ARCHITECTURES
    }
    for name in PACKED:
        digest, unpacked = digests[f"airunway/{name}"], target / "unpacked" / name
        with tarfile.open(folder / f"{name}.oci.tar") as archive:
            unpack(archive, unpacked)
        layout = Layout(folder=unpacked)
        assert layout.tags()[airunway.__version__]["digest"] == digest
        index = json.loads((unpacked / "blobs" / digest.replace(":", "/")).read_text())
        assert {found["platform"]["architecture"] for found in index["manifests"]} == set(ARCHITECTURES)
        for found in index["manifests"]:
            manifest = json.loads((unpacked / "blobs" / found["digest"].replace(":", "/")).read_text())
            config = json.loads((unpacked / "blobs" / manifest["config"]["digest"].replace(":", "/")).read_text())
            assert config["architecture"] == found["platform"]["architecture"]
            if name == CONTROLLER:  # the others differ by some hundred kilobytes
                assert sum(layer["size"] for layer in manifest["layers"]) <= 40 << 20
        if name == DOWNLOADER:  # of no chart of its own
            continue
        part = "airunway" if name == "controller" else f"airunway-{name}"
        with tarfile.open(target / "charts" / f"{part}-{airunway.__version__}.tgz") as package:
            chart = package.extractfile(f"{part}/Chart.yaml")
            assert chart is not None
            assert yaml.load(chart, Loader=yaml.CSafeLoader)["annotations"][DIGEST] == digest
        assert f"airunway/controller:{airunway.__version__}@sha256:" in (target / "install.yaml").read_text()


def _check_contents(image: str, architecture: Architecture, *, like: str) -> None:
    """The same files as in this machine's image, and every program is for the architecture."""
    number = {"amd64": 62, "arm64": 183}[architecture.name]  # e_machine of ELF
    with mounted(image) as root, mounted(like) as here_root:
        programs = [path for path in root.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        assert len(programs) > 50
        assert {int.from_bytes(path.read_bytes()[18:20], "little") for path in programs} == {number}
        assert _modules(root) == _modules(here_root)
        for module in ("opt/airunway/airunway/quantity.py", "usr/lib/python3.13/json/decoder.pyc"):
            assert (root / module).read_bytes() == (here_root / module).read_bytes(), "byte code is the same for all"


def _modules(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "opt/airunway").rglob("*.pyc")}
