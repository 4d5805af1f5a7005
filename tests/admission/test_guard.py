"""The policies that keep controllers to what is theirs, on a real API server (findings H4 and M7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import CONFIG_MAP, EVENT, LEASE, Client, Forbidden, Kind, load_config
from airunway.plugins.host import ProviderHost
from airunway.rbac.admission_policies import core_guard, provider_guard, status_guard
from airunway.rbac.rights import Rights, core_rights, provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, owner_reference
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
OWN, OTHER = names.provider_finalizer("kaito"), names.provider_finalizer("dynamo")
NO_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-000000000000"}
USERS_OWN: dict[str, Resource] = {
    "spec": {"spec": {"suspend": True}},
    "labels": {"metadata": {"labels": {"team": "mine"}}},
    "annotations": {"metadata": {"annotations": {names.PAUSED: "true"}}},
    "ownerReferences": {"metadata": {"ownerReferences": [NO_OWNER]}},
}
"""What no controller changes: of these owners the last would have the garbage collector delete the deployment."""

EVERYTHING = Rights(
    cluster=(
        {
            "apiGroups": [names.GROUP],
            "resources": ["inferenceproviderconfigs", "inferenceproviderconfigs/status"],
            "verbs": ["create", "patch"],
        },
    ),
)
"""What somebody who writes roles by hand might grant as well."""


@pytest.fixture
async def provider(
    client: Client, control_plane: Cluster, installed: None, kaito: ProviderHost, namespace: str
) -> AsyncIterator[Client]:
    """KAITO's provider: guarded, with the rights that are listed for it and more."""
    user = f"system:serviceaccount:{namespace}:kaito"
    rights = provider_rights(kaito.manifest) + EVERYTHING
    async with (
        granted(client, rights, user=user, namespace=namespace),
        applied(client, provider_guard(kaito.manifest, user, own="airunway-system", name=f"guard-{namespace}")),
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))) as provider,
    ):
        yield provider


async def refused(attempt: Callable[[], Awaitable[object]], message: str) -> None:
    """Returns once an attempt that changes nothing (a dry run) is refused so; the API server hears of policies late."""
    last = "nothing"
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await attempt()
                except Forbidden as error:
                    last = error.message
                    if message in last:
                        return
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise AssertionError(f"not refused with {message!r}, but with {last!r}") from error


async def deployed(client: Client, deployment: Resource, *, provider: str = "kaito") -> ObjectKey:
    """The key of a deployment that was given to the provider."""
    made = await client.create(MODEL_DEPLOYMENT, deployment)
    key = ObjectKey(made["metadata"]["namespace"], made["metadata"]["name"])
    status = {
        "provider": {"name": provider},
        "engine": {"type": "llamacpp"},
        "conditions": [condition("Validated", "True")],
    }
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": status}, subresource="status")
    return key


async def noted(client: Client, namespace: str) -> None:
    """The core has said that the provider has deployments there."""
    config = {
        "apiVersion": names.API_VERSION,
        "kind": "InferenceProviderConfig",
        "metadata": {"name": "kaito"},
        "status": {"namespaces": {namespace: ""}},
    }
    without = {key: value for key, value in config.items() if key != "status"}
    await client.apply(INFERENCE_PROVIDER_CONFIG, without, manager=f"tests-{namespace}")
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager=f"tests-{namespace}", subresource="status")


