"""A provider's status of recorded objects, pods and events, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Observed
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource, dig
from airunway.runtime.diagnosis import conclude
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report, StepResult, is_ready, record_of_service
from airunway.status.evidence import Evidence, PodFacts


@dataclass(kw_only=True)
class StatusReplay:
    """One deployment of a provider; `deployment` gets each status that a reconcile comes to."""

    host: ProviderHost
    deployment: Resource
    engine: str = "vllm"
    memory: Memory = field(default_factory=Memory)

    def reconcile(
        self, observed: Observed, evidence: Evidence, *, now: datetime, newest_revision: str | None = None
    ) -> tuple[Resource, float | None]:
        """A pass: the status that follows, and after how many seconds time alone asks for the next.

        `newest_revision` is that of the workload behind the pods, None where it is unknown.
        """
        primary = observed.primary or {}
        kind, name = primary.get("kind", ""), dig(primary, "metadata", "name", default="")
        context = assumed_context(self.host, engine=self.engine, now=now)
        report = Report(
            results=(StepResult(condition="ProviderCompatible", ok=True, reason="CompatibilityVerified", message=""),),
            resource=primary,
            subject=f"{kind}/{dig(self.deployment, 'metadata', 'namespace')}/{name}",
            observation=self.host.translate_status(parse_deployment(self.deployment), observed, context),
            applied=observed.applied,
        )
        evidence = replace(evidence, served=record_of_service(report, self.deployment["status"]) is not None)
        report = replace(report, rolled_out=_is_rolled_out(report, evidence.pods, newest_revision))
        status, _, found = conclude(report, evidence, deployment=self.deployment, memory=self.memory, now=now)
        self.deployment["status"] = status
        return status, found.wake_after


def _is_rolled_out(report: Report, pods: Sequence[PodFacts], newest: str | None) -> bool:
    """As `airunway.runtime.evidence` finds it out."""
    if newest is None or report.observation is None or not is_ready(report.observation):
        return True
    return all(pod.revision == newest for pod in pods if pod.alive and pod.revision)
