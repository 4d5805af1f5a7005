"""A graph's life on the real API server, under the provider's own account."""

from __future__ import annotations

import pytest
from tests.dynamo.conftest import BETA
from tests.support.deployed_operator import Operator

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import dig
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, gone, until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]


async def test_a_deployment_that_names_dynamo_runs_and_goes(
    operator: Operator, client: Client, dynamo: ProviderHost, deploy: Deploy
) -> None:
    user = await operator.provider(dynamo)
    key = await deploy()
    found = await until(client, key, running_at(1))
    assert dig(found, "status", "endpoint", "url") == f"http://llama-frontend.{key.namespace}.svc:8000"
    assert dig(found, "status", "replicas", "summary") == "1/1"
    assert dig(found, "status", "provider", "resourceAPIVersion") == "nvidia.com/v1beta1"
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, BETA, key)
    await gone(client, MODEL_DEPLOYMENT, key)
    assert operator.writes(user).count("patch dynamographdeployments llama") == 1
    assert operator.refused() == []
