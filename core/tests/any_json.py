"""Strategies for hostile JSON: any value at all, and objects of which some values are replaced by any value."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from airunway.resource import Resource

TEXT = st.text(max_size=12)
ANY: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def lookalikes(keys: Sequence[str], values: Sequence[object]) -> st.SearchStrategy[object]:
    """Any JSON whose objects have keys that are looked for, and values that mean something."""
    return st.recursive(
        ANY | st.sampled_from(values),
        lambda inner: st.dictionaries(st.sampled_from(keys), inner, max_size=6) | st.lists(inner, max_size=3),
        max_leaves=25,
    )


def mutated(base: Resource, by: st.SearchStrategy[object]) -> st.SearchStrategy[Resource]:
    """The object with some of its values replaced."""

    @st.composite
    def change(draw: st.DrawFn) -> Resource:
        def walk(value: object, depth: int) -> object:
            if depth and draw(st.integers(0, 9)) == 0:
                return draw(by)
            if isinstance(value, dict):
                return {key: walk(entry, depth + 1) for key, entry in value.items()}
            if isinstance(value, list):
                return [walk(entry, depth + 1) for entry in value]
            return value

        found = walk(base, 0)
        assert isinstance(found, dict)
        return found

    return change()
