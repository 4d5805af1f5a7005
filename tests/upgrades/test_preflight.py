"""What `airunway preflight` says of twenty deployments is what an upgrade of KAITO's CRDs then does to them.

A real API server, KAITO's recorded CRDs, the core and the provider as they are; only KAITO itself is absent, so that
whatever changes has been changed by the new CRD or by us.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.console import ran, ran_now

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Client, Invalid, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true, key_of, uid_of
from airunway.runtime.application import ProviderSettings
from airunway.runtime.crd_versions import schema_hash
from airunway.schema import schema_in, served_versions
from airunway.status.conditions import SERVED
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is
from airunway_testing.operator import (
    install_definitions,
    remove_definition,
    remove_leftovers,
    running_core,
    running_provider,
    until,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
CRD = ObjectKey("", "workspaces.kaito.sh")
SETTINGS = {"partition": True, "instanceType": "big", "cpuInstanceType": "small"}

GPU: Resource = {"model": {"id": "microsoft/phi-4"}, "resources": {"gpu": {"count": 1}}}
GGUF: Resource = {
    "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
    "engine": {"type": "llamacpp"},
    "resources": {"memory": "16Gi", "cpu": "8"},
    "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
}
DEPLOYMENTS: dict[str, Resource] = {
    "preset": GPU,
    "preset-two-gpus": {**GPU, "resources": {"gpu": {"count": 2}}},
    "preset-length": {**GPU, "engine": {"contextLength": 8192}},
    "preset-token": {**GPU, "secrets": {"huggingFaceToken": "hf"}},
    "preset-id": {**GPU, "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
    "preset-labels": {**GPU, "nodeSelector": {"pool": "a"}},
    "preset-partition": {
        **GPU,
        "provider": {"overrides": {"resource": {"partition": {"mode": "mig", "profile": "1g.10gb", "count": 1}}}},
    },
    "preset-adapters": {
        **GPU,
        "provider": {"overrides": {"inference": {"adapters": [{"source": {"name": "a", "image": "example.org/a:1"}}]}}},
    },
    "image": {**GPU, "image": "vllm/vllm-openai:v0.23.0"},
    "image-two-gpus": {**GPU, "image": "vllm/vllm-openai:v0.23.0", "resources": {"gpu": {"count": 2}, "memory": "8Gi"}},
    "image-token": {**GPU, "image": "vllm/vllm-openai:v0.23.0", "secrets": {"huggingFaceToken": "hf"}},
    "arguments": {**GPU, "engine": {"extraArgs": ["--seed=1"]}},
    "environment": {**GPU, "env": [{"name": "A", "value": "1"}]},
    "claims": {
        **GPU,
        "model": {
            "id": "o/m",
            "storage": {
                "volumes": [{"name": "weights", "purpose": "modelCache", "claimName": "pvc", "readOnly": True}]
            },
        },
    },
    "llamacpp": GGUF,
    "llamacpp-gpu": {**GGUF, "resources": {"gpu": {"count": 1}}},
    "llamacpp-length": {**GGUF, "engine": {"type": "llamacpp", "contextLength": 4096}},
    "replicas": {**GPU, "scaling": {"replicas": 3}},
    "paused": GPU,
    "suspended": {**GPU, "suspend": True},
}
assert len(DEPLOYMENTS) == 20


@dataclass(frozen=True, kw_only=True)
class State:
    """What there is of a deployment: its Workspace, and what the provider says stands in its way."""

    workspace: Resource | None
    complaint: str

    @property
    def content(self) -> Resource:
        found = self.workspace or {}
        return {name: found.get(name) for name in ("resource", "inference", "tuning")}


Look = Callable[[], Awaitable[dict[str, State]]]


@pytest.fixture
async def without_kaito(client: Client) -> AsyncIterator[None]:
    """None of KAITO's CRDs nor what was registered, before and after."""
    await install_definitions(client)
    await remove_leftovers(client)
    await remove_definition(client, CRD.name)
    await remove_definition(client, "inferencesets.kaito.sh")  # with it, several replicas are possible
    yield
    await remove_leftovers(client)
    await remove_definition(client, CRD.name)


def definition(recordings: Path, release: str) -> Resource:
    found: Resource = yaml.safe_load((recordings / "upstream-crds/kaito" / release / "workspaces.yaml").read_text())
    return found


async def installed(client: Client, crd: Resource) -> None:
    """Put the CRD there as `kubectl apply --server-side` does, and wait until the provider has noticed."""
    await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager="kubectl", force=True)
    wanted = schema_hash(schema_in(crd, "v1beta1"))
    async with asyncio.timeout(PATIENCE):
        while not is_true(await client.get(CUSTOM_RESOURCE_DEFINITION, CRD), "Established"):
            await asyncio.sleep(0.05)
        while True:
            with suppress(NotFound):
                config = await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "kaito"))
                if dig(config, "status", "upstreamSchemaHash") == wanted:
                    return
            await asyncio.sleep(0.05)


