"""Newer values of a template are granted in waves: which deployments are under way, done, and next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airunway.controller.waves import Member, TemplateWaves, Wave
from airunway.resource import ObjectKey, Resource, dig, is_true, key_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PATIENCE = timedelta(minutes=15)


def deployment(name: str, *, recorded: str = "old", in_effect: str = "old", ready: bool = True) -> Resource:
    conditions = [{"type": "Served", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-11-20T00:00:00Z"},
        "status": {
            "effectiveTemplate": {"hash": recorded},
            "provider": {"templateHash": in_effect},
            "conditions": conditions,
        },
    }


def member(found: Resource, at: datetime | None) -> Member:
    failed = dig(found, "status", "phase") == "Failed"
    return Member(key=key_of(found), created="", granted_at=at, ready=is_true(found, "Ready"), failed=failed)


def turn(
    waves: TemplateWaves,
    *users: Resource,
    limit: int = 1,
    together: frozenset[ObjectKey] = frozenset(),
    now: datetime = NOW,
) -> Wave:
    waves.under_way(users)
    return waves.next(users, member_of=member, together=together, limit=limit, patience=PATIENCE, now=now)


def granted(wave: Wave) -> list[str]:
    return sorted(key.name for key in wave.granted)


def test_one_after_the_other_takes_the_newest_values_and_is_done_when_ready_with_them() -> None:
    waves = TemplateWaves(lambda _: "new")
    b = deployment("b")
    assert granted(turn(waves, deployment("a"), b)) == ["a"]
    assert waves.is_granted(deployment("a"))
    assert not waves.is_granted(b)
    for under_way in (
        deployment("a"),
        deployment("a", recorded="new"),
        deployment("a", recorded="new", ready=False),
        deployment("a", recorded="new", in_effect="new", ready=False),
    ):
        assert granted(turn(waves, under_way, b)) == []
    done = deployment("a", recorded="new", in_effect="new")
    assert granted(turn(waves, done, b)) == ["b"]
    assert not waves.is_granted(done)
    assert granted(turn(waves, done, deployment("b", recorded="new", in_effect="new"))) == []


def test_as_many_as_allowed_and_those_that_restart_anyway_in_the_same_restart() -> None:
    waves = TemplateWaves(lambda _: "new")
    a, b, c = (deployment(name) for name in "abc")
    assert granted(turn(waves, a, b, c, limit=2)) == ["a", "b"]
    waves = TemplateWaves(lambda _: "new")
    assert granted(turn(waves, a, b, c, limit=0, together=frozenset({key_of(c)}))) == []
    assert [waves.is_granted(each) for each in (a, b, c)] == [False, False, True]


def test_one_that_takes_too_long_or_fails_stops_the_wave() -> None:
    waves = TemplateWaves(lambda _: "new")
    turn(waves, deployment("a"))
    late = deployment("a", recorded="new", in_effect="new", ready=False)
    wave = turn(waves, late, deployment("b"), now=NOW + PATIENCE)
    assert (wave.stalled_by, wave.failed, granted(wave)) == (ObjectKey("team", "a"), False, [])
    failed = {**late, "status": {**late["status"], "phase": "Failed"}}
    wave = turn(waves, failed, deployment("b"))
    assert (wave.stalled_by, wave.failed) == (ObjectKey("team", "a"), True)


def test_a_template_that_is_gone_or_the_same_grants_nothing() -> None:
    assert granted(turn(TemplateWaves(lambda _: ""), deployment("a"))) == []
    assert granted(turn(TemplateWaves(lambda _: "old"), deployment("a"))) == []


def test_a_second_edit_reaches_the_one_under_way_before_the_next_deployment() -> None:
    newest = ["new"]
    waves = TemplateWaves(lambda _: newest[0])
    turn(waves, deployment("a"), deployment("b"))
    newest[0] = "newer"
    taken = deployment("a", recorded="new", in_effect="new")
    assert granted(turn(waves, taken, deployment("b"))) == []
    assert waves.is_granted(taken), "it takes the newer values, too"
    assert granted(turn(waves, deployment("a", recorded="newer", in_effect="newer"), deployment("b"))) == ["b"]


def test_what_no_config_grants_any_more_keeps_what_it_has() -> None:
    allowed = {"a", "b"}
    waves = TemplateWaves(lambda _: "new", allows=lambda found: key_of(found).name in allowed)
    turn(waves, deployment("a"))
    assert waves.is_granted(deployment("a"))
    allowed.remove("a")  # it follows another config now, or none
    assert not waves.is_granted(deployment("a"))
    under_way = [deployment(name, recorded="new", in_effect="old") for name in "ab"]
    waves.begin(under_way, now=NOW)
    assert [waves.is_granted(each) for each in under_way] == [False, True]
    allowed.add("a")
    assert not waves.is_granted(under_way[0]), "the earlier leader changed it because its own spec was edited"


def test_a_new_leader_goes_on_with_what_is_under_way() -> None:
    waves = TemplateWaves(lambda _: "new")
    a, b = deployment("a", recorded="new", in_effect="old"), deployment("b")
    waves.begin([a, b], now=NOW)
    assert granted(turn(waves, a, b)) == []
    assert granted(turn(waves, deployment("a", recorded="new", in_effect="new"), b)) == ["b"]
    waves.forget(key_of(b))
    assert not waves.is_granted(b)
