"""The kinds of machine that images are for. None of their programs is run to make an image: files are put together."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass

__all__ = ["ARCHITECTURES", "Architecture", "here"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One kind of machine: as Debian and OCI call it, as GNU does, and as wheels do (PEP 600)."""

    name: str
    gnu: str
    wheels: str
    lib64: bool
    """Whether its dynamic loader is in ``lib64``."""

    @property
    def strip(self) -> str:
        """The program that takes symbols out of libraries of this architecture, or the empty string."""
        for program in (f"{self.gnu}-strip", "strip" if self.name == here().name else ""):
            if program and shutil.which(program):
                return program
        return ""


ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture(name="amd64", gnu="x86_64-linux-gnu", wheels="x86_64-manylinux_2_28", lib64=True),
        Architecture(name="arm64", gnu="aarch64-linux-gnu", wheels="aarch64-manylinux_2_28", lib64=False),
    )
}

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def here() -> Architecture:
    """That of this machine. Raises KeyError for one that there are no images for."""
    return ARCHITECTURES[_MACHINES[platform.machine()]]
