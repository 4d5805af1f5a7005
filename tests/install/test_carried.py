"""`airunway install` out of wheels, with nothing but a cluster and helm; and what is done with kubectl alone."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from tests.console import ran_now
from tests.install.helm import NAMESPACE, Helm, Major
from tests.install.warm import Warm, warm
from tools.images.site import uv
from tools.wheels import build_wheels, source_time

from airunway import __version__
from airunway.install.bundled_charts import in_order, placed
from airunway.install.helm import named
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, load_config
from airunway.resource import Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.eventually import PATIENCE
from airunway_testing.kubetools import kubectl_path
from airunway_testing.operator import remove_definition

pytestmark = [pytest.mark.chart, pytest.mark.slow, pytest.mark.timeout(1500)]

REGISTRY = "registry.internal/team"
PROVIDERS = ("kaito", "vllm")
APPLY = ("apply", "--server-side", "--prune", "--applyset=airunway", "-f", "-")
WITH_HELM_4 = pytest.mark.parametrize("helm", [4], ids=["helm4"], indirect=True)
"""For what is decided before helm is asked: that both helms do as they are asked is seen where a release is lived."""
PARTS = ["airunway-crds", "airunway", "airunway-catalogue", *(f"airunway-provider-{name}" for name in PROVIDERS)]


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
    found = [f"airunway-{name}" for name in ("catalogue", *PROVIDERS)]
    uv("pip", "install", "--quiet", "--python", folder / "env/bin/python", "--find-links", wheels, "airunway", *found)
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def started(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """The environment's `airunway`, which needs half a second less for each command."""
    with warm(programs / "python", tmp_path_factory.mktemp("said")) as started:
        yield started


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A user's machine: `programs` of the environment, a helm if there is one in `helms`, and the kubeconfig of a
    cluster's administrator.
    """

    programs: Path
    started: Warm
    kubeconfig: Path
    helms: Path

    def __call__(self, *command: str, code: int = 0, program: bool = False) -> str:
        """The output of a command, which gets nothing of this environment; with `program`, of a process of its own."""
        environment = {"PATH": str(self.helms), "HOME": os.environ["HOME"], "KUBECONFIG": str(self.kubeconfig)}
        if program:
            started = [str(self.programs / "airunway"), *command]
            done = subprocess.run(started, env=environment, capture_output=True, text=True, check=False, timeout=120)
        else:
            done = self.started(command, environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = [str(kubectl_path()), f"--kubeconfig={self.kubeconfig}", *arguments]
        environment = {**os.environ, "KUBECTL_APPLYSET": "true"}
        done = subprocess.run(
            command, input=stdin, env=environment, check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def deployments(self, namespace: str) -> dict[str, Resource]:
        listed = yaml.safe_load(self.kubectl("get", "deployments", "-n", namespace, "-o", "json"))["items"]
        return {each["metadata"]["name"]: each for each in listed}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane("api", roomy=True) as plane:
        yield plane


@pytest.fixture
def machine(programs: Path, started: Warm, plane: ControlPlane, tmp_path: Path) -> Machine:
    """A machine without helm; the cluster has been used by others."""
    helms = tmp_path / "bin"
    helms.mkdir()
    made = Machine(programs=programs, started=started, kubeconfig=plane.kubeconfig, helms=helms)
    made.kubectl("delete", "deployments", "--all", "--all-namespaces")
    asyncio.run(_without_definitions(plane))
    return made


async def _without_definitions(plane: ControlPlane) -> None:
    """Delete all CRDs. kubectl would wait for ever for one whose removal the API server has tried and forgotten."""
    async with Client(load_config(kubeconfig=plane.kubeconfig)) as client:
        listed = await client.list_metadata(CUSTOM_RESOURCE_DEFINITION)
        await asyncio.gather(*(remove_definition(client, each["metadata"]["name"]) for each in listed))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("namespace", "registry"), [(NAMESPACE, REGISTRY), ("models", "mirror.example:5000/all")])
def test_what_is_carried_is_what_helm_makes_of_the_chart_that_is_carried(
    wheels: Path, helms: dict[Major, Helm], tmp_path: Path, part: str, namespace: str, registry: str
) -> None:
    provider = part.removeprefix("airunway-provider-") if "provider" in part else ""
    package = f"airunway_{provider}" if provider else part.replace("-", "_").removesuffix("_crds")
    (wheel,) = wheels.glob(f"{package}-[0-9]*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(f"{package}/charts/{part}.tgz", tmp_path)
        carried = list(yaml.safe_load_all(archive.read(f"{package}/charts/{part}.yaml")))
    chart = tmp_path / package / "charts" / f"{part}.tgz"
    said = helms[3]("template", part, chart, "-n", namespace, f"--set-string=global.imageRegistry={registry}").stdout
    expected = {named(obj): obj for obj in yaml.safe_load_all(said) if obj}
    found = [placed(obj, namespace=namespace, images=(REGISTRY, registry)) for obj in carried if obj]
    assert {named(obj): obj for obj in found} == expected


@pytest.mark.apiserver
def test_without_helm_kubectl_applies_prunes_and_deletes_what_is_printed(machine: Machine) -> None:
    """As docs/install/without-helm.md says; kubectl says the rest."""
    for command in ("install", "upgrade", "uninstall"):
        said = machine(command, "-n", "plain", code=1, program=command == "upgrade")
        assert (
            "helm is not on PATH. Install helm 3.17 or newer, or install without helm:\n  airunway crds --apply\n"
            in said
        )
        assert "airunway manifests --providers NAMES --namespace plain | kubectl apply --server-side -f -" in said
    machine("crds", "--apply", program=True)
    machine.kubectl("create", "namespace", "plain")
    both = machine("manifests", "--core", "--catalogue", "--providers", "kaito,vllm", "-n", "plain", program=True)
    machine.kubectl(*APPLY, "-n", "plain", stdin=both)
    found = machine.deployments("plain")
    listed = ["airunway-catalogue", "airunway-controller", "airunway-provider-kaito", "airunway-provider-vllm"]
    assert sorted(found) == listed
    assert image_of(found["airunway-controller"]) == f"{REGISTRY}/airunway/controller:{__version__}"

    mirrored = machine("manifests", "--providers", "vllm", "-n", "plain", "--registry", "mirror.example:5000/all")
    machine.kubectl(*APPLY, "-n", "plain", stdin=mirrored)
    found = machine.deployments("plain")
    assert sorted(found) == ["airunway-controller", "airunway-provider-vllm"], "the others are not in the set any more"
    for name, deployment in found.items():
        assert image_of(deployment).startswith("mirror.example:5000/all/airunway/"), name
    assert "provider-kaito" not in machine.kubectl("get", "clusterroles", "-o", "name")

    assert "kind: CustomResourceDefinition" not in both
    assert "kind: Namespace" not in both
    for_deletion = ("manifests", "--for-deletion", "-n", "plain")
    machine.kubectl("delete", "-f", "-", stdin=machine(*for_deletion, "--no-core", "--providers", "vllm"))
    assert sorted(machine.deployments("plain")) == ["airunway-controller"]
    machine.kubectl("delete", "-f", "-", stdin=machine(*for_deletion))
    assert machine.deployments("plain") == {}
    assert "modeldeployments.airunway.ai" in machine.kubectl("get", "crd", "-o", "name")
    roles = machine.kubectl("get", "clusterroles", "-o", "name").split()
    ours = [role for role in roles if "airunway" in role]
    assert ours == ["clusterrole.rbac.authorization.k8s.io/airunway-endpoint-picker"], "running pickers need it"


def image_of(deployment: Resource) -> str:
    (container,) = dig(deployment, "spec", "template", "spec", "containers")
    return str(container["image"])


@pytest.mark.apiserver
def test_with_helm_each_part_is_a_release_that_helm_goes_on_with(machine: Machine, helm: Helm) -> None:
    """By helm 4 with every part, and with what a thief forges; helm 3, which has the same decided before it is asked,
    takes the core and one provider.
    """
    (machine.helms / "helm").symlink_to(helm.program)
    namespace, newest = f"helm-{helm.major}", helm.major == 4
    given = ("--catalogue", "--providers", ",".join(PROVIDERS)) if newest else ("--providers", "kaito")
    parts = PARTS if newest else ["airunway-crds", "airunway", "airunway-provider-kaito"]
    machine("install", *given, "-n", namespace, "--timeout", "0", program=True)
    own = Helm(program=helm.program, folder=helm.folder, major=helm.major, kubeconfig=machine.kubeconfig)

    def releases() -> list[str]:
        return in_order(each["name"] for each in yaml.safe_load(own("list", "-n", namespace, "-o", "json").stdout))

    assert releases() == parts
    deployments = sorted(name if name != "airunway" else "airunway-controller" for name in parts[1:])
    assert sorted(machine.deployments(namespace)) == deployments

    # An administrator with the charts continues with them: the same chart changes nothing.
    before = machine.deployments(namespace)["airunway-controller"]["metadata"]
    own("upgrade", "airunway", "airunway", "-n", namespace, f"--set=global.imageRegistry={REGISTRY}")
    assert machine.deployments(namespace)["airunway-controller"]["metadata"]["generation"] == before["generation"]
    # And what was set with them stays.
    own("upgrade", "airunway", "airunway", "-n", namespace, "--set=replicas=3")
    evil = None
    if newest:
        machine.kubectl("apply", "-f", "-", stdin=PRECIOUS)
        evil = thief(machine, namespace)
        evil.kubectl("create", "-n", namespace, "-f", "-", stdin=INVENTORY)
        said = machine("upgrade", "-n", namespace, "--dry-run")
        assert [line.partition(",")[0] for line in said.splitlines() if not line.startswith(" ")] == parts
    said = machine("upgrade", "-n", namespace, "--timeout", "0")
    assert "helm upgrade --install" in said, "also with a forged inventory"
    core = machine.deployments(namespace)["airunway-controller"]
    assert core["spec"]["replicas"] == 3
    assert dig(core, "spec", "template", "spec", "containers")[0]["image"].startswith(
        f"{REGISTRY}/airunway/controller:"
    )

    if newest:
        make_what_stays(machine, f"team-{helm.major}")
    rehearsed = machine("uninstall", "-n", namespace, "--dry-run")
    assert f"\n  Deployment/{namespace}/airunway-controller\n" in rehearsed
    assert "CustomResourceDefinition/" not in rehearsed
    assert "precious" not in rehearsed
    if newest:
        what_stays_is_counted(rehearsed, f"team-{helm.major}")
    assert "nothing was changed: cannot ask for confirmation without a terminal; use --yes" in machine(
        "uninstall", "-n", namespace, code=1
    )
    assert releases() == parts
    if evil:
        a_forged_release_is_refused(machine, evil, namespace)
        answered(machine, namespace, "n")
        assert releases() == parts
        said = answered(machine, namespace, "y")
    else:
        said = machine("uninstall", "-n", namespace, "--yes", program=True)
    assert "airunway-provider-kaito: uninstalled" in said
    assert releases() == ["airunway-crds"]
    assert machine.deployments(namespace) == {}
    assert "airunway-webhook-tls" not in machine.kubectl("get", "secrets", "-n", namespace, "-o", "name")
    if newest:
        assert "hooked" not in machine.kubectl("get", "configmaps", "-n", "default", "-o", "name")
        machine.kubectl("get", "-f", "-", stdin=PRECIOUS)
        machine.kubectl("delete", "-f", "-", stdin=PRECIOUS)
    assert "helm has no release of AI Runway in elsewhere" in machine("uninstall", "-n", "elsewhere", code=1)


def answered(made: Machine, namespace: str, answer: str) -> str:
    """What `airunway uninstall` says on a terminal on which it gets this answer."""
    command = ["script", "-qec", f"{made.programs}/airunway uninstall -n {namespace}", "/dev/null"]
    environment = {
        "PATH": f"{made.helms}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "KUBECONFIG": str(made.kubeconfig),
    }
    done = subprocess.run(command, env=environment, input=f"{answer}\n", capture_output=True, text=True, timeout=120)
    assert "Uninstall? [y/N]" in done.stdout
    return done.stdout


PRECIOUS = """
apiVersion: v1
kind: Secret
metadata: {name: precious, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: precious}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: precious, namespace: default}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: x, image: registry.example/x}]}
"""

INVENTORY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: airunway-installed}
data:
  airunway: '[["","Secret","kube-system","precious"],["rbac.authorization.k8s.io","ClusterRoleBinding","","precious"],["apps","Deployment","default","precious"]]'
"""  # noqa: E501


