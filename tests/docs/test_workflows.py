"""The workflows, which run elsewhere: they are YAML, ask for few rights, and name targets and files that there are."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tools.generated import ROOT

from airunway.resource import Resource

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
MAKE = re.compile(r"\bmake ([a-z][a-z0-9-]*)")


@pytest.fixture(params=WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def workflow(request: pytest.FixtureRequest) -> Resource:
    path: Path = request.param
    found: Resource = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def steps(workflow: Resource) -> Iterator[Resource]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def test_there_are_both() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yaml", "release.yaml"]


def test_targets_and_scripts_exist(workflow: Resource) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    named = {target for command in commands for target in MAKE.findall(command)}
    assert named
    assert named <= targets
    for script in re.findall(r"^(?:bash )(\S+)", "\n".join(commands), re.MULTILINE):
        assert (ROOT / script).exists()


def test_every_family_of_attacks_has_tests_that_exist() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    families = dict(re.findall(r"^ATTACKS_([a-z-]+) = (.*)$", text, re.MULTILINE))
    (listed,) = re.findall(r"^FAMILY = (.*)$", text, re.MULTILINE)
    assert list(families) == listed.split()
    page = (ROOT / "tests" / "security" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)`", page, re.MULTILINE) == listed.split()
    assert [path for paths in families.values() for path in paths.split() if not (ROOT / path).exists()] == []


def test_every_option_of_the_release_exists(workflow: Resource) -> None:
    from tools.release import options

    known = {option for action in options()._actions for option in action.option_strings}
    for step in steps(workflow):
        for flags in re.findall(r'RELEASE_FLAGS="([^"]*)"', step.get("run", "")):
            assert set(re.findall(r"--[a-z-]+", flags)) <= known


def test_no_right_is_given_that_a_job_does_not_name(workflow: Resource) -> None:
    assert workflow["permissions"] in ({}, {"contents": "read"}), "what a job does not ask for it does not have"
    for name, job in workflow["jobs"].items():
        for right, level in job.get("permissions", {}).items():
            assert level == "read" or (name, right) in {
                ("publish", "packages"),
                ("pypi", "id-token"),
                ("page", "contents"),
                ("site", "contents"),
            }, f"{name} may write {right}"


def test_actions_have_a_version(workflow: Resource) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", step["uses"]), step["uses"]


def test_secrets_reach_only_steps_that_name_them(workflow: Resource) -> None:
    assert "secrets." not in yaml.safe_dump({key: value for key, value in workflow.items() if key != "jobs"})
    for step in steps(workflow):
        assert "secrets." not in step.get("run", ""), "a secret in a command is in its log: give it as a variable"
        assert "github.event" not in step.get("run", ""), "what a stranger wrote would be run"


def test_l9_the_signing_key_is_in_one_job_that_installs_wheels_of_known_digests_and_builds_nothing() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8"))
    assert [name for name, job in workflow["jobs"].items() if "SIGNING" in yaml.safe_dump(job)] == ["sign"]
    found = workflow["jobs"]["sign"]["steps"]
    (at,) = (position for position, step in enumerate(found) if "SIGNING" in yaml.safe_dump(step))
    assert found[at]["run"] == "python -m tools.sign release"
    runs = [step["run"] for step in found if "run" in step]
    assert len(runs) == 2
    assert "--require-hashes --no-deps" in runs[0]
    listed = (ROOT / "tools" / "supply" / "requirements.txt").read_text(encoding="utf-8")
    assert "--only-binary :all:" in listed
    locked = {each["name"]: each for each in tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]}
    for entry in re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=\S+(?: \\)?\n)+)", listed, re.MULTILINE):
        name, version, digests = entry
        assert locked[name]["version"] == version
        assert set(re.findall(r"--hash=(\S+)", digests)) == {wheel["hash"] for wheel in locked[name]["wheels"]}


def test_l9_what_signs_imports_no_package_but_cryptography() -> None:
    code = (
        "import sys; before = set(sys.modules); import tools.sign; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    foreign = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"tools"}
    assert {name for name in foreign if not name.startswith("_")} <= {"cryptography", "cffi"}


def test_the_page_of_a_release_has_files_that_a_release_has() -> None:
    from tools import release

    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8"))
    (step,) = (step for step in workflow["jobs"]["page"]["steps"] if "gh release create" in step.get("run", ""))
    _, _, files = step["run"].partition("--notes-file ")
    made = (release.__doc__ or "") + "charts.tar.gz sboms.tar.gz images/digests.txt"
    assert [name for name in files.replace("\\", " ").split() if name not in made] == []
