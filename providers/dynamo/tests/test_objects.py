"""The graph: in both versions, for every engine and mode, with the flags of every release of the runtime images."""

from dataclasses import replace
from typing import Any

import pytest

from airunway.plugins.contract import ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway.sdk import FLAGS_BY_RELEASE
from airunway_dynamo.manifest import TRANSFORMERS
from airunway_dynamo.settings import Settings

NAMES = [transformer.name for transformer in TRANSFORMERS]
ALPHA = [name for name in NAMES if name.startswith("v1alpha1")]
BETA = [name for name in NAMES if name.startswith("v1beta1")]
ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "16Gi"}
SPLIT = {"resources": None, "serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}}
JSON_NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def graph(host: ProviderHost, deployment: Any, context: Any) -> Resource:
    assert host.can_handle(deployment, context).blockers == ()
    (found,) = host.translate_spec(deployment, context).objects
    return found


def parts(found: Resource) -> dict[str, Resource]:
    """The components by name, with ``main`` for their container, in either version."""
    if "services" in found["spec"]:
        return {
            name: {**service, "main": {**service["extraPodSpec"]["mainContainer"], "env": service.get("envs", [])}}
            for name, service in found["spec"]["services"].items()
        }
    return {
        component["name"]: {**component, "main": component["podTemplate"]["spec"]["containers"][0]}
        for component in found["spec"]["components"]
    }


def secret_of(part: Resource) -> str:
    """The Secret whose keys are variables of a component, in either version."""
    if "envFromSecret" in part:
        return str(part["envFromSecret"])
    (source,) = part["main"]["envFrom"]
    return str(source["secretRef"]["name"])


def env_of(part: Resource) -> dict[str, Any]:
    """The variables of a component, but for its home and user name, which every one gets."""
    found = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in part["main"].get("env", [])}
    return {name: value for name, value in found.items() if name not in ("HOME", "USER")}


@pytest.mark.parametrize("written", NAMES)
def test_one_plan_is_written_in_every_version(host: ProviderHost, deployment: Any, context: Any, written: str) -> None:
    found = graph(host, deployment(), context(written=written))
    assert found["apiVersion"] == f"nvidia.com/{written.partition('-')[0]}"
    assert found["spec"]["backendFramework"] == "vllm"
    components = parts(found)
    assert list(components) == ["Frontend", "worker"]
    assert components["worker"]["main"]["command"] == ["python3", "-m", "dynamo.vllm"]
    assert components["worker"]["main"]["args"] == [
        "--model",
        "meta-llama/Llama-3.1-8B-Instruct",
        "--served-model-name=Llama-3.1-8B-Instruct",
    ]
    assert env_of(components["Frontend"]) == {"DYN_ROUTER_MODE": "round-robin"}
    assert "command" not in components["Frontend"]["main"], "the operator knows how a frontend is started"


