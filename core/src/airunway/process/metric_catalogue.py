"""Every metric of AI Runway as data, for the code that measures, the documentation, dashboards and alerts.

Names and labels are those of the Go project, with the prefix ``airunway_``, where the meaning is equal
(docs/reference/metrics.md). The number of series is bounded: namespaces and object names are labels only
of gauges that are read from the caches, which disappear with their object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricsRole(StrEnum):
    """The processes that show a metric."""

    EVERY = "every process"
    CORE = "core"
    CATALOGUE = "catalogue"


@dataclass(frozen=True)
class Metric:
    """One metric."""

    type: MetricType
    name: str
    labels: tuple[str, ...]
    help: str
    role: MetricsRole = field(default=MetricsRole.EVERY, kw_only=True)
    buckets: tuple[float, ...] = field(default=(), kw_only=True)
    """Upper bounds of a histogram's buckets, in seconds."""
    read: bool = field(default=False, kw_only=True)
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

_PASS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_LIFE_SECONDS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)

_CORE, _CATALOGUE = MetricsRole.CORE, MetricsRole.CATALOGUE


_counter = partial(Metric, MetricType.COUNTER)
_gauge = partial(Metric, MetricType.GAUGE)
_histogram = partial(Metric, MetricType.HISTOGRAM)


