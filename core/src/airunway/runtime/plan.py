"""Decides what a pass does, from the state that it read. It reads and writes nothing in the cluster.

`intent_of` decides what may be done at all, `observe` calls the plugin to read the live objects, and `plan` calls it to
translate the spec and compares the result with the live objects. The steps are one list, which a dry run prints and a
pass carries out (docs/providers/contract.md). Example: a new image is one step, ``update Thing 'llama'``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

from airunway.api import names
from airunway.api.base import ParseError
from airunway.api.modeldeployment import ModelDeployment
from airunway.owned import plan as owned_plan
from airunway.owned.objects import Identity, identity_in
from airunway.owned.plan import Action, Plan, Rules
from airunway.plugins.contract import (
    Context,
    Finding,
    Observation,
    Observed,
    Transformer,
    Upstream,
    UpstreamKind,
    kind_key,
)
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import SCALED_OBJECT, ProviderHost
from airunway.plugins.settings import with_defaults, with_kept
from airunway.resource import Resource, condition_of, dig, is_deleting, labels_of, mapping_at, text_at
from airunway.revisions.revision import PROVIDER
from airunway.runtime.autoscaling import autoscaler, follows_itself
from airunway.runtime.crd_versions import Installed, pinned, writer_of
from airunway.runtime.gate import Gate, cache_in, gate_of, gateway_in, settings_in
from airunway.runtime.memory import Waiting
from airunway.runtime.newer import newer_translation
from airunway.runtime.records import interruptions, is_primary, recreate_causes, written_for
from airunway.runtime.report import OF_ROUTE, StepResult, located
from airunway.runtime.state import ClusterState, provider_mark
from airunway.runtime.translate import (
    TooLarge,
    TranslationResult,
    parsed,
    propagated_labels,
    selector_of,
    translate,
)
from airunway.sdk.fields import tracked
from airunway.sdk.pods import pod_specs
from airunway.selection.provider import is_denied
from airunway.status.beside import with_beside
from airunway.status.reasons import Category

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
    wanted_for: str = ""
    """Digests of the translation's input (`records.written_for`)."""
    objects: tuple[Resource, ...] = ()
    """The desired objects, the primary first."""
    plan: Plan | None = None
    """The steps for each object."""
    unrecoverable: str = ""
    """Why the primary object must be recreated although nothing in it changed; empty if it need not."""
    deletes_obsolete: bool = False
    """Whether objects that are no longer wanted may be deleted: the primary object serves the newest spec."""
    gate: Gate = field(default_factory=Gate)
    """What revision, cache and claims allow."""
    newer: Resource | None = None
    """What newer transformers or settings of the provider would write otherwise; None: it is not known."""
    silent: bool = False
    """Whether there is nothing to report yet."""
    unread: bool = False
    """Whether the primary object may exist and cannot be read: what is known of it stays in the status."""

    @property
    def verified(self) -> bool:
        """Whether the schemas of all written objects are known."""
        return self.context is None or not unverified_kinds(self.context, self.objects)


