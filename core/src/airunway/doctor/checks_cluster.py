"""Checks 01: the API server and AI Runway's CRDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from airunway import __version__
from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import Snapshot
from airunway.kinds import (
    CLUSTER_MODEL_TEMPLATE,
    CLUSTER_RUNTIME_CONFIG,
    MODEL_ARTIFACT,
    MODEL_SOURCE,
    MODEL_TEMPLATE,
    RUNTIME_CONFIG,
)
from airunway.resource import Resource, condition_of, dig, is_deleting, is_true, key_of
from airunway.schema import fields_of, schema_in, storage_version
from airunway.upgrades.definitions import stored_versions

OLDEST = (1, 30)
"""The oldest supported Kubernetes: the first in which ValidatingAdmissionPolicy is on by default."""

_CLOCKS = timedelta(seconds=30)
_SHOWN = 5
_OPTIONAL = (str(RUNTIME_CONFIG), str(CLUSTER_RUNTIME_CONFIG))
"""CRDs of ours without which core and providers work."""
_OF_TEMPLATES = (str(MODEL_TEMPLATE), str(CLUSTER_MODEL_TEMPLATE), str(MODEL_SOURCE))
"""CRDs of ours that only deployments with a template and the catalogue need."""
_OF_PARTS = (str(MODEL_ARTIFACT),)
"""CRDs of ours that a part of the core needs, where it is on: the checks of the part look for them (ARW1001)."""

INSTALL = "airunway crds | kubectl apply --server-side -f -"


def _name(crd: str) -> str:
    return f"CustomResourceDefinition/{crd}"


def _absent(seen: Snapshot, crds: Iterable[str]) -> Iterator[Found]:
    for name in crds:
        if name not in (seen.definitions or {}):
            yield Found(_name(name), "It is not installed.")


@error(
    "ARW0101",
    "The cluster is too old",
    why="ValidatingAdmissionPolicy and the CEL of the CRDs need a newer API server.",
    do=f"Upgrade the cluster to Kubernetes {OLDEST[0]}.{OLDEST[1]} or newer.",
)
def _too_old(seen: Snapshot) -> Iterator[Found]:
    if seen.kubernetes < OLDEST:
        major, minor = seen.kubernetes
        yield Found(f"Cluster/{seen.server}", f"It runs Kubernetes {major}.{minor}.")


@error(
    "ARW0102",
    "A CRD of AI Runway is missing",
    why="The API server does not know the kind: such objects cannot be created, and controllers wait for the kind.",
    do=f"Install the chart airunway-crds, or: {INSTALL}",
    needs=("definitions",),
)
def _missing(seen: Snapshot) -> Iterator[Found]:
    others = {*_OPTIONAL, *_OF_PARTS, *_OF_TEMPLATES}
    return _absent(seen, [name for crd in custom_resource_definitions() if (name := key_of(crd).name) not in others])


@warning(
    "ARW0110",
    "A CRD of runtime configs is missing",
    why="Deployments run without shared defaults, and those that name a config wait (ConfigNotFound). Processes notice "
    "a CRD that is installed later, without a restart.",
    do=f"Install the chart airunway-crds, or: {INSTALL}",
    needs=("definitions",),
)
def _configs_missing(seen: Snapshot) -> Iterator[Found]:
    return _absent(seen, _OPTIONAL)


@warning(
    "ARW0111",
    "A CRD of templates is missing",
    why="Deployments that name a template wait (TemplateNotFound); the catalogue does nothing. All other deployments "
    "run. Processes notice a CRD that is installed later, without a restart.",
    do=f"Install the chart airunway-crds, or: {INSTALL}",
    needs=("definitions",),
)
def _templates_missing(seen: Snapshot) -> Iterator[Found]:
    return _absent(seen, _OF_TEMPLATES)


@error(
    "ARW0103",
    "A CRD of AI Runway is not served",
    why="The definition is there, but the API server does not serve it: another of the group has one of its names.",
    do="Where a short name is taken by another CRD, take it out of that one (or remove that CRD): ours is served at "
    "once.",
    needs=("definitions",),
)
def _not_served(seen: Snapshot) -> Iterator[Found]:
    for name, crd in (seen.definitions or {}).items():
        if is_deleting(crd):
            continue
        names_ = condition_of(crd, "NamesAccepted") or {}
        if names_.get("status") == "False":
            yield Found(_name(name), f"Its names are not accepted: {names_.get('message')}")
        elif not is_true(crd, "Established"):
            yield Found(_name(name), "It is not established.")


@error(
    "ARW0104",
    "A CRD of AI Runway is being deleted",
    why="With it go all its objects, and with these what runs. New ones are refused.",
    do="Let it go and install the CRDs again; objects that are still there hold it until their finalizers are gone. "
    "Set helm.sh/resource-policy: keep on CRDs.",
    needs=("definitions",),
)
def _leaving(seen: Snapshot) -> Iterator[Found]:
    for name, crd in (seen.definitions or {}).items():
        if is_deleting(crd):
            yield Found(_name(name), f"Its deletion was asked for at {crd['metadata']['deletionTimestamp']}.")


@error(
    "ARW0105",
    "A CRD of AI Runway is older than this release",
    why="The API server drops fields that the CRD does not have, or refuses them: what controllers of this release "
    "write is lost.",
    do=f"Upgrade the CRDs before everything else: the chart airunway-crds, or: {INSTALL}",
    needs=("definitions",),
)
def _older(seen: Snapshot) -> Iterator[Found]:
    for name, live, ours in _compared(seen):
        if ours is not None and live is None:
            yield Found(_name(name), f"It has no version {names.VERSION}.")
        elif missing := sorted(set(fields_of(ours or {})) - set(fields_of(live or {}))):
            yield Found(_name(name), f"It lacks {_some(missing)}.")


@warning(
    "ARW0106",
    "A CRD of AI Runway is newer than this command",
    why="What this command says may not be what the newer release means.",
    do="Upgrade this command to the release that the cluster runs.",
    needs=("definitions",),
)
def _newer(seen: Snapshot) -> Iterator[Found]:
    for name, live, ours in _compared(seen):
        if live is None or ours is None:
            continue
        theirs, known = set(fields_of(live)), set(fields_of(ours))
        if known <= theirs and (more := sorted(theirs - known)):
            yield Found(_name(name), f"It has {_some(more)}, which airunway {__version__} does not know.")


@warning(
    "ARW0107",
    "Objects may be stored in an old version",
    why="A CRD must keep every version in status.storedVersions: the next release that drops it is refused.",
    do="Have every object written once in the storage version (kubectl get NAME -A -o yaml | kubectl replace -f -). "
    "Then take the old version out of status.storedVersions: kubectl patch crd NAME --subresource=status.",
    needs=("definitions",),
)
def _stored(seen: Snapshot) -> Iterator[Found]:
    for name, crd in (seen.definitions or {}).items():
        current = storage_version(crd)
        if others := [version for version in stored_versions(crd) if version != current]:
            yield Found(_name(name), f"Its objects are stored as {current}, and older ones as {', '.join(others)}.")


@warning(
    "ARW0108",
    "Clocks differ",
    why="Ages are computed with the API server's clock; tokens and certificates may be refused by either side.",
    do="Set the clock of this machine (or of the API server) by NTP.",
)
def _clocks(seen: Snapshot) -> Iterator[Found]:
    if abs(seen.ahead) > _CLOCKS:
        word = "ahead of" if seen.ahead > timedelta() else "behind"
        seconds = abs(seen.ahead).total_seconds()
        yield Found(f"Cluster/{seen.server}", f"Its clock is {seconds:.0f} s {word} this machine's.")


@error(
    "ARW0109",
    "A CRD of AI Runway lacks a subresource",
    why="Without the subresource status no controller can say how a deployment fares, and everyone who may edit one "
    "may write its status; without scale `kubectl scale` and autoscalers do not work.",
    do=f"Put the CRD back as this release has it: the chart airunway-crds, or: {INSTALL}",
    needs=("definitions",),
)
def _without_subresource(seen: Snapshot) -> Iterator[Found]:
    for crd in custom_resource_definitions():
        name = key_of(crd).name
        live = _version((seen.definitions or {}).get(name, {}))
        lacking = sorted(set(_version(crd).get("subresources") or {}) - set(live.get("subresources") or {}))
        if live and lacking:
            yield Found(_name(name), f"Its version {names.VERSION} has no subresource {' and no '.join(lacking)}.")


def _version(crd: Resource) -> Resource:
    versions = dig(crd, "spec", "versions", default=[])
    return next((each for each in versions if each.get("name") == names.VERSION), {})


def _compared(seen: Snapshot) -> Iterator[tuple[str, Resource | None, Resource | None]]:
    """Each installed CRD, with its live schema and this release's."""
    for crd in custom_resource_definitions():
        name = key_of(crd).name
        if (live := (seen.definitions or {}).get(name)) is not None:
            yield name, schema_in(live, names.VERSION), schema_in(crd, names.VERSION)


def _some(fields: list[str]) -> str:
    outermost = [f for f in fields if not any(f.startswith((f"{o}.", f"{o}[")) for o in fields if o != f)]
    more = len(outermost) - _SHOWN
    return ", ".join(outermost[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
