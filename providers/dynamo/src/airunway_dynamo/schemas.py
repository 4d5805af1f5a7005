"""The schema registry: which Dynamo releases can express what (CRDs of every release since 0.4.1)."""

from __future__ import annotations

from airunway.sdk import Transformer

__all__ = [
    "DYNAMO_NAMESPACE",
    "GPU_TYPES",
    "GRAPH_METADATA",
    "RUNTIME_VERSION",
    "SCALING_ADAPTERS",
    "SUB_TYPES",
    "TRANSFORMERS",
    "V1BETA1",
    "default_runtime",
]

V1ALPHA1, V1BETA1 = "nvidia.com/v1alpha1", "nvidia.com/v1beta1"

SUB_TYPES = "sub-types"
"""`subComponentType` says which worker prefills, and all pods are labelled with graph and type; before, Grove's pods
got only the labels that the graph itself has."""
GPU_TYPES = "gpu-types"
"""GPUs of another resource name than `nvidia.com/gpu`."""
SCALING_ADAPTERS = "scaling-adapters"
DYNAMO_NAMESPACE = "dynamo-namespace"
"""Workers find each other by `dynamoNamespace`, whose default was the graph's name alone: graphs of one name in two
namespaces would serve each other's requests. Since 1.0 the operator derives it from both."""
GRAPH_METADATA = "graph-metadata"
"""Labels, annotations and topology of a whole graph; a frontend beside each worker, for a gateway's pool."""
RUNTIME_VERSION = "runtime-version"
"""`runtimeVersionOverride`, which is required where the image's tag names no release."""

IMMUTABLE = ("spec.backendFramework",)
"""Nor may components come, go, or change between one node and several: the plan's topology says so."""

_RUNTIMES: dict[str, str] = {}


def _transformer(version: str, since: str, until: str, runtime: str, hashes: str, *features: str) -> Transformer:
    name = f"{version.rpartition('/')[2]}-{since}"
    _RUNTIMES[name] = runtime
    return Transformer(
        name=name,
        api_version=version,
        schema_hashes=tuple(hashes.split()),
        features=frozenset(features),
        immutable=IMMUTABLE,
        since=since,
        until=until,
    )


_0_8 = (SUB_TYPES, GPU_TYPES, SCALING_ADAPTERS)
_1_1 = (*_0_8, GRAPH_METADATA)
_BESIDE_V1BETA1 = "1e2ba548b1a0 40a5afa93be2 cf4bd1b1f044 be7d80ad1ddf"
"""v1alpha1 as it is served from 1.2 on: what was written in it stays in it."""
_SANDBOX = ("c268b6468a35", "ff6860f3bd75")
"""The minimal CRD that AI Runway's sandbox installs in place of Dynamo's own, by version."""

TRANSFORMERS = (
    _transformer(V1ALPHA1, "0.4.1", "0.5", "0.5.1", "69c5dc9ca435", DYNAMO_NAMESPACE),
    _transformer(
        V1ALPHA1, "0.6", "0.7", "0.7.1", "28af6d3cf95f 6ab2a03c7c10 d9a2a3e70a17", SUB_TYPES, DYNAMO_NAMESPACE
    ),
    _transformer(V1ALPHA1, "0.8", "0.9", "0.9.1", "d1b128e6e03d cda79d0a2a18", *_0_8, DYNAMO_NAMESPACE),
    _transformer(V1ALPHA1, "1.0", "1.0", "1.0.1", "290583da092b", *_0_8),
    _transformer(V1ALPHA1, "1.1", "", "1.1.1", f"5862ae921abf {_BESIDE_V1BETA1} {_SANDBOX[0]}", *_1_1),
    _transformer(V1BETA1, "1.2", "1.3", "1.3.1", "ca1f3a7ef31d 8a09913f0d2d", *_1_1),
    _transformer(V1BETA1, "1.4", "", "1.3.1", f"1274c90ffc37 5de533b21e0e {_SANDBOX[1]}", *_1_1, RUNTIME_VERSION),
)
"""Oldest first. The fourth text is the release of the runtime images that goes with the operator."""


def default_runtime(transformer: Transformer) -> str:
    """The release of the images where neither deployment nor provider names one; part of what is released."""
    return _RUNTIMES.get(transformer.name, "1.3.1")
