"""Helm refuses a second installation that would work on the same deployments as the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.install.helm import Helm

from airunway.kube import DEPLOYMENT, NAMESPACE, Client
from airunway.resource import ObjectKey

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

REFUSED = "Deployment airunway-controller in namespace {first} already works on {scope}"


@pytest.fixture
async def second(client: Client, namespace: str) -> str:
    name = f"{namespace}-second"
    await client.apply(
        NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, manager="tests"
    )
    return name


def running(namespace: str, *, watched: str = "") -> dict[str, object]:
    """The first core, as its chart has it."""
    labels = {"app.kubernetes.io/name": "airunway-controller", "app.kubernetes.io/part-of": "airunway"}
    args = ["controller", *([f"--watch-namespaces={watched}"] if watched else [])]
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "airunway", "image": "example.org/airunway", "args": args}]},
    }
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {"namespace": namespace, "name": "airunway-controller", "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture
def on_cluster(helm: Helm, kubeconfig: Path) -> Helm:
    return replace(helm, kubeconfig=kubeconfig)


@pytest.mark.parametrize(
    ("watched", "own", "scope"),
    [("", "", "all namespaces"), ("", "default", "all namespaces"), ("default,kube-public", "default", "default")],
)
async def test_a_second_core_on_the_same_deployments_is_refused(
    on_cluster: Helm, client: Client, namespace: str, second: str, watched: str, own: str, scope: str
) -> None:
    await client.apply(DEPLOYMENT, running(namespace, watched=watched), manager="tests")
    try:
        limits = ["--set", f"watchNamespaces={{{own}}}"] if own else []
        done = on_cluster("install", "second", "airunway", "-n", second, "--dry-run=server", *limits, check=False)
        assert done.returncode != 0
        assert REFUSED.format(first=namespace, scope=scope) in done.stderr
        assert "Uninstall one of them, or give each namespaces of its own (watchNamespaces)" in done.stderr
    finally:
        await client.delete(DEPLOYMENT, ObjectKey(namespace, "airunway-controller"))


@pytest.mark.parametrize(("where", "watched"), [("first", "default"), ("second", "")])
async def test_an_upgrade_and_a_core_of_other_namespaces_are_not(
    on_cluster: Helm, client: Client, namespace: str, second: str, where: str, watched: str
) -> None:
    home = namespace if where == "first" else second
    await client.apply(DEPLOYMENT, running(home, watched=watched), manager="tests")
    try:
        limits = ["--set", "watchNamespaces={kube-public}", "--set", "fullnameOverride=other"]
        on_cluster("install", "second", "airunway", "-n", second, "--dry-run=server", *limits)
    finally:
        await client.delete(DEPLOYMENT, ObjectKey(home, "airunway-controller"))
