"""Reads and describes a provider's settings: a frozen dataclass of the plugin, filled from chart values or ``--set``;
and makes the pod settings of a runtime config.

The dataclass is the only definition. Names, types and defaults are checked at startup, and charts validate their values
against the JSON schema that is generated from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, get_type_hints

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.alias_generators import to_camel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from airunway.configs.resolution import EffectiveConfig, Resolution, config_name, propagated, resolve
from airunway.plugins.contract import RuntimeSettings
from airunway.plugins.errors import SettingsError
from airunway.resource import Resource, key_of


def settings_problem(settings: type) -> str:
    """What is wrong with the class itself, or an empty string: it must be frozen and have a default for every field."""
    if not dataclasses.is_dataclass(settings):
        return f"{settings!r} is no dataclass"
    if not settings.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # typeshed leaves it out
        return f"the dataclass {settings.__name__} is not frozen"
    for field in dataclasses.fields(settings):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            return f"{settings.__name__}.{field.name} has no default"
    try:
        settings_schema(settings)
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, NameError, TypeError) as error:
        return f"{settings.__name__} has a field of a type that JSON cannot say: {error}"
    try:
        given = settings()
        for name, kind in get_type_hints(settings).items():
            of_kind: TypeAdapter[Any] = TypeAdapter(kind)
            if kind in (bytes, complex):
                return f"{settings.__name__}.{name} has a type that JSON cannot say"
            of_kind.validate_python(getattr(given, name), strict=True)
    except ValidationError as error:
        return (
            f"{settings.__name__}.{name} has a default of another type: {_problem(error.errors(include_url=False)[0])}"
        )
    except ValueError as error:  # from a check in __post_init__
        return f"{settings.__name__} cannot be made of its defaults: {error}"
    return ""


class GivenText(str):
    """A value from a command line: text for a setting that is text, else JSON (text if it is none)."""

    __slots__ = ()

    def meant(self, kind: object) -> Any:
        """The value for a setting of that type. A text may also be written as a JSON string, with its quotes."""
        if kind is str and not self.startswith('"'):
            return str(self)
        try:
            return orjson.loads(str(self))
        except orjson.JSONDecodeError:
            return str(self)


def read_settings(settings: type, values: Mapping[str, Any], *, provider: str) -> Any:
    """An instance of `settings` from `values`, with camelCase keys as in charts.

    Raises SettingsError with one sentence that names provider, setting, problem and known settings.
    """
    kinds = {to_camel(name): kind for name, kind in get_type_hints(settings).items()}
    meant = {name: v.meant(kinds.get(name)) if isinstance(v, GivenText) else v for name, v in values.items()}
    try:
        model = _model(settings)(**meant)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(step) for step in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(to_camel(field.name) for field in dataclasses.fields(settings)) or "none"
            raise SettingsError(f"provider {provider}: unknown setting {name!r}; known: {known}") from error
        raise SettingsError(f"provider {provider}: setting {name!r}: {_problem(first)}") from error
    given = {field.name: getattr(model, field.name) for field in dataclasses.fields(settings)}
    try:
        return settings(**given)
    except ValueError as error:  # from a check in __post_init__
        raise SettingsError(f"provider {provider}: {error}") from error


def settings_schema(settings: type) -> Resource:
    """The JSON schema of the values, with each field's ``metadata["doc"]`` as its description."""
    schema: Resource = _model(settings).model_json_schema(by_alias=True)
    return schema


def settings_defaults(settings: type) -> Resource:
    """The default of each setting, as JSON with camelCase keys."""
    defaults: Resource = _model(settings)().model_dump(mode="json", by_alias=True)
    return defaults


def kept_settings(settings: Any) -> dict[str, Any]:
    """The values, by field name, of settings marked as kept: running deployments keep them when the setting changes."""
    if not dataclasses.is_dataclass(settings) or isinstance(settings, type):
        return {}
    return {field.name: getattr(settings, field.name) for field in _kept(type(settings))}


