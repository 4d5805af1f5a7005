"""Every metric of AI Runway as data, for the code that measures, the documentation, dashboards and alerts.

Names and labels are those of seed 004 §9 with the prefix ``airunway_``, and of the Go project where the meaning is
equal (spec/core.md, "Events and metrics"). The number of series is bounded: namespaces and object names are labels only
of gauges that are read from the caches, which disappear with their object.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ERROR_TYPES", "METRICS", "PROCESS_METRICS", "TURNED_AWAY_CAUSES", "Metric", "MetricType", "MetricsRole"]


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricsRole(StrEnum):
    """The processes that show a metric."""

    EVERY = "every process"
    CORE = "core"
    CATALOGUE = "catalogue"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    type: MetricType
    labels: tuple[str, ...] = ()
    help: str
    role: MetricsRole = MetricsRole.EVERY
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in seconds."""
    read: bool = False
    """Whether a counter's value is read at each scrape, as every gauge's is; otherwise it is updated at once."""

    @property
    def counted(self) -> bool:
        return self.type is not MetricType.GAUGE and not self.read

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which its samples appear."""
        if self.type is MetricType.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


ERROR_TYPES = (
    "validation",
    "engine_selection",
    "provider_selection",
    "conflict",
    "throttled",
    "unreachable",
    "refused",
    "server",
    "internal",
)
"""Values of the label ``error_type``: the first three are errors of a deployment, the others end a pass."""

TURNED_AWAY_CAUSES = ("connections", "handshake", "head", "size", "body", "busy")
"""Values of the label ``cause`` of what the webhook turned away (`process/connections.py`)."""

_PASS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_LIFE_SECONDS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)

_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM

METRICS: tuple[Metric, ...] = (
    # ------------------------------------------------------------------------------------------------ the process
    Metric(
        name="airunway_build_info",
        type=_GAUGE,
        labels=("component", "version", "python"),
        help="1, with the version of AI Runway and of Python in the labels.",
    ),
    Metric(
        name="airunway_leader",
        type=_GAUGE,
        labels=("component",),
        help="1 if this process does the work of its component, 0 if it stands by.",
    ),
    Metric(
        name="airunway_event_loop_lag_seconds",
        type=_GAUGE,
        help="Longest time within the last minute for which one thing kept the process from doing anything else.",
    ),
    Metric(
        name="airunway_objects_left_out",
        type=_GAUGE,
        help="ModelDeployments that the limit on objects keeps out of the metrics that name objects.",
        role=MetricsRole.CORE,
    ),
    # ------------------------------------------------------------------------------------------------- reconciling
    Metric(
        name="airunway_reconciliation_duration_seconds",
        type=_HISTOGRAM,
        labels=("controller", "provider"),
        help="Seconds that a pass over one object took, by the provider that the object has (empty: none yet).",
        buckets=_PASS_SECONDS,
    ),
    Metric(
        name="airunway_reconciliation_errors_total",
        type=_COUNTER,
        labels=("controller", "provider", "error_type"),
        help="Passes that failed, and deployments that became invalid or could not be placed, by kind of error.",
    ),
    Metric(
        name="airunway_reconcile_total",
        type=_COUNTER,
        labels=("controller", "result"),
        help="Passes by result: success, requeue (again later, as planned), retry (a passing failure), error (a bug).",
    ),
    Metric(
        name="airunway_workqueue_depth",
        type=_GAUGE,
        labels=("controller",),
        help="Keys that wait to be worked on now; 0 in a process that stands by.",
    ),
    Metric(
        name="airunway_workqueue_latency_seconds",
        type=_HISTOGRAM,
        labels=("controller",),
        help="Seconds that a key waited for a worker after it was due.",
        buckets=_WAIT_SECONDS,
    ),
    # -------------------------------------------------------------------------------------------------- API server
    Metric(
        name="airunway_api_requests_total",
        type=_COUNTER,
        labels=("verb", "resource", "code"),
        help="Requests to the API server by verb, resource and HTTP status (0: no answer came).",
    ),
    Metric(
        name="airunway_api_request_duration_seconds",
        type=_HISTOGRAM,
        labels=("verb",),
        help="Seconds until the API server had answered; a watch is counted when it opens.",
        buckets=_PASS_SECONDS,
    ),
    Metric(
        name="airunway_watch_restarts_total",
        type=_COUNTER,
        labels=("resource", "cause"),
        help="Times that following a resource had to begin again because of a fault, by the fault's name.",
    ),
    Metric(
        name="airunway_watch_synced",
        type=_GAUGE,
        labels=("resource",),
        help="1 once the whole resource was read and as long as the API server serves it, else 0.",
    ),
    Metric(
        name="airunway_watch_objects",
        type=_GAUGE,
        labels=("resource",),
        help="Objects in the cache of a resource.",
    ),
    Metric(
        name="airunway_events_lost_total",
        type=_COUNTER,
        labels=("cause",),
        help="Events that were not recorded: full (too many at a time), limited "
        "(too many about one object) or refused (by the API server).",
        read=True,
    ),
    # ------------------------------------------------------------------------------------------------------ webhook
    Metric(
        name="airunway_webhook_requests_total",
        type=_COUNTER,
        labels=("verdict",),
        help="Reviews by the admission webhook: allowed, refused, or failed (no verdict was reached).",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_webhook_duration_seconds",
        type=_HISTOGRAM,
        help="Seconds that a review took.",
        role=MetricsRole.CORE,
        buckets=_WAIT_SECONDS,
    ),
    Metric(
        name="airunway_webhook_turned_away_total",
        type=_COUNTER,
        labels=("cause",),
        help="Connections and requests that the webhook ended unjudged: too many connections, no TLS handshake, a head "
        "or body that is too slow or no HTTP, a size above the limit, or busy (too many reviews at a time).",
        role=MetricsRole.CORE,
    ),
    # -------------------------------------------------------------------------------------------------- deployments
    Metric(
        name="airunway_modeldeployment_total",
        type=_GAUGE,
        labels=("namespace", "phase"),
        help="ModelDeployments by namespace and phase.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_deployment_status",
        type=_GAUGE,
        labels=("provider", "phase"),
        help="ModelDeployments by provider (empty: none yet) and phase.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_modeldeployment_info",
        type=_GAUGE,
        labels=("namespace", "name", "provider", "engine", "model"),
        help="1 for each ModelDeployment, with its provider, engine and model in the labels.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_modeldeployment_condition",
        type=_GAUGE,
        labels=("namespace", "name", "type", "status"),
        help="1 for each condition of each ModelDeployment, with its status (True, False, Unknown) in a label.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_deployment_phase",
        type=_GAUGE,
        labels=("namespace", "name", "phase"),
        help="1 for each ModelDeployment, with its phase in a label.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_deployment_replicas",
        type=_GAUGE,
        labels=("namespace", "name", "state"),
        help="Replicas of each ModelDeployment: desired, ready and available.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_deployment_suspended",
        type=_GAUGE,
        labels=("namespace", "name"),
        help="1 for each ModelDeployment with spec.suspend; the others have no such series.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_deployment_phase_transitions_total",
        type=_COUNTER,
        labels=("provider", "from_phase", "to_phase"),
        help="Changes of phase that the leader saw.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_deployment_ready_duration_seconds",
        type=_HISTOGRAM,
        labels=("provider",),
        help="Seconds from the creation of a ModelDeployment until it ran for the first time.",
        role=MetricsRole.CORE,
        buckets=_LIFE_SECONDS,
    ),
    Metric(
        name="airunway_deployment_provision_duration_seconds",
        type=_HISTOGRAM,
        labels=("provider",),
        help="Seconds from the phase Deploying to the phase Running, as the leader saw them.",
        role=MetricsRole.CORE,
        buckets=_LIFE_SECONDS,
    ),
    # -------------------------------------------------------------------------------------------------- model cache
    Metric(
        name="airunway_modelartifact_total",
        type=_GAUGE,
        labels=("namespace", "phase"),
        help="ModelArtifacts by namespace and phase.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_modelartifact_phase",
        type=_GAUGE,
        labels=("namespace", "name", "phase"),
        help="1 for each ModelArtifact, with its phase in a label.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_modelartifact_users",
        type=_GAUGE,
        labels=("namespace", "name"),
        help="ModelDeployments that use each ModelArtifact.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_modelartifact_bytes",
        type=_GAUGE,
        labels=("namespace", "name", "state"),
        help="Bytes of each ModelArtifact: needed (its weights), allocated (its claim) and, while it downloads, "
        "downloading (what is there).",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_model_downloads",
        type=_GAUGE,
        labels=("state",),
        help="Downloads of weights that are running, and queued because of --max-downloads; 0 in a process that stands "
        "by.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_model_download_attempts_total",
        type=_COUNTER,
        labels=("result",),
        help="Tries to measure or fetch weights that ended: succeeded (the weights are complete) or failed.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_model_download_duration_seconds",
        type=_HISTOGRAM,
        help="Seconds from the begin of the try that completed a ModelArtifact to its end.",
        role=MetricsRole.CORE,
        buckets=_LIFE_SECONDS,
    ),
    # ---------------------------------------------------------------------------------------------------- catalogue
    Metric(
        name="airunway_modeltemplate_total",
        type=_GAUGE,
        labels=("namespace", "phase"),
        help="ModelTemplates by namespace and phase; ClusterModelTemplates have an empty namespace.",
        role=MetricsRole.CATALOGUE,
    ),
    Metric(
        name="airunway_discoveries",
        type=_GAUGE,
        labels=("state",),
        help="Discovery Jobs that are running, and queued because of --max-discoveries; 0 in a process that stands by.",
        role=MetricsRole.CATALOGUE,
    ),
    Metric(
        name="airunway_discovery_attempts_total",
        type=_COUNTER,
        labels=("result",),
        help="Tries to ask an image for its profile that ended: succeeded or failed.",
        role=MetricsRole.CATALOGUE,
    ),
    Metric(
        name="airunway_modelsource_total",
        type=_GAUGE,
        labels=("phase",),
        help="ModelSources by phase.",
        role=MetricsRole.CATALOGUE,
    ),
    Metric(
        name="airunway_source_scans_total",
        type=_COUNTER,
        labels=("result",),
        help="Scans of ModelSources that ended: succeeded, partial (some filters failed) or failed.",
        role=MetricsRole.CATALOGUE,
    ),
    Metric(
        name="airunway_source_scan_duration_seconds",
        type=_HISTOGRAM,
        help="Seconds that a scan of a ModelSource took.",
        role=MetricsRole.CATALOGUE,
        buckets=_LIFE_SECONDS,
    ),
    # ---------------------------------------------------------------------------------------------------- providers
    Metric(
        name="airunway_provider_selection_total",
        type=_COUNTER,
        labels=("provider", "reason"),
        help="Providers given to ModelDeployments: manual (the spec names it) or auto.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_provider_ready",
        type=_GAUGE,
        labels=("provider",),
        help="1 if the provider says that it is ready, else 0.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_provider_heartbeat_age_seconds",
        type=_GAUGE,
        labels=("provider",),
        help="Seconds since the provider's last heartbeat came, by the core's clock; after 180 it is not selected.",
        role=MetricsRole.CORE,
    ),
    Metric(
        name="airunway_provider_condition",
        type=_GAUGE,
        labels=("provider", "type", "status"),
        help="1 for each condition of each InferenceProviderConfig, with its status in a label.",
        role=MetricsRole.CORE,
    ),
)
"""All metrics of our own, in the order of the documentation."""

PROCESS_METRICS: dict[str, str] = {
    "process_cpu_seconds_total": "Seconds of processor time used.",
    "process_resident_memory_bytes": "Resident memory in bytes.",
    "process_virtual_memory_bytes": "Virtual memory in bytes.",
    "process_start_time_seconds": "Start of the process in seconds since 1970.",
    "process_open_fds": "Open file descriptors.",
    "process_max_fds": "Most file descriptors that can be open.",
}
"""Metrics of the process itself, as every Prometheus client exposes them on Linux."""
