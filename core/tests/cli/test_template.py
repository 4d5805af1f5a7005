"""`airunway template`, and what the other commands make of a deployment that names one: in files and in a cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from core.tests.any_json import anything, changed
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.api import names
from airunway.cli.explained import template_lines
from airunway.cli.main import app
from airunway.cli.template_view import choice_text, template_text
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import Client
from airunway.resource import ObjectKey, Resource, dig
from airunway.templates.choice import Request, choose, request_of
from airunway.templates.contribution import contribution_of
from airunway.tools.expanded import SpecError, expanded
from airunway.tools.explained import template_explanation
from airunway.view.templates import choice_resource, list_row, template_resource
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import install_definitions

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
DEFAULTS: Resource = {
    "engine": {"type": "vllm", "contextLength": 8192},
    "env": [{"name": "A", "value": "hidden"}, {"name": "B", "value": "hidden"}],
}


def template(name: str = "fast", *, cluster: bool = False, status: Resource | None = None, **spec: Any) -> Resource:
    wanted = {"modelName": MODEL, "hardware": {"gpu": {"count": 2, "model": "H100"}}, "defaults": DEFAULTS, **spec}
    kind = CLUSTER_MODEL_TEMPLATE if cluster else MODEL_TEMPLATE
    made: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }
    return made if status is None else {**made, "status": status}


def deployment(name: str = "llama", **spec: Any) -> Resource:
    wanted = {"templateRef": {"name": "fast"}, **spec}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_(name: str, *objects: Resource) -> str:
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    return write_


# ---------------------------------------------------------------------------------------------------- the command's own


def test_list_shows_both_scopes_with_phase_hardware_and_users(write: Any) -> None:
    absent = {"phase": "NotAvailable", "reason": "GPUNotAvailable", "usedBy": 3, "hardware": {"summary": "8 x MI300X"}}
    file = write("t.yaml", template(metric="latency"), template("shared", cluster=True, precision="fp8", status=absent))
    done = run("template", "list", "-f", file, "-n", "ml")
    assert done.exit_code == 0, done.output
    header, own, shared = (line.split() for line in done.stdout.splitlines())
    assert header[:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert own == ["ml", "fast", "Ready", MODEL, "2", "x", "H100", "latency", "-", "-"]
    assert shared == [
        "(cluster)",
        "shared",
        "NotAvailable",
        MODEL,
        "8",
        "x",
        "MI300X",
        "-",
        "fp8",
        "3",
        "GPUNotAvailable",
    ]
    done = run("template", "list", "-f", file, "-o", "name")
    assert done.stdout == "modeltemplate.airunway.ai/fast\nclustermodeltemplate.airunway.ai/shared\n"
    again = run(
        "template", "list", "-f", "-", "-o", "name", stdin=run("template", "list", "-f", file, "-o", "yaml").stdout
    )
    assert again.stdout == done.stdout, "what it prints can be read again"
    assert run("template", "list", "-A", "-n", "ml").exit_code == 2
    assert (
        "no ModelTemplate or ClusterModelTemplate in it"
        in run("template", "list", "-f", write("none.yaml", deployment())).stderr
    )


def test_show_says_what_a_template_gives_and_what_of_it_is_ignored(write: Any) -> None:
    status = {
        "phase": "Degraded",
        "reason": "AuthenticationFailed",
        "message": "401",
        "discovery": {"attempts": 2, "nextAttemptTime": "2026-11-25T12:00:00Z"},
        "cache": {"ready": 0, "total": 1, "artifacts": ["llama-0123456789"]},
        "conditions": [{"type": "CacheReady", "status": "False", "reason": "AuthenticationFailed", "message": "401"}],
    }
    file = write("t.yaml", template(status=status, defaults={**DEFAULTS, "model": {"id": "x"}}))
    done = run("template", "show", "fast", "-f", file, "-n", "ml")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "ModelTemplate ml/fast is Degraded: AuthenticationFailed"
    for line in (
        "Discovery:  2 tries, the next one at 2026-11-25T12:00:00Z",
        "Cache:      0 of 1: llama-0123456789",
        "  CacheReady=False AuthenticationFailed: 401",
        f"  spec.model.id: {MODEL}",
        "  spec.resources.gpu.count: 2",
        "  spec.env[A]",
        "  problem: spec.defaults.model: a template cannot give this: it is ignored",
        "Not seen: users: the template is that of a file",
    ):
        assert line in lines
    assert "hidden" not in done.stdout, "variables are shown by name"
    report = json.loads(run("template", "show", "mtpl/fast", "-f", file, "-n", "ml", "-o", "json").stdout)
    assert report["hash"] == contribution_of(template(status=status)).hash
    assert report["usedBy"] is None
    assert run("template", "show", "fast", "-f", file, "-o", "name").stdout == "modeltemplate.airunway.ai/fast\n"
    elsewhere = run("template", "show", "fats", "-f", file)
    assert elsewhere.exit_code == 1
    assert "did you mean fast?" in elsewhere.stderr
    assert run("template", "show", "md/fast", "-f", file).exit_code == 2


def test_render_prints_a_deployment_that_runs_without_the_template(write: Any) -> None:
    file = write("t.yaml", template())
    done = run("template", "render", "fast", "-f", file, "-n", "ml")
    assert done.exit_code == 0, done.output
    minimal = yaml.safe_load(done.stdout)
    assert minimal["metadata"] == {"name": "fast", "namespace": "ml"}
    assert minimal["spec"] == contribution_of(template()).spec
    both = write("both.yaml", deployment(env=[{"name": "A", "value": "own"}]), template())
    done = run("template", "render", "-f", both, "-o", "json")
    spec = json.loads(done.stdout)["spec"]
    assert "templateRef" not in spec
    assert spec["env"] == [{"name": "A", "value": "own"}, {"name": "B", "value": "hidden"}]
    assert run("template", "render").exit_code == 2
    trtllm = {"engine": {"type": "trtllm"}, "resources": {"gpu": {"count": 0}}}
    broken = run("template", "render", "-f", write("b.yaml", deployment(), template(hardware=None, defaults=trtllm)))
    assert broken.exit_code == 1
    assert "TensorRT-LLM engine requires GPU" in broken.stderr


def test_why_shows_every_candidate_in_order_and_what_speaks_against_it(write: Any) -> None:
    gone = {"phase": "NotAvailable", "reason": "GPUNotAvailable", "message": "no node has an MI300X"}
    file = write(
        "t.yaml",
        template("slow", cluster=True, metric="throughput"),
        template("absent", cluster=True, optimized=True, status=gone),
        template("quick", cluster=True, metric="latency", precision="fp8"),
        template("own", metric="throughput"),
        template("other", modelName="org/other"),
    )
    asked = ("template", "why", MODEL, "-f", file, "-n", "ml")
    done = run(*asked)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"For model {MODEL} in namespace ml: ModelTemplate own in namespace ml\n")
    rows = done.stdout.splitlines()[4:]
    assert [row.split()[1:3] for row in rows] == [
        ["own", "chosen"],
        ["quick", "usable"],
        ["slow", "usable"],
        ["absent", "rejected"],
    ]
    assert "a usable template of the namespace comes before those of the cluster" in rows[1]
    assert rows[3].endswith("it is NotAvailable: no node has an MI300X")
    document = json.loads(run(*asked, "--metric", "latency", "-o", "json").stdout)
    assert document["chosen"] == {"apiKind": "ClusterModelTemplate", "name": "quick"}
    assert document["candidates"][1]["against"] == "its metric is throughput, and latency was asked for"
    none = run(*asked, "--precision", "fp4")
    assert none.exit_code == 3
    assert "none (TemplateNotFound)" in none.stdout
    assert "its precision is fp8, and fp4 was asked for" in none.stdout


def test_why_names_all_that_are_equally_good(write: Any) -> None:
    file = write("t.yaml", template("a"), template("b"), template("c", optimized=False))
    done = run("template", "why", MODEL, "-f", file)
    assert done.exit_code == 3
    assert "none (TemplateSelectionAmbiguous)" in done.stdout
    assert "ModelTemplate a in namespace default, ModelTemplate b in namespace default" in done.stdout
    rows = done.stdout.splitlines()[4:]
    assert [row.split()[1] for row in rows] == ["a", "b", "c"]
    assert rows[1].endswith("  it is as good as a")
    assert rows[2].endswith("  a is better: optimized")


@pytest.mark.parametrize("asked", [{"name": "fast"}, {"modelName": MODEL, "metric": "latency", "precision": "fp8"}])
def test_a_request_in_words(asked: Resource) -> None:
    request = request_of({"templateRef": asked})
    assert request is not None
    assert request.text in ("template fast", f"model {MODEL}, metric latency, precision fp8")
    assert Request().text == ""


@pytest.mark.parametrize("broken", [{"metadata": []}, {"spec": "x"}, {"spec": None}])
def test_a_template_of_a_file_that_is_no_object_is_named(write: Any, broken: Resource) -> None:
    done = run("template", "list", "-f", write("t.yaml", {**template(), **broken}))
    assert (done.exit_code, "must be an object" in done.stderr) == (1, True)


def test_show_says_how_many_nodes_are_in_maintenance() -> None:
    hardware = {"nodes": 3, "nodesOutOfService": 1, "models": ["H100"], "summary": "2 x H100"}
    lines = list(template_text(template(status={"phase": "Ready", "hardware": hardware}), []))
    assert "Hardware:   2 x H100 (nodes that have it: 3, 1 of them cordoned or not Ready, H100)" in lines


@settings(max_examples=300, deadline=None)
@given(st.randoms())
def test_any_template_is_listed_shown_judged_and_merged(chance: Random) -> None:
    """Whatever an object of the kind has below its metadata: an API server without our CRD's schema may store it."""
    status = {
        "phase": "Degraded",
        "reason": "X",
        "message": "m",
        "usedBy": 1,
        "rootCause": {"code": "A.B", "object": "Job/ml/x", "message": "m"},
        "hardware": {"tier": 3, "nodes": 2, "models": ["H100"], "requirements": [{"key": "a"}], "summary": "2 x H100"},
        "discovery": {"attempts": 1},
        "cache": {"ready": 1, "total": 1, "artifacts": ["a"]},
        "conditions": [{"type": "CacheReady", "status": "False", "reason": "X", "message": "m"}],
    }
    base = template(status=status, metric="latency", modelSources=[{"uri": "hf://a/b"}], optimized=True)
    spoiled = {key: changed(chance, {"x": base[key]}, anything).get("x") for key in ("spec", "status")}
    made = {**base, **spoiled, "metadata": {"name": "fast", "namespace": "ml"}}
    user = {**deployment(), "metadata": {"name": "llama", "namespace": "ml"}, "status": spoiled["status"]}
    asked = Request(model=MODEL, metric="latency", digest="x")
    choice = choose(
        asked,
        namespaced=[made, template("other", status={"phase": "Ready"})],
        cluster=[],
        unusable=lambda template: contribution_of(template).unusable,
    )
    texts = [*list_row(made), *template_text(made, [user]), *choice_text(asked, choice, namespace="ml", width=80)]
    assert all(isinstance(text, str) for text in texts)
    json.dumps([template_resource(made, [user]), choice_resource(asked, choice, [])])
    own = changed(chance, deployment(env=[{"name": "A"}], affinity={"nodeAffinity": {}}), anything)
    if isinstance(own.get("spec"), dict) and isinstance(own.get("metadata"), dict):
        try:
            (found,) = expanded([{**own, "metadata": {"name": "llama", "namespace": "ml"}}], [made])
        except SpecError:
            return  # a number beyond 64 bits
        lines = [*template_lines(template_explanation(found))]
        assert all(isinstance(line, str) for line in lines)


