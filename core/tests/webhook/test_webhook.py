"""The webhook behind a real API server: who is refused and why, and what always passes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from core.tests.webhook.conftest import Deployment, Register
from tests.support.reviews import WebhookClient
from tests.support.webhook import local_settings, running_webhook

from airunway.api import names
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import ApiError, Client, Forbidden, Invalid, load_config
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.webhook import WebhookSettings
from airunway.webhook.configuration import CONFIGURATION_KIND
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import until

pytestmark = pytest.mark.apiserver


async def known(core: CoreApplication, name: str) -> None:
    """Wait until the core's cache has that provider."""
    async with asyncio.timeout(PATIENCE):
        while name not in core.providers():
            await asyncio.sleep(0.01)


async def refusal(client: Client, obj: Resource) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await client.create(MODEL_DEPLOYMENT, obj)
    return caught.value


async def test_a_provider_that_is_not_registered(
    core: CoreApplication, client: Client, register: Register, deployment: Deployment
) -> None:
    name = await register()
    await known(core, name)
    error = await refusal(client, deployment(provider={"name": "nobody"}))
    assert isinstance(error, Invalid)
    told = "denied the request: ModelDeployment.airunway.ai \"llama\" is invalid: spec.provider.name: provider 'nobody'"
    assert f"{told} is not registered (registered: " in error.message
    assert name in error.message
    assert [cause["field"] for cause in error.causes] == ["spec.provider.name"]
    await client.create(MODEL_DEPLOYMENT, deployment(provider={"name": name}))


async def test_a_provider_whose_upstream_is_absent(
    core: CoreApplication, client: Client, register: Register, deployment: Deployment
) -> None:
    name = await register(absent=True)
    await known(core, name)
    error = await refusal(client, deployment(provider={"name": name}))
    assert f"Provider '{name}' CRD not installed in cluster" in error.message


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"engine": {"type": "sglang"}, "resources": {"gpu": {"count": 1}}}, "spec.engine.type", "sglang engine"),
        ({"engine": {"type": "third"}}, "spec.resources.gpu.count", "requires GPU for third engine"),
        (
            {
                "engine": {"type": "vllm"},
                "serving": {"mode": "disaggregated"},
                "scaling": {
                    "prefill": {"gpu": {"count": 1}, "memory": "1Gi"},
                    "decode": {"gpu": {"count": 1}, "memory": "1Gi"},
                },
            },
            "spec.serving.mode",
            "Acme does not support disaggregated mode",
        ),
    ],
)
async def test_what_the_named_provider_does_not_offer(
    core: CoreApplication,
    client: Client,
    register: Register,
    deployment: Deployment,
    spec: dict[str, Any],
    path: str,
    message: str,
) -> None:
    name = await register()
    await known(core, name)
    error = await refusal(client, deployment(provider={"name": name}, **spec))
    assert message in error.message
    assert [cause["field"] for cause in error.causes] == [path]


async def test_overrides_that_no_provider_accepts(
    core: CoreApplication, client: Client, deployment: Deployment
) -> None:
    error = await refusal(client, deployment(provider={"overrides": {"a": [{"hostPath": {}}]}}))
    assert [cause["field"] for cause in error.causes] == ["spec.provider.overrides.a[0].hostPath"]


async def test_warnings_reach_the_user(
    core: CoreApplication, kubectl: Kubectl, register: Register, deployment: Deployment
) -> None:
    name = await register(ready=False)
    await known(core, name)
    obj = deployment(engine={"type": "llamacpp", "trustRemoteCode": True}, provider={"name": name})
    told = kubectl("create", "-f", "-", stdin=orjson.dumps(obj).decode()).stderr
    assert "Warning: trustRemoteCode executes remote code" in told
    assert f"Warning: provider '{name}' is registered but not ready" in told


async def test_nothing_is_written_into_the_object(
    core: CoreApplication, client: Client, deployment: Deployment
) -> None:
    """There is no mutating webhook: what is stored is what was sent and the CRD's own defaults; never a GPU."""
    stored = await client.create(MODEL_DEPLOYMENT, deployment(engine={"type": "third"}))
    assert stored["spec"] == {
        "model": {"id": "org/model", "source": "huggingface"},
        "engine": {"type": "third"},
        "scaling": {"replicas": 1},
    }


# --------------------------------------------------------------------------------------------------- what always passes


async def test_26_with_the_provider_gone_everything_but_a_new_spec_passes(
    core: CoreApplication, client: Client, register: Register, deployment: Deployment
) -> None:
    name = await register()
    await known(core, name)
    obj = deployment(provider={"name": name})
    key = key_of(obj)
    await client.create(MODEL_DEPLOYMENT, obj)
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name))
    async with asyncio.timeout(PATIENCE):
        while name in core.providers():
            await asyncio.sleep(0.01)
    with pytest.raises(Invalid, match="is not registered"):
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"model": {"id": "other/model"}}})
    held = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/held"]}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, held)
    await client.delete(MODEL_DEPLOYMENT, key)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"labels": {"a": "c"}}})
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": None}})
    assert await client.list_all(MODEL_DEPLOYMENT, namespace=key.namespace) == []