def test_v1beta1_has_native_pods_and_v1alpha1_has_its_own_words(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    asked = deployment(resources={"gpu": {"count": 2}, "memory": "32Gi", "cpu": "4"})
    beta = parts(graph(host, asked, context()))["worker"]
    assert beta["type"] == "worker"
    assert beta["main"]["name"] == "main"
    assert beta["main"]["resources"] == {
        "requests": {"nvidia.com/gpu": "2", "memory": "32Gi", "cpu": "4"},
        "limits": {"nvidia.com/gpu": "2", "memory": "32Gi"},
    }
    alpha = parts(graph(host, asked, context(written="v1alpha1-1.0")))["worker"]
    assert alpha["componentType"] == "worker"
    assert alpha["resources"] == {
        "requests": {"gpu": "2", "memory": "32Gi", "cpu": "4"},
        "limits": {"gpu": "2", "memory": "32Gi"},
    }
    assert "name" not in alpha["main"]
    labels = alpha["extraPodMetadata"]["labels"]
    assert (labels["airunway.ai/model-deployment"], labels["airunway.ai/provider"]) == ("llama-8b", "dynamo")


@pytest.mark.parametrize("written", NAMES)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_prefill_and_decode_apart(host: ProviderHost, deployment: Any, context: Any, engine: str, written: str) -> None:
    found = graph(host, deployment(**SPLIT), context(engine, written=written))
    components = parts(found)
    assert list(components) == ["Frontend", "prefill", "decode"]
    if written in BETA:
        assert [components[role]["type"] for role in ("prefill", "decode")] == ["prefill", "decode"]
    else:
        assert [components[role]["componentType"] for role in ("prefill", "decode")] == ["worker", "worker"]
        known = [components[role].get("subComponentType") for role in ("prefill", "decode")]
        assert known == ([None, None] if written.startswith("v1alpha1-0.4.1") else ["prefill", "decode"])


VLLM_ROLES = {
    "0.6.0": (["--is-prefill-worker"], []),
    "0.6.1": (["--is-prefill-worker"], ["--is-decode-worker"]),
    "0.9.1": (["--is-prefill-worker"], ["--is-decode-worker"]),
    **{
        release: tuple(
            ["--disaggregation-mode", role, "--kv-transfer-config", JSON_NIXL] for role in ("prefill", "decode")
        )
        for release in ("1.0.0", "1.3.1", "1.4.0", "2.0.0")
    },
}


@pytest.mark.parametrize("release", VLLM_ROLES)
def test_a_role_is_told_as_the_release_of_the_image_understands_it(
    host: ProviderHost, deployment: Any, context: Any, release: str
) -> None:
    image = f"registry.example/ai-dynamo/vllm-runtime:{release}"
    components = parts(graph(host, deployment(image=image, **SPLIT), context(written="v1alpha1-1.0")))
    for role, expected in zip(("prefill", "decode"), VLLM_ROLES[release], strict=True):
        assert components[role]["main"]["args"][2:-1] == expected


def test_the_roles_of_other_engines(host: ProviderHost, deployment: Any, context: Any) -> None:
    sglang = parts(graph(host, deployment(**SPLIT), context("sglang")))
    assert sglang["prefill"]["main"]["args"][:4] == [
        "--model-path",
        "meta-llama/Llama-3.1-8B-Instruct",
        "--disaggregation-mode",
        "prefill",
    ]
    assert "--disaggregation-bootstrap-port" in sglang["decode"]["main"]["args"]
    trtllm = parts(graph(host, deployment(**SPLIT), context("trtllm")))
    assert '{"cache_transceiver_config":{"backend":"DEFAULT"}}' in trtllm["decode"]["main"]["args"]
    assert any("disable_overlap_scheduler" in word for word in trtllm["prefill"]["main"]["args"])
    assert trtllm["decode"]["main"]["image"].endswith("/tensorrtllm-runtime:1.3.1")


@pytest.mark.parametrize(
    ("release", "engine", "flag"),
    [
        ("0.9.1", "vllm", None),
        ("1.0.0", "vllm", "--kv-events-config"),
        ("1.3.1", "sglang", "--kv-events-config"),
        ("1.3.1", "trtllm", "--publish-events-and-metrics"),
        ("1.6.1", "trtllm", "--publish-kv-events"),
    ],
)
def test_a_router_by_cache_is_told_what_workers_hold(
    host: ProviderHost, deployment: Any, context: Any, release: str, engine: str, flag: str | None
) -> None:
    asked = {"image": f"registry.example/runtime:{release}", "overrides": {"routerMode": "kv"}}
    whole = parts(graph(host, deployment(**asked), context(engine)))
    assert env_of(whole["Frontend"])["DYN_ROUTER_MODE"] == "kv"
    said = {word for word in whole["worker"]["main"]["args"] if word.startswith(("--kv-ev", "--publish"))}
    assert said == ({flag} if flag else set())
    split = parts(graph(host, deployment(**asked, **SPLIT), context(engine)))
    assert (flag in split["prefill"]["main"]["args"]) is bool(flag)
    assert flag not in split["decode"]["main"]["args"], "it caches nothing that a later request could be sent to"


def test_no_router_mode_leaves_the_choice_to_dynamo(host: ProviderHost, deployment: Any, context: Any) -> None:
    found = parts(graph(host, deployment(overrides={"routerMode": "none"}), context()))
    assert env_of(found["Frontend"]) == {}


def test_a_flag_of_the_user_takes_the_place_of_a_derived_one(host: ProviderHost, deployment: Any, context: Any) -> None:
    for engine in ({"args": {"kv-transfer-config": "{}"}}, {"extraArgs": ["--kv-transfer-config={}"]}):
        args = parts(graph(host, deployment(engine=engine, **SPLIT), context()))["decode"]["main"]["args"]
        assert JSON_NIXL not in args
        assert "--kv-transfer-config={}" in args


def test_the_frontend_is_as_large_as_the_overrides_say(host: ProviderHost, deployment: Any, context: Any) -> None:
    wished = {"frontend": {"replicas": 2, "resources": {"cpu": "4", "memory": "8Gi"}}}
    for written in (ALPHA[-1], BETA[-1]):
        frontend = parts(graph(host, deployment(overrides=wished), context(written=written)))["Frontend"]
        assert frontend["replicas"] == 2
        resources = frontend.get("resources") or frontend["main"]["resources"]
        assert resources == {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}


@pytest.mark.parametrize("written", [ALPHA[-1], BETA[-1]])
def test_what_an_adapter_scales_has_no_replicas_of_ours(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    asked, ctx = deployment(overrides={"scalingAdapter": True}), context(written=written)
    components = parts(graph(host, asked, ctx))
    assert "replicas" not in components["worker"]
    assert components["worker"]["scalingAdapter"] == ({} if written in BETA else {"enabled": True})
    assert components["Frontend"]["replicas"] == 1
    assert [finding.path for finding in host.can_handle(asked, ctx).warnings] == ["spec.scaling.replicas"]


# -------------------------------------------------------------------------------------------------------- several nodes


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ["--tensor-parallel-size", "8", "--pipeline-parallel-size", "2"]),
        ("sglang", ["--tp-size=16"]),
        ("trtllm", ["--tensor-parallel-size", "16"]),
    ],
)
def test_a_worker_with_more_gpus_than_a_node_runs_on_several(
    host: ProviderHost, deployment: Any, context: Any, engine: str, words: list[str]
) -> None:
    asked = deployment(resources={"gpu": {"count": 16}, "memory": "1Ti"})
    for written in (ALPHA[-1], BETA[-1]):
        worker = parts(graph(host, asked, context(engine, written=written)))["worker"]
        assert worker["multinode"] == {"nodeCount": 2}
        assert worker["main"]["args"][-len(words) :] == words, "two words: the operator does not read joined ones"
        resources = worker.get("resources") or worker["main"]["resources"]
        assert resources["limits"]["gpu" if written in ALPHA else "nvidia.com/gpu"] == "8"


