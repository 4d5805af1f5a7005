"""The pod settings of a runtime config: for a plugin's context, and as they are recorded on the primary object. Pure.

The loop, `render`, `preflight` and tests all get ``context.runtime`` from `runtime_settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from airunway.configs import EffectiveConfig, Resolution, config_name, propagated, resolve
from airunway.plugins.contract import RuntimeSettings, SecretKey
from airunway.resource import Resource, dig, key_of

__all__ = [
    "TOKEN_KEY",
    "changed_settings",
    "resolve_among",
    "runtime_settings",
    "settings_of_record",
    "settings_record",
]

TOKEN_KEY = "HF_TOKEN"
"""Key of the Hugging Face token in the Secret that a config names."""


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
        token=SecretKey(name=config.token, key=TOKEN_KEY) if config.token else None,
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


def settings_record(settings: RuntimeSettings) -> Resource:
    """Returns the settings as JSON, without what is empty: the key ``pods`` of the annotation."""
    record: Resource = {
        "env": [dict(entry) for entry in settings.env],
        "imagePullSecrets": list(settings.image_pull_secrets),
        "token": {"name": settings.token.name, "key": settings.token.key} if settings.token is not None else {},
        "labels": dict(settings.labels),
    }
    return {key: value for key, value in record.items() if value}


def settings_of_record(record: object) -> RuntimeSettings:
    """Returns the settings of a record. Total for any JSON: what does not fit is left out."""
    env, secrets, labels = dig(record, "env"), dig(record, "imagePullSecrets"), dig(record, "labels")
    name, key = dig(record, "token", "name"), dig(record, "token", "key")
    return RuntimeSettings(
        env=tuple(each for each in env if isinstance(dig(each, "name"), str)) if isinstance(env, list) else (),
        labels={label: value for label, value in labels.items() if isinstance(value, str)}
        if isinstance(labels, dict)
        else {},
        image_pull_secrets=tuple(each for each in secrets if isinstance(each, str))
        if isinstance(secrets, list)
        else (),
        token=SecretKey(name=name, key=key) if isinstance(name, str) and isinstance(key, str) and name else None,
    )


def changed_settings(before: RuntimeSettings, after: RuntimeSettings) -> Iterator[str]:
    """Yields what differs between two settings, by name and never by value: ``env A, B``, ``the token``."""
    old = {str(entry.get("name")): entry for entry in before.env}
    new = {str(entry.get("name")): entry for entry in after.env}
    if variables := _differing(old, new):
        yield f"env {', '.join(variables)}"
    elif [entry.get("name") for entry in before.env] != [entry.get("name") for entry in after.env]:
        yield "the order of env"
    if before.image_pull_secrets != after.image_pull_secrets:
        yield "imagePullSecrets"
    if before.token != after.token:
        yield "the Hugging Face token"
    if labels := _differing(before.labels, after.labels):
        yield f"labels {', '.join(labels)}"


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
