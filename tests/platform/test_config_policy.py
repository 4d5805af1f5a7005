"""A RuntimeConfig that the policy does not allow reaches no pod, and touches none (docs/admission.md, "The policy")."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.platform.conftest import SPEC, WORKSPACE, Configs
from tests.platform.test_pod_settings import agrees, env_of, upstream, waits
from tests.support.audit import AuditReader

from airunway.controller.application import CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of, dig
from airunway.status.conditions import SERVED
from airunway.validation.policy import parse_policy
from airunway_testing.eventually import eventually
from airunway_testing.expectations import phase_is
from airunway_testing.operator import (
    deployments,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import simulators_for

pytestmark = pytest.mark.apiserver

STRICT, LAX = "rules: [{environment: [VLLM_*]}]", "rules: [{environment: ['*']}]"
GOOD = [{"name": "VLLM_LOG", "value": "1"}]
EVIL = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def ready(deployment: Resource) -> tuple[object, object]:
    found = condition_of(deployment, "RuntimeConfigReady") or {}
    return found.get("status"), found.get("reason")


def is_refused(deployment: Resource) -> bool:
    return ready(deployment) == ("False", "NotAllowed")


async def test_what_the_policy_refuses_makes_nothing_and_touches_nothing_until_it_is_allowed(
    kubeconfig: Path,
    client: Client,
    kaito: ProviderHost,
    configs: Configs,
    namespace: str,
    audit_log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("airunway.controller.policies.REREAD", 0.2)
    policy = tmp_path / "policy.yaml"
    policy.write_text(STRICT)
    simulators = simulators_for((kind.group, kind.kind) for kind in kaito.manifest.upstream)
    await install_definitions(client, [crd for each in simulators for crd in each.custom_resource_definitions()])
    await remove_leftovers(client)
    await configs.write(env=GOOD)
    async with (
        running_core(kubeconfig, settings=CoreSettings(policy=PolicyFile(policy))) as core,
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
        deployments(client, namespace, SPEC) as create,
    ):
        serving = await create("serving")
        await until(client, serving, agrees)
        log = AuditReader(audit_log)
        await configs.write(env=EVIL)
        degraded = await until(client, serving, phase_is("Degraded"))
        assert degraded["status"]["reason"] == "NotAllowed"
        assert "'NVIDIA_VISIBLE_DEVICES' is not allowed" in degraded["status"]["message"]
        assert degraded["status"]["endpoint"]["service"], "it serves"
        waiting = await create("waiting")
        assert (await until(client, waiting, is_refused))["status"]["phase"] == "Pending"
        assert upstream(log.read()) == []
        change = {"spec": {"image": "registry.example/team/vllm:2"}}
        await client.merge_patch(MODEL_DEPLOYMENT, serving, change, manager="user")

        async def applied() -> bool:  # with the settings that it has
            text = str(await client.find(WORKSPACE, serving))
            return "vllm:2" in text and await env_of(client, serving) == ["VLLM_LOG"]

        await eventually(applied)
        await until(client, serving, lambda d: is_refused(d) and dig(d, "status", "observedGeneration") == 2)
        await until(client, serving, lambda d: dig(condition_of(d, SERVED), "observedGeneration") == 2)
        assert await client.find(WORKSPACE, waiting) is None

        policy.write_text(LAX)
        await until(client, waiting, agrees)
        assert await env_of(client, waiting) == ["NVIDIA_VISIBLE_DEVICES"]
        await until(client, serving, waits)
        assert await env_of(client, serving) == ["VLLM_LOG"], "what serves takes it with its next change"

        log = AuditReader(audit_log)
        policy.write_text(STRICT)
        await eventually(lambda: core.policy == parse_policy(STRICT))
        late = await create("late")
        await until(client, late, is_refused)
        for key in (serving, waiting):
            assert ready(await client.get(MODEL_DEPLOYMENT, key)) == ("True", "ConfigFound"), "it was accepted"
        await configs.write(env=GOOD)
        await until(client, late, agrees)
        assert await env_of(client, late) == ["VLLM_LOG"]
        assert {request.name for request in upstream(log.read())} == {"late"}
