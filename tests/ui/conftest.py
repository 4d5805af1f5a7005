"""The server of pages before a real API server, for the administrator and for users with fewer rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.support.pages_of_ui import Caller, serving
from tests.view.conftest import cluster_operator, deploy, grant, key, kubelet

from airunway.kube import load_config

__all__ = ["cluster_operator", "deploy", "grant", "key", "kubelet"]

Serve: TypeAlias = Callable[..., Awaitable[Caller]]


@pytest.fixture
async def pages(kubeconfig: Path) -> AsyncIterator[Serve]:
    """``await pages()`` is a caller of the administrator's pages; ``await pages(kubeconfig)`` of another user's."""
    async with AsyncExitStack() as stack:

        async def serve(other: Path | None = None) -> Caller:
            return await stack.enter_async_context(serving(load_config(kubeconfig=other or kubeconfig)))

        yield serve
