"""The Grafana dashboard, as data: rows of panels, and the JSON that Grafana imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["dashboard"]

UID = "airunway-overview"
COLUMNS = 24
HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: `queries` are (PromQL, legend) pairs; `kind` is Grafana's panel type, `width` in 24ths."""

    title: str
    queries: tuple[tuple[str, str], ...]
    description: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8


def _quantiles(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            f"histogram_quantile({quantile}, sum by ({by}, le) (rate({metric}_bucket[$__rate_interval])))",
            f"{{{{{by}}}}} p{round(quantile * 100)}",
        )
        for quantile in (0.5, 0.99)
    )


_IN_NAMESPACE = 'namespace=~"$namespace"'
_OF_PROVIDER = 'provider=~"$provider"'

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Deployments",
        (
            Panel(
                title="Deployments",
                kind="stat",
                width=4,
                queries=((f"sum(max by (namespace, phase) (airunway_modeldeployment_total{{{_IN_NAMESPACE}}}))", ""),),
                description="All ModelDeployments of the chosen namespaces.",
            ),
            Panel(
                title="Not ready",
                kind="stat",
                width=4,
                queries=(
                    (
                        "count(max by (namespace, name) (airunway_modeldeployment_condition"
                        f'{{type="Ready",status!="True",{_IN_NAMESPACE}}})) or vector(0)',
                        "",
                    ),
                ),
                description="Deployments whose condition Ready is not True.",
            ),
            Panel(
                title="By phase",
                queries=(
                    (
                        "sum by (phase) (max by (namespace, phase) "
                        f"(airunway_modeldeployment_total{{{_IN_NAMESPACE}}}))",
                        "{{phase}}",
                    ),
                ),
                description="ModelDeployments by phase.",
            ),
            Panel(
                title="By provider",
                queries=(
                    (
                        f"sum by (provider) (max by (provider, phase) (airunway_deployment_status{{{_OF_PROVIDER}}}))",
                        "{{provider}}",
                    ),
                ),
                description="ModelDeployments by the provider that runs them.",
            ),
            Panel(
                title="Time to the first Running",
                unit="s",
                width=12,
                queries=_quantiles("airunway_deployment_ready_duration_seconds", "provider"),
                description="From creation until the model served for the first time.",
            ),
            Panel(
                title="Time from Deploying to Running",
                unit="s",
                width=12,
                queries=_quantiles("airunway_deployment_provision_duration_seconds", "provider"),
                description="Also after changes and recoveries.",
            ),
            Panel(
                title="Changes of phase",
                width=12,
                queries=(
                    (
                        "sum by (from_phase, to_phase) (increase(airunway_deployment_phase_transitions_total"
                        f"{{{_OF_PROVIDER}}}[$__rate_interval]))",
                        "{{from_phase}} to {{to_phase}}",
                    ),
                ),
                description="As the leading core saw them.",
            ),
            Panel(
                title="Replicas",
                width=12,
                queries=(
                    (
                        "sum by (state) (max by (namespace, name, state) "
                        f"(airunway_deployment_replicas{{{_IN_NAMESPACE}}}))",
                        "{{state}}",
                    ),
                ),
                description="Desired, ready and available replicas of all chosen deployments.",
            ),
            Panel(
                title="Phases",
                kind="table",
                width=12,
                queries=((f"max by (namespace, name, phase) (airunway_deployment_phase{{{_IN_NAMESPACE}}})", ""),),
                description="Each deployment with its phase.",
            ),
            Panel(
                title="Models",
                kind="table",
                width=12,
                queries=(
                    (
                        "max by (namespace, name, provider, engine, model) "
                        f"(airunway_modeldeployment_info{{{_IN_NAMESPACE},{_OF_PROVIDER}}})",
                        "",
                    ),
                ),
                description="Each deployment with its provider, engine and model.",
            ),
        ),
    ),
    (
        "Providers",
        (
            Panel(
                title="Ready",
                kind="stat",
                queries=((f"max by (provider) (airunway_provider_ready{{{_OF_PROVIDER}}})", "{{provider}}"),),
                description="1: the provider takes deployments.",
            ),
            Panel(
                title="Age of the last heartbeat",
                unit="s",
                queries=(
                    (f"min by (provider) (airunway_provider_heartbeat_age_seconds{{{_OF_PROVIDER}}})", "{{provider}}"),
                ),
                description="A provider beats once a minute; after three it gets no new deployments.",
            ),
            Panel(
                title="Selections",
                queries=(
                    (
                        "sum by (provider, reason) (increase(airunway_provider_selection_total"
                        f"{{{_OF_PROVIDER}}}[$__rate_interval]))",
                        "{{provider}} {{reason}}",
                    ),
                ),
                description="Providers given to deployments: named by the spec (manual) or chosen (auto).",
            ),
        ),
    ),
    (
        "Reconciling",
        (
            Panel(
                title="Passes",
                unit="ops",
                queries=(
                    (
                        "sum by (controller, result) (rate(airunway_reconcile_total[$__rate_interval]))",
                        "{{controller}} {{result}}",
                    ),
                ),
                description="Passes a second by result; error is a bug, retry a passing failure.",
            ),
            Panel(
                title="Duration of a pass",
                unit="s",
                queries=_quantiles("airunway_reconciliation_duration_seconds", "controller"),
                description="Including its requests to the API server.",
            ),
            Panel(
                title="Errors",
                unit="ops",
                queries=(
                    (
                        "sum by (controller, error_type) "
                        "(rate(airunway_reconciliation_errors_total[$__rate_interval]))",
                        "{{controller}} {{error_type}}",
                    ),
                ),
                description="Failed passes, and deployments that became invalid or could not be placed.",
            ),
            Panel(
                title="Queue",
                queries=(("max by (controller) (airunway_workqueue_depth)", "{{controller}}"),),
                description="Keys that wait for a worker.",
            ),
            Panel(
                title="Wait in the queue",
                unit="s",
                queries=_quantiles("airunway_workqueue_latency_seconds", "controller"),
                description="From when a key was due until a worker took it.",
            ),
            Panel(
                title="Leader",
                kind="stat",
                queries=(("max by (component) (airunway_leader)", "{{component}}"),),
                description="1: some replica does the work.",
            ),
        ),
    ),
    (
        "API server",
        (
            Panel(
                title="Requests",
                unit="reqps",
                queries=(
                    (
                        "sum by (verb, resource) (rate(airunway_api_requests_total[$__rate_interval]))",
                        "{{verb}} {{resource}}",
                    ),
                ),
                description="Requests a second by verb and resource.",
            ),
            Panel(
                title="Answers that are no success",
                unit="reqps",
                queries=(
                    (
                        'sum by (code) (rate(airunway_api_requests_total{code!~"2.."}[$__rate_interval]))',
                        "{{code}}",
                    ),
                ),
                description="By HTTP status; 0: no answer came.",
            ),
            Panel(
                title="Duration of a request",
                unit="s",
                queries=_quantiles("airunway_api_request_duration_seconds", "verb"),
                description="Until the answer was there; a watch is counted when it opens.",
            ),
            Panel(
                title="Restarts of watches",
                queries=(
                    (
                        "sum by (resource, cause) (increase(airunway_watch_restarts_total[$__rate_interval]))",
                        "{{resource}} {{cause}}",
                    ),
                ),
                description="Times that following a resource had to begin again.",
            ),
            Panel(
                title="Objects in caches",
                queries=(("max by (job, resource) (airunway_watch_objects)", "{{job}} {{resource}}"),),
                description="Objects that each component holds.",
            ),
            Panel(
                title="Events that were lost",
                queries=(("sum by (cause) (increase(airunway_events_lost_total[$__rate_interval]))", "{{cause}}"),),
                description="Events that were not recorded.",
            ),
        ),
    ),
    (
        "Webhook",
        (
            Panel(
                title="Reviews",
                unit="reqps",
                width=12,
                queries=(
                    (
                        "sum by (verdict) (rate(airunway_webhook_requests_total[$__rate_interval]))",
                        "{{verdict}}",
                    ),
                ),
                description="Reviews of ModelDeployments by verdict.",
            ),
            Panel(
                title="Duration of a review",
                unit="s",
                width=12,
                queries=tuple(
                    (
                        f"histogram_quantile({quantile}, sum by (le) "
                        "(rate(airunway_webhook_duration_seconds_bucket[$__rate_interval])))",
                        f"p{round(quantile * 100)}",
                    )
                    for quantile in (0.5, 0.99)
                ),
                description="As the webhook measures it.",
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                title="Memory",
                unit="bytes",
                queries=(
                    (
                        "process_resident_memory_bytes * on (instance, job) group_left (component) airunway_build_info",
                        "{{component}} {{instance}}",
                    ),
                ),
                description="Resident memory.",
            ),
            Panel(
                title="Processor",
                unit="percentunit",
                queries=(
                    (
                        "rate(process_cpu_seconds_total[$__rate_interval])"
                        " * on (instance, job) group_left (component) airunway_build_info",
                        "{{component}} {{instance}}",
                    ),
                ),
                description="Share of one processor.",
            ),
            Panel(
                title="Versions",
                kind="table",
                queries=(("max by (component, version, python) (airunway_build_info)", ""),),
                description="What runs.",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard's JSON model."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
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
                _variable("namespace", "Namespace", "airunway_modeldeployment_total"),
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
