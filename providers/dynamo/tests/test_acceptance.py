"""A real API server with Dynamo's own CRDs accepts what we write: of each release since 0.4.1, and Strict."""

from contextlib import AbstractAsyncContextManager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway.runtime.crd_versions import crd_facts, detect
from airunway.runtime.translate import check_overrides, merged, placed
from airunway_testing.acceptance import ON_PODS, in_namespace, installed_alone, refusal

MANAGER = "airunway-provider-dynamo"
RELEASES = {
    "v0.4.1": "v1alpha1-0.4.1-r3",
    "v0.6.0": "v1alpha1-0.6-r3",
    "v0.6.1": "v1alpha1-0.6-r3",
    "v0.7.0": "v1alpha1-0.6-r3",
    "v0.8.0": "v1alpha1-0.8-r3",
    "v0.9.0": "v1alpha1-0.8-r3",
    "v1.0.0": "v1alpha1-1.0-r3",
    "v1.1.0-cut": "v1alpha1-1.1-r3",
    "v1.2.0-cut": "v1beta1-1.2-r3",
    "v1.3.0-cut": "v1beta1-1.2-r3",
    "v1.4.0-cut": "v1beta1-1.4-r3",
    "main-2a6da14": "v1beta1-1.4-r3",
}
ENGINES = ("vllm", "sglang", "trtllm")
ESTABLISHED = [{"type": "Established", "status": "True"}]
SERVED_BOTH = [release for release, name in RELEASES.items() if name.startswith("v1beta1")]