def preflight(kubeconfig: Path, namespace: str, recordings: Path, release: str) -> tuple[int, Resource]:
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    # Of the Workspaces alone: an InferenceSet whose version is not served any more can be upgraded by nobody.
    crd = recordings / "upstream-crds/kaito" / release / "workspaces.yaml"
    cluster = ("-n", namespace, "-o", "json", "--kubeconfig", str(kubeconfig))
    done = ran_now("preflight", "--upstream", f"kaito={crd}", *settings, *cluster)
    assert done.code in (0, 3, 5), done.err
    return done.code, json.loads(done.out)


async def settled(look: Look) -> dict[str, State]:
    """What there is once nothing has changed for a while."""
    async with asyncio.timeout(120):
        before, calm = await look(), 0
        while calm < 4:
            await asyncio.sleep(0.5)
            now = await look()
            # A Workspace goes when its garbage is collected, and of a new CRD the collector learns after 30 seconds.
            leaving = any(dig(state.workspace or {}, "metadata", "deletionTimestamp") for state in now.values())
            calm = calm + 1 if now == before and not leaving else 0
            before = now
    return before


def effect(before: State, after: State) -> str:
    """What has become of a deployment."""
    if after.complaint and after.complaint != before.complaint:
        return "break"
    if before.workspace is None or after.workspace is None:
        return "leave" if before.workspace is after.workspace else "create" if after.workspace else "gone"
    if uid_of(after.workspace) != uid_of(before.workspace):
        return "recreate"
    lost = lacks(after.content, before.content)
    written = after.workspace["metadata"]["annotations"] != before.workspace["metadata"]["annotations"]
    if lost and not written:
        return "break"
    return "update" if written or after.content != before.content else "leave"


def lacks(after: Any, before: Any) -> bool:
    if isinstance(before, dict):
        return not isinstance(after, dict) or any(lacks(after.get(name), value) for name, value in before.items())
    return before is not None and after is None


class Stage:
    """Twenty deployments, and KAITO's CRDs as a test has them."""

    def __init__(self, client: Client, kubeconfig: Path, namespace: str, recordings: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.recordings = recordings

    async def look(self) -> dict[str, State]:
        workspaces = await self.client.list_all(WORKSPACE, namespace=self.namespace)
        by_name = {key_of(found).name: found for found in workspaces}
        return {
            (name := key_of(deployment).name): State(workspace=by_name.get(name), complaint=complaint(deployment))
            for deployment in await self._deployments()
        }

    async def _deployments(self) -> list[Resource]:
        return await self.client.list_all(MODEL_DEPLOYMENT, namespace=self.namespace)

    async def begin(self, release: str, *, serves: bool = True) -> dict[str, State]:
        """Everything as it is under a release, one deployment paused. The models serve, or never have."""
        await installed(self.client, definition(self.recordings, release))
        for name, spec in DEPLOYMENTS.items():
            metadata = {"name": name, "namespace": self.namespace}
            provider = {**spec.get("provider", {}), "name": "kaito"}
            body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata}
            await self.client.create(MODEL_DEPLOYMENT, {**body, "spec": {**spec, "provider": provider}})
        # A slow machine makes some of them long after the others, and of a Workspace that is yet to be made preflight
        # rightly says something else than of one that is there.
        async with asyncio.timeout(PATIENCE):
            while not all(map(answered, await self._deployments())):
                await asyncio.sleep(0.1)
        if serves:
            await self.serve()
        await self.annotate({names.PAUSED: "true"}, "paused")
        return await settled(self.look)

    async def serve(self) -> None:
        """Be KAITO once: say that the model of each Workspace serves."""
        since = "2026-01-01T00:00:00Z"
        succeeded = {"type": "WorkspaceSucceeded", "status": "True", "reason": "workspaceSucceeded", "message": ""}
        status = {"conditions": [{**succeeded, "lastTransitionTime": since}]}
        workspaces = await self.client.list_all(WORKSPACE, namespace=self.namespace)
        for key in map(key_of, workspaces):
            await self.client.merge_patch(WORKSPACE, key, {"status": status}, subresource="status", manager="kaito")
        for key in map(key_of, workspaces):
            await until(self.client, key, condition_is(SERVED, "True"))

    async def ask(self, release: str) -> tuple[int, dict[str, Resource]]:
        """The exit code of preflight, and what it says of each deployment."""
        code, said = await asyncio.to_thread(preflight, self.kubeconfig, self.namespace, self.recordings, release)
        return code, {entry["name"]: entry for entry in said["deployments"]}

    async def upgrade(self, release: str) -> dict[str, State]:
        await installed(self.client, definition(self.recordings, release))
        return await settled(self.look)

    async def set_variable(self) -> None:
        """Another variable in every deployment's spec."""
        for name, spec in DEPLOYMENTS.items():
            variables = [*spec.get("env", ()), {"name": "B", "value": "2"}]
            key, patch = ObjectKey(self.namespace, name), {"spec": {"env": variables}}
            await self.client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="user")

    async def annotate(self, annotations: dict[str, str], *which: str) -> None:
        for name in which or DEPLOYMENTS:
            key, patch = ObjectKey(self.namespace, name), {"metadata": {"annotations": annotations}}
            await self.client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="user")


