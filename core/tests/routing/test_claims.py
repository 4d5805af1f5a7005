"""Who holds a path or a model name, after any history and after a restart."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.resource import ObjectKey
from airunway.routing.claims import Claim, Claimant, ClaimConflict, ClaimKind, Claims, claimant_of

GW = ObjectKey("infra", "gw")


def path(value: str = "/talk", section: str = "", gateway: ObjectKey = GW) -> Claim:
    return Claim(gateway, section, ClaimKind.PATH, value)


def claimant(name: str, *, created: str = "2026-01-01T00:00:00Z", namespace: str = "ml") -> Claimant:
    return Claimant(created, namespace, name)


OLD = claimant("old", created="2025-12-31T23:59:59Z")
YOUNG = claimant("young")


def losers(claims: Claims, *those: Claimant) -> dict[str, str]:
    return {who.name: lost.holder.name for who in those for lost in claims.conflicts(who.key)}


def test_r7_the_older_one_holds_the_path_in_whatever_order_they_are_read() -> None:
    for order in permutations([OLD, YOUNG]):
        claims = Claims()
        for who in order:
            claims.put(who, [path()])
        assert losers(claims, OLD, YOUNG) == {"young": "old"}


def test_r7_in_the_same_second_namespace_and_name_decide() -> None:
    first, second, third = claimant("b", namespace="a"), claimant("a", namespace="b"), claimant("b", namespace="b")
    for order in permutations([first, second, third]):
        claims = Claims()
        for who in order:
            claims.put(who, [path()])
        assert claims.holder(path()) == first.key
        assert {lost.holder for lost in claims.conflicts(third.key)} == {first.key}


def test_r7_the_one_that_waits_is_woken_when_the_path_is_freed() -> None:
    claims = Claims()
    assert claims.put(OLD, [path()]) == set()
    assert claims.put(YOUNG, [path()]) == set()
    assert claims.drop(OLD.key) == {YOUNG.key}
    assert claims.conflicts(YOUNG.key) == ()
    assert claims.put(OLD, [path()]) == {YOUNG.key}


def test_r7_an_older_one_that_claims_later_takes_over_and_wakes_the_younger() -> None:
    claims = Claims()
    claims.put(YOUNG, [path()])
    assert claims.put(OLD, [path()]) == {YOUNG.key}
    assert losers(claims, OLD, YOUNG) == {"young": "old"}


def test_r8_a_prefix_of_another_path_of_the_same_namespace_is_no_conflict() -> None:
    claims = Claims()
    claims.put(OLD, [path("/a")])
    claims.put(YOUNG, [path("/a/b")])
    assert losers(claims, OLD, YOUNG) == {}


@pytest.mark.parametrize(("first", "second"), [("/a", "/a/b"), ("/a/b", "/a"), ("/a/b/c/d", "/a")])
def test_r8_a_prefix_of_a_path_of_another_namespace_is_a_conflict_that_the_older_wins(first: str, second: str) -> None:
    claims, other = Claims(), claimant("theirs", namespace="other")
    claims.put(other, [path(second)])
    assert claims.put(OLD, [path(first)]) == {other.key}
    assert claims.conflicts(other.key) == (ClaimConflict(path(second), OLD.key, first),)
    assert claims.conflicts(OLD.key) == ()
    assert claims.drop(OLD.key) == {other.key}
    assert claims.conflicts(other.key) == ()


def test_r8_a_segment_that_begins_like_another_one_is_no_prefix() -> None:
    claims, other = Claims(), claimant("theirs", namespace="other")
    claims.put(OLD, [path("/ml/ten-a")])
    claims.put(other, [path("/ml/ten-a-2"), path("/ml/ten")])
    assert claims.conflicts(other.key) == ()


def test_a_claim_that_lost_takes_nothing_from_those_behind_it() -> None:
    """a/b is held, so a is not; then a/c, which only a would exclude, is held."""
    claims = Claims()
    holder, between, last = OLD, claimant("between", namespace="x"), claimant("last", namespace="y", created="2026-02")
    claims.put(holder, [path("/a/b")])
    claims.put(between, [path("/a")])
    claims.put(last, [path("/a/c")])
    assert losers(claims, holder, between, last) == {"between": "old"}
    assert claims.drop(holder.key) == {between.key, last.key}
    assert losers(claims, between, last) == {"last": "between"}


def test_an_older_deployment_does_not_take_a_path_that_a_route_serves() -> None:
    """A tenant edits the template of an old deployment to the path of a neighbour, or to one above or below it."""
    for value in ("/talk", "/talk/a"):
        claims, thief = Claims(), OLD._replace(namespace="thief")
        claims.put(YOUNG, [path()], [path()])
        assert claims.put(thief, [path(value)]) == set()
        assert losers(claims, thief, YOUNG) == {"old": "young"}
        # Not even by a route of the same age.
        assert claims.put(thief, [path(value)], []) == set()
        assert claims.drop(YOUNG.key) == {thief.key}


def test_a_route_that_begins_to_serve_wakes_nobody_whose_answer_stays() -> None:
    claims = Claims()
    claims.put(OLD, [path()])
    claims.put(YOUNG, [path()])
    assert claims.put(OLD, [path()], [path()]) == set()


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [("a", "b", False), ("a", "a", True), ("a", "", True), ("", "b", True), ("", "", True)],
)
def test_r9_two_listeners_do_not_overlap_and_all_listeners_overlap_with_each(
    first: str, second: str, conflict: bool
) -> None:
    claims = Claims()
    claims.put(OLD, [path(section=first)])
    claims.put(YOUNG, [path(section=second)])
    assert bool(claims.conflicts(YOUNG.key)) == conflict
    assert claims.conflicts(OLD.key) == ()


def test_r9_one_on_all_listeners_that_lost_takes_nothing_from_the_others() -> None:
    claims = Claims()
    a, everywhere, b = claimant("a"), claimant("b"), claimant("c")
    claims.put(a, [path(section="x")])
    claims.put(everywhere, [path()])
    claims.put(b, [path(section="y")])
    assert losers(claims, a, everywhere, b) == {"b": "a"}
    assert claims.drop(a.key) == {everywhere.key, b.key}
    assert losers(claims, everywhere, b) == {"c": "b"}


def test_the_same_value_on_two_gateways_or_of_two_kinds_is_no_conflict() -> None:
    claims = Claims()
    claims.put(OLD, [path("x"), path("y", gateway=ObjectKey("infra", "other"))])
    claims.put(YOUNG, [path("y"), Claim(GW, "", ClaimKind.MODEL_NAME, "x")])
    assert losers(claims, OLD, YOUNG) == {}


def test_r11_only_the_lost_claim_is_a_conflict() -> None:
    claims = Claims()
    claims.put(OLD, [path()])
    claims.put(YOUNG, [path(), Claim(GW, "", ClaimKind.MODEL_NAME, "llama")])
    assert [lost.claim.kind for lost in claims.conflicts(YOUNG.key)] == [ClaimKind.PATH]


def test_r24_a_released_claim_is_free_and_is_taken_again_if_free() -> None:
    claims = Claims()
    claims.put(OLD, [path()])
    claims.put(YOUNG, [path()])
    assert claims.put(OLD, []) == {YOUNG.key}
    assert len(claims) == 1
    assert claims.conflicts(YOUNG.key) == ()
    claims.put(OLD, [path()])
    assert losers(claims, OLD, YOUNG) == {"young": "old"}


def test_one_made_anew_under_the_same_name_is_the_youngest() -> None:
    claims = Claims()
    claims.put(OLD, [path()])
    claims.put(YOUNG, [path()])
    assert claims.put(OLD._replace(created="2026-06-01T00:00:00Z"), [path()]) == {YOUNG.key}
    assert losers(claims, OLD, YOUNG) == {"old": "young"}


def test_what_does_not_change_wakes_nobody_else() -> None:
    claims = Claims()
    claims.put(OLD, [path()])
    claims.put(YOUNG, [path()])
    assert claims.put(YOUNG, [path()]) == set()
    assert claims.drop(YOUNG.key) == set()
    assert claims.drop(YOUNG.key) == set()
    assert claims.conflicts(YOUNG.key) == ()


PATHS = ["/a", "/b", "/a/b", "/a/b/c", "/a/bc"]
HISTORY = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 2),
        st.lists(st.builds(path, st.sampled_from(PATHS), st.sampled_from(["", "x", "y"])), max_size=2),
        st.booleans(),
    ),
    max_size=25,
)

_State = dict[Claimant, tuple[frozenset[Claim], frozenset[Claim]]]


def _overlap(who: Claimant, claim: Claim, other: Claimant, theirs: Claim) -> bool:
    if who == other or (claim.gateway, claim.kind) != (theirs.gateway, theirs.kind):
        return False
    if claim.section and theirs.section and claim.section != theirs.section:
        return False
    if claim.value == theirs.value:
        return True
    below = claim.value.startswith(f"{theirs.value}/") or theirs.value.startswith(f"{claim.value}/")
    return claim.kind is ClaimKind.PATH and below and who.namespace != other.namespace


def _by_definition(all_: _State) -> dict[tuple[Claimant, Claim], Claimant]:
    """What is served first, then by age: each holds what nobody before it holds."""
    ordered = sorted((claim not in served, who, claim) for who, (its, served) in all_.items() for claim in its)
    held: list[tuple[Claimant, Claim]] = []
    lost = {}
    for _, who, claim in ordered:
        against = next((other for other, theirs in held if _overlap(who, claim, other, theirs)), None)
        if against is None:
            held.append((who, claim))
        else:
            lost[who, claim] = against
    return lost


@given(HISTORY)
@settings(max_examples=300)
def test_any_history_ends_as_the_definition_and_as_after_a_restart(
    history: list[tuple[int, int, list[Claim], bool]],
) -> None:
    claims, now = Claims(), _State()
    seen: dict[ObjectKey, tuple[ClaimConflict, ...]] = {}
    for number, age, wanted, serves in history:
        who = Claimant(f"2026-01-0{age + 1}T00:00:00Z", f"ns-{number % 3}", f"d{number}")
        # A deployment has one target, hence one section for all its claims.
        its = frozenset(claim._replace(section=wanted[0].section) for claim in wanted)
        served = its if serves else frozenset[Claim]()
        before = dict(seen)
        woken = claims.put(who, its, served)
        now = {other: held for other, held in now.items() if other.key != who.key}
        if its:
            now[who] = its, served
        seen = {other.key: claims.conflicts(other.key) for other in now}
        changed = {key for key in seen if key != who.key and seen[key] != before.get(key)}
        assert changed <= woken
        assert who.key not in woken
    expected = _by_definition(now)
    found = {(who, lost.claim): lost.holder for who in now for lost in claims.conflicts(who.key)}
    assert found == {key: holder.key for key, holder in expected.items()}
    again = Claims()
    order = [(who, *held) for who, held in now.items()]
    random.Random(7).shuffle(order)
    again.rebuild(order)
    assert {who: again.conflicts(who.key) for who in now} == {who: claims.conflicts(who.key) for who in now}
    for who in now:
        claims.drop(who.key)
    assert (len(claims), claims._roots) == (0, {})


def test_any_deployment_gives_a_claimant() -> None:
    assert claimant_of({}) == Claimant("~", "", "")
    assert claimant_of({"metadata": {"creationTimestamp": 3, "name": [], "namespace": "a"}}) == Claimant("~", "a", "")
