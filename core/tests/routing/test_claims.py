"""Who holds a path or a model name, after any history and after a restart."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.resource import ObjectKey
from airunway.routing.claims import Claim, Claimant, ClaimKind, Claims, Conflict, claimant_of

GW = ObjectKey("infra", "gw")


def path(value: str = "/chat", section: str = "", gateway: ObjectKey = GW) -> Claim:
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


def test_r8_a_prefix_of_another_path_is_no_conflict() -> None:
    claims = Claims()
    claims.put(OLD, [path("/a")])
    claims.put(YOUNG, [path("/a/b")])
    assert losers(claims, OLD, YOUNG) == {}


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


HISTORY = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 2),
        st.lists(st.builds(path, st.sampled_from(["/a", "/b"]), st.sampled_from(["", "x", "y"])), max_size=2),
    ),
    max_size=25,
)


def _by_definition(all_: dict[Claimant, frozenset[Claim]]) -> dict[tuple[Claimant, Claim], Claimant]:
    """The rule as the specification has it: the oldest first, each keeps what no older holder overlaps with."""
    held: list[tuple[Claimant, Claim]] = []
    lost = {}
    for who in sorted(all_):
        for claim in sorted(all_[who]):
            against = next(
                (
                    other
                    for other, its in held
                    if (its.gateway, its.kind, its.value) == (claim.gateway, claim.kind, claim.value)
                    and ("" in (its.section, claim.section) or its.section == claim.section)
                    and other != who
                ),
                None,
            )
            if against is None:
                held.append((who, claim))
            else:
                lost[who, claim] = against
    return lost


@given(HISTORY)
def test_any_history_ends_as_the_definition_and_as_after_a_restart(
    history: list[tuple[int, int, list[Claim]]],
) -> None:
    claims = Claims()
    now: dict[Claimant, frozenset[Claim]] = {}
    seen: dict[ObjectKey, tuple[Conflict, ...]] = {}
    for number, age, wanted in history:
        who = Claimant(f"2026-01-0{age + 1}T00:00:00Z", "ml", f"d{number}")
        # A deployment has one target, hence one section for all its claims.
        its = frozenset(claim._replace(section=wanted[0].section) for claim in wanted)
        before = dict(seen)
        woken = claims.put(who, its)
        now = {other: held for other, held in now.items() if other.key != who.key}
        if its:
            now[who] = its
        seen = {other.key: claims.conflicts(other.key) for other in now}
        changed = {key for key in seen if key != who.key and seen[key] != before.get(key)}
        assert changed <= woken
        assert who.key not in woken
    expected = _by_definition(now)
    found = {(who, lost.claim): lost.holder for who in now for lost in claims.conflicts(who.key)}
    assert found == {key: holder.key for key, holder in expected.items()}
    again = Claims()
    order = list(now.items())
    random.Random(7).shuffle(order)
    again.rebuild(order)
    assert {who: again.conflicts(who.key) for who in now} == {who: claims.conflicts(who.key) for who in now}


def test_any_deployment_gives_a_claimant() -> None:
    assert claimant_of({}) == Claimant("~", "", "")
    assert claimant_of({"metadata": {"creationTimestamp": 3, "name": [], "namespace": "a"}}) == Claimant("~", "a", "")
