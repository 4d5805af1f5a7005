"""What a pass is to do about the state that it found. Pure.

`intent_of` says what may be done at all, `observe` asks the plugin what runs, and `plan` asks what is to be there and
compares that with what is. Its steps are one list, which a dry run prints and a pass carries out (spec/contract.md,
"Inside the runtime"). Example: a new image is one step, ``update Thing 'llama'``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson
from pydantic.alias_generators import to_camel

from airunway.api import names
from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, ParseError
from airunway.kube import needs_apply
from airunway.plugins.contract import Context, Finding, Observation, Observed, Upstream
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import kept_settings, with_kept
from airunway.resource import (
    Resource,
    annotations_of,
    condition_of,
    controller_owner,
    dig,
    digest,
    is_deleting,
    key_of,
    labels_of,
)
from airunway.runtime.crd_versions import Installed, as_written, newest_waits, writer_of
from airunway.runtime.memory import Waiting
from airunway.runtime.report import Told, located
from airunway.runtime.state import Identity, Seen, identity_in, is_ours, is_primary, named
from airunway.runtime.translate import (
    INTERRUPTS_ON_CHANGE,
    REPLACE_ON_CHANGE,
    Asked,
    Judgement,
    judge,
    parsed,
    written_for,
)
from airunway.sdk.fields import tracked
from airunway.sdk.pods import pod_specs
from airunway.selection import is_denied
from airunway.status import Category

__all__ = [
    "Action",
    "Decision",
    "Do",
    "Plan",
    "Step",
    "conflict_text",
    "decide",
    "intent_of",
    "interruptions",
    "missing_of",
    "observe",
    "plan",
    "plan_of",
    "plugin_fault",
    "recreate_causes",
    "trial_of",
]

log = logging.getLogger(__name__)


class Do(StrEnum):
    """What a pass does."""

    NOTHING = "nothing"
    """Not even the status: something that is waited for will bring the deployment back."""
    RELEASE = "release"
    """Take away what was made, then the finalizer."""
    WATCH = "watch"
    """Nothing may be changed; what is seen is told."""
    PREVIEW = "preview"
    SUSPEND = "suspend"
    BRING = "bring"
    """Carry the plan out."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, and what is to be told of that: `said`, and `warnings`. `subject` is what a fault of the upstream is
    about, where that is not the primary object.

    `typed`, `context` and `asked` are there where the deployment could be read and the upstream is known: the plugin is
    asked with them. `objects` are the desired ones, `plan` what has to become of each object, `dead` why the primary
    object has to be made anew although nothing in it changed. `prunes`: what is no longer wanted may go, as the primary
    serves what the newest spec asks for.
    """

    do: Do
    said: tuple[Told, ...] = ()
    warnings: tuple[Finding, ...] = ()
    subject: str = ""
    typed: ModelDeployment | None = None
    context: Context[Any] | None = None
    asked: Asked | None = None
    objects: tuple[Resource, ...] = ()
    plan: Plan | None = None
    dead: str = ""
    prunes: bool = False

    @property
    def verified(self) -> bool:
        """Whether the schema of what is written is known."""
        return self.context is None or self.context.upstream.verified


def decide(seen: Seen, host: ProviderHost, *, settings: object) -> Decision:
    """The decision of a pass that has nothing to remember: intent, observation and plan."""
    intent = intent_of(seen, host, settings=settings)
    observed = observe(host, intent, seen)
    return plan(seen, host, intent, observed, settings=settings, waiting=Waiting())


def intent_of(seen: Seen, host: ProviderHost, *, settings: object) -> Decision:
    """What may be done at all, before the plugin is asked anything: with what it is to be asked, if it may be."""
    deployment = seen.deployment
    if is_deleting(deployment):
        return Decision(do=Do.RELEASE)
    if seen.paused:
        return Decision(do=Do.NOTHING)
    if not seen.is_mine:
        # A dry run changes nothing upstream: what we made stays until it is over.
        return Decision(do=Do.NOTHING if seen.dry_run else Do.RELEASE)
    if seen.validated is None:
        return Decision(do=Do.NOTHING)  # the core's verdict on this generation brings us back
    if seen.validated.get("status") == "True" and is_denied(deployment, host.name) and seen.primary is None:
        return Decision(do=Do.NOTHING)  # chosen past the policy: the core is about to say so
    if seen.held_by and not seen.dry_run:
        return Decision(do=Do.WATCH, said=(_waits_for(seen.held_by),))
    hindrance, subject = _hindrance(seen, host)
    if hindrance is None and not seen.settled:
        return Decision(do=Do.NOTHING)  # the caches' first sight of everything brings every deployment back
    watched = Decision(do=Do.WATCH, said=(hindrance,) if hindrance is not None else (), subject=subject)
    installed = _verdict(seen, host) if hindrance is None else _as_it_runs(seen, host)
    if installed is None:
        return watched
    try:
        typed = parsed(deployment)
    except ParseError as error:  # what runs is named, not judged
        if hindrance is not None:
            return watched
        log.exception("%s: the provider's plugin is at fault", seen.key)
        return replace(watched, said=(plugin_fault(error),))
    asked = written_for(deployment, typed)
    context = _context(seen, host, installed, settings=settings, asked=asked)
    do = Do.PREVIEW if seen.dry_run else Do.SUSPEND if typed.spec.suspend else Do.BRING
    do = Do.WATCH if hindrance is not None else do
    return replace(watched, do=do, typed=typed, context=context, asked=asked)


def observe(host: ProviderHost, decision: Decision, seen: Seen) -> Observation | PluginFault | None:
    """What the plugin makes of what exists, or how it failed at that; None where it cannot be asked, there is nothing,
    or it is about to go.
    """
    primary, typed, context = seen.primary, decision.typed, decision.context
    if primary is None or typed is None or context is None or decision.do is Do.SUSPEND:
        return None
    objects = (*seen.ours, *seen.selected)
    view, reads = tracked(typed)  # its own copy of everything that can be changed
    try:
        found = host.translate_status(
            view, Observed(primary=primary, objects=objects, events=seen.events, applied=seen.applied), context
        )
    except PluginFault as error:
        log.exception("%s: the provider's plugin is at fault", seen.key)
        return error
    host.heeds |= reads.metadata
    return found


def plan(
    seen: Seen,
    host: ProviderHost,
    intent: Decision,
    observed: Observation | PluginFault | None,
    *,
    settings: object,
    waiting: Waiting,
) -> Decision:
    """The intent with what has to be done for it. What is wrong with the plugin is told; nothing is raised for it, and
    what runs goes on.
    """
    typed, context, asked = intent.typed, intent.context, intent.asked
    if intent.do in (Do.NOTHING, Do.RELEASE, Do.WATCH) or typed is None or context is None or asked is None:
        return intent
    try:
        judged = judge(host, seen.deployment, typed, context, asked=asked, records=_records(seen, host, asked))
        waits = _waiting(seen, host, judged, typed, context, settings=settings, asked=asked, known=waiting)
    except PluginFault as error:
        log.exception("%s: the provider's plugin is at fault", seen.key)
        return _at_fault(intent, error)
    warnings = (*judged.warnings, *waits)
    if judged.blockers and not typed.spec.suspend:
        return replace(intent, do=Do.WATCH, said=(_blocked(judged),), warnings=warnings)
    compatible = _blocked(judged, hinders=False) if judged.blockers else _compatible(host, context, seen)
    decision = replace(intent, said=(compatible,), warnings=warnings, objects=judged.objects)
    if not judged.objects:
        return decision
    dead, prunes = "", False
    if dig(seen.primary, "metadata", "annotations", names.WRITTEN_FOR) != asked.wanted:  # a dead one waits for that
        if isinstance(observed, PluginFault):
            return _at_fault(intent, observed)
        dead = observed.unrecoverable if observed is not None else ""
    steps = plan_of(
        judged.objects, seen.find(judged.objects), deployment=seen.deployment, provider=host.name, dead=dead
    )
    if steps.of(Action.DELETE):
        if isinstance(observed, PluginFault):
            return _at_fault(intent, observed)
        prunes = observed is not None and observed.up_to_date
    return replace(decision, plan=steps, dead=dead, prunes=prunes)


def _as_it_runs(seen: Seen, host: ProviderHost) -> Installed | None:
    """The upstream for reading what runs while nothing may be done: as it was written. None where there is nothing."""
    primary = seen.primary
    kind = host.kinds.get(identity_in(primary)[:2]) if primary is not None else None
    writer = writer_of(primary, host.transformers_of(kind)) if primary is not None and kind is not None else None
    if primary is None or writer is None:
        return None
    upstream = Upstream(api_version=str(primary.get("apiVersion")), transformer=writer, verified=False)
    return Installed(upstream=upstream, reason="", message="")


def _hindrance(seen: Seen, host: ProviderHost) -> tuple[Told | None, str]:
    """Why nothing may be done, and what that is about where it is not the primary object."""
    if (invalid := _invalid(seen)) is not None:
        return Told(component="Validated", reason="ValidationFailed", message=invalid, hinders=True), ""
    if seen.named_instead:
        return _stays(seen), ""
    return _missing(seen, host) or (None, "")


def _invalid(seen: Seen) -> str | None:
    """What is wrong with the spec: what was found too large, else what the core says."""
    large = "; ".join(f"{each.path}: {each.message}" for each in noted_excess(seen.deployment))
    if large:
        return f"Validation failed: {large}"
    verdict = seen.validated or {}
    return None if verdict.get("status") == "True" else str(verdict.get("message"))


def _missing(seen: Seen, host: ProviderHost) -> tuple[Told, str] | None:
    """What to say of a kind that is needed and cannot be written now, and which CRD that is about."""
    for kind in sorted(host.manifest.upstream, key=lambda kind: not kind.primary):
        installed = seen.installed[kind.group, kind.kind]
        if installed.upstream is not None or not kind.required:
            continue
        subject = f"CustomResourceDefinition/{kind.plural}.{kind.group}"
        if installed.reason != "UnsupportedSchema":
            text = f"Provider '{host.name}' CRD not installed in cluster"
            message = text if kind.primary else f"{text}: {installed.message}"
            waits = Told(component="Upstream", reason=installed.reason, message=message, hinders=True, waits=True)
            return waits, subject
        # What runs is never failed because a schema is new; what is not there yet fails, and says so (ruling 13).
        told = Told(
            condition="ProviderCompatible",
            reason=installed.reason,
            message=installed.message,
            hinders=seen.primary is None,
            component="Upstream",
            category=Category.WORKLOAD,
        )
        return told, subject
    return None


def _context(seen: Seen, host: ProviderHost, installed: Installed, *, settings: object, asked: Asked) -> Context[Any]:
    """What the plugin is told. What exists keeps its version and its transformer (ruling 27), and the settings that it
    was made with (ruling 23).
    """
    verdicts = ((kind.key, seen.installed[kind.group, kind.kind].upstream) for kind in host.manifest.upstream)
    served = {key: upstream for key, upstream in verdicts if upstream is not None}
    primary, kind = seen.primary, host.primary_kind
    upstream, live_kind = installed.upstream, ""
    wanted_for = asked.wanted
    if seen.recorded is not None:
        lasts, values = seen.recorded
        if lasts == asked.lasting:
            settings = with_kept(settings, values)
            wanted_for = annotations_of(primary or {}).get(names.WRITTEN_FOR, wanted_for)
    if primary is not None and (written := host.kinds.get(identity_in(primary)[:2])) is not None:
        live_kind = written.key
        kept = as_written(
            installed if written is kind else seen.installed[written.group, written.kind],
            primary,
            host.transformers_of(written),
            wanted_for=wanted_for,
        )
        if kept is not None:
            served[written.key] = kept
            upstream = kept if written is kind else upstream
    assert upstream is not None, "a provider is asked only where its upstream is known"
    served[kind.key] = upstream
    return Context(
        contract_version=host.contract_version,
        engine=dig(seen.deployment, "status", "engine", "type", default=""),
        upstream=upstream,
        served=served,
        live_kind=live_kind,
        settings=settings,
        kubernetes=seen.kubernetes,
        now=seen.now,
    )


_WHEN = (
    f"with the next change of the spec, or when the annotation {names.ADOPT} gets a new value: it may restart the model"
)


def _waiting(
    seen: Seen,
    host: ProviderHost,
    judged: Judgement,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    settings: object,
    asked: Asked,
    known: Waiting,
) -> tuple[Finding, ...]:
    """Warnings where what runs is kept as an older transformer has it, or with older settings, and would be written
    otherwise by the newest. That is compared once for each spec and newest way (`known`).
    """
    kind = next((kind for kind in host.manifest.upstream if kind.key == context.live_kind), None)
    if kind is None or not judged.objects:
        return ()
    installed, used = seen.installed[kind.group, kind.kind], context.served.get(kind.key)
    newest = installed.upstream
    newer: list[tuple[Context[Any], Finding]] = []
    if newest is not None and used is not None and newest_waits(used, installed):
        served = {**context.served, kind.key: newest}
        other = replace(context, upstream=newest if kind.primary else context.upstream, served=served)
        text = f"written as {used.transformer.name} has it; a newer way ({newest.transformer.name}) is taken {_WHEN}"
        newer.append((other, Finding(path="", reason="NewerTransformerWaits", message=text)))
    if context.settings is not settings:
        before, now = kept_settings(context.settings), kept_settings(settings)
        changed = ", ".join(f"{to_camel(name)} {now[name] or 'none'}" for name in now if now[name] != before[name])
        text = f"made with other settings of the provider; {changed} is taken {_WHEN}"
        finding = Finding(path="", reason="NewerSettingsWait", message=text)
        newer.append((replace(context, settings=settings), finding))
    if not newer:
        return ()
    metadata = labels_of(seen.deployment), annotations_of(seen.deployment)
    compared = asked, metadata, [replace(each, now=datetime.min) for each in (context, *(c for c, _ in newer))]
    if known.compared != compared:
        essence = [_essence(obj) for obj in judged.objects]
        known.found = tuple(
            finding
            for other, finding in newer
            if [_essence(obj) for obj in judge(host, seen.deployment, typed, other).objects] != essence
        )
        known.compared = compared
    return known.found


def _records(seen: Seen, host: ProviderHost, asked: Asked) -> bool:
    """Whether the settings are noted on the primary: not where that would be the only reason to write it."""
    primary = seen.primary
    if primary is None or seen.recorded is not None:
        return True
    return annotations_of(primary).get(names.WRITTEN_FOR) != asked.wanted


def _essence(obj: Resource) -> Resource:
    """An object without what the runtime notes on it."""
    return {**obj, "metadata": {"name": obj["metadata"]["name"]}}


def _at_fault(intent: Decision, error: PluginFault) -> Decision:
    """What runs goes on, and is read as far as the plugin can still read it."""
    return replace(intent, do=Do.WATCH, said=(plugin_fault(error),))


def _verdict(seen: Seen, host: ProviderHost) -> Installed:
    return seen.installed[host.primary_kind.group, host.primary_kind.kind]


def _compatible(host: ProviderHost, context: Context[Any], seen: Seen) -> Told:
    verified = context.upstream.verified
    text = f"Configuration compatible with {host.manifest.display_name or host.name}"
    return Told(
        condition="ProviderCompatible",
        ok=True,
        reason="CompatibilityVerified" if verified else "UnverifiedSchema",
        message=text if verified else _verdict(seen, host).message,
    )


def _blocked(judged: Judgement, *, hinders: bool = True) -> Told:
    """The provider cannot do it: nothing is created, what runs is left alone."""
    return Told(
        condition="ProviderCompatible",
        reason=judged.blockers[0].reason,
        message="; ".join(located(finding) for finding in judged.blockers),
        hinders=hinders,
    )


def plugin_fault(error: Exception) -> Told:
    """What is told where a hook did not do what the contract says."""
    return Told(component="Provider", reason="ProviderError", message=str(error), hinders=True)


def _stays(seen: Seen) -> Told:
    """The core has not given the deployment to the provider that its spec names: what runs goes on as it is."""
    said = condition_of(seen.deployment, "ProviderSelected") or {}
    reason = str(said.get("reason") or "WaitingForProvider")
    message = str(said.get("message") or f"Waiting until provider '{seen.named_instead}' can take over")
    # A name that nobody has is a mistake until somebody corrects it, and costs nothing of what serves.
    mistaken = reason == "ProviderNotFound"
    return Told(
        component="Handover",
        reason=reason,
        message=message,
        hinders=True,
        partial=mistaken,
        category=Category.CONFIG if mistaken else None,
    )


def _waits_for(other: str) -> Told:
    """The provider before us still cleans up; the removal of its finalizer brings us back."""
    text = (
        f"Waiting until provider '{other}' has removed what it made. If it does not run any more, delete that "
        f"by hand, and then the finalizer {names.provider_finalizer(other)} of this ModelDeployment"
    )
    return Told(component="Handover", reason="WaitingForProvider", message=text, hinders=True, waits=True)


# ----------------------------------------------------------------------------------------------------------- the steps


_TRIAL_DIGITS = 8


class Action(StrEnum):
    """What becomes of an object."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Deleted, waited for, and made anew: something of it cannot be changed in place."""
    DELETE = "delete"
    KEEP = "keep"
    FOREIGN = "foreign"
    """Somebody else's object has the name."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One object: `wanted` is None for a deletion, `live` for a creation. `causes` are those of a replacement.

    `outages` say what an update in place takes away for a while.

    Where the old object of a replacement has another kind or name, `live` is that one.
    """

    action: Action
    wanted: Resource | None = None
    live: Resource | None = None
    primary: bool = False
    causes: tuple[str, ...] = ()
    outages: tuple[str, ...] = ()

    @property
    def subject(self) -> Resource:
        """The object that the step is about: the old one where there are two."""
        found = self.live if self.action is not Action.FOREIGN and self.live is not None else self.wanted
        assert found is not None, "a step has at least one object"
        return found

    @property
    def writes(self) -> bool:
        return self.action in (Action.CREATE, Action.UPDATE)

    def text(self) -> str:
        """What would be done, in words."""
        what = named(self.subject)
        match self.action:
            case Action.REPLACE:
                return f"delete {what} and make it again ({', '.join(self.causes)} cannot be changed in place)"
            case Action.KEEP:
                return f"leave {what} as it is"
            case Action.FOREIGN:
                return f"create {what}"
            case Action.UPDATE if self.outages:
                return f"update {what} ({'; '.join(self.outages)})"
            case _:
                return f"{self.action.value} {what}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All steps, the primary's first; those after it in the order in which they are to be made."""

    steps: tuple[Step, ...]

    @property
    def primary(self) -> Step:
        return self.steps[0]

    @property
    def writes(self) -> tuple[Step, ...]:
        """What is created or updated, the primary last: it refers to the others."""
        found = [step for step in self.steps if step.writes]
        return tuple(sorted(found, key=lambda step: step.primary))

    def of(self, action: Action) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action is action)


