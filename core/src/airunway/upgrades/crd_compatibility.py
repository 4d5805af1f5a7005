"""Checks whether new versions of our CRDs are compatible with the existing objects, and applies them.

The API server accepts a CRD whose schema has lost a field; the next write of each object removes that field. Example:
for a schema without ``spec.adapters`` and a ModelDeployment that has them, `harms` names the field and the object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, NotFound, kind_of_crd
from airunway.resource import Resource, dig, is_true, key_of
from airunway.schema import dropped, refusals, schema_in, served_versions

__all__ = ["MANAGER", "Harm", "apply_definitions", "harms", "harms_in", "stored_versions", "unacceptable"]

MANAGER = "airunway-crds"
"""The field manager of ``airunway crds --apply``."""

_TIMEOUT = 30.0
"""Seconds within which an API server must serve an accepted CRD."""

_POLL = 0.1


@dataclass(frozen=True, kw_only=True)
class Harm:
    """One incompatibility of a new CRD."""

    crd: str
    what: str
    objects: tuple[str, ...] = ()
    """The affected objects, as ``namespace/name``; empty if the CRD itself is affected."""

    def __str__(self) -> str:
        if not self.objects:
            return f"{self.crd}: {self.what}"
        count = len(self.objects)
        return f"{self.crd}: {self.what}, in {count} object{'s' if count > 1 else ''}: {', '.join(self.objects)}"


def stored_versions(live: Resource) -> list[str]:
    """The versions in which objects may be stored."""
    return [str(version) for version in dig(live, "status", "storedVersions", default=[])]


def unacceptable(new: Resource, live: Resource) -> list[str]:
    """Why the API server would refuse to replace `live` with `new`."""
    found = []
    has = {str(version.get("name")) for version in dig(new, "spec", "versions", default=[])}
    if gone := [version for version in stored_versions(live) if version not in has]:
        found.append(
            f"objects may still be stored as {', '.join(gone)} (status.storedVersions), which the new CRD lacks"
        )
    is_, was = dig(new, "spec", "scope"), dig(live, "spec", "scope")
    if is_ != was:
        found.append(f"spec.scope cannot be changed from {was} to {is_}")
    return found


def harms(new: Resource, live: Resource | None, objects: Mapping[str, Sequence[Resource]]) -> list[Harm]:
    """The incompatibilities of `new` with `live` (None: not installed, so there are none) and with `objects`.

    `objects` are the existing ones, by the version in which they were read. The result names fields that only the new
    CRD drops, values that only the new CRD refuses, and versions that it no longer serves.
    """
    if live is None:
        return []
    name = key_of(live).name
    found = [Harm(crd=name, what=what) for what in unacceptable(new, live)]
    for version, there in objects.items():
        before, after = schema_in(live, version), schema_in(new, version)
        if after is None or version not in served_versions(new):
            if there:
                what = f"it no longer serves {version}"
                found.append(Harm(crd=name, what=what, objects=_names(there)))
            continue
        taken: dict[str, list[Resource]] = {}
        for obj in there:
            for what in _taken(obj, before or {}, after):
                taken.setdefault(what, []).append(obj)
        found += [Harm(crd=name, what=what, objects=_names(those)) for what, those in sorted(taken.items())]
    return found


def _taken(obj: Resource, before: Resource, after: Resource) -> Iterator[str]:
    known = set(dropped(obj, before))
    lost = [path for path in dropped(obj, after) if path not in known]
    yield from (f"it drops {path}" for path in lost)
    if not lost:
        wrong = set(refusals(obj, before))
        yield from (f"it does not allow {what}" for what in refusals(obj, after) if what not in wrong)


def _names(objects: Sequence[Resource]) -> tuple[str, ...]:
    return tuple(sorted(str(key_of(obj)) for obj in objects))


async def harms_in(client: Client, definitions: Sequence[Resource]) -> list[Harm]:
    """The incompatibilities of these CRDs with the objects of the cluster, each read once. Raises KubeError."""
    found = await asyncio.gather(*(_harms(client, crd) for crd in definitions))
    return [harm for each in found for harm in each]


async def _harms(client: Client, crd: Resource) -> list[Harm]:
    try:
        live = await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(crd))
    except NotFound:
        return []
    objects = {}
    for version in served_versions(live) if is_true(live, "Established") else ():
        objects[version] = await client.list_all(kind_of_crd(live, version))
    return harms(crd, live, objects)


async def apply_definitions(client: Client, definitions: Sequence[Resource]) -> None:
    """Apply CRDs, and wait until they are served.

    Raises KubeError (Conflict if another field manager owns a changed field), and TimeoutError if one is not served in
    time.
    """
    for crd in definitions:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager=MANAGER)
    async with asyncio.timeout(_TIMEOUT):
        for crd in definitions:
            while not is_true(await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(crd)), "Established"):
                await asyncio.sleep(_POLL)
