"""What an engine's own metrics say about its load: requests, KV cache, first token, tokens per second.

    reader = SampleReader()
    for text in lines:                    # of the answer to GET /metrics
        reader.line(text)
    sample = reader.sample(moment=12.0)

Two samples of a pod give a rate. What a release does not report is `Unseen`, with the names of what is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airunway.engines.metrics import ENGINE_METRICS, EngineMetrics
from airunway.unseen import Unseen
from airunway.view.base import ViewModel, line, word

MOST_SERIES = 100_000
"""Series of one answer that are read."""

_MOST_BUCKETS = 1000
_MOST_NAMES = 5
_LARGEST = 1e15

_LONGEST_NAME = 256
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_SERIES = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]{0,200}+)(?:\{(.*)\})?[ \t]++([^ \t]{1,64}+)(?:[ \t]++-?\d++)?[ \t]*+", re.ASCII
)
_BOUND = re.compile(r'(?:^|,)\s*le="([^"]{1,32})"')


_HISTOGRAM = ("_bucket", "_sum", "_count", "_created")
_KNOWN = {
    name: table
    for table in ENGINE_METRICS.values()
    for name in (
        *(*table.running, *table.waiting, *table.kv_use, *table.tokens),
        *(f"{name}{suffix}" for name in table.first_token for suffix in _HISTOGRAM),
    )
}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a pod reported at one moment. A value that is None was not reported, or was not a number."""

    moment: float
    """When, in seconds of any clock."""
    table: EngineMetrics | None
    """The engine whose metrics these are; None: there were none that are known."""
    running: float | None = None
    """Requests in work."""
    waiting: float | None = None
    """Requests in the queue."""
    kv_use: float | None = None
    """Part of the KV cache in use, from 0 to 1; the mean over the engines in the pod."""
    tokens: float | None = None
    """Tokens since the engine started."""
    first_token: Mapping[float, float] = field(default_factory=dict)
    """Requests whose first token took at most so many seconds, by these seconds, since the engine started."""
    others: tuple[str, ...] = ()
    """Names of this engine that are not in the table, a few of them."""


class SampleReader:
    """Reads lines in the text format of Prometheus; other lines are ignored."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}
        self._buckets: dict[str, dict[float, float]] = {}
        self._others: dict[str, None] = {}
        self._table: EngineMetrics | None = None
        self._series = 0

    def line(self, text: str) -> None:
        """Take one line."""
        if text.startswith("#") or not text or self._series > MOST_SERIES:
            return
        self._series += 1
        # Most lines are of other metrics: they are known by their name, before anything is parsed.
        head = text[:_LONGEST_NAME].partition("{")[0].split(None, 1)
        name = _normal(head[0]) if head else ""
        table = _KNOWN.get(name)
        if table is None:
            self._note(name)
        elif (found := _SERIES.fullmatch(text)) is not None:
            self._table = self._table or table
            value = _number(found[3])
            if value is not None:
                self._take(table, name, found[2] or "", value)

    def _note(self, name: str) -> None:
        """Remember the engine of a metric that is not in its table, and a few such names."""
        table = ENGINE_METRICS.get(name.partition("_")[0])
        if table is None or _NAME.fullmatch(name) is None:
            return
        self._table = self._table or table
        if len(self._others) < _MOST_NAMES:
            self._others[name[:100]] = None

    def _take(self, table: EngineMetrics, name: str, labels: str, value: float) -> None:
        if any(name in names for names in (table.running, table.waiting, table.kv_use, table.tokens)):
            self._values.setdefault(name, []).append(value)
            return
        if name.endswith("_bucket") and (bound := _BOUND.search(labels)) is not None:
            _add(self._buckets.setdefault(name.removesuffix("_bucket"), {}), bound[1], value)

    def sample(self, moment: float) -> Sample:
        """Returns what was read."""
        table = self._table
        if table is None:
            return Sample(moment=moment, table=None)
        use = self._of(table.kv_use)
        return Sample(
            moment=moment,
            table=table,
            running=_sum(self._of(table.running)),
            waiting=_sum(self._of(table.waiting)),
            kv_use=min(1.0, sum(use) / len(use)) if use else None,
            tokens=_sum(self._of(table.tokens)),
            first_token=next((self._buckets[name] for name in table.first_token if name in self._buckets), {}),
            others=tuple(self._others),
        )

    def _of(self, names: Sequence[str]) -> list[float]:
        """The values of the first name that was reported: a release with two names reports the same twice."""
        return next((self._values[name] for name in names if name in self._values), [])


def _number(text: str) -> float | None:
    """A count, a sum, or a part; None for what is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < _LARGEST else None


