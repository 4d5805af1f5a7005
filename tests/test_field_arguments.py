"""What people bring: manifests from reports of users, and what each provider makes of them.

Each case has its name and two siblings of its kind. Only rendering is needed: no cluster.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from airunway.cli.processes import _of_the_cluster
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource, dig
from airunway.runtime.translate import TranslationResult
from airunway.sdk import IPV6, pod_specs
from airunway.validation import validate
from airunway_testing.conformance.cases import Base, judged, merged_spec

ALL = ("dynamo", "kaito", "kuberay", "llmd", "vllm")
QWEN: Resource = {"model": {"id": "Qwen/Qwen3-8B"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}


@cache
def host_of(provider: str) -> ProviderHost:
    return load(provider)


def made(provider: str, spec: Resource, *, name: str = "chat", **settings: object) -> TranslationResult:
    """What a provider makes of a deployment with that spec."""
    base = Base(name=name, engine=dig(spec, "engine", "type"), spec=spec, settings=settings)
    return judged(host_of(provider), base, spec, name=name)


def containers(found: TranslationResult) -> Iterator[Resource]:
    for obj in found.objects:
        for spec in pod_specs(obj):
            yield from (each for each in spec["containers"] if each["name"] != "picker")


def words(found: TranslationResult) -> list[str]:
    """The command lines of all engines."""
    return [str(word) for each in containers(found) for word in (*each.get("command", []), *each.get("args", []))]


def keywords(found: TranslationResult) -> Resource:
    """The arguments that Ray Serve LLM gives vLLM."""
    (config,) = (dig(obj, "spec", "serveConfigV2") for obj in found.objects if dig(obj, "spec", "serveConfigV2"))
    return dict(yaml.safe_load(config)["applications"][0]["args"]["llm_configs"][0])


def variables(container: Resource) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container.get("env", [])}


def blocked(found: TranslationResult) -> dict[str, str]:
    return {finding.path: finding.message for finding in found.blockers}


def warned(found: TranslationResult) -> dict[str, str]:
    return {finding.path: finding.message for finding in found.warnings}


# ---- 01: IPv6 addresses only


@pytest.mark.parametrize("provider", ["vllm", "llmd", "kaito"])
def test_01_ipv6_only_vllm_listens_on_the_pods_own_address(provider: str) -> None:
    found = made(provider, QWEN, ipFamily=IPV6)
    assert blocked(found) == {}
    assert "--host=::" in words(found)
    assert not any(word.startswith("--host") for word in words(made(provider, QWEN))), "vLLM's own default is IPv4"


def test_01_ipv6_only_ray_and_dynamo_listen_where_their_clients_come() -> None:
    ray = made("kuberay", QWEN, ipFamily=IPV6).objects[0]["spec"]
    assert ray["rayClusterConfig"]["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "::"
    assert yaml.safe_load(ray["serveConfigV2"])["http_options"] == {"host": "::"}
    for container in containers(made("dynamo", QWEN, ipFamily=IPV6)):
        assert {"DYN_HTTP_HOST": "::", "DYN_SYSTEM_HOST": "::"}.items() <= variables(container).items()


@pytest.mark.parametrize(
    ("engine", "image", "address"),
    [("sglang", "lmsysorg/sglang:v0.5.9", "--host=::"), ("llamacpp", "ghcr.io/ggml-org/llama.cpp:server", "::")],
)
def test_01_sibling_other_engines_listen_on_the_family_of_the_cluster(engine: str, image: str, address: str) -> None:
    spec = merged_spec(QWEN, {"engine": {"type": engine, "image": image}})
    assert address in words(made("vllm", spec, ipFamily=IPV6))
    assert address.replace("::", "0.0.0.0") in words(made("vllm", spec)), "`::` takes no IPv4 with asyncio"


def test_01_sibling_an_engine_that_cannot_listen_on_ipv6_is_refused() -> None:
    image = "nvcr.io/nvidia/tensorrt-llm/release:1.3.0"
    spec = merged_spec(QWEN, {"engine": {"type": "trtllm", "image": image}})
    assert "IPv6 addresses" in blocked(made("vllm", spec, ipFamily=IPV6))["spec.engine.type"]
    own = merged_spec(spec, {"engine": {"args": {"host": "::"}}})
    assert "--host=::" in words(made("vllm", own, ipFamily=IPV6)), "perhaps a newer release can"


def test_01_sibling_a_runner_that_listens_on_both_families_is_started_and_older_images_are_named() -> None:
    image = "ghcr.io/kaito-project/aikit/llama3.1:8b"
    spec = {"model": {"id": "o/m/f.gguf"}, "engine": {"type": "llamacpp", "image": image}, "resources": {"cpu": "4"}}
    found = made("kaito", spec, ipFamily=IPV6)
    assert blocked(found) == {}
    assert "--address=:5000" in words(found)
    assert "LocalAI 3.7 or older listen on IPv4 only" in warned(found)["spec.image"]
    assert "spec.image" not in warned(made("kaito", spec))


@pytest.mark.parametrize("provider", ["vllm", "llmd", "kaito"])
@pytest.mark.parametrize("host", ["::", "0.0.0.0", "$(POD_IP)"])
def test_01_sibling_a_user_may_name_the_address(provider: str, host: str) -> None:
    found = made(provider, merged_spec(QWEN, {"engine": {"args": {"host": host}}}), ipFamily=IPV6)
    assert [word for word in words(found) if word.startswith("--host")] == [f"--host={host}"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", ""])
def test_01_sibling_an_address_where_no_probe_arrives_is_refused(host: str) -> None:
    for given in ({"args": {"host": host}}, {"extraArgs": ["--host", host]}):
        ((path, text),) = blocked(made("vllm", merged_spec(QWEN, {"engine": given}))).items()
        assert path.startswith("spec.engine.")
        assert "write '::' for IPv6 or '0.0.0.0' for IPv4" in text


@pytest.mark.parametrize(
    ("address", "family"),
    [("fd00:10:96::1", "IPv6"), ("10.96.0.1", "IPv4"), ("api.example.org", "IPv4"), (None, "IPv4")],
)
def test_01_a_provider_in_a_cluster_reads_the_family_from_its_pod(address: str | None, family: str) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": address} if address else {}
    for provider in ALL:
        assert _of_the_cluster(host_of(provider), environment) == {"ipFamily": family}


async def test_01_the_wildcard_of_ipv6_takes_no_ipv4_with_asyncio() -> None:
    """Why `::` is no default: uvicorn listens by asyncio, and a probe of an IPv4 pod would never arrive."""
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), host="::", port=0)
    port = server.sockets[0].getsockname()[1]
    try:
        _, writer = await asyncio.open_connection("::1", port)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    finally:
        server.close()
    with socket.socket(socket.AF_INET) as narrow, pytest.raises(socket.gaierror, match="Address family"):
        narrow.bind(("::", 0))  # what trtllm-serve does


# ---- 04: a random user id

_WRITES = """
import getpass, os, pathlib, tempfile
for name in (".cache/huggingface", ".cache/vllm", ".config/vllm", ".triton/cache"):
    place = pathlib.Path.home() / name
    place.mkdir(parents=True)
    (place / "file").write_text("x")