# --------------------------------------------------------------------------------------------------- the other commands


def test_explain_names_the_template_for_each_value(write: Any) -> None:
    own = deployment(env=[{"name": "A", "value": "own"}], resources={"gpu": {"count": 4}})
    file = write("both.yaml", own, template())
    done = run("explain", "-f", file, "-n", "ml", "--providers", "installed")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == f"ModelDeployment ml/llama  {MODEL}"
    for line in (
        "Engine:    vllm (explicit engine selection)",
        "Template:  ModelTemplate ml/fast (template fast was asked for)",
        f"  spec.model.id: {MODEL} (from ModelTemplate ml/fast)",
        "  spec.resources.gpu.count: 2 (from ModelTemplate ml/fast; overridden by the deployment's"
        " spec.resources.gpu.count)",
        "  spec.env[A] (from ModelTemplate ml/fast; overridden by the deployment's spec.env[A])",
        "  spec.env[B] (from ModelTemplate ml/fast)",
    ):
        assert line in lines
    assert "hidden" not in done.stdout
    found = json.loads(run("explain", "-f", file, "--providers", "installed", "-o", "json").stdout)
    assert found["template"]["ref"] == {"kind": "ModelTemplate", "namespace": "default", "name": "fast"}


def test_explain_says_whose_value_a_config_gives_way_to(write: Any) -> None:
    env = [{"name": "A", "value": "x"}, {"name": "B", "value": "x"}]
    config = {
        "apiVersion": names.API_VERSION,
        "kind": "RuntimeConfig",
        "metadata": {"name": "default"},
        "spec": {"env": env},
    }
    file = write("all.yaml", deployment(env=[{"name": "A", "value": "own"}]), template(), config)
    shown = run("explain", "-f", file, "--providers", "installed").stdout
    assert "spec.env[A] (from RuntimeConfig default/default; overridden by the deployment's spec.env[A])" in shown
    text = "spec.env[B] (from RuntimeConfig default/default; overridden by ModelTemplate default/fast's spec.env[B])"
    assert text in shown


