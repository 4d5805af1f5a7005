"""Reads the load of deployments from Prometheus: five queries, however many deployments there are."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
import orjson

from airunway.kube import Client
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.snapshots.loads import Scope, deployments_and_pods, engine_of, ready_pods
from airunway.view.base import Unseen
from airunway.view.engine_metrics import ENGINE_METRICS, EngineMetrics, LoadRow, quantile

__all__ = ["PrometheusError", "PrometheusMetrics"]

RANGE = 60.0
"""Seconds over which rates are taken: with the usual interval of 15 s there are samples enough."""

_MOST_BYTES = 64 * 2**20
_PATIENCE = 15.0

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

    def __init__(self, client: Client, scope: Scope, url: str) -> None:
        self._client, self._scope, self._url = client, scope, url.rstrip("/")

    async def rows(self) -> list[LoadRow]:
        """Returns a row for each deployment. Raises KubeError if these cannot be read, and PrometheusError."""
        (deployments, pods), answers = await asyncio.gather(
            deployments_and_pods(self._client, self._scope), self._answers()
        )
        rows = [_row(each, pods[key_of(each)], answers) for each in deployments]
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
        limits = aiohttp.ClientTimeout(total=_PATIENCE)
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
                if len(body) > _MOST_BYTES:
                    raise PrometheusError(f"its answer has more than {_MOST_BYTES // 2**20} MiB")
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
    results = dig(document, "data", "result")
    found: list[tuple[Mapping[str, Any], float]] = []
    for each in results if isinstance(results, list) else ():
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


def _row(deployment: Resource, pods: Sequence[Resource] | Unseen, answers: _Answers) -> LoadRow:
    key, engine = key_of(deployment), engine_of(deployment)
    unseen = pods if isinstance(pods, Unseen) else None
    names: list[ObjectKey] = [] if isinstance(pods, Unseen) else [key_of(pod) for pod in ready_pods(pods)]
    ready: list[_Pod] = [(name.namespace, name.name) for name in names]
    if unseen is None and not ready:
        unseen = Unseen(what="metrics", why="the deployment has no ready pod")
    absent = unseen or Unseen(
        what="metrics", why="Prometheus has no series with the labels namespace and pod of its pods"
    )
    known = [pod for pod in ready if any(pod in part for part in (answers.running, answers.rate, answers.kv_use))]
    buckets: dict[float, float] = {}
    for pod in known:
        for bound, rate in answers.buckets.get(pod, {}).items():
            buckets[bound] = buckets.get(bound, 0.0) + rate
    idle = Unseen(what="first token", why=f"no request in the last {RANGE:g} s") if known else absent

    def total(values: Mapping[_Pod, float], what: str) -> float | Unseen:
        there = [values[pod] for pod in known if pod in values]
        if there:
            return round(sum(there), 2)
        return Unseen(what=what, why="Prometheus has no such series of its pods") if known else absent

    use = total(answers.kv_use, "kv_use")
    reported = sum(pod in answers.kv_use for pod in known)
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
