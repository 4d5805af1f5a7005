"""Decides what a pass does, from the state that it read. Pure.

`intent_of` decides what may be done at all, `observe` calls the plugin to read the live objects, and `plan` calls it to
translate the spec and compares the result with the live objects. The steps are one list, which a dry run prints and a
pass carries out (spec/contract.md, "Inside the runtime"). Example: a new image is one step, ``update Thing 'llama'``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

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
from airunway.runtime.recreation import interruptions, recreate_causes
from airunway.runtime.report import StepResult, located
from airunway.runtime.state import ClusterState, Identity, identity_in, is_ours, is_primary, named
from airunway.runtime.translate import (
    SpecDigests,
    TranslationResult,
    parsed,
    translate,
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
    "missing_of",
    "observe",
    "plan",
    "plan_of",
    "plugin_fault",
    "trial_of",
]

log = logging.getLogger(__name__)


class Do(StrEnum):
    """What a pass does."""

    SKIP = "skip"
    """Write nothing, not even the status: the event that is waited for enqueues the deployment again."""
    FINALIZE = "finalize"
    """Delete our objects, then remove the finalizer."""
    OBSERVE_ONLY = "observe only"
    """Change nothing upstream, and report what is observed."""
    PREVIEW = "preview"
    SUSPEND = "suspend"
    APPLY = "apply"
    """Carry the plan out."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a pass does, with the arguments and results of the plugin's hooks."""

    do: Do
    """The action."""
    results: tuple[StepResult, ...] = ()
    """Results of the decision itself."""
    warnings: tuple[Finding, ...] = ()
    """Warnings for the status."""
    subject: str = ""
    """The object of an upstream fault (``Kind/name``) if it is not the primary object."""
    typed: ModelDeployment | None = None
    """The deployment as hooks see it; None if it cannot be read, as are the next two fields."""
    context: Context[Any] | None = None
    """The context of the hooks."""
    digests: SpecDigests | None = None
    """Digests of the translation's input."""
    objects: tuple[Resource, ...] = ()
    """The desired objects, the primary first."""
    plan: Plan | None = None
    """The steps for each object."""
    dead: str = ""
    """Why the primary object must be recreated although nothing in it changed; empty if it need not."""
    prunes: bool = False
    """Whether objects that are no longer wanted may be deleted: the primary object serves the newest spec."""

    @property
    def verified(self) -> bool:
        """Whether the schema of the written objects is known."""
        return self.context is None or self.context.upstream.verified


def decide(state: ClusterState, host: ProviderHost, *, settings: object) -> Decision:
    """The decision of a first pass: intent, observation and plan."""
    intent = intent_of(state, host, settings=settings)
    observed = observe(host, intent, state)
    return plan(state, host, intent, observed, settings=settings, waiting=Waiting())


def intent_of(state: ClusterState, host: ProviderHost, *, settings: object) -> Decision:
    """What may be done at all, and the arguments of the plugin's hooks if they may be called."""
    deployment = state.deployment
    if is_deleting(deployment):
        return Decision(do=Do.FINALIZE)
    if state.paused:
        return Decision(do=Do.SKIP)
    if not state.is_mine:
        # A dry run changes nothing upstream: our objects stay until it is over.
        return Decision(do=Do.SKIP if state.dry_run else Do.FINALIZE)
    if state.validated is None:
        return Decision(do=Do.SKIP)  # the core's verdict on this generation enqueues it again
    if state.validated.get("status") == "True" and is_denied(deployment, host.name) and state.primary is None:
        return Decision(do=Do.SKIP)  # selected against the policy: the core will report it
    if state.held_by and not state.dry_run:
        return Decision(do=Do.OBSERVE_ONLY, results=(_waits_for(state.held_by),))
    hindrance, subject = _hindrance(state, host)
    if hindrance is None and not state.settled:
        return Decision(do=Do.SKIP)  # once the caches are complete, every deployment is enqueued again
    watched = Decision(do=Do.OBSERVE_ONLY, results=(hindrance,) if hindrance is not None else (), subject=subject)
    installed = _verdict(state, host) if hindrance is None else _as_it_runs(state, host)
    if installed is None:
        return watched
    try:
        typed = parsed(deployment)
    except ParseError as error:  # live objects are named in the status without being read by the plugin
        if hindrance is not None:
            return watched
        log.exception("%s: the provider's plugin is at fault", state.key)
        return replace(watched, results=(plugin_fault(error),))
    digests = written_for(deployment, typed)
    context = _context(state, host, installed, settings=settings, digests=digests)
    do = Do.PREVIEW if state.dry_run else Do.SUSPEND if typed.spec.suspend else Do.APPLY
    do = Do.OBSERVE_ONLY if hindrance is not None else do
    return replace(watched, do=do, typed=typed, context=context, digests=digests)


