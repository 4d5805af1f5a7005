"""The catalogue under an account with exactly its rights: nothing is refused, and all rights are used."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.catalogue.conftest import Ground, running_catalogue
from tests.support.audit import AuditReader
from tests.support.rights import applied, granted, requests_until_used, unused

from airunway.kube import JOB, Client, load_config
from airunway.resource import dig
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.rights import catalogue_guard, catalogue_rules, template_rights
from airunway_testing.controlplane import Cluster
from airunway_testing.registry.model_image import MODEL_SERVER
from airunway_testing.storage.pod_runner import PodRunner

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("events_again_soon")]

RARE = {
    ("update", "modeltemplates/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    ("update", "clustermodeltemplates/finalizers"): "asked for inside the API server, by the same plugin",
    ("patch", "events"): "only an event that comes again is patched",
    **{(verb, "leases"): "only one of several replicas asks for a lease" for verb in ("create", "get", "update")},
}
"""Rights that are needed, and that the audit log of one replica cannot show."""


@pytest.mark.parametrize("limited", [False, True], ids=["everywhere", "namespaces"])
async def test_what_is_granted_to_the_catalogue_is_used_and_is_enough(
    ground: Ground, runner: PodRunner, cluster: Cluster, client: Client, audit_log: Path, *, limited: bool
) -> None:
    user = f"system:serviceaccount:{ground.home}:{CATALOGUE_MANAGER}"
    watched = [ground.namespace, ground.home] if limited else []
    rights, audit = catalogue_rules(), AuditReader(audit_log)
    audit.read()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(granted(client, rights, user=user, namespace=ground.home, watched=watched))
        guard = catalogue_guard(user, own=ground.home, namespaces=watched, name=f"guard-{ground.namespace}")
        await enter(applied(client, guard))
        account = await enter(Client(load_config(kubeconfig=cluster.kubeconfig_for(user))))
        async with running_catalogue(account, namespaces=watched, home=ground.home):
            await lived_through(ground)

            seen = await requests_until_used(audit, template_rights(), user=user, rare=RARE)
            assert unused(template_rights(), seen, rare=RARE) == []
    refused = [request for request in seen if request.code == 403]
    assert refused == []


async def lived_through(ground: Ground) -> None:
    """A success on each kind, and a spec that changes while its Job runs."""
    image = {"image": "registry.example/model:1", "command": [MODEL_SERVER]}
    shared = await ground.template("shared", cluster=True, discovery=image)
    await ground.until(shared, "Ready")
    key = await ground.template(discovery={**image, "args": ["--seconds=600"]})
    await ground.until(key, "Progressing")
    await ground.template(discovery=image)
    await ground.until(key, "Ready")

    async def one_left() -> bool:
        jobs = await ground.client.list_all(JOB, namespace=ground.namespace)
        return all(dig(each, "status", "completionTime") for each in jobs)

    await ground.eventually(one_left)
