"""What a provider would write otherwise than its live objects were written: ``status.provider.newer``. Pure.

Example: a deployment serves with the image that was the default of release 0.11; 0.12 has another one. The revision
keeps the transformer of 0.11. The status says which newer transformer waits, and which image it brings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic.alias_generators import to_camel

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Context, Upstream
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import kept_settings, with_defaults, with_kept
from airunway.resource import Resource, annotations_of, labels_of
from airunway.runtime.crd_versions import newest_waits
from airunway.runtime.memory import Waiting
from airunway.runtime.report import located
from airunway.runtime.state import ClusterState
from airunway.runtime.translate import TranslationResult, translate


def newer_translation(
    state: ClusterState,
    host: ProviderHost,
    translated: TranslationResult,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    settings: object,
    known: Waiting,
) -> Resource:
    """Returns the newer transformers, and the changes of settings that they or the administrator bring; empty if the
    newest would write the same. The comparison is made once per input (`known`). Raises PluginFault.
    """
    kind = next((kind for kind in host.manifest.upstream if kind.key == context.live_kind), None)
    if kind is None or not translated.objects:
        return {}
    installed, used = state.installed[kind.group, kind.kind], context.served.get(kind.key)
    newest = installed.upstream
    older = newest_waits(used, installed)
    if newest is None or used is None or not (older or context.settings is not settings):
        return {}
    # What an adoption would take: the defaults of the newest transformer, and what the administrator has set since.
    then = with_defaults(settings, newest.transformer.defaults)
    of_transformer, of_settings = _newer_settings(host, context.settings, settings, then, used)
    found: list[tuple[Context[Any], Resource]] = []
    if older:
        upstream = replace(newest, transformer=replace(newest.transformer, defaults={}))
        other = replace(
            context,
            upstream=upstream if kind.primary else context.upstream,
            served={**context.served, kind.key: upstream},
            settings=with_kept(then, {**kept_settings(context.settings), **of_transformer}),
        )
        found.append((other, {"transformers": [newest.transformer.name], "changes": _shown(of_transformer)}))
    if of_settings:
        other = replace(context, settings=with_kept(context.settings, of_settings))
        found.append((other, {"changes": _shown(of_settings)}))
    if not found:
        return {}
    metadata = labels_of(state.deployment), annotations_of(state.deployment)
    # The live object changes with every status; what a provider keeps of it does not.
    inputs = [replace(each, now=datetime.min, live=None) for each in (context, *(other for other, _ in found))]
    compared = typed.spec, metadata, inputs
    if known.compared != compared:
        known.found = _that_differ(state, host, translated, typed, found)
        known.compared = compared
    return known.found


def _that_differ(
    state: ClusterState,
    host: ProviderHost,
    translated: TranslationResult,
    typed: ModelDeployment,
    found: Sequence[tuple[Context[Any], Resource]],
) -> Resource:
    """Of what is newer, what makes other objects, or is refused."""
    objects = _plain(translated.objects)
    transformers: list[str] = []
    changes: list[str] = []
    for other, newer in found:
        with_it = translate(host, state.deployment, typed, other)
        if not with_it.blockers and _plain(with_it.objects) == objects:
            continue
        transformers += newer.get("transformers", [])
        changes += newer["changes"]
        if with_it.blockers:
            why = "; ".join(map(located, with_it.blockers))
            changes.append(f"the next change of the spec will be refused: {why}"[:1024])
    if not transformers and not changes:
        return {}
    return {"transformers": transformers, "changes": changes}


def _newer_settings(
    host: ProviderHost, kept: object, settings: object, then: object, used: Upstream
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values that replace those `kept` by an object: defaults of the newest transformer, and the administrator's.

    `then` are the `settings` with the defaults of the newest transformer; `used` is what the object is written in.
    """
    writer = next((each for each in host.transformers if each.name == used.transformer.name), used.transformer)
    now = kept_settings(with_defaults(settings, writer.defaults))
    before = kept_settings(kept)
    newer = {name: value for name, value in kept_settings(then).items() if value != before[name]}
    of_transformer = {name: value for name, value in newer.items() if value != now[name]}
    return of_transformer, {name: value for name, value in newer.items() if name not in of_transformer}


def _shown(changed: Mapping[str, Any]) -> list[str]:
    return [f"{to_camel(name)} {value or 'none'}"[:1024] for name, value in changed.items()]


def _plain(objects: Sequence[Resource]) -> list[Resource]:
    """The objects without the runtime's own metadata."""
    return [{**obj, "metadata": {"name": obj["metadata"]["name"]}} for obj in objects]
