"""What the annotations of an object say of its deployment stays the same from release to release.

An upgrade compares them with what it computes itself: another digest for the same deployment would write, roll or
recreate everything that runs, at once. ``annotations.json`` has them as they were
written; what is there is never changed. A new deployment is added to both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.views import NOW

from airunway.api import names
from airunway.controller.templates import taken_for
from airunway.plugins.contract import Gateway, Interruption, ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource, annotations_of
from airunway.runtime.records import written_for
from airunway.runtime.translate import parsed, translate
from airunway.sdk import Translation, setting

FILE = Path(__file__).with_name("annotations.json")

ROLE = {"replicas": 2, "gpu": {"count": 4, "type": "amd.com/gpu"}, "memory": "64Gi"}
VOLUME = {
    "name": "data",
    "mountPath": "/data",
    "size": "10Gi",
    "storageClassName": "fast",
    "accessMode": "ReadWriteMany",
}
DEPLOYMENTS: dict[str, Resource] = {
    "smallest": {},
    "no GPU": {"resources": {"memory": "8Gi", "cpu": "2"}},
    "defaults written out": {"resources": {"gpu": {"count": 1, "type": "nvidia.com/gpu"}}, "scaling": {"replicas": 1}},
    "scaled": {"scaling": {"replicas": 5}},
    "disaggregated": {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}},
    "engine": {
        "engine": {
            "type": "vllm",
            "contextLength": 8192,
            "args": {"b": "2", "a": ""},
            "extraArgs": ["--x=1"],
            "trustRemoteCode": True,
        }
    },
    "pod": {
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "podTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "secrets": {"huggingFaceToken": "hub"},
    },
    "volumes": {"model": {"id": "org/model", "source": "custom", "storage": {"volumes": [VOLUME]}}, "image": "own:1"},
    "overrides": {"provider": {"name": "toy", "overrides": {"spec": {"a": {"b": [1, 2.5, True, None, "ä"]}}}}},
    "not upstream": {"gateway": {"enabled": False, "modelName": "m"}, "runtimeConfigName": "gpu"},
    "adopted": {},
    "cached": {},
}
"""The parts of a spec that count, each at least once, and some that do not."""

POD_SETTINGS = RuntimeSettings(
    env=({"name": "HTTP_PROXY", "value": "http://proxy"},),
    labels={"team": "a"},
    image_pull_secrets=("pull",),
    token="hub",
)
CACHE = ModelCache(claim="weights", sub_path="a", path="/model-cache/a", access_mode="ReadWriteMany")


@dataclass(frozen=True, kw_only=True)
class Settings:
    image: str = setting("engine:1", "Image of the engine.", kept=True)


def _translated(deployment: Any, context: Any) -> Translation:
    """Objects with everything that an annotation records: immutable paths, a topology, and an interruption."""
    name, spec = deployment.metadata.name, deployment.spec
    thing: Resource = {
        "apiVersion": context.upstream.api_version,
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": {"size": spec.resources.gpu.count if spec.resources else 0, "image": context.settings.image},
    }
    config: Resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
    return Translation(
        objects=(thing, config),
        replace_on={"roles": [spec.serving.mode], "counts": {"b": 1.5, "a": None}},
        interrupts={"port": Interruption(value=[8000, "http"], message="it restarts")},
    )


def recorded(host: ProviderHost, deployment: Resource, *, full: bool = False) -> Resource:
    """The annotations of the deployment's objects, by kind, and the digest that its template's record has."""
    context = assumed_context(host, engine="vllm", now=NOW)
    if full:
        gateway = Gateway(name="inference", namespace="gateways", uses_pool=True)
        context = replace(context, runtime=POD_SETTINGS, cache=CACHE, gateway=gateway)
    objects = translate(host, deployment, parsed(deployment), context).objects
    found = {obj["kind"]: {name: annotations_of(obj)[name] for name in sorted(annotations_of(obj))} for obj in objects}
    return {**found, **taken_for(deployment)}


@pytest.fixture
def host(toy: MakeHost) -> ProviderHost:
    return toy(settings=Settings, translate_spec=_translated)


def asked(plain: MakeDeployment, name: str) -> Resource:
    metadata = {"annotations": {names.ADOPT: "2026-11"}} if name == "adopted" else {}
    return plain(metadata=metadata, status={"parts": [names.MODEL_CACHE_PART]}, **DEPLOYMENTS[name])


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_annotations_of_a_deployments_objects_match_the_recorded_ones(
    host: ProviderHost, plain: MakeDeployment, name: str
) -> None:
    wanted = json.loads(FILE.read_text(encoding="utf-8"))
    assert recorded(host, asked(plain, name), full=name == "cached") == wanted[name]


def test_the_file_has_no_others_and_tells_deployments_apart(plain: MakeDeployment) -> None:
    wanted = json.loads(FILE.read_text(encoding="utf-8"))
    assert wanted.keys() == DEPLOYMENTS.keys()
    written = {name: found["Thing"][names.WRITTEN_FOR] for name, found in wanted.items()}
    same = {"smallest", "defaults written out", "not upstream", "cached"}
    assert {written[name] for name in same} == {written["smallest"]}, "of one input"
    assert len({written[name] for name in written.keys() - same}) == len(written) - len(same), "all others differ"
    scaled, smallest = (written_for(each, parsed(each)) for each in (asked(plain, "scaled"), asked(plain, "smallest")))
    assert (scaled.lasting == smallest.lasting, scaled.wanted == smallest.wanted) == (True, False)
