"""Metrics about ModelDeployments and providers: gauges read from the caches, and counters of changes.

Only the core shows these. A counter has a provider's name as label only while its config is registered: a custom
selector may write any text into a deployment's status, and counters are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from airunway.process.metrics import Metrics, Point
from airunway.resource import ObjectKey, Resource, age_seconds, condition_of, dig, uid_of

__all__ = ["NO_PHASE", "OBJECT_LIMIT", "OTHER", "Transitions", "deployment_points", "provider_points"]

OBJECT_LIMIT = 2000
"""Maximum of ModelDeployments with series of their own; about 13 series each."""

NO_PHASE = "None"
"""Label of an object that has no phase yet."""

OTHER = "other"
"""Label value that stands for all values without series of their own."""

_STATES = ("desired", "ready", "available")
_ERRORS = {
    "Validated": "validation",
    "EngineSelected": "engine_selection",
    "ProviderSelected": "provider_selection",
}


def deployment_points(
    deployments: Sequence[tuple[ObjectKey, Resource]], *, limit: int = OBJECT_LIMIT
) -> Iterator[Point]:
    """Counts of all deployments; series of the first `limit` of them, in the cache's order, which is stable."""
    by_namespace: Counter[tuple[str, str]] = Counter()
    by_provider: Counter[tuple[str, str]] = Counter()
    for key, deployment in deployments:
        phase = _phase(deployment)
        namespace = key.namespace
        if (namespace, phase) not in by_namespace and len(by_namespace) >= limit:
            namespace = OTHER
        by_namespace[namespace, phase] += 1
        provider = _provider(deployment)
        if (provider, phase) not in by_provider and len(by_provider) >= limit:
            provider = OTHER
        by_provider[provider, phase] += 1
    for labels, count in by_namespace.items():
        yield "airunway_modeldeployment_total", labels, count
    for labels, count in by_provider.items():
        yield "airunway_deployment_status", labels, count
    yield "airunway_objects_left_out", (), max(0, len(deployments) - limit)
    for key, deployment in islice(deployments, limit):
        yield from _object_points(key, deployment)


def _object_points(key: ObjectKey, deployment: Resource) -> Iterator[Point]:
    model = str(dig(deployment, "spec", "model", "id", default=""))
    engine = str(dig(deployment, "status", "engine", "type", default=""))
    yield "airunway_modeldeployment_info", (*key, _provider(deployment), engine, model), 1.0
    yield "airunway_deployment_phase", (*key, _phase(deployment)), 1.0
    yield from _condition_points("airunway_modeldeployment_condition", tuple(key), deployment)
    if dig(deployment, "spec", "suspend") is True:
        yield "airunway_deployment_suspended", tuple(key), 1.0
    replicas = dig(deployment, "status", "replicas")
    if isinstance(replicas, dict):
        for state in _STATES:
            number = replicas.get(state)
            yield "airunway_deployment_replicas", (*key, state), float(number) if isinstance(number, int) else 0.0


def provider_points(
    configs: Sequence[tuple[ObjectKey, Resource]], *, silence_of: Callable[[str], timedelta | None]
) -> Iterator[Point]:
    """Readiness, heartbeat age by our own clock, and conditions of every InferenceProviderConfig."""
    for key, config in configs:
        yield "airunway_provider_ready", (key.name,), float(dig(config, "status", "ready") is True)
        silence = silence_of(key.name)
        if silence is not None:
            yield "airunway_provider_heartbeat_age_seconds", (key.name,), max(0.0, silence.total_seconds())
        yield from _condition_points("airunway_provider_condition", (key.name,), config)


def _condition_points(metric: str, labels: tuple[str, ...], obj: Resource) -> Iterator[Point]:
    conditions = dig(obj, "status", "conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict):
            yield metric, (*labels, str(condition.get("type")), str(condition.get("status"))), 1.0


def _phase(deployment: Resource) -> str:
    return str(dig(deployment, "status", "phase", default=NO_PHASE))


def _provider(deployment: Resource) -> str:
    return str(dig(deployment, "status", "provider", "name", default=""))


class Transitions:
    """A handler of the deployments' reflector that counts changes from one version to the next.

    Objects found at the start are no changes. Only the leader counts (`counting`), so that replicas do not count a
    change twice; a standby still remembers when phases began.
    """

    def __init__(self, metrics: Metrics, *, providers: Container[str], clock: Callable[[], datetime]) -> None:
        self.counting = False
        self._metrics = metrics
        self._providers = providers
        self._clock = clock
        self._never_ran: dict[ObjectKey, str] = {}
        self._deploying: dict[ObjectKey, datetime] = {}

    def __call__(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if new is None or (old is not None and uid_of(old) != uid_of(new)):
            self._never_ran.pop(key, None)
            self._deploying.pop(key, None)
            old = None
        if new is None:
            return
        phase = _phase(new)
        if old is None:
            # An edited deployment that does not run now may have run before.
            if phase in (NO_PHASE, "Pending", "Deploying") and dig(new, "metadata", "generation") == 1:
                self._never_ran[key] = str(dig(new, "metadata", "creationTimestamp", default=""))
            return
        provider = self._label(_provider(new))
        if self.counting:
            self._count_selection(old, new, provider)
            self._count_errors(old, new, provider)
        if (before := _phase(old)) != phase:
            self._count_phase(key, before, phase, provider)

    def _label(self, provider: str) -> str:
        return provider if not provider or provider in self._providers else OTHER

    def _count_selection(self, old: Resource, new: Resource, provider: str) -> None:
        if _provider(new) and _provider(new) != _provider(old):
            reason = "manual" if dig(new, "spec", "provider", "name") else "auto"
            self._metrics.count("airunway_provider_selection_total", provider, reason)

    def _count_errors(self, old: Resource, new: Resource, provider: str) -> None:
        for type_, error_type in _ERRORS.items():
            condition = condition_of(new, type_)
            if condition is None or condition.get("status") != "False":
                continue
            before = condition_of(old, type_) or {}
            judged = ("status", "reason", "observedGeneration")
            if any(condition.get(field) != before.get(field) for field in judged):
                self._metrics.count("airunway_reconciliation_errors_total", "core", provider, error_type)

    def _count_phase(self, key: ObjectKey, before: str, phase: str, provider: str) -> None:
        now = self._clock()
        created = self._never_ran.pop(key, None) if phase == "Running" else None
        begun = self._deploying.pop(key, None)
        if phase == "Deploying":
            self._deploying[key] = now
        if not self.counting:
            return
        self._metrics.count("airunway_deployment_phase_transitions_total", provider, before, phase)
        age = age_seconds(created, now)
        if age is not None:
            self._metrics.observe("airunway_deployment_ready_duration_seconds", max(0.0, age), provider)
        if phase == "Running" and begun is not None:
            seconds = (now - begun).total_seconds()
            self._metrics.observe("airunway_deployment_provision_duration_seconds", max(0.0, seconds), provider)
