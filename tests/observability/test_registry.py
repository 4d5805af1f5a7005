"""The lists of events and metrics against the source, the generated files, and Prometheus' own tool."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.observability.alerts import rule_file

from airunway.process.metric_catalogue import METRICS, PROCESS_METRICS, MetricType
from airunway.status.events import EVENTS, Emitter

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "core" / "src" / "airunway", ROOT / "catalogue" / "src")
DASHBOARD = ROOT / "dashboards" / "airunway.json"
ALERTS = ROOT / "dashboards" / "alerts.yaml"

EMITTING = {"emit", "Event"}
"""Calls whose keyword `reason` is an event's."""

TARGET_LABELS = {"job", "instance", "le", "component"}
"""Labels that Prometheus itself, a histogram or a join brings."""


def emitted() -> Iterator[tuple[str, str, bool | None, str]]:
    """Room, reason, whether it is a warning, and action of every event that the source can emit. An `Event` has type
    and action from the registry (None, and empty).
    """
    for folder, path in [(each, path) for each in SOURCES for path in each.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            arguments = {keyword.arg: keyword.value for keyword in node.keywords}
            for reason in (arguments.get(field) for field in ("when_true", "when_fault") if name == "ConditionEvents"):
                if isinstance(reason, ast.Constant):
                    yield path.relative_to(folder).parts[0], str(reason.value), None, ""
            if name == "ConditionEvents" and isinstance(own := arguments.get("faults"), ast.Tuple):
                for each in own.elts:
                    assert isinstance(each, ast.Constant)
                    yield path.relative_to(folder).parts[0], str(each.value), None, ""
            reason = arguments.get("reason")
            if name in EMITTING and isinstance(reason, ast.Constant):
                warning = arguments.get("warning")
                warns = isinstance(warning, ast.Constant) and warning.value is True
                action = arguments.get("action")
                does = str(action.value) if isinstance(action, ast.Constant) else ""
                yield path.relative_to(folder).parts[0], str(reason.value), warns if name == "emit" else None, does


def test_every_event_of_the_source_is_registered_and_the_other_way_round() -> None:
    found = list(emitted())
    assert {reason for _, reason, _, _ in found} == set(EVENTS)
    for room, reason, warning, action in found:
        event = EVENTS[reason]
        emitters = {
            "controller": {Emitter.CORE},
            "gateway": {Emitter.GATEWAY},
            "modelcache": {Emitter.MODEL_CACHE},
            "airunway_catalogue": {Emitter.CATALOGUE},
        }
        # What makes owned objects serves providers and the parts of the core alike.
        both = {Emitter.PROVIDER, Emitter.GATEWAY, Emitter.MODEL_CACHE} if room == "owned" else {Emitter.PROVIDER}
        assert emitters.get(room, both) <= set(event.emitters), reason
        assert warning in (None, event.warning), reason
        assert action in ("", event.action), reason


def test_the_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.observability.generate", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_and_labels_follow_the_rules() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"airunway_[a-z_]+", metric.name)
        assert metric.help.endswith("."), metric.name
        if metric.type is MetricType.COUNTER:
            assert metric.name.endswith("_total")
        if metric.type is MetricType.HISTOGRAM:
            assert metric.name.endswith("_seconds")
            assert metric.buckets == tuple(sorted(set(metric.buckets)))
        if "name" in metric.labels:  # per object: must be read from the caches, so that it goes away with the object
            assert metric.type is MetricType.GAUGE


def queries() -> list[str]:
    """Every PromQL expression of dashboard and alerts."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [v["definition"] for v in dashboard["templating"]["list"] if "definition" in v]
    return found + [rule["expr"] for rule in alert_rules()]


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_queried_metric_and_label_exists() -> None:
    labels_of = {series: set(metric.labels) for metric in METRICS for series in metric.series}
    labels_of |= {name: set() for name in PROCESS_METRICS}
    asked = queries()
    assert len(asked) > 30
    for query in asked:
        used = re.findall(r"\b(?:airunway|process)_[a-z_]+", query)
        assert used, query
        assert set(used) <= set(labels_of), query
        for name, matchers in re.findall(r"\b((?:airunway|process)_[a-z_]+)\{([^}]*)\}", query):
            matched = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert matched <= labels_of[name], query
        grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
        assert grouped <= set().union(*(labels_of[name] for name in used)) | TARGET_LABELS, query


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    text = " ".join(queries())
    assert [m.name for m in METRICS if not any(re.search(rf"\b{series}\b", text) for series in m.series)] == []


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(panels))) - {"__rate_interval"}
    assert used <= variables | {"__rate_interval"}


def test_every_alert_has_its_runbook() -> None:
    assert not any("runbook_url" in rule["annotations"] for rule in alert_rules()), "a placeholder is no address"
    page = (ROOT / "docs/reference/alerts.md").read_text(encoding="utf-8")
    headings = {line.removeprefix("## ").lower() for line in page.splitlines() if line.startswith("## ")}
    address = "https://docs.example.org"
    rules = rule_file(address)["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) == len(headings)
    for rule in rules:
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        # An address that a browser can open: Alertmanager's messages are read far from this repository.
        assert path == f"{address}/reference/alerts.md"
        assert anchor in headings
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def promtool(*arguments: str, text: str = "") -> None:
    """Runs Prometheus' own tool; skips the test where there is none."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on PATH (it comes with Prometheus)")
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def parsable(query: str) -> str:
    """A query of the dashboard as Grafana would send it."""
    names = re.fullmatch(r"label_values\((.+), \w+\)", query)
    return re.sub(r"\$\w+", ".*", (names[1] if names else query).replace("$__rate_interval", "1m"))


def test_the_brackets_and_quotes_of_each_query_close() -> None:
    """What can be seen without Prometheus' parser."""
    for query in map(parsable, queries()):
        open_: list[str] = []
        assert query.count('"') % 2 == 0, query
        for character in re.sub(r'"[^"]*"', "", query):
            if character in "([{":
                open_.append(character)
            elif character in ")]}":
                assert open_, query
                assert f"{open_.pop()}{character}" in ("()", "[]", "{}"), query
        assert not open_, query
        assert "$" not in query, query


def test_promtool_parses_every_query_and_accepts_the_rules(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": parsable(query)} for number, query in enumerate(queries())]
    assert len(rules) > 60
    recorded = tmp_path / "queries.yaml"
    recorded.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(recorded), str(ALERTS))
