"""How many requests one look at a deployment takes, for every provider of this repository."""

from __future__ import annotations

import pytest

from airunway.gateway.caches import HTTP_ROUTE
from airunway.kube import Kind
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import load
from airunway.snapshots.reading import MOST_REQUESTS, event_sources, pod_sources, sources_of

ITSELF, AROUND_IT = 1, 2
"""Requests for the deployment, and for what tells which objects to read."""


@pytest.mark.parametrize("made", [True, False], ids=["", "before anything is made"])
@pytest.mark.parametrize("provider", ["dynamo", "kaito", "kuberay", "llmd", "vllm"])
def test_nothing_is_left_out_of_a_deployment_with_a_route_whose_weights_are_downloaded(
    provider: str, made: bool
) -> None:
    manifest = load(provider).manifest
    kinds = [Kind(kind.group, kind.versions[0], kind.kind, kind.plural) for kind in manifest.upstream]
    primary = next(kind for kind in manifest.upstream if kind.primary)
    name = {"resourceKind": primary.kind, "resourceName": "llama"} if made else {}
    status = {
        "provider": {"name": provider, "resourceAPIVersion": f"{primary.group}/{primary.versions[0]}", **name},
        "selector": "example.com/set=llama,role=leader",
        "modelCache": {"artifactName": "weights", "claimName": "weights-cache", "ready": False},
        "gateway": {"ready": False},
    }
    deployment = {"metadata": {"name": "llama", "namespace": "ml"}, "status": status}
    served = {(kind.group, kind.kind): [kind] for kind in (*kinds, HTTP_ROUTE)}
    read = [
        *pod_sources(deployment),
        *event_sources(deployment),
        *sources_of(deployment, config_object(manifest), served),
    ]
    assert HTTP_ROUTE in {source.kind for source in read}
    assert ITSELF + AROUND_IT + len(read) <= MOST_REQUESTS
