"""Deployments as large as an API server takes, with and without the webhook: told with field and limit, and no trouble
for anybody else (findings C1, H1, M9, L1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from tests.definitions import with_types_only
from tests.support.memory import memory_of
from tests.support.reviews import WebhookClient, review_of
from tests.support.webhook import local_settings, running_webhook

from airunway.api import bounds
from airunway.api.bounds import MAX_CAUSES
from airunway.api.crds import custom_resource_definitions
from airunway.controller.application import CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, ApiError, Client, Invalid, Kind, Reflector
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true, key_of
from airunway.validation import validate
from airunway_testing.background import in_background
from airunway_testing.eventually import PATIENCE, eventually
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import (
    gone,
    running_core,
    running_provider,
    running_simulator,
    until,
)

pytestmark = [
    pytest.mark.apiserver,
    # Only a test sends objects of more than a megabyte.
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
Make = Callable[..., Resource]

LARGE: dict[str, tuple[Resource, str]] = {
    "c1-long-key": ({"k" * 700_000: [0] * 300_000}, "spec.provider.overrides"),
    "nodes": ({"resource": {"preferredNodes": [0] * 600_000}}, "spec.provider.overrides.resource"),
    "forbidden": ({"x": [{"kind": 0}] * 110_000}, "spec.provider.overrides.x"),
    "empty": ({"x": [[]] * 400_000}, "spec.provider.overrides.x"),
}
"""Overrides of 1.2 to 1.4 MB: no schema bounds what is inside of a free-form field."""


def running(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "phase") == "Running")


def refused(deployment: Resource | None) -> bool:
    if deployment is None:
        return False
    condition = condition_of(deployment, "Validated") or {}
    generation = deployment["metadata"]["generation"]
    return (condition.get("status"), condition.get("observedGeneration")) == ("False", generation)


@asynccontextmanager
async def watched(client: Client, namespace: str) -> AsyncIterator[Reflector]:
    """The deployments of a namespace, kept up to date: to read one of a megabyte again and again takes long."""
    reflector = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)
    async with in_background(reflector.run()):
        await reflector.synced.wait()
        yield reflector


@pytest.mark.slow
async def test_c1_h1_what_is_too_large_gets_its_condition_and_nobody_else_suffers(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, namespace: str
) -> None:
    """Stored before the processes start, so that they list them, and while they run, so that they watch them."""
    before, after = list(LARGE)[:2], list(LARGE)[2:]
    for name in before:
        await client.create(MODEL_DEPLOYMENT, manifest(name, provider={"overrides": LARGE[name][0]}))
    async with (
        running_core(kubeconfig) as core,
        running_provider(kubeconfig, kaito) as provider,
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        for name in after:
            await client.create(MODEL_DEPLOYMENT, manifest(name, provider={"overrides": LARGE[name][0]}))
        await client.create(MODEL_DEPLOYMENT, manifest("neighbour"))
        neighbour = ObjectKey(namespace, "neighbour")
        keys = {name: ObjectKey(namespace, name) for name in LARGE}
        async with watched(client, namespace) as found:
            await eventually(lambda: running(found.get(neighbour) or {}))
            await eventually(lambda: all(refused(found.get(key)) for key in keys.values()))
        for name, (overrides, field) in LARGE.items():
            key = keys[name]
            live = await client.get(MODEL_DEPLOYMENT, key)
            assert live["spec"]["provider"]["overrides"] == overrides  # the API server does keep such things
            condition = condition_of(live, "Validated") or {}
            assert condition["reason"] == "ValidationFailed"
            assert condition["message"].startswith(f"Validation failed: {field}: ")
            assert "larger than 32 KiB" in condition["message"] or "longer than 512" in condition["message"]
            assert dig(live, "status", "phase") == "Pending"
            for cached in (core._deployments.get(key), provider._deployments.get(key)):
                assert memory_of(cached) <= 64 * 2**10
        assert [key_of(workspace).name for workspace in await client.list_all(WORKSPACE, namespace=namespace)] == [
            "neighbour"
        ]
        for key in keys.values():
            await client.delete(MODEL_DEPLOYMENT, key)
        for key in keys.values():
            await gone(client, MODEL_DEPLOYMENT, key)


@pytest.mark.slow
async def test_what_runs_is_left_alone_when_its_deployment_becomes_too_large(
    operator: None, client: Client, manifest: Make, namespace: str
) -> None:
    """A refused spec leaves what serves; smaller again, it is judged and served as before. What is just over the limit
    shows it as well as what is as large as can be.
    """
    made = manifest()
    await client.create(MODEL_DEPLOYMENT, made)
    key = key_of(made)
    await until(client, key, running)
    workspace = await client.get(WORKSPACE, key)
    large = {"spec": {"provider": {"overrides": {"x": [[]] * 12_000}}, "scaling": {"replicas": 2}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, large)
    live = await until(client, key, lambda d: refused(d) and "32 KiB" in str(dig(d, "status", "message")))
    assert dig(live, "status", "provider", "resourceName") == "gemma"
    after = await client.get(WORKSPACE, key)
    assert (after["metadata"]["uid"], after["metadata"]["generation"]) == (
        workspace["metadata"]["uid"],
        workspace["metadata"]["generation"],
    )
    small = {"spec": {"provider": {"overrides": None}, "scaling": {"replicas": 1}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, small)
    await until(client, key, lambda d: running(d) and is_true(d, "Validated") and is_true(d, "Ready"))
    await client.merge_patch(MODEL_DEPLOYMENT, key, large)
    await until(client, key, refused)
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)


@pytest.mark.parametrize("theirs", ["example.com/x{}", "airunway.ai/x{}-provider"])
async def test_h1_finalizers_without_number_are_told_and_what_they_hide_is_let_go(
    operator: None, client: Client, manifest: Make, namespace: str, theirs: str
) -> None:
    """Its user may write finalizers, also before the provider's. Nothing runs on without anybody who looks after it."""
    made = manifest()
    await client.create(MODEL_DEPLOYMENT, made)
    key = key_of(made)
    before = (await until(client, key, running))["metadata"]["finalizers"]
    others = [theirs.format(i) for i in range(300)]
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": [*others, *before]}})
    # Metadata brings no new generation: what is new is judged with the next change.
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 2}}})
    live = await until(client, key, refused)
    assert "metadata.finalizers: more than 64" in (condition_of(live, "Validated") or {})["message"]
    await client.delete(MODEL_DEPLOYMENT, key)
    live = await until(client, key, lambda d: d["metadata"]["finalizers"] == others, what="the provider's letting go")
    await gone(client, WORKSPACE, key)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": None}})
    await gone(client, MODEL_DEPLOYMENT, key)