def plan_of(
    desired: Sequence[Resource],
    live: Mapping[Identity, Resource],
    *,
    deployment: Resource,
    provider: str,
    dead: str = "",
) -> Plan:
    """What has to be done so that exactly `desired` (primary first) is there of the provider for the deployment.

    `live` has everything known to exist: what is ours, and what has a name that is wanted. `dead` says why the primary
    object will never serve again. An object that is known in another version only cannot be compared: it is updated.
    What runs the pods of a component in another kind, or under another name, takes the old one's place: the GPUs are to
    be let go of first.
    """
    manager = names.provider_manager(provider)
    ours = {identity: obj for identity, obj in live.items() if is_ours(obj, deployment, provider)}
    wanted = {identity_in(obj): obj for obj in desired}
    old = next((obj for obj in ours.values() if is_primary(obj)), None)
    before = _running(obj for identity, obj in ours.items() if identity not in wanted and obj is not old)
    steps = []
    for position, (identity, obj) in enumerate(wanted.items()):
        found, primary = live.get(identity), position == 0
        if found is not None and identity not in ours:
            steps.append(Step(action=Action.FOREIGN, wanted=obj, live=found, primary=primary))
        elif primary and old is not None and identity_in(old) != identity:
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=old, primary=True, causes=_moved(old, obj)))
        elif found is None and not primary and (gives_way := before.pop(_runs(obj), None)) is not None:
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=gives_way, causes=_moved(gives_way, obj)))
        elif found is None:
            steps.append(Step(action=Action.CREATE, wanted=obj, primary=primary))
        elif causes := _causes(found, obj, dead=dead if primary else ""):
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=found, primary=primary, causes=causes))
        elif found.get("apiVersion") != obj["apiVersion"] or needs_apply(obj, found, manager=manager):
            outages = tuple(interruptions(found, obj)) if primary else ()
            steps.append(Step(action=Action.UPDATE, wanted=obj, live=found, primary=primary, outages=outages))
        else:
            steps.append(Step(action=Action.KEEP, wanted=obj, live=found, primary=primary))
    replaced = {identity_in(step.live) for step in steps if step.live is not None}
    steps += [
        Step(action=Action.DELETE, live=obj)
        for identity, obj in ours.items()
        if identity not in wanted and identity not in replaced and obj is not old
    ]
    return Plan(steps=tuple(steps))


