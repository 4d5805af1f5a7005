"""Config before, after or together with its deployment: the same upstream objects, byte for byte (case C15)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from difflib import ndiff
from pathlib import Path

import pytest
from tests.platform.fleet import PROVIDERS, SPECS, TEAM, hash_of, kinds_written, prepared

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import CONFIG_MAP, DEPLOYMENT, NAMESPACE, SERVICE, Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, annotations_of, dig, is_deleting, labels_of
from airunway.revisions.revision import is_in_effect
from airunway_testing.operator import running_core, running_provider, until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG: Resource = {
    "apiVersion": RUNTIME_CONFIG.api_version,
    "kind": RUNTIME_CONFIG.kind,
    "metadata": {"name": "default"},
    "spec": {
        "env": [{"name": "STAGE", "value": "one"}, {"name": "OTHER", "value": "two"}],
        "imagePullSecrets": [{"name": "registry"}],
        "secrets": {"huggingFaceToken": "hf"},
        "labelPropagation": {"enabled": True, "match": ["example.org/*"]},
    },
}
SEEDED = 20
SOON = 10.0
"""Seconds that the last write may take after the status is right."""


@asynccontextmanager
async def operating(kubeconfig: Path) -> AsyncIterator[None]:
    """Core and all providers; no upstream acts, so that nothing serves meanwhile."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_core(kubeconfig))
        for name in PROVIDERS:
            await stack.enter_async_context(running_provider(kubeconfig, load(name)))
        yield


def deployment(name: str) -> Resource:
    base: Resource = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "engine": {"type": "vllm"}}
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "labels": {TEAM: "one"}},
        "spec": {**base, **SPECS[name]},
    }


async def written(client: Client, namespace: str) -> str:
    """What is written in a namespace, without what the API server adds."""
    found: list[Resource] = []
    for kind in (*kinds_written(), DEPLOYMENT, SERVICE, CONFIG_MAP):
        objects = await client.list_all(kind, namespace=namespace)
        found += [_plain(obj) for obj in objects if names.MODEL_DEPLOYMENT in labels_of(obj) and not is_deleting(obj)]
    found.sort(key=lambda each: (each["kind"], each["metadata"]["name"]))
    text = json.dumps(found, sort_keys=True, indent=1)
    return text.replace(namespace, "NAMESPACE")


def _plain(obj: Resource) -> Resource:
    skipped = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in skipped}
    own = annotations_of(obj)
    # The hash covers the namespace, which differs; all else that it covers is compared itself.
    unlike = (names.SPEC_HASH, f"{names.GROUP}/deployment-uid")
    metadata["annotations"] = {key: value for key, value in own.items() if key not in unlike}
    spec = obj.get("spec")
    if obj["kind"] == "Service" and isinstance(spec, dict):
        obj = {**obj, "spec": {key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs")}}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(SEEDED, id="20"),
        pytest.param(10 * SEEDED, id="200", marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
async def test_c15_the_order_of_config_and_deployment_leaves_no_trace(
    count: int, kubeconfig: Path, client: Client, namespace: str
) -> None:
    await prepared(client)
    wanted = list(SPECS)
    places: dict[str, tuple[str, int]] = {}
    for number in range(count):
        name = wanted[number % len(wanted)]
        places[f"{namespace}-{number}"] = name, number
    references = {name: f"{namespace}-reference-{name}" for name in wanted}
    for place in (*places, *references.values()):
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    try:
        await _compared(client, kubeconfig, places, references)
    finally:
        for place in (*places, *references.values()):
            for found in await client.list_all(MODEL_DEPLOYMENT, namespace=place):
                key = ObjectKey(place, found["metadata"]["name"])
                await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": None}})
            await client.delete(NAMESPACE, ObjectKey("", place))


async def _compared(
    client: Client, kubeconfig: Path, places: dict[str, tuple[str, int]], references: dict[str, str]
) -> None:
    later: list[tuple[str, Resource]] = []

    async def make(place: str, body: Resource) -> None:
        kind = RUNTIME_CONFIG if body["kind"] == RUNTIME_CONFIG.kind else MODEL_DEPLOYMENT
        await client.create(kind, {**body, "metadata": {**body["metadata"], "namespace": place}})

    async def interleaved(place: str, name: str, seed: int) -> None:
        chance = random.Random(seed)
        pair = [CONFIG, deployment(name)]
        chance.shuffle(pair)
        way = chance.choice(("apart", "together", "restart"))
        if way == "together":
            await asyncio.gather(*(make(place, body) for body in pair))
            return
        await make(place, pair[0])
        if way == "restart":
            later.append((place, pair[1]))
            return
        await asyncio.sleep(chance.random() * 2.0)
        await make(place, pair[1])

    async with operating(kubeconfig):
        for name, place in references.items():
            await make(place, CONFIG)
            await make(place, deployment(name))
        await asyncio.gather(*(interleaved(place, name, seed) for place, (name, seed) in places.items()))
        for place, body in later[::2]:
            await make(place, body)
    for place, body in later[1::2]:  # while core and providers are down
        await make(place, body)
    async with operating(kubeconfig):
        for place, name in [*((p, n) for p, (n, _) in places.items()), *((p, n) for n, p in references.items())]:
            await until(client, ObjectKey(place, name), _has_settings, what="the config's settings")
        for place, (name, seed) in places.items():
            expected = await written(client, references[name])
            assert "STAGE" in expected, name
            with suppress(TimeoutError):  # what differs is shown below
                async with asyncio.timeout(SOON):
                    while await written(client, place) != expected:
                        await asyncio.sleep(0.2)
            found = await written(client, place)
            changes = [line for line in ndiff(expected.splitlines(), found.splitlines()) if line[0] in "-+"]
            assert changes == [], f"{name}, seed {seed}"


def _has_settings(found: Resource) -> bool:
    used = dig(found, "status", "revision", "settings", "configHash")
    return bool(used) and used == hash_of(found) and is_in_effect(found)
