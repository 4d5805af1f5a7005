"""Ray, played: what the dashboard of a cluster answers. There is no Ray in the pods of a simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from airunway.resource import Resource, dig, is_deleting, is_true, labels_of
from airunway_kuberay_simulator import names
from airunway_kuberay_simulator.facts import Serve
from airunway_kuberay_simulator.passes import POLL

__all__ = ["Sent", "answer", "demand"]

_APPLICATION = "llm"


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A configuration that a cluster was given, and when; `before` says that it had another one."""

    config: str
    clock: float
    before: bool = False


def demand(cluster: Resource, config: str) -> dict[str, int]:
    """Workers that the application needs, by group: each model of Ray Serve LLM is taken to have a group of its own."""
    groups = [group["groupName"] for group in dig(cluster, "spec", "workerGroupSpecs") or []]
    return dict(zip(groups, _replicas(config), strict=False))


def _replicas(config: str) -> list[int]:
    loaded = yaml.load(config, Loader=yaml.CSafeLoader)
    applications = loaded.get("applications") if isinstance(loaded, dict) else None
    args = dig((applications or [{}])[0], "args", default={})
    models = args.get("llm_configs") or [args[key] for key in ("prefill_config", "decode_config") if key in args]
    return [_count(model.get("deployment_config") or {}) for model in models]


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
    running = _application("RUNNING", "HEALTHY")
    age = clock - sent.clock
    if sent.before and age < POLL / 2:
        return Serve(applications={_APPLICATION: running})  # what it was told is not seen at once (fact 17)
    if sent.before and age < POLL:
        return Serve(applications={_APPLICATION: _application("DEPLOYING", "UPDATING")})
    if state in ("DEPLOY_FAILED", "UNHEALTHY"):
        return Serve(applications={_APPLICATION: {**_application(state, "UNHEALTHY"), "message": words}})
    there = sum(is_true(pod, "Ready") and not is_deleting(pod) for pod in _workers(pods))
    if state == "never" or there < sum(_replicas(sent.config)):
        return Serve(applications={_APPLICATION: _application("DEPLOYING", "UPDATING")})
    return Serve(applications={_APPLICATION: running})


def _workers(pods: Sequence[Resource]) -> list[Resource]:
    return [pod for pod in pods if labels_of(pod).get(names.NODE_TYPE) == "worker"]


def _application(state: str, deployment: str) -> Resource:
    parts = ("LLMServer:model", "OpenAiIngress")
    return {"status": state, "serveDeploymentStatuses": {part: {"status": deployment} for part in parts}}