def thief(made: Machine, namespace: str) -> Machine:
    """An account that may write Secrets and ConfigMaps of the operator's namespace, and nothing else."""
    made.kubectl("create", "serviceaccount", "thief", "-n", namespace)
    verbs = ("--verb=get,list,create,update,patch,delete", "--resource=secrets,configmaps")
    made.kubectl("create", "role", "thief", "-n", namespace, *verbs)
    made.kubectl(
        "create", "rolebinding", "thief", "-n", namespace, "--role=thief", f"--serviceaccount={namespace}:thief"
    )
    content = yaml.safe_load(made.kubeconfig.read_text())
    token = made.kubectl("create", "token", "thief", "-n", namespace).strip()
    content["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in content["users"]]
    kubeconfig = made.helms.parent / "thief"
    kubeconfig.write_text(yaml.safe_dump(content))
    return replace(made, kubeconfig=kubeconfig)


def a_forged_release_is_refused(machine: Machine, evil: Machine, namespace: str) -> None:
    """A thief forges what helm reads: the Secret of a release. What stays of that is a hook that it never had."""
    chosen = ("-l", "name=airunway,status=deployed", "-o", "name")
    (newest,) = evil.kubectl("get", "secrets", "-n", namespace, *chosen).split()
    secret = yaml.safe_load(evil.kubectl("get", newest, "-n", namespace, "-o", "json"))
    record = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    honest = record["manifest"]
    record["hooks"] = [
        {
            "name": "grant",
            "kind": "ConfigMap",
            "path": "x/templates/x.yaml",
            "manifest": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hooked, namespace: default}\n",
            "events": ["pre-delete"],
        }
    ]

    def forge(manifest: str) -> None:
        content = gzip.compress(json.dumps({**record, "manifest": manifest}).encode())
        patch = {"data": {"release": base64.b64encode(base64.b64encode(content)).decode()}}
        evil.kubectl("patch", newest, "-n", namespace, "-p", json.dumps(patch))

    forge(f"{honest}---{PRECIOUS}")
    for command in (("uninstall", "--yes"), ("upgrade", "--timeout", "0"), ("install", "--timeout", "0")):
        said = machine(*command, "-n", namespace, code=1)
        names = "Secret/kube-system/precious, ClusterRoleBinding/precious, Deployment/default/precious"
        assert f"Helm's release airunway lists objects that it did not create: {names}" in said
    assert len(machine.deployments(namespace)) == 4, "nothing was deleted"
    forge(honest)


