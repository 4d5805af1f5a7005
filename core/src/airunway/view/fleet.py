"""Many deployments: one row each, groups by reason, filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from airunway.redaction import printable
from airunway.resource import Resource, dig, parse_time
from airunway.templates.expansion import effective_model
from airunway.view.base import ViewModel
from airunway.view.deployment import cause_of, since_of, verdict_of
from airunway.view.pods import PHASES, Health

_LONGEST = 253


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetRow(ViewModel):
    """One deployment."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    phase: str
    """Phase; ``Unknown`` if no controller has written one."""
    reason: str
    """Why, as one word."""
    cause: str
    """Code of the root cause; empty if none is known."""
    health: Health
    """Whether it is all right."""
    model: str
    """Model id."""
    engine: str
    """Engine in use; empty before one is chosen."""
    provider: str
    """Provider in use; empty before one is chosen."""
    replicas: str
    """Ready and wanted replicas, such as ``1/2``; empty before they are known."""
    why: str
    """What was observed, of a deployment that is not all right."""
    remedy: str
    """What to do about it, if a root cause is known."""
    since: datetime | None
    """Since when it is so; None of a deployment that is all right, and where it is not known."""
    created: datetime | None
    """When it was created."""


@dataclass(frozen=True, kw_only=True)
class FleetGroup(ViewModel):
    """Deployments that are in the same state for the same reason."""

    phase: str
    """Their phase."""
    reason: str
    """Code of their root cause; without one, the reason of their status."""
    health: Health
    """Whether they are all right."""
    count: int
    """How many they are."""
    names: tuple[str, ...]
    """The first of them, ``namespace/name``, at most ten."""


@dataclass(frozen=True, kw_only=True)
class FleetView(ViewModel):
    """Many deployments."""

    rows: tuple[FleetRow, ...]
    """Those that the filter keeps: problems first, then by namespace and name."""
    groups: tuple[FleetGroup, ...]
    """The same in groups: problems first, then the largest."""
    total: int
    """How many there are without the filter."""


@dataclass(frozen=True, kw_only=True)
class FleetFilter:
    """Which deployments are kept: those that meet all that is given."""

    namespace: str = ""
    """Namespace; empty: any."""
    phases: frozenset[str] = frozenset()
    """Phases; empty: any."""
    provider: str = ""
    """Provider in use; empty: any."""
    engine: str = ""
    """Engine in use; empty: any."""
    cause: str = ""
    """Code of the root cause, or its beginning (``ImagePull``); empty: any."""
    text: str = ""
    """Part of a name or of a model id, whatever the case; empty: any."""

    def keeps(self, row: FleetRow) -> bool:
        text = self.text.lower()
        return (
            (not self.namespace or row.namespace == self.namespace)
            and (not self.phases or row.phase in self.phases)
            and (not self.provider or row.provider == self.provider)
            and (not self.engine or row.engine == self.engine)
            and (not self.cause or row.cause == self.cause or row.cause.startswith(f"{self.cause}."))
            and (not text or text in row.name.lower() or text in row.model.lower())
        )


_EVERYTHING = FleetFilter()


def fleet_view(deployments: Iterable[Resource], wanted: FleetFilter = _EVERYTHING) -> FleetView:
    """Returns the rows and groups of ModelDeployments; total over any JSON objects."""
    return fleet_of([fleet_row(deployment) for deployment in deployments], wanted)


def fleet_of(every: Sequence[FleetRow], wanted: FleetFilter = _EVERYTHING) -> FleetView:
    """Returns the view of rows that are known already: those of the deployments that changed are made anew."""
    rows = [row for row in every if wanted is _EVERYTHING or wanted.keeps(row)]
    rows.sort(key=lambda row: (_PLACES[row.health], row.phase != "Failed", row.namespace, row.name))
    return FleetView(rows=tuple(rows), groups=tuple(_groups(rows)), total=len(every))


_PLACES = {health: place for place, health in enumerate(Health)}


def fleet_row(deployment: Resource) -> FleetRow:
    """Returns the row of a ModelDeployment; total over any JSON object."""
    status = deployment.get("status")
    if not isinstance(status, dict):
        status = {}
    phase, reason, message = verdict_of(deployment)
    health = PHASES.get(phase, Health.PROGRESS)
    cause = cause_of(deployment) if health is not Health.OK and phase != "Terminating" else None
    why = ": ".join(filter(None, (cause.object, cause.evidence))) if cause is not None else message
    since = since_of(deployment) if health is not Health.OK else None
    return FleetRow(
        namespace=_word(dig(deployment, "metadata", "namespace")),
        name=_word(dig(deployment, "metadata", "name")),
        phase=phase,
        reason=reason,
        cause=_word(dig(status, "rootCause", "code")),
        health=health,
        model=_word(effective_model(deployment)),
        engine=_word(dig(status, "engine", "type")),
        provider=_word(dig(status, "provider", "name")),
        replicas=_word(dig(status, "replicas", "summary")),
        why=why if health is not Health.OK else "",
        remedy=cause.remedy if cause is not None else "",
        since=(cause.since if cause is not None else None) or since,
        created=parse_time(dig(deployment, "metadata", "creationTimestamp")),
    )


def _groups(rows: Iterable[FleetRow]) -> list[FleetGroup]:
    members: dict[tuple[str, str], list[FleetRow]] = {}
    for row in rows:
        members.setdefault((row.phase, row.cause or row.reason), []).append(row)
    groups = [
        FleetGroup(
            phase=phase,
            reason=reason,
            health=found[0].health,
            count=len(found),
            names=tuple(f"{row.namespace}/{row.name}" for row in found[:10]),
        )
        for (phase, reason), found in members.items()
    ]
    return sorted(groups, key=lambda group: (_PLACES[group.health], -group.count, group.phase, group.reason))


def _word(value: object) -> str:
    """A name or a word as one plain line. (`bounded` would take most of the time of a large fleet.)"""
    if not isinstance(value, str):
        return ""
    return value if len(value) <= _LONGEST and value.isprintable() else printable(value[:_LONGEST])
