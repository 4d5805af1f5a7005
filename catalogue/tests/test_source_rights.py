"""Scans under an account with exactly the catalogue's rights and its guard: nothing is refused, all rights are used."""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from catalogue.tests.conftest import Ground, running_worker
from tests.support.audit import AuditReader
from tests.support.rights import applied, granted, requests_until_used, unused

from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE
from airunway.kube import ApiError, Client, load_config
from airunway.resource import ObjectKey, key_of
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.pull_secrets import SECRET
from airunway_catalogue.rights import catalogue_guard, catalogue_rules, source_rights
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import eventually
from airunway_testing.registry.server import Image, container_registry

pytestmark = pytest.mark.apiserver

RARE = {
    ("get", "modelsources"): "only where a source was edited during its scan and the watch is late",
    ("get", "configmaps"): "only where a source names authorities of its own",
}
USERS = {"robot": "the-password-of-the-robot"}


async def test_what_is_granted_for_scans_is_used_and_is_enough(
    ground: Ground, control_plane: Cluster, client: Client, audit_log: Path
) -> None:
    user = f"system:serviceaccount:{ground.home}:{CATALOGUE_MANAGER}"
    audit = AuditReader(audit_log)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(granted(client, catalogue_rules(["pull"]), user=user, namespace=ground.home))
        await enter(applied(client, catalogue_guard(user, own=ground.home, name=f"guard-{ground.home}")))
        account = await enter(Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))))
        registry = await enter(container_registry([Image("a", "1"), Image("a", "2")], auth="token", users=USERS))
        auths = {registry.host: {"username": "robot", "password": USERS["robot"]}}
        encoded = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "pull", "namespace": ground.home},
            "data": {".dockerconfigjson": encoded},
        }
        await client.create(SECRET, secret)
        async with running_worker(account, ground.home):
            pull = [{"name": "pull"}]
            source = await ground.write(
                "models", registry=registry.host, filters=[{"image": "a"}], imagePullSecrets=pull
            )
            status = await ground.scanned(source)
        assert (status["phase"], status["models"]) == ("Ready", 2)

        seen = await requests_until_used(audit, source_rights(["pull"]), user=user, rare=RARE)
        assert unused(source_rights(["pull"]), seen, rare=RARE) == []
        assert [request for request in seen if request.code == 403] == []

        [first, _] = await ground.templates()
        await refuses(account.delete(CLUSTER_MODEL_TEMPLATE, key_of(first)))

        async def guarded() -> bool:
            """The API server learns of policies by watches."""
            edit = {"spec": {"optimized": True}}
            try:
                await account.merge_patch(CLUSTER_MODEL_TEMPLATE, key_of(first), edit, dry_run=True)
            except ApiError as error:
                return "changes nothing of a template but its status" in error.message
            return False

        await eventually(guarded)
        await refuses(account.delete(MODEL_SOURCE, source))
        await refuses(account.list_all(SECRET, namespace=ground.home))
        await refuses(account.get(SECRET, ObjectKey(ground.home, "airunway-webhook-tls")))
        await refuses(account.get(SECRET, ObjectKey("kube-system", "any")))


async def refuses(request: object) -> None:
    """The API server refuses the request of the account."""
    with pytest.raises(ApiError) as error:
        await request  # type: ignore[misc]
    assert error.value.status in (403, 422)
