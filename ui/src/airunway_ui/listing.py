"""The page of all deployments: one row each, filtered, sorted and grouped here, all of it in the address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.redaction import printable
from airunway.view.fleet import FleetFilter, FleetGroup, FleetRow, fleet_of
from airunway.view.pods import Health
from airunway_ui.identity import Right
from airunway_ui.server import SITE, Drawn, address, live_page
from airunway_ui.watches import Board, Entry

PAGE = 100
"""Rows of one page: as many as a browser lays out anew ten times a second."""

_MANY = 3
"""Deployments with one cause from which that is said above the list."""

_MOST_OPTIONS = 200

SORTS = {"": "problems first", "name": "name", "newest": "newest first", "oldest": "oldest first", "gpus": "GPUs"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What of the list is shown."""

    filter: FleetFilter
    reason: str = ""
    """Code of a root cause, or reason of a status."""
    phase: str = ""
    sort: str = ""
    grouped: bool = False
    page: int = 1

    def address(self, **other: object) -> str:
        """This page, with some of it otherwise."""
        now = {
            "ns": self.filter.namespace,
            "q": self.filter.text,
            "phase": self.phase,
            "reason": self.reason,
            "provider": self.filter.provider,
            "engine": self.filter.engine,
            "sort": self.sort,
            "group": "1" if self.grouped else "",
        }
        return address("/", **{**now, **other})


def wanted_in(query: Mapping[str, str]) -> Wanted:
    """Returns what an address asks for; values that mean nothing count as absent, or find nothing."""

    def text(name: str) -> str:
        return printable(query.get(name, "")[:253])

    phase, sort, number = text("phase"), text("sort"), query.get("page", "")
    return Wanted(
        filter=FleetFilter(
            namespace=text("ns"),
            phases=frozenset({phase} if phase else ()),
            provider=text("provider"),
            engine=text("engine"),
            text=text("q"),
        ),
        reason=text("reason"),
        phase=phase,
        sort=sort if sort in SORTS else "",
        grouped=query.get("group") == "1",
        page=int(number) if number.isascii() and number.isdecimal() and 0 < len(number) < 7 else 1,
    )


def shown(entries: Sequence[Entry], wanted: Wanted) -> dict[str, Any]:
    """Returns what the template shows of all entries."""
    by_row = {id(entry.row): entry for entry in entries}
    found = fleet_of([entry.row for entry in entries], wanted.filter)
    rows = [row for row in found.rows if not wanted.reason or wanted.reason in (row.cause, row.reason)]
    if (key := _SORT_KEYS.get(wanted.sort)) is not None:
        rows.sort(key=lambda row: key(by_row[id(row)]))
    pages = max(1, -(-len(rows) // PAGE))
    number = min(max(wanted.page, 1), pages)
    part = rows[(number - 1) * PAGE : number * PAGE]
    every = found.rows if not wanted.reason else tuple(rows)
    return {
        "wanted": wanted,
        "sorts": SORTS,
        "entries": [by_row[id(row)] for row in part],
        "groups": _groups(found.groups, wanted) if wanted.grouped else [],
        "many": [] if wanted.reason or wanted.grouped else _many(found.groups),
        "number": number,
        "pages": pages,
        "count": len(rows),
        "total": found.total,
        "first": (number - 1) * PAGE + 1,
        "last": (number - 1) * PAGE + len(part),
        "tally": Counter(row.health.value for row in every),
        **_options(entries),
    }


def _groups(groups: Sequence[FleetGroup], wanted: Wanted) -> list[FleetGroup]:
    return [group for group in groups if not wanted.reason or group.reason == wanted.reason][:PAGE]


def _many(groups: Sequence[FleetGroup]) -> list[FleetGroup]:
    """What hits many deployments at once, and is not merely progress."""
    return [
        group for group in groups if group.health is not Health.OK and "." in group.reason and group.count >= _MANY
    ][:5]


def _options(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """The values to choose from."""

    def values(of: Callable[[FleetRow], str]) -> list[str]:
        return sorted({of(entry.row) for entry in entries} - {""})[:_MOST_OPTIONS]

    return {
        "namespaces": values(lambda row: row.namespace),
        "phases": values(lambda row: row.phase),
        "providers": values(lambda row: row.provider),
        "engines": values(lambda row: row.engine),
    }


def _created(entry: Entry) -> float:
    return entry.row.created.timestamp() if entry.row.created is not None else 0.0


_SORT_KEYS: Mapping[str, Callable[[Entry], Any]] = {
    "name": lambda entry: (entry.row.name, entry.row.namespace),
    "newest": lambda entry: (-_created(entry), entry.row.namespace, entry.row.name),
    "oldest": lambda entry: (_created(entry), entry.row.namespace, entry.row.name),
    "gpus": lambda entry: (-(entry.gpus or 0), entry.row.namespace, entry.row.name),
}


async def deployments(request: web.Request) -> web.StreamResponse:
    """The list. Without the right to that of all namespaces it is that of the context's."""
    site, wanted = request.app[SITE], wanted_in(request.query)
    async with site.watches.deployments(wanted.filter.namespace) as board:
        if not wanted.filter.namespace:
            await board.known()
            if board.state is not None and board.state.right and not board.entries:
                own = replace(wanted, filter=replace(wanted.filter, namespace=site.identity.namespace))
                async with site.watches.deployments(site.identity.namespace) as other:
                    return await _page(request, other, own, instead_of=board)
        return await _page(request, board, wanted)


async def _page(
    request: web.Request, board: Board, wanted: Wanted, *, instead_of: Board | None = None
) -> web.StreamResponse:
    site = request.app[SITE]
    home = wanted.filter.namespace or site.identity.namespace
    create = Right(verb="create", kind=MODEL_DEPLOYMENT, namespace=home)

    async def draw() -> Drawn:
        found = shown(list(board.entries.values()), wanted)
        may = await site.identity.may([create]) if site.identity.lost is None else {create: True}
        values = {
            **found,
            "loading": board.loading,
            "unseen": board.state,
            "installed": board.installed,
            "cluster_unseen": instead_of.state if instead_of is not None else None,
            "create": create,
            "may_create": may[create],
        }
        problems = found["tally"].get("problem", 0)
        return Drawn(
            title=f"{f'({problems}) ' if problems else ''}Deployments – AI Runway", template="list.html", values=values
        )

    return await live_page(request, board, draw)


ROUTES = [("GET", "/", deployments)]
