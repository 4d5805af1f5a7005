"""The one rule of what a deployment runs with: each part of a revision in each situation, and what waits, by name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.resource import Resource
from airunway.revisions.revision import (
    CACHE,
    GATEWAY,
    PARTS,
    PROVIDER,
    SETTINGS,
    TEMPLATE,
    Standing,
    Wanted,
    hash_of,
    is_in_effect,
    next_revision,
    pending_parts,
    revision_in,
    waits_for,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SERVES = Standing(served=True, made=True)
OLD: dict[str, Resource] = {
    TEMPLATE: {"ref": {"name": "fast"}, "hash": "t1", "asked": "a", "spec": {"engine": {"args": {"a": "1"}}}},
    SETTINGS: {"config": "default", "configHash": "c1", "env": [{"name": "A", "value": "secret"}]},
    CACHE: {"artifact": "weights", "claim": "one", "mountPath": "/models"},
    GATEWAY: {"name": "edge", "namespace": "infra", "usesPool": True},
    PROVIDER: {"name": "toy", "transformers": {"Thing.toy": "v1"}, "settings": {"image": "i:1"}},
}
NEW: dict[str, Resource] = {
    TEMPLATE: {**OLD[TEMPLATE], "hash": "t2", "spec": {"engine": {"args": {"a": "2"}, "type": "vllm"}}},
    SETTINGS: {**OLD[SETTINGS], "configHash": "c2", "env": [{"name": "B", "value": "secret"}]},
    CACHE: {**OLD[CACHE], "claim": "two"},
    GATEWAY: {**OLD[GATEWAY], "name": "other"},
    PROVIDER: {**OLD[PROVIDER], "transformers": {"Thing.toy": "v2"}},
}


def wanted(
    *newer: str,
    undecided: Collection[str] = (),
    unusable: Collection[str] = (),
    taken_for: str = "spec",
    provider_: str = "toy",
    **parts: Any,
) -> Wanted:
    """What the parts would be now: those in `newer` are the new ones."""
    found = {part: NEW[part] if part in newer else OLD[part] for part in PARTS if part not in undecided} | parts
    return Wanted(
        taken_for=taken_for,
        provider=found.get(PROVIDER, {}).get("name", provider_),
        parts={part: value for part, value in found.items() if value},
        undecided=frozenset(undecided),
        unusable=frozenset(unusable),
    )


def then(current: Resource, new: Wanted, standing: Standing = SERVES, *, now: datetime = NOW) -> Resource:
    """The next revision, which is stable: the same wish changes nothing of it any more."""
    made = next_revision(current, new, standing, now=now)
    again = next_revision(made, new, standing, now=now + timedelta(hours=1))
    assert again == made, "a second pass writes nothing"
    assert made.get("hash") in (None, hash_of(made))
    return made


CURRENT = next_revision({}, wanted(), Standing(served=False), now=NOW)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("situation", "current", "change", "standing", "taken"),
    [
        ("no current one", {}, {}, Standing(served=False), PARTS),
        ("serves", CURRENT, {}, SERVES, ()),
        ("the user changed the spec", CURRENT, {"taken_for": "other"}, SERVES, (TEMPLATE, SETTINGS, CACHE, PROVIDER)),
        ("never served", CURRENT, {}, Standing(served=False), PARTS),
        ("an object exists and never served", CURRENT, {}, Standing(served=False, made=True),
         (TEMPLATE, SETTINGS, CACHE, PROVIDER)),
        ("no pod is ready", CURRENT, {}, replace(SERVES, stranded=True), (CACHE,)),
        ("another provider", CURRENT, {"provider": {**NEW[PROVIDER], "name": "other"}}, SERVES, PARTS),
    ],
)  # fmt: skip
def test_each_part_is_kept_or_taken(
    part: str, situation: str, current: Resource, change: Any, standing: Standing, taken: Collection[str]
) -> None:
    new = wanted(part, **change)
    made = then(current, new, standing)
    assert made[part] == (new.parts[part] if part in taken else OLD[part]), situation
    for other in set(PARTS) - {part, PROVIDER}:
        assert made[other] == OLD[other], "another part does not move"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("granted", PARTS)
def test_a_wave_brings_the_part_that_it_grants(part: str, granted: str) -> None:
    made = then(CURRENT, wanted(part), replace(SERVES, granted={granted}))
    is_taken = part == granted and part != GATEWAY
    assert made[part] == (NEW if is_taken else OLD)[part]
    assert ("pending" in made) == (part in (TEMPLATE, SETTINGS, CACHE) and not is_taken)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("taken_for", ["spec", "other"])
@pytest.mark.parametrize("standing", [SERVES, Standing(served=False), replace(SERVES, stranded=True, granted=PARTS)])
def test_what_cannot_be_used_keeps_its_value_whatever_else_is_taken(
    part: str, taken_for: str, standing: Standing
) -> None:
    made = then(CURRENT, wanted(part, unusable={part}, taken_for=taken_for), standing)
    assert (made[part], made["takenFor"], "pending" in made) == (OLD[part], taken_for, False)
    assert next_revision({}, wanted(part, unusable={part}), standing, now=NOW) == {}, "nothing to keep: nothing is made"


@pytest.mark.parametrize("part", [CACHE, GATEWAY, PROVIDER])
def test_nothing_is_whole_before_each_part_is_decided(part: str) -> None:
    undecided = wanted(undecided={part})
    first = then({}, undecided, Standing(served=False))
    assert ("hash" in first, first["pending"]) == (False, {"waitsFor": part, "parts": [part]})
    assert waits_for({"status": {"revision": first}}) == part
    assert then(first, wanted(), Standing(served=False)) == CURRENT
    assert then(CURRENT, undecided) == CURRENT, "what serves keeps what it has"
    if part == GATEWAY:
        return  # the next test has it
    changed = then(CURRENT, replace(undecided, taken_for="other"))
    assert "hash" not in changed, "a changed spec waits"
    whole = then(changed, wanted(part, taken_for="other"))
    assert (whole[part], whole["takenFor"]) == (NEW[part], "other")


def test_a_changed_spec_that_waits_keeps_what_it_took_with_the_change() -> None:
    changed = then(CURRENT, wanted(SETTINGS, undecided={CACHE}, taken_for="other"))
    newest = {**NEW[SETTINGS], "env": [{"name": "C", "value": "1"}]}
    made = then(changed, wanted(CACHE, taken_for="other", settings=newest))
    assert (made[SETTINGS], made[CACHE]) == (NEW[SETTINGS], NEW[CACHE])
    assert made["pending"]["changes"] == ["env B, C"]


def test_a_gateway_is_decided_once_for_as_long_as_the_object_lives() -> None:
    without = then(CURRENT, wanted(gateway=None, taken_for="other"))
    assert GATEWAY not in without, "the user asks for no route any more"
    none = next_revision({}, wanted(gateway=None), Standing(served=False), now=NOW)
    assert GATEWAY not in then(none, wanted()), "a Gateway that comes changes no object"
    assert GATEWAY not in then(none, wanted(taken_for="other"))
    waits = then(none, wanted(undecided={CACHE}, taken_for="other"))
    assert GATEWAY not in then(waits, wanted(taken_for="other")), "nor while the changed spec waits for its weights"


# ----------------------------------------------------------------------------------------------------- what waits


@pytest.mark.parametrize(
    ("newer", "change", "expected"),
    [
        (SETTINGS, {}, ["env A, B"]),
        (SETTINGS, {"settings": {**OLD[SETTINGS], "token": {"name": "hf", "key": "HF_TOKEN"}}},
         ["the Hugging Face token"]),
        (SETTINGS, {"settings": {**OLD[SETTINGS], "labels": {"team": "a"}, "imagePullSecrets": ["s"]}},
         ["imagePullSecrets", "labels team"]),
        (SETTINGS, {"settings": {**OLD[SETTINGS], "runtimeClassName": "kata"}}, ["runtimeClassName"]),
        (TEMPLATE, {}, ["template engine.args, engine.type"]),
        (CACHE, {}, ["claim two"]),
        (CACHE, {"cache": {**OLD[CACHE], "mountPath": "/x"}}, ["the place of the weights"]),
        (CACHE, {"cache": None}, ["claim none"]),
    ],
)  # fmt: skip
def test_what_waits_is_named_and_never_its_value(newer: str, change: Any, expected: list[str]) -> None:
    made = then(CURRENT, wanted(newer, **change))
    pending = made["pending"]
    assert (pending["parts"], pending["changes"], pending["waitsFor"]) == ([newer], expected, "change")
    assert "secret" not in str(pending)
    assert made["hash"] == CURRENT["hash"]
    taken = then(made, wanted(newer, **change), replace(SERVES, granted={newer}))
    assert taken["hash"] == pending["hash"] != made["hash"], "it says which revision would be taken"
    assert then(made, wanted()) == CURRENT, "an edit that is taken back leaves nothing"


def test_pending_has_the_time_of_the_first_edit_and_says_whether_a_wave_brings_it() -> None:
    first = then(CURRENT, wanted(SETTINGS), replace(SERVES, rolls_out={SETTINGS}))
    assert first["pending"]["waitsFor"] == "rollout"
    both = then(first, wanted(SETTINGS, CACHE), now=NOW + timedelta(hours=1))
    assert (both["pending"]["since"], both["pending"]["parts"]) == (first["pending"]["since"], [SETTINGS, CACHE])
    assert pending_parts({"status": {"revision": both}}) == {SETTINGS, CACHE}


@pytest.mark.parametrize("part", [GATEWAY, PROVIDER])
def test_gateway_and_provider_never_stand_in_pending(part: str) -> None:
    assert then(CURRENT, wanted(part)) == CURRENT


def test_labels_that_only_say_where_a_part_comes_from_are_no_newer_part() -> None:
    other = {**OLD[SETTINGS], "configHash": "c9"}
    record = {**OLD[TEMPLATE], "hash": "t9", "asked": "b", "ref": {"name": "slow"}}
    for granted in ((), PARTS):
        assert then(CURRENT, wanted(settings=other, template=record), replace(SERVES, granted=granted)) == CURRENT


# ------------------------------------------------------------------------------------------------------ edge cases


def test_a_config_that_the_user_names_instead_is_taken_and_one_that_is_edited_meanwhile_is_not() -> None:
    made = then(CURRENT, wanted(TEMPLATE, settings={**NEW[SETTINGS], "config": "gold"}))
    assert made[SETTINGS] == {**NEW[SETTINGS], "config": "gold"}
    assert (made[TEMPLATE], made["pending"]["parts"]) == (OLD[TEMPLATE], [TEMPLATE])


def test_a_default_config_that_is_deleted_leaves_what_it_gave() -> None:
    made = then(CURRENT, wanted(settings={"config": "default"}))
    assert (made[SETTINGS], made["pending"]["changes"]) == (OLD[SETTINGS], ["env A"])


def test_a_provider_that_has_said_nothing_yet_gets_no_revision_of_the_one_before_it() -> None:
    for standing in (SERVES, Standing(served=False)):
        made = then(CURRENT, wanted(undecided={PROVIDER}, provider_="other"), standing)
        assert waits_for({"status": {"revision": made}}) == PROVIDER
        other = {**NEW[PROVIDER], "name": "other"}
        assert then(made, wanted(SETTINGS, provider=other), standing)[PROVIDER] == other


def test_other_values_of_a_template_wait_until_their_claim_is_decided() -> None:
    for standing in (Standing(served=False), replace(SERVES, granted={TEMPLATE})):
        made = then(CURRENT, wanted(TEMPLATE, undecided={CACHE}), standing)
        assert ("hash" in made, made[TEMPLATE], waits_for({"status": {"revision": made}})) == (
            False, NEW[TEMPLATE], CACHE,
        )  # fmt: skip
        assert then(made, wanted(TEMPLATE, CACHE), standing)[CACHE] == NEW[CACHE]


@pytest.mark.parametrize("lost", [{}, {**CURRENT, "hash": "0" * 16}, {**CURRENT, "settings": NEW[SETTINGS]}])
def test_a_status_that_is_lost_or_written_by_another_is_made_again(lost: Resource) -> None:
    deployment: Resource = {"status": {"revision": lost}}
    assert revision_in(deployment) == {}
    assert then(revision_in(deployment), wanted()) == CURRENT, "the same parts have the same hash"


def test_a_part_of_a_newer_release_stays_in_the_hash() -> None:
    """A core of the release before reads a revision with a part that it does not know as one that it has not made."""
    newer: Resource = {**CURRENT, "autoscaling": {"name": "hpa"}}
    newer["hash"] = hash_of(newer)
    assert revision_in({"status": {"revision": newer}}) == newer
    assert next_revision(newer, wanted(), SERVES, now=NOW) == CURRENT


def test_a_revision_is_in_effect_once_the_provider_has_written_it() -> None:
    status: Resource = {"revision": CURRENT, "provider": {"revision": CURRENT["hash"]}}
    assert is_in_effect({"status": status})
    assert not is_in_effect({"status": {**status, "provider": {"revision": "another"}}})
    assert not is_in_effect({"status": {"revision": {"pending": {"waitsFor": CACHE}}, "provider": {}}})
