"""From `kubectl apply` to Running and away again, on a real API server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from tests.support.audit import AuditReader

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, Client, Kind, NotFound, Reflector
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, is_true, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, phase_is
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import event_about, gone, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
EVENT = Kind(group="events.k8s.io", version="v1", kind="Event", plural="events", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]


async def test_apply_to_running(
    operator: None, client: Client, manifest: Make, create: Create, kubectl: Kubectl, namespace: str
) -> None:
    key = await create(manifest())
    deployment = await until(client, key, phase_is("Running"))
    status = deployment["status"]
    assert status["provider"]["name"] == "kaito"
    assert status["provider"]["resourceKind"] == "Workspace"
    assert status["provider"]["resourceAPIVersion"] == "kaito.sh/v1beta1"
    assert re.fullmatch("[0-9a-f]{12}", status["provider"]["schemaHash"])  # as long as the lists of known ones have it
    assert status["provider"]["selectedReason"] == "matched capabilities: engine=llamacpp, gpu=false, mode=aggregated"
    assert status["observedGeneration"] == deployment["metadata"]["generation"]
    assert (status["endpoint"]["service"], status["endpoint"]["port"]) == ("gemma", 80)
    for type_ in ("Validated", "EngineSelected", "ProviderSelected", "ProviderCompatible", "ResourceCreated", "Ready"):
        assert is_true(deployment, type_), type_
    kubectl("wait", "--for=condition=Ready", "md/gemma", "-n", namespace, "--timeout=10s")
    line = kubectl("get", "md", "-o", "wide", "-n", namespace).stdout.splitlines()[1].split()
    assert line[:6] == ["gemma", "Running", manifest()["spec"]["model"]["id"], "llamacpp", "kaito", "1/1"]
    await event_about(client, key, "ResourceCreated")
    story = kubectl("describe", "md/gemma", "-n", namespace).stdout
    for word in ("ProviderSelected", "EngineSelected", "Created Workspace 'gemma'", "matched capabilities"):
        assert word in story


async def test_the_first_status_of_a_provider_has_all_that_is_known_of_a_new_object(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    """Two statuses on the way to Running: once it is made, and once it is ready. Nothing is added in between."""
    told: list[Resource] = []
    deployments = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)

    def on_change(_key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        status = (new or {}).get("status") or {}
        if "observedGeneration" in status and status != (old or {}).get("status"):
            told.append(status)

    deployments.add_handler(on_change)
    following = asyncio.create_task(deployments.run())
    await deployments.synced.wait()
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    async with asyncio.timeout(PATIENCE):
        while not told or told[-1]["phase"] != "Running":
            await asyncio.sleep(0.05)
    following.cancel()
    assert [status["phase"] for status in told] == ["Deploying", "Running"]
    assert told[0]["provider"]["schemaHash"] == told[-1]["provider"]["schemaHash"]
    # KAITO's release, and so which of the pods serve, is known from its own status only.
    assert told[-1]["selector"].startswith(told[0]["selector"])


async def test_s2_whoever_applies_under_the_provider_s_name_keeps_what_they_applied(
    operator: None, client: Client, manifest: Make, namespace: str
) -> None:
    body = manifest("namesake")
    body["metadata"]["namespace"] = namespace
    await client.apply(MODEL_DEPLOYMENT, body, manager=names.provider_manager("kaito"))
    key = ObjectKey(namespace, "namesake")
    deployment = await until(client, key, phase_is("Running"))
    assert deployment["spec"]["model"]["id"] == body["spec"]["model"]["id"]
    assert deployment["spec"]["engine"] == body["spec"]["engine"]
    assert deployment["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)


async def test_deleting_removes_the_workspace(operator: None, client: Client, manifest: Make, create: Create) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


async def test_deletion_waits_for_a_workspace_that_lingers(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    running = await until(client, key, phase_is("Running"))
    hold = {"metadata": {"finalizers": ["example.org/hold"]}}
    await client.merge_patch(WORKSPACE, key, hold, manager="somebody")
    await client.delete(MODEL_DEPLOYMENT, key)
    waiting = await until(client, key, phase_is("Terminating"))
    assert waiting["status"]["provider"] == running["status"]["provider"]  # where to look for what is left
    assert waiting["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
    await client.merge_patch(WORKSPACE, key, {"metadata": {"finalizers": []}}, manager="somebody")
    await gone(client, MODEL_DEPLOYMENT, key)


async def test_25_deletion_beats_pause(operator: None, client: Client, manifest: Make, create: Create) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    await client.merge_patch(
        MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.PAUSED: "true"}}}, manager="user"
    )
    await until(client, key, condition_is("Paused", "True"))
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)


async def test_29_drift_is_reverted_and_names_field_and_manager(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    before = await client.get(WORKSPACE, key)
    (container,) = dig(before, "inference", "template", "spec", "containers")
    edit = {
        "metadata": {"labels": {names.MODEL_DEPLOYMENT: "another", "their": "own"}},
        "inference": {"template": {"spec": {"containers": [{**container, "image": "registry.example/another:1"}]}}},
    }
    await client.merge_patch(WORKSPACE, key, edit, manager="kubectl-edit")
    async with asyncio.timeout(PATIENCE):
        while (live := await client.get(WORKSPACE, key))["metadata"]["labels"][names.MODEL_DEPLOYMENT] != "gemma":
            await asyncio.sleep(0.02)
    assert live["inference"] == before["inference"]
    assert live["metadata"]["labels"]["their"] == "own"  # fields of others are left alone
    assert uid_of(live) == uid_of(before)
    event = await event_about(client, key, "DriftDetected")
    assert "kubectl-edit" in event["note"]
    assert names.MODEL_DEPLOYMENT in event["note"]
    assert "inference.template.spec.containers" in event["note"]
    assert event["type"] == "Warning"
    events = await client.list_all(EVENT, namespace=key.namespace)
    assert [e.get("series") for e in events if e["reason"] == "DriftDetected"] == [None]  # once


async def test_9_an_identity_field_recreates_and_says_so_first(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    before = await client.get(WORKSPACE, key)
    change = {"spec": {"model": {"id": "google/other-gguf/other.gguf"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, change, manager="user")
    await until(
        client,
        key,
        lambda d: phase_is("Running")(d) and dig(d, "status", "observedGeneration") == 2,
        what="generation 2",
    )
    after = await client.get(WORKSPACE, key)
    assert uid_of(after) != uid_of(before)
    assert "other.gguf" in str(after["inference"])
    event = await event_about(client, key, "ResourceRecreated")
    assert "spec.model.id" in event["note"]


async def test_28_a_foreign_object_of_the_same_name_is_never_taken_over(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    foreign = {
        "apiVersion": "kaito.sh/v1beta1",
        "kind": "Workspace",
        "metadata": {"name": "gemma", "namespace": namespace},
        "resource": {"labelSelector": {"matchLabels": {"a": "b"}}},
        "inference": {"preset": {"name": "phi-4"}},
    }
    await client.create(WORKSPACE, foreign, manager="somebody")
    key = await create(manifest())
    deployment = await until(client, key, condition_is("ResourceCreated", "False"))
    condition = condition_of(deployment, "ResourceCreated") or {}
    assert condition["reason"] == "ResourceConflict"
    assert "is not managed by this ModelDeployment" in condition["message"]
    live = await client.get(WORKSPACE, key)
    assert live["inference"]["preset"]["name"] == "phi-4"
    assert names.SPEC_HASH not in annotations_of(live)
    await client.delete(WORKSPACE, key)
    await until(client, key, phase_is("Running"))  # retried when the other one goes


async def test_59_only_the_exact_word_pauses_and_nothing_is_made_meanwhile(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(annotations={names.PAUSED: "true"}))
    deployment = await until(client, key, condition_is("Paused", "True"))
    assert dig(deployment, "status", "provider", "name") is None
    for word in ("True", "1", "false"):
        other = await create(manifest(f"gemma-{word.lower()}", annotations={names.PAUSED: word}))
        await until(client, other, phase_is("Running"))
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.PAUSED: None}}}, manager="user")
    resumed = await until(client, key, phase_is("Running"))
    assert condition_of(resumed, "Paused") is None


async def test_suspend_removes_what_runs_and_resuming_brings_it_back(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"suspend": True}}, manager="user")
    suspended = await until(client, key, lambda d: dig(d, "status", "message") == "Suspended")
    assert (suspended["status"]["phase"], suspended["status"]["reason"]) == ("Pending", "Suspended")
    assert not is_true(suspended, "Ready")
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"suspend": False}}, manager="user")
    await until(client, key, phase_is("Running"))


async def test_an_incompatible_deployment_says_which_field_and_creates_nothing(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(affinity={"nodeAffinity": {}}, provider={"name": "kaito"}))
    deployment = await until(client, key, condition_is("ProviderCompatible", "False"))
    condition = condition_of(deployment, "ProviderCompatible") or {}
    assert condition["reason"] == "IncompatibleConfiguration"
    assert "use spec.nodeSelector" in condition["message"]
    assert deployment["status"]["phase"] == "Pending"
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"affinity": None}}, manager="user")
    running = await until(client, key, phase_is("Running"))
    assert is_true(running, "ProviderCompatible")
    assert running["status"]["message"] == "All replicas are ready: Workspace gemma"  # 48: nothing stale is left


async def test_a_provider_that_nobody_registered_is_waited_for(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(provider={"name": "nosuch"}))
    deployment = await until(client, key, condition_is("ProviderSelected", "False"))
    condition = condition_of(deployment, "ProviderSelected") or {}
    assert condition["reason"] == "ProviderNotFound"
    assert "'nosuch' is not registered (registered: kaito)" in condition["message"]
    assert deployment["status"]["phase"] == "Pending"


async def test_60_restarting_core_and_provider_writes_nothing(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, audit_log: Path
) -> None:
    async with running_simulator(kubeconfig, kaito, level="api"):
        async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
            for number in range(5):
                await client.create(MODEL_DEPLOYMENT, manifest(f"gemma-{number}"))
            namespace = manifest()["metadata"]["namespace"]
            for number in range(5):
                await until(client, ObjectKey(namespace, f"gemma-{number}"), phase_is("Running"))
        audit = AuditReader(audit_log)
        async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
            # A change of one of them shows that the new processes have come as far as working.
            await client.merge_patch(
                MODEL_DEPLOYMENT,
                ObjectKey(namespace, "gemma-0"),
                {"metadata": {"labels": {"airunway.ai/x": "y"}}},
                manager="u",
            )
            async with asyncio.timeout(PATIENCE):
                while (
                    "airunway.ai/x"
                    not in ((await client.get(WORKSPACE, ObjectKey(namespace, "gemma-0")))["metadata"]["labels"])
                ):
                    await asyncio.sleep(0.02)
    ours = [r for r in audit.read() if r.namespace == namespace and r.agent in ("core", "provider-kaito") and r.writes]
    warning = ("modeldeployments/status", "gemma-0")  # the label waits for the next change to reach the pods
    assert {(r.resource, r.name) for r in ours if r.resource != "events"} - {warning} == {("workspaces", "gemma-0")}


async def test_an_upstream_that_comes_later_is_noticed(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    """44: CRD installed after start, and removed while running; no restart."""
    crd = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
    name = ObjectKey("", "workspaces.kaito.sh")
    definition = await client.get(crd, name)
    await client.delete(crd, name)
    await gone(client, crd, name)
    async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
        key = await create(manifest(provider={"name": "kaito"}))
        waiting = await until(client, key, lambda d: dig(d, "status", "reason") == "UpstreamNotInstalled")
        assert waiting["status"]["message"] == "Provider 'kaito' CRD not installed in cluster"
        assert waiting["status"]["phase"] == "Pending"
        fresh = {key: value for key, value in definition.items() if key in ("apiVersion", "kind", "spec")}
        await client.create(crd, {**fresh, "metadata": {"name": name.name}})
        await until(client, key, lambda d: is_true(d, "ResourceCreated"))
        await client.get(WORKSPACE, key)


async def test_a_dry_run_publishes_the_plan_and_changes_nothing(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(annotations={names.DRY_RUN: "true"}))
    planned = await until(client, key, condition_is("DryRun", "True"))
    assert planned["status"]["phase"] == "Pending"
    assert "finalizers" not in planned["metadata"]
    plan = await client.get(CONFIG_MAP, ObjectKey(key.namespace, "gemma-airunway-plan"))
    (workspace,) = yaml.safe_load_all(plan["data"]["objects.yaml"])
    assert (workspace["kind"], workspace["metadata"]["name"]) == ("Workspace", "gemma")
    assert plan["data"]["refusals.txt"] == ""
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await client.merge_patch(
        MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.DRY_RUN: None}}}, manager="user"
    )
    running = await until(client, key, phase_is("Running"))
    assert condition_of(running, "DryRun") is None
    await gone(client, CONFIG_MAP, ObjectKey(key.namespace, "gemma-airunway-plan"))


async def test_an_edit_that_cannot_be_honoured_leaves_what_runs_alone_and_in_sight(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(provider={"name": "kaito"}))
    await until(client, key, phase_is("Running"))
    before = await client.get(WORKSPACE, key)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"affinity": {"nodeAffinity": {}}}}, manager="user")
    failed = await until(client, key, condition_is("ProviderCompatible", "False"))
    assert failed["status"]["phase"] == "Failed"
    assert failed["status"]["replicas"]["ready"] == 1
    assert failed["status"]["endpoint"]["service"] == "gemma"
    assert failed["status"]["provider"]["resourceName"] == "gemma"
    after = await client.get(WORKSPACE, key)
    assert (uid_of(after), after["metadata"]["generation"]) == (uid_of(before), before["metadata"]["generation"])
