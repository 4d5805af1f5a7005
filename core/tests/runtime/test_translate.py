"""What a provider makes of a deployment, and the runtime's own net: nothing is dropped without a word."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.api import names
from airunway.api.base import ParseError
from airunway.api.bounds import EXCESS
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource, annotations_of, copy_of
from airunway.runtime.translate import TranslationResult, parsed, selector_of, translate
from airunway.sdk import Compatibility, Finding, Translation, overrides

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

MakeHost = Callable[..., ProviderHost]
MakeDeployment = Callable[..., Resource]


def translated(host: ProviderHost, deployment: Resource, **assumed: Any) -> TranslationResult:
    context = assumed_context(host, engine="vllm", now=NOW, **assumed)
    return translate(host, deployment, parsed(deployment), context)


def test_desired_objects_are_complete_the_primary_first(toy: MakeHost, plain: MakeDeployment) -> None:
    found = translated(toy(), plain())
    assert (found.blockers, found.warnings) == ((), ())
    assert [(obj["kind"], obj["metadata"]["namespace"]) for obj in found.objects] == [
        ("Thing", "ml"),
        ("ConfigMap", "ml"),
    ]
    assert annotations_of(found.objects[0])[names.TRANSFORMER] == "v2-b"
    assert found.objects[0]["spec"]["template"]["metadata"]["labels"][names.PROVIDER] == "toy"


def test_a_field_that_the_user_set_and_nobody_looked_at_is_reported_by_the_runtime(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    spec = {
        "engine": {"type": "vllm", "contextLength": 4096, "args": {"seed": "1"}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "image": "read-by-the-toy",
        "gateway": {"enabled": False},
    }
    found = translated(toy(), plain(**spec))
    reported = {finding.path: finding for finding in found.warnings}
    assert {"spec.engine.contextLength", "spec.engine.args", "spec.tolerations.key"} <= set(reported)
    assert not [path for path in reported if path.startswith(("spec.image", "spec.gateway", "spec.runtimeConfig"))]
    assert {finding.reason for finding in reported.values()} == {"FieldIgnored"}
    assert (
        reported["spec.engine.args"].message
        == "spec.engine.args has no effect in this deployment: the provider does not use it here; remove it"
    )


def test_the_engine_reaches_a_provider_in_its_context(toy: MakeHost, plain: MakeDeployment) -> None:
    """Reading ``context.engine`` and not ``spec.engine.type`` is right: the user may have left it to the core."""
    assert translated(toy(), plain(engine={"type": "vllm"})).warnings == ()


def test_what_the_provider_itself_says_of_a_field_is_not_said_twice(toy: MakeHost, plain: MakeDeployment) -> None:
    own = Finding(path="spec.engine.contextLength", reason="FieldIgnored", message="the Thing chooses its own")
    host = toy(can_handle=lambda d, c: Compatibility(warnings=(own,)))
    found = translated(host, plain(engine={"type": "vllm", "contextLength": 4096}))
    assert [finding for finding in found.warnings if finding.path == own.path] == [own]


def test_what_can_handle_alone_looked_at_counts_as_seen(toy: MakeHost, plain: MakeDeployment) -> None:
    def reading(deployment: Any, *_: object) -> Compatibility:
        assert deployment.spec.engine.context_length == 4096
        return Compatibility()

    host = toy(can_handle=reading)
    assert translated(host, plain(engine={"type": "vllm", "contextLength": 4096})).warnings == ()


def test_b1_a_volume_that_is_to_be_made_from_its_size_blocks(toy: MakeHost, plain: MakeDeployment) -> None:
    volumes = [
        {"name": "there", "claimName": "c", "mountPath": "/a"},
        {"name": "sized", "size": "10Gi", "mountPath": "/b"},
    ]
    found = translated(toy(), plain(model={"id": "o/m", "storage": {"volumes": volumes}}))
    assert [finding.path for finding in found.blockers] == ["spec.model.storage.volumes[1].size"]
    assert "create a PersistentVolumeClaim, name it in claimName and take size out" in found.blockers[0].message
    assert found.objects == ()


def test_blockers_of_the_plugin_leave_no_objects_and_its_translation_is_not_asked(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("asked although the deployment is blocked")

    blocker = Finding(path="spec.x", reason="IncompatibleConfiguration", message="no")
    host = toy(can_handle=lambda d, c: Compatibility(blockers=(blocker,)), translate_spec=never)
    assert translated(host, plain()) == TranslationResult(blockers=(blocker,), warnings=())
    assert translated(toy(translate_spec=never), plain(suspend=True)).objects == ()


SCHEMA = overrides.keys(
    spec=overrides.keys(note=overrides.TEXT, pools=overrides.items(overrides.keys(memory=overrides.MEMORY))),
    mode=overrides.typed(overrides.choice("fast", "safe")),
)


def test_b2_overrides_are_checked_merged_into_the_primary_and_unknown_keys_named_in_lists_too(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    wanted = {"spec": {"note": "hi", "pools": [{"memory": "1Gi", "memroy": "2Gi"}]}, "mode": "fast"}
    found = translated(toy(override_schema=SCHEMA), plain(provider={"name": "toy", "overrides": wanted}))
    assert [finding.path for finding in found.warnings] == ["spec.provider.overrides.spec.pools[0].memroy"]
    thing = found.objects[0]
    assert thing["spec"]["note"] == "hi"
    assert thing["spec"]["model"] == "org/model", "the rest of the translation stays"
    assert thing["spec"]["pools"] == [{"memory": "1Gi"}]
    assert "mode" not in thing, "the translation reads typed ones itself"
    beyond = {"spec": {"pools": [{"memory": "5Ti"}]}}
    blocked = translated(toy(override_schema=SCHEMA), plain(provider={"name": "toy", "overrides": beyond}))
    assert [finding.reason for finding in blocked.blockers] == ["InvalidOverride"]


def test_a_plugin_is_not_asked_about_overrides_that_its_own_schema_refuses(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    def reads_a_number(deployment: Any, _: object) -> Compatibility:
        assert int(deployment.spec.provider.overrides["size"]) >= 0
        return Compatibility()

    host = toy(override_schema=overrides.keys(size=overrides.typed(overrides.REPLICAS)), can_handle=reads_a_number)
    found = translated(host, plain(provider={"name": "toy", "overrides": {"size": "many"}}))
    assert [finding.path for finding in found.blockers] == ["spec.provider.overrides.size"]


def test_overrides_go_where_the_translation_has_a_place_for_them(toy: MakeHost, plain: MakeDeployment) -> None:
    def inside(deployment: Any, context: Any) -> Translation:
        thing = {"apiVersion": context.upstream.api_version, "kind": "Thing", "metadata": {"name": "m"}, "spec": {}}
        return Translation(objects=(thing,), overrides_at={"spec.note": "spec.inner.note"})

    wanted = {"spec": {"note": "hi", "pools": []}}
    found = translated(toy(override_schema=SCHEMA, translate_spec=inside), plain(provider={"overrides": wanted}))
    assert found.objects[0]["spec"] == {"inner": {"note": "hi"}, "pools": []}


def test_what_is_too_large_is_not_parsed(plain: MakeDeployment) -> None:
    deployment = plain()
    deployment[EXCESS] = [["spec.env", "is longer than 256 entries"]]
    with pytest.raises(ParseError):
        parsed(deployment)


def test_a_plugin_that_changes_the_deployment_it_is_given_changes_nobody_else_s(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    """What the caches hold is shared by everything in the process."""
    spec = {
        "env": [{"name": "A", "value": "1"}],
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {"x": [1]}},
        "provider": {"name": "toy", "overrides": {"spec": {"note": "hi"}}},
    }

    def vandal(deployment: Any, *_: object) -> Any:
        deployment.spec.env.clear()
        deployment.spec.node_selector["mine"] = "now"
        deployment.spec.affinity["nodeAffinity"]["x"].append(2)
        deployment.spec.provider.overrides["spec"]["note"] = "changed"
        return Compatibility()

    deployment = plain(**spec)
    before = copy_of(deployment)
    host = toy(override_schema=SCHEMA, can_handle=vandal)
    found = translated(host, deployment)
    assert deployment == before
    assert found.objects[0]["spec"]["note"] == "hi"


def test_a_deployment_cannot_be_assigned_to(toy: MakeHost, plain: MakeDeployment) -> None:
    def vandal(deployment: Any, *_: object) -> Any:
        deployment.spec.suspend = True
        return Compatibility()

    with pytest.raises(PluginFault, match="can_handle raised AttributeError"):
        translated(toy(can_handle=vandal), plain())


# -------------------------------------------------------------------------------------------------------- selectors


@pytest.mark.parametrize(
    ("manifest", "selector"),
    [
        ({}, "airunway.ai/model-deployment=llama"),
        ({"pod_labels": ("toy/of", "toy/also")}, "toy/of=the-thing"),
        ({"role_label": "toy/role", "serving_roles": ("head",)}, "airunway.ai/model-deployment=llama,toy/role=head"),
        ({"role_label": "toy/role"}, "airunway.ai/model-deployment=llama"),
        (
            {"pod_labels": ("toy/of",), "role_label": "toy/role", "serving_roles": ("a", "b")},
            "toy/of=the-thing,toy/role in (a,b)",
        ),
    ],
    ids=str,
)
def test_g10_the_selector_for_scale_is_of_the_serving_pods(
    toy: MakeHost, manifest: dict[str, Any], selector: str
) -> None:
    assert selector_of(toy(**manifest), "llama", "the-thing") == selector


def test_the_replaceable_topology_comes_from_the_translation(toy: MakeHost, plain: MakeDeployment) -> None:
    thing = {"apiVersion": "toy.example.org/v2", "kind": "Thing", "metadata": {"name": "llama"}}
    host = toy(translate_spec=lambda d, c: Translation(objects=(thing,), replace_on={"roles": ["a"]}))
    assert (
        '"topology":{"roles":' in annotations_of(translated(host, plain()).objects[0])["airunway.ai/replace-on-change"]
    )
