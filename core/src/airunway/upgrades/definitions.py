"""Reads CRDs: the facts that a provider's manifest needs, and whether a new version of ours fits the existing objects.

The API server accepts a CRD whose schema has lost a field; the next write of each object removes that field. Example:
for a schema without ``spec.adapters`` and a ModelDeployment that has them, `harms` names the field and the object.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from airunway.resource import Resource, dig, is_true, key_of, list_at
from airunway.runtime.crd_versions import SHORT_HASH, schema_hash
from airunway.schema import dropped, malformed, refusals, schema_in, served_versions

if TYPE_CHECKING:
    from airunway.kube import Client

MANAGER = "airunway-crds"
"""The field manager of ``airunway crds --apply``."""

_TIMEOUT = 30.0
"""Seconds within which an API server must serve an accepted CRD."""

_POLL = 0.1

_MAX_BYTES = 3 * 1024 * 1024
"""Bytes of JSON that an API server takes in one request (k8s.io/apiserver, MaxRequestBodyBytes)."""

_SIDE = re.compile(r"(self|oldSelf)((?:\.[A-Za-z_]\w*)*)")
"""One side of a CEL comparison of a field with its old value."""
_ALTERNATIVES = re.compile(r"\|\||\?")


class DefinitionError(ValueError):
    """No provider can be written for this CustomResourceDefinition; the message gives the reason in one sentence."""


@dataclass(frozen=True, kw_only=True)
class DefinitionVersion:
    """A version of a kind."""

    name: str
    served: bool
    storage: bool
    schema_hash: str
    """The first 12 digits, as in manifests."""
    immutable: tuple[str, ...] = ()
    """The fields, in the notation of `Transformer.immutable`, that a CEL rule (``self == oldSelf``) makes immutable."""
    schema: Resource = field(default_factory=dict, repr=False, compare=False)
    """Its ``openAPIV3Schema``."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A kind and its versions, in the order of the CRD: what a provider's manifest says of it."""

    group: str
    kind: str
    plural: str
    scope: str
    """``Namespaced`` or ``Cluster``."""
    versions: tuple[DefinitionVersion, ...]

    @property
    def name(self) -> str:
        """The name of the CRD, for example ``workspaces.kaito.sh``."""
        return f"{self.plural}.{self.group}"

    @property
    def storage(self) -> DefinitionVersion:
        """The one version in which objects are stored."""
        return next(version for version in self.versions if version.storage)

    def version(self, name: str = "") -> DefinitionVersion:
        """The served version of that name; without a name the storage version, or the last served one.

        Raises DefinitionError if it is not served.
        """
        served = [version for version in self.versions if version.served]
        if not served:
            raise DefinitionError(f"{self.name} serves none of its versions")
        if not name:
            return self.storage if self.storage in served else served[-1]
        found = next((version for version in served if version.name == name), None)
        if found is None:
            has = ", ".join(version.name for version in served)
            raise DefinitionError(f"{self.name} does not serve the version {name}: it serves {has}")
        return found


def definition_of(crd: Resource) -> Definition:
    """Read a CRD from a file or an API server. Raises DefinitionError for another object, or an invalid CRD.

    Cluster-scoped CRDs are accepted here; `chosen` refuses them.
    """
    name = key_of(crd).name or "a CustomResourceDefinition without a name"
    if crd.get("kind") != "CustomResourceDefinition":
        raise DefinitionError(f"{crd.get('kind') or 'the object'} {key_of(crd).name!r} is no CustomResourceDefinition")
    if problem := malformed(crd) or _unnamed(crd):
        raise DefinitionError(f"CustomResourceDefinition {name}: {problem}")
    stored = [str(version["name"]) for version in crd["spec"]["versions"] if version.get("storage") is True]
    if len(stored) != 1:
        has = " and ".join(stored) or "none"
        raise DefinitionError(
            f"CustomResourceDefinition {name}: exactly one version must have storage: true, found {has}"
        )
    if (size := len(orjson.dumps(crd))) > _MAX_BYTES:
        raise DefinitionError(
            f"CustomResourceDefinition {name} has {size / 1024**2:.1f} MiB as JSON, and an API server takes "
            f"{_MAX_BYTES // 1024**2} MiB: remove the descriptions, which do not change the hashes"
        )
    spec = crd["spec"]
    return Definition(
        group=spec["group"],
        kind=spec["names"]["kind"],
        plural=spec["names"]["plural"],
        scope=spec["scope"],
        versions=tuple(map(_version, spec["versions"])),
    )


