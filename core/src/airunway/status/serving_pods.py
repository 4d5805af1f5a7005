"""Counts the pods of a deployment, to check an upstream's claim to be ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from airunway.status.evidence import PodFacts

__all__ = ["POD_SHOWN", "PodCounts", "count_pods", "shortage_of"]

POD_SHOWN = frozenset(
    {
        "ImageNotFound",
        "InvalidImageReference",
        "ImagePullAuthFailure",
        "ImagePullBackOff",
        "RateLimited",
        "CrashLoopBackOff",
        "BadArguments",
        "PodOOMKilled",
        "ProbeTimeout",
        "PodFailed",
        "PodEvicted",
        "FailedScheduling",
        "InsufficientCapacity",
    }
)
"""Reasons that a pod's own status shows. An upstream's report of one of them counts only if no living pod is known.

Upstreams copy these from pods at irregular times and do not clear them: KAITO does not reconcile when a pod changes
(recorded: it kept reporting ``ImagePullError`` for a pod that ran).
"""


@dataclass(frozen=True, kw_only=True)
class PodCounts:
    """Numbers of pods that serve or will serve; pods of jobs, of helper roles, and pods that ended are not counted."""

    living: int = 0
    """Pods that have not ended and are not being deleted."""
    current: int = 0
    """Living pods of the newest revision, as far as it is known."""
    ready: int = 0
    """Current pods that are Ready."""
    leaving: int = 0
    """Pods that are being deleted."""

    @property
    def seen(self) -> bool:
        return bool(self.living or self.leaving)


def count_pods(pods: Iterable[PodFacts]) -> PodCounts:
    """Counts the pods. A pod whose revision differs from that of its controller's newest pod is an old one."""
    serving = [pod for pod in pods if pod.serves and pod.owner[0] != "Job" and pod.phase not in ("Succeeded", "Failed")]
    living = [pod for pod in serving if pod.alive]
    newest: dict[object, PodFacts] = {}
    for pod in living:
        known = newest.get(pod.crew)
        if known is None or _age_key(pod) > _age_key(known):
            newest[pod.crew] = pod
    current = [pod for pod in living if not pod.revision or pod.revision == newest[pod.crew].revision]
    return PodCounts(
        living=len(living),
        current=len(current),
        ready=sum(pod.ready for pod in current),
        leaving=len(serving) - len(living),
    )


def shortage_of(counts: PodCounts, wanted: int | None) -> int:
    """Returns how many ready pods are missing of `wanted`; if `wanted` is None, of the living pods.

    Pods beyond `wanted` belong to an autoscaler or are about to be deleted: they need not be ready.
    """
    return max(0, (counts.living if wanted is None else wanted) - counts.ready)


def _age_key(pod: PodFacts) -> tuple[datetime, str]:
    return pod.created or datetime.min.replace(tzinfo=UTC), pod.name