def make_what_stays(machine: Machine, team: str) -> None:
    """Two deployments of a provider that is installed, one of a provider that was removed before, and one that has
    none; and the weights of an artifact.
    """
    machine.kubectl("delete", "validatingwebhookconfigurations,validatingadmissionpolicybindings", "--all")
    machine.kubectl("create", "namespace", team)
    deployments = [
        {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": f"m-{index}", "namespace": team},
            "spec": {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}},
        }
        for index in range(4)
    ]
    artifact = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelArtifact",
        "metadata": {"name": "weights", "namespace": team},
        "spec": {"source": {"uri": "hf://o/m"}},
    }
    machine.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([*deployments, artifact]))
    status = {"persistentVolumeClaim": "weights-cache-1", "allocatedSize": "16Gi"}
    statuses = {f"md/m-{index}": {"provider": {"name": name}} for index, name in enumerate(("kaito", "kaito", "gone"))}
    for what, found in {**statuses, "modelartifacts/weights": status}.items():
        patch = json.dumps({"status": found})
        machine.kubectl("patch", what, "-n", team, "--subresource=status", "--type=merge", "-p", patch)


def what_stays_is_counted(said: str, team: str) -> None:
    """Of every provider, the one without included."""
    assert "stays: the CRDs of airunway.ai, with all their objects: runtime configs, templates, ModelSources" in said
    assert ", with the Leases in it\n" in said, "the webhook's Secret is the release's, and goes with it"
    assert f"stays: ModelArtifact/{team}/weights with its claim weights-cache-1 (16Gi)\n" in said
    assert "stays: 1 ModelDeployment of no provider\n" in said
    assert "stays: 1 ModelDeployment of gone and their upstream objects" in said
    assert "stays: 2 ModelDeployments of kaito and their upstream objects" in said


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
    assert "airunway: uninstalled" in machine("uninstall", "-n", namespace, "--yes")
    assert machine.deployments(namespace) == {}


