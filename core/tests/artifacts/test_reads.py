"""Everything that a pass of the model cache reads of a deployment and of its artifact brings a pass when it changes."""

from __future__ import annotations

from typing import Any

from core.tests.artifacts.test_decision import STAGES, whole
from core.tests.artifacts.test_volumes import NAMED, SIZED, claim
from core.tests.reading import unheeded

from airunway.artifacts.claims import access_mode_of
from airunway.artifacts.decision import decide_artifact
from airunway.artifacts.deployments import CONDITION, CacheFacts, artifact_of, decide_cache, request_of
from airunway.artifacts.volumes import STORAGE, VolumeFacts, claims_named, decide_volumes
from airunway.configs.resolution import CONFIG_READY, awaits_verdict, is_refused, resolve
from airunway.modelcache.application import READS, READS_OF_ARTIFACT
from airunway.resource import Resource, is_deleting
from airunway.selection.facts import engine_entry

OWN = {("status", "modelCache"), ("status", "conditions", CONDITION), ("status", "conditions", STORAGE)}
FIXED = {("status", "effectiveTemplate", "spec"), ("status", "revision", "template", "spec")}
"""The hash stands for it."""
ENGINES = [{"name": "vllm", "modelCache": True}, {"name": "another", "modelCache": True, "modelCacheHelpers": 1}]
PROVIDER: Resource = {"spec": {"capabilities": {"engines": ENGINES}}}
CONFIG = resolve("default", namespaced={"metadata": {"name": "default", "namespace": "ml"}, "spec": {}}, cluster=None)


def deployment(cache: Resource, *volumes: Resource, **status: Any) -> Resource:
    assert CONFIG.config is not None
    return {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "d1", "generation": 1, "labels": {"team": "a"}},
        "spec": {"model": {"id": "a/b", "cache": cache, "storage": {"volumes": list(volumes)}}},
        "status": {
            "engine": {"type": "vllm"},
            "provider": {"name": "kaito"},
            "effectiveRuntimeConfig": CONFIG.config.status(),
            "effectiveTemplate": {"hash": "h", "asked": "x"},
            "revision": {"template": {"hash": "h", "asked": "x"}},
            "conditions": [
                {"type": "Validated", "status": "True", "observedGeneration": 1},
                {"type": CONFIG_READY, "status": "True", "reason": "ConfigFound", "observedGeneration": 1},
            ],
            **status,
        },
    }


SHARED = {"mode": "Shared", "accessMode": "ReadWriteMany", "size": "9Gi"}
CORPUS = [
    deployment(SHARED),
    deployment({"mode": "Shared", "artifactName": "llama"}),
    deployment(SHARED, SIZED, NAMED, modelCache={"artifactName": "x", "claimName": "c", "ready": True}),
    deployment({}, SIZED, NAMED),
]


def cache(obj: Resource, artifact: Resource | None) -> object:
    """What a pass makes of the cache of a deployment."""
    request = artifact_of(obj, request_of(obj, CONFIG.config), artifact)
    return decide_cache(
        CacheFacts(
            deployment=obj,
            request=request,
            artifact=artifact,
            access_mode=access_mode_of(artifact, None, None) if artifact is not None else "",
            config_unusable=is_refused(obj),
            engine=engine_entry(PROVIDER, obj),
        )
    )


def volumes(obj: Resource) -> object:
    found = {name: claim(name) for name in claims_named(obj)}
    return decide_volumes(
        VolumeFacts(deployment=obj, config=CONFIG.config, config_unusable=is_refused(obj), claims=found)
    )


def artifacts() -> list[Resource]:
    """The artifact of the first deployment in each stage."""
    request = request_of(CORPUS[0], None)
    made = [whole(request, stage) for stage in STAGES]
    statuses = [{**(decide_artifact(stage).status or {}), "mode": "Shared"} for stage in STAGES]
    return [{**each, "status": status} for each, status in zip(made, statuses, strict=True)]


def test_a_pass_reads_nothing_of_a_deployment_whose_change_brings_no_pass() -> None:
    def one_pass(obj: Resource) -> object:
        return is_deleting(obj) or (
            awaits_verdict(obj, CONFIG.config),
            cache(obj, None),
            cache(obj, done),
            volumes(obj),
        )

    done = artifacts()[-1]
    assert unheeded(one_pass, lambda old, new: READS.of(old) != READS.of(new), CORPUS, besides=OWN | FIXED) == set()


def test_users_read_nothing_of_an_artifact_whose_change_brings_no_pass() -> None:
    def one_pass(artifact: Resource) -> object:
        return is_deleting(artifact) or [cache(obj, artifact) for obj in CORPUS]

    def wakes(old: Resource, new: Resource) -> bool:
        return READS_OF_ARTIFACT.of(old) != READS_OF_ARTIFACT.of(new)

    assert unheeded(one_pass, wakes, artifacts(), besides=()) == set()
