"""Kubernetes' own workloads for model servers: writing them, and reading how they are.

What their conditions really say, and when, was recorded (LeaderWorkerSet 0.9, Deployments of Kubernetes 1.36):
conditions are judged by status, since reasons go stale, and ``ProgressDeadlineExceeded`` is not the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Component, Endpoint, Observed, Replicas, UpstreamKind
from airunway.quantity import parse_quantity
from airunway.resource import Resource, dig
from airunway.sdk.conditions import condition, is_observed, number, text, truth
from airunway.sdk.pods import pod_specs, pod_templates

__all__ = [
    "CONFIG_MAP",
    "DEPLOYMENT",
    "LEADER_WORKER_SET",
    "NETWORK_POLICY",
    "ROLE",
    "ROLE_BINDING",
    "SERVER",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "Workload",
    "account",
    "deployment",
    "endpoint",
    "leader_worker_set",
    "made_of",
    "pod_selector",
    "read",
    "service",
]

SERVER = "server"
"""The component label of pods that serve, where a provider has no other."""

DEPLOYMENT = UpstreamKind(
    group="apps",
    kind="Deployment",
    plural="deployments",
    versions=("v1",),
    builtin=True,
    immutable=("spec.selector.*",),
    deletion="Foreground",
    pods=("spec.template.spec",),
)
"""A kind for manifests. For a primary one say ``dataclasses.replace(DEPLOYMENT, primary=True, immutable=())``."""

LEADER_WORKER_SET = UpstreamKind(
    group="leaderworkerset.x-k8s.io",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    versions=("v1",),
    required=False,
    immutable=("spec.leaderWorkerTemplate.subGroupPolicy.*",),
    deletion="Foreground",
    # By it the pods of a group find their leader. One that is there is taken quietly, whosever it is (recorded).
    namesakes=("Service",),
    pods=("spec.leaderWorkerTemplate.leaderTemplate.spec", "spec.leaderWorkerTemplate.workerTemplate.spec"),
)
"""Groups of pods that run one model together; the provider works without it. Another size rolls like a new template."""

SERVICE = UpstreamKind(group="", kind="Service", plural="services", versions=("v1",), builtin=True)
"""What `service` makes."""

CONFIG_MAP = UpstreamKind(group="", kind="ConfigMap", plural="configmaps", versions=("v1",), builtin=True)
"""For configuration that an upstream reads by name."""

SERVICE_ACCOUNT = UpstreamKind(
    group="", kind="ServiceAccount", plural="serviceaccounts", versions=("v1",), builtin=True
)
"""With `ROLE` and `ROLE_BINDING` what `account` makes."""

NETWORK_POLICY = UpstreamKind(
    group="networking.k8s.io", kind="NetworkPolicy", plural="networkpolicies", versions=("v1",), builtin=True
)
"""Which pods may reach those of a deployment, on which ports."""

ROLE = UpstreamKind(group="rbac.authorization.k8s.io", kind="Role", plural="roles", versions=("v1",), builtin=True)
"""The rights of an account, within the deployment's namespace."""

ROLE_BINDING = UpstreamKind(
    group="rbac.authorization.k8s.io",
    kind="RoleBinding",
    plural="rolebindings",
    versions=("v1",),
    builtin=True,
    immutable=("roleRef.*",),
)
"""Who has the rights of a Role."""


# ----------------------------------------------------------------------------------------------------------- writing


def pod_selector(model: ModelDeployment, component: str = SERVER) -> dict[str, str]:
    """The labels by which the pods of one component are known; they never change for the life of a deployment."""
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
    """A Deployment of `replicas` pods like `pod`, called like the model unless `name` says otherwise.

    A roll-out takes a pod away before it makes another (`surge` 0): there is rarely a spare GPU. `patience` is the
    number of seconds after which Kubernetes calls a roll-out stuck: no less than what the startup probe allows.
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

    A group is made anew as a whole when one of its pods fails: engines do not survive the loss of a rank. `name` has at
    most 49 letters and is not that of a Service of ours: the controller makes one of the same name.
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
    """A Service on `port` before the pods of one component, which listen on `target` (default: the same)."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name or model.metadata.name, "labels": {names.COMPONENT: component}},
        "spec": {
            "selector": pod_selector(model, component),
            "ports": [{"name": "http", "port": port, "targetPort": target or port, "protocol": "TCP"}],
        },
    }