def _running(objects: Iterable[Resource]) -> dict[str, Resource]:
    """What runs pods of a component, by that component."""
    return {component: obj for obj in objects if (component := _runs(obj))}


def _runs(obj: Resource) -> str:
    """The component whose pods an object runs; empty where it runs none, or those of no component."""
    component = labels_of(obj).get(names.COMPONENT, "")
    return component if component and next(pod_specs(obj), None) is not None else ""


def _causes(found: Resource, wanted: Resource, *, dead: str) -> tuple[str, ...]:
    if is_deleting(found):
        return ("an object that is being deleted",)
    causes = tuple(recreate_causes(found, wanted))
    return (*causes, dead) if dead else causes


def _moved(old: Resource, new: Resource) -> tuple[str, ...]:
    causes = recreate_causes(old, new)
    if old.get("kind") != new.get("kind"):
        return (*causes, f"{old.get('kind')} to {new.get('kind')}")
    return (*causes, f"the name {key_of(old).name} to {key_of(new).name}")


def conflict_text(wanted: Resource, found: Resource) -> str:
    """What to say of an object of somebody else that has the name which we need, or the upstream of what is wanted."""
    owner = controller_owner(found)
    by = f" (owned by {owner.get('kind')}/{owner.get('name')})" if owner else " (no owner references)"
    kind = found.get("kind") or wanted["kind"]
    what = f"{kind} {key_of(wanted)} exists but is not managed by this ModelDeployment{by}"
    why = "" if kind == wanted["kind"] else f", and the {wanted['kind']} of that name needs a {kind} of its own"
    return f"{what}{why}; rename one of them or delete it"


