"""The metrics of one process, in a registry of its own, and those about ModelDeployments and providers.

There are no global metrics, so that several applications can run in one process (tests, the sandbox). Gauges about
objects are read from the caches at each scrape: they cost nothing in between and disappear with their object. Only the
core shows those of deployments and providers. A counter has a provider's name as label only while its config is
registered: a custom selector may write any text into a deployment's status, and counters are kept.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from time import monotonic
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family

from airunway import __version__
from airunway.gc_tuning import gc_paused
from airunway.kube import AnyReflector, EventRecorder, NotFound, PassResult, WorkQueue
from airunway.process.connections import Cause
from airunway.process.metric_catalogue import METRICS, MetricsRole, MetricType
from airunway.resource import ObjectKey, Resource, age_seconds, condition_of, dig, digest, entries_at, uid_of

INTERVAL = 0.1
"""Seconds between two measurements."""

WINDOW = 60.0
"""Seconds for which a lag is shown; a scraper that scrapes at least once a minute does not miss it."""


class EventLoopLag:
    """Measures how late the event loop wakes a sleeping task; `clock` is monotonic."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lags: deque[tuple[float, float]] = deque()  # (time, seconds); each later lag is shorter

    def note(self, seconds: float) -> None:
        """Record a lag that ends now."""
        while self._lags and self._lags[-1][1] <= seconds:
            self._lags.pop()
        self._lags.append((self._clock(), seconds))
        self._forget()

    def longest(self) -> float:
        """Seconds of the longest lag within the window; 0 if there was none."""
        self._forget()
        return self._lags[0][1] if self._lags else 0.0

    def _forget(self) -> None:
        while self._lags and self._clock() - self._lags[0][0] > WINDOW:
            self._lags.popleft()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._clock() + INTERVAL
            await asyncio.sleep(INTERVAL)
            self.note(max(0.0, self._clock() - due))


Point: TypeAlias = tuple[str, tuple[str, ...], float]
"""A sample that is read at scrape: the metric's name, its label values in order, and the value."""

Source: TypeAlias = Callable[[], Iterable[Point]]
"""Returns points. It is called in the event loop and should only take a snapshot. Its result is iterated in a thread,
where reading thousands of objects does not block the event loop.
"""

disable_created_metrics()  # type: ignore[no-untyped-call] # a series more for each counter, which is not documented and not needed

_LONGEST_LABEL = 128
"""Maximum characters of a label value. User input such as a model id may have 2,048, times thousands of series."""

_RESULTS: tuple[PassResult, ...] = ("success", "requeue", "retry", "error")
_BY_NAME = {metric.name: metric for metric in METRICS}