tempfile.TemporaryFile().close()
print(os.getuid(), getpass.getuser())
"""
"""What engines do first: caches in their home, a temporary file, and the name of their user (PyTorch)."""

ASSIGNED = 1000800000
"""A user id that OpenShift assigns to a project; no image has an account for it."""


@pytest.mark.parametrize("provider", ALL)
def test_04_random_uid_every_engine_has_a_home(provider: str) -> None:
    asked = {"securityContext": {"runAsNonRoot": True, "runAsUser": ASSIGNED, "runAsGroup": 0}}
    template = {"engine": {"args": {"max-num-seqs": "8"}}}  # no preset of KAITO
    for spec in (merged_spec(QWEN, template), merged_spec(QWEN, template, asked)):
        found = [*containers(made(provider, spec))]
        assert found
        assert all({"HOME": "/tmp", "USER": "model"}.items() <= variables(each).items() for each in found)


@pytest.mark.image
@pytest.mark.parametrize("given", [True, False])
def test_04_random_uid_writes_its_caches(given: bool) -> None:
    """In a container as restricted-v2 runs it, on this machine's files: an assigned user, group 0, no capability."""
    (container,) = containers(made("vllm", QWEN))
    environment = {"HOME": "/root", **(variables(container) if given else {})}
    run = ["podman", "run", "--rm", "--network=none", f"--user={ASSIGNED}:0", "--cap-drop=all"]
    run += [
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024",
        "--security-opt=no-new-privileges",
        "--tmpfs=/tmp:mode=1777,notmpcopyup",
    ]
    run += [f"--env={name}={value}" for name, value in environment.items()]
    run += ["--rootfs", "/:O", "/usr/bin/python3", "-I", "-c", _WRITES]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if given:
        assert done.stdout.split() == [str(ASSIGNED), "model"], done.stderr
    else:
        assert "PermissionError" in done.stderr