async def test_a_large_spec_within_the_limit_is_served(
    operator: None, client: Client, manifest: Make, namespace: str
) -> None:
    """It is packed in the caches, and whole in what is made of it."""
    made = manifest(env=[{"name": f"VARIABLE_{i}", "value": f"value-{i}"} for i in range(bounds.MAX_ENV)])
    await client.create(MODEL_DEPLOYMENT, made)
    await until(client, key_of(made), running)
    workspace = await client.get(WORKSPACE, key_of(made))
    container = dig(workspace, "inference", "template", "spec", "containers")[0]
    assert [entry for entry in container["env"] if entry["name"].startswith("VARIABLE_")] == made["spec"]["env"]


FIELDS: dict[str, tuple[int, Callable[[int], Resource]]] = {
    "env": (bounds.MAX_ENV, lambda n: {"env": [{"name": f"A{i}"} for i in range(n)]}),
    "tolerations": (bounds.MAX_TOLERATIONS, lambda n: {"tolerations": [{"key": "a"}] * n}),
    "imagePullSecrets": (bounds.MAX_SECRETS, lambda n: {"imagePullSecrets": [{"name": f"a{i}"} for i in range(n)]}),
    "topologySpreadConstraints": (
        bounds.MAX_CONSTRAINTS,
        lambda n: {"topologySpreadConstraints": [{"maxSkew": 1}] * n},
    ),
    "nodeSelector": (bounds.MAX_ENTRIES, lambda n: {"nodeSelector": {f"a{i}": "b" for i in range(n)}}),
    "podTemplate.metadata.labels": (
        bounds.MAX_ENTRIES,
        lambda n: {"podTemplate": {"metadata": {"labels": {f"a{i}": "b" for i in range(n)}}}},
    ),
    "provider.overrides": (bounds.MAX_ENTRIES, lambda n: {"provider": {"overrides": {f"a{i}": 1 for i in range(n)}}}),
    "affinity": (bounds.MAX_ENTRIES, lambda n: {"affinity": {f"a{i}": 1 for i in range(n)}}),
    "env[0].value": (bounds.MAX_VALUE, lambda n: {"env": [{"name": "A", "value": "x" * n}]}),
    "engine.args.a": (bounds.MAX_VALUE, lambda n: {"engine": {"args": {"a": "x" * n}}}),
}


async def test_h1_the_crd_has_the_same_limits_as_the_process(installed: None, client: Client, namespace: str) -> None:
    wrong: dict[str, object] = {}
    for field, (limit, make) in FIELDS.items():
        for number in (limit, limit + 1):
            obj: Resource = {
                "apiVersion": "airunway.ai/v1alpha1",
                "kind": "ModelDeployment",
                "metadata": {"name": "a", "namespace": namespace},
                "spec": {"model": {"id": "a"}, **make(number)},
            }
            wanted = [f"spec.{field}"] if number > limit else []
            if [violation.path for violation in validate(obj)] != wanted:
                wrong[f"process: {field} {number}"] = validate(obj)
            told: list[str] = []
            try:
                await client.create(MODEL_DEPLOYMENT, obj, dry_run=True, field_validation="Strict")
            except Invalid as error:
                told = [cause["field"] for cause in error.causes if cause.get("field") not in (None, "<nil>")]
            if told != wanted:
                wrong[f"CRD: {field} {number}"] = told
    assert wrong == {}


