"""Artifacts, Jobs, claims, pods, events, messages and answers of any content: a condition each, and no credential."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from core.tests.any_json import MANY, anything, changed
from core.tests.artifacts.test_decision import NOW, STAGES
from hypothesis import given
from hypothesis import strategies as st

from airunway.artifacts.decision import ArtifactFacts, decide_artifact
from airunway.artifacts.deployments import CacheFacts, artifact_of, decide_cache, is_usable, request_of
from airunway.modelcache.artifacts import evidence_of
from airunway.resource import Resource
from airunway.status.evidence import event_facts
from airunway.status.reasons import REASONS
from airunway.status.rootcause import find_root_cause

CANARY = "hf_CanaryCanaryCanary4f1c09ab2e"
HOSTILE = [
    f"https://user:{CANARY}@hub/file",
    f"Authorization: Bearer {CANARY}",
    json.dumps({"v": 1, "command": "download", "error": {"reason": "GatedModel", "message": f"refused {CANARY}"}}),
    json.dumps(
        {"v": 1, "command": "check-size", "error": {"reason": f"X{CANARY}", "message": CANARY, "retryAfter": -1}}
    ),
    json.dumps({"v": 1, "command": "download", "ok": {"bytes": -5, "files": 10**30, "digest": CANARY}}),
    "9999-12-31T23:59:59Z",
    "Failed",
    "True",
    "[" * 5000,
    "x" * 100_000,
]
KEYS = ("type", "status", "reason", "message", "state", "terminated", "phase", "conditions", "spec", "uid", "name")
DEPLOYMENT: Resource = {
    "metadata": {"name": "chat", "namespace": "ml", "uid": "d1", "generation": 1},
    "spec": {"model": {"id": "a/b", "cache": {"mode": "Shared", "accessMode": "ReadWriteMany"}}},
    "status": {
        "modelCache": {"artifactName": "llama", "claimName": "c", "ready": True},
        "conditions": [{"type": "Validated", "status": "True", "observedGeneration": 1}],
    },
}
EVENT: Resource = {
    "metadata": {"name": "e", "namespace": "ml"},
    "regarding": {"kind": "PersistentVolumeClaim", "name": "llama-cache-00000000", "namespace": "ml"},
    "type": "Warning",
    "reason": "ProvisioningFailed",
    "note": f"no volume with {CANARY}",
    "eventTime": "2026-01-01T12:00:00Z",
}
PROGRESS: Resource = {"artifact": "u1", "totalBytes": 100, "downloadedBytes": 5, "bytesPerSecond": 1, "phase": "x"}


def hostile(chance: Random, base: Resource, *, own: bool = False) -> Resource:
    """The object with anything in some places. Its name, kind and uid are the API server's own.

    `own`: one that only its author and this part write; a credential there is theirs.
    """
    values = [each for each in HOSTILE if not (own and CANARY in each)]
    found = changed(chance, base, lambda by: anything(by, keys=KEYS, values=values))
    kept: Resource = {key: base[key] for key in ("apiVersion", "kind", "metadata") if key in base}
    return {**found, **kept}


def stage(chance: Random) -> ArtifactFacts:
    found = chance.choice(STAGES)
    many: dict[str, Any] = {
        name: tuple(hostile(chance, each) for each in getattr(found, name)) for name in ("claims", "jobs", "pods")
    }
    artifact = hostile(chance, found.artifact, own=True)
    events = [event_facts(hostile(chance, EVENT)) for _ in range(chance.randrange(3))]
    evidence = evidence_of(artifact, claims=many["claims"], pods=many["pods"], events=events)
    return replace(
        found,
        artifact=artifact,
        progress=hostile(chance, PROGRESS) if chance.randrange(2) else None,
        classes={"fast": hostile(chance, {"volumeBindingMode": "Immediate"})} if chance.randrange(2) else {},
        cause=find_root_cause(evidence, now=NOW),
        slot=bool(chance.randrange(4)),
        **many,
    )


def one(chance: Random) -> None:
    """One pass over the artifact and one over a deployment that uses it."""
    found = stage(chance)
    decision = decide_artifact(found)
    shown: list[Any] = [decision.status]
    if decision.status is not None:
        conditions = {each["type"]: each for each in decision.status["conditions"]}
        assert {"Ready", "ConfigValid", "AuthValid", "DependenciesReachable"} <= set(conditions)
        assert {each["reason"] for each in conditions.values()} - set(REASONS) <= PARENTS_FINE
        done = decision.status.get("completed")
        assert (conditions["Ready"]["status"] == "True") <= (done is not None), "Ready without the proof"
    deployment = hostile(chance, DEPLOYMENT, own=True)
    artifact = {**found.artifact, "status": decision.status or {}}
    request = artifact_of(deployment, request_of(deployment, found.resolution.config), artifact)
    said = decide_cache(
        CacheFacts(
            deployment=deployment,
            request=request,
            artifact=artifact if chance.randrange(3) else None,
            engine=hostile(chance, {"name": "vllm", "modelCache": True}) if chance.randrange(4) else None,
            others=chance.randrange(2),
        )
    )
    if said.condition is not None:
        shown.append([said.condition.reason, said.condition.message])
        assert said.condition.status is not True or is_usable(artifact)
    text = json.dumps(shown, default=str)
    assert CANARY not in text, "X7"


PARENTS_FINE = {
    *("ConfigurationValid", "AuthenticationValid", "Reachable", "UsingDefaults", "ConfigFound", "Bound", "Verified"),
    *("Ready", "NotReconciling", "NotStalled"),
}


@given(st.randoms(use_true_random=False))
def test_any_content_gets_a_condition_and_shows_no_credential(chance: Random) -> None:
    one(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_content_gets_a_condition_for_long() -> None:
    for seed in range(MANY):
        try:
            one(Random(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
