"""What each engine becomes, on one node and on several."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import airunway_vllm
from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway.runtime.translate import selector_of
from airunway.validation import validate


def container(obj: Resource, *path: str) -> Resource:
    found: Resource = dig(obj, *(path or ("spec", "template")), "spec", "containers")[0]
    return found


def test_vllm_is_a_deployment_and_the_service_of_its_name(host: ProviderHost, deployment: Any, context: Any) -> None:
    server, service = host.translate_spec(deployment(), context()).objects
    assert (server["kind"], server["metadata"]["name"]) == ("Deployment", "llama-8b")
    assert (service["kind"], service["metadata"]["name"]) == ("Service", "llama-8b")
    labels = {"airunway.ai/model-deployment": "llama-8b", "airunway.ai/component": "server"}
    assert server["spec"]["selector"] == {"matchLabels": labels}
    assert service["spec"]["selector"] == labels
    assert server["spec"]["template"]["metadata"]["labels"].items() >= labels.items()
    main = container(server)
    assert main["image"] == "vllm/vllm-openai:v0.23.0"
    assert main["command"] == ["vllm", "serve"]
    assert main["args"] == [
        "meta-llama/Llama-3.1-8B-Instruct",
        "--port=8000",
        "--served-model-name=Llama-3.1-8B-Instruct",
    ]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert main["startupProbe"]["httpGet"] == main["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert service["spec"]["ports"][0]["targetPort"] == main["ports"][0]["containerPort"]


@pytest.mark.parametrize(
    ("engine", "command", "words"),
    [
        ("sglang", ["python3", "-m", "sglang.launch_server"], {"--host=0.0.0.0", "--port=8000", "--tp-size=4"}),
        ("trtllm", ["trtllm-serve", "serve"], {"--host=0.0.0.0", "--port=8000", "--tp_size=4"}),
        ("llamacpp", None, {"--host", "0.0.0.0", "--port", "8000", "--hf-repo"}),
    ],
)
def test_other_engines_have_their_own_words(
    host: ProviderHost, deployment: Any, context: Any, engine: str, command: Any, words: set[str]
) -> None:
    wanted = deployment(resources={"gpu": {"count": 4}})
    image = "registry.example/llama.cpp:1" if engine == "llamacpp" else "registry.example/engine:1"
    ctx = context(engine, **{f"{engine}_image": image})
    assert host.can_handle(wanted, ctx).blockers == ()
    main = container(host.translate_spec(wanted, ctx).objects[0])
    assert main["image"] == image, "the setting's, where the deployment names none"
    assert main.get("command") == command
    assert words <= set(main["args"])
    without = host.can_handle(wanted, context(engine))
    assert [finding.path for finding in without.blockers] == ["spec.image"], "and without either it is refused"


def test_llamacpp_runs_without_gpus(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(image="registry.example/llama.cpp:1", resources={"memory": "4Gi"})
    assert host.can_handle(wanted, context("llamacpp")).ok
    main = container(host.translate_spec(wanted, context("llamacpp")).objects[0])
    assert main["resources"] == {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}}


def test_a_roll_out_asks_for_no_spare_gpu_unless_told(host: ProviderHost, deployment: Any, context: Any) -> None:
    def rolling(ctx: Any) -> Any:
        return host.translate_spec(deployment(), ctx).objects[0]["spec"]["strategy"]["rollingUpdate"]

    assert rolling(context()) == {"maxSurge": 0, "maxUnavailable": 1}
    assert rolling(context(max_surge=2)) == {"maxSurge": 2, "maxUnavailable": 0}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_the_progress_deadline_allows_what_the_startup_probe_allows(
    host: ProviderHost, deployment: Any, context: Any, engine: str
) -> None:
    server = host.translate_spec(deployment(image="registry.example/e:1"), context(engine)).objects[0]
    probe = container(server)["startupProbe"]
    assert server["spec"]["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]


def test_scaled_to_zero_is_zero_replicas(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(scaling={"replicas": 0})
    assert host.can_handle(wanted, context()).ok
    assert host.translate_spec(wanted, context()).objects[0]["spec"]["replicas"] == 0


def test_what_the_site_configures_arrives_as_data(host: ProviderHost, deployment: Any, context: Any) -> None:
    runtime = RuntimeSettings(
        env=({"name": "HTTPS_PROXY", "value": "http://proxy"}, {"name": "A", "value": "site"}),
        labels={"team": "x"},
        image_pull_secrets=("site-pull",),
        token="site-token",
    )
    cache = ModelCache(claim="weights", sub_path="m")
    wanted = deployment(
        env=[{"name": "A", "value": "$(HOME); rm -rf /"}], model={"id": "o/$(M)", "cache": {"mode": "Shared"}}
    )
    ctx = context(runtime=runtime, cache=cache)
    assert host.can_handle(wanted, ctx).ok
    template = host.translate_spec(wanted, ctx).objects[0]["spec"]["template"]
    main = container({"spec": {"template": template}})
    env = {entry["name"]: entry for entry in main["env"]}
    assert env["A"]["value"] == "$(HOME); rm -rf /", "the deployment's wins, as it was written"
    assert env["HTTPS_PROXY"]["value"] == "http://proxy"
    assert main["envFrom"] == [{"secretRef": {"name": "site-token"}}], "every key is a variable"
    assert env["HF_HUB_OFFLINE"]["value"] == "1"
    assert main["args"][0] == "/model-cache"
    assert "HF_HOME" not in env, "engines write there, and the cache is read-only"
    assert "--served-model-name=$$(M)" in main["args"], "data is not expanded"
    assert "sh" not in main["command"]
    assert template["metadata"]["labels"]["team"] == "x"
    assert template["spec"]["imagePullSecrets"] == [{"name": "site-pull"}]
    assert {"name": "airunway-model-cache", "mountPath": "/model-cache", "subPath": "m", "readOnly": True} in main[
        "volumeMounts"
    ]


def test_c22_a_runtime_config_reaches_leader_and_workers_of_a_group(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    runtime = RuntimeSettings(
        env=({"name": "A", "value": "config"},),
        labels={"org.example/team": "x", "airunway.ai/component": "other"},
        image_pull_secrets=("shared",),
        token="config-token",
    )
    wanted = deployment(resources={"gpu": {"count": 16}}, imagePullSecrets=[{"name": "own"}])
    made = host.translate_spec(wanted, context(runtime=runtime)).objects[0]["spec"]["leaderWorkerTemplate"]
    for template, component in ((made["leaderTemplate"], "server"), (made["workerTemplate"], "server-worker")):
        (main,) = template["spec"]["containers"]
        env = {entry["name"]: entry for entry in main["env"]}
        assert env["A"]["value"] == "config"
        assert main["envFrom"] == [{"secretRef": {"name": "config-token"}}]
        assert template["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
        labels = template["metadata"]["labels"]
        assert (labels["org.example/team"], labels["airunway.ai/component"]) == ("x", component)


def test_a_pool_may_select_the_servers_of_vllm_by_equalities(host: ProviderHost) -> None:
    """R32; of a group only the leaders: workers have another component."""
    assert selector_of(host, "llama", "llama") == "airunway.ai/model-deployment=llama,airunway.ai/component=server"
    gateways = {engine.name: engine.gateway for engine in host.manifest.engines}
    assert gateways == {"vllm": {"endpointPicker": {}}, "sglang": None, "trtllm": None, "llamacpp": None}
    assert all(engine.path_routing for engine in host.manifest.engines)


def test_a_service_called_like_an_engine_disturbs_no_pod(host: ProviderHost, deployment: Any, context: Any) -> None:
    server = host.translate_spec(deployment("vllm"), context()).objects[0]
    assert server["spec"]["template"]["spec"]["enableServiceLinks"] is False


# ----------------------------------------------------------------------------------------------------- several nodes


def group(host: ProviderHost, wanted: Any, ctx: Any) -> Resource:
    assert host.can_handle(wanted, ctx).blockers == ()
    return host.translate_spec(wanted, ctx).objects[0]


def test_more_gpus_than_a_node_has_are_a_group_of_nodes(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(resources={"gpu": {"count": 16}, "memory": "100Gi", "cpu": "3"}, scaling={"replicas": 2})
    found = group(host, wanted, context())
    service = host.translate_spec(wanted, context()).objects[1]
    assert (found["kind"], found["metadata"]["name"]) == ("LeaderWorkerSet", "llama-8b-lws")
    assert service["metadata"]["name"] == "llama-8b", "never the group's own: its controller makes one of that name"
    assert found["spec"]["replicas"] == 2
    assert found["spec"]["startupPolicy"] == "LeaderCreated"
    assert found["spec"]["leaderWorkerTemplate"]["size"] == 2
    leader, worker = (
        container(found, "spec", "leaderWorkerTemplate", f"{who}Template") for who in ("leader", "worker")
    )
    for member in (leader, worker):
        assert {"--tensor-parallel-size=8", "--pipeline-parallel-size=2", "--nnodes=2"} <= set(member["args"])
        assert "--master-addr=$(LWS_LEADER_ADDRESS)" in member["args"], "left for the kubelet to fill in"
        asked = {"nvidia.com/gpu": "8", "memory": str(50 * 2**30)}
        assert member["resources"] == {"requests": {**asked, "cpu": "1500m"}, "limits": asked}
    assert {"--node-rank=0", "--port=8000"} <= set(leader["args"])
    assert {"--node-rank=$(LWS_WORKER_INDEX)", "--headless"} <= set(worker["args"])
    assert "readinessProbe" in leader
    assert not {"readinessProbe", "startupProbe", "ports"} & set(worker), "it does not serve"


def test_only_leaders_get_requests(host: ProviderHost, deployment: Any, context: Any) -> None:
    found, service = host.translate_spec(deployment(resources={"gpu": {"count": 16}}), context()).objects
    templates = found["spec"]["leaderWorkerTemplate"]
    selected = service["spec"]["selector"].items()
    assert templates["leaderTemplate"]["metadata"]["labels"].items() >= selected
    assert not templates["workerTemplate"]["metadata"]["labels"].items() >= selected


def test_sglang_splits_tensors_over_all_nodes(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(resources={"gpu": {"count": 12}}, image="registry.example/sglang:1")
    found = group(host, wanted, context("sglang", gpus_per_node=4))
    leader = container(found, "spec", "leaderWorkerTemplate", "leaderTemplate")
    assert found["spec"]["leaderWorkerTemplate"]["size"] == 3
    assert {"--tp-size=12", "--nnodes=3", "--dist-init-addr=$(LWS_LEADER_ADDRESS):29500"} <= set(leader["args"])


@pytest.mark.parametrize(
    "engine",
    [
        {"args": {"tensor-parallel-size": "16"}},
        {"args": {"pipeline-parallel-size": "4"}},
        {"extraArgs": ["-tp", "16"]},
        {"extraArgs": ["-pp=4"]},
    ],
    ids=str,
)
def test_who_sets_one_size_of_the_parallelism_sets_both(
    host: ProviderHost, deployment: Any, context: Any, engine: Resource
) -> None:
    found = group(host, deployment(resources={"gpu": {"count": 16}}, engine=engine), context())
    args = container(found, "spec", "leaderWorkerTemplate", "leaderTemplate")["args"]
    assert not {"--tensor-parallel-size=8", "--pipeline-parallel-size=2"} & set(args)


@pytest.mark.parametrize("flag", ["nnodes", "node-rank", "master-addr", "headless"])
def test_how_the_members_find_each_other_is_not_the_users(
    host: ProviderHost, deployment: Any, context: Any, flag: str
) -> None:
    wanted = deployment(resources={"gpu": {"count": 16}}, engine={"args": {flag: "1"}})
    assert [finding.path for finding in host.can_handle(wanted, context()).blockers] == [f"spec.engine.args[{flag}]"]


def test_how_large_a_node_is_is_a_setting(host: ProviderHost, deployment: Any, context: Any) -> None:
    wanted = deployment(resources={"gpu": {"count": 16}})
    assert host.translate_spec(wanted, context(gpus_per_node=16)).objects[0]["kind"] == "Deployment"
    assert host.translate_spec(wanted, context(gpus_per_node=4)).objects[0]["spec"]["leaderWorkerTemplate"]["size"] == 4


# ---------------------------------------------------------------------------------------------------------- samples

SAMPLES = Path(airunway_vllm.__file__).parent / "samples"


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.glob("*.yaml")))
def test_the_samples_are_valid_and_run_as_they_are(host: ProviderHost, context: Any, sample: str) -> None:
    body = yaml.load((SAMPLES / sample).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    body["metadata"]["namespace"] = "default"
    assert validate(body) == []
    wanted = parse_deployment(body)
    verdict = host.can_handle(wanted, context(wanted.spec.engine.type or "vllm"))
    assert (verdict.blockers, verdict.warnings) == ((), ())
