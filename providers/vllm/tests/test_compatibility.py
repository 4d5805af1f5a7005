"""What is refused, with the field, the limit and what to do."""

from typing import Any

import pytest

from airunway.plugins.contract import ModelCache
from airunway.plugins.host import ProviderHost
from airunway.resource import dig
from airunway.runtime.translate import check_overrides, merged
from airunway.sdk import ignored_fields, tracked
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


# ------------------------------------------------------------------------ fields (all of them: test_conformance.py)


def test_nothing_is_said_of_a_plain_deployment(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(engine={"type": "vllm"}, provider={"name": "vllm"}, scaling={"replicas": 2})
    view, reads = tracked(wanted)
    assert host.can_handle(view, context()).warnings == ()
    host.translate_spec(view, context())
    assert list(ignored_fields(wanted, reads)) == []
    assert list(_set_fields(wanted.spec, "spec")) != []


def test_a_cache_with_a_volume_is_used(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(model={"id": "o/m", "cache": {"mode": "Shared"}})
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
