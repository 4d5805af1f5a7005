"""An endpoint picker and the InferencePool that it picks from: the one builder for whoever routes through a pool.

What pickers really do was recorded (llm-d-router 0.9 and 0.10, Gateway API Inference Extension 1.5 and 1.6): one is
ready only while its pool exists and it may read everything it looks for, and its own liveness answer is the same, so
that an honest liveness probe would kill it for somebody else's fault: the socket is asked. An unknown flag, plugin or
field of its configuration ends it at once; so flags and configuration go by release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Component, Observed, UpstreamKind
from airunway.resource import Resource, dig, digest
from airunway.sdk.conditions import condition, text, truth
from airunway.sdk.hardening import container_security, pod_security
from airunway.sdk.images import tag_of
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
"""Version 1 only: every picker ends at once where that is not served, also where ``v1alpha2`` is."""

KINDS = (INFERENCE_POOL, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CONFIG_MAP)
"""What a manifest needs besides Deployment and Service to make pool and picker."""

ACCOUNT = "{name}-epp"
"""What a picker's ServiceAccount is called (``ProviderManifest.accounts``), and everything else of it."""

COMPONENT = "picker"
"""The component label of its pod, which serves no model."""

POOL_LABEL = f"{names.GROUP}/inference-pool"
"""Label on the pods that are in a pool. They have it whether the pool exists or not: none restarts when it comes."""

