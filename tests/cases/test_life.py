"""Cases about a deployment's life on a real API server: selection, changes, drift, trouble, migration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, Invalid, Kind, NotFound, Reflector
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, is_true, uid_of
from airunway.runtime.surroundings import ProviderSettings
from airunway.testing.faultproxy import Fault, FaultProxy
from airunway.testing.operator import (
    install_definitions,
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


def phase_is(phase: str) -> Callable[[Resource], bool]:
    return lambda deployment: dig(deployment, "status", "phase") == phase


def running_at(generation: int) -> Callable[[Resource], bool]:
    def holds(deployment: Resource) -> bool:
        status = deployment.get("status") or {}
        return (status.get("phase"), status.get("observedGeneration")) == ("Running", generation)

    return holds


def reason_is(type_: str, reason: str) -> Callable[[Resource], bool]:
    return lambda deployment: (condition_of(deployment, type_) or {}).get("reason") == reason


# ------------------------------------------------------------------------------------------------------- selection


async def test_case_01_and_15_only_a_model_id_names_what_is_missing_and_a_gpu_added_later_changes_the_engine(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    key = await create(manifest(engine=None, resources=None, image=None))
    waiting = await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    assert waiting["status"]["phase"] == "Pending"
    assert "requires spec.image" in waiting["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await edit(key, {"spec": {"resources": {"gpu": {"count": 1}}}})
    running = await until(client, key, running_at(2))
    assert running["status"]["engine"]["type"] == "vllm"


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
        waiting = await until(client, key, reason_is("ProviderSelected", "NoProviderSelected"))
        assert waiting["status"]["message"] == "No provider specified and provider-selector not installed"
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
        await client.apply(MODEL_DEPLOYMENT, body, manager="cost-selector", force=True, subresource="status")
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


async def test_case_17_naming_another_provider_hands_over_and_naming_the_same_changes_nothing(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    edit: Edit,
    seen: Seen,
) -> None:
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        workspace = await client.get(WORKSPACE, key)
        await edit(key, {"spec": {"provider": {"name": "kaito"}}})
        same = await until(client, key, running_at(2))
        assert same["status"]["provider"]["name"] == "kaito"
        assert uid_of(await client.get(WORKSPACE, key)) == uid_of(workspace)
        # The old provider's object is slow to go: nothing of the new one is made meanwhile.
        hold = {"metadata": {"finalizers": ["example.org/hold"]}}
        await client.merge_patch(WORKSPACE, key, hold, manager="somebody")
        await edit(key, {"spec": {"provider": {"name": "tiny"}}})
        await seen(WORKSPACE, key, lambda live: bool(live["metadata"].get("deletionTimestamp")))
        between = await client.get(MODEL_DEPLOYMENT, key)
        assert between["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        with pytest.raises(NotFound):
            await client.get(thing, key)
        await client.merge_patch(WORKSPACE, key, {"metadata": {"finalizers": []}}, manager="somebody")
        moved = await until(client, key, running_at(3))
        assert moved["metadata"]["finalizers"] == [names.provider_finalizer("tiny")]
        assert (moved["status"]["provider"]["name"], moved["status"]["provider"]["resourceKind"]) == ("tiny", "Thing")
        assert not any(
            entry["manager"] == names.provider_manager("kaito") and entry.get("subresource") == "status"
            for entry in moved["metadata"]["managedFields"]
        )
        await client.get(thing, key)
        with pytest.raises(NotFound):
            await client.get(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await until_gone(client, key)


async def until_gone(client: Client, key: ObjectKey) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.get(MODEL_DEPLOYMENT, key)
            except NotFound:
                return
            await asyncio.sleep(0.02)


# --------------------------------------------------------------------------------------------------------- changes


async def test_case_16_and_31_engine_gpus_and_node_selector_of_a_live_workspace_make_it_anew(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit, event_of: EventOf
) -> None:
    """KAITO refuses or ignores all of these as edits (spec rulings 9 and 10)."""
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
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
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
        await until_gone(client, key)


async def test_case_21_and_22_prefix_caching_false_and_zero_replicas_survive_the_finalizer_and_reach_the_upstream(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    seen: Seen,
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
        await until_gone(client, key)


async def test_case_22_zero_replicas_are_an_explicit_incompatibility_where_the_upstream_cannot(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(provider={"name": "kaito"}, scaling={"replicas": 0}))
    refused = await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    assert "spec.suspend" in refused["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


# ------------------------------------------------------------------------------------------------------- overrides


async def test_case_18_40_and_41_overrides_without_a_name_reach_the_upstream_and_unknown_keys_are_warnings(
    operator: None, client: Client, manifest: Make, create: Create, event_of: EventOf
) -> None:
    template = {"spec": {"schedulerName": "mine", "schedulerNaem": "typo"}}
    overrides = {"inference": {"template": template}, "replicas": 3}
    key = await create(manifest(provider={"overrides": overrides}))
    running = await until(client, key, phase_is("Running"))
    assert running["status"]["provider"]["name"] == "kaito"
    live = await client.get(WORKSPACE, key)
    assert live["inference"]["template"]["spec"]["schedulerName"] == "mine"
    assert "Naem" not in str(live)
    assert "replicas" not in str(live["resource"])
    warnings = {text.split(":")[0] for text in running["status"]["warnings"]}
    root = "spec.provider.overrides"
    assert warnings >= {f"{root}.replicas", f"{root}.inference.template.spec.schedulerNaem"}
    assert "did you mean 'schedulerName'?" in str(running["status"]["warnings"])
    await event_of(key, "UnknownOverride")


async def test_case_40_an_override_of_the_wrong_type_stops_the_deployment_and_names_the_key(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    overrides = {"inference": {"template": {"spec": {"schedulerName": 7}}}}
    key = await create(manifest(provider={"name": "kaito", "overrides": overrides}))
    refused = await until(client, key, reason_is("ProviderCompatible", "InvalidOverride"))
    assert refused["status"]["phase"] == "Pending"
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await edit(key, {"spec": {"provider": {"overrides": None}}})
    await until(client, key, running_at(2))


async def test_case_42_a_security_key_inside_a_list_of_overrides_creates_nothing_without_any_webhook(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    hidden = [{"spec": [{"securityContext": {"privileged": True}}]}]
    key = await create(manifest(provider={"name": "kaito", "overrides": {"inference": {"template": hidden}}}))
    refused = await until(client, key, reason_is("Validated", "ValidationFailed"))
    assert "spec.provider.overrides.inference.template[0].spec[0].securityContext" in refused["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


# ----------------------------------------------------------------------------------------------- drift and trouble


async def test_case_20_a_conflict_on_the_status_write_leaves_one_object_and_the_right_status(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        proxy.inject(
            Fault("status", status=409, reason="Conflict", count=3, verb="apply", where=lambda r: r.subresource == "status")
        )
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        assert sum(1 for request in proxy.requests if request.fault and request.subresource == "status") == 3
        created = [r for r in proxy.requests if r.resource == "workspaces" and r.verb == "apply" and r.code < 300]
        assert len([r for r in created if "dryRun" not in r.query]) == 1
        assert len(await client.list_all(WORKSPACE, namespace=key.namespace)) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=500, verb="apply", resource="workspaces", count=3),
        Fault("status", status=429, retry_after=0, verb="apply", resource="workspaces", count=3),
        Fault("reset", verb="apply", resource="workspaces", count=3),
        Fault("lose-answer", verb="apply", resource="workspaces", count=1),
    ],
    ids=["500", "429", "reset", "answer lost"],
)
async def test_case_47_a_passing_error_while_creating_is_tried_again_and_the_phase_is_kept(
    fault: Fault,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    create: Create,
    namespace: str,
) -> None:
    phases: set[str] = set()
    watched = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)
    watched.add_handler(lambda _key, _old, new: phases.add(str(dig(new, "status", "phase"))))
    watching = asyncio.create_task(watched.run())
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        await watched.synced.wait()
        proxy.inject(fault)
        key = await create(manifest())
        running = await until(client, key, phase_is("Running"))
        assert proxy.pending == []
    watching.cancel()
    assert phases <= {"None", "Pending", "Deploying", "Running"}
    assert is_true(running, "ResourceCreated")
    assert len(await client.list_all(WORKSPACE, namespace=namespace)) == 1


async def test_aim_46_a_permission_that_is_missing_is_said_and_heals_without_touching_the_deployment(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        proxy.inject(Fault("status", verb="apply", resource="workspaces", status=403, reason="Forbidden", count=None))
        key = await create(manifest())
        refused = await until(
            client, key, lambda d: (condition_of(d, "AuthValid") or {}).get("status") == "False", what="AuthValid"
        )
        assert (condition_of(refused, "ResourceCreated") or {})["reason"] == "Forbidden"
        assert not is_true(refused, "Ready")
        assert refused["status"]["phase"] == "Degraded"
        proxy.clear()
        running = await until(client, key, lambda d: phase_is("Running")(d) and is_true(d, "AuthValid"))
    assert running["metadata"]["generation"] == 1
    assert running["status"]["message"] == "Workspace gemma is ready"  # 48


async def test_case_46_an_image_conflict_is_refused_at_admission_and_leaves_nothing(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    key = await create(manifest())
    before = await until(client, key, phase_is("Running"))
    with pytest.raises(Invalid, match="image and engine.image name different images"):
        await edit(key, {"spec": {"engine": {"image": "another"}}})
    after = await client.get(MODEL_DEPLOYMENT, key)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_case_44_an_upstream_removed_while_running_is_said_and_its_return_heals(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    thing_crd: Resource,
    manifest: Make,
    create: Create,
    gone: Gone,
) -> None:
    name = ObjectKey("", thing_crd["metadata"]["name"])
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest(provider={"name": "tiny"}))
        await until(client, key, phase_is("Running"))
        await client.delete(CUSTOM_RESOURCE_DEFINITION, name)
        await gone(CUSTOM_RESOURCE_DEFINITION, name)
        lost = await until(client, key, lambda d: dig(d, "status", "reason") == "UpstreamNotInstalled")
        assert lost["status"]["message"] == "Provider 'tiny' CRD not installed in cluster"
        assert not is_true(lost, "Ready")
        await install_definitions(client, [thing_crd])
        await until(client, key, phase_is("Running"))
        await client.get(thing, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await until_gone(client, key)


async def test_case_44_an_unknown_schema_under_the_policy_fail_names_the_hash(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    thing_crd: Resource,
    manifest: Make,
    create: Create,
) -> None:
    newer = {**thing_crd, "spec": {**thing_crd["spec"], "versions": [dict(thing_crd["spec"]["versions"][0])]}}
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    grown = {**schema, "properties": {**schema["properties"], "fromTheFuture": {"type": "string"}}}
    newer["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": grown}
    await install_definitions(client, [newer])
    async with running_provider(kubeconfig, tiny, settings=ProviderSettings(verify_unknown_schemas=False)):
        key = await create(manifest(provider={"name": "tiny"}))
        refused = await until(client, key, reason_is("ProviderCompatible", "UnsupportedSchema"))
        message = refused["status"]["message"]
        assert "has a schema (" in message
        with pytest.raises(NotFound):
            await client.get(thing, key)
        config = await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "tiny"))
        assert not is_true(config, "SchemaSupported")
        await install_definitions(client, [thing_crd])
        await until(client, key, phase_is("Running"))
        await client.delete(MODEL_DEPLOYMENT, key)
        await until_gone(client, key)
