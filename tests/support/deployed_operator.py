"""The operator as it is deployed: the core and each provider under an account of its own, with exactly its rights.

What an administrator may do hides what a provider may not (reference: a Role and its binding in one plan), so tests of
the provider contract act here. The simulated upstream and the test itself are the administrator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.audit import AuditReader, Request
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.rbac.admission_policies import core_guard, provider_guard
from airunway.rbac.rights import core_rights, provider_rights
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of
from airunway.runtime.application import ProviderSettings
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import Level

_COLLECTED = 5.0
"""Seconds that the garbage collector has."""
_FOREGROUND = "foregroundDeletion"

_REST = 0.45
"""Seconds without a write of ours after which things are taken to be at rest."""


async def edit(client: Client, key: ObjectKey, spec: Resource) -> int:
    """Merge fields into a deployment's spec, as a user does; the new generation."""
    after = await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": spec}, manager="user")
    return int(after["metadata"]["generation"])


class Operator:
    """Core and providers in one namespace, and what tests do with them."""

    def __init__(
        self, *, cluster: Cluster, client: Client, namespace: str, audit_log: Path, level: Level = "api", home: str = ""
    ) -> None:
        """`home` is the operator's namespace: the accounts are there, and guards keep them to what is theirs. Without
        one they are in that of the deployments, and only RBAC limits them.
        """
        self._cluster = cluster
        self._level = level
        self._client = client
        self._namespace = namespace
        self._home = home or namespace
        self._guarded = bool(home)
        self._audit_log = audit_log
        self._audit = AuditReader(audit_log)
        self._seen: list[Request] = []
        self._stack = AsyncExitStack()
        self._written: list[Kind] = []
        self.core = self.user("airunway-controller")

    def user(self, account: str) -> str:
        return f"system:serviceaccount:{self._home}:{account}"

    def key(self, name: str = "llama") -> ObjectKey:
        return ObjectKey(self._namespace, name)

    async def start(self) -> None:
        """Let the core begin."""
        rights = core_rights()
        await self._stack.enter_async_context(granted(self._client, rights, user=self.core, namespace=self._home))
        settings = CoreSettings(guard_parameters=self._home if self._guarded else "")
        await self._guard(core_guard(self.core, name=f"guard-{self._namespace}"))
        await self._stack.enter_async_context(running_core(self._cluster.kubeconfig_for(self.core), settings=settings))

    async def _guard(self, policies: Sequence[Resource]) -> None:
        if self._guarded:
            await self._stack.enter_async_context(applied(self._client, policies))

    async def close(self) -> None:
        await self._stack.aclose()

    async def provider(
        self, host: ProviderHost, *, values: Mapping[str, Any] | None = None, simulated: bool = True
    ) -> str:
        """Let a provider begin, and the upstream that is simulated for it; returns who the provider is."""
        user = self.user(names.provider_manager(host.name))
        rights = provider_rights(host.manifest)
        writes = [kind for kind in host.manifest.upstream if kind.write]
        self._written += [Kind(kind.group, each, kind.kind, kind.plural) for kind in writes for each in kind.versions]
        await self._stack.enter_async_context(granted(self._client, rights, user=user, namespace=self._home))
        await self._guard(provider_guard(host.manifest, user, own=self._home, name=f"guard-{self._namespace}"))
        if simulated:
            await self._stack.enter_async_context(running_simulator(self._cluster.kubeconfig, host, level=self._level))
        settings = ProviderSettings(values=values or {})
        await self._stack.enter_async_context(
            running_provider(self._cluster.kubeconfig_for(user), host, settings=settings)
        )
        return user

    # ----------------------------------------------------------------------------------------------- what users do

    async def deploy(self, name: str = "llama", *, shape: str = "", **spec: Any) -> ObjectKey:
        """Create a deployment for the toy; keyword arguments are fields of its spec."""
        base: Resource = {
            "model": {"id": "org/model"},
            "engine": {"type": "vllm"},
            "provider": {"name": "toy"},
            "resources": {"gpu": {"count": 1}},
            "env": [{"name": "SHAPE", "value": shape}],
        }
        body = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {**base, **spec},
        }
        await self._client.create(MODEL_DEPLOYMENT, body, manager="user")
        return self.key(name)

    async def edit(self, key: ObjectKey, *, shape: str | None = None, **spec: Any) -> int:
        """Merge fields into the spec; returns the new generation."""
        if shape is not None:
            spec["env"] = [{"name": "SHAPE", "value": shape}]
        return await edit(self._client, key, spec)

    async def fleet(self, count: int, **spec: Any) -> list[ObjectKey]:
        """So many deployments alike, once all are Running. Raises TimeoutError."""
        keys = [await self.deploy(f"llama-{number}", **spec) for number in range(count)]
        for key in keys:
            await until(self._client, key, running_at(1))
        return keys

    async def clear(self) -> None:
        """Delete the deployments, and wait until they are gone. Raises TimeoutError."""
        found = await self._client.list_all(MODEL_DEPLOYMENT, namespace=self._namespace)
        for deployment in found:
            await self._client.delete(MODEL_DEPLOYMENT, key_of(deployment))
        collecting = asyncio.create_task(self._collect())
        try:
            for deployment in found:
                await gone(self._client, MODEL_DEPLOYMENT, key_of(deployment))
        finally:
            collecting.cancel()

    async def _collect(self) -> None:
        """Let go what waits for the garbage collector. That one learns of a new kind, or another version of it, every
        30 seconds, and does nothing at all while there is any kind that cannot be listed.
        """
        while True:
            await asyncio.sleep(_COLLECTED)
            for kind in self._written:
                with suppress(NotFound):
                    for obj in await self._client.list_all(kind, namespace=self._namespace):
                        held = obj["metadata"].get("finalizers", [])
                        if is_deleting(obj) and _FOREGROUND in held:
                            patch = {"metadata": {"finalizers": [each for each in held if each != _FOREGROUND]}}
                            await self._client.merge_patch(kind, key_of(obj), patch, manager="tests")

    # ------------------------------------------------------------------------------------------- what is looked at

    async def exists(
        self, kind: Kind, key: ObjectKey, holds: Callable[[Resource], bool] = lambda _: True, *, what: str = "an object"
    ) -> Resource:
        """The object once it is there and `holds` is true of it. Raises TimeoutError, with the object."""
        live: Resource = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        live = await self._client.get(kind, key)
                    except NotFound:
                        live = {}
                    if live and holds(live):
                        return live
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise TimeoutError(f"waited for {what} in vain; {kind.kind} {key} is {live or 'not there'}") from error

    async def absent(self, kind: Kind, key: ObjectKey) -> bool:
        try:
            await self._client.get(kind, key)
        except NotFound:
            return True
        return False

    async def event(self, key: ObjectKey, reason: str) -> Resource:
        """The first event with that reason about a deployment. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for event in await self._client.list_all(EVENT, namespace=key.namespace):
                    if event["reason"] == reason and dig(event, "regarding", "name") == key.name:
                        return event
                await asyncio.sleep(0.05)

    def requests(self) -> list[Request]:
        """What was asked in the namespace since this object was made, or about nothing that has one."""
        self._seen += self._audit.read()
        return [request for request in self._seen if request.namespace in ("", self._namespace, self._home)]

    def writes(self, user: str) -> list[str]:
        """What an account has written in the namespace, in order: ``patch toys llama`` (events left out)."""
        return [
            f"{request.verb} {request.resource} {request.name}"
            for request in self.requests()
            if request.user == user and request.writes and request.namespace and request.resource != "events"
        ]

    def refused(self) -> list[str]:
        """What the accounts were refused for want of rights."""
        prefix = self.user("")
        return [
            f"{request.user}: {request.verb} {request.resource} {request.namespace}/{request.name}"
            for request in self.requests()
            if request.user.startswith(prefix) and request.code == 403
        ]

    async def at_rest(self, *kinds: Kind) -> list[str]:
        """What is written although nothing has to be: objects of `kinds` are touched, and no component may write.

        Waits first until nothing was written for a while. What the API server refused was not written.
        """
        log = AuditReader(self._audit_log)
        async with asyncio.timeout(PATIENCE):
            calm = 0.0
            while calm < _REST:
                await asyncio.sleep(_REST / 3)
                calm = 0.0 if self._ours(log) else calm + _REST / 3
        for kind in kinds:
            for obj in await self._client.list_all(kind, namespace=self._namespace):
                touch = {"metadata": {"annotations": {"tests/touched": str(dig(obj, "metadata", "resourceVersion"))}}}
                try:
                    await self._client.merge_patch(kind, key_of(obj), touch, manager="tests")
                except NotFound:
                    continue
        await asyncio.sleep(_REST)
        return self._ours(log)

    def _ours(self, log: AuditReader) -> list[str]:
        prefix = self.user("")
        return [
            f"{request.user.removeprefix(prefix)}: {request.verb} {request.resource} {request.name}"
            for request in log.read()
            if request.user.startswith(prefix)
            and request.writes
            and request.code < 300
            and request.namespace == self._namespace
            and request.resource != "events"
        ]


@asynccontextmanager
async def deployed_operator(
    cluster: Cluster,
    client: Client,
    *,
    namespace: str,
    audit_log: Path,
    definitions: Sequence[Resource] = (),
    level: Level = "api",
    home: str = "",
    last: Callable[[Operator], Awaitable[None]] | None = None,
) -> AsyncIterator[Operator]:
    """The operator with its core running, and with the CRDs of upstreams; `home` is as in `Operator`.

    At the end, while all components still run, `last` looks at what there is, and the deployments are deleted.
    """
    await install_definitions(client, definitions)
    await remove_leftovers(client)
    operator = Operator(
        cluster=cluster, client=client, namespace=namespace, audit_log=audit_log, level=level, home=home
    )
    try:
        await operator.start()
        yield operator
        if last is not None:
            await last(operator)
        await operator.clear()
        assert operator.refused() == [], "the rights are enough"
    finally:
        await operator.close()
