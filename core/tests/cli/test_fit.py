"""`airunway fit` and `airunway new`: against files, a hub, and a cluster with nodes, pods and missing rights."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from airunway.cli.main import app
from airunway.kube import CONFIG_MAP, NODE, POD, Client
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway.validation import validate
from airunway_testing.controlplane import Cluster
from airunway_testing.controlplane.nodes import gpu_node
from airunway_testing.modelhub.hub import Repository, model_hub
from airunway_testing.operator import install_definitions

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
TINY: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), env=env)


def deployment(model: str = LLAMA, *, gpus: int = 4, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": {"model": {"id": model}, "resources": {"gpu": {"count": gpus}}, **spec},
    }


@pytest.fixture
def single(tmp_path: Path) -> str:
    """A file with one provider, which does not span nodes; no plugin of that name is asked."""
    path = tmp_path / "providers.yaml"
    engines = [
        {"name": name, "servingModes": ["aggregated"], "gpuSupport": True} for name in ("vllm", "sglang", "llamacpp")
    ]
    config = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "InferenceProviderConfig",
        "metadata": {"name": "single"},
        "spec": {"capabilities": {"engines": engines}},
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Eight nodes with one RTX 4090 each."""
    path = tmp_path / "nodes.yaml"
    made = [gpu_node(f"n{i}", gpus=1, product="NVIDIA-GeForce-RTX-4090", gpu_memory_mib=24564) for i in range(8)]
    path.write_text(yaml.safe_dump_all([node.manifest() for node in made]))
    return path


def test_a_model_that_fits_on_no_node_is_a_pipeline_by_a_provider_that_spans_nodes(nodes: Path, single: str) -> None:
    done = run("fit", LLAMA, "--nodes", str(nodes), "--context-length", "8192", "-o", "json")
    found = json.loads(done.stdout)
    (role,) = found["roles"]
    assert role["verdict"] == "does not fit"
    assert role["nodes"][0]["nodes"] == [f"n{i}" for i in range(8)]
    assert role["pipeline"]["estimate"]["pipelineStages"] == 8
    spanning = {each["name"]: each["spansNodes"] for each in found["providers"]}
    assert spanning["llmd"] is True
    assert spanning["kaito"] is False
    assert done.exit_code == 0  # a provider can run it
    # Without such a provider it fits nowhere.
    done = run("fit", LLAMA, "--nodes", str(nodes), "--context-length", "8192", "--providers", single)
    assert done.exit_code == 3
    assert "Over nodes: fits as 8 stages of 1 GPU" in done.stdout


def test_a_table_shows_every_term_with_its_source() -> None:
    done = run("fit", LLAMA, "--gpu", "h100-80gb")
    assert done.exit_code == 0, done.output
    for part in (
        "Weights:   131.4 GiB (catalogue of this release",
        "KV cache:  80 full layers: 320.0 KiB for each token",
        "Tensor parallelism on one node: 1, 2, 4, 8 GPUs",
        "gpu-memory-utilization 0.92 of 79.2 GiB",
        "left for KV cache",
        "no forecast",
        "SPANS NODES",
    ):
        assert part in done.stdout


def test_several_sequences_share_what_is_left(single: str) -> None:
    done = run("fit", LLAMA, "--gpu", "h100-80gb", "--sequences", "4", "--providers", single)
    assert (done.exit_code, "4 sequences of 131,072 tokens" in done.stdout) == (0, True), done.output
    done = run("fit", LLAMA, "--gpu", "h100-80gb", "--sequences", "400", "--providers", single)
    assert (done.exit_code, "or 10 sequences" in done.stdout) == (3, True), done.output


def test_a_context_that_a_kubeconfig_has_not_is_named(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": []}))
    for command in ("fit", "new"):
        done = run(command, LLAMA, "--kubeconfig", str(config), "--context", "nowhere")
        assert (done.exit_code, "has no context 'nowhere'" in done.stderr) == (1, True)


async def test_a_new_manifest_is_for_the_nodes_and_the_config_that_are_given(nodes: Path, tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 20 * 2**30}}  # one RTX 4090 has room for it
    directory = model_directory(tmp_path / "model", TINY)
    (directory / "model.safetensors.index.json").write_bytes(orjson.dumps(index))
    done = run("new", "org/mine", "--model-config", str(directory), "--nodes", str(nodes))
    assert yaml.safe_load(done.stdout)["spec"]["resources"]["gpu"]["count"] == 1
    files = {"config.json": orjson.dumps(TINY), "model.safetensors.index.json": orjson.dumps(index)}
    async with model_hub([Repository(name="org/tiny", files=files)]) as hub:
        arguments = ("new", "org/tiny", "--gpu", "h100", "--fetch")
        done = await asyncio.to_thread(lambda: run(*arguments, env={"HF_ENDPOINT": hub.endpoint}))
    assert yaml.safe_load(done.stdout)["spec"]["resources"]["gpu"]["count"] == 1


