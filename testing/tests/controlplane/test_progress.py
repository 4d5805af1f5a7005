"""Progress without a terminal, and how a process ended."""

import pytest

from airunway_testing.controlplane.processes import ending_of
from airunway_testing.controlplane.progress import Meter


def test_lines_say_how_far_and_how_long() -> None:
    lines: list[str] = []
    with Meter("compiling", unit="packages", report=lines.append, terminal=False, interval=0) as meter:
        meter.show(5, of=0)
        meter.show(50, of=200)
    assert [line.rsplit(",", 1)[0] for line in lines] == [
        "compiling: 5 packages",
        "compiling: 25 % (50 of 200 packages)",
    ]


def test_what_is_quick_says_nothing() -> None:
    lines: list[str] = []
    with Meter("compiling", unit="packages", report=lines.append, terminal=False, interval=3600) as meter:
        meter.show(50, of=200)
    assert lines == []


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (0, "ended with exit code 0"),
        (137, "ended with exit code 137"),
        (-9, "was ended by signal 9 (SIGKILL)"),
        (-99, "was ended by signal 99"),
    ],
)
def test_the_signal_that_ended_a_process_has_its_name(code: int, ending: str) -> None:
    assert ending_of(code) == ending
