"""`airunway render`: what a provider would create, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from airunway.api import names
from airunway.cli.main import app
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, Client, Kind
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, annotations_of
from airunway.testing.operator import install_definitions, running_core, running_provider, running_simulator, until
from airunway.testing.simulators import SIMULATORS


def deployment(name: str = "llama", **spec: Any) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "labels": {"airunway.ai/team": "red", "other": "x"}},
        "spec": {"model": {"id": "org/model.gguf"}, "resources": {"memory": "8Gi"}, "image": "example.org/runner:1"}
        | spec,
    }


def render(path: Path, obj: Resource, *arguments: str) -> Result:
    path.write_text(yaml.safe_dump(obj))
    return CliRunner().invoke(app, ["render", "-f", str(path), *arguments])


@pytest.mark.parametrize("provider", [(), ("--provider", "kaito")])
def test_objects_come_complete(tmp_path: Path, provider: tuple[str, ...]) -> None:
    done = render(tmp_path / "md.yaml", deployment(), *provider, "-n", "ml")
    assert done.exit_code == 0, done.output
    (workspace,) = yaml.safe_load_all(done.stdout)
    assert workspace["kind"] == "Workspace"
    metadata = workspace["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("llama", "ml")
    assert metadata["labels"]["airunway.ai/team"] == "red"
    assert "other" not in metadata["labels"]
    assert names.SPEC_HASH in metadata["annotations"]
    assert "ownerReferences" not in metadata


def test_json_and_overrides(tmp_path: Path) -> None:
    overrides = {"resource": {"instanceType": "Standard_NC24"}}
    done = render(tmp_path / "md.yaml", deployment(provider={"overrides": overrides}), "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["resource"]["instanceType"] == "Standard_NC24"


def test_a_setting_of_the_provider_reaches_what_is_made(tmp_path: Path) -> None:
    done = render(tmp_path / "md.yaml", deployment(), "--set", 'cpuNodeSelector={"pool": "cheap"}')
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout)["resource"]["labelSelector"]["matchLabels"] == {"pool": "cheap"}
    wrong = render(tmp_path / "md.yaml", deployment(), "--set", "cpuNodeSelector")
    assert (wrong.exit_code, "is not KEY=VALUE" in wrong.stderr) == (2, True)


def test_what_cannot_be_is_said_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "md.yaml"
    invalid = render(path, deployment(engine={"type": "vllm"}))
    assert (invalid.exit_code, invalid.stdout) == (1, "")
    assert "spec.resources.gpu.count: vLLM engine requires GPU" in invalid.stderr
    refused = render(path, deployment(provider={"name": "kaito", "overrides": {"resource": {"instanceType": 5}}}))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "spec.provider.overrides.resource.instanceType" in refused.stderr
    nobody = render(path, deployment(), "--provider", "nobody")
    assert nobody.exit_code == 1
    assert "no installed distribution provides 'nobody'" in nobody.stderr
    unplaced = render(path, deployment(engine={"type": "unheard-of"}, resources={"gpu": {"count": 1}}))
    assert unplaced.exit_code == 1
    assert "no provider: no compatible provider found" in unplaced.stderr


def test_an_unknown_override_is_a_warning(tmp_path: Path) -> None:
    done = render(tmp_path / "md.yaml", deployment(provider={"overrides": {"resorce": {}}}))
    assert done.exit_code == 0
    assert "did you mean 'resource'?" in done.stderr


@pytest.mark.apiserver
async def test_it_is_what_the_provider_really_creates(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    kaito = load("kaito")
    await install_definitions(client, SIMULATORS["kaito"].custom_resource_definitions())
    obj = deployment()
    obj["metadata"]["namespace"] = namespace
    key = ObjectKey(namespace, "llama")
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        await client.create(MODEL_DEPLOYMENT, obj)
        await until(client, key, lambda d: d.get("status", {}).get("phase") == "Running")
        rendered = list(yaml.safe_load_all(render(tmp_path / "md.yaml", obj).stdout))
        for wanted in rendered:
            if wanted["kind"] == "ConfigMap":
                live = await client.get(CONFIG_MAP, ObjectKey(namespace, wanted["metadata"]["name"]))
                assert live["data"] == wanted["data"]
                continue
            primary = kaito.primary_kind
            group, version = wanted["apiVersion"].split("/")
            kind = Kind(group=group, version=version, kind=primary.kind, plural=primary.plural)
            live = await client.get(kind, key)
            same = (names.SPEC_HASH, names.TRANSFORMER)
            assert {k: annotations_of(live)[k] for k in same} == {k: annotations_of(wanted)[k] for k in same}
            assert live["resource"].items() >= wanted["resource"].items()
        await client.delete(MODEL_DEPLOYMENT, key)
