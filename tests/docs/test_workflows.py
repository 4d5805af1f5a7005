"""The workflows, which run elsewhere: they are YAML, ask for few rights, and name targets and files that there are."""

from __future__ import annotations

import re
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
                ("make", "packages"),
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


def test_the_page_of_a_release_has_files_that_a_release_has() -> None:
    from tools import release

    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8"))
    (step,) = (step for step in workflow["jobs"]["page"]["steps"] if "gh release create" in step.get("run", ""))
    _, _, files = step["run"].partition("--notes-file ")
    made = (release.__doc__ or "") + "charts.tar.gz sboms.tar.gz images/digests.txt"
    assert [name for name in files.replace("\\", " ").split() if name not in made] == []
