"""The command line starts fast because it imports little."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import click
import pytest

from airunway.cli.main import CommandTree, app

HEAVY = {"aiohttp", "pydantic", "kopf", "rich", "jsonschema", "prometheus_client", "pluggy", "kubernetes_asyncio"}


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after `statement`."""
    program = f"import sys; {statement}; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import airunway.cli.main", HEAVY),
        ("import airunway.cli.inputs", HEAVY),
        ("import airunway.runtime.translate", {"aiohttp", "kopf", "rich", "prometheus_client"}),
        ("import airunway.selection.explanation", {"aiohttp", "kopf", "rich", "prometheus_client"}),
    ],
)
def test_imports_are_light(statement: str, absent: set[str]) -> None:
    assert imported_by(statement) & absent == set()


def run_with_imports(
    words: list[str], *, folder: Path | None = None
) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """A command that has ended, and the modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "airunway", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )
    return done, {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")
    }


@pytest.mark.parametrize("words", [["--help"], ["version"], ["provider", "--help"], ["__complete", ""]])
def test_a_list_of_commands_imports_none_of_them(words: list[str]) -> None:
    done, found = run_with_imports(words)
    assert done.returncode == 0
    assert {name.split(".")[0] for name in found} & {*HEAVY, "asyncio", "yaml", "airunway_testing"} == set()
    assert {name for name in found if name.startswith("airunway.cli.")} <= {
        f"airunway.cli.{name}" for name in ("main", "parameters", "completion", "completers", "cluster")
    }


def test_a_list_says_of_groups_and_of_commands_of_other_distributions_what_they_say_themselves() -> None:
    compared = set()
    context = click.Context(app)
    for tree in (app, app.get_command(context, "provider")):
        assert isinstance(tree, CommandTree)
        for name, placeholder in tree.commands.items():
            command = tree.get_command(context, name)
            assert command is not None
            if said := command.short_help or (command.help if isinstance(command, click.Group) else None):
                compared.add(name)
                assert placeholder.short_help == said
    assert {"template", "provider", "controlplane", "simulate", "sandbox", "catalogue", "new", "check"} <= compared


def test_the_version_is_an_option_too() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-m", "airunway", word], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for word in ("version", "--version")
    }
    assert len(told) == 1
    assert told.pop().startswith("airunway ")


def test_the_help_lists_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airunway", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    for command in (
        "controller",
        "provider",
        "crds",
        "validate",
        "explain",
        "fit",
        "new",
        "render",
        "doctor",
        "install",
        "preflight",
        "sandbox",
        "version",
    ):
        assert command in done.stdout


@pytest.mark.parametrize("command", [["controller"], ["provider", "run", "kaito"]])
def test_metrics_and_probes_cannot_share_an_address(command: list[str]) -> None:
    addresses = ["--metrics-bind-address", ":9999", "--health-probe-bind-address", ":9999"]
    done = subprocess.run(
        [sys.executable, "-m", "airunway", *command, *addresses],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "must not be the same" in " ".join(done.stderr.replace("│", " ").split())


def test_an_address_that_is_none_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airunway", "controller", "--metrics-bind-address", "everywhere"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "'everywhere' is not an address" in done.stderr


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["run", "kaito", "toy", "--set", "box=true"], 1, "write PROVIDER.KEY=VALUE"),
        (["run", "kaito", "toy", "--set", "toy.bax=true"], 1, "provider toy: unknown setting 'bax'; known: "),
        (["run", "kaito", "toy", "--set", "toy.box=blue"], 1, "provider toy: setting 'box': "),
        (["run", "toy", "--set", "toy.bax=true"], 1, "provider toy: unknown setting 'bax'"),
        (["run", "toy", "--set", "bax=true"], 1, "provider toy: unknown setting 'bax'"),
        (["run", "kaito", "nobody"], 1, "no installed distribution provides 'nobody'"),
        (["run", "--all", "toy"], 2, "name the providers to run, or use --all"),
        (["run"], 2, "name the providers to run, or use --all"),
    ],
)
def test_what_providers_cannot_be_given_ends_the_start_with_a_sentence(
    command: list[str], code: int, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airunway", "provider", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    if code == 1:
        assert len(done.stderr.splitlines()) == 1


DEPLOYMENT = """
apiVersion: airunway.ai/v1alpha1
kind: ModelDeployment
metadata: {name: llama}
spec: {model: {id: org/llama}, resources: {gpu: {count: 1}}}
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: away
contexts: [{name: away, context: {cluster: away, user: away}}]
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: away, user: {token: none}}]
"""


@pytest.mark.parametrize(
    "words",
    [
        ["chat", "md/llama", "hello"],
        ["crds", "--check"],
        ["diff", "-f", "deployment.yaml"],
        ["doctor"],
        ["logs", "md/llama"],
        ["preflight", "--upstream", "kaito=CRDS"],
        ["status", "md/llama"],
        ["top"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_alone_imports_all_that_it_needs(words: list[str], tmp_path: Path) -> None:
    """Other tests run commands in their own process, where everything is imported already."""
    crds = resources.files(pytest.importorskip("airunway_kaito_simulator")) / "crds"
    words = [word.replace("CRDS", str(crds)) for word in words]
    (tmp_path / "config").write_text(KUBECONFIG)
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT)
    done = subprocess.run(
        [sys.executable, "-m", "airunway", *words, "--kubeconfig", "config"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr, done
    assert "Traceback" not in done.stderr


PROCESSES = {"cryptography", "kopf", "prometheus_client", "rich", "airunway.process", "airunway.cli.process_options"}
"""What only commands need that start the core or providers."""
RULES = {
    *("pydantic", "jsonschema", "pluggy"),
    *("airunway.api.crds", "airunway.artifacts", "airunway.configs.resolution", "airunway.plugins"),
}
"""What only commands need that judge manifests, or say what a deployment gets."""
CLUSTER = {"aiohttp", "airunway.kube"}
"""What only commands need that ask a cluster."""


@pytest.mark.parametrize(
    ("words", "code", "absent"),
    [
        (["status", "md/llama", "--kubeconfig", "config"], 1, PROCESSES | RULES | {"airunway.status.texts"}),
        (["status", "md/llama", "--wait=1s", "-o", "json", "--kubeconfig", "config"], 1, PROCESSES | RULES),
        (["logs", "md/llama", "--kubeconfig", "config"], 1, PROCESSES | RULES),
        (["chat", "md/llama", "hello", "--kubeconfig", "config"], 1, PROCESSES | RULES),
        (["top", "-A", "--kubeconfig", "config"], 1, PROCESSES | RULES),
        (["validate", "deployment.yaml"], 0, PROCESSES | CLUSTER | {"airunway.view", "airunway.artifacts"}),
        (["render", "-f", "deployment.yaml", "--provider", "vllm"], 0, PROCESSES | CLUSTER | {"airunway.view"}),
        (["explain", "-f", "deployment.yaml", "--providers", "installed"], 0, PROCESSES | CLUSTER),
    ],
    ids=lambda given: " ".join(given[:3]) if isinstance(given, list) else "",
)
def test_a_command_imports_nothing_that_only_others_need(
    words: list[str], code: int, absent: set[str], tmp_path: Path
) -> None:
    pytest.importorskip("airunway_vllm")
    (tmp_path / "config").write_text(KUBECONFIG)
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT)
    done, found = run_with_imports(words, folder=tmp_path)
    assert done.returncode == code, (done.stdout, done.stderr[-2000:])
    parents = {".".join(parts[:count]) for name in found for parts in [name.split(".")] for count in range(1, 4)}
    assert parents & absent == set()
