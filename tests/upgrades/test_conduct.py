"""How a provider runs is read from its Deployment; what is not there is assumed, and said."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tests.install.helm import CHARTS, NAMESPACE

from airunway.doctor.conduct import Conduct, conduct_in
from airunway.kube import Client, load_config
from airunway.resource import Resource
from airunway_testing.fixtures import Kubectl
from airunway_testing.kubetools import KubeToolMissingError, helm_path
from airunway_testing.operator import install_definitions, remove_leftovers
from airunway_testing.simulators import load_simulator


def deployment(*args: str, name: str = "airunway-provider-kaito", env: Sequence[Resource] = ()) -> Resource:
    container = {"name": "main", "image": "registry.internal/airunway/provider-kaito:1", "args": [*args], "env": [*env]}
    labels = {"app.kubernetes.io/part-of": "airunway"}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }


BIG = "instanceType=big"


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        (["provider", "run", "kaito", f"--set={BIG}", "--set", "partition=true"], (BIG, "partition=true")),
        (["provider", "run", "kaito", "vllm", f"--set=kaito.{BIG}", "--set=vllm.maxSurge=1"], (BIG,)),
        (["run", f"--set=kaito.{BIG}"], (BIG,)),
    ],
)
def test_settings_are_those_of_the_provider(args: list[str], settings: tuple[str, ...]) -> None:
    found = conduct_in([deployment(*args)], "kaito")
    assert found == Conduct(settings=settings, source=f"Deployment/{NAMESPACE}/airunway-provider-kaito")


def test_what_is_not_known_is_assumed_and_said() -> None:
    assert "no Deployment with the label" in conduct_in([], "kaito").assumed
    run = ("provider", "run", "kaito")
    several = conduct_in([deployment(*run), deployment(*run, name="another")], "kaito")
    assert several.assumed.endswith(f"Deployment/{NAMESPACE}/airunway-provider-kaito, Deployment/{NAMESPACE}/another")
    env: list[Resource] = [
        {"name": "SIZE", "value": "big"},
        {"name": "PLACE", "valueFrom": {"configMapKeyRef": {"name": "places", "key": "east"}}},
    ]
    found = conduct_in([deployment(*run, "--set=instanceType=$(SIZE)", "--set=zone=$(PLACE)", env=env)], "kaito")
    assert found.settings == ("instanceType=big",)
    assert found.assumed == "defaults for zone, whose value is not in the Deployment"


@pytest.mark.chart
def test_what_the_chart_was_given_is_what_is_read(tmp_path: Path) -> None:
    try:
        helm = helm_path(4)
    except KubeToolMissingError as error:
        pytest.skip(str(error))
    chart = tmp_path / "airunway-provider-kaito"
    shutil.copytree(CHARTS / chart.name, chart)
    shutil.copytree(CHARTS / "airunway-common", chart / "charts" / "airunway-common")
    values = ["--set=settings.instanceType=big", "--set=settings.partition=true", "--set=unknownSchema=Fail"]
    said = subprocess.run([helm, "template", "kaito", chart, "-n", NAMESPACE, *values], check=True, capture_output=True)
    objects = [obj for obj in yaml.safe_load_all(said.stdout) if obj and obj["kind"] == "Deployment"]
    found = conduct_in(objects, "kaito")
    assert sorted(found.settings) == ['instanceType="big"', "partition=true"]
    assert not found.verify
    assert not found.assumed


async def prepare(kubeconfig: Path) -> None:
    """Our CRDs, and no deployment of other tests: a preflight looks at the whole cluster."""
    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client:
        await install_definitions(client)
        await remove_leftovers(client)


@pytest.mark.apiserver
def test_a_preflight_takes_what_the_cluster_says(kubeconfig: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    """An unknown schema is tried under Verify, and stops the provider under Fail."""
    (crd,) = [
        crd
        for crd in load_simulator("kaito").custom_resource_definitions()
        if crd["metadata"]["name"] == "workspaces.kaito.sh"
    ]
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["novel"] = {"type": "string"}
    (tmp_path / "crd.yaml").write_text(yaml.safe_dump(crd))
    asyncio.run(prepare(kubeconfig))

    def asked(*more: str) -> Resource:
        command = [sys.executable, "-m", "airunway", "preflight", f"--upstream=kaito={tmp_path / 'crd.yaml'}"]
        done = subprocess.run(
            [*command, f"--kubeconfig={kubeconfig}", *more], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: Resource = json.loads(done.stdout) if "json" in more else {"table": done.stdout}
        return found

    assert asked()["table"].startswith("Assumed: default settings and --unknown-schema Verify: no Deployment")
    kubectl("create", "namespace", NAMESPACE)
    try:
        args = ("provider", "run", "kaito", "--unknown-schema=Fail", "--set=instanceType=big")
        kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment(*args)))
        told = asked("-o", "json")
        assert told["running"] == {
            "source": f"Deployment/{NAMESPACE}/airunway-provider-kaito",
            "settings": {"instanceType": "big"},
            "unknownSchema": "Fail",
            "assumed": "",
        }
        assert "with --unknown-schema Fail nothing is written for it" in told["changes"][0]["message"]
        read = f"Settings of Deployment/{NAMESPACE}/airunway-provider-kaito: instanceType=small"
        assert asked("--set", "instanceType=small")["table"].startswith(read)
    finally:
        kubectl("delete", "namespace", NAMESPACE)
