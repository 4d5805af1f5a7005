"""A healthy installation as objects of a real API server, ways to break it, and the doctor as a command."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.console import ran_now
from tests.support.rights import account_of

from airunway import __version__
from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.doctor.snapshot import GUARDED
from airunway.gateway.caches import GATEWAY
from airunway.kinds import (
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_ARTIFACT,
    MODEL_DEPLOYMENT,
    RUNTIME_CONFIG,
)
from airunway.kube import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SERVICE,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    Client,
    Kind,
    NotFound,
    wait_until_established,
)
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import load
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.rbac.admission_policies import provider_guard
from airunway.rbac.rights import (
    core_rights,
    gateway_rights,
    leader_election_rights,
    model_cache_rights,
    picker_role,
    provider_rights,
    roles,
    webhook_rights,
)
from airunway.resource import ObjectKey, Resource, copy_of, format_time, is_true, key_of
from airunway.webhook.cert_rotator import SECRET
from airunway.webhook.certificates import new_authority
from airunway.webhook.configuration import CONFIGURATION_KIND, configuration_object, webhook_settings
from airunway_testing.controlplane import Cluster
from airunway_testing.controlplane.nodes import gpu_node
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Administrator
from airunway_testing.gatewayapi.kinds import definitions, istio_definitions
from airunway_testing.operator import gone, install_definitions, remove_definition, remove_leftovers
from airunway_testing.simulators import load_simulator

MANAGER = "tests-doctor"
RBAC, POLICIES, GATEWAYS = "rbac.authorization.k8s.io", CONFIGURATION_KIND.group, "gateway.networking.k8s.io"
ROLE, ROLE_BINDING = (Kind(RBAC, "v1", name, f"{name.lower()}s") for name in ("Role", "RoleBinding"))
POLICY = Kind(POLICIES, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False)
BINDING = Kind(POLICIES, "v1", f"{POLICY.kind}Binding", "validatingadmissionpolicybindings", namespaced=False)
GATEWAY_CLASS = Kind(GATEWAYS, "v1", "GatewayClass", "gatewayclasses", namespaced=False)
KINDS = {
    kind.kind: kind
    for kind in (
        BINDING,
        CONFIG_MAP,
        CLUSTER_ROLE,
        CLUSTER_ROLE_BINDING,
        CONFIGURATION_KIND,
        CUSTOM_RESOURCE_DEFINITION,
        CLUSTER_RUNTIME_CONFIG,
        DEPLOYMENT,
        ENDPOINT_SLICE,
        GATEWAY,
        GATEWAY_CLASS,
        INFERENCE_PROVIDER_CONFIG,
        LEASE,
        MODEL_ARTIFACT,
        MODEL_DEPLOYMENT,
        NODE,
        POD,
        POLICY,
        REPLICA_SET,
        ROLE,
        ROLE_BINDING,
        RUNTIME_CONFIG,
        SECRET,
        SERVICE,
        SERVICE_ACCOUNT,
        STORAGE_CLASS,
    )
}
OPTIONS = {"leader-elect": "true", "watch-namespaces": ""}
"""How each process runs, as its Lease publishes it."""

PARTS = {names.GATEWAY_MANAGER: {"gateway": "auto"}, names.MODEL_CACHE_MANAGER: {"model-cache": "on"}}
"""What the parts of the core publish beside it, which are all on; the core publishes it too."""

GUARDED_PROCESS = names.provider_manager("toy")
"""The Deployment that has guards. The core's has none here: those of the status would hold for all the cluster."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the command said: its exit code and its document."""

    code: int
    document: Resource

    @property
    def codes(self) -> list[str]:
        return sorted({finding["code"] for finding in self.document["findings"]})


Doctor = Callable[..., Report]


@pytest.fixture
def doctor(kubeconfig: Path, namespace: str) -> Doctor:
    """Runs `airunway doctor -o json` on the installation in the test's namespace."""

    def run(*arguments: str, kubeconfig: Path = kubeconfig) -> Report:
        done = ran_now("doctor", "-n", namespace, "-o", "json", "--kubeconfig", str(kubeconfig), *arguments)
        assert done.code in (0, 3, 4), done.err
        return Report(code=done.code, document=json.loads(done.out))

    return run


Standing: TypeAlias = dict[tuple[Kind, ObjectKey], bool]
"""The objects of the healthy installation that were made, and whether no test has touched them since."""


