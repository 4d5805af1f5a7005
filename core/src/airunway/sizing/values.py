"""Terms with their source, what is unknown, and the numbers of a ``config.json``.

Anyone may have written a ``config.json``: what is wrong in it is refused by name and field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

KIB = 2**10
MIB = 2**20
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Term:
    """One part of an estimate, in bytes per GPU."""

    name: str
    size: int
    """Bytes on one GPU."""
    source: str
    """Where the number comes from: a file, a flag, or a measurement with its release."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A quantity that cannot be computed; it is never replaced by 0."""

    why: str


def gib(size: float) -> str:
    """Returns bytes as GiB (2^30) with one decimal; two below 1 GiB."""
    value = size / GIB
    return f"{value:.1f} GiB" if abs(value) >= 1 else f"{value:.2f} GiB"


def gibibytes(size: float) -> float:
    """Returns bytes as a number of GiB with three decimals, for JSON."""
    return round(size / GIB, 3)


MAX_CONFIG = 2**20
"""Largest config.json in bytes. Those of public models have less than 100 KB."""

MAX_LAYERS = 4096
_LARGEST = 2**31

Config = Mapping[str, Any]
"""A decoded config.json, or one of its nested objects."""


class ModelConfigError(ValueError):
    """A config.json cannot be used; the message names the model, the field and what is wrong."""

    def __init__(self, model: str, field: str, problem: str) -> None:
        super().__init__(f"{model}: config.json: {field}: {problem}" if field else f"{model}: config.json: {problem}")
        self.field = field


def load_config(data: bytes, *, model: str) -> dict[str, Any]:
    """Decodes a config.json. Raises ModelConfigError for one that is too large, too deep, or no JSON object."""
    if len(data) > MAX_CONFIG:
        raise ModelConfigError(model, "", f"it has {len(data):,} bytes; at most {MAX_CONFIG:,} are read")
    try:
        decoded = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ModelConfigError(model, "", f"it is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ModelConfigError(model, "", "it is not a JSON object")
    return decoded


def text_of(config: Config, *, model: str) -> Config:
    """The object that describes the language model: ``text_config`` of a multimodal model, else the config itself.

    Raises ModelConfigError if ``text_config`` contains itself, or is not an object.
    """
    for name in ("text_config", "llm_config", "language_config"):
        nested = config.get(name)
        if nested is None:
            continue
        if not isinstance(nested, Mapping):
            raise ModelConfigError(model, name, "must be an object")
        if nested is config or any(nested.get(name) is obj for obj in (config, nested)):
            raise ModelConfigError(model, name, "contains itself")
        return nested
    return config


class ConfigReader:
    """Reads positive whole numbers of one object by name.

    Every method raises ModelConfigError for a value of another type, a negative one, and one that no model has.
    """

    def __init__(self, config: Config, *, model: str, path: str = "") -> None:
        self._config = config
        self._model = model
        self._path = path

    def has(self, *names: str) -> bool:
        """Whether one of the fields exists and is not null."""
        return any(self._config.get(name) is not None for name in names)

    def count(self, *names: str, most: int = _LARGEST, least: int = 1) -> int | None:
        """The first of these fields that exists, a whole number from `least` to `most`; None if there is none."""
        for name in names:
            value = self._config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.error(name, f"must be a whole number, not {str(value)[:40]!r}")
            if not least <= value <= most:
                raise self.error(name, f"must be from {least} to {most:,}, not {str(value)[:24]}")
            return value
        return None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """The boolean field of that name."""
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {str(value)[:40]!r}")
        return value

    def text(self, *names: str) -> str:
        """The first of these fields that is a text; empty if there is none."""
        return next((value for name in names if isinstance(value := self._config.get(name), str)), "")

    def texts(self, name: str) -> list[str] | None:
        """The list of texts of that name; None if there is none."""
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MAX_LAYERS or not all(isinstance(item, str) for item in value):
            raise self.error(name, f"must be a list of at most {MAX_LAYERS:,} texts")
        return value

    def below(self, name: str) -> ConfigReader | None:
        """A reader of the nested object of that name; None if there is none."""
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(name, "must be an object")
        return ConfigReader(value, model=self._model, path=f"{self._path}{name}.")

    def error(self, name: str, problem: str) -> ModelConfigError:
        """An error that names the field."""
        return ModelConfigError(self._model, f"{self._path}{name}", problem)
