"""The schema registry: which Dynamo releases can express what (CRDs of every release since 0.4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.sdk import Transformer

__all__ = [
    "DYNAMO_NAMESPACE",
    "GPU_TYPES",
    "GRAPH_METADATA",
    "POD_LABELS",
    "RUNTIME_VERSION",
    "SANDBOX_ALPHA",
    "SANDBOX_BETA",
    "SCALING_ADAPTERS",
    "SIDECARS",
    "SUB_TYPES",
    "TRANSFORMERS",
    "V1BETA1",
    "default_runtime",
]

V1ALPHA1, V1BETA1 = "nvidia.com/v1alpha1", "nvidia.com/v1beta1"

SUB_TYPES = "sub-types"
"""`subComponentType` says which worker prefills."""
POD_LABELS = "pod-labels"
"""The operator labels pods with graph and type on all its ways; before, Grove's pods got only what the graph says."""
GPU_TYPES = "gpu-types"
"""GPUs of another resource name than `nvidia.com/gpu`."""
SCALING_ADAPTERS = "scaling-adapters"
DYNAMO_NAMESPACE = "dynamo-namespace"
"""Workers find each other by `dynamoNamespace`, whose default is the graph's name alone: two graphs of one name in
different namespaces would serve each other's requests. Since 1.0 the operator derives it from both."""
SIDECARS = "sidecars"
"""A frontend beside each worker, and a picker for a gateway's pool."""
GRAPH_METADATA = "graph-metadata"
"""`spec.labels`, `spec.annotations` and `spec.topologyConstraint`."""
RUNTIME_VERSION = "runtime-version"
"""`runtimeVersionOverride`, which is required where the image's tag names no version."""

IMMUTABLE = ("spec.backendFramework",)
"""Components may not come or go either, nor change between one node and several: the plan's topology says so."""

SANDBOX_ALPHA, SANDBOX_BETA = "c268b6468a35", "ff6860f3bd75"
"""The minimal CRD that AI Runway's sandbox installs in place of Dynamo's own, by version."""


@dataclass(frozen=True, kw_only=True)
class _Generation:
    since: str
    until: str
    runtime: str
    api_version: str
    hashes: tuple[str, ...]
    features: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.api_version.rpartition('/')[2]}-{self.since}"

    @property
    def transformer(self) -> Transformer:
        return Transformer(
            name=self.name,
            api_version=self.api_version,
            schema_hashes=self.hashes,
            features=frozenset(self.features),
            immutable=IMMUTABLE,
            since=self.since,
            until=self.until,
        )


_SINCE_0_6 = (SUB_TYPES, POD_LABELS)
_SINCE_0_8 = (*_SINCE_0_6, GPU_TYPES, SCALING_ADAPTERS)
_SINCE_1_1 = (*_SINCE_0_8, SIDECARS, GRAPH_METADATA)

_GENERATIONS = (
    _Generation(
        since="0.4.1",
        until="0.5",
        runtime="0.5.1",
        api_version=V1ALPHA1,
        hashes=("7be4d2ff8ec3",),
        features=(DYNAMO_NAMESPACE,),
    ),
    _Generation(
        since="0.6",
        until="0.7",
        runtime="0.7.1",
        api_version=V1ALPHA1,
        hashes=("d252ed579f6a", "37b71daf5798", "00da01294354"),
        features=(*_SINCE_0_6, DYNAMO_NAMESPACE),
    ),
    _Generation(
        since="0.8",
        until="0.9",
        runtime="0.9.1",
        api_version=V1ALPHA1,
        hashes=("ae157d6156f4", "1df5dc73b151"),
        features=(*_SINCE_0_8, DYNAMO_NAMESPACE),
    ),
    _Generation(
        since="1.0",
        until="1.0",
        runtime="1.0.1",
        api_version=V1ALPHA1,
        hashes=("2678b726c672",),
        features=_SINCE_0_8,
    ),
    # Served on beside v1beta1: what was written in it stays in it.
    _Generation(
        since="1.1",
        until="",
        runtime="1.1.1",
        api_version=V1ALPHA1,
        hashes=("994637c7de0d", "a4914115f90b", "059210dd0ebd", "88985df0030f", "817dfe43fd5b", SANDBOX_ALPHA),
        features=_SINCE_1_1,
    ),
    _Generation(
        since="1.2",
        until="1.3",
        runtime="1.3.1",
        api_version=V1BETA1,
        hashes=("ca1f3a7ef31d", "8a09913f0d2d"),
        features=_SINCE_1_1,
    ),
    _Generation(
        since="1.4",
        until="",
        runtime="1.3.1",
        api_version=V1BETA1,
        hashes=("1274c90ffc37", "5de533b21e0e", SANDBOX_BETA),
        features=(*_SINCE_1_1, RUNTIME_VERSION),
    ),
)

TRANSFORMERS = tuple(generation.transformer for generation in _GENERATIONS)
"""Oldest first."""

_RUNTIMES = {generation.name: generation.runtime for generation in _GENERATIONS}


def default_runtime(transformer: Transformer) -> str:
    """The release of the runtime images that goes with an operator of that generation; part of what is released."""
    return _RUNTIMES.get(transformer.name, _GENERATIONS[-1].runtime)