def condition(type_: str, status: str) -> Resource:
    return {"type": type_, "status": status, "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def finalizers(*wanted: str) -> Resource:
    return {"metadata": {"finalizers": list(wanted)}}


async def test_m7_a_provider_changes_its_finalizer_and_nothing_else_of_a_deployment(
    client: Client, provider: Client, manifest: Make
) -> None:
    key = await deployed(client, manifest())
    foreign = await deployed(client, manifest("other"), provider="dynamo")

    async def patched(patch: Resource, where: ObjectKey = key, *, dry_run: bool = True) -> Resource:
        return await provider.merge_patch(MODEL_DEPLOYMENT, where, patch, dry_run=dry_run)

    for what, patch in USERS_OWN.items():
        await refused(partial(patched, patch), f"a controller must not change the {what} of a deployment")
    await client.merge_patch(MODEL_DEPLOYMENT, key, finalizers(OTHER))
    await refused(lambda: patched(finalizers()), "a provider must not touch finalizers of others")
    await refused(lambda: patched(finalizers(OTHER, "a.b/c")), "a provider must not touch finalizers of others")
    await refused(lambda: patched(finalizers(OWN), foreign), "must not hold a deployment that was not given to it")
    await patched(finalizers(OTHER, OWN), dry_run=False)
    await patched(finalizers(OTHER), dry_run=False)
    await client.merge_patch(MODEL_DEPLOYMENT, key, finalizers())
    for what in USERS_OWN.keys() - {"ownerReferences"}:
        await client.merge_patch(MODEL_DEPLOYMENT, key, USERS_OWN[what])


async def test_m7_a_provider_writes_its_part_of_the_status_of_its_deployments(
    client: Client, provider: Client, manifest: Make
) -> None:
    key = await deployed(client, manifest())
    foreign = await deployed(client, manifest("other"), provider="dynamo")

    async def written(status: Resource, where: ObjectKey = key, *, dry_run: bool = True) -> Resource:
        return await provider.merge_patch(
            MODEL_DEPLOYMENT, where, {"status": status}, subresource="status", dry_run=dry_run
        )

    given = "a provider must not write the status of a deployment that was not given to it"
    await refused(lambda: written({"phase": "Failed"}, foreign), given)
    core_s: dict[str, Resource] = {
        "the engine": {"engine": {"type": "vllm"}},
        "the provider": {"provider": {"name": "dynamo"}},
        "the selection": {"selection": {"evaluatedAt": "2026-01-01T00:00:00Z"}},
        "conditions": {"conditions": [condition("Validated", "False")]},
    }
    for what, status in core_s.items():
        await refused(partial(written, status), f"a provider must not change {what}")
    conditions = [condition("Validated", "True"), condition("PodsReady", "True")]
    status = {"phase": "Running", "provider": {"resourceName": "gemma"}, "conditions": conditions}
    answer = await written(status, dry_run=False)
    assert condition_of(answer, "PodsReady") is not None
    # Another provider takes over: until its own objects are gone, the one before still speaks.
    await provider.merge_patch(MODEL_DEPLOYMENT, key, finalizers(OWN))
    taken = {"status": {"provider": {"name": "dynamo"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, taken, subresource="status")
    await written({"phase": "Terminating"}, dry_run=False)
    await provider.merge_patch(MODEL_DEPLOYMENT, key, finalizers())
    await refused(lambda: written({"phase": "Failed"}), given)


@pytest.mark.parametrize("kind", [CONFIG_MAP, WORKSPACE], ids=lambda kind: kind.kind)
async def test_m7_a_provider_touches_no_object_that_belongs_to_no_deployment(
    client: Client, provider: Client, manifest: Make, namespace: str, kind: Kind
) -> None:
    key = await deployed(client, manifest())
    deployment = await client.get(MODEL_DEPLOYMENT, key)
    ours = {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.PROVIDER: "kaito"}
    owned = {"ownerReferences": [owner_reference(deployment)], "labels": ours}
    await noted(client, namespace)
    base: Resource = {"apiVersion": kind.api_version, "kind": kind.kind}
    if kind is WORKSPACE:
        base |= {"resource": {"labelSelector": {"matchLabels": {"a": "b"}}}, "inference": {"preset": {"name": "x"}}}
    foreign = ObjectKey(namespace, "foreign")
    await client.create(kind, {**base, "metadata": {"name": foreign.name, "namespace": namespace}})

    async def adopted() -> Resource:
        return await provider.merge_patch(kind, foreign, {"metadata": owned}, dry_run=True)

    async def made() -> Resource:
        body = {**base, "metadata": {"name": "stray", "namespace": namespace, "labels": ours}}
        return await provider.apply(kind, body, manager="x", dry_run=True)

    async def let_go() -> Resource:
        return await provider.merge_patch(kind, mine, {"metadata": {"ownerReferences": None}}, dry_run=True)

    nobodys = "a provider must not touch an object that belongs to no ModelDeployment"
    await refused(adopted, nobodys)
    with pytest.raises(Forbidden, match=nobodys):
        await provider.delete(kind, foreign)
    await refused(made, "what a provider writes must belong to a ModelDeployment")
    await client.get(kind, foreign)

    mine = ObjectKey(namespace, "gemma-airunway-plan")
    body = {**base, "metadata": {**owned, "name": mine.name, "namespace": namespace}}
    await provider.apply(kind, body, manager="x")
    await refused(let_go, "what a provider writes must belong to a ModelDeployment")
    # Somebody takes the owner off: the annotation says whose it was, and the next apply puts it on again.
    uid = {"annotations": {names.DEPLOYMENT_UID: deployment["metadata"]["uid"]}}
    await client.merge_patch(kind, mine, {"metadata": {"ownerReferences": None, **uid}})
    await provider.apply(kind, body, manager="x", force=True)
    await provider.delete(kind, mine)


async def test_a_provider_touches_no_object_of_a_part_or_of_another_provider(
    client: Client, provider: Client, manifest: Make, namespace: str
) -> None:
    """It neither deletes them nor takes them by its label; only the plan of a dry run moves."""
    deployment = await client.get(MODEL_DEPLOYMENT, await deployed(client, manifest()))
    await noted(client, namespace)
    dynamo = {names.PROVIDER: "dynamo"}
    content = {"resource": {"labelSelector": {"matchLabels": {"a": "b"}}}, "inference": {"preset": {"name": "x"}}}
    taken = {"metadata": {"labels": {names.PROVIDER: "kaito", names.PART: None}}}
    for kind, name, labels in (
        (WORKSPACE, "gemma-epp", {names.PART: names.GATEWAY_PART}),
        (CONFIG_MAP, "gemma-epp", {names.PART: names.GATEWAY_PART}),
        (WORKSPACE, "gemma", dynamo),
        (CONFIG_MAP, "gemma", dynamo),
        (WORKSPACE, "gemma-airunway-plan", dynamo),  # a plan is a ConfigMap
        (CONFIG_MAP, "other-airunway-plan", dynamo),  # not after its owner: no plan
    ):
        metadata: Resource = {"name": name, "namespace": namespace, "labels": labels}
        metadata["ownerReferences"] = [owner_reference(deployment)]
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        await client.create(kind, made | content if kind is WORKSPACE else made)
        theirs, key = "a provider must not touch the objects of another", ObjectKey(namespace, name)
        await refused(partial(provider.merge_patch, kind, key, taken, dry_run=True), theirs)
        await refused(partial(provider.delete, kind, key, dry_run=True), theirs)

    plan: Resource = {"name": "gemma-airunway-plan", "namespace": namespace, "labels": dynamo}
    plan["ownerReferences"] = [owner_reference(deployment)]
    await client.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": plan})
    key = ObjectKey(namespace, "gemma-airunway-plan")
    await provider.delete(CONFIG_MAP, key, dry_run=True)
    await provider.merge_patch(CONFIG_MAP, key, taken)
    await provider.delete(CONFIG_MAP, key)


async def test_h4_a_provider_registers_itself_and_speaks_for_itself_only(
    client: Client, provider: Client, namespace: str
) -> None:
    def config(name: str) -> Resource:
        upstream = [{"group": "", "kind": "ConfigMap", "versions": ["v1"], "requiresCRD": False}]
        engines = [{"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": False}]
        return {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": name},
            "spec": {"capabilities": {"engines": engines}, "upstream": upstream},
        }

    def event(controller: str) -> Resource:
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": "e", "namespace": namespace},
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p"},
            "type": "Warning",
            "reason": "Failed",
            "action": "Pull",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": controller,
            "reportingInstance": "x",
        }

    async def registered(name: str) -> Resource:
        return await provider.apply(INFERENCE_PROVIDER_CONFIG, config(name), manager="x", dry_run=True)

    async def beaten() -> Resource:
        status = {"status": {"ready": False}}
        return await provider.merge_patch(
            INFERENCE_PROVIDER_CONFIG, ObjectKey("", "dynamo"), status, subresource="status", dry_run=True
        )

    await client.apply(INFERENCE_PROVIDER_CONFIG, config("dynamo"), manager="tests")
    other = "a provider must not write the InferenceProviderConfig of another"
    await refused(lambda: registered("dynamo"), other)
    await refused(beaten, other)
    await registered("kaito")
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "dynamo"))
    await refused(
        lambda: provider.create(EVENT, event("kubelet"), dry_run=True), "must not write events of another controller"
    )
    await client.create(EVENT, event("kubelet"))
    changed = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    with pytest.raises(Forbidden, match="must not write events of another controller"):
        await provider.merge_patch(EVENT, ObjectKey(namespace, "e"), changed)


