"""The shares of a group, and who holds what it claims (docs/side-by-side.md)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from airunway.resource import ObjectKey
from airunway.routing.backends import Backend, BackendKind
from airunway.routing.claims import Claim, Claimant, ClaimKind, Claims
from airunway.routing.groups import Group, Member, Share, SharedRule, Why, answers, shares, told

GATEWAY = ObjectKey("infra", "gw")
PATH = Claim(GATEWAY, "http", ClaimKind.PATH, "/ml/chat")
NAME = Claim(GATEWAY, "http", ClaimKind.MODEL_NAME, "chat")


def who(number: int, group: str = "chat") -> Claimant:
    return Claimant(f"2026-01-01T00:00:{number:02}Z", "ml", f"v{number}", group)


def member(number: int, weight: int = 1, *, answers: bool = True, pool: bool = False, service: bool = True) -> Member:
    name = f"v{number}"
    known = (name, 80) if service else ("", 0)
    kind = BackendKind.POOL if pool else BackendKind.SERVICE
    backend = Backend(kind=kind, name=name, service=known[0], service_port=known[1])
    return Member(claimant=who(number), weight=weight, answers=answers, backend=backend)


def given(found: tuple[Share, ...]) -> list[tuple[str, int, int]]:
    """Name, percent and weight of each member that the rule leads to."""
    return [(each.member.claimant.name, each.percent, each.weight) for each in found if each.backend is not None]


def test_shares_are_proportional_and_in_the_order_of_age() -> None:
    assert given(shares([member(2, 1), member(1, 9)], who(1))) == [("v1", 90, 9), ("v2", 10, 1)]


def test_whole_percents_add_up_to_100() -> None:
    found = shares([member(1), member(2), member(3)], who(1))
    assert [each.percent for each in found] == [34, 33, 33]


def test_a_member_that_cannot_answer_is_left_out_and_not_written_with_0() -> None:
    found = shares([member(1, 9), member(2, answers=False)], who(1))
    assert given(found) == [("v1", 100, 9)]
    assert found[1].why is Why.NOT_READY


def test_a_holder_that_cannot_answer_leaves_all_to_the_others() -> None:
    assert given(shares([member(1, answers=False), member(2)], who(1))) == [("v2", 100, 1)]


def test_if_none_can_answer_the_rule_waits_for_all_that_have_a_weight() -> None:
    found = shares([member(1, answers=False), member(2, answers=False), member(3, 0)], who(1))
    assert given(found) == [("v1", 0, 1), ("v2", 0, 1)]


def test_if_no_member_has_a_weight_the_holder_gets_everything() -> None:
    assert given(shares([member(1, 0), member(2, 0)], who(2))) == [("v2", 100, 1)]


def test_several_lead_to_services_and_one_alone_to_its_pool() -> None:
    both = shares([member(1, pool=True), member(2, pool=True)], who(1))
    assert [each.backend.kind for each in both if each.backend] == [BackendKind.SERVICE] * 2
    (first, _) = shares([member(1, pool=True), member(2, 0, pool=True)], who(1))
    assert first.backend is not None
    assert first.backend.kind is BackendKind.POOL


def kinds(found: tuple[Share, ...]) -> list[BackendKind]:
    return [each.backend.kind for each in found if each.backend is not None]


def test_pools_are_split_where_the_config_says_so_and_never_mixed_with_services() -> None:
    pooled = [member(1, 9, pool=True), member(2, pool=True, service=False)]
    both = shares(pooled, who(1), pools=True)
    assert (kinds(both), [each.percent for each in both]) == ([BackendKind.POOL] * 2, [90, 10])
    # One of them without a pool: all by their Services.
    mixed = shares([member(1, pool=True), member(2)], who(1), pools=True)
    assert kinds(mixed) == [BackendKind.SERVICE] * 2
    # An old picker takes no path before its rewrite: the path goes to Services, the model's name to pools.
    old = [member(1, pool=True), replace(member(2, pool=True), path_to_service=True)]
    assert kinds(shares(old, who(1), pools=True, path=True)) == [BackendKind.SERVICE] * 2
    assert kinds(shares(old, who(1), pools=True)) == [BackendKind.POOL] * 2


def test_a_member_at_zero_has_a_share_only_through_its_pool() -> None:
    asleep = replace(member(1, 9, pool=True), at_zero=True)
    awake = member(2, pool=True)
    assert given(shares([asleep, awake], who(1), pools=True)) == [("v1", 90, 9), ("v2", 10, 1)]
    by_services = shares([asleep, awake], who(1))
    assert (given(by_services), by_services[0].why) == ([("v2", 100, 1)], Why.AT_ZERO)
    # All of them at zero: the first request wakes one.
    both = shares([asleep, replace(awake, at_zero=True)], who(1))
    assert (given(both), kinds(both)) == ([("v1", 100, 9)], [BackendKind.POOL])


@pytest.mark.parametrize(
    ("ready", "desired", "holds", "can"),
    [(1, 1, None, True), (0, 1, True, False), (0, 0, True, True), (0, 0, False, False), (0, 0, None, False)],
)
def test_a_deployment_at_zero_answers_if_its_picker_holds_requests(
    ready: int, desired: int, holds: bool | None, can: bool
) -> None:
    status = {
        "conditions": [{"type": "Served", "status": "True"}],
        "replicas": {"ready": ready, "desired": desired},
        "gateway": {"holdsRequests": holds},
    }
    assert answers({"status": status}) is can


@pytest.mark.parametrize(
    ("found", "pools", "text"),
    [
        ([member(1), member(2)], True, ""),
        ([member(1, pool=True), member(2, 0, pool=True)], False, ""),
        ([member(1, pool=True), member(2, pool=True)], True, "leads to several InferencePools, as routing.split says"),
        ([member(1, pool=True), member(2)], False, "leads to Services, and no endpoint picker chooses the pod"),
        ([member(1, pool=True), member(2)], True, "chooses the pod: ModelDeployment v2 has no InferencePool"),
    ],
)
def test_a_member_says_what_a_split_costs(found: list[Member], pools: bool, text: str) -> None:
    rule = SharedRule(value="chat", holder=who(1), shares=shares(found, who(1), pools=pools), pools=pools)
    said = told(Group(me=who(1), rules={ClaimKind.MODEL_NAME: rule}))
    assert said.endswith(text or " % of model chat")


def test_a_member_without_a_service_is_left_out_beside_others() -> None:
    found = shares([member(1), member(2, pool=True, service=False)], who(1))
    assert (given(found), found[1].why) == ([("v1", 100, 1)], Why.NO_SERVICE)
    alone = shares([member(1, 0), member(2, pool=True, service=False)], who(1))
    assert given(alone) == [("v2", 100, 1)]


def test_the_youngest_beyond_sixteen_are_left_out() -> None:
    found = shares([member(number) for number in range(18)], who(0))
    assert [each.why for each in found] == [None] * 16 + [Why.TOO_MANY] * 2
    assert sum(each.percent for each in found) == 100


def test_another_group_another_namespace_and_none_conflict_as_before() -> None:
    claims = Claims()
    claims.put(who(1), [PATH])
    claims.put(who(2), [PATH])
    claims.put(who(3, "other"), [PATH])
    claims.put(Claimant("2026-01-02", "ml", "none"), [PATH])
    claims.put(Claimant("2026-01-02", "else", "v1", "chat"), [PATH])
    assert claims.conflicts(who(2).key) == ()
    (conflict,) = claims.conflicts(who(3).key)
    assert (conflict.holder, conflict.group) == (who(1).key, "chat")
    for key in (ObjectKey("ml", "none"), ObjectKey("else", "v1")):
        assert [each.holder for each in claims.conflicts(key)] == [who(1).key]
    assert claims.shared(who(2).key) == {PATH: (who(1), (who(1), who(2)))}
    assert claims.shared(who(3).key) == {}


def test_the_others_of_a_group_are_woken_when_one_comes_leaves_or_goes() -> None:
    claims = Claims()
    claims.put(who(1), [PATH])
    assert claims.put(who(2), [PATH]) == {who(1).key}
    assert claims.put(who(2, "other"), [PATH]) == {who(1).key}
    assert claims.put(who(2), [PATH]) == {who(1).key}
    assert claims.drop(who(1).key) == {who(2).key}
    assert claims.put(Claimant("2027", "ml", "single"), [NAME]) == frozenset()


@pytest.mark.parametrize("seed", range(20))
def test_exactly_one_route_has_a_shared_rule_in_any_history(seed: int) -> None:
    """A hundred histories each: deployments come, go, change group, weight and readiness, in any order."""
    for history in range(100):
        random = Random(seed * 100 + history)
        claims, members = Claims(), dict[int, Member]()
        groups: dict[int, str] = {}
        for _ in range(random.randint(3, 25)):
            number = random.randrange(6)
            if random.random() < 0.25:
                members.pop(number, None)
                claims.drop(who(number).key)
                continue
            groups[number] = random.choice(("chat", "chat", "other", ""))
            weight, ready = random.choice((0, 1, 9, 1000)), random.random() < 0.7
            made = member(number, weight, answers=ready, pool=random.random() < 0.3, service=random.random() < 0.8)
            claimant = who(number, groups[number])
            members[number] = Member(claimant=claimant, weight=made.weight, answers=made.answers, backend=made.backend)
            wanted = random.choice(([PATH], [NAME], [PATH, NAME]))
            claims.put(claimant, wanted, [claim for claim in wanted if random.random() < 0.3])
        again = Claims()
        rebuilt = [
            (
                entry.claimant,
                list(claims._of[key]),
                [claim for claim, each in claims._of[key].items() if not each.order[0]],
            )
            for key in claims._of
            for entry in [next(iter(claims._of[key].values()))]
        ]
        random.shuffle(rebuilt)
        again.rebuild(rebuilt)
        for one in members.values():
            key = one.claimant.key
            assert (again.shared(key), again.conflicts(key)) == (claims.shared(key), claims.conflicts(key))
            for claim, (holder, sharing) in claims.shared(key).items():
                # One answer for the whole group, and the holder is the only one that holds.
                assert {claims.shared(each.key)[claim] for each in sharing} == {(holder, sharing)}
                assert claims.holder(claim) == holder.key
                holding = [each for each in sharing if claims._of[each.key][claim].holds]
                assert holding == [holder]
                pools = random.random() < 0.5
                found = shares([members[int(each.name[1:])] for each in sharing], holder, pools=pools)
                assert sum(each.percent for each in found) in (0, 100)
                assert len(set(kinds(found))) <= 1, "pools and Services are never mixed"
                assert pools or len(kinds(found)) <= 1 or set(kinds(found)) == {BackendKind.SERVICE}
