"""Builds an endpoint picker with its InferencePool, and reads their status.

Recorded behaviour of pickers (llm-d-router 0.9 and 0.10, Gateway API Inference Extension 1.5 and 1.6): a picker is
ready only while its pool exists and it may read all kinds it watches. Its gRPC liveness check answers the same as
readiness, so the kubelet would restart a picker for a missing pool; the liveness probe therefore opens the TCP socket.
An unknown flag, plugin or configuration field makes it exit at once, so flags and configuration depend on the release.
It answers health checks some seconds before it listens for a gateway, because it makes its certificate first; the
startup probe waits for the latter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.configs.canonical import parse_duration
from airunway.plugins.contract import Component, Observed, UpstreamKind
from airunway.resource import Resource, copy_of, dig, digest
from airunway.sdk.conditions import condition, text, truth
from airunway.sdk.deployments import tag_of
from airunway.sdk.pods import container_security, helper_resources, pod_security
from airunway.sdk.workloads import (
    CONFIG_MAP,
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    account,
    pod_selector,
    read,
)

__all__ = [
    "ACCOUNT",
    "COMPONENT",
    "INFERENCE_POOL",
    "KINDS",
    "POOL_LABEL",
    "RULES",
    "Release",
    "component",
    "config_of",
    "hold_for",
    "hold_time",
    "holds",
    "known_releases",
    "name_of",
    "objects",
    "pool_of",
    "release_of",
    "version_of",
]

INFERENCE_POOL = UpstreamKind(
    group="inference.networking.k8s.io",
    kind="InferencePool",
    plural="inferencepools",
    versions=("v1",),
    required=False,
)
"""Only v1: every picker exits at once where v1 is not served, even if ``v1alpha2`` is."""

KINDS = (INFERENCE_POOL, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CONFIG_MAP)
"""The kinds that a manifest needs for pool and picker, besides Deployment and Service."""

ACCOUNT = "{name}-epp"
"""Name of a picker's ServiceAccount (``ProviderManifest.accounts``) and of all its other objects."""

COMPONENT = names.PICKER_COMPONENT
"""The component label of the picker's pod, ``picker``: it serves no model."""

POOL_LABEL = f"{names.GROUP}/inference-pool"
"""Label on the pods of a pool. Pods always have it, so that creating the pool restarts none of them."""

