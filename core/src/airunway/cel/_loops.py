"""Logic and loops of CEL: which errors they ignore or raise, and the limit on loop steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from airunway.cel._errors import CelEvaluationError
from airunway.cel._semantics import checked

__all__ = ["LOOPS", "Frame", "Later", "Run", "bound", "either", "iterate", "truth", "variable"]

_MAX_STEPS = 10_000


class BudgetExceededError(CelEvaluationError):
    """All loop steps are used up. Unlike other errors, ``||`` and ``exists`` do not ignore it."""


class Frame:
    """The state of one evaluation: the values of variables, and the steps of all loops together."""

    __slots__ = ("taken", "values")

    def __init__(self, values: Mapping[str, object], taken: list[int] | None = None) -> None:
        self.values = dict(values)
        self.taken = [0] if taken is None else taken

    def step(self) -> None:
        self.taken[0] += 1
        if self.taken[0] > _MAX_STEPS:
            raise BudgetExceededError(f"too expensive: more than {_MAX_STEPS} loop steps")


Run: TypeAlias = Callable[[Frame], Any]


def truth(value: Any, name: str) -> bool:
    """Returns `value` as a condition. Raises CelEvaluationError if it is not a bool."""
    if not isinstance(value, bool):
        raise CelEvaluationError(f"no matching overload for {name}: the condition is not a bool")
    return value


def either(left: Callable[[], Any], right: Callable[[], Any], decisive: bool) -> bool:
    """``||`` (decisive True) or ``&&`` (decisive False): a decisive side wins over an error on the other side."""
    problem: CelEvaluationError | None = None
    for side in (left, right):
        try:
            if truth(side(), "logic") is decisive:
                return decisive
        except BudgetExceededError:
            raise
        except CelEvaluationError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return not decisive


class Later:
    """The value of a ``cel.bind``, computed at its first use: an error in an unused value does not matter."""

    __slots__ = ("_compute", "_value")

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def value(self) -> Any:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value


def variable(frame: Frame, name: str) -> Any:
    """Returns the value of a variable. Raises CelEvaluationError if it has none."""
    if name not in frame.values:
        raise CelEvaluationError(f"no value for {name}")
    value = frame.values[name]
    return checked(value.value() if isinstance(value, Later) else value)


def bound(frame: Frame, name: str, value: Any) -> Frame:
    """Returns `frame` with one more variable."""
    return Frame({**frame.values, name: value}, frame.taken)


def iterate(frame: Frame, items: Any, name: str) -> Iterator[tuple[Frame, Any]]:
    """Yields for each item of a list (key of a map) the frame with the item as variable `name`, and the item."""
    if not isinstance(items, list | dict):
        raise CelEvaluationError("a loop needs a list or a map")
    for item in items:
        frame.step()
        yield bound(frame, name, item), item


def _fold(decisive: bool) -> Callable[..., bool]:
    def run(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> bool:
        problem: CelEvaluationError | None = None
        for frame, _ in steps:
            try:
                if truth(bodies[0](frame), "logic") is decisive:
                    return decisive
            except BudgetExceededError:
                raise
            except CelEvaluationError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return not decisive

    return run


def _exists_one(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> bool:
    return sum(truth(bodies[0](frame), "exists_one") for frame, _ in steps) == 1


def _filter(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> list[Any]:
    return [item for frame, item in steps if truth(bodies[0](frame), "filter")]


def _map(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> list[Any]:
    if len(bodies) == 1:
        return [bodies[0](frame) for frame, _ in steps]
    return [bodies[1](frame) for frame, _ in steps if truth(bodies[0](frame), "map")]


LOOPS: dict[str, Callable[..., Any]] = {
    "all": _fold(False),
    "exists": _fold(True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}