def unverified_kinds(context: Context[Any], objects: Sequence[Resource]) -> list[tuple[str, str]]:
    """The kinds of the objects whose schema is not known, by group and kind; the primary object's first."""
    kinds = dict.fromkeys(identity_in(obj)[:2] for obj in objects)
    return [kind for kind in kinds if (found := context.served.get(kind_key(*kind))) is not None and not found.verified]


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
        # An object that cannot be read would run on beside what the next provider makes.
        # What serves under a lost status stays until a provider is chosen: the core keeps who has a finalizer.
        stays = state.is_lost or state.dry_run or _unread(state, host) is not None
        return Decision(do=Do.SKIP if stays else Do.FINALIZE)
    if state.validated is None:
        return Decision(do=Do.SKIP)  # the core's verdict on this generation enqueues it again
    if state.validated.get("status") == "True" and is_denied(deployment, host.name) and state.primary is None:
        return Decision(do=Do.SKIP)  # selected against the policy: the core will report it
    if state.primary is None and not dig(deployment, "status", "engine", "type"):
        # No engine can run the spec, which the core reports once our own report is gone.
        reported = dig(deployment, "status", "observedGeneration") is not None
        return Decision(do=Do.FINALIZE if reported else Do.SKIP)
    if state.previous_provider and not state.dry_run:
        return Decision(do=Do.OBSERVE_ONLY, results=(_waits_for(state.previous_provider, state.deployment),))
    if (unread := _unread(state, host)) is not None:
        result, subject = unread
        return Decision(do=Do.OBSERVE_ONLY, results=(result,), subject=subject, unread=True)
    try:
        typed, unreadable = parsed(deployment), None
    except ParseError as error:
        typed, unreadable = None, error
    own = follows_itself(host, text_at(deployment, "status", "engine", "type"))
    wanted_for = written_for(deployment, typed, autoscaling=own) if typed is not None else ""
    hindrance, subject, gate = _hindrance(state, unreadable), "", Gate()
    if hindrance is None and state.settled:
        gate = gate_of(state, host)
    if hindrance is None and not gate.closed:
        suspended = typed is not None and typed.spec.suspend
        hindrance, subject = _missing(state, host, suspended=suspended) or (None, "")
        if hindrance is None and not state.settled:
            return Decision(do=Do.SKIP)  # once the caches are complete, every deployment is enqueued again
    results: tuple[StepResult, ...] = (hindrance,) if hindrance is not None else ()
    if hindrance is not None and state.primary is not None:  # what exists stays, and is still said to be made
        results += tuple(each for each in carried_results(deployment) if each.condition == "ResourceCreated")
    watched = Decision(do=Do.OBSERVE_ONLY, results=results, subject=subject, gate=gate)
    if gate.closed and typed is not None and typed.spec.suspend and not state.dry_run:
        return Decision(do=Do.SUSPEND)  # nothing of what is waited for is needed to remove what runs
    if gate.closed:
        watched = _while_closed(watched, state)
    stopped = hindrance is not None or gate.closed
    # While weights come, the provider is asked about its new object: a refusal must not wait for them.
    asked = gate.closed and gate.cache is not None and _missing(state, host, suspended=False) is None
    installed = _verdict(state, host) if asked or not stopped else _as_it_runs(state, host)
    if installed is None:
        return watched
    if typed is None:  # live objects are named in the status without being read by the plugin
        if stopped or unreadable is None:
            return watched
        log.error("%s: the deployment cannot be read: %s", state.key, unreadable)
        return replace(watched, results=(plugin_fault(unreadable),))
    context = _context(state, host, installed, settings=settings, gate=gate)
    # What runs may be of this spec all the same.
    newest = state.primary is None or (state.in_effect and state.written_for == wanted_for)
    if gate.closed and not gate.results and gate.late is not None and not newest:
        watched = replace(watched, results=(*watched.results, gate.late))
    do = Do.PREVIEW if state.dry_run else Do.SUSPEND if typed.spec.suspend else Do.APPLY
    return replace(watched, do=Do.OBSERVE_ONLY if stopped else do, typed=typed, context=context, wanted_for=wanted_for)


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
    host.metadata_reads |= reads.metadata
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
    typed, context, gate = intent.typed, intent.context, intent.gate
    if typed is not None and context is not None and gate.closed and gate.cache is not None:
        return _while_weights_come(state, host, intent, typed, context)
    if intent.do in (Do.SKIP, Do.FINALIZE, Do.OBSERVE_ONLY) or typed is None or context is None:
        return intent
    try:
        translated = translate(host, state.deployment, typed, context, wanted_for=intent.wanted_for)
        newer = newer_translation(state, host, translated, typed, context, settings=settings, known=waiting)
    except PluginFault as error:
        log.exception("%s: the provider's plugin is at fault", state.key)
        return _at_fault(intent, error)
    schemas = _schemas_not_written(state, host, blocked=bool(translated.blockers))
    warnings = (*translated.warnings, *schemas)
    intent = replace(intent, newer=newer)
    if translated.blockers and not typed.spec.suspend:
        unasked = not state.spec_changed or _more_than_mount(translated)
        refused = _blocked(translated, only_degrades=state.served and unasked)
        return replace(intent, do=Do.OBSERVE_ONLY, results=(refused,), warnings=warnings)
    if translated.blockers:
        compatible = _blocked(translated, blocks_ready=False)
    else:
        compatible = _compatible(host, context, state, translated.objects)
    if not translated.objects:
        return replace(intent, results=(compatible,), warnings=warnings)
    scaler = autoscaler(
        state,
        host,
        typed,
        context,
        observed=observed,
        selector=selector_of(host, state.key.name, identity_in(translated.objects[0]).name),
        propagated=propagated_labels(host, state.deployment),
    )
    objects = (*translated.objects, *scaler)
    decision = replace(intent, results=(compatible,), warnings=warnings, objects=objects)
    unrecoverable, deletes_obsolete = "", False
    # An unrecoverable object is recreated only after a change of the spec.
    if state.written_for != intent.wanted_for:
        if isinstance(observed, PluginFault):
            return _at_fault(intent, observed)
        unrecoverable = observed.unrecoverable if observed is not None else ""
    steps = plan_of(
        objects,
        state.find(objects),
        deployment=state.deployment,
        provider=host.name,
        unrecoverable=unrecoverable,
        transformers=host.transformers,
    )
    if steps.of(Action.DELETE):
        if isinstance(observed, PluginFault):
            return _at_fault(intent, observed)
        deletes_obsolete = observed is not None and observed.up_to_date
    return replace(decision, plan=steps, unrecoverable=unrecoverable, deletes_obsolete=deletes_obsolete)