def observe(host: ProviderHost, decision: Decision, state: ClusterState) -> Observation | PluginFault | None:
    """The plugin's observation of the live objects, or its fault.

    None if the hook cannot be called, no primary object exists, or the objects are about to be deleted.
    """
    primary, typed, context = state.primary, decision.typed, decision.context
    if primary is None or typed is None or context is None or decision.do is Do.SUSPEND:
        return None
    objects = (*state.ours, *state.selected)
    view, reads = tracked(typed)  # the plugin gets its own copy of everything mutable
    try:
        found = host.translate_status(
            view, Observed(primary=primary, objects=objects, events=state.events, applied=state.applied), context
        )
    except PluginFault as error:
        log.exception("%s: the provider's plugin is at fault", state.key)
        return error
    host.heeds |= reads.metadata
    return found


def plan(
    state: ClusterState,
    host: ProviderHost,
    intent: Decision,
    observed: Observation | PluginFault | None,
    *,
    settings: object,
    waiting: Waiting,
) -> Decision:
    """The intent with its steps. A fault of the plugin is reported and not raised; live objects stay as they are."""
    typed, context, digests = intent.typed, intent.context, intent.digests
    if intent.do in (Do.SKIP, Do.FINALIZE, Do.OBSERVE_ONLY) or typed is None or context is None or digests is None:
        return intent
    try:
        translated = translate(
            host, state.deployment, typed, context, digests=digests, records=_records(state, host, digests)
        )
        outdated = _waiting(state, host, translated, typed, context, settings=settings, digests=digests, known=waiting)
    except PluginFault as error:
        log.exception("%s: the provider's plugin is at fault", state.key)
        return _at_fault(intent, error)
    warnings = (*translated.warnings, *outdated)
    if translated.blockers and not typed.spec.suspend:
        return replace(intent, do=Do.OBSERVE_ONLY, results=(_blocked(translated),), warnings=warnings)
    compatible = _blocked(translated, blocks_ready=False) if translated.blockers else _compatible(host, context, state)
    decision = replace(intent, results=(compatible,), warnings=warnings, objects=translated.objects)
    if not translated.objects:
        return decision
    dead, prunes = "", False
    # An unrecoverable object is recreated only after a change of the spec.
    if dig(state.primary, "metadata", "annotations", names.WRITTEN_FOR) != digests.wanted:
        if isinstance(observed, PluginFault):
            return _at_fault(intent, observed)
        dead = observed.unrecoverable if observed is not None else ""
    steps = plan_of(
        translated.objects, state.find(translated.objects), deployment=state.deployment, provider=host.name, dead=dead
    )
    if steps.of(Action.DELETE):
        if isinstance(observed, PluginFault):
            return _at_fault(intent, observed)
        prunes = observed is not None and observed.up_to_date
    return replace(decision, plan=steps, dead=dead, prunes=prunes)


