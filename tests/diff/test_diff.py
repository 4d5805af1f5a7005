"""What `airunway diff` says of an edit is what then happens on the API server, for every provider."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, served_kinds_by_name
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, labels_of, uid_of
from airunway.runtime.informers import kind_in
from airunway.tools.assignment import installed_plugin, provider_among
from airunway.upgrades.edit_reading import EditReader
from airunway.view.plan import DeploymentPlan
from airunway_testing.conformance.cases import merged_spec
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.operator import deployments, playing, until

pytestmark = pytest.mark.apiserver

IMAGE = "registry.example/team/vllm:"
OTHER_IMAGE = "registry.example/other/vllm:"
RELEASE = {"dynamo": "1.3.1", "kuberay": "2.56.0"}
"""The tag of an image, where a provider reads its upstream's release from it."""
SPEC: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "engine": {"type": "vllm"},
    "image": IMAGE,
    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    "resources": {"gpu": {"count": 1}},
}


SIMULATED = ("toy", "kaito", "dynamo", "kuberay")
"""Providers whose upstream answers here; the Deployments of the others run nothing on this control plane."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of the file, and what it may do to pods."""

    spec: Mapping[str, Any] | None = None
    """Merged into the spec; a field that is None is removed from the file."""
    metadata: Mapping[str, Any] | None = None
    action: str = ""
    """The action for the primary object, where it is the same with all providers."""