def _while_weights_come(
    state: ClusterState, host: ProviderHost, intent: Decision, typed: ModelDeployment, context: Context[Any]
) -> Decision:
    """The intent with the provider's refusal, if there is one. Whether as many pods can mount the claim is not known
    before it exists.
    """
    try:
        translated = translate(host, state.deployment, typed, context)
    except PluginFault as error:
        log.exception("%s: the provider's plugin is at fault", state.key)
        return _at_fault(intent, error)
    blockers = tuple(each for each in translated.blockers if each.reason != "AccessModeConflict")
    if not blockers:
        return intent
    refused = _blocked(replace(translated, blockers=blockers))
    return replace(intent, results=(*intent.results, refused), warnings=(*intent.warnings, *translated.warnings))


def _as_it_runs(state: ClusterState, host: ProviderHost) -> Installed | None:
    """The upstream as live objects were written, to read them while nothing may be written. None without objects."""
    primary = state.primary
    kind = host.kinds.get(identity_in(primary)[:2]) if primary is not None else None
    writer = writer_of(primary, host.transformers_of(kind)) if primary is not None and kind is not None else None
    if primary is None or writer is None:
        return None
    upstream = Upstream(api_version=str(primary.get("apiVersion")), transformer=writer, verified=False)
    return Installed(upstream=upstream, reason="", message="")


def _hindrance(state: ClusterState, unreadable: ParseError | None) -> StepResult | None:
    """Why nothing may be written, as far as the deployment's spec is concerned: exceeded size limits, the core's
    verdict, or another provider that the spec names.
    """
    verdict = state.validated or {}
    if isinstance(unreadable, TooLarge):
        invalid = f"Validation failed: {unreadable}"
    elif verdict.get("status") != "True":
        invalid = str(verdict.get("message"))
    else:
        return _stays(state) if state.named_instead else None
    return StepResult(component="Validated", reason="ValidationFailed", message=invalid, blocks_ready=True)


def _while_closed(watched: Decision, state: ClusterState) -> Decision:
    """The decision while the gate is closed: what runs is reported, with the conditions and warnings that it has."""
    gate = watched.gate
    if state.primary is None:
        return replace(watched, results=gate.results)
    results, warnings = carried_results(state.deployment), carried_warnings(state.deployment)
    return replace(watched, results=(*results, *gate.results), warnings=tuple(warnings))


def carried_results(deployment: Resource) -> Iterator[StepResult]:
    """The provider's own conditions as they are: a pass that only waits does not change them."""
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
    """The warnings as they are, without those of the route, which are newer."""
    for text in dig(deployment, "status", "warnings") or ():
        if not str(text).startswith(OF_ROUTE):
            yield Finding(path="", reason="Kept", message=str(text))


def _missing(state: ClusterState, host: ProviderHost, *, suspended: bool) -> tuple[StepResult, str] | None:
    """The result for a kind that is needed and cannot be written now, and the CRD that it is about.

    A required kind is needed, and an optional one of which the deployment has objects: without the kind, the plan would
    delete them, or make others in their place. A suspended deployment needs none to delete its objects.
    """
    for kind in sorted(host.manifest.upstream, key=lambda kind: not kind.primary):
        installed = state.installed[kind.group, kind.kind]
        if installed.upstream is not None or kind is SCALED_OBJECT:
            continue
        if not kind.required and (suspended or not _is_unsupported(installed) or not _has(state, kind)):
            continue
        if not _is_unsupported(installed):
            text = f"Provider '{host.name}' CRD not installed in cluster"
            message = text if kind.primary else f"{text}: {installed.message}"
            not_installed = StepResult(
                component="Upstream", reason=installed.reason, message=message, blocks_ready=True, pending=True
            )
            return not_installed, _crd_of(kind)
        # A new schema never makes live objects fail; a deployment without objects fails with this message.
        return _unsupported(installed.message, blocks_ready=state.primary is None), _crd_of(kind)
    return None


