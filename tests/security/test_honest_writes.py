"""What guards must let through: all that a provider writes for its samples, by each of its transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.matrix import asked, samples_in_files
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import NAMESPACE, Client, NotFound, load_config
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import provider_guard
from airunway.rbac.rights import provider_rights
from airunway.resource import Resource
from airunway_testing.controlplane import ControlPlane
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import install_definitions

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

OPERATOR, MODELS = "airunway-system", "models"
SAMPLES = Path(__file__).parents[2] / "providers"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server whose CRDs nobody else needs."""
    with ControlPlane("api", roomy=True) as made:
        yield made


@pytest.mark.parametrize("name", ["dynamo", "kaito", "kuberay", "llmd", "vllm"])
async def test_what_a_provider_writes_passes_its_guards(plane: ControlPlane, recordings: Path, name: str) -> None:
    host, user = load(name), f"system:serviceaccount:{OPERATOR}:{names.provider_manager(name)}"
    samples = samples_in_files(name, sorted((SAMPLES / name / "src").glob("*/samples/*.yaml")))
    assert samples
    async with (
        Client(load_config(kubeconfig=plane.kubeconfig)) as admin,
        Client(load_config(kubeconfig=plane.kubeconfig_for(user))) as account,
    ):
        for namespace in (OPERATOR, MODELS):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await admin.apply(NAMESPACE, body, manager="tests")
        await install_definitions(admin)
        config: Resource = {
            "apiVersion": names.API_VERSION,
            "kind": INFERENCE_PROVIDER_CONFIG.kind,
            "metadata": {"name": name},
        }
        await served(admin, config)
        told = {**config, "status": {"namespaces": {MODELS: "inference models llm gemma"}}}
        await admin.apply(INFERENCE_PROVIDER_CONFIG, told, manager="tests", subresource="status")
        async with (
            granted(admin, provider_rights(host.manifest), user=user, namespace=OPERATOR),
            applied(admin, provider_guard(host.manifest, user, own=OPERATOR)),
        ):
            answers = await asked(
                admin,
                MODELS,
                hosts=[host],
                samples=samples,
                folder=recordings / "upstream-crds",
                account=account,
                of="each transformer",  # what is written depends on it alone, beside the deployment
            )
    written = [answer for answer in answers if answer.kinds]
    assert {answer.sample for answer in written} == {sample.name for sample in samples}
    wrong = [
        answer for answer in answers if "ValidatingAdmissionPolicy" in answer.refusal or " cannot " in answer.refusal
    ]
    assert wrong == []


async def served(client: Client, config: Resource) -> None:
    """Returns once our own kinds can be written."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests")
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return
