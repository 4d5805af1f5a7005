"""The core, providers and simulated upstreams inside one process: for tests, and for benchmarks of a single part.

What the programs run as processes of their own runs here as tasks, against a real API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    LEASE,
    POD,
    Client,
    Kind,
    LeaderElector,
    NotFound,
    load_config,
    needs_apply,
    user_agent_of,
    wait_until_established,
)
from airunway.plugins.host import ProviderHost
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Application, Lead, Supervisor, Work
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, dig, digest, is_deleting, key_of, uid_of
from airunway.runtime.application import ProviderApplication, ProviderSettings
from airunway.runtime.crd_versions import crd_facts
from airunway_testing.background import in_background
from airunway_testing.controlplane import learn_kinds
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE, eventually, pause
from airunway_testing.simulators import Level, simulators_for

__all__ = [
    "MODEL_DEPLOYMENT",
    "Deploy",
    "Limits",
    "deployments",
    "event_about",
    "gone",
    "install_definitions",
    "playing",
    "pods_of",
    "remove_definition",
    "remove_leftovers",
    "running_core",
    "running_provider",
    "running_simulator",
    "running_together",
    "until",
]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds after which a client gives up on a request, and takes a silent watch for dead."""

    request: float = 30.0
    silence: float = 90.0


_INSTALLER = "airunway-testing"
_LOOK = 0.2
"""Seconds between two looks at a CRD: some have a megabyte."""
_REMINDED = 15
"""Looks after which an API server is reminded of a CRD that it should remove."""

_INSTALLED: dict[tuple[str, str, str], str] = {}
"""The version of every CRD that was found as wanted, by server, name and digest: until it changes, one list of metadata
is enough, where reading and comparing all of them takes ten times the processor time."""

Deploy: TypeAlias = Callable[..., Awaitable[ObjectKey]]


async def install_definitions(client: Client, definitions: Sequence[Resource] = ()) -> None:
    """Apply our CRDs and the given ones, and wait until the API server serves them; its controllers learn of new ones.

    What is there already is left alone: an API server takes long over a large CRD, also where nothing changes.
    """
    others = {key_of(definition): (definition, digest(definition)) for definition in definitions}
    wanted = {**_own_definitions(), **others}
    there = await _versions(client)
    marks = {key: (client.config.server, key.name, content) for key, (_, content) in wanted.items()}
    unknown = {key: wanted[key][0] for key, mark in marks.items() if _INSTALLED.get(mark) != there.get(key, "")}
    is_new = False
    for key, definition in unknown.items():
        try:
            live = await client.get(CUSTOM_RESOURCE_DEFINITION, key)
        except NotFound:
            live = None
        if live is not None and is_deleting(live):
            await _definition_gone(client, key)
            live = None
        is_new = is_new or live is None
        # A schema of which a test added a part looks like one with defaults: what it is known by tells.
        if (
            live is None
            or crd_facts(live) != crd_facts({**definition, "status": live.get("status")})
            or needs_apply(definition, live, manager=_INSTALLER)
        ):
            await client.apply(CUSTOM_RESOURCE_DEFINITION, definition, manager=_INSTALLER, force=True)
    if unknown:
        await wait_until_established(client, (key.name for key in unknown), timeout=PATIENCE)
        there = await _versions(client)
        _INSTALLED.update({marks[key]: there[key] for key in unknown if key in there})
    if is_new:
        await asyncio.to_thread(learn_kinds, client.config.server)


@cache
def _own_definitions() -> Mapping[ObjectKey, tuple[Resource, str]]:
    """Our CRDs with their digests, made once: every test asks for them."""
    return {key_of(definition): (definition, digest(definition)) for definition in custom_resource_definitions()}


async def _versions(client: Client) -> dict[ObjectKey, str]:
    """What changes of every CRD that is there with each write to it."""
    listed = await client.list_metadata(CUSTOM_RESOURCE_DEFINITION)
    return {key_of(each): f"{uid_of(each)} {each['metadata']['resourceVersion']}" for each in listed}


async def remove_definition(client: Client, name: str) -> None:
    """Delete a CRD, if it is there, and its objects with it, whatever waits for them; returns when all are gone.

    Objects that are deleted in the foreground wait for a garbage collector, which learns of a new kind only every 30
    seconds, and of one whose CRD is being deleted never.
    """
    key = ObjectKey("", name)
    try:
        definition = await client.get(CUSTOM_RESOURCE_DEFINITION, key)
        await client.delete(CUSTOM_RESOURCE_DEFINITION, key)
    except NotFound:
        return
    spec, called = definition["spec"], definition["spec"]["names"]
    served = next(version["name"] for version in spec["versions"] if version["served"])
    kind = Kind(spec["group"], served, called["kind"], called["plural"], spec["scope"] != "Cluster")
    with suppress(NotFound):
        for obj in await client.list_all(kind):
            with suppress(NotFound):
                await client.merge_patch(kind, key_of(obj), {"metadata": {"finalizers": None}})
    await _definition_gone(client, key)


