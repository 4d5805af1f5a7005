"""What a RuntimeConfig adds to pods, and whether the policy allows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.configs.patterns import matches
from airunway.validation.policy import Grants, config_violations
from airunway.validation.uses import DIMENSIONS, covers, fits

EVERYTHING: dict[str, Any] = {
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}},
    ],
    "imagePullSecrets": [{"name": "a"}],
    "secrets": {"huggingFaceToken": "a"},
    "labelPropagation": {"enabled": True, "match": ["team", "org.example/*"]},
    "routing": {"gatewayRef": {"name": "a", "namespace": "b"}, "annotations": {"a/b": "c"}},
    "storage": {"defaultStorageClassName": "a"},
}
EVERY_PATH = [
    "spec.secrets.huggingFaceToken",
    "spec.imagePullSecrets[0].name",
    "spec.env[0].name",
    "spec.env[1].name",
    "spec.env[1].valueFrom.secretKeyRef.name",
    "spec.env[2].name",
    "spec.routing.annotations[a/b]",
    "spec.labelPropagation.match[0]",
    "spec.labelPropagation.match[1]",
]


def judged(spec: Any, **lists: list[str]) -> dict[str, str]:
    """The message of each refusal by its path."""
    grants = Grants(uses={key: tuple(patterns) for key, patterns in lists.items()})
    found = config_violations(grants, spec, namespace="team")
    return {violation.path: violation.message for violation in found}


def test_everything_that_reaches_pods_is_judged() -> None:
    assert list(judged(EVERYTHING, **{key: [] for key in DIMENSIONS})) == EVERY_PATH
    assert judged(EVERYTHING, **{key: ["*"] for key in DIMENSIONS}) == {}
    # Labels with a domain are allowed unless podLabels is listed; gateway controllers take orders from annotations.
    assert list(judged(EVERYTHING)) == ["spec.routing.annotations[a/b]"]


@pytest.mark.parametrize(
    ("lists", "spec", "message"),
    [
        (
            {"secrets": ["hf-*"]},
            {"secrets": {"huggingFaceToken": "prod-db"}},
            "secret 'prod-db' is not allowed in namespace 'team' (secrets allowed by policy: hf-*)",
        ),
        (
            {"secrets": []},
            {"imagePullSecrets": [{"name": "prod"}]},
            "secret 'prod' is not allowed in namespace 'team' (secrets allowed by policy: none)",
        ),
        (
            {"environment": ["VLLM_*", "HF_*"]},
            {"env": [{"name": "LD_PRELOAD", "value": "x"}]},
            "environment variable 'LD_PRELOAD' is not allowed in namespace 'team' "
            "(environment allowed by policy: VLLM_*, HF_*)",
        ),
        (
            {},
            {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
            "environment variable 'NVIDIA_VISIBLE_DEVICES' is not allowed in namespace 'team' "
            "(only where the policy lists it under environment)",
        ),
        (
            {"podLabels": ["team"]},
            {"labelPropagation": {"enabled": True, "match": ["team", "*/*"]}},
            "pod label '*/*' is not allowed in namespace 'team' (podLabels allowed by policy: team)",
        ),
    ],
)
def test_the_message_names_field_value_list_and_namespace(
    lists: dict[str, list[str]], spec: dict[str, Any], message: str
) -> None:
    assert list(judged(spec, **lists).values()) == [message]
    assert judged(spec, **{**lists, **{key: ["*"] for key in DIMENSIONS}}) == {}


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"labelPropagation": {"match": ["*"]}}, False),
        ({"labelPropagation": {"match": ["*"], "enabled": False}, "inherit": "Cluster"}, False),
        ({"labelPropagation": {"match": ["*"], "enabled": "true"}, "inherit": "Cluster"}, False),
        ({"labelPropagation": {"match": ["*"], "enabled": True}}, True),
        # The ClusterRuntimeConfig may switch it on.
        ({"labelPropagation": {"match": ["*"]}, "inherit": "Cluster"}, True),
        ({"labelPropagation": {"match": ["*"], "enabled": None}, "inherit": "Cluster"}, True),
    ],
)
def test_patterns_count_where_they_can_take_effect(spec: dict[str, Any], counts: bool) -> None:
    assert bool(judged(spec, podLabels=["team"])) is counts


@pytest.mark.parametrize(
    ("pattern", "entries", "allowed"),
    [
        ("team", ["team"], True),
        ("team", ["*"], True),
        ("team", ["te?m"], True),
        ("team", ["[st]eam"], True),
        ("team-*", ["team-*"], True),
        ("team-?", ["team-*"], True),
        ("team-[ab]", ["team-*"], True),
        ("team-*-x", ["team-*"], True),
        ("org.example/*", ["org.example/*"], True),
        ("org.example/*", ["*"], True),
        ("*/*", ["*"], True),
        ("org.example/a*", ["*/a*"], True),
        ("team-?", ["team-?"], True),
        ("te[ab]m", ["te[ab]m"], True),
        ("*", ["team"], False),
        ("team*", ["team-*"], False),
        ("?eam", ["team"], False),
        ("*/*", ["org.example/*"], False),
        ("org.example*/*", ["org.example/*"], False),
        ("team-*", ["team-?"], False),
        ("team-[ab]", ["team-?"], False),
        # Each of these matches "queue", or any other key, although its text fits the entry.
        ("[team]*", ["*team*"], False),
        ("[q]ueue[team]", ["*team*"], False),
        ("\\que*", ["\\*"], False),
        ("*", ["?"], False),
        ("[abc]", ["[*]"], False),
        ("queue", ["team"], False),
    ],
)
def test_a_pattern_is_allowed_if_an_entry_has_all_that_it_matches(
    pattern: str, entries: list[str], allowed: bool
) -> None:
    assert covers(tuple(entries), pattern) is allowed


LETTERS = "ab/-"


@given(
    st.text(alphabet=f"{LETTERS}*?[]!^\\", max_size=8),
    st.lists(st.text(alphabet=f"{LETTERS}*]\\", max_size=6), max_size=3),
    st.text(alphabet=LETTERS, max_size=8),
)
def test_no_key_that_a_covered_pattern_matches_is_outside_of_the_list(
    pattern: str, entries: list[str], key: str
) -> None:
    if matches(pattern, key) and covers(tuple(entries), pattern):
        assert fits(key, tuple(entries)) or pattern in entries


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*EVERYTHING, "name", "match", "enabled", "inherit"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from([*EVERYTHING, "inherit"]), JSON))
def test_whatever_a_spec_is_it_gets_a_verdict(spec: dict[str, Any]) -> None:
    nothing: dict[str, list[str]] = {key: [] for key in DIMENSIONS}
    for found in (judged(spec), judged(spec, **nothing)):
        assert all(path.startswith("spec.") for path in found)
