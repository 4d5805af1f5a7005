"""`airunway explain`: offline, and against a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from airunway.api import names
from airunway.artifacts.deployments import request_of
from airunway.cli.explained import cache_lines, config_lines
from airunway.cli.main import app
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, Client
from airunway.resource import ObjectKey, Resource
from airunway.table import format_table
from airunway.tools.explained import cache_explanation, config_explanation
from airunway_testing.operator import install_definitions

GPU = {"gpu": {"count": 1}}


def deployment(name: str = "llama", **spec: Any) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {"model": {"id": "org/model"}} | spec,
    }


def config(name: str, *engines: str, status: Resource | None = None, rules: list[Resource] | None = None) -> Resource:
    capabilities = [{"name": e, "servingModes": ["aggregated"], "gpuSupport": True} for e in engines]
    spec: Resource = {"capabilities": {"engines": capabilities}, "selectionRules": rules or []}
    metadata = {"name": name}
    result = {"apiVersion": names.API_VERSION, "kind": "InferenceProviderConfig", "metadata": metadata, "spec": spec}
    return result | ({"status": status} if status else {})


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_(name: str, *objects: Resource) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    return write_


def test_a_table_of_every_candidate(write: Any) -> None:
    providers = write(
        "providers.yaml",
        config("dynamo", "vllm", rules=[{"condition": "spec.engine.type == 'vllm'", "priority": 50}]),
        config("kaito", "llamacpp", rules=[{"condition": "spec.broken +", "priority": 100}]),
    )
    done = run("explain", "-f", write("md.yaml", deployment(resources=GPU)), "--providers", providers)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:6] == [
        "ModelDeployment default/llama  org/model",
        "Valid:     yes",
        "Engine:    vllm (auto-selected from provider dynamo capabilities)",
        "Provider:  dynamo (matched capabilities: engine=vllm, gpu=true, mode=aggregated)",
        "",
        "PROVIDER  VERDICT   SCORE  CHECK   DETAIL",
    ]
    rows = done.stdout.splitlines()[6:]
    assert rows[0] == "dynamo    selected  50     rule    true (priority 50) spec.engine.type == 'vllm'"
    assert rows[1].startswith(
        "kaito     rejected  0      engine  spec.engine.type: engine vllm is not among its engines"
    )
    assert rows[2].split()[:3] == ["rule", "error", "(priority"]
    assert len(rows) == 3


def test_a_narrow_terminal_folds_the_details_under_each_other() -> None:
    rows = [("kaito", "rule", "true (priority 5) spec.a == 'b'"), ("", "rule", "x" * 40)]
    assert format_table(("provider", "check", "detail"), rows, width=45).splitlines() == [
        "PROVIDER  CHECK  DETAIL",
        "kaito     rule   true (priority 5) spec.a ==",
        "                 'b'",
        "          rule   " + "x" * 28,
        "                 " + "x" * 12,
    ]
    # Where no width is known, nothing is folded.
    assert len(format_table(("provider", "check", "detail"), rows).splitlines()) == 3


def test_why_not(write: Any) -> None:
    providers = write("providers.yaml", config("dynamo", "vllm"), config("kaito", "llamacpp"))
    file = write("md.yaml", deployment(resources=GPU))
    done = run("explain", "-f", file, "--providers", providers, "--why-not", "kaito")
    assert done.stdout.endswith("kaito would be eligible:\n  set spec.engine.type to llamacpp (now: absent)\n")
    done = run("explain", "-f", file, "--providers", providers, "--why-not", "dynamo")
    assert done.stdout.endswith("dynamo is selected.\n")
    done = run("explain", "-f", file, "--providers", providers, "--why-not", "x")
    assert done.exit_code == 1
    assert done.stderr == "airunway: unknown provider 'x' (providers: dynamo, kaito)\n"


def test_a_provider_that_lost_by_score_or_name(write: Any) -> None:
    rule = {"condition": "true", "priority": 5}
    providers = write(
        "p.yaml", config("a", "vllm"), config("b", "vllm", rules=[rule]), config("c", "vllm", rules=[rule])
    )
    file = write("md.yaml", deployment(resources=GPU))
    for name, why in (
        ("a", "b has the higher score (5 against 0)"),
        ("c", "b has the same score (5) and comes first by name"),
    ):
        done = run("explain", "-f", file, "--providers", providers, "--why-not", name)
        assert why in done.stdout
        assert f"set spec.provider.name to {name}" in done.stdout


def test_without_a_provider_every_way_out_is_shown(write: Any) -> None:
    sick = config("sick", "vllm", status={"ready": False})
    beat = {"ready": True, "lastHeartbeat": "2026-11-21T12:00:00Z"}
    silent = config("silent", "vllm", status={"ready": True, "lastHeartbeat": "2026-11-21T11:00:00Z"})
    providers = write("p.yaml", sick, silent, config("well", "sglang", status=beat))
    file = write("md.yaml", deployment(engine={"type": "vllm"}, resources=GPU))
    done = run("explain", "-f", file, "--providers", providers)
    assert done.exit_code == 0, done.output
    assert "Provider:  none (no provider can run this spec: " in done.stdout
    assert "provider sick must become ready" in done.stdout
    assert "its last heartbeat was at 2026-11-21T11:00:00Z, 180 s ago or longer" in done.stdout
    assert "set spec.engine.type to sglang (now: vllm)" in done.stdout


POLICY = """
rules:
  - namespaceSelector: {matchLabels: {team: red}}
    providers: [kaito]
