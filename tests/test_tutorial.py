"""docs/providers/tutorial.md does what it says: each command, each output, each mistake with its sentence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from tests.console import Shell, is_shown, steps

from airunway_testing.controlplane import Cluster

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")
PAGE = (ROOT / "docs" / "providers" / "tutorial.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BLOCK = re.compile(
    r'(?:<!-- below "(?P<line>.*)" in (?P<file>\S+) -->\n)?```(?P<kind>console|python)\n(?P<text>.*?)```', re.DOTALL
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a newcomer has: `uv`, and our distributions where it finds them; nothing of this environment."""
    wheels = tmp_path_factory.mktemp("wheels")
    for package in ("airunway", "airunway-downloader", "airunway-testing"):
        done = subprocess.run(
            [UV, "build", "--quiet", "--package", package, "--wheel", "--out-dir", wheels],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON", "PYTEST"))}
    path = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if part != str(UV.parent))
    # Of this environment only `uv` and the Python below it: nothing stands in for what the page forgets to install.
    programs = tmp_path_factory.mktemp("bin")
    (programs / "uv").symlink_to(UV)
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{path}",
        "UV_FIND_LINKS": str(wheels),
        "COLUMNS": "200",
    }


def blocks(page: str) -> Iterator[re.Match[str]]:
    yield from BLOCK.finditer(page)


@pytest.mark.parametrize(
    ("lines", "output", "holds"),
    [
        ([], "", True),
        ([], "something\n", False),
        (["…"], "a\nb\n", True),
        (["a … c"], "a  b  c\n", True),
        (["a … c"], "a  b\n", False),
        (["a…c"], "abbc\n", True),
        (["a…c"], "abb\n", False),
        (["…", "b", "…"], "a\n\nb\nc\n", True),
        (["…", "b", "…"], "a\nc\n", False),
    ],
)
def test_what_is_shown_is_compared(lines: list[str], output: str, holds: bool) -> None:
    assert is_shown(lines, output) is holds


@pytest.mark.cluster
def test_from_nothing_to_running(environment: dict[str, str], tmp_path: Path, control_plane: Cluster) -> None:
    """All commands in one shell, in their order; what a page shows below a command is what it says.

    Of the two API servers that `pytest` starts there is one already.
    """
    begun, commands = time.monotonic(), 0
    there = {"TMPDIR": str(tmp_path), "AIRUNWAY_TEST_KUBECONFIG": str(control_plane.kubeconfig)}
    with Shell(tmp_path, {**environment, **there}) as shell:
        for block in blocks(PAGE):
            if block["kind"] == "python":
                put_below(tmp_path / "airunway-acme" / block["file"], block["line"], block["text"])
                continue
            for command, shown in steps(block["text"]):
                commands += 1
                shell.show(command, shown)
                if "sandbox --demo" in command:
                    sys.stdout.write(f"from nothing to Running: {time.monotonic() - begun:.0f} s\n")
    assert commands >= 10


