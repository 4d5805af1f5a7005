"""Leader election with a ``coordination.k8s.io`` Lease.

It coordinates, but does not fence: a leader whose process is suspended and resumed may still finish a request. Every
write of this project is idempotent, so that is harmless.

The clocks of other machines are never compared with ours. A lease has expired when *we* have observed no change of it
for its duration, on a monotonic clock; the times inside the lease are for people.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from airunway.kube.client import Client
from airunway.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound
from airunway.kube.kinds import LEASE
from airunway.resource import ObjectKey, Resource, dig

log = logging.getLogger(__name__)

REFUSED_AFTER = 30.0
"""Seconds for which the API server must forbid a lease until that counts as a missing right."""


def steady_clock() -> float:
    """Seconds of a monotonic clock that, if the system has one, also runs while the machine is suspended."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


def format_micro_time(moment: datetime) -> str:
    """Returns RFC 3339 in UTC with microseconds, the format of ``metav1.MicroTime``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaderElector:
    """Holds, or waits for, the lease `namespace`/`name` as `identity`, which must be unique among processes.

    A holder renews every `retry_period` seconds, and stops leading if it could not renew for `renew_deadline` seconds.
    Others take over if they have observed no renewal for `lease_duration` seconds. `on_change(leading)` is called at
    every change. The holder sets `labels` and `annotations` on the lease.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        on_change: Callable[[bool], None] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        clock: Callable[[], float] = steady_clock,
        rng: random.Random | None = None,
    ) -> None:
        if not identity:
            raise ValueError("a leader needs an identity")
        if not 0 < retry_period < renew_deadline < lease_duration:
            raise ValueError(
                f"need retry_period < renew_deadline < lease_duration, "
                f"got {retry_period}, {renew_deadline}, {lease_duration}"
            )
        self.identity = identity
        self.on_change = on_change
        self.leading = False
        self.problem: str | None = None
        """Why the newest attempt to hold the lease failed; None if the lease could be read and, if free, written."""
        self._client = client
        self._key = ObjectKey(namespace, name)
        self._duration, self._deadline, self._period = lease_duration, renew_deadline, retry_period
        self._metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        self._clock = clock
        self._rng = rng or random.Random()
        self._lease: Resource | None = None  # as last read or written
        self._seen_at = 0.0  # when it last changed, by our clock
        self._renewed_at = 0.0
        self._forbidden_since: float | None = None

    @property
    def refused(self) -> bool:
        """Whether a right is missing: every attempt of the last `REFUSED_AFTER` seconds was forbidden."""
        return self._forbidden_since is not None and self._clock() - self._forbidden_since >= REFUSED_AFTER

    @property
    def holder(self) -> str:
        """The holder in the lease as last read; empty if it has none."""
        return str(dig(self._lease, "spec", "holderIdentity", default=""))

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease, runs `lead` while holding it, and starts over when the lease is lost.

        When the lease is lost, `lead` is cancelled at once. When `run` itself is cancelled, or `lead` returns or
        raises, the lease is kept until `lead` has ended and is then released, so that another process takes over
        without delay.
        """
        while True:
            await self._acquire()
            if await self._reign(lead):
                return

    async def _reign(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Leads until the lease is lost or `lead` has ended; returns True for the latter."""
        self._set_leading(True)
        work = asyncio.create_task(_started(lead))
        renewing = asyncio.create_task(self._renew(), name=f"renew lease {self._key}")
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            lost = renewing.done() and not work.done()
            if lost:
                self._set_leading(False)
                other = self.holder not in ("", self.identity)
                why = f"{self.holder} holds it now" if other else "it could not be renewed in time"
                log.error("lost the lease %s: %s; standing by", self._key, why)
        finally:
            work.cancel()
            try:
                await asyncio.wait({work})
            finally:
                renewing.cancel()
                await asyncio.wait({renewing})
                if self.leading:
                    self._set_leading(False)
                    await self._release()
        if lost:
            if not work.cancelled() and work.exception() is not None:
                log.error("%s: stopping raised", self._key, exc_info=work.exception())
            return False
        await work
        return True

    async def _acquire(self) -> None:
        log.info("%s waits for the lease %s", self.identity, self._key)
        while not await self._attempt():
            await asyncio.sleep(self._period * self._rng.uniform(0.8, 1.1))
        log.info("%s holds the lease %s", self.identity, self._key)

    async def _renew(self) -> None:
        """Renews the lease; returns when that is no longer possible."""
        while (left := self._renewed_at + self._deadline - self._clock()) > 0:
            await asyncio.sleep(min(self._period, left))
            if not await self._attempt() and self.holder != self.identity:
                return

    async def _attempt(self) -> bool:
        """Tries once to acquire or renew; returns whether we hold the lease. Never raises, never hangs."""
        started = self._clock()
        limit = self._deadline / 2
        if self.leading:
            limit = min(limit, self._renewed_at + self._deadline - started)
        try:
            async with asyncio.timeout(limit):
                ours = await self._take()
        except (KubeError, TimeoutError) as error:
            self._failed(error)
            return False
        self.problem = self._forbidden_since = None
        if ours:
            self._renewed_at = started  # the time of the request, so that it is never later than the server's view
        return ours

    def _failed(self, error: KubeError | TimeoutError) -> None:
        """Keeps the error, and logs it unless the attempt before failed with the same one."""
        if not isinstance(error, Forbidden):
            self._forbidden_since = None
        elif self._forbidden_since is None:
            self._forbidden_since = self._clock()
        problem = f"lease {self._key}: {str(error) or 'the API server did not answer in time'}"
        log.log(logging.DEBUG if problem == self.problem else logging.WARNING, "%s", problem)
        self.problem = problem

    async def _take(self) -> bool:
        lease = self._lease if self.leading else None
        if lease is None:
            lease = await self._client.find(LEASE, self._key)
            if lease is None:
                return await self._create()
            self._observe(lease)
        if self.holder not in ("", self.identity) and not self._has_expired():
            return False
        try:
            self._observe(await self._client.replace(LEASE, self._claimed(lease)))
        except (Conflict, NotFound):  # another process wrote the lease: read the new holder
            live = await self._client.find(LEASE, self._key)
            if live is None:  # deleted: the process that creates it holds it
                self._lease = None
                return await self._create()
            self._observe(live)
            return False
        return True

    async def _create(self) -> bool:
        lease: Resource = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": self._key.namespace, "name": self._key.name},
        }
        try:
            self._observe(await self._client.create(LEASE, self._claimed(lease)))
        except AlreadyExists:
            return False
        return True

    def _claimed(self, lease: Resource) -> Resource:
        spec = dict(lease.get("spec") or {})
        now = format_micro_time(datetime.now(UTC))
        if spec.get("holderIdentity") != self.identity:
            # A new holder counts as a transition, except the first one.
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if spec else 0)
            spec["acquireTime"] = now
        spec |= {"holderIdentity": self.identity, "leaseDurationSeconds": round(self._duration) or 1, "renewTime": now}
        metadata = dict(lease["metadata"])
        for field, ours in self._metadata.items():
            if ours:
                metadata[field] = {**(metadata.get(field) or {}), **ours}
        return {**lease, "metadata": metadata, "spec": spec}

    def _observe(self, lease: Resource) -> None:
        if self._lease is None or self._lease.get("spec") != lease.get("spec"):
            self._seen_at = self._clock()
        self._lease = lease

    def _has_expired(self) -> bool:
        duration = dig(self._lease, "spec", "leaseDurationSeconds")
        seconds = float(duration) if isinstance(duration, int) and duration > 0 else self._duration
        return self._clock() - self._seen_at >= seconds

    async def _release(self) -> None:
        """Releases the lease if possible, so that others need not wait until it expires."""
        if self._lease is None or self.holder != self.identity:
            return
        spec = {
            **self._lease["spec"],
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": format_micro_time(datetime.now(UTC)),
        }
        try:
            async with asyncio.timeout(self._period):
                self._observe(await self._client.replace(LEASE, {**self._lease, "spec": spec}))
        except (KubeError, TimeoutError) as error:
            log.warning("lease %s could not be released: %s", self._key, str(error) or "no answer in time")
        else:
            log.info("%s released the lease %s", self.identity, self._key)

    def _set_leading(self, leading: bool) -> None:
        self.leading = leading
        if self.on_change is not None:
            self.on_change(leading)


async def _started(lead: Callable[[], Awaitable[None]]) -> None:
    """Calls `lead` inside of the task: if the call itself raises, the lease is released as after any failure."""
    await lead()
