"""The autoscaler of a deployment: a ScaledObject of KEDA on the deployment's own scale subresource. Pure.

KEDA, and the HorizontalPodAutoscaler that it makes, change ``spec.scaling.replicas``. A provider sees that number only
(docs/autoscaling.md). Example: up to four replicas, 16 requests each: 40 requests make three.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airunway.api import names
from airunway.api.autoscaling import Autoscaling, ScalingMetric
from airunway.api.base import ParseError, parse_model
from airunway.api.modeldeployment import ModelDeployment
from airunway.configs.canonical import parse_duration
from airunway.engines.metrics import (
    ENGINE_METRICS,
    also_at_zero,
    held_query,
    kv_cache_query,
    pods_matcher,
    requests_query,
)
from airunway.owned.objects import complete, identity_in, our_labels
from airunway.plugins.contract import Context, Finding, Observation
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import SCALED_OBJECT, ProviderHost
from airunway.redaction import redacted
from airunway.resource import ObjectKey, Resource, condition_of, dig, entries_at, key_of, mapping_at, text_at
from airunway.routing.holding import holds_requests
from airunway.runtime.report import StepResult
from airunway.runtime.state import ClusterState, provider_mark
from airunway.status.reasons import Category

if TYPE_CHECKING:  # it brings the client of Kubernetes
    from airunway.owned.plan import Plan

CONDITION = "AutoscalerReady"
COMPONENT = "Autoscaler"

_POLLING = 15
"""Seconds between two questions of KEDA to Prometheus."""
_FAILURES = 4
"""Failed questions after which KEDA keeps the replicas that there are."""
_MOST_HELD = 10_000
"""More requests than a picker holds."""

_NOT_INSTALLED = (
    "KEDA is not installed (keda.sh/v1alpha1): install it, or remove scaling.autoscaling; replicas stay as they are"
)


def autoscaling_of(deployment: Resource) -> Autoscaling | None:
    """What a deployment says about its autoscaling; None if nothing, or nothing that can be read."""
    found = dig(deployment, "spec", "scaling", "autoscaling")
    if not isinstance(found, dict):
        return None
    try:
        return parse_model(Autoscaling, found)
    except ParseError:
        return None


def clamp(typed: ModelDeployment, deployment: Resource) -> None:
    """Bring the number of replicas into the bounds of the deployment's autoscaling. `typed` is `deployment`, parsed.

    Autoscalers keep within them; ``kubectl replace`` or ``kubectl scale`` need not, and must not stop a model until
    KEDA looks again.
    """
    scaling = typed.spec.scaling
    if scaling.autoscaling is not None:
        scaling.replicas = max(_fewest(scaling.autoscaling, deployment), scaling.autoscaling.within(scaling.replicas))


def _fewest(autoscaling: Autoscaling, deployment: Resource) -> int:
    """Fewest replicas: the last one stays where nothing would hold a request for it."""
    return autoscaling.floor or (0 if holds_requests(deployment).pool else 1)


def follows_itself(host: ProviderHost, engine: str) -> bool:
    """Whether the upstream follows the load by itself with this engine: the plugin translates the field."""
    return any(each.name == engine and each.autoscaling == "Own" for each in host.manifest.engines)


def unmeasured(host: ProviderHost, typed: ModelDeployment, engine: str) -> tuple[Finding, ...]:
    """The blocker where an engine has no metrics by which it could be scaled."""
    if typed.spec.scaling.autoscaling is None or follows_itself(host, engine) or engine in ENGINE_METRICS:
        return ()
    text = (
        f"the metrics of engine {engine} are not known: remove autoscaling, or use one of {', '.join(ENGINE_METRICS)}"
    )
    return (Finding(path="spec.scaling.autoscaling", reason="MetricsNotAvailable", message=text),)


def autoscaler(
    state: ClusterState,
    host: ProviderHost,
    typed: ModelDeployment,
    context: Context[object],
    *,
    observed: Observation | PluginFault | None,
    selector: str,
    propagated: dict[str, str],
) -> tuple[Resource, ...]:
    """The ScaledObject of a deployment, complete; none as long as it does not serve: the time that its first weights
    take is no idle time.

    `selector` selects the serving pods where the status does not say it yet, `propagated` are the deployment's labels
    that its objects get.
    """
    autoscaling, prometheus = typed.spec.scaling.autoscaling, _prometheus(state.deployment)
    if autoscaling is None or typed.spec.suspend or follows_itself(host, context.engine):
        return ()
    if SCALED_OBJECT.key not in context.served or not prometheus or context.engine not in ENGINE_METRICS:
        return ()
    counts = observed.replicas if isinstance(observed, Observation) else None
    serves = state.served or (counts is not None and counts.ready > 0)
    if not (serves or state.dry_run or _live(state) is not None):
        return ()
    selector = text_at(state.deployment, "status", "selector") or selector
    try:
        pods = pods_matcher(state.key.namespace, selector)
    except ValueError:
        return ()
    made = {
        "apiVersion": f"{SCALED_OBJECT.group}/{SCALED_OBJECT.versions[0]}",
        "kind": SCALED_OBJECT.kind,
        "metadata": {"name": state.key.name},
        "spec": _spec(
            state.key,
            autoscaling,
            context.engine,
            pods=pods,
            prometheus=prometheus,
            pool=holds_requests(state.deployment).pool if autoscaling.floor == 0 else "",
        ),
    }
    whose = our_labels(state.deployment, provider_mark(host.name))
    return (complete(made, owner=state.deployment, labels=whose, propagated=propagated),)


def _spec(
    key: ObjectKey, autoscaling: Autoscaling, engine: str, *, pods: str, prometheus: Resource, pool: str
) -> Resource:
    """`pool` is the InferencePool whose picker holds requests; empty: the last replica stays."""
    metrics, by_requests = ENGINE_METRICS[engine], autoscaling.measures is ScalingMetric.REQUESTS
    query = (requests_query if by_requests else kv_cache_query)(metrics, pods)
    waiting = held_query(key.namespace, pool)
    if pool:
        query = also_at_zero(query, key.namespace, pool)
        query = f"{query} + {waiting}" if by_requests else query
    name = "requests" if by_requests else "kv-cache"
    triggers = [_trigger(name, query, threshold=autoscaling.target, prometheus=prometheus)]
    if pool and not by_requests:  # it only wakes the model: no number of requests asks for more than one replica
        triggers.append(
            _trigger("wake", waiting, threshold=autoscaling.max_replicas * _MOST_HELD, prometheus=prometheus)
        )
    fewest, idle = max(1, autoscaling.floor), _seconds(autoscaling.idle)
    return {
        "scaleTargetRef": {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "name": key.name},
        "minReplicaCount": 0 if pool else fewest,
        "maxReplicaCount": autoscaling.max_replicas,
        "pollingInterval": _POLLING,
        "cooldownPeriod": idle,
        "initialCooldownPeriod": idle,
        "advanced": {
            "restoreToOriginalReplicaCount": False,
            "horizontalPodAutoscalerConfig": {
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": _seconds(autoscaling.window)}}
            },
        },
        "fallback": {"failureThreshold": _FAILURES, "replicas": fewest, "behavior": "currentReplicasIfHigher"},
        "triggers": triggers,
    }


def _trigger(name: str, query: str, *, threshold: int, prometheus: Resource) -> Resource:
    trigger: Resource = {
        "type": "prometheus",
        "name": name,
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": prometheus["serverAddress"],
            "query": query,
            "threshold": str(threshold),
            "activationThreshold": "0",
            # No series at all is a Prometheus that does not scrape the pods, and not an idle model.
            "ignoreNullValues": "false",
        },
    }
    if authentication := mapping_at(prometheus, "authentication"):
        kind = authentication.get("kind") or "TriggerAuthentication"
        trigger["authenticationRef"] = {"kind": kind, "name": authentication.get("name")}
    return trigger


def _seconds(duration: str) -> int:
    found = parse_duration(duration)
    return int(found.total_seconds()) if found is not None else 0


def _prometheus(deployment: Resource) -> Resource:
    """The Prometheus of the runtime config in effect; empty if it names none."""
    found = mapping_at(deployment, "status", "effectiveRuntimeConfig", "prometheus")
    return found if text_at(found, "serverAddress") else {}


def is_autoscaler(obj: Resource) -> bool:
    """Whether an object is a ScaledObject."""
    return identity_in(obj)[:2] == (SCALED_OBJECT.group, SCALED_OBJECT.kind)


def _live(state: ClusterState) -> Resource | None:
    return next((obj for obj in state.ours if is_autoscaler(obj)), None)


def outlined(obj: Resource) -> Resource:
    """A ScaledObject with no more of its status than the two conditions that are read; also changed in place. KEDA
    writes the time of each look at the load there.
    """
    status = mapping_at(obj, "status")
    kept = [
        {key: text_at(each, key) for key in ("type", "status", "reason", "message")}
        for each in entries_at(status, "conditions")
        if each.get("type") in ("Ready", "Fallback")
    ]
    obj["status"] = {"conditions": kept}
    return obj


def same_content(old: Resource, new: Resource) -> bool:
    """Whether two states of an outlined ScaledObject differ in nothing that is read."""
    return _content(old) == _content(new)


def _content(obj: Resource) -> Resource:
    metadata = mapping_at(obj, "metadata")
    kept = {key: value for key, value in metadata.items() if key not in ("resourceVersion", "managedFields")}
    return {**obj, "metadata": kept}


def parted(plan: Plan) -> tuple[Plan, Plan]:
    """The plan without the autoscaler, and that of the autoscaler alone: a fault of it must not hinder the model."""
    rest = tuple(step for step in plan.steps if not is_autoscaler(step.subject))
    if len(rest) == len(plan.steps):
        return plan, replace(plan, steps=())
    return replace(plan, steps=rest), replace(plan, steps=tuple(step for step in plan.steps if step not in rest))


# ----------------------------------------------------------------------------------------------------------- condition


def hindered(state: ClusterState, reason: str, message: str) -> StepResult:
    """The result for a ScaledObject that cannot be written."""
    return _fault(state, reason, redacted(message), category=Category.SCOPED_CONFIG)


def autoscaler_result(state: ClusterState, host: ProviderHost) -> StepResult | None:
    """The condition of a deployment's autoscaler, from the ScaledObject alone; None without autoscaling."""
    deployment, autoscaling = state.deployment, autoscaling_of(state.deployment)
    if autoscaling is None or state.primary is None or dig(deployment, "spec", "suspend") is True:
        return None
    engine, prometheus = text_at(deployment, "status", "engine", "type"), _prometheus(deployment)
    if follows_itself(host, engine):
        text = f"{host.manifest.display_name or host.name} changes the number of replicas by itself"
        return _result(True, "ProviderScales", f"{text}: {_bounds(autoscaling, autoscaling.floor)}")
    installed = state.installed.get((SCALED_OBJECT.group, SCALED_OBJECT.kind))
    if installed is None or installed.upstream is None:
        return _fault(state, "AutoscalerNotInstalled", _NOT_INSTALLED)
    live = _live(state)
    if not prometheus:
        return _fault(state, "AutoscalerNotConfigured", _not_configured(deployment))
    if live is None:
        return _result(None, "WaitingForReplicas", "Replicas follow the load once one of them has been ready")
    ready, fallback = condition_of(live, "Ready") or {}, condition_of(live, "Fallback") or {}
    if fallback.get("status") == "True" or ready.get("status") == "False":
        found = ready if ready.get("status") == "False" else fallback
        words = f"{text_at(found, 'reason')}: {text_at(found, 'message')}"
        return _fault(
            state, "MetricsUnavailable", redacted(f"KEDA says of ScaledObject '{key_of(live).name}': {words}")
        )
    if ready.get("status") != "True":
        text = f"KEDA has not answered yet for ScaledObject '{key_of(live).name}'"
        return _fault(state, "AutoscalerPending", text)
    fewest = dig(live, "spec", "minReplicaCount")
    text = _bounds(autoscaling, fewest if isinstance(fewest, int) else autoscaling.floor)
    if autoscaling.floor == 0 and fewest != 0:
        return _result(True, "StaysAtOne", f"{text}; {holds_requests(deployment).problem}")
    return _result(True, "Scaling", text)