EDITS: Mapping[str, Edit] = {
    "nothing": Edit(action="keep"),
    "replicas": Edit(spec={"scaling": {"replicas": 2}}),
    "image": Edit(spec={"image": OTHER_IMAGE}),
    "env-changed": Edit(spec={"env": [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]}),
    "env-removed": Edit(spec={"env": [{"name": "A", "value": "1"}]}),
    "env-dropped": Edit(spec={"env": None}),
    "args": Edit(spec={"engine": {"extraArgs": ["--seed=1"]}}),
    "context": Edit(spec={"engine": {"contextLength": 4096}}),
    "model": Edit(spec={"model": {"id": "meta-llama/Llama-3.2-1B-Instruct"}}, action="recreate"),
    "engine": Edit(spec={"engine": {"type": "sglang"}}),
    "served-name": Edit(spec={"model": {"servedName": "other"}}),
    "gpus": Edit(spec={"resources": {"gpu": {"count": 2}}}),
    "memory": Edit(spec={"resources": {"memory": "64Gi"}}),
    "suspend": Edit(spec={"suspend": True}, action="delete"),
    "gateway": Edit(spec={"gateway": {"enabled": False}}, action="keep"),
    "node-selector": Edit(spec={"nodeSelector": {"zone": "a"}}),
    "tolerations": Edit(spec={"tolerations": [{"key": "a", "operator": "Exists"}]}),
    "pod-label": Edit(spec={"podTemplate": {"metadata": {"labels": {"team": "a"}}}}),
    "label": Edit(metadata={"labels": {"example.org/team": "a"}}),
    "adopt": Edit(metadata={"annotations": {names.ADOPT: "now"}}),
    "service-account": Edit(spec={"serviceAccountName": "runner"}),
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One upstream object."""

    uid: str
    generation: int | None
    content: Resource


Objects = Mapping[tuple[str, str], Seen]


def document(namespace: str, name: str, edit: Edit, provider: str) -> Resource:
    spec = merged_spec({**SPEC, "provider": {"name": provider}}, dict(edit.spec or {}))
    spec["image"] += RELEASE.get(provider, "1.0")
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace, **(edit.metadata or {})},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


async def kinds_of(client: Client, host: ProviderHost) -> list[Kind]:
    """The kinds that a provider writes, as the cluster prefers them."""
    served = await served_kinds_by_name(client)
    found = []
    for kind in host.manifest.upstream:
        versions = [each.version for each in served.get((kind.group, kind.kind), [])]
        wanted = next((version for version in kind.versions if not kind.group or version in versions), None)
        if kind.write and wanted is not None:
            found.append(kind_in(kind, wanted))
    return found


async def objects_in(client: Client, kinds: list[Kind], namespace: str, provider: str) -> dict[str, Objects]:
    """The upstream objects of every deployment of a namespace, by its name."""
    found: dict[str, dict[tuple[str, str], Seen]] = {}
    for kind in kinds:
        label = f"{names.MODEL_DEPLOYMENT},{names.PROVIDER}={provider}"
        for obj in await client.list_all(kind, namespace=namespace, label_selector=label):
            metadata = {k: obj["metadata"].get(k) for k in ("labels", "annotations")}
            content = {k: v for k, v in obj.items() if k not in ("status", "metadata")}
            of_one = found.setdefault(labels_of(obj)[names.MODEL_DEPLOYMENT], {})
            of_one[kind.kind, key_of(obj).name] = Seen(
                uid=uid_of(obj),
                generation=dig(obj, "metadata", "generation"),
                content={**content, "metadata": metadata},
            )
    return {what: found.get(what, {}) for what in EDITS}


def expected(plan: DeploymentPlan, before: Objects, after: Objects) -> list[str]:
    """In what the objects `after` an edit differ from what was planned."""
    wrong, planned = [], set()
    for step in plan.steps:
        place = (step.kind, step.name)
        planned.add(tuple(step.becomes.split("/")) if step.becomes else place)
        old, new = before.get(place), after.get(place)
        same = old is not None and new is not None and old.uid == new.uid
        moved = old is not None and new is not None and old.generation != new.generation
        match step.action:
            case "create":
                holds = old is None and new is not None
            case "delete":
                holds = old is not None and new is None
            case "recreate":
                holds = old is not None and (new is None if step.becomes else new is not None and new.uid != old.uid)
            case "keep":
                holds = same and old == new
            case "update" if step.only_records:
                # Annotations count in the generation of a Deployment.
                holds = same and old != new and (not moved or step.kind == "Deployment")
            case "update":
                holds = same and old != new and (moved or old is None or old.generation is None)
            case _:
                holds = False
        if not holds:
            wrong.append(f"{step.kind}/{step.name} {step.action} (only records: {step.only_records}): {old} → {new}")
    there = {tuple(step.becomes.split("/")) for step in plan.steps if step.becomes} - set(after)
    wrong += [f"{place} is not there" for place in there]
    wrong += [f"{place} is there, and was not planned" for place in after if place not in planned]
    return wrong


SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("kaito", "dynamo", "kuberay", "llmd", "vllm")]


@pytest.mark.parametrize("provider", ["toy", *SLOW])
async def test_what_is_planned_is_what_happens(provider: str, client: Client, kubeconfig: Any, namespace: str) -> None:
    host = load(provider)
    async with playing(kubeconfig, client, host, level="api"), deployments(client, namespace, {}):
        kinds = await kinds_of(client, host)
        keys = {what: ObjectKey(namespace, what) for what in EDITS}
        for what in EDITS:
            base = document(namespace, what, Edit(), provider)
            await client.apply(MODEL_DEPLOYMENT, base, manager="kubectl", force=True)
        for key in keys.values():
            await until(
                client, key, running_at(1) if provider in SIMULATED else condition_is("ResourceCreated", "True")
            )
        edited = {what: document(namespace, what, edit, provider) for what, edit in EDITS.items()}
        before = await objects_in(client, kinds, namespace, provider)
        reader = EditReader(client, load=installed_plugin, choose=provider_among)
        plans = {what: await reader.plan(edit) for what, edit in edited.items()}
        assert await objects_in(client, kinds, namespace, provider) == before, "planning writes nothing"
        for body in edited.values():
            await client.apply(MODEL_DEPLOYMENT, body, manager="kubectl", force=True)
        for key in keys.values():
            await until(client, key, _handled)
        read = partial(objects_in, client, kinds, namespace, provider)
        assert await _until_right(read, plans, before) == {}
        for what, body in edited.items():
            again = await reader.plan(body)
            assert not again.differs, (what, again.as_resource())
        for what, edit in EDITS.items():
            primary = next((step.action for step in plans[what].steps if step.primary), "")
            assert plans[what].differs == (what != "nothing"), what
            if edit.action and not plans[what].waits:
                assert primary == edit.action, (what, plans[what].as_resource())


def _handled(deployment: Resource) -> bool:
    """Whether the core has judged the newest spec."""
    validated = condition_of(deployment, "Validated") or {}
    return bool(validated.get("observedGeneration") == deployment["metadata"]["generation"])


async def _until_right(
    read: Callable[[], Awaitable[dict[str, Objects]]], plans: Mapping[str, DeploymentPlan], before: dict[str, Objects]
) -> dict[str, list[str]]:
    """In what objects differ from the plans, by deployment, once nothing does or they have had their time."""
    wrong: dict[str, list[str]] = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                after = await read()
                problems = {what: expected(plan, before[what], after[what]) for what, plan in plans.items()}
                wrong = {what: found for what, found in problems.items() if found}
                if not wrong:
                    return {}
                await asyncio.sleep(0.1)
    except TimeoutError:
        return wrong