_READ = ["get", "list", "watch"]
RULES: tuple[Resource, ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
    {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": _READ},
    # Both groups, whichever is installed: a picker that finds one of them at its start and may not read it is never
    # ready, and one that ran before they were installed notices only at its next start.
    {
        "apiGroups": ["llm-d.ai", "inference.networking.x-k8s.io"],
        "resources": ["inferenceobjectives", "inferencemodelrewrites"],
        "verbs": _READ,
    },
)
"""What a picker must be allowed in its namespace. Who makes its Role must have the same (``rbac_rules``)."""

_EXT_PROC, _HEALTH, _METRICS = 9002, 9003, 9090
_FILE = "picker.yaml"
_CONFIG_HASH = f"{names.GROUP}/picker-config"

_PATIENCE = 180
"""Seconds after which a picker that is not ready is no longer starting: one without its rights ends after 120."""

_DRAIN = 60
"""Seconds for its end: it answers for 30 more after it was told to stop."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the pickers of one release understand. `disaggregates`: it has the plugins for prefill and decode.
    `messages`: it reads the prompts of ``/v1/messages`` (recorded: others answer 400).
    """

    release: tuple[int, int]
    title: str
    config_version: str
    disaggregates: bool
    messages: bool = True


_RELEASES = {
    (0, 9): Release(release=(0, 9), title="llm-d router 0.9", config_version="llm-d.ai/v1alpha1", disaggregates=True),
    (0, 10): Release(
        release=(0, 10), title="llm-d router 0.10", config_version="llm-d.ai/v1alpha1", disaggregates=True
    ),
    (1, 5): Release(
        release=(1, 5),
        title="Gateway API Inference Extension 1.5",
        config_version="inference.networking.x-k8s.io/v1alpha1",
        disaggregates=False,
        messages=False,
    ),
}
"""By release; they are told apart by number alone, since the two projects never met in one."""

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?(?:[-+].*)?", re.ASCII)


def version_of(image: str, stated: str = "") -> tuple[int, int] | None:
    """Major and minor number of a release: as `stated`, else out of the image's tag; None where neither tells."""
    match = _VERSION.fullmatch(stated or tag_of(image))
    return (int(match[1]), int(match[2])) if match else None


def release_of(image: str, stated: str = "") -> Release | None:
    """The release that an image is of (`stated`: where its tag does not tell); None where flags are not known."""
    version = version_of(image, stated)
    return _RELEASES.get(version) if version is not None else None


def known_releases() -> str:
    """The releases whose flags are known, in words."""
    return ", ".join(f"v{major}.{minor}" for major, minor in _RELEASES)


def config_of(release: Release, plugins: str = "") -> str:
    """The text of a picker's configuration; `plugins` is the YAML after its head (default: by load and prefix)."""
    return f"apiVersion: {release.config_version}\nkind: EndpointPickerConfig\n{plugins or _BY_LOAD}"


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
    """What everything of a deployment's picker is called; the pool is called like the deployment."""
    return ACCOUNT.format(name=model.metadata.name)


def pool_of(model: ModelDeployment, *, selector: Mapping[str, str], port: int) -> Resource:
    """The pool of the pods that `selector` finds, which serve on `port`.

    Without picker a gateway sends requests to any of them (``FailOpen``). `appProtocol` is left out: releases before
    1.4 do not have the field, and its default is what is wanted.
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
    """Pool and picker, in the order in which they are to be made: rights, configuration, pool, Service, Deployment.

    `config` is the text of its configuration: another one makes a new pod, before the old one goes. `requests` are
    those of its container, `labels` go onto its pod. Without `rules` the Role is somebody else's: only the account is
    made. A `hardened` one is as restricted as Kubernetes' strictest standard has it, but for the token of its account,
    and shows nobody its profiles.
    """
    name = name_of(model)
    rights = account(name, rules) if rules else account(name, ())[:1]
    return [
        *rights,
        {
            "apiVersion": "v1",
            "kind": CONFIG_MAP.kind,
            "metadata": {"name": name, "labels": {names.COMPONENT: COMPONENT}},
            "data": {_FILE: config},
        },
        pool,
        {
            "apiVersion": "v1",
            "kind": SERVICE.kind,
            "metadata": {"name": name, "labels": {names.COMPONENT: COMPONENT}},
            "spec": {
                "selector": pod_selector(model, COMPONENT),
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
        _deployment(
            model,
            name=name,
            pool=str(dig(pool, "metadata", "name")),
            image=image,
            config=config,
            requests=requests or {},
            labels=labels or {},
            pull_secrets=pull_secrets,
            hardened=hardened,
        ),
    ]


def _deployment(
    model: ModelDeployment,
    *,
    name: str,
    pool: str,
    image: str,
    config: str,
    requests: Mapping[str, str],
    labels: Mapping[str, str],
    pull_secrets: Sequence[str],
    hardened: bool,
) -> Resource:
    selector = pod_selector(model, COMPONENT)
    pod: Resource = {
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": _DRAIN,
        # A Service called like one of its variables would be taken for it.
        "enableServiceLinks": False,
        "containers": [_container(pool=pool, image=image, requests=requests, hardened=hardened)],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }
    if hardened:
        pod["securityContext"] = pod_security()
    if pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in dict.fromkeys(pull_secrets)]
    return {
        "apiVersion": "apps/v1",
        "kind": DEPLOYMENT.kind,
        "metadata": {"name": name, "labels": {names.COMPONENT: COMPONENT}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector},
            # It needs no GPU: the new one is ready before the old one goes, which takes half a minute.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": _PATIENCE,
            "template": {
                "metadata": {
                    "labels": {**labels, **selector},
                    "annotations": {_CONFIG_HASH: digest(config, length=16)},
                },
                "spec": pod,
            },
        },
    }


def _container(*, pool: str, image: str, requests: Mapping[str, str], hardened: bool) -> Resource:
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
            # Asking who reads its metrics would need rights for the whole cluster.
            "--metrics-endpoint-auth=false",
            # Where nobody is asked who he is, profiles of its memory and processor time are open to the whole cluster.
            *(("--enable-pprof=false",) if hardened else ()),
        ],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports],
        "readinessProbe": {"grpc": {"port": _HEALTH}, "periodSeconds": 2},
        "livenessProbe": {"tcpSocket": {"port": _HEALTH}, "initialDelaySeconds": 5, "periodSeconds": 10},
        "securityContext": container_security(helper=hardened),
        # What it did not understand of flags and configuration stands only at the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
    }
    if requests:
        container["resources"] = {"requests": dict(requests)}
    return container


# ----------------------------------------------------------------------------------------------------------- reading


def component(
    model: ModelDeployment, observed: Observed, *, selector: Mapping[str, str] | None = None, name: str = "Picker"
) -> Component:
    """How pool and picker are, as a part without which the model is still served: by its Service, and without picker by
    a gateway that sends requests to any server.

    `selector` is what the pool was made with: labels that somebody added to it are named. A pool without status is no
    fault: only a gateway writes one. That the Deployment calls the roll-out stuck passes once the picker is ready.
    """
    pool = observed.find(INFERENCE_POOL.kind, model.metadata.name)
    if selector is not None and (foreign := _foreign_labels(pool, selector)) is not None:
        return Component(
            name=name, ready=False, reason="ResourceConflict", message=foreign, only_degrades=True, role=COMPONENT
        )
    deployment = observed.find(DEPLOYMENT.kind, name_of(model))
    found = read(deployment)
    told = found.component(name, only_degrades=True, role=COMPONENT)
    told = replace(told, message=f"picker: {told.message}")
    if found.ready or not found.exists or found.reason != "Progressing":
        return told
    if pool is None:
        return replace(told, message=f"picker: it waits for its InferencePool {model.metadata.name}, which is gone")
    stuck = truth(deployment, "Progressing") is False
    # A roll-out that was complete stays so, whatever becomes of the pod.
    lost = text(condition(deployment, "Progressing"), "reason") == "NewReplicaSetAvailable" and not stuck
    if not stuck and not (lost and found.replicas.ready == 0):
        return told
    since = f"not ready for {_PATIENCE // 60} minutes" if stuck else "not ready any more"
    return replace(
        told,
        reason="UpstreamFailed" if stuck else "PodsNotReady",
        message=f"picker: {since}; it is ready only while InferencePool {model.metadata.name} exists and Role "
        f"{name_of(model)} lets it read pods, pools and objectives; the log of its pod says more",
    )


def _foreign_labels(pool: Resource | None, selector: Mapping[str, str]) -> str | None:
    """What to say of labels that somebody added to the pool's selector, which only they can take away.

    ``matchLabels`` is no atomic map in the pool's CRD: each label belongs to whoever applied it.
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
