"""Records events (``events.k8s.io/v1``) about objects: a repeated event is counted, not created again.

Recording never waits and never fails: it puts the event into a bounded table, and one task writes it. The caller
decides whether a state is worth an event. The recorder makes sure that repetitions do not flood the API server, and
that many events about one object do not displace those of other objects.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from airunway.kube.client import Client
from airunway.kube.errors import AlreadyExists, KubeError, NotFound, is_retryable, retry_after_of
from airunway.kube.kinds import EVENT
from airunway.kube.lease import format_micro_time, steady_clock
from airunway.kube.queue import Priority, Timers, WorkQueue
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, key_of, uid_of

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=Hashable)  # noqa: E741 - an object

BURST, REFILL = 25, 300.0
"""Different events about one object at once, and seconds until one more is allowed: the values of client-go."""

_REMEMBERED = 8192
"""Objects whose buckets are kept; an object that was dropped starts with a full bucket."""

_MAX_NOTE_BYTES = 1024
_MAX_REASON = 128

_WINDOW = 300.0
"""Seconds within which a repetition increases the event's count instead of creating a new event."""

_FIRST_INTERVAL, _LAST_INTERVAL = 10.0, 300.0
"""Seconds between two writes of one event's count: doubling from the first to the last."""

_MAX_ATTEMPTS = 6

_DEFERENCE = 3.0
"""Seconds that an event waits at most for more urgent work."""

_LOOK_AGAIN = 0.1

_FAREWELLS = 8
"""Events that are written concurrently at the end of a process."""


class Buckets(Generic[O]):
    """A token bucket for each object."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[O, tuple[float, float]] = OrderedDict()

    def take(self, obj: O, *, now: float) -> bool:
        """Takes a token of `obj`; returns whether there was one. `now` is in seconds of a monotonic clock."""
        tokens, since = self._buckets.pop(obj, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL)
        taken = tokens >= 1
        self._buckets[obj] = (tokens - 1 if taken else tokens, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return taken


class _Counts(Generic[O]):
    """Counts by key, and the key that counts most, each in constant time."""

    def __init__(self) -> None:
        self._counts: dict[O, int] = {}
        self._by_count: dict[int, dict[O, None]] = {}
        self._most = 0

    def of(self, key: O | None) -> int:
        return 0 if key is None else self._counts.get(key, 0)

    def most(self) -> O | None:
        """Returns the key with the highest count; of several, the one that has had it longest. None without keys."""
        return next(iter(self._by_count[self._most])) if self._most else None

    def change(self, key: O, by: int) -> None:
        """Adds 1 or -1 to the count of `key`."""
        before = self._counts.pop(key, 0)
        if before:
            del self._by_count[before][key]
            if not self._by_count[before]:
                del self._by_count[before]
        if after := before + by:
            self._counts[key] = after
            self._by_count.setdefault(after, {})[key] = None
        # A step of one: if the highest count has no key any more, this key has just left it.
        if after > self._most or self._most not in self._by_count:
            self._most = after


class Crowd(Generic[O, K]):
    """Counts the held keys by tenant and by object, to find out which of them hold the most."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, O], dict[K, None]] = {}
        self._tenants: _Counts[str] = _Counts()
        self._objects: dict[str, _Counts[O]] = {}

    def add(self, tenant: str, obj: O, key: K) -> None:
        keys = self._keys.setdefault((tenant, obj), {})
        if key not in keys:
            keys[key] = None
            self._tenants.change(tenant, 1)
            self._objects.setdefault(tenant, _Counts()).change(obj, 1)

    def remove(self, tenant: str, obj: O, key: K) -> None:
        keys = self._keys[tenant, obj]
        del keys[key]
        if not keys:
            del self._keys[tenant, obj]
        self._tenants.change(tenant, -1)
        self._objects[tenant].change(obj, -1)
        if not self._tenants.of(tenant):
            del self._objects[tenant]

    def noisiest(self, tenant: str, obj: O) -> Iterable[K]:
        """Returns the keys of the object that holds the most, of the tenant that holds the most, the newest first.

        Empty if that is `obj` itself: it must not get room at the cost of others.
        """
        loudest = self._tenants.most()
        if loudest is None:
            return ()
        if self._tenants.of(tenant) >= self._tenants.of(loudest):
            loudest = tenant
        objects = self._objects[loudest]
        most = objects.most()
        if most is None or (loudest == tenant and objects.of(obj) >= objects.of(most)):
            return ()
        return reversed(self._keys[loudest, most])


