"""Hostile JSON from a source of chance: any value at all, and objects of which some values are replaced by any value.

Hypothesis gives the source (``st.randoms()``), and then shrinks what fails; 100,000 examples come from seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from airunway.resource import Resource, copy_of

MANY = 100_000
"""Examples of the soak form of a test."""

_CHARACTERS = "abzAZ09./-_ *[]{}$%\\'\"\n\x00é\u2028😀"


def text(chance: Random, *, longest: int = 12, characters: str = _CHARACTERS) -> str:
    return "".join(chance.choice(characters) for _ in range(chance.randint(0, longest)))


def anything(chance: Random, *, depth: int = 3, keys: Sequence[str] = (), values: Sequence[object] = ()) -> object:
    """Any JSON. With `keys`, most objects have some of them; `values` are taken as they are now and then."""
    kind = chance.randrange(12)
    if kind >= 10 and values:
        return chance.choice(values)
    if kind >= 6 and depth:
        below = [anything(chance, depth=depth - 1, keys=keys, values=values) for _ in range(chance.randint(0, 4))]
        if kind < 8:
            return below
        return {(chance.choice(keys) if keys and chance.randrange(5) else text(chance)): value for value in below}
    scalars: list[Callable[[], object]] = [
        lambda: None,
        lambda: bool(chance.randrange(2)),
        lambda: chance.randint(-3, 3),
        lambda: chance.choice([2**31, -(2**63), 2**64 - 1, 10**30, 1e300, 0.5, -0.0]),
        lambda: text(chance),
    ]
    return chance.choice(scalars)()


def changed(chance: Random, base: Resource, by: Callable[[Random], object], *, each: int = 10) -> Resource:
    """The object with one value of so many replaced or, now and then, left out."""

    def walk(value: object) -> object:
        if isinstance(value, dict):
            kept = {key: entry for key, entry in value.items() if chance.randrange(4 * each)}
            return {key: by(chance) if chance.randrange(each) == 0 else walk(entry) for key, entry in kept.items()}
        if isinstance(value, list):
            return [by(chance) if chance.randrange(each) == 0 else walk(entry) for entry in value]
        return value

    found = walk(copy_of(base))
    assert isinstance(found, dict)
    return found