def _unnamed(crd: Resource) -> str:
    """What is missing in a CRD's names and scope; empty if nothing is."""
    for path in (("group",), ("names", "kind"), ("names", "plural")):
        value = dig(crd, "spec", *path)
        if not isinstance(value, str) or not value:
            return f"spec.{'.'.join(path)} is {value!r}, but must be a name"
    scope = dig(crd, "spec", "scope")
    if scope not in ("Namespaced", "Cluster"):
        return f"spec.scope is {scope!r}, but must be Namespaced or Cluster"
    return ""


def chosen(definitions: Sequence[Definition], *, kind: str = "") -> Definition:
    """The definition of that kind, in any case; without a kind the only one. Raises DefinitionError.

    It must be namespaced, because providers can write no other kinds.
    """
    known = ", ".join(definition.kind for definition in definitions) or "none"
    found = [each for each in definitions if each.kind.lower() == kind.lower()] if kind else list(definitions)
    if not found:
        raise DefinitionError(f"there is no CustomResourceDefinition of the kind {kind or '(any)'}; found: {known}")
    if len(found) > 1:
        groups = ", ".join(each.name for each in found)
        raise DefinitionError(f"several CustomResourceDefinitions found ({groups}): name the kind")
    if found[0].scope != "Namespaced":
        raise DefinitionError(
            f"{found[0].name} is cluster-scoped: providers can write only namespaced kinds, because all objects of a "
            "deployment are in its namespace"
        )
    return found[0]


def _version(version: Resource) -> DefinitionVersion:
    schema: Resource = dig(version, "schema", "openAPIV3Schema", default={})
    return DefinitionVersion(
        name=str(version["name"]),
        served=version.get("served") is True,
        storage=version.get("storage") is True,
        schema_hash=schema_hash(schema)[:SHORT_HASH],
        immutable=tuple(sorted(set(_immutable(schema, "")))),
        schema=schema,
    )


def _immutable(schema: Resource, path: str) -> Iterator[str]:
    """The fields that a rule makes immutable, except those in lists and map values, which no path can name."""
    for rule in list_at(schema, "x-kubernetes-validations"):
        for kept in _kept_by(str(dig(rule, "rule", default=""))):
            at = f"{path}{kept}".lstrip(".")
            if at:
                yield f"{at}.*" if _is_group(schema, kept) else at
    for name, below in (schema.get("properties") or {}).items():
        if path or name not in ("metadata", "status"):
            yield from _immutable(below, f"{path}.{name}")


def _kept_by(rule: str) -> Iterator[str]:
    """The paths below ``self`` that a rule makes immutable; none for a rule with alternatives."""
    if _ALTERNATIVES.search(rule):
        return
    for part in rule.split("&&"):
        left, _, right = part.strip().removeprefix("(").removesuffix(")").partition("==")
        now, before = _SIDE.fullmatch(left.strip()), _SIDE.fullmatch(right.strip())
        if now and before and now[1] != before[1] and now[2] == before[2]:
            yield now[2]


def _is_group(schema: Resource, path: str) -> bool:
    for step in path.split(".")[1:]:
        schema = dig(schema, "properties", step, default={})
    return schema.get("type") == "object"


# ------------------------------------------------------------------------------------------------ new versions of CRDs


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
                found.append(Harm(crd=name, what=f"it no longer serves {version}", objects=_names(there)))
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
    from airunway.kube import CUSTOM_RESOURCE_DEFINITION, kind_of_crd

    live = await client.find(CUSTOM_RESOURCE_DEFINITION, key_of(crd))
    if live is None:
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
    from airunway.kube import CUSTOM_RESOURCE_DEFINITION

    for crd in definitions:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager=MANAGER)
    async with asyncio.timeout(_TIMEOUT):
        for crd in definitions:
            while not is_true(await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(crd)), "Established"):
                await asyncio.sleep(_POLL)