def _bounds(autoscaling: Autoscaling, fewest: int) -> str:
    by = "requests" if autoscaling.measures is ScalingMetric.REQUESTS else "KV cache in use"
    each = (
        f"{autoscaling.target} each"
        if autoscaling.measures is ScalingMetric.REQUESTS
        else f"{autoscaling.target} % each"
    )
    return f"{fewest} to {autoscaling.max_replicas} replicas by {by}, {each}"


def _not_configured(deployment: Resource) -> str:
    effective = mapping_at(deployment, "status", "effectiveRuntimeConfig")
    named = next((mapping_at(effective, ref) for ref in ("namespaceRef", "clusterRef") if ref in effective), {})
    where = f"{named.get('kind')} {named.get('name')}" if named else "a RuntimeConfig or ClusterRuntimeConfig 'default'"
    return f"set spec.autoscaling.prometheus.serverAddress in {where}; replicas stay as they are"


def _result(ok: bool | None, reason: str, message: str) -> StepResult:
    return StepResult(condition=CONDITION, ok=ok, reason=reason, message=message, component=COMPONENT)


def _fault(state: ClusterState, reason: str, message: str, *, category: Category | None = None) -> StepResult:
    """The result of a fault. It degrades what has served; what starts is not kept from it."""
    result = _result(False, reason, message)
    waits = reason == "AutoscalerPending"
    return replace(result, blocks_ready=state.served and not waits, only_degrades=True, category=category)
