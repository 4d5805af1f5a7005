"""A fleet of serving deployments of all five providers in one namespace, and what one can see of it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from tests.support.audit import Request
from tests.support.operator_process import operator_process

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import CLUSTER_ROLE, DEPLOYMENT, NAMESPACE, POD, STATEFUL_SET, Client, Kind, NotFound
from airunway.plugins.registry import load
from airunway.rbac.rights import picker_role
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of, labels_of, uid_of
from airunway.sdk import picker
from airunway_testing.eventually import PATIENCE
from airunway_testing.gatewayapi.kinds import GATEWAY, GATEWAY_CLASS, GATEWAY_GROUP, gateway, gateway_class
from airunway_testing.gatewayapi.kinds import definitions as gateway_definitions
from airunway_testing.operator import install_definitions, remove_leftovers, until
from airunway_testing.simulators import load_simulator

PROVIDERS = ("kaito", "vllm", "llmd", "kuberay", "dynamo")
CONFIG = "platform"
TEAM = "example.org/team"
"""A label that the config's patterns propagate."""

_GPU: Resource = {"resources": {"gpu": {"count": 1}}}
_ROLE: Resource = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi"}
_APART: Resource = {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": _ROLE, "decode": _ROLE}}

SPECS: Mapping[str, Resource] = {
    "preset": {"provider": {"name": "kaito"}, **_GPU},
    "template": {"provider": {"name": "kaito"}, "image": "registry.example/team/vllm:1.0", **_GPU},
    "set": {
        "provider": {"name": "kaito"},
        "image": "registry.example/team/vllm:1.0",
        "scaling": {"replicas": 2},
        **_GPU,
    },
    "plain": {"provider": {"name": "vllm"}, **_GPU},
    "plain-b": {"provider": {"name": "vllm"}, **_GPU},
    "group": {"provider": {"name": "vllm"}, "resources": {"gpu": {"count": 16}}},
    "pool": {"provider": {"name": "llmd"}, **_GPU},
    "pool-apart": {"provider": {"name": "llmd"}, **_APART},
    "ray": {"provider": {"name": "kuberay"}, **_GPU},
    "ray-apart": {"provider": {"name": "kuberay"}, **_APART},
    "graph": {"provider": {"name": "dynamo"}, **_GPU},
    "graph-apart": {"provider": {"name": "dynamo"}, **_APART},
}
"""One deployment of each way in which a provider runs models, by name."""

_OWN = ("modeldeployments", "inferenceproviderconfigs", "runtimeconfigs", "clusterruntimeconfigs", "events", "leases")
"""Resources that are no upstream's."""


@dataclass(kw_only=True)
class Fleet:
    """The deployments of one namespace."""

    client: Client
    namespace: str
    names: Sequence[str]
    kinds: Sequence[Kind]

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, name)

    async def configure(self, **spec: Any) -> str:
        """Write the config that all follow anew; returns its resource version."""
        body = {
            "apiVersion": RUNTIME_CONFIG.api_version,
            "kind": RUNTIME_CONFIG.kind,
            "metadata": {"name": CONFIG, "namespace": self.namespace},
            "spec": spec,
        }
        made = await self.client.apply(RUNTIME_CONFIG, body, manager="platform", force=True)
        return str(made["metadata"]["resourceVersion"])

    async def deploy(self, name: str, **spec: Any) -> Resource:
        base: Resource = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "engine": {"type": "vllm"}}
        base["gateway"] = {"modelName": name}  # two with the same name on one Gateway would be a conflict
        body = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": self.namespace, "labels": {TEAM: "one"}},
            "spec": {**base, "runtimeConfigName": CONFIG, **spec},
        }
        return await self.client.create(MODEL_DEPLOYMENT, body, manager="user")

    async def every(
        self, holds: Callable[[Resource], bool], *, what: str, names: Sequence[str] = (), within: float = PATIENCE
    ) -> None:
        """Wait until it holds of every deployment, for each up to `within` seconds. Raises TimeoutError."""
        for name in names or self.names:
            await until(self.client, self.key(name), holds, what=what, within=within)

    async def edit(self, name: str, spec: Resource) -> int:
        after = await self.client.merge_patch(MODEL_DEPLOYMENT, self.key(name), {"spec": spec}, manager="user")
        return int(after["metadata"]["generation"])

    async def standing(self) -> dict[tuple[str, str], tuple[str, int]]:
        """Uid and generation of every object that serves: (kind, name) → both. Pods have no generation here. Pools,
        pickers and what belongs to a part are left out: they carry no model.
        """
        found: dict[tuple[str, str], tuple[str, int]] = {}
        for kind in (*self.kinds, POD, STATEFUL_SET, DEPLOYMENT):
            try:
                objects = await self.client.list_all(kind, namespace=self.namespace)
            except NotFound:
                continue
            for obj in objects:
                if is_deleting(obj) or is_of_a_gateway(obj):
                    continue
                generation = 0 if kind == POD else int(obj["metadata"].get("generation", 0))
                found[kind.kind, key_of(obj).name] = uid_of(obj), generation
        return found

    async def settled(self) -> None:
        """Until nothing of the deployments has changed for two seconds."""
        last = None
        while (now := await self._versions()) != last:
            last = now
            await asyncio.sleep(2.0)

    async def _versions(self) -> list[str]:
        found = await self.client.list_all(MODEL_DEPLOYMENT, namespace=self.namespace)
        return sorted(str(each["metadata"]["resourceVersion"]) for each in found)