class _Reference(NamedTuple):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Key(NamedTuple):
    regarding: _Reference
    related: _Reference | None
    type: str
    reason: str
    action: str
    note: str

    @property
    def tenant(self) -> str:
        return self.regarding.namespace


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    first_at: datetime
    last_at: datetime
    last_seen: float
    interval: float
    vital: bool = False
    written: int = 0
    next_write: float = 0.0


def cut(text: str, limit: int) -> str:
    """Returns `text` within `limit` bytes of UTF-8; an ellipsis marks the cut."""
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode(errors="ignore") + "…"


class EventRecorder:
    """Writes events as `component` from `instance` (this process; default: the host name, which is the pod's name).

    Counters:

    - `dropped`: events that found the table full. It holds `capacity` different events; the object with the most
      events, in the namespace with the most, makes room.
    - `limited`: events beyond the limit for one object.
    - `failed`: events that the API server did not accept.

    While `busy()` is true, events wait for a few seconds at most, because the work that they report is more urgent.
    `clock` measures intervals.
    """

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str = "",
        capacity: int = 4096,
        busy: Callable[[], bool] = lambda: False,
        timers: Timers | None = None,
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self.dropped = 0
        self.limited = 0
        self.failed = 0
        self._client = client
        self._component, self._instance = component, cut(instance or socket.gethostname(), _MAX_REASON)
        self._capacity = capacity
        self._busy = busy
        self._clock = clock
        self._series: dict[_Key, _Series] = {}
        self._crowd: Crowd[_Reference, _Key] = Crowd()
        self._buckets: Buckets[_Reference] = Buckets()
        self._numbers = itertools.count()
        self._queue: WorkQueue[_Key] = WorkQueue(base=1.0, cap=60.0, timers=timers)

    def emit(
        self,
        regarding: Resource,
        *,
        reason: str,
        note: str,
        warning: bool = False,
        action: str = "Reconcile",
        related: Resource | None = None,
        at: datetime | None = None,
        vital: bool = False,
    ) -> None:
        """Records that something happened to the object `regarding`. Returns at once.

        - `reason`: a CamelCase word for machines.
        - `note`: a sentence for people (plain text, cut to 1 KiB).
        - `action`: what was being done.
        - `related`: another object that it was done to or with.
        - `at`: when it happened (default: now).
        - `vital`: never dropped, because it is the only trace of something that is left behind.

        The first occurrence is logged as well: events expire, and a log can be read for all objects at once.
        """
        key = _Key(
            regarding=_reference(regarding),
            related=None if related is None else _reference(related),
            type="Warning" if warning else "Normal",
            reason=cut(reason, _MAX_REASON),
            action=cut(action, _MAX_REASON),
            note=bounded(note, _MAX_NOTE_BYTES),
        )
        now, seen = at or self.moment(), self._clock()
        series = self._series.get(key)
        if series is not None and seen - series.last_seen <= _WINDOW:
            series.count += 1
            series.last_at, series.last_seen = now, seen
            self._queue.add_after(key, series.next_write - seen)
            return
        if not vital and not self._has_room(key, seen):
            return
        log.log(logging.WARNING if warning else logging.INFO, "%s: %s", key.reason, key.note)
        name = self._name_for(key, now)
        self._series[key] = _Series(
            name=name, count=1, first_at=now, last_at=now, last_seen=seen, interval=_FIRST_INTERVAL, vital=vital
        )
        self._crowd.add(key.tenant, key.regarding, key)
        self._queue.add(key, Priority.URGENT if vital else Priority.NORMAL)

    def _has_room(self, key: _Key, seen: float) -> bool:
        """Whether a new event can be held; another one may be removed to make room."""
        if not self._buckets.take(key.regarding, now=seen):
            self.limited += 1
            return False
        if key in self._series or len(self._series) < self._capacity:
            return True
        noise = [(each, self._series[each]) for each in self._crowd.noisiest(key.tenant, key.regarding)]
        reported = next((each for each, series in noise if series.written == series.count), None)
        expendable = next((each for each, series in noise if not series.vital), None)
        if reported is None:
            self.dropped += 1
        if (evicted := reported or expendable) is None:
            return False
        self._forget(evicted)
        return True

    def _forget(self, key: _Key) -> None:
        del self._series[key]
        self._crowd.remove(key.tenant, key.regarding, key)

    def moment(self) -> datetime:
        """Returns the present time, for the `at` of an event that is emitted later."""
        return datetime.now(UTC)

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            key, waited = await self._queue.get_timed()
            try:
                while waited < _DEFERENCE and self._busy():
                    await asyncio.sleep(_LOOK_AGAIN)
                    waited += _LOOK_AGAIN
                await self._write(key)
            finally:
                self._queue.done(key)

    async def flush(self, patience: float = 2.0) -> None:
        """Writes the recorded events that are not written yet, counts included, for `patience` seconds at most.

        Call it at the end of a process, after `run` was cancelled; otherwise the last events would be lost.
        """
        pending = [(key, series) for key, series in self._series.items() if series.count > series.written]
        pending.sort(key=lambda each: not each[1].vital)
        left, errors = iter(pending), []

        async def write() -> None:
            for key, series in left:
                try:
                    await self._send(key, series)
                except KubeError as error:  # only this event: the namespace of another one may still accept it
                    errors.append(str(error))
                else:
                    series.written = series.count

        try:
            async with asyncio.timeout(patience), asyncio.TaskGroup() as group:
                for _ in range(_FAREWELLS):
                    group.create_task(write())
        except TimeoutError:
            errors.append("the API server did not answer in time")
        lost = sum(series.count > series.written for _, series in pending)
        if lost:
            log.warning("the last events were not written, %d of %d: %s", lost, len(pending), errors[-1])

    async def _write(self, key: _Key) -> None:
        series = self._series.get(key)
        if series is None:
            return
        if series.count == series.written and self._clock() - series.last_seen > _WINDOW:
            self._forget(key)
            return
        if series.count > series.written:
            count, early = series.count, series.next_write - self._clock()
            if early > 0:
                self._queue.add_after(key, early)
                return
            try:
                await self._send(key, series)
            except KubeError as error:
                self._on_failure(key, series, error)
                return
            self._queue.forget(key)
            series.next_write = self._clock() + series.interval
            series.interval = min(series.interval * 2, _LAST_INTERVAL)
            series.written = count
            if series.count > count:
                self._queue.add_after(key, series.next_write - self._clock())
        self._queue.add_after(key, _WINDOW + 1)  # to drop it if it is not repeated

    def _name_for(self, key: _Key, moment: datetime) -> str:
        """Returns a name that sorts by time, because `kubectl describe` sorts events of this API by name.

        The object's name is cut: it may be as long as the event's name may get.
        """
        when = f"{round(moment.timestamp() * 1e6):014x}{next(self._numbers) % 256:02x}"
        return f"{key.regarding.name[:232].rstrip('-.')}.{when}{secrets.token_hex(2)}"

    async def _send(self, key: _Key, series: _Series) -> None:
        namespace = key.regarding.namespace or "default"
        if not series.written and (await self._create(key, series, namespace) or series.count == 1):
            return
        patch = {"series": {"count": series.count, "lastObservedTime": format_micro_time(series.last_at)}}
        try:
            await self._client.merge_patch(EVENT, ObjectKey(namespace, series.name), patch)
        except NotFound:  # expired on the server: create it again
            series.name = self._name_for(key, series.first_at)
            await self._create(key, series, namespace)

    async def _create(self, key: _Key, series: _Series, namespace: str) -> bool:
        """Creates the event; False if an earlier attempt had created it, perhaps with another count."""
        try:
            await self._client.create(EVENT, self._event(key, series, namespace))
        except AlreadyExists:
            log.debug("event %s is there already: an earlier attempt had arrived", series.name)
            return False
        return True

    def _event(self, key: _Key, series: _Series, namespace: str) -> Resource:
        event: Resource = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"namespace": namespace, "name": series.name},
            "eventTime": format_micro_time(series.first_at),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "action": key.action,
            "reason": key.reason,
            "regarding": _as_object(key.regarding),
            "note": key.note,
            "type": key.type,
        }
        if key.related is not None:
            event["related"] = _as_object(key.related)
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": format_micro_time(series.last_at)}
        return event

    def _on_failure(self, key: _Key, series: _Series, error: KubeError) -> None:
        if is_retryable(error) and (series.vital or self._queue.attempts(key) < _MAX_ATTEMPTS):
            self._queue.retry(key, retry_after_of(error))
            return
        self.failed += 1
        self._queue.forget(key)
        if self._series.get(key) is series:
            self._forget(key)
        kind, name = key.regarding.kind, key.regarding.name
        log.warning("event %s about %s %s was not written: %s", key.reason, kind, name, error)


def _reference(obj: Resource) -> _Reference:
    key = key_of(obj)
    api_version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    return _Reference(api_version, kind, key.namespace, key.name, uid_of(obj))


def _as_object(reference: _Reference) -> Resource:
    fields = ("apiVersion", "kind", "namespace", "name", "uid")
    return {field: value for field, value in zip(fields, reference, strict=True) if value}