"""


@pytest.mark.parametrize(("team", "provider"), [("red", "kaito"), ("blue", "dynamo")])
def test_the_policy_of_the_controller_counts(write: Any, tmp_path: Path, team: str, provider: str) -> None:
    """By the labels of the Namespace that is in the file."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    providers = write("p.yaml", config("dynamo", "vllm"), config("kaito", "vllm"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"team": team}}}
    file = write("md.yaml", namespace, deployment(engine={"type": "vllm"}, resources=GPU))
    arguments = ("explain", "-f", file, "-n", "ml", "--providers", providers, "--policy", str(policy))
    done = run(*arguments, "--why-not", "dynamo")
    assert done.exit_code == 0, done.output
    assert f"Provider:  {provider} (matched capabilities" in done.stdout
    forbidden = "the policy does not allow it in this namespace" in done.stdout
    assert forbidden is (team == "red")
    assert ("an administrator must allow provider dynamo in this namespace" in done.stdout) is forbidden


def test_a_policy_that_cannot_be_read_is_named(write: Any, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{provider: [kaito]}]")
    file = write("md.yaml", deployment())
    done = run("explain", "-f", file, "--providers", "installed", "--policy", str(policy))
    assert done.exit_code == 1
    assert f"{policy}: rules[0] has the unknown key 'provider', did you mean providers?" in done.stderr


def test_what_would_still_not_be_selected_is_said(write: Any) -> None:
    always = [{"condition": "true", "priority": 9}]
    providers = write("p.yaml", config("best", "vllm", "sglang", rules=always), config("other", "sglang"))
    file = write("md.yaml", deployment(engine={"type": "vllm"}, resources=GPU))
    arguments = ("explain", "-f", file, "--providers", providers, "--why-not", "other")
    done = run(*arguments)
    assert "set spec.engine.type to sglang (now: vllm)" in done.stdout
    assert "to have it selected as well: set spec.provider.name to other" in done.stdout
    (other,) = [c for c in json.loads(run(*arguments, "-o", "json").stdout)["candidates"] if c["name"] == "other"]
    assert other["wouldBeSelected"] is False


def test_an_invalid_spec_is_said(write: Any) -> None:
    providers = write("p.yaml", config("dynamo", "vllm"))
    done = run("explain", "-f", write("md.yaml", deployment(engine={"type": "vllm"})), "--providers", providers)
    assert done.exit_code == 0
    assert "Valid:     no" in done.stdout
    assert "spec.resources.gpu.count: vLLM engine requires GPU (set resources.gpu.count > 0)" in done.stdout


def test_structured_output(write: Any) -> None:
    providers = write("providers/dynamo.yaml", config("dynamo", "vllm"))
    file = write("md.yaml", deployment("one", resources=GPU), deployment("two"))
    arguments = ("explain", "-f", file, "-n", "ml", "--providers", str(Path(providers).parent))
    items = json.loads(run(*arguments, "-o", "json").stdout)["items"]
    assert [(item["namespace"], item["name"], item["provider"]["name"]) for item in items] == [
        ("ml", "one", "dynamo"),
        ("ml", "two", None),
    ]
    assert items[1]["candidates"][0]["smallestChange"] == [{"path": "spec.resources.gpu.count", "from": None, "to": 1}]
    assert list(yaml.safe_load_all(run(*arguments, "-o", "yaml").stdout)) == items


