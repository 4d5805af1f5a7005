"""``airunway crds`` and ``airunway validate`` as a user sees them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from airunway.api.crds import custom_resource_definitions
from airunway.cli.crds import crds
from airunway.cli.validate import validate

app = click.Group(commands=[crds, validate])
runner = CliRunner()

GOOD = """\
apiVersion: airunway.ai/v1alpha1
kind: ModelDeployment
metadata: {name: good}
spec: {model: {id: 2024-01-01}, scaling: {replicas: 2.0}, nodeSelector: {1: "yes"}}
"""
BAD = """\
apiVersion: airunway.ai/v1alpha1
kind: ModelDeployment
metadata: {generateName: bad-}
spec: {modle: {}, model: {id: x}, engine: {type: vllm, trustRemoteCode: true}}
"""
OTHER = """\
apiVersion: v1
kind: Secret
metadata: {name: other}
"""


def test_crds_prints_all_of_them() -> None:
    result = runner.invoke(app, ["crds"])
    assert result.exit_code == 0
    assert list(yaml.safe_load_all(result.stdout)) == custom_resource_definitions()


def test_crds_writes_files(tmp_path: Path) -> None:
    result = runner.invoke(app, ["crds", "--write", str(tmp_path / "new")])
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "airunway.ai_clustermodeltemplates.yaml",
        "airunway.ai_clusterruntimeconfigs.yaml",
        "airunway.ai_inferenceproviderconfigs.yaml",
        "airunway.ai_modelartifacts.yaml",
        "airunway.ai_modeldeployments.yaml",
        "airunway.ai_modelsources.yaml",
        "airunway.ai_modeltemplates.yaml",
        "airunway.ai_runtimeconfigs.yaml",
    ]


def test_valid_manifests(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(f"{GOOD}---\n{OTHER}---\n", encoding="utf-8")
    result = runner.invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stdout) == (0, "1 valid\n")


def test_h6_the_policy_of_the_controller_counts(tmp_path: Path) -> None:
    """As in the webhook and in the reconciler; without a file what is refused everywhere."""
    policy, path = tmp_path / "policy.yaml", tmp_path / "a.yaml"
    selector = {"matchLabels": {"team": "search"}}
    policy.write_text(yaml.safe_dump({"rules": [{"namespaceSelector": selector, "serviceAccounts": ["models"]}]}))
    labels = {"team": "search"}
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}} for name in ("a", "b")
    ]
    spec = {"model": {"id": "x"}, "serviceAccountName": "ci", "tolerations": [{"operator": "Exists"}]}
    made = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"}, "spec": spec}
    placed = {**made, "metadata": {"name": "n", "namespace": "a"}}
    path.write_text(yaml.safe_dump_all([*namespaces, made, placed]))
    account = "service account 'ci' is not allowed in namespace '{}' (allowed by policy: models)"
    every = "spec.tolerations[0]: toleration of taint '*' is not allowed in namespace '{}' (only where the policy lists"

    def told(*options: str) -> list[str]:
        result = runner.invoke(app, ["validate", str(path), *options])
        assert result.exit_code == 1
        return [line.removeprefix(f"{path}: ModelDeployment/") for line in result.stdout.splitlines()]

    plain = told()
    assert [line.startswith(start) for line, start in zip(plain, ("m: ", "n: "), strict=True)] == [True, True]
    assert (every.format("default") in plain[0], every.format("a") in plain[1]) == (True, True)
    ruled = told("--policy", str(policy))
    assert [line.split(" (")[0] for line in ruled] == [
        f"m: {every.format('default')}".split(" (")[0],
        f"n: spec.serviceAccountName: {account.format('a')}".split(" (")[0],
        f"n: {every.format('a')}".split(" (")[0],
    ]
    assert f"m: spec.serviceAccountName: {account.format('b')}" in told("--policy", str(policy), "-n", "b")


def test_the_policy_also_counts_for_runtime_configs_of_a_namespace(tmp_path: Path) -> None:
    policy, path = tmp_path / "policy.yaml", tmp_path / "a.yaml"
    selector = {"matchLabels": {"team": "search"}}
    policy.write_text(yaml.safe_dump({"rules": [{"namespaceSelector": selector, "environment": ["VLLM_*"]}]}))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"team": "search"}}}
    spec = {"env": [{"name": name, "value": "1"} for name in ("VLLM_LOG", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD")]}
    config = {"apiVersion": "airunway.ai/v1alpha1", "spec": spec}
    own = {**config, "kind": "RuntimeConfig", "metadata": {"name": "own", "namespace": "a"}}
    cluster = {**config, "kind": "ClusterRuntimeConfig", "metadata": {"name": "all"}}
    path.write_text(yaml.safe_dump_all([namespace, own, cluster]))
    start = f"{path}: RuntimeConfig/own: spec.env"
    everywhere = f"{start}[1].name: environment variable 'NVIDIA_VISIBLE_DEVICES' is not allowed in namespace 'a' (only"
    (line,) = runner.invoke(app, ["validate", str(path)]).stdout.splitlines()
    assert line.startswith(everywhere)
    result = runner.invoke(app, ["validate", str(path), "--policy", str(policy)])
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{start}[{index}].name: environment variable '{name}' is not allowed in namespace 'a' "
        "(environment allowed by policy: VLLM_*)"
        for index, name in ((1, "NVIDIA_VISIBLE_DEVICES"), (2, "LD_PRELOAD"))
    ]


def test_problems_name_file_object_path_and_message(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD, encoding="utf-8")
    bad.write_text(BAD, encoding="utf-8")
    result = runner.invoke(app, ["validate", str(good), str(bad)])
    assert result.exit_code == 1
    assert result.stdout == f"{bad}: ModelDeployment/bad-: spec.modle: unknown field, did you mean model?\n"
    warned = "trustRemoteCode executes remote code: Python code of the model's repository runs in the pods"
    assert result.stderr == f"{bad}: ModelDeployment/bad-: warning: {warned}\n"


def test_standard_input_and_lists() -> None:
    items = "".join(f"- {line}" if line.startswith("api") else f"  {line}" for line in BAD.splitlines(keepends=True))
    result = runner.invoke(app, ["validate", "-"], input=f"apiVersion: v1\nkind: List\nitems:\n{items}")
    assert result.exit_code == 1
    assert result.stdout.startswith("-: ModelDeployment/bad-: spec.modle: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1\nb: }", "line 2, column 2"),
        ("a: 1\na: 2\n", "duplicate key a"),
        ("just text", "a document is not an object"),
        ("? [1]\n: 2\n", "unhashable key"),
        ("a: &x [*x]\n", "not a manifest"),
    ],
)
def test_what_is_no_manifest_ends_with_2(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    result = runner.invoke(app, ["validate", str(path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{path}: ")
    assert told in result.stderr


def test_a_missing_file_ends_with_2(tmp_path: Path) -> None:
    result = runner.invoke(app, ["validate", str(tmp_path / "nope.yaml")])
    assert result.exit_code == 2
    assert "nope.yaml" in result.stderr


def test_l9_aliases_that_blow_a_document_up_are_refused(tmp_path: Path) -> None:
    """Thirty bytes a level, nine times as much each: refused before anything is made of it."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    result = runner.invoke(app, ["validate", str(path)])
    assert result.exit_code == 2
    assert "its aliases (*name) expand it to more than ten times its size" in result.output


