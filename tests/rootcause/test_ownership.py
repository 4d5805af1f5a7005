"""Who writes which condition, on a real API server: the overall ones change hands, silence is the core's word."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airunway.api import names
from airunway.first_seen import SKEW
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, is_true
from airunway.status.rollup import OVERALL
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]

KAITO: Resource = {"name": "kaito"}

OTHER = "other-provider"


def phase_is(phase: str) -> Callable[[Resource], bool]:
    return lambda found: dig(found, "status", "phase") == phase


def writers_of(deployment: Resource, condition: str) -> set[str]:
    """The field managers that own something of a condition besides its key."""
    key = f'k:{{"type":"{condition}"}}'
    return {
        entry["manager"]
        for entry in deployment["metadata"]["managedFields"]
        if "f:status" in dig(entry, "fieldsV1", "f:status", "f:conditions", key, default={})
    }


async def test_the_overall_conditions_are_handed_over_and_back(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "gemma")
    async with running_core(kubeconfig), running_simulator(kubeconfig, kaito, level="api"):
        await client.create(MODEL_DEPLOYMENT, manifest("gemma", provider=KAITO))
        alone = await until(client, key, lambda found: condition_of(found, "Reconciling") is not None)
        for type_ in OVERALL:
            assert writers_of(alone, type_) == {names.CORE_MANAGER}
        async with running_provider(kubeconfig, kaito):
            running = await until(client, key, phase_is("Running"))
            for type_ in OVERALL:
                # An equal value may have two owners; what the provider changes is its own from then on.
                assert names.provider_manager("kaito") in writers_of(running, type_)
            assert writers_of(running, "Ready") == {names.provider_manager("kaito")}
            assert not is_true(running, "Reconciling")
            config = {
                "apiVersion": INFERENCE_PROVIDER_CONFIG.api_version,
                "kind": INFERENCE_PROVIDER_CONFIG.kind,
                "metadata": {"name": OTHER},
                "spec": {
                    "capabilities": {
                        "engines": [{"name": "llamacpp", "cpuSupport": True, "servingModes": ["aggregated"]}]
                    }
                },
            }
            await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="test")
            # What serves is let go only for a provider that is ready to take it.
            alive = {"ready": True, "lastHeartbeat": format_time(datetime.now(UTC))}
            await client.apply(
                INFERENCE_PROVIDER_CONFIG, {**config, "status": alive}, manager="test", subresource="status"
            )
            await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"provider": {"name": OTHER}}})

            def returned(found: Resource) -> bool:
                return dig(found, "status", "provider", "name") == OTHER and all(
                    writers_of(found, type_) == {names.CORE_MANAGER} for type_ in OVERALL
                )

            back = await until(client, key, returned, what="the core to speak again")
            assert dig(back, "status", "phase") == "Pending"
            assert is_true(back, "Reconciling")
            assert condition_of(back, "ProviderResourceReady") is None
    await client.delete(MODEL_DEPLOYMENT, key)
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", OTHER))


async def test_a_silent_provider_is_told_by_the_core_and_loses_no_field(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key, config = ObjectKey(namespace, "quiet"), ObjectKey("", "kaito")
    async with running_core(kubeconfig), running_simulator(kubeconfig, kaito, level="api"):
        async with running_provider(kubeconfig, kaito):
            await client.create(MODEL_DEPLOYMENT, manifest("quiet", provider=KAITO))
            before = await until(client, key, phase_is("Running"))
            assert condition_of(before, "ProviderResponsive") is None
        long_ago = format_time(datetime.now(UTC) - SKEW - timedelta(minutes=6))
        await client.merge_patch(
            INFERENCE_PROVIDER_CONFIG, config, {"status": {"lastHeartbeat": long_ago}}, subresource="status"
        )

        def silent(found: Resource) -> bool:
            return (condition_of(found, "DependenciesReachable") or {}).get("reason") == "ProviderStale"

        told = await until(client, key, silent, what="the core to notice the silence")
        assert (condition_of(told, "ProviderResponsive") or {})["status"] == "False"
        assert writers_of(told, "ProviderResponsive") == {names.CORE_MANAGER}
        assert told["status"]["phase"] == "Running"  # the provider's last word stands
        assert writers_of(told, "Ready") == {names.provider_manager("kaito")}
        async with running_provider(kubeconfig, kaito):

            def heard(found: Resource) -> bool:
                return condition_of(found, "ProviderResponsive") is None and is_true(found, "DependenciesReachable")

            await until(client, key, heard, what="the provider to be heard again")
            await client.delete(MODEL_DEPLOYMENT, key)
