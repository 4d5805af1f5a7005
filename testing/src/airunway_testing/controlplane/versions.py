"""Which releases the control plane is made of, and what each level needs of them."""

import hashlib
import platform
from pathlib import Path
from typing import Literal, get_args

Level = Literal["api", "cluster"]
Component = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]

# The first two repeat what go/go.mod says (a test compares them); KWOK is a module of its own.
KUBERNETES_VERSION = "v1.36.3"
ETCD_VERSION = "v3.6.8"
KWOK_VERSION = "v0.7.0"

GO_SOURCES = Path(__file__).parent / "go"
"""The folder with main.go, go.mod and go.sum of the program that is all four components (in the wheel as well)."""

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def components_of(level: Level) -> tuple[Component, ...]:
    """The components that a level starts, in the order in which they start."""
    if level == "api":
        return ("etcd", "kube-apiserver", "kube-controller-manager")
    return get_args(Component)


def go_platform() -> tuple[str, str]:
    """This machine as Go and the projects' release pages name it, e.g. ``("linux", "amd64")``."""
    machine = platform.machine().lower()
    return platform.system().lower(), _ARCHITECTURES.get(machine, machine)


def cache_key() -> str:
    """The name of the cache folder: changes with every version, with our Go sources and with the machine."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((GO_SOURCES / name).read_bytes())
    system, architecture = go_platform()
    versions = f"{KUBERNETES_VERSION}-{ETCD_VERSION}-{KWOK_VERSION}"
    return f"{versions}-{digest.hexdigest()[:8]}-{system}-{architecture}"
