"""Writes Kubernetes workloads for model servers, and reads their state.

Recorded behaviour (LeaderWorkerSet 0.9, Deployments of Kubernetes 1.36): reasons of conditions become stale, so
conditions are judged by status. ``ProgressDeadlineExceeded`` is not final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Component, Context, Endpoint, Finding, Observed, Replicas, UpstreamKind
from airunway.quantity import same_quantity
from airunway.resource import Resource, dig
from airunway.sdk.conditions import CREATION, condition, explained, is_observed, number, text, truth
from airunway.sdk.findings import blocker, gpus_of
from airunway.sdk.pods import CLAIM, Sizing, pod_claims, pod_specs, pod_templates

__all__ = [
    "CONFIG_MAP",
    "DEPLOYMENT",
    "LEADER_WORKER_SET",
    "NETWORK_POLICY",
    "RESOURCE_CLAIM_TEMPLATE",
    "ROLE",
    "ROLE_BINDING",
    "SERVER",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "Workload",
    "account",
    "claim_templates",
    "deployment",
    "endpoint",
    "leader_worker_set",
    "made_of",
    "pod_selector",
    "read",
    "service",
    "unserved_claims",
]

SERVER = "server"
"""The component label of serving pods, for providers with only one kind of them."""

DEPLOYMENT = UpstreamKind(
    group="apps",
    kind="Deployment",
    plural="deployments",
    versions=("v1",),
    builtin=True,
    immutable=("spec.selector.*",),
    deletion="Foreground",
    pods=("spec.template.spec",),
    replicas=("spec.replicas",),
)
"""Deployment for manifests; for a primary kind use ``dataclasses.replace(DEPLOYMENT, primary=True, immutable=())``."""

LEADER_WORKER_SET = UpstreamKind(
    group="leaderworkerset.x-k8s.io",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    versions=("v1",),
    required=False,
    immutable=("spec.leaderWorkerTemplate.subGroupPolicy.*",),
    deletion="Foreground",
    # The pods of a group find their leader through this Service. The controller silently uses an existing Service
    # of that name, even with another owner (recorded).
    namesakes=("Service",),
    pods=("spec.leaderWorkerTemplate.leaderTemplate.spec", "spec.leaderWorkerTemplate.workerTemplate.spec"),
    unused=("spec.leaderWorkerTemplate.volumeClaimTemplates",),
    replicas=("spec.replicas", "spec.leaderWorkerTemplate.size"),
)
"""Groups of pods that run one model together; optional for the provider. A new group size triggers a rolling update."""

SERVICE = UpstreamKind(group="", kind="Service", plural="services", versions=("v1",), builtin=True)
"""The kind that `service` builds."""

CONFIG_MAP = UpstreamKind(group="", kind="ConfigMap", plural="configmaps", versions=("v1",), builtin=True)
"""For configuration that an upstream reads by name."""

SERVICE_ACCOUNT = UpstreamKind(
    group="", kind="ServiceAccount", plural="serviceaccounts", versions=("v1",), builtin=True
)
"""Built by `account`, with `ROLE` and `ROLE_BINDING`."""

NETWORK_POLICY = UpstreamKind(
    group="networking.k8s.io", kind="NetworkPolicy", plural="networkpolicies", versions=("v1",), builtin=True
)
"""Restricts which pods may connect to a deployment's pods, and on which ports."""

RESOURCE_CLAIM_TEMPLATE = UpstreamKind(
    group="resource.k8s.io",
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    versions=("v1",),
    builtin=True,
    since=(1, 34),
    required=False,
    immutable=("spec.*",),
)
"""From which Kubernetes makes a claim on GPUs of a device class for each pod (`claim_templates`)."""

ROLE = UpstreamKind(group="rbac.authorization.k8s.io", kind="Role", plural="roles", versions=("v1",), builtin=True)
"""The rights of a ServiceAccount in the deployment's namespace."""

ROLE_BINDING = UpstreamKind(
    group="rbac.authorization.k8s.io",
    kind="RoleBinding",
    plural="rolebindings",
    versions=("v1",),
    builtin=True,
    immutable=("roleRef.*",),
)
"""Binds a Role to its subjects."""


# ----------------------------------------------------------------------------------------------------------- writing


def pod_selector(model: ModelDeployment, component: str = SERVER) -> dict[str, str]:
    """The labels that select the pods of one component; they never change during the life of a deployment."""
    return {names.MODEL_DEPLOYMENT: model.metadata.name, names.COMPONENT: component}