@pytest.fixture
async def stage(
    without_kaito: None, client: Client, kubeconfig: Path, namespace: str, recordings: Path, kaito: ProviderHost
) -> AsyncIterator[Stage]:
    settings = ProviderSettings(values=SETTINGS)
    async with running_core(kubeconfig), running_provider(kubeconfig, kaito, settings=settings):
        yield Stage(client, kubeconfig, namespace, recordings)


@pytest.fixture
async def other(stage: Stage, client: Client) -> AsyncIterator[Stage]:
    """The same deployments in another namespace, with the same core and provider."""
    name = f"{stage.namespace}-b"
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield Stage(client, stage.kubeconfig, name, stage.recordings)
    await client.delete(NAMESPACE, ObjectKey("", name))


def effects(before: dict[str, State], after: dict[str, State]) -> dict[str, str]:
    return {name: effect(before[name], after[name]) for name in DEPLOYMENTS}


@pytest.mark.parametrize(
    ("old", "new", "at_once", "on_change", "exits"),
    [
        ("v0.4.6", "v0.12.0", {"leave", "create"}, {"leave", "update", "recreate"}, 5),
        ("v0.12.0", "v0.10.0", {"leave", "break"}, {"leave", "update", "recreate", "break"}, 3),
        ("v0.12.0", "v0.4.5", {"leave", "update", "break"}, {"leave", "recreate", "break"}, 3),
    ],
)
async def test_what_preflight_says_is_what_an_upgrade_does(
    stage: Stage, tmp_path: Path, old: str, new: str, at_once: set[str], on_change: set[str], exits: int
) -> None:
    before = await stage.begin(old)
    if new == "v0.10.0":
        await _asks_for_a_field(stage, tmp_path)
    if new == "v0.4.5":
        await _is_refused(stage)
    code, said = await stage.ask(new)
    after = await stage.upgrade(new)
    real = effects(before, after)
    await stage.annotate({names.ADOPT: "1"})
    later = effects(after, await settled(stage.look))
    _holds(said, now=real, later=later)
    assert (set(real.values()), set(later.values())) == (at_once, on_change), "each of them was there to be foreseen"
    assert code == exits


def _holds(said: dict[str, Resource], *, now: dict[str, str], later: dict[str, str]) -> None:
    assert {name: entry["now"] for name, entry in said.items()} == now
    assert {name: entry["onAdopt"] for name, entry in said.items()} == later


async def _asks_for_a_field(stage: Stage, folder: Path) -> None:
    """A release that asks for another field has an exit code of its own: nothing is written at once, so nothing breaks;
    the next change would be refused.
    """
    crd = definition(stage.recordings, "v0.12.0")
    for version in crd["spec"]["versions"]:
        resource = version["schema"]["openAPIV3Schema"]["properties"]["resource"]
        resource["properties"]["pool"] = {"type": "string"}
        resource["required"] = [*resource.get("required", ()), "pool"]
    path = folder / "workspaces.yaml"
    path.write_text(yaml.safe_dump(crd))
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    cluster = ("-n", stage.namespace, "--kubeconfig", str(stage.kubeconfig))
    done = await ran("preflight", "--upstream", f"kaito={path}", *settings, *cluster)
    assert done.code == 5, done.out + done.err
    now, on_change = done.out.splitlines()[-2].split("; on change ")
    assert "break" not in now
    assert "break" in on_change
    assert "Because of the upgrade the next change of" in done.out.splitlines()[-1]


async def _is_refused(stage: Stage) -> None:
    """A release that the API server refuses is called so."""
    code, said = await asyncio.to_thread(preflight, stage.kubeconfig, stage.namespace, stage.recordings, "v0.4.2")
    assert code == 3
    assert "may still be stored as v1beta1" in said["changes"][0]["refused"][0]
    refused = definition(stage.recordings, "v0.4.2")
    with pytest.raises(Invalid, match="storedVersions"):
        await stage.client.apply(CUSTOM_RESOURCE_DEFINITION, refused, manager="kubectl", force=True)


