"""Which pod settings and which model cache a pass writes, and what newer ones wait (docs/runtime-configs.md).

Example: a config gets another variable while the deployment serves. The pods keep the recorded settings, and a warning
names the variable that waits.

The record is an annotation of the primary object. If it is removed or edited, the last one that this process has read
is restored. A process that has not read it compares the object with its translation: the object was made without pod
settings, or with the current ones, if the translation with these gives the same. Otherwise the settings are not known,
and nothing is written until the spec changes in more than replica counts. So a lost annotation never restarts a model,
and never takes its settings away. Where no config was ever in effect (`status.provider.runtimeConfigHash`), there are
no settings to lose, and an object without a record is written as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import product
from typing import Any

from pydantic.alias_generators import to_camel

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.configs.resolution import GRANTED, config_name
from airunway.kube import has_content_of
from airunway.owned.objects import named
from airunway.plugins.contract import Context, Finding, ModelCache, Observation, RuntimeSettings, Upstream
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import kept_settings, with_defaults, with_kept
from airunway.resource import Resource, annotations_of, condition_of, dig, labels_of, uid_of
from airunway.runtime.crd_versions import newest_waits
from airunway.runtime.diagnosis import is_ready
from airunway.runtime.gate import DIFFERENT, Gate, waits_for_config
from airunway.runtime.memory import Waiting
from airunway.runtime.records import SpecDigests, with_counts_of
from airunway.runtime.report import StepResult, located
from airunway.runtime.state import ClusterState
from airunway.runtime.translate import TranslationResult, translate

NEWER_PODS_WAIT = "NewerPodSettingsWait"
"""Reason of the warning that newer pod settings wait for a change of the spec."""

NEWER_WEIGHTS_WAIT = "NewerWeightsWait"
"""Reason of the warning that a new copy of the weights waits for a grant or a change of the spec."""

WHEN = (
    f"with the next change of the spec, or when the annotation {names.ADOPT} gets a new value: it may restart the model"
)
"""When what is newer takes effect."""


def settings_to_write(
    state: ClusterState,
    host: ProviderHost,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    gate: Gate,
    digests: SpecDigests,
    observed: Observation | PluginFault | None,
    known: Waiting,
) -> tuple[RuntimeSettings, ModelCache | None] | None:
    """The pod settings and the model cache to write; None if they must be kept and are not known. Raises PluginFault.

    The two are kept and taken independently: a lost cache takes no newer variables along, and a wave of a config no
    other claim.
    """
    primary, there, current = state.primary, state.recorded, gate.pods
    if primary is None:
        return current, gate.cache
    changed = context.spec_changed
    served = state.served or (isinstance(observed, Observation) and is_ready(observed))
    keeps_pods = keeps(changed=changed, served=served, granted=_is_granted(state.deployment), frozen=gate.frozen)
    # Whether the core lets a deployment that serves take this cache now.
    granted = gate.cache is not None and dig(state.deployment, "status", "rollout", "claimName") == gate.cache.claim
    keeps_cache = keeps(changed=changed, served=served and _still_serves(state, observed), granted=granted)

    def written(pods: RuntimeSettings, cache: ModelCache | None) -> tuple[RuntimeSettings, ModelCache | None]:
        return pods if keeps_pods else current, cache if keeps_cache else gate.cache

    if there is not None:
        return written(there.pods, there.cache)
    # Where no runtime config was ever in effect, and no cache is asked for, there is nothing to lose.
    no_config = dig(state.deployment, "status", "provider", "runtimeConfigHash") is None
    if (no_config or not keeps_pods) and (gate.cache is None or not keeps_cache):
        return written(RuntimeSettings(), None)
    if (found := known.made_with.get(uid_of(primary))) is not None:
        return written(*found)
    before = with_counts_of(state.written_for, state.deployment, typed) or typed
    for pods, cache in product(
        (RuntimeSettings(),) if no_config else (RuntimeSettings(), current),
        (None,) if gate.cache is None else (gate.cache, None),
    ):
        made = translate(
            host,
            state.deployment,
            before,
            replace(context, runtime=pods, cache=cache),
            digests=digests._replace(wanted=state.written_for),
            records=pods != RuntimeSettings() or cache is not None,
            config=gate.config,
        ).objects
        if not made and (cache is not None or gate.cache is None):
            return written(pods, cache)  # nothing is written of a spec that is refused
        if made and _was_written_as(primary, made[0], manager=names.provider_manager(host.name)):
            known.made_with = {uid_of(primary): (pods, cache)}
            return written(pods, cache)
    return None


def is_recorded(state: ClusterState, digests: SpecDigests, pods: RuntimeSettings, cache: ModelCache | None) -> bool:
    """Whether to record the settings on the primary object; not if that would be the only reason to write it."""
    if state.primary is None or state.recorded is not None or pods != RuntimeSettings() or cache is not None:
        return True
    return state.written_for != digests.wanted


def _is_granted(deployment: Resource) -> bool:
    """Whether the core lets this deployment take new pod settings now (``rollout: Immediately``, in waves)."""
    granted = dig(deployment, "status", "effectiveRuntimeConfig", "rollout") == GRANTED
    published = dig(deployment, "status", "effectiveRuntimeConfig", "hash")
    # A grant is for one config: what changes after that (labels, a newer provider) is not granted by it.
    return bool(granted and dig(deployment, "status", "provider", "runtimeConfigHash") != published)


def keeps(*, changed: bool, served: bool, granted: bool, frozen: bool = False) -> bool:
    """Whether a primary object keeps the pod settings that it was made with; otherwise it gets the current ones.

    `served`: it serves or has served. `changed`: the deployment's own spec has changed since it was written. `frozen`:
    the config cannot be used.
    """
    return frozen or (served and not changed and not granted)


def _still_serves(state: ClusterState, observed: Observation | PluginFault | None) -> bool:
    """Whether a pod serves, as far as it is known: then a new copy of the weights is not taken unasked."""
    evidence = state.evidence
    if evidence is None or not isinstance(observed, Observation):
        return True
    if any(pod.alive and pod.serves and pod.ready for pod in evidence.pods):
        return True
    counts = observed.replicas
    return counts.ready > 0 if counts is not None else any(each.ready is True for each in observed.components)


def _was_written_as(live: Resource, wanted: Resource, *, manager: str) -> bool:
    """Whether the live object was written with the content of `wanted`, whatever became of our annotations.

    The digest of the last write proves it, also where another writer has changed the object since; otherwise the
    content is compared.
    """
    if annotations_of(live).get(names.SPEC_HASH) == annotations_of(wanted).get(names.SPEC_HASH):
        return True
    return has_content_of(wanted, live, manager=manager)


def pods_unknown(primary: Resource) -> Finding:
    """The warning that nothing is written because it is not known with which pod settings the object was made."""
    text = (
        f"the annotation {names.RUNTIME_SETTINGS} of {named(primary)} is missing or was edited, and the object differs "
        "from what the current runtime config gives: nothing is written until the spec changes in more than replica "
        f"counts, or the annotation {names.ADOPT} gets a new value; then the current settings are used"
    )
    return Finding(path="", reason="PodSettingsUnknown", message=text)


def newer_waits(
    state: ClusterState,
    host: ProviderHost,
    translated: TranslationResult,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    settings: object,
    current: RuntimeSettings,
    ready: ModelCache | None,
    digests: SpecDigests,
    known: Waiting,
) -> tuple[Finding, ...]:
    """Warnings if the live object keeps an older transformer or older settings, and the newest would write something
    else. The comparison is made once per input (`known`).
    """
    kind = next((kind for kind in host.manifest.upstream if kind.key == context.live_kind), None)
    if kind is None or not translated.objects:
        return ()
    installed, used = state.installed[kind.group, kind.kind], context.served.get(kind.key)
    newest = installed.upstream
    newer: list[tuple[Context[Any], str, Finding]] = []

    def waits(reason: str, what: str, text: str, **changes: Any) -> None:
        newer.append((replace(context, **changes), what, Finding(path="", reason=reason, message=text)))

    older = newest_waits(used, installed)
    if newest is not None and used is not None and (older or context.settings is not settings):
        # What an adoption would take: the defaults of the newest transformer, and what the administrator has set since.
        then = with_defaults(settings, newest.transformer.defaults)
        of_transformer, of_settings = _newer_settings(host, context.settings, settings, then, used)
        if older:
            what = f"transformer {newest.transformer.name}"
            if of_transformer:
                what += f" ({_shown(of_transformer)})"
            upstream = replace(newest, transformer=replace(newest.transformer, defaults={}))
            waits(
                "NewerTransformerWaits",
                what,
                f"written by transformer {used.transformer.name}; {what} takes effect {WHEN}",
                upstream=upstream if kind.primary else context.upstream,
                served={**context.served, kind.key: upstream},
                settings=with_kept(then, {**kept_settings(context.settings), **of_transformer}),
            )
        if of_settings:
            changed = _shown(of_settings)
            waits(
                "NewerSettingsWait",
                f"the provider's newer settings ({changed})",
                f"made with earlier settings of the provider; {changed} takes effect {WHEN}",
                settings=with_kept(context.settings, of_settings),
            )
    if context.runtime != current:
        changes = "; ".join(changed_settings(context.runtime, current))  # names and no values
        followed = state.config.title if state.config is not None else f"runtime config {config_name(state.deployment)}"
        text = (
            f"changed pod settings ({changes}; {followed}) take effect with the "
            f"next change of the spec, or when the annotation {names.ADOPT} gets a new value"
        )
        waits(NEWER_PODS_WAIT, f"the newer pod settings ({changes})", text, runtime=current)
    if ready is not None and context.cache != ready:
        text = (
            f"the weights were fetched anew; claim {ready.claim} replaces "
            f"{context.cache.claim if context.cache else 'none'} when the core grants it, with the next change of the "
            "spec, or at once if no pod serves"
        )
        waits(NEWER_WEIGHTS_WAIT, f"the newer weights (claim {ready.claim})", text, cache=ready)
    if not newer:
        return ()
    metadata = labels_of(state.deployment), annotations_of(state.deployment)
    # The live object changes with every status; what a provider keeps of it does not.
    inputs = [replace(each, now=datetime.min, live=None) for each in (context, *(other for other, _, _ in newer))]
    compared = digests, metadata, inputs
    if known.compared != compared:
        objects, found = _plain(translated.objects), []
        for other, what, finding in newer:
            with_it = translate(host, state.deployment, typed, other)
            if with_it.blockers:
                why = "; ".join(map(located, with_it.blockers))
                text = f"the next change of the spec will be refused because of {what}: {why}"
                found.append(replace(finding, message=text))
            elif _plain(with_it.objects) != objects:
                found.append(finding)
        known.found = tuple(found)
        known.compared = compared
    return known.found


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


def _shown(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{to_camel(name)} {value or 'none'}" for name, value in changed.items())


def _plain(objects: Sequence[Resource]) -> list[Resource]:
    """The objects without the runtime's own metadata."""
    return [{**obj, "metadata": {"name": obj["metadata"]["name"]}} for obj in objects]


