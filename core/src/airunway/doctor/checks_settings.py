"""Checks 02: how the processes were started, where that breaks something that shows later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from airunway.doctor.checks_processes import pod_trouble
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import ProcessDeployment, Snapshot
from airunway.first_seen import human_duration
from airunway.resource import condition_of, entries_at, is_deleting, key_of, parse_time, text_at
from airunway.validation.policy import PolicyError, parse_policy

_PATIENCE = timedelta(minutes=1)
"""How long a deployment may wait for a selector of others before that is reported."""


@warning(
    "ARW0215",
    "A rollout is paused",
    why="Changes of the Deployment, also helm upgrade, have no effect on its pods. What is wrong with the new version "
    "shows only when the rollout goes on.",
    do="Let it go on: kubectl rollout resume deployment/NAME --namespace NAMESPACE.",
    needs=("components", "pods"),
)
def _paused(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        if component.paused:
            yield Found(component.name, f"spec.paused is true. {_images(seen, component)}".rstrip())


def _images(seen: Snapshot, component: ProcessDeployment) -> str:
    """Which image no pod has yet, and which of the pods cannot be pulled."""
    mine = [pod for pod in seen.pods or () if component.has(pod)]
    running = {text_at(container, "image") for pod in mine for container in entries_at(pod, "spec", "containers")[:1]}
    if component.image and running - {""} and component.image not in running:
        return (
            f"Its image is {component.image}, which no pod has tried; its pods have {', '.join(sorted(running))}. See "
            "that the image exists."
        )
    return next(filter(None, map(pod_trouble, mine)), "")


@error(
    "ARW0216",
    "The policy of the core cannot be used",
    why="The core goes on with the policy that it read before. After its next restart it does not start.",
    do="Correct the ConfigMap, or the value policy of the chart airunway.",
    needs=("policy_files",),
)
def _policy(seen: Snapshot) -> Iterator[Found]:
    for core, source in (seen.policy_files or {}).items():
        name = f"ConfigMap/{source.config_map.namespace}/{source.config_map.name}"
        if source.text is None:
            yield Found(name, f"It has no {source.key}, which {core} reads (--policy).")
            continue
        try:
            parse_policy(source.text)
        except PolicyError as problem:
            yield Found(name, f"{source.key}: {problem}.")


@error(
    "ARW0217",
    "Nothing selects a provider",
    why="The core's selection is off (--no-enable-provider-selector), and no other program selects: deployments that "
    "name no provider stay Pending (NoProviderSelected).",
    do="Switch the selection on (in charts: providerSelector: true), install the program that should select, or set "
    "spec.provider.name.",
    needs=("components", "deployments"),
)
def _unselected(seen: Snapshot) -> Iterator[Found]:
    for core in seen.cores:
        if core.option("enable-provider-selector") != "false":
            continue
        waiting = []
        for deployment in seen.deployments or ():
            selected = condition_of(deployment, "ProviderSelected") or {}
            since = parse_time(text_at(selected, "lastTransitionTime"))
            theirs = core.watched and key_of(deployment).namespace not in core.watched
            if theirs or is_deleting(deployment) or selected.get("status") != "False" or since is None:
                continue
            if selected.get("reason") == "NoProviderSelected" and seen.now - since > _PATIENCE:
                waiting.append((since, key_of(deployment)))
        if waiting:
            since, first = min(waiting)
            yield Found(core.name, f"{len(waiting)} deployments wait, {first} for {human_duration(seen.now - since)}.")
