"""`airunway install`, `upgrade` and `uninstall` on a real API server, with manifests as the charts render them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from airunway import __version__
from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.controller.access import core_rights
from airunway.install.cluster import MANAGER, Installer
from airunway.install.parts import INVENTORY, Part, foreign_owner, read_inventory
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    SERVICE_ACCOUNT,
    Client,
    NotFound,
)
from airunway.plugins.registry import load
from airunway.process.rights import Rights, leader_election_rights, roles
from airunway.resource import ObjectKey, Resource, dig, format_time, key_of
from airunway.runtime.access import provider_rights
from airunway.runtime.provider_config import config_object
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import install_definitions, remove_leftovers

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

CORE, TOY = "airunway", "airunway-provider-toy"


def rendered(part: str, namespace: str, *, replicas: int = 1, extra: str = "") -> list[Resource]:
    """What the chart of a part comes to; `extra` is the name of one more account."""
    rights = core_rights() if part == CORE else provider_rights(load("toy").manifest)
    name = names.CORE_MANAGER if part == CORE else names.provider_manager("toy")
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    made = roles(rights + _lease(part), name=name, namespace=namespace, subject=subject)
    for role in made:
        if role["kind"].startswith("Cluster"):
            role["metadata"]["name"] = f"{name}-{namespace}"
            role.get("roleRef", {})["name"] = f"{name}-{namespace}"
    pod = {"serviceAccountName": name, "containers": [{"name": "main", "image": f"example.org/airunway:{__version__}"}]}
    labels = {"app": name}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": each, "namespace": namespace}}
        for each in filter(None, (name, extra))
    ]
    return [deployment, *made, *accounts]


def _lease(part: str) -> Rights:
    return leader_election_rights(names.CORE_MANAGER) if part == CORE else Rights()


@pytest.fixture
def charts(tmp_path: Path, namespace: str) -> Path:
    """The folder with the manifests of CRDs, core and the toy's provider."""
    write(tmp_path, "airunway-crds", custom_resource_definitions())
    for part in (CORE, TOY):
        write(tmp_path, part, rendered(part, namespace))
    return tmp_path


def write(folder: Path, part: str, objects: list[Resource]) -> None:
    (folder / f"{part}.yaml").write_text(yaml.safe_dump_all(objects))


