"""What of a line that a program logged is shown."""

from __future__ import annotations

import json

import pytest

from airunway.status.texts import EXCERPT, line_of

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
