"""Honoured or reported: each field of a deployment, changed, has to change something visible.

A change is *honoured* (other objects), *warned* about (a warning names the field) or *refused* (a blocker). What is
none of it is *ignored*, and a fault of the provider: the user's wish would be dropped without a word.
`setting_outcomes` asks the same of what comes from outside of the deployment: its runtime config, a model cache, a
gateway's pool. In a provider's tests:

    def test_every_field_is_honoured_or_named():
        assert [found for found in outcomes(load("mine")) if found.answer is Answer.IGNORED] == []
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from airunway.api import names
from airunway.plugins.contract import Finding
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, canonical_json
from airunway.runtime.translate import TranslationResult
from airunway.sdk import RuntimeSettings
from airunway_testing.conformance.cases import (
    CACHE,
    CACHED_FILE,
    GATEWAY,
    SETTINGS,
    TOGGLES,
    Base,
    Toggle,
    bases,
    context_of,
    judged,
    merged_spec,
)

_NOTES = (
    names.SPEC_HASH,
    names.WRITTEN_FOR,
    names.TRANSFORMER,
    names.DEPLOYMENT_UID,
    names.REVISION,
    names.REPLACE_ON_CHANGE,
    names.INTERRUPTS_ON_CHANGE,
)
"""Annotations in which the runtime remembers what it was asked for: they differ with every change."""


class Answer(StrEnum):
    """What becomes of a change of a field."""

    HONOURED = "honoured"
    WARNED = "warned"
    REFUSED = "refused"
    IGNORED = "ignored"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a provider makes of a change of `field` in the deployment `base`; `words` are the messages to the user."""

    field: str
    base: str
    answer: Answer
    words: tuple[Finding, ...] = ()


def outcomes(host: ProviderHost, asked: Sequence[Base] | None = None) -> Iterator[Outcome]:
    """Every field in every base (default: those of `bases`) in which it can be changed. Raises PluginFault."""
    for base in bases(host) if asked is None else asked:
        judge = _judge(host, base)
        for field, toggle in TOGGLES.items():
            if (found := _outcome(judge, base, field, toggle)) is not None:
                yield found


def _judge(host: ProviderHost, base: Base) -> Callable[[Resource], TranslationResult]:
    """Translates specs in the context of `base`, each spec once: most toggles begin with the spec of the base."""
    context = context_of(host, base)
    known: dict[bytes, TranslationResult] = {}

    def judge(spec: Resource) -> TranslationResult:
        key = canonical_json(spec)
        if key not in known:
            known[key] = judged(host, base, spec, context=context)
        return known[key]

    return judge


def _outcome(judge: Callable[[Resource], TranslationResult], base: Base, field: str, toggle: Toggle) -> Outcome | None:
    """None where the base has every value of the toggle already."""
    spec = merged_spec(base.spec, toggle.before)
    changed = next((to for value in toggle.values if (to := merged_spec(spec, value)) != spec), None)
    if changed is None:
        return None
    before, after = judge(spec), judge(changed)
    if after.blockers:
        new = tuple(finding for finding in after.blockers if finding not in before.blockers)
        return Outcome(field=field, base=base.name, answer=Answer.REFUSED, words=new or after.blockers)
    # A warning that goes with the change has told of the field as well.
    told = dict.fromkeys((*after.warnings, *before.warnings))
    named = tuple(finding for finding in told if _names(finding, field))
    if named:
        return Outcome(field=field, base=base.name, answer=Answer.WARNED, words=named)
    if _essence(before) != _essence(after):
        return Outcome(field=field, base=base.name, answer=Answer.HONOURED)
    said = tuple(finding for finding in after.warnings if finding not in before.warnings)
    return Outcome(field=field, base=base.name, answer=Answer.WARNED if said else Answer.IGNORED, words=said)


def setting_outcomes(host: ProviderHost, asked: Sequence[Base] | None = None) -> Iterator[Outcome]:
    """Every setting of `SETTINGS` in every base (default: those of `bases`) that it can reach. Raises PluginFault."""
    for base in bases(host) if asked is None else asked:
        for name in SETTINGS:
            if name != GATEWAY or _manages_pools(host, base.engine):
                yield _setting_outcome(host, base, name)


