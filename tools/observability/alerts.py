"""The alerts, as data: rules for Prometheus and the runbook page are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

__all__ = ["ALERTS", "Alert", "rule_file"]


@dataclass(frozen=True, kw_only=True)
class Alert:
    """`summary` and `description` are annotations and may use Prometheus' templates; `steps` go to the runbook."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    description: str
    meaning: str
    steps: tuple[str, ...]

    @property
    def anchor(self) -> str:
        return self.name.lower()


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="AirunwayNotReady",
        expression='max by (namespace, name) (airunway_modeldeployment_condition{type="Ready",status!="True"})'
        " unless on (namespace, name) max by (namespace, name) (airunway_deployment_suspended)",
        lasting="15m",
        severity="warning",
        summary="ModelDeployment {{ $labels.namespace }}/{{ $labels.name }} is not ready",
        description="It has not been ready for 15 minutes.",
        meaning="A model does not serve, or not in its newest revision. Suspended deployments do not count.",
        steps=(
            "`kubectl get md -n NAMESPACE NAME -o wide` shows phase, reason and message: they name the one cause.",
            "`kubectl describe md -n NAMESPACE NAME` shows the conditions and the events in their order.",
            "`airunway explain md/NAME -n NAMESPACE` if no provider or engine was selected.",
        ),
    ),
    Alert(
        name="AirunwayNoShare",
        expression="max by (namespace, name, group) (airunway_gateway_share) == 0"
        " and max by (namespace, name, group) (airunway_gateway_weight) > 0",
        lasting="15m",
        severity="warning",
        summary="ModelDeployment {{ $labels.namespace }}/{{ $labels.name }} has a weight and no share",
        description="For 15 minutes it has got none of the requests that group {{ $labels.group }} shares.",
        meaning="A version beside others has a weight above 0, and cannot answer; the others get its requests.",
        steps=(
            "`airunway status md/NAME -n NAMESPACE` shows the share, and what the deployment waits for.",
            "The message of the condition GatewayReady says why it has no share (docs/side-by-side.md).",
        ),
    ),
    Alert(
        name="AirunwayReconcileErrors",
        expression='sum by (controller) (rate(airunway_reconcile_total{result="error"}[10m]))'
        " / sum by (controller) (rate(airunway_reconcile_total[10m])) > 0.1",
        lasting="10m",
        severity="warning",
        summary="{{ $labels.controller }}: {{ $value | humanizePercentage }} of reconciles fail",
        description="More than 10% of reconciles end with an error that is not transient.",
        meaning="A bug, a missing permission, or an unexpected object. Transient failures (conflicts, 429 and "
        "5xx) are not counted.",
        steps=(
            'Look for lines with `"level":"error"` in the log of that component; they carry object and traceback.',
            "`airunway_reconciliation_errors_total` by `error_type` says of which kind they are; `refused` usually "
            "means a missing permission: compare the ClusterRole with the one of this release.",
        ),
    ),
    Alert(
        name="AirunwayProviderDown",
        expression="min by (provider) (airunway_provider_heartbeat_age_seconds) > 180",
        lasting="2m",
        severity="critical",
        summary="No heartbeat from provider {{ $labels.provider }}",
        description="Its last heartbeat is {{ $value | humanizeDuration }} old.",
        meaning="The provider's process does not run or does not reach the API server. Running models keep serving, "
        "but their status may be stale, and this provider gets no new deployments.",
        steps=(
            "`kubectl get pods -n airunway-system` and the log of the provider's pod.",
            "`kubectl describe ipc PROVIDER` shows its last status.",
            "If the provider was uninstalled on purpose, delete its config: `kubectl delete ipc PROVIDER`.",
        ),
    ),
    Alert(
        name="AirunwayWatchStalled",
        expression="sum by (instance, resource) (increase(airunway_watch_restarts_total[15m])) > 10"
        " or min by (instance, resource) (airunway_watch_synced) == 0",
        lasting="15m",
        severity="warning",
        summary="{{ $labels.instance }} cannot watch {{ $labels.resource }}",
        description="The cache of this resource is stale or was never filled.",
        meaning="Changes of these objects are noticed late or not at all.",
        steps=(
            "The component's log names the cause of each restart (`Forbidden`: a permission is missing; `NotFound`: "
            "the CRD is not installed; `ConnectionFailed`, `RequestTimedOut`: the network or the API server).",
            "`airunway_watch_restarts_total` has the cause as a label.",
        ),
    ),
    Alert(
        name="AirunwayQueueBacklog",
        expression="max by (controller) (min_over_time(airunway_workqueue_depth[15m])) > 0",
        lasting="5m",
        severity="warning",
        summary="{{ $labels.controller }} has a queue backlog",
        description="For 15 minutes at least {{ $value }} objects have been waiting for a worker.",
        meaning="Changes take effect late. Passes hang or are slow, or there is more to do than one process can.",
        steps=(
            "`airunway_reconciliation_duration_seconds`: are passes slow? Then mostly `airunway_api_request_duration_"
            "seconds` is: look at the API server, its admission webhooks and its throttling (code 429).",
            "`process_cpu_seconds_total`: a process that uses a whole processor needs its work divided: "
            "`--watch-namespaces`, one controller for each group of namespaces.",
        ),
    ),
    Alert(
        name="AirunwayLoopBlocked",
        expression="max by (job, instance) (airunway_event_loop_lag_seconds) > 2",
        lasting="3m",
        severity="warning",
        summary="{{ $labels.instance }} is blocked for seconds at a time",
        description="Its event loop was blocked for {{ $value | humanizeDuration }}, every minute.",
        meaning="Within such a gap the process answers no probe and no admission review, and does not renew its "
        "lease: after ten seconds it loses the lease, and the kubelet may restart it. Usually a few objects are very "
        "large, or the process gets too little processor time.",
        steps=(
            "`container_cpu_cfs_throttled_periods_total` of the pod: a low CPU limit makes short gaps long ones.",
            "`airunway_reconciliation_duration_seconds` by controller: the slowest passes. With `--log-level debug` "
            "the log names each object with the time of its pass (`the pass took …`).",
            "Such an object is huge or was made to be: `kubectl get md -n NAMESPACE NAME -o json | wc -c`.",
        ),
    ),
    Alert(
        name="AirunwayNoLeader",
        expression="max by (component) (airunway_leader) == 0"
        ' or absent(airunway_leader{component="airunway-controller"})',
        lasting="5m",
        severity="critical",
        summary="{{ $labels.component }} has no leader",
        description="All replicas are in standby, or no replica is running.",
        meaning="Nothing is reconciled. Running models keep serving.",
        steps=(
            "`kubectl get lease -n airunway-system` shows the holder of the lease and the last renewal.",
            "`kubectl get pods -n airunway-system`: check that a replica runs, and read its log.",
        ),
    ),
    Alert(
        name="AirunwayWebhookErrors",
        expression='sum(rate(airunway_webhook_requests_total{verdict="failed"}[10m]))'
        " / sum(rate(airunway_webhook_requests_total[10m])) > 0.05",
        lasting="10m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the webhook's reviews fail",
        description="The webhook cannot complete the review of some ModelDeployments.",
        meaning="Users cannot create or change ModelDeployments, or not always. Refusals are not counted here. Reviews "
        "that never reach the webhook (its Service or certificate is wrong) show in the API server's metrics only.",
        steps=(
            "The core's log has the cause: the API server did not answer the webhook's own question, or a traceback.",
            "`kubectl get validatingwebhookconfiguration airunway-webhook -o yaml` shows CA bundle and Service.",
        ),
    ),
    Alert(
        name="AirunwayWebhookCertificateEnding",
        # It is renewed 90 days before its end.
        expression="min(airunway_webhook_certificate_expiry_timestamp_seconds) - time() < 5184000",
        lasting="15m",
        severity="warning",
        summary="The webhook's certificate ends in {{ $value | humanizeDuration }} and is not renewed",
        description="The core's leader renews it 90 days ahead, and has not done so for 30 days.",
        meaning="When it has ended, API servers refuse the webhook's answers: no ModelDeployment can be created or "
        "changed. Running models keep serving.",
        steps=(
            "The log of the core's leader says what keeps it: most often the right to write the Secret "
            "`airunway-webhook-tls`, or a Secret that is immutable.",
            "`kubectl get secret -n airunway-system airunway-webhook-tls --show-managed-fields -o yaml`: does another "
            "tool write it?",
            "If only one replica shows an old certificate, restart it.",
        ),
    ),
    Alert(
        name="AirunwayModelDownloadFailing",
        expression=" or ".join(
            f'max by (namespace, name) (airunway_modelartifact_phase{{phase="{phase}"}})'
            for phase in ("Failed", "Degraded", "NotAvailable")
        ),
        lasting="10m",
        severity="warning",
        summary="The weights of ModelArtifact {{ $labels.namespace }}/{{ $labels.name }} cannot be fetched",
        description="It has been Failed, Degraded or NotAvailable for 10 minutes.",
        meaning="Deployments that use these weights do not start. Those that serve go on, but may not survive a "
        "restart if the weights were complete before.",
        steps=(
            "`kubectl get mart -n NAMESPACE NAME -o yaml`: `status.reason` and `status.message` name the one cause, "
            "`status.download.nextAttemptTime` the next try.",
            "[The model cache](../model-cache.md#when-it-fails) lists what to do for each reason.",
            "After a change outside of the cluster (a license that was accepted), delete the failed Job: the next try "
            "starts at once.",
        ),
    ),
    Alert(
        name="AirunwayModelDownloadStalled",
        expression='max by (namespace, name) (increase(airunway_modelartifact_bytes{state="downloading"}[15m])) < 1',
        lasting="5m",
        severity="warning",
        summary="The download of ModelArtifact {{ $labels.namespace }}/{{ $labels.name }} makes no progress",
        description="For 15 minutes no byte was added.",
        meaning="The hub or the storage is too slow, or the progress of the download cannot be read. A download that "
        "gets no byte for two minutes ends by itself and is tried again where it stopped.",
        steps=(
            "`kubectl get pods -n NAMESPACE -l airunway.ai/artifact=NAME` and the log of the pod of the download.",
            "If the pod's log shows progress, the core cannot reach the pod: check NetworkPolicies for the port "
            "`progress` of these pods.",
        ),
    ),
    Alert(
        name="AirunwayModelClaimNearlyFull",
        expression='max by (namespace, name) (airunway_modelartifact_bytes{state="needed"})'
        ' / max by (namespace, name) (airunway_modelartifact_bytes{state="allocated"}) > 0.97',
        lasting="5m",
        severity="warning",
        summary="The claim of ModelArtifact {{ $labels.namespace }}/{{ $labels.name }} is nearly full",
        description="The weights need {{ $value | humanizePercentage }} of it.",
        meaning="File systems keep a part of a volume for themselves: the download may end with StorageFull.",
        steps=(
            "Raise `spec.size` of the ModelArtifact. The claim grows if its StorageClass can expand volumes; else a "
            "larger one is made while the weights are not complete.",
            "For sizes that are measured, raise `spec.storage.pvcHeadroomPercent` of the runtime config.",
        ),
    ),
    Alert(
        name="AirunwaySelectionRulesInvalid",
        expression='max by (provider) (airunway_provider_condition{type="SelectionRulesValid",status="False"}) == 1',
        lasting="10m",
        severity="warning",
        summary="A selection rule of provider {{ $labels.provider }} cannot be evaluated",
        description="The rule never counts, so the provider may not be selected.",
        meaning="A rule in the InferenceProviderConfig does not compile, fails, or gives no truth value.",
        steps=("`kubectl describe ipc PROVIDER`: the condition `SelectionRulesValid` names the rule and the error.",),
    ),
    Alert(
        name="AirunwayObjectsLeftOut",
        expression="max(airunway_objects_left_out) > 0",
        lasting="15m",
        severity="info",
        summary="{{ $value }} ModelDeployments have no metrics of their own",
        description="There are more ModelDeployments than the limit on objects in metrics.",
        meaning="AirunwayNotReady cannot see all deployments. Counts by namespace, provider and phase are complete.",
        steps=("Alert on `airunway_modeldeployments` by phase instead, or watch some namespaces per controller.",),
    ),
)


def rule_file(docs_url: str) -> dict[str, Any]:
    """A rule file as Prometheus reads it; the same ``groups`` are the spec of a PrometheusRule.

    As long as the address of the documentation is a placeholder, which no browser finds, alerts have no runbook.
    """
    published = not (urlsplit(docs_url).hostname or "").endswith(".example")
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                **({"runbook_url": f"{docs_url}/reference/alerts.md#{alert.anchor}"} if published else {}),
            },
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "airunway", "rules": rules}]}