STORED: dict[str, Resource] = {
    "tolerations": {"tolerations": [{}] * 400_000},
    "env": {"env": [{"name": "A"}] * 9_000},
    "a-few-too-many": {"tolerations": [{"key": "a"}] * 65},
    "labels": {"nodeSelector": {f"a{i}": "b" for i in range(5_000)}},
}
"""The first one is as large as an API server takes; more of that size show nothing else."""


@pytest.fixture
async def older(installed: None, client: Client) -> AsyncIterator[Resource]:
    """For as long as it lasts our CRD has no limits; gives the one that has them."""
    crd = next(crd for crd in custom_resource_definitions() if key_of(crd).name.startswith("modeldeployments."))
    await client.apply(CUSTOM_RESOURCE_DEFINITION, with_types_only(crd), manager="airunway-testing", force=True)
    yield crd
    await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager="airunway-testing", force=True)


@pytest.mark.slow
async def test_what_was_stored_before_the_limits_gets_its_condition_and_can_be_repaired(
    older: Resource, client: Client, kubeconfig: Path, kaito: ProviderHost, namespace: str
) -> None:
    for name, spec in STORED.items():
        await _created(client, ObjectKey(namespace, name), spec)
    await client.apply(CUSTOM_RESOURCE_DEFINITION, older, manager="airunway-testing", force=True)
    keys = {name: ObjectKey(namespace, name) for name in STORED}
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        watched(client, namespace) as found,
    ):
        await eventually(lambda: all(refused(found.get(key)) for key in keys.values()))
        for name, key in keys.items():
            assert "ValidationFailed" in str(dig(found.get(key), "status", "conditions")), name
            await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"labels": {"a": "b"}}})
            await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": dict.fromkeys(STORED[name])})
        await eventually(lambda: all(is_true(found.get(key) or {}, "Validated") for key in keys.values()))


async def _created(client: Client, key: ObjectKey, spec: Resource) -> None:
    """Create it, once the API server has the CRD that allows it."""
    body = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"model": {"id": "a"}, **spec},
    }
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.create(MODEL_DEPLOYMENT, body)
            except Invalid:
                await asyncio.sleep(0.1)
            else:
                return


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


async def test_h1_l1_the_webhook_answers_briefly_and_lets_a_deep_object_be_repaired(
    installed: None, client: Client, kubeconfig: Path, manifest: Make, kubectl: Kubectl, namespace: str
) -> None:
    text = orjson.dumps(manifest("stored", provider={"overrides": {"x": "DEEP"}})).decode()
    kubectl("create", "-f", "-", stdin=text.replace('"DEEP"', nested(300)))  # before there is a webhook
    with (
        local_settings(namespace=namespace, access_review=False) as place,
        running_webhook(kubeconfig, place, settings=CoreSettings(namespaces=(namespace,))),
    ):
        for name, (overrides, field) in LARGE.items():
            with pytest.raises(ApiError) as caught:
                await client.create(MODEL_DEPLOYMENT, manifest(name, provider={"overrides": overrides}), dry_run=True)
            assert [cause["field"] for cause in caught.value.causes] == [field]
        repaired = {"spec": {"provider": {"overrides": {"x": None, "y": 1}}}}
        await client.merge_patch(MODEL_DEPLOYMENT, ObjectKey(namespace, "stored"), repaired)

        async with WebhookClient(client, place) as webhook:
            many = manifest("many", provider={"overrides": {"x": [{"kind": "k"}] * 1000}})
            answer = await webhook.ask(review_of(many))
            assert len(answer["status"]["details"]["causes"]) == MAX_CAUSES
            assert len(orjson.dumps(answer)) < 32 * 2**10
            for levels in (300, 900, 3000):
                deep = nested(levels).encode()
                review = orjson.dumps(review_of(manifest("deep"), old=manifest("deep", provider={"overrides": "DEEP"})))
                status, body = await webhook.post(review.replace(b'"DEEP"', deep))
                assert (status, orjson.loads(body)["response"]["allowed"]) == (200, True), levels
                review = orjson.dumps(review_of(manifest("deep", provider={"overrides": "DEEP"})))
                status, body = await webhook.post(review.replace(b'"DEEP"', deep))
                assert status == 200
                assert "nested more than 64 deep" in orjson.loads(body)["response"]["status"]["message"]