def test_an_unknown_model_gets_no_number(single: str) -> None:
    done = run("fit", "org/unheard-of", "--gpu", "h100", "--providers", single)
    assert done.exit_code == 0
    assert "Weights:   unknown: the model is not in the catalogue: use --model-config DIR" in done.stdout
    assert "unknown" in done.stdout.split("VERDICT")[1]
    done = run("new", "org/unheard-of", "--gpu", "h100")
    assert done.exit_code == 1
    assert "the number of GPUs cannot be computed: weights unknown" in done.stderr
    assert run("new", "org/unheard-of", "--gpus", "2").exit_code == 0


def model_directory(path: Path, config: dict[str, Any], tensors: dict[str, Any] | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_bytes(orjson.dumps(config))
    if tensors is not None:
        header = orjson.dumps(tensors)
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def test_a_directory_is_read_by_its_headers(tmp_path: Path, single: str) -> None:
    tensors = {"lm_head.weight": {"dtype": "BF16", "shape": [1000, 64], "data_offsets": [0, 128000]}}
    directory = model_directory(tmp_path / "model", TINY, tensors)

    def weights(engine: str) -> Resource:
        arguments = ("--gpu", "l4", "--model-config", str(directory), "--engine", engine, "--providers", single)
        done = run("fit", "org/mine", *arguments, "-o", "json")
        assert done.exit_code == 0, done.output
        found: Resource = json.loads(done.stdout)["model"]["weights"]
        return found

    assert weights("vllm") == {"bytes": 128000, "gib": 0.0, "source": "headers of model.safetensors"}
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 5000000}}')
    assert weights("vllm")["bytes"] == 5000000
    (directory / "weights-Q4_K_M.gguf").write_bytes(b"x" * 4096)
    assert weights("llamacpp")["bytes"] == 4096


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b" " * (50 * 2**20), "config.json has 52,428,800 bytes; at most 1,048,576 are read"),
        (b"[" * 5000, "config.json: it is not JSON"),
        (orjson.dumps({**TINY, "num_hidden_layers": -1}), "config.json: num_hidden_layers: must be from 1"),
        (orjson.dumps({**TINY, "torch_dtype": "\x1b[31mred\u202e"}), ""),
    ],
)
def test_a_hostile_config_is_refused_in_one_line(tmp_path: Path, single: str, config: bytes, message: str) -> None:
    directory = model_directory(tmp_path / "model", {})
    (directory / "config.json").write_bytes(config)
    done = run("fit", "evil/model", "--gpu", "l4", "--model-config", str(directory), "--providers", single)
    assert message in done.output
    assert done.exit_code == (1 if message else 0)
    assert "\x1b" not in done.output
    assert "\u202e" not in done.output
    assert "Traceback" not in done.output
    if message:
        assert done.stderr.startswith("airunway: evil/model: config.json")
        assert len(done.stderr.splitlines()) == 1