def deployment(
    model: ModelDeployment,
    pod: Resource,
    *,
    name: str = "",
    component: str = SERVER,
    replicas: int,
    surge: int = 0,
    patience: int = 600,
) -> Resource:
    """A Deployment of `replicas` pods like `pod`, with the model's name unless `name` is given.

    By default a roll-out deletes a pod before it creates another (`surge` 0), because spare GPUs are rare. `patience`
    is the number of seconds after which Kubernetes reports a roll-out as stuck; it must cover the startup probe.
    """
    selector = pod_selector(model, component)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name or model.metadata.name, "labels": {names.COMPONENT: component}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(surge)},
            "progressDeadlineSeconds": patience,
            "template": _labelled(pod, selector),
        },
    }


def leader_worker_set(
    model: ModelDeployment,
    *,
    name: str,
    leader: Resource,
    worker: Resource,
    size: int,
    replicas: int,
    component: str = SERVER,
    surge: int = 0,
) -> Resource:
    """A LeaderWorkerSet of `replicas` groups of `size` pods, the leader included; `surge` counts groups.

    A group is recreated as a whole when one of its pods fails, because engines do not survive the loss of a rank.
    `name` has at most 49 characters and must differ from our Services: the controller creates a Service with that name.
    """
    selector = pod_selector(model, component)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {names.COMPONENT: component}},
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": _rolling(surge),
            },
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _labelled(leader, selector),
                "workerTemplate": _labelled(worker, pod_selector(model, f"{component}-worker")),
            },
        },
    }


def service(model: ModelDeployment, *, port: int, target: int = 0, name: str = "", component: str = SERVER) -> Resource:
    """A Service on `port` for the pods of one component, which listen on `target` (default: `port`)."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name or model.metadata.name, "labels": {names.COMPONENT: component}},
        "spec": {
            "selector": pod_selector(model, component),
            "ports": [{"name": "http", "port": port, "targetPort": target or port, "protocol": "TCP"}],
        },
    }


def claim_templates(model: ModelDeployment, sizes: Iterable[Sizing]) -> list[Resource]:
    """The ResourceClaimTemplates that pods of these `sizes` name; none without GPUs of a device class."""
    made: dict[str, Resource] = {}
    for size in sizes:
        for claim in pod_claims(model, size):
            name = str(claim["resourceClaimTemplateName"])
            exactly = {"deviceClassName": size.device_class, "count": size.gpus}
            made[name] = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": RESOURCE_CLAIM_TEMPLATE.kind,
                "metadata": {"name": name},
                "spec": {"spec": {"devices": {"requests": [{"name": CLAIM, "exactly": exactly}]}}},
            }
    return list(made.values())


def unserved_claims(model: ModelDeployment, context: Context[Any]) -> Iterator[Finding]:
    """Blockers for GPUs of a device class where Kubernetes is too old to be asked for them."""
    if RESOURCE_CLAIM_TEMPLATE.key in context.served:
        return
    needed, found = (".".join(map(str, each)) for each in (RESOURCE_CLAIM_TEMPLATE.since, context.kubernetes))
    for path, gpu in gpus_of(model):
        if (gpu or model.spec.resources.gpu).device_class:
            text = (
                f"deviceClass needs Kubernetes {needed} (ResourceClaimTemplates of resource.k8s.io/v1), and this is "
                f"{found}: ask for GPUs by their resource name (gpu.type)"
            )
            yield blocker(f"{path}.deviceClass", text)


def account(name: str, rules: Sequence[Mapping[str, object]]) -> list[Resource]:
    """A ServiceAccount, a Role with these `rules` and their RoleBinding, all with the same name.

    The provider's own account must have the same rules (``ProviderManifest.rbac_rules``), or it cannot grant them.
    """
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": {"name": name},
            "rules": [dict(rule) for rule in rules],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]


def endpoint(
    model: ModelDeployment, observed: Observed, port: int, *, name: str = "", target: int = 0
) -> Endpoint | None:
    """The endpoint at the Service with the model's name (or `name`); None while the Service does not exist.

    `target` is the port of the pods, if requests may go to a pod directly (`Endpoint.target_port`).
    """
    name = name or model.metadata.name
    if observed.find(SERVICE.kind, name, group=SERVICE.group) is None:
        return None
    return Endpoint(service=name, port=port, target_port=target)


def _rolling(surge: int) -> dict[str, int]:
    return {"maxSurge": surge, "maxUnavailable": 0 if surge else 1}


def _labelled(pod: Resource, labels: Mapping[str, str]) -> Resource:
    metadata = dict(pod.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return {**pod, "metadata": metadata}


# ----------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The state of a Deployment, StatefulSet or LeaderWorkerSet."""

    exists: bool
    """False if there is no such object."""
    replicas: Replicas
    observed: bool
    """Its controller has observed the newest spec (`Observation.observed`)."""
    up_to_date: bool
    """Its controller has observed the newest spec, and all replicas have it."""
    ready: bool
    """It is up to date, and all wanted replicas are ready."""
    reason: str
    """Reason of the state, or of what prevents readiness."""
    message: str
    """Message for `reason`."""
    only_degrades: bool = False
    """Whether ready replicas serve while the API server refuses further pods."""

    def component(self, name: str, *, only_degrades: bool = False, role: str = "") -> Component:
        """The workload as a component of an observation; `role` is the role of its pods."""
        return Component(
            name=name,
            ready=self.ready,
            reason=self.reason,
            message=self.message,
            pending=not self.exists,
            only_degrades=only_degrades or self.only_degrades,
            role=role,
        )


