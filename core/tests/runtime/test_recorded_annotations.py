"""What a revision and the annotations of an object say of a deployment stays the same from release to release.

An upgrade compares them with what it computes itself: another digest for the same deployment would write, roll or
recreate everything that runs, at once. ``annotations.json`` has them as they were written; what is there is never
changed. A new deployment is added to both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.views import NOW, state, with_parts

from airunway.api import names
from airunway.plugins.contract import Interruption
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource, annotations_of
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

PARTS: dict[str, Resource] = {
    "settings": {
        "env": [{"name": "HTTP_PROXY", "value": "http://proxy"}],
        "labels": {"team": "a"},
        "imagePullSecrets": ["pull"],
        "token": {"name": "hub", "key": "HF_TOKEN"},
    },
    "cache": {"claim": "weights", "path": "/model-cache/a", "accessMode": "ReadWriteMany"},
    "gateway": {"name": "inference", "namespace": "gateways", "usesPool": True},
}
"""The parts of the revision of the deployment "cached"."""


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
    """The annotations of the deployment's objects, by kind, and the digests of its revision."""
    deployment = state(host, deployment).deployment
    if full:
        deployment = with_parts(deployment, **PARTS)
    revision, context = deployment["status"]["revision"], assumed_context(host, engine="vllm", now=NOW)
    objects = translate(host, deployment, parsed(deployment), context).objects
    found = {obj["kind"]: {name: annotations_of(obj)[name] for name in sorted(annotations_of(obj))} for obj in objects}
    return {**found, "revision": {name: revision[name] for name in ("hash", "takenFor", "adopted") if name in revision}}


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


def test_the_file_has_no_others_and_tells_deployments_apart() -> None:
    wanted = json.loads(FILE.read_text(encoding="utf-8"))
    assert wanted.keys() == DEPLOYMENTS.keys()
    taken, written = (
        {name: found["Thing"][names.WRITTEN_FOR].split(".")[part] for name, found in wanted.items()} for part in (0, 1)
    )
    assert all(found["revision"]["takenFor"] == taken[name] for name, found in wanted.items())
    same = {"smallest", "defaults written out", "not upstream", "cached"}
    for digests, ones in ((taken, same | {"scaled"}), (written, same | {"adopted"})):
        assert {digests[name] for name in ones} == {digests["smallest"]}, "of one input"
        assert len({digests[name] for name in digests.keys() - ones}) == len(digests) - len(ones), "all others differ"