async def test_what_preflight_says_of_a_change_of_env_is_what_it_does(stage: Stage, other: Stage) -> None:
    """A Workspace with a preset has no place for variables in which they could be changed: it is made anew.

    Deployments of another namespace, which have never served, take what the release brings at once.
    """
    before_of_other, _ = await asyncio.gather(other.begin("v0.10.0", serves=False), stage.begin("v0.10.0"))
    code, said = await stage.ask("v0.12.0")
    code_of_other, said_of_other = await other.ask("v0.12.0")
    before = await stage.upgrade("v0.12.0")
    after_of_other = await settled(other.look)
    await stage.set_variable()
    await other.annotate({names.ADOPT: "1"})
    real = effects(before, await settled(stage.look))
    adopted = effects(after_of_other, await settled(other.look))
    # Of the one whose override is refused as it is, nothing can be foreseen; the other's would be by a variable.
    refused = {"preset-partition", "preset-adapters"}
    foreseen = {name: entry["changes"].get("env") for name, entry in said.items()}
    waits = dict.fromkeys(("replicas", "paused", "suspended"), "leave")
    assert foreseen == {**dict.fromkeys(DEPLOYMENTS, "recreate"), **waits, **dict.fromkeys(refused)}
    assert {name: real[name] for name in real if name not in refused} == {
        name: effect for name, effect in foreseen.items() if name not in refused
    }
    anew = "delete Workspace '{}' and make it again ({} cannot be changed in place)"
    assert said["preset"]["whyOnChange"] == anew.format("preset", "resource.partition.*")
    assert said["image"]["whyOnChange"] == (
        f"a change of env: {anew.format('image', 'inference.template.*')} (as without the upgrade)"
    )
    assert {entry["now"] for entry in said.values()} == {"leave", "create"}
    assert code == 5, "the upgrade has presets made anew by their next change"
    now = effects(before_of_other, after_of_other)
    _holds(said_of_other, now=now, later=adopted)
    assert set(now.values()) == {"leave", "create", "update", "recreate"}
    assert set(adopted.values()) == {"leave", "update"}
    assert code_of_other == 3, "what has never served is made anew at once"


async def test_from_release_to_release_what_runs_goes_on_as_it_was_said(stage: Stage, recordings: Path) -> None:
    releases = ["v0.4.5", "v0.4.6", "v0.7.0", "v0.8.0", "v0.9.0", "v0.10.0", "v0.12.0"]
    recorded = {path.parent.name for path in (recordings / "upstream-crds/kaito").glob("*/workspaces.yaml")}
    assert set(releases) == {
        release for release in recorded if "v1beta1" in served_versions(definition(recordings, release))
    }
    before = first = await stage.begin(releases[0])
    told = {}
    for release in releases[1:]:
        code, said = await stage.ask(release)
        after = await stage.upgrade(release)
        assert {name: entry["now"] for name, entry in said.items()} == effects(before, after), release
        told[release] = code, {name for name, entry in said.items() if entry["harmedLater"]}
        await stage.serve()  # also what only this release could run
        before = after
    # Since 0.7 nodes are used whatever their instance type: what was made before names one, and would have to be made
    # anew. Adapters are for presets, which take any model since 0.9; since 0.12 these are held to a part of a node.
    waits = {"preset-adapters", "preset-partition", "replicas", "paused", "suspended"}
    assert told == {
        "v0.4.6": (0, set()),
        "v0.7.0": (5, set(DEPLOYMENTS) - waits),
        "v0.8.0": (0, set()),
        "v0.9.0": (0, set()),
        "v0.10.0": (0, set()),
        "v0.12.0": (5, {"preset-adapters"}),
    }
    ran = {name: uid_of(state.workspace) for name, state in first.items() if state.workspace is not None}
    assert ran == {name: uid_of(before[name].workspace or {}) for name in ran}, "nothing was made anew"


def complaint(deployment: Resource) -> str:
    """What the provider says stands in its way."""
    for type_ in ("ProviderCompatible", "ResourceCreated"):
        found = condition_of(deployment, type_)
        if found is not None and found.get("status") == "False":
            return f"{found.get('reason')}: {found.get('message')}"
    return ""


def answered(deployment: Resource) -> bool:
    """Whether the provider has made what is asked for, or said why it does not."""
    if dig(deployment, "spec", "suspend"):
        return bool(dig(deployment, "status", "reason") == "Suspended")
    return bool(complaint(deployment)) or is_true(deployment, "ResourceCreated")


async def test_the_cluster_of_a_context_is_asked(without_kaito: None, kubeconfig: Path, recordings: Path) -> None:
    current = yaml.safe_load(kubeconfig.read_text())["current-context"]
    cluster = ("--kubeconfig", str(kubeconfig), "--context", current)
    upstream = ("--upstream", "kaito=0.12", "--recordings", str(recordings / "upstream-crds"))
    done = await ran("preflight", *upstream, *cluster)
    assert done.code == 0, done.err
    assert done.out.endswith("No deployments.\n")