class Metrics:
    """The metrics of one process. `component` is its name in user agents; its parts have their names in leases."""

    def __init__(
        self, component: str, *, role: MetricsRole = MetricsRole.EVERY, event_loop_lag: EventLoopLag | None = None
    ) -> None:
        self.component = component
        self.event_loop_lag = event_loop_lag or EventLoopLag()
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self._counters: dict[str, PrometheusCounter] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            if not metric.counted or metric.role not in (MetricsRole.EVERY, role):
                continue
            if metric.type is MetricType.COUNTER:
                self._counters[metric.name] = PrometheusCounter(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
            else:
                self._histograms[metric.name] = Histogram(
                    metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
                )
        self._leading: dict[str, bool] = {}
        self._reflectors: list[AnyReflector] = []
        self._queues: dict[str, tuple[str, WorkQueue[ObjectKey]]] = {}
        self._recorders: dict[str, EventRecorder] = {}
        self._sources: dict[str, Source] = {"own": self._own}

    # ---------------------------------------------------------------------------------------------------- counting

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Increment the counter `name`; `by` 0 only shows its series.

        Raises KeyError if this process has no such counter."""
        self._counters[name].labels(*labels).inc(by)

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add an observation to the histogram `name`. Raises KeyError if this process has no such histogram."""
        histogram = self._histograms[name]
        (histogram.labels(*labels) if labels else histogram).observe(seconds)

    def forget(self, **labels: str) -> None:
        """Remove all series with these label values, for example of a provider that is gone."""
        for instrument in chain(self._counters.values(), self._histograms.values()):
            if labels.keys() <= set(instrument._labelnames):
                instrument.remove_by_labels(labels)

    # ------------------------------------------------------------------------------- what the parts of a process call

    def on_request(self, verb: str, resource: str, status: int, seconds: float) -> None:
        """The callback for `Client.on_request`."""
        self.count("airunway_api_requests_total", verb, resource, str(status))
        self.observe("airunway_api_request_duration_seconds", seconds, verb)

    def on_leading(self, component: str) -> Callable[[bool], None]:
        """The callback for `LeaderElector.on_change` of one part of the process."""
        self._leading.setdefault(component, False)
        return lambda leading: self._leading.update({component: leading})

    def on_review(self, verdict: str, seconds: float) -> None:
        """The callback of the webhook; `verdict` is ``allowed``, ``refused`` or ``failed``."""
        self.count("airunway_webhook_requests_total", verdict)
        self.observe("airunway_webhook_duration_seconds", seconds)

    def on_turned_away(self) -> Callable[[str], None]:
        """The callback of the webhook. Every cause has a series from the start, so that rates include the first
        event.
        """
        name = "airunway_webhook_turned_away_total"
        for cause in Cause:
            self._counters[name].labels(cause)
        return lambda cause: self.count(name, cause)

    def on_wait(self, controller: str) -> Callable[[float], None]:
        """The callback for `Controller.on_wait`."""
        return lambda seconds: self.observe("airunway_workqueue_latency_seconds", seconds, controller)

    def on_pass(self, controller: str) -> Callable[[PassResult, float], None]:
        """The callback for `Controller.on_pass`. Every result has a series from the start (see `on_turned_away`)."""
        for result in _RESULTS:
            self._counters["airunway_reconcile_total"].labels(controller, result)
        return lambda result, _seconds: self.count("airunway_reconcile_total", controller, result)

    def follow(self, reflector: AnyReflector) -> None:
        """Show the number of objects and the restarts of `reflector`.

        While the cluster does not serve a kind that is optional, no fault is shown of it.
        """

        def on_restart(cause: str) -> None:
            if not (reflector.optional and cause == NotFound.__name__):
                self.count("airunway_watch_restarts_total", reflector.kind.plural, cause)

        reflector.on_restart = on_restart
        self._reflectors.append(reflector)

    def unfollow(self, reflector: AnyReflector) -> None:
        """Stop showing a reflector."""
        self._reflectors.remove(reflector)

    def show_queue(self, controller: str, queue: WorkQueue[ObjectKey], *, component: str) -> None:
        """Show the length of a queue; it replaces an earlier queue of that controller."""
        self._queues[controller] = (component, queue)

    def show_events(self, component: str, recorder: EventRecorder) -> None:
        self._recorders[component] = recorder

    def add_source(self, name: str, source: Source) -> None:
        self._sources[name] = source

    # ----------------------------------------------------------------------------------------------------- showing

    async def page(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text or OpenMetrics, depending on an HTTP ``Accept``, and the content type."""
        points = [source() for source in self._sources.values()]
        return await asyncio.to_thread(self._render, points, accept)

    def _render(self, points: list[Iterable[Point]], accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        with gc_paused():
            families = _Families(chain(self.registry.collect(), _families(chain.from_iterable(points))))
            return encode(families), content_type

    def _own(self) -> list[Point]:
        points: list[Point] = [
            ("airunway_event_loop_lag_seconds", (), self.event_loop_lag.longest()),
            # One for each process, whatever its parts: queries join it with the metrics of the process.
            ("airunway_build_info", (self.component, __version__, platform.python_version()), 1.0),
        ]
        for component, leading in (self._leading or {self.component: False}).items():
            points.append(("airunway_leader", (component,), float(leading)))
        # A standby queues keys until it leads; no worker is late with them.
        points += [
            ("airunway_workqueue_depth", (name,), queue.depth if self._leading.get(component) else 0)
            for name, (component, queue) in self._queues.items()
        ]
        resources: dict[str, list[AnyReflector]] = {}
        for reflector in self._reflectors:
            resources.setdefault(reflector.kind.plural, []).append(reflector)
        for resource, group in resources.items():
            wanted = [reflector for reflector in group if not (reflector.missing and reflector.optional)]
            synced = all(reflector.synced.is_set() and not reflector.missing for reflector in wanted)
            if wanted:
                points.append(("airunway_watch_synced", (resource,), float(synced)))
            points.append(("airunway_watch_objects", (resource,), sum(map(len, group))))
        lost = {
            "full": sum(r.dropped for r in self._recorders.values()),
            "limited": sum(r.limited for r in self._recorders.values()),
            "refused": sum(r.failed for r in self._recorders.values()),
        }
        points += [("airunway_events_lost_total", (cause,), count) for cause, count in lost.items()]
        return points


class _Families:
    """The interface of a registry that the encoders of prometheus_client need."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _label(value: str) -> str:
    """`value`; if too long, its beginning and a digest, so that different values stay different (duplicate series would
    break the page).
    """
    if len(value) <= _LONGEST_LABEL:
        return value
    return f"{value[: _LONGEST_LABEL - 9]}…{digest(value, length=8)}"


def _families(points: Iterable[Point]) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for name, labels, value in points:
        family = families.get(name)
        if family is None:
            metric = _BY_NAME[name]
            make = CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
            family = families[name] = make(name, metric.help, labels=metric.labels)
        family.add_metric([_label(label) for label in labels], value)
    yield from families.values()


# ------------------------------------------------------------------------------------- deployments and providers

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
    yield from phase_points("airunway_modeldeployments", deployments, limit=limit)
    providers = ((_provider(deployment), phase_of(deployment)) for _, deployment in deployments)
    yield from _counts("airunway_deployment_status", providers, limit=limit)
    yield "airunway_objects_left_out", (), max(0, len(deployments) - limit)
    for key, deployment in islice(deployments, limit):
        yield from _object_points(key, deployment)


def phase_points(
    metric: str, objects: Iterable[tuple[ObjectKey, Resource]], *, limit: int = OBJECT_LIMIT
) -> Iterator[Point]:
    """Counts of objects by namespace and phase."""
    return _counts(metric, ((key.namespace, phase_of(obj)) for key, obj in objects), limit=limit)


def _counts(metric: str, labels: Iterable[tuple[str, str]], *, limit: int) -> Iterator[Point]:
    """How often each pair of labels occurs; beyond `limit` pairs the first label is `OTHER`."""
    found: Counter[tuple[str, str]] = Counter()
    for first, phase in labels:
        found[(first if (first, phase) in found or len(found) < limit else OTHER), phase] += 1
    for pair, count in found.items():
        yield metric, pair, count


def _object_points(key: ObjectKey, deployment: Resource) -> Iterator[Point]:
    model = str(dig(deployment, "spec", "model", "id", default=""))
    engine = str(dig(deployment, "status", "engine", "type", default=""))
    yield "airunway_modeldeployment_info", (*key, _provider(deployment), engine, model), 1.0
    yield "airunway_deployment_phase", (*key, phase_of(deployment)), 1.0
    yield from _condition_points("airunway_modeldeployment_condition", tuple(key), deployment)
    if dig(deployment, "spec", "suspend") is True:
        yield "airunway_deployment_suspended", tuple(key), 1.0
    share = dig(deployment, "status", "gateway", "group", "share")
    if isinstance(share, int):
        group = str(dig(deployment, "status", "gateway", "group", "name", default=""))
        yield "airunway_gateway_share", (*key, group), float(share)
        weight = dig(deployment, "spec", "gateway", "weight", default=1)
        yield "airunway_gateway_weight", (*key, group), float(weight) if isinstance(weight, int) else 1.0
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
    for condition in entries_at(obj, "status", "conditions"):
        yield metric, (*labels, str(condition.get("type")), str(condition.get("status"))), 1.0


def phase_of(obj: Resource) -> str:
    """The phase of an object, as a label."""
    return str(dig(obj, "status", "phase", default=NO_PHASE))


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
        phase = phase_of(new)
        if old is None:
            # An edited deployment that does not run now may have run before.
            if phase in (NO_PHASE, "Pending", "Deploying") and dig(new, "metadata", "generation") == 1:
                self._never_ran[key] = str(dig(new, "metadata", "creationTimestamp", default=""))
            return
        provider = self._label(_provider(new))
        if self.counting:
            self._count_selection(old, new, provider)
            self._count_errors(old, new, provider)
        if (before := phase_of(old)) != phase:
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
