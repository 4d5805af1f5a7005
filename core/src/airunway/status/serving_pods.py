"""How the pods of a deployment are, as numbers: what is compared with an upstream's claim to be ready. Pure."""

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
"""Reasons that a pod shows itself. Another's word for one of them counts only where no living pod is known.

Upstreams copy these out of pods at moments of their own and leave them standing: KAITO reconciles on no change of a pod
(recorded: it went on saying ``ImagePullError`` of a pod that ran).
"""


@dataclass(frozen=True, kw_only=True)
class PodCounts:
    """Pods that serve or will: those of jobs and of helping roles, and those that are over, do not count.

    `living` are neither over nor being deleted, `current` those of the newest revision among them as far as can be
    told, `ready` the current ones that are Ready, `leaving` those being deleted.
    """

    living: int = 0
    current: int = 0
    ready: int = 0
    leaving: int = 0

    @property
    def seen(self) -> bool:
        return bool(self.living or self.leaving)


def count_pods(pods: Iterable[PodFacts]) -> PodCounts:
    """Count. Pods of one controller but of another revision than its newest pod's are old ones on their way out."""
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
    """How many ready pods are missing; without a demand (`wanted` None), of those that there are.

    Pods beyond the demand are an autoscaler's, or on their way out: that they are not ready contradicts nothing.
    """
    return max(0, (counts.living if wanted is None else wanted) - counts.ready)


def _age_key(pod: PodFacts) -> tuple[datetime, str]:
    return pod.created or datetime.min.replace(tzinfo=UTC), pod.name
