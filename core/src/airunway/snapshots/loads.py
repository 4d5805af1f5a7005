"""Reads the load of deployments: from the metrics of their pods through the API server's proxy, or by five queries to
Prometheus, however many deployments there are.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

import aiohttp
import orjson

from airunway.api import names
from airunway.engines.metrics import ENGINE_METRICS, METRICS_PATHS, EngineMetrics
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, ApiError, Client, Forbidden, KubeError
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, is_deleting, is_true, key_of, labels_of, list_at, uid_of
from airunway.snapshots.reader import Reader, unseen_for
from airunway.snapshots.reading import pod_sources
from airunway.snapshots.serving import is_port
from airunway.unseen import Unseen
from airunway.view.base import line
from airunway.view.engine_metrics import (
    LoadRow,
    PodLoad,
    Sample,
    SampleReader,
    load_row,
    quantile,
)

WINDOW = 15.0
"""Seconds over which rates are taken."""

MOST_PODS = 64
"""Pods of one deployment that are asked."""

_MOST_VALUES = 64
"""Values of a label in one list: the URL stays below 8 KiB, as proxies want it."""

_LABEL = re.compile(r"[^=!,()\s]{1,317}")
_VALUE = re.compile(r"[-A-Za-z0-9_.]{1,63}")

_AT_ONCE = 32
_PATIENCE = 4.0
"""Seconds for the metrics of one pod."""

_MOST_BYTES = 16 * 2**20
_MOST_PORTS = 4
_ABSENT = (404, 405, 501)
"""HTTP codes of a server that has no metrics."""

_METRICS_PORTS = ("metrics", "http-metrics", "system", "prometheus")
_OTHER_ROLES = frozenset({names.PICKER_COMPONENT, "download"})
_RAY_NODE = "ray.io/node-type"
"""KubeRay's label on each pod: ``head`` or ``worker``. KubeRay gives each a port ``metrics``, Ray's own."""
_NONE_OF_RAY = Unseen(
    what="metrics",
    why="Ray reports no engine there: it does so on the node of a replica, with log_engine_metrics of Ray Serve LLM",
)

_Pods: TypeAlias = Mapping[ObjectKey, Sequence[Resource] | Unseen]
"""The pods of each deployment, or why they are not known."""


async def deployments_in(client: Client, scope: ObjectKey) -> list[Resource]:
    """Returns the deployment; all of the namespace if `scope` has no name, all of the cluster if it has neither.

    Raises KubeError.
    """
    if scope.name:
        return [await client.get(MODEL_DEPLOYMENT, scope)]
    return await client.list_all(MODEL_DEPLOYMENT, namespace=scope.namespace)


async def deployments_and_pods(client: Client, scope: ObjectKey) -> tuple[list[Resource], _Pods]:
    """Returns deployments, and the pods of each, in few lists. Raises KubeError if deployments cannot be read."""
    deployments = await deployments_in(client, scope)
    selector = f"{names.MODEL_DEPLOYMENT}={scope.name}" if scope.name else names.MODEL_DEPLOYMENT
    listed = await _pods(client, scope.namespace, selector)
    found: dict[ObjectKey, Sequence[Resource] | Unseen] = {}
    by_owner: dict[ObjectKey, list[Resource]] = {}
    for pod in () if isinstance(listed, Unseen) else listed:
        owner = ObjectKey(key_of(pod).namespace, str(labels_of(pod).get(names.MODEL_DEPLOYMENT)))
        by_owner.setdefault(owner, []).append(pod)
    selectors: dict[ObjectKey, str] = {}
    for deployment in deployments:
        key = key_of(deployment)
        others = [source.label_selector for source in pod_sources(deployment)][1:]
        if isinstance(listed, Unseen):
            found[key] = listed
        elif key in by_owner or not others:
            found[key] = by_owner.get(key, ())
        else:
            selectors[key] = others[0]
    return deployments, {**found, **await _selected(client, scope, selectors)}


async def _selected(client: Client, scope: ObjectKey, selectors: Mapping[ObjectKey, str]) -> _Pods:
    """The pods of deployments with selectors of their own, because their provider's operator does not set our label.

    Where selectors differ by the value of one label only, one list is for many of them.
    """
    by_label: dict[str, dict[str, list[ObjectKey]]] = {}
    reads: list[Awaitable[_Pods]] = []
    for key, selector in selectors.items():
        label, _, value = selector.partition("=")
        if _LABEL.fullmatch(label) and _VALUE.fullmatch(value) and value == value.strip("-_."):
            by_label.setdefault(label, {}).setdefault(value, []).append(key)
        else:
            reads.append(_of_selector(client, key, selector))
    for label, owners in by_label.items():
        values = sorted(owners)
        for start in range(0, len(values), _MOST_VALUES):
            some = {value: owners[value] for value in values[start : start + _MOST_VALUES]}
            reads.append(_of_label(client, scope, label, some))
    return {key: pods for found in await asyncio.gather(*reads) for key, pods in found.items()}


async def _of_selector(client: Client, owner: ObjectKey, selector: str) -> _Pods:
    return {owner: await _pods(client, owner.namespace, selector)}


async def _of_label(client: Client, scope: ObjectKey, label: str, owners: Mapping[str, Sequence[ObjectKey]]) -> _Pods:
    """The pods that have one of these values of a label, by the deployments whose value that is."""
    values = [*owners]
    selector = f"{label}={values[0]}" if len(values) == 1 else f"{label} in ({','.join(values)})"
    pods = await _pods(client, scope.namespace, selector)
    if isinstance(pods, Unseen):
        return dict.fromkeys((key for keys in owners.values() for key in keys), pods)
    found: dict[tuple[str, str], list[Resource]] = {}
    for pod in pods:
        found.setdefault((key_of(pod).namespace, str(labels_of(pod).get(label))), []).append(pod)
    return {key: found.get((key.namespace, value), ()) for value, keys in owners.items() for key in keys}


async def _pods(client: Client, namespace: str, selector: str) -> Sequence[Resource] | Unseen:
    return (await Reader(client, tolerant=True).list(POD, namespace=namespace, label_selector=selector)).found


def ready_pods(pods: Iterable[Resource]) -> list[Resource]:
    """Returns the pods that serve: ready, not being deleted, neither a picker nor a download."""
    return [
        pod
        for pod in pods
        if is_true(pod, "Ready")
        and not is_deleting(pod)
        and labels_of(pod).get(names.COMPONENT) not in _OTHER_ROLES
        and names.ARTIFACT not in labels_of(pod)
    ]


def _is_ray_head(pod: Resource) -> bool:
    return labels_of(pod).get(_RAY_NODE) == "head"


def engine_of(deployment: Resource) -> str:
    """Returns the engine in use; empty before one is chosen."""
    engine = dig(deployment, "status", "engine", "type", default=dig(deployment, "spec", "engine", "type"))
    return engine if isinstance(engine, str) else ""


class PodMetrics:
    """Reads the metrics of pods; remembers where each pod has them, and its samples of the last 15 seconds."""

    def __init__(self, client: Client, scope: ObjectKey) -> None:
        self._client, self._scope = client, scope
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._places: dict[str, tuple[int, str]] = {}
        self._samples: dict[str, deque[Sample]] = {}
        self._denied: dict[str, Unseen] = {}

    async def rows(self) -> list[LoadRow]:
        """Returns a row for each deployment. Raises KubeError if deployments cannot be read."""
        deployments, pods = await deployments_and_pods(self._client, self._scope)
        self._denied = {}
        found = await asyncio.gather(*(self._row(each, pods[key_of(each)]) for each in deployments))
        present = {uid_of(pod) for listed in pods.values() if not isinstance(listed, Unseen) for pod in listed}
        for uid in self._samples.keys() - present:
            del self._samples[uid]
            self._places.pop(uid, None)
        return sorted(found, key=lambda row: (row.namespace, row.name))

    async def _row(self, deployment: Resource, pods: Sequence[Resource] | Unseen) -> LoadRow:
        key, engine = key_of(deployment), engine_of(deployment)
        loads: Sequence[PodLoad] | Unseen
        if isinstance(pods, Unseen):
            loads = pods
        else:
            ready = ready_pods(pods)
            asked = await asyncio.gather(*(self._load(deployment, pod, engine) for pod in ready[:MOST_PODS]))
            more = Unseen(what="metrics", why=f"only the first {MOST_PODS} pods are asked")
            # Of a Ray cluster's head only the numbers count: it serves no model, unless it reports one.
            loads = [each for each, pod in zip(asked, ready, strict=False) if each.samples or not _is_ray_head(pod)]
            loads += [PodLoad(pod=key_of(pod).name, unseen=more) for pod in ready[MOST_PODS:]]
        return load_row(namespace=key.namespace, name=key.name, engine=engine, loads=loads)

    async def _load(self, deployment: Resource, pod: Resource, engine: str) -> PodLoad:
        key, uid = key_of(pod), uid_of(pod)
        known = self._places.get(uid)
        problems: list[Unseen] = []
        answered = False
        async with self._room:
            for port, path in [known] if known is not None else _places(deployment, pod, engine):
                if (denied := self._denied.get(key.namespace)) is not None:
                    return PodLoad(pod=key.name, unseen=denied)
                read = await self._read(key, port, path)
                if isinstance(read, Unseen):
                    problems.append(read)
                elif read is not None and read.table is not None:
                    self._places[uid] = (port, path)
                    return PodLoad(pod=key.name, samples=self._with(uid, read))
                else:
                    answered = True
        self._places.pop(uid, None)
        if answered:
            return PodLoad(pod=key.name, unseen=_NONE_OF_RAY if _RAY_NODE in labels_of(pod) else None)
        return PodLoad(pod=key.name, unseen=next(iter(problems), Unseen(what="metrics", why="its ports are not known")))

    def _with(self, uid: str, sample: Sample) -> tuple[Sample, ...]:
        """The samples of the window, with a new one."""
        kept = self._samples.setdefault(uid, deque())
        kept.append(sample)
        # The one before the window begins it.
        while len(kept) > 2 and kept[1].moment <= sample.moment - WINDOW:
            kept.popleft()
        return tuple(kept)

    async def _read(self, key: ObjectKey, port: int, path: str) -> Sample | Unseen | None:
        """What a pod reports; None if its server has nothing at that path."""
        reader = SampleReader()
        lines = self._client.proxied(POD, key, port=port, path=path, silence=_PATIENCE, most=_MOST_BYTES)
        try:
            async with asyncio.timeout(_PATIENCE), aclosing(lines) as stream:
                async for text in stream:
                    reader.line(text)
        except Forbidden as error:
            if not error.reason:
                return Unseen(what="metrics", why=f"its server refuses {path} (HTTP 403)")
            unseen = unseen_for("metrics", error, right=f"get pods/proxy in namespace {key.namespace}")
            self._denied[key.namespace] = unseen
            return unseen
        except ApiError as error:
            if error.status in _ABSENT and not error.reason:
                return None
            return Unseen(what="metrics", why=f"its server answers {path} on port {port} with HTTP {error.status}")
        except TimeoutError:
            return Unseen(what="metrics", why=f"port {port} does not answer {path} in {_PATIENCE:g} s")
        except KubeError as error:
            return Unseen(what="metrics", why=line(str(error)))
        return reader.sample(monotonic())


def _places(deployment: Resource, pod: Resource, engine: str) -> Iterator[tuple[int, str]]:
    """Ports and paths where a pod may report metrics, the most likely first."""
    table = ENGINE_METRICS.get(engine)
    paths = table.paths if table is not None else METRICS_PATHS
    for port in [*dict.fromkeys(_ports(deployment, pod))][:_MOST_PORTS]:
        yield from ((port, path) for path in paths)


def _ports(deployment: Resource, pod: Resource) -> Iterator[int]:
    """Its ports for metrics, the one that answers requests, then the others."""
    named: list[tuple[str, int]] = []
    for container in list_at(pod, "spec", "containers"):
        for entry in list_at(container, "ports"):
            number = dig(entry, "containerPort")
            if is_port(number):
                named.append((str(dig(entry, "name", default="")), number))
    target = dig(deployment, "status", "endpoint", "targetPort")
    yield from (port for name, port in named if name in _METRICS_PORTS)
    if is_port(target):
        yield target
    yield from (port for name, port in named if name not in _METRICS_PORTS)


# --------------------------------------------------------------------------------------------------------- Prometheus


RANGE = 60.0
"""Seconds over which rates are taken: with the usual interval of 15 s there are samples enough."""

_MOST_OF_PROMETHEUS = 64 * 2**20
_PATIENCE_WITH_PROMETHEUS = 15.0

_Pod: TypeAlias = tuple[str, str]
"""Namespace and name."""


class PrometheusError(Exception):
    """Prometheus cannot be asked; the message says why."""


@dataclass(frozen=True, kw_only=True)
class _Answers:
    """What Prometheus knows, by pod."""

    running: Mapping[_Pod, float]
    waiting: Mapping[_Pod, float]
    kv_use: Mapping[_Pod, float]
    rate: Mapping[_Pod, float]
    buckets: Mapping[_Pod, Mapping[float, float]]


class PrometheusMetrics:
    """Reads loads from the Prometheus at an http or https URL; its series need the labels ``namespace`` and ``pod``."""

    def __init__(self, client: Client, scope: ObjectKey, url: str) -> None:
        self._client, self._scope, self._url = client, scope, url.rstrip("/")

    async def rows(self) -> list[LoadRow]:
        """Returns a row for each deployment. Raises KubeError if these cannot be read, and PrometheusError."""
        (deployments, pods), answers = await asyncio.gather(
            deployments_and_pods(self._client, self._scope), self._answers()
        )
        rows = [_row_of(each, pods[key_of(each)], answers) for each in deployments]
        return sorted(rows, key=lambda row: (row.namespace, row.name))

    async def _answers(self) -> _Answers:
        where = f", namespace={json.dumps(self._scope.namespace)}" if self._scope.namespace else ""

        def of(names: Callable[[EngineMetrics], Sequence[str]], suffix: str = "") -> str:
            every = [
                f"(ray_)?{name.replace('_', '[:_]', 1)}{suffix}" for t in ENGINE_METRICS.values() for name in names(t)
            ]
            return f'{{__name__=~"{"|".join(every)}"{where}}}'

        span = f"[{RANGE:g}s]"
        queries = (
            f"sum by (namespace, pod) ({of(lambda table: table.running)})",
            f"sum by (namespace, pod) ({of(lambda table: table.waiting)})",
            f"avg by (namespace, pod) ({of(lambda table: table.kv_use)})",
            f"sum by (namespace, pod) (rate({of(lambda table: table.tokens)}{span}))",
            f"sum by (namespace, pod, le) (rate({of(lambda table: table.first_token, '_bucket')}{span}))",
        )
        limits = aiohttp.ClientTimeout(total=_PATIENCE_WITH_PROMETHEUS)
        async with aiohttp.ClientSession(timeout=limits) as session:
            running, waiting, kv_use, rate, buckets = await asyncio.gather(
                *(_query(session, self._url, query) for query in queries)
            )
        return _Answers(
            running=_by_pod(running),
            waiting=_by_pod(waiting),
            kv_use=_by_pod(kv_use),
            rate=_by_pod(rate),
            buckets=_buckets(buckets),
        )


async def _query(session: aiohttp.ClientSession, url: str, query: str) -> list[tuple[Mapping[str, Any], float]]:
    """Labels and values of an instant query. Raises PrometheusError."""
    try:
        async with session.post(f"{url}/api/v1/query", data={"query": query}) as answer:
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > _MOST_OF_PROMETHEUS:
                    raise PrometheusError(f"its answer has more than {_MOST_OF_PROMETHEUS // 2**20} MiB")
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise PrometheusError(f"it does not answer: {bounded(str(error) or type(error).__name__, 200)}") from error
    return _vector(status, bytes(body))


def _vector(status: int, body: bytes) -> list[tuple[Mapping[str, Any], float]]:
    """The samples of an answer. Raises PrometheusError for anything but a vector."""
    shown = bounded(body[:2000].decode(errors="replace"), 200)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise PrometheusError(f"HTTP {status}, not JSON: {shown}") from error
    if dig(document, "status") != "success" or dig(document, "data", "resultType") != "vector":
        problem = dig(document, "error")
        raise PrometheusError(f"HTTP {status}: {bounded(problem, 200) if isinstance(problem, str) else shown}")
    found: list[tuple[Mapping[str, Any], float]] = []
    for each in list_at(document, "data", "result"):
        labels, value = dig(each, "metric"), dig(each, "value")
        if isinstance(labels, dict) and isinstance(value, list) and len(value) == 2:
            number = _number(value[1])
            if number is not None:
                found.append((labels, number))
    return found


def _number(text: object) -> float | None:
    try:
        value = float(text) if isinstance(text, str) and len(text) < 64 else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _pod_of(labels: Mapping[str, Any]) -> _Pod | None:
    namespace, pod = labels.get("namespace"), labels.get("pod")
    return (namespace, pod) if isinstance(namespace, str) and isinstance(pod, str) else None


def _by_pod(samples: Sequence[tuple[Mapping[str, Any], float]]) -> dict[_Pod, float]:
    return {pod: value for labels, value in samples if (pod := _pod_of(labels)) is not None}


def _buckets(samples: Sequence[tuple[Mapping[str, Any], float]]) -> dict[_Pod, dict[float, float]]:
    found: dict[_Pod, dict[float, float]] = {}
    for labels, value in samples:
        pod, le = _pod_of(labels), labels.get("le")
        try:
            bound = float(le) if isinstance(le, str) and len(le) < 64 else math.nan
        except ValueError:
            continue
        if pod is not None and not math.isnan(bound):
            found.setdefault(pod, {})[bound] = value
    return found


def _row_of(deployment: Resource, pods: Sequence[Resource] | Unseen, answers: _Answers) -> LoadRow:
    key, engine = key_of(deployment), engine_of(deployment)
    unseen = pods if isinstance(pods, Unseen) else None
    parts = (answers.running, answers.rate, answers.kv_use)
    ready: list[_Pod] = []
    for pod in () if isinstance(pods, Unseen) else ready_pods(pods):
        name = (key_of(pod).namespace, key_of(pod).name)
        if not _is_ray_head(pod) or any(name in part for part in parts):
            ready.append(name)
    if unseen is None and not ready:
        unseen = Unseen(what="metrics", why="the deployment has no ready pod")
    absent = unseen or Unseen(
        what="metrics", why="Prometheus has no series with the labels namespace and pod of its pods"
    )
    known = [name for name in ready if any(name in part for part in parts)]
    buckets: dict[float, float] = {}
    for served in known:
        for bound, rate in answers.buckets.get(served, {}).items():
            buckets[bound] = buckets.get(bound, 0.0) + rate
    idle = Unseen(what="first token", why=f"no request in the last {RANGE:g} s") if known else absent

    def total(values: Mapping[_Pod, float], what: str) -> float | Unseen:
        there = [values[name] for name in known if name in values]
        if there:
            return round(sum(there), 2)
        return Unseen(what=what, why="Prometheus has no such series of its pods") if known else absent

    use = total(answers.kv_use, "kv_use")
    reported = sum(name in answers.kv_use for name in known)
    return LoadRow(
        namespace=key.namespace,
        name=key.name,
        engine=engine,
        pods=len(ready),
        reporting=len(known),
        running=total(answers.running, "running"),
        waiting=total(answers.waiting, "waiting"),
        kv_use=use if isinstance(use, Unseen) else round(min(1.0, use / reported), 4),
        first_token_p50=_quantile(buckets, 0.5, idle),
        first_token_p95=_quantile(buckets, 0.95, idle),
        first_token_of="window",
        tokens_per_second=total(answers.rate, "tokens"),
        window=RANGE,
        unseen=(absent,) if len(known) < len(ready) or not ready else (),
    )


def _quantile(buckets: Mapping[float, float], part: float, absent: Unseen) -> float | Unseen:
    found = quantile(buckets, part)
    return absent if found is None else round(found, 4)