def put_below(file: Path, line: str, text: str) -> None:
    before = file.read_text(encoding="utf-8")
    assert f"{line}\n" in before
    file.write_text(before.replace(f"{line}\n", f"{line}\n{text}", 1), encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------ mistakes

PROVIDER = "src/airunway_acme/provider.py"
CRD = "simulator/src/airunway_acme_simulator/crds/acme.yaml"
KIND = '        UpstreamKind(group={}, kind="{}", plural="{}s", versions=("v1",){}),\n        workloads.SERVICE,\n'

MISTAKES: dict[str, tuple[str, str, str]] = {
    "two kinds are primary": (
        PROVIDER,
        "        workloads.SERVICE,\n",
        KIND.format("GROUP", "Other", "other", ", primary=True"),
    ),
    "no kind at all": (PROVIDER, r"re:upstream=\(\n.*?\n    \),", "upstream=(),"),
    "a kind of Kubernetes that has no namespace": (
        PROVIDER,
        "        workloads.SERVICE,\n",
        KIND.format('""', "Namespace", "namespace", ", builtin=True"),
    ),
    "a CRD that has none": (CRD, "scope: Namespaced", "scope: Cluster"),
    "the CRD was changed": (CRD, "replicas:", "pods:"),
    "a hook is misspelt": (PROVIDER, "translate_status=translate_status", "translate_state=translate_status"),
    "a hook takes other arguments": (
        PROVIDER,
        "def translate_spec(deployment: ModelDeployment, context: Context[Settings])",
        "def translate_spec(deployment: ModelDeployment)",
    ),
    "the entry point has another name": (PROVIDER, 'name="acme"', 'name="acne"'),
    "an old contract": (PROVIDER, 'name="acme",', 'name="acme", contract_versions=("v0",),'),
    "a setting without a default": (PROVIDER, r"re:image: str = setting\(.*?\)\n", "image: str\n"),
    "a component's `ready` is a text": (PROVIDER, "ready=ready, reason=reason", "ready=reason, reason=reason"),
    "a component called `Pods`": (PROVIDER, 'name="ProviderResource"', 'name="Pods"'),
    "an object of a kind that the manifest does not name": (PROVIDER, "        workloads.SERVICE,\n", ""),
    "the translation changes what it is given": (
        PROVIDER,
        "    pod = model_pod(",
        "    deployment.spec.scaling.replicas = 1\n    pod = model_pod(",
    ),
    "a clock, or chance": (
        PROVIDER,
        "    server: Resource = {",
        '    pod["metadata"]["annotations"] = {"now": str(__import__("time").time_ns())}\n    server: Resource = {',
    ),
    "the order of a set": (
        PROVIDER,
        "    server: Resource = {",
        '    pod["metadata"]["annotations"] = {"engines": " ".join({"a", "b", "c", "d"})}\n    server: Resource = {',
    ),
    "a field is read and dropped": (
        PROVIDER,
        "    server: Resource = {",
        '    pod["spec"].pop("tolerations", None)\n    server: Resource = {',
    ),
    "ready before the operator says so": (
        PROVIDER,
        'conditions.truth(server, "Ready") is True',
        'conditions.truth(server, "Ready") is not False',
    ),
}
"""Row of the table → file, text (or `re:` and a pattern), and what stands there instead."""

ROWS = dict(re.findall(r"^\| (.+?) \| `([^|]+)` \|$", PAGE, re.MULTILINE))


@dataclass(frozen=True, kw_only=True)
class Checked:
    """How `airunway provider check` ended, and what it said."""

    code: int
    said: str


Check = Callable[[], Checked]


@pytest.fixture(scope="module")
def skeleton(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The skeleton, installed."""
    folder = tmp_path_factory.mktemp("mistakes")
    script = """
        uv venv --quiet && uv pip install --quiet 'airunway[sandbox]' && .venv/bin/airunway provider new acme &&
        uv pip install --quiet --editable airunway-acme --editable airunway-acme/simulator
    """
    compiled = {**environment, "UV_COMPILE_BYTECODE": "1"}  # once: `check` leaves none behind
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=compiled, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "airunway-acme"


def command(skeleton: Path, *arguments: str) -> list[str]:
    """The command line of a program of the skeleton's environment."""
    return [str(skeleton.parent / ".venv" / "bin" / arguments[0]), *arguments[1:]]


def checking(environment: dict[str, str]) -> dict[str, str]:
    """Two edits within a second would leave the bytecode of the first."""
    return {**environment, "PYTHONDONTWRITEBYTECODE": "1"}


CHECKS = """
import os, sys
from airunway.cli.main import app
import airunway.plugins.registry
import airunway_testing.cli.provider, airunway_testing.conformance.checks
for line in sys.stdin:
    child = os.fork()
    if not child:
        file = os.open(line.strip(), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.argv[1:] = ["provider", "check", "acme"]
        app(prog_name="airunway")
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""
"""Checks the provider again and again, each time in a process that has loaded all but the provider: to load that takes
ten times as long as to look at a provider that cannot be loaded.
"""


@pytest.fixture(scope="module")
def check(skeleton: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    folder = tmp_path_factory.mktemp("checks")
    with subprocess.Popen(
        command(skeleton, "python", "-c", CHECKS),
        cwd=skeleton,
        env=checking(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        numbers = count()

        def run() -> Checked:
            assert process.stdin is not None
            assert process.stdout is not None
            path = folder / str(next(numbers))
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            return Checked(code=code, said=path.read_text(encoding="utf-8"))

        yield run
        process.stdin.close()


def test_the_table_has_every_mistake() -> None:
    assert set(ROWS) == set(MISTAKES)
    assert len(MISTAKES) >= 10


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_the_sentence_that_helps(skeleton: Path, check: Check, mistake: str) -> None:
    file, old, new = MISTAKES[mistake]
    path = skeleton / file
    right = path.read_text(encoding="utf-8")
    pattern = old.removeprefix("re:") if old.startswith("re:") else re.escape(old)
    wrong, times = re.subn(pattern, lambda _: new, right, flags=re.DOTALL)
    assert times == 1, f"{old!r} stands {times} times in {file}"
    path.write_text(wrong, encoding="utf-8")
    try:
        found = check()
    finally:
        path.write_text(right, encoding="utf-8")
    assert found.code == 1
    assert "Traceback" not in found.said
    assert ROWS[mistake] in found.said


def test_without_a_mistake_nothing_is_wrong(skeleton: Path, environment: dict[str, str]) -> None:
    checks = command(skeleton, "airunway", "provider", "check", "acme")
    found = subprocess.run(checks, cwd=skeleton, env=checking(environment), capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
