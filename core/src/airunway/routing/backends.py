"""Decides what a route sends requests to: an InferencePool or a Service (docs/routing.md).

- the provider's pool where ``status.endpoint.pool`` names one;
- else our own pool where the engine has ``gateway.endpointPicker``, the mode is aggregated and ``status.selector`` has
  equalities only (a pool has only ``matchLabels``) that do not match the picker's own pod;
- else the Service of ``status.endpoint``.

Our own pool and its endpoint picker are built here, too; the writer adds owner and labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.api.names import API_VERSION
from airunway.engines.tasks import GENERATE
from airunway.plugins.contract import Component, Observed
from airunway.resource import Resource, entries_at, mapping_at, number_at, text_at
from airunway.sdk import picker as picker_sdk

POOL_GROUP = picker_sdk.INFERENCE_POOL.group

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}", re.ASCII)
_VALUE = re.compile(rf"({_NAME})?", re.ASCII)
_MAX_LABELS = 64
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class BackendKind(StrEnum):
    """``status.gateway.backend``."""

    POOL = "Pool"
    SERVICE = "Service"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What a route sends requests to, in the deployment's namespace."""

    kind: BackendKind
    name: str
    port: int = 0
    """Port of the Service, or port of the pods in our own pool; 0 for the pool of a provider."""
    service: str = ""
    """The Service of the endpoint besides a pool; empty if there is none."""
    service_port: int = 0
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the pods of our own pool; empty for every other backend."""

    @property
    def ours(self) -> bool:
        """Whether the gateway part makes the pool and its picker."""
        return bool(self.selector)

    @property
    def as_service(self) -> Backend:
        """The Service of the endpoint as the backend."""
        return _of_service(self.service, self.service_port)


def _of_service(name: str, port: int) -> Backend:
    return Backend(kind=BackendKind.SERVICE, name=name, port=port, service=name, service_port=port)


@dataclass(frozen=True, kw_only=True)
class NoBackendYet:
    """There is no backend yet."""

    reason: str
    """``WaitingForEndpoint`` or ``WaitingForPool``."""
    message: str


def equalities(selector: str) -> dict[str, str] | None:
    """The labels of a label selector; None if it is empty, malformed or anything else than a set of equalities."""
    labels: dict[str, str] = {}
    for requirement in selector.split(","):
        key, operator, value = requirement.partition("=")
        key, value = key.strip(), value.removeprefix("=").strip()
        if not operator or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            return None
        if labels.setdefault(key, value) != value:
            return None
    return labels if len(labels) <= _MAX_LABELS else None


def backend_of(
    deployment: Resource, *, engine: Resource | None, pools_served: bool, picker: bool, await_pool: bool = False
) -> Backend | NoBackendYet:
    """Decides the backend.

    `engine` is the entry of the provider's ``capabilities.engines`` for the engine in use; None if it is not known.
    `picker` says whether the gateway part has a picker for a pool of its own. With `await_pool`, a provider that makes
    the pool itself (`manages_pool`) was given the backend Pool before it made anything, and its pool is waited for.
    """
    endpoint = mapping_at(deployment, "status", "endpoint")
    service, service_port = text_at(endpoint, "service"), number_at(endpoint, "port")
    has_service = bool(_DNS_NAME.fullmatch(service)) and 0 < service_port < 65536
    service, service_port = (service, service_port) if has_service else ("", 0)
    gateway = mapping_at(engine, "gateway")
    if pools_served and takes_picker(deployment):
        if _DNS_NAME.fullmatch(pool := text_at(endpoint, "pool", "name")):
            return Backend(kind=BackendKind.POOL, name=pool, service=service, service_port=service_port)
        own = _own_pool(deployment, gateway, picker=picker)
        if own is not None:
            labels, port = own
            return Backend(
                kind=BackendKind.POOL,
                name=text_at(deployment, "metadata", "name"),
                port=port,
                selector=labels,
                service=service,
                service_port=service_port,
            )
    if has_service:
        return _of_service(service, service_port)
    if pools_served and await_pool and takes_picker(deployment):
        return NoBackendYet(
            reason="WaitingForPool", message="the provider has not reported its InferencePool in status.endpoint.pool"
        )
    return NoBackendYet(
        reason="WaitingForEndpoint", message="the provider has not reported where the model is served (status.endpoint)"
    )


def takes_picker(deployment: Resource) -> bool:
    """Whether an endpoint picker may stand before the model: the deployment allows it, and the model generates text.

    A picker reads prompts; it answers requests with other bodies, such as audio, with an error.
    """
    task = text_at(deployment, "spec", "model", "task") or GENERATE
    return task == GENERATE and text_at(deployment, "spec", "gateway", "endpointPicker") != "None"


def manages_pool(engine: Resource | None) -> bool:
    """Whether the provider makes the InferencePool of this engine itself."""
    return mapping_at(engine, "gateway").get("managesInferencePool") is True


def announced(deployment: Resource, *, engine: Resource | None, pools_served: bool) -> BackendKind | None:
    """The backend that a provider is given before it makes anything; None if it does not depend on one.

    Only a provider that makes the pool itself depends on it, and only where routing was asked for. It is decided once:
    what ``status.gateway.backend`` has stays, because the provider may have made its graph for it.
    """
    if not manages_pool(engine):
        return None
    before = text_at(deployment, "status", "gateway", "backend")
    if before in tuple(BackendKind):
        return BackendKind(before)
    return BackendKind.POOL if pools_served and takes_picker(deployment) else BackendKind.SERVICE


def _own_pool(
    deployment: Resource, gateway: Mapping[str, object], *, picker: bool
) -> tuple[Mapping[str, str], int] | None:
    """Labels and port of the pool that the gateway part makes; None if it makes none."""
    if not picker or gateway.get("managesInferencePool") is True or not isinstance(gateway.get("endpointPicker"), dict):
        return None
    if text_at(deployment, "spec", "serving", "mode") not in ("", "aggregated"):
        return None
    labels = equalities(text_at(deployment, "status", "selector"))
    # A pool that the labels of our picker's own pod satisfy would send requests to the picker.
    pickers = {names.MODEL_DEPLOYMENT: text_at(deployment, "metadata", "name"), names.COMPONENT: picker_sdk.COMPONENT}
    if labels is None or labels.items() <= pickers.items():
        return None
    port = number_at(deployment, "status", "endpoint", "targetPort")
    return (labels, port) if 0 < port < 65536 else None


def live_backend(deployment: Resource, *, route: Resource | None, pool: Resource | None) -> Backend | None:
    """The backend of a route of ours that exists; None if the route has none that can be read.

    It keeps the route while the endpoint is not reported for a moment (the workload is being made anew). `pool` is
    the InferencePool of ours with the deployment's name.
    """
    refs = [
        ref
        for rule in entries_at(route, "spec", "rules")
        for ref in entries_at(rule, "backendRefs")
        if text_at(ref, "name")
    ]
    service = next((ref for ref in refs if text_at(ref, "kind") != "InferencePool"), None)
    known = (text_at(service, "name"), number_at(service, "port"))
    found = next((ref for ref in refs if text_at(ref, "kind") == "InferencePool"), None)
    if found is None:
        if service is None or not 0 < known[1] < 65536:
            return None
        return _of_service(*known)
    name = text_at(found, "name")
    if name == text_at(deployment, "metadata", "name") and pool is not None:
        return live_pool(deployment, pool, service=known[0], service_port=known[1])
    return Backend(kind=BackendKind.POOL, name=name, service=known[0], service_port=known[1])


def live_pool(deployment: Resource, pool: Resource, *, service: str = "", service_port: int = 0) -> Backend | None:
    """The backend for an InferencePool of ours that exists; None if it cannot be read."""
    labels = mapping_at(pool, "spec", "selector", "matchLabels")
    ports = entries_at(pool, "spec", "targetPorts")
    port = number_at(ports[0], "number") if ports else 0
    if not labels or not port or not all(isinstance(value, str) for value in labels.values()):
        return None
    return Backend(
        kind=BackendKind.POOL,
        name=text_at(deployment, "metadata", "name"),
        port=port,
        selector=labels,
        service=service,
        service_port=service_port,
    )


# --------------------------------------------------------------------------------------------- our own pool and picker


_REQUESTS = {"cpu": "100m", "memory": "128Mi"}


@dataclass(frozen=True, kw_only=True)
class Picker:
    """Image of the picker, and what its release can do."""

    image: str
    release: picker_sdk.Release
    config: str = ""
    """Text of its configuration file; empty: by load and prefix."""


def picker_for(image: str, *, version: str = "", engine: Resource | None = None) -> Picker | str:
    """The picker by ``--epp-image`` and ``--epp-version``, or by the ``endpointPicker`` of an engine's capabilities; or
    why there is none.

    The flags of a picker depend on its release, so a release that is not known is a problem.
    """
    own = mapping_at(engine, "gateway", "endpointPicker")
    chosen = text_at(own, "image")
    stated = "" if chosen else version
    release = picker_sdk.release_of(chosen or image, stated)
    if release is None:
        where = "gateway.endpointPicker.image of the provider" if chosen else "--epp-image"
        advice = "" if chosen else ", or set --epp-version to the release that the image has"
        return (
            f"the flags of the endpoint picker {chosen or image or '(none)'} are not known: known are "
            f"{picker_sdk.known_releases()}; set {where} to an image with such a tag{advice}"
        )
    return Picker(image=chosen or image, release=release, config=text_at(own, "configData"))


def _model(name: str) -> ModelDeployment:
    """All that the SDK's picker reads of a deployment: a deployment of an older release must not fail to parse."""
    return parse_deployment(
        {"apiVersion": API_VERSION, "kind": "ModelDeployment", "metadata": {"name": name}, "spec": {"model": {}}}
    )


