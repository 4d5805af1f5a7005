"""Simulates the answers of a Ray cluster's dashboard, because the pods of a simulated cluster run no Ray.

A real Ray can replace the simulation (`Dashboard`): the operator then sends its configuration there and reads the
applications from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airunway.resource import Resource, dig, is_deleting, is_true, labels_of
from airunway_kuberay_simulator import names, serve
from airunway_kuberay_simulator.facts import Serve
from airunway_kuberay_simulator.passes import POLL

_APPLICATION = "llm"


class Dashboard(Protocol):
    """The dashboard of a real Ray, which is used for every cluster of the operator."""

    async def send(self, config: str) -> str:
        """Submit a ``serveConfigV2`` to Ray Serve; returns the error, or an empty string."""

    async def applications(self) -> Mapping[str, Resource] | None:
        """The applications by name, as in Ray's REST API; None if it does not answer."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A configuration that was sent to a cluster."""

    config: str
    clock: float
    """When it was sent."""
    before: bool = False
    """Whether the cluster had another configuration before."""
    changed: frozenset[str] = frozenset()
    """The deployments that differ from before, if only in their number: Ray (2.56) reports UPDATING for all of them."""
    parts: Mapping[str, serve.Part] = field(default_factory=dict)
    """The resulting deployments."""


def send(config: str, clock: float, before: Sent | None) -> Sent:
    """The state of a cluster after a configuration was sent to it."""
    old = before.parts if before is not None else {}
    parts = serve.deployed(config, old)
    changed = frozenset(name for name, part in parts.items() if part != old.get(name))
    return Sent(config=config, clock=clock, before=before is not None, changed=changed, parts=parts)


def demand(cluster: Resource, config: str, applications: Mapping[str, Resource] | None = None) -> dict[str, int]:
    """The number of workers that the application needs, by group; each model is assumed to have its own group.

    `applications` come from a real Ray, which reports the results of its own autoscaling.
    """
    groups = [group["groupName"] for group in dig(cluster, "spec", "workerGroupSpecs") or []]
    wants = _replicas(config)
    for name, parts in ((n, dig(app, "deployments")) for app in (applications or {}).values() for n in wants):
        wants[name] = int(dig(parts, name, "target_num_replicas") or wants[name])
    return dict(zip(groups, wants.values(), strict=False))


def said(applications: Mapping[str, Resource] | None) -> Serve:
    """The part of a real Ray's answer that KubeRay uses."""
    if applications is None:
        return Serve()
    found = {}
    for name, app in applications.items():
        parts = app.get("deployments") or {}
        made: Resource = {"status": app["status"], "message": app.get("message", "")}
        told = {n: {"status": part["status"], "message": part.get("message", "")} for n, part in parts.items()}
        found[name] = {**made, **({"serveDeploymentStatuses": told} if told else {})}
    return Serve(applications=found)


def _replicas(config: str) -> dict[str, int]:
    return {name: _count(wish) for name, wish in serve.models(serve.read(config)).items()}


def _count(deployment: Resource) -> int:
    scales = deployment.get("autoscaling_config")
    return int(scales.get("min_replicas", 1)) if scales else int(deployment.get("num_replicas", 1))


def answer(sent: Sent | None, pods: Sequence[Resource], *, word: str, clock: float) -> Serve:
    """The dashboard's answer at that time; `word` is the state requested from the simulator."""
    state, _, words = word.partition(":")
    if state == "silent":
        return Serve()
    if state == "refused":
        return Serve(applications={}, refusal=f"UpdateDeployments fail: {words}")
    if sent is None:
        return Serve(applications={})
    running = _application(sent, "RUNNING", "HEALTHY")
    age = clock - sent.clock
    if sent.before and age < POLL / 2:
        return Serve(applications={_APPLICATION: running})  # a new configuration is not visible at once (fact 17)
    if state == "DEPLOY_FAILED" and age < POLL:  # the first of three tries has failed
        said = f"A replica failed to start with exception. Retrying 2 more time(s). Error:\n{words}"
        return Serve(applications={_APPLICATION: _application(sent, "DEPLOYING", "UPDATING", said)})
    if sent.before and age < POLL:
        return Serve(applications={_APPLICATION: _application(sent, "DEPLOYING", "UPDATING")})
    if state in ("DEPLOY_FAILED", "UNHEALTHY"):
        return Serve(applications={_APPLICATION: {**_application(sent, state, state), "message": words}})
    there = sum(is_true(pod, "Ready") and not is_deleting(pod) for pod in _workers(pods))
    if state == "never" or there < sum(_replicas(sent.config).values()):
        return Serve(applications={_APPLICATION: _application(sent, "DEPLOYING", "UPDATING")})
    return Serve(applications={_APPLICATION: running})


def _workers(pods: Sequence[Resource]) -> list[Resource]:
    return [pod for pod in pods if labels_of(pod).get(names.NODE_TYPE) == "worker"]


def _application(sent: Sent, state: str, deployment: str, message: str = "") -> Resource:
    """The status of an application; the ingress is up early and healthy while the model loads."""
    made = {}
    for name in sent.parts:
        model = name.startswith(("LLMServer", "LLMDeployment", "Prefill", "Decode"))
        said = {"message": message} if model and message else {}
        touched = model and (name in sent.changed or deployment != "UPDATING")
        made[name] = {"status": deployment if touched else "HEALTHY", **said}
    return {"status": state, "serveDeploymentStatuses": made}