async def test_h4_the_rights_alone_reach_no_other_registration_and_no_other_lease(
    client: Client, control_plane: Cluster, installed: None, kaito: ProviderHost, namespace: str
) -> None:
    user = f"provider-{namespace}"
    lease: Resource = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "spec": {"holderIdentity": "a"}}
    async with (
        granted(client, provider_rights(kaito.manifest), user=user, namespace=namespace),
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))) as provider,
    ):
        for where, name in ((namespace, names.CORE_MANAGER), ("default", names.provider_manager("kaito"))):
            body = {**lease, "metadata": {"name": name, "namespace": where}}
            made = await client.create(LEASE, body)
            with pytest.raises(Forbidden):
                await provider.get(LEASE, ObjectKey(where, name))
            with pytest.raises(Forbidden):
                await provider.replace(LEASE, made)
            await client.delete(LEASE, ObjectKey(where, name))
        config = {"apiVersion": names.API_VERSION, "kind": "InferenceProviderConfig", "metadata": {"name": "dynamo"}}
        for subresource in ("", "status"):
            with pytest.raises(Forbidden):
                await provider.apply(INFERENCE_PROVIDER_CONFIG, config, manager="x", subresource=subresource)
        with pytest.raises(Forbidden):
            await provider.create(INFERENCE_PROVIDER_CONFIG, config)


