"""Reads from registries which program an image runs, beside the passes of templates: a slow registry delays none.

Example: a pass that is about to ask an image finds no entrypoint known, and asks for it; once it is read, or is known
not to be readable, the template is woken. Nothing is read for templates that ask no image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from airunway.configs.resolution import CABundle
from airunway.kube import Client, KubeError
from airunway.redaction import bounded
from airunway.resource import ObjectKey
from airunway_catalogue.addresses import address_of, image_of
from airunway_catalogue.discovery import Entrypoint
from airunway_catalogue.pull_secrets import read_authorities, read_credentials
from airunway_catalogue.registry import Limits, Registry
from airunway_catalogue.registry_errors import Denied, RegistryError

log = logging.getLogger(__name__)

KEPT = 60.0
"""Seconds for which an answer holds: a try uses it at once, and the next try comes no sooner."""

MOST_KEPT = 256
"""Answers that are kept; the oldest goes first."""

READ_TIME = 20.0
"""Seconds that one reading may take, with the registry's token server and redirects."""

_LIMITS = Limits(connect=5, request=10)
_LONGEST_WHY = 300


@dataclass(frozen=True, kw_only=True)
class KnownRegistry:
    """What ModelSources, which administrators write, say of a registry."""

    trusted: bool = False
    """Whether one names it."""
    insecure: bool = False
    """Whether one says that it speaks plain HTTP."""
    authorities: CABundle | None = None
    """What one says it is trusted by, besides the public authorities."""


@dataclass(frozen=True, kw_only=True)
class AskedImage:
    """One question."""

    image: str
    """The reference of the image."""
    secrets: tuple[str, ...] = ()
    """Pull Secrets in the operator's namespace. Those of other namespaces are not read."""


@dataclass(kw_only=True)
class _Reading:
    task: asyncio.Task[None] | None = None
    found: Entrypoint | None = None
    """None while it is being read."""
    until: float = 0.0
    """When the answer no longer holds."""
    waiting: set[ObjectKey] = field(default_factory=set)
    """Templates that are woken then."""


class Entrypoints:
    """The entrypoints of images, as far as they were asked for.

    `registry_of(host)` says what is known of a registry, and `wake(key)` brings the next pass of a template.
    """

    def __init__(
        self,
        *,
        client: Client,
        home: str,
        registry_of: Callable[[str], KnownRegistry],
        wake: Callable[[ObjectKey], None],
        limits: Limits | None = None,
        read_time: float = READ_TIME,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self._home = home
        self._registry_of = registry_of
        self._wake = wake
        self._limits = limits or _LIMITS
        self._read_time = read_time
        self._clock = clock
        self._readings: dict[AskedImage, _Reading] = {}
        self.reads = 0
        """Readings that have begun in this process."""

    def known(self, asked: AskedImage, *, began: bool) -> Entrypoint | None:
        """The answer, if there is one that holds. For a try that `began` with it, it holds until the Job is made."""
        reading = self._readings.get(asked)
        return reading.found if reading is not None and (began or reading.until > self._clock()) else None

    def ask(self, asked: AskedImage, *, template: ObjectKey) -> None:
        """Read the entrypoint, and wake the template then. Readings of one image are one."""
        reading = self._readings.get(asked)
        if reading is None or reading.task is None:
            self._readings.pop(asked, None)
            while len(self._readings) >= MOST_KEPT and (old := self._oldest()) is not None:
                del self._readings[old]
            reading = self._readings[asked] = _Reading()
            reading.task = asyncio.create_task(self._read(asked, reading), name=f"entrypoint of {asked.image}")
            self.reads += 1
        reading.waiting.add(template)

    def stop(self) -> None:
        """End what is being read, and forget the rest: another process leads."""
        for reading in self._readings.values():
            if reading.task is not None:
                reading.task.cancel()
        self._readings.clear()

    def _oldest(self) -> AskedImage | None:
        return next((asked for asked, reading in self._readings.items() if reading.task is None), None)

    async def _read(self, asked: AskedImage, reading: _Reading) -> None:
        try:
            words = await self._entrypoint(asked)
        except RegistryError as error:
            found = Entrypoint(why=bounded(f"{error.reason}: {error.message}", _LONGEST_WHY))
        except KubeError:
            log.warning("the pull Secrets for %s could not be read", asked.image, exc_info=True)
            found = Entrypoint(why="the API server did not answer the question for a pull Secret")
        except Exception:
            log.exception("the entrypoint of %s could not be read", asked.image)
            found = Entrypoint(why="an error of the catalogue, which is in its log")
        else:
            found = Entrypoint(words=words)
        reading.found, reading.until, reading.task = found, self._clock() + KEPT, None
        waiting, reading.waiting = reading.waiting, set()
        for template in waiting:
            self._wake(template)

    async def _entrypoint(self, asked: AskedImage) -> tuple[str, ...]:
        """Raises RegistryError and KubeError."""
        image = image_of(asked.image)
        if image is None:
            raise RegistryError("InvalidSpec", "the image is no reference such as registry.example/team/image:tag")
        known = self._registry_of(image.host)
        address = address_of(image.host, insecure=known.insecure)
        repository = address.repository(image.repository)
        credentials, trouble = None, None
        try:
            credentials = await read_credentials(
                self._client, asked.secrets, namespace=self._home, host=address.host, folder=image.repository
            )
        except Denied as error:  # of an image that anyone may read it is no trouble
            trouble = error
        authorities = await read_authorities(self._client, known.authorities, namespace=self._home)
        registry = Registry(
            address,
            credentials=credentials,
            limits=self._limits,
            trusted=known.trusted,
            authorities=authorities,
        )
        try:
            async with asyncio.timeout(self._read_time), registry:
                return await registry.entrypoint(repository, image.version)
        except TimeoutError:
            raise RegistryError("Timeout", f"{address.host} did not answer within {self._read_time:g} s") from None
        except Denied as error:
            raise trouble or error from None
