"""The samples of runtime configs and of the model cache apply as they stand, and come to what their pages say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from airunway.artifacts.deployments import request_of
from airunway.artifacts.volumes import claims_named
from airunway.configs.path_template import PathTemplateError
from airunway.configs.resolution import Scope, check, config_name, path_of, resolve
from airunway.kinds import (
    CLUSTER_MODEL_TEMPLATE,
    CLUSTER_RUNTIME_CONFIG,
    MODEL_DEPLOYMENT,
    MODEL_TEMPLATE,
    RUNTIME_CONFIG,
)
from airunway.kube import NAMESPACE, Client, NotFound
from airunway.resource import ObjectKey, Resource, key_of
from airunway.templates.choice import choose
from airunway.templates.choice import request_of as request_for
from airunway.templates.contribution import EXCLUDED, contribution_of
from airunway.templates.expansion import effective
from airunway_testing.operator import gone, install_definitions

FOLDER = Path(__file__).parents[1] / "samples" / "runtime-configs"
TEAM = "ml-team"


def test_the_pages_show_what_the_samples_have() -> None:
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.yaml")}
    assert {each["kind"] for each in files.values()} == {"ClusterRuntimeConfig", "RuntimeConfig", "ModelDeployment"}
    routing = (FOLDER.parents[1] / "docs" / "routing.md").read_text(encoding="utf-8")
    assert "/ml/ml-team/conversational-ai" in routing
    assert "/custom/llama-chat" in routing


@pytest.mark.apiserver
async def test_the_samples_apply_as_they_stand(client: Client, kubectl: Callable[..., CompletedProcess[str]]) -> None:
    await install_definitions(client)
    try:
        await client.get(NAMESPACE, ObjectKey("", TEAM))
    except NotFound:
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    try:
        done = kubectl("apply", "-f", str(FOLDER))
        assert len(done.stdout.splitlines()) == 3
        cluster = await client.get(CLUSTER_RUNTIME_CONFIG, ObjectKey("", "default"))
        own = await client.get(RUNTIME_CONFIG, ObjectKey(TEAM, "default"))
        deployment = await client.get(MODEL_DEPLOYMENT, ObjectKey(TEAM, "llama-chat"))
        assert [*check(cluster), *check(own)] == []
        config = resolve(config_name(deployment), namespaced=own, cluster=cluster).config
        assert config is not None
        assert config.scope is Scope.NAMESPACE
        status = config.status()
        assert status["namespaceRef"] == {"kind": "RuntimeConfig", "namespace": TEAM, "name": "default"}
        assert "clusterRef" not in status
        assert len(status["hash"]) == 64
        assert path_of(deployment, config) == "/ml/ml-team/conversational-ai"
        patch: Resource = {"spec": {"gateway": {"pathTemplate": "/custom/{.metadata.name}"}}}
        edited = await client.merge_patch(MODEL_DEPLOYMENT, ObjectKey(TEAM, "llama-chat"), patch)
        assert path_of(edited, config) == "/custom/llama-chat"
    finally:
        kubectl("delete", "-f", str(FOLDER), "--wait=false")
        await gone(client, CLUSTER_RUNTIME_CONFIG, ObjectKey("", "default"))


CACHES = FOLDER.with_name("model-cache")


def test_the_page_of_the_model_cache_shows_its_samples() -> None:
    page = (CACHES.parents[1] / "docs" / "model-cache.md").read_text(encoding="utf-8")
    for path in CACHES.glob("*.yaml"):
        assert f"samples/model-cache/{path.name}" in page
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert "\n".join(lines) in page or path.name == "volumes.yaml", path.name


@pytest.mark.apiserver
async def test_the_samples_of_the_model_cache_apply_as_they_stand(
    client: Client, kubectl: Callable[..., CompletedProcess[str]], namespace: str
) -> None:
    await install_definitions(client)
    done = kubectl("apply", "-n", namespace, "-f", str(CACHES))
    assert len(done.stdout.splitlines()) == 10
    deployments = {key_of(each).name: each for each in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace)}
    requests = {name: request_of(each, None) for name, each in deployments.items()}
    assert requests["own-model"] is not None
    assert requests["own-model"].name == "own-model"
    assert requests["from-image"] is None
    assert requests["gemma"] is not None
    assert requests["gemma"].path == "/model-cache/gemma-3-1b-it-Q8_0.gguf"
    assert claims_named(deployments["compiled"]) == ("compiled-kernels",)


SIDE_BY_SIDE = FOLDER.with_name("side-by-side")


@pytest.mark.apiserver
async def test_the_samples_of_two_versions_and_the_commands_of_their_page_work(
    client: Client, kubectl: Callable[..., CompletedProcess[str]], namespace: str
) -> None:
    await install_definitions(client)
    done = kubectl("apply", "--namespace", namespace, "-f", str(SIDE_BY_SIDE))
    assert len(done.stdout.splitlines()) == 2
    assert "SHARE" in kubectl("get", "md", "--namespace", namespace, "-o", "wide").stdout
    patch = '{"spec":{"gateway":{"weight":9}}}'
    kubectl("patch", "md", "chat-v2", "--namespace", namespace, "--type", "merge", "-p", patch)
    found = await client.get(MODEL_DEPLOYMENT, ObjectKey(namespace, "chat-v2"))
    assert (found["spec"]["gateway"]["group"], found["spec"]["gateway"]["weight"]) == ("chat", 9)
    assert found["metadata"]["generation"] == 2
    kubectl("delete", "md", "chat-v1", "--namespace", namespace, "--wait=false")
    page = (FOLDER.parents[1] / "docs" / "side-by-side.md").read_text(encoding="utf-8")
    assert f"kubectl patch md chat-v2 --namespace ml-team --type merge -p '{patch}'" in page


TEMPLATES = FOLDER.with_name("templates")


def test_the_page_of_templates_shows_its_samples() -> None:
    page = (TEMPLATES.parents[1] / "docs" / "catalogue.md").read_text(encoding="utf-8")
    for path in TEMPLATES.glob("*.yaml"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        if path.name != "cluster.yaml":
            assert "\n".join([f"# samples/templates/{path.name}", *lines]) in page, path.name


def test_the_page_names_all_fields_that_a_template_never_gives() -> None:
    page = (TEMPLATES.parents[1] / "docs" / "catalogue.md").read_text(encoding="utf-8")
    row = next(row for row in page.splitlines() if row.startswith("| `defaults`"))
    assert [name for name in EXCLUDED if name != "templateRef" and f"`{name}`" not in row] == []


def test_a_path_template_names_the_image_of_the_template() -> None:
    """`{.spec.aimImageName}` of AIM Engine is `{.spec.image}` here, also where the template gives the image."""
    given = {"model": {"id": "org/m"}, "image": "registry.example/team/server:1"}
    path = {"gateway": {"pathTemplate": "/{.spec.image}"}, "templateRef": {"name": "fast"}}
    live = {"metadata": {"name": "a"}, "spec": path, "status": {"revision": {"template": {"spec": given}}}}
    assert path_of(effective(live), None) == "/registry.example/team/server%3A1"
    foreign = {**live, "spec": {**path, "gateway": {"pathTemplate": "/{.spec.aimImageName}"}}}
    with pytest.raises(PathTemplateError, match=r"\.spec\.image"):
        path_of(effective(foreign), None)


@pytest.mark.apiserver
async def test_the_samples_of_templates_apply_as_they_stand(
    client: Client, kubectl: Callable[..., CompletedProcess[str]], namespace: str
) -> None:
    await install_definitions(client)
    try:
        done = kubectl("apply", "-n", namespace, "-f", str(TEMPLATES))
        assert len(done.stdout.splitlines()) == 5
        own = await client.list_all(MODEL_TEMPLATE, namespace=namespace)
        shared = [await client.get(CLUSTER_MODEL_TEMPLATE, ObjectKey("", "llama-throughput"))]
        deployments = {key_of(each).name: each for each in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace)}
        for template in (*own, *shared):
            template["status"] = {"phase": "Ready"}
        for name, chosen in (("assistant", "llama-latency"), ("batch", "llama-throughput")):
            request = request_for(deployments[name]["spec"])
            assert request is not None
            choice = choose(
                request,
                namespaced=own,
                cluster=shared,
                unusable=lambda template: contribution_of(template).unusable,
            )
            assert choice.chosen is not None
            assert choice.chosen.key.name == chosen
    finally:
        kubectl("delete", "-n", namespace, "-f", str(TEMPLATES), "--wait=false")
        await gone(client, CLUSTER_MODEL_TEMPLATE, ObjectKey("", "llama-throughput"))