def _normal(name: str) -> str:
    return name.removeprefix("ray_").replace(":", "_", 1)


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None


def _add(buckets: dict[float, float], bound: str, value: float) -> None:
    try:
        limit = float(bound)
    except ValueError:
        return
    if not math.isnan(limit) and (limit in buckets or len(buckets) < _MOST_BUCKETS):
        buckets[limit] = buckets.get(limit, 0.0) + value


def quantile(buckets: Mapping[float, float], part: float) -> float | None:
    """Returns the value below which that part of the observations lies; None without observations.

    Within a bucket they count as evenly spread. Beyond the last finite bound it is that bound: it is at least so much.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    wanted = part * buckets[bounds[-1]]
    below, lower = 0.0, 0.0
    for bound in bounds:
        count = max(buckets[bound], below)  # a server that counts wrongly must not make it negative
        if count >= wanted and count > below:
            return lower if math.isinf(bound) else lower + (bound - lower) * (wanted - below) / (count - below)
        below, lower = count, lower if math.isinf(bound) else bound
    return lower


# ------------------------------------------------------------------------------------------------------ one deployment


@dataclass(frozen=True, kw_only=True)
class PodLoad:
    """What is known of one pod: its samples of the window, oldest first, or why there is none."""

    pod: str
    """Its name."""
    samples: tuple[Sample, ...] = ()
    """Samples, oldest first; rates need two."""
    unseen: Unseen | None = None
    """Why there is no newest sample."""


@dataclass(frozen=True, kw_only=True)
class LoadRow(ViewModel):
    """The load of one deployment: sums over its pods. A value that no pod reports is Unseen, never 0."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    engine: str
    """Engine in use; empty before one is chosen."""
    pods: int
    """Pods that are ready."""
    reporting: int
    """How many of them report metrics; fewer than `pods`: the numbers are those of a part."""
    running: float | Unseen
    """Requests in work."""
    waiting: float | Unseen
    """Requests in the queue."""
    kv_use: float | Unseen
    """Part of the KV cache in use, from 0 to 1: the mean over the pods."""
    first_token_p50: float | Unseen
    """Seconds to the first token, of half of the requests at most."""
    first_token_p95: float | Unseen
    """Seconds to the first token, of 95 % of the requests at most."""
    first_token_of: str
    """Which requests that is about: ``window``, or ``start`` (all since the engines started) without any in the
    window."""
    tokens_per_second: float | Unseen
    """Generated tokens for each second of the window."""
    window: float
    """Seconds between the first and the last sample."""
    unseen: tuple[Unseen, ...]
    """What was not seen, each reason once."""


def load_row(*, namespace: str, name: str, engine: str, loads: Sequence[PodLoad] | Unseen) -> LoadRow:
    """Returns the load of a deployment, from the samples of its ready pods."""
    if isinstance(loads, Unseen):
        return _nothing(namespace, name, engine, loads, pods=0)
    if not loads:
        unseen = Unseen(what="metrics", why="the deployment has no ready pod")
        return _nothing(namespace, name, engine, unseen, pods=0)
    known = [load for load in loads if load.unseen is None and load.samples and load.samples[-1].table is not None]
    missing = [load.unseen or _without_metrics(engine) for load in loads if load not in known]
    if not known:
        return _nothing(namespace, name, engine, missing[0], pods=len(loads), more=missing)
    newest = [load.samples[-1] for load in known]
    windows = [load.samples[-1].moment - load.samples[0].moment for load in known]
    p50, p95, of = _first_token(known, newest)
    return LoadRow(
        namespace=word(namespace),
        name=word(name),
        engine=word(engine),
        pods=len(loads),
        reporting=len(known),
        running=_total(newest, "running"),
        waiting=_total(newest, "waiting"),
        kv_use=_total(newest, "kv_use", mean=True),
        first_token_p50=p50,
        first_token_p95=p95,
        first_token_of=of,
        tokens_per_second=_speed(known),
        window=round(max(windows), 1),
        unseen=tuple(dict.fromkeys(missing)),
    )


