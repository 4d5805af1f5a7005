"""``airunway new --beside``: the manifest of a second version (docs/side-by-side.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from click.testing import CliRunner

from airunway.cli.main import app
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import Resource
from airunway.tools.beside import Changes, beside, next_name
from airunway_testing.operator import install_definitions

LIVE: Resource = {
    "apiVersion": "airunway.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {
        "name": "chat-v1",
        "namespace": "ml",
        "uid": "u-1",
        "resourceVersion": "7",
        "labels": {"project": "chat", "app.kubernetes.io/instance": "argo", "kustomize.toolkit.fluxcd.io/name": "x"},
        "annotations": {"argocd.argoproj.io/tracking-id": "x", "airunway.ai/paused": "true"},
    },
    "spec": {
        "model": {"id": "org/Chat", "revision": "abc"},
        "provider": {"name": "vllm", "overrides": {"a": 1}},
        "resources": {"gpu": {"count": 1}},
        "gateway": {"enabled": True, "pathTemplate": "/ml/chat", "group": "chat", "weight": 9},
        "suspend": True,
    },
    "status": {
        "gateway": {"url": "http://192.0.2.1/ml/chat", "path": "/ml/chat", "modelName": "Chat"},
        "provider": {"name": "vllm"},
    },
}


def live(**gateway: object) -> Resource:
    spec = {**LIVE["spec"], "gateway": {**LIVE["spec"]["gateway"], **gateway}}
    return {**LIVE, "spec": spec}


def test_a_second_version_is_a_copy_in_the_same_group_with_weight_0() -> None:
    found = beside(LIVE, Changes(name="chat-v2", image="registry.example/server:2"))
    assert found.remarks == ()
    # Tools know what they have made by labels and annotations: a copy is not theirs.
    assert found.manifest["metadata"] == {"name": "chat-v2", "namespace": "ml", "labels": {"project": "chat"}}
    expected = {**LIVE["spec"], "gateway": {**LIVE["spec"]["gateway"], "weight": 0}}
    assert found.manifest["spec"] == {
        **{key: value for key, value in expected.items() if key != "suspend"},
        "image": "registry.example/server:2",
    }


def test_another_provider_or_model_leaves_out_what_was_said_for_the_first() -> None:
    found = beside(LIVE, Changes(name="chat-v2", provider="kaito", model="org/Other", engine="vllm"))
    assert found.manifest["spec"]["provider"] == {"name": "kaito"}
    assert found.manifest["spec"]["engine"] == {"type": "vllm"}
    # The name that clients know stays.
    assert found.manifest["spec"]["model"] == {"id": "org/Other", "servedName": "Chat"}
    assert [text.split(" is left out")[0] for text in found.remarks] == [
        "spec.model.revision",
        "spec.provider.overrides",
    ]


def test_an_image_is_changed_where_the_first_version_has_it() -> None:
    first = {**LIVE, "spec": {**LIVE["spec"], "engine": {"type": "vllm", "image": "a:1"}}}
    spec = beside(first, Changes(name="x", image="a:2")).manifest["spec"]
    assert (spec["engine"]["image"], "image" in spec) == ("a:2", False)


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (live(group=""), """kubectl patch md chat-v1 --namespace ml --type merge -p '{"spec":{"gateway":{"group":"""),
        (live(httpRouteRef="mine"), "excludes a group"),
        (live(enabled=False), "has no route: a group asks for none by itself"),
        (live(pathTemplate="/ml/{.metadata.name}"), "set spec.gateway.pathTemplate to /ml/chat"),
    ],
)
def test_what_the_first_version_lacks_is_said(first: Resource, text: str) -> None:
    found = beside(first, Changes(name="chat-v2"))
    assert [text in each for each in found.remarks] == [True], found.remarks
    gateway = found.manifest["spec"]["gateway"]
    assert (bool(gateway["group"]), gateway["weight"], "httpRouteRef" in gateway) == (True, 0, False)


@pytest.mark.parametrize(
    ("name", "following"),
    [("chat-v1", "chat-v2"), ("chat-v9", "chat-v10"), ("chat", "chat-2"), ("a" * 63, "a" * 61 + "-2")],
)
def test_the_next_name_counts_on(name: str, following: str) -> None:
    assert next_name(name) == following


@pytest.mark.apiserver
async def test_what_is_printed_is_applied_and_the_first_is_edited_as_the_remark_says(
    client: Client, kubeconfig: Path, kubectl: Callable[..., CompletedProcess[str]], namespace: str, tmp_path: Path
) -> None:
    await install_definitions(client)
    first = {key: value for key, value in live(group="").items() if key != "status"}
    del first["spec"]["gateway"]["group"], first["spec"]["gateway"]["weight"]
    metadata = {"name": "chat-v1", "namespace": namespace}
    await client.create(MODEL_DEPLOYMENT, {**first, "metadata": metadata})
    await client.create(MODEL_DEPLOYMENT, {**first, "metadata": {**metadata, "name": "chat-v2"}})
    options = ["--kubeconfig", str(kubeconfig), "--namespace", namespace]

    def new(*words: str) -> CompletedProcess[str]:
        done = CliRunner().invoke(app, ["new", *words, *options])
        return CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    done = await asyncio.to_thread(new, "--beside", "md/chat-v1", "--provider", "kaito", "--image", "a:2")
    made = yaml.safe_load(done.stdout)
    assert (made["metadata"]["name"], made["spec"]["gateway"]["group"]) == ("chat-v3", "chat-v1")
    assert made["spec"]["image"] == "a:2"
    path = tmp_path / "second.yaml"
    path.write_text(done.stdout, encoding="utf-8")
    kubectl("apply", "-f", str(path))
    patch = done.stderr.partition(" -p '")[2].partition("'")[0]
    kubectl("patch", "md", "chat-v1", "--namespace", namespace, "--type", "merge", "-p", patch)
    for words, text in (
        (("--beside", "md/none"), "there is no ModelDeployment 'none'"),
        (("--beside", "md/chat-v1", "--name", "chat-v2"), "exists already"),
        (("--beside", "md/chat-v1", "--replicas", "2"), "--replicas and --beside exclude each other"),
        ((), "name a MODEL, or a deployment with --beside"),
    ):
        done = await asyncio.to_thread(new, *words)
        assert done.returncode != 0
        assert text in " ".join(done.stderr.split())
