"""One definition in three places: CEL in the CRD, the webhook, and the reconciler where there is neither.

Every manifest that must be refused goes to all of them. The reconciler sees it on an API server whose CRD has lost its
schema and that has no webhook: whatever comes in there, nothing is made of it, and the status says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.definitions import with_types_only
from tests.support.reviews import WebhookClient
from tests.support.webhook import local_settings, running_webhook

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.controller.application import CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    AlreadyExists,
    ApiError,
    BadRequest,
    Client,
    Invalid,
    Kind,
    load_config,
)
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, copy_of, dig, is_true, key_of
from airunway_testing.controlplane import ControlPlane
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import install_definitions, running_core, running_provider, until
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
HERE = Path(__file__).parent
MANIFESTS: dict[str, Any] = yaml.load(
    (HERE.parents[1] / "core/tests/validation/manifests.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
CASES: dict[str, Any] = yaml.load((HERE / "cases.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def obj(spec: Any, *, name: str = "llama", namespace: str = "free") -> Resource:
    made: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
    }
    return made if spec is None else {**made, "spec": copy_of({"spec": spec})["spec"]}


INVALID = {
    title: (obj(case["spec"], name=case.get("name", "llama")), case["problems"])
    for title, case in MANIFESTS["invalid"].items()
}
"""Manifests that the object alone condemns, with what is wrong with each."""

REFUSED = {
    title: obj(case["spec"], namespace=case.get("namespace", "free")) for title, case in CASES["refused"].items()
}


def with_registered_provider(manifest: Resource) -> Resource:
    """Where the manifest names a provider, it names one that is there."""
    if dig(manifest, "spec", "provider", "name"):
        manifest["spec"]["provider"]["name"] = "kaito"
    return manifest


ACCEPTED = {
    **{title: with_registered_provider(obj(spec)) for title, spec in MANIFESTS["valid"].items()},
    **{title: obj(case["spec"], namespace=case.get("namespace", "free")) for title, case in CASES["accepted"].items()},
}


@pytest.fixture
def core_settings(tmp_path: Path) -> CoreSettings:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(CASES["policy"]))
    return CoreSettings(policy=PolicyFile(path))


@pytest.fixture(scope="module")
def strict() -> Iterator[Path]:
    """An API server with our CRDs as they are."""
    with ControlPlane("api", roomy=True) as plane:
        yield plane.kubeconfig


@pytest.fixture(scope="module")
def lax() -> Iterator[Path]:
    """An API server that takes any spec."""
    with ControlPlane("api", roomy=True) as plane:
        yield plane.kubeconfig


def without_rules(crd: Resource) -> Resource:
    """The CRD with nothing left that could refuse a spec."""
    crd = copy_of(crd)
    for version in crd["spec"]["versions"]:
        version["subresources"].pop("scale", None)
        schema = version["schema"]["openAPIV3Schema"]
        for key in ("x-kubernetes-validations", "required"):
            schema.pop(key, None)
        schema["properties"]["spec"] = {"x-kubernetes-preserve-unknown-fields": True}
    return crd


@asynccontextmanager
async def prepared(kubeconfig: Path, definitions: list[Resource]) -> AsyncIterator[Client]:
    """CRDs, the two namespaces, and a provider whose upstream is absent."""
    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client:
        upstream = load_simulator("kaito").custom_resource_definitions()
        await install_definitions(client, upstream)
        for definition in definitions:
            await client.apply(CUSTOM_RESOURCE_DEFINITION, definition, manager="airunway-testing", force=True)
        for name in ("free", "limited"):
            metadata = {"name": name, "labels": {"airunway-test": name}}
            try:
                await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            except AlreadyExists:
                continue
        await client.apply(INFERENCE_PROVIDER_CONFIG, ABSENT, manager="tests")
        await client.merge_patch(
            INFERENCE_PROVIDER_CONFIG, ObjectKey("", "absent"), ABSENT_STATUS, subresource="status"
        )
        yield client


ABSENT: Resource = {
    "apiVersion": names.API_VERSION,
    "kind": "InferenceProviderConfig",
    "metadata": {"name": "absent"},
    "spec": {
        "capabilities": {
            "engines": [
                {
                    "name": name,
                    "servingModes": ["aggregated", "disaggregated"],
                    "gpuSupport": True,
                    "cpuSupport": True,
                }
                for name in ("vllm", "llamacpp")
            ]
        },
        "upstream": [{"group": "absent.example.com", "kind": "Thing", "versions": ["v1"]}],
    },
}
ABSENT_STATUS: Resource = {
    "status": {
        "ready": False,
        "conditions": [
            {
                "type": "UpstreamInstalled",
                "status": "False",
                "reason": "UpstreamNotInstalled",
                "message": "no CRD",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
}


async def test_the_crd_and_the_webhook_refuse(strict: Path, kaito: ProviderHost, core_settings: CoreSettings) -> None:
    """What the object alone tells: both, with the same causes. What the cluster tells: the webhook behind the CRD."""
    wrong: dict[str, object] = {}
    async with prepared(strict, []) as client, running_provider(strict, kaito):
        await registered(client, "kaito")
        with (
            local_settings(namespace="default") as place,
            running_webhook(strict, place, settings=core_settings) as core,
        ):
            async with asyncio.timeout(PATIENCE):
                while not {"kaito", "absent"} <= set(core.providers()) or not core.providers()["kaito"].ready:
                    await asyncio.sleep(0.02)
            async with WebhookClient(client, place) as webhook:
                for title, (manifest, problems) in INVALID.items():
                    told = await webhook.problems(manifest)
                    if told != problems:
                        wrong[f"webhook: {title}"] = told
                    if not isinstance(await refusal(client, manifest), Invalid | BadRequest):
                        wrong[f"CRD: {title}"] = "accepted"
                for title, manifest in REFUSED.items():
                    case = CASES["refused"][title]
                    error = await refusal(client, manifest)
                    fields = [cause["field"] for cause in error.causes] if error else []
                    if error is None or case["says"] not in error.message or fields != [case["field"]]:
                        wrong[title] = error
                    if [text.split(": ")[0] for text in await webhook.problems(manifest)] != [case["field"]]:
                        wrong[f"webhook alone: {title}"] = await webhook.problems(manifest)
                for title, manifest in ACCEPTED.items():
                    told = await webhook.problems(manifest)
                    error = await refusal(client, manifest)
                    if told or error:
                        wrong[title] = (told, error)
    assert wrong == {}


async def test_the_reconciler_says_the_same(lax: Path, kaito: ProviderHost, core_settings: CoreSettings) -> None:
    """Past all admission, nothing upstream is made, and status says what admission would have said."""
    relaxed = [
        without_rules(crd) for crd in custom_resource_definitions() if "modeldeployments" in crd["metadata"]["name"]
    ]
    wrong: dict[str, object] = {}
    async with (
        prepared(lax, relaxed) as client,
        running_core(lax, settings=core_settings),
        running_provider(lax, kaito),
    ):
        await registered(client, "kaito")
        for number, (manifest, _) in enumerate(INVALID.values()):
            await client.create(MODEL_DEPLOYMENT, await in_own_namespace(client, manifest, number))
        for number, manifest in enumerate(REFUSED.values()):
            manifest["metadata"]["name"] = f"case-{number}"
            await client.create(MODEL_DEPLOYMENT, manifest)
        for number, (title, (manifest, problems)) in enumerate(INVALID.items()):
            key = ObjectKey(f"case-{number}", manifest["metadata"]["name"])
            deployment = await until(client, key, lambda live: condition_of(live, "Validated") is not None, what=title)
            message = str(dig(condition_of(deployment, "Validated"), "message"))
            told = message.removeprefix("Validation failed: ").split("; ")
            # The API server stores fields in the order of their names, so that is the order in which they are judged.
            if is_true(deployment, "Validated") or sorted(told) != sorted("; ".join(problems).split("; ")):
                wrong[title] = message
            if dig(deployment, "status", "phase") != "Pending":
                wrong[f"phase: {title}"] = deployment["status"]
        for title, manifest in REFUSED.items():
            case = CASES["refused"][title]
            type_, reason = case["condition"].split("/")
            key = ObjectKey(manifest["metadata"]["namespace"], manifest["metadata"]["name"])

            def says(live: Resource, *, type_: str = type_, reason: str = reason, text: str = case["says"]) -> bool:
                condition = condition_of(live, type_) or {}
                told = (condition.get("status"), condition.get("reason")) == ("False", reason)
                return told and text in str(condition.get("message"))

            deployment = await until(client, key, says, what=title)
            if case["says"] not in str(dig(deployment, "status", "message")):
                wrong[f"message: {title}"] = deployment["status"]
        assert await client.list_all(WORKSPACE) == []
    assert wrong == {}


async def test_what_came_in_before_the_rules_is_never_stuck(lax: Path) -> None:
    """Stored under another CRD (the Go project's has no rules): labels, status and deletion work under ours."""
    ours = [crd for crd in custom_resource_definitions() if "modeldeployments" in crd["metadata"]["name"]]
    stuck: dict[str, str] = {}
    async with prepared(lax, [with_types_only(crd) for crd in ours]) as client:
        async with asyncio.timeout(PATIENCE):
            while await refusal(client, INVALID["vllm without gpu"][0]) is not None:
                await asyncio.sleep(0.05)
        stored: dict[str, ObjectKey] = {}
        for number, (title, (manifest, _)) in enumerate(INVALID.items()):
            made = await in_own_namespace(client, manifest, number, prefix="before")
            made["metadata"]["finalizers"] = ["example.com/held"]
            with suppress(Invalid):  # of a wrong type: no CRD lets it in
                await client.create(MODEL_DEPLOYMENT, made)
                stored[title] = key_of(made)
        assert {"name too long", "name with a dot", "volume with size and a claim", "bad quantities"} <= set(stored)
        for crd in ours:
            await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager="airunway-testing", force=True)
        async with asyncio.timeout(PATIENCE):
            while await refusal(client, INVALID["vllm without gpu"][0]) is None:
                await asyncio.sleep(0.05)
        for title, key in stored.items():
            try:
                await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"labels": {"a": "b"}}})
                await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": {"phase": "Pending"}}, subresource="status")
                await client.delete(MODEL_DEPLOYMENT, key)
                await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": None}})
            except ApiError as error:
                stuck[title] = error.message
    assert stuck == {}


async def in_own_namespace(client: Client, manifest: Resource, number: int, *, prefix: str = "case") -> Resource:
    """The manifest in a namespace of its own: its name may be what is wrong with it."""
    name = f"{prefix}-{number}"
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": name}}


async def registered(client: Client, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            configs = await client.list_all(INFERENCE_PROVIDER_CONFIG)
            if any(c["metadata"]["name"] == name and dig(c, "status", "ready") for c in configs):
                return
            await asyncio.sleep(0.02)


async def refusal(client: Client, manifest: Resource) -> ApiError | None:
    try:
        await client.create(MODEL_DEPLOYMENT, manifest, dry_run=True, field_validation="Strict")
    except ApiError as error:
        return error
    return None