@pytest.fixture
def run(kubeconfig: Path, namespace: str) -> Run:
    """Runs a command of `airunway` on the test's namespace."""

    def call(*arguments: str, kubeconfig: Path = kubeconfig, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*arguments, "-n", namespace, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(
            [sys.executable, "-m", "airunway", *command], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return call


@pytest.fixture
async def clean(client: Client, namespace: str) -> AsyncIterator[None]:
    """Neither registered providers nor roles of the whole cluster, before and after; the CRDs are ours to apply."""
    await install_definitions(client)
    await remove_leftovers(client)
    for crd in custom_resource_definitions():
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager=MANAGER, force=True)
    yield
    for name in (names.CORE_MANAGER, names.provider_manager("toy")):
        with suppress(NotFound):
            await client.delete(CLUSTER_ROLE, ObjectKey("", f"{name}-{namespace}"))
    await remove_leftovers(client)


async def up(client: Client, namespace: str, name: str, *, replicas: int = 1) -> None:
    """Be the Deployment's controller: all of its pods are there."""
    live = await client.get(DEPLOYMENT, ObjectKey(namespace, name))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    status = {**counts, "observedGeneration": live["metadata"]["generation"]}
    await client.merge_patch(DEPLOYMENT, ObjectKey(namespace, name), {"status": status}, subresource="status")


async def register(client: Client, *, ready: bool) -> None:
    """Be the toy's provider."""
    host = load("toy")
    config = config_object(host.manifest)
    config["spec"]["installation"] = {"steps": [{"title": "Install it", "command": "helm install toys"}]}
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests", force=True)
    now = format_time(datetime.now(UTC))
    told = {"type": "Ready", "status": str(ready), "reason": "Ready" if ready else "UpstreamNotInstalled"}
    conditions = [{**told, "message": "toys are not installed", "lastTransitionTime": now}]
    status = {"ready": ready, "lastHeartbeat": now, "conditions": conditions}
    await client.merge_patch(INFERENCE_PROVIDER_CONFIG, key_of(config), {"status": status}, subresource="status")


async def test_installed_upgraded_and_taken_away_again(
    clean: None, client: Client, run: Run, charts: Path, namespace: str
) -> None:
    given = ("--manifests", str(charts), "--providers", "toy")
    rehearsed = run("install", *given, "--dry-run")
    assert rehearsed.stdout.splitlines() == [
        "airunway-crds: 2 objects would be applied",
        "airunway: 6 objects would be applied",
        "airunway-provider-toy: 6 objects would be applied",
    ]
    with pytest.raises(NotFound):
        await client.get(DEPLOYMENT, ObjectKey(namespace, names.CORE_MANAGER))

    late = run("install", *given, "--timeout", "1", code=4)
    assert "airunway-crds: Ready" in late.stdout
    assert "airunway: 0 of 1 new pods are available" in late.stdout
    assert "not ready after 1 s: airunway, airunway-provider-toy. `airunway doctor` says" in late.stderr

    for name in (names.CORE_MANAGER, names.provider_manager("toy")):
        await up(client, namespace, name)
    await register(client, ready=False)
    done = run("install", *given)
    assert "airunway-provider-toy: toys are not installed. It needs" in done.stdout
    assert "helm install toys" in done.stdout
    await register(client, ready=True)
    assert run("install", *given).stdout.endswith("airunway-provider-toy: Ready\n")

    before = await client.get(DEPLOYMENT, ObjectKey(namespace, names.provider_manager("toy")))
    write(charts, CORE, rendered(CORE, namespace, replicas=2, extra="more"))
    (charts / f"{TOY}.yaml").unlink()
    run("upgrade", "--manifests", str(charts), "--timeout", "0")
    core = await client.get(DEPLOYMENT, ObjectKey(namespace, names.CORE_MANAGER))
    assert core["spec"]["replicas"] == 2
    after = await client.get(DEPLOYMENT, ObjectKey(namespace, names.provider_manager("toy")))
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "what has no file is left"
    await client.get(SERVICE_ACCOUNT, ObjectKey(namespace, "more"))
    write(charts, CORE, rendered(CORE, namespace))
    assert "airunway: 6 objects would be applied" in run("upgrade", "--manifests", str(charts), "--dry-run").stdout
    run("upgrade", "--manifests", str(charts), "--timeout", "0")
    with pytest.raises(NotFound):
        await client.get(SERVICE_ACCOUNT, ObjectKey(namespace, "more"))

    model = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": namespace},
    }
    await client.create(MODEL_DEPLOYMENT, {**model, "spec": {"model": {"id": "org/model"}}})
    key = ObjectKey(namespace, "llama")
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": {"provider": {"name": "toy"}}}, subresource="status")
    told = run("uninstall", "--providers", "toy", "--dry-run").stdout
    assert "airunway-provider-toy: 6 objects would be deleted" in told
    assert "stays: 1 ModelDeployments of toy, and what serves them" in told
    assert "stays: CustomResourceDefinition/modeldeployments.airunway.ai" in told
    await client.get(DEPLOYMENT, ObjectKey(namespace, names.provider_manager("toy")))
    assert "airunway-provider-toy: 6 objects deleted" in run("uninstall", "--providers", "toy").stdout
    with pytest.raises(NotFound):
        await client.get(DEPLOYMENT, ObjectKey(namespace, names.provider_manager("toy")))
    assert set(read_inventory(await client.get(CONFIG_MAP, ObjectKey(namespace, INVENTORY)))) == {"airunway-crds", CORE}
    run("uninstall")
    with pytest.raises(NotFound):
        await client.get(CLUSTER_ROLE, ObjectKey("", f"{names.CORE_MANAGER}-{namespace}"))
    assert dig(await client.get(MODEL_DEPLOYMENT, key), "spec", "model", "id") == "org/model"
    run("uninstall", "--providers", "toy", code=1)


