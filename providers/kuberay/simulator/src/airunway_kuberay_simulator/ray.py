"""Ray, played: what the dashboard of a cluster answers. There is no Ray in the pods of a simulated cluster.

A Ray that does run may stand in its place (`Dashboard`): then the operator sends its configuration there, and what it
says of applications comes from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airunway.resource import Resource, dig, is_deleting, is_true, labels_of
from airunway_kuberay_simulator import names, serve
from airunway_kuberay_simulator.facts import Serve
from airunway_kuberay_simulator.passes import POLL

__all__ = ["Dashboard", "Sent", "answer", "demand", "said", "send"]

_APPLICATION = "llm"


class Dashboard(Protocol):
    """The dashboard of a real Ray, which every cluster of the operator is then taken to be."""

    async def send(self, config: str) -> str:
        """Have Ray Serve take a ``serveConfigV2``; why it does not, empty where it does."""

    async def applications(self) -> Mapping[str, Resource] | None:
        """The applications by name, as Ray's REST API tells of them; None where it does not answer."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A configuration that a cluster was given, and when; `before` says that it had another one.

    `parts` are the deployments that come of it; `anew` says that none of the replicas before is among them.
    """

    config: str
    clock: float
    before: bool = False
    anew: bool = True
    parts: Mapping[str, serve.Part] = field(default_factory=dict)


def send(config: str, clock: float, before: Sent | None) -> Sent:
    """What a cluster has after a configuration was sent to it."""
    old = before.parts if before is not None else {}
    parts = serve.deployed(config, old)
    kept = any(set(part.replicas) & set(old[name].replicas) for name, part in parts.items() if name in old)
    return Sent(config=config, clock=clock, before=before is not None, anew=not kept, parts=parts)


def demand(cluster: Resource, config: str, applications: Mapping[str, Resource] | None = None) -> dict[str, int]:
    """Workers that the application needs, by group: each model of Ray Serve LLM is taken to have a group of its own.

    `applications` are those of a real Ray, which knows what its own autoscaling wants.
    """
    groups = [group["groupName"] for group in dig(cluster, "spec", "workerGroupSpecs") or []]
    wants = _replicas(config)
    for name, parts in ((n, dig(app, "deployments")) for app in (applications or {}).values() for n in wants):
        wants[name] = int(dig(parts, name, "target_num_replicas") or wants[name])
    return dict(zip(groups, wants.values(), strict=False))


def said(applications: Mapping[str, Resource] | None) -> Serve:
    """What KubeRay takes of a real Ray's answer."""
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
    """What the dashboard answers at that time, `word` being what the simulator was told to play."""
    state, _, words = word.partition(":")
    if state == "silent":
        return Serve()
    if state == "refused":
        return Serve(applications={}, refusal=f"UpdateDeployments fail: {words}")
    if sent is None:
        return Serve(applications={})
    running = _application(sent, "RUNNING", "HEALTHY")
    changes = "UPDATING" if sent.anew else "UPSCALING"
    age = clock - sent.clock
    if sent.before and age < POLL / 2:
        return Serve(applications={_APPLICATION: running})  # what it was told is not seen at once (fact 17)
    if state == "DEPLOY_FAILED" and age < POLL:  # a try has failed, and two more follow
        said = f"A replica failed to start with exception. Retrying 2 more time(s). Error:\n{words}"
        return Serve(applications={_APPLICATION: _application(sent, "DEPLOYING", "UPDATING", said)})
    if sent.before and age < POLL:
        return Serve(applications={_APPLICATION: _application(sent, "DEPLOYING", changes)})
    if state in ("DEPLOY_FAILED", "UNHEALTHY"):
        return Serve(applications={_APPLICATION: {**_application(sent, state, state), "message": words}})
    there = sum(is_true(pod, "Ready") and not is_deleting(pod) for pod in _workers(pods))
    if state == "never" or there < sum(_replicas(sent.config).values()):
        return Serve(applications={_APPLICATION: _application(sent, "DEPLOYING", changes)})
    return Serve(applications={_APPLICATION: running})


def _workers(pods: Sequence[Resource]) -> list[Resource]:
    return [pod for pod in pods if labels_of(pod).get(names.NODE_TYPE) == "worker"]


def _application(sent: Sent, state: str, deployment: str, message: str = "") -> Resource:
    """What takes requests is up soon, and well while the model loads."""
    made = {}
    for name in sent.parts:
        model = name.startswith(("LLMServer", "LLMDeployment", "Prefill", "Decode"))
        said = {"message": message} if model and message else {}
        made[name] = {"status": deployment if model else "HEALTHY", **said}
    return {"status": state, "serveDeploymentStatuses": made}
