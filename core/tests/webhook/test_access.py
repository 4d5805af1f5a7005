"""The user's own rights: a yes is remembered for a moment, for exactly that user, kind and namespace."""

from __future__ import annotations

import asyncio

import pytest

from airunway.kube import Client
from airunway.selection import UpstreamFacts
from airunway.testing.fixtures import Kubectl
from airunway.webhook.access import CAPACITY, REMEMBERED, AccessReviewer, User

pytestmark = pytest.mark.apiserver

MAPS = UpstreamFacts(group="", version="v1", kind="ConfigMap")
POLICIES = UpstreamFacts(group="networking.k8s.io", version="v1", kind="NetworkPolicy")


def ada(*groups: str) -> User:
    return User(name="ada", groups=groups, extra={"example.com/key": ("value",)})


async def test_a_yes_is_remembered_for_a_moment_and_a_no_is_not(
    client: Client, kubectl: Kubectl, namespace: str
) -> None:
    now = 0.0
    asked: list[str] = []
    client.on_request = lambda verb, resource, _status, _seconds: asked.append(f"{verb} {resource}")
    reviewer = AccessReviewer(client, clock=lambda: now)

    async def problem(user: User) -> str | None:
        return await reviewer.problem(user, MAPS, namespace=namespace, provider="acme")

    expected = f"user 'ada' cannot create configmaps in namespace '{namespace}', which provider 'acme' does"
    assert str(await problem(ada())).startswith(expected)
    kubectl("create", "role", "maps", "-n", namespace, "--verb=create", "--resource=configmaps")
    kubectl("create", "rolebinding", "maps", "-n", namespace, "--role=maps", "--user=ada")
    async with asyncio.timeout(30):  # the authorizer learns of roles by a watch
        while await problem(ada()) is not None:
            await asyncio.sleep(0.02)
    asked.clear()
    assert await problem(ada()) is None
    assert asked == []
    assert await problem(ada("team")) is None  # another question, so it is asked
    now = REMEMBERED
    assert await problem(ada()) is None
    assert asked.count("create subjectaccessreviews") == 2
    assert await reviewer.problem(ada(), MAPS, namespace="default", provider="acme") is not None


async def test_the_resource_s_name_comes_from_discovery(client: Client, namespace: str) -> None:
    reviewer = AccessReviewer(client)
    told = await reviewer.problem(ada(), POLICIES, namespace=namespace, provider="acme")
    assert "cannot create networkpolicies.networking.k8s.io in namespace" in str(told)
    unknown = UpstreamFacts(group="absent.example.com", version="v1", kind="Thing")
    told = await reviewer.problem(ada(), unknown, namespace=namespace, provider="acme")
    assert "cannot create things.absent.example.com in namespace" in str(told)
    no_version = UpstreamFacts(group="", version="", kind="ConfigMap")
    assert "configmaps" in str(await reviewer.problem(ada(), no_version, namespace=namespace, provider="acme"))


async def test_what_is_remembered_is_bounded(client: Client, namespace: str) -> None:
    reviewer = AccessReviewer(client)
    reviewer._allowed_at.update({str(number).encode(): 0.0 for number in range(CAPACITY)})
    admin = User(name="root", groups=("system:masters",), extra={})
    assert await reviewer.problem(admin, MAPS, namespace=namespace, provider="acme") is None
    assert len(reviewer._allowed_at) == CAPACITY
