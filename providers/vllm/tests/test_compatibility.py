"""What is refused, with the field, the limit and what to do; and that every field is honoured, refused or named."""

from typing import Any

import orjson
import pytest

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import ModelCache
from airunway.plugins.host import ProviderHost
from airunway.resource import dig
from airunway.runtime.translate import check_overrides, merged
from airunway.sdk import CORE_FIELDS, ignored_fields, tracked
from airunway.sdk.fields import _set_fields

EIGHT = {"gpu": {"count": 8}}
SIXTEEN = {"gpu": {"count": 16}}


@pytest.mark.parametrize(
    ("fields", "engine", "path", "says"),
    [
        ({"serving": {"mode": "disaggregated"}}, "vllm", "spec.serving.mode", "llmd"),
        ({"serving": {"mode": "disaggregated"}, "resources": {}}, "vllm", "spec.serving.mode", "llmd"),
        ({}, "mystery", "spec.engine.type", "vllm does not support mystery engine"),
        ({"resources": {}}, "vllm", "spec.resources.gpu.count", "requires GPU"),
        ({"resources": {}}, "sglang", "spec.resources.gpu.count", "requires GPU"),
        ({"model": {"source": "custom"}}, "vllm", "spec.model.source", "needs spec.image"),
        ({"resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}}, "vllm", "spec.resources.gpu.type", "spec.image"),
        ({"model": {"id": "o/m", "cache": {"mode": "Shared"}}}, "vllm", "spec.model.cache.mode", "storage.volumes"),
        (
            {"model": {"id": "o/m", "storage": {"volumes": [{"name": "v", "mountPath": "/v"}]}}},
            "vllm",
            "spec.model.storage.volumes[0]",
            "claimName",
        ),
        ({"engine": {"args": {"port": "1"}}}, "vllm", "spec.engine.args[port]", "AI Runway sets itself"),
        ({"resources": SIXTEEN, "image": "i"}, "trtllm", "spec.resources.gpu.count", "trtllm engine"),
        ({"resources": SIXTEEN, "image": "llama.cpp"}, "llamacpp", "spec.resources.gpu.count", "llamacpp engine"),
        (
            {"resources": SIXTEEN, "image": "i", "model": {"source": "custom"}},
            "vllm",
            "spec.resources.gpu.count",
            "model of its own",
        ),
        ({"resources": {"gpu": {"count": 17}}}, "vllm", "spec.resources.gpu.count", "ask for 18"),
        (
            {"provider": {"overrides": {"spec": {"leaderWorkerTemplate": {}}}}},
            "vllm",
            "spec.provider.overrides.spec.leaderWorkerTemplate",
            "no place in a Deployment",
        ),
        (
            {"provider": {"overrides": {"spec": {"template": {}}}}, "resources": SIXTEEN},
            "vllm",
            "spec.provider.overrides.spec.template",
            "no place in a LeaderWorkerSet",
        ),
    ],
)
def test_refusals_name_the_field_and_what_to_do(
    host: ProviderHost, deployment: Any, context: Any, fields: Any, engine: str, path: str, says: str
) -> None:
    (found,) = host.can_handle(deployment(**fields), context(engine)).blockers
    assert found.path == path
    assert says in found.message


def test_several_nodes_without_leaderworkerset_are_refused_with_limit_and_remedy(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    (found,) = host.can_handle(deployment(resources=SIXTEEN), context(groups=False)).blockers
    assert found.path == "spec.resources.gpu.count"
    assert all(text in found.message for text in ("16", "8", "gpusPerNode", "install it"))
    assert host.can_handle(deployment(resources=EIGHT), context(groups=False)).ok


@pytest.mark.parametrize(("letters", "fits"), [(45, True), (46, False), (52, False)])
def test_a_name_that_leaves_no_room_for_the_groups_pods_is_refused(
    host: ProviderHost, deployment: Any, context: Any, letters: int, fits: bool
) -> None:
    name = "n" * letters
    found = host.can_handle(deployment(name, resources=SIXTEEN), context()).blockers
    assert [finding.reason for finding in found] == ([] if fits else ["NameTooLong"])
    assert host.can_handle(deployment(name), context()).ok, "one node needs no room"
    if fits:
        assert (
            len(host.translate_spec(deployment(name, resources=SIXTEEN), context()).objects[0]["metadata"]["name"])
            == 49
        )


# ------------------------------------------------------------------------------------------- honoured, refused or named

ROLE = {"replicas": 2, "gpu": {"count": 1}, "memory": "1Gi", "cpu": "1"}
VOLUME = {"name": "v", "claimName": "c", "mountPath": "/v"}
LLAMA = {"id": "meta-llama/Llama-3.1-8B-Instruct"}

TOGGLES: dict[str, dict[str, Any]] = {
    "spec.model.id": {"model": {"id": "o/other"}},
    "spec.model.servedName": {"model": {**LLAMA, "servedName": "other"}},
    "spec.model.source": {"model": {**LLAMA, "source": "custom"}, "image": "registry.example/i:1"},
    "spec.model.storage.volumes[].name": {"model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "name": "w"}]}}},
    "spec.model.storage.volumes[].claimName": {
        "model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "claimName": "d"}]}}
    },
    "spec.model.storage.volumes[].mountPath": {
        "model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "mountPath": "/w"}]}}
    },
    "spec.model.storage.volumes[].purpose": {
        "model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "purpose": "modelCache"}]}}
    },
    "spec.model.storage.volumes[].readOnly": {
        "model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "readOnly": True}]}}
    },
    "spec.model.storage.volumes[].size": {"model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "size": "1Gi"}]}}},
    "spec.model.storage.volumes[].storageClassName": {
        "model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "storageClassName": "s"}]}}
    },
    "spec.model.storage.volumes[].accessMode": {
        "model": {**LLAMA, "storage": {"volumes": [{**VOLUME, "accessMode": "ReadOnlyMany"}]}}
    },
    "spec.model.cache.mode": {"model": {**LLAMA, "cache": {"mode": "Shared"}}},
    **{
        f"spec.securityContext.{name}": {"securityContext": {name: value}}
        for name, value in {
            "runAsNonRoot": True,
            "runAsUser": 1001,
            "runAsGroup": 1001,
            "fsGroup": 1001,
            "readOnlyRootFilesystem": True,
        }.items()
    },
    "spec.engine.image": {"engine": {"image": "registry.example/i:2"}},
    "spec.engine.contextLength": {"engine": {"contextLength": 8192}},
    "spec.engine.trustRemoteCode": {"engine": {"trustRemoteCode": True}},
    "spec.engine.enablePrefixCaching": {"engine": {"enablePrefixCaching": False}},
    "spec.engine.enforceEager": {"engine": {"enforceEager": True}},
    "spec.engine.args": {"engine": {"args": {"seed": "1"}}},
    "spec.engine.extraArgs": {"engine": {"extraArgs": ["--seed", "1"]}},
    "spec.scaling.replicas": {"scaling": {"replicas": 3}},
    "spec.scaling.prefill": {"scaling": {"prefill": ROLE}},
    "spec.scaling.decode": {"scaling": {"decode": ROLE}},
    "spec.resources.gpu.count": {"resources": {"gpu": {"count": 2}}},
    "spec.resources.gpu.type": {"resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}},
    "spec.resources.memory": {"resources": {"gpu": {"count": 1}, "memory": "32Gi"}},
    "spec.resources.cpu": {"resources": {"gpu": {"count": 1}, "cpu": "8"}},
    "spec.image": {"image": "registry.example/i:3"},
    "spec.env[].name": {"env": [{"name": "B", "value": "1"}]},
    "spec.env[].value": {"env": [{"name": "A", "value": "2"}]},
    "spec.env[].valueFrom": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    "spec.podTemplate.metadata.labels": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}},
    "spec.podTemplate.metadata.annotations": {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
    "spec.secrets.huggingFaceToken": {"secrets": {"huggingFaceToken": "t"}},
    "spec.nodeSelector": {"nodeSelector": {"a": "b"}},
    "spec.tolerations[]": {"tolerations": [{"key": "a", "operator": "Exists"}]},
    "spec.affinity": {"affinity": {"nodeAffinity": {}}},
    "spec.topologySpreadConstraints": {"topologySpreadConstraints": [{"maxSkew": 1}]},
    "spec.serviceAccountName": {"serviceAccountName": "s"},
    "spec.imagePullSecrets[]": {"imagePullSecrets": [{"name": "p"}]},
    "spec.priorityClassName": {"priorityClassName": "p"},
    "spec.serving.mode": {"serving": {"mode": "disaggregated"}},
}
OF_CLAIMS = ("spec.model.storage.volumes[].storageClassName", "spec.model.storage.volumes[].accessMode")
OF_THE_CORE = ("spec.engine.type", "spec.model.cache.", *OF_CLAIMS, *(f for f in CORE_FIELDS if f != "spec.serving"))
"""Fields that the core and the runtime act on; of the cache only its mode asks for anything that a provider gives."""


def answer(host: ProviderHost, wanted: ModelDeployment, ctx: Any) -> bytes:
    """Everything that comes of a deployment: objects, blockers, and warnings, those of the runtime's net included."""
    view, reads = tracked(wanted)
    verdict = host.can_handle(view, ctx)
    objects = host.translate_spec(view, ctx).objects if verdict.ok else ()
    said = [*verdict.blockers, *verdict.warnings, *ignored_fields(wanted, reads)]
    return orjson.dumps([objects, [[finding.path, finding.message] for finding in said]])


@pytest.mark.parametrize("field", TOGGLES)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
@pytest.mark.parametrize("gpus", [1, 16])
def test_every_field_is_honoured_refused_or_named(
    host: ProviderHost, deployment: Any, context: Any, field: str, engine: str, gpus: int
) -> None:
    ctx = context(
        engine,
        gpus_per_node=16 if engine in ("trtllm", "llamacpp") else 8,
        **{f"{engine}_image": "ggml-org/llama.cpp:server" if engine == "llamacpp" else "registry.example/i:1"},
    )
    base: dict[str, Any] = {"resources": {"gpu": {"count": gpus}}}
    if "volumes" in field:
        base["model"] = {**LLAMA, "storage": {"volumes": [VOLUME]}}
    if field.startswith("spec.env"):
        base["env"] = [{"name": "A", "value": "1"}]
    toggled = {**base, **TOGGLES[field]}
    if gpus > 1 and "resources" in TOGGLES[field] and field != "spec.resources.gpu.count":
        toggled["resources"] = {**toggled["resources"], "gpu": {**toggled["resources"]["gpu"], "count": gpus}}
    if field == "spec.model.id" and engine == "trtllm":
        toggled["engine"] = {"type": engine}
    before, after = (answer(host, deployment(**fields), ctx) for fields in (base, toggled))
    assert before != after, f"{field} disappears without a word"


def test_no_field_of_the_spec_is_missing_among_the_toggles(deployment: Any) -> None:
    from airunway.api.modeldeployment import ModelDeployment as Model

    def leaves(model: Any, path: str) -> set[str]:
        from typing import get_args

        from pydantic import BaseModel
        from pydantic.alias_generators import to_camel

        found: set[str] = set()
        for name, info in model.model_fields.items():
            here = f"{path}.{to_camel(name)}"
            kinds = [k for k in (info.annotation, *get_args(info.annotation)) if isinstance(k, type)]
            nested = next((k for k in kinds if issubclass(k, BaseModel)), None)
            listed = "list" in str(info.annotation)
            if nested is None:
                found.add(here)
            else:
                found |= leaves(nested, f"{here}[]" if listed else here)
        return found

    every = leaves(Model.model_fields["spec"].annotation, "spec")
    covered = tuple(TOGGLES) + OF_THE_CORE
    assert {leaf for leaf in every if not leaf.startswith(covered)} == set()
    assert len(every) > 50


def test_nothing_is_said_of_a_plain_deployment(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(engine={"type": "vllm"}, provider={"name": "vllm"}, scaling={"replicas": 2})
    view, reads = tracked(wanted)
    assert host.can_handle(view, context()).warnings == ()
    host.translate_spec(view, context())
    assert list(ignored_fields(wanted, reads)) == []
    assert list(_set_fields(wanted.spec, "spec")) != []


def test_a_cache_with_a_volume_is_used(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(model={**LLAMA, "cache": {"mode": "Shared"}})
    assert host.can_handle(wanted, context(cache=ModelCache(claim="c"))).ok


# ---------------------------------------------------------------------------------------------------------- overrides


def test_overrides_reach_either_kind(host: ProviderHost, deployment: Any, context: Any) -> None:
    pod = {"spec": {"terminationGracePeriodSeconds": 120}}
    surge = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}, "template": pod}}
    for fields, overrides, path in (
        ({}, surge, ("spec", "template", "spec")),
        (
            {"resources": SIXTEEN},
            {"spec": {"leaderWorkerTemplate": {"leaderTemplate": pod}}},
            ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
        ),
    ):
        found = check_overrides(overrides, host.manifest.override_schema)
        assert (found.errors, found.unknown) == ((), ())
        wanted = deployment(**fields, provider={"overrides": overrides})
        assert host.can_handle(wanted, context()).ok
        primary = merged(host.translate_spec(wanted, context()).objects[0], found.merge)
        assert dig(primary, *path)["terminationGracePeriodSeconds"] == 120
        assert dig(primary, *path)["containers"], "merged, not replaced"


@pytest.mark.parametrize(
    "overrides",
    [
        {"spec": {"template": {"spec": {"hostNetwork": True}}}},
        {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 33}}}},
        {"spec": {"progressDeadlineSeconds": "long"}},
    ],
    ids=str,
)
def test_wrong_overrides_are_errors(host: ProviderHost, overrides: Any) -> None:
    assert check_overrides(overrides, host.manifest.override_schema).errors


@pytest.mark.parametrize("key", ["replicas", "selector", "paused"])
def test_what_others_decide_is_no_override(host: ProviderHost, key: str) -> None:
    found = check_overrides({"spec": {key: 3}}, host.manifest.override_schema)
    assert [finding.path for finding in found.unknown] == [f"spec.provider.overrides.spec.{key}"]
