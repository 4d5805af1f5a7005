"""What a plugin is shown of its upstream, and what the status makes of its answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.faults import running, waiting
from tests.support.toy_variants import toy_host

from airunway.kube import POD, Client
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway.sdk import Component, Context, ModelDeployment, Observation, Observed
from airunway_testing.expectations import condition_is, phase_is, reason_is, running_at
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import until
from airunway_testing.simulators.scenarios import ANNOTATION
from airunway_testing.toy import provider
from airunway_testing.toy.names import PART, TOY, TOY_LABEL
from airunway_testing.toy.provider import MOST_REPLICAS

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

ROLE = "testing.airunway.ai/role"


async def pod(client: Client, key: ObjectKey, name: str, *, role: str = "", ready: bool, state: Resource) -> None:
    """A pod of the Toy in that state, as its kubelet would tell it; replaces nothing."""
    labels = {TOY_LABEL: key.name, **({ROLE: role} if role else {})}
    container = {"name": "model", "image": "registry.example/model:1"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": key.namespace, "labels": labels},
        "spec": {"automountServiceAccountToken": False, "containers": [container]},
    }
    await client.create(POD, body)
    crashed = dig(state, "waiting", "reason") == "CrashLoopBackOff"
    died = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}} if crashed else {}
    restarts = 4 if crashed else 0
    shown = {**container, "imageID": "", "ready": ready, "restartCount": restarts, "state": state, **died}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [shown],
    }
    await client.merge_patch(POD, ObjectKey(key.namespace, name), {"status": status}, subresource="status")


async def gone_with_its_pods(client: Client, key: ObjectKey) -> None:
    for found in await client.list_all(POD, namespace=key.namespace):
        await client.delete(POD, key_of(found), grace_seconds=0)


async def test_g10_only_serving_pods_count_and_scale_selects_them(
    operator: Operator, client: Client, kubectl: Kubectl
) -> None:
    await operator.provider(toy_host(role_label=ROLE, serving_roles=("server",)))
    key = await operator.deploy()
    await pod(client, key, "llama-head", role="server", ready=True, state=running())
    found = await until(client, key, running_at(1))
    assert found["status"]["selector"] == f"{TOY_LABEL}=llama,{ROLE}=server"
    path = f"/apis/airunway.ai/v1alpha1/namespaces/{key.namespace}/modeldeployments/llama/scale"
    assert f"{ROLE}=server" in kubectl("get", "--raw", path).stdout
    # A head that serves does not stand in for a worker that crashes.
    await pod(client, key, "llama-worker", role="worker", ready=False, state=waiting("CrashLoopBackOff", "back-off"))
    failing = await until(client, key, lambda md: dig(md, "status", "rootCause", "object", "name") is not None
                          or dig(md, "status", "rootCause") is not None)  # fmt: skip
    assert "llama-worker" in str(failing["status"]["rootCause"])
    assert failing["status"]["replicas"]["ready"] == 1
    await gone_with_its_pods(client, key)


async def test_g14_pods_beyond_the_demand_contradict_nothing(operator: Operator, client: Client) -> None:
    await operator.provider(toy_host())
    key = await operator.deploy()
    await pod(client, key, "llama-0", ready=True, state=running())
    await until(client, key, running_at(1))
    before = await until(client, key, phase_is("Running"))
    await pod(client, key, "llama-1", ready=False, state=waiting("ContainerCreating", ""))
    await operator.at_rest(TOY)
    after = await until(client, key, phase_is("Running"))
    assert condition_of(after, "Ready") == condition_of(before, "Ready"), "not for a moment was it anything else"
    assert after["status"]["replicas"] == before["status"]["replicas"]
    await gone_with_its_pods(client, key)


class Notes:
    """A toy that writes down what it is shown, and whose parts are as the test has them."""

    def __init__(self) -> None:
        self.seen: list[Observed] = []
        self.contexts: list[Context[Any]] = []
        self.part = Component(name="Parts", ready=True, reason="Ready", only_degrades=True)

    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
        self.seen.append(observed)
        self.contexts.append(context)
        usual = provider.translate_status(deployment, observed, context)
        return replace(usual, components=(usual.components[0], self.part))

    def kinds(self) -> list[str]:
        return sorted(str(obj["kind"]) for obj in self.seen[-1].objects)


async def test_g11_g16_g21_g22_g23_the_plugin_is_shown_everything_whatever_may_be_done_about_it(
    operator: Operator, client: Client
) -> None:
    notes = Notes()
    await operator.provider(toy_host(translate_status=notes.translate_status))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    everything = ["ConfigMap", "Service", "Toy", "ToyBox", "ToyPart"]
    part = await client.get(PART, operator.key("llama-part"))
    asked = len(notes.seen)
    await client.merge_patch(PART, key_of(part), {"status": {"said": "a word"}}, manager="tests")
    await operator.exists(PART, key_of(part), lambda _: len(notes.seen) > asked and bool(said(notes)), what="a look")
    assert notes.kinds() == everything
    assert said(notes) == ["a word"]
    first = notes.seen[-1].applied
    toy = await client.get(TOY, key)
    assert first == applied(toy)
    context = notes.contexts[-1]
    assert context.kubernetes == await client.version()
    assert (context.gateway, context.cache) == (None, None)
    # A spec that cannot be done: nothing may be changed, and what is seen is the same.
    await operator.edit(key, scaling={"replicas": MOST_REPLICAS + 1})
    await until(client, key, condition_is("ProviderCompatible", "False"))
    assert notes.kinds() == everything
    await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    assert notes.seen[-1].applied == applied(await client.get(TOY, key))
    assert notes.kinds() == everything


def said(notes: Notes) -> list[str]:
    return [str(dig(obj, "status", "said")) for obj in notes.seen[-1].objects if dig(obj, "status", "said")]


def applied(toy: Resource) -> datetime:
    """When the provider applied it last, by the server's own record."""
    found = next(e for e in toy["metadata"]["managedFields"] if e["manager"] == "airunway-provider-toy")
    return datetime.fromisoformat(found["time"])