_READ = ["get", "list", "watch"]
RULES: tuple[Resource, ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
    {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": _READ},
    # Both groups, because either may be installed. A picker that finds a group at startup but may not read it never
    # becomes ready. A picker that started before the group was installed notices it only after a restart.
    {
        "apiGroups": ["llm-d.ai", "inference.networking.x-k8s.io"],
        "resources": ["inferenceobjectives", "inferencemodelrewrites"],
        "verbs": _READ,
    },
)
"""The rights that a picker needs in its namespace. A provider that creates its Role must have them too
(``rbac_rules``)."""

ENVIRONMENT = {"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
"""A picker's variables, each with the field of its pod. The guard admits no others."""

_EXT_PROC, _HEALTH, _METRICS = 9002, 9003, 9090
_FILE = "picker.yaml"
_CONFIG_HASH = f"{names.GROUP}/picker-config"
_HOLDS = f"{names.GROUP}/holds-requests"
"""Annotation on the pod of a picker that holds requests while its pool has no pod."""

_PATIENCE = 180
"""Seconds until a picker that is not ready counts as stuck. A picker without its rights exits after 120 seconds."""

_DRAIN = 60
"""Grace period for termination in seconds: a picker keeps answering for 30 seconds after SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """The flags and features that the pickers of one release support."""

    release: tuple[int, int]
    """Major and minor number."""
    title: str
    config_version: str
    """The ``apiVersion`` of its configuration file."""
    disaggregates: bool
    """It has the plugins for prefill and decode."""
    messages: bool = True
    """It reads the prompts of ``/v1/messages`` (recorded: others answer 400)."""
    path_suffix: bool = False
    """It recognises a request by the end of its path, so that a path prefix of a route does not matter.

    A gateway gives a picker the path as it was before the rewrite.
    """
    holds: bool = False
    """It can hold requests while its pool has no ready pod, and send them on when there is one (`config_of`)."""


_RELEASES = {
    (0, 9): Release(release=(0, 9), title="llm-d router 0.9", config_version="llm-d.ai/v1alpha1", disaggregates=True),
    (0, 10): Release(
        release=(0, 10),
        title="llm-d router 0.10",
        config_version="llm-d.ai/v1alpha1",
        disaggregates=True,
        path_suffix=True,
        holds=True,
    ),
    (1, 5): Release(
        release=(1, 5),
        title="Gateway API Inference Extension 1.5",
        config_version="inference.networking.x-k8s.io/v1alpha1",
        disaggregates=False,
        messages=False,
    ),
}
"""By release number. The number alone is unambiguous: the two projects have no release number in common."""

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?(?:[-+].*)?", re.ASCII)


def version_of(image: str, stated: str = "") -> tuple[int, int] | None:
    """Major and minor number of a release: from `stated`, else from the image's tag; None if neither has one."""
    match = _VERSION.fullmatch(stated or tag_of(image))
    return (int(match[1]), int(match[2])) if match else None


def release_of(image: str, stated: str = "") -> Release | None:
    """The release of an image (`stated`: for a tag without a release number); None if its flags are not known."""
    version = version_of(image, stated)
    return _RELEASES.get(version) if version is not None else None


def known_releases() -> str:
    """The releases with known flags, as text for messages."""
    return ", ".join(f"v{major}.{minor}" for major, minor in _RELEASES)


def config_of(release: Release, plugins: str = "", *, hold_for: str = "") -> str:
    """The text of a picker's configuration; `plugins` is the YAML after its head (default: by load and prefix).

    With `hold_for`, a duration such as ``10m``, requests wait in a picker that `holds` while no pod is ready. Once one
    is, they are sent on as without it. That takes the detector that counts requests, with a limit nothing reaches: the
    default one holds them back by load too, and counts a pod with old or unknown metrics as full (recorded: a pod that
    was ready got no request).
    """
    head, body = f"apiVersion: {release.config_version}\nkind: EndpointPickerConfig\n", plugins or _BY_LOAD
    if not (hold_for and release.holds):
        return head + body
    return head + _HOLDING.format(hold_for=hold_for) + body.replace("plugins:\n", _WITH_DETECTOR, 1)


_GATE = "featureGates:\n- flowControl\n"
_HOLDING = f"""\
{_GATE}flowControl:
  defaultRequestTTL: {{hold_for}}
  saturationDetector:
    pluginRef: concurrency-detector
"""
_WITH_DETECTOR = """\
plugins:
- type: concurrency-detector
  parameters:
    maxConcurrency: 1000000
"""


HOLD_TIME = "10m"
"""How long a request of a deployment without a request timeout may wait for its first replica."""


def hold_time(asked: str | None) -> str:
    """How long a request may wait for the first replica: the request timeout `asked` for, else ten minutes."""
    return asked if asked and parse_duration(asked) is not None else HOLD_TIME


def hold_for(model: ModelDeployment) -> str:
    """How long requests wait in the picker while no replica runs; empty: the deployment always keeps one."""
    autoscaling = model.spec.scaling.autoscaling
    to_zero = autoscaling is not None and autoscaling.floor == 0
    return hold_time(model.spec.gateway.request_timeout) if to_zero else ""


def holds(deployment: Resource | None) -> bool:
    """Whether a picker's live Deployment holds requests. One whose roll-out is stuck does not: the pods that still
    answer may be those of the configuration before.
    """
    annotations = dig(deployment or {}, "spec", "template", "metadata", "annotations")
    marked = isinstance(annotations, dict) and annotations.get(_HOLDS) == "true"
    return marked and truth(deployment, "Progressing") is not False


_BY_LOAD = """\
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
"""


def name_of(model: ModelDeployment) -> str:
    """The name of all objects of a deployment's picker, except the pool, which has the deployment's name."""
    return ACCOUNT.format(name=model.metadata.name)


def pool_of(model: ModelDeployment, *, selector: Mapping[str, str], port: int) -> Resource:
    """The InferencePool of the pods that `selector` matches, which serve on `port`.

    Without a running picker, a gateway sends requests to any of the pods (``FailOpen``). `appProtocol` is left out:
    releases before 1.4 do not have the field, and its default is correct.
    """
    return {
        "apiVersion": f"{INFERENCE_POOL.group}/v1",
        "kind": INFERENCE_POOL.kind,
        "metadata": {"name": model.metadata.name},
        "spec": {
            "selector": {"matchLabels": dict(selector)},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {
                "kind": SERVICE.kind,
                "name": name_of(model),
                "port": {"number": _EXT_PROC},
                "failureMode": "FailOpen",
            },
        },
    }


def may_stand_before(model: ModelDeployment) -> bool:
    """Whether a picker may stand before the model: it reads prompts, and answers other requests with an error."""
    spec = model.spec
    return spec.model.task == "generate" and spec.gateway.endpoint_picker != "None"


def objects(
    model: ModelDeployment,
    *,
    pool: Resource,
    image: str,
    config: str,
    rules: Sequence[Mapping[str, object]] = RULES,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    pull_secrets: Sequence[str] = (),
    hardened: bool = False,
) -> list[Resource]:
    """Pool and picker, in the order of their creation: rights, configuration, pool, Service, Deployment.

    `config` is the text of the picker's configuration; when it changes, the new pod starts before the old one stops.
    `requests` are the resource requests of the picker's container, and `labels` are added to its pod. Empty `rules`
    mean that the Role is managed elsewhere: only the ServiceAccount is created. A `hardened` picker meets the Pod
    Security Standard ``restricted``, but keeps the token of its ServiceAccount, and does not serve pprof profiles.
    """
    name = name_of(model)
    metadata = {"name": name, "labels": {names.COMPONENT: COMPONENT}}
    selector = pod_selector(model, COMPONENT)
    resources = helper_resources(model, requests or {})
    pod = _pod(name, pool=str(dig(pool, "metadata", "name")), image=image, resources=resources, hardened=hardened)
    if pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in dict.fromkeys(pull_secrets)]
    return [
        *(account(name, rules) if rules else account(name, ())[:1]),
        {"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": copy_of(metadata), "data": {_FILE: config}},
        pool,
        {
            "apiVersion": "v1",
            "kind": SERVICE.kind,
            "metadata": copy_of(metadata),
            "spec": {
                "selector": dict(selector),
                "ports": [
                    {
                        "name": "grpc-ext-proc",
                        "port": _EXT_PROC,
                        "targetPort": _EXT_PROC,
                        "protocol": "TCP",
                        "appProtocol": "kubernetes.io/h2c",
                    },
                    {"name": "http-metrics", "port": _METRICS, "targetPort": _METRICS, "protocol": "TCP"},
                ],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": DEPLOYMENT.kind,
            "metadata": copy_of(metadata),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": dict(selector)},
                # It needs no GPU, so the new pod is ready before the old one stops, which takes half a minute.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "progressDeadlineSeconds": _PATIENCE,
                "template": {
                    "metadata": {
                        "labels": {**(labels or {}), **selector},
                        "annotations": {
                            _CONFIG_HASH: digest(config, length=16),
                            **({_HOLDS: "true"} if _GATE in config else {}),
                        },
                    },
                    "spec": pod,
                },
            },
        },
    ]


def _pod(name: str, *, pool: str, image: str, resources: Resource, hardened: bool) -> Resource:
    ports = (("grpc", _EXT_PROC), ("grpc-health", _HEALTH), ("metrics", _METRICS))
    container: Resource = {
        "name": COMPONENT,
        "image": image,
        "args": [
            f"--pool-name={pool}",
            "--pool-namespace=$(NAMESPACE)",
            f"--pool-group={INFERENCE_POOL.group}",
            f"--config-file=/config/{_FILE}",
            f"--grpc-health-port={_HEALTH}",
            "--tracing=false",
            # Authentication of metrics readers would need cluster-wide rights.
            "--metrics-endpoint-auth=false",
            # Without authentication, pprof profiles would be readable from the whole cluster.
            *(("--enable-pprof=false",) if hardened else ()),
        ],
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in ENVIRONMENT.items()],
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports],
        # Longer than one without its rights lives (_PATIENCE), so that its own message is the last one.
        "startupProbe": {"tcpSocket": {"port": _EXT_PROC}, "periodSeconds": 1, "failureThreshold": _PATIENCE},
        "readinessProbe": {"grpc": {"port": _HEALTH}, "periodSeconds": 2},
        "livenessProbe": {"tcpSocket": {"port": _HEALTH}, "initialDelaySeconds": 5, "periodSeconds": 10},
        "securityContext": container_security(helper=hardened),
        # Errors in flags and configuration appear only at the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
    }
    if resources:
        container["resources"] = resources
    pod: Resource = {
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": _DRAIN,
        # Service links could set a variable that the picker reads as its own.
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }
    return {**pod, "securityContext": pod_security()} if hardened else pod