# ---- 06: Services that become configuration


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("name", ["vllm", "ray", "llama-arg"])
def test_06_service_links_no_pod_that_we_write_gets_them(provider: str, name: str) -> None:
    found = made(provider, merged_spec(QWEN, {"engine": {"args": {"max-num-seqs": "8"}}}), name=name)
    specs = [spec for obj in found.objects for spec in pod_specs(obj)]
    services = [
        dig(each, "extraPodSpec") for obj in found.objects for each in (dig(obj, "spec", "services") or {}).values()
    ]
    assert specs or services
    assert all(each["enableServiceLinks"] is False for each in (*specs, *filter(None, services)))


@pytest.mark.parametrize("name", ["vllm", "vllm-dp-master", "vllm-nixl-side-channel"])
def test_06_service_links_a_preset_of_that_name_is_refused_with_a_way_out(name: str) -> None:
    text = blocked(made("kaito", QWEN, name=name))["metadata.name"]
    assert f"{name.upper().replace('-', '_')}_PORT=tcp://" in text
    assert "choose another name, or set spec.image" in text
    assert not blocked(made("kaito", merged_spec(QWEN, {"image": "vllm/vllm-openai:v0.23.0"}), name=name))
    assert not blocked(made("kaito", QWEN, name=f"{name}-chat"))


# ---- 07: tool calls behind Dynamo

TOOLS: Resource = {"enable-auto-tool-choice": "true", "tool-call-parser": "hermes", "reasoning-parser": "qwen3"}


def test_07_dynamo_tool_parser_is_carried_over() -> None:
    found = made("dynamo", merged_spec(QWEN, {"engine": {"args": TOOLS}}))
    assert blocked(found) == {}
    line = words(found)
    assert "--dyn-tool-call-parser=hermes" in line
    assert "--dyn-reasoning-parser=qwen3" in line
    assert "--reasoning-parser=qwen3" in line, "it keeps guided decoding away from the thoughts"
    assert not [word for word in line if "auto-tool-choice" in word or word.startswith("--tool-call-parser")]
    alike = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser=qwen3"]
    written = words(made("dynamo", merged_spec(QWEN, {"engine": {"extraArgs": alike}})))
    assert sorted(written) == sorted(line)


@pytest.mark.parametrize("provider", ["vllm", "llmd", "kaito"])
def test_07_with_vllm_s_own_server_the_flags_are_vllm_s(provider: str) -> None:
    line = words(made(provider, merged_spec(QWEN, {"engine": {"args": TOOLS}})))
    assert {"--enable-auto-tool-choice", "--tool-call-parser=hermes", "--reasoning-parser=qwen3"} <= set(line)


