"""Finds the smallest change that makes a rejected provider eligible, and what no change of the spec can fix. Pure.

The search tries combinations of a few edits: another engine, with or without a GPU, the other serving mode, one replica
instead of none, no model cache, naming the provider. Among equally small changes the first in that order wins, with
engines in their order of preference, so that the result is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product

from airunway.api.modeldeployment import defaulted_spec
from airunway.resource import Resource, copy_of, dig
from airunway.selection.choice import choose_engine, granted, preference, provider_for
from airunway.selection.facts import DISAGGREGATED, ProviderFacts, request_of
from airunway.selection.provider import FailedCheck, weigh
from airunway.validation.policy import Grants

ROLE_MEMORY = "32Gi"
"""Memory advised for a prefill or decode worker if the spec has none; the field is required."""

_OBSTACLES = {
    "ready": "provider {name} must become ready: `kubectl describe ipc {name}` says what it waits for",
    "heartbeat": "the process of provider {name} must run and reach the API server again: {message}",
    "policy": "an administrator must allow provider {name} in this namespace",
}
"""Checks that no edit of the spec can pass, each with what has to happen instead."""


@dataclass(frozen=True, kw_only=True)
class FieldEdit:
    """One edit of a field."""

    path: str
    """The field's path in the deployment."""
    before: object
    """Its value now; None: absent."""
    after: object
    """Its value after the edit; None: absent."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What would make a provider eligible."""

    changes: tuple[FieldEdit, ...] | None
    """The edits of the spec that are needed; None: no edit helps."""
    obstacles: tuple[str, ...] = ()
    """What has to happen besides the edits."""
    selected: bool = False
    """Whether the provider would then also be selected.

    If not (another one scores higher, or was selected before), name it in ``spec.provider.name`` too.
    """


def advise(
    spec: Resource,
    provider: ProviderFacts,
    providers: Sequence[ProviderFacts],
    *,
    now: datetime,
    grants: Grants | None = None,
    kept: str | None = None,
    valid: Callable[[Resource], bool] = lambda _: True,
) -> Advice:
    """Returns the smallest change of `spec`, and what has to happen besides.

    - `providers`: all providers; if the spec names no engine, it is chosen among theirs.
    - `grants`: what the namespace may use (None: anything).
    - `kept`: the provider that was selected before.
    - `valid`: whether an edited spec would be admitted.

    Raises ParseError if `spec` does not fit the schema.
    """
    grants = grants or Grants()
    denied = not grants.allows_provider(provider.name)
    others = granted([other for other in providers if other.name != provider.name], grants)
    allowed = granted([provider], replace(grants, providers=None))
    engine = next((engine.name for engine in provider.engines), "")
    verdict = weigh(request_of(defaulted_spec(spec, engine=None)), provider, engine=engine, now=now, denied=denied)
    obstacles = tuple(
        _OBSTACLES[check.name].format(name=provider.name, message=check.message)
        for check in verdict.failed
        if check.name in _OBSTACLES
    )
    changes = smallest_change(spec, allowed[0], [*allowed, *others], now=now, valid=valid)
    if changes is None:
        return Advice(changes=None, obstacles=obstacles)
    healthy = replace(allowed[0], ready=True, heartbeat=None)
    winner = kept or provider_for(with_changes(spec, changes), [healthy, *others], now=now)
    return Advice(changes=changes, obstacles=obstacles, selected=winner == provider.name)


def smallest_change(
    spec: Resource,
    provider: ProviderFacts,
    providers: Sequence[ProviderFacts],
    *,
    now: datetime,
    valid: Callable[[Resource], bool] = lambda _: True,
) -> tuple[FieldEdit, ...] | None:
    """Returns the fewest edits of `spec` that make `provider` eligible once it is ready; empty if none is needed.

    None if no combination of the edits helps.
    """
    healthy = replace(provider, ready=True, heartbeat=None, rules=())  # rules only score, they never reject
    others = [replace(other, rules=()) for other in providers if other.name != provider.name]
    everyone = [*others, healthy]
    for changes in _combinations(spec, healthy):
        edited = with_changes(spec, changes)
        if not failing_checks(edited, healthy, everyone, now=now) and valid(edited):
            return changes
    return None