async def test_a_hub_is_asked_only_with_fetch(single: str) -> None:
    index = orjson.dumps({"metadata": {"total_size": 16060522496}})
    files = {"config.json": orjson.dumps(TINY), "model.safetensors.index.json": index}
    gated = Repository(name="org/gated", files=files, gated="manual")

    async def asked(model: str, *arguments: str, endpoint: str) -> Result:
        env = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secretsecretsecret"}
        given = ("fit", model, "--gpu", "h100", "--providers", single, "-o", "json", *arguments)
        return await asyncio.to_thread(lambda: run(*given, env=env))

    async with model_hub([Repository(name="org/tiny", files=files), gated]) as hub:
        done = await asked("org/tiny", endpoint=hub.endpoint)
        assert not hub.requests
        assert "unknown" in json.loads(done.stdout)["model"]["weights"]
        done = await asked("org/tiny", "--fetch", endpoint=hub.endpoint)
        assert json.loads(done.stdout)["model"]["weights"]["bytes"] == 16060522496
        assert "hf_secret" not in str(hub.requests)
        done = await asked("org/gated", "--fetch", endpoint=hub.endpoint)
        assert (done.exit_code, "answers 401 for org/gated/config.json: the model is gated" in done.stderr) == (1, True)
        done = await asked("../../etc", "--fetch", endpoint=hub.endpoint)
        assert (done.exit_code, "is not the id of a model" in done.stderr) == (1, True)
    done = await asked("org/tiny", "--fetch", endpoint=hub.endpoint)
    assert (done.exit_code, "does not answer" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "name one model"),
        ((LLAMA, "-f", "x.yaml"), 2, "name one model"),
        (("-f", "x.yaml", "--engine", "vllm"), 2, "are for MODEL"),
        ((LLAMA, "--nodes", "x.yaml", "--gpu", "h100"), 2, "not both"),
        ((LLAMA, "--nodes", "no-such-file.yaml"), 1, "no-such-file.yaml"),
        ((LLAMA, "--gpu", "gpu-of-tomorrow"), 1, "is not in the table; known: a10, a100-40gb"),
        ((LLAMA, "--gpu", "h100", "--context-length", "0"), 2, "--context-length"),
    ],
)
def test_usage(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = run("fit", *arguments)
    assert done.exit_code == code, done.output
    assert text in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("gpus", "engine", "code", "verdict"),
    [
        (4, {}, 0, "fits"),
        (4, {"contextLength": 200000}, 3, "impossible"),
        (4, {"args": {"tensor-parallel-size": "3"}}, 3, "impossible"),
        (4, {"args": {"gpu-memory-utilization": "0.5"}}, 3, "fits with less"),
        (1, {}, 3, "does not fit"),
        (0, {}, 0, "fits"),
    ],
)
def test_the_spec_of_a_file_is_judged(
    tmp_path: Path, single: str, gpus: int, engine: dict[str, Any], code: int, verdict: str
) -> None:
    file = tmp_path / "llama.yaml"
    file.write_text(yaml.safe_dump(deployment(gpus=gpus, engine={"type": "vllm", **engine})))
    done = run("fit", "-f", str(file), "--gpu", "h100", "--providers", single, "-o", "json")
    assert done.exit_code == code, done.output
    assert json.loads(done.stdout)["roles"][0]["verdict"] == verdict
    named = run("fit", "-f", str(file), "--gpu", "h100", "--providers", single, "-o", "name")
    assert (named.exit_code, named.stdout) == (code, "modeldeployment.airunway.ai/llama\n")
    model = run("fit", LLAMA, "--gpu", "h100", "-o", "name")
    assert (model.exit_code, "MODEL is no object" in " ".join(model.stderr.split())) == (2, True), model.output


@pytest.mark.parametrize(
    "flags",
    [
        ("Qwen/Qwen3-32B", "--gpu", "h100-80gb"),
        (LLAMA, "--gpu", "h100", "--engine", "vllm", "--provider", "llmd", "-n", "ml", "--context-length", "4096"),
        ("google/gemma-3-27b-it", "--gpu", "l4", "--replicas", "2", "--token-secret", "hf-token"),
        ("/un: heard # of'", "--gpus", "1", "--gpu-type", "amd.com/gpu", "--name", "x"),
        ("deepseek-ai/DeepSeek-R1", "--gpu", "h200"),
    ],
)
def test_a_new_manifest_is_valid_and_says_why(tmp_path: Path, flags: tuple[str, ...]) -> None:
    done = run("new", *flags)
    assert done.exit_code == 0, done.output
    file = tmp_path / "new.yaml"
    file.write_text(done.stdout)
    checked = run("validate", str(file))
    assert (checked.exit_code, checked.stdout) == (0, "1 valid\n"), checked.output
    made = yaml.safe_load(done.stdout)
    assert made["spec"]["model"]["id"] == flags[0]
    assert made["spec"]["resources"]["gpu"]["count"] >= 1
    assert "# as the option says" in done.stdout or "# the fewest of " in done.stdout


@pytest.mark.parametrize(
    ("model", "is_one"),
    [("org/m", True), ("gpt2", True), ("/models/m", True), ("org//m", False), ("../m", False), ("my model", False)],
)
def test_a_new_manifest_is_made_for_ids_that_the_crd_takes_and_for_no_others(model: str, *, is_one: bool) -> None:
    done = run("new", model, "--name", "m", "--gpus", "1")
    assert (done.exit_code == 0) is is_one, done.output
    assert is_one or f"{model}: model.id must be owner/name, or an absolute path" in done.stderr
    spec = {"model": {"id": model}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}
    deployment = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "m"},
        "spec": spec,
    }
    assert (validate(deployment) == []) is is_one


