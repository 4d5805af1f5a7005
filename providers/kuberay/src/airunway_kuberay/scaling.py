"""Tells a changed number of replicas from replicas that are replaced.

Ray reports UPDATING for both (seen with 2.56). The RayService therefore records how many replicas served when its
newest change left the engine's settings alone; those are not stopped unless fewer are wanted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from airunway.sdk import Resource, dig, labels
from airunway.sdk.conditions import condition, is_observed, mapping, moment, number, records, text, truth
from airunway_kuberay.manifest import DECODE, PREFILL, WORKERS

SCALED_FROM = f"{labels.GROUP}/scaled-from"
"""Annotation of a RayService: JSON map of replicas by worker group."""

WHOLE = ("HEALTHY", "UPSCALING", "DOWNSCALING")
"""Statuses of a Ray deployment without a replica that is being replaced."""

TAKES = timedelta(seconds=10)
"""Time by which KubeRay has written a status for a change that Ray Serve accepted."""

_PREFIXES = {"Prefill": PREFILL, "Decode": DECODE, "LLMServer": WORKERS, "LLMDeployment": WORKERS}


def group_of(deployment: str) -> str:
    """The worker group that runs a Ray deployment, in all releases of Ray; empty for the ingress and the proxy."""
    return next((group for prefix, group in _PREFIXES.items() if deployment.startswith(prefix)), "")


def scaled_from(live: Resource | None, config: str, *, now: datetime) -> str:
    """The annotation's value when `config` becomes the ``serveConfigV2`` of the live RayService; empty for none.

    It stays while the configuration stays. A changed number counts from what served, or from the smallest number since
    then if an earlier change of the number is not done.
    """
    before = text(live or {}, "spec", "serveConfigV2")
    kept = text(live or {}, "metadata", "annotations", SCALED_FROM)
    if live is None or before == config:
        return kept
    old, new = _application(before), _application(config)
    if not old or any(old.get(key) != new.get(key) for key in ("import_path", "args")):
        return ""
    counts = _counts(old)
    if not _is_whole(live, now=now):
        earlier = _read(kept)
        counts = {group: min(count, earlier[group]) for group, count in counts.items() if group in earlier}
    return json.dumps(counts, sort_keys=True, separators=(",", ":")) if counts else ""


def serving_before(service: Resource, cluster: Resource, *, applied: datetime | None) -> dict[str, int]:
    """Replicas by worker group that the newest change left alone; empty if they may all be replaced.

    A head that became ready after the change has started all replicas anew.
    """
    since = moment(condition(cluster, "HeadPodReady"), "lastTransitionTime")
    if applied is None or since is None or truth(cluster, "HeadPodReady") is not True or since > applied:
        return {}
    return _read(text(service, "metadata", "annotations", SCALED_FROM))


def _application(config: str) -> Resource:
    try:
        found = dig(json.loads(config), "applications")
    except ValueError:  # another writer's YAML
        return {}
    application = found[0] if isinstance(found, list) and found else None
    return application if isinstance(application, dict) else {}


def _counts(application: Resource) -> dict[str, int]:
    parts = {text(part, "name"): part for part in records(application, "deployments")}
    return {
        group: number(part, "autoscaling_config", "min_replicas")
        for name, part in parts.items()
        if (group := group_of(name))
    }


def _is_whole(live: Resource, *, now: datetime) -> bool:
    """Whether all replicas served, with the settings of the last change."""
    writes = [entry for entry in records(live, "metadata", "managedFields") if not entry.get("subresource")]
    times = [each for each in (moment(entry, "time") for entry in writes) if each is not None]
    if not is_observed(live) or any(now - each < TAKES for each in times):
        return False
    applications = mapping(live, "status", "activeServiceStatus", "applicationStatuses")
    return bool(applications) and all(
        text(app, "status") == "RUNNING"
        and all(text(part, "status") in WHOLE for part in mapping(app, "serveDeploymentStatuses").values())
        for app in applications.values()
    )


def _read(annotation: str) -> dict[str, int]:
    try:
        found = json.loads(annotation or "{}")
    except ValueError:
        return {}
    if not isinstance(found, Mapping):
        return {}
    return {group: n for group, n in found.items() if isinstance(n, int) and not isinstance(n, bool) and n >= 0}
