"""Names within their limits, and readers that take any JSON."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.sdk import conditions, derived_name, too_long
from airunway.status.reasons import REASONS

BASES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,80}[a-z0-9])?", fullmatch=True)


@given(BASES, st.sampled_from(["", "epp", "prefill"]), st.integers(20, 63))
def test_a_derived_name_fits_and_is_one(base: str, suffix: str, limit: int) -> None:
    name = derived_name(base, suffix=suffix, limit=limit)
    assert len(name) <= limit
    assert name[0].isalnum()
    assert name[-1].isalnum()
    assert name.endswith(suffix)
    assert derived_name(base, suffix=suffix, limit=limit) == name
    whole = f"{base}-{suffix}" if suffix else base
    assert (name == whole) == (len(whole) <= limit)


@given(BASES, BASES)
def test_long_names_that_differ_only_at_their_ends_stay_apart(first: str, second: str) -> None:
    names = {derived_name("x" * 60 + end, suffix="epp") for end in (first, second)}
    assert len(names) == len({first, second})


def test_a_suffix_that_leaves_no_room_is_an_error_of_the_provider() -> None:
    with pytest.raises(ValueError, match="no name of at most 12 characters can end in 'prefill'"):
        derived_name("x" * 60, suffix="prefill", limit=12)


def test_a_name_that_is_too_long_says_what_it_leaves_no_room_for() -> None:
    assert too_long("x" * 49, limit=49, what="a LeaderWorkerSet") is None
    finding = too_long("x" * 50, limit=49, what="a LeaderWorkerSet")
    assert finding is not None
    assert (finding.path, finding.reason) == ("metadata.name", "NameTooLong")
    assert "has 50 characters; a LeaderWorkerSet leaves room for 49" in finding.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("ab") | st.text(max_size=6), below),
    max_leaves=10,
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"generation": JSON}) | JSON,
        "status": st.fixed_dictionaries(
            {},
            optional={
                "observedGeneration": st.integers(0, 3) | JSON,
                "conditions": JSON
                | st.lists(
                    st.fixed_dictionaries({}, optional={"type": st.just("Ready") | JSON, "status": JSON}) | JSON
                ),
            },
        )
        | JSON,
    },
)


@given(STATUS | JSON, st.lists(st.sampled_from(["status", "a", "b"]), max_size=3))
def test_every_reader_has_an_answer_for_any_json(obj: Any, path: list[str]) -> None:
    assert isinstance(conditions.text(obj, *path), str)
    count = conditions.number(obj, *path, default=7)
    assert isinstance(count, int)
    assert not isinstance(count, bool)
    assert all(isinstance(entry, dict) for entry in conditions.records(obj, *path))
    assert isinstance(conditions.condition(obj, "Ready"), dict)
    assert conditions.truth(obj, "Ready") in (True, False, None)
    assert isinstance(conditions.is_observed(obj), bool)
    assert all(isinstance(entry, dict) for entry in conditions.mapping(obj, *path).values())
    moment = conditions.moment(obj, *path)
    assert moment is None or moment.tzinfo is not None


@given(st.text(max_size=200))
def test_a_meaning_is_a_reason_of_the_registry_or_what_was_given(text: str) -> None:
    tables = (
        conditions.IMAGE_PULL,
        conditions.SCHEDULING,
        conditions.CREATION,
        conditions.MOUNT,
        conditions.PROVISIONING,
        conditions.ENGINE,
    )
    assert conditions.meaning(text, *tables, otherwise="Unknown") in REASONS
    reason, line = conditions.explained(text, *tables, otherwise="Unknown")
    assert reason == conditions.meaning(text, *tables, otherwise="Unknown")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("failed to resolve reference: unexpected status: 401 Unauthorized", "ImagePullAuthFailure"),
        ("manifest unknown", "ImageNotFound"),
        ("nothing that anybody knows", "Otherwise"),
    ],
)
def test_texts_of_registries_have_one_table(text: str, reason: str) -> None:
    assert conditions.meaning(text, conditions.IMAGE_PULL, otherwise="Otherwise") == reason


def test_of_a_traceback_the_line_that_matters_is_told_or_the_last_one() -> None:
    gated = "Traceback\n  File x\nAccess to model o/m is restricted.\nValueError: see above\n\n"
    assert conditions.explained(gated, conditions.ENGINE) == ("GatedModel", "Access to model o/m is restricted")
    odd = "Traceback\n  File x\nValueError: odd, token=abcdefgh12345678\n\n"
    reason, line = conditions.explained(odd, conditions.ENGINE, otherwise="UpstreamFailed")
    assert (reason, line.partition(",")[0]) == ("UpstreamFailed", "ValueError: odd")
    assert "abcdefgh" not in line


def test_the_same_traceback_of_many_workers_is_looked_through_once() -> None:
    """Where each is looked through, the reading of one status takes longer than a plugin has."""
    frames = "\n".join(
        f'  File "/ray/serve/replica_{n}.py", line {n}, in call\n    return work({n})' for n in range(200)
    )
    one = f"Traceback (most recent call last):\n{frames}\nValueError: odd\n"
    begun = thread_time()
    assert conditions.explained(one * 64, conditions.ENGINE, otherwise="UpstreamFailed") == (
        "UpstreamFailed",
        "ValueError: odd",
    )
    assert thread_time() - begun < 0.1
    argument = "TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'x'"
    told = conditions.explained(f"{argument}\n{one * 64}", conditions.ENGINE)
    assert told == ("BadArguments", argument), "however far it is from the end"


def test_of_a_long_message_the_last_line_is_told_as_of_a_short_one() -> None:
    lines = [f"line {n % 7}" for n in range(1000)]
    assert conditions.explained("\n".join(lines), conditions.ENGINE, otherwise="Unknown") == ("Unknown", lines[-1])


@pytest.mark.parametrize(
    ("generation", "seen", "observed"), [(2, 2, True), (2, 1, False), (2, None, True), (None, 1, True)]
)
def test_a_missing_number_proves_nothing(generation: int | None, seen: int | None, observed: bool) -> None:
    obj = {"metadata": {"generation": generation}, "status": {"observedGeneration": seen, "other": 5}}
    assert conditions.is_observed(obj) is observed
    assert conditions.is_observed(obj, "status", "other")