def _unread(state: ClusterState, host: ProviderHost) -> tuple[StepResult, str] | None:
    """The result for a primary object that cannot be read, because its CRD serves no version that the provider knows;
    and that CRD. A new object in its place would run beside it.
    """
    made = dig(state.deployment, "status", "provider", default={})
    group = str(dig(made, "resourceAPIVersion", default="")).rpartition("/")[0]
    kind = host.kinds.get((group, str(dig(made, "resourceKind", default=""))))
    if state.primary is not None or kind is None:
        return None
    installed = state.installed[kind.group, kind.kind]
    if not _is_unsupported(installed) or installed.served:
        return None
    what = f"{kind.kind} '{dig(made, 'resourceName', default='')}'"
    text = (
        f"{what} cannot be read: {installed.message}; it stays as it is, and nothing is made in its place: "
        "serve a version that the provider knows again, or delete the deployment"
    )
    return _unsupported(text, blocks_ready=True), _crd_of(kind)


def _unsupported(message: str, *, blocks_ready: bool) -> StepResult:
    return StepResult(
        condition="ProviderCompatible",
        reason="UnsupportedSchema",
        message=message,
        blocks_ready=blocks_ready,
        component="Upstream",
        category=Category.WORKLOAD,
    )


def _is_unsupported(installed: Installed) -> bool:
    """Whether the CRD is there, so that its objects may exist, and nothing can be written of it."""
    return installed.upstream is None and installed.reason == "UnsupportedSchema"


def _has(state: ClusterState, kind: UpstreamKind) -> bool:
    """Whether the deployment has an object of this kind."""
    return any(identity_in(obj)[:2] == (kind.group, kind.kind) for obj in state.ours)


def _crd_of(kind: UpstreamKind) -> str:
    return f"CustomResourceDefinition/{kind.plural}.{kind.group}"


def _schemas_not_written(state: ClusterState, host: ProviderHost, *, blocked: bool) -> Iterator[Finding]:
    """Warnings about optional kinds without which the deployment is planned although their CRDs are there: a new
    schema under the policy Fail, and, if the deployment is refused, a CRD without a version that the provider knows.
    """
    for kind in host.manifest.upstream:
        installed = state.installed[kind.group, kind.kind]
        if not kind.required and _is_unsupported(installed) and (blocked or installed.served):
            yield Finding(path="", reason=installed.reason, message=installed.message)


def _context(
    state: ClusterState, host: ProviderHost, installed: Installed, *, settings: object, gate: Gate
) -> Context[Any]:
    """The plugin's context: the cluster's kinds in the versions and by the transformers of the revision, and its
    settings.
    """
    by_name = mapping_at(state.revision, PROVIDER, "transformers")
    served, primary, kind = {}, state.primary, host.primary_kind
    for each in host.manifest.upstream:
        verdict = installed if each is kind else state.installed[each.group, each.kind]
        found = pinned(verdict, host.transformers_of(each), by_name.get(each.key)) or _served(state, each)
        if found is not None:
            served[each.key] = found
    written = host.kinds.get(identity_in(primary)[:2]) if primary is not None else None
    live_kind = written.key if written is not None else ""
    upstream = served[kind.key]
    writer = served.get(live_kind, upstream)
    defaults = writer.transformer.defaults
    settings = with_kept(with_defaults(settings, defaults), mapping_at(state.revision, PROVIDER, "settings"))
    if with_defaults(settings, defaults) is not settings:
        # What the revision has counts more, also where it is the default of another transformer.
        own = replace(writer, transformer=replace(writer.transformer, defaults={}))
        served = {key: own if each is writer else each for key, each in served.items()}
        upstream = served[kind.key]
    return Context(
        contract_version=host.contract_version,
        engine=dig(state.deployment, "status", "engine", "type", default=""),
        upstream=upstream,
        served=served,
        live_kind=live_kind,
        runtime=settings_in(state.revision, reserved=host.manifest.reserved_labels),
        cache=gate.cache or cache_in(state.revision),
        gateway=gateway_in(state.revision),
        live=primary,
        spec_changed=state.spec_changed,
        settings=settings,
        kubernetes=state.kubernetes,
        now=state.now,
    )


