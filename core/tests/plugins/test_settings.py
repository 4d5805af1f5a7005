"""A provider's settings: a frozen dataclass, read once at the start; a wrong value ends the process with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, Literal

import pytest

from airunway.plugins.errors import SettingsError
from airunway.plugins.settings import GivenText, read_settings, settings_problem, settings_schema
from airunway.sdk import NoSettings, setting


@dataclass(frozen=True, kw_only=True)
class Settings:
    node_pool: str = setting("any", "Pool of nodes.")
    replicas: int = setting(1, "How many.")
    strict: bool = setting(False, "Whether to be strict.")
    mode: Literal["fast", "safe"] = setting("safe", "How.")
    images: tuple[str, ...] = setting((), "Further images.")
    labels: Mapping[str, str] = setting({"a": "b"}, "Labels of nodes.")

    def __post_init__(self) -> None:
        if self.mode == "fast" and self.strict:
            raise ValueError("mode fast cannot be strict")


def read(**values: Any) -> Any:
    return read_settings(Settings, values, provider="toy")


def test_without_values_there_are_the_defaults() -> None:
    assert read() == Settings()
    assert settings_problem(Settings) == ""
    assert read_settings(NoSettings, {}, provider="toy") == NoSettings()


def test_names_are_in_camel_case_and_texts_from_a_command_line_get_their_types() -> None:
    found = read(nodePool="gpu", replicas="3", strict="true", images=["a", "b"], labels={"x": "y"})
    expected = Settings(node_pool="gpu", replicas=3, strict=True, images=("a", "b"), labels={"x": "y"})
    assert found == expected
    assert isinstance(found, Settings)


def test_the_type_of_a_setting_decides_what_a_text_of_a_command_line_means() -> None:
    """``--set pickerVersion=0.9`` was read as a number, and refused because text was expected."""
    given = {"nodePool": "0.10", "replicas": "3", "strict": "true", "images": '["a"]', "labels": '{"x": "1"}'}
    found = read(**{name: GivenText(text) for name, text in given.items()})
    assert found == Settings(node_pool="0.10", replicas=3, strict=True, images=("a",), labels={"x": "1"})
    for text, meant in (('"0.9"', "0.9"), ("true", "true"), ("null", "null"), ("", ""), ("[1", "[1"), ('"', '"')):
        assert read(nodePool=GivenText(text)).node_pool == meant
    with pytest.raises(SettingsError, match="setting 'images': input should be a list, not 'a'"):
        read(images=GivenText("a"))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"nodePol": "x"}, "unknown setting 'nodePol'; known: nodePool, replicas, strict, mode, images, labels"),
        ({"node_pool": "x"}, "unknown setting 'node_pool'"),
        ({"replicas": "many"}, "setting 'replicas': input should be a valid integer"),
        ({"strict": "half"}, "setting 'strict': input should be a valid boolean"),
        ({"mode": "slow"}, "setting 'mode': input should be 'fast' or 'safe', not 'slow'"),
        ({"images": "a"}, "setting 'images': input should be a list, not 'a'"),
        ({"labels": "a=b"}, "setting 'labels': input should be a map, not 'a=b'"),
        ({"labels": {"a": 1}}, "setting 'labels.a': input should be a valid string, not '1'"),
        ({"mode": "fast", "strict": True}, "mode fast cannot be strict"),
    ],
    ids=str,
)
def test_a_wrong_value_is_one_sentence_with_provider_and_setting(values: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        read(**values)
    assert str(wrong.value).startswith(f"provider toy: {text}")
    assert "\n" not in str(wrong.value)


def test_a_provider_without_settings_says_that_it_has_none() -> None:
    with pytest.raises(SettingsError, match="unknown setting 'a'; known: none"):
        read_settings(NoSettings, {"a": 1}, provider="toy")


def test_a_long_value_is_not_repeated_as_a_whole() -> None:
    with pytest.raises(SettingsError) as wrong:
        read(replicas="x" * 10_000)
    assert len(str(wrong.value)) < 300


def test_a_default_that_can_be_changed_is_each_instance_s_own() -> None:
    first, second = Settings(), Settings()
    assert first.labels is not second.labels
    assert read().labels is not read().labels
    with pytest.raises(FrozenInstanceError):
        first.replicas = 2  # type: ignore[misc]


def test_the_schema_holds_what_charts_may_say() -> None:
    schema = settings_schema(Settings)
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"nodePool", "replicas", "strict", "mode", "images", "labels"}
    assert schema["properties"]["mode"]["enum"] == ["fast", "safe"]
    assert schema["properties"]["nodePool"]["description"] == "Pool of nodes."
    assert "required" not in schema