ROLE = {"replicas": 1, "gpu": {"count": 2}, "memory": "16Gi", "cpu": "4"}
SPLIT = {"resources": None, "serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}}
CORPUS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sized": {"resources": {"gpu": {"count": 2}, "memory": "32Gi", "cpu": "4"}, "scaling": {"replicas": 0}},
    "split": SPLIT,
    "by cache": {"overrides": {"routerMode": "kv", "frontend": {"replicas": 2}, "sharedMemory": "16Gi"}, **SPLIT},
    "two nodes": {"resources": {"gpu": {"count": 16}, "memory": "1Ti"}},
    "two nodes, split": {**SPLIT, "scaling": {"prefill": ROLE, "decode": {**ROLE, "gpu": {"count": 16}}}},
    "own image": {"image": "registry.example/own:latest", "overrides": {"runtimeVersion": "1.3.1"}},
    "another GPU": {
        "image": "registry.example/own:1.3.1",
        "resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}},
    },
    "adapter": {"overrides": {"scalingAdapter": True}},
    "whole graph": {"overrides": {"spec": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}},
    **{
        key: {"overrides": {"spec": {"topologyConstraint": {"packDomain": "rack", key: "racks"}}}}
        for key in ("topologyProfile", "clusterTopologyName")
    },
    "nameless topology": {"overrides": {"spec": {"topologyConstraint": {"packDomain": "rack"}}}},
    "read-only root": {
        "securityContext": {"readOnlyRootFilesystem": True},
        "model": {"id": "o/m", "storage": {"volumes": [{"name": "w", "purpose": "modelCache", "claimName": "pvc"}]}},
    },
    "engine": {"engine": {"contextLength": 8192, "extraArgs": ["--x"]}},
    **ON_PODS,
    "environment": {**ON_PODS["environment"], "secrets": {"huggingFaceToken": "hf"}},
    "pod": {**ON_PODS["pod"], "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
}


ARGUMENTS = {"vllm": {"seed": "1"}, "sglang": {"random-seed": "1"}, "trtllm": {"max-batch-size": "8"}}
"""An option that the worker of each engine has."""


def samples() -> dict[str, ModelDeployment]:
    """What the provider comes with, and the third example of the seeds is one of them in other numbers."""
    folder = resources.files("airunway_dynamo") / "samples"
    files = [file for file in folder.iterdir() if file.name.endswith(".yaml")]
    manifests = [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in files]
    for manifest in manifests:
        manifest["metadata"]["namespace"] = "default"
    return {manifest["metadata"]["name"]: parse_deployment(manifest) for manifest in manifests}


def installed(client: Client, crd: Resource) -> AbstractAsyncContextManager[None]:
    """The CRD of a release alone. No conversion: no webhook runs for it, and nothing is stored."""
    crd["spec"].pop("conversion", None)
    served = next(version["name"] for version in crd["spec"]["versions"] if version["served"])
    return installed_alone(client, crd, graphs(served))


def graphs(version: str) -> Kind:
    return Kind("nvidia.com", version, "DynamoGraphDeployment", "dynamographdeployments")


def crd_of(folder: Path, release: str) -> Resource:
    crd: Resource = yaml.load((folder / release / "dynamographdeployments.yaml").read_text(), Loader=yaml.CSafeLoader)
    return crd


@pytest.mark.apiserver
@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
async def test_every_release_accepts_all_that_it_can_express(
    client: Client,
    namespace: str,
    upstream_crds: Path,
    host: ProviderHost,
    deployment: Any,
    context: Any,
    release: str,
) -> None:
    crd = crd_of(upstream_crds, release)
    asked = {
        f"{engine} {name}": (engine, deployment(**fields)) for name, fields in CORPUS.items() for engine in ENGINES
    }
    asked |= {
        f"{engine} engine": (engine, deployment(engine={**CORPUS["engine"]["engine"], "args": args}))
        for engine, args in ARGUMENTS.items()
    }
    asked |= {f"sample {name}": (sample.spec.engine.type or "vllm", sample) for name, sample in samples().items()}
    written = {RELEASES[release], *(["v1alpha1-1.1"] if release in SERVED_BOTH else [])}
    refused = set()
    async with installed(client, crd):
        for name in written:
            for what, (engine, model) in asked.items():
                for pool in (False, True) if what.endswith((" plain", " split", " read-only root")) else (False,):
                    ctx = context(engine, written=name, pool=pool)
                    if not host.can_handle(model, ctx).ok:
                        refused.add(what)
                        continue
                    translation = host.translate_spec(model, ctx)
                    (graph,) = translation.objects
                    wished = check_overrides(model.spec.provider.overrides or {}, host.manifest.override_schema)
                    for part in placed(wished.merge, translation.overrides_at):
                        graph = merged(graph, part)
                    asked_for = in_namespace(graph, namespace)
                    kind = graphs(graph["apiVersion"].rpartition("/")[2])
                    said = await refusal(client, kind, asked_for, manager=MANAGER)
                    assert said == "", f"{release} {name}: {what}"
    cannot = {"whole graph": "1.1", "topologyProfile": "1.1", "adapter": "0.8", "another GPU": "0.8"}
    number = (9, 9) if release.startswith("main") else tuple(map(int, release.lstrip("v").split(".")[:2]))
    expected = {what for what, since in cannot.items() if number < tuple(map(int, since.split(".")))}
    # v1alpha1 has no clusterTopologyName; v1beta1 gets topologyProfile under its new name.
    expected |= {"nameless topology", "clusterTopologyName"}
    assert refused == {f"{engine} {what}" for engine in ENGINES for what in expected}


@pytest.mark.parametrize("release", RELEASES)
def test_the_schema_of_every_release_is_known(upstream_crds: Path, host: ProviderHost, release: str) -> None:
    facts = crd_facts({**crd_of(upstream_crds, release), "status": {"conditions": ESTABLISHED}})
    found = detect(host.primary_kind, host.transformers, facts)
    assert found.upstream is not None
    assert found.upstream.verified
    assert found.upstream.transformer.name == RELEASES[release]
    if release in SERVED_BOTH:
        # What was written before v1beta1 is kept in a schema that is known, too.
        (alpha,) = [u for u in found.served if u.api_version == "nvidia.com/v1alpha1"]
        assert (alpha.transformer.name, alpha.verified) == ("v1alpha1-1.1-r3", True)


@pytest.mark.apiserver
@pytest.mark.slow
async def test_strict_is_strict(
    client: Client, namespace: str, upstream_crds: Path, host: ProviderHost, deployment: Any, context: Any
) -> None:
    """What a newer transformer writes an older release does not know: features matter."""
    asked = deployment(**SPLIT)
    (graph,) = host.translate_spec(asked, context(written="v1alpha1-0.6")).objects
    async with installed(client, crd_of(upstream_crds, "v0.4.1")):
        refused = await refusal(client, graphs("v1alpha1"), in_namespace(graph, namespace), manager=MANAGER)
        assert "subComponentType" in refused
