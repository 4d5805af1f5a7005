"""M4 and B3: the plan of a dry run is a ConfigMap that many may read, and whose name others may have taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import yaml

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, Client, NotFound
from airunway.resource import ObjectKey, Resource, uid_of
from airunway_testing.expectations import phase_is, plan_says, reason_is
from airunway_testing.operator import until

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]

ASKED = {"airunway.ai/dry-run": "true"}
WITHDRAWN = {"metadata": {"annotations": {"airunway.ai/dry-run": None}}}
PLAN = "gemma-airunway-plan"


def foreign(namespace: str) -> Resource:
    metadata = {"name": PLAN, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"theirs": "kept"}}


async def test_m4_b3_a_foreign_config_map_of_the_plan_s_name_is_neither_written_nor_deleted(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    plan = ObjectKey(namespace, PLAN)
    before = await client.create(CONFIG_MAP, foreign(namespace))
    key = await create(manifest(annotations=ASKED))
    told = await until(client, key, reason_is("DryRun", "ResourceConflict"))
    assert PLAN in str(told["status"]["conditions"])
    await client.merge_patch(MODEL_DEPLOYMENT, key, WITHDRAWN, manager="user")
    await until(client, key, phase_is("Running"))
    after = await client.get(CONFIG_MAP, plan)
    assert (uid_of(after), after["metadata"]["resourceVersion"]) == (
        uid_of(before),
        before["metadata"]["resourceVersion"],
    )


async def test_m4_a_plan_that_somebody_replaced_is_not_deleted_with_the_dry_run(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    plan = ObjectKey(namespace, PLAN)
    key = await create(manifest(annotations=ASKED))
    await until(client, key, plan_says("the API server accepts it"))
    await client.delete(CONFIG_MAP, plan)
    await client.create(CONFIG_MAP, foreign(namespace))
    await client.merge_patch(MODEL_DEPLOYMENT, key, WITHDRAWN, manager="user")
    await until(client, key, phase_is("Running"))
    assert (await client.get(CONFIG_MAP, plan))["data"] == {"theirs": "kept"}


async def test_m4_a_plan_of_ours_goes_with_the_dry_run(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    key = await create(manifest(annotations=ASKED))
    await until(client, key, plan_says("the API server accepts it"))
    await client.merge_patch(MODEL_DEPLOYMENT, key, WITHDRAWN, manager="user")
    await until(client, key, phase_is("Running"))
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, ObjectKey(namespace, PLAN))


async def test_m4_a_plan_tells_no_values_of_variables_and_no_secret_arguments(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    canary = "canary-7b1f4e"
    key = await create(
        manifest(
            annotations=ASKED,
            env=[{"name": "HF_TOKEN", "value": f"{canary}-1"}, {"name": "PLAIN", "value": f"{canary}-2"}],
            engine={"type": "llamacpp", "extraArgs": [f"--api-key={canary}-3", "--api-key", f"{canary}-4"]},
        )
    )
    await until(client, key, plan_says("Would create"))
    plan = await client.get(CONFIG_MAP, ObjectKey(namespace, PLAN))
    assert canary not in str(plan)
    (workspace,) = yaml.safe_load_all(plan["data"]["objects.yaml"])
    assert workspace["kind"] == "Workspace"
    assert "HF_TOKEN" in str(workspace)
    assert "--api-key" in str(workspace)
