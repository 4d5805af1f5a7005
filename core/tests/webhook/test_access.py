"""The user's own rights: an answer is remembered for a moment, for exactly that user, kind and namespace."""

from __future__ import annotations

import asyncio

import pytest

from airunway.kube import Client
from airunway.selection.facts import UpstreamFacts
from airunway.webhook.admission import CAPACITY, QUESTIONS, REFUSED, REMEMBERED, AccessReviewer, User
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl

pytestmark = pytest.mark.apiserver

MAPS = UpstreamFacts(group="", version="v1", kind="ConfigMap")
POLICIES = UpstreamFacts(group="networking.k8s.io", version="v1", kind="NetworkPolicy")


def ada(*groups: str) -> User:
    return User(name="ada", groups=groups, extra={"example.com/key": ("value",)})


async def test_h3c_answers_are_remembered_for_a_moment_a_no_for_less(
    client: Client, kubectl: Kubectl, namespace: str
) -> None:
    now = 0.0
    asked: list[str] = []
    client.session.on_request = lambda verb, resource, _status, _seconds: asked.append(f"{verb} {resource}")
    reviewer = AccessReviewer(client, clock=lambda: now)

    async def problem(user: User) -> str | None:
        return await reviewer.problem(user, MAPS, namespace=namespace, provider="acme")

    expected = f"user 'ada' cannot create configmaps in namespace '{namespace}', which provider 'acme' does"
    assert str(await problem(ada())).startswith(expected)
    for _ in range(50):  # an oracle that answers whoever asks must not make us ask the API server each time
        assert await problem(ada()) is not None
    assert asked.count("create subjectaccessreviews") == 1
    kubectl("create", "role", "maps", "-n", namespace, "--verb=create", "--resource=configmaps")
    kubectl("create", "rolebinding", "maps", "-n", namespace, "--role=maps", "--user=ada")
    async with asyncio.timeout(PATIENCE):  # the authorizer learns of roles by a watch
        while await problem(ada()) is not None:
            now += REFUSED
            await asyncio.sleep(0.02)
    asked.clear()
    assert await problem(ada()) is None
    assert asked == []
    assert await problem(ada("team")) is None  # another question, so it is asked
    now += REMEMBERED
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


async def test_h3c_what_is_remembered_is_bounded(client: Client, namespace: str) -> None:
    """In number and in size: whoever reaches the port chooses the names."""
    reviewer = AccessReviewer(client)
    for kept in reviewer._answered_at.values():
        kept.update({str(number).encode(): reviewer._clock() for number in range(CAPACITY)})
    admin = User(name="root", groups=("system:masters",), extra={})
    nobody = User(name="n" * 100_000, extra={})
    assert await reviewer.problem(admin, MAPS, namespace=namespace, provider="acme") is None
    assert await reviewer.problem(nobody, MAPS, namespace=namespace, provider="acme") is not None
    for kept in reviewer._answered_at.values():
        assert len(kept) == CAPACITY
        assert max(map(len, kept)) <= 32


async def test_h3c_an_answer_serves_all_who_wait_for_it(client: Client, namespace: str) -> None:
    asked = 0

    def on_request(_verb: str, resource: str, _status: int, _seconds: float) -> None:
        nonlocal asked
        asked += resource == "subjectaccessreviews"

    client.session.on_request = on_request
    reviewer = AccessReviewer(client)
    users = [User(name=f"user-{number}", extra={}) for number in range(2)] * 200
    answers = await asyncio.gather(
        *(reviewer.problem(user, MAPS, namespace=namespace, provider="acme") for user in users)
    )
    assert None not in answers
    assert asked <= 2 * QUESTIONS  # of 400 by two users
