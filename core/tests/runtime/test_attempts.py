"""What has just failed is tried again when its time has come, or when what it was about has changed."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable

import pytest
from tests.support.clocks import Seconds

from airunway.kube import ApiError, ErrorKind
from airunway.owned.writer import Refused
from airunway.runtime.memory import CAP, SCHEMA_TRIES, Attempts, RetryKey, without_numbers

KEY = RetryKey(uid="u", generation=1, wanted=("apply", "Workspace 'gemma' abc"))


def attempts(time: Seconds) -> Attempts[str]:
    return Attempts(clock=time, rng=random.Random(1))


def test_h2_a_failure_stands_until_its_time_has_come_and_each_one_longer() -> None:
    time = Seconds()
    tries, pauses = attempts(time), []
    for _ in range(16):
        left = tries.failed(KEY, failure="no", text="no").left
        assert left is not None
        assert tries.failed_try(KEY) is not None
        time.now += left - 0.001
        assert tries.failed_try(KEY) is not None
        time.now += 0.002
        assert tries.failed_try(KEY) is None
        pauses.append(left)
    assert pauses == sorted(pauses)
    assert pauses[-1] == CAP


def test_h2_another_spec_wish_or_upstream_is_tried_at_once_and_begins_anew() -> None:
    tries = attempts(Seconds())
    for _ in range(5):
        tries.failed(KEY, failure="no", text="no")
    for other in (
        KEY._replace(uid="other"),
        KEY._replace(generation=2),
        KEY._replace(wanted=("plan",)),
        KEY._replace(upstream=("another schema",)),
    ):
        assert tries.failed_try(other) is None
    assert tries.failed(KEY._replace(generation=2), failure="no", text="no").attempt == 1


def test_h2_the_first_of_words_that_differ_in_numbers_only_stays() -> None:
    tries = attempts(Seconds())
    tries.failed(KEY, failure="first", text="read tcp 10.0.0.4:41822->10.0.0.9:443: reset, id 7f3a91bc")
    again = tries.failed(KEY, failure="second", text="read tcp 10.0.0.4:50011->10.0.0.9:443: reset, id deadbeef")
    assert (again.failure, again.attempt) == ("first", 2)
    assert tries.failed(KEY, failure="third", text="connection refused").failure == "third"


class Held:
    """What a pass has in hand."""


@pytest.mark.parametrize(
    "failure",
    [
        lambda: Refused({"kind": "Thing", "spec": "x" * 100}, "no", ErrorKind.INVALID),
        lambda: ApiError(403, "Forbidden", "no"),
    ],
)
def test_h1_a_failure_that_is_remembered_keeps_nothing_of_its_pass(failure: Callable[[], Exception]) -> None:
    """Thousands may stand at once, and the frames of each hold a whole deployment and all that it comes to."""
    tries: Attempts[Exception] = Attempts(clock=Seconds(), rng=random.Random(1))

    def one_pass(wanted: Held) -> weakref.ref[Held]:
        try:
            raise failure() from KeyError(wanted)
        except (Refused, ApiError) as no:
            tries.failed(KEY, failure=no, text=str(no))
        return weakref.ref(wanted)

    held = one_pass(Held())
    gc.collect()
    assert held() is None
    assert tries.last is not None
    kept = tries.last.failure
    assert (type(kept), str(kept), kept.__dict__) == (type(failure()), str(failure()), failure().__dict__)
    assert "spec" not in str(kept.__dict__)


def test_what_the_schema_refuses_is_tried_a_few_times_and_then_with_another_schema_only() -> None:
    time = Seconds()
    tries = attempts(time)
    for _ in range(SCHEMA_TRIES):
        failed_try = tries.failed(KEY, failure="no", text="no", lasts=True)
        time.now += 10_000.0
    assert failed_try.left is None
    assert tries.failed_try(KEY) is not None
    assert tries.failed_try(KEY._replace(upstream=("another schema",))) is None


def test_the_server_s_own_pause_counts() -> None:
    left = attempts(Seconds()).failed(KEY, failure="later", text="later", at_least=17.0).left
    assert left is not None
    assert left >= 17.0


def test_a_long_text_is_compared_in_time_that_grows_with_its_length() -> None:
    assert without_numbers("a-" * 500_000) == "a-" * 500_000