def is_of_a_gateway(obj: Resource) -> bool:
    """Whether it belongs to a picker or a part, and so carries no model."""
    labels = labels_of(obj)
    return names.PART in labels or labels.get(names.COMPONENT) == picker.COMPONENT


def upstream_writes(requests: Sequence[Request], namespace: str) -> list[str]:
    """What our process wrote in a namespace beside statuses, events and leases: ``patch workspaces llama``."""
    return [
        f"{request.verb} {request.resource} {request.name}"
        for request in requests
        if request.writes
        and request.namespace == namespace
        and request.code < 400
        and request.agent
        and not request.agent.startswith(("simulated", "gateway-controller"))
        and request.agent != "airunway-tests"
        and request.resource.partition("/")[0] not in _OWN
    ]


def hash_of(deployment: Resource) -> str:
    return str(dig(deployment, "status", "effectiveRuntimeConfig", "hash", default=""))


def process_of(
    kubeconfig: Path, folder: Path, *providers: str, flags: Sequence[str] = ()
) -> AbstractAsyncContextManager[Popen[bytes]]:
    """Core, its parts and providers as one process of their own."""
    quiet = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
    names = providers or PROVIDERS
    if "kaito" in names:  # one replica is a Workspace (tests/one_workspace.py)
        setting = "inferenceSet=WhenScaled" if len(names) == 1 else "kaito.inferenceSet=WhenScaled"
        flags = (*flags, "--set", setting)
    return operator_process(kubeconfig, folder, "run", *names, *quiet, *flags)


def definitions(*, extension: bool = True) -> list[Resource]:
    """The CRDs of the simulated upstreams and of the Gateway API, with the Inference Extension or without."""
    crds = [crd for name in PROVIDERS for crd in load_simulator(name).custom_resource_definitions()]
    found = {key_of(crd).name: crd for crd in (*gateway_definitions(), *crds)}
    return [crd for name, crd in found.items() if extension or not name.startswith("inferencepools.")]


@asynccontextmanager
async def gateways(client: Client, namespace: str, *wanted: str) -> AsyncIterator[None]:
    """Gateways of the simulated controller in a namespace."""
    if await client.find(GATEWAY_CLASS, ObjectKey("", "airunway-testing")) is None:
        await client.create(GATEWAY_CLASS, gateway_class())
    for name in wanted:
        await client.create(GATEWAY, gateway(name, namespace))
    allowed = {"metadata": {"labels": {names.GATEWAY_NAMESPACE: "allowed"}}}
    await client.merge_patch(NAMESPACE, ObjectKey("", namespace), allowed)
    yield


async def prepared(client: Client, *, extension: bool = True) -> None:
    await install_definitions(client, definitions(extension=extension))
    await client.apply(CLUSTER_ROLE, picker_role(), manager="platform", force=True)
    await remove_leftovers(client)


_ELSEWHERE = (GATEWAY_GROUP, "inference.networking.k8s.io", "keda.sh")
"""Groups whose kinds carry no model, or are not there."""


def kinds_written() -> list[Kind]:
    """The kinds that the five providers write where KEDA is not installed, in the version that each prefers."""
    found: dict[tuple[str, str], Kind] = {}
    for name in PROVIDERS:
        for each in load(name).manifest.upstream:
            if each.write and each.group and each.group not in _ELSEWHERE:
                found.setdefault((each.group, each.kind), Kind(each.group, each.versions[0], each.kind, each.plural))
    return [kind for key, kind in found.items() if key[0] not in ("apps", "rbac.authorization.k8s.io")]
