"""Reads settings out of a ModelDeployment and releases out of image tags, and derives names within length limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Finding
from airunway.resource import dig, digest


def image_of(deployment: ModelDeployment) -> str:
    """The image in the deployment (``spec.engine.image``, else ``spec.image``); empty: the engine's default image."""
    return deployment.spec.engine.image or deployment.spec.image or ""


def is_disaggregated(deployment: ModelDeployment) -> bool:
    """Whether prefill and decode run in separate workers."""
    return deployment.spec.serving.mode == "disaggregated"


def nodes_for(gpus: int, limit: int) -> int:
    """The number of nodes, with `limit` GPUs each, that `gpus` GPUs need; at least 1."""
    return max(1, -(-gpus // limit))


def nodes_of(deployment: ModelDeployment, gpus: int, limit: int) -> int:
    """The number of nodes of one replica or worker with `gpus`: as the deployment says, else as many as they need."""
    return deployment.spec.scaling.nodes_per_replica or nodes_for(gpus, limit)


def overridden(deployment: ModelDeployment, *path: str, default: Any = None) -> Any:
    """The value at `path` in ``spec.provider.overrides``, else `default`.

    Mark the key in the manifest's schema with `overrides.typed`: others are also merged into the primary object.
    """
    return dig(deployment.spec.provider.overrides, *path, default=default)


def replicas_of(deployment: ModelDeployment, role: str = "") -> int:
    """The number of replicas, or of workers with the given `role` (``prefill`` or ``decode``).

    A role without its own section in ``spec.scaling`` has as many workers as there are replicas.
    """
    scaling = deployment.spec.scaling
    worker = {"prefill": scaling.prefill, "decode": scaling.decode}.get(role)
    return scaling.replicas if worker is None else worker.replicas


T = TypeVar("T")
Version = tuple[int, int, int]
"""Major, minor and patch number."""

_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})([-+.][0-9A-Za-z.+-]*)?", re.ASCII)


def tag_of(image: str) -> str:
    """The tag of an image, without its digest; empty if it has none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def release_in(image: str) -> Version | None:
    """The release in an image's tag; None if there is none (``latest``, a digest alone, a branch)."""
    return version_in(tag_of(image))


def version_in(text: str) -> Version | None:
    """The release in a text such as ``2.56.0`` or ``v1.3.1-cu130``; None if the text is no release."""
    found = _RELEASE.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def newest(table: Mapping[Version, T], release: Version) -> T:
    """The entry for the newest release in `table` that is not newer than `release`.

    An entry applies until the next release in the table. Raises LookupError for a release older than the table.
    """
    since = max((entry for entry in table if entry <= release), default=None)
    if since is None:
        raise LookupError(f"nothing is known of release {release}: the oldest is {min(table, default=None)}")
    return table[since]


_DIGITS = 8


def derived_name(base: str, *, suffix: str = "", limit: int = 63) -> str:
    """``<base>-<suffix>`` within `limit` characters: a longer base is cut and gets a digest of the whole name.

    Raises ValueError if not even the digest fits.
    """
    name = f"{base}-{suffix}" if suffix else base
    if len(name) <= limit:
        return name
    room = limit - _DIGITS - 1 - (len(suffix) + 1 if suffix else 0)
    if room < 1:
        raise ValueError(f"no name of at most {limit} characters can end in {suffix!r}")
    short = f"{base[:room].rstrip('-')}-{digest(name, length=_DIGITS)}"
    return f"{short}-{suffix}" if suffix else short


def too_long(name: str, *, limit: int, what: str, path: str = "metadata.name") -> Finding | None:
    """The blocker for a deployment name that exceeds the `limit` of `what` ("a LeaderWorkerSet")."""
    if len(name) <= limit:
        return None
    text = f"{name!r} has {len(name)} characters; {what} leaves room for {limit}: give the deployment a shorter name"
    return Finding(path=path, reason="NameTooLong", message=text)
