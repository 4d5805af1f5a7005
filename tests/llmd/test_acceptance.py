"""A real API server with the upstreams' own CRDs accepts what we write: of each stored release, and Strict."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway.runtime.crd_versions import crd_facts
from airunway_testing.acceptance import in_namespace, installed_alone, refusal, without_owner
from airunway_testing.conformance.cases import Base, bases, judged, merged_spec

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

GAIE = ("v1.0.0", "v1.0.2", "v1.1.0", "v1.4.0", "v1.6.0")
LWS = ("v0.7.0", "v0.10.0")
ROLE = {"replicas": 1, "gpu": {"count": 8}, "memory": "8Gi", "cpu": "4"}
WIDE: Resource = {
    "serving": {"mode": "disaggregated"},
    "scaling": {"prefill": {**ROLE, "gpu": {"count": 16}}, "decode": {**ROLE, "gpu": {"count": 16}}},
    "resources": {"gpu": {"count": 0}},
}
FULL: Resource = {
    "engine": {"contextLength": 8192, "args": {"quantization": "awq", "enable-chunked-prefill": ""}},
    "env": [{"name": "A", "value": ""}, {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccountName": "sa",
    "priorityClassName": "high",
    "nodeSelector": {"pool": "a"},
    "secrets": {"huggingFaceToken": "hf"},
    "podTemplate": {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}},
}


def corpus(host: ProviderHost) -> list[tuple[str, Resource]]:
    """Everything that is written for the deployments of the conformance suite, plain and with every pod field."""
    large = Base(name="several nodes for each role", engine="vllm", spec=merged_spec({"model": {"id": "o/m"}}, WIDE))
    found: list[tuple[str, Resource]] = []
    for base in (*bases(host), large):
        for spec in (base.spec, merged_spec(base.spec, FULL)):
            judgement = judged(host, base, spec)
            assert judgement.blockers == (), (base.name, judgement.blockers)
            found += [(base.name, obj) for obj in judgement.objects]
    return found


def definition(path: Path) -> Resource:
    text = path.read_text(encoding="utf-8")
    found: Resource = next(doc for doc in yaml.load_all(text, Loader=yaml.CSafeLoader) if doc)
    return found


@pytest.mark.parametrize(
    ("upstream", "file", "release"),
    [
        *(("gateway-api-inference-extension", "inferencepools.yaml", release) for release in GAIE),
        *(("lws", "leaderworkersets.yaml", release) for release in LWS),
    ],
)
async def test_every_stored_release_takes_the_corpus(
    upstream: str, file: str, release: str, recordings: Path, client: Client, namespace: str, llmd: ProviderHost
) -> None:
    crd = definition(recordings / "upstream-crds" / upstream / release / file)
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
    known = {hash_ for t in llmd.transformers if t.kind == kind for hash_ in t.schema_hashes}
    ((version, digest),) = crd_facts(crd).served
    assert version == "v1"
    assert any(digest.startswith(hash_) for hash_ in known), "its schema is on record"
    written = Kind(group, "v1", kind, crd["spec"]["names"]["plural"])
    wanted = [(what, obj) for what, obj in corpus(llmd) if obj["kind"] == kind]
    assert len(wanted) > 2
    async with installed_alone(client, crd, written):
        assert [(what, why) for what, obj in wanted if (why := await refused(client, written, obj, namespace))] == []


async def test_everything_that_needs_no_crd_is_taken(client: Client, namespace: str, llmd: ProviderHost) -> None:
    kinds = {kind.kind: kind for kind in llmd.manifest.upstream if kind.builtin}
    taken = set()
    for what, obj in corpus(llmd):
        if (kind := kinds.get(obj["kind"])) is not None:
            plain = Kind(kind.group, "v1", kind.kind, kind.plural)
            assert (what, await refused(client, plain, obj, namespace)) == (what, "")
            taken.add(kind.kind)
    assert taken == set(kinds) - {"ResourceClaimTemplate"}  # only with gpu.deviceClass: tests/install/test_guards.py


async def refused(client: Client, kind: Kind, obj: Resource, namespace: str) -> str:
    """Why it is not taken, by a dry run."""
    return await refusal(client, kind, in_namespace(without_owner(obj), namespace), manager="tests")
