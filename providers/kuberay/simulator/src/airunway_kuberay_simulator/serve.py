"""Simulates Ray Serve: how an application's replicas react to a changed configuration (ray-2.56 recordings).

Ray hashes the arguments of an application into the version of all its deployments, so any change there replaces every
replica, including the ingress. Changes in ``deployments[]`` are made in place: replicas are added or stopped. One
exception (2.56): the autoscaling policies, one per deployment with an ``autoscaling_config``, are hashed too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from math import ceil

import yaml

from airunway.resource import Resource, dig, digest

INGRESS = "OpenAiIngress"
NEVER = 1_000_000_000
"""Default target of concurrent requests per replica in Ray Serve LLM (2.49, and since 2.53)."""

_identities = count(1)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One Ray deployment."""

    version: str
    replicas: tuple[int, ...]
    """Identities of its replicas."""
    least: int
    """Lower bound of its autoscaling."""
    most: int
    """Upper bound of its autoscaling."""
    target: float = NEVER
    """Concurrent requests per replica."""


def read(config: str) -> Resource:
    """The one application of a configuration; empty if there is none."""
    loaded = yaml.load(config, Loader=yaml.CSafeLoader)
    applications = loaded.get("applications") if isinstance(loaded, dict) else None
    found = applications[0] if isinstance(applications, list) and applications else {}
    return found if isinstance(found, dict) else {}


def models(application: Resource) -> dict[str, Resource]:
    """The replica settings of each model's deployment, by the deployment's name, prefill before decode."""
    args = dig(application, "args", default={})
    apart = {"prefill_config": "Prefill:", "decode_config": "Decode:"}
    configs = [("LLMServer:", each) for each in args.get("llm_configs") or []]
    configs += [(prefix, args[key]) for key, prefix in apart.items() if key in args]
    found = {}
    overridden = {part["name"]: part for part in application.get("deployments") or []}
    for prefix, config in configs:
        name = str(dig(config, "model_loading_config", "model_id", default="model"))
        called = prefix + name.replace("/", "--").replace(".", "_")
        older = next((n for n in overridden if n.startswith("LLMDeployment")), called)
        called = called if called in overridden or prefix != "LLMServer:" else older
        own = dict(config.get("deployment_config") or {})
        override = {key: value for key, value in overridden.get(called, {}).items() if key != "name"}
        found[called] = {**own, **override}
    return found


def deployed(config: str, before: Mapping[str, Part]) -> dict[str, Part]:
    """The deployments after a configuration is applied; `before` are the previous ones."""
    application = read(config)
    scaled = [
        part["autoscaling_config"] for part in application.get("deployments") or [] if "autoscaling_config" in part
    ]
    policies = [bounds.get("policy") for bounds in scaled]
    version = digest([application.get("import_path"), application.get("args"), policies])
    wishes = models(application)
    fronts = [part for part in application.get("deployments") or [] if part["name"] not in wishes]
    for front in fronts or [{"name": INGRESS}]:
        wishes[front["name"]] = {key: value for key, value in front.items() if key != "name"}
    made = {}
    for name, wish in wishes.items():
        scales = wish.get("autoscaling_config") or {}
        least = int(scales.get("min_replicas", 1)) if scales else int(wish.get("num_replicas", 1))
        most = int(scales.get("max_replicas", 1)) if scales else least
        old = before.get(name)
        kept = old.replicas if old is not None and old.version == version else ()
        number = min(max(len(kept), least), most)
        replicas = (*kept[:number], *(next(_identities) for _ in range(number - len(kept))))
        target = float(scales.get("target_ongoing_requests", NEVER))
        made[name] = Part(version=version, replicas=replicas, least=least, most=most, target=target)
    return made


def wanted(part: Part, ongoing: int) -> int:
    """The number of replicas that Ray's autoscaling wants for this number of concurrent requests."""
    return min(max(ceil(ongoing / part.target), part.least), part.most)
