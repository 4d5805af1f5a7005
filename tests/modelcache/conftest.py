"""The model cache part on a cluster with storage, a played kubelet and a local hub."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airunway.api import names
from airunway.configs.resolution import CONFIG_READY, NOT_ALLOWED, resolve
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_ARTIFACT, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import JOB, STORAGE_CLASS, Client, Kind, NotFound
from airunway.modelcache.application import ModelCacheApplication, ModelCacheSettings
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Work
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, condition_of, dig, digest, is_deleting, labels_of
from airunway.templates.choice import request_of
from airunway_testing.background import in_background
from airunway_testing.eventually import Eventually
from airunway_testing.modelhub.hub import Hub, Repository, model_hub
from airunway_testing.modelhub.serving import Held, Slow
from airunway_testing.storage.pod_runner import PlayedPod, PodRunner, running_pod_runner
from airunway_testing.storage.provisioner import Provisioner, running_provisioner, storage_class

MODEL = "acme/tiny"
FILES: dict[str, bytes | str] = {
    "config.json": '{"architectures": ["Tiny"]}',
    "model.safetensors": b"weights" * 4000,
    "pytorch_model.bin": b"other weights" * 4000,
}


@dataclass(kw_only=True)
class Ground:
    """One namespace in which deployments are made as the core and a provider would leave them."""

    client: Client
    namespace: str
    eventually: Eventually
    provider: str
    hub: Hub
    runner: PodRunner
    provisioner: Provisioner
    class_name: str
    kubeconfig: Path

    async def provide(self, **engine: Any) -> None:
        """Register the provider, with one engine."""
        entry = {"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "modelCache": True, **engine}
        config = {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": self.provider},
            "spec": {"capabilities": {"engines": [entry]}},
        }
        await self.client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests", force=True)

    async def config(self, **spec: Any) -> None:
        """The RuntimeConfig ``default`` of the namespace, with the class and the hub."""
        wanted = {
            "storage": {"defaultStorageClassName": self.class_name},
            "env": [{"name": "HF_ENDPOINT", "value": self.hub.endpoint}],
            **spec,
        }
        metadata = {"name": "default", "namespace": self.namespace}
        body = {"apiVersion": names.API_VERSION, "kind": "RuntimeConfig", "metadata": metadata, "spec": wanted}
        await self.client.apply(RUNTIME_CONFIG, body, manager="tests", force=True)

    async def deploy(
        self,
        name: str = "llama",
        *,
        cache: Resource | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Resource:
        """A deployment with a cache that the core has validated, with engine and provider."""
        model = spec.pop("model", {"id": MODEL, "cache": {"mode": "Shared"} if cache is None else cache})
        made = await self.client.create(
            MODEL_DEPLOYMENT,
            {
                "apiVersion": names.API_VERSION,
                "kind": "ModelDeployment",
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": labels or {},
                    "annotations": annotations or {},
                },
                "spec": {"model": model, "resources": {"gpu": {"count": 1}}, **spec},
            },
        )
        return await self.validate(made)

    async def validate(
        self, deployment: Resource, *, given: Resource | None = None, config: bool | None = None
    ) -> Resource:
        """Say what the core says of a valid generation, of what its template gives, and whether it may follow the
        RuntimeConfig ``default`` as it is now (None: it does not say).
        """
        condition = {
            "type": "Validated",
            "status": "True",
            "reason": "ValidationPassed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": deployment["metadata"]["generation"],
        }
        status: Resource = {
            "conditions": [condition],
            "engine": {"type": "vllm"},
            "provider": {"name": self.provider},
        }
        if config is not None:
            stored = await self.client.get(RUNTIME_CONFIG, ObjectKey(self.namespace, "default"))
            found = resolve("default", namespaced=stored, cluster=None).config
            assert found is not None
            status["effectiveRuntimeConfig"] = found.status()
            verdict = {"status": str(config), "reason": "ConfigFound" if config else NOT_ALLOWED}
            status["conditions"].append({**condition, "type": CONFIG_READY, **verdict})
        if given is not None:
            asked = request_of(deployment["spec"])
            assert asked is not None, "the deployment names a template"
            status["effectiveTemplate"] = {"hash": digest(given)}
            status["revision"] = {"template": {"hash": digest(given), "asked": asked.digest, "spec": given}}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": deployment["metadata"]["name"], "namespace": self.namespace},
            "status": status,
        }
        return await self.client.apply(
            MODEL_DEPLOYMENT, body, manager=names.CORE_MANAGER, force=True, subresource="status"
        )

    async def get(self, name: str = "llama") -> Resource:
        return await self.client.get(MODEL_DEPLOYMENT, ObjectKey(self.namespace, name))

    async def artifacts(self) -> list[Resource]:
        return await self.client.list_all(MODEL_ARTIFACT, namespace=self.namespace)

    async def artifact(self) -> Resource:
        """The only artifact."""
        (found,) = await self.artifacts()
        return found

    async def all_of(self, kind: Kind) -> list[Resource]:
        """The objects of a kind that are not going away."""
        return [each for each in await self.client.list_all(kind, namespace=self.namespace) if not is_deleting(each)]

    async def downloads(self) -> list[Resource]:
        """The Jobs that fetch weights."""
        return [job for job in await self.all_of(JOB) if labels_of(job).get(names.COMPONENT) == "model-storage"]

    def pods(self) -> list[PlayedPod]:
        """The pods of the namespace that were played; the runner plays those that other tests left, too."""
        return [each for each in self.runner.pods.values() if each.key.namespace == self.namespace]

    async def remove(self, name: str) -> None:
        """Delete a deployment."""
        await self.client.delete(MODEL_DEPLOYMENT, ObjectKey(self.namespace, name))

    @contextmanager
    def held(self) -> Iterator[None]:
        """The next download of the weights ends after this context, however slow the machine is."""
        released = asyncio.Event()
        self.hub.inject(Held(released=released), path="model.safetensors")
        try:
            yield
        finally:
            released.set()

    def slow(self, speed: int) -> None:
        """The next download of the weights has this speed in bytes a second; 28,000 are to fetch."""
        self.hub.inject(Slow(bytes_per_second=speed), path="model.safetensors")

    async def downloading(self) -> PlayedPod:
        """The pod of the newest download, once it runs."""

        def look() -> PlayedPod | None:
            found = [each for each in self.pods() if "-download-" in each.key.name and each.running]
            return found[-1] if found else None

        found = await self.eventually(look)
        assert isinstance(found, PlayedPod)
        return found

    async def until_not(self, reason: str, name: str = "llama") -> None:
        """Wait until ModelCacheReady has another reason."""

        async def look() -> bool:
            return (condition_of(await self.get(name), "ModelCacheReady") or {}).get("reason") != reason

        await self.eventually(look)

    async def until(self, reason: str, name: str = "llama") -> Resource:
        """The deployment once ModelCacheReady has this reason."""

        async def look() -> Resource | None:
            live = await self.get(name)
            return live if (condition_of(live, "ModelCacheReady") or {}).get("reason") == reason else None

        try:
            found = await self.eventually(look)
        except AssertionError as error:
            live = await self.get(name)
            artifacts = [dig(each, "status") for each in await self.artifacts()]
            raise AssertionError(f"{dig(live, 'status')}\n{artifacts}") from error
        assert isinstance(found, dict)
        return found


async def at_once(work: Work) -> None:
    """Lead without an election."""
    await work()


@asynccontextmanager
async def running_part(
    client: Client,
    *,
    namespace: str,
    settings: ModelCacheSettings | None = None,
    later: timedelta = timedelta(),
    instance: str = "test",
    policy: PolicyFile | None = None,
) -> AsyncIterator[ModelCacheApplication]:
    """The part in one namespace, until the context ends. Its clock is so much `later`. With a `policy` the core runs
    over the same caches.
    """
    caches = Caches(
        client,
        project=DeploymentProjection((names.CORE_MANAGER, names.MODEL_CACHE_MANAGER)),
        metrics=Metrics(names.MODEL_CACHE_MANAGER, role=MetricsRole.CORE),
        namespaces=[namespace],
    )
    part = ModelCacheApplication(
        client=client, caches=caches, instance=instance, settings=settings, clock=lambda: datetime.now(UTC) + later
    )
    async with AsyncExitStack() as stack:
        if policy is not None:
            core = CoreSettings(namespaces=(namespace,), policy=policy)
            application = CoreApplication(client=client, settings=core, caches=caches)
            await stack.enter_async_context(in_background(application.run(at_once)))
        await stack.enter_async_context(in_background(part.run(at_once)))
        yield part


@pytest.fixture
async def provisioner(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Provisioner]:
    async with running_provisioner(kubeconfig, tmp_path / "volumes") as running:
        yield running


@pytest.fixture
async def runner(kubeconfig: Path, provisioner: Provisioner, tmp_path: Path) -> AsyncIterator[PodRunner]:
    async with running_pod_runner(kubeconfig, provisioner.volumes, tmp_path / "runner") as running:
        yield running


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with model_hub(
        [Repository(MODEL, FILES), Repository("acme/other", FILES), Repository("acme/gated", FILES, gated="auto")]
    ) as running:
        yield running


@pytest.fixture
async def ground(
    installed: None,
    client: Client,
    kubeconfig: Path,
    namespace: str,
    eventually: Eventually,
    hub: Hub,
    runner: PodRunner,
    provisioner: Provisioner,
) -> AsyncIterator[Ground]:
    class_name = f"class-{uuid.uuid4().hex[:8]}"
    await client.create(STORAGE_CLASS, storage_class(class_name, waits=True))
    found = Ground(
        client=client,
        namespace=namespace,
        eventually=eventually,
        provider=f"p-{namespace}"[:40].rstrip("-"),
        hub=hub,
        runner=runner,
        provisioner=provisioner,
        class_name=class_name,
        kubeconfig=kubeconfig,
    )
    await found.provide()
    await found.config()
    yield found
    with suppress(NotFound):
        await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", found.provider))
    with suppress(NotFound):
        await client.delete(STORAGE_CLASS, ObjectKey("", class_name))