@pytest.mark.apiserver
@WITH_HELM_4
def test_what_is_in_the_way_is_said_before_the_first_write(machine: Machine, helm: Helm, plane: ControlPlane) -> None:
    """Objects that kubectl applied, an installation elsewhere, and a CRD that would take a field from an object."""
    namespace = f"way-{helm.major}"
    (machine.helms / "helm").symlink_to(helm.program)
    machine.kubectl("create", "namespace", namespace)
    machine.kubectl(*APPLY, "-n", namespace, stdin=machine("manifests", "-n", namespace))
    said = machine("install", "-n", namespace, "--timeout", "0", code=1)
    assert "exists and cannot be imported into the current release" in said
    said = machine("install", "-n", "another", "--timeout", "0", code=1)
    assert "nothing was changed" in said
    assert f"Deployment airunway-controller in namespace {namespace} already works on all namespaces" in said
    assert machine.kubectl("get", "crd", "-o", "name") == "", "nothing was written"
    assert machine.deployments("another") == {}
    machine.kubectl("delete", "-f", "-", stdin=machine("manifests", "-n", namespace))

    own = Helm(program=helm.program, folder=helm.folder, major=helm.major, kubeconfig=machine.kubeconfig)
    own("install", "airunway", "airunway-crds", "-n", namespace)
    for command in (("install", "--timeout", "0"), ("uninstall", "--yes")):
        said = machine(*command, "-n", namespace, code=1)
        assert f"Helm's release airunway has the chart airunway-crds-{__version__}" in said
    own("uninstall", "airunway", "-n", namespace)
    asyncio.run(_without_definitions(plane))

    said = machine("install", "-n", namespace, "--timeout", "3", code=1)  # nothing here makes pods
    assert "airunway: helm upgrade --install" in said
    assert "`airunway doctor` shows what is wrong" in said
    machine("install", "-n", namespace, "--timeout", "0")
    wider = yaml.safe_load(machine.kubectl("get", "crd", "inferenceproviderconfigs.airunway.ai", "-o", "json"))
    spec = wider["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["later"] = {"type": "string"}
    machine.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(wider))
    config = {"apiVersion": "airunway.ai/v1alpha1", "kind": "InferenceProviderConfig", "metadata": {"name": "later"}}
    machine.kubectl("create", "-f", "-", stdin=yaml.safe_dump({**config, "spec": {"later": "x"}}))
    said = machine("upgrade", "-n", namespace, "--timeout", "0", code=1)
    assert "nothing was changed" in said
    assert "spec.later" in said
    machine("uninstall", "-n", namespace, "--yes")