def _as_it_runs(state: ClusterState, host: ProviderHost) -> Installed | None:
    """The upstream as live objects were written, to read them while nothing may be written. None without objects."""
    primary = state.primary
    kind = host.kinds.get(identity_in(primary)[:2]) if primary is not None else None
    writer = writer_of(primary, host.transformers_of(kind)) if primary is not None and kind is not None else None
    if primary is None or writer is None:
        return None
    upstream = Upstream(api_version=str(primary.get("apiVersion")), transformer=writer, verified=False)
    return Installed(upstream=upstream, reason="", message="")


def _hindrance(state: ClusterState, host: ProviderHost) -> tuple[StepResult | None, str]:
    """Why nothing may be written, and the object of that result if it is not the primary object."""
    if (invalid := _invalid(state)) is not None:
        return StepResult(component="Validated", reason="ValidationFailed", message=invalid, blocks_ready=True), ""
    if state.named_instead:
        return _stays(state), ""
    return _missing(state, host) or (None, "")


def _invalid(state: ClusterState) -> str | None:
    """The error in the spec: exceeded size limits, otherwise the core's message."""
    large = "; ".join(f"{each.path}: {each.message}" for each in noted_excess(state.deployment))
    if large:
        return f"Validation failed: {large}"
    verdict = state.validated or {}
    return None if verdict.get("status") == "True" else str(verdict.get("message"))


def _missing(state: ClusterState, host: ProviderHost) -> tuple[StepResult, str] | None:
    """The result for a required kind that cannot be written now, and the CRD that it is about."""
    for kind in sorted(host.manifest.upstream, key=lambda kind: not kind.primary):
        installed = state.installed[kind.group, kind.kind]
        if installed.upstream is not None or not kind.required:
            continue
        subject = f"CustomResourceDefinition/{kind.plural}.{kind.group}"
        if installed.reason != "UnsupportedSchema":
            text = f"Provider '{host.name}' CRD not installed in cluster"
            message = text if kind.primary else f"{text}: {installed.message}"
            not_installed = StepResult(
                component="Upstream", reason=installed.reason, message=message, blocks_ready=True, pending=True
            )
            return not_installed, subject
        # A new schema never makes live objects fail; a deployment without objects fails with this message (ruling 13).
        result = StepResult(
            condition="ProviderCompatible",
            reason=installed.reason,
            message=installed.message,
            blocks_ready=state.primary is None,
            component="Upstream",
            category=Category.WORKLOAD,
        )
        return result, subject
    return None


def _context(
    state: ClusterState, host: ProviderHost, installed: Installed, *, settings: object, digests: SpecDigests
) -> Context[Any]:
    """The plugin's context. An existing object keeps its version, its transformer (ruling 27), and the settings with
    which it was created (ruling 23).
    """
    verdicts = ((kind.key, state.installed[kind.group, kind.kind].upstream) for kind in host.manifest.upstream)
    served = {key: upstream for key, upstream in verdicts if upstream is not None}
    primary, kind = state.primary, host.primary_kind
    upstream, live_kind = installed.upstream, ""
    wanted_for, was_for = digests.wanted, annotations_of(primary or {}).get(names.WRITTEN_FOR)
    changed = was_for != wanted_for
    if state.recorded is not None:
        lasts, values = state.recorded
        if lasts == digests.lasting:
            settings, changed = with_kept(settings, values), False
            wanted_for = was_for if was_for is not None else wanted_for
    if primary is not None and (written := host.kinds.get(identity_in(primary)[:2])) is not None:
        live_kind = written.key
        kept = as_written(
            installed if written is kind else state.installed[written.group, written.kind],
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
        engine=dig(state.deployment, "status", "engine", "type", default=""),
        upstream=upstream,
        served=served,
        live_kind=live_kind,
        live=primary,
        spec_changed=changed,
        settings=settings,
        kubernetes=state.kubernetes,
        now=state.now,
    )


_WHEN = (
    f"with the next change of the spec, or when the annotation {names.ADOPT} gets a new value: it may restart the model"
)


