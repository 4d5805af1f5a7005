"""A deployment with a template from its creation to Running, and what edits of the template do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.platform.conftest import SPEC, WORKSPACE, Configs
from tests.support.audit import AuditReader

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_SOURCE, MODEL_TEMPLATE
from airunway.kube import DEPLOYMENT, Client, NotFound
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true, key_of, labels_of, uid_of
from airunway.revisions.revision import is_in_effect, pending_parts
from airunway_testing.eventually import eventually
from airunway_testing.expectations import phase_is, reason_is
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    remove_definition,
    running_provider,
    until,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
DEFAULTS: Resource = {
    "image": "registry.example/team/vllm:1.0",
    "resources": {"gpu": {"count": 1}},
    "env": [{"name": "A", "value": "1"}],
}


class TemplateFiles:
    """Writes and deletes templates."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def write(
        self, name: str, *, cluster: bool = False, phase: str = "", found: Resource | None = None, **spec: Any
    ) -> None:
        """Apply a template of `MODEL`; with a `phase` as the catalogue would report it, and the hardware that it has
        `found`.
        """
        kind = CLUSTER_MODEL_TEMPLATE if cluster else MODEL_TEMPLATE
        metadata = {"name": name, **({} if cluster else {"namespace": self._namespace})}
        body = {"apiVersion": names.API_VERSION, "kind": kind.kind, "metadata": metadata}
        wanted = {"modelName": MODEL, "defaults": DEFAULTS, **spec}
        await self._client.apply(kind, {**body, "spec": wanted}, manager="platform", force=True)
        if phase:
            written: Resource = {"phase": phase, "reason": "GPUNotAvailable" if phase == "NotAvailable" else phase}
            if found is not None:
                written["hardware"] = found
            await self._client.apply(
                kind, {**body, "status": written}, manager="airunway-catalogue", force=True, subresource="status"
            )

    async def delete(self, name: str) -> None:
        await self._client.delete(MODEL_TEMPLATE, ObjectKey(self._namespace, name))

    async def clear(self) -> None:
        for template in await self._client.list_all(CLUSTER_MODEL_TEMPLATE):
            await self._client.delete(CLUSTER_MODEL_TEMPLATE, key_of(template))


@pytest.fixture
async def templates(operator: None, configs: Configs, client: Client, namespace: str) -> AsyncIterator[TemplateFiles]:
    found = TemplateFiles(client, namespace)
    yield found
    await found.clear()


