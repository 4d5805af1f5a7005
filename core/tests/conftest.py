"""What the tests of the core share: a provider of a made-up upstream, each part of which a test may replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of
from airunway.resource import Resource
from airunway.sdk import (
    Component,
    Context,
    EngineCapability,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    ProviderManifest,
    Replicas,
    Transformer,
    Translation,
    UpstreamKind,
    dig,
    workloads,
)

MakeHost: TypeAlias = Callable[..., ProviderHost]
MakeDeployment: TypeAlias = Callable[..., Resource]

THING = UpstreamKind(group="toy.example.org", kind="Thing", plural="things", versions=("v2", "v1"), primary=True)
OPTION = UpstreamKind(group="toy.example.org", kind="Option", plural="options", versions=("v1",), required=False)
TRANSFORMERS = (
    Transformer(name="v1-a", api_version="toy.example.org/v1", immutable=("spec.size",)),
    Transformer(name="v2-a", api_version="toy.example.org/v2", immutable=("spec.size",)),
    Transformer(name="v2-b", api_version="toy.example.org/v2", immutable=("spec.size",), since="2.5"),
)
MANIFEST = ProviderManifest(
    name="toy",
    version="1.0",
    engines=(EngineCapability(name="vllm", gpu_support=True), EngineCapability(name="llamacpp", cpu_support=True)),
    upstream=(THING, workloads.CONFIG_MAP, OPTION),
)


def _translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """A Thing that says what it was made of, with a pod template, and a ConfigMap."""
    name, spec = deployment.metadata.name, deployment.spec
    thing: Resource = {
        "apiVersion": context.upstream.api_version,
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": {
            "model": spec.model.id,
            "engine": context.engine,
            "writer": context.upstream.transformer.name,
            "size": spec.resources.gpu.count,
            "template": {"spec": {"containers": [{"name": "model", "image": spec.image or "usual"}]}},
        },
    }
    config: Resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-config"}}
    return Translation(objects=(thing, config))


def _translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
    state = dig(observed.primary, "status", "state", default="")
    return Observation(
        components=(Component(name="Thing", ready=state == "Ready", reason=state or "Starting"),),
        replicas=Replicas(desired=1, ready=int(state == "Ready")),
        unrecoverable="the Thing is dead" if state == "Dead" else "",
    )


@pytest.fixture(scope="session")
def toy() -> MakeHost:
    """A host of the toy provider. Keyword arguments: hooks, `transformers`, `wrappers`, fields of the manifest."""

    def make(**changes: Any) -> ProviderHost:
        hooks = {name: changes.pop(name) for name in ("can_handle", "translate_spec", "translate_status")
                 if name in changes}  # fmt: skip
        transformers = changes.pop("transformers", TRANSFORMERS)
        wrappers = changes.pop("wrappers", ())
        manifest = replace(MANIFEST, **changes)
        provider = Provider(
            manifest,
            transformers,
            **{"translate_spec": _translate_spec, "translate_status": _translate_status, **hooks},
        )
        return host_of("toy", provider, origin="toy 1.0", wrappers=wrappers)

    return make


@pytest.fixture(scope="session")
def plain() -> MakeDeployment:
    """A deployment as the API server has it: given to the toy provider, valid, with the engine vllm.

    Keyword arguments replace top-level fields of the spec; `metadata` and `status` those of theirs.
    """

    def make(*, metadata: Resource | None = None, status: Resource | None = None, **spec: Any) -> Resource:
        valid = {"type": "Validated", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1}
        return {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "llama", "namespace": "ml", "uid": "u-1", "generation": 1, **(metadata or {})},
            "spec": {"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}, **spec},
            "status": {
                "provider": {"name": "toy"},
                "engine": {"type": "vllm"},
                "conditions": [valid],
                **(status or {}),
            },
        }

    return make
