"""The Jobs of a part: how many run at a time (``--max-downloads``), and what caches keep of their pods and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from airunway.kube import EVENT
from airunway.process.caches import Sources
from airunway.process.metrics import Point
from airunway.resource import ObjectKey, Resource, dig, kept, key_of, text_at, uid_of
from airunway.status.evidence import EventFacts, event_facts

_SHARED_FROM = 4
"""Number of slots from which one is kept for a namespace that has none: of fewer it would cost too much."""


class Slots:
    """The slots of one process, by the key of what a Job works for; others wait.

    The next is one of the namespace with the fewest slots, of these the oldest. If there are four and more, no
    namespace takes the last free slot while it has another: a Job may never end, and those of one namespace must not
    stop all others. Example: of 11
    downloads of a namespace with 10 slots nine run. When one gives its slot back, `wake(key)` is called for the oldest
    that waits: it may take one now.
    """

    def __init__(self, most: int, *, wake: Callable[[ObjectKey], None]) -> None:
        self._most = most
        self._wake = wake
        self._holders: set[ObjectKey] = set()
        self._waiting: dict[ObjectKey, tuple[str, str, str]] = {}

    @property
    def most(self) -> int:
        """How many there are."""
        return self._most

    @property
    def running(self) -> int:
        """How many have a slot."""
        return len(self._holders)

    @property
    def queued(self) -> int:
        """How many wait for one."""
        return len(self._waiting)

    def points(self, metric: str) -> Iterator[Point]:
        """How many have a slot, and how many wait for one."""
        yield metric, ("running",), self.running
        yield metric, ("queued",), self.queued

    def clear(self) -> None:
        """Forget everything: another process may have led since."""
        self._holders.clear()
        self._waiting.clear()

    def has(self, key: ObjectKey) -> bool:
        """Whether it has a slot."""
        return key in self._holders

    def claim(self, key: ObjectKey) -> None:
        """Give a slot to what runs already: after a restart there may be more than there are slots."""
        self._waiting.pop(key, None)
        self._holders.add(key)

    def take(self, obj: Resource) -> bool:
        """Take a slot for an object if one is free for its namespace and no other is next; else wait for one."""
        key = key_of(obj)
        if key in self._holders:
            return True
        self._waiting[key] = text_at(obj, "metadata", "creationTimestamp"), *key
        if len(self._holders) >= self._most or key not in self._next():
            return False
        self.claim(key)
        return True

    def give_back(self, key: ObjectKey) -> None:
        """Give a slot back, or stop waiting; those that may take one now are woken."""
        waited = self._waiting.pop(key, None) is not None
        if key not in self._holders and not waited:
            return
        self._holders.discard(key)
        for other in self._next():
            self._wake(other)

    def _next(self) -> list[ObjectKey]:
        """Those that may take a slot now."""
        free, held = self._most - len(self._holders), Counter(key.namespace for key in self._holders)
        waiting: dict[str, list[ObjectKey]] = {}  # by namespace, the oldest last
        for key in sorted(self._waiting, key=lambda each: self._waiting[each], reverse=True):
            waiting.setdefault(key.namespace, []).append(key)
        found: list[ObjectKey] = []
        while free > 0 and waiting:
            namespace = min(waiting, key=lambda each: (held[each], self._waiting[waiting[each][-1]]))
            if free == 1 and held[namespace] and self._most >= _SHARED_FROM:
                break  # so have all others: this one has the fewest
            found.append(waiting[namespace].pop())
            held[namespace] += 1
            free -= 1
            if not waiting[namespace]:
                del waiting[namespace]
        return found


def job_pod(pod: Resource) -> Resource:
    """Returns a pod of a Job without its containers' specs, which are large and known."""
    metadata = pod.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if key not in ("managedFields", "annotations")},
        "spec": kept(pod.get("spec"), "nodeName", "schedulingGates"),
        "status": pod.get("status") or {},
    }


_FACTS = "facts"

_UNKNOWN = "unknown"
"""Key of a cached event: whether what it is about was not there when it came."""

_OF_ONE = 32
"""Number of events about one object: Kubernetes itself counts repetitions in one event."""

_OF_UNKNOWN = 256
"""Number of events of a namespace about objects that are not there."""


class WarningEvents:
    """The warnings about a part's Jobs and what belongs to them; others are dropped when they are decoded. Any user can
    write them: a number is kept about one object, and about those of a namespace that are not there.

    `concerns(kind, name)` says whether an object may be the part's, `find(event)` returns it if it is there, and
    `wakes(event, object)` is called for every change of an event about one that is.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        concerns: Callable[[object, str], object],
        find: Callable[[EventFacts], Resource | None],
        wakes: Callable[[EventFacts, Resource], None],
    ) -> None:
        self._concerns, self._find, self._wakes = concerns, find, wakes
        self.cache = sources.watches(EVENT, project=self._project, wakes=self._on_event, field_selector="type=Warning")
        self._about = self.cache.add_index(lambda event: (_subject(event[_FACTS]),))
        self._unknown = self.cache.add_index(lambda event: (event[_FACTS].namespace,) if event[_UNKNOWN] else ())

    def about(self, objects: Iterable[Resource]) -> Iterator[EventFacts]:
        """The warnings about these objects."""
        for obj in objects:
            key = key_of(obj)
            for event in self._about.get((str(obj.get("kind")), key.namespace, key.name)):
                facts: EventFacts = event[_FACTS]
                if facts.uid in ("", uid_of(obj)):
                    yield facts

    def _project(self, event: Resource) -> Resource | None:
        kind, name = dig(event, "regarding", "kind"), dig(event, "regarding", "name")
        if not isinstance(name, str) or not self._concerns(kind, name):
            return None
        facts = event_facts(event)
        unknown = self._find(facts) is None
        if self.cache.get(key_of(event)) is None and (
            self._about.count(_subject(facts)) >= _OF_ONE
            or (unknown and self._unknown.count(facts.namespace) >= _OF_UNKNOWN)
        ):
            return None
        metadata = kept(event.get("metadata"), "name", "namespace", "uid", "resourceVersion")
        return {"metadata": metadata, _FACTS: facts, _UNKNOWN: unknown}

    def _on_event(self, _key: ObjectKey, _old: Resource | None, event: Resource | None) -> None:
        if event is not None and (found := self._find(event[_FACTS])) is not None:
            self._wakes(event[_FACTS], found)


def _subject(facts: EventFacts) -> tuple[str, str, str]:
    return facts.kind, facts.namespace, facts.name