async def test_with_the_webhook_down_only_new_specs_and_finalizers_of_other_providers_wait(
    kubeconfig: Path, place: WebhookSettings, namespace: str, client: Client, deployment: Deployment, installed: None
) -> None:
    """The configuration stays when the process goes; that alone is what the API server then has."""
    key = ObjectKey(namespace, "llama")
    configuration: Resource = {}
    with running_webhook(kubeconfig, place, settings=CoreSettings(namespaces=(namespace,))):
        await client.create(MODEL_DEPLOYMENT, deployment())
        configuration = await client.get(CONFIGURATION_KIND, ObjectKey("", place.configuration))
    del configuration["metadata"]["resourceVersion"], configuration["metadata"]["uid"]
    await client.create(CONFIGURATION_KIND, configuration)
    try:
        async with asyncio.timeout(PATIENCE):  # the API server hears of its configurations by watch
            while True:
                try:
                    await client.create(MODEL_DEPLOYMENT, deployment("another"), dry_run=True)
                except ApiError as error:
                    assert "failed calling webhook" in error.message  # noqa: PT017
                    break
                await asyncio.sleep(0.02)
        chosen = {"status": {"phase": "Pending", "provider": {"name": "acme"}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, chosen, subresource="status")
        held = ["example.com/held", names.provider_finalizer("acme")]
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": held}})
        more = {"metadata": {"finalizers": [*held, names.provider_finalizer("another")]}}
        with pytest.raises(ApiError, match="failed calling webhook"):
            await client.merge_patch(MODEL_DEPLOYMENT, key, more)
        await client.delete(MODEL_DEPLOYMENT, key)
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": None}})
    finally:
        await client.delete(CONFIGURATION_KIND, ObjectKey("", place.configuration))


async def test_an_api_server_without_match_conditions_gets_the_same(
    webhook: WebhookClient, deployment: Deployment
) -> None:
    bad = deployment(provider={"name": "nobody"})
    assert len(await webhook.problems(bad)) == 1
    assert await webhook.problems({**bad, "metadata": {**bad["metadata"], "labels": {"a": "b"}}}, old=bad) == []
    leaving = {**bad, "metadata": {**bad["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert await webhook.problems(leaving, old=deployment()) == []
    assert len(await webhook.problems(bad, old=deployment())) == 1


async def test_other_namespaces_are_not_judged(webhook: WebhookClient, deployment: Deployment) -> None:
    bad = deployment(provider={"name": "nobody"})
    elsewhere = {**bad, "metadata": {**bad["metadata"], "namespace": "elsewhere"}}
    assert await webhook.problems(elsewhere) == []


# ---------------------------------------------------------------------------------------------------- the user's rights


async def test_a_user_needs_the_right_to_create_what_the_provider_creates(
    core: CoreApplication,
    control_plane: Cluster,
    kubectl: Kubectl,
    register: Register,
    deployment: Deployment,
    namespace: str,
) -> None:
    name = await register()
    await known(core, name)
    kubectl("create", "role", "models", "-n", namespace, "--verb=create", "--resource=modeldeployments.airunway.ai")
    kubectl("create", "role", "maps", "-n", namespace, "--verb=create", "--resource=configmaps")
    for user, roles in (("ada", ["models"]), ("bob", ["models", "maps"])):
        for role in roles:
            kubectl("create", "rolebinding", f"{user}-{role}", "-n", namespace, f"--role={role}", f"--user={user}")
    kubectl("create", "rolebinding", "team", "-n", namespace, "--role=maps", "--group=team")
    async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("ada"))) as ada:
        for obj in (deployment(provider={"name": name}), deployment()):  # named, or the one that would be selected
            with pytest.raises(Forbidden) as caught:
                await ada.create(MODEL_DEPLOYMENT, obj)
            assert f"user 'ada' cannot create configmaps in namespace '{namespace}'" in caught.value.message
            assert f"provider '{name}'" in caught.value.message
            assert 'modeldeployments.airunway.ai "llama" is forbidden: ' in caught.value.message
            assert [cause["field"] for cause in caught.value.causes] == ["spec.provider.name"]
    async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("ada", ["team"]))) as ada:
        await ada.create(MODEL_DEPLOYMENT, deployment("by-group"))
    async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("bob"))) as bob:
        await bob.create(MODEL_DEPLOYMENT, deployment("by-user", provider={"name": name}))