def config_secrets(state: ClusterState) -> dict[str, str]:
    """The Secrets that the pod settings in use name, each with the field of the RuntimeConfig that names it."""
    record = state.recorded
    if record is None:
        return {}
    of = f" of RuntimeConfig {record.config or config_name(state.deployment)}"
    found: dict[str, str] = {}
    for variable in record.pods.env:
        name = dig(variable, "valueFrom", "secretKeyRef", "name")
        if isinstance(name, str):
            found.setdefault(name, f"spec.env[{variable.get('name')}]{of}")
    for position, name in enumerate(record.pods.image_pull_secrets):
        found.setdefault(name, f"spec.imagePullSecrets[{position}]{of}")
    if record.pods.token:
        found[record.pods.token] = f"spec.secrets.huggingFaceToken{of}"
    return found


# ------------------------------------------------------------------------------------- the status while nothing is made


def not_applied(state: ClusterState, digests: SpecDigests, *, late: StepResult | None) -> StepResult | None:
    """The result for a spec that was not written yet: `late`, by default that the gate of the config is closed; None if
    what runs is of this spec.
    """
    if state.primary is None or state.written_for == digests.wanted:
        return None
    return late or waits_for_config("The newest spec is applied once core and provider see the same runtime config")


def carried_results(deployment: Resource) -> Iterator[StepResult]:
    """The provider's own conditions as they are: a pass that only waits for the config does not change them."""
    for type_ in ("ProviderCompatible", "ResourceCreated"):
        condition = condition_of(deployment, type_)
        if condition is not None and condition.get("status") in ("True", "False"):
            ok = condition["status"] == "True"
            yield StepResult(
                condition=type_,
                ok=ok,
                reason=str(condition.get("reason")),
                message=str(condition.get("message", "")),
                blocks_ready=not ok,
            )


def carried_warnings(deployment: Resource) -> Iterator[Finding]:
    """The warnings as they are, without one about a disagreement."""
    for text in dig(deployment, "status", "warnings") or ():
        if not str(text).startswith(DIFFERENT):
            yield Finding(path="", reason="Kept", message=str(text))


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
