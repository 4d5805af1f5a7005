"""What is refused or warned about, in words that name the field, the limit and what to do."""

from dataclasses import replace
from typing import Any

import pytest

from airunway.plugins.contract import ModelCache, RuntimeSettings
from airunway.plugins.errors import SettingsError
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway.runtime.translate import check_overrides
from airunway_dynamo.manifest import TRANSFORMERS

ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "16Gi"}
SPLIT = {"resources": None, "serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}}
SIXTEEN = {"resources": {"gpu": {"count": 16}}}


def blockers(host: ProviderHost, deployment: Any, context: Any) -> dict[str, str]:
    return {finding.path: finding.message for finding in host.can_handle(deployment, context).blockers}


def test_the_seeds_own_words(host: ProviderHost, deployment: Any, context: Any) -> None:
    assert blockers(host, deployment(), context("llamacpp")) == {
        "spec.engine.type": "Dynamo does not support llamacpp engine"
    }
    assert blockers(host, deployment(resources={}), context()) == {
        "spec.resources.gpu.count": "Dynamo requires GPU (set resources.gpu.count > 0)"
    }


def test_both_roles_need_gpus(host: ProviderHost, deployment: Any, context: Any) -> None:
    none = {**SPLIT, "scaling": {"prefill": ROLE, "decode": {"replicas": 1, "memory": "1Gi", "gpu": {"count": 0}}}}
    assert blockers(host, deployment(**none), context()) == {
        "spec.scaling.decode.gpu.count": "Dynamo requires GPU (set scaling.decode.gpu.count > 0)"
    }


def test_an_image_with_a_model_of_its_own_is_somebody_elses(host: ProviderHost, deployment: Any, context: Any) -> None:
    asked = deployment(model={"source": "custom"}, image="registry.example/own:1.0.0")
    assert list(blockers(host, asked, context())) == ["spec.model.source"]


# ------------------------------------------------------------------------------------------------------ the image's tag


@pytest.mark.parametrize(
    "image",
    [
        "registry.example/vllm-runtime:latest",
        "registry.example:5000/vllm-runtime",
        "registry.example/vllm-runtime@sha256:" + "0" * 64,
        "registry.example/vllm-runtime:1.3",
        "registry.example/vllm-runtime:1.3.1_own",
        "registry.example/1.3.1:main",
    ],
)
def test_a_tag_without_a_release_is_refused_where_flags_depend_on_it(
    host: ProviderHost, deployment: Any, context: Any, image: str
) -> None:
    older = context(written="v1beta1-1.2")
    assert blockers(host, deployment(image=image), older) == {}, "one worker for all is started alike in all releases"
    for fields in (SPLIT, {"overrides": {"routerMode": "kv"}}):
        (message,) = blockers(host, deployment(image=image, **fields), older).values()
        assert image in message
        assert "a tag like 1.3.1" in message
        assert "spec.provider.overrides.runtimeVersion" in message
    assert list(blockers(host, deployment(image=image), context())) == ["spec.image"], "1.4's own admission wants it"
    assert list(blockers(host, deployment(engine={"image": image}), context())) == ["spec.engine.image"]
    said = {"routerMode": "kv", "runtimeVersion": "1.3.1"}
    assert blockers(host, deployment(image=image, overrides=said, **SPLIT), context()) == {}


@pytest.mark.parametrize(
    "tag", ["1.3.1", "v1.3.1", "1.3.1-cuda13", "0.7.0.post1", "1.3.1@sha256:" + "0" * 64, "1.4.0-rc.1+x"]
)
def test_a_tag_with_a_release_is_enough(host: ProviderHost, deployment: Any, context: Any, tag: str) -> None:
    asked = deployment(image=f"registry.example:5000/team/vllm-runtime:{tag}", **SPLIT)
    assert blockers(host, asked, context()) == {}


# ---------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("grove", "fields", "limit"),
    [
        (True, {}, 37),
        (True, SPLIT, 37),
        (True, SIXTEEN, 29),
        (False, {}, 47),
        (False, SPLIT, 46),
        (False, SIXTEEN, 31),
    ],
)
def test_a_name_that_is_too_long_for_what_is_made_of_it(
    host: ProviderHost, deployment: Any, context: Any, grove: bool, fields: Resource, limit: int
) -> None:
    ctx = context(grove=grove)
    assert blockers(host, deployment("m" * limit, **fields), ctx) == {}
    (found,) = host.can_handle(deployment("m" * (limit + 1), **fields), ctx).blockers
    assert (found.path, found.reason) == ("metadata.name", "NameTooLong")
    assert f"leaves room for {limit}" in found.message
    assert "shorter name" in found.message


