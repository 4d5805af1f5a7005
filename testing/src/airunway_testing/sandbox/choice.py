"""Which providers a sandbox runs, with the simulated upstream and the samples of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airunway.plugins.registry import Distribution, discover, load
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.samples import Sample, samples_of
from airunway_testing.simulators import Simulator, simulator_for

__all__ = ["Choice", "choose"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A provider; `simulator` is None where the upstream itself has to be there."""

    provider: str
    kind: str
    simulator: Simulator | None
    samples: tuple[Sample, ...]


def choose(names: Sequence[str] = ()) -> list[Choice]:
    """The providers of these `names`; without any, all that have a simulator installed and samples.

    Raises SandboxError if there is none, or not one of that name, or if two have a sample of one name.
    """
    installed = {found.name: found for found in discover()}
    known = ", ".join(installed) or "none"
    if unknown := [name for name in names if name not in installed]:
        raise SandboxError(f"provider {unknown[0]} is not installed (installed providers: {known})")
    if names:
        chosen = [_choice(installed[name]) for name in dict.fromkeys(names)]
    else:
        chosen = [found for found in map(_choice, installed.values()) if found.simulator and found.samples]
    if not chosen:
        raise SandboxError(
            f"no installed provider has both samples and a simulator (installed providers: {known}): "
            "pip install a provider and its simulator, or choose with --providers and bring the upstream"
        )
    _check_names(sample.name for found in chosen for sample in found.samples)
    return chosen


def _choice(provider: Distribution) -> Choice:
    kind = load(provider.name).primary_kind
    return Choice(
        provider=provider.name,
        kind=kind.kind,
        simulator=simulator_for(kind.group, kind.kind),
        samples=samples_of(provider),
    )


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SandboxError(f"two providers have a sample {name}: choose one of them with --providers")
        seen.add(name)