async def test_g12_the_events_that_the_manifest_names_reach_the_plugin(operator: Operator, client: Client) -> None:
    await operator.provider(toy_host())
    key = await operator.deploy()
    await until(client, key, running_at(1))
    broken = {"metadata": {"annotations": {ANNOTATION: "fails:ToyBroken"}}}
    await client.merge_patch(TOY, key, broken, manager="tests")
    await until(client, key, lambda md: "the toy was told to show ToyBroken" in str(dig(md, "status", "warnings")))
    other = {"metadata": {"annotations": {ANNOTATION: "fails:ToyDull"}}}
    await client.merge_patch(TOY, key, other, manager="tests")
    await until(client, key, reason_is("ProviderResourceReady", "ToyDull"))
    found = await until(client, key, lambda md: "warnings" in md["status"])
    assert "ToyDull" not in str(found["status"]["warnings"]), "only what the manifest names"


async def test_g13_a_component_that_the_rest_serves_without_degrades_before_and_after_the_first_ready(
    operator: Operator, client: Client
) -> None:
    notes = Notes()
    notes.part = Component(name="Parts", ready=False, reason="PartBroken", message="it is broken", only_degrades=True)
    await operator.provider(toy_host(translate_status=notes.translate_status))
    key = await operator.deploy()
    phases = []

    def serves(found: Resource) -> bool:
        phases.append(dig(found, "status", "phase"))
        return phases[-1] == "Degraded" and bool(dig(found, "status", "endpoint", "service"))

    await until(client, key, serves)
    assert not {"Failed", "Running"} & set(phases)
    notes.part = replace(notes.part, only_degrades=False)
    await operator.edit(key, scaling={"replicas": 2})
    await until(client, key, lambda md: dig(md, "status", "phase") == "Failed")