async def _definition_gone(client: Client, key: ObjectKey) -> None:
    """Wait until a CRD that is being deleted is gone, and remind the API server of it.

    One that could not list the objects ("storage is (re)initializing": the kind was new, and was asked for just
    then) meets with a conflict when it says so, and does not try again for minutes, unless the CRD changes.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            for look in count(1):
                await asyncio.sleep(_LOOK)
                await client.get(CUSTOM_RESOURCE_DEFINITION, key)
                if look % _REMINDED == 0:
                    reminder = {"metadata": {"annotations": {"tests/reminded": str(look)}}}
                    await client.merge_patch(CUSTOM_RESOURCE_DEFINITION, key, reminder)
    except NotFound:
        return
    except TimeoutError as error:
        raise TimeoutError(f"the CRD {key.name} does not go") from error


async def remove_leftovers(client: Client) -> None:
    """What earlier tests on the same API server left, were it because they failed: registered providers, deployments,
    whose provider no longer runs and would be waited for, and Leases, which say how a process runs."""
    for config in await client.list_all(INFERENCE_PROVIDER_CONFIG):
        with suppress(NotFound):
            await client.delete(INFERENCE_PROVIDER_CONFIG, key_of(config))
    for deployment in await client.list_all(MODEL_DEPLOYMENT):
        with suppress(NotFound):
            await client.delete(MODEL_DEPLOYMENT, key_of(deployment))
            await client.merge_patch(MODEL_DEPLOYMENT, key_of(deployment), {"metadata": {"finalizers": None}})
    for lease in await client.list_metadata(LEASE):
        if key_of(lease).name.startswith("airunway-"):
            with suppress(NotFound):
                await client.delete(LEASE, key_of(lease))


@asynccontextmanager
async def running_core(
    kubeconfig: Path,
    *,
    settings: CoreSettings | None = None,
    clock: Callable[[], datetime] | None = None,
    replica: str = "",
    limits: Limits | None = None,
) -> AsyncIterator[CoreApplication]:
    """The core controller for as long as the context lasts; `clock` is what it takes for the time of day.

    With a name for the `replica` it is one of several.
    """
    async with _client(kubeconfig, "core", limits) as client:
        application = CoreApplication(client=client, settings=settings, clock=clock)
        async with _running(application.run(_lead(client, "core", replica)), application.unready):
            yield application


@asynccontextmanager
async def running_provider(
    kubeconfig: Path,
    host: ProviderHost,
    *,
    settings: ProviderSettings | None = None,
    clock: Callable[[], datetime] | None = None,
    replica: str = "",
    limits: Limits | None = None,
) -> AsyncIterator[ProviderApplication]:
    """One provider for as long as the context lasts; `clock` is what it takes for the time of day.

    With a name for the `replica` it is one of several.
    """
    component = f"provider-{host.name}"
    async with _client(kubeconfig, component, limits) as client:
        application = ProviderApplication(client=client, host=host, settings=settings, clock=clock)
        async with _running(application.run(_lead(client, component, replica)), application.unready):
            yield application


@asynccontextmanager
async def running_together(
    kubeconfig: Path,
    hosts: Sequence[ProviderHost],
    *,
    around: Callable[[Application], Application] = lambda application: application,
) -> AsyncIterator[Supervisor]:
    """The core and these providers as `airunway run` has them in one process, from when all are ready.

    Each provider is run as what `around` makes of it.
    """
    managers = [names.CORE_MANAGER, *(names.provider_manager(host.name) for host in hosts)]
    async with _client(kubeconfig, "airunway", None) as client:
        metrics = Metrics("airunway", role=MetricsRole.CORE)
        caches = Caches(client, project=DeploymentProjection(managers), metrics=metrics)
        makers: dict[str, Callable[[], Application]] = {
            names.CORE_MANAGER: lambda: CoreApplication(client=client, caches=caches)
        }

        def provider(host: ProviderHost) -> Application:
            return around(ProviderApplication(client=client, host=host, caches=caches))

        makers |= {manager: partial(provider, host) for manager, host in zip(managers[1:], hosts, strict=True)}
        parts = Supervisor(makers, lead_of=lambda _: _at_once)
        async with _running(parts.run(), parts.unready):
            yield parts


@asynccontextmanager
async def running_simulator(
    kubeconfig: Path, *hosts: ProviderHost, level: Level, scenario: str = ""
) -> AsyncIterator[None]:
    """The simulated upstreams of providers, each once. Raises LookupError if there is none."""
    kinds = [(kind.group, kind.kind) for host in hosts for kind in host.manifest.upstream]
    simulators = simulators_for(kinds)
    if not simulators:
        raise LookupError(f"no simulator acts on {', '.join(kind for _, kind in kinds)}")
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        config = load_config(kubeconfig=kubeconfig)
        working = []
        for simulator in simulators:
            agent = user_agent_of(f"simulated-{simulator.name}")
            client = await stack.enter_async_context(Client(config, user_agent=agent))
            working.append(asyncio.create_task(simulator.run(client, level=level, scenario=scenario, stop=stop)))
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*working)


@asynccontextmanager
async def playing(
    kubeconfig: Path, client: Client, host: ProviderHost, *, level: Level = "api", scenario: str = ""
) -> AsyncIterator[None]:
    """All that a deployment needs to live: the CRDs, the core, one provider and its simulated upstream.

    Raises LookupError if no simulator of any of the provider's kinds is installed.
    """
    simulators = simulators_for((kind.group, kind.kind) for kind in host.manifest.upstream)
    await install_definitions(client, [crd for each in simulators for crd in each.custom_resource_definitions()])
    await remove_leftovers(client)
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, host),
        running_simulator(kubeconfig, host, level=level, scenario=scenario),
    ):
        yield


@asynccontextmanager
async def deployments(client: Client, namespace: str, base: Resource) -> AsyncIterator[Deploy]:
    """``await create(name, **spec)`` makes a deployment of the spec `base`, with fields replaced, and gives its key.

    `outcome` is what the simulated nodes make of its pods. All of the namespace's are deleted afterwards, and gone.
    """

    async def create(name: str = "llama", *, outcome: str = "", **spec: Any) -> ObjectKey:
        broken = {"podTemplate": {"metadata": {"annotations": {OUTCOME: outcome}}}} if outcome else {}
        body: Resource = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**base, **broken, **spec},
        }
        await client.create(MODEL_DEPLOYMENT, body)
        return ObjectKey(namespace, name)

    yield create
    for found in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
        await client.delete(MODEL_DEPLOYMENT, key_of(found))
    async with asyncio.timeout(PATIENCE):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)


async def event_about(client: Client, key: ObjectKey, reason: str) -> Resource:
    """Wait for an event with that reason about a deployment; returns it."""

    async def found() -> Resource | None:
        events = await client.list_all(EVENT, namespace=key.namespace)
        return next((e for e in events if e["reason"] == reason and dig(e, "regarding", "name") == key.name), None)

    event = await eventually(found)
    assert isinstance(event, dict)
    return event


async def pods_of(client: Client, key: ObjectKey) -> list[Resource]:
    """The pods of a deployment that are not on their way out."""
    label = f"{names.MODEL_DEPLOYMENT}={key.name}"
    found = await client.list_all(POD, namespace=key.namespace, label_selector=label)
    return [pod for pod in found if not is_deleting(pod)]


async def until(
    client: Client, key: ObjectKey, holds: Callable[[Resource], bool], *, what: str = "", within: float = PATIENCE
) -> Resource:
    """The ModelDeployment once `holds` is true of it. Raises TimeoutError, with its last status, after `within`
    seconds.
    """
    deployment: Resource = {}
    start = monotonic()
    try:
        async with asyncio.timeout(within):
            while True:
                begun = monotonic()
                deployment = await client.get(MODEL_DEPLOYMENT, key)
                if holds(deployment):
                    return deployment
                now = monotonic()
                await asyncio.sleep(pause(now - start, shortest=0.04, took=now - begun))
    except TimeoutError as error:
        raise TimeoutError(
            f"{key}: waited for {what or 'a state'} in vain; status: {deployment.get('status')}"
        ) from error


async def gone(client: Client, kind: Kind, key: ObjectKey) -> None:
    """Wait until the object is no longer there, or another one has its name. Raises TimeoutError after `PATIENCE`."""
    before, live = "", {}
    start = monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                live = await client.get(kind, key)
                if (before := before or uid_of(live)) != uid_of(live):
                    return
                await asyncio.sleep(pause(monotonic() - start, shortest=0.04))
    except NotFound:
        return
    except TimeoutError as error:
        raise TimeoutError(f"{kind.kind} {key} does not go: {live.get('metadata')}, {live.get('status')}") from error


@asynccontextmanager
async def _running(work: Awaitable[None], unready: Callable[[], str | None]) -> AsyncIterator[None]:
    async with in_background(work) as task:
        async with asyncio.timeout(PATIENCE):
            while unready() is not None:
                if task.done():
                    task.result()
                await asyncio.sleep(0.01)
        yield


def _client(kubeconfig: Path, component: str, limits: Limits | None) -> Client:
    limits = limits or Limits()
    return Client(
        load_config(kubeconfig=kubeconfig),
        user_agent=user_agent_of(component),
        timeout=limits.request,
        watch_inactivity=limits.silence,
    )


def _lead(client: Client, component: str, replica: str) -> Lead:
    if not replica:
        return _at_once
    return LeaderElector(
        client,
        namespace="default",
        name=f"testing-{component}",
        identity=replica,
        lease_duration=5.0,
        renew_deadline=3.5,
        retry_period=0.3,
    ).run


async def _at_once(work: Work) -> None:
    await work()