def missing_of(message: str, refused: Resource, absent: Iterable[Resource]) -> Resource | None:
    """The object of the plan that does not exist yet and that a refusal names, if it names one.

    Only the exact name counts, and never the refused object's own: a Service is often called like its primary. But that
    what is to be made is itself "not found" means something that it refers to: so the API server answers for a binding
    whose Role is still to come.
    """
    own = identity_in(refused)
    others = [obj for obj in absent if identity_in(obj) != own]
    if others and _says_missing(message, own):
        return others[0]
    for obj in others:
        other = identity_in(obj)
        named = rf"(?<![\w.-]){re.escape(other.name)}(?![\w-]|\.\w)"
        if _says_missing(message, other) or (other.name != own.name and re.search(named, message)):
            return obj
    return None


def _says_missing(message: str, what: Identity) -> bool:
    """Whether the API server says that it does not find exactly this object."""
    group = rf"\.{re.escape(what.group)}" if what.group else ""
    said = rf'(?<![\w.-]){what.kind.lower()}(s|es)?{group} "{re.escape(what.name)}" not found'
    return re.search(said, message) is not None


def trial_of(obj: Resource) -> Resource:
    """The object under another name of the same length, for the dry run of one whose name the old object still has.

    Upstreams limit names together with others that they derive: a longer one could be refused for its length alone.
    """
    name = key_of(obj).name
    kept = max(0, len(name) - _TRIAL_DIGITS)
    trial = f"{name[:kept]}{'x' if not kept else ''}{digest(['trial', name])}"[: len(name)]
    if trial == name:
        trial = f"{name[:-1]}{'z' if name[-1] != 'z' else 'y'}"
    return {**obj, "metadata": {**obj["metadata"], "name": trial}}