def test_installed_plugins_and_standard_input() -> None:
    done = run("explain", "-f", "-", "--providers", "installed", stdin=yaml.safe_dump(deployment(resources=GPU)))
    assert done.exit_code == 0, done.output
    assert "Provider:  dynamo" in done.stdout


def test_what_the_selected_provider_warns_of_is_said(write: Any) -> None:
    """Options of the engine that its parser does not know, too: as `render` and the status have it."""
    engine = {"type": "vllm", "extraArgs": ["--max-model-length=8"]}
    text = "spec.engine.extraArgs[0]: vLLM 0.23.0 has no --max-model-length; did you mean --max-model-len"
    asked = deployment(resources=GPU, engine=engine, provider={"name": "vllm"})
    arguments = ("explain", "-f", write("md.yaml", asked), "--providers", "installed")
    assert f"Warning:   {text}" in run(*arguments).stdout
    assert json.loads(run(*arguments, "-o", "json").stdout)["warnings"] == [text]
    asked["status"] = {"provider": {"name": "vllm"}, "warnings": ["what the provider said with its own settings"]}
    assert "Warning:   what the provider said" in run(*arguments[:2], write("md.yaml", asked), *arguments[3:]).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "name one ModelDeployment"),
        (("md/a", "-f", "x"), 2, "name one ModelDeployment"),
        (("pod/a",), 2, "is not a ModelDeployment"),
        (("md/a", "--providers", "installed"), 2, "--providers needs -f"),
        (("md/a", "-o", "wide"), 2, "'wide' is not one of"),
        (("-f", "/does/not/exist.yaml", "--providers", "installed"), 1, "No such file"),
    ],
)
def test_usage(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = run("explain", *arguments)
    assert done.exit_code == code
    assert text in " ".join(done.stderr.replace("│", " ").split())


def test_a_file_without_what_is_wanted(write: Any) -> None:
    file = write("md.yaml", config("dynamo", "vllm"))
    done = run("explain", "-f", file, "--providers", file)
    assert (done.exit_code, "contains no ModelDeployment" in done.stderr) == (1, True)
    good = write("good.yaml", deployment())
    done = run("explain", "-f", good, "--providers", good)
    assert (done.exit_code, "contains no InferenceProviderConfig" in done.stderr) == (1, True)


@pytest.mark.apiserver
async def test_a_deployment_of_the_cluster(client: Client, kubeconfig: Path, namespace: str, write: Any) -> None:
    import asyncio

    await install_definitions(client)
    provider = config("explained", "vllm", rules=[{"condition": "spec.engine.type == 'vllm'", "priority": 7}])
    await client.apply(INFERENCE_PROVIDER_CONFIG, provider, manager="test")
    status = {**provider, "status": {"ready": True}}
    status.pop("spec")
    await client.apply(INFERENCE_PROVIDER_CONFIG, status, manager="test", subresource="status")
    key = ObjectKey(namespace, "llama")
    live = deployment(engine={"type": "vllm"}, resources=GPU, provider={"name": "explained"})
    live["metadata"]["namespace"] = namespace
    await client.create(MODEL_DEPLOYMENT, live)
    try:
        arguments = ("explain", "md/llama", "-n", namespace, "--kubeconfig", str(kubeconfig))
        done = await asyncio.to_thread(run, *arguments)
        assert done.exit_code == 0, done.output
        assert f"ModelDeployment {key}  org/model" in done.stdout
        assert "Provider:  explained (explicit provider selection)" in done.stdout
        done = await asyncio.to_thread(run, "explain", "md", "nobody", *arguments[2:])
        assert done.exit_code == 1
        assert done.stderr == f"airunway: there is no ModelDeployment 'nobody' in namespace {namespace}: it has llama\n"
        policy = write("policy.yaml")
        Path(policy).write_text(
            f"rules: [{{namespaceSelector: {{matchLabels: {{team: {namespace}}}}}, providers: []}}]"
        )
        done = await asyncio.to_thread(run, *arguments, "--policy", policy)
        assert "Valid:     yes" in done.stdout
        label = {"metadata": {"labels": {"team": namespace}}}
        await client.merge_patch(NAMESPACE, ObjectKey("", namespace), label)
        done = await asyncio.to_thread(run, *arguments, "--policy", policy)
        assert f"provider 'explained' is not allowed in namespace '{namespace}'" in done.stdout
        done = await asyncio.to_thread(run, *arguments, "--context", "nosuch")
        assert (done.exit_code, "nosuch" in done.stderr) == (1, True)
        file = write("md.yaml", deployment("other", resources=GPU, engine={"type": "vllm"}))
        done = await asyncio.to_thread(run, "explain", "-f", file, *arguments[2:])
        assert done.exit_code == 0, done.output
        assert "explained" in done.stdout
        done = await asyncio.to_thread(run, "explain", "-f", file, "--why-not", "dynamo", *arguments[2:])
        assert done.stderr == (
            "airunway: unknown provider 'dynamo' (providers: explained); --providers installed compares with those "
            "that are installed here\n"
        )
    finally:
        await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "explained"))