def _served(state: ClusterState, kind: UpstreamKind) -> Upstream | None:
    """The version of a kind to write; if nothing may be written, the one in which its live objects are read."""
    installed = state.installed[kind.group, kind.kind]
    if installed.upstream is not None or not _has(state, kind):
        return installed.upstream
    versions = {str(obj.get("apiVersion")) for obj in state.ours}
    return next((each for each in installed.served if each.api_version in versions), None)


def _at_fault(intent: Decision, error: PluginFault) -> Decision:
    """A fault of the plugin: the live objects stay, and are observed as far as the plugin still can."""
    return replace(intent, do=Do.OBSERVE_ONLY, results=(plugin_fault(error),))


def _verdict(state: ClusterState, host: ProviderHost) -> Installed:
    return state.installed[host.primary_kind.group, host.primary_kind.kind]


def _compatible(
    host: ProviderHost, context: Context[Any], state: ClusterState, objects: Sequence[Resource]
) -> StepResult:
    kinds = unverified_kinds(context, objects)
    if not objects and not context.upstream.verified:  # suspended
        kinds = [(host.primary_kind.group, host.primary_kind.kind)]
    unverified = [state.installed[kind].message for kind in kinds]
    text = f"Configuration compatible with {host.manifest.display_name or host.name}"
    return StepResult(
        condition="ProviderCompatible",
        ok=True,
        reason="UnverifiedSchema" if unverified else "CompatibilityVerified",
        message="; ".join(unverified) or text,
    )


def _more_than_mount(translated: TranslationResult) -> bool:
    """Whether only the access mode of a claim is in the way: the pods that have it go on."""
    return all(each.reason == "AccessModeConflict" for each in translated.blockers)


def _blocked(translated: TranslationResult, *, blocks_ready: bool = True, only_degrades: bool = False) -> StepResult:
    """The provider cannot run the spec: nothing is created, and live objects stay as they are.

    What serves is degraded by what has changed around it (a CRD, a setting), and failed by an edit of its spec.
    """
    return StepResult(
        condition="ProviderCompatible",
        reason=translated.blockers[0].reason,
        message="; ".join(located(finding) for finding in translated.blockers),
        blocks_ready=blocks_ready,
        only_degrades=only_degrades,
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
        only_degrades=mistaken or reason == "CacheLost",
        category=Category.CONFIG if mistaken else None,
    )


def _waits_for(other: str, deployment: Resource) -> StepResult:
    """The previous provider is still cleaning up; the removal of its finalizer enqueues the deployment again."""
    text = (
        f"Waiting until provider '{other}' has removed what it made. If it does not run any more, delete that "
        f"by hand, and then the finalizer {names.provider_finalizer(other)} of this ModelDeployment"
    )
    text = with_beside(text, deployment)
    return StepResult(component="Handover", reason="WaitingForProvider", message=text, blocks_ready=True, pending=True)


# ----------------------------------------------------------------------------------------------------------- the steps


def plan_of(
    desired: Sequence[Resource],
    live: Mapping[Identity, Resource],
    *,
    deployment: Resource,
    provider: str,
    unrecoverable: str = "",
    transformers: Sequence[Transformer] = (),
) -> Plan:
    """The steps after which exactly the `desired` objects (primary first) exist: `owned.plan.plan_of` for a provider
    with these `transformers`.

    An object that runs the pods of a component under another kind or name replaces the old one, which must release its
    GPUs first.
    """
    return owned_plan.plan_of(
        desired,
        live,
        owner=deployment,
        mark=provider_mark(provider),
        manager=names.provider_manager(provider),
        rules=Rules(
            is_primary=is_primary,
            recreates=partial(recreate_causes, transformers=transformers),
            interrupts=interruptions,
            role=_runs,
        ),
        unrecoverable=unrecoverable,
    )


def _runs(obj: Resource) -> str:
    """The component whose pods an object runs; empty if it runs none, or pods of no component."""
    component = labels_of(obj).get(names.COMPONENT, "")
    return component if component and next(pod_specs(obj), None) is not None else ""
