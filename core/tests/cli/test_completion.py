"""Completion of commands, options, values and names; by bash and kubectl as they call it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from airunway.cli import completers
from airunway.cli.completers import Asked, names_in_cluster
from airunway.cli.completion import FILES, NO_FILES, completions
from airunway.cli.main import app
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import Resource
from airunway_testing.controlplane import Cluster
from airunway_testing.kubetools import kubectl_path
from airunway_testing.operator import install_definitions, remove_leftovers

PROGRAMS = Path(sys.executable).parent


def found(*words: str, names: Sequence[str] = ("llama", "lemma"), asked: list[Asked] | None = None) -> list[str]:
    """The candidates."""

    def give(wanted: Asked) -> Sequence[str]:
        if asked is not None:
            asked.append(wanted)
        return names

    return [word for word, _ in completions(app, words, give)[0]]


def directive(*words: str) -> int:
    return completions(app, words, lambda _: ())[1]


def test_commands_and_groups() -> None:
    every = found("")
    assert {"status", "chat", "top", "completion", "provider", "sandbox"} <= set(every)
    assert found("st") == ["status"]
    assert set(found("provider", "")) >= {"run", "list", "schema"}
    assert found("provider", "li") == ["list"]
    assert found("nope", "") == []
    helps = dict(completions(app, ["stat"], lambda _: ())[0])
    assert "which part is at fault" in helps["status"]


def test_options_and_their_values() -> None:
    assert found("status", "md/x", "--wa") == ["--wait", "--watch"]
    assert found("status", "--watch", "--wa") == ["--wait"]
    assert "--document" in found("chat", "md/x", "q", "--document", "a", "--doc")
    assert found("status", "md/x", "-o", "") == ["text", "json", "yaml", "name"]
    assert found("status", "md/x", "--output=j") == ["--output=json"]
    assert found("chat", "md/x", "--as", "e") == ["embedding"]
    assert found("completion", "") == ["bash", "zsh", "fish"]
    assert (found("fit", "-f", ""), directive("fit", "-f", "")) == ([], FILES)
    assert directive("validate", "") == FILES
    assert directive("logs", "md/x", "--since", "") == NO_FILES


def test_a9_providers_gpus_models_and_templates() -> None:
    assert {"kaito", "vllm"} <= set(found("explain", "md/x", "--why-not", ""))
    assert found("new", "org/m", "--provider=kai") == ["--provider=kaito"]
    assert "kaito,vllm" in found("install", "--providers", "kaito,")
    assert "kaito,kaito" not in found("install", "--providers", "kaito,")
    assert found("provider", "run", "kai") == ["kaito"]
    assert "kaito" not in found("provider", "run", "kaito", "")
    assert "h100-80gb" in found("fit", "--gpu", "h100")
    assert all("/" in each for each in found("new", ""))
    assert found("new", "")
    asked: list[Asked] = []
    assert found("template", "show", "l", asked=asked) == ["llama", "lemma"]
    assert (asked[0].what, directive("template", "show", "")) == ("templates", NO_FILES)


def test_names_of_deployments_of_the_namespace_that_is_given() -> None:
    asked: list[Asked] = []
    words = ("logs", "-n", "ml", "--kubeconfig=/k", "--context", "c", "md/l")
    assert found(*words, asked=asked) == ["md/llama", "md/lemma"]
    assert asked == [Asked(what="deployments", prefix="l", namespace="ml", kubeconfig="/k", context="c")]
    assert found("status", "") == ["md/llama", "md/lemma"]
    assert found("status", "lla") == ["llama"]
    assert found("status", "md/llama", "") == []
    for options in (["--wait"], ["--wait=5m"], ["-o", "json"]):
        assert found("status", *options, "md/l") == ["md/llama", "md/lemma"]
    assert found("logs", "md", "") == ["llama", "lemma"]
    assert found("logs", "md", "le") == ["lemma"]
    assert found("logs", "modeldeployment", "llama", "") == []
    assert found("logs", "ModelDeployments/lla") == ["ModelDeployments/llama"]
    assert found("logs", "pod/l") == found("logs", "md", "md/l") == []
    # The prompt after it is the user's own.
    assert found("chat", "md", "") == []
    assert found("chat", "md/llama", "") == []
    asked.clear()
    assert found("top", "-n", "l", asked=asked) == ["llama", "lemma"]
    assert [each.what for each in asked] == ["namespaces"]


def test_a_cluster_that_does_not_answer_costs_a_second_at_most(tmp_path: Path) -> None:
    config = tmp_path / "config"
    cluster = "cluster: {server: 'http://192.0.2.77:9'}"
    config.write_text(
        f"clusters: [{{name: a, {cluster}}}]\ncontexts: [{{name: a, context: {{cluster: a}}}}]\ncurrent-context: a\n"
    )
    started = time.monotonic()
    assert names_in_cluster(Asked(what="deployments", kubeconfig=str(config))) == []
    assert time.monotonic() - started < 10
    assert names_in_cluster(Asked(what="deployments", kubeconfig=str(tmp_path / "none"))) == []
    config.write_text("\x00 not: [yaml")
    assert names_in_cluster(Asked(what="deployments", kubeconfig=str(config))) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_one_that_it_reads(shell: str, tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["completion", shell])
    assert printed.exit_code == 0
    assert "__complete" in printed.stdout
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    script = tmp_path / "script"
    script.write_text(printed.stdout)
    subprocess.run([program, "-n", str(script)], check=True)


def test_bash_completes_what_is_typed(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(app, ["completion", "bash"]).stdout)
    words = "COMP_WORDS=(airunway provider li); COMP_CWORD=2"
    typed = f'source {script}; {words}; _airunway; printf "%s\\n" "${{COMPREPLY[@]}}"'
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "list\n", done


@pytest.mark.apiserver
async def test_names_come_from_the_cluster_and_kubectl_asks_for_them(
    client: Client, control_plane: Cluster, kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_definitions(client)
    await remove_leftovers(client)
    for name in ("llama", "gemma"):
        body: Resource = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"model": {"id": "org/model"}},
        }
        await client.create(MODEL_DEPLOYMENT, body)
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{PROGRAMS}:{kubectl_path().parent}:{os.environ['PATH']}",
    }

    def kubectl_as_a_user(*words: str) -> str:
        done = subprocess.run(
            [str(kubectl_path()), *words], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    completed = kubectl_as_a_user("__complete", "airunway", "status", "-n", namespace, "md/l")
    assert completed.splitlines()[0] == "md/llama", completed
    assert namespace in kubectl_as_a_user("__complete", "airunway", "status", "-n", namespace[:8])
    monkeypatch.setattr(completers, "_MOST_NAMES", 1)
    wanted = Asked(what="deployments", prefix="l", namespace=namespace, kubeconfig=str(kubeconfig))
    assert await asyncio.to_thread(names_in_cluster, wanted) == ["llama"]  # not the first of all names, cut before
    # Without the right to list there are no names, and nothing else is printed in the middle of a line.
    stranger = str(control_plane.kubeconfig_for("stranger"))
    refused = kubectl_as_a_user("__complete", "airunway", "status", "-n", namespace, "--kubeconfig", stranger, "md/l")
    assert refused.splitlines()[0].startswith(":4"), refused
    # It works as a plugin: with the name by which it is called, and the kubeconfig of kubectl.
    helped = kubectl_as_a_user("airunway", "status", "--help")
    assert "Usage: kubectl airunway status" in helped
    shown = kubectl_as_a_user("airunway", "status", "md/llama", "-n", namespace)
    assert f"llama in {namespace} is Pending" in shown
