"""Weights of a model cache: every engine of every provider is told where they are, and starts with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.playing import FILE, Ground, cached_weights, play, starts
from tools.fields_page import providers

from airunway.api import names
from airunway.plugins.contract import Context, Gateway, ModelCache, Transformer
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource, canonical_json
from airunway_testing.conformance.cases import Base, bases, context_of, judged, merged_spec

LLAMA_CPP = "ghcr.io/ggml-org/llama.cpp:server-b6000"
SHARED: Resource = {"model": {"cache": {"mode": "Shared"}}}
POOL = Gateway(name="gateway", namespace="gateways", uses_pool=True)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with cached_weights() as found:
        yield found


def asked(host: ProviderHost) -> Iterator[Base]:
    """What the provider runs with a model from the hub; llama.cpp with an image of its own server."""
    for base in bases(host):
        if base.spec["model"].get("source") == "custom":
            continue
        image = {"image": LLAMA_CPP} if base.engine == "llamacpp" else {}
        yield replace(base, spec=merged_spec(base.spec, SHARED, image))


def contexts(host: ProviderHost, base: Base, cache: ModelCache) -> Iterator[Context[Any]]:
    """With each transformer of the primary kind that a new object can get, and behind a gateway's pool."""
    context = replace(context_of(host, base), cache=cache)
    newest: dict[str, Transformer] = {each.api_version: each for each in host.transformers_of(host.primary_kind)}
    for transformer in newest.values():
        upstream = replace(context.upstream, api_version=transformer.api_version, transformer=transformer)
        served = {**context.served, host.primary_kind.key: upstream}
        yield replace(context, upstream=upstream, served=served)
    yield replace(context, gateway=POOL)


@pytest.mark.parametrize("name", providers())
def test_a45_each_engine_starts_with_the_path_and_writes_nothing_below_the_mount(name: str, ground: Ground) -> None:
    host, before, played = load(name), ground.tree(), set[tuple[str, ...]]()
    engines = set()
    for base in asked(host):
        served = "file.gguf" if base.engine == "llamacpp" else "model"
        cache = ground.cache if base.engine == "llamacpp" else replace(ground.cache, path=str(ground.weights))
        weights = str(ground.weights / FILE) if base.engine == "llamacpp" else str(ground.weights)
        for context in contexts(host, base, cache):
            result = judged(host, base, base.spec, context=context)
            assert result.blockers == (), base.name
            found = list(starts(result.objects, claim=cache.claim))
            assert found, base.name
            for start in found:
                if start.words in played:
                    continue
                played.add(start.words)
                report = play(start, ground)
                assert set(report.weights) == {weights}, (base.name, start.words)
                if any(word.startswith("--port") for word in start.words):
                    assert report.host == "0.0.0.0", "probes and the Service reach all addresses of a pod"
                assert not [folder for folder in report.wrote if folder.startswith(str(ground.weights))]
                named = "trtllm-serve" not in start.words or "--served_model_name" in str(start.words)
                assert set(report.names) == {served if named else "model-cache"}, (base.name, start.words)
                engines.add(base.engine)
    assert engines == {engine.name for engine in host.manifest.engines if engine.model_cache}
    assert ground.tree() == before


@pytest.mark.parametrize("name", providers())
def test_a45_the_hub_s_id_is_in_no_argument_and_the_cache_is_no_home(name: str) -> None:
    host, cache = load(name), ModelCache(claim="weights", sub_path="model", path="/model-cache/below")
    for base in asked(host):
        spec = base.spec
        if base.engine == "llamacpp":
            cache = replace(cache, path="/model-cache/below/file.gguf")
        for context in contexts(host, base, cache):
            objects = judged(host, base, spec, context=context).objects
            for start in starts(objects, claim="weights"):
                words = " ".join(start.words)
                assert "org/model" not in words
                assert cache.path in words
                written = {key: value for key, value in start.env.items() if "model-cache" in value}
                assert written == {}, "an engine writes where a variable names a folder"
                assert (start.env["HF_HUB_OFFLINE"], start.env["TRANSFORMERS_OFFLINE"]) == ("1", "1")


@pytest.mark.parametrize("name", providers())
def test_an_image_with_a_model_of_its_own_gets_the_mount_and_is_told_nothing(name: str) -> None:
    host, cache = load(name), ModelCache(claim="weights", sub_path="model", path="/model-cache/below")
    own = [base for base in bases(host) if base.spec["model"].get("source") == "custom"]
    for base in own:
        context = context_of(host, base)
        without = judged(host, base, base.spec, context=context)
        given = merged_spec(base.spec, SHARED)
        cached = judged(host, base, given, context=replace(context, cache=cache))
        assert cached.blockers == ()
        for obj in cached.objects:  # the record of the settings is no part of a pod
            obj["metadata"].get("annotations", {}).pop(names.REVISION, None)
        text = canonical_json(list(cached.objects)).decode()
        assert '"claimName":"weights"' in text
        assert "OFFLINE" not in text
        assert "/model-cache/below" not in text
        assert [_words(obj) for obj in cached.objects] == [_words(obj) for obj in without.objects]


def _words(node: object) -> list[object]:
    """All commands and arguments in an object."""
    if isinstance(node, dict):
        own = [node[key] for key in ("command", "args") if key in node]
        return [*own, *(word for value in node.values() for word in _words(value))]
    return [word for value in node for word in _words(value)] if isinstance(node, list) else []


@pytest.mark.parametrize(
    ("name", "shape", "spec", "pods"),
    [
        ("vllm", "vllm", {"scaling": {"replicas": 3}}, 3),
        ("vllm", "vllm", {"resources": {"gpu": {"count": 16}}}, 2),
        ("llmd", "vllm, disaggregated", {}, 2),
        ("dynamo", "vllm", {}, 2),
        ("kuberay", "vllm", {}, 2),
        ("kaito", "vllm", {"scaling": {"replicas": 2}}, 2),
    ],
    ids=["3 replicas", "a group over two nodes", "prefill and decode", "Dynamo", "KubeRay", "InferenceSet"],
)
@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", ""])
def test_a16_more_pods_than_the_claim_allows_are_refused_before_anything_is_made(
    name: str, shape: str, spec: Resource, pods: int, mode: str
) -> None:
    host = load(name)
    base = next(each for each in bases(host) if each.name == shape)
    wanted = merged_spec(base.spec, SHARED, spec)
    context = replace(context_of(host, base), cache=ModelCache(claim="weights", access_mode=mode))
    found = judged(host, base, wanted, context=context)
    conflicts = [finding for finding in found.blockers if finding.reason == "AccessModeConflict"]
    if "Once" not in mode:
        assert conflicts == []
        assert found.blockers == ()
        return
    (conflict,) = conflicts
    assert conflict.path == "spec.model.cache.accessMode"
    assert f"{pods} pods would mount" in conflict.message
    assert mode in conflict.message
    assert found.objects == ()


@pytest.mark.parametrize("name", ["vllm", "llmd", "kaito"])
def test_a16_one_pod_may_mount_a_claim_for_one(name: str) -> None:
    host = load(name)
    base = next(each for each in bases(host) if each.name == "vllm")
    context = replace(context_of(host, base), cache=ModelCache(claim="weights", access_mode="ReadWriteOnce"))
    assert judged(host, base, merged_spec(base.spec, SHARED), context=context).blockers == ()