def test_before_1_0_the_name_of_a_worker_has_no_digest(host: ProviderHost, deployment: Any, context: Any) -> None:
    assert blockers(host, deployment("m" * 50), context(written="v1alpha1-0.8")) == {}
    assert blockers(host, deployment("m" * 50), context(written="v1alpha1-1.0")) != {}


def test_ruling_31_grove_that_comes_refuses_no_graph_that_runs(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    runs, now = deployment(name="a" * 38), context(grove=True)
    assert blockers(host, runs, context(grove=False)) == {}
    live: Resource = {"kind": "DynamoGraphDeployment", "metadata": {"name": "a" * 38}}
    found = host.can_handle(runs, replace(now, live=live, spec_changed=False))
    assert found.blockers == ()
    assert [each.path for each in found.warnings if each.reason == "NameTooLong"] == ["metadata.name"]
    for context_ in (now, replace(now, live=live, spec_changed=True)):
        assert list(blockers(host, runs, context_)) == ["metadata.name"], "a graph that is made is made on Grove"
    label = deployment(name="a" * 63)
    assert list(blockers(host, label, replace(now, live=live, spec_changed=False))) == ["metadata.name"]


def test_without_grove_by_setting_its_limit_does_not_hold(host: ProviderHost, deployment: Any, context: Any) -> None:
    long = deployment("m" * 40)
    assert blockers(host, long, context(grove=True)) != {}
    without = host.settings({"grove": False})
    ctx = context(grove=True)
    object.__setattr__(ctx, "settings", without)
    assert blockers(host, long, ctx) == {}


def test_the_namespace_is_part_of_a_label(host: ProviderHost, deployment: Any, context: Any) -> None:
    namespace = "n" * 50
    assert blockers(host, deployment("m" * 12, namespace=namespace), context()) == {}
    (message,) = blockers(host, deployment("m" * 13, namespace=namespace), context()).values()
    assert namespace in message


# -------------------------------------------------------------------------------------------------------- several nodes


def test_gpus_that_cannot_be_spread_evenly(host: ProviderHost, deployment: Any, context: Any) -> None:
    message = blockers(host, deployment(resources={"gpu": {"count": 9}}), context())["spec.resources.gpu.count"]
    assert message.endswith("cannot be spread evenly over 2 nodes: ask for 10")
    split = {**SPLIT, "scaling": {"prefill": ROLE, "decode": {**ROLE, "gpu": {"count": 9}}}}
    assert list(blockers(host, deployment(**split), context())) == ["spec.scaling.decode.gpu.count"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": {"id": "o/m;reboot"}}, "spec.model.id"),
        ({"model": {"id": "o/m", "servedName": "it's"}}, "spec.model.servedName"),
        ({"engine": {"args": {"seed": "$(id)"}}}, "spec.engine.args[seed]"),
        ({"engine": {"extraArgs": ["--seed", "1|2"]}}, "spec.engine.extraArgs[1]"),
        ({"engine": {"extraArgs": ["--a\n--b"]}}, "spec.engine.extraArgs[0]"),
        ({"engine": {"extraArgs": ["größe"]}}, "spec.engine.extraArgs[0]"),
        ({"env": [{"name": "A;B", "value": "x"}]}, "spec.env[0].name"),
    ],
)
def test_over_several_nodes_a_shell_comes_in_between(
    host: ProviderHost, deployment: Any, context: Any, fields: Resource, path: str
) -> None:
    assert path not in blockers(host, deployment(**fields), context()), "on one node words stay words"
    found = blockers(host, deployment(**SIXTEEN, **fields), context())
    assert list(found) == [path]
    assert "shell" in found[path]


