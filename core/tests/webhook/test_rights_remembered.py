"""What the webhook asks about a user's rights, and for how long it goes by the answer; without an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from airunway.kube import Client, Kind, NotFound, ServerError
from airunway.resource import Resource
from airunway.selection.facts import UpstreamFacts
from airunway.webhook.admission import AccessReviewer, User

MAPS = UpstreamFacts(group="", version="v1", kind="ConfigMap")
THINGS = UpstreamFacts(group="example.com", version="v2", kind="Thing")


class Authorizer:
    """Answers as an API server does, and keeps what it was asked."""

    def __init__(self) -> None:
        self.allows = False
        self.script: list[bool] = []  # the next answers, if there are any
        self.asked: list[Mapping[str, Any]] = []
        self.looked_up: list[str] = []
        self.listing: Resource | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.at_once = self.most_at_once = 0

    async def subject_access_review(self, **question: Any) -> bool:
        self.asked.append(question)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.answers.wait()
        self.at_once -= 1
        return self.script.pop(0) if self.script else self.allows

    async def get_path(self, path: str) -> Resource:
        self.looked_up.append(path)
        if self.listing is None:
            raise NotFound(404, message="no such version")
        return self.listing


class Asking:
    """A reviewer with a clock that stands still, and the authorizer that it asks."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = Authorizer()
        self.reviewer = AccessReviewer(cast("Client", self.server), clock=lambda: self.now)

    async def may(
        self, *groups: str, name: str = "ada", uid: str = "", namespace: str = "team", what: UpstreamFacts = MAPS,
        extra: Mapping[str, Sequence[str]] | None = None,
    ) -> bool:  # fmt: skip
        user = User(name=name, uid=uid, groups=groups, extra=extra or {})
        return await self.reviewer.problem(user, what, namespace=namespace, provider="acme") is None


async def test_a_yes_holds_for_ten_seconds_and_a_no_for_two() -> None:
    """Longer, and a right that was taken away would go on admitting; not at all, and each review would ask."""
    asking = Asking()
    assert not await asking.may()
    asking.server.allows = True
    asking.now += 1.9
    assert not await asking.may()
    assert len(asking.server.asked) == 1
    asking.now += 0.1
    assert await asking.may()
    asking.server.allows = False
    asking.now += 9.9
    assert await asking.may()
    assert len(asking.server.asked) == 2
    asking.now += 0.1
    assert not await asking.may(), "the old yes is gone with the new no"
    asking.now += 1.9
    assert not await asking.may()
    assert len(asking.server.asked) == 3


async def test_an_answer_is_for_exactly_that_user_kind_and_namespace() -> None:
    asking = Asking()
    questions: list[dict[str, Any]] = [
        {}, {"name": "bob"}, {"uid": "1"}, {"namespace": "other"}, {"what": THINGS}, {"extra": {"scopes": ["a"]}},
        {"extra": {"scopes": ["b"]}},
    ]  # fmt: skip
    for question in questions * 2:
        await asking.may(**question)
    await asking.may("a", "b")
    await asking.may("b", "a")  # the order of groups says nothing
    assert len(asking.server.asked) == len(questions) + 1
    first, *_, last = asking.server.asked
    assert (first["user"], first["verb"], first["namespace"], first["kind"].plural) == (
        "ada",
        "create",
        "team",
        "configmaps",
    )
    assert sorted(last["groups"]) == ["a", "b"]
    assert asking.server.asked[2]["uid"] == "1"
    assert asking.server.asked[5]["extra"] == {"scopes": ["a"]}


async def test_sixteen_questions_at_a_time_and_who_waited_for_the_same_answer_takes_it() -> None:
    asking = Asking()
    asking.server.answers.clear()
    waiting = [asyncio.create_task(asking.may(name=f"user-{number}")) for number in range(40)]
    same = [asyncio.create_task(asking.may(name="user-39")) for _ in range(40)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(asking.server.asked) == 16
    asking.server.answers.set()
    assert not any(await asyncio.gather(*waiting, *same))
    assert asking.server.most_at_once == 16
    assert len(asking.server.asked) == 40


async def test_of_two_answers_to_the_same_question_the_later_one_counts() -> None:
    asking = Asking()
    asking.server.script = [True, False]
    asking.server.answers.clear()
    both = [asyncio.create_task(asking.may()) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    asking.server.answers.set()
    assert await asyncio.gather(*both) == [True, False]
    assert not await asking.may()
    assert len(asking.server.asked) == 2


async def test_what_is_remembered_is_bounded_each_kind_of_answer_by_itself() -> None:
    asking = Asking()
    asking.server.allows = True
    assert await asking.may(name="friend")
    asking.server.allows = False
    for number in range(5000):
        await asking.may(name=f"stranger-{number}")
    before = len(asking.server.asked)
    assert await asking.may(name="friend"), "thousands of strangers do not push out who may"
    assert not await asking.may(name="stranger-4999")
    assert len(asking.server.asked) == before
    assert not await asking.may(name="stranger-1")
    assert len(asking.server.asked) == before + 1, "the oldest are forgotten"


async def test_no_answer_is_no_answer() -> None:
    asking = Asking()

    async def away(**_: Any) -> None:
        raise ServerError(503, message="away")

    answers = asking.server.subject_access_review
    asking.server.subject_access_review = away  # type: ignore[assignment,method-assign]
    with pytest.raises(ServerError):
        await asking.may()
    asking.server.subject_access_review = answers  # type: ignore[method-assign]
    assert not await asking.may()
    assert len(asking.server.asked) == 1


async def test_the_words_name_the_resource_by_discovery_and_that_is_remembered_for_a_minute() -> None:
    asking = Asking()
    listed = [
        {"kind": "Thing", "name": "thingies/status"},
        {"kind": "Thing", "name": "thingies"},
        {"kind": "Other", "name": "others"},
    ]
    asking.server.listing = {"resources": listed}
    for _ in range(3):
        await asking.may(what=THINGS)
    assert asking.server.looked_up == ["/apis/example.com/v2"]
    assert asking.server.asked[0]["kind"] == Kind("example.com", "v2", "Thing", "thingies")
    asking.now += 60
    told = await asking.reviewer.problem(User(name="ada", extra={}), THINGS, namespace="team", provider="acme")
    assert asking.server.looked_up == ["/apis/example.com/v2"] * 2
    assert told == (
        "user 'ada' cannot create thingies.example.com in namespace 'team', which provider 'acme' does for a "
        "ModelDeployment: get a role that allows it, or name another provider"
    )
    asking.server.listing = None
    asking.now += 60
    await asking.may(what=THINGS)
    assert asking.server.asked[-1]["kind"].plural == "things", "not served: as almost every CRD has it"


async def test_pods() -> None:
    asking = Asking()
    user = User(name="ada", extra={})
    told = await asking.reviewer.pods_problem(user, namespace="team")
    assert told is not None
    assert told.startswith("user 'ada' cannot create pods in namespace 'team', which a ModelDeployment does: ")
    asking.server.allows = True
    asking.now += 2
    assert await asking.reviewer.pods_problem(user, namespace="team") is None
    assert {question["kind"].plural for question in asking.server.asked} == {"pods"}
