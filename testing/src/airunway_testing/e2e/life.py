"""What is done with a deployment: it runs, is edited, scaled, breaks, heals, gets a cache and a route, is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import aiohttp
import yaml

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, SERVICE, STORAGE_CLASS, Client, Kind, NotFound
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    condition_of,
    dig,
    is_deleting,
    is_true,
    key_of,
    uid_of,
)
from airunway.routing.gateways import Detection, choose, usable
from airunway.status.reasons import Category, category_of
from airunway_testing.e2e.ground import MANAGER
from airunway_testing.expectations import Expectation, has_replicas, reason_is, running_at
from airunway_testing.sandbox.samples import Sample

_LACKING = (
    "Unschedulable.",
    "Model.AuthGated",
    "Storage.ClassMissing",
    "ImagePull.RateLimited",
    "Upstream.NotInstalled",
)
"""Root causes, by how they begin, that say what the cluster lacks and nothing of how AI Runway works."""

_GIVE_UP = 60.0
"""Seconds after which such a root cause is thought to stay."""

_NO_IMAGE = "no-such-image"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"

_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
_GATEWAY = Kind("gateway.networking.k8s.io", "v1", "Gateway", "gateways")
_ANSWER = 10.0
"""Seconds for one answer of a Gateway."""


class Failed(Exception):
    """What was to happen did not."""


class Missing(Exception):
    """The cluster lacks what it takes."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """One deployment, made of a sample and given to one provider; `patience` in seconds for each step.

    `kinds` are what the provider writes.
    """

    client: Client
    key: ObjectKey
    provider: str
    kinds: Sequence[Kind]
    patience: float

    async def begin(self, sample: Sample) -> str:
        """Create it, and wait until it has shown what the sample is there to show."""
        body: Resource = yaml.safe_load(sample.path.read_text(encoding="utf-8"))
        body["metadata"]["namespace"] = self.key.namespace
        body["spec"]["provider"] = {**(body["spec"].get("provider") or {}), "name": self.provider}
        await self.client.create(MODEL_DEPLOYMENT, body, manager=MANAGER, field_validation="Strict")
        found = await self.until(sample.is_shown_by, sample.shows)
        endpoint = dig(found, "status", "endpoint", default={})
        if name := endpoint.get("service"):  # a sample may show what does not serve
            service = await self.client.find(SERVICE, ObjectKey(self.key.namespace, str(name)))
            if service is not None and (fault := headless_fault(endpoint, service)):
                raise Failed(fault)
        return f"{dig(found, 'status', 'phase')}: {dig(found, 'status', 'message', default='')}"

    async def reach(self) -> str:
        """Its endpoint is a Service behind which an address is ready: one without serves nobody."""
        endpoint = dig(await self.client.get(MODEL_DEPLOYMENT, self.key), "status", "endpoint", default={})
        name = str(endpoint.get("service") or "")
        if not name:
            raise Missing("the endpoint is no Service of the namespace")
        try:
            async with asyncio.timeout(self.patience):
                while not await self._ready_addresses(name):
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise Failed(f"the Service {name} of status.endpoint has no ready address: what does it select?") from error
        return f"Service {name}"

    async def _ready_addresses(self, service: str) -> int:
        found = await self.client.list_all(
            _SLICE, namespace=self.key.namespace, label_selector=f"kubernetes.io/service-name={service}"
        )
        return sum(
            dig(entry, "conditions", "ready") is not False
            for slice_ in found
            for entry in dig(slice_, "endpoints", default=None) or []
        )

    async def edit(self) -> str:
        """Another context length; over once the pods that it replaced are gone."""
        before = len(await self.pods())
        generation = await self._change({"engine": {"contextLength": 2048}})
        await self.until(running_at(generation), "Running with another context length")
        await self._until_pods(lambda now: len(now) <= before)
        return "a shorter context"

    async def scale(self) -> str:
        """Two replicas and one again, or a refusal that says why. What serves is left alone: no pod of before goes, but
        where the upstream has another kind for several replicas (KAITO's InferenceSet).
        """
        before, kind = await self.pods(), self._kind(await self.client.get(MODEL_DEPLOYMENT, self.key))
        generation = await self._change({"scaling": {"replicas": 2}})
        incompatible = _at(generation, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
        there = _all(running_at(generation), has_replicas(2, 2))
        found = await self.until(lambda d: incompatible(d) or there(d), "two replicas")
        refused = incompatible(found)
        same = self._kind(found) == kind
        if not refused and same and (fault := replaced_by_scaling(before, await self.pods())):
            raise Failed(fault)
        generation = await self._change({"scaling": {"replicas": 1}})
        await self.until(_all(running_at(generation), has_replicas(1, 1)), "one replica again")
        return f"refused: {(condition_of(found, 'ProviderCompatible') or {})['message']}" if refused else "1, 2, 1"

    @staticmethod
    def _kind(deployment: Resource) -> object:
        return dig(deployment, "status", "provider", "resourceKind")

    async def lose_pods(self) -> str:
        """Its pods are deleted; others take their place."""
        before = await self.pods()
        if not before:
            raise Failed("no pod is selected by status.selector")
        for pod in before:
            with suppress(NotFound):  # one too many, that was going anyway
                await self.client.delete(POD, key_of(pod), uid=uid_of(pod))
        old = {uid_of(pod) for pod in before}
        await self._until_pods(lambda now: bool(now) and all(is_true(p, "Ready") and uid_of(p) not in old for p in now))
        await self.until(_running, "Running after its pods were deleted")
        return f"{len(before)} deleted"

    async def break_it(self) -> str:
        """An image that no registry has, until the cause is named; then the one of before."""
        live = await self.client.get(MODEL_DEPLOYMENT, self.key)
        await self._change({"image": _absent_image(await self.pods())})
        try:
            found = await self.until(_has_cause, "a root cause")
        finally:  # the steps that follow are not to fail for the same reason
            await self._change({"image": dig(live, "spec", "image")})
        await self.until(_all(_running, lambda d: not _has_cause(d)), "Running without a root cause")
        return str(dig(found, "status", "rootCause", "code"))

    async def cache(self) -> str:
        """Its weights are fetched once onto a shared claim, from which its pods start; then it fetches them itself
        again. Raises Missing where the cluster or the installation has no model cache for it.
        """
        classes = await self.client.list_all(STORAGE_CLASS)
        if not any(annotations_of(each).get(_DEFAULT_CLASS) == "true" for each in classes):
            raise Missing(f"none of {len(classes)} StorageClasses is the default one")
        live = await self.client.get(MODEL_DEPLOYMENT, self.key)
        if dig(live, "spec", "model", "source") == "custom":
            raise Missing("the model is in the image, so nothing is fetched")
        if dig(live, "spec", "model", "cache", "mode") == "Shared":
            raise Missing("the sample has a model cache already")
        generation = await self._change({"model": {"cache": {"mode": "Shared"}}})
        try:
            decided = _at(generation, lambda found: running_at(generation)(found) or _no_cache(found) != "")
            found = await self.until(decided, "Running from a shared claim")
            if why := _no_cache(found):
                raise Missing(why)
            claim = str(dig(found, "status", "modelCache", "claimName"))
            if not all(claim in claims_of(pod) for pod in await self.pods()):
                raise Failed(f"a pod that serves does not mount claim {claim}")
        finally:
            await self._change({"model": {"cache": {"mode": "None"}}})
        await self.until(_running, "Running without the claim")
        return f"claim {claim}"

    async def route(self) -> str:
        """It is reached through a Gateway under a path and by its model name, and a younger deployment that wants the
        same path gets the condition RouteConflict. Raises Missing where no Gateway is usable.
        """
        reference = await self._usable_gateway()
        live = await self.client.get(MODEL_DEPLOYMENT, self.key)
        before = dig(live, "spec", "gateway")
        path = f"/airunway-e2e/{self.key.namespace}/{self.key.name}"
        model = f"{self.key.namespace}-{self.key.name}"[:63]
        asked = {"enabled": True, "gatewayRef": reference, "pathTemplate": path, "modelName": model}
        await self._change({"gateway": asked})
        try:
            found = await self.until(_decided, "GatewayReady")
            condition = condition_of(found, "GatewayReady") or {}
            if condition.get("reason") in ("GatewayNotConfigured", "Forbidden"):  # of the installation
                raise Missing(f"{condition.get('reason')}: {condition.get('message')}")
            supported = condition.get("reason") != "PathRoutingNotSupported"
            if supported and condition.get("status") != "True":
                raise Failed(f"the route is not ready: {condition.get('reason')}: {condition.get('message')}")
            answers = await self._answers(dig(found, "status", "gateway"), path=path if supported else "", model=model)
            await self._conflict(live, asked)
        finally:
            await self._change({"gateway": before})
        how = f"path {path}" if supported else "no path (the engine has no pathRouting)"
        return f"Gateway {reference['namespace']}/{reference['name']}: {how}, model name {model}, conflict; {answers}"

    async def _usable_gateway(self) -> dict[str, str]:
        """The first Gateway that is programmed and admits routes of the namespace. Raises Missing."""
        try:
            gateways = await self.client.list_all(_GATEWAY)
        except NotFound as error:
            raise Missing("the cluster does not serve the Gateway API") from error
        for gateway in sorted(gateways, key=key_of):
            reference = {"namespace": key_of(gateway).namespace, "name": key_of(gateway).name}
            wish: Resource = {
                "metadata": {"namespace": self.key.namespace, "name": self.key.name},
                "spec": {"gateway": {"gatewayRef": reference}},
            }
            choice = choose(gateways, deployment=wish, config=None, detection=Detection())
            if is_true(gateway, "Programmed") and usable(choice, namespace=self.key.namespace):
                return reference
        raise Missing(
            f"none of {len(gateways)} Gateways is programmed and admits routes of namespace {self.key.namespace}"
        )

    async def _answers(self, status: Resource, *, path: str, model: str) -> str:
        """What the Gateway answers under the path and to the model name; it learns of a route a moment later."""
        base = str(status.get("url", "")).removesuffix(path)
        if not base:
            return "not asked: the Gateway has no address"
        wanted = {"by model name": (f"{base}/v1/models", {names.MODEL_HEADER: model})}
        if path:
            wanted["by path"] = (f"{base}{path}/v1/models", {})
        seen = ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER)) as session:
            for name, (url, headers) in wanted.items():
                try:
                    async with asyncio.timeout(self.patience):
                        while (seen := await _status_of(session, url, headers)) != "200":
                            if not seen:
                                return f"not asked: {base} cannot be reached from this machine"
                            await asyncio.sleep(0.5)
                except TimeoutError as error:
                    raise Failed(f"{name}: {url} answered {seen}") from error
        return f"answered {' and '.join(wanted)}"

    async def _conflict(self, live: Resource, asked: Resource) -> None:
        """A younger deployment asks for the same; it is deleted once it has the condition."""
        other = replace(self, key=ObjectKey(self.key.namespace, f"{self.key.name}-b"[-40:].lstrip("-")))
        body = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": other.key.name, "namespace": other.key.namespace},
            "spec": {**live["spec"], "gateway": asked},
        }
        await self.client.create(MODEL_DEPLOYMENT, body, manager=MANAGER)
        try:
            await other.until(reason_is("GatewayReady", "RouteConflict"), "the conflict of two deployments")
        finally:
            await other.delete()

    async def suspend(self) -> str:
        """Nothing of it runs, and it comes back."""
        await self._change({"suspend": True})
        await self.until(reason_is("Ready", "Suspended"), "suspended")
        await self._until_pods(lambda now: not now)
        generation = await self._change({"suspend": False})
        await self.until(running_at(generation), "Running again")
        return "stopped, and back"

    async def delete(self) -> str:
        """It goes, and nothing of it is left."""
        try:
            pods = await self._selector()
            await self.client.delete(MODEL_DEPLOYMENT, self.key)
            async with asyncio.timeout(self.patience):
                while True:
                    await self.client.get(MODEL_DEPLOYMENT, self.key)
                    await asyncio.sleep(0.2)
        except NotFound:
            pass
        except TimeoutError as error:
            raise Failed("it does not go") from error
        of = f"{names.MODEL_DEPLOYMENT}={self.key.name}"
        left = [
            f"{kind.kind} {key_of(obj).name}"
            for kind, selector in [*((kind, of) for kind in self.kinds), (POD, pods or of)]
            for obj in await self.client.list_all(kind, namespace=self.key.namespace, label_selector=selector)
        ]
        if left:
            raise Failed(f"left behind: {', '.join(left)}")
        return "nothing is left"

    async def until(self, holds: Expectation, what: str) -> Resource:
        """The deployment once `holds` is true of it. Raises Missing for what the cluster lacks, Failed for else."""
        deployment: Resource = {}
        loop = asyncio.get_running_loop()
        end, lacking = loop.time() + self.patience, 0.0
        while loop.time() < end:
            deployment = await self.client.get(MODEL_DEPLOYMENT, self.key)
            if holds(deployment):
                return deployment
            lacking = (lacking or loop.time()) if _lacks(deployment) else 0.0
            if lacking and loop.time() - lacking > _GIVE_UP:
                break
            await asyncio.sleep(0.2)
        status = deployment.get("status") or {}
        text = f"waited for: {what}; it is {status.get('phase')}/{status.get('reason')}: {status.get('message')}"
        raise Missing(text) if _lacks(deployment) else Failed(text)

    async def pods(self) -> list[Resource]:
        """Those that serve and are not on their way out."""
        selector = await self._selector()
        if not selector:
            return []
        found = await self.client.list_all(POD, namespace=self.key.namespace, label_selector=selector)
        return [pod for pod in found if not is_deleting(pod)]

    async def _until_pods(self, holds: Callable[[list[Resource]], bool]) -> None:
        try:
            async with asyncio.timeout(self.patience):
                while not holds(await self.pods()):
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            named = ", ".join(key_of(pod).name for pod in await self.pods()) or "none"
            raise Failed(f"waited for its pods; there are {named}") from error

    async def _selector(self) -> str:
        live = await self.client.get(MODEL_DEPLOYMENT, self.key)
        return str(dig(live, "status", "selector", default=""))

    async def _change(self, spec: Resource) -> int:
        """Merge into the spec; the new generation."""
        after = await self.client.merge_patch(MODEL_DEPLOYMENT, self.key, {"spec": spec}, manager=MANAGER)
        return int(after["metadata"]["generation"])


STEPS = (Life.reach, Life.edit, Life.scale, Life.lose_pods, Life.break_it, Life.cache, Life.route, Life.suspend)
"""A life after its beginning and before its end."""


def headless_fault(endpoint: Resource, service: Resource) -> str:
    """What is wrong with the port of an endpoint whose Service is headless; empty if nothing is."""
    if dig(service, "spec", "clusterIP") != "None":
        return ""
    targets = [port.get("targetPort", port["port"]) for port in dig(service, "spec", "ports", default=[])]
    if endpoint.get("port") in targets or any(isinstance(target, str) for target in targets):
        return ""
    return (
        f"status.endpoint has port {endpoint.get('port')}, and the Service {key_of(service).name} is headless: its "
        f"name leads to the pods, which listen on {', '.join(map(str, targets)) or 'no port of it'}: use that"
    )


def replaced_by_scaling(before: Sequence[Resource], after: Sequence[Resource]) -> str:
    """What is wrong if pods that were ready before a scaling up are not there afterwards; empty if all are."""
    serving = {uid_of(pod) for pod in before if is_true(pod, "Ready")}
    gone = serving - {uid_of(pod) for pod in after}
    if not gone:
        return ""
    return (
        f"{len(gone)} of {len(serving)} running pods were replaced by scaling up, and what they answered failed: write "
        "the replicas where the upstream restarts nothing for them"
    )


_LACKING_CACHE = (
    "ModelCacheNotEnabled",
    "IncompatibleConfiguration",
    "StorageClassNotFound",
    "QuotaExceeded",
    "AccessModeConflict",
    "GatedModel",
    "Unauthorized",
)
"""Reasons for which a deployment has no model cache, and that are of the cluster or of the sample."""


def _no_cache(deployment: Resource) -> str:
    """Why a deployment cannot have a model cache here; empty if nothing says so."""
    for type_ in ("Ready", "ProviderCompatible", "ModelCacheReady"):
        condition = condition_of(deployment, type_) or {}
        if condition.get("status") == "False" and condition.get("reason") in _LACKING_CACHE:
            return f"{condition['reason']}: {condition.get('message')}"
    return ""


def claims_of(pod: Resource) -> set[str]:
    """The claims that a pod mounts."""
    volumes = dig(pod, "spec", "volumes", default=[])
    return {str(name) for volume in volumes if (name := dig(volume, "persistentVolumeClaim", "claimName"))}


def _absent_image(pods: Sequence[Resource]) -> str:
    """An image that is not there, beside one that runs: a policy allows it, and its tag names the same release, which
    some providers go by.
    """
    images = [str(dig(container, "image")) for pod in pods for container in dig(pod, "spec", "containers", default=[])]
    image = next(iter(images), "")
    folder, name = image.partition("@")[0].rpartition("/")[::2]
    return f"{folder or 'docker.io'}/{_NO_IMAGE}:{name.partition(':')[2] or 'latest'}"


def _decided(deployment: Resource) -> bool:
    """Whether the route is ready, or has a fault that does not pass by itself."""
    condition = condition_of(deployment, "GatewayReady")
    current = condition is not None and condition.get("observedGeneration") == deployment["metadata"]["generation"]
    return current and condition is not None and category_of(str(condition.get("reason"))) is not Category.PROGRESS


async def _status_of(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> str:
    """The HTTP status of an answer; empty if nothing could be reached."""
    try:
        async with session.get(url, headers=headers, ssl=False) as answer:
            return str(answer.status)
    except (aiohttp.ClientError, TimeoutError):
        return ""


def _running(deployment: Resource) -> bool:
    return running_at(deployment["metadata"]["generation"])(deployment)


def _has_cause(deployment: Resource) -> bool:
    return dig(deployment, "status", "rootCause") is not None


def _lacks(deployment: Resource) -> bool:
    return str(dig(deployment, "status", "rootCause", "code", default="")).startswith(_LACKING)


def _all(*expectations: Expectation) -> Expectation:
    return lambda deployment: all(holds(deployment) for holds in expectations)


def _at(generation: int, holds: Expectation) -> Expectation:
    return lambda deployment: bool(dig(deployment, "status", "observedGeneration") == generation and holds(deployment))
