"""Label patterns and propagation."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.configs.patterns import _Class, _compiled, matches, pattern_problem, selected
from airunway.configs.resolution import EffectiveConfig, propagated, resolve

ROWS = (
    ("org.example/team", "org.example/team", True),
    ("org.example/*", "org.example/cost-center", True),
    ("compliance.*/severity", "compliance.sec/severity", True),
    ("compliance.*/severity", "compliance.a.b/severity", True),
    ("compliance.*/severity", "compliance/severity", False),
    ("*", "team", True),
    ("*", "org.example/team", False),
    ("*/*", "org.example/team", True),
    ("*/*", "team", False),
    ("org.*", "org.example/team", False),
    ("team-?", "team-1", True),
    ("team-?", "team-12", False),
    ("team-[ab]", "team-a", True),
    ("team-[ab]", "team-c", False),
    ("[bad", "bad", False),
    ("Org.Example/*", "org.example/x", False),
    ("app.kubernetes.io/*", "app.kubernetes.io/managed-by", True),
    ("team-[!a]", "team-b", True),
    ("team-[!a]", "team-a", False),
    ("team-[a-c]", "team-b", True),
    ("a[!b]c", "a/c", False),
    ("a?c", "a/c", False),
    (r"a\*", "a*", True),
    (r"a\*", "ab", False),
    (r"a[\]]", "a]", True),
    ("a*b*c", "a-b-b-c", True),
    ("team", "team-1", False),
)


@pytest.mark.parametrize(("pattern", "key", "expected"), ROWS, ids=[f"L1 {pattern} {key}" for pattern, key, _ in ROWS])
def test_l1_row(pattern: str, key: str, expected: bool) -> None:
    assert matches(pattern, key) is expected


@pytest.mark.parametrize(
    ("pattern", "where"),
    [("[bad", 1), ("a/[", 3), ("[]", 1), ("[!]", 1), ("a\\", 2), ("[z-a]", 2), ("[a\\", 3), ("", 1)],
)
def test_l1_a_malformed_pattern_is_named_with_its_position(pattern: str, where: int) -> None:
    problem = pattern_problem(pattern)
    assert problem is not None
    assert problem.endswith(f"at character {where}")
    assert not matches(pattern, pattern)


def config(*patterns: Any, enabled: Any = True) -> EffectiveConfig:
    found = resolve(
        "default",
        namespaced={"spec": {"labelPropagation": {"enabled": enabled, "match": list(patterns)}}},
        cluster=None,
    ).config
    assert found is not None
    return found


def test_l1_the_patterns_beside_a_malformed_one_count() -> None:
    labels = {"org.example/team": "a", "other": "b"}
    assert propagated(labels, config("[bad", "org.example/*")) == {"org.example/team": "a"}


NEVER = (
    "managed-by",
    "model-deployment",
    "provider",
    "part",
    "component",
    "artifact",
    "template",
    "cache.type",
    "inference-pool",
    "engine-type",
    "model-source",
    "nodes-of",
)


@pytest.mark.parametrize("name", NEVER)
def test_l2_l3_our_own_keys_are_never_propagated(name: str) -> None:
    labels = {f"airunway.ai/{name}": "other", "airunway.ai/team": "x"}
    assert propagated(labels, config("*", "*/*")) == {"airunway.ai/team": "x"}
    assert propagated(labels, None) == {"airunway.ai/team": "x"}


def test_l2_managed_by_and_reserved_prefixes_are_never_propagated() -> None:
    labels = {
        "app.kubernetes.io/managed-by": "Helm",
        "kaito.sh/workspace": "w",
        "ray.io/cluster": "c",
        "nvidia.com/dynamo-namespace": "n",
        "nvidia.com/gpu.product": "p",
        "llm-d.ai/role": "decode",
        "app": "selector",
        "apple": "fruit",
        "team": "x",
    }
    found = propagated(
        labels,
        config("*", "*/*"),
        reserved=("kaito.sh/", "ray.io", "nvidia.com/dynamo-", "llm-d.ai/", "app"),
    )
    assert found == {"nvidia.com/gpu.product": "p", "apple": "fruit", "team": "x"}


@pytest.mark.parametrize("enabled", [False, None, "true", 1])
def test_without_enabled_only_our_prefix_is_propagated(enabled: Any) -> None:
    labels = {"team": "x", "airunway.ai/team": "y", "airunway.aix/team": "z"}
    assert propagated(labels, config("*", "*/*", enabled=enabled)) == {"airunway.ai/team": "y"}


KEYS = st.text(st.sampled_from("ab./-"), max_size=12)


@given(
    pattern=st.text(st.sampled_from("ab.-*?"), min_size=1, max_size=12),
    key=st.text(st.sampled_from("ab.-"), max_size=12),
)
def test_within_one_segment_it_is_what_a_shell_matches(pattern: str, key: str) -> None:
    assert matches(pattern, key) is fnmatch.fnmatchcase(key, pattern)


@given(pattern=KEYS.filter(bool), key=KEYS)
def test_a_pattern_without_special_characters_is_the_key(pattern: str, key: str) -> None:
    assert matches(pattern, key) is (pattern == key)


def a_verdict(pattern: Any, key: str) -> None:
    verdict = matches(pattern, key)
    problem = pattern_problem(pattern)
    assert isinstance(verdict, bool)
    assert problem is None or not verdict


@given(pattern=st.text(st.sampled_from("ab/[]!^-*?\\") | st.characters(), max_size=16), key=st.text(max_size=16))
def test_any_pattern_gives_a_verdict(pattern: str, key: str) -> None:
    a_verdict(pattern, key)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=100_000, deadline=None)
@given(pattern=st.text(st.sampled_from("ab/[]!^-*?\\") | st.characters(), max_size=16), key=st.text(max_size=16))
def test_any_of_100_000_patterns_gives_a_verdict(pattern: str, key: str) -> None:
    a_verdict(pattern, key)


@pytest.mark.parametrize("pattern", [None, 7, ["a"], {"a": 1}, True])
def test_a_pattern_that_is_no_text_matches_nothing(pattern: Any) -> None:
    a_verdict(pattern, "a")
    assert propagated({"a": "b"}, config(pattern)) == {}


@pytest.mark.parametrize("labels", [None, [], "x", {"a": 1, "b": None}])
def test_labels_that_are_none_give_none(labels: Any) -> None:
    assert propagated(labels, config("*")) == {}


def test_stars_make_no_more_steps_than_the_key_has_characters() -> None:
    class Counted(str):
        __slots__ = ()
        steps = 0

        def __iter__(self) -> Any:
            for character in str.__iter__(self):
                Counted.steps += 1
                yield character

    key = Counted("a" * 5_000 + "b")
    assert not _compiled(("*a" * 150 + "c",)).matches(key)
    assert Counted.steps <= len(key)


def test_classes_are_asked_once_for_each_character_whatever_the_labels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant's config with 64 patterns of 63 classes each, and labels as large as a deployment may have."""
    asked: list[str] = []
    accepts = _Class.accepts

    def counted(self: _Class, character: str) -> bool:
        asked.append(character)
        return accepts(self, character)

    monkeypatch.setattr(_Class, "accepts", counted)
    patterns = tuple(f"*{'*[!b]' * 63}{number}" for number in range(64))
    keys = [f"{'a.' * 120}{'c' * 10}/{'d-e' * 15}{number}" for number in range(12)]
    for _ in range(3):
        assert selected(dict.fromkeys(keys, "x"), patterns) == {}
    characters = set("".join(keys)) - {"/"}
    assert len(asked) <= len(characters) * 64 * 63


@settings(max_examples=300, deadline=None)
@given(
    patterns=st.lists(st.text(st.sampled_from("ab/[]!-*?\\"), max_size=6), max_size=5),
    key=st.text(st.sampled_from("ab/"), max_size=6),
)
def test_many_patterns_match_what_one_of_them_matches(patterns: list[str], key: str) -> None:
    assert _compiled(tuple(patterns)).matches(key) is any(matches(pattern, key) for pattern in patterns)