# ------------------------------------------------------------------------------------- what cannot be changed in place


def recreate_causes(live: Resource, desired: Resource) -> list[str]:
    """What changed that cannot be changed in place: fields of the deployment, or paths of the upstream object.

    Empty if the change can be applied, if there is none, or if somebody removed the annotation (an apply restores it).
    """
    before, after = _recorded(live), _recorded(desired)
    groups = ["deployment", "topology"]
    if live.get("apiVersion") == desired.get("apiVersion") or not is_primary(live):
        groups.append("object")  # paths of another version would all have changed
    causes = []
    for group in groups:
        old, new = before.get(group, {}), after.get(group, {})
        # Only what both recorded: a path that a newer provider began to track is no change of the deployment.
        causes += [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return sorted(causes)


def interruptions(live: Resource, desired: Resource) -> list[str]:
    """What is to be said before `live` is changed to `desired` in place: the outages that this brings."""
    before, after = _recorded_outages(live), _recorded_outages(desired)
    changed = (name for name in before.keys() & after.keys() if before[name][0] != after[name][0])
    return [after[name][1] for name in sorted(changed) if after[name][1]]


def _recorded_outages(obj: Resource) -> dict[str, tuple[str, str]]:
    return {
        name: (entry[0], entry[1])
        for name, entry in _noted(obj, INTERRUPTS_ON_CHANGE).items()
        if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)
    }


def _recorded(obj: Resource) -> dict[str, dict[str, str]]:
    groups = _noted(obj, REPLACE_ON_CHANGE)
    return {name: values for name, values in groups.items() if isinstance(values, dict)}


def _noted(obj: Resource, annotation: str) -> dict[str, Any]:
    """The JSON map in an annotation; empty where there is none: anybody may have written there."""
    text = annotations_of(obj).get(annotation)
    try:
        found = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
