"""Builds the InferencePool and the endpoint picker that the gateway part makes for a deployment.

The provider's pools and pickers are not built here. Owner and our own labels are added by the writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.api.names import API_VERSION
from airunway.plugins.contract import Component, Observed
from airunway.resource import Resource
from airunway.routing._json import mapping, text
from airunway.routing.backends import Backend
from airunway.sdk import picker

__all__ = ["Picker", "PickerProblem", "picker_for", "picker_state", "pool_objects"]

_REQUESTS = {"cpu": "100m", "memory": "128Mi"}


@dataclass(frozen=True, kw_only=True)
class Picker:
    """Image of the picker, and what its release can do."""

    image: str
    release: picker.Release
    config: str = ""
    """Text of its configuration file; empty: by load and prefix."""


@dataclass(frozen=True, kw_only=True)
class PickerProblem:
    """Why there is no picker."""

    message: str


def picker_for(image: str, *, version: str = "", engine: Resource | None = None) -> Picker | PickerProblem:
    """The picker by ``--epp-image`` and ``--epp-version``, or by the ``endpointPicker`` of an engine's capabilities.

    The flags of a picker depend on its release, so a release that is not known is a problem.
    """
    own = mapping(engine, "gateway", "endpointPicker")
    chosen = text(own, "image")
    stated = "" if chosen else version
    release = picker.release_of(chosen or image, stated)
    if release is None:
        where = "gateway.endpointPicker.image of the provider" if chosen else "--epp-image"
        advice = "" if chosen else ", or set --epp-version to the release that the image has"
        return PickerProblem(
            message=f"the flags of the endpoint picker {chosen or image or '(none)'} are not known: known are "
            f"{picker.known_releases()}; set {where} to an image with such a tag{advice}"
        )
    return Picker(image=chosen or image, release=release, config=text(own, "configData"))


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
) -> list[Resource]:
    """Pool and picker of a deployment, in the order of their creation.

    `labels` are the propagated ones, on all objects and on the picker's pod. `destination_rule` is the API version of
    Istio's DestinationRule, empty where it is not served.
    """
    model, propagated = _model(name), labels or {}
    made = picker.objects(
        model,
        pool=picker.pool_of(model, selector=backend.selector, port=backend.port),
        image=chosen.image,
        config=chosen.config or picker.config_of(chosen.release),
        rules=(),
        requests=_REQUESTS,
        labels=propagated,
        pull_secrets=pull_secrets,
        hardened=True,
    )
    account, *others = made
    objects = [account, _role_binding(picker.name_of(model)), *others]
    if destination_rule:
        objects.append(_destination_rule(picker.name_of(model), destination_rule))
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
    return picker.component(_model(name), Observed(primary=None, objects=tuple(objects)), selector=backend.selector)
