"""What is refused before anything is made, with field, limit and remedy; and what is warned about."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.plugins.host import ProviderHost
from airunway.resource import dig
from airunway.runtime.translate import check_overrides
from airunway_testing.conformance.fields import Answer, outcomes

EPP = "ghcr.io/llm-d/llm-d-router-endpoint-picker"
SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar"
CUSTOM = {"model": {"source": "custom"}, "image": "registry.example/i:1"}
OTHER = {"provider": {"overrides": {"connector": "mooncake"}}}
TOLD = {"engine": {"args": {"kv-transfer-config": '{"kv_connector":"MooncakeConnector"}'}}}

AGGREGATED: list[tuple[dict[str, Any], dict[str, Any], str, tuple[str, ...]]] = [
    ({}, {"engine": "sglang"}, "spec.engine.type", ("llm-d only supports vllm engine",)),
    ({"resources": {}}, {}, "spec.resources.gpu.count", ("llm-d requires GPU", "resources.gpu.count > 0")),
    ({}, {"picker_image": f"{EPP}:latest"}, "spec.provider.name", ("v0.9, v0.10, v1.5", "pickerVersion")),
    ({}, {"picker_image": f"{EPP}:v0.8.0"}, "spec.provider.name", (f"{EPP}:v0.8.0", "pickerImage")),
    # recorded: another program of the same project, which has none of these flags
    ({}, {"picker_image": "registry.k8s.io/lwepp:v1.6.0"}, "spec.provider.name", ("lwepp:v1.6.0",)),
    ({}, {"picker_version": "v0.11"}, "spec.provider.name", ("not known",)),
    ({"resources": {"gpu": {"count": 16}}}, {"groups": False}, "spec.resources.gpu.count", ("install it",)),
    ({"resources": {"gpu": {"count": 9}}}, {}, "spec.resources.gpu.count", ("ask for 10",)),
    (CUSTOM | {"resources": {"gpu": {"count": 16}}}, {}, "spec.resources.gpu.count", ("model of its own",)),
    ({"engine": {"args": {"port": "1"}}}, {}, "spec.engine.args[port]", ("AI Runway sets itself",)),
    (
        {"provider": {"overrides": {"spec": {"rolloutStrategy": {}}}}},
        {},
        "spec.provider.overrides.spec.rolloutStrategy",
        ("no place in a Deployment",),
    ),
]
APART: list[tuple[dict[str, Any], dict[str, Any], str, tuple[str, ...]]] = [
    ({"prefill": 0}, {}, "spec.scaling.prefill.gpu.count", ("llm-d requires GPU",)),
    ({"decode": 0}, {}, "spec.scaling.decode.gpu.count", ("llm-d requires GPU",)),
    (CUSTOM, {}, "spec.serving.mode", ("model of its own", "aggregated")),
    ({}, {"picker_image": "registry.k8s.io/epp:v1.5.0"}, "spec.serving.mode", ("cannot tell prefill from decode",)),
    ({}, {"sidecar_image": f"{SIDECAR}:main"}, "spec.serving.mode", ("v0.7, v0.8, v0.9, v0.10", "sidecarVersion")),
    ({}, {"sidecar_version": "v0.6"}, "spec.serving.mode", ("not known",)),
    ({}, {"kubernetes": (1, 28)}, "spec.serving.mode", ("1.29", "1.28", "aggregated")),
    # recorded: these end the sidecar with exit code 0
    *(
        ({"provider": {"overrides": {"connector": connector}}}, {}, "spec.provider.overrides.connector", ("nixlv2",))
        for connector in ("lmcache", "nixl", "NIXLV2", "")
    ),
    (OTHER, {"sidecar_image": f"{SIDECAR}:v0.8.0"}, "spec.provider.overrides.connector", ("nixlv2, shared-storage",)),
    (OTHER, {}, "spec.provider.overrides.connector", ("kv-transfer-config",)),
    ({"prefill": 3, "decode": 2}, {}, "spec.scaling.prefill.gpu.count", ("over 3", "over 2", "multiple", "NIXL")),
    ({"prefill": 2, "decode": 16}, {"groups": False}, "spec.scaling.decode.gpu.count", ("install it",)),
    ({"prefill": 17, "decode": 17}, {"gpus_per_node": 32, "picker_version": "v2"}, "spec.provider.name", ("v0.10",)),
]


def one(found: Any) -> Any:
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(("fields", "around", "path", "says"), AGGREGATED)
def test_refusals_name_the_field_the_limit_and_what_to_do(
    host: ProviderHost, deployment: Any, context: Any, fields: Any, around: Any, path: str, says: tuple[str, ...]
) -> None:
    found = one(host.can_handle(deployment(**fields), context(**around)).blockers)
    assert found.path == path
    assert [text for text in says if text not in found.message] == []


@pytest.mark.parametrize(("fields", "around", "path", "says"), APART)
def test_refusals_of_roles_name_the_field_the_limit_and_what_to_do(
    host: ProviderHost, apart: Any, context: Any, fields: Any, around: Any, path: str, says: tuple[str, ...]
) -> None:
    found = one(host.can_handle(apart(**fields), context(**around)).blockers)
    assert found.path == path
    assert [text for text in says if text not in found.message] == []


def test_a_connector_that_both_sides_know_is_taken(host: ProviderHost, apart: Any, context: Any) -> None:
    assert host.can_handle(apart(**OTHER, **TOLD), context()).ok
    decode = host.translate_spec(apart(**OTHER, **TOLD), context()).objects[0]
    pod = decode["spec"]["template"]["spec"]
    assert "--kv-connector=mooncake" in pod["initContainers"][0]["args"]
    assert not any(entry["name"].startswith("VLLM_NIXL") for entry in pod["containers"][0].get("env", []))


def test_what_no_picker_has_to_know_is_not_refused(host: ProviderHost, deployment: Any, context: Any) -> None:
    unknown = {"picker_image": f"{EPP}:main", "sidecar_image": f"{SIDECAR}:main"}
    assert host.can_handle(deployment(), context(pool=False, **unknown)).ok
    refused = host.can_handle(deployment(), context(**unknown)).blockers
    assert [found.path for found in refused] == ["spec.provider.name"], "an aggregated model has no sidecar"


@pytest.mark.parametrize("mode", ["kv", "round-robin", 7, None])
def test_a_router_mode_that_does_not_exist_is_refused_by_the_schema(host: ProviderHost, mode: Any) -> None:
    found = check_overrides({"routerMode": mode}, host.manifest.override_schema).errors
    assert {(error.path, error.reason) for error in found} == {
        ("spec.provider.overrides.routerMode", "InvalidOverride")
    }
    assert "'always', 'prefix-based'" in " ".join(error.message for error in found)


@pytest.mark.parametrize(
    ("prefill", "decode", "verdict"),
    [(1, 1, "fine"), (2, 4, "fine"), (4, 8, "fine"), (4, 2, "warned"), (8, 1, "warned"), (3, 2, "no"), (4, 6, "no")],
)
def test_the_ratio_of_prefill_and_decode_is_what_nixl_takes(
    host: ProviderHost, apart: Any, context: Any, prefill: int, decode: int, verdict: str
) -> None:
    found = host.can_handle(apart(prefill=prefill, decode=decode), context())
    told = [f for f in (*found.blockers, *found.warnings) if "NIXL" in f.message]
    assert [f.path for f in told] == ([] if verdict == "fine" else ["spec.scaling.prefill.gpu.count"])
    assert found.ok is (verdict != "no")
    # Who sets the number himself sets it for both.
    own = apart(prefill=prefill, decode=decode, engine={"args": {"tensor-parallel-size": "1"}})
    assert not [f for f in host.can_handle(own, context()).warnings if "NIXL" in f.message]


def test_what_has_no_effect_is_said(host: ProviderHost, deployment: Any, apart: Any, context: Any) -> None:
    surge = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}}}
    for wanted, paths in (
        (
            deployment(provider={"overrides": {"connector": "nixlv2", "routerMode": "always"}}),
            ["connector", "routerMode"],
        ),
        (apart(provider={"overrides": surge}), ["spec"]),
    ):
        found = host.can_handle(wanted, context())
        assert found.ok
        assert [f.path.removeprefix("spec.provider.overrides.") for f in found.warnings] == paths
    labelled = deployment(podTemplate={"metadata": {"labels": {"llm-d.ai/role": "both"}}})
    (found_,) = host.can_handle(labelled, context()).warnings
    assert "reserved" in found_.message
    (unpooled,) = host.can_handle(apart(), context(pool=False)).warnings
    assert "prefill workers get no requests" in unpooled.message


def test_a_name_that_leaves_no_room_for_the_groups_pods_is_refused(
    host: ProviderHost, deployment: Any, apart: Any, context: Any
) -> None:
    large = {"resources": {"gpu": {"count": 16}}}
    for make, fields, room in ((deployment, large, 45), (apart, {"decode": 16, "prefill": 8}, 38)):
        fits, long = (host.can_handle(make("n" * letters, **fields), context()) for letters in (room, room + 1))
        assert fits.ok
        assert [f.reason for f in long.blockers] == ["NameTooLong"]
        name = host.translate_spec(make("n" * room, **fields), context()).objects[0]["metadata"]["name"]
        assert len(name) == 49


def test_no_field_disappears_without_a_word(host: ProviderHost) -> None:
    assert [outcome for outcome in outcomes(host) if outcome.answer is Answer.IGNORED] == []


# ------------------------------------------------------------------------------------------------------------ hostile

NASTY = st.text(max_size=24) | st.sampled_from(
    ["$(HF_TOKEN)", "`id`", "'; rm -rf /", "--pool-name=other", "a: b\n- c", "\u202e", "{{.}}", "%s%n"]
)


@given(words=st.lists(NASTY, min_size=6, max_size=6), split=st.booleans())
def test_what_a_user_writes_reaches_its_place_as_data(
    host: ProviderHost, deployment: Any, apart: Any, context: Any, words: list[str], split: bool
) -> None:
    """Nothing of it changes picker, sidecar, pool or rights, whatever it says."""
    plain, hostile = (
        (apart if split else deployment)(
            model={"id": given[0] or "o/m", "servedName": given[1]},
            engine={"args": {"seed": given[2]}, "extraArgs": [f"--x={given[3]}"]},
            env=[{"name": "A", "value": given[4]}],
            nodeSelector={"a": given[5]},
        )
        for given in (["o/m"] * 6, words)
    )
    before, after = (host.translate_spec(wanted, context()).objects for wanted in (plain, hostile))
    ours = [
        obj for obj in before if not dig(obj, "spec", "template", "spec", "containers", default=[{}])[0].get("command")
    ]
    assert [obj for obj in after if obj in ours] == ours
    sidecars = [dig(objects[0], "spec", "template", "spec", "initContainers") for objects in (before, after)]
    assert sidecars[0] == sidecars[1]
    args = after[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[0] == (words[0] or "o/m").replace("$", "$$")
    assert f"--x={words[3]}" in args


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"picker_image": "registry.example/epp:v1.5.0"}, "answers requests to /v1/messages with 400"),
        ({"sidecar_version": "v0.7"}, "/v1/messages and /v1/responses prefilled by decode workers"),
        ({"sidecar_version": "v0.8"}, "prompts of /v1/messages prefilled by decode workers"),
        ({"sidecar_version": "v0.9"}, ""),
        ({}, ""),
    ],
)
def test_real_llmd_11_requests_that_a_release_does_not_understand_are_named(
    host: ProviderHost, deployment: Any, apart: Any, context: Any, how: dict[str, str], says: str
) -> None:
    wanted = apart() if "sidecar_version" in how else deployment()
    found = host.can_handle(wanted, context(**how))
    assert found.blockers == ()
    assert [says in warning.message for warning in found.warnings] == [True] * bool(says)