def test_another_engine_than_the_template_s_overrides_all_of_its_engine(write: Any) -> None:
    file = write("both.yaml", deployment(engine={"type": "sglang"}), template())
    shown = run("explain", "-f", file, "--providers", "installed").stdout
    assert "Engine:    sglang (explicit engine selection)" in shown
    text = "  spec.engine.contextLength: 8192 (from ModelTemplate default/fast; overridden by the deployment's"
    assert f"{text} spec.engine.type)" in shown.splitlines()


def test_of_a_recorded_template_the_record_counts_and_no_cluster_is_read(write: Any) -> None:
    record = {"ref": {"kind": "ClusterModelTemplate", "name": "fast"}, "scope": "Cluster", "hash": "0" * 64}
    request = request_of({"templateRef": {"name": "fast"}})
    assert request is not None
    given = {"model": {"id": "org/recorded"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}
    status = {"effectiveTemplate": record, "revision": {"template": {**record, "asked": request.digest, "spec": given}}}
    shown = run("explain", "-f", write("live.yaml", {**deployment(), "status": status}), "--providers", "installed")
    assert shown.exit_code == 0, shown.output
    assert "  spec.model.id: org/recorded (from ClusterModelTemplate fast)" in shown.stdout.splitlines()


def test_render_fit_and_preflight_work_on_what_the_template_gives(write: Any) -> None:
    toy = template(modelName="org/model.gguf", hardware=None, defaults={"engine": {"type": "llamacpp"}})
    file = write("both.yaml", deployment(provider={"name": "toy"}, resources={"memory": "8Gi"}), toy)
    done = run("render", "-f", file)
    assert done.exit_code == 0, done.output
    made = {obj["kind"]: obj for obj in yaml.safe_load_all(done.stdout)}
    assert "org/model.gguf" in json.dumps(made["Toy"])
    sized = run("fit", "-f", write("fit.yaml", deployment(), template()), "--gpu", "h100-80gb")
    assert sized.exit_code == 0, sized.output
    assert f"Model:     {MODEL}" in sized.stdout
    assert "2 GPUs" in sized.stdout


@pytest.mark.parametrize("command", [("render",), ("fit", "--gpu", "h100-80gb"), ("template", "render")])
def test_a_template_that_is_not_given_is_looked_for_in_the_cluster(
    write: Any, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = write("md.yaml", deployment())
    nowhere = tmp_path / "kubeconfig"
    done = run(*command, "-f", file, "--kubeconfig", str(nowhere))
    assert done.exit_code == 1
    assert "default/llama: its template is in none of the files: the cluster's templates are read" in done.stderr
    assert str(nowhere) in done.stderr
    other = run(*command, "-f", file, "--kubeconfig", str(nowhere), "--context", "nosuch")
    assert other.exit_code == 1


def test_validate_checks_what_the_template_gives(write: Any) -> None:
    both = run("validate", write("both.yaml", deployment(), template()))
    assert (both.exit_code, both.stdout) == (0, "2 valid\n")
    alone = run("validate", write("md.yaml", deployment()))
    assert alone.exit_code == 0
    assert "ModelDeployment/llama: warning: spec.templateRef: there is no ModelTemplate fast" in alone.stderr
    assert alone.stderr.endswith("what it gives is not checked\n")
    gpus = template(defaults={"serving": {"mode": "disaggregated"}})
    broken = run("validate", write("broken.yaml", deployment(), gpus))
    assert broken.exit_code == 1
    assert "spec.resources.gpu: Cannot specify both resources.gpu and scaling.prefill/decode" in broken.stdout
    assert "(with ModelTemplate default/fast)" in broken.stdout
    policy = write("policy.yaml", {"rules": [{"images": ["good.example/*"]}]})
    image = template(defaults={**DEFAULTS, "image": "bad.example/x"})
    forbidden = run("validate", write("image.yaml", deployment(), image), "--policy", policy)
    assert forbidden.exit_code == 1
    assert "spec.image: " in forbidden.stdout
    s3 = run("validate", write("s3.yaml", template(modelSources=[{"uri": "s3://bucket/m"}])))
    assert "warning: no deployment can use it: spec.modelSources: the weights are at s3://bucket/m" in s3.stderr


# ------------------------------------------------------------------------------------------------------------ a cluster


@pytest.mark.apiserver
async def test_the_templates_of_a_cluster(
    client: Client, kubeconfig: Path, control_plane: Cluster, namespace: str, write: Any
) -> None:
    await install_definitions(client)
    name = f"shared-{namespace}"
    for made in (template(), template(name, cluster=True, metric="latency")):
        kind = MODEL_TEMPLATE if made["kind"] == "ModelTemplate" else CLUSTER_MODEL_TEMPLATE
        place = {"namespace": namespace} if kind.namespaced else {}
        await client.create(kind, {**made, "metadata": {**made["metadata"], **place}})
    ready = {"status": {"phase": "Ready", "usedBy": 1}}
    await client.merge_patch(CLUSTER_MODEL_TEMPLATE, ObjectKey("", name), ready, subresource="status")
    live = deployment()
    live["metadata"]["namespace"] = namespace
    await client.create(MODEL_DEPLOYMENT, live)
    ref = {"kind": "ModelTemplate", "namespace": namespace, "name": "fast"}
    record = {"ref": ref, "scope": "Namespace", "hash": "0" * 64}
    patch = {"status": {"phase": "Running", "effectiveTemplate": record}}
    await client.merge_patch(MODEL_DEPLOYMENT, ObjectKey(namespace, "llama"), patch, subresource="status")

    async def asked(*words: str, at: Path = kubeconfig) -> Result:
        return await asyncio.to_thread(run, *words, "-n", namespace, "--kubeconfig", str(at))

    try:
        listed = await asked("template", "list")
        assert listed.exit_code == 0, listed.output
        assert listed.stdout.splitlines()[1].split()[:3] == [namespace, "fast", "unknown"]
        assert name in listed.stdout
        everywhere = await asyncio.to_thread(
            run, "template", "list", "-A", "-o", "json", "--kubeconfig", str(kubeconfig)
        )
        assert namespace in {dig(each, "metadata", "namespace") for each in json.loads(everywhere.stdout)["items"]}
        shown = await asked("template", "show", "fast")
        assert (
            f"{namespace}/llama is Running, with values from before the last change (hash 000000000000…)"
            in shown.stdout
        )
        why = await asked("template", "why", MODEL, "--metric", "latency")
        assert why.exit_code == 0, why.output
        assert f"ClusterModelTemplate {name}" in why.stdout
        assert "its metric is not given, and latency was asked for" in why.stdout
        assert "it has no status: the catalogue has not looked at it" in (await asked("template", "why", MODEL)).stdout
        rendered = await asked("template", "render", "fast")
        assert yaml.safe_load(rendered.stdout)["spec"]["model"] == {"id": MODEL}
        assert (await asked("template", "render", f"cmtpl/{name}", "--context", "nosuch")).exit_code == 1
        sglang = write("md.yaml", deployment("other", engine={"type": "sglang"}, image="registry.example/sglang:1"))
        rendered = await asked("template", "render", "-f", sglang)
        assert yaml.safe_load(rendered.stdout)["spec"]["engine"] == {"type": "sglang"}, "nothing of the other engine"
        printed = await asked("render", "-f", sglang, "--provider", "vllm")
        assert printed.exit_code == 0, printed.output
        assert MODEL in printed.stdout
        viewer = control_plane.kubeconfig_for(f"stranger-{namespace}")
        denied = await asked("template", "list", at=viewer)
        assert denied.exit_code == 1
        assert f"list modeltemplates.airunway.ai in namespace {namespace}" in denied.stdout
        assert "list clustermodeltemplates.airunway.ai" in denied.stdout
        denied = await asked("template", "show", "fast", at=viewer)
        assert (denied.exit_code, "among those that you may read" in denied.stderr) == (1, True)
        denied = await asked("render", "-f", sglang, at=viewer)
        assert denied.exit_code == 1
        assert "needs the right to get modeltemplates.airunway.ai" in denied.stderr
        assert "Traceback" not in denied.output
    finally:
        await client.delete(CLUSTER_MODEL_TEMPLATE, ObjectKey("", name))