@pytest.mark.apiserver
@WITH_HELM_4
def test_the_cluster_of_a_context_is_meant(machine: Machine, helm: Helm, tmp_path: Path) -> None:
    """By helm too: the current context leads nowhere."""
    (machine.helms / "helm").symlink_to(helm.program)
    content = yaml.safe_load(machine.kubeconfig.read_text())
    (here,) = content["contexts"]
    content["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
    content["contexts"] = [
        {"name": "here", "context": here["context"]},
        {"name": "away", "context": {**here["context"], "cluster": "nowhere"}},
    ]
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump({**content, "current-context": "away"}))
    given = ("--kubeconfig", str(kubeconfig), "--context", "here", "-n", "none")
    assert "\n  Deployment/none/airunway-controller\n" in machine("install", *given, "--dry-run")
    for command in (("upgrade",), ("uninstall", "--providers", "kaito")):
        assert "helm has no release of AI Runway in none" in machine(*command, *given, code=1)


@pytest.mark.apiserver
def test_a_watched_namespace_that_is_not_there_is_said_before_anything_is_made(machine: Machine, helm: Helm) -> None:
    own = Helm(program=helm.program, folder=helm.folder, major=helm.major, kubeconfig=machine.kubeconfig)
    where = ("-n", f"watch-{helm.major}", "--create-namespace", "--set=watchNamespaces={kube-system,nope}")
    for chart in ("airunway", "airunway-provider-vllm"):
        done = own("install", chart, chart, *where, check=False)
        assert done.returncode == 1
        assert "watchNamespaces: there is no namespace nope: create it (kubectl create namespace nope)" in done.stderr
        assert "helm.release" not in machine.kubectl("get", "secrets", "-n", f"watch-{helm.major}", "-o", "name")


@pytest.mark.parametrize("registry", ["https://mirror.example", "mirror.example/all/"])
def test_a_registry_of_which_no_image_can_be_pulled_is_refused(registry: str) -> None:
    for command in ("install", "upgrade"):
        done = ran_now(command, "--registry", registry)
        assert done.code == 2
        assert f"'{registry}' is not HOST/PATH: remove the scheme and the slash at the end" in " ".join(
            done.err.replace("│", " ").split()
        )


def test_a_provider_that_is_not_here_and_a_checkout_say_what_to_install(
    machine: Machine, helms: dict[Major, Helm]
) -> None:
    (machine.helms / "helm").symlink_to(helms[4].program)
    said = machine("install", "--providers", "dynamo", code=1)
    assert "provider dynamo is not installed here (installed: kaito, vllm)" in said
    assert "pip install airunway-dynamo" in said
    done = ran_now("manifests")
    assert done.code == 1
    assert "has no chart (a checkout has none): install the wheel of a release" in done.err


@pytest.mark.apiserver
def test_what_is_carried_for_no_registry_asks_for_one(machine: Machine, helms: dict[Major, Helm]) -> None:
    (machine.helms / "helm").symlink_to(helms[4].program)
    (file,) = machine.programs.parent.glob("lib/python*/site-packages/airunway/charts/registry")
    said = file.read_text()
    file.write_text("registry.example\n")
    try:
        for command in ("install", "manifests"):
            assert "name the one that has the images with --registry" in machine(command, code=1)
        assert "kind: Deployment" in machine("manifests", "--registry", "registry.internal/mine")
    finally:
        file.write_text(said)
