"""What of the lines that a program logged is shown, and what they mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.support.evidence import NOW, container, crashed, ended, evidence, pod

from airunway.resource import Resource
from airunway.status.engine_texts import last_error
from airunway.status.reasons import CODES
from airunway.status.remedies import TABLES, split
from airunway.status.rootcause import find_root_cause
from airunway.status.texts import AUTOSCALING, EXCERPT, line_of

CAUSE = (
    "failed to parse config - failed to decode configuration JSON/YAML - "
    'no kind "EndpointPickerConfig" is registered for version "llm-d.ai/v1alpha1"'
)
TRACE = "main.main\n\t/src/cmd/epp/main.go:40\nruntime.main\n\t/usr/local/go/src/runtime/proc.go:285\n" * 9
LOGGED = {
    "level": "error",
    "ts": 1795419359.86,
    "logger": "setup",
    "caller": "runner/runner.go:235",
    "msg": "Failed to parse configuration",
    "error": CAUSE,
    "stacktrace": TRACE,
}


def test_real_llmd_10_of_a_json_log_s_line_message_and_error_are_told_and_no_stack_trace() -> None:
    said = line_of(f"starting\n{json.dumps(LOGGED)}\n")
    assert said == f"Failed to parse configuration: {CAUSE}"
    compact = json.dumps(LOGGED, separators=(",", ":"))
    assert line_of(f"starting\n{compact}", compact.index("no kind") + 10) == said


@pytest.mark.parametrize("cut", range(150, 600, 30))
def test_real_llmd_10_a_line_that_is_cut_is_told_as_far_as_it_goes(cut: int) -> None:
    said = line_of(json.dumps(LOGGED)[:cut])
    assert said.startswith("Failed to parse configuration")
    assert "main.go" not in said
    assert len(said) <= EXCERPT


@pytest.mark.parametrize(
    "line", ['{"level": "info", "what": "else"}', "{", '{"msg": 7}', "plain words", '"msg": "no object"']
)
def test_real_llmd_10_what_is_no_such_line_is_told_as_it_stands(line: str) -> None:
    assert line_of(line) == line


def test_real_llmd_10_credentials_in_a_json_log_are_not_shown() -> None:
    line = json.dumps({"msg": "refused", "error": 'config {"password": "Zq7hunter2222"} and\nBearer Zq7hunter2222'})
    assert "hunter2222" not in line_of(line)
    assert "\n" not in line_of(line)


ENDINGS: list[Resource] = yaml.safe_load((Path(__file__).parent / "endings.yaml").read_text())


def check_ending(row: Resource, found: Resource) -> None:
    cause = find_root_cause(evidence(pod(**found)), now=NOW)
    assert cause is not None, row["case"]
    assert (cause.code, cause.reason) == (row["code"], row["reason"]), row["case"]
    assert row["says"] in cause.evidence, row["case"]
    assert row["do"] in cause.message.removeprefix(cause.evidence), row["case"]
    assert "pid=" not in cause.evidence, row["case"]


@pytest.mark.parametrize("case", ["03-runtime-class", "04-random-uid", "09-shared-memory"])
def test_field_case_with_two_siblings_has_a_cause_and_a_remedy(case: str) -> None:
    rows = [row for row in ENDINGS if row.get("field") == case]
    assert len(rows) == 3
    for row in rows:
        check_ending(row, crashed(row.get("exit", 1), row["log"]))


@pytest.mark.parametrize("shape", ["before the restart", "after it", "in a pod that is not restarted"])
def test_the_end_of_an_engine_names_its_cause_and_what_to_do(shape: str) -> None:
    for row in ENDINGS:
        code = row.get("exit", 1)
        found = {
            "before the restart": crashed(code, row["log"]),
            "after it": container(state={"running": {}}, lastState=ended(code, "Error", row["log"]), restartCount=2),
            "in a pod that is not restarted": {"phase": "Failed", **container(state=ended(code, "Error", row["log"]))},
        }[shape]
        check_ending(row, found)


def test_the_same_end_gives_the_same_message_although_times_and_processes_differ() -> None:
    line = "(EngineCore_DP0 pid={}) ERROR 11-27 09:{}:02 [core.py:708] KeyError: 'x'"
    first, second = (last_error(line.format(pid, pid)) for pid in (10, 59))
    assert first == second == "KeyError: 'x'"


def test_every_own_remedy_is_a_sentence_and_is_told_apart_from_its_evidence() -> None:
    for table in TABLES:
        for row in (row for row in table if row.remedy):
            assert row.remedy.endswith("."), row
            assert row.code or table is AUTOSCALING, row
            code = CODES[row.code or "Unschedulable.TaintOrSelector"]
            remedy = code.remedy_for("Pod/ml/llama-0", row.remedy)
            assert split(f"Pod llama-0 fails. {remedy}", code, "Pod/ml/llama-0") == ("Pod llama-0 fails.", remedy)
