"""The Grafana dashboard: the JSON that Grafana imports, made from rows of panels."""

from __future__ import annotations

from typing import Any

from tools.observability import fleet_rows, machine_rows
from tools.observability.panels import Panel

__all__ = ["dashboard"]

UID = "airunway-overview"
COLUMNS = 24
HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The dashboard's JSON model."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in (*fleet_rows.ROWS, *machine_rows.ROWS):
        panels.append(_row(title, number=len(panels) + 1, y=y))
        y += 1
        x = 0
        for panel in row:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            panels.append(_panel(panel, number=len(panels) + 1, x=x, y=y))
            x += panel.width
        y += HEIGHT
    return {
        "uid": UID,
        "title": "AI Runway",
        "description": "ModelDeployments, providers and the processes of AI Runway.",
        "tags": ["airunway"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("namespace", "Namespace", "airunway_modeldeployments"),
                _variable("provider", "Provider", "airunway_deployment_status"),
            ]
        },
        "annotations": {"list": []},
        "panels": panels,
    }


def _variable(name: str, label: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _row(title: str, *, number: int, y: int) -> dict[str, Any]:
    position = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": position, "panels": []}


def _panel(panel: Panel, *, number: int, x: int, y: int) -> dict[str, Any]:
    table = panel.kind == "table"
    result: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
                "instant": panel.kind != "timeseries",
                "format": "table" if table else "time_series",
            }
            for position, (expression, legend) in enumerate(panel.queries)
        ],
    }
    if table:
        hidden = {"Time": True, "Value": True}
        result["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return result