def test_07_ray_gets_them_as_keywords() -> None:
    kwargs = keywords(made("kuberay", merged_spec(QWEN, {"engine": {"args": TOOLS}})))["engine_kwargs"]
    assert kwargs == {"enable_auto_tool_choice": True, "tool_call_parser": "hermes", "reasoning_parser": "qwen3"} | {
        key: value for key, value in kwargs.items() if key not in {name.replace("-", "_") for name in TOOLS}
    }


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ({"chat-template": "/templates/chat.jinja"}, "--custom-jinja-template=/templates/chat.jinja"),
        ({"tool-call-parser": "openai"}, "--dyn-tool-call-parser=harmony"),
        ({"tool_call_parser": "hermes", "dyn-tool-call-parser": "mistral"}, "--dyn-tool-call-parser=mistral"),
    ],
)
def test_07_sibling_what_has_an_equivalent_is_carried_over(args: dict[str, str], line: str) -> None:
    found = made("dynamo", merged_spec(QWEN, {"engine": {"args": args}}))
    assert blocked(found) == {}
    own = line.partition("=")[0]
    assert [word for word in words(found) if word.startswith(own)] == [line]


@pytest.mark.parametrize(
    ("engine", "args", "line"),
    [
        ("sglang", {"tool-call-parser": "llama3"}, "--dyn-tool-call-parser=llama3_json"),
        ("sglang", {"reasoning-parser": "deepseek-r1"}, "--dyn-reasoning-parser=deepseek_r1"),
        ("trtllm", {"tool_parser": "hermes"}, "--dyn-tool-call-parser=hermes"),
    ],
)
def test_07_sibling_other_engines_behind_dynamo(engine: str, args: dict[str, str], line: str) -> None:
    found = made("dynamo", merged_spec(QWEN, {"engine": {"type": engine, "args": args}}))
    assert blocked(found) == {}
    assert line in words(found)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"lora-modules": "a=/a"}, "it is of vLLM's own HTTP server"),
        ({"default-chat-template-kwargs": "{}"}, "it is of vLLM's own HTTP server"),
        ({"chat-template": "{{ messages }}"}, "custom-jinja-template"),
    ],
)
def test_07_sibling_what_has_none_is_refused_by_name(args: dict[str, str], says: str) -> None:
    ((path, text),) = blocked(made("dynamo", merged_spec(QWEN, {"engine": {"args": args}}))).items()
    assert path == f"spec.engine.args[{next(iter(args))}]"
    assert says in text


@pytest.mark.parametrize("name", ["enable-log-outputs", "api-server-count", "root-path"])
def test_07_sibling_what_changes_no_answer_is_left_out_with_a_warning(name: str) -> None:
    found = made("dynamo", merged_spec(QWEN, {"engine": {"args": {name: "1"}}}))
    assert blocked(found) == {}
    assert "with Dynamo its Frontend takes the requests" in warned(found)[f"spec.engine.args[{name}]"]
    assert not [word for word in words(found) if name in word]


def test_07_a_parser_that_dynamo_may_not_have_is_named() -> None:
    found = made("dynamo", merged_spec(QWEN, {"engine": {"args": {"tool-call-parser": "xlam"}}}))
    assert "xlam is none that is known" in warned(found)["spec.engine.args[tool-call-parser]"]
    alone = made("dynamo", merged_spec(QWEN, {"engine": {"args": {"enable-auto-tool-choice": ""}}}))
    assert "set dyn-tool-call-parser" in warned(alone)["spec.engine.args[enable-auto-tool-choice]"]


# ---- 09: shared memory


