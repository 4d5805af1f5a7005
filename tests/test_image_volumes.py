"""Weights from an OCI image, with every provider: each pod of the model mounts it, or the deployment is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.api import names
from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.registry import load
from airunway.resource import Resource, dig
from airunway.runtime.translate import TranslationResult
from airunway_testing.acceptance import in_namespace, installed_alone, refusal, without_owner
from airunway_testing.conformance.cases import NOW, Base, bases, context_of, judged, merged_spec

PROVIDERS = ("vllm", "llmd", "kuberay", "dynamo", "kaito")
REFERENCE = f"registry.example:5000/team/weights@sha256:{'0' * 64}"
FROM_IMAGE: Resource = {"model": {"source": "oci", "uri": f"oci://{REFERENCE}"}}
VOLUME = {"name": "airunway-model-cache", "image": {"reference": REFERENCE, "pullPolicy": "IfNotPresent"}}
MOUNT = {"name": "airunway-model-cache", "mountPath": "/model-cache", "readOnly": True}


def served(host: ProviderHost) -> Iterator[tuple[Base, Resource]]:
    """What the provider runs, with the spec that takes the weights from the image."""
    for base in bases(host):
        if base.spec["model"].get("source") != "custom":
            spec = merged_spec(base.spec, FROM_IMAGE)
            if base.engine == "llamacpp":
                spec = merged_spec(spec, {"image": "ghcr.io/ggml-org/llama.cpp:server"})
            yield base, spec


def asked(host: ProviderHost, base: Base, spec: Resource, **context: Any) -> TranslationResult:
    return judged(host, base, spec, context=replace(context_of(host, base), **context))


def lists(node: object, key: str) -> Iterator[list[Any]]:
    """Every list of that name in an object."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, list):
                yield value
            yield from lists(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from lists(value, key)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_pod_of_the_model_mounts_the_image(provider: str) -> None:
    host, count = load(provider), 0
    for base, spec in served(host):
        found = asked(host, base, spec)
        assert [str(each) for each in found.blockers] == [], base.name
        pods = [pod for obj in found.objects for pod in pods_of(obj)]
        assert pods, base.name
        for volumes, mounts in pods:
            assert VOLUME in volumes, base.name
            assert MOUNT in mounts, base.name
        assert found.objects[0]["kind"] != "Workspace" or "preset" not in str(found.objects[0])
        count += 1
    assert count > 1


def pods_of(obj: Resource) -> Iterator[tuple[list[Any], list[Any]]]:
    """Volumes and mounts of each pod spec that loads the model; pickers and Dynamo's older graphs have none."""
    if dig(obj, "metadata", "labels", names.COMPONENT) == "picker":
        return
    for node in (each for each in _nodes(obj) if "volumes" in each):
        yield node["volumes"], [mount for mounts in lists(node, "volumeMounts") for mount in mounts]


def _nodes(node: object) -> Iterator[Resource]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _nodes(value)
    elif isinstance(node, list):
        for value in node:
            yield from _nodes(value)


def test_the_engine_loads_the_folder_that_the_id_goes_on_to() -> None:
    host = load("vllm")
    base, spec = next(served(host))
    args = dig(asked(host, base, spec).objects[0], "spec", "template", "spec", "containers")[0]["args"]
    assert args[0] == "/model-cache"
    spec = merged_spec(spec, {"model": {"id": "org/model/weights/fp8"}})
    main = dig(asked(host, base, spec).objects[0], "spec", "template", "spec", "containers")[0]
    assert main["args"][0] == "/model-cache/weights/fp8"
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in main["env"]


def test_pull_secrets_of_deployment_and_config_reach_the_pod() -> None:
    host = load("vllm")
    base, spec = next(served(host))
    runtime = replace(context_of(host, base).runtime, image_pull_secrets=("of-config",))
    found = asked(host, base, {**spec, "imagePullSecrets": [{"name": "own"}]}, runtime=runtime)
    secrets = dig(found.objects[0], "spec", "template", "spec", "imagePullSecrets")
    assert secrets == [{"name": "own"}, {"name": "of-config"}]


def test_a_tag_is_warned_about_and_a_digest_is_not() -> None:
    host = load("vllm")
    base, spec = next(served(host))
    assert asked(host, base, spec).warnings == ()
    for tag in ("", ":1"):
        tagged = merged_spec(spec, {"model": {"uri": f"oci://registry.example/weights{tag}"}})
        (warning,) = asked(host, base, tagged).warnings
        assert (warning.path, warning.reason) == ("spec.model.uri", "MutableTag")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_kubernetes_without_image_volumes_is_named_with_the_other_ways(provider: str) -> None:
    host = load(provider)
    for base, spec in served(host):
        found = asked(host, base, spec, kubernetes=(1, 32))
        (blocker,) = (each for each in found.blockers if each.path == "spec.model.source")
        for word in ("Kubernetes 1.33", "this cluster has 1.32", "cache.mode Shared", "storage.volumes"):
            assert word in blocker.message
        assert not asked(host, base, spec, kubernetes=(1, 33)).blockers


def test_a_provider_without_the_capability_is_refused() -> None:
    host = load("vllm")
    base, spec = next(served(host))
    engines = tuple(replace(each, image_volumes=False) for each in host.manifest.engines)
    host.manifest = replace(host.manifest, engines=engines)
    (blocker,) = asked(host, base, spec).blockers
    assert "vllm engine of provider vllm mounts no weights from an image" in blocker.message


def test_a_volume_that_was_dropped_is_a_refusal_and_not_a_second_write() -> None:
    """An API server without the feature gate drops the volume from a Deployment, and mounts with it."""
    host = load("vllm")
    base, spec = next(served(host))
    (live, *_) = asked(host, base, spec).objects
    assert not asked(host, base, spec, live=live, live_kind="Deployment.apps").blockers
    without = yaml.safe_load(yaml.safe_dump(live))
    del without["spec"]["template"]["spec"]["volumes"]
    (blocker,) = asked(host, base, spec, live=without, live_kind="Deployment.apps").blockers
    assert "feature gate ImageVolume" in blocker.message
    other = merged_spec(spec, {"engine": {"args": {"seed": "1"}}})
    assert not asked(host, base, other, live=without, live_kind="Deployment.apps").blockers, "a new spec is tried"


def as_of(release: str, host: ProviderHost, base: Base, spec: Resource) -> Resource:
    """The primary object for a release of the upstream."""
    context = assumed_context(host, engine=base.engine, now=NOW, settings=base.settings, upstream_version=release)
    return judged(host, base, spec, context=context).objects[0]


CRDS = {
    ("kuberay", "kuberay/v1.3.1/rayservices.yaml"): Kind("ray.io", "v1", "RayService", "rayservices", True),
    ("kuberay", "kuberay/v1.7.0/rayservices.yaml"): Kind("ray.io", "v1", "RayService", "rayservices", True),
    ("dynamo", "dynamo/v1.4.0-cut/dynamographdeployments.yaml"): Kind(
        "nvidia.com", "v1beta1", "DynamoGraphDeployment", "dynamographdeployments", True
    ),
    ("vllm", "lws/v0.7.0/leaderworkersets.yaml"): Kind(
        "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", True
    ),
}


@pytest.mark.apiserver
@pytest.mark.slow
@pytest.mark.parametrize(("provider", "crd"), CRDS, ids=[crd for _, crd in CRDS])
async def test_released_crds_take_the_volume(
    client: Client, namespace: str, recordings: Path, provider: str, crd: str
) -> None:
    host, kind = load(provider), CRDS[provider, crd]
    definition = yaml.load((recordings / "upstream-crds" / crd).read_text(), Loader=yaml.CSafeLoader)
    definition["spec"].pop("conversion", None)
    count = 0
    async with installed_alone(client, definition, kind):
        for base, spec in served(host):
            obj = as_of(crd.split("/")[1].lstrip("v") if provider == "kuberay" else "", host, base, spec)
            if obj["kind"] == kind.kind:
                found = in_namespace(without_owner(obj), namespace)
                assert (base.name, await refusal(client, kind, found, manager="test")) == (base.name, "")
                count += 1
    assert count


@pytest.mark.apiserver
async def test_an_older_crd_of_kuberay_says_that_it_knows_no_such_volume(
    client: Client, namespace: str, recordings: Path
) -> None:
    host, kind = load("kuberay"), CRDS["kuberay", "kuberay/v1.3.1/rayservices.yaml"]
    path = recordings / "upstream-crds" / "kuberay" / "v1.3.0" / "rayservices.yaml"
    base, spec = next(served(host))
    obj = in_namespace(without_owner(as_of("1.3.0", host, base, spec)), namespace)
    async with installed_alone(client, yaml.load(path.read_text(), Loader=yaml.CSafeLoader), kind):
        assert ".image" in await refusal(client, kind, obj, manager="test")
