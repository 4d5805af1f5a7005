"""Checks which fields of a deployment KubeRay cannot honour, before anything is created."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airunway.sdk import (
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    blocker,
    cache_pods,
    doubtful_split,
    ignored,
    is_disaggregated,
    one_node_only,
    overridden,
    pod_blockers,
    pod_findings,
    too_long,
    unsupported_engine,
    without_gpus,
    workloads,
)
from airunway_kuberay.manifest import COUNTS_APART, MANIFEST, SUSPEND, reserved_labels
from airunway_kuberay.objects import is_stopped
from airunway_kuberay.releases import release_of
from airunway_kuberay.serve import (
    argument_blockers,
    frontend_findings,
    group_sizes,
    ingress_room,
    ray_container,
    ray_version,
    version_findings,
)
from airunway_kuberay.settings import Settings
from airunway_kuberay.shield import shield_findings

_LONGEST = 47
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def compatibility(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Whether KubeRay can honour the deployment.

    Blockers would change what runs; the runtime reports fields without effect.
    """
    fundamental = tuple(_fundamental(deployment, context))
    if fundamental:
        return Compatibility(blockers=fundamental)
    container = ray_container(deployment, context)
    versions = [*version_findings(deployment, container.image)] if container.image else []
    version = ray_version(deployment, container.image)
    versions += [
        *frontend_findings(deployment, context),
        *shield_findings(deployment, context, version),
        *_ingress(deployment, context, version),
    ]
    blockers = [
        *container.blockers,
        *(finding for forbids, finding in versions if forbids),
        *_name(deployment),
        *_counts(deployment, context),
        *one_node_only(deployment, who="KubeRay"),
        *argument_blockers(deployment),
        *pod_blockers(deployment, context, mounts=cache_pods(deployment, helpers=MANIFEST.engines[0].cache_helpers)),
        *workloads.unserved_claims(deployment, context),
    ]
    warnings = [
        *container.warnings,
        *(finding for forbids, finding in versions if not forbids),
        *doubtful_split(deployment),
        *pod_findings(deployment, reserved=reserved_labels(context)),
    ]
    return Compatibility(blockers=tuple(dict.fromkeys(blockers)), warnings=tuple(warnings))


def _ingress(deployment: ModelDeployment, context: Context[Settings], version: str) -> Iterator[tuple[bool, Finding]]:
    """Findings about ``ingressReplicas``: the name of Ray's ingress is unknown, or the workers have too few CPUs.

    What runs unchanged, or only scales, is not refused: an upgrade must not stop it.
    """
    asked = overridden(deployment, "ingressReplicas")
    if not (context.has(COUNTS_APART) and asked):
        return
    path, release = "spec.provider.overrides.ingressReplicas", release_of(version)
    if not version:
        text = (
            "the version of Ray is not known, and with it how its ingress is called: set provider.overrides.rayVersion"
        )
        yield False, ignored(path, text)
    elif release is not None and isinstance(asked, int) and asked > (most := ingress_room(deployment, release)):
        text = (
            f"the workers of this deployment have logical CPUs for {most} ingress replicas, and for {asked} Ray would "
            f"add workers, with GPUs that the deployment does not request: set at most {most}, or more replicas"
        )
        refused = context.spec_changed or not context.live_kind
        yield refused, blocker(path, text) if refused else Finding(path=path, reason="TakesMoreGPUs", message=text)


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Blockers that make all other findings irrelevant."""
    yield from unsupported_engine(deployment, context, MANIFEST.engines, who="KubeRay")
    if deployment.spec.model.source == "custom":
        text = "KubeRay does not serve a model of source custom: Ray Serve LLM needs its id in model.id"
        yield blocker("spec.model.source", text)
    yield from without_gpus(deployment, who="KubeRay")


def _name(deployment: ModelDeployment) -> Iterator[Finding]:
    name = deployment.metadata.name
    if found := too_long(name, limit=_LONGEST, what="a RayService"):
        yield found
    elif not _NAME.fullmatch(name):
        text = f"KubeRay takes names of small letters, digits and '-' that begin with a letter, not {name!r}: rename it"
        yield blocker("metadata.name", text)


def _counts(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    spec = deployment.spec
    split, scales = is_disaggregated(deployment), overridden(deployment, "autoscaling")
    path = "spec.provider.overrides.autoscaling"
    if spec.scaling.autoscaling is not None:
        if scales:
            yield blocker(path, "both scaling.autoscaling and overrides.autoscaling are set: keep one")
        if spec.scaling.autoscaling.metric == "KVCache":
            text = "Ray scales by requests under way and not by the KV cache: set metric Requests, or remove it"
            yield blocker("spec.scaling.autoscaling.metric", text)
    elif isinstance(scales, dict):
        most = scales.get("maxReplicas")
        if split:
            yield blocker(path, f"{path} is for aggregated serving: remove it, and set scaling.prefill and decode")
        elif not isinstance(most, int) or most < spec.scaling.replicas:
            yield blocker(path, f"{path}.maxReplicas must be there and at least scaling.replicas")
    if is_stopped(deployment) and not context.has(SUSPEND):
        text = "KubeRay stops a RayService since 1.7 only: upgrade it, set spec.suspend, or ask for a replica at least"
        yield blocker("spec.scaling.replicas", text)
    for group, (_, replicas) in group_sizes(deployment).items() if split else ():
        role = group.partition("-")[0]
        if not replicas:
            text = f"Ray Serve LLM needs at least one {role} worker; to stop the model set spec.suspend"
            yield blocker(f"spec.scaling.{role}.replicas", text)
