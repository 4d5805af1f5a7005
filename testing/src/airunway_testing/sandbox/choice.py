"""Which providers a sandbox runs, with the simulated upstream and the samples of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airunway.plugins.contract import SelectionMode
from airunway.plugins.registry import Distribution, discover, load
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.samples import Sample, samples_of
from airunway_testing.simulators import Simulator, simulators_for


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A provider with the simulators of what it writes; `missing` is its primary kind where the upstream itself
    has to be there, else empty: Kubernetes' own kinds need no simulator. `caches`: a deployment that asks vLLM for a
    model cache may get the provider without naming it.
    """

    provider: str
    missing: str
    simulators: tuple[Simulator, ...]
    samples: tuple[Sample, ...]
    caches: bool = False


def choose(names: Sequence[str] = ()) -> list[Choice]:
    """The providers of these `names`; without any, all that have samples and whose upstream can be played.

    Raises SandboxError if there is none, or not one of that name, or if two have a sample of one name.
    """
    installed = {found.name: found for found in discover(on_request=bool(names))}
    known = ", ".join(installed) or "none"
    if unknown := [name for name in names if name not in installed]:
        raise SandboxError(f"provider {unknown[0]} is not installed (installed providers: {known})")
    if names:
        chosen = [_choice(installed[name]) for name in dict.fromkeys(names)]
    else:
        chosen = [found for found in map(_choice, installed.values()) if found.samples and not found.missing]
    if not chosen:
        raise SandboxError(
            f"no installed provider has both samples and a simulator (installed providers: {known}): "
            "pip install a provider and its simulator, or choose with --providers and bring the upstream"
        )
    _check_names(sample.name for found in chosen for sample in found.samples)
    return chosen


def _choice(provider: Distribution) -> Choice:
    manifest = load(provider.name).manifest
    upstream = manifest.upstream
    simulators = simulators_for((kind.group, kind.kind) for kind in upstream)
    played = {kind for simulator in simulators for kind in simulator.kinds}
    primary = next(kind for kind in upstream if kind.primary)
    there = primary.builtin or (primary.group, primary.kind) in played
    return Choice(
        provider=provider.name,
        missing="" if there else primary.kind,
        simulators=tuple(simulators),
        samples=samples_of(provider),
        caches=manifest.selection is SelectionMode.AUTO
        and any(engine.name == "vllm" and engine.model_cache for engine in manifest.engines),
    )


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SandboxError(f"two providers have a sample {name}: choose one of them with --providers")
        seen.add(name)