def _setting_outcome(host: ProviderHost, base: Base, name: str) -> Outcome:
    toggle = SETTINGS[name]
    context = replace(context_of(host, base), **toggle.context)
    before, after = (
        judged(host, base, merged_spec(base.spec, toggle.before)),
        judged(host, base, merged_spec(merged_spec(base.spec, toggle.before), toggle.spec), context=context),
    )
    said = tuple(finding for finding in after.warnings if finding not in before.warnings)
    if after.blockers:
        return Outcome(field=name, base=base.name, answer=Answer.REFUSED, words=after.blockers)
    about = tuple(finding for finding in said if finding.reason == "FieldIgnored")
    if about:
        return Outcome(field=name, base=base.name, answer=Answer.WARNED, words=about)
    if name == CACHE and _publishes_cache(host, base.engine) and base.spec["model"].get("source") != "custom":
        # An engine that mounts the weights and loads another model would not start: the hub is switched off.
        told = any(CACHED_FILE in canonical_json(plain(obj)).decode() for obj in after.objects)
        return Outcome(field=name, base=base.name, answer=Answer.HONOURED if told else Answer.IGNORED)
    # A pool of the provider's own is there for any gateway.
    pooled = name == GATEWAY and any(obj["kind"] == "InferencePool" for obj in after.objects)
    if pooled or _essence(before) != _essence(after):
        return Outcome(field=name, base=base.name, answer=Answer.HONOURED)
    return Outcome(field=name, base=base.name, answer=Answer.WARNED if said else Answer.IGNORED, words=said)


def _manages_pools(host: ProviderHost, engine: str) -> bool:
    found = next((each for each in host.manifest.engines if each.name == engine), None)
    return bool(found is not None and found.gateway and found.gateway.get("managesInferencePool"))


def _publishes_cache(host: ProviderHost, engine: str) -> bool:
    return any(each.model_cache for each in host.manifest.engines if each.name == engine)


def replaced_labels(host: ProviderHost, base: Base) -> list[str]:
    """Keys of labels on a base's pods that a propagated label of the same key replaces. Raises PluginFault.

    There should be none: the pods' own labels are those by which upstreams, Services and pools select them. Keys that
    are never propagated, or that the manifest reserves, do not reach a translation.
    """
    reserved = host.manifest.reserved_labels
    objects = judged(host, base, base.spec).objects
    keys = sorted({key for obj in objects for key in _pod_label_keys({**obj, "metadata": {}})})
    expected, found = [plain(obj) for obj in objects], []
    for key in keys:
        if key in names.NEVER_PROPAGATED or key.startswith(reserved):
            continue
        context = replace(context_of(host, base), runtime=RuntimeSettings(labels={key: "toggle-value"}))
        if [plain(obj) for obj in judged(host, base, base.spec, context=context).objects] != expected:
            found.append(key)
    return found


def _pod_label_keys(node: object) -> Iterator[str]:
    """The keys of all maps that are called labels."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("labels", "podLabels") and isinstance(value, dict):
                yield from value
            else:
                yield from _pod_label_keys(value)
    elif isinstance(node, list):
        for value in node:
            yield from _pod_label_keys(value)


def _names(finding: Finding, field: str) -> bool:
    """Whether a finding is about the field, something in it, or the group that it belongs to."""
    steps, wanted = _steps(finding.path), _steps(field)
    shorter = min(len(steps), len(wanted))
    return shorter > 1 and steps[:shorter] == wanted[:shorter]


def _steps(path: str) -> list[str]:
    """The names in a path, and the keys of maps; which item of a list it is makes no difference."""
    return re.findall(r"[^.\[\]]+", re.sub(r"\[\d*\]", "", path))


def _essence(found: TranslationResult) -> bytes:
    """What would be written, without what the runtime only notes on it."""
    return canonical_json([plain(obj) for obj in found.objects])


def plain(obj: Resource) -> Resource:
    """An object without what the runtime only notes on it."""
    metadata = obj["metadata"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in _NOTES}
    return {**obj, "metadata": {**metadata, "annotations": kept}}
