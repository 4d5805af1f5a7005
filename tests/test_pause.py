"""`airunway.ai/reconcile-paused` on a deployment that runs: nothing moves, whatever is done to it, until it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.audit import AuditReader

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, uid_of
from airunway_testing.expectations import condition_is, phase_is, running_at
from airunway_testing.operator import until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]


def paused(value: str | None) -> Resource:
    return {"metadata": {"annotations": {names.PAUSED: value}}}


def said(deployment: Resource) -> Resource:
    """The status without what the core says while it pauses."""
    status = {key: value for key, value in deployment["status"].items() if key != "conditions"}
    status["conditions"] = [c for c in deployment["status"]["conditions"] if c["type"] != "Paused"]
    return status


async def test_59_pausing_what_runs_keeps_everything_as_it_is_until_the_pause_ends(
    operator: None, client: Client, manifest: Make, create: Create, audit_log: Path
) -> None:
    async def edit(patch: Resource) -> None:
        await client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="user")

    async def others_are_served(name: str) -> None:
        """What comes after the change was brought all the way: so the change was looked at before."""
        await until(client, await create(manifest(name)), phase_is("Running"))

    key = await create(manifest())
    before = await until(client, key, running_at(1))
    workspace = await client.get(WORKSPACE, key)
    await edit(paused("true"))
    await until(client, key, condition_is("Paused", "True"))
    audit = AuditReader(audit_log)

    theirs = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}
    drifted = await client.merge_patch(WORKSPACE, key, theirs, manager="somebody")
    await others_are_served("after-drift")
    await edit({"spec": {"model": {"id": "google/other-gguf/other.gguf"}}})
    await others_are_served("after-edit")
    await edit({"spec": {"suspend": True}})
    await others_are_served("after-suspend")

    after = await client.get(WORKSPACE, key)
    assert uid_of(after) == uid_of(workspace)
    assert after["metadata"]["resourceVersion"] == drifted["metadata"]["resourceVersion"]
    still = await client.get(MODEL_DEPLOYMENT, key)
    assert said(still) == said(before)
    assert (still["status"]["phase"], still["status"]["observedGeneration"]) == ("Running", 1)
    writes = [r for r in audit.read() if r.writes and (r.namespace, r.name) == key]
    assert [r.resource for r in writes if r.agent == "provider-kaito"] == []
    assert {r.resource for r in writes if r.agent == "core"} <= {"modeldeployments/status"}  # ``Paused``, each time

    await edit({"spec": {"suspend": False}, **paused(None)})
    resumed = await until(client, key, running_at(4))
    assert condition_of(resumed, "Paused") is None
    anew = await client.get(WORKSPACE, key)
    assert uid_of(anew) != uid_of(workspace)
    assert "other.gguf" in str(anew["inference"])
    assert dig(anew, "metadata", "labels", names.MODEL_DEPLOYMENT) == "gemma"