def _waiting(
    state: ClusterState,
    host: ProviderHost,
    translated: TranslationResult,
    typed: ModelDeployment,
    context: Context[Any],
    *,
    settings: object,
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
    metadata = labels_of(state.deployment), annotations_of(state.deployment)
    # The live object changes with every status; what a provider keeps of it does not.
    inputs = [replace(each, now=datetime.min, live=None) for each in (context, *(c for c, _ in newer))]
    compared = digests, metadata, inputs
    if known.compared != compared:
        comparable = [_comparable(obj) for obj in translated.objects]
        known.found = tuple(
            finding
            for other, finding in newer
            if [_comparable(obj) for obj in translate(host, state.deployment, typed, other).objects] != comparable
        )
        known.compared = compared
    return known.found


def _records(state: ClusterState, host: ProviderHost, digests: SpecDigests) -> bool:
    """Whether to record the settings on the primary object; not if that would be the only reason to write it."""
    primary = state.primary
    if primary is None or state.recorded is not None:
        return True
    return annotations_of(primary).get(names.WRITTEN_FOR) != digests.wanted


def _comparable(obj: Resource) -> Resource:
    """The object without the runtime's own metadata."""
    return {**obj, "metadata": {"name": obj["metadata"]["name"]}}


def _at_fault(intent: Decision, error: PluginFault) -> Decision:
    """A fault of the plugin: the live objects stay, and are observed as far as the plugin still can."""
    return replace(intent, do=Do.OBSERVE_ONLY, results=(plugin_fault(error),))


def _verdict(state: ClusterState, host: ProviderHost) -> Installed:
    return state.installed[host.primary_kind.group, host.primary_kind.kind]


def _compatible(host: ProviderHost, context: Context[Any], state: ClusterState) -> StepResult:
    verified = context.upstream.verified
    text = f"Configuration compatible with {host.manifest.display_name or host.name}"
    return StepResult(
        condition="ProviderCompatible",
        ok=True,
        reason="CompatibilityVerified" if verified else "UnverifiedSchema",
        message=text if verified else _verdict(state, host).message,
    )


def _blocked(translated: TranslationResult, *, blocks_ready: bool = True) -> StepResult:
    """The provider cannot run the spec: nothing is created, and live objects stay as they are."""
    return StepResult(
        condition="ProviderCompatible",
        reason=translated.blockers[0].reason,
        message="; ".join(located(finding) for finding in translated.blockers),
        blocks_ready=blocks_ready,
    )


def plugin_fault(error: Exception) -> StepResult:
    """The result for a hook that broke the contract."""
    return StepResult(component="Provider", reason="ProviderError", message=str(error), blocks_ready=True)


def _stays(state: ClusterState) -> StepResult:
    """The core has not yet handed the deployment over to the provider that its spec names: live objects stay."""
    condition = condition_of(state.deployment, "ProviderSelected") or {}
    reason = str(condition.get("reason") or "WaitingForProvider")
    message = str(condition.get("message") or f"Waiting until provider '{state.named_instead}' can take over")
    # An unregistered provider name is an error in the spec: what serves continues.
    mistaken = reason == "ProviderNotFound"
    return StepResult(
        component="Handover",
        reason=reason,
        message=message,
        blocks_ready=True,
        only_degrades=mistaken,
        category=Category.CONFIG if mistaken else None,
    )


def _waits_for(other: str) -> StepResult:
    """The previous provider is still cleaning up; the removal of its finalizer enqueues the deployment again."""
    text = (
        f"Waiting until provider '{other}' has removed what it made. If it does not run any more, delete that "
        f"by hand, and then the finalizer {names.provider_finalizer(other)} of this ModelDeployment"
    )
    return StepResult(component="Handover", reason="WaitingForProvider", message=text, blocks_ready=True, pending=True)


# ----------------------------------------------------------------------------------------------------------- the steps


_TRIAL_DIGITS = 8


class Action(StrEnum):
    """The action for an object."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Deleted and created again, because a change cannot be made in place."""
    DELETE = "delete"
    KEEP = "keep"
    FOREIGN = "foreign"
    """An object with this name exists and is not ours."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The action for one object."""

    action: Action
    """The action."""
    wanted: Resource | None = None
    """The desired object; None for a deletion."""
    live: Resource | None = None
    """The live object, None for a creation; for a replacement the old one, of any kind and name."""
    primary: bool = False
    """Whether it is the primary object."""
    causes: tuple[str, ...] = ()
    """What changed that cannot be changed in place."""
    outages: tuple[str, ...] = ()
    """Messages about what an update in place interrupts."""

    @property
    def subject(self) -> Resource:
        """The object that the step is about: the old one if there are two."""
        found = self.live if self.action is not Action.FOREIGN and self.live is not None else self.wanted
        assert found is not None, "a step has at least one object"
        return found

    @property
    def writes(self) -> bool:
        return self.action in (Action.CREATE, Action.UPDATE)

    def text(self) -> str:
        """The action, as a dry run prints it."""
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
    """The steps of a pass."""

    steps: tuple[Step, ...]
    """All steps, the primary object's first; those after it in the order in which they are created."""

    @property
    def primary(self) -> Step:
        return self.steps[0]

    @property
    def writes(self) -> tuple[Step, ...]:
        """The steps that create or update, the primary object last: it refers to the others."""
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
    """The steps after which exactly the `desired` objects (primary first) exist.

    `live` has every known object that is ours or has a wanted name. `dead` is the reason why the primary object will
    never serve again; empty if it may. An object that is known only in another version cannot be compared, and is
    updated. An object that runs the pods of a component under another kind or name replaces the old one, which must
    release its GPUs first.
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
    """The objects that run pods of a component, by component."""
    return {component: obj for obj in objects if (component := _runs(obj))}


def _runs(obj: Resource) -> str:
    """The component whose pods an object runs; empty if it runs none, or pods of no component."""
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
    """The message about a foreign object with a name that we need, or that the upstream of a wanted object needs."""
    owner = controller_owner(found)
    by = f" (owned by {owner.get('kind')}/{owner.get('name')})" if owner else " (no owner references)"
    kind = found.get("kind") or wanted["kind"]
    what = f"{kind} {key_of(wanted)} exists but is not managed by this ModelDeployment{by}"
    why = "" if kind == wanted["kind"] else f", and the {wanted['kind']} of that name needs a {kind} of its own"
    return f"{what}{why}; rename one of them or delete it"


def missing_of(message: str, refused: Resource, absent: Iterable[Resource]) -> Resource | None:
    """The object of the plan that does not exist yet and that a refusal names; None if there is none.

    Only the exact name counts, and not the refused object's own name: a Service often has the name of its primary
    object. The exception is a message that the refused object itself is "not found": then an object that it refers to
    is missing. The API server answers so for a binding whose Role does not exist yet.
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
    """Whether the message is that exactly this object was not found."""
    group = rf"\.{re.escape(what.group)}" if what.group else ""
    pattern = rf'(?<![\w.-]){what.kind.lower()}(s|es)?{group} "{re.escape(what.name)}" not found'
    return re.search(pattern, message) is not None


def trial_of(obj: Resource) -> Resource:
    """The object under another name of the same length, for a dry run while the old object still has the name.

    Upstreams limit the length of names and of derived names: a longer name could be refused for its length alone.
    """
    name = key_of(obj).name
    kept = max(0, len(name) - _TRIAL_DIGITS)
    trial = f"{name[:kept]}{'x' if not kept else ''}{digest(['trial', name])}"[: len(name)]
    if trial == name:
        trial = f"{name[:-1]}{'z' if name[-1] != 'z' else 'y'}"
    return {**obj, "metadata": {**obj["metadata"], "name": trial}}