async def test_a_finalizer_chooses_no_provider_that_its_user_may_not_use(
    core: CoreApplication,
    client: Client,
    control_plane: Cluster,
    kubectl: Kubectl,
    register: Register,
    deployment: Deployment,
    namespace: str,
) -> None:
    """The core keeps the provider whose finalizer a deployment has without a status, as after the restore of a backup.
    So the right to choose that provider is asked for whenever its finalizer comes; a pause puts the verdict off.
    """
    mine = await register("mine")
    other = await register("other", upstream=("", "v1", "Service"), selection="Explicit")
    await known(core, other)
    kubectl(
        "create", "role", "models", "-n", namespace, "--verb=create,patch", "--resource=modeldeployments.airunway.ai"
    )
    for user, kinds in (("ada", "configmaps"), ("bob", "configmaps,services")):
        kubectl("create", "role", user, "-n", namespace, "--verb=create", f"--resource={kinds}")
        for role in ("models", user):
            kubectl("create", "rolebinding", f"{user}-{role}", "-n", namespace, f"--role={role}", f"--user={user}")
    held_by_mine, held_by_other, unknown = map(names.provider_finalizer, (mine, other, "unknown"))

    def with_metadata(name: str, *finalizers: str, paused: bool = True) -> Resource:
        annotations = {names.PAUSED: "true"} if paused else {}
        obj = deployment(name)
        return {**obj, "metadata": {**obj["metadata"], "finalizers": list(finalizers), "annotations": annotations}}

    def finalizers(*wanted: str) -> Resource:
        return {"metadata": {"finalizers": list(wanted)}}

    async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("ada"))) as ada:
        key = key_of(await ada.create(MODEL_DEPLOYMENT, with_metadata("late")))
        for denied in ("services in namespace", "is not registered"):
            added = held_by_other if denied.startswith("services") else unknown
            with pytest.raises(Forbidden, match=denied) as caught:
                await ada.merge_patch(MODEL_DEPLOYMENT, key, finalizers(added))
            assert [cause["field"] for cause in caught.value.causes] == ["metadata.finalizers"]
            with pytest.raises(Forbidden, match=denied):  # two at first, of which she takes one off
                await ada.create(MODEL_DEPLOYMENT, with_metadata("two", held_by_mine, added))
        await ada.merge_patch(MODEL_DEPLOYMENT, key, finalizers(held_by_mine, "example.com/held"))
        await ada.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": None, "finalizers": None}})
        await until(client, key, lambda live: dig(live, "status", "provider", "name") == mine, what=mine)
    async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("bob"))) as bob:
        key = key_of(await bob.create(MODEL_DEPLOYMENT, with_metadata("restored", held_by_other, paused=False)))
        await until(client, key, lambda live: dig(live, "status", "provider", "name") == other, what=other)
        await bob.merge_patch(MODEL_DEPLOYMENT, key, finalizers())


async def test_where_no_provider_can_be_told_all_that_may_come_count(
    webhook: WebhookClient, core: CoreApplication, kubectl: Kubectl, register: Register, deployment: Deployment
) -> None:
    for name, kind in (("first", "ConfigMap"), ("second", "Service")):
        await known(core, await register(name, upstream=("", "v1", kind), ready=False))
    namespace = deployment()["metadata"]["namespace"]
    kubectl("create", "role", "maps", "-n", namespace, "--verb=create", "--resource=configmaps")
    kubectl("create", "rolebinding", "maps", "-n", namespace, "--role=maps", "--user=ada")
    [problem] = await webhook.problems(deployment(), user="ada", groups=[])
    assert "user 'ada' cannot create services in namespace" in problem
    assert await webhook.problems(deployment(provider={"name": f"first-{namespace}"}), user="ada", groups=[]) == []
    assert await webhook.problems(deployment()) == []


async def test_the_question_can_be_switched_off(
    kubeconfig: Path, namespace: str, client: Client, register: Register, deployment: Deployment, installed: None
) -> None:
    name = await register()
    only_here = CoreSettings(namespaces=(namespace,))  # others share the API server
    with (
        local_settings(namespace=namespace, access_review=False) as place,
        running_webhook(kubeconfig, place, settings=only_here) as core,
    ):
        await known(core, name)
        async with WebhookClient(client, place) as asking:
            assert await asking.problems(deployment(provider={"name": name}), user="ada", groups=[]) == []


# ----------------------------------------------------------------------------------------------------------- the policy


async def test_a_policy_that_changes(
    kubeconfig: Path,
    namespace: str,
    client: Client,
    register: Register,
    deployment: Deployment,
    tmp_path: Path,
    installed: None,
) -> None:
    name = await register()
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{providers: [other]}]")
    policy = CoreSettings(policy=PolicyFile(file), namespaces=(namespace,))
    with local_settings(namespace=namespace) as place, running_webhook(kubeconfig, place, settings=policy) as core:
        await known(core, name)
        error = await refusal(client, deployment(provider={"name": name}))
        assert isinstance(error, Forbidden)
        expected = f"provider '{name}' is not allowed in namespace '{namespace}' (allowed by policy: other)"
        assert expected in error.message
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        wanted = {"rules": [{"namespaceSelector": selector, "providers": [f"acme-{namespace}"]}]}
        file.write_text(orjson.dumps(wanted).decode())
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(Forbidden):
                    await client.create(MODEL_DEPLOYMENT, deployment(provider={"name": name}))
                    break
                await asyncio.sleep(0.1)
