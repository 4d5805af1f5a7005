"""`airunway install` out of wheels, with nothing but a cluster: by helm where it is there, else without."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.install.helm import NAMESPACE, Helm, Major
from tools.images.site import uv
from tools.wheels import build_wheels, source_time

from airunway import __version__
from airunway.install.carried import placed
from airunway.install.parts import INVENTORY, in_order, reference_of
from airunway.resource import Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.kubetools import kubectl_path
from airunway_testing.waiting import PATIENCE

pytestmark = [pytest.mark.chart, pytest.mark.slow]

REGISTRY = "registry.internal/team"
PROVIDERS = ("kaito", "vllm")
PARTS = ["airunway-crds", "airunway", *(f"airunway-provider-{name}" for name in PROVIDERS)]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    build_wheels(folder, registry=REGISTRY, time=source_time())
    return folder


@pytest.fixture(scope="module")
def programs(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with core and two providers, out of the wheels."""
    folder = tmp_path_factory.mktemp("environment")
    uv("venv", "--quiet", "--python", sys.executable, folder / "env")
    found = [f"airunway-{name}" for name in PROVIDERS]
    uv("pip", "install", "--quiet", "--python", folder / "env/bin/python", "--find-links", wheels, "airunway", *found)
    return folder / "env" / "bin"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Somebody's machine: `programs` of the environment, perhaps a helm, and a cluster's administrator."""

    programs: Path
    kubeconfig: Path
    helms: Path

    def __call__(self, *command: str, code: int = 0) -> str:
        """What a command says; nothing of this environment reaches it."""
        done = subprocess.run(
            [self.programs / "airunway", *command],
            env={"PATH": str(self.helms), "HOME": os.environ["HOME"], "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def kubectl(self, *arguments: str) -> str:
        command = [str(kubectl_path()), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def deployments(self, namespace: str) -> dict[str, Resource]:
        listed = yaml.safe_load(self.kubectl("get", "deployments", "-n", namespace, "-o", "json"))["items"]
        return {each["metadata"]["name"]: each for each in listed}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane("api", roomy=True) as plane:
        yield plane


@pytest.fixture
def machine(programs: Path, plane: ControlPlane, tmp_path: Path) -> Machine:
    """A machine without helm; the cluster has been used by others."""
    helms = tmp_path / "bin"
    helms.mkdir()
    made = Machine(programs=programs, kubeconfig=plane.kubeconfig, helms=helms)
    made.kubectl("delete", "deployments", "--all", "--all-namespaces")
    definitions = made.kubectl("get", "crd", "-o", "name").split()
    if definitions:
        made.kubectl("delete", *definitions)
    return made


@pytest.fixture
def installed(machine: Machine, helm: Helm) -> Machine:
    """A machine with a helm, by which it has installed everything into the namespace of that name."""
    (machine.helms / "helm").symlink_to(helm.program)
    machine("install", "--providers", ",".join(PROVIDERS), "-n", f"helm-{helm.major}", "--timeout", "0")
    return machine


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("namespace", "registry"), [(NAMESPACE, REGISTRY), ("models", "mirror.example:5000/all")])
def test_what_is_carried_is_what_helm_makes_of_the_chart_that_is_carried(
    wheels: Path, helms: dict[Major, Helm], tmp_path: Path, part: str, namespace: str, registry: str
) -> None:
    provider = part.removeprefix("airunway-provider-") if "provider" in part else ""
    package = f"airunway_{provider}" if provider else "airunway"
    (wheel,) = wheels.glob(f"{package}-[0-9]*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(f"{package}/charts/{part}.tgz", tmp_path)
        carried = list(yaml.safe_load_all(archive.read(f"{package}/charts/{part}.yaml")))
    chart = tmp_path / package / "charts" / f"{part}.tgz"
    said = helms[3]("template", part, chart, "-n", namespace, f"--set-string=global.imageRegistry={registry}").stdout
    expected = {reference_of(obj): obj for obj in yaml.safe_load_all(said) if obj}
    found = [placed(obj, namespace=namespace, images=(REGISTRY, registry)) for obj in carried if obj]
    assert {reference_of(obj): obj for obj in found} == expected


@pytest.mark.apiserver
def test_without_helm_it_is_applied_upgraded_and_taken_away(machine: Machine) -> None:
    given = ("-n", "plain", "--timeout", "0")
    rehearsed = machine("install", "--providers", "kaito,vllm", *given, "--dry-run")
    assert [line.partition(":")[0] for line in rehearsed.splitlines()] == PARTS
    assert machine.deployments("plain") == {}
    machine("install", "--providers", "kaito,vllm", *given)
    found = machine.deployments("plain")
    assert sorted(found) == ["airunway-controller", "airunway-provider-kaito", "airunway-provider-vllm"]
    assert image_of(found["airunway-controller"]) == f"{REGISTRY}/airunway/controller:{__version__}"

    machine("upgrade", *given, "--registry", "mirror.example:5000/all")
    for name, deployment in machine.deployments("plain").items():
        assert image_of(deployment).startswith("mirror.example:5000/all/airunway/"), name
    assert "airunway-provider-kaito:" in machine("uninstall", "--providers", "kaito", "-n", "plain")
    assert sorted(machine.deployments("plain")) == ["airunway-controller", "airunway-provider-vllm"]
    assert "stays: CustomResourceDefinition/modeldeployments.airunway.ai" in machine("uninstall", "-n", "plain")
    assert machine.deployments("plain") == {}
    assert "modeldeployments.airunway.ai" in machine.kubectl("get", "crd", "-o", "name")


def image_of(deployment: Resource) -> str:
    (container,) = dig(deployment, "spec", "template", "spec", "containers")
    return str(container["image"])


@pytest.mark.apiserver
def test_with_helm_each_part_is_a_release_that_helm_goes_on_with(installed: Machine, helm: Helm) -> None:
    namespace = f"helm-{helm.major}"
    own = Helm(program=helm.program, folder=helm.folder, major=helm.major, kubeconfig=installed.kubeconfig)

    def releases() -> list[str]:
        return in_order(each["name"] for each in yaml.safe_load(own("list", "-n", namespace, "-o", "json").stdout))

    assert releases() == PARTS
    assert sorted(installed.deployments(namespace)) == sorted(
        ["airunway-controller", "airunway-provider-kaito", "airunway-provider-vllm"]
    )
    assert INVENTORY not in installed.kubectl("get", "configmaps", "-n", namespace, "-o", "name")

    # Whoever has the charts goes on with them: the same chart changes nothing.
    before = installed.deployments(namespace)["airunway-controller"]["metadata"]
    own("upgrade", "airunway", "airunway", "-n", namespace, f"--set=global.imageRegistry={REGISTRY}")
    assert installed.deployments(namespace)["airunway-controller"]["metadata"]["generation"] == before["generation"]
    # And what was set with them stays.
    own("upgrade", "airunway", "airunway", "-n", namespace, "--set=replicas=3")
    told = installed("upgrade", "-n", namespace, "--dry-run")
    assert [line.partition(":")[0] for line in told.splitlines()] == PARTS
    installed("upgrade", "-n", namespace, "--timeout", "0")
    core = installed.deployments(namespace)["airunway-controller"]
    assert core["spec"]["replicas"] == 3
    assert dig(core, "spec", "template", "spec", "containers")[0]["image"].startswith(
        f"{REGISTRY}/airunway/controller:"
    )

    # Without helm nothing is done behind its back, and Flux's releases are Flux's.
    (installed.helms / "helm").rename(installed.helms / "hidden")
    for command in ("upgrade", "uninstall"):
        said = installed(command, "-n", namespace, code=1)
        assert f"airunway-controller belongs to Helm's release {namespace}/airunway: put helm on PATH" in said
    said = installed("install", "-n", namespace, code=1)
    assert (
        f"these belong to Helm's release {namespace}/airunway: ServiceAccount/{namespace}/airunway-controller" in said
    )
    assert len(said.splitlines()) == 3, "one line for each release"
    (installed.helms / "hidden").rename(installed.helms / "helm")
    account = ("serviceaccount", "airunway-controller", "-n", namespace)
    installed.kubectl("label", *account, "helm.toolkit.fluxcd.io/name=runway", "helm.toolkit.fluxcd.io/namespace=flux")
    assert "these belong to Flux's HelmRelease flux/runway" in installed("upgrade", "-n", namespace, code=1)
    installed.kubectl("label", *account, "helm.toolkit.fluxcd.io/name-", "helm.toolkit.fluxcd.io/namespace-")

    assert "the release would be uninstalled" in installed("uninstall", "-n", namespace, "--dry-run")
    assert releases() == PARTS
    installed("uninstall", "-n", namespace)
    assert releases() == ["airunway-crds"]
    assert installed.deployments(namespace) == {}


@pytest.mark.apiserver
def test_a_release_that_was_left_halfway_is_said_before_the_first_write(machine: Machine, helm: Helm) -> None:
    """An interrupted `helm install --wait`: nothing here makes pods, so that it waits for ever."""
    (machine.helms / "helm").symlink_to(helm.program)
    namespace = f"half-{helm.major}"
    environment = {**os.environ, "KUBECONFIG": str(machine.kubeconfig)}
    command = [str(helm.program), "install", "airunway", "airunway", "-n", namespace, "--create-namespace", "--wait"]
    with subprocess.Popen(command, cwd=helm.folder, env=environment, stdout=subprocess.DEVNULL) as interrupted:
        until = time.monotonic() + PATIENCE
        while "airunway-controller" not in machine.deployments(namespace):
            assert time.monotonic() < until
        interrupted.kill()
    for arguments in (("install",), ("install", "--providers", "vllm"), ("upgrade",)):
        said = machine(*arguments, "-n", namespace, code=1)
        assert "Helm's release airunway is pending-install" in said
        assert f"helm uninstall airunway --namespace {namespace}" in said
    assert machine.kubectl("get", "crd", "-o", "name") == "", "nothing was written"
    assert "airunway: the release is uninstalled" in machine("uninstall", "-n", namespace)
    assert machine.deployments(namespace) == {}


@pytest.mark.apiserver
def test_what_was_installed_one_way_stays_with_it(machine: Machine, helms: dict[Major, Helm]) -> None:
    (machine.helms / "helm").symlink_to(helms[4].program)
    given = ("-n", "either", "--timeout", "0")
    machine("install", *given, "--no-helm")
    assert "objects would be applied\n" in machine("install", "--providers", "vllm", *given, "--dry-run")
    machine("upgrade", *given)
    installed = machine.kubectl("get", "configmap", INVENTORY, "-n", "either", "-o", "jsonpath={.data}")
    assert "airunway-crds" in installed

    said = machine("install", "-n", "another", "--timeout", "0", code=1)
    assert "nothing was written" in said
    assert "Deployment/either/airunway-controller works on all namespaces already" in said
    assert "these are there and belong to no release of Helm: CustomResourceDefinition/inference" in said
    assert machine.deployments("another") == {}


@pytest.mark.parametrize("registry", ["https://mirror.example", "mirror.example/all/"])
def test_a_registry_of_which_no_image_can_be_pulled_is_refused(machine: Machine, registry: str) -> None:
    for command in ("install", "upgrade"):
        said = " ".join(machine(command, "--registry", registry, code=2).split())
        assert f"'{registry}' is not HOST/PATH: write it without a scheme, and without a slash at the end" in said


def test_a_provider_that_is_not_here_and_a_checkout_say_what_to_install(machine: Machine) -> None:
    said = machine("install", "--providers", "dynamo", code=1)
    assert "no distribution that is installed here brings provider dynamo (installed: kaito, vllm)" in said
    assert "pip install airunway-dynamo" in said
    command = [sys.executable, "-m", "airunway", "install", f"--kubeconfig={machine.kubeconfig}", "--no-helm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "carries no chart, as a checkout does not: install a release's wheel" in done.stderr


@pytest.mark.apiserver
def test_what_is_carried_for_no_registry_asks_for_one(machine: Machine) -> None:
    (file,) = machine.programs.parent.glob("lib/python*/site-packages/airunway/charts/registry")
    said = file.read_text()
    file.write_text("registry.example\n")
    try:
        assert "say where the images are with --registry" in machine("install", "--no-helm", code=1)
        given = ("--registry", "registry.internal/mine", "--no-helm", "--dry-run")
        assert "objects would be applied" in machine("install", *given)
    finally:
        file.write_text(said)
