"""The registries of conditions, reasons and codes against the page of reference and against the source."""

from __future__ import annotations

import ast
from pathlib import Path

import airunway
from airunway.controller.decision import CORE_CONDITIONS
from airunway.status.conditions import CONDITIONS, ConditionWriter
from airunway.status.reasons import CODES, PAGE, REASONS
from airunway.status.rollup import OVERALL

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(airunway.__file__).parent


def test_the_page_has_every_reason_and_an_anchor_for_every_remedy() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for reason in REASONS:
        assert f"| `{reason}` |" in text
    for code in CODES.values():
        anchor = code.name.lower().replace(".", "")  # as Markdown renderers make it of the heading
        assert f"\n### {code.name}\n" in text
        assert code.link == f"{PAGE}#{anchor}"


def test_every_condition_that_the_source_writes_is_in_the_catalogue() -> None:
    names = {condition.name for condition in CONDITIONS}
    found = set()
    for room in ("controller", "runtime", "status"):
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                types = [k.value for k in node.keywords if k.arg == "type"] if _called(node) == "Condition" else []
                types += node.args[:1] if _called(node) == "add_condition" else []  # of the core's pass
                found |= {type_.value for type_ in types if isinstance(type_, ast.Constant)}
    of_configs = {"UpstreamInstalled", "SchemaSupported", "Healthy", "SelectionRulesValid", "RolloutStalled"}
    assert {"Ready", "Validated"} <= found
    assert found - of_configs <= names


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", "") or getattr(node.func, "attr", ""))


def test_the_catalogue_knows_the_writers() -> None:
    assert {c.name for c in CONDITIONS if c.writer is ConditionWriter.CORE} == CORE_CONDITIONS
    assert {c.name for c in CONDITIONS if c.writer is ConditionWriter.SPEAKER} == set(OVERALL)
