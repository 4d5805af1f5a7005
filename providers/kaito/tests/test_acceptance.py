"""A real API server with KAITO's own CRDs accepts what we write: of each release since v0.4.5, and Strict."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.kube import CONFIG_MAP, SERVICE, STATEFUL_SET, Client, Kind
from airunway.kube.errors import ApiError
from airunway.resource import Resource
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.objects import desired
from airunway_testing.acceptance import ON_PODS, in_namespace, installed_alone, refusal

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces", True)
INFERENCE_SET = Kind("kaito.sh", "v1beta1", "InferenceSet", "inferencesets", True)
MANAGER = "airunway-provider-kaito"
RELEASES = {
    "v0.4.5": "0.4.5",
    "v0.4.6": "0.4.6",
    "v0.7.0": "0.7",
    "v0.8.0": "0.7",
    "v0.9.0": "0.9",
    "v0.10.0": "0.9",
    "v0.12.0": "0.12",
}

SETS = {
    # What stands in the release's CRD, and how KAITO may get its nodes there.
    "v0.11.0/inferencesets.yaml": ("0.11", {"nodeProvisioner": "karpenter"}),
    "v0.11.0/inferencesets.chart.yaml": ("0.11", {"nodeProvisioner": "karpenter"}),
    "v0.12.0/inferencesets.yaml": ("0.12", {}),
}

VLLM: dict[str, dict[str, Any]] = {
    "plain": {},
    "token and length": {"engine": {"contextLength": 8192}, "secrets": {"huggingFaceToken": "hf"}},
    "image": {"image": "vllm/vllm-openai:v0.23.0", "resources": {"gpu": {"count": 2}, "memory": "32Gi", "cpu": "4"}},
    "args": {"engine": {"args": {"quantization": "awq", "enable-chunked-prefill": ""}, "extraArgs": ["--seed=1"]}},
    **ON_PODS,
    "custom": {"model": {"source": "custom"}, "image": "registry.example/my-model:1"},
}
LLAMACPP: dict[str, dict[str, Any]] = {
    "cpu": {},
    "gpu": {"resources": {"gpu": {"count": 1}}},
    "server": {"image": "ghcr.io/ggml-org/llama.cpp:server", "engine": {"contextLength": 4096}},
}


def stateful_set(workspace: Resource) -> Resource:
    """The pod template as KAITO uses it: the CRD itself takes anything for a template."""
    template = workspace["inference"]["template"]
    name = workspace["metadata"]["name"]
    labels = {"kaito.sh/workspace": name}
    metadata = {**template["metadata"], "labels": {**template["metadata"].get("labels", {}), **labels}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": template["spec"]},
        },
    }


async def accept(client: Client, kind: Kind, obj: Resource, what: str) -> None:
    assert (what, await refusal(client, kind, obj, manager=MANAGER)) == (what, "")


@pytest.mark.apiserver
@pytest.mark.parametrize("release", RELEASES)
async def test_every_release_accepts_the_corpus(
    client: Client, namespace: str, upstream_crds: Path, vllm: Any, llamacpp: Any, context: Any, release: str
) -> None:
    crd = yaml.load((upstream_crds / "kaito" / release / "workspaces.yaml").read_text(), Loader=yaml.CSafeLoader)
    settings = {"instanceType": "Standard_NC24ads_A100_v4", "cpuInstanceType": "Standard_D8s_v5", "partition": True}
    cases = [(f"vllm {name}", "vllm", vllm(**fields)) for name, fields in VLLM.items()]
    cases += [(f"llamacpp {name}", "llamacpp", llamacpp(**fields)) for name, fields in LLAMACPP.items()]
    async with installed_alone(client, crd, WORKSPACE):
        for what, engine, deployment in cases:
            ctx = context(engine, release=RELEASES[release], **settings)
            assert can_handle(deployment, ctx).ok, (what, can_handle(deployment, ctx))
            workspace, *others = desired(deployment, ctx).objects
            await accept(client, WORKSPACE, in_namespace(workspace, namespace), what)
            for config in others:
                await accept(client, CONFIG_MAP, in_namespace(config, namespace), what)
            if "template" in workspace["inference"]:
                await accept(client, STATEFUL_SET, in_namespace(stateful_set(workspace), namespace), what)


@pytest.mark.apiserver
@pytest.mark.parametrize("definition", SETS)
async def test_every_release_with_inferencesets_accepts_the_corpus_with_several_replicas_and_none(
    client: Client, namespace: str, upstream_crds: Path, vllm: Any, llamacpp: Any, context: Any, definition: str
) -> None:
    crd = yaml.load((upstream_crds / "kaito" / definition).read_text(), Loader=yaml.CSafeLoader)
    release, nodes = SETS[definition]
    settings = {"instanceType": "Standard_NC24ads_A100_v4", "cpuInstanceType": "Standard_D8s_v5", "partition": True}
    cases = [("vllm", name, vllm, fields) for name, fields in VLLM.items()]
    cases += [("llamacpp", name, llamacpp, fields) for name, fields in LLAMACPP.items()]
    async with installed_alone(client, crd, INFERENCE_SET):
        for engine, what, make, fields in cases:
            for replicas in (0, 3):
                deployment = make(**{**fields, "scaling": {"replicas": replicas}})
                ctx = context(engine, sets=release, **settings, **nodes)
                assert can_handle(deployment, ctx).ok, (what, can_handle(deployment, ctx))
                written, *others = desired(deployment, ctx).objects
                await accept(client, INFERENCE_SET, in_namespace(written, namespace), what)
                for other in others:
                    kind = SERVICE if other["kind"] == "Service" else CONFIG_MAP
                    await accept(client, kind, in_namespace(other, namespace), what)


@pytest.mark.apiserver
async def test_strict_is_strict(client: Client, namespace: str, upstream_crds: Path, vllm: Any, context: Any) -> None:
    """What the newest transformer writes for a partition, an older release does not know: features matter."""
    crd = yaml.load((upstream_crds / "kaito" / "v0.9.0" / "workspaces.yaml").read_text(), Loader=yaml.CSafeLoader)
    workspace, _ = desired(vllm(), context(partition=True)).objects
    async with installed_alone(client, crd, WORKSPACE):
        with pytest.raises(ApiError, match="partition"):
            await client.apply(WORKSPACE, in_namespace(workspace, namespace), manager=MANAGER, dry_run=True)
