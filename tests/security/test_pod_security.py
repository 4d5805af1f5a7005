"""A namespace that enforces the Pod Security Standard ``restricted`` runs a model through each provider.

The API server's own admission judges the pods; who makes them is a simulated operator that puts into them what its
recordings show. What a provider cannot do there is said in the words that its pods are refused with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunway.kube import NAMESPACE, POD, Client
from airunway.plugins.registry import load
from airunway.resource import Resource, dig
from airunway_testing.expectations import running_at
from airunway_testing.operator import deployments, playing, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = "registry.example/engine:1"
ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi"}
APART: Resource = {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}}
ONE: Resource = {"resources": {"gpu": {"count": 1}}}
RELEASES: dict[str, Resource] = {"dynamo": {"runtimeVersion": "1.3.1"}, "kuberay": {"rayVersion": "2.56.0"}}
"""What tells a provider the release of an image whose tag does not."""

SHAPES: dict[str, tuple[str, Resource, set[str]]] = {
    "vllm": ("vllm", ONE, {"server"}),
    "llmd": ("llmd", ONE, {"server", "picker"}),
    "llmd, apart": ("llmd", APART, {"decode", "prefill", "picker"}),
    "dynamo": ("dynamo", ONE, {"frontend", "worker"}),
    "dynamo, apart": ("dynamo", APART, {"frontend", "decode", "prefill"}),
    "kaito": ("kaito", ONE, {""}),
    "kuberay": ("kuberay", ONE, {""}),
}
"""Provider, the rest of the spec, and the component labels of all pods of the deployment."""


@pytest.fixture
async def restricted(client: Client, namespace: str) -> str:
    """The namespace, which takes no pods from now on but those of the standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    await client.apply(NAMESPACE, body, manager="test")
    return namespace


@pytest.fixture(params=SHAPES)
async def shape(
    request: pytest.FixtureRequest, kubeconfig: Path, client: Client
) -> AsyncIterator[tuple[str, Resource, set[str]]]:
    provider, spec, components = SHAPES[request.param]
    async with playing(kubeconfig, client, load(provider), level="cluster"):
        yield provider, spec, components


def asked(provider: str, spec: Resource) -> Resource:
    overrides = {"overrides": RELEASES[provider]} if provider in RELEASES else {}
    return {"model": {"id": "org/model"}, "provider": {"name": provider, **overrides}, **spec}


async def test_m1_a_restricted_namespace_runs_a_model_of_each_provider(
    shape: tuple[str, Resource, set[str]], client: Client, restricted: str
) -> None:
    provider, spec, components = shape
    who = {"securityContext": {"runAsNonRoot": True, "runAsUser": 1001, "fsGroup": 1001}}
    async with deployments(client, restricted, {**asked(provider, spec), "image": IMAGE, **who}) as create:
        key = await create()
        await until(client, key, running_at(1))
        pods = await client.list_all(POD, namespace=restricted)
        assert {dig(pod, "metadata", "labels", "airunway.ai/component", default="") for pod in pods} == components


@pytest.mark.parametrize(
    ("provider", "spec", "says"),
    [
        ("vllm", {**ONE, "image": IMAGE}, 'runAsNonRoot != true (pod or container "model" must set'),
        ("kaito", ONE, "allowPrivilegeEscalation != false"),
    ],
    ids=["a server without user", "a preset of KAITO's"],
)
async def test_m1_what_is_refused_there_is_said_in_the_words_of_the_refusal(
    provider: str, spec: Resource, says: str, kubeconfig: Path, client: Client, restricted: str
) -> None:
    def told(found: Resource) -> bool:
        cause = dig(found, "status", "rootCause", default={})
        return bool(dig(found, "status", "phase") == "Failed" and cause.get("code") == "Provider.Rejected")

    async with (
        playing(kubeconfig, client, load(provider), level="cluster"),
        deployments(client, restricted, asked(provider, spec)) as create,
    ):
        found = await until(client, await create(), told)
        message = str(found["status"]["message"])
        assert 'violates PodSecurity "restricted:latest"' in message
        assert says in message
        assert "Change what the message names, or the policy that refuses it" in message
        assert found["status"]["reason"] == "InvalidSpec"
