"""`airunway render`: what a provider would create, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from airunway.api import names
from airunway.cli.main import app
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, SERVICE, Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, annotations_of
from airunway_testing.operator import install_definitions, running_core, running_provider, running_simulator, until
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import TOY, TOY_BOX


def deployment(name: str = "llama", **spec: Any) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "labels": {"airunway.ai/team": "red", "other": "x"}},
        "spec": {
            "model": {"id": "org/model.gguf"},
            "engine": {"type": "llamacpp"},
            "provider": {"name": "toy"},
            "resources": {"memory": "8Gi"},
        }
        | spec,
    }


def render(path: Path, obj: Resource, *arguments: str) -> Result:
    path.write_text(yaml.safe_dump(obj))
    return CliRunner().invoke(app, ["render", "-f", str(path), *arguments])


@pytest.mark.parametrize("provider", [(), ("--provider", "toy")])
def test_objects_come_complete(tmp_path: Path, provider: tuple[str, ...]) -> None:
    done = render(tmp_path / "md.yaml", deployment(), *provider, "-n", "ml")
    assert done.exit_code == 0, done.output
    made = {obj["kind"]: obj for obj in yaml.safe_load_all(done.stdout)}
    assert {"Toy", "Service", "ConfigMap"} <= set(made)
    metadata = made["Toy"]["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("llama", "ml")
    assert metadata["labels"]["airunway.ai/team"] == "red"
    assert "other" not in metadata["labels"]
    assert names.SPEC_HASH in metadata["annotations"]
    assert "ownerReferences" not in metadata


def test_a_model_cache_and_a_sized_volume_are_mounted_as_if_they_were_there(tmp_path: Path) -> None:
    volume = {"name": "kernels", "size": "20Gi", "mountPath": "/kernels"}
    model = {"id": "org/model", "cache": {"mode": "Shared"}, "storage": {"volumes": [volume]}}
    spec: Resource = {
        "model": model,
        "engine": {"type": "vllm"},
        "provider": {"name": "vllm"},
        "resources": {"gpu": {"count": 1}},
    }
    done = render(tmp_path / "md.yaml", deployment(**spec))
    assert done.exit_code == 0, done.output
    made = {obj["kind"]: obj for obj in yaml.safe_load_all(done.stdout)}
    pod = made["Deployment"]["spec"]["template"]["spec"]
    claims = {each["name"]: each.get("persistentVolumeClaim", {}).get("claimName", "") for each in pod["volumes"]}
    assert claims["kernels"] == "llama-kernels"
    assert claims["airunway-model-cache"].startswith("model-")
    assert pod["containers"][0]["args"][0] == "/model-cache"
    assert "which the model cache part makes" in done.stderr
    several = {**model, "cache": {"mode": "Shared", "accessMode": "ReadWriteOnce"}}
    done = render(tmp_path / "md.yaml", deployment(**spec | {"model": several, "scaling": {"replicas": 2}}))
    assert "AccessModeConflict" in done.stderr


def test_json_and_overrides(tmp_path: Path) -> None:
    overrides = {"spec": {"note": "fragile"}}
    done = render(tmp_path / "md.yaml", deployment(provider={"name": "toy", "overrides": overrides}), "-o", "json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert [obj["spec"]["note"] for obj in made["items"] if obj["kind"] == "Toy"] == ["fragile"]


def test_a_setting_of_the_provider_reaches_what_is_made(tmp_path: Path) -> None:
    done = render(tmp_path / "md.yaml", deployment(), "--set", "greeting=good morning")
    assert done.exit_code == 0, done.output
    assert [obj["data"] for obj in yaml.safe_load_all(done.stdout) if obj["kind"] == "ConfigMap"] == [
        {"greeting": "good morning"}
    ]
    wrong = render(tmp_path / "md.yaml", deployment(), "--set", "greeting")
    assert (wrong.exit_code, "is not KEY=VALUE" in wrong.stderr) == (2, True)


def test_what_a_policy_allows_is_rendered_with_it(tmp_path: Path) -> None:
    locking = deployment(
        model={"id": "org/model"},
        engine={"type": "vllm"},
        resources={"gpu": {"count": 1}},
        provider={"name": "vllm"},
        securityContext={"capabilities": {"add": ["IPC_LOCK"]}},
    )
    refused = render(tmp_path / "md.yaml", locking)
    assert (refused.exit_code, "capability 'IPC_LOCK' is not allowed" in refused.output) == (1, True), refused.output
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{capabilities: [IPC_LOCK]}]")
    done = render(tmp_path / "md.yaml", locking, "--policy", str(policy))
    assert done.exit_code == 0, done.output
    assert "IPC_LOCK" in done.stdout


def test_a_cache_is_mounted_under_a_name_that_stands_for_its_claim(tmp_path: Path) -> None:
    cached = deployment(
        model={"id": "org/model/q4.gguf", "cache": {"mode": "Shared"}},
        image="ghcr.io/ggml-org/llama.cpp:server-b6000",
        provider={"name": "vllm"},
    )
    done = render(tmp_path / "md.yaml", cached)
    assert done.exit_code == 0, done.output
    (made,) = [obj for obj in yaml.safe_load_all(done.stdout) if obj["kind"] == "Deployment"]
    pod = made["spec"]["template"]["spec"]
    claims = [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert [claim.endswith("-cache") for claim in claims] == [True]
    assert "/model-cache/q4.gguf" in pod["containers"][0]["args"]


def test_an_older_upstream_gets_what_it_knows(tmp_path: Path) -> None:
    for release, version, field in (("1.5", "v1alpha1", "drive"), ("2.0", "v1beta1", "motor")):
        done = render(tmp_path / "md.yaml", deployment(), "--upstream-version", release)
        assert done.exit_code == 0, done.output
        (toy,) = (obj for obj in yaml.safe_load_all(done.stdout) if obj["kind"] == "Toy")
        assert toy["apiVersion"] == f"testing.airunway.ai/{version}"
        assert toy["spec"][field] == "llamacpp"
    unknown = render(tmp_path / "md.yaml", deployment(), "--upstream-version", "0.1")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "no transformer for Toy" in unknown.stderr


def test_what_cannot_be_is_said_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "md.yaml"
    invalid = render(path, deployment(engine={"type": "vllm"}))
    assert (invalid.exit_code, invalid.stdout) == (1, "")
    assert "spec.resources.gpu.count: vLLM engine requires GPU" in invalid.stderr
    refused = render(path, deployment(provider={"name": "toy", "overrides": {"spec": {"note": 5}}}))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "spec.provider.overrides.spec.note" in refused.stderr
    nobody = render(path, deployment(), "--provider", "nobody")
    assert nobody.exit_code == 1
    assert "no installed distribution provides 'nobody'" in nobody.stderr
    unplaced = render(path, deployment(provider={}, engine={"type": "unheard-of"}, resources={"gpu": {"count": 1}}))
    assert unplaced.exit_code == 1
    assert "no provider: no provider can run this spec" in unplaced.stderr


def test_an_unknown_override_is_a_warning(tmp_path: Path) -> None:
    done = render(tmp_path / "md.yaml", deployment(provider={"name": "toy", "overrides": {"spce": {}}}))
    assert done.exit_code == 0
    assert "did you mean 'spec'?" in done.stderr


def test_what_a_manifest_prints_to_the_terminal_is_escaped(tmp_path: Path) -> None:
    key = "x\x1b]0;pwn\x07\x1b[2J\u202e"
    done = render(tmp_path / "md.yaml", deployment(provider={"name": "toy", "overrides": {key: {}}}))
    refused = render(tmp_path / "md.yaml", deployment(provider={"name": "toy", "overrides": {"hostPath": {key: 1}}}))
    assert "overrides.x" in done.stderr
    for text in (done.output, refused.output):
        assert text.replace("\n", "").isprintable(), ascii(text)


@pytest.mark.apiserver
async def test_it_is_what_the_provider_really_creates(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    toy = load("toy")
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    obj = deployment()
    obj["metadata"]["namespace"] = namespace
    key = ObjectKey(namespace, "llama")
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, toy),
        running_simulator(kubeconfig, toy, level="api"),
    ):
        await client.create(MODEL_DEPLOYMENT, obj)
        await until(client, key, lambda d: d.get("status", {}).get("phase") == "Running")
        rendered = list(yaml.safe_load_all(render(tmp_path / "md.yaml", obj).stdout))
        kinds = {"Toy": TOY, "ToyBox": TOY_BOX, "ConfigMap": CONFIG_MAP, "Service": SERVICE}
        assert {wanted["kind"] for wanted in rendered} >= {"Toy", "ConfigMap", "Service"}
        for wanted in rendered:
            live = await client.get(kinds[wanted["kind"]], ObjectKey(namespace, wanted["metadata"]["name"]))
            same = (names.SPEC_HASH, names.TRANSFORMER)
            assert {k: annotations_of(live).get(k) for k in same} == {k: annotations_of(wanted).get(k) for k in same}
            content = "data" if wanted["kind"] == "ConfigMap" else "spec"
            assert live[content].keys() >= wanted[content].keys()
        await client.delete(MODEL_DEPLOYMENT, key)


def config(**spec: Any) -> Resource:
    metadata = {"name": "default", "namespace": "ml"}
    return {"apiVersion": names.API_VERSION, "kind": "RuntimeConfig", "metadata": metadata, "spec": spec}


LABELS = {"labelPropagation": {"enabled": True, "match": ["other"]}}


@pytest.mark.parametrize("beside", [True, False])
def test_a_deployment_follows_the_runtime_configs_that_are_given(tmp_path: Path, beside: bool) -> None:
    """They stand in the same file, or in one that --runtime-config names."""
    configs, path = tmp_path / "configs.yaml", tmp_path / "md.yaml"
    documents = [config(**LABELS)]
    configs.write_text(yaml.safe_dump_all(documents))
    path.write_text(yaml.safe_dump_all([deployment(), *(documents if beside else [])]))
    arguments = [] if beside else ["--runtime-config", str(configs)]
    done = CliRunner().invoke(app, ["render", "-f", str(path), "-n", "ml", *arguments])
    assert done.exit_code == 0, done.output
    toy = next(obj for obj in yaml.safe_load_all(done.stdout) if obj["kind"] == "Toy")
    assert toy["metadata"]["labels"]["other"] == "x"
    elsewhere = CliRunner().invoke(app, ["render", "-f", str(path), "-n", "another", *arguments])
    assert "other: x" not in elsewhere.stdout, "a RuntimeConfig counts in its namespace only"


def test_a_named_config_that_is_not_given_is_refused(tmp_path: Path) -> None:
    done = render(tmp_path / "md.yaml", deployment(runtimeConfigName="gpu"))
    assert done.exit_code == 1
    assert "no RuntimeConfig or ClusterRuntimeConfig 'gpu' is given" in done.output
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text(yaml.safe_dump(deployment()))
    done = render(tmp_path / "md.yaml", deployment(), "--runtime-config", str(nothing))
    assert done.exit_code == 1
    assert "contains no RuntimeConfig or ClusterRuntimeConfig" in done.output


def test_a_config_that_an_api_server_would_refuse_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "configs.yaml"
    path.write_text(yaml.safe_dump(config(routing=[], env=[{"value": "x"}])))
    done = render(tmp_path / "md.yaml", deployment(), "-n", "ml", "--runtime-config", str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "RuntimeConfig default: spec.env[0].name: required" in done.output


def test_a_pattern_of_a_config_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    path = tmp_path / "configs.yaml"
    path.write_text(yaml.safe_dump(config(labelPropagation={"enabled": True, "match": ["[bad", "other"]})))
    done = render(tmp_path / "md.yaml", deployment(), "-n", "ml", "--runtime-config", str(path))
    assert done.exit_code == 0, done.output
    assert "spec.labelPropagation.match[0]" in done.output
    assert "other: x" in done.stdout
