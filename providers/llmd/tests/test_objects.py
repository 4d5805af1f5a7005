"""What a deployment becomes: servers, Service, pool and picker; prefill and decode apart; several nodes."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import airunway_llmd
from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Context, Observed, RuntimeSettings, Upstream
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway.validation import validate
from airunway_llmd.manifest import TRANSFORMERS

POOLED = {"airunway.ai/inference-pool": "llama"}


def named(host: ProviderHost, wanted: Any, context: Any) -> dict[str, Resource]:
    """What is written, by kind and name."""
    assert host.can_handle(wanted, context).blockers == ()
    objects = host.translate_spec(wanted, context).objects
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in objects}


def pod(obj: Resource) -> Resource:
    found: Resource = dig(obj, "spec", "template") or dig(obj, "spec", "leaderWorkerTemplate", "leaderTemplate")
    return found


def test_a_model_is_servers_a_service_and_a_pool_with_its_picker(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    found = named(host, deployment(), context())
    assert list(found) == [
        "Deployment llama",
        "Service llama",
        "ServiceAccount llama-epp",
        "Role llama-epp",
        "RoleBinding llama-epp",
        "ConfigMap llama-epp",
        "InferencePool llama",
        "Service llama-epp",
        "Deployment llama-epp",
    ], "rights and configuration are made before the pool, and that before the picker (recorded: it waits for each)"
    server, pool = found["Deployment llama"], found["InferencePool llama"]
    assert pod(server)["metadata"]["labels"].items() >= POOLED.items()
    assert pool["spec"] == {
        "selector": {"matchLabels": POOLED},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {
            "kind": "Service",
            "name": "llama-epp",
            "port": {"number": 9002},
            "failureMode": "FailOpen",
        },
    }
    assert "initContainers" not in pod(server)["spec"]
    assert found["Service llama"]["spec"]["selector"]["airunway.ai/component"] == "server"


def test_without_the_inference_extension_there_is_a_plain_service_and_pods_are_the_same(
    host: ProviderHost, deployment: Any, apart: Any, context: Any
) -> None:
    """So nothing that serves restarts when it is installed later."""
    for wanted in (deployment(), apart()):
        with_, without = (named(host, wanted, context(pool=pool)) for pool in (True, False))
        assert {name for name in with_ if name not in without} == {
            "InferencePool llama",
            *(f"{kind} llama-epp" for kind in ("ServiceAccount", "Role", "RoleBinding", "ConfigMap")),
            *(f"{kind} llama-epp" for kind in ("Service", "Deployment")),
        }
        assert {name: with_[name] for name in without} == without
        warnings = host.can_handle(wanted, context(pool=False)).warnings
        assert "plain Service" in warnings[0].message
        assert host.can_handle(wanted, context()).warnings == ()


def test_the_picker_gets_flags_configuration_and_rights_that_it_understands(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    found = named(host, deployment(), context())
    (container,) = pod(found["Deployment llama-epp"])["spec"]["containers"]
    assert container["args"] == [
        "--pool-name=llama",
        "--pool-namespace=$(NAMESPACE)",
        "--pool-group=inference.networking.k8s.io",
        "--config-file=/config/picker.yaml",
        "--grpc-health-port=9003",
        "--tracing=false",
        "--metrics-endpoint-auth=false",
        "--enable-pprof=false",
    ]
    assert container["readinessProbe"]["grpc"] == {"port": 9003}
    assert container["startupProbe"]["tcpSocket"] == {"port": 9002}, "it answers health checks before it listens"
    assert container["livenessProbe"]["tcpSocket"] == {"port": 9003}, "its own health would kill it for want of a pool"
    (readable,) = {tuple(rule["verbs"]) for rule in found["Role llama-epp"]["rules"]}
    assert readable == ("get", "list", "watch")
    resources = {
        (g, r) for rule in found["Role llama-epp"]["rules"] for g in rule["apiGroups"] for r in rule["resources"]
    }
    assert resources == {
        ("", "pods"),
        ("inference.networking.k8s.io", "inferencepools"),
        *((g, "inferenceobjectives") for g in ("llm-d.ai", "inference.networking.x-k8s.io")),
        *((g, "inferencemodelrewrites") for g in ("llm-d.ai", "inference.networking.x-k8s.io")),
    }, "recorded: one that is missing is as bad as none"
    assert found["RoleBinding llama-epp"]["subjects"] == [{"kind": "ServiceAccount", "name": "llama-epp"}]


@pytest.mark.parametrize(
    ("image", "version", "api"),
    [
        ("ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0", "", "llm-d.ai/v1alpha1"),
        ("ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0", "", "llm-d.ai/v1alpha1"),
        ("registry.example:5000/mirror/epp:v1.5.0", "", "inference.networking.x-k8s.io/v1alpha1"),
        ("registry.example/mirror@sha256:0123", "v0.10.1", "llm-d.ai/v1alpha1"),
        ("registry.example/mirror:stable", "0.9", "llm-d.ai/v1alpha1"),
    ],
)
def test_the_pickers_configuration_goes_by_its_release(
    host: ProviderHost, deployment: Any, context: Any, image: str, version: str, api: str
) -> None:
    found = named(host, deployment(), context(picker_image=image, picker_version=version))
    config = yaml.load(found["ConfigMap llama-epp"]["data"]["picker.yaml"], Loader=yaml.CSafeLoader)
    assert (config["apiVersion"], config["kind"]) == (api, "EndpointPickerConfig")
    declared = {plugin["type"] for plugin in config["plugins"]}
    used = {ref["pluginRef"] for profile in config["schedulingProfiles"] for ref in profile["plugins"]}
    assert used <= declared, "recorded: a reference to an undeclared plugin ends the picker"


def test_another_configuration_makes_another_pod_and_nothing_else_does(
    host: ProviderHost, deployment: Any, apart: Any, context: Any
) -> None:
    def picker(wanted: Any) -> Resource:
        found: Resource = named(host, wanted, context())["Deployment llama-epp"]
        return found

    assert picker(deployment()) == picker(deployment(scaling={"replicas": 3}, engine={"contextLength": 99}))
    modes = [picker(apart(provider={"overrides": {"routerMode": mode}})) for mode in ("always", "prefix-based")]
    hashes = [
        pod(made)["metadata"]["annotations"]["airunway.ai/picker-config"] for made in (picker(deployment()), *modes)
    ]
    assert len(set(hashes)) == 3


def test_the_picker_of_a_deployment_that_may_scale_to_zero_holds_requests_and_the_status_says_so(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    wanted = deployment(scaling={"autoscaling": {"minReplicas": 0, "maxReplicas": 2, "target": 16}})
    found = named(host, wanted, context())
    assert "defaultRequestTTL: 10m" in found["ConfigMap llama-epp"]["data"]["picker.yaml"]

    def holds(picker: Resource, **settings: str) -> object:
        seen = Observed(primary=None, objects=(found["Deployment llama"], picker))
        pool = host.translate_status(wanted, seen, context(**settings)).pool
        assert pool is not None
        return pool.holds_requests

    before = named(host, deployment(), context())["Deployment llama-epp"]
    assert (holds(found["Deployment llama-epp"]), holds(before)) == (True, False)
    older = {"picker_image": "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"}
    assert holds(before, **older) is None, "it never will"
    assert "flowControl" not in str(named(host, wanted, context(**older)))


def test_a_pod_of_the_picker_asks_for_what_settings_and_pull_secrets_say(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    runtime = RuntimeSettings(labels={"airunway.ai/team": "a"}, image_pull_secrets=("shared",))
    ctx = context(runtime=runtime, picker_cpu="2", picker_memory="4Gi")
    made = pod(named(host, deployment(imagePullSecrets=[{"name": "own"}]), ctx)["Deployment llama-epp"])
    assert made["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2", "memory": "4Gi"}}
    assert made["metadata"]["labels"]["airunway.ai/team"] == "a"
    assert made["spec"]["terminationGracePeriodSeconds"] > 30, "recorded: it answers for 30 s more"


def test_c22_a_runtime_config_reaches_servers_of_both_roles_and_the_picker_its_part_of_it(
    host: ProviderHost, apart: Any, context: Any
) -> None:
    runtime = RuntimeSettings(
        env=({"name": "A", "value": "config"},),
        labels={"org.example/team": "x", "airunway.ai/component": "other"},
        image_pull_secrets=("shared",),
        token="config-token",
    )
    found = named(host, apart(), context(runtime=runtime))
    for role in ("decode", "prefill"):
        template = pod(found[f"Deployment llama-{role}"])
        (server,) = template["spec"]["containers"]
        env = {entry["name"]: entry for entry in server["env"]}
        assert env["A"]["value"] == "config"
        assert server["envFrom"] == [{"secretRef": {"name": "config-token"}}]
        for sidecar in template["spec"].get("initContainers", ()):
            assert not {"env", "envFrom"} & sidecar.keys()
    picks = pod(found["Deployment llama-epp"])
    assert "A" not in (entry["name"] for entry in picks["spec"]["containers"][0]["env"])
    assert "envFrom" not in picks["spec"]["containers"][0]
    for name, component in (("decode", "decode"), ("prefill", "prefill"), ("epp", "picker")):
        template = pod(found[f"Deployment llama-{name}"])
        assert template["spec"]["imagePullSecrets"] == [{"name": "shared"}]
        labels = template["metadata"]["labels"]
        assert (labels["org.example/team"], labels["airunway.ai/component"]) == ("x", component)


# ------------------------------------------------------------------------------------------------------------- apart


def test_prefill_and_decode_are_workers_of_one_pool(host: ProviderHost, apart: Any, context: Any) -> None:
    found = named(host, apart(prefill=2, decode=4), context())
    decode, prefill = found["Deployment llama-decode"], found["Deployment llama-prefill"]
    assert next(iter(found)) == "Deployment llama-decode", "what answers is the primary"
    assert found["Service llama"]["spec"]["selector"]["airunway.ai/component"] == "decode"
    for role, obj in (("decode", decode), ("prefill", prefill)):
        labels = pod(obj)["metadata"]["labels"]
        assert labels.items() >= {**POOLED, "llm-d.ai/role": role, "airunway.ai/component": role}.items()
        main = pod(obj)["spec"]["containers"][0]
        assert ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}') in pairwise(
            main["args"]
        )
        assert {
            "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        } in main["env"]
        assert main["readinessProbe"]["httpGet"]["port"] == main["ports"][0]["containerPort"]
    assert "--port=8200" in pod(decode)["spec"]["containers"][0]["args"]
    assert "--port=8000" in pod(prefill)["spec"]["containers"][0]["args"]
    assert "--tensor-parallel-size=4" in pod(decode)["spec"]["containers"][0]["args"]
    assert "initContainers" not in pod(prefill)["spec"]


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("v0.7.1", "--vllm-port"),
        ("v0.8.0", "--vllm-port"),
        ("v0.9.0", "--vllm-port"),
        ("v0.10.0", "--model-server-port"),
    ],
)
def test_the_sidecars_flags_go_by_its_release(
    host: ProviderHost, apart: Any, context: Any, version: str, flag: str
) -> None:
    image = f"ghcr.io/llm-d/llm-d-router-disagg-sidecar:{version}"
    (sidecar,) = pod(named(host, apart(), context(sidecar_image=image))["Deployment llama-decode"])["spec"][
        "initContainers"
    ]
    assert sidecar["args"] == ["--port=8000", f"{flag}=8200", "--kv-connector=nixlv2", "--secure-proxy=false"]
    assert (sidecar["image"], sidecar["restartPolicy"]) == (image, "Always")
    assert not {"readinessProbe", "livenessProbe"} & set(sidecar), "recorded: its own health is fine while vLLM is down"


@pytest.mark.parametrize(
    ("mode", "decider", "more"),
    [
        ("always", "always-disagg-pd-decider", {}),
        # Without a number it decides that nothing is ever prefilled apart, and prefill workers idle.
        ("prefix-based", "prefix-based-pd-decider", {"parameters": {"nonCachedTokens": 16}}),
    ],
)
def test_the_picker_decides_which_prompts_are_prefilled_apart(
    host: ProviderHost, apart: Any, context: Any, mode: str, decider: str, more: Resource
) -> None:
    found = named(host, apart(provider={"overrides": {"routerMode": mode}}), context())
    config = yaml.load(found["ConfigMap llama-epp"]["data"]["picker.yaml"], Loader=yaml.CSafeLoader)
    plugins = {plugin["type"]: plugin for plugin in config["plugins"]}
    assert plugins[decider] == {"type": decider, **more}
    assert plugins["disagg-profile-handler"]["parameters"] == {"deciders": {"prefill": decider}}
    assert [profile["name"] for profile in config["schedulingProfiles"]] == ["prefill", "decode"]
    assert "disagg-headers-handler" not in str(config), "recorded: not needed, and gone after 0.10"


def test_a_transfer_of_the_users_own_is_left_as_it_is(host: ProviderHost, apart: Any, context: Any) -> None:
    own = '{"kv_connector":"MultiConnector","kv_role":"kv_both"}'
    for engine in ({"args": {"kv-transfer-config": own}}, {"extraArgs": ["--kv_transfer_config", own]}):
        args = pod(named(host, apart(engine=engine), context())["Deployment llama-prefill"])["spec"]["containers"][0][
            "args"
        ]
        assert sum("transfer" in word for word in args) == 1


# ---------------------------------------------------------------------------------------------------- several nodes


def test_a_replica_of_several_nodes_has_its_leader_in_the_pool(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    found = named(host, deployment(resources={"gpu": {"count": 16}}), context())
    group = found["LeaderWorkerSet llama-lws"]
    assert "Service llama" in found
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["leaderTemplate"]["metadata"]["labels"].items() >= POOLED.items()
    assert not POOLED.keys() & template["workerTemplate"]["metadata"]["labels"].keys()
    assert group["spec"]["startupPolicy"] == "LeaderCreated", "recorded: a leader that waits for workers is never ready"


def test_roles_of_several_nodes_split_tensors_over_all_of_them(host: ProviderHost, apart: Any, context: Any) -> None:
    found = named(host, apart(prefill=8, decode=16), context())
    assert {"LeaderWorkerSet llama-decode-lws", "Deployment llama-prefill"} < set(found)
    leader = pod(found["LeaderWorkerSet llama-decode-lws"])["spec"]
    assert "--tensor-parallel-size=16" in leader["containers"][0]["args"]
    assert [c["name"] for c in leader["initContainers"]] == ["routing-sidecar"]
    worker = found["LeaderWorkerSet llama-decode-lws"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    assert "initContainers" not in worker


def test_real_llmd_3_another_kind_of_workload_for_prefill_is_no_cause_for_another_decode(
    host: ProviderHost, apart: Any, context: Any
) -> None:
    """The runtime replaces what runs a component's pods by itself. The first generation writes what it wrote."""
    for now in (context(), of_generation(1, context())):
        topologies = [host.translate_spec(apart(prefill=n, decode=16), now).replace_on for n in (8, 4, 16)]
        assert topologies[0] == topologies[1]
        assert (topologies[1] != topologies[2]) is (now.upstream.transformer.name == "deployment-v1")


