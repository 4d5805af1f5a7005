"""The model cache part under an account with exactly its rights and guards: nothing is refused, all rights are used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.modelcache.conftest import Ground, running_part
from tests.modelcache.test_rows import FIVE_MINUTES
from tests.support.audit import AuditReader
from tests.support.rights import applied, granted, requests_until_used, unused

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import JOB, NAMESPACE, PERSISTENT_VOLUME_CLAIM, Client, load_config
from airunway.modelcache import artifacts as reconciling
from airunway.rbac.admission_policies import core_guard, model_cache_guard
from airunway.rbac.rights import core_rights, model_cache_rights
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of, uid_of
from airunway_testing.controlplane import Cluster
from airunway_testing.modelhub.serving import Stall

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("events_again_soon")]

RARE = {
    ("update", "modeldeployments/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    ("update", "modelartifacts/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    **{(verb, "leases"): "only one of several replicas asks for a lease" for verb in ("create", "get", "update")},
}
"""Rights that are needed, and that the audit log of one replica cannot show."""


@pytest.mark.parametrize("limited", [False, True], ids=["everywhere", "namespaces"])
async def test_what_is_granted_to_the_model_cache_part_is_used_and_is_enough(
    ground: Ground, cluster: Cluster, client: Client, home: str, audit_log: Path, *, limited: bool
) -> None:
    user = f"system:serviceaccount:{home}:{names.CORE_MANAGER}"
    watched = [ground.namespace] if limited else []
    rights, audit = model_cache_rights(), AuditReader(audit_log)
    audit.read()
    guard = f"guard-{ground.namespace}"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(granted(client, core_rights() + rights, user=user, namespace=home, watched=watched))
        policies = [*core_guard(user, name=guard), *model_cache_guard(user, own=home, namespaces=watched, name=guard)]
        await enter(applied(client, policies))
        account = await enter(Client(load_config(kubeconfig=cluster.kubeconfig_for(user))))
        await allowed(client, ground.namespace)
        await lived_through(ground, account)

        seen = await requests_until_used(audit, rights, user=user, rare=RARE)
        assert unused(rights, seen, rare=RARE) == []
    refused = [request for request in seen if request.code == 403]
    assert refused == []


async def test_a_download_waits_for_the_label_of_its_namespace_and_says_which_command_sets_it(
    ground: Ground, cluster: Cluster, client: Client, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "REFUSED_RETRY", 0.5)
    user = f"system:serviceaccount:{home}:{names.CORE_MANAGER}"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(granted(client, core_rights() + model_cache_rights(), user=user, namespace=home))
        await enter(applied(client, model_cache_guard(user, own=home, name=f"guard-{ground.namespace}")))
        account = await enter(Client(load_config(kubeconfig=cluster.kubeconfig_for(user))))
        await enter(running_part(account, namespace=ground.namespace))
        await ground.client.create(MODEL_ARTIFACT, mine(ground))
        told = f"kubectl label namespace {ground.namespace} {names.MODEL_CACHE_LABEL}=allowed"

        async def is_told() -> bool:
            live = await client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, "mine"))
            return told in dig(live, "status", "message", default="")

        await ground.eventually(is_told)
        assert await ground.downloads() == []
        await allowed(client, ground.namespace)
        await ground.eventually(lambda: is_ready(ground, "mine", size="1Gi"))


async def allowed(client: Client, namespace: str) -> None:
    """As an administrator does."""
    label = {"metadata": {"labels": {names.MODEL_CACHE_LABEL: "allowed"}}}
    await client.merge_patch(NAMESPACE, ObjectKey("", namespace), label)


async def lived_through(ground: Ground, account: Client) -> None:
    """Weights are fetched, put right, taken away, fetched into a larger claim, and deleted when nothing uses them."""
    async with running_part(account, namespace=ground.namespace):
        stalled = stall(ground)
        await ground.deploy("one", labels={"org.example/team": "a"})
        await ground.eventually(stalled)
        await put_right(ground)
        await hidden(ground)
        await ground.until("Ready", "one")

        stalled = stall(ground)
        await ground.client.create(MODEL_ARTIFACT, mine(ground))
        await ground.eventually(stalled)
        larger = {"spec": {"size": "2Gi"}}
        await ground.client.merge_patch(MODEL_ARTIFACT, ObjectKey(ground.namespace, "mine"), larger)
        await ground.eventually(lambda: is_ready(ground, "mine", size="2Gi"))

        volume = {"name": "scratch", "size": "1Gi", "mountPath": "/scratch"}
        dedicated = {"id": "acme/tiny", "cache": {"mode": "Dedicated"}, "storage": {"volumes": [volume]}}
        await ground.deploy("two", model=dedicated)
        await ground.until("Ready", "two")
        await ground.client.get(PERSISTENT_VOLUME_CLAIM, ObjectKey(ground.namespace, "two-scratch"))
        model = {"id": "acme/gated", "cache": {"mode": "Shared"}}
        await ground.deploy("three", model=model)
        failed = dig(await ground.until("GatedModel", "three"), "status", "modelCache", "artifactName")
        await ground.remove("three")
        await ground.eventually(lambda: unused_since(ground, failed))
    async with running_part(account, namespace=ground.namespace, later=FIVE_MINUTES):
        await ground.eventually(lambda: is_gone(ground, failed))


def stall(ground: Ground) -> Callable[[], bool]:
    """The next download stops within its weights; returns whether it has."""
    path, before = "model.safetensors", len(ground.hub.requests)
    ground.hub.inject(Stall(after=100), path=path)
    return lambda: any(each.path == path and each.sent for each in ground.hub.requests[before:])


def mine(ground: Ground) -> Resource:
    """A user's artifact."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_ARTIFACT.kind,
        "metadata": {"name": "mine", "namespace": ground.namespace},
        "spec": {"source": {"uri": "hf://acme/other"}, "size": "1Gi"},
    }


async def put_right(ground: Ground) -> None:
    """What others change on the claim is reverted."""
    (claim,) = await ground.all_of(PERSISTENT_VOLUME_CLAIM)
    wrong = {"metadata": {"labels": {names.CACHE_TYPE: "another"}}}
    await ground.client.merge_patch(PERSISTENT_VOLUME_CLAIM, key_of(claim), wrong, manager="somebody")

    async def right() -> bool:
        live = await ground.client.get(PERSISTENT_VOLUME_CLAIM, key_of(claim))
        return labels_of(live).get(names.CACHE_TYPE) == "artifact"

    await ground.eventually(right)


async def hidden(ground: Ground) -> None:
    """The Job loses the label by which it is watched: its name is taken, until somebody deletes it."""
    (job,) = await ground.downloads()
    await ground.client.merge_patch(JOB, key_of(job), {"metadata": {"labels": {names.PART: None}}})
    await ground.until("ResourceConflict", "one")
    await ground.client.delete(JOB, key_of(job), propagation="Background")

    async def anew() -> bool:
        return any(uid_of(each) != uid_of(job) for each in await ground.downloads())

    await ground.eventually(anew)


async def is_ready(ground: Ground, name: str, *, size: str) -> bool:
    live = await ground.client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, name))
    return (dig(live, "status", "phase"), dig(live, "status", "allocatedSize")) == ("Ready", size)


async def unused_since(ground: Ground, name: str) -> bool:
    live = await ground.client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, name))
    return bool(dig(live, "status", "unusedSince"))


async def is_gone(ground: Ground, name: str) -> bool:
    return await ground.client.find(MODEL_ARTIFACT, ObjectKey(ground.namespace, name)) is None
