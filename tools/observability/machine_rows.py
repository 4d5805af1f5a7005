"""Rows about the processes of AI Runway themselves: their passes, their requests, what they use."""

from __future__ import annotations

from tools.observability.panels import Panel, Row, quantiles

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    (
        "Reconciling",
        (
            Panel(
                title="Reconcile passes",
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
                title="Duration of a reconcile pass",
                unit="s",
                queries=quantiles("airunway_reconciliation_duration_seconds", "controller"),
                description="Including its requests to the API server.",
            ),
            Panel(
                title="Reconcile errors",
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
                title="Objects waiting in the queue",
                queries=(("max by (controller) (airunway_workqueue_depth)", "{{controller}}"),),
                description="ModelDeployments (core, provider-…) and provider configs (configs) that wait.",
            ),
            Panel(
                title="Wait in the queue",
                unit="s",
                queries=quantiles("airunway_workqueue_latency_seconds", "controller"),
                description="From when an object was due until a worker took it.",
            ),
            Panel(
                title="Components with a leader",
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
                title="Requests to the API server",
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
                title="Duration of a request to the API server",
                unit="s",
                queries=quantiles("airunway_api_request_duration_seconds", "verb"),
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
                title="Objects held in memory",
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
        "Processes",
        (
            Panel(
                title="Memory of each process",
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
                title="Processor use of each process",
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
                title="Longest time in which nothing else ran",
                unit="s",
                queries=(("max by (job, instance) (airunway_event_loop_lag_seconds)", "{{job}} {{instance}}"),),
                description="Within the last minute. Probes, the lease and admission reviews wait for as long.",
            ),
            Panel(
                title="Versions that run",
                kind="table",
                queries=(("max by (component, version, python) (airunway_build_info)", ""),),
                description="What runs.",
            ),
        ),
    ),
)