def of_generation(number: int, newest: Context[Any]) -> Context[Any]:
    """The context of what an earlier generation has written."""
    earlier = {
        t.kind or "Deployment": Upstream(api_version=t.api_version, transformer=t)
        for t in TRANSFORMERS
        if t.name.endswith(f"-v{number}")
    }
    served = {key: earlier.get(key.partition(".")[0], upstream) for key, upstream in newest.served.items()}
    return replace(newest, upstream=earlier["Deployment"], served=served)


def test_real_llmd_8_no_picker_shows_its_profiles_but_what_was_written_before_stays_as_it_was(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    for now, hidden in ((context(), True), (of_generation(1, context()), False)):
        (container,) = pod(named(host, deployment(), now)["Deployment llama-epp"])["spec"]["containers"]
        assert ("--enable-pprof=false" in container["args"]) is hidden


def test_a_roll_out_asks_for_no_spare_gpu_unless_told(host: ProviderHost, apart: Any, context: Any) -> None:
    for surge, rolling in ((0, {"maxSurge": 0, "maxUnavailable": 1}), (2, {"maxSurge": 2, "maxUnavailable": 0})):
        found = named(host, apart(), context(max_surge=surge))
        for role in ("decode", "prefill"):
            assert found[f"Deployment llama-{role}"]["spec"]["strategy"]["rollingUpdate"] == rolling
        assert found["Deployment llama-epp"]["spec"]["strategy"]["rollingUpdate"] == {
            "maxSurge": 1,
            "maxUnavailable": 0,
        }


def test_a_roll_out_is_given_longer_than_the_startup_probe_allows(host: ProviderHost, apart: Any, context: Any) -> None:
    spec = named(host, apart(), context())["Deployment llama-prefill"]["spec"]
    startup = spec["template"]["spec"]["containers"][0]["startupProbe"]
    assert spec["progressDeadlineSeconds"] > startup["periodSeconds"] * startup["failureThreshold"]


# ------------------------------------------------------------------------------------------------------------ samples


def test_the_samples_are_valid_and_name_this_provider(host: ProviderHost, context: Any) -> None:
    folder = Path(airunway_llmd.__file__).parent / "samples"
    files = sorted(folder.glob("*-*.yaml"))
    assert len(files) == 2
    for file in files:
        manifest = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        assert validate(manifest) == []
        assert manifest["spec"]["provider"]["name"] == "llmd"
        manifest["metadata"]["namespace"] = "default"
        assert host.can_handle(parse_deployment(manifest), context()).ok


@pytest.mark.parametrize(
    "fields", [{"engine": {"args": {"api-key": "x"}}}, {"env": [{"name": "VLLM_API_KEY", "value": "x"}]}]
)
def test_a_key_protects_every_server_behind_picker_and_sidecar(
    host: ProviderHost, deployment: Any, apart: Any, context: Any, fields: dict[str, Any]
) -> None:
    """The picker asks for /metrics alone, which needs no key; the sidecar sends the headers of a request to both."""
    for wanted, servers in ((deployment(**fields), 1), (apart(**fields), 2)):
        found = named(host, wanted, context())
        asked = [
            pod(obj)["spec"]["containers"][0]
            for name, obj in found.items()
            if not name.endswith("-epp") and obj["kind"] == "Deployment"
        ]
        assert len(asked) == servers
        key = {"name": "VLLM_API_KEY", "value": "x"}
        assert all("--api-key=x" in each["args"] or key in each["env"] for each in asked)
        assert all(dig(each, "readinessProbe", "httpGet", "path") == "/health" for each in asked)


def test_a_server_that_encrypts_is_refused_as_picker_and_sidecar_speak_http(
    host: ProviderHost, deployment: Any, apart: Any, context: Any
) -> None:
    for wanted in (deployment(engine={"args": {"ssl-certfile": "/x"}}), apart(engine={"args": {"ssl-certfile": "/x"}})):
        (found,) = host.can_handle(wanted, context()).blockers
        assert "answers HTTPS only" in found.message
