"""Core and toy provider on an API server, and `airunway diff` as a user runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest
from tests.console import Ran, ran


class Run(Protocol):
    """``await run("-f", "-", text=…)`` runs `airunway diff` as the administrator, or with another kubeconfig."""

    async def __call__(self, *arguments: str, text: str = "", kubeconfig: Path | None = None) -> Ran: ...


@pytest.fixture
def run(kubeconfig: Path) -> Run:
    default = kubeconfig

    async def run_(*arguments: str, text: str = "", kubeconfig: Path | None = None) -> Ran:
        return await ran("diff", *arguments, "--kubeconfig", str(kubeconfig or default), text=text)

    return run_