@pytest.mark.parametrize("provider", ["kaito", "kuberay", "llmd", "vllm"])
@pytest.mark.parametrize("count", [4, 8, 1])
def test_09_shared_memory_has_no_limit_of_its_own(provider: str, count: int) -> None:
    spec = merged_spec(QWEN, {"engine": {"args": {"max-num-seqs": "8"}}, "resources": {"memory": "96Gi"}})
    found = made(provider, merged_spec(spec, {"resources": {"gpu": {"count": count}}}))
    pods = [pod for obj in found.objects for pod in pod_specs(obj)]
    engines = [pod for pod in pods if any("gpu" in str(dig(each, "resources")) for each in pod["containers"])]
    assert engines
    for pod in engines:
        (shared,) = (each["emptyDir"] for each in pod["volumes"] if each["name"] == "airunway-dshm")
        assert shared == {"medium": "Memory"}
        assert "/dev/shm" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}


# ---- 10: a path on a claim


def on_a_claim(model: str, mount: str, **spec: Resource) -> Resource:
    volume = {"name": "weights", "claimName": "models", "mountPath": mount, "readOnly": True, "purpose": "custom"}
    return merged_spec(QWEN, {"model": {"id": model, "storage": {"volumes": [volume]}}}, spec)


@pytest.mark.parametrize("provider", ALL)
def test_10_path_on_a_claim_is_what_the_engine_loads(provider: str) -> None:
    spec = merged_spec(on_a_claim("/data/DeepCoder-14B-Preview", "/data"), {"model": {"servedName": "deepcoder-14b"}})
    found = made(provider, spec)
    assert blocked(found) == {}
    assert not [text for text in warned(found).values() if "no volume is mounted" in text]
    if provider == "kuberay":
        loading = {"model_id": "deepcoder-14b", "model_source": "/data/DeepCoder-14B-Preview"}
        assert keywords(found)["model_loading_config"] == loading
    else:
        assert "/data/DeepCoder-14B-Preview" in words(found)
        assert "--served-model-name=deepcoder-14b" in words(found)
    assert "huggingface.co" not in json.dumps(found.objects)


GGUF = {"type": "llamacpp", "image": "ghcr.io/ggml-org/llama.cpp:server"}


@pytest.mark.parametrize("provider", ["vllm", "kaito"])
@pytest.mark.parametrize(
    "spec",
    [
        on_a_claim("/models/qwen3-8b-q4_k_m.gguf", "/models", engine=GGUF),
        on_a_claim("/models/", "/models", engine={**GGUF, "args": {"ggufUrl": "/models/qwen3-8b-q4_k_m.gguf"}}),
        on_a_claim("o/m", "/models", engine={**GGUF, "args": {"ggufUrl": "file:///models/qwen3-8b-q4_k_m.gguf"}}),
    ],
)
def test_10_a_gguf_file_by_path_is_a_file(provider: str, spec: Resource) -> None:
    line = words(made(provider, spec))
    assert line[line.index("--model") + 1] == "/models/qwen3-8b-q4_k_m.gguf"
    assert not [word for word in line if word.startswith(("--hf", "huggingface"))]


def test_10_a_runner_that_fetches_its_models_gets_the_path_and_a_warning() -> None:
    image = "ghcr.io/kaito-project/aikit/runners/llama-cpp-cpu:latest"
    spec = on_a_claim("/models/q.gguf", "/models", engine={"type": "llamacpp", "image": image})
    found = made("kaito", spec)
    assert "/models/q.gguf" in words(found)
    assert not [word for word in words(found) if "huggingface" in word]
    assert "llama.cpp's own server" in warned(found)["spec.engine.image"]


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("mount", ["/datasets", "/data/other"])
def test_10_a_path_that_no_volume_covers_is_named(provider: str, mount: str) -> None:
    found = made(provider, on_a_claim("/data/DeepCoder-14B-Preview", mount))
    assert "/data/DeepCoder-14B-Preview" in warned(found)["spec.model.id"]


# ---- values in another form


