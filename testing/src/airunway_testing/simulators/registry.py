"""Which simulated upstreams are installed, found by entry point, and by the kind of object that they act on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import entry_points
from typing import Literal, Protocol, TypeAlias

import yaml

from airunway.gc_tuning import gc_paused
from airunway.kube import Client
from airunway.resource import Resource

log = logging.getLogger(__name__)

GROUP = "airunway.simulators"
"""The entry-point group: ``acme = "airunway_acme_simulator:simulator"``, a `Simulator` under its name."""

Level: TypeAlias = Literal["api", "cluster"]
"""What the control plane can do: ``api`` has no pods, ``cluster`` has a scheduler, workload controllers and nodes."""


class ScenarioError(ValueError):
    """A text that names no scenario, or one that the level has no use for."""


class UnknownSimulatorError(LookupError):
    """A name that no installed simulator has."""


class _Program(Protocol):
    async def run(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """One simulated upstream operator.

    `kinds` are the (group, kind) pairs of the custom resources that it acts on; `package` is the import package whose
    data folder ``crds/`` holds their minimal CRDs. `program(client, level, scenario)` makes what `run` runs.
    """

    name: str
    kinds: tuple[tuple[str, str], ...]
    package: str
    program: Callable[[Client, Level, str], _Program]

    def custom_resource_definitions(self) -> list[Resource]:
        """The minimal CRDs, written for AI Runway, by file name; the upstream's own serve as well."""
        files = [entry for entry in (resources.files(self.package) / "crds").iterdir() if entry.name.endswith(".yaml")]
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # an upstream's own may have megabytes
        with gc_paused():
            return [yaml.load(file.read_text(), Loader=loader) for file in sorted(files, key=lambda file: file.name)]

    async def run(self, client: Client, *, level: Level, scenario: str = "", stop: asyncio.Event) -> None:
        """Play the operator until `stop` is set. `scenario` (level ``api`` only) is its default answer.

        Raises ScenarioError for a scenario that it does not know or that the level has no use for.
        """
        program = self.program(client, level, scenario)
        await _until(stop, program.run())


def discover_simulators() -> dict[str, Simulator]:
    """The installed simulators by name, sorted.

    One that cannot be imported is passed over, and logged: who works at one provider may have no other whole.
    `load_simulator` of it raises what its import raises.
    """
    return dict(_importable())


def _importable() -> Iterator[tuple[str, Simulator]]:
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            simulator: Simulator = entry.load()
        except Exception as error:  # noqa: BLE001 - anything can happen in the import of foreign code
            log.warning("simulator %r (%s) cannot be imported and is passed over: %r", entry.name, entry.value, error)
            continue
        yield entry.name, simulator


def load_simulator(name: str) -> Simulator:
    """The installed simulator of that name. Raises UnknownSimulatorError, naming those that there are."""
    for entry in entry_points(group=GROUP, name=name):
        simulator: Simulator = entry.load()
        return simulator
    known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none is installed"
    raise UnknownSimulatorError(f"{name!r} is not simulated; choose from: {known}")


def simulators_for(kinds: Iterable[tuple[str, str]]) -> list[Simulator]:
    """The installed simulators that act on objects of these (group, kind) pairs, each once."""
    wanted = set(kinds)
    return [simulator for simulator in discover_simulators().values() if not wanted.isdisjoint(simulator.kinds)]


async def _until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Runs `work` until `stop` is set; ends earlier, with its error, if the work does."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, stopping):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