def pool_objects(
    name: str,
    *,
    backend: Backend,
    chosen: Picker,
    pull_secrets: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    destination_rule: str = "",
    hold_for: str = "",
) -> list[Resource]:
    """Pool and picker of a deployment, in the order of their creation.

    `labels` are the propagated ones, on all objects and on the picker's pod; but none that the pool selects pods by,
    else the picker would be an endpoint of its own pool. `destination_rule` is the API version of
    Istio's DestinationRule, empty where it is not served. For `hold_for` requests wait while no replica runs.
    """
    model = _model(name)
    propagated = {key: value for key, value in (labels or {}).items() if key not in backend.selector}
    made = picker_sdk.objects(
        model,
        pool=picker_sdk.pool_of(model, selector=backend.selector, port=backend.port),
        image=chosen.image,
        config=chosen.config or picker_sdk.config_of(chosen.release, hold_for=hold_for),
        rules=(),
        requests=_REQUESTS,
        labels=propagated,
        pull_secrets=pull_secrets,
        hardened=True,
    )
    account, *others = made
    objects = [account, _role_binding(picker_sdk.name_of(model)), *others]
    if destination_rule:
        objects.append(_destination_rule(picker_sdk.name_of(model), destination_rule))
    for obj in objects:
        obj["metadata"]["labels"] = {**propagated, **(obj["metadata"].get("labels") or {})}
        if not obj["metadata"]["labels"]:
            del obj["metadata"]["labels"]
    return objects


def _role_binding(name: str) -> Resource:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": names.ENDPOINT_PICKER_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }


def _destination_rule(name: str, api_version: str) -> Resource:
    """Istio would speak plain text to the picker, which serves TLS with a certificate of its own."""
    return {
        "apiVersion": api_version,
        "kind": "DestinationRule",
        "metadata": {"name": name},
        "spec": {"host": name, "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}}},
    }


def picker_state(name: str, *, pool: Resource | None, deployment: Resource | None, backend: Backend) -> Component:
    """The state of our own pool and picker, from the live InferencePool and the picker's Deployment."""
    objects = []
    for kind, obj in (("InferencePool", pool), ("Deployment", deployment)):
        if obj is not None:
            objects.append({**obj, "kind": kind})
    return picker_sdk.component(_model(name), Observed(primary=None, objects=tuple(objects)), selector=backend.selector)