METRICS: tuple[Metric, ...] = (
    # ------------------------------------------------------------------------------------------------ the process
    _gauge(
        "airunway_build_info",
        ("component", "version", "python"),
        "1, with the process's name and the versions of AI Runway and of Python in the labels; one series a process.",
    ),
    _gauge("airunway_leader", ("component",), "1 if this process does the work of its component, 0 if it stands by."),
    _gauge(
        "airunway_event_loop_lag_seconds",
        (),
        "Longest time within the last minute for which one thing kept the process from doing anything else.",
    ),
    _gauge(
        "airunway_objects_left_out",
        (),
        "ModelDeployments that the limit on objects keeps out of the metrics that name objects.",
        role=_CORE,
    ),
    # ------------------------------------------------------------------------------------------------- reconciling
    _histogram(
        "airunway_reconciliation_duration_seconds",
        ("controller", "provider"),
        "Seconds that a pass over one object took, by the provider that the object has (empty: none yet).",
        buckets=_PASS_SECONDS,
    ),
    _counter(
        "airunway_reconciliation_errors_total",
        ("controller", "provider", "error_type"),
        "Passes that failed, and deployments that became invalid or could not be placed, by kind of error.",
    ),
    _counter(
        "airunway_reconcile_total",
        ("controller", "result"),
        "Passes by result: success, requeue (again later, as planned), retry (a passing failure), error (a bug).",
    ),
    _gauge(
        "airunway_workqueue_depth",
        ("controller",),
        "Keys that wait to be worked on now; 0 in a process that stands by.",
    ),
    _histogram(
        "airunway_workqueue_latency_seconds",
        ("controller",),
        "Seconds that a key waited for a worker after it was due.",
        buckets=_WAIT_SECONDS,
    ),
    # -------------------------------------------------------------------------------------------------- API server
    _counter(
        "airunway_api_requests_total",
        ("verb", "resource", "code"),
        "Requests to the API server by verb, resource and HTTP status (0: no answer came).",
    ),
    _histogram(
        "airunway_api_request_duration_seconds",
        ("verb",),
        "Seconds until the API server had answered; a watch is counted when it opens.",
        buckets=_PASS_SECONDS,
    ),
    _counter(
        "airunway_watch_restarts_total",
        ("resource", "cause"),
        "Times that following a resource had to begin again because of a fault, by the fault's name.",
    ),
    _gauge(
        "airunway_watch_synced",
        ("resource",),
        "1 once the whole resource was read and as long as the API server serves it, else 0. Absent while an optional "
        "one, such as those of the Gateway API, is not served.",
    ),
    _gauge("airunway_watch_objects", ("resource",), "Objects in the cache of a resource."),
    _counter(
        "airunway_events_lost_total",
        ("cause",),
        "Events that were not recorded: full (too many at a time), limited (too many about one object) or "
        "refused (by the API server).",
        read=True,
    ),
    # ------------------------------------------------------------------------------------------------------ webhook
    _counter(
        "airunway_webhook_requests_total",
        ("verdict",),
        "Reviews by the admission webhook: allowed, refused, or failed (no verdict was reached).",
        role=_CORE,
    ),
    _histogram(
        "airunway_webhook_duration_seconds", (), "Seconds that a review took.", buckets=_WAIT_SECONDS, role=_CORE
    ),
    _counter(
        "airunway_webhook_turned_away_total",
        ("cause",),
        "Connections and requests that the webhook ended unjudged: too many connections, no TLS handshake, a "
        "head or body that is too slow or no HTTP, a size above the limit, or busy (too many reviews at a time).",
        role=_CORE,
    ),
    _gauge(
        "airunway_webhook_certificate_expiry_timestamp_seconds",
        (),
        "When the serving certificate that this replica of the webhook shows ends, as a Unix time. Absent without one.",
        role=_CORE,
    ),
    # -------------------------------------------------------------------------------------------------- deployments
    _gauge("airunway_modeldeployments", ("namespace", "phase"), "ModelDeployments by namespace and phase.", role=_CORE),
    _gauge(
        "airunway_deployment_status",
        ("provider", "phase"),
        "ModelDeployments by provider (empty: none yet) and phase.",
        role=_CORE,
    ),
    _gauge(
        "airunway_modeldeployment_info",
        ("namespace", "name", "provider", "engine", "model"),
        "1 for each ModelDeployment, with its provider, engine and model in the labels.",
        role=_CORE,
    ),
    _gauge(
        "airunway_modeldeployment_condition",
        ("namespace", "name", "type", "status"),
        "1 for each condition of each ModelDeployment, with its status (True, False, Unknown) in a label.",
        role=_CORE,
    ),
    _gauge(
        "airunway_deployment_phase",
        ("namespace", "name", "phase"),
        "1 for each ModelDeployment, with its phase in a label.",
        role=_CORE,
    ),
    _gauge(
        "airunway_deployment_replicas",
        ("namespace", "name", "state"),
        "Replicas of each ModelDeployment: desired, ready and available.",
        role=_CORE,
    ),
    _gauge(
        "airunway_gateway_share",
        ("namespace", "name", "group"),
        "Percent of the requests that its group shares at the gateway, of each ModelDeployment that shares any.",
        role=_CORE,
    ),
    _gauge(
        "airunway_gateway_weight",
        ("namespace", "name", "group"),
        "Weight (spec.gateway.weight) of each ModelDeployment that shares requests with its group.",
        role=_CORE,
    ),
    _gauge(
        "airunway_deployment_suspended",
        ("namespace", "name"),
        "1 for each ModelDeployment with spec.suspend; the others have no such series.",
        role=_CORE,
    ),
    _counter(
        "airunway_deployment_phase_transitions_total",
        ("provider", "from_phase", "to_phase"),
        "Changes of phase that the leader saw.",
        role=_CORE,
    ),
    _histogram(
        "airunway_deployment_ready_duration_seconds",
        ("provider",),
        "Seconds from the creation of a ModelDeployment until it ran for the first time.",
        buckets=_LIFE_SECONDS,
        role=_CORE,
    ),
    _histogram(
        "airunway_deployment_provision_duration_seconds",
        ("provider",),
        "Seconds from the phase Deploying to the phase Running, as the leader saw them.",
        buckets=_LIFE_SECONDS,
        role=_CORE,
    ),
    # -------------------------------------------------------------------------------------------------- model cache
    _gauge("airunway_modelartifacts", ("namespace", "phase"), "ModelArtifacts by namespace and phase.", role=_CORE),
    _gauge(
        "airunway_modelartifact_phase",
        ("namespace", "name", "phase"),
        "1 for each ModelArtifact, with its phase in a label.",
        role=_CORE,
    ),
    _gauge(
        "airunway_modelartifact_users",
        ("namespace", "name"),
        "ModelDeployments that use each ModelArtifact.",
        role=_CORE,
    ),
    _gauge(
        "airunway_modelartifact_bytes",
        ("namespace", "name", "state"),
        "Bytes of each ModelArtifact: needed (its weights), allocated (its claim) and, while it downloads, "
        "downloading (what is there).",
        role=_CORE,
    ),
    _gauge(
        "airunway_model_downloads",
        ("state",),
        "Downloads of weights that are running, and queued because of --max-downloads; 0 in a process that stands by.",
        role=_CORE,
    ),
    _counter(
        "airunway_model_download_attempts_total",
        ("result",),
        "Tries to measure or fetch weights that ended: succeeded (the weights are complete) or failed.",
        role=_CORE,
    ),
    _histogram(
        "airunway_model_download_duration_seconds",
        (),
        "Seconds from the begin of the try that completed a ModelArtifact to its end.",
        buckets=_LIFE_SECONDS,
        role=_CORE,
    ),
    # ---------------------------------------------------------------------------------------------------- catalogue
    _gauge(
        "airunway_modeltemplates",
        ("namespace", "phase"),
        "ModelTemplates by namespace and phase; ClusterModelTemplates have an empty namespace.",
        role=_CATALOGUE,
    ),
    _gauge(
        "airunway_discoveries",
        ("state",),
        "Discovery Jobs that are running, and queued because of --max-discoveries; 0 in a process that stands by.",
        role=_CATALOGUE,
    ),
    _counter(
        "airunway_discovery_attempts_total",
        ("result",),
        "Tries to ask an image for its profile that ended: succeeded or failed.",
        role=_CATALOGUE,
    ),
    _gauge("airunway_modelsources", ("phase",), "ModelSources by phase.", role=_CATALOGUE),
    _counter(
        "airunway_source_scans_total",
        ("result",),
        "Scans of ModelSources that ended: succeeded, partial (some filters failed) or failed.",
        role=_CATALOGUE,
    ),
    _histogram(
        "airunway_source_scan_duration_seconds",
        (),
        "Seconds that a scan of a ModelSource took.",
        buckets=_LIFE_SECONDS,
        role=_CATALOGUE,
    ),
    # ---------------------------------------------------------------------------------------------------- providers
    _counter(
        "airunway_provider_selection_total",
        ("provider", "reason"),
        "Providers given to ModelDeployments: manual (the spec names it) or auto.",
        role=_CORE,
    ),
    _gauge("airunway_provider_ready", ("provider",), "1 if the provider says that it is ready, else 0.", role=_CORE),
    _gauge(
        "airunway_provider_heartbeat_age_seconds",
        ("provider",),
        "Seconds since the provider's last heartbeat came, by the core's clock; after 180 it is not selected.",
        role=_CORE,
    ),
    _gauge(
        "airunway_provider_condition",
        ("provider", "type", "status"),
        "1 for each condition of each InferenceProviderConfig, with its status in a label.",
        role=_CORE,
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