# ----------------------------------------------------------------------------------------------------------- reading


def component(
    model: ModelDeployment, observed: Observed, *, selector: Mapping[str, str] | None = None, name: str = "Picker"
) -> Component:
    """The state of pool and picker, as a component that can only degrade the deployment.

    Without a picker the model is still served, by its Service and by a gateway that fails open. `selector` is the
    selector that the pool was created with: labels added to it by other field managers are reported. A pool without
    status is no fault, because only a gateway writes its status. A stuck roll-out recovers once the picker is ready.
    """
    pool = observed.find(INFERENCE_POOL.kind, model.metadata.name)
    if selector is not None and (foreign := _foreign_labels(pool, selector)) is not None:
        return Component(
            name=name, ready=False, reason="ResourceConflict", message=foreign, only_degrades=True, role=COMPONENT
        )
    deployment = observed.find(DEPLOYMENT.kind, name_of(model))
    found = read(deployment)
    component = found.component(name, only_degrades=True, role=COMPONENT)
    component = replace(component, message=f"picker: {component.message}")
    if found.ready or not found.exists or found.reason != "Progressing":
        return component
    if pool is None:
        return replace(
            component, message=f"picker: it waits for its InferencePool {model.metadata.name}, which is gone"
        )
    stuck = truth(deployment, "Progressing") is False
    # A completed roll-out keeps this reason even if the pod fails later.
    lost = text(condition(deployment, "Progressing"), "reason") == "NewReplicaSetAvailable" and not stuck
    if not stuck and not (lost and found.replicas.ready == 0):
        return component
    since = f"not ready for {_PATIENCE // 60} minutes" if stuck else "not ready any more"
    return replace(
        component,
        reason="UpstreamFailed" if stuck else "PodsNotReady",
        message=f"picker: {since}; it is ready only while InferencePool {model.metadata.name} exists and "
        f"ServiceAccount {name_of(model)} may read pods, pools and objectives; its pod and the pod's log say more",
    )


def _foreign_labels(pool: Resource | None, selector: Mapping[str, str]) -> str | None:
    """The message about labels in the pool's selector that another field manager added; None if there are none.

    ``matchLabels`` is no atomic map in the pool's CRD: each label belongs to its own field manager, so we cannot remove
    foreign ones.
    """
    live = dig(pool or {}, "spec", "selector", "matchLabels")
    added = sorted(map(str, live.keys() - selector.keys())) if isinstance(live, dict) else []
    if not added:
        return None
    fields = ", ".join(f"spec.selector.matchLabels[{label}]" for label in added)
    return (
        f"InferencePool {text(pool, 'metadata', 'name')}: {fields} was added by another writer, so that pods "
        "without it get no requests from a gateway; remove it, or delete the InferencePool: it is created again"
    )
