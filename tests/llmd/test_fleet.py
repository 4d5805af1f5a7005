"""Many models on llm-d at once, with their pools and pickers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.llmd.conftest import POOL, definitions
from tests.support.cluster_fixtures import with_gpus
from tests.support.deployed_operator import deployed_operator

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, SERVICE, Client
from airunway.plugins.host import ProviderHost
from airunway_testing.controlplane import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.soak)])
async def test_many_at_rest_write_nothing(
    cluster: Cluster, client: Client, namespace: str, audit_log: Path, llmd: ProviderHost, count: int
) -> None:
    """Nor where somebody touches what is ours without changing it. (An annotation on a Deployment is a new generation,
    which is not served until its controller has seen it: that is told.)"""
    async with (
        with_gpus(client, count),
        deployed_operator(
            cluster, client, namespace=namespace, audit_log=audit_log, definitions=definitions(), level="cluster"
        ) as operator,
    ):
        await operator.provider(llmd)
        await operator.fleet(count, provider={"name": "llmd"})
        assert await operator.at_rest(MODEL_DEPLOYMENT, POOL, SERVICE, CONFIG_MAP) == []