def _nothing(
    namespace: str, name: str, engine: str, unseen: Unseen, *, pods: int, more: Iterable[Unseen] = ()
) -> LoadRow:
    return LoadRow(
        namespace=word(namespace),
        name=word(name),
        engine=word(engine),
        pods=pods,
        reporting=0,
        running=unseen,
        waiting=unseen,
        kv_use=unseen,
        first_token_p50=unseen,
        first_token_p95=unseen,
        first_token_of="window",
        tokens_per_second=unseen,
        window=0.0,
        unseen=tuple(dict.fromkeys([unseen, *more])),
    )


def _without_metrics(engine: str) -> Unseen:
    table = ENGINE_METRICS.get(engine)
    return Unseen(what="metrics", why=f"its server reports none that are known{f': {table.hint}' if table else ''}")


def _missing(samples: Sequence[Sample], what: str) -> Unseen:
    """Why no sample has that value: the names that were looked for, and what there is instead."""
    table = next(sample.table for sample in samples if sample.table is not None)
    names: tuple[str, ...] = getattr(table, what)
    what = what.replace("_", " ")
    if not names:
        return Unseen(what=what, why=f"{table.engine} has no such metric")
    there = next((sample.others for sample in samples if sample.others), ())
    instead = f"; it has {', '.join(there)}" if there else ""
    return Unseen(what=what, why=line(f"this release of {table.engine} does not report {' or '.join(names)}{instead}"))


def _total(samples: Sequence[Sample], what: str, *, mean: bool = False) -> float | Unseen:
    values: list[float] = [value for sample in samples if (value := getattr(sample, what)) is not None]
    if not values:
        return _missing(samples, what)
    return round(sum(values) / len(values), 4) if mean else sum(values)


def _speed(loads: Sequence[PodLoad]) -> float | Unseen:
    rates, newest = [], [load.samples[-1] for load in loads]
    for load in loads:
        first, last = load.samples[0], load.samples[-1]
        if first.tokens is None or last.tokens is None or last.moment <= first.moment:
            continue
        # A counter that fell began again with its engine: what it counts now came since then.
        grown = last.tokens - first.tokens if last.tokens >= first.tokens else last.tokens
        rates.append(grown / (last.moment - first.moment))
    if rates:
        return round(sum(rates), 2)
    if all(sample.tokens is None for sample in newest):
        return _missing(newest, "tokens")
    return Unseen(what="tokens per second", why="it needs two samples of a pod")


def _first_token(loads: Sequence[PodLoad], newest: Sequence[Sample]) -> tuple[float | Unseen, float | Unseen, str]:
    """The quantiles, and which requests they are about."""
    grown: dict[float, float] = {}
    every: dict[float, float] = {}
    for load in loads:
        first, last = load.samples[0].first_token, load.samples[-1].first_token
        restarted = any(last.get(bound, 0.0) < count for bound, count in first.items())
        for bound, count in last.items():
            every[bound] = every.get(bound, 0.0) + count
            if len(load.samples) > 1:
                before = 0.0 if restarted else first.get(bound, 0.0)
                grown[bound] = grown.get(bound, 0.0) + count - before
    if not every:
        missing = _missing(newest, "first_token")
        return missing, missing, "window"
    for buckets, of in ((grown, "window"), (every, "start")):
        p50, p95 = quantile(buckets, 0.5), quantile(buckets, 0.95)
        if p50 is not None and p95 is not None:
            return round(p50, 4), round(p95, 4), of
    unseen = Unseen(what="first token", why="no request since the engine started")
    return unseen, unseen, "start"