def account(name: str, rules: Sequence[Mapping[str, object]]) -> list[Resource]:
    """A ServiceAccount with a Role of these `rules`, and the RoleBinding between them, all of one name.

    The provider's own account must have the rules too (``ProviderManifest.rbac_rules``), or cannot grant them.
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


def endpoint(model: ModelDeployment, observed: Observed, port: int, *, name: str = "") -> Endpoint | None:
    """Where the model is served: by the Service called like it unless `name` says otherwise, once that is there."""
    name = name or model.metadata.name
    return Endpoint(service=name, port=port) if observed.find(SERVICE.kind, name) is not None else None


def _rolling(surge: int) -> dict[str, int]:
    return {"maxSurge": surge, "maxUnavailable": 0 if surge else 1}


def _labelled(pod: Resource, labels: Mapping[str, str]) -> Resource:
    metadata = dict(pod.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return {**pod, "metadata": metadata}


# ----------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How a Deployment, StatefulSet or LeaderWorkerSet is.

    `exists` is False where there is none. `up_to_date`: its controller has seen the newest spec and serves it.
    `ready`: as many replicas serve as are wanted. `reason` and `message` are those of what hinders.
    """

    exists: bool
    replicas: Replicas
    up_to_date: bool
    ready: bool
    reason: str
    message: str

    def component(self, name: str, *, only_degrades: bool = False, role: str = "") -> Component:
        """The workload as a component of an observation; `role` is its pods'."""
        return Component(
            name=name,
            ready=self.ready,
            reason=self.reason,
            message=self.message,
            pending=not self.exists,
            only_degrades=only_degrades,
            role=role,
        )


def read(obj: object) -> Workload:
    """What a workload's status says. Total: any JSON gives an answer."""
    if not isinstance(obj, dict) or not obj:
        return Workload(
            exists=False,
            replicas=Replicas(),
            up_to_date=False,
            ready=False,
            reason="Starting",
            message="it does not exist yet",
        )
    kind = text(obj, "kind") or "workload"
    # Counts below zero mean nothing, and the contract knows none.
    wanted = max(0, number(obj, "spec", "replicas", default=1))
    ready = max(0, number(obj, "status", "readyReplicas"))
    total = number(obj, "status", "replicas")
    updated = number(obj, "status", "updatedReplicas")
    available = max(0, number(obj, "status", "availableReplicas", default=ready))
    replicas = Replicas(desired=wanted, ready=min(ready, wanted), available=min(available, wanted))
    observed = is_observed(obj) and bool(dig(obj, "status")) if wanted else is_observed(obj)
    # Old pods on their way out still count in `replicas`: until they are gone the new ones have not taken over.
    up_to_date = observed and updated >= wanted and total == wanted and not dig(obj, "metadata", "deletionTimestamp")
    well = up_to_date and ready >= wanted
    reason, message = ("Ready", "") if well else _hindrance(obj, kind)
    said = "scaled to zero" if well and wanted == 0 else f"{min(ready, wanted)} of {wanted} replicas are ready"
    if observed and not well and ready >= wanted > updated:
        said += f", {max(0, updated)} of them as the newest spec has it"
    return Workload(
        exists=True,
        replicas=replicas,
        up_to_date=up_to_date,
        ready=well,
        reason=reason,
        message=message or said,
    )


def _hindrance(obj: Resource, kind: str) -> tuple[str, str]:
    """The reason of the registry, and the words, for a workload that is not ready."""
    if dig(obj, "metadata", "deletionTimestamp"):
        return "Terminating", f"the {kind} is being deleted"
    if truth(obj, "ReplicaFailure"):
        words = text(condition(obj, "ReplicaFailure"), "message")
        return ("QuotaExceeded" if "exceeded quota" in words else "InvalidSpec"), words
    progressing = condition(obj, "Progressing")
    if kind == "Deployment" and truth(obj, "Progressing") is False:
        # Not the end: as soon as a pod becomes ready the Deployment goes on (recorded).
        return "Progressing", text(progressing, "message")
    return "Progressing", ""


def made_of(wanted: Resource, found: object) -> bool:
    """Whether a workload that an upstream made is of this pod (a pod template or a pod spec), as far as it can be seen.

    For an upstream whose status has no ``observedGeneration``: ``Observation.up_to_date`` is what this says of the
    workload. All that `wanted` has must be in a pod of `found`; the upstream may add to it. So it does not see what a
    newer spec only takes away, nor a change of what the upstream translates by itself. Total: any JSON gives an answer.
    """
    spec = wanted["spec"] if isinstance(wanted.get("spec"), dict) else wanted
    metadata = {key: dig(wanted, "metadata", key) for key in ("labels", "annotations")} if spec is not wanted else {}
    templates = {id(template["spec"]): template for template in pod_templates(found)}
    return any(
        _covers(spec, pod) and _covers(metadata, dig(templates.get(id(pod)), "metadata")) for pod in pod_specs(found)
    )


def _covers(ours: object, theirs: object, *, quantities: bool = False) -> bool:
    """Whether everything of ours is in theirs; entries of a list with a name are those of the same name."""
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
    return ours == theirs or (quantities and _same_quantity(ours, theirs)) or (ours is False and theirs is None)


def _same_quantity(ours: object, theirs: object) -> bool:
    try:
        return parse_quantity(str(ours)) == parse_quantity(str(theirs))
    except ValueError:
        return False