def failing_checks(
    spec: Resource, provider: ProviderFacts, providers: Sequence[ProviderFacts], *, now: datetime
) -> list[FailedCheck]:
    """Returns everything that prevents `provider` from getting a deployment with this spec; empty if it is eligible."""
    pinned = dig(spec, "provider", "name")
    if pinned and pinned != provider.name:
        return [FailedCheck(name="provider", path="spec.provider.name", message=f"the spec names provider {pinned}")]
    explicit = dig(spec, "engine", "type")
    request = request_of(defaulted_spec(spec, engine=explicit))
    engine = choose_engine(request, providers, explicit=explicit, pinned=pinned, now=now)
    if engine.engine is None:
        return [FailedCheck(name="engine", path="spec.engine.type", message=engine.message)]
    request = request_of(defaulted_spec(spec, engine=engine.engine))
    verdict = weigh(request, provider, engine=engine.engine, now=now)
    return [check for check in verdict.failed if not (pinned and check.name == "selection")]


def with_changes(spec: Resource, changes: Sequence[FieldEdit]) -> Resource:
    """Returns a copy of `spec` with the changes made."""
    edited = copy_of(spec)
    for change in changes:
        *parents, last = change.path.split(".")[1:]
        node = edited
        for step in parents:
            if not isinstance(node.get(step), dict):
                node[step] = {}
            node = node[step]
        if change.after is None:
            node.pop(last, None)
        else:
            node[last] = change.after
    return edited


def _combinations(spec: Resource, provider: ProviderFacts) -> Iterator[tuple[FieldEdit, ...]]:
    """Yields every combination of edits, smallest first."""
    axes = [
        _named(spec, provider),
        _engines(spec, provider),
        _modes_and_devices(spec),
        _single(spec, "spec.scaling.replicas", unwanted=lambda value: value == 0, instead=1),
        _single(spec, "spec.model.cache.mode", unwanted=lambda value: value not in (None, "None"), instead="None"),
    ]
    combinations = (tuple(change for option in chosen for change in option) for chosen in product(*axes))
    yield from sorted(combinations, key=len)  # stable: the order of the axes decides among equals


def _named(spec: Resource, provider: ProviderFacts) -> list[list[FieldEdit]]:
    pinned = dig(spec, "provider", "name")
    if pinned == provider.name or not (pinned or provider.explicit_only):
        return [[]]
    return [[], [_change(spec, "spec.provider.name", provider.name)]]


def _engines(spec: Resource, provider: ProviderFacts) -> list[list[FieldEdit]]:
    names = [engine.name for engine in provider.engines if engine.name != dig(spec, "engine", "type")]
    return [[], *([_change(spec, "spec.engine.type", name)] for name in sorted(names, key=preference))]


def _modes_and_devices(spec: Resource) -> list[list[FieldEdit]]:
    gpus = dig(spec, "resources", "gpu", "count", default=0)
    device = _change(spec, "spec.resources.gpu.count", 0 if gpus else 1)
    if dig(spec, "serving", "mode") == DISAGGREGATED:
        aggregated = _change(spec, "spec.serving.mode", "aggregated")
        return [[], [aggregated], [aggregated, device]]
    split = [_change(spec, "spec.serving.mode", DISAGGREGATED)]
    if gpus:
        split.append(_change(spec, "spec.resources.gpu", None))
    for role in ("prefill", "decode"):
        if not dig(spec, "scaling", role, "gpu", "count"):
            split.append(_change(spec, f"spec.scaling.{role}.gpu.count", 1))
        if not dig(spec, "scaling", role, "memory"):
            memory = dig(spec, "resources", "memory", default=ROLE_MEMORY)
            split.append(_change(spec, f"spec.scaling.{role}.memory", memory))
    return [[], [device], split]


def _single(spec: Resource, path: str, *, unwanted: Callable[[object], bool], instead: object) -> list[list[FieldEdit]]:
    change = _change(spec, path, instead)
    return [[], [change]] if unwanted(change.before) else [[]]


def _change(spec: Resource, path: str, after: object) -> FieldEdit:
    return FieldEdit(path=path, before=dig(spec, *path.split(".")[1:]), after=after)