async def test_what_stands_in_the_way_is_said_before_the_first_write(
    clean: None, client: Client, run: Run, charts: Path, namespace: str, control_plane: Cluster
) -> None:
    given = ("install", "--manifests", str(charts))
    stranger = control_plane.kubeconfig_for("somebody-else")
    denied = run(*given, kubeconfig=stranger, code=1).stderr
    assert "nothing was written" in denied
    assert f"create, get, patch deployments.apps in {namespace}; " in denied
    assert "create, get, patch customresourcedefinitions.apiextensions.k8s.io" in denied
    assert "an administrator has to do it, or to grant it" in denied

    foreign = {"apiVersion": "v1", "kind": "ServiceAccount"}
    note = {"meta.helm.sh/release-name": "mine"}
    metadata = {"name": names.CORE_MANAGER, "namespace": namespace, "annotations": note}
    await client.create(SERVICE_ACCOUNT, {**foreign, "metadata": metadata})
    told = run(*given, code=1).stderr
    assert "nothing was written" in told
    assert f"these belong to Helm's release /mine: ServiceAccount/{namespace}/{names.CORE_MANAGER}. What to do" in told
    await client.delete(SERVICE_ACCOUNT, ObjectKey(namespace, names.CORE_MANAGER))

    objects = rendered(CORE, namespace)
    objects[0]["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    write(charts, CORE, objects)
    refused = run(*given, code=1).stderr
    assert "the API server says" in refused
    assert "imagee" in refused
    assert f": Deployment/{namespace}/airunway-controller. What to do: correct what it names" in refused
    write(charts, CORE, rendered(CORE, "elsewhere"))
    assert "the manifests are for the namespace elsewhere" in run(*given, code=1).stderr
    (charts / f"{CORE}.yaml").unlink()
    assert "has no airunway.yaml: helm template charts/airunway" in run(*given, code=1).stderr
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, ObjectKey(namespace, INVENTORY))
    assert "there is nothing to upgrade" in run("upgrade", "--manifests", str(charts), code=1).stderr


async def test_what_was_interrupted_can_be_taken_away(clean: None, client: Client, run: Run, namespace: str) -> None:
    unknown = {"apiVersion": "tests.example/v1", "kind": "Unknown", "metadata": {"name": "x", "namespace": namespace}}
    parts = [Part(name=CORE, objects=tuple(rendered(CORE, namespace))), Part(name=TOY, objects=(unknown,))]
    with pytest.raises(NotFound):
        await Installer(client, namespace=namespace).apply(parts, {})
    await client.get(DEPLOYMENT, ObjectKey(namespace, names.CORE_MANAGER))
    run("uninstall")
    with pytest.raises(NotFound):
        await client.get(DEPLOYMENT, ObjectKey(namespace, names.CORE_MANAGER))
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, ObjectKey(namespace, INVENTORY))


async def test_the_cluster_of_a_context_is_meant(clean: None, run: Run, charts: Path, kubeconfig: Path) -> None:
    current = yaml.safe_load(kubeconfig.read_text())["current-context"]
    given = ("--manifests", str(charts), "--dry-run", "--context", current)
    assert "airunway: 6 objects would be applied" in run("install", *given).stdout
    assert "there is nothing to upgrade" in run("upgrade", *given, code=1).stderr
    assert "nothing was installed" in run("uninstall", "--context", current, code=1).stderr
    assert "has no context 'nowhere'" in run("uninstall", "--context", "nowhere", code=1).stderr


FLUX = {"helm.toolkit.fluxcd.io/name": "runway", "helm.toolkit.fluxcd.io/namespace": "flux-system"}
RELEASE = {"meta.helm.sh/release-name": "runway", "meta.helm.sh/release-namespace": "ai"}


@pytest.mark.parametrize(
    ("metadata", "who", "do"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "Argo CD", "where Argo CD reads it"),
        ({"labels": {"argocd.argoproj.io/instance": "x"}}, "Argo CD", "where Argo CD reads it"),
        ({"managedFields": [{"manager": "argocd-controller"}]}, "Argo CD", "where Argo CD reads it"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "infra"}}, "Flux's Kustomization infra", "where Flux reads"),
        ({"labels": FLUX, "annotations": RELEASE}, "Flux's HelmRelease flux-system/runway", "where Flux reads it"),
        ({"annotations": RELEASE}, "Helm's release ai/runway", "helm upgrade --install runway CHART --namespace ai"),
    ],
)
def test_objects_of_other_tools_are_known(metadata: Resource, who: str, do: str) -> None:
    found = foreign_owner({"metadata": metadata})
    assert found is not None
    assert found.who == who
    assert do in found.do


def test_what_is_nobody_s_has_no_owner() -> None:
    labels = {"app.kubernetes.io/instance": "runway", "app.kubernetes.io/managed-by": "Helm"}
    assert foreign_owner({"metadata": {"labels": labels, "managedFields": [{"manager": "kubectl"}]}}) is None