def test_a_map_where_text_is_meant_says_how_to_write_it() -> None:
    spec = merged_spec(QWEN, {"engine": {"args": {"speculative-config": {"method": "ngram"}}}})
    manifest = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "m"},
        "spec": spec,
    }
    (problem,) = validate(manifest)
    assert """write it as JSON text, in quotes: '{"method": "ngram"}'""" in str(problem)


def test_json_that_a_shell_would_change_says_the_dotted_form() -> None:
    args = {"speculative-config": '{"method": "ngram", "num_speculative_tokens": 4}'}
    spec = merged_spec(QWEN, {"engine": {"args": args}, "resources": {"gpu": {"count": 16}}})
    text = blocked(made("dynamo", spec))["spec.engine.args[speculative-config]"]
    assert "(speculative-config.method, speculative-config.num_speculative_tokens)" in text


def test_the_dotted_form_where_keywords_are_taken_says_the_json() -> None:
    spec = merged_spec(QWEN, {"engine": {"args": {"speculative-config.method": "ngram"}}})
    assert """write the whole of speculative-config as JSON text: speculative-config: '{"method": ...}'""" in "".join(
        blocked(made("kuberay", spec)).values()
    )


# ---- siblings of all: what people write where a deployment has it elsewhere


@pytest.mark.parametrize(
    ("spec", "path", "place"),
    [
        ({"podTemplate": {"spec": {"runtimeClassName": "nvidia"}}}, "spec.podTemplate.spec", "runtimeClassName"),
        ({"podTemplate": {"runtimeClassName": "nvidia"}}, "spec.podTemplate.runtimeClassName", "spec.runtimeClassName"),
        ({"resources": {"limits": {"memory": "64Gi"}}}, "spec.resources.limits.memory", "spec.resources.memory"),
        ({"shmSize": "16Gi"}, "spec.shmSize", "/dev/shm has no limit of its own"),
        ({"volumes": [{"name": "a"}]}, "spec.volumes", "spec.model.storage.volumes"),
        ({"args": ["--port=1"]}, "spec.args", "spec.engine.extraArgs"),
        ({"replicas": 2}, "spec.replicas", "spec.scaling.replicas"),
        ({"engine": {"env": []}}, "spec.engine.env", "spec.env"),
        *(
            ({"provider": {"overrides": {"spec": {key: "nvidia"}}}}, f"spec.provider.overrides.spec.{key}", place)
            for key, place in (
                ("runtimeClassName", "spec.runtimeClassName"),
                ("securityContext", "spec.securityContext"),
                ("serviceAccount", "spec.serviceAccountName"),
                ("hostNetwork", "remove it"),
            )
        ),
    ],
)
def test_03_sibling_a_field_in_the_wrong_place_is_refused_with_the_right_one(
    spec: Resource, path: str, place: str
) -> None:
    found = {each.path: each.message for each in validate(_manifest(spec))}
    assert list(found) == [path]
    assert place in found[path]
    assert ("write " in found[path]) is (place != "remove it")


def test_a_misspelt_field_keeps_the_nearest_name() -> None:
    (found,) = validate(_manifest({"resources": {"cpus": "4"}}))
    assert found.message == "unknown field, did you mean cpu?"


def _manifest(spec: Resource) -> Resource:
    made = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "chat"}}
    return {**made, "spec": {"model": {"id": "o/m"}, **spec}}


def test_07_sibling_an_argument_is_named_by_its_own_position() -> None:
    """Also after arguments that are carried over, left out or refused."""
    words = ["--tool-call-parser", "hermes", "--api-key=abc", "--enable-lora", "--lora-modules", "a=/x"]
    found = blocked(made("dynamo", merged_spec(QWEN, {"engine": {"extraArgs": words}})))
    assert sorted(found) == ["spec.engine.extraArgs[2]", "spec.engine.extraArgs[4]"]
    assert "protects nothing" in found["spec.engine.extraArgs[2]"]
    assert "--lora-modules" in found["spec.engine.extraArgs[4]"]
