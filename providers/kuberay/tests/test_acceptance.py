"""A real API server with KubeRay's own CRDs accepts what we write: of every release since 1.1, and Strict.

Both are asked about it: the RayService itself, and each pod template in a Pod, of which the CRD knows some fields only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.kube import POD, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource, dig
from airunway.runtime.crd_versions import crd_facts
from airunway.runtime.translate import check_overrides, merged
from airunway_kuberay.manifest import TRANSFORMERS
from airunway_testing.acceptance import ON_PODS, in_namespace, installed_alone, refusal
from airunway_testing.simulators import load_simulator

RAY_SERVICE = Kind("ray.io", "v1", "RayService", "rayservices", True)
MANAGER = "airunway-provider-kuberay"
RELEASES = {
    "v1.1.0": "1.1",
    "v1.2.0": "1.1",
    "v1.3.0": "1.1",
    "v1.3.1": "1.1",
    "v1.4.0": "1.1",
    "v1.5.0": "1.1",
    "v1.5.1": "1.5.1",
    "v1.6.0": "1.5.1",
    "v1.7.0": "1.7",
}
"""By release, which transformer is for it."""

SPLIT = {
    "serving": {"mode": "disaggregated"},
    "scaling": {
        "prefill": {"replicas": 2, "gpu": {"count": 1}, "memory": "64Gi", "cpu": "4"},
        "decode": {"replicas": 1, "gpu": {"count": 2}},
    },
}
CORPUS: dict[str, dict[str, Any]] = {
    "plain": {},
    "token and length": {"engine": {"contextLength": 8192}, "secrets": {"huggingFaceToken": "hf"}},
    "image": {"image": "r/ray-llm:2.49.1", "resources": {"gpu": {"count": 2}, "memory": "32Gi", "cpu": "4"}},
    "args": {"engine": {"args": {"quantization": "awq", "enable-chunked-prefill": ""}, "extraArgs": ["--seed=1"]}},
    "apart": SPLIT,
    "read-only root": {"securityContext": {"readOnlyRootFilesystem": True}},
    **ON_PODS,
    "autoscaled": {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4, "targetOngoingRequests": 8}}}},
    "head": {
        "provider": {
            "overrides": {
                "rayVersion": "2.56.0",
                "head": {"resources": {"cpu": "2", "memory": "8Gi"}, "rayStartParams": {"object-store-memory": "1000"}},
                "spec": {"rayClusterConfig": {"autoscalerOptions": {"idleTimeoutSeconds": 60}}},
            }
        }
    },
    "text": {"model": {"id": "o/m", "servedName": "é\u2028\x85 'x' \"y\" {{z}} $(HOME)"}},
}
NEWER: dict[str, dict[str, Any]] = {
    "stopped": {"scaling": {"replicas": 0}},
    "overrides": {
        "provider": {
            "overrides": {
                "spec": {
                    "excludeHeadPodFromServeSvc": True,
                    "rayClusterDeletionDelaySeconds": 30,
                    "rayClusterConfig": {
                        "autoscalerOptions": {"version": "v2", "upscalingMode": "Default"},
                        "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
                    },
                }
            }
        }
    },
}
"""What the newest release takes, and older ones do not."""


def written(wanted: Any, ctx: Any) -> Resource:
    """The RayService, with the overrides that the runtime merges."""
    found = check_overrides(wanted.spec.provider.overrides, host().manifest.override_schema)
    assert (found.errors, found.unknown) == ((), ())
    said = host().can_handle(wanted, ctx)
    assert said.ok, said
    made, *_ = host().translate_spec(wanted, ctx).objects
    return merged(made, found.merge)


def host() -> ProviderHost:
    return load("kuberay")


def pods(service: Resource) -> list[Resource]:
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [
        {"apiVersion": "v1", "kind": "Pod", **group["template"]}
        | {"metadata": {**group["template"]["metadata"], "name": f"p{n}"}}
        for n, group in enumerate(groups)
    ]


def crd_of(recordings: Path, release: str) -> Resource:
    found: Resource = yaml.load(
        (recordings / "upstream-crds" / "kuberay" / release / "rayservices.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    return found


@pytest.mark.apiserver
@pytest.mark.parametrize("release", RELEASES)
async def test_every_release_accepts_the_corpus(
    client: Client, namespace: str, recordings: Path, deployment: Any, context: Any, release: str
) -> None:
    newest = RELEASES[release] == "1.7"
    ctx = context(release=RELEASES[release], initializingTimeout="2h")
    corpus = {**CORPUS, **(NEWER if newest else {})}
    async with installed_alone(client, crd_of(recordings, release), RAY_SERVICE):
        for what, fields in corpus.items():
            service = written(deployment(**fields), ctx)
            found = await refusal(client, RAY_SERVICE, in_namespace(service, namespace), manager=MANAGER)
            assert (what, found) == (what, "")
            for pod in pods(service):
                if "serviceAccountName" in pod["spec"] or "priorityClassName" in pod["spec"]:
                    continue  # admission looks whether they are there
                found = await refusal(client, POD, in_namespace(pod, namespace), manager=MANAGER)
                assert (what, pod["metadata"]["name"], found) == (what, pod["metadata"]["name"], "")


@pytest.mark.apiserver
async def test_strict_is_strict(
    client: Client, namespace: str, recordings: Path, deployment: Any, context: Any
) -> None:
    """To stop a RayService is new in 1.7: an older release would drop it without a word, and serve on."""
    service = written(deployment(scaling={"replicas": 0}), context())
    async with installed_alone(client, crd_of(recordings, "v1.6.0"), RAY_SERVICE):
        found = await refusal(client, RAY_SERVICE, in_namespace(service, namespace), manager=MANAGER)
    assert "spec.suspend" in found


@pytest.mark.slow
def test_each_stored_release_is_known_by_its_schema(recordings: Path) -> None:
    known = {short: transformer.since for transformer in TRANSFORMERS for short in transformer.schema_hashes}
    assert {
        release: known[dict(crd_facts(crd_of(recordings, release)).served)["v1"][:12]] for release in RELEASES
    } == RELEASES


def test_every_listed_release_is_covered_and_no_hash_is_made_up(recordings: Path) -> None:
    text = (recordings / "upstream-crds" / "INDEX.md").read_text()
    section = text.partition("## kuberay / rayservices")[2].partition("\n## ")[0]
    listed = set(re.findall(r"\| v1\.[1-9]\.\d+ \|.* v1(?: storage)? `([0-9a-f]{12})`", section))
    assert len(listed) > 6
    crds = load_simulator("kuberay").custom_resource_definitions()
    (sandbox,) = [crd for crd in crds if dig(crd, "spec", "names", "kind") == "RayService"]
    registered = {short for transformer in TRANSFORMERS for short in transformer.schema_hashes}
    assert registered == {*listed, dict(crd_facts(sandbox).served)["v1"][:12]}
