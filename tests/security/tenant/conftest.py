"""A cluster of its own with core, KAITO's provider and a simulated KAITO as processes, and a tenant with few rights.

Its own, because what a tenant leaves behind must not meet other tests. The processes have a limit on their address
space: one that would take all memory of the machine ends instead.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from airunway.kube import LEASE, NAMESPACE, Client, Kind, load_config
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.controlplane.processes import Processes, log_tail
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import load_simulator

EVIL = "evil"
MIB = 2**20
ADDRESS_SPACE = 2_048 * MIB
PATIENCE = 180.0
"""Seconds that anything here waits at most: a safety net for hung tests, not a measurement."""

ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
RIGHTS = {"apiGroups": ["airunway.ai"], "resources": ["modeldeployments"], "verbs": ["create", "patch", "delete"]}

OURS = ("controller", "provider-kaito")
_LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class World:
    """The running parts, an administrator's client and the tenant's."""

    admin: Client
    tenant: Client
    parts: Processes
    started: dict[str, int]

    def resident(self, name: str, what: str = "VmHWM") -> float:
        """MiB of a process: the most that it ever had (VmHWM), or what it has now (VmRSS)."""
        status = Path(f"/proc/{self.parts.pids[name]}/status").read_text()
        return int(re.findall(rf"^{what}:\s+(\d+) kB", status, flags=re.MULTILINE)[0]) / 1024

    def ended(self) -> list[str]:
        """What to tell of parts that have ended, or are not the processes that were started."""
        told = [
            f"{name} ended with {code}\n{log_tail(self.parts.log(name))}" for name, code in self.parts.exited().items()
        ]
        pids = self.parts.pids
        return told + [f"{name} is another process" for name, pid in self.started.items() if pids.get(name, pid) != pid]

    def said(self, name: str, text: str) -> list[str]:
        """The lines of a process' log that have the text."""
        return [line for line in self.parts.log(name).read_text(errors="replace").splitlines() if text in line]

    async def lease(self, component: str) -> tuple[str, int]:
        """Who holds it, and how often it went to somebody."""
        spec = dig(await self.admin.get(LEASE, ObjectKey("default", component)), "spec")
        return str(spec["holderIdentity"]), int(spec.get("leaseTransitions", 0))


Build: TypeAlias = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def world() -> Build:
    """``async with world(webhook=True) as w``: everything is started, and gone at the end."""
    return _world


@asynccontextmanager
async def _world(*, webhook: bool) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        plane = await asyncio.to_thread(stack.enter_context, ControlPlane("api", roomy=True))
        (port,) = stack.enter_context(reserved_ports(1))
        config = load_config(kubeconfig=plane.kubeconfig)
        admin = await stack.enter_async_context(Client(config, user_agent="administrator"))
        await install_definitions(admin, load_simulator("kaito").custom_resource_definitions())
        await admin.create(NAMESPACE, _named("v1", "Namespace", EVIL))
        await admin.create(ROLE, {**_named(ROLE.api_version, "Role", "tenant", EVIL), "rules": [RIGHTS]})
        to = {"apiGroup": ROLE.group, "kind": "Role", "name": "tenant"}
        who = [{"apiGroup": ROLE.group, "kind": "User", "name": "mallory"}]
        binding = {**_named(ROLE.api_version, "RoleBinding", "tenant", EVIL), "roleRef": to, "subjects": who}
        await admin.create(ROLE_BINDING, binding)
        theirs = load_config(kubeconfig=plane.kubeconfig_for("mallory"))
        tenant = await stack.enter_async_context(Client(theirs, user_agent="tenant"))
        folder = Path(tempfile.mkdtemp(prefix="airunway-hostile-"))
        parts = Processes(folder, keep=False)
        stack.callback(parts.close, grace=5.0)
        common = ["--kubeconfig", str(plane.kubeconfig)]
        ours = [*common, "--leader-elect", "--log-format", "json"]
        hook = ["--webhook-bind-address", f"127.0.0.1:{port}", "--webhook-url", f"https://127.0.0.1:{port}"]
        hook.append("--webhook-manage-configuration")
        commands = {
            "controller": ["controller", *ours, *(hook if webhook else [])],
            "provider-kaito": ["provider", "run", "kaito", "--set", "inferenceSet=WhenScaled", *ours],
            "simulator": ["simulate", "kaito", *common, "--level", "api"],
        }
        environment = {**os.environ, "POD_NAMESPACE": "default", "PYTHONUNBUFFERED": "1"}
        for name, command in commands.items():
            argv = [sys.executable, "-m", "airunway", *command]
            if name in OURS:
                argv = [sys.executable, "-c", _LIMITED, str(ADDRESS_SPACE), *argv]
                argv += ["--ready-file", str(folder / name)]
            parts.start(name, argv, environment={**environment, "POD_NAME": f"{name}-0"})
        async with asyncio.timeout(PATIENCE):
            while not all((folder / name).exists() for name in OURS):
                assert not parts.exited(), [log_tail(parts.log(name)) for name in parts.exited()]
                await asyncio.sleep(0.05)
        yield World(admin, tenant, parts, dict(parts.pids))


def _named(api_version: str, kind: str, name: str, namespace: str = "") -> Resource:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
