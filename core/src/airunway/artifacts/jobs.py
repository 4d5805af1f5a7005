"""Builds the Jobs that measure and fetch weights (spec/platform.md, "Steps"). Pure.

Both run the downloader's image under the Pod Security Standard `restricted`, without a token of the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airunway.api import names
from airunway.artifacts.claims import labels_for
from airunway.artifacts.results import PERMANENT_EXIT
from airunway.configs import EffectiveConfig
from airunway.resource import Resource, annotations_of, dig, filled, uid_of

__all__ = [
    "CACHE_PATH",
    "PROGRESS_PORT",
    "SCRATCH_PATH",
    "SETTINGS",
    "USER",
    "Step",
    "bound_to",
    "claim_of_job",
    "fills",
    "job_of",
    "restricted_container",
    "restricted_pod",
]

PROGRESS_PORT = 8080
"""Port of the pod at which a download answers how far it is."""

USER = 65532
"""User and group of the pods."""

CACHE_PATH = "/cache"
"""Where a download mounts the claim."""

SCRATCH_PATH = "/tmp"
"""Where the pods may write what is not kept."""

_CLAIM = "weights"
_TOKEN_KEY = "HF_TOKEN"


class Step(StrEnum):
    """What a Job does; also the command of the downloader and the name of its container."""

    CHECK_SIZE = "check-size"
    DOWNLOAD = "download"


@dataclass(frozen=True, kw_only=True)
class _Settings:
    component: str
    """Value of the component label."""
    ttl: int
    """Seconds for which a finished Job stays."""
    deadline: int | None
    """Seconds after which the Job fails; None: never."""
    memory: tuple[str, str]
    """Requested and most memory."""


SETTINGS = {
    Step.CHECK_SIZE: _Settings(component="check-size", ttl=300, deadline=600, memory=("64Mi", "256Mi")),
    Step.DOWNLOAD: _Settings(component="model-storage", ttl=600, deadline=None, memory=("256Mi", "1Gi")),
}
"""The limits of each step, by the specification's table."""


def job_of(
    artifact: Resource, step: Step, *, name: str, image: str, revision: str, claim: str, config: EffectiveConfig | None
) -> Resource:
    """The Job of a step, without owner and namespace. `claim` is mounted by a download only."""
    settings, spec = SETTINGS[step], _object(artifact.get("spec"))
    labels = labels_for(artifact, config, settings.component)
    container: Resource = {
        "name": step.value,
        "image": image,
        "args": [step.value, *_words(spec, step, revision)],
        "env": _environment(artifact, config),
        "resources": {
            "requests": {"cpu": "100m", "memory": settings.memory[0]},
            "limits": {"memory": settings.memory[1]},
        },
        "securityContext": restricted_container(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH_PATH}],
    }
    volumes: list[Resource] = [{"name": "scratch", "emptyDir": {}}]
    if step is Step.DOWNLOAD:
        container["ports"] = [{"name": "progress", "containerPort": PROGRESS_PORT, "protocol": "TCP"}]
        container["volumeMounts"].append({"name": _CLAIM, "mountPath": CACHE_PATH})
        volumes.append({"name": _CLAIM, "persistentVolumeClaim": {"claimName": claim}})
    pod = filled(
        restartPolicy="Never",
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        serviceAccountName=spec.get("serviceAccountName"),
        imagePullSecrets=_pull_secrets(spec, config),
        nodeSelector=spec.get("nodeSelector"),
        tolerations=spec.get("tolerations"),
        securityContext={**restricted_pod(), "fsGroupChangePolicy": "OnRootMismatch"},
        containers=[container],
        volumes=volumes,
    )
    deadline = {"activeDeadlineSeconds": settings.deadline} if settings.deadline is not None else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 2,
            "ttlSecondsAfterFinished": settings.ttl,
            **deadline,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _failure_rules(step)},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def claim_of_job(job: Resource) -> str:
    """Name of the claim that a Job mounts; empty for one that mounts none."""
    volumes = dig(job, "spec", "template", "spec", "volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        if isinstance(name := dig(volume, "persistentVolumeClaim", "claimName"), str):
            return name
    return ""


def bound_to(job: Resource, claim: Resource) -> Resource:
    """The Job with the uid of the claim that it fills: a later claim may have the same name."""
    metadata = job["metadata"]
    annotations = {**(metadata.get("annotations") or {}), names.CLAIM_UID: uid_of(claim)}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def fills(job: Resource, claim: Resource) -> bool:
    """Whether a Job fills exactly this claim. One of an earlier release does not say it and is believed."""
    return annotations_of(job).get(names.CLAIM_UID) in (None, "", uid_of(claim))


def restricted_container() -> Resource:
    """The security context of the container of a Job of ours: as the Pod Security Standard ``restricted`` wants it."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def restricted_pod() -> Resource:
    """The security context of the pod of a Job of ours."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _failure_rules(step: Step) -> list[Resource]:
    """A disruption is not counted; an error that a new try cannot mend fails the Job at once."""
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": step.value, "operator": "In", "values": [PERMANENT_EXIT]},
        },
    ]


def _words(spec: Resource, step: Step, revision: str) -> list[str]:
    """The downloader's arguments; the kubelet expands ``$(NAME)``, so dollar signs are doubled."""
    source = _object(spec.get("source"))
    words = [str(source.get("uri", ""))]
    if step is Step.DOWNLOAD:
        words += ["--into", CACHE_PATH]
    if revision := revision or str(source.get("revision") or ""):
        words.append(f"--revision={revision}")
    for name in ("include", "exclude"):
        patterns = source.get(name)
        words += [f"--{name}={each}" for each in patterns] if isinstance(patterns, list) else []
    return [word.replace("$", "$$") for word in words]


def _environment(artifact: Resource, config: EffectiveConfig | None) -> list[Resource]:
    """The config's variables, then the token, the artifact's variables, and what names the artifact."""
    spec = _object(artifact.get("spec"))
    found = {str(each.get("name")): dict(each) for each in (config.env if config is not None else ())}
    token = dig(spec, "secrets", "huggingFaceToken") or (config.token if config is not None else "")
    if token:
        source = {"secretKeyRef": {"name": token, "key": _TOKEN_KEY}}
        found[_TOKEN_KEY] = {"name": _TOKEN_KEY, "valueFrom": source}
    own = spec.get("env")
    found |= (
        {str(each["name"]): dict(each) for each in own if isinstance(each, dict) and "name" in each}
        if isinstance(own, list)
        else {}
    )
    found["AIRUNWAY_ARTIFACT_UID"] = {"name": "AIRUNWAY_ARTIFACT_UID", "value": uid_of(artifact)}
    return list(found.values())


def _pull_secrets(spec: Resource, config: EffectiveConfig | None) -> list[Resource]:
    own = spec.get("imagePullSecrets")
    named = [str(each.get("name")) for each in own if isinstance(each, dict)] if isinstance(own, list) else []
    shared = config.image_pull_secrets if config is not None else ()
    return [{"name": name} for name in dict.fromkeys((*named, *shared))]


def _object(value: object) -> Resource:
    return value if isinstance(value, dict) else {}