def test_the_topology_is_what_needs_another_graph(host: ProviderHost, deployment: Any, context: Any) -> None:
    def replaced_on(**fields: Any) -> Any:
        return host.translate_spec(deployment(**fields), context()).replace_on

    plain = replaced_on()
    assert plain == replaced_on(scaling={"replicas": 3}), "a number changes in place"
    assert plain == replaced_on(overrides={"routerMode": "kv"})
    assert plain != replaced_on(**SPLIT)
    assert plain != replaced_on(resources={"gpu": {"count": 16}})
    adapted = replaced_on(overrides={"scalingAdapter": True})
    assert plain["components"] != adapted["components"], "the operator lets nobody change replicas with the adapter"
    paths = ("spec.backendFramework", "spec.topologyConstraint.*")
    assert all(t.immutable == paths for t in host.transformers)


def test_grove_can_be_left_aside(host: ProviderHost, deployment: Any, context: Any) -> None:
    assert "annotations" not in graph(host, deployment(), context())["metadata"]
    ctx = replace(context(), settings=Settings(grove=False))
    assert graph(host, deployment(), ctx)["metadata"]["annotations"] == {"nvidia.com/enable-grove": "false"}


# --------------------------------------------------------------------------------------------------- versions of things


@pytest.mark.parametrize("written", NAMES)
def test_only_releases_that_need_it_are_told_a_namespace_of_dynamos_own(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    found = graph(host, deployment(namespace="team-a"), context(written=written))
    expected = "team-a-llama-8b" if written.startswith("v1alpha1-0.") else None
    assert {part.get("dynamoNamespace") for part in parts(found).values()} == {expected}


@pytest.mark.parametrize("written", NAMES)
def test_a_release_that_the_tag_does_not_name_is_written_where_there_is_a_place_for_it(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    asked = deployment(image="registry.example/mine:latest", overrides={"runtimeVersion": "1.3.1"}, **SPLIT)
    found = parts(graph(host, asked, context(written=written)))
    expected = "1.3.1" if written.startswith("v1beta1-1.4") else None
    assert {part.get("runtimeVersionOverride") for part in found.values()} == {expected}
    assert "--disaggregation-mode" in found["decode"]["main"]["args"]
    named = graph(host, deployment(image="registry.example/mine:1.3.1"), context(written=written))
    assert {part.get("runtimeVersionOverride") for part in parts(named).values()} == {None}


def test_pods_of_releases_that_do_not_label_them_all_get_the_operators_labels(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    old = parts(graph(host, deployment(**SPLIT), context(written="v1alpha1-0.4.1")))
    labels = [old[name]["extraPodMetadata"]["labels"] for name in ("Frontend", "prefill")]
    assert [label["nvidia.com/dynamo-graph-deployment-name"] for label in labels] == ["llama-8b", "llama-8b"]
    assert [label["nvidia.com/dynamo-component-type"] for label in labels] == ["frontend", "worker"]
    newer = parts(graph(host, deployment(), context(written="v1alpha1-0.6")))
    assert not any(key.startswith("nvidia.com/") for key in newer["worker"]["extraPodMetadata"]["labels"])


@pytest.mark.parametrize("written", ["v1alpha1-0.8", BETA[-1]])
def test_gpus_of_another_name(host: ProviderHost, deployment: Any, context: Any, written: str) -> None:
    asked = deployment(image="registry.example/rocm:1.3.1", resources={"gpu": {"count": 1, "type": "amd.com/gpu"}})
    worker = parts(graph(host, asked, context(written=written)))["worker"]
    if written in BETA:
        assert worker["main"]["resources"]["limits"] == {"amd.com/gpu": "1"}
    else:
        assert worker["resources"]["limits"] == {"gpu": "1", "gpuType": "amd.com/gpu"}


# ------------------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("written", [ALPHA[-1], BETA[-1]])
def test_what_belongs_into_a_pod_is_in_every_one(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    asked = deployment(
        env=[{"name": "A", "value": "b"}],
        secrets={"huggingFaceToken": "hf"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        nodeSelector={"pool": "a"},
        podTemplate={"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}},
        priorityClassName="high",
        serviceAccountName="sa",
    )
    runtime = RuntimeSettings(env=({"name": "B", "value": "c"},), token="other")
    cache = ModelCache(claim="weights")
    for part in parts(graph(host, asked, context(written=written, runtime=runtime, cache=cache))).values():
        pod = part.get("extraPodSpec") or part["podTemplate"]["spec"]
        metadata = part.get("extraPodMetadata") or part["podTemplate"]["metadata"]
        assert env_of(part).items() >= {"A": "b", "B": "c", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}.items()
        assert secret_of(part) == "hf", "every key is a variable"
        assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"pool": "a"}, "high")
        assert "HF_HOME" not in env_of(part), "engines write there, and the cache is read-only"
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "weights", "readOnly": True}
        assert (metadata["labels"]["team"], metadata["annotations"]) == ("x", {"note": "y"})
        assert not [v for v in pod["volumes"] if "emptyDir" in v], "the operator mounts shared memory itself"


@pytest.mark.parametrize("written", [ALPHA[-1], BETA[-1]])
@pytest.mark.parametrize("pool", [False, True])
def test_c22_a_runtime_config_reaches_every_component(
    host: ProviderHost, deployment: Any, context: Any, written: str, pool: bool
) -> None:
    runtime = RuntimeSettings(
        env=({"name": "A", "value": "config"}, {"name": "B", "value": "config"}),
        labels={"org.example/team": "x", "airunway.ai/component": "other"},
        image_pull_secrets=("shared",),
        token="config-token",
    )
    asked = deployment(env=[{"name": "A", "value": "own"}], imagePullSecrets=[{"name": "own"}], **SPLIT)
    made = parts(graph(host, asked, context(written=written, runtime=runtime, pool=pool)))
    assert list(made) == ["Epp" if pool else "Frontend", "prefill", "decode"]
    for name, part in made.items():
        pod = part.get("extraPodSpec") or part["podTemplate"]["spec"]
        labels = (part.get("extraPodMetadata") or part["podTemplate"]["metadata"])["labels"]
        assert (env_of(part)["A"], env_of(part)["B"]) == ("own", "config")
        assert secret_of(part) == "config-token"
        assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
        assert (labels["org.example/team"], labels["airunway.ai/component"]) == ("x", name.lower())


def live_graph(host: ProviderHost, deployment: Any, context: Any, *, pool: bool) -> Resource:
    made: Resource = graph(host, deployment(), context(pool=pool))
    return made


@pytest.mark.parametrize("changed", [False, True])
def test_r14_a_gateway_that_comes_later_changes_no_component_of_a_live_graph(
    host: ProviderHost, deployment: Any, context: Any, changed: bool
) -> None:
    live = live_graph(host, deployment, context, pool=False)
    around = context(pool=True, graph=live, changed=changed)
    assert graph(host, deployment(), around) == live
    assert host.can_handle(deployment(), around).warnings == ()


def test_routing_switched_off_later_leaves_the_graph_until_the_spec_changes(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    live = live_graph(host, deployment, context, pool=True)
    around = context(graph=live)
    assert graph(host, deployment(), around) == live
    (said,) = host.can_handle(deployment(), around).warnings
    assert (said.path, said.reason) == ("spec.gateway", "GraphKeepsPool")
    assert "next change of the spec makes a new graph with a Frontend" in said.message
    other = graph(host, deployment(), context(graph=live, changed=True))
    assert list(parts(other)) == ["Frontend", "worker"]
    assert host.can_handle(deployment(), context(graph=live, changed=True)).warnings == ()


def test_a_graph_made_for_a_pool_keeps_it_while_routing_stays(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    live = live_graph(host, deployment, context, pool=True)
    assert list(parts(graph(host, deployment(), context(graph=live, pool=True, changed=True)))) == ["Epp", "worker"]


@pytest.mark.parametrize("spec", ["junk", {"components": "x"}, {"components": [1, {}]}, {"services": ["Epp"]}, None])
def test_a_live_graph_may_hold_any_json(host: ProviderHost, deployment: Any, context: Any, spec: Any) -> None:
    around = context(graph={"kind": "DynamoGraphDeployment", "spec": spec}, pool=True)
    assert list(parts(graph(host, deployment(), around))) == ["Frontend", "worker"]


def test_shared_memory_is_a_field_of_the_graph(host: ProviderHost, deployment: Any, context: Any) -> None:
    asked = deployment(overrides={"sharedMemory": "32Gi"})
    beta = parts(graph(host, asked, context()))
    assert (beta["worker"]["sharedMemorySize"], "sharedMemorySize" in beta["Frontend"]) == ("32Gi", False)
    alpha = parts(graph(host, asked, context(written=ALPHA[0])))
    assert alpha["worker"]["sharedMemory"] == {"size": "32Gi"}


@pytest.mark.parametrize("written", [ALPHA[-1], BETA[-1]])
@pytest.mark.parametrize("split", [False, True])
def test_behind_a_gateways_pool_a_picker_takes_the_place_of_the_frontend(
    host: ProviderHost, deployment: Any, context: Any, written: str, split: bool
) -> None:
    asked = deployment(**(SPLIT if split else {}))
    components = parts(graph(host, asked, context(written=written, pool=True)))
    assert list(components) == (["Epp", "prefill", "decode"] if split else ["Epp", "worker"])
    config = components["Epp"]["eppConfig"]["config"]
    assert [profile["name"] for profile in config["schedulingProfiles"]] == (
        ["prefill", "decode"] if split else ["decode"]
    )
    assert env_of(components["Epp"]) == {
        "DYN_DECODE_FALLBACK": str(not split).lower(),
        "DYN_ENFORCE_DISAGG": str(split).lower(),
    }
    worker = components["decode" if split else "worker"]
    if written in BETA:
        names = [container["name"] for container in worker["podTemplate"]["spec"]["containers"]]
        assert (names, worker["frontendSidecar"]) == (["main", "sidecar-frontend"], "sidecar-frontend")
    else:
        assert worker["frontendSidecar"]["args"] == ["-m", "dynamo.frontend", "--router-mode", "direct"]


def test_a45_a_frontend_beside_a_worker_mounts_the_cache_too(host: ProviderHost, deployment: Any, context: Any) -> None:
    """It reads the tokenizer from the path that the worker announces."""
    cache = ModelCache(claim="weights", sub_path="model")
    pooled = context(written=BETA[-1], pool=True, cache=cache)
    assert host.can_handle(deployment(), pooled).blockers == ()
    pod = parts(graph(host, deployment(), pooled))["worker"]["podTemplate"]["spec"]
    mount = {"name": "airunway-model-cache", "mountPath": "/model-cache", "subPath": "model", "readOnly": True}
    for container in pod["containers"]:
        assert mount in container["volumeMounts"], container["name"]
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert env["HF_HUB_OFFLINE"] == "1", container["name"]


def test_a45_v1alpha1_cannot_mount_the_cache_in_a_frontend_beside_a_worker(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    cache = ModelCache(claim="weights")
    (refused,) = host.can_handle(deployment(), context(written=ALPHA[-1], pool=True, cache=cache)).blockers
    assert refused.path == "spec.model.cache.mode"
    assert "since release 1.2" in refused.message
    assert host.can_handle(deployment(), context(written=ALPHA[-1], cache=cache)).blockers == ()


@pytest.mark.parametrize("written", [ALPHA[-1], BETA[-1]])
def test_a_picker_keeps_the_account_that_the_operator_gives_it(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    asked = deployment(serviceAccountName="mine")
    components = parts(graph(host, asked, context(written=written, pool=True)))
    pods = {name: part.get("extraPodSpec") or part["podTemplate"]["spec"] for name, part in components.items()}
    assert {name: pod.get("serviceAccountName") for name, pod in pods.items()} == {"Epp": None, "worker": "mine"}


@pytest.mark.parametrize(("release", "configured"), [("1.4.2", True), ("1.5.0", False), ("1.10.0", False)])
def test_a_picker_since_1_5_is_not_configured(
    host: ProviderHost, deployment: Any, context: Any, release: str, configured: bool
) -> None:
    components = parts(graph(host, deployment(), context(pool=True, runtime_version=release)))
    assert ("eppConfig" in components["Epp"]) is configured, "the operator asks for one before 1.5 and refuses it since"


def test_a_release_that_knows_no_pool_keeps_its_frontend_and_says_so(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    ctx = context(written="v1alpha1-1.0", pool=True)
    assert "Frontend" in parts(graph(host, deployment(), ctx))
    assert [finding.path for finding in host.can_handle(deployment(), ctx).warnings] == ["spec.gateway"]


def test_the_seeds_third_example_gives_a_working_object(host: ProviderHost, deployment: Any, context: Any) -> None:
    """004, example 3: prefill and decode with routing by cache; what it got wrong is right here."""
    asked = deployment(
        "llama-70b-pd",
        model={"id": "meta-llama/Llama-3.1-70B-Instruct", "source": "huggingface"},
        overrides={
            "routerMode": "kv",
            "frontend": {"replicas": 2, "resources": {"cpu": "4", "memory": "8Gi"}},
        },
        engine={"type": "vllm"},
        resources=None,
        serving={"mode": "disaggregated"},
        scaling={
            "prefill": {"replicas": 2, "gpu": {"count": 4}, "memory": "128Gi"},
            "decode": {"replicas": 4, "gpu": {"count": 2}, "memory": "64Gi"},
        },
        secrets={"huggingFaceToken": "hf-token"},
    )
    for written in NAMES:
        components = parts(graph(host, asked, context(written=written)))
        assert {name: part["replicas"] for name, part in components.items()} == {
            "Frontend": 2,
            "prefill": 2,
            "decode": 4,
        }
        assert env_of(components["Frontend"])["DYN_ROUTER_MODE"] == "kv", "no field of a service is called router-mode"
        prefill, decode = (components[role]["main"] for role in ("prefill", "decode"))
        assert prefill["args"][-2:] == ["--tensor-parallel-size", "4"]
        assert decode["args"][-2:] == ["--tensor-parallel-size", "2"]
        assert prefill["command"] == ["python3", "-m", "dynamo.vllm"], "words, not a line for a shell"
    warned = host.can_handle(asked, context()).warnings
    assert [finding.path for finding in warned] == ["spec.scaling.decode.gpu.count"], "fewer GPUs to decode than before"


@pytest.mark.parametrize("written", ["v1alpha1-0.8-r2", "v1alpha1-0.8-r3", ALPHA[-1], BETA[-1]])
def test_m1_every_component_is_hardened_and_keeps_the_token_by_which_it_is_found(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    found = parts(graph(host, deployment(**SPLIT), context(written=written)))
    assert found.keys() == {"Frontend", "prefill", "decode"}
    for part in found.values():
        pod = part["extraPodSpec"] if written in ALPHA else part["podTemplate"]["spec"]
        assert part["main"]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        # The operator gives volumes to the group of its images only where the pod says nothing of its own.
        assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 1000}
        assert "automountServiceAccountToken" not in pod


def test_m1_a_frontend_beside_a_worker_is_hardened_too(host: ProviderHost, deployment: Any, context: Any) -> None:
    worker = parts(graph(host, deployment(), context(pool=True)))["worker"]
    main, beside = worker["podTemplate"]["spec"]["containers"]
    assert (main["name"], beside["name"]) == ("main", "sidecar-frontend")
    assert beside["securityContext"] == main["securityContext"] != {}


@pytest.mark.parametrize(("gpus", "hardened"), [(8, True), (16, False)])
def test_nodes_of_tensorrt_llm_that_reach_each_other_by_ssh_keep_their_privileges(
    host: ProviderHost, deployment: Any, context: Any, *, gpus: int, hardened: bool
) -> None:
    asked = deployment(engine={"type": "trtllm"}, resources={"gpu": {"count": gpus}})
    found = parts(graph(host, asked, context("trtllm", grove=True)))
    assert ("securityContext" in found["worker"]["main"]) is hardened
    assert "securityContext" in found["Frontend"]["main"]


def test_real_llmd_11_what_an_earlier_generation_wrote_keeps_the_flag_s_old_name(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    asked = deployment(image="registry.example/runtime:1.6.1", overrides={"routerMode": "kv"})
    first = context("trtllm", written=next(t.name for t in TRANSFORMERS if FLAGS_BY_RELEASE not in t.features))
    args = parts(graph(host, asked, first))["worker"]["main"]["args"]
    assert "--publish-events-and-metrics" in args


VOLUMES = [
    {"name": "weights", "claimName": "w", "mountPath": "/models", "purpose": "modelCache"},
    {"name": "kernels", "claimName": "k", "mountPath": "/compiled", "purpose": "compilationCache"},
]


@pytest.mark.parametrize("written", ["v1beta1-1.2", "v1beta1-1.2-r3", "v1beta1-1.4-r2", "v1beta1-1.4-r3"])
@pytest.mark.parametrize("volumes", [VOLUMES, [{"name": "t", "claimName": "t", "mountPath": "/tmp"}]])
def test_a_frontend_beside_a_worker_has_what_its_variables_name(
    host: ProviderHost, deployment: Any, context: Any, written: str, volumes: list[Any]
) -> None:
    """A writable ``/tmp`` with a read-only root, and no variables for volumes that it does not mount."""
    wanted = deployment(
        model={"id": "m", "storage": {"volumes": volumes}},
        securityContext={"readOnlyRootFilesystem": True},
        env=[{"name": "A", "value": "b"}],
    )
    ctx = context(written=written, pool=True, cache=ModelCache(claim="c", mount_path="/cache"))
    spec = parts(graph(host, wanted, ctx))["worker"]["podTemplate"]["spec"]
    main, beside = spec["containers"]
    mine = {entry["name"]: entry["value"] for entry in beside["env"]}
    assert (mine["A"], mine["HOME"], mine["HF_HUB_OFFLINE"]) == ("b", "/tmp", "1")
    mounted = {mount["mountPath"] for mount in beside["volumeMounts"]}
    assert {mount["name"] for mount in beside["volumeMounts"]} <= {volume["name"] for volume in spec["volumes"]}
    named = mine.keys() & {"HF_HOME", "VLLM_CACHE_ROOT"}
    if written.endswith("-r3"):
        assert (mounted, named) == ({"/cache", "/tmp"}, set())
    else:
        assert mounted == {"/cache"}, "what is released goes on as it was"
        assert bool(named) == (volumes == VOLUMES)
    if volumes == VOLUMES:
        assert {"HF_HOME", "VLLM_CACHE_ROOT"} <= env_of({"main": main}).keys(), "the worker mounts them"


@pytest.mark.parametrize(("written", "named"), [("v1alpha1-1.1-r2", 2), ("v1alpha1-1.1-r3", 0)])
def test_a_frontend_of_v1alpha1_can_mount_nothing_and_has_no_variables_of_volumes(
    host: ProviderHost, deployment: Any, context: Any, written: str, named: int
) -> None:
    wanted = deployment(model={"id": "m", "storage": {"volumes": VOLUMES}}, env=[{"name": "A", "value": "b"}])
    beside = parts(graph(host, wanted, context(written=written, pool=True)))["worker"]["frontendSidecar"]
    names = {entry["name"] for entry in beside["envs"]}
    assert "A" in names
    assert len(names & {"HF_HOME", "VLLM_CACHE_ROOT"}) == named


@pytest.mark.parametrize("written", NAMES)
def test_labels_by_which_the_operators_select_are_not_the_users(
    host: ProviderHost, deployment: Any, context: Any, written: str
) -> None:
    """All of the manifest's, in the pods and in the warnings; what is released goes on as it was."""
    app = [f"app.kubernetes.io/{key}" for key in ("component", "managed-by", "name", "part-of")]
    asked = {**dict.fromkeys(app, "mine"), "nvidia.com/x": "y", "team": "a"}
    wanted, ctx = deployment(podTemplate={"metadata": {"labels": asked}}), context(written=written)
    left_out = {"nvidia.com/x", *(app if written.endswith("-r3") else [])}
    for part in parts(graph(host, wanted, ctx)).values():
        found = part["podTemplate"]["metadata"] if written in BETA else part["extraPodMetadata"]
        assert asked.keys() & found["labels"].keys() == set(asked) - left_out
    warned = {finding.path for finding in host.can_handle(wanted, ctx).warnings if "podTemplate" in finding.path}
    assert warned == {f"spec.podTemplate.metadata.labels[{key}]" for key in left_out}
