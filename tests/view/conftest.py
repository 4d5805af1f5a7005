"""Core, KAITO provider and simulated KAITO on a cluster, and the commands as a user runs them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from tests.console import Ran, is_shown, ran, steps
from tests.one_pod import cluster_operator, deploy
from tests.support.kubelet import Kubelet, running_kubelet
from tests.support.served import create_deployment

from airunway.kube import Client, Kind
from airunway.resource import ObjectKey
from airunway_testing.controlplane import Cluster

__all__ = ["cluster_operator", "deploy"]

ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


PAGE = Path(__file__).parents[2] / "docs" / "status.md"


def is_on_page(command: str, output: str) -> bool:
    """Whether docs/status.md shows this output below a command of `airunway`; indents do not count."""
    shown = [line.strip() for line in screen(command)]
    return is_shown(shown, "".join(f"{line.strip()}\n" for line in output.splitlines()))


def screen(command: str) -> list[str]:
    """The lines that docs/status.md shows below a command of `airunway`."""
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for shown, lines in steps(block):
            if shown.startswith(f"airunway {command}"):
                return lines
    raise LookupError(f"docs/status.md does not show `airunway {command}`")


class Run(Protocol):
    """``await run("status", "md/x")`` runs `airunway` as the administrator, or with another kubeconfig."""

    async def __call__(self, *arguments: str, kubeconfig: Path | None = None) -> Ran: ...


@pytest.fixture
def run(kubeconfig: Path) -> Run:
    default = kubeconfig

    async def run_(*arguments: str, kubeconfig: Path | None = None) -> Ran:
        return await ran(*arguments, "--kubeconfig", str(kubeconfig or default))

    return run_


@pytest.fixture
async def kubelet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Kubelet]:
    """A node of this machine, whose pods run nothing."""
    async with running_kubelet(client, tmp_path, node=f"node-of-{namespace}") as kubelet:
        yield kubelet


@pytest.fixture
async def key(client: Client, namespace: str) -> ObjectKey:
    """A deployment that no provider runs."""
    found = ObjectKey(namespace, "llama")
    await create_deployment(client, found)
    return found


class Grant(Protocol):
    """Gives a new user ClusterRoles and rules (group, resource, verbs) in the namespace: the user's kubeconfig."""

    async def __call__(
        self, *roles: str, rules: Sequence[tuple[str, str, str]] = (), deployments: str = "get list watch"
    ) -> Path: ...


@pytest.fixture
def grant(client: Client, cluster: Cluster, namespace: str) -> Grant:
    """``await grant("view", rules=[("", "pods/proxy", "get")])``: the kubeconfig of a new user with these rights.

    What the chart's ClusterRole airunway-view adds to Kubernetes' own is granted too, or these verbs of it.
    """
    count = iter(range(100))

    async def grant_(
        *roles: str, rules: Sequence[tuple[str, str, str]] = (), deployments: str = "get list watch"
    ) -> Path:
        user = f"user-{next(count)}-of-{namespace}"
        given = [("airunway.ai", "modeldeployments", deployments), *rules]
        body = [{"apiGroups": [group], "resources": [what], "verbs": verbs.split()} for group, what, verbs in given]
        await client.create(ROLE, {"metadata": {"name": user, "namespace": namespace}, "rules": body})
        for kind, name in (("Role", user), *(("ClusterRole", role) for role in roles)):
            binding = {
                "metadata": {"name": f"{user}-{name}", "namespace": namespace},
                "roleRef": {"apiGroup": ROLE.group, "kind": kind, "name": name},
                "subjects": [{"apiGroup": ROLE.group, "kind": "User", "name": user}],
            }
            await client.create(ROLE_BINDING, binding)
        return cluster.kubeconfig_for(user)

    return grant_
