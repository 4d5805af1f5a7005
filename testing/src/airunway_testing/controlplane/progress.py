"""Progress that moves: a bar on a terminal, elsewhere a line every ten seconds."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

Report = Callable[[str], None]
"""Takes one sentence for the user."""

_LINE_INTERVAL = 10.0


class Meter:
    """Shows how far a long step is: ``with Meter("compiling", unit="packages", report=report) as meter: meter.show(3,
    of=10)``.

    On a terminal (standard error) a bar; else a line through `report` every `interval` seconds, none for what is
    quicker.
    """

    def __init__(
        self, title: str, *, unit: str, report: Report, terminal: bool | None = None, interval: float = _LINE_INTERVAL
    ) -> None:
        self._title = title
        self._unit = unit
        self._report = report
        self._interval = interval
        self._started = self._reported = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty() if terminal is None else terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=0, unit=self._unit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, *, of: int) -> None:
        """Say that `done` of `of` units are done; `of` may grow, and 0 means that nobody knows yet."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=max(of, done))
            return
        now = time.monotonic()
        if now - self._reported >= self._interval:
            self._reported = now
            share = f"{100 * done // of} % ({done} of {of} {self._unit})" if of else f"{done} {self._unit}"
            self._report(f"{self._title}: {share}, {now - self._started:.0f} s")
