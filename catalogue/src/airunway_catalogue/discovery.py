"""The Jobs that ask an image for its profile, and when they are tried again (spec platform.md, issue 23). Pure.

Example: the template ``llama`` names the image ``registry.example/vllm:1``. The first try is the Job
``discover-llama-1f0c9a3b`` with the arguments ``dry-run --format=json``; if it fails, the second one comes 60 s later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airunway.api import names
from airunway.artifacts.jobs import restricted_container, restricted_pod
from airunway.configs import EffectiveConfig
from airunway.resource import Resource, dig, digest, filled, key_of, label_value
from airunway_catalogue.names import APP_COMPONENT, DISCOVERY

__all__ = ["DEADLINE", "LONGEST", "TTL", "Request", "job_name", "job_of", "next_attempt", "request_of", "spec_hash"]

TTL = timedelta(seconds=60)
"""How long a finished Job stays."""

DEADLINE = timedelta(minutes=30)
"""After which time a Job fails: large images take long to pull, and an image that never ends must not keep its slot."""

LONGEST = timedelta(hours=1)
"""Longest time between two tries."""

_FIRST = timedelta(seconds=60)
_LONGEST_NAME = 63
_SCRATCH = "/tmp"
_NO_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What an image is asked."""

    image: str
    """The image."""
    args: tuple[str, ...] = ()
    """Arguments after ``dry-run --format=json``."""
    env: tuple[Resource, ...] = field(default=(), hash=False)
    """Environment variables of the model server."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the template's namespace."""
    service_account: str = ""
    """Empty: that of the namespace."""


def request_of(template: Resource) -> Request | None:
    """What the template's image is asked; None if no image is to be asked. Total for any JSON.

    An empty `image` means that the template asks for discovery and names no image. What belongs to the namespace of a
    deployment (its account, values out of its objects) has no meaning for the Job of a ClusterModelTemplate, which runs
    in the operator's namespace.
    """
    spec, namespaced = template.get("spec"), bool(key_of(template).namespace)
    discovery = dig(spec, "discovery")
    if not isinstance(discovery, dict):
        return None
    env = dig(spec, "defaults", "env")
    variables = [each for each in env if isinstance(each, dict)] if isinstance(env, list) else []
    secrets = dig(spec, "imagePullSecrets") if namespaced else None
    args = discovery.get("args")
    return Request(
        image=_text(discovery.get("image")) or _text(dig(spec, "defaults", "image")),
        args=tuple(each for each in args if isinstance(each, str)) if isinstance(args, list) else (),
        env=tuple(each for each in variables if namespaced or "valueFrom" not in each),
        pull_secrets=tuple(
            name for each in (secrets if isinstance(secrets, list) else ()) if (name := _text(dig(each, "name")))
        ),
        service_account=_text(dig(spec, "serviceAccountName")) if namespaced else "",
    )


def spec_hash(request: Request) -> str:
    """The digest of what the tries are about: another one starts counting anew."""
    return digest([request.image, request.args, request.env, request.pull_secrets, request.service_account], length=16)


def job_name(template: str, *, uid: str, hash_: str, attempt: int) -> str:
    """``discover-<template>-<hash8>``, at most 63 characters; each try of each template has a name of its own."""
    ending = f"-{digest([uid, hash_, attempt], length=8)}"
    slug = _NO_NAME.sub("-", template.lower()).strip("-")[: _LONGEST_NAME - len("discover-") - len(ending)]
    return f"discover-{slug.rstrip('-') or 'template'}{ending}"


def next_attempt(*, attempts: int, ended: datetime) -> datetime:
    """When the image is asked again after so many tries: 60 s · 2ⁿ later, at most an hour."""
    return ended + min(LONGEST, _FIRST * (1 << min(max(attempts, 1) - 1, 10)))


def job_of(template: Resource, request: Request, *, name: str, config: EffectiveConfig | None) -> Resource:
    """The Job of a try, without owner and namespace.

    The output is the termination message: the kubelet puts the file into the pod's status, so that no log is read.
    """
    labels = {
        names.MANAGED_BY: names.MANAGED_BY_VALUE,
        names.TEMPLATE: label_value(key_of(template).name),
        APP_COMPONENT: DISCOVERY,
    }
    container: Resource = {
        "name": DISCOVERY,
        "image": request.image,
        # The kubelet expands $(NAME) in arguments.
        "args": ["dry-run", "--format=json", *(each.replace("$", "$$") for each in request.args)],
        "env": _environment(template, request, config),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "4Gi"}},
        "securityContext": restricted_container(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "scratch", "mountPath": _SCRATCH}],
    }
    secrets = dict.fromkeys((*request.pull_secrets, *(config.image_pull_secrets if config is not None else ())))
    pod = filled(
        restartPolicy="Never",
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        serviceAccountName=request.service_account,
        imagePullSecrets=[{"name": each} for each in secrets],
        securityContext=restricted_pod(),
        containers=[container],
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(TTL.total_seconds()),
            "activeDeadlineSeconds": int(DEADLINE.total_seconds()),
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _environment(template: Resource, request: Request, config: EffectiveConfig | None) -> list[Resource]:
    """The config's variables, then those of the model server, then ours. The Job of a ClusterModelTemplate gets no
    values out of objects of the operator's namespace.
    """
    shared = config.env if config is not None else ()
    namespaced = bool(key_of(template).namespace)
    found = {str(each.get("name")): dict(each) for each in shared if namespaced or "valueFrom" not in each}
    found |= {str(each["name"]): dict(each) for each in request.env if isinstance(each.get("name"), str)}
    ours = {"HOME": _SCRATCH, "AIRUNWAY_TERMINATION_LOG": "/dev/termination-log"}
    found |= {name: {"name": name, "value": value} for name, value in ours.items()}
    return list(found.values())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
