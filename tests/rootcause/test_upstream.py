"""Causes that no pod shows: the upstream is not there, does not look, or its API server refuses what we write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.faults import has_cause, parents_are_fine
from tests.support.kstatus import Health, health

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, Invalid, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, is_true, key_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import install_definitions, remove_definition, running_core, running_provider, until
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]

KAITO: Resource = {"name": "kaito"}

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
POLICY = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
)
BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)


def exists(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "provider", "resourceName"))


async def gone(client: Client, key: ObjectKey) -> None:
    await client.delete(MODEL_DEPLOYMENT, key)
    async with asyncio.timeout(PATIENCE):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=key.namespace):
            await asyncio.sleep(0.05)


async def test_the_upstream_is_not_installed(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "early")
    definitions = load_simulator("kaito").custom_resource_definitions()
    for definition in definitions:
        await remove_definition(client, key_of(definition).name)
    async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
        await client.create(MODEL_DEPLOYMENT, manifest(key.name, provider=KAITO))
        found = await until(client, key, has_cause("Upstream.NotInstalled"))
        status = found["status"]
        assert (status["phase"], status["reason"]) == ("Pending", "UpstreamNotInstalled")
        assert status["message"] == "Provider 'kaito' CRD not installed in cluster"
        assert status["rootCause"]["object"] == "CustomResourceDefinition/workspaces.kaito.sh"
        assert "Install it" in status["rootCause"]["message"]
        assert health(found) is Health.IN_PROGRESS
        await install_definitions(client, definitions)
        after = await until(client, key, exists, what="a Workspace")
        assert "rootCause" not in after["status"]
        await gone(client, key)


async def there(client: Client, definition: Resource) -> bool:
    try:
        await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(definition))
    except NotFound:
        return False
    return True


async def test_the_upstream_s_controller_does_not_look_for_five_minutes(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    """Nobody plays KAITO. The second provider has a clock that is six minutes ahead."""
    key = ObjectKey(namespace, "ignored")
    async with running_core(kubeconfig):
        async with running_provider(kubeconfig, kaito):
            await client.create(MODEL_DEPLOYMENT, manifest(key.name, provider=KAITO))
            first = await until(client, key, exists, what="a Workspace")
            assert "rootCause" not in first["status"]
        later = timedelta(minutes=6)
        async with running_provider(kubeconfig, kaito, clock=lambda: datetime.now(UTC) + later):
            found = await until(client, key, has_cause("Provider.Stale"))
            ready = condition_of(found, "Ready") or {}
            assert (ready["status"], ready["reason"]) == ("Unknown", "StaleStatus")
            assert found["status"]["phase"] == first["status"]["phase"]  # unchanged
            assert found["status"]["rootCause"]["object"] == f"Workspace/{namespace}/ignored"
            assert "has not reported" in found["status"]["message"]
            assert health(found) is Health.IN_PROGRESS
            silent = await until(client, key, lambda live: not is_true(live, "DependenciesReachable"))
            child = condition_of(silent, "ProviderResourceReady") or {}
            assert (child["status"], child["reason"]) == ("Unknown", "StaleStatus")
            pending = {
                "type": "WorkspaceSucceeded",
                "status": "False",
                "reason": "workspacePending",
                "message": "waits",
                "observedGeneration": 1,
                "lastTransitionTime": format_time(datetime.now(UTC)),
            }
            status = {"status": {"state": "Pending", "conditions": [pending]}}
            await client.merge_patch(WORKSPACE, key, status, subresource="status")
            heard = await until(client, key, lambda live: "rootCause" not in live["status"], what="the word of KAITO")
            assert (condition_of(heard, "Ready") or {})["status"] == "False"
            assert heard["status"]["message"] == "waits"
            await until(client, key, parents_are_fine)
            await gone(client, key)


async def test_a_policy_of_the_cluster_refuses_the_upstream_s_object(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "forbidden")
    name = f"no-workspaces-{namespace}"
    rule = {
        "apiGroups": [WORKSPACE.group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [WORKSPACE.plural],
    }
    policy = {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "no Workspaces in here", "reason": "Invalid"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    await client.create(POLICY, policy)
    await client.create(BINDING, binding)
    trial = {
        "apiVersion": WORKSPACE.api_version,
        "kind": WORKSPACE.kind,
        "metadata": {"name": "trial", "namespace": namespace},
    }
    async with asyncio.timeout(PATIENCE):  # the API server learns of a policy by a watch
        while await is_taken(client, trial):
            await asyncio.sleep(0.1)
    async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
        await client.create(MODEL_DEPLOYMENT, manifest(key.name, provider=KAITO))
        found = await until(client, key, has_cause("Provider.Rejected"))
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Pending", "InvalidSpec")
        assert "Workspace 'forbidden' was refused" in found["status"]["message"]
        assert "no Workspaces in here" in found["status"]["message"]
        assert not is_true(found, "ResourceCreated")
        assert health(found) is Health.FAILED
        await client.delete(BINDING, ObjectKey("", name))
        await client.delete(POLICY, ObjectKey("", name))
        after = await until(client, key, exists, what="a Workspace, without the policy")
        assert "rootCause" not in after["status"]
        await until(client, key, parents_are_fine)
        await gone(client, key)


async def is_taken(client: Client, obj: Resource) -> bool:
    try:
        await client.apply(WORKSPACE, obj, manager="trial", dry_run=True)
    except Invalid:
        return False
    return True