def runtime_config(name: str = "default", *, kind: str = "RuntimeConfig", **spec: Any) -> Resource:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_the_config_is_shown_with_the_origin_of_each_field_and_the_route(write: Any) -> None:
    providers = write("providers.yaml", config("kaito", "vllm"))
    cluster = runtime_config(
        kind="ClusterRuntimeConfig", env=[{"name": "FROM_CLUSTER", "value": "hidden-1"}], defaultStorageClassName="fast"
    )
    namespaced = runtime_config(
        inherit="Cluster",
        env=[{"name": "OWN", "value": "hidden-2"}],
        routing={"enabled": True, "pathTemplate": "/ml/{.metadata.name}"},
    )
    configs = write("configs.yaml", cluster, namespaced)
    asked = write("md.yaml", deployment(resources=GPU, env=[{"name": "OWN", "value": "hidden-3"}]))
    arguments = ["explain", "-f", asked, "--providers", providers, "--runtime-config", configs]
    shown = run(*arguments).output
    assert "Config:    RuntimeConfig default/default (scope Merged)" in shown
    assert "spec.env[FROM_CLUSTER] (from ClusterRuntimeConfig default)" in shown
    assert "spec.env[OWN] (from RuntimeConfig default/default; overridden by the deployment's spec.env[OWN])" in shown
    assert "spec.storage.defaultStorageClassName: fast (from ClusterRuntimeConfig default)" in shown
    assert "spec.rollout: OnNextChange (from default)" in shown
    assert "Routing:   required (spec.routing.enabled of the config is true)" in shown
    assert "Path:    /ml/llama (template /ml/{.metadata.name}, from spec.routing.pathTemplate of the config)" in shown
    assert "hidden" not in shown
    document = run(*arguments, "-o", "json").output
    assert "hidden" not in document
    found = json.loads(document)
    found = found[0] if isinstance(found, list) else found
    assert (found["runtimeConfig"]["scope"], found["routing"]["request"]) == ("Merged", "Required")


def test_paths_and_model_names_that_the_platform_allows_are_one_line(write: Any) -> None:
    providers = write("providers.yaml", config("kaito", "vllm"))
    lists = {"pathPrefixes": ["/ml/{namespace}"], "modelNames": ["{namespace}/*"]}
    configs = write("configs.yaml", runtime_config("platform", kind="ClusterRuntimeConfig", routing=lists))
    shown = {}
    for name, path in (("good", "/ml/team/a"), ("bad", "/ml/other")):
        asked = deployment(resources=GPU, gateway={"pathTemplate": path})
        asked["metadata"]["namespace"] = "team"
        arguments = ["explain", "-f", write(f"{name}.yaml", asked), "--providers", providers]
        shown[name] = run(*arguments, "--runtime-config", configs).output
        line = "Allowed: paths below /ml/team; model names team/* (by ClusterRuntimeConfigs; the policy may allow less)"
        assert line in shown[name]
    assert "Path:    /ml/team/a (template" in shown["good"]
    assert "Path:    the path /ml/other is not allowed in namespace 'team'" in shown["bad"]


def test_without_a_config_and_without_a_route(write: Any) -> None:
    providers = write("providers.yaml", config("kaito", "vllm"))
    off = write("md.yaml", deployment(resources=GPU, gateway={"enabled": False}))
    shown = run("explain", "-f", off, "--providers", providers).output
    assert "Config:    none (no default config: built-in defaults are used)" in shown
    assert "Routing:   off (spec.gateway.enabled is false)" in shown
    named = write("named.yaml", deployment(resources=GPU, runtimeConfigName="gpu"))
    shown = run("explain", "-f", named, "--providers", providers).output
    assert "Config:    none (no RuntimeConfig or ClusterRuntimeConfig 'gpu' was found)" in shown


