"""A model's life on KubeRay: edits, scaling, mode, drift, suspension, deletion, with least-privilege accounts."""

from __future__ import annotations

import pytest

from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway_testing.expectations import running_at
from airunway_testing.operator import until
from airunway_testing.stage import Stage

pytestmark = [pytest.mark.apiserver]

KUBERAY = {"provider": {"name": "kuberay"}}


async def test_a_deployment_that_names_kuberay_becomes_running_with_few_writes(
    stage: Stage, client: Client, kuberay: ProviderHost
) -> None:
    user = await stage.provider(kuberay)
    key = await stage.deploy(**KUBERAY)
    found = await until(client, key, running_at(1))
    assert found["status"]["endpoint"]["service"] == "llama-serve-svc"
    assert stage.writes(user) == [
        "patch modeldeployments llama",
        "patch rayservices llama",
        "patch modeldeployments/status llama",
        "patch modeldeployments/status llama",
    ]
    assert await stage.at_rest() == []
