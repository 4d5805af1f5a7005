"""What a pass is to do about what it has seen. Pure: a view in, a decision out.

gather (`seen`) → **decide** → act (`execution`) → report (`report`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

from airunway.api import names
from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, ParseError
from airunway.plugins.contract import Context, Finding, Observation, Observed, Upstream
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig, is_deleting, key_of
from airunway.runtime.desired import Identity, identity_in, written_for
from airunway.runtime.diagnosis import applied_at
from airunway.runtime.judgement import Judgement, judge, parsed, selector_of
from airunway.runtime.report import Report
from airunway.runtime.seen import Seen
from airunway.runtime.steps import Action, Plan, plan_of
from airunway.runtime.told import Told
from airunway.runtime.upstream import Installed, as_written, newest_waits, writer_of
from airunway.sdk.fields import tracked
from airunway.selection import is_denied
from airunway.status import Category

__all__ = ["Decision", "Do", "decide", "observe", "plugin_fault", "report_on"]

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
    """What to do, and what is known so far of what is to be told.

    `typed` and `context` are there where the deployment could be read and the upstream is known: they are what the
    plugin is asked with. `objects` are the desired ones, `plan` what has to become of each object.
    """

    do: Do
    report: Report = field(default_factory=Report)
    typed: ModelDeployment | None = None
    context: Context[Any] | None = None
    objects: tuple[Resource, ...] = ()
    plan: Plan | None = None
    planned: Callable[[Mapping[Identity, Resource]], Plan] | None = None
    """The plan for other knowledge of what there is."""
    prunes: bool = False
    """Whether what is no longer wanted may go: the primary serves what the newest spec asks for."""

    @property
    def verified(self) -> bool:
        """Whether the schema of what is written is known."""
        return self.context is None or self.context.upstream.verified


def decide(seen: Seen, host: ProviderHost, *, settings: object) -> Decision:
    """The decision. What is wrong with the plugin becomes part of what is told; nothing is raised for it."""
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
        return Decision(do=Do.WATCH, report=Report(said=(_waits_for(seen.held_by),)))
    try:
        return _decide(seen, host, settings=settings)
    except (PluginFault, ParseError) as error:
        log.exception("%s: the provider's plugin is at fault", key_of(deployment))
        # What runs goes on, and is read as far as the plugin can still read it.
        return _watching(seen, host, _base(seen, host).with_(plugin_fault(error)), settings=settings)


def _decide(seen: Seen, host: ProviderHost, *, settings: object) -> Decision:
    installed = seen.installed[host.primary_kind.group, host.primary_kind.kind]
    base = _base(seen, host)
    if (invalid := _invalid(seen)) is not None:
        told = Told(component="Validated", reason="ValidationFailed", message=invalid, hinders=True)
        return _watching(seen, host, base.with_(told), settings=settings)
    if (missing := _missing(seen, host)) is not None:
        told, subject = missing
        return _watching(seen, host, replace(base.with_(told), subject=subject), settings=settings)
    if not seen.settled:
        return Decision(do=Do.NOTHING)  # the caches' first sight of everything brings every deployment back
    typed = parsed(seen.deployment)
    wanted_for = written_for(seen.deployment, typed)
    context = _context(seen, host, installed, settings=settings, wanted_for=wanted_for)
    judged = judge(host, seen.deployment, typed, context, wanted_for=wanted_for)
    base = replace(base, warnings=(*judged.warnings, *_waiting(seen, host, installed, judged, typed, context)))
    known = Decision(do=Do.WATCH, typed=typed, context=context)
    if judged.blockers and not typed.spec.suspend:
        return replace(known, report=base.with_(_blocked(judged)))
    base = base.with_(_blocked(judged, hinders=False) if judged.blockers else _compatible(host, context, installed))
    planned, plan = None, None
    if judged.objects:
        planned = partial(
            plan_of,
            judged.objects,
            deployment=seen.deployment,
            provider=host.name,
            dead=_dead(seen, host, typed, context, wanted_for=wanted_for),
        )
        plan = planned(seen.find(judged.objects))
    obsolete = plan is not None and bool(plan.of(Action.DELETE))
    runs = _observation(seen, host, typed, context) if obsolete else None
    prunes = runs is not None and runs.current
    do = Do.PREVIEW if seen.dry_run else Do.SUSPEND if typed.spec.suspend else Do.BRING
    return replace(known, do=do, report=base, objects=judged.objects, plan=plan, planned=planned, prunes=prunes)


def observe(
    host: ProviderHost, decision: Decision, seen: Seen, *, primary: Resource | None, objects: tuple[Resource, ...]
) -> Observation | None:
    """What the plugin makes of what exists; None where it cannot be asked, or there is nothing. Raises PluginFault."""
    if primary is None or decision.typed is None or decision.context is None:
        return None
    observed = Observed(
        primary=primary,
        objects=(*objects, *seen.selected),
        events=seen.events,
        applied=applied_at(primary, names.provider_manager(host.name)),
    )
    view, _ = tracked(decision.typed)  # its own copy of everything that can be changed
    return host.translate_status(view, observed, decision.context)


# ------------------------------------------------------------------------------------------------------- the pieces


def _base(seen: Seen, host: ProviderHost) -> Report:
    return Report() if seen.primary is None else report_on(seen, host, seen.primary)


def report_on(seen: Seen, host: ProviderHost, primary: Resource) -> Report:
    """What is told of the primary object that exists, whatever is done about it."""
    name, kind = key_of(primary).name, str(primary.get("kind"))
    installed = seen.installed.get(identity_in(primary)[:2])
    served = installed.served if installed is not None else ()
    own = next((upstream for upstream in served if upstream.api_version == primary.get("apiVersion")), None)
    return Report(
        resource=primary,
        schema_hash=own.schema_hash if own is not None else "",
        applied=applied_at(primary, names.provider_manager(host.name)),
        selector=selector_of(host, seen.key.name, name),
        subject=f"{kind}/{seen.key.namespace}/{name}",
        rolled_out=seen.rolled_out,
    )


def _watching(seen: Seen, host: ProviderHost, report: Report, *, settings: object) -> Decision:
    """Nothing may be done; what runs is read all the same, as far as the deployment can be."""
    primary = seen.primary
    if primary is None:
        return Decision(do=Do.WATCH, report=report)
    kind = host.kinds.get(identity_in(primary)[:2])
    writer = writer_of(primary, host.transformers_of(kind)) if kind is not None else None
    if writer is None:
        return Decision(do=Do.WATCH, report=report)
    upstream = Upstream(api_version=str(primary.get("apiVersion")), transformer=writer, verified=False)
    try:
        typed = parsed(seen.deployment)
    except ParseError:
        return Decision(do=Do.WATCH, report=report)  # a spec that cannot even be read: what runs is named, not judged
    kept = Installed(upstream=upstream, reason="", message="")
    context = _context(seen, host, kept, settings=settings, wanted_for=written_for(seen.deployment, typed))
    return Decision(do=Do.WATCH, report=report, typed=typed, context=context)


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


def _context(
    seen: Seen, host: ProviderHost, installed: Installed, *, settings: object, wanted_for: str
) -> Context[Any]:
    """What the plugin is told. What exists keeps its version and its transformer (ruling 27)."""
    verdicts = ((kind.key, seen.installed[kind.group, kind.kind].upstream) for kind in host.manifest.upstream)
    served = {key: upstream for key, upstream in verdicts if upstream is not None}
    primary, kind = seen.primary, host.primary_kind
    upstream, live_kind = installed.upstream, ""
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


def _waiting(
    seen: Seen,
    host: ProviderHost,
    installed: Installed,
    judged: Judgement,
    typed: ModelDeployment,
    context: Context[Any],
) -> tuple[Finding, ...]:
    """A warning where what runs is kept as an older transformer has it, and the newest one would write it otherwise."""
    newest = installed.upstream
    if seen.primary is None or newest is None or not judged.objects or not newest_waits(context.upstream, installed):
        return ()
    served = {**context.served, host.primary_kind.key: newest}
    other = judge(host, seen.deployment, typed, replace(context, upstream=newest, served=served))
    if [_essence(obj) for obj in other.objects] == [_essence(obj) for obj in judged.objects]:
        return ()
    text = (
        f"written as {context.upstream.transformer.name} has it; a newer way ({newest.transformer.name}) is taken with "
        f"the next change of the spec, or when the annotation {names.ADOPT} gets a new value: it may restart the model"
    )
    return (Finding(path="", reason="NewerTransformerWaits", message=text),)


def _essence(obj: Resource) -> Resource:
    """An object without what the runtime notes on it."""
    return {**obj, "metadata": {"name": obj["metadata"]["name"]}}


def _dead(seen: Seen, host: ProviderHost, typed: ModelDeployment, context: Context[Any], *, wanted_for: str) -> str:
    """Why the primary object has to be made anew although nothing in it changed: it is dead, and the spec is new."""
    primary = seen.primary
    if primary is None or dig(primary, "metadata", "annotations", names.WRITTEN_FOR) == wanted_for:
        return ""
    observation = _observation(seen, host, typed, context)
    return observation.dead if observation is not None else ""


def _observation(seen: Seen, host: ProviderHost, typed: ModelDeployment, context: Context[Any]) -> Observation | None:
    """What is there before anything is done."""
    known = Decision(do=Do.WATCH, typed=typed, context=context)
    return observe(host, known, seen, primary=seen.primary, objects=seen.ours)


def _compatible(host: ProviderHost, context: Context[Any], installed: Installed) -> Told:
    verified = context.upstream.verified
    text = f"Configuration compatible with {host.manifest.display_name or host.name}"
    return Told(
        condition="ProviderCompatible",
        ok=True,
        reason="CompatibilityVerified" if verified else "UnverifiedSchema",
        message=text if verified else installed.message,
    )


def _blocked(judged: Judgement, *, hinders: bool = True) -> Told:
    """The provider cannot do it: nothing is created, what runs is left alone."""
    return Told(
        condition="ProviderCompatible",
        reason=judged.blockers[0].reason,
        message="; ".join(finding.message for finding in judged.blockers),
        hinders=hinders,
    )


def plugin_fault(error: Exception) -> Told:
    """What is told where a hook did not do what the contract says."""
    return Told(component="Provider", reason="ProviderError", message=str(error), hinders=True)


def _waits_for(other: str) -> Told:
    """The provider before us still cleans up; the removal of its finalizer brings us back."""
    text = (
        f"Waiting until provider '{other}' has removed what it made. If it does not run any more, delete that "
        f"by hand, and then the finalizer {names.provider_finalizer(other)} of this ModelDeployment"
    )
    return Told(component="Handover", reason="WaitingForProvider", message=text, hinders=True, waits=True)