def test_over_several_nodes_the_path_of_a_cache_is_a_word_of_that_shell(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    cache = ModelCache(claim="weights", path="/model-cache/a b")
    assert blockers(host, deployment(), context(cache=cache)) == {}
    found = blockers(host, deployment(**SIXTEEN), context(cache=cache))
    assert list(found) == ["spec.model.cache"]
    assert "shell" in found["spec.model.cache"]


# ---------------------------------------------------------------------------------------------------------------- flags


@pytest.mark.parametrize(
    "engine",
    [
        {"args": {"disaggregation-mode": "decode"}},
        {"args": {"disaggregation_mode": "decode"}},
        {"extraArgs": ["--is-prefill-worker"]},
        {"extraArgs": ["--disaggregation-mode=prefill"]},
    ],
)
def test_what_a_worker_does_is_the_modes_to_say(
    host: ProviderHost, deployment: Any, context: Any, engine: Resource
) -> None:
    (message,) = blockers(host, deployment(engine=engine), context()).values()
    assert "spec.serving.mode" in message


def test_a_model_that_looks_like_a_flag(host: ProviderHost, deployment: Any, context: Any) -> None:
    assert list(blockers(host, deployment(model={"id": "--help"}), context())) == ["spec.model.id"]


def test_gpus_of_another_name_before_there_was_a_place_for_it(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    amd = {"image": "registry.example/rocm:1.0.0", "resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}}
    found = blockers(host, deployment(**amd), context(written="v1alpha1-0.6"))
    assert "0.8" in found["spec.resources.gpu.type"]
    assert blockers(host, deployment(**amd), context(written="v1alpha1-0.8")) == {}
    assert (
        "set spec.image" in blockers(host, deployment(**{**amd, "image": None}), context())["spec.resources.gpu.type"]
    )


# ------------------------------------------------------------------------------------------------------------ overrides


@pytest.mark.parametrize(
    ("overrides", "path", "says"),
    [
        ({"routerMode": "fastest"}, "spec.provider.overrides.routerMode", "'round-robin'"),
        ({"frontend": {"replicas": 33}}, "spec.provider.overrides.frontend.replicas", "32"),
        ({"frontend": {"replicas": 0}}, "spec.provider.overrides.frontend.replicas", "1"),
        ({"frontend": {"resources": {"cpu": "513"}}}, "spec.provider.overrides.frontend.resources.cpu", "512"),
        ({"sharedMemory": "5Ti"}, "spec.provider.overrides.sharedMemory", "4Ti"),
        ({"runtimeVersion": "newest"}, "spec.provider.overrides.runtimeVersion", "does not match"),
        ({"scalingAdapter": "yes"}, "spec.provider.overrides.scalingAdapter", "boolean"),
    ],
)
def test_an_override_that_makes_no_sense(host: ProviderHost, overrides: Resource, path: str, says: str) -> None:
    (found,) = check_overrides(overrides, host.manifest.override_schema).errors
    assert (found.path, found.reason) == (path, "InvalidOverride")
    assert says in found.message


def test_an_unknown_key_is_named_with_the_nearest(host: ProviderHost) -> None:
    (found,) = check_overrides({"frontend": {"replicsa": 2}}, host.manifest.override_schema).unknown
    assert "did you mean 'replicas'?" in found.message


@pytest.mark.parametrize(
    ("overrides", "written", "since"),
    [({"scalingAdapter": True}, "v1alpha1-0.6", "0.8"), ({"spec": {"labels": {"a": "b"}}}, "v1alpha1-1.0", "1.1")],
)
def test_an_override_that_the_release_has_no_place_for(
    host: ProviderHost, deployment: Any, context: Any, overrides: Resource, written: str, since: str
) -> None:
    (message,) = blockers(host, deployment(overrides=overrides), context(written=written)).values()
    assert since in message
    assert blockers(host, deployment(overrides=overrides), context()) == {}


@pytest.mark.parametrize(
    ("written", "known", "unknown"),
    [
        ("v1alpha1-1.1", "topologyProfile", "clusterTopologyName"),
        ("v1beta1-1.2", "clusterTopologyName", "topologyProfile"),
    ],
)
def test_a_topology_is_called_as_the_version_has_it(
    host: ProviderHost, deployment: Any, context: Any, written: str, known: str, unknown: str
) -> None:
    def asked(key: str) -> Any:
        return deployment(overrides={"spec": {"topologyConstraint": {"packDomain": "rack", key: "racks"}}})

    assert check_overrides(asked(known).spec.provider.overrides, host.manifest.override_schema).unknown == ()
    assert blockers(host, asked(known), context(written=written)) == {}
    ((path, message),) = blockers(host, asked(unknown), context(written=written)).items()
    assert path == f"spec.provider.overrides.spec.topologyConstraint.{unknown}"
    assert known in message
    for topology in ({"packDomain": "rack"}, {"packDomain": "rack", known: None}, {}):
        nameless = deployment(overrides={"spec": {"topologyConstraint": topology}})
        ((path, message),) = blockers(host, nameless, context(written=written)).items()
        assert path == f"spec.provider.overrides.spec.topologyConstraint.{known}"
        assert f"set {known}" in message


def test_an_account_of_ones_own_needs_the_rights_of_dynamos(host: ProviderHost, deployment: Any, context: Any) -> None:
    (warning,) = host.can_handle(deployment(serviceAccountName="mine"), context()).warnings
    assert (warning.path, warning.reason) == ("spec.serviceAccountName", "MayNotStart")
    assert "llama-8b-k8s-service-discovery" in warning.message


def test_what_has_no_effect_behind_a_pool_is_said(host: ProviderHost, deployment: Any, context: Any) -> None:
    asked = deployment(overrides={"routerMode": "kv", "frontend": {"replicas": 2}})
    warned = [finding.path for finding in host.can_handle(asked, context(pool=True)).warnings]
    assert warned == ["spec.provider.overrides.routerMode", "spec.provider.overrides.frontend"]


def test_over_several_nodes_a_runtime_config_names_no_variable_to_a_shell(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    runtime = RuntimeSettings(env=({"name": "A;reboot", "value": "x"},))
    assert host.can_handle(deployment(), context(runtime=runtime)).ok
    wide = deployment(resources={"gpu": {"count": 16}})
    (blocked,) = host.can_handle(wide, context(grove=True, runtime=runtime)).blockers
    assert (blocked.path, blocked.reason) == ("spec.runtimeConfigName", "BadArguments")
    assert "'A;reboot' is no name for one (env of the runtime config)" in blocked.message


@pytest.mark.parametrize(
    "values",
    [{"runtimeVersion": "newest"}, {"registry": "nvcr.io/x/"}, {"gpusPerNode": 0}, {"grove": "perhaps"}],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused_at_the_start(host: ProviderHost, values: Resource) -> None:
    with pytest.raises(SettingsError, match=next(iter(values))):
        host.settings(values)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_m5_what_is_reserved_on_pods_is_reserved_on_a_graph(
    host: ProviderHost, deployment: Any, context: Any, field: str
) -> None:
    """Second security review, M5: with these labels another deployment of the namespace would count the pods as its."""
    keys = ("airunway.ai/model-deployment", "nvidia.com/dynamo-graph-deployment-name", "grove.io/x")
    wished = {"spec": {field: {**dict.fromkeys(keys, "other"), "team": "a"}}}
    found = blockers(host, deployment(overrides=wished), context())
    assert set(found) == {f"spec.provider.overrides.spec.{field}[{key}]" for key in keys}
    assert all("reserved for the operators: remove it" in message for message in found.values())
    assert blockers(host, deployment(overrides={"spec": {field: {"team": "a"}}}), context()) == {}


NAMES = tuple(transformer.name for transformer in TRANSFORMERS)
GRAPH = "DynamoGraphDeployment.nvidia.com"
PROTECTING = [
    *(("vllm", flag) for flag in ("api-key", "ssl-certfile", "ssl_keyfile", "middleware", "api-k")),
    *(("sglang", flag) for flag in ("api-key", "admin-api-key", "ssl-keyfile", "ssl-keyfile-pass")),
]


@pytest.mark.parametrize(("engine", "flag"), PROTECTING)
@pytest.mark.parametrize("written", [NAMES[0], NAMES[-1]])
def test_a_flag_that_would_protect_is_refused_as_dynamo_s_frontend_takes_the_requests(
    host: ProviderHost, deployment: Any, context: Any, engine: str, flag: str, written: str
) -> None:
    """A switch from a provider that starts the engine's own server must not open what that closed."""
    for given in ({"args": {flag: "x"}}, {"extraArgs": [f"--{flag}=x"]}):
        asked = deployment(engine=given)
        (found,) = host.can_handle(asked, context(engine, written=written)).blockers
        assert (found.reason, found.path.startswith("spec.engine.")) == ("ProtectsNothing", True)
        assert "protects nothing with Dynamo" in found.message
        assert "a gateway or a NetworkPolicy" in found.message
        runs = host.can_handle(asked, context(engine, written=NAMES[0], live=GRAPH))
        assert runs.ok, "what runs is not taken away by an upgrade"
        assert "ProtectsNothing" in [warning.reason for warning in runs.warnings]


def test_the_variable_that_would_protect_is_refused_wherever_it_comes_from(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    key = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}
    (found,) = host.can_handle(deployment(env=[key]), context()).blockers
    assert (found.path, found.reason) == ("spec.env[0]", "ProtectsNothing")
    for_all = context(runtime=RuntimeSettings(env=(key,)))
    (found,) = host.can_handle(deployment(), for_all).blockers
    assert (found.path, found.reason) == ("spec.env", "ProtectsNothing")
    assert "the runtime config" in found.message
    open_on_purpose = deployment(env=[{"name": "VLLM_API_KEY", "value": ""}])
    assert host.can_handle(open_on_purpose, for_all).ok, "who says so may"
    assert host.can_handle(deployment(env=[key]), context("sglang")).ok, "SGLang has no such variable"


def test_other_flags_of_the_engines_http_server_are_said_to_have_no_effect(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    for engine, flag in (("vllm", "root-path"), ("sglang", "fastapi-root-path")):
        found = host.can_handle(deployment(engine={"args": {flag: "/x"}}), context(engine))
        assert found.ok
        assert found.warnings[0].message.startswith(f"{flag} is of the engine's HTTP server; with Dynamo")
