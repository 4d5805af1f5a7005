"""Reconciles one ModelSource: scans its registry when that is due, makes ClusterModelTemplates, writes the status.

A pass without a scan computes the status anew, and gives what was made its labels. Nothing else of that is ever changed
or deleted here, and it has no owner: it stays when the source goes. Of many sources of one registry some wait for their
turn (`Turns`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from airunway.configs.resolution import Resolution
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE
from airunway.kube import (
    AlreadyExists,
    BadRequest,
    Client,
    Conflict,
    EventRecorder,
    Forbidden,
    Index,
    Invalid,
    MutationCache,
    NotFound,
    StatusWriter,
    soonest,
)
from airunway.owned.writer import NEVER
from airunway.redaction import bounded
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    is_deleting,
    key_of,
    label_value,
    labels_by,
    labels_of,
    uid_of,
)
from airunway.status.conditions import is_paused
from airunway_catalogue.crawl import Crawl, Full
from airunway_catalogue.credentials import Credentials
from airunway_catalogue.labels import ImageLabels
from airunway_catalogue.metrics import Scans
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.pull_secrets import read_authorities, read_credentials
from airunway_catalogue.registry import Limits, Registry
from airunway_catalogue.registry_errors import Denied, RegistryError
from airunway_catalogue.scan import (
    MODEL_SOURCE_LABEL,
    Image,
    SourcePlan,
    complete_images,
    labels_of_made,
    not_for,
    plan_of,
    templates_of,
)
from airunway_catalogue.source_status import (
    SCAN_READY,
    FilterResult,
    Scan,
    due_in,
    last_scan,
    next_scan,
    status_of,
)

log = logging.getLogger(__name__)

PER_REGISTRY = 2
"""Scans of one registry at a time: sources of a slow one leave workers for the others."""

SCAN_TIME = 600.0
"""Seconds that one scan may take."""


class SourceReconciler:
    """Reconciles ModelSources.

    - `sources` and `templates` are the caches of ModelSources and ClusterModelTemplates; `made` is an index of the
      latter by `scan.made_from`.
    - `resolve(source)` is the runtime config that a source follows, with the operator's namespace for its own.
    - `namespace` is the operator's: pull Secrets are read there, by name.
    - `wake(key)` is called for a source whose turn has come.
    - `events` is None where the account may not write events of cluster-scoped objects.
    """

    def __init__(
        self,
        *,
        client: Client,
        sources: MutationCache,
        templates: MutationCache,
        made: Index,
        resolve: Callable[[Resource], Resolution],
        namespace: str,
        wake: Callable[[ObjectKey], None],
        events: EventRecorder | None,
        scans: Scans,
        clock: Callable[[], datetime],
        limits: Limits | None = None,
    ) -> None:
        self._client = client
        self._sources = sources
        self._templates = templates
        self._made = made
        self._resolve = resolve
        self._namespace = namespace
        self._events = events
        self._scans = scans
        self._clock = clock
        self._limits = limits
        self._status = StatusWriter(client=client, kind=MODEL_SOURCE, objects=sources, manager=CATALOGUE_MANAGER)
        self._turns = Turns(most=PER_REGISTRY, wake=wake)
        self._recent: dict[str, set[str]] = {}
        """Names of templates that were made from a source and that the watch has not delivered yet, by its label."""
        self.scans = 0
        """Scans that have begun in this process."""

    def forget(self, key: ObjectKey) -> None:
        """Release what is remembered of a source that does not scan now."""
        self._turns.leave(key)

    def clear(self) -> None:
        """Forget all that waits: a new leader looks at every source anyway."""
        self._turns.clear()

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one source; returns the seconds until the next pass, or None. Raises KubeError for a transient
        failure of the API server: the queue retries. A failure of the registry is in the status.
        """
        source = self._sources.get(key)
        if source is None or is_deleting(source):
            self.forget(key)
            return None
        if is_paused(source):
            self.forget(key)
            return None
        resolution = self._resolve(source)
        scan = last_scan(source)
        if due_in(source, now=self._clock()) == 0 and not resolution.missing:
            host = plan_of(source).address.host
            if not self._turns.take(key, host):
                if scan is None:
                    await self._report(key, source, scan=None, progress="Queued")
                return None
            try:
                scan = await self._scan(key, source, resolution)
            finally:
                self._turns.give_back(host)
        else:
            self.forget(key)
        if not resolution.missing:
            await self._label(source, resolution)
        wake_after = await self._report(key, source, scan=scan)
        if scan is None or resolution.missing:  # the config's watch brings the next pass
            return wake_after
        return soonest(wake_after, max(1.0, (scan.following - self._clock()).total_seconds()))

    # ------------------------------------------------------------------------------------------------------------ scan

    async def _scan(self, key: ObjectKey, source: Resource, resolution: Resolution) -> Scan:
        """One scan, from its beginning to its result; makes the templates on its way."""
        self.scans += 1
        plan, before, started = plan_of(source), last_scan(source), monotonic()
        if before is None:
            await self._report(key, source, scan=None, progress="Starting")

        async def on_progress() -> None:
            if before is None:
                await self._report(key, source, scan=None, progress="Progressing")

        made = _Made(self, source, plan, resolution)
        results: Sequence[FilterResult] = ()
        notes: list[str] = []
        retry_after, missing = None, ""
        try:
            credentials = await self._credentials(plan)
            authorities = await read_authorities(self._client, plan.authorities, namespace=self._namespace)
            async with Registry(
                plan.address, credentials=credentials, limits=self._limits, authorities=authorities
            ) as registry:
                crawl = Crawl(registry, plan, known=made.complete, make=made.make, on_progress=on_progress)
                try:
                    async with asyncio.timeout(SCAN_TIME):
                        await crawl.run()
                except TimeoutError:
                    crawl.time_is_up(SCAN_TIME)
            results, notes, retry_after = crawl.in_order(), crawl.notes, crawl.retry_after
        except RegistryError as error:
            results = _all_failed(plan, error)
        except _NotServed as error:
            missing = str(error)
        now = self._clock()
        scan = Scan(
            filters=tuple(results),
            notes="; ".join(notes),
            generation=dig(source, "metadata", "generation", default=0),
            ended=now,
            following=next_scan(results, before=before, interval=plan.interval, retry_after=retry_after, now=now),
            missing=missing,
        )
        self._scans.note(scan, seconds=monotonic() - started)
        log.info(
            "%s: scanned: %d templates made, %d filters failed", key, made.new, sum(bool(r.reason) for r in results)
        )
        if self._events is not None and made.new:
            note = f"{made.new} ClusterModelTemplates were made from images of {plan.address.name}"
            self._events.emit(_named(source), reason="TemplatesMade", note=note, action="Scan")
        return scan

    async def _credentials(self, plan: SourcePlan) -> Credentials | None:
        """The credentials of the source's pull Secrets, which are read by name. Raises Denied."""
        return await read_credentials(
            self._client,
            plan.secrets,
            namespace=self._namespace,
            host=plan.address.host,
            folder=plan.address.folder,
        )

    def made_by(self, source: Resource) -> list[Resource]:
        """The templates that were made from a source, as far as the watch has delivered them."""
        return list(self._made.get(label_value(key_of(source).name)))

    def find(self, name: str) -> Resource | None:
        """A ClusterModelTemplate."""
        return self._templates.get(ObjectKey("", name))

    async def create(self, template: Resource) -> str:
        """Create a template if there is none of its name; returns why it cannot be created, or an empty text."""
        # A resourceVersion that no object has: what exists is not changed.
        body = {**template, "metadata": {**template["metadata"], "resourceVersion": NEVER}}
        with self._templates.writing(key_of(template)):
            try:
                answer = await self._client.apply(CLUSTER_MODEL_TEMPLATE, body, manager=CATALOGUE_MANAGER)
            except (Conflict, AlreadyExists):
                return ""
            except NotFound as error:
                raise _NotServed from error
            except Forbidden as error:
                text = f"the API server refuses ClusterModelTemplates to the catalogue: {error.message}"
                raise Denied("Forbidden", bounded(text, 256)) from None
            except (Invalid, BadRequest) as error:
                return bounded(f"the API server refuses its template: {error.message}", 256)
            self._templates.note(answer)
        self._recent.setdefault(template["metadata"]["labels"][MODEL_SOURCE_LABEL], set()).add(key_of(template).name)
        return ""

    async def _label(self, source: Resource, resolution: Resolution) -> None:
        """Give the templates that the catalogue made from a source the labels that its config propagates now, and take
        back those that it no longer does. Labels of others stay.
        """
        wanted = labels_of_made(source, resolution.config)
        for template in self.made_by(source):
            live, key, ours = labels_of(template), key_of(template), labels_by(template, CATALOGUE_MANAGER)
            change: dict[str, str | None] = {name: each for name, each in wanted.items() if live.get(name) != each}
            change |= dict.fromkeys((ours & live.keys()) - wanted.keys())
            if not change or MODEL_SOURCE_LABEL not in ours:
                continue
            version = template["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "labels": change}}
            with self._templates.writing(key), suppress(Conflict, NotFound):  # it has changed: the watch says how
                answer = await self._client.merge_patch(CLUSTER_MODEL_TEMPLATE, key, patch, manager=CATALOGUE_MANAGER)
                self._templates.note(answer)

    # ---------------------------------------------------------------------------------------------------------- status

    async def _report(self, key: ObjectKey, seen: Resource, *, scan: Scan | None, progress: str = "") -> float | None:
        """Write the status of the source as it is now; returns after how many seconds time alone changes it."""
        source = self._sources.get(key)
        for attempt in range(_ATTEMPTS):
            if source is None or is_deleting(source) or uid_of(source) != uid_of(seen):
                return None
            status, wake_after = status_of(
                source,
                scan=scan,
                progress=progress,
                models=len(self._names_of(source)),
                resolution=self._resolve(source),
                now=self._clock(),
            )
            try:
                if await self._status.write(source, status) and scan is not None:
                    self._announce(source, status)
            except Conflict:
                # A scan is not repeated because a label of the source was edited meanwhile.
                if attempt == _ATTEMPTS - 1:
                    raise
                source = await self._client.find(MODEL_SOURCE, key)
            else:
                return wake_after
        return None

    def _announce(self, source: Resource, status: Resource) -> None:
        """An event where scans begin to fail, or fail for another reason."""
        before, after = (condition_of(each, SCAN_READY) or {} for each in (source, {"status": status}))
        failed = after.get("status") == "False"
        if (
            self._events is not None
            and failed
            and (before.get("status"), before.get("reason")) != ("False", after["reason"])
        ):
            note = f"{after['reason']}: {after['message']}"
            self._events.emit(_named(source), reason="ScanFailed", note=note, warning=True, action="Scan")

    def _names_of(self, source: Resource) -> set[str]:
        """The names of the templates that were made from a source, those of the last moment too."""
        label = label_value(key_of(source).name)
        found = {key_of(template).name for template in self.made_by(source)}
        recent = {name for name in self._recent.pop(label, ()) if name not in found and self.find(name) is not None}
        if recent:
            self._recent[label] = recent
        return found | recent


_ATTEMPTS = 3


class _NotServed(Exception):
    """The cluster has no ClusterModelTemplates."""

    def __str__(self) -> str:
        return "the cluster does not serve ClusterModelTemplates: install the CRDs (airunway crds)"


def _named(source: Resource) -> Resource:
    """A source with the kind that lists leave out."""
    return {**source, "apiVersion": MODEL_SOURCE.api_version, "kind": MODEL_SOURCE.kind}


def _all_failed(plan: SourcePlan, error: RegistryError) -> Sequence[FilterResult]:
    return [
        FilterResult(image=each.image, reason=each.reason or error.reason, message=each.message or error.message)
        for each in plan.filters
    ]


class _Made:
    """What a scan makes."""

    def __init__(
        self, reconciler: SourceReconciler, source: Resource, plan: SourcePlan, resolution: Resolution
    ) -> None:
        self._reconciler = reconciler
        self._source = source
        self._plan = plan
        self._config = resolution.config
        there = reconciler.made_by(source)
        self._count = len(there)
        self.complete = complete_images(there)
        """Images of which nothing is to be made."""
        self.new = 0
        """Templates that were made."""

    async def make(self, image: Image, found: ImageLabels) -> str:
        """Make the templates of an image that are not there; all of them or none. Raises Full, Denied, KubeError."""
        if why := not_for(image, found, self._source):
            return why
        wanted = templates_of(image, found, source=self._source, config=self._config)
        new = [each for each in wanted if self._reconciler.find(key_of(each).name) is None]
        if new and self._count + len(new) > self._plan.max_models:
            raise Full
        self._count += len(new)  # before the first write: other images are made at the same time
        troubles = []
        for template in new:
            trouble = await self._reconciler.create(template)
            if trouble:
                troubles.append(trouble)
                self._count -= 1
            else:
                self.new += 1
        return "; ".join(dict.fromkeys(troubles))


class Turns:
    """The scans of each registry, of which `most` run at a time.

    `wake(key)` is called for a source whose turn has come: its next pass calls `take` or `leave`.
    """

    def __init__(self, *, most: int, wake: Callable[[ObjectKey], None]) -> None:
        self._most = most
        self._wake = wake
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, dict[ObjectKey, None]] = {}
        self._woken: dict[ObjectKey, str] = {}
        """The registry at which the turn of a source has come, until its next pass."""

    def take(self, key: ObjectKey, host: str) -> bool:
        """Whether a source scans a registry now; if not, it waits there. Elsewhere it waits no more."""
        self._depart(key, but=host)
        if self._running[host] >= self._most:
            self._waiting.setdefault(host, {})[key] = None
            return False
        self._forget(key, host)
        self._running[host] += 1
        return True

    def give_back(self, host: str) -> None:
        """A scan of the registry has ended: the turn of the source that waits the longest comes."""
        self._running[host] -= 1
        if not self._running[host]:
            del self._running[host]
        self._wake_next(host)

    def leave(self, key: ObjectKey) -> None:
        """A source does not scan now, and waits nowhere. A turn that it had is that of the next one."""
        self._depart(key, but=None)

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()
        self._woken.clear()

    def _depart(self, key: ObjectKey, *, but: str | None) -> None:
        for host in [host for host, waiting in self._waiting.items() if host != but and key in waiting]:
            self._forget(key, host)
        turn = self._woken.pop(key, None)
        if turn is not None and turn != but:
            self._wake_next(turn)

    def _wake_next(self, host: str) -> None:
        waiting = self._waiting.get(host)
        if waiting and self._running[host] < self._most:
            first = next(iter(waiting))
            self._forget(first, host)
            self._woken[first] = host
            self._wake(first)

    def _forget(self, key: ObjectKey, host: str) -> None:
        waiting = self._waiting.get(host, {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(host, None)
