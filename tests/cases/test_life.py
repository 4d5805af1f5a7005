"""Cases about a deployment's life on a real API server: selection, changes, migration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, controller_owner, dig, format_time, is_true, uid_of
from airunway_testing.expectations import phase_is, reason_is, running_at, says
from airunway_testing.operator import (
    running_core,
    running_provider,
    running_simulator,
    until,
)

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]
Seen = Callable[[Kind, ObjectKey, Callable[[Resource], bool]], Awaitable[Resource]]
EventOf = Callable[[ObjectKey, str], Awaitable[Resource]]
Edit = Callable[[ObjectKey, Resource], Awaitable[Resource]]


# ------------------------------------------------------------------------------------------------------- selection


async def test_case_01_and_15_only_a_model_id_names_what_is_missing_and_a_gpu_added_later_changes_the_engine(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    key = await create(manifest(engine=None, resources=None, image=None))
    waiting = await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    assert waiting["status"]["phase"] == "Pending"
    assert "requires spec.image" in waiting["status"]["message"]
    assert "llamacpp was selected because no GPU is requested" in waiting["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await edit(key, {"spec": {"resources": {"gpu": {"count": 1}}}})
    running = await until(client, key, running_at(2))
    assert running["status"]["engine"]["type"] == "vllm"


async def test_case_05_a_rule_that_is_wrong_is_told_on_the_provider_config_with_rule_and_error(
    installed: None, client: Client, kubeconfig: Path, seen: Seen, gone: Gone
) -> None:
    config: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": "InferenceProviderConfig",
        "metadata": {"name": "mistaken"},
        "spec": {
            "selection": "Explicit",
            "capabilities": {"engines": [{"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True}]},
            "selectionRules": [
                {"condition": "int(spec.model.id) > 1", "priority": 4},
                {"condition": "spec.engine.type ==", "priority": 1},
                {"condition": "1 + 1", "priority": 2},
                {"condition": "spec.engine.type == 'vllm'", "priority": 3},
            ],
        },
    }
    key = ObjectKey("", "mistaken")
    try:
        async with running_core(kubeconfig):
            await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="admin")
            wrong = await seen(
                INFERENCE_PROVIDER_CONFIG, key, lambda c: condition_of(c, "SelectionRulesValid") is not None
            )
            condition = condition_of(wrong, "SelectionRulesValid") or {}
            assert condition["status"] == "False"
            for rule in ("int(spec.model.id) > 1", "spec.engine.type ==", "1 + 1"):  # each with its error
                assert f"rule '{rule}' cannot be evaluated: " in condition["message"]
            config["spec"]["selectionRules"] = config["spec"]["selectionRules"][2:]
            await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="admin")
            await seen(INFERENCE_PROVIDER_CONFIG, key, lambda c: "1 + 1" in str(condition_of(c, "SelectionRulesValid")))
            config["spec"]["selectionRules"] = config["spec"]["selectionRules"][1:]
            await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="admin")
            await seen(INFERENCE_PROVIDER_CONFIG, key, lambda c: is_true(c, "SelectionRulesValid"))
    finally:
        await client.delete(INFERENCE_PROVIDER_CONFIG, key)
        await gone(INFERENCE_PROVIDER_CONFIG, key)


async def test_case_10_a_provider_that_turns_ready_later_is_taken_without_touching_the_deployment(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    async with running_core(kubeconfig):
        async with running_provider(kubeconfig, kaito):
            pass  # registered, and gone with `ready: false`
        key = await create(manifest())
        waiting = await until(client, key, reason_is("ProviderSelected", "NoProviderSelected"))
        assert waiting["status"]["message"] == "No healthy providers available"
        async with running_provider(kubeconfig, kaito), running_simulator(kubeconfig, kaito, level="api"):
            running = await until(client, key, phase_is("Running"))
    assert running["metadata"]["generation"] == 1
    assert running["status"]["provider"]["name"] == "kaito"


async def test_case_14_what_a_custom_selector_writes_is_respected_and_never_overwritten(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create, edit: Edit
) -> None:
    async with (
        running_core(kubeconfig, settings=CoreSettings(selector=False)),
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        waiting = await until(client, key, says("No provider specified and provider-selector not installed"))
        assert (waiting["status"]["phase"], waiting["status"]["reason"]) == ("Pending", "NoProviderSelected")
        assert condition_of(waiting, "ProviderSelected") is None
        condition = {
            "type": "ProviderSelected",
            "status": "True",
            "reason": "CheapestFirst",
            "message": "the cheapest one",
            "lastTransitionTime": format_time(datetime.now(UTC)),
        }
        choice = {"provider": {"name": "kaito", "selectedReason": "cheapest"}, "conditions": [condition]}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": choice,
        }
        await client.apply(MODEL_DEPLOYMENT, body, manager="cost-selector", force=False, subresource="status")
        await until(client, key, phase_is("Running"))
        await edit(key, {"spec": {"model": {"id": "google/other-gguf/other.gguf"}}})
        running = await until(client, key, running_at(2))
    assert running["status"]["provider"]["selectedReason"] == "cheapest"
    selected = condition_of(running, "ProviderSelected") or {}
    assert (selected["reason"], selected["message"]) == ("CheapestFirst", "the cheapest one")
    writers = {
        entry["manager"]
        for entry in running["metadata"]["managedFields"]
        if "f:selectedReason" in str(dig(entry, "fieldsV1", "f:status", "f:provider"))
    }
    assert writers == {"cost-selector"}


# --------------------------------------------------------------------------------------------------------- changes


async def test_case_16_and_31_engine_gpus_and_node_selector_of_a_live_workspace_make_it_anew(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit, event_of: EventOf
) -> None:
    """KAITO refuses or ignores all of these as edits."""
    key = await create(manifest(engine=None, image=None, resources={"gpu": {"count": 1}}))
    first = await until(client, key, phase_is("Running"))
    assert first["status"]["engine"]["type"] == "vllm"
    uids = [uid_of(await client.get(WORKSPACE, key))]
    image = manifest()["spec"]["image"]
    changes: list[Resource] = [
        {"engine": {"type": "llamacpp"}, "image": image, "resources": {"gpu": None}},
        {"resources": {"gpu": {"count": 1}}},
        {"nodeSelector": {"pool": "gpu"}},
        {"nodeSelector": None},
    ]
    for generation, change in enumerate(changes, start=2):
        await edit(key, {"spec": change})
        await until(client, key, running_at(generation))
        uids.append(uid_of(await client.get(WORKSPACE, key)))
    assert len(set(uids)) == len(uids)
    live = await client.get(WORKSPACE, key)
    assert "pool" not in str(live["resource"])  # 30: a field that is removed goes
    assert "Workspace" in (await event_of(key, "ResourceRecreated"))["note"]


async def test_case_31_replicas_that_kaito_has_not_are_a_precise_rejection_and_what_runs_stays(
    no_inference_sets: None, operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    before = await client.get(WORKSPACE, key)
    await edit(key, {"spec": {"scaling": {"replicas": 2}}})
    refused = await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    assert "replica" in refused["status"]["message"]
    after = await client.get(WORKSPACE, key)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_case_30_a_field_that_is_removed_goes_from_the_upstream_object_in_place(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
) -> None:
    async with running_provider(kubeconfig, tiny):
        key = await create(
            manifest(
                provider={"name": "tiny", "overrides": {"spec": {"note": "mine"}}},
                env=[{"name": "KEEP", "value": "1"}, {"name": "DROP", "value": "2"}],
                nodeSelector={"pool": "a"},
            )
        )
        await until(client, key, phase_is("Running"))
        before = await client.get(thing, key)
        assert before["spec"]["env"] == {"KEEP": "1", "DROP": "2"}
        assert (before["spec"]["nodeSelector"], before["spec"]["note"]) == ({"pool": "a"}, "mine")
        theirs = {"metadata": {"annotations": {"somebody": "else"}}, "spec": {"env": {"THEIRS": "3"}}}
        await client.merge_patch(thing, key, theirs, manager="somebody")
        remove = {"env": [{"name": "KEEP", "value": "1"}], "nodeSelector": None, "provider": {"overrides": None}}
        await edit(key, {"spec": remove})
        await until(client, key, running_at(2))
        after = await client.get(thing, key)
        assert uid_of(after) == uid_of(before)
        assert after["spec"]["env"] == {"KEEP": "1", "THEIRS": "3"}  # what others own is left alone
        assert "nodeSelector" not in after["spec"]
        assert "note" not in after["spec"]
        assert after["metadata"]["annotations"]["somebody"] == "else"
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_21_and_22_prefix_caching_false_and_zero_replicas_survive_the_finalizer_and_reach_the_upstream(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    seen: Seen,
    gone: Gone,
) -> None:
    engine = {"type": "llamacpp", "enablePrefixCaching": False}
    async with running_provider(kubeconfig, tiny):
        wanted = manifest(provider={"name": "tiny"}, engine=engine, scaling={"replicas": 0})
        wanted["metadata"]["finalizers"] = ["example.org/keep"]
        key = await create(wanted)
        created = await client.get(MODEL_DEPLOYMENT, key)
        running = await until(client, key, phase_is("Running"))
        finalizer = names.provider_finalizer("tiny")
        assert set(running["metadata"]["finalizers"]) == {"example.org/keep", finalizer}
        made = await client.get(thing, key)
        assert (made["spec"]["replicas"], made["spec"]["prefixCaching"]) == (0, False)
        await client.delete(MODEL_DEPLOYMENT, key)
        released = await seen(MODEL_DEPLOYMENT, key, lambda d: finalizer not in d["metadata"]["finalizers"])
        for deployment in (created, running, released):
            assert deployment["spec"]["engine"] == engine
            assert deployment["spec"]["scaling"]["replicas"] == 0
            assert deployment["spec"] == created["spec"]
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": []}}, manager="user")
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_22_zero_replicas_are_an_explicit_incompatibility_where_the_upstream_cannot(
    no_inference_sets: None, operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(provider={"name": "kaito"}, scaling={"replicas": 0}))
    refused = await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    assert "spec.suspend" in refused["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


async def test_case_29_a_removed_owner_reference_is_restored(
    operator: None, client: Client, manifest: Make, create: Create, seen: Seen
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    before = await client.get(WORKSPACE, key)
    await client.merge_patch(WORKSPACE, key, {"metadata": {"ownerReferences": None}}, manager="somebody")
    restored = await seen(WORKSPACE, key, lambda w: controller_owner(w) is not None)
    assert uid_of(restored) == uid_of(before)
