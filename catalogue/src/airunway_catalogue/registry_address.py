"""Where a registry is, and what its repositories may be called. Pure.

``registry.example/team`` is the host ``registry.example`` and the folder ``team``, in which the image ``llama`` is the
repository ``team/llama``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from yarl import URL

from airunway_catalogue.addresses import is_literal

__all__ = ["ImageReference", "RegistryAddress", "address_of", "image_of", "is_repository"]

_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:[0-9]{1,5})?|\[[0-9A-Fa-f:]{2,45}\](:[0-9]{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

_DOCKER_HUB = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
"""Hosts whose API is on another host, as container runtimes know it."""


@dataclass(frozen=True, kw_only=True)
class RegistryAddress:
    """Where a registry is."""

    name: str
    """As ``spec.registry`` has it; images are named with it."""
    host: str
    """Host of the API, with the port if it has one."""
    folder: str
    """Folder to which image names are relative; empty: none."""
    insecure: bool
    """Whether it speaks plain HTTP."""

    @property
    def url(self) -> URL:
        """The root of the API."""
        return URL(f"{'http' if self.insecure else 'https'}://{self.host}")

    def repository(self, image: str) -> str:
        """The repository of an image below the registry. ``docker.io`` keeps images without owner in ``library``."""
        path = f"{self.folder}/{image}" if self.folder else image
        return f"library/{path}" if self.host == _DOCKER_HUB["docker.io"] and "/" not in path else path

    def image(self, repository: str) -> str | None:
        """The image name of a repository, relative to the folder; None if it is not below the folder."""
        if not self.folder:
            return repository
        below = repository.removeprefix(f"{self.folder}/")
        return below if below != repository else None


def address_of(registry: str, *, insecure: bool) -> RegistryAddress:
    """Returns the address for ``spec.registry``: a host, a host and a port, or one of these and a folder."""
    host, _, folder = registry.partition("/")
    host = host.lower()
    return RegistryAddress(
        name=registry.rstrip("/"), host=_DOCKER_HUB.get(host, host), folder=folder.strip("/"), insecure=insecure
    )


def is_repository(name: object) -> bool:
    """Whether a registry may have a repository of this name."""
    return isinstance(name, str) and len(name) <= 255 and _REPOSITORY.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class ImageReference:
    """Where one image is."""

    host: str
    """The registry, as the reference names it; ``docker.io`` where it names none."""
    repository: str
    """Such as ``team/llama``."""
    version: str
    """Its digest, else its tag."""


def image_of(reference: str) -> ImageReference | None:
    """Where an image is, as container runtimes read a reference; None for a text that is none."""
    name, at, digest = reference.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return None
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", name
    path, colon, tag = path.partition(":")
    if (colon and not _TAG.fullmatch(tag)) or not is_repository(path) or not _HOST.fullmatch(host):
        return None
    try:
        address = URL(f"https://{host}").host or ""
    except ValueError:  # a port that cannot be
        return None
    if ":" in address and not is_literal(address):
        return None
    return ImageReference(host=host.lower(), repository=path, version=digest or tag or "latest")