async def test_m7_only_the_controllers_write_the_status(
    client: Client, control_plane: Cluster, installed: None, namespace: str, manifest: Make
) -> None:
    """Whoever may patch the status could choose a provider past validation and policy."""
    key = await deployed(client, manifest())
    elsewhere = await deployed(client, {**manifest(), "metadata": {"name": f"in-{namespace}", "namespace": "default"}})
    writes: Resource = {"apiGroups": [names.GROUP], "resources": ["modeldeployments/status"], "verbs": ["patch"]}
    looks: Resource = {"apiGroups": [names.GROUP], "resources": ["modeldeployments"], "verbs": ["list"]}
    tenant, selector = f"tenant-{namespace}", f"selector-{namespace}"
    rights = Rights(watched=(writes, looks))
    async with (
        granted(client, rights, user=tenant, namespace=namespace),
        granted(client, rights, user=selector, namespace=namespace),
        applied(client, status_guard([selector, "it's\\another"], namespaces=[namespace], name=f"guard-{namespace}")),
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(tenant))) as theirs,
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(selector))) as ours,
    ):
        chosen = {"status": {"provider": {"name": "dynamo"}}}
        await refused(
            lambda: theirs.merge_patch(MODEL_DEPLOYMENT, key, chosen, subresource="status", dry_run=True),
            "only AI Runway's controllers write the status of a deployment",
        )
        await ours.merge_patch(MODEL_DEPLOYMENT, key, chosen, subresource="status")
        await theirs.merge_patch(MODEL_DEPLOYMENT, elsewhere, chosen, subresource="status")
    await client.delete(MODEL_DEPLOYMENT, elsewhere)


async def test_m7_the_core_takes_finalizers_of_providers_off_and_nothing_else(
    client: Client, control_plane: Cluster, installed: None, namespace: str, manifest: Make
) -> None:
    key, user = await deployed(client, manifest()), f"core-{namespace}"
    async with (
        granted(client, core_rights(), user=user, namespace=namespace),
        applied(client, core_guard(user, name=f"guard-{namespace}")),
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))) as core,
    ):

        async def patched(patch: Resource, *, dry_run: bool = True) -> Resource:
            return await core.merge_patch(MODEL_DEPLOYMENT, key, patch, dry_run=dry_run)

        for what, patch in USERS_OWN.items():
            await refused(partial(patched, patch), f"a controller must not change the {what} of a deployment")
        await client.merge_patch(MODEL_DEPLOYMENT, key, finalizers(OTHER, "example.com/held"))
        for wrong in (finalizers(OTHER), finalizers(OTHER, "example.com/held", OWN)):
            await refused(partial(patched, wrong), "the core may only take off finalizers of providers")
        await patched(finalizers("example.com/held"), dry_run=False)
        await client.merge_patch(MODEL_DEPLOYMENT, key, finalizers())


async def test_the_core_writes_only_the_status_of_runtime_configs(
    client: Client, control_plane: Cluster, installed: None, namespace: str
) -> None:
    user, key = f"core-{namespace}", ObjectKey(namespace, "default")
    body: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": RUNTIME_CONFIG.kind,
        "metadata": key._asdict(),
        "spec": {},
    }
    await client.create(RUNTIME_CONFIG, body)
    configs = ["runtimeconfigs", "clusterruntimeconfigs"]
    more = Rights(watched=({"apiGroups": [names.GROUP], "resources": configs, "verbs": ["*"]},))
    async with (
        granted(client, core_rights() + more, user=user, namespace=namespace),
        applied(client, core_guard(user, name=f"guard-{namespace}")),
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))) as core,
    ):
        refusal = "the core writes only the status of runtime configs"
        env = {"spec": {"env": [{"name": "A", "value": "1"}]}}
        other = {**body, "metadata": {**body["metadata"], "name": "other"}}
        await refused(lambda: core.merge_patch(RUNTIME_CONFIG, key, env, dry_run=True), refusal)
        await refused(lambda: core.create(RUNTIME_CONFIG, other), refusal)
        await refused(lambda: core.delete(RUNTIME_CONFIG, key), refusal)
        await core.merge_patch(RUNTIME_CONFIG, key, {"status": {"usedBy": 3}}, subresource="status")