def test_l9_merge_keys_are_counted_too(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    assert runner.invoke(app, ["validate", str(path)]).exit_code == 2


def test_aliases_as_people_use_them_are_expanded(tmp_path: Path) -> None:
    path = tmp_path / "aliases.yaml"
    path.write_text(GOOD.replace("spec: {", "x: &a [a, b]\nspec: {affinity: {a: *a, b: *a, c: [*a, *a]}, "))
    result = runner.invoke(app, ["validate", str(path)])
    assert "x: unknown field" in result.output
    assert "more than ten times" not in result.output


def test_an_option_that_the_engine_s_parser_does_not_know_is_named(tmp_path: Path) -> None:
    spec = {
        "model": {"id": "o/m"},
        "image": "vllm/vllm-openai:v0.22.0",
        "resources": {"gpu": {"count": 1}},
        "engine": {"type": "vllm", "args": {"max-model-length": "8"}, "extraArgs": ["--enforce-eager=true"]},
    }
    body = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "a"}, "spec": spec}
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(body))
    done = runner.invoke(app, ["validate", str(path)])
    assert (done.exit_code, done.stdout) == (0, "1 valid\n"), "an image may hold another release: no reason to refuse"
    assert done.stderr.splitlines() == [
        f"{path}: ModelDeployment/a: warning: spec.engine.args[max-model-length]: "
        "vLLM 0.22.0 has no --max-model-length; did you mean --max-model-len; remove it, or move it to "
        "engine.extraArgs if the image is a build of your own that has it",
        f"{path}: ModelDeployment/a: warning: spec.engine.extraArgs[0]: "
        "--enforce-eager of vLLM takes no value: leave the value empty, or write --no-enforce-eager to switch it off",
    ]
