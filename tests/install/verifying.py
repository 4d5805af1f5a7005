"""Following docs/releases/verify.md: the commands that need no more than openssl and sha256sum."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.console import Shell, steps
from tools.generated import ROOT

__all__ = ["check_files", "check_image"]

_PAGE = ROOT / "docs" / "releases" / "verify.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def check_files(release: Path) -> None:
    """Type what the page says about all files. Raises AssertionError where a command fails or says something else."""
    _type(release, 0)


def check_image(release: Path) -> None:
    """Type what the page says about an image. Raises AssertionError."""
    _type(release, 1)


def _type(release: Path, number: int) -> None:
    blocks = _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 2, "one for the files, one for an image"
    with Shell(release, os.environ) as shell:
        for command, shown in steps(blocks[number]):
            shell.show(command, shown)