def read(obj: object) -> Workload:
    """The state in a workload's status; accepts any JSON."""
    if not isinstance(obj, dict) or not obj:
        return Workload(
            exists=False,
            replicas=Replicas(),
            observed=False,
            up_to_date=False,
            ready=False,
            reason="Starting",
            message="it does not exist yet",
        )
    kind = text(obj, "kind") or "workload"
    # Negative counts are meaningless, and the contract forbids them.
    wanted = max(0, number(obj, "spec", "replicas", default=1))
    ready = max(0, number(obj, "status", "readyReplicas"))
    total = number(obj, "status", "replicas")
    updated = number(obj, "status", "updatedReplicas")
    available = max(0, number(obj, "status", "availableReplicas", default=ready))
    replicas = Replicas(desired=wanted, ready=min(ready, wanted), available=min(available, wanted))
    observed = is_observed(obj) and bool(dig(obj, "status")) if wanted else is_observed(obj)
    # Terminating old pods still count in `replicas`: the roll-out is complete only when they are gone.
    up_to_date = observed and updated >= wanted and total == wanted and not dig(obj, "metadata", "deletionTimestamp")
    well = up_to_date and ready >= wanted
    reason, message = ("Ready", "") if well else _hindrance(obj, kind)
    summary = "scaled to zero" if well and wanted == 0 else f"{min(ready, wanted)} of {wanted} replicas are ready"
    if observed and not well and ready >= wanted > updated:
        summary += f", {max(0, updated)} of them as the newest spec has it"
    return Workload(
        exists=True,
        replicas=replicas,
        observed=observed,
        up_to_date=up_to_date,
        ready=well,
        reason=reason,
        message=message or summary,
        only_degrades=ready > 0 and not well and truth(obj, "ReplicaFailure") is True,
    )


def _hindrance(obj: Resource, kind: str) -> tuple[str, str]:
    """Reason from the registry and message for a workload that is not ready."""
    if dig(obj, "metadata", "deletionTimestamp"):
        return "Terminating", f"the {kind} is being deleted"
    if truth(obj, "ReplicaFailure"):
        return explained(text(condition(obj, "ReplicaFailure"), "message"), CREATION, otherwise="InvalidSpec")
    progressing = condition(obj, "Progressing")
    if kind == "Deployment" and truth(obj, "Progressing") is False:
        # Not final: the roll-out continues as soon as a pod becomes ready (recorded).
        return "Progressing", text(progressing, "message")
    return "Progressing", ""


def made_of(wanted: Resource, found: object) -> bool:
    """Whether a workload that an upstream created contains this pod (a pod template or a pod spec).

    Use it for ``Observation.up_to_date`` if the upstream's status has no ``observedGeneration``. All of `wanted` must
    be in a pod of `found`; the upstream may add to it. It therefore does not detect a newer spec that only removes
    fields, or a change that the upstream translates by itself. Accepts any JSON.
    """
    spec = wanted["spec"] if isinstance(wanted.get("spec"), dict) else wanted
    metadata = {key: dig(wanted, "metadata", key) for key in ("labels", "annotations")} if spec is not wanted else {}
    templates = {id(template["spec"]): template for template in pod_templates(found)}
    return any(
        _covers(spec, pod) and _covers(metadata, dig(templates.get(id(pod)), "metadata")) for pod in pod_specs(found)
    )


def _covers(ours: object, theirs: object, *, quantities: bool = False) -> bool:
    """Whether `theirs` contains everything in `ours`; list entries with a name are compared by name."""
    if ours in (None, "", [], {}):  # an API server does not keep these
        return True
    if isinstance(ours, dict):
        return all(
            _covers(value, dig(theirs, key), quantities=quantities or key in ("limits", "requests"))
            for key, value in ours.items()
        )
    if isinstance(ours, list):
        if not isinstance(theirs, list):
            return False
        if all(isinstance(each, dict) and "name" in each for each in ours):
            named = {each.get("name"): each for each in theirs if isinstance(each, dict)}
            return all(_covers(each, named.get(each["name"])) for each in ours)
        return all(any(_covers(each, other) for other in theirs) for each in ours)
    return (
        ours == theirs or (quantities and same_quantity(str(ours), str(theirs))) or (ours is False and theirs is None)
    )