def with_kept(settings: Any, recorded: Mapping[str, Any]) -> Any:
    """The settings with the `recorded` values of kept settings. Recorded values that no longer fit are ignored."""
    if not dataclasses.is_dataclass(settings) or isinstance(settings, type):
        return settings
    now = kept_settings(settings)
    found = {name: _as_recorded(settings, name, value) for name, value in recorded.items() if name in now}
    known = {name: value for name, value in found.items() if value is not _DOES_NOT_FIT and value != now[name]}
    if not known:
        return settings
    try:
        return dataclasses.replace(settings, **known)
    except ValueError:  # from a check in __post_init__, which a newer release may have added
        for name, value in known.items():
            with suppress(ValueError):
                settings = dataclasses.replace(settings, **{name: value})
        return settings


_DOES_NOT_FIT = object()


def _as_recorded(settings: Any, name: str, value: object) -> object:
    """A recorded value in the type of the setting: JSON has no tuples."""
    kind: type = type(settings)
    if value == getattr(settings, name):
        return value
    try:
        return getattr(_model(kind)(**{to_camel(name): value}), name)
    except ValidationError:
        return _DOES_NOT_FIT


def with_defaults(settings: Any, defaults: Mapping[str, object]) -> Any:
    """The settings with a transformer's `defaults` instead of the class's; values set by an administrator stay."""
    if not defaults or not dataclasses.is_dataclass(settings):
        return settings
    usual: Any = type(settings)()  # type: ignore[misc]  # every field has a default
    older = {
        name: value for name, value in defaults.items() if getattr(settings, name) == getattr(usual, name) != value
    }
    return dataclasses.replace(settings, **older) if older else settings  # type: ignore[type-var]  # an instance


@lru_cache(maxsize=32)
def _kept(settings: type) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(field for field in dataclasses.fields(settings) if field.metadata.get("kept"))


_WORDS = {"valid tuple": "list", "valid dictionary": "map"}
"""Pydantic's names of types, and the names that charts use."""


@lru_cache(maxsize=32)
def _model(settings: type) -> type[BaseModel]:
    hints = get_type_hints(settings)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        about: dict[str, Any] = {"alias": to_camel(field.name), "description": field.metadata.get("doc")}
        if field.default_factory is not dataclasses.MISSING:
            about["default_factory"] = field.default_factory
        else:
            about["default"] = field.default
        fields[field.name] = (hints[field.name], Field(**about))
    config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=False)
    return create_model(settings.__name__, __config__=config, **fields)


def _problem(error: Any) -> str:
    text = f"{error['msg'][:1].lower()}{error['msg'][1:]}"
    for ours, users in _WORDS.items():
        text = text.replace(ours, users)
    return f"{text}, not {str(error.get('input'))[:64]!r}"


# --------------------------------------------------------------------------------- the pod settings of a runtime config


def runtime_settings(
    config: EffectiveConfig | None, labels: Mapping[str, str], *, reserved: Sequence[str] = ()
) -> RuntimeSettings:
    """Returns the pod settings of a deployment with these `labels` under its effective config (None: no config).

    `reserved` are the label keys and prefixes that the provider keeps for itself (`ProviderManifest.reserved_labels`).
    """
    passed_on = propagated(labels, config, reserved=reserved)
    if config is None:
        return RuntimeSettings(labels=passed_on)
    return RuntimeSettings(
        env=config.env,
        labels=passed_on,
        image_pull_secrets=config.image_pull_secrets,
        token=config.token,
        runtime_class=config.runtime_class,
    )


def resolve_among(deployment: Resource, configs: Iterable[Resource]) -> Resolution:
    """Returns the config that a deployment follows, of these RuntimeConfigs and ClusterRuntimeConfigs."""
    name, namespace = config_name(deployment), key_of(deployment).namespace
    named = [config for config in configs if key_of(config).name == name]
    return resolve(
        name,
        namespaced=next(
            (c for c in named if c.get("kind") == "RuntimeConfig" and key_of(c).namespace == namespace), None
        ),
        cluster=next((c for c in named if c.get("kind") == "ClusterRuntimeConfig"), None),
    )
