"""Reads a registry for a source: which images its filters select, and what their labels say.

Images come one after the other, with some read ahead, so that a registry with a hundred thousand tags takes no more
memory than their names. What is wrong with one image never hides the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from airunway_catalogue.labels import ImageLabels, read_labels
from airunway_catalogue.registry import Registry
from airunway_catalogue.registry_errors import BadAnswer, Denied, Missing, RegistryError, ServerFailed, Unreachable
from airunway_catalogue.scan import FilterPlan, Image, SourcePlan
from airunway_catalogue.source_status import FilterResult

Make = Callable[[Image, ImageLabels], Awaitable[str]]
"""Makes the templates of an image; returns what hinders it, or an empty text. Raises Full if no more may be made."""

_AHEAD = 8
"""Images that are read at a time."""

_WRITES = 4
"""Images of which templates are made at a time."""

_MOST_SERVER_FAILURES = 3
"""Images that fail with 5xx before the rest of a filter is given up."""

_SHOWN = 3


class Full(Exception):
    """No more templates may be made."""


@dataclass(kw_only=True)
class _Progress:
    """What became of one filter so far."""

    found: int = 0
    """Images that could be read, or need not be."""
    server_failures: int = 0
    error: RegistryError | None = None
    """Why the filter failed, at least in part."""
    image_error: RegistryError | None = None
    """The first failure of a single image or repository; it counts if nothing else was found."""
    passed_over: list[str] = field(default_factory=list)
    passed: int = 0

    def pass_over(self, what: str, why: str) -> None:
        self.passed += 1
        if len(self.passed_over) < _SHOWN:
            self.passed_over.append(f"{what}: {why}")


class Crawl:
    """One scan of one source. `known` are images of which nothing has to be read any more; `make` gets the others.

    `on_progress()` is called once, when the registry has named the first image.
    """

    def __init__(
        self,
        registry: Registry,
        plan: SourcePlan,
        *,
        known: Iterable[str],
        make: Make,
        on_progress: Callable[[], Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._plan = plan
        self._done = set(known)
        self._make = make
        self._on_progress = on_progress
        self._progressing = False
        self._repositories: list[str] | RegistryError | None = None
        self._down: Unreachable | None = None
        self._skipped = 0
        self._current = 0
        self.full = False
        """Whether the limit of the source was reached before all images were made."""
        self.retry_after: float | None = None
        """The longest time that the registry asks to wait, in seconds."""
        self.results: dict[int, FilterResult] = {}
        """What each filter found so far, by its position."""
        self.notes: list[str] = []
        """What has to be known and is no failure."""

    async def run(self) -> None:
        """Scan filter after filter. A failure of one is in its result, and the others are scanned as well."""
        for plan in self._plan.filters:
            progress = _Progress()
            self._current = plan.position
            try:
                await self._filter(plan, progress)
            finally:  # what was found until the time was up counts, too
                self.results[plan.position] = self._result(plan, progress)
        if self.full:
            self.notes.append(
                f"maxModels is reached: {self._plan.max_models} templates; {self._skipped} more images were found, of "
                "which none is made: raise spec.maxModels, or select fewer in spec.filters"
            )

    async def _filter(self, plan: FilterPlan, progress: _Progress) -> None:
        if plan.reason:
            return
        if self._down is not None:
            progress.error = self._down
            return
        try:
            async with (
                aclosing(self._images(plan, progress)) as images,
                aclosing(self._read(images, progress)) as read,
            ):
                await self._take(read, progress)
        except Unreachable as error:
            self._down = error
            self._fail(progress, error)
        except RegistryError as error:
            self._fail(progress, error)

    def _fail(self, progress: _Progress, error: RegistryError) -> None:
        progress.error = error
        if error.retry_after is not None:
            self.retry_after = max(self.retry_after or 0.0, error.retry_after)

    async def _take(self, read: AsyncGenerator[tuple[Image, ImageLabels | RegistryError]], progress: _Progress) -> None:
        """Make the templates of the images that could be read, of some images at a time."""
        writes: deque[asyncio.Task[None]] = deque()
        try:
            async for image, found in read:
                if not isinstance(found, ImageLabels):
                    self._unread(image, found, progress)
                    continue
                progress.found += 1
                writes.append(asyncio.create_task(self._make_one(image, found, progress)))
                if len(writes) >= _WRITES:
                    await writes.popleft()
        except RegistryError:
            await _drained(writes)  # what was read before the failure is made
            raise
        else:
            await _drained(writes)
        finally:
            for task in writes:
                task.cancel()
            await asyncio.gather(*writes, return_exceptions=True)

    async def _make_one(self, image: Image, found: ImageLabels, progress: _Progress) -> None:
        if self.full:
            self._skipped += 1
            return
        try:
            trouble = await self._make(image, found)
        except Full:
            self.full = True
            self._skipped += 1
            return
        self._done.add(image.reference)
        for problem in (*found.problems, *((trouble,) if trouble else ())):
            progress.pass_over(image.label, problem)

    def _unread(self, image: Image, error: RegistryError, progress: _Progress) -> None:
        """Note that an image could not be read. Raises the error if the next ones need not be tried."""
        if isinstance(error, ServerFailed):
            self._fail(progress, error)
            progress.server_failures += 1
            if progress.server_failures >= _MOST_SERVER_FAILURES:
                raise error
        elif isinstance(error, Missing) or (isinstance(error, BadAnswer) and error.image):
            progress.pass_over(image.label, error.message)
            progress.image_error = progress.image_error or error
        else:
            raise error

    async def _read(
        self, images: AsyncGenerator[Image], progress: _Progress
    ) -> AsyncGenerator[tuple[Image, ImageLabels | RegistryError]]:
        """The labels of images that have to be read, some at a time, in the order of the images."""
        ahead: deque[tuple[Image, asyncio.Task[ImageLabels | RegistryError]]] = deque()
        try:
            async for image in images:
                if not self._progressing:
                    self._progressing = True
                    await self._on_progress()
                if image.reference in self._done:
                    progress.found += 1
                    continue
                if self.full:
                    progress.found += 1
                    self._skipped += 1
                    continue
                ahead.append((image, asyncio.create_task(self._labels(image))))
                if len(ahead) >= _AHEAD:
                    first, task = ahead.popleft()
                    yield first, await task
            while ahead:
                first, task = ahead.popleft()
                yield first, await task
        finally:
            for _, task in ahead:
                task.cancel()
            await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)

    async def _labels(self, image: Image) -> ImageLabels | RegistryError:
        try:
            labels, digest = await self._registry.labels(image.repository, image.tag)
            return replace(read_labels(labels), digest=digest)
        except RegistryError as error:
            return error

    # ------------------------------------------------------------------------------------------ which images there are

    async def _images(self, plan: FilterPlan, progress: _Progress) -> AsyncGenerator[Image]:
        address, left = self._plan.address, self._registry.limits.names
        for name in await self._names(plan):
            repository = address.repository(name)
            tags: list[str] = []
            try:
                async with aclosing(self._registry.tags(repository)) as found:
                    async for tag in found:
                        if len(tags) >= left:
                            self.notes.append(f"filter {plan.image}: it has more tags than {_limit(self._registry)}")
                            break
                        tags.append(tag)
            except (Denied, Missing) as error:
                if not plan.wildcard:
                    raise
                progress.pass_over(name, error.message)  # a registry may list repositories that are not for everyone
                progress.image_error = progress.image_error or error
                continue
            left -= len(tags)
            for tag in plan.tags(tags):
                yield Image(name=name, repository=repository, tag=tag, reference=f"{address.name}/{name}:{tag}")

    async def _names(self, plan: FilterPlan) -> list[str]:
        """The images that a filter selects by name. The registry is asked for its repositories once a scan."""
        if not plan.wildcard:
            return [plan.image] if plan.selects(plan.image) else []
        if self._repositories is None:
            try:
                self._repositories = await self._all()
            except RegistryError as error:
                if not isinstance(error, Unreachable):
                    error.message += "; it was asked for a list of all repositories: name images without * and ?"
                self._repositories = error
        if isinstance(self._repositories, RegistryError):
            raise self._repositories
        images = (self._plan.address.image(each) for each in self._repositories)
        return sorted(image for image in images if image is not None and plan.selects(image))

    async def _all(self) -> list[str]:
        limit = self._registry.limits.names
        found = [each async for each in self._registry.repositories()]
        if len(found) > limit:
            self.notes.append(f"the registry has more repositories than {_limit(self._registry)}")
        return found[:limit]

    # ---------------------------------------------------------------------------------------------------------- result

    def _result(self, plan: FilterPlan, progress: _Progress) -> FilterResult:
        if progress.passed:
            more = f"; and {progress.passed - len(progress.passed_over)} more" if progress.passed > _SHOWN else ""
            self.notes.append(f"filter {plan.image}: {'; '.join(progress.passed_over)}{more}")
        if plan.reason:
            return FilterResult(image=plan.image, reason=plan.reason, message=plan.message)
        error = progress.error or (progress.image_error if not progress.found else None)
        return FilterResult(
            image=plan.image,
            found=progress.found,
            reason=error.reason if error is not None else "",
            message=error.message if error is not None else "; ".join(progress.passed_over),
        )

    def in_order(self) -> tuple[FilterResult, ...]:
        """The results by the position of their filter."""
        return tuple(self.results[position] for position in sorted(self.results))

    def time_is_up(self, seconds: float) -> None:
        """The results after `run` was cancelled: the filters that were not read to the end have failed."""
        for plan in self._plan.filters:
            known = self.results.get(plan.position)
            if plan.reason or (known is not None and plan.position != self._current):
                self.results[plan.position] = known or self._result(plan, _Progress())
                continue
            text = f"{self._plan.address.host} was not read within {seconds:g} s: select fewer images"
            found = known.found if known is not None else 0
            self.results[plan.position] = FilterResult(image=plan.image, found=found, reason="Timeout", message=text)


async def _drained(writes: deque[asyncio.Task[None]]) -> None:
    while writes:
        await writes.popleft()


def _limit(registry: Registry) -> str:
    return f"the {registry.limits.names} that are read: select fewer in spec.filters"