class Installation:
    """The objects of an installation, and what is done to them; whatever was touched is made anew for the next test."""

    def __init__(self, client: Client, namespace: str, standing: Standing) -> None:
        self._client = client
        self.namespace = namespace
        self._standing = standing
        self._touched: list[tuple[Kind, ObjectKey]] = []

    async def apply(self, obj: Resource) -> None:
        """Apply an object, its status too; it goes after the test."""
        self._touched.append(await self._applied(obj))

    async def _stand(self, obj: Resource, *, anew: bool = False) -> None:
        """Apply an object of the healthy installation, if it does not stand there yet."""
        metadata, kind = obj["metadata"], KINDS[obj["kind"]]
        place = kind, ObjectKey(metadata.get("namespace", self.namespace if kind.namespaced else ""), metadata["name"])
        if anew or not self._standing.get(place):
            self._standing[await self._applied(obj)] = True

    async def _applied(self, obj: Resource) -> tuple[Kind, ObjectKey]:
        kind = KINDS[obj["kind"]]
        body = {key: value for key, value in obj.items() if key != "status"}
        metadata = dict(body["metadata"])
        if kind.namespaced:
            metadata.setdefault("namespace", self.namespace)
        for owner in metadata.get("ownerReferences", ()):  # with the uid of another it would be garbage
            found = await self._client.get(KINDS[owner["kind"]], ObjectKey(metadata["namespace"], owner["name"]))
            owner["uid"] = found["metadata"]["uid"]
        body |= {"apiVersion": kind.api_version, "metadata": metadata}
        async with asyncio.timeout(PATIENCE):
            while True:  # a kind whose definition came back is served a moment after it is established
                try:
                    await self._client.apply(kind, body, manager=MANAGER, force=True)
                    break
                except NotFound:
                    await asyncio.sleep(0.1)
        if "status" in obj:
            await self._client.merge_patch(kind, key_of(body), {"status": obj["status"]}, subresource="status")
        if kind is CUSTOM_RESOURCE_DEFINITION:
            await self._settled(key_of(body))
        return kind, key_of(body)

    async def do(self, step: Resource) -> None:
        """One step of a misconfiguration, as `misconfigurations.yaml` has them."""
        step = self._filled(step)
        (verb, what), *more = step.items()
        assert not more, f"a step is one thing: {step}"
        match verb:
            case "apply":
                await self.apply(what)
            case "definition":
                for crd in _definitions(what["name"], older=what.get("older", "")):
                    for lost in what.get("without", ()):
                        crd["spec"]["versions"][0].pop(lost)
                    await self.apply(crd)
            case "webhook":
                await self._serve_webhook(what)
            case "patch" | "delete":
                kind = KINDS[what["kind"]]
                key = ObjectKey(what.get("namespace", self.namespace if kind.namespaced else ""), what["name"])
                self._touched.append((kind, key))
                if verb == "delete" and kind is CUSTOM_RESOURCE_DEFINITION and not what.get("stays"):
                    await remove_definition(self._client, key.name)
                elif verb == "delete":
                    await self._client.delete(kind, key)
                    if not what.get("stays"):
                        await gone(self._client, kind, key)
                else:
                    subresource = "status" if "status" in what["body"] else ""
                    await self._client.merge_patch(kind, key, what["body"], subresource=subresource)
            case "runs":
                await self.publish(what["process"], what.get("with", {}), version=what.get("version", __version__))
            case _:
                raise ValueError(f"no such step: {verb}")

    async def _serve_webhook(self, altered: Resource) -> None:
        """The core serves the webhook, and all is there for it, but that its configuration is `altered`.

        Nothing listens there: alterations are such that the API server does not call it, or goes on without an answer.
        """
        name = f"{self.namespace}-webhook"
        url = "https://127.0.0.1:1"
        settings = webhook_settings(bind_address=":9443", url=url, configuration=name, namespace=self.namespace)
        assert settings is not None
        core = names.CORE_MANAGER
        await self.publish(core, {"webhook-bind-address": ":9443", "webhook-url": url, "webhook-configuration": name})
        subject = account_of(f"system:serviceaccount:{self.namespace}:{core}")
        for role in roles(webhook_rights(settings), name=name, namespace=self.namespace, subject=subject):
            await self.apply(role)
        bundle = new_authority(now=datetime.now(UTC), hosts=settings.hosts).authority
        live = configuration_object(settings, bundle=bundle)
        live["webhooks"][0] |= altered
        await self.apply(live)

    async def publish(self, process: str, options: Mapping[str, str], *, version: str = __version__) -> None:
        """The process runs with these options beside the usual ones, and its Lease says so."""
        annotations = _effective(process, options, version=version).annotations()
        key = ObjectKey(self.namespace, process)
        await self._client.merge_patch(LEASE, key, {"metadata": {"annotations": annotations}})

    async def close(self) -> None:
        for kind, key in reversed(dict.fromkeys(self._touched)):
            self._standing.pop((kind, key), None)
            if kind is CUSTOM_RESOURCE_DEFINITION:  # objects may have gone with it
                self._standing.update(dict.fromkeys(self._standing, False))
            with suppress(NotFound):
                live = await self._client.get(kind, key)
                if live["metadata"].get("finalizers") and kind in (CUSTOM_RESOURCE_DEFINITION, MODEL_DEPLOYMENT):
                    ours = [
                        f for f in live["metadata"]["finalizers"] if not f.endswith("-provider") and f != "tests/hold"
                    ]
                    await self._client.merge_patch(kind, key, {"metadata": {"finalizers": ours}})
                await self._client.delete(kind, key)
                if kind is CUSTOM_RESOURCE_DEFINITION:
                    await gone(self._client, kind, key)

    async def guard_provider(self, *, watched: Sequence[str]) -> None:
        """Let the guard of the provider's account be as its chart has it for the namespaces that it watches."""
        for guard in self._guards(watched):
            await self.apply(guard)

    def _guards(self, watched: Sequence[str] = ()) -> Sequence[Resource]:
        account = f"system:serviceaccount:{self.namespace}:{GUARDED_PROCESS}"
        base = f"{GUARDED_PROCESS}-{self.namespace}-guard"
        manifest = load("toy").manifest
        return provider_guard(manifest, account, own=self.namespace, namespaces=watched, name=base)

    async def healthy(self) -> None:
        """All objects of an installation on which nothing is wrong."""
        now = datetime.now(UTC)
        toy = load("toy")
        accounts = {
            names.CORE_MANAGER: core_rights(policy=True)
            + leader_election_rights(names.CORE_MANAGER)
            + gateway_rights()
            + model_cache_rights(),
            names.provider_manager("toy"): provider_rights(toy.manifest),
        }
        for name, rights in accounts.items():
            subject = account_of(f"system:serviceaccount:{self.namespace}:{name}")
            await self._stand({"kind": "ServiceAccount", "metadata": {"name": name}})
            for role in roles(rights, name=name, namespace=self.namespace, subject=subject):
                if role["kind"].startswith("Cluster"):  # of the whole cluster: two installations must not share them
                    role["metadata"]["name"] = f"{self.namespace}-{name}"
                    if "roleRef" in role:
                        role["roleRef"]["name"] = f"{self.namespace}-{name}"
                await self._stand(role)
            await self._stand(self._process(name))
            pod = {"serviceAccountName": name, "containers": [{"name": "main", "image": "example.org/airunway"}]}
            await self._stand({"kind": "Pod", "metadata": {"name": f"{name}-0", "labels": {"app": name}}, "spec": pod})
            lease = {"holderIdentity": f"{name}-0", "leaseDurationSeconds": 600, "renewTime": _micro(now)}
            published = _effective(name, {}).annotations()
            metadata = {"name": name, "labels": dict([PART_OF]), "annotations": published}
            await self._stand({"kind": "Lease", "metadata": metadata, "spec": lease}, anew=True)
            for part, options in PARTS.items() if name == names.CORE_MANAGER else ():
                own = replace(_effective(name, {}), manager=part, options={**OPTIONS, **options})
                metadata = {**metadata, "name": part, "annotations": own.annotations()}
                await self._stand({"kind": "Lease", "metadata": metadata, "spec": lease}, anew=True)
        await self._stand(picker_role())
        for guard in self._guards():
            await self._stand(guard)
        config = config_object(toy.manifest)
        config["spec"]["installation"] = {"defaultNamespace": self.namespace}
        good = {"status": "True", "reason": "SchemaSupported", "message": "", "lastTransitionTime": format_time(now)}
        conditions = [{"type": name, **good} for name in ("UpstreamInstalled", "SchemaSupported", "Healthy", "Ready")]
        status = {"ready": True, "version": f"toy-provider:{toy.manifest.version}", "lastHeartbeat": format_time(now)}
        await self._stand({**config, "status": {**status, "conditions": conditions}}, anew=True)
        node = gpu_node("doctor-gpu").manifest()
        await self._stand({**node, "status": {**node["status"], "conditions": [_ready("True")]}})
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": "doctor-standard", "annotations": default}
        await self._stand({"kind": "StorageClass", "metadata": metadata, "provisioner": "example.org/none"})

    def _process(self, name: str) -> Resource:
        labels = {"app": name}
        container = {"name": "main", "image": f"example.org/airunway:{__version__}"}
        pod = {"serviceAccountName": name, "containers": [container]}
        return {
            "kind": "Deployment",
            "metadata": {
                "name": name,
                "labels": {**dict([PART_OF]), "app.kubernetes.io/name": name},
                "annotations": {GUARDED: self.namespace} if name == GUARDED_PROCESS else {},
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
            "status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1},
        }

    def _filled(self, step: Resource) -> Any:
        """The step with its placeholders: ``$NAMESPACE``, and ``$AGO(seconds)`` for a moment in the past."""
        now = datetime.now(UTC)
        text = json.dumps(step).replace("$NAMESPACE", self.namespace)

        def moment(match: re.Match[str]) -> str:
            then = now - timedelta(seconds=int(match[2]))
            if match[1] == "UNIX":
                return str(int(then.timestamp()))
            return _micro(then) if match[1] else format_time(then)

        return json.loads(re.sub(r"\$(MICRO|UNIX)?AGO\((-?\d+)\)", moment, text))

    async def _settled(self, key: ObjectKey) -> None:
        """Wait until a CRD is served, or refused for its names."""
        async with asyncio.timeout(PATIENCE):
            while True:
                live = await self._client.get(CUSTOM_RESOURCE_DEFINITION, key)
                conditions = (live.get("status") or {}).get("conditions")
                if conditions and not is_true(live, "NamesAccepted"):
                    return
                if is_true(live, "Established"):
                    break
                await asyncio.sleep(0.02)
        await wait_until_established(self._client, [key.name], timeout=PATIENCE)


async def remove_routing_kinds(client: Client) -> None:
    """Remove the kinds of the Gateway API, which tests of the gateway part leave on a shared control plane."""
    for definition in (*definitions(), *istio_definitions()):
        await remove_definition(client, key_of(definition).name)


@pytest.fixture(scope="module")
def namespace(control_plane: Cluster, administrator: Administrator) -> Iterator[str]:
    """One for all tests, in which the healthy installation stands."""
    name = f"doctor-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    administrator(control_plane.kubeconfig, lambda client: client.create(NAMESPACE, body))
    yield name
    administrator(control_plane.kubeconfig, lambda client: client.delete(NAMESPACE, ObjectKey("", name)))


@pytest.fixture(scope="module")
def standing(control_plane: Cluster, namespace: str, administrator: Administrator) -> Iterator[Standing]:
    found: Standing = {}
    yield found
    administrator(control_plane.kubeconfig, lambda client: _removed(client, found))


async def _removed(client: Client, standing: Standing) -> None:
    for kind, key in standing:
        with suppress(NotFound):
            await client.delete(kind, key)
    standing.clear()


@pytest.fixture
async def installation(client: Client, namespace: str, standing: Standing) -> AsyncIterator[Installation]:
    """A healthy installation."""
    if not any(standing.values()):
        await install_definitions(client, load_simulator("toy").custom_resource_definitions())
        await remove_routing_kinds(client)
    await remove_leftovers(client)
    made = Installation(client, namespace, standing)
    try:
        await made.healthy()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def sandboxed(client: Client, standing: Standing) -> AsyncIterator[None]:
    """Our CRDs and the toy's, and nothing that was registered before or is afterwards."""
    await _removed(client, standing)
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)
    await remove_routing_kinds(client)
    yield
    await remove_leftovers(client)


def _effective(process: str, options: Mapping[str, str], *, version: str = __version__) -> EffectiveSettings:
    usual = dict(OPTIONS)
    for of_part in PARTS.values() if process == names.CORE_MANAGER else ():
        usual |= of_part
    return EffectiveSettings(manager=process, pod=f"{process}-0", version=version, options={**usual, **options})


def _definitions(name: str, *, older: str) -> list[Resource]:
    """Our CRD of that name; with an `older` version, which objects were stored in, first as it was then."""
    crd = next(crd for crd in custom_resource_definitions() if key_of(crd).name == name)
    if not older:
        return [crd]
    (current,) = crd["spec"]["versions"]
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    old = {"name": older, "served": False, "storage": True, "schema": anything}
    before = copy_of(crd)
    before["spec"]["versions"] = [{**current, "storage": False}, old]
    crd["spec"]["versions"] = [current, {**old, "storage": False}]
    return [before, crd]


def processor_time(*words: str) -> float:
    """Seconds of a processor that a Python with these arguments takes."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, timeout=120, check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _ready(status: str) -> Resource:
    return {
        "type": "Ready",
        "status": status,
        "reason": "Tests",
        "message": "",
        "lastTransitionTime": format_time(datetime.now(UTC)),
    }