def test_validate_warns_about_what_is_stored_and_cannot_be_used(write: Any) -> None:
    broken = runtime_config(labelPropagation={"enabled": True, "match": ["[bad"]}, routing={"pathTemplate": "/{.a"})
    result = run("validate", write("config.yaml", broken))
    assert result.exit_code == 0, result.output
    assert "warning: spec.labelPropagation.match[0]: " in result.output
    assert "warning: spec.routing.pathTemplate: " in result.output


def test_settings_of_pods_that_wait_and_a_claim_that_another_holds() -> None:
    refused = {
        "type": "GatewayReady",
        "status": "False",
        "reason": "RouteConflict",
        "message": "path /a (held by ModelDeployment ml/older)",
    }
    live = deployment(gateway={"pathTemplate": "/a"})
    live["status"] = {
        "revision": {
            "hash": "1",
            "settings": {"configHash": "0" * 64},
            "pending": {"parts": ["settings"], "changes": ["env A"]},
        },
        "conditions": [refused],
        "gateway": {"gatewayName": "inference", "gatewayNamespace": "gateways", "url": "http://10.0.0.1/a"},
    }
    cluster = runtime_config(kind="ClusterRuntimeConfig", env=[{"name": "A", "value": "hidden"}])
    explained = config_explanation(live, [cluster])
    lines = "\n".join(config_lines(explained))
    assert "Config:    ClusterRuntimeConfig default (scope Cluster)" in lines
    assert "Pods have the settings of 000000000000; env A wait\nRouting:" in lines
    assert "Gateway: gateways/inference (by the controller's choice)" in lines
    assert "Path:    /a (template /a, from spec.gateway.pathTemplate)" in lines
    assert "Ready:   False (RouteConflict) path /a (held by ModelDeployment ml/older)" in lines
    assert "http://10.0.0.1/a" not in lines
    del live["status"]["revision"]["pending"]
    assert "Pods have" not in "\n".join(config_lines(config_explanation(live, [cluster])))


def cached(**cache: Any) -> Resource:
    found = deployment(model={"id": "org/model", "cache": {"mode": "Shared", **cache}})
    return {**found, "metadata": {"name": "llama", "namespace": "ml", "uid": "u"}}


def artifact_of(deployment: Resource, **status: Any) -> Resource:
    request = request_of(deployment, None)
    assert request is not None
    assert request.artifact is not None
    return {**request.artifact, "status": status}


def test_the_model_cache_with_its_progress_and_why_it_is_shared_or_not() -> None:
    mine = cached()
    progress = {"totalBytes": 100_000_000_000, "downloadedBytes": 40_000_000_000, "percentage": 40}
    live = artifact_of(
        mine,
        phase="Progressing",
        reason="Downloading",
        message="the weights are fetched",
        progress=progress,
        persistentVolumeClaim="claim",
        allocatedSize="110Gi",
        usedBy=["canary", "llama"],
    )
    other = artifact_of(cached(revision="v2", storageClassName="fast"))
    another_model = artifact_of({**cached(), "spec": {"model": {"id": "org/other", "cache": {"mode": "Shared"}}}})
    lines = "\n".join(cache_lines(cache_explanation(mine, [], [live, other, another_model])))
    assert f"Cache:     Shared, ModelArtifact {live['metadata']['name']} (hf://org/model)" in lines
    assert "State:   Progressing (Downloading)" in lines
    assert "Done:    40 % (40.0 of 100.0 GB)" in lines
    assert "Claim:   claim (110Gi)" in lines
    assert "Shared:  with canary" in lines
    assert f"Not shared with ModelArtifact {other['metadata']['name']} of the same model:" in lines
    assert "source.revision: none here, v2 there" in lines
    assert "storageClassName: none here, fast there" in lines
    assert "org/other" not in lines
    assert another_model["metadata"]["name"] not in lines


def test_a_file_shows_the_artifact_that_would_be_made_and_claims_of_volumes(write: Any) -> None:
    volume = {"name": "kernels", "size": "20Gi", "mountPath": "/kernels"}
    model = {"id": "org/model", "cache": {"mode": "Shared"}, "storage": {"volumes": [volume]}}
    file = write("llama.yaml", deployment(model=model, resources=GPU))
    done = run("explain", "-f", file, "--providers", "installed")
    assert done.exit_code == 0, done.output
    assert "it is made for this deployment" in done.output
    assert "kernels: claim llama-kernels (made with 20Gi)" in done.output
    found = json.loads(run("explain", "-f", file, "--providers", "installed", "-o", "json").output)
    assert found["modelCache"]["path"] == "/model-cache"
