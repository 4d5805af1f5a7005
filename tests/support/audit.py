"""Reading the API server's audit log: who wrote what, and how often."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))


@dataclass(frozen=True, kw_only=True)
class Request:
    """One finished request; `agent` is the component that our user agents name (``airunway/1.0 (agent)``)."""

    verb: str
    resource: str
    namespace: str
    name: str
    agent: str
    user: str
    code: int
    dry_run: bool

    @property
    def writes(self) -> bool:
        return self.verb in _WRITES and not self.dry_run


class AuditReader:
    """Reads an audit log on from where it was when the reader was made, or last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size

    def read(self, *, watches: bool = False) -> list[Request]:
        """The requests that finished since the last time; with `watches`, those that began to be answered too."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        return list(_requests((json.loads(line) for line in data[:end].splitlines()), watches=watches))


def _requests(events: Iterator[dict[str, Any]], *, watches: bool) -> Iterator[Request]:
    for event in events:
        is_watch = event["verb"] == "watch"
        # A watch that is refused is never begun; one that is served ends long after.
        if event.get("stage") not in (("ResponseStarted", "ResponseComplete") if is_watch else ("ResponseComplete",)):
            continue
        if is_watch and not watches:
            continue
        where = event.get("objectRef") or {}
        agent = event.get("userAgent", "")
        yield Request(
            verb=event["verb"],
            resource="/".join(part for part in (where.get("resource"), where.get("subresource")) if part),
            namespace=where.get("namespace", ""),
            name=where.get("name", ""),
            agent=agent.partition("(")[2].partition(")")[0] if agent.startswith("airunway/") else "",
            user=(event.get("user") or {}).get("username", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
            dry_run="dryRun=All" in event.get("requestURI", ""),
        )