def test_a_new_manifest_takes_the_longest_context_that_fits() -> None:
    made = run("new", LLAMA, "--gpu", "l4").stdout
    spec = yaml.safe_load(made)["spec"]
    assert (spec["resources"]["gpu"]["count"], spec["engine"]["contextLength"]) == (8, 7168)
    assert "the model's own maximum of 131,072 tokens does not fit" in made
    done = run("new", LLAMA, "--gpu", "l4", "--context-length", "100000")
    assert (done.exit_code, "it fits on no node as asked for" in done.stderr) == (1, True)


def pod(name: str, *, pool: str, gpus: int, init: int = 0) -> Resource:
    def container(name: str, count: int) -> Resource:
        return {"name": name, "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": str(count)}}}

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"pool": pool},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [container("main", gpus)],
            **({"initContainers": [container("init", init)]} if init else {}),
        },
    }


@pytest.mark.cluster
async def test_free_gpus_of_a_cluster(
    client: Client, cluster: Cluster, kubeconfig: Path, namespace: str, tmp_path: Path, eventually: Any
) -> None:
    await install_definitions(client)
    names = [f"{namespace}-{part}" for part in ("busy", "open", "away")]
    for name in names:
        await client.create(NODE, gpu_node(name, labels={"pool": namespace}).manifest())
    try:
        await eventually(lambda: _ready(client, names))
        await client.merge_patch(NODE, ObjectKey("", names[2]), {"spec": {"unschedulable": True}})
        busy = pod("busy", pool=namespace, gpus=5, init=6)
        busy["spec"]["nodeName"] = names[0]
        busy["metadata"]["namespace"] = namespace
        await client.create(POD, busy)
        file = tmp_path / "llama.yaml"
        file.write_text(yaml.safe_dump(deployment(nodeSelector={"pool": namespace})))
        arguments = ("fit", "-f", str(file), "-n", namespace, "-o", "json", "--providers", "installed")

        async def asked(config: Path) -> Resource:
            done = await asyncio.to_thread(run, *arguments, "--kubeconfig", str(config))
            assert done.stdout, done.output
            found: Resource = json.loads(done.stdout)
            return found

        found = await asked(kubeconfig)
        ours = {row["nodes"][0]: row for row in found["roles"][0]["nodes"] if row["nodes"][0] in names}
        assert ours[names[0]]["free"] == 2  # an init container needs 6 of 8
        assert ours[names[0]]["why"] == "2 of 8 GPUs are free, the worker needs 4"
        assert ours[names[1]]["free"] == 8
        assert ours[names[1]]["estimate"]["verdict"] == "fits"
        assert ours[names[2]]["obstacles"] == ["cordoned"]
        assert ours[names[1]]["gpu"]["memoryGiB"] == pytest.approx(79.19, abs=0.01)

        # A ConfigMap of the namespace adds a model.
        entry = {"id": "ours/tiny", "config": TINY, "source": "us", "date": "2026-11"}
        data = {"models.json": json.dumps([entry])}
        labels = {"airunway.ai/model-catalogue": "true"}
        body = {"metadata": {"name": "models", "namespace": namespace, "labels": labels}, "data": data}
        await client.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", **body})
        tiny = ("fit", "ours/tiny", "-n", namespace, "-o", "json", "--kubeconfig", str(kubeconfig))
        done = await asyncio.to_thread(run, *tiny)
        assert f"ConfigMap {namespace}/models, models.json" in json.loads(done.stdout)["model"]["source"]

        # Without rights nothing is 0: the answer names what could not be read.
        stranger = await asked(cluster.kubeconfig_for("stranger"))
        assert {each["right"] for each in stranger["unseen"]} >= {"list nodes", "list pods in all namespaces"}
        assert stranger["roles"][0]["verdict"] == "unknown"
        done = await asyncio.to_thread(
            run, "fit", LLAMA, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig_for("stranger"))
        )
        assert "Not seen: you may not list nodes (the right to list nodes is missing)" in done.stdout
    finally:
        for name in names:
            await client.delete(NODE, ObjectKey("", name))


async def _ready(client: Client, names: list[str]) -> bool:
    """Whether the nodes are Ready; the taint of one that is not goes a moment later."""
    nodes = [await client.get(NODE, ObjectKey("", name)) for name in names]
    return all(is_true(node, "Ready") and not dig(node, "spec", "taints") for node in nodes)