@pytest.fixture
async def deploy(templates: TemplateFiles, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment that names the template ``fast``."""
    async with deployments(client, namespace, {"templateRef": {"name": "fast"}, "provider": {"name": "kaito"}}) as make:
        yield make


async def container(client: Client, key: ObjectKey) -> Resource:
    workspace = await client.get(WORKSPACE, key)
    found: Resource = workspace["inference"]["template"]["spec"]["containers"][0]
    return found


def ready(deployment: Resource) -> str:
    condition = condition_of(deployment, "TemplateReady") or {}
    return f"{condition.get('status')}/{condition.get('reason')}"


def warns_of_newer_values(deployment: Resource) -> bool:
    return pending_parts(deployment) == {"template"}


async def test_a_deployment_with_only_a_template_runs_and_an_edit_restarts_nothing(
    templates: TemplateFiles, deploy: Deploy, client: Client, audit_log: Path
) -> None:
    early = await deploy("early")
    found = await until(client, early, reason_is("TemplateReady", "TemplateNotFound"))
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Pending", "TemplateNotFound")
    assert "there is no ModelTemplate fast" in found["status"]["message"]
    await templates.write("fast")
    found = await until(client, early, phase_is("Running"))
    assert ready(found) == "True/TemplateFound"
    assert dig(found, "status", "effectiveTemplate", "ref", "name") == "fast"
    assert "model" not in found["spec"], "the user's own spec stays as it was written"
    made = await container(client, early)
    assert made["image"] == DEFAULTS["image"]
    assert {"name": "A", "value": "1"} in made["env"]

    uid, log = uid_of(await client.get(WORKSPACE, early)), AuditReader(audit_log)
    await templates.write("fast", defaults={**DEFAULTS, "env": [{"name": "A", "value": "2"}]})
    waiting = "as it was before its last change"
    await until(client, early, lambda md: waiting in str(condition_of(md, "TemplateReady")))
    await until(client, early, warns_of_newer_values)
    fresh = await deploy("fresh")
    await until(client, fresh, phase_is("Running"))
    assert {"name": "A", "value": "2"} in (await container(client, fresh))["env"]
    await client.merge_patch(MODEL_DEPLOYMENT, early, {"spec": {"suspend": False, "gateway": {}}}, manager="user")
    await asyncio.sleep(1)
    touched = [r for r in log.read() if r.writes and r.name == early.name and r.resource.startswith("workspaces")]
    assert touched == []
    assert uid_of(await client.get(WORKSPACE, early)) == uid

    await templates.delete("fast")
    found = await until(client, early, phase_is("Degraded"))
    assert (ready(found), found["status"]["reason"]) == ("False/TemplateNotFound", "TemplateNotFound")
    assert uid_of(await client.get(WORKSPACE, early)) == uid
    await templates.write("fast", defaults={**DEFAULTS, "env": [{"name": "A", "value": "3"}]})
    await until(client, early, phase_is("Running"))
    await client.merge_patch(
        MODEL_DEPLOYMENT, early, {"spec": {"env": [{"name": "OWN", "value": "1"}]}}, manager="user"
    )

    async def taken() -> bool:
        live = await client.find(WORKSPACE, early)
        env = live["inference"]["template"]["spec"]["containers"][0].get("env", []) if live else []
        return {"name": "A", "value": "3"} in env and {"name": "OWN", "value": "1"} in env

    await eventually(taken)


async def test_by_model_the_best_ready_template_is_chosen_and_stays(
    templates: TemplateFiles, deploy: Deploy, client: Client
) -> None:
    by_model = {"templateRef": {"modelName": MODEL}}
    await templates.write("slow", cluster=True, phase="Ready", metric="throughput")
    await templates.write("quick", cluster=True, phase="Ready", metric="latency")
    await templates.write("absent", cluster=True, phase="NotAvailable", optimized=True)
    key = await deploy("chosen", **by_model)
    found = await until(client, key, phase_is("Running"))
    assert dig(found, "status", "effectiveTemplate", "ref") == {"kind": "ClusterModelTemplate", "name": "quick"}
    await templates.write("twin", cluster=True, phase="Ready", metric="latency")
    other = await deploy("ambiguous", **by_model)
    found = await until(client, other, reason_is("TemplateReady", "TemplateSelectionAmbiguous"))
    assert "ClusterModelTemplate quick, ClusterModelTemplate twin" in found["status"]["message"]
    assert dig(found, "status", "provider", "name") is None
    found = await client.get(MODEL_DEPLOYMENT, key)
    assert (dig(found, "status", "effectiveTemplate", "ref", "name"), ready(found)) == ("quick", "True/TemplateFound")
    await client.merge_patch(
        MODEL_DEPLOYMENT, other, {"spec": {"templateRef": {"metric": "throughput"}}}, manager="user"
    )
    found = await until(client, other, phase_is("Running"))
    assert dig(found, "status", "effectiveTemplate", "ref", "name") == "slow"


async def test_a_template_made_again_for_another_model_changes_no_deployment(
    templates: TemplateFiles, deploy: Deploy, client: Client
) -> None:
    await templates.write("best", phase="Ready")
    key = await deploy("chosen", templateRef={"modelName": MODEL})
    await until(client, key, phase_is("Running"))
    await templates.delete("best")
    await templates.write("best", phase="Ready", modelName="org/other")
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"env": [{"name": "OWN", "value": "1"}]}}, manager="user")

    async def taken() -> bool:
        try:
            return {"name": "OWN", "value": "1"} in (await container(client, key)).get("env", [])
        except NotFound:  # KAITO has no update of pods: the Workspace is replaced
            return False

    await eventually(taken)  # with what the template gave
    found = await until(client, key, phase_is("Degraded"))
    assert ready(found) == "False/TemplateNotFound"
    assert dig(found, "status", "revision", "template", "spec", "model", "id") == MODEL
    assert str(await client.get(WORKSPACE, key)).count("org/other") == 0
    await templates.write("second", phase="Ready")
    found = await until(client, key, phase_is("Running"))
    assert (dig(found, "status", "effectiveTemplate", "ref", "name"), ready(found)) == ("second", "True/TemplateFound")


async def test_a_deployment_from_before_the_catalogue_s_first_status_gets_its_node_affinity(
    templates: TemplateFiles, client: Client, kubeconfig: Path, namespace: str
) -> None:
    hardware = {"gpu": {"count": 1, "model": "H100"}}
    await templates.write("fast", hardware=hardware)
    base = {"templateRef": {"name": "fast"}, "provider": {"name": "vllm"}}
    async with running_provider(kubeconfig, load("vllm")), deployments(client, namespace, base) as make:
        key = await make("early")
        found = await until(client, key, lambda md: dig(md, "status", "provider", "resourceName") is not None)
        made = ObjectKey(key.namespace, found["status"]["provider"]["resourceName"])
        uid = uid_of(await client.get(DEPLOYMENT, made))
        requirement = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}

        async def required() -> bool:
            affinity = dig(await client.get(DEPLOYMENT, made), "spec", "template", "spec", "affinity", "nodeAffinity")
            terms = dig(affinity, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
            return bool(terms) and requirement in terms[0]["matchExpressions"]

        assert not await required()
        await templates.write("fast", hardware=hardware, phase="Ready", found={"requirements": [requirement]})
        await eventually(required)
        assert uid_of(await client.get(DEPLOYMENT, made)) == uid


async def test_another_template_recreates_only_for_another_identity(
    templates: TemplateFiles, deploy: Deploy, client: Client
) -> None:
    await templates.write("fast")
    await templates.write("same", defaults={**DEFAULTS, "env": [{"name": "A", "value": "9"}]})
    key = await deploy("moves")
    await until(client, key, phase_is("Running"))
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"templateRef": {"name": "absent"}}}, manager="user")
    before = uid_of(await client.get(WORKSPACE, key))
    found = await until(client, key, phase_is("Degraded"))
    assert ready(found) == "False/TemplateNotFound"
    assert uid_of(await client.get(WORKSPACE, key)) == before, "what serves stays"
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"templateRef": {"name": "same"}}}, manager="user")

    async def moved() -> bool:
        live = await client.find(WORKSPACE, key)
        env = live["inference"]["template"]["spec"]["containers"][0].get("env", []) if live else []
        return {"name": "A", "value": "9"} in env

    await eventually(moved)
    await until(client, key, phase_is("Running"))


async def test_with_rollout_immediately_newer_values_are_taken_in_waves(
    templates: TemplateFiles, deploy: Deploy, configs: Configs, client: Client
) -> None:
    await configs.write(rollout="Immediately")
    await templates.write("fast")
    keys = [await deploy(name) for name in ("one", "two", "three")]
    for key in keys:
        await until(client, key, lambda found: phase_is("Running")(found) and _newest(found))
    most = 0

    async def taken() -> bool:
        nonlocal most
        live = await client.list_all(MODEL_DEPLOYMENT, namespace=keys[0].namespace)
        most = max(most, sum(not is_true(each, "Ready") for each in live))
        envs = [(await client.find(WORKSPACE, key) or {}).get("inference") for key in keys]
        return all({"name": "A", "value": "2"} in (_env(each) if each else []) for each in envs)

    await templates.write("fast", defaults={**DEFAULTS, "env": [{"name": "A", "value": "2"}]})
    await eventually(taken)
    for key in keys:
        found = await until(client, key, lambda found: phase_is("Running")(found) and _newest(found))
        assert not warns_of_newer_values(found)
        assert "newerHash" not in found["status"]["effectiveTemplate"]
    assert most <= 1, "one at a time"


def _newest(deployment: Resource) -> bool:
    """Whether what the template gives is in effect in the provider's objects."""
    return is_in_effect(deployment) and not pending_parts(deployment)


def _env(inference: Resource) -> list[Resource]:
    found: list[Resource] = inference["template"]["spec"]["containers"][0].get("env", [])
    return found


async def test_the_gpu_type_of_a_template_counts_over_the_default_of_the_api_server(
    templates: TemplateFiles, client: Client, kubeconfig: Path, namespace: str
) -> None:
    await templates.write(
        "fast", hardware={"gpu": {"count": 2, "type": "amd.com/gpu"}}, defaults={"image": "r.example/x:1"}
    )
    base = {"templateRef": {"name": "fast"}, "provider": {"name": "vllm"}}
    async with running_provider(kubeconfig, load("vllm")), deployments(client, namespace, base) as make:
        for name, resources, expected in (
            ("only", None, {"amd.com/gpu": "2"}),
            ("counted", {"gpu": {"count": 1}}, {"amd.com/gpu": "1"}),
            ("sliced", {"gpu": {"count": 1, "type": "nvidia.com/mig-1g.5gb"}}, {"nvidia.com/mig-1g.5gb": "1"}),
        ):
            key = await make(name, **({"resources": resources} if resources else {}))
            found = await until(client, key, lambda md: dig(md, "status", "provider", "resourceName") is not None)
            if name == "counted":
                assert found["spec"]["resources"]["gpu"]["type"] == "nvidia.com/gpu", "the API server has written it"
            made = await client.get(DEPLOYMENT, ObjectKey(key.namespace, found["status"]["provider"]["resourceName"]))
            (served,) = made["spec"]["template"]["spec"]["containers"]
            gpus = {field: str(value) for field, value in served["resources"]["limits"].items() if "/" in field}
            assert gpus == expected, name


async def test_a_deployment_without_a_template_is_the_same_with_and_without_the_kinds(
    templates: TemplateFiles, deploy: Deploy, client: Client
) -> None:
    spec = {**SPEC, "templateRef": None, "env": [{"name": "A", "value": "1"}]}

    async def made() -> tuple[Resource, Resource]:
        """What a deployment becomes, and its conditions."""
        key = await deploy("plain", **spec)
        found = await until(client, key, phase_is("Running"))
        live = await client.get(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)

        async def away() -> bool:
            return await client.find(MODEL_DEPLOYMENT, key) is None

        await eventually(away)
        annotations = {k: v for k, v in live["metadata"]["annotations"].items() if k != names.DEPLOYMENT_UID}
        wanted = {**live, "metadata": {"labels": labels_of(live), "annotations": annotations}, "status": None}
        return wanted, {"provider": found["status"]["provider"], "fields": sorted(found["status"])}

    await templates.write("fast")
    await templates.write("shared", cluster=True, phase="Ready")
    before = await made()
    try:
        for kind in (MODEL_TEMPLATE, CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE):
            await remove_definition(client, f"{kind.plural}.{kind.group}")
        assert await made() == before
    finally:
        await install_definitions(client)
