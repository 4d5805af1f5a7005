"""The provider with the rights of docs/reference/llmd-roles.yaml: it uses them, needs and can grant no more."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.llmd.conftest import APART, POOL
from tests.llmd.test_life import picker

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, DEPLOYMENT, SERVICE, Client, Forbidden, Kind, load_config
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of
from airunway.runtime.access import provider_rights
from airunway.sdk import picker as picker_kit
from airunway_testing.audit import AuditReader, Request
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.operator import Deploy, gone, until
from airunway_testing.rights import unused
from airunway_testing.stage import edit

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RBAC = "rbac.authorization.k8s.io"
ROLE, BINDING = Kind(RBAC, "v1", "Role", "roles"), Kind(RBAC, "v1", "RoleBinding", "rolebindings")
ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")

LEASE = {(verb, "leases") for verb in ("create", "get", "update")}
GRANTED = {(verb, resource) for rule in picker_kit.RULES for resource in rule["resources"] for verb in rule["verbs"]}
RARE = {
    ("update", "modeldeployments/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    **dict.fromkeys(LEASE, "only one of several replicas asks for a lease"),
    **dict.fromkeys(GRANTED, "held so that a picker can be given it"),
    **{
        ("get", resource): "asked when an event tells of one that may make no pods"
        for resource in ("jobs", "statefulsets", "replicasets")
    },
    ("patch", "events"): "an event is written again when it is repeated, after ten seconds",
}


@pytest.fixture
def audit(audit_log: Path) -> AuditReader:
    """Reads from before the provider starts, where a test asks for it first."""
    return AuditReader(audit_log)


def of(user: str, requests: list[Request]) -> list[Request]:
    return [request for request in requests if request.user == user]


@pytest.mark.parametrize("llmd_operator", [{"gpusPerNode": 2}], indirect=True)
async def test_it_uses_all_that_it_is_granted_and_needs_no_more(
    audit: AuditReader, deploy: Deploy, client: Client, llmd: ProviderHost, account: str
) -> None:
    key, large = await deploy(**APART), await deploy("large", resources={"gpu": {"count": 4}})
    for each in (key, large):
        await until(client, each, running_at(1))
    group = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
    drifts: tuple[tuple[Kind, str, Resource], ...] = (
        (DEPLOYMENT, "llama-prefill", {"spec": {"replicas": 2}}),
        (SERVICE, "llama", {"spec": {"selector": {"app": "other"}}}),
        (POOL, "llama", {"spec": {"targetPorts": [{"number": 9}]}}),
        (CONFIG_MAP, "llama-epp", {"data": {"picker.yaml": ""}}),
        (ROLE, "llama-epp", {"rules": []}),
        (BINDING, "llama-epp", {"subjects": []}),
        (ACCOUNT, "llama-epp", {"metadata": {"annotations": {names.DEPLOYMENT_UID: "another"}}}),
        (group, "large-lws", {"spec": {"leaderWorkerTemplate": {"size": 3}}}),
    )
    seen: list[Request] = []
    for kind, name, change in drifts:
        where = type(key)(key.namespace, name)
        await client.merge_patch(kind, where, change, manager="somebody")
    for each in (key, large):
        generation = await edit(client, each, {"engine": {"contextLength": 2048}})
        await until(client, each, running_at(generation))
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.DRY_RUN: "true"}}})
    await until(client, key, condition_is("DryRun", "True"))
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.DRY_RUN: None}}})
    # Whose an object is that has a name which is wanted: the one thing for which an account without a spec is read.
    foreign = {"name": "taken-epp", "namespace": key.namespace}
    await client.create(ACCOUNT, {"apiVersion": "v1", "kind": ACCOUNT.kind, "metadata": foreign})
    taken = await deploy("taken")
    await until(client, taken, lambda found: "ServiceAccount" in str(condition_of(found, "ResourceCreated")))
    for each in (key, large, taken):
        await client.delete(MODEL_DEPLOYMENT, each)
        await gone(client, MODEL_DEPLOYMENT, each)
    seen += audit.read(watches=True)
    assert unused(provider_rights(llmd.manifest), of(account, seen), rare=RARE) == []
    ours = [r for r in of(account, seen) if r.namespace in ("", key.namespace)]
    assert [f"{r.verb} {r.resource} {r.name}" for r in ours if r.code == 403] == []


async def test_it_can_grant_a_picker_its_rights_and_nothing_beyond_them(
    deploy: Deploy, client: Client, cluster: Cluster, account: str
) -> None:
    """Kubernetes' own rule: who makes a Role must have what is in it."""
    key = await deploy()
    await until(client, key, running_at(1))
    role = await client.get(ROLE, picker(key.namespace))
    assert role["rules"] == [dict(rule) for rule in picker_kit.RULES]
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(
            Client(load_config(kubeconfig=cluster.kubeconfig_for(account)), user_agent="tests")
        )
        metadata = {"name": "more", "namespace": key.namespace}
        for rule in (
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]},
        ):
            body = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
            with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
                await own.apply(ROLE, body, manager="airunway-provider-llmd")
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "llama-epp"}],
        }
        with pytest.raises(Forbidden):
            await own.apply(BINDING, binding, manager="airunway-provider-llmd")
