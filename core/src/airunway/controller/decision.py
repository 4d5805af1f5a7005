"""Decides the core's part of a ModelDeployment's status (docs/architecture.md). Pure.

The reconciler reads the facts from its caches, calls `decide`, and writes the result if it differs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.artifacts.deployments import wants_cache
from airunway.configs.resolution import (
    CONFIG_READY,
    DEFAULT,
    EffectiveConfig,
    Resolution,
    Rollout,
)
from airunway.controller.config_part import follow_config
from airunway.controller.core_pass import CorePass, owns_message
from airunway.resource import (
    Resource,
    condition_of,
    dig,
    filled,
    finalizers_of,
    format_time,
    is_true,
    text_at,
)
from airunway.revisions.revision import CACHE, PROVIDER, SETTINGS, TEMPLATE, Standing, next_revision, revision_in
from airunway.revisions.same_spec import adopted_by
from airunway.revisions.wanted import wanted_revision
from airunway.selection.choice import EngineChoice, misfit, select_engine, select_provider
from airunway.selection.facts import EngineFacts, ProviderFacts, ProviderRefusal, holder_of, is_undecided, refusals
from airunway.selection.provider import (
    EXPLICIT,
    NO_HEALTHY,
    Candidate,
    ProviderChoice,
    not_installed,
    not_registered,
    recorded,
)
from airunway.status.beside import with_beside
from airunway.status.conditions import SERVED, Condition, conditions_in, is_paused, written_on
from airunway.status.events import Event
from airunway.status.rollup import OVERALL, Fault, overall_conditions, parent_conditions, roll_up
from airunway.templates.expansion import TEMPLATE_READY
from airunway.templates.part import TemplatePart, taken_of
from airunway.validation import Violation
from airunway.validation.policy import Grants

CORE_CONDITIONS = frozenset(
    {
        "Validated",
        "EngineSelected",
        "ProviderSelected",
        CONFIG_READY,
        TEMPLATE_READY,
        "ConfigValid",
        "AuthValid",
        "DependenciesReachable",
        "Paused",
        "ProviderResponsive",
    }
)
"""Condition types that the core writes; its parts and the providers write all others."""

COMPATIBLE = "ProviderCompatible"
"""The condition with a provider's verdict; the core writes it for a provider that cannot take over."""

NO_CONFIG = Resolution(name=DEFAULT, config=None)
"""What a cluster without runtime configs resolves to."""

SILENT_AFTER = timedelta(minutes=5)
"""Time without a heartbeat after which a provider's report counts as outdated (docs/reference/conditions.md)."""

_WAS_EXPLICIT = "kept: spec.provider.name named it before"

NO_SELECTOR = "No provider specified and provider-selector not installed"


@dataclass(frozen=True, kw_only=True)
class CoreDecision:
    """The result of a pass of the core."""

    status: Resource
    """The complete status that the core wants to own."""
    events: tuple[Event, ...] = ()
    """The events to emit."""


def provider_owns_phase(deployment: Resource) -> bool:
    """Whether a provider owns phase, message, reason and ``Ready``.

    It does while `status.observedGeneration` is set, which only providers write; it stops by dropping its status.
    """
    return dig(deployment, "status", "observedGeneration") is not None


def decide(
    deployment: Resource,
    *,
    violations: Sequence[Violation],
    providers: Sequence[ProviderFacts],
    selector: bool,
    now: datetime,
    grants: Grants | None = None,
    resolution: Resolution = NO_CONFIG,
    granted: Collection[str] = (),
    parts: Sequence[str] = (),
    template: TemplatePart | None = None,
    taken: str | None = None,
) -> CoreDecision:
    """The core's part of the status.

    `violations` are those of the current spec; `selector` is whether the built-in provider selection is on; `grants`
    are what the namespace may use (None: anything, but a config that the core has refused stays refused).
    `resolution` is the runtime config that the deployment follows; `granted` are the parts of its revision that it may
    take although it serves; `parts` are the parts of the core that are on. `template` is the part of its template;
    `deployment` has the effective spec then. `taken` is the digest of its own spec (`templates.taken_of`; None: it is
    computed).
    """
    work = _Pass(deployment, providers=providers, selector=selector, grants=grants, now=now)
    follow_config(work, resolution, parts=parts)
    if is_paused(deployment):
        return work.paused()
    template = template or TemplatePart(deployment=deployment, status={})
    work.status |= template.status
    fault = work.judge(violations, template)
    if violations or template.unresolved:
        work.keep_revision(template)
    else:
        work.status |= filled(
            revision=work.revision(
                template, resolution, granted=granted, taken=taken or taken_of(deployment), parts=parts
            )
        )
    return work.decision(fault)


class _Pass(CorePass):
    """What is decided of revision, selection and phase."""

    # -------------------------------------------------------------------------------------------------------- revision

    def revision(
        self,
        template: TemplatePart,
        resolution: Resolution,
        *,
        granted: Collection[str],
        taken: str,
        parts: Sequence[str],
    ) -> Resource:
        """What the deployment runs with from now on; empty while a source cannot be used and nothing is kept of it."""
        deployment, current, config = self.deployment, revision_in(self.deployment), resolution.config
        name = text_at(self.status, "provider", "name") or text_at(self.live, "provider", "name")
        engine = self._engine_of(name)
        wanted = wanted_revision(
            deployment,
            current=current,
            taken_for=taken,
            adopted=adopted_by(deployment, text_at(current, "adopted")),
            template=template.newest,
            template_unusable=template.unusable,
            template_hash=text_at(template.status, "effectiveTemplate", "hash"),
            resolution=resolution,
            config_unusable=self.config_fault is not None or (config is not None and config.too_large),
            provider=name,
            translation=self.by_name[name].translation if name in self.by_name else None,
            wants_cache=wants_cache(deployment) and engine is not None and "modelCache" in engine.flags,
            makes_pool=engine is not None and engine.makes_pool,
            gateway_on=names.GATEWAY_PART in parts,
        )
        standing = Standing(
            served=is_true(deployment, SERVED),
            granted={*granted, *([TEMPLATE] if template.value == template.newest else [])},
            stranded=not dig(self.live, "replicas", "ready") and not is_true(deployment, "Ready"),
            made=bool(dig(self.live, "provider", "resourceName")),
            rolls_out=rolled_out_by(config),
        )
        made = next_revision(current, wanted, standing, now=self.now)
        if not current and made.get("hash") and holder_of(deployment) is not None:
            text = f"revision {made['hash']} was made again; objects of another one are changed to it"
            self.events.append(Event(reason="RevisionMadeAgain", note=f"The status was lost: {text}"))
        return made

    def keep_revision(self, template: TemplatePart) -> None:
        """Keep what is recorded while the spec cannot be used. One that is too large with what its template gives gets
        other values of it, without a hash: no provider may use them before they are judged.
        """
        self.copy_fields("revision")
        current = revision_in(self.deployment)
        if EXCESS in self.deployment and current.get(TEMPLATE, {}) != template.value:
            others = {key: value for key, value in current.items() if key not in ("hash", "pending", TEMPLATE)}
            self.status["revision"] = {**others, **filled(template=template.value)}

    def _engine_of(self, provider: str) -> EngineFacts | None:
        facts = self.by_name.get(provider)
        engine = text_at(self.status, "engine", "type") or text_at(self.live, "engine", "type")
        return facts.engine(engine) if facts is not None else None

    # ------------------------------------------------------------------------------------------------------- selection

    def judge(self, violations: Sequence[Violation], template: TemplatePart) -> Fault:
        """Add what is decided on a deployment that is not paused; returns what the phase says until a provider has
        taken over.
        """
        if violations or template.unresolved:
            # The selection for the last valid spec stays: objects may exist because of it.
            self.copy_fields("engine", "selection")
            self.copy_provider()
        text = "Schema validation passed"
        if violations:
            text = f"Validation failed: {'; '.join(map(str, violations))}"
        reason = "ValidationFailed" if violations else "ValidationPassed"
        self.add_condition("Validated", not violations, reason, text)
        if template.condition is not None:
            self.own.append(template.condition)
        self._note_silence()
        if violations:
            return Fault(component="Validated", reason=reason, message=text)
        if template.unresolved and template.fault is not None:
            return template.fault
        if (hindered := self._hindered_handover()) is not None:
            return self._hold_back(*hindered)
        before = self.before
        refused = refusals(self.deployment) if self.selector and is_undecided(self.deployment) else {}
        if before in refused:
            before = None  # it refused and nothing exists yet: the others are considered
        engine = select_engine(
            self.deployment, self.providers, refused=refused, grants=self.grants, before=before, now=self.now
        )
        if engine.engine is None:
            return self._without_engine(engine, before, refused)
        self.status["engine"] = {"type": engine.engine, "selectedReason": engine.reason}
        explicit = bool(dig(self.deployment, "spec", "engine", "type"))
        self.add_condition("EngineSelected", True, "ExplicitSelection" if explicit else "AutoSelected", engine.message)
        if dig(self.live, "engine", "type") != engine.engine:
            text = f"Selected engine '{engine.engine}': {engine.reason}"
            self.events.append(Event(reason="EngineSelected", note=text))
        fault = self._select_provider(engine.engine, before, refused) or self.config_fault or template.fault
        if fault is not None:
            return fault
        name = dig(self.status, "provider", "name") or dig(self.live, "provider", "name")
        absent = name in self.by_name and not self.by_name[name].installed
        return Fault(
            component="ProviderSelected",
            reason="UpstreamNotInstalled" if absent else "WaitingForProvider",
            message=not_installed(name) if absent else f"Waiting for provider '{name}' to take over",
            pending=True,
        )

    def _note_silence(self) -> None:
        """``ProviderResponsive=False`` while the deployment's provider has sent no heartbeat for `SILENT_AFTER`, or has
        no config that could have one.

        It is a condition of the core's own, because ``Ready`` is the provider's and stays as last reported. There is no
        such condition while all is well.
        """
        name = dig(self.live, "provider", "name")
        provider = self.by_name.get(name)
        if name and provider is None and provider_owns_phase(self.deployment):
            text = f"{not_registered(name, self.providers)}; the status may be stale"
            self.add_condition("ProviderResponsive", False, "ProviderStale", text)
        elif provider is not None and provider.is_silent(SILENT_AFTER, now=self.now):
            text = f"No heartbeat from provider '{name}' for 5 minutes; the status may be stale"
            self.add_condition("ProviderResponsive", False, "ProviderStale", text)

    def _hindered_handover(self) -> tuple[str, str] | None:
        """Reason and message why the named provider cannot take over yet; None if it can, or need not.

        A hand-over now would delete the objects of the previous provider, and no provider would create new ones. The
        previous provider's finalizer shows that it has objects. A provider that runs the deployment already keeps it
        while its config is gone.
        """
        named, before = dig(self.deployment, "spec", "provider", "name"), self.before
        if not named or not before or names.provider_finalizer(before) not in finalizers_of(self.deployment):
            return None
        next_ = self.by_name.get(named)
        if named == before:
            return None
        stays = with_beside(f"what provider '{before}' runs stays as it is until then", self.deployment)
        if next_ is None:
            return "ProviderNotFound", f"{not_registered(named, self.providers)}; {stays}"
        if not next_.installed:
            return "UpstreamNotInstalled", f"{not_installed(named)}; {stays}"
        if not next_.ready or next_.is_silent(SILENT_AFTER, now=self.now):
            return "WaitingForProvider", f"Provider '{named}' is not ready; {stays}"
        cache = condition_of(self.deployment, "ModelCacheReady") or {}
        if cache.get("reason") == "CacheLost":  # The next one could not start before the new copy is there
            return "CacheLost", f"The weights are fetched again before provider '{named}' takes over; {stays}"
        if problem := misfit(self.deployment, next_, grants=self.grants):
            return "NoProviderSelected", f"{problem}; {stays}"
        return None

    def _hold_back(self, reason: str, message: str) -> Fault:
        """Keep the previous selection, and say why the named provider has not got the deployment yet."""
        self.copy_fields("engine", "selection")
        self.copy_provider()
        chosen = condition_of(self.deployment, "EngineSelected") or {}
        if chosen.get("status") == "True":
            self.add_condition("EngineSelected", True, str(chosen.get("reason", "")), str(chosen.get("message", "")))
        return self._unselected(reason, message)

    def _without_engine(
        self, choice: EngineChoice, before: str | None, refused: Mapping[str, ProviderRefusal]
    ) -> Fault:
        text, pinned = f"Engine selection failed: {choice.message}", dig(self.deployment, "spec", "provider", "name")
        reason = "NoFittingEngine" if choice.misfit else "NoEngineSelected"
        self.add_condition("EngineSelected", False, reason, text)
        if pinned and pinned not in self.by_name:
            # The missing provider is the reason why there is no engine; report it as if the engine were named.
            return self._not_registered(pinned)
        if pinned and choice.misfit:
            self._explicit(pinned, before)
            words = misfit(self.deployment, self.by_name[pinned], grants=self.grants) or choice.message
            return self._incompatible("IncompatibleConfiguration", words)
        if not pinned and before:
            # A provider that was selected stays, whatever happens to configs (docs/selection.md).
            self.copy_fields("selection")
            if self.chose:
                self._keep_provider(before)
        elif not pinned and self.selector and self.providers:
            self._record(self._choice(None, refused).candidates)
            if choice.message == NO_HEALTHY:
                return self._unselected("NoProviderSelected", NO_HEALTHY)
        return Fault(component="EngineSelected", reason=reason, message=text, pending=True)

    def _select_provider(self, engine: str, before: str | None, refused: Mapping[str, ProviderRefusal]) -> Fault | None:
        """Add the provider's part; returns why there is none, or None.

        `before` is the provider that stays, if one is selected that has not `refused`.
        """
        explicit = dig(self.deployment, "spec", "provider", "name")
        if explicit:
            exists = explicit == before and bool(dig(self.live, "provider", "resourceName"))
            if explicit not in self.by_name and not exists:
                return self._not_registered(explicit)
            self._explicit(explicit, before)
            return None
        if not self.selector:
            if self.grants.providers is not None:
                # Providers read there what the policy denies them, before an external selector can choose one of them.
                # A refusal is recorded, too: nothing else says that it has been read.
                answered = refusals(self.deployment) if is_undecided(self.deployment) else {}
                self._record(self._choice(None, answered).candidates)
            # A custom selector that has chosen owns the field and its condition: we never write them. What the core
            # chose, while its selector was on or the spec named it, stays until a selector takes the field over.
            if before and self.chose:
                self._keep_provider(before)
            return None if before else self._waiting_for_selector()
        if before:
            self.copy_fields("selection")
            self._keep_provider(before)
            return None
        choice = self._choice(engine, refused)
        self._record(choice.candidates)
        if choice.provider is None:
            return self._unselected("NoProviderSelected", choice.message)
        self.add_condition("ProviderSelected", True, "AutoSelected", choice.message)
        self._select(choice.provider, choice.reason, dig(self.live, "provider", "name"), refused)
        return None

    def _keep_provider(self, provider: str) -> None:
        """Keep a provider that the spec does not name."""
        reason = str(dig(self.live, "provider", "selectedReason", default=""))
        if reason in (EXPLICIT, _WAS_EXPLICIT):
            reason, text = _WAS_EXPLICIT, f"Provider {provider} stays: spec.provider.name named it before"
        else:
            text = f"Provider {provider} auto-selected"
        self.add_condition("ProviderSelected", True, "AutoSelected", text)
        self._select(provider, reason, provider)

    def _waiting_for_selector(self) -> Fault:
        """What the phase says. The condition is the selector's alone: its server-side apply meets no conflict."""
        return Fault(component="ProviderSelected", reason="NoProviderSelected", message=NO_SELECTOR, pending=True)

    def _explicit(self, provider: str, before: str | None) -> None:
        """Select the provider that the spec names."""
        text, holders = "Provider explicitly specified in spec", _holders(self.deployment)
        if others := [each for each in holders if each != provider]:
            text = with_beside(f"{text}; provider '{others[0]}' removes what it made first", self.deployment)
        self.add_condition("ProviderSelected", True, "ExplicitSelection", text)
        self._select(provider, EXPLICIT, before)

    def _not_registered(self, provider: str) -> Fault:
        """Say of the named provider that it is not registered: no controller of it can."""
        message = not_registered(provider, self.providers)
        self.status["provider"] = {"name": provider, "selectedReason": EXPLICIT}
        self.add_condition("ProviderSelected", False, "ProviderNotFound", message)
        return self._incompatible("ProviderNotFound", message)

    def _incompatible(self, reason: str, message: str) -> Fault:
        """Write the provider's verdict for it, as long as no provider has taken the deployment over."""
        if not provider_owns_phase(self.deployment):
            self.add_condition(COMPATIBLE, False, reason, message)
        return Fault(component=COMPATIBLE, reason=reason, message=message, pending=True)

    def _unselected(self, reason: str, message: str) -> Fault:
        self.add_condition("ProviderSelected", False, reason, message)
        return Fault(component="ProviderSelected", reason=reason, message=message, pending=True)

    def _select(
        self, provider: str, reason: str, before: str | None, refused: Mapping[str, ProviderRefusal] | None = None
    ) -> None:
        self.status["provider"] = {"name": provider, "selectedReason": reason}
        if provider == before:
            return
        text = f"Selected provider '{provider}': {reason}"
        if refused and before is not None and before in refused:
            text += f"; provider '{before}' refused: {refused[before].message}"
        self.events.append(Event(reason="ProviderSelected", note=text))

    def _choice(self, engine: str | None, refused: Mapping[str, ProviderRefusal]) -> ProviderChoice:
        return select_provider(
            self.deployment, self.providers, engine=engine, grants=self.grants, refused=refused, now=self.now
        )

    def _record(self, weighed: Sequence[Candidate]) -> None:
        """Add ``status.selection``; its time changes only with the candidates, so that an unchanged selection is not
        written.
        """
        candidates = recorded(weighed)
        if dig(self.live, "selection", "candidates") == candidates:
            self.copy_fields("selection")
        else:
            self.status["selection"] = {"candidates": candidates, "evaluatedAt": format_time(self.now)}

    # ---------------------------------------------------------------------------------------------------------- result

    def _written(self, conditions: Sequence[Condition]) -> list[Resource]:
        return written_on(self.deployment, conditions, now=self.now)

    def _add_phase(self, fault: Fault) -> None:
        verdict = roll_up([fault], previous=self.live.get("phase"), created=False, now=self.now)
        self.status |= {"phase": verdict.phase.value, "reason": verdict.reason, "message": verdict.message}
        self.own.extend(overall_conditions(verdict))

    def decision(self, fault: Fault) -> CoreDecision:
        """The decision with parent conditions, and with the phase as long as no provider owns it."""
        ours = CORE_CONDITIONS if provider_owns_phase(self.deployment) else CORE_CONDITIONS | {COMPATIBLE}
        theirs = [each for each in conditions_in(self.live) if each.get("type") not in ours]
        self.own.extend(parent_conditions([*theirs, *self._written(self.own)]))
        if not provider_owns_phase(self.deployment):
            self._add_phase(fault)
        self.status["conditions"] = self._written(self.own)
        return CoreDecision(status=self.status, events=tuple(self.events))

    def paused(self) -> CoreDecision:
        """All that the core owns, unchanged but for the runtime config, and ``Paused=True``."""
        self.copy_fields("engine", "selection", "effectiveTemplate", "revision")
        self.copy_provider()
        kept_types = CORE_CONDITIONS - {"Paused", CONFIG_READY}
        if not self.selector and not owns_message(self.deployment):
            kept_types -= {"ProviderSelected"}  # a custom selector's
        text = f"Reconciliation is paused by the annotation {names.PAUSED}; remove the annotation to continue"
        self.add_condition("Paused", True, "Paused", text)
        unseen = (condition_of(self.deployment, "Ready") or {}).get("reason") in (None, "WaitingForController")
        if provider_owns_phase(self.deployment):
            pass  # the phase is the provider's
        elif unseen:
            # Paused from the start: nothing else would say why nothing happens, and parents are always present.
            self.own.extend(parent_conditions(self._written(self.own)))
            self._add_phase(Fault(component="Paused", reason="Paused", message=text, pending=True))
        else:
            self.status |= {field: self.live[field] for field in ("phase", "reason", "message") if field in self.live}
            kept_types |= {COMPATIBLE, *OVERALL}
        before = {each["type"]: each for each in conditions_in(self.live)}
        kept_types -= {each.type for each in self.own}
        decided = [_unless_only_newer(before.get(each["type"]), each) for each in self._written(self.own)]
        kept = [each for each in conditions_in(self.live) if each.get("type") in kept_types]
        self.status["conditions"] = sorted([*kept, *decided], key=lambda each: str(each["type"]))
        return CoreDecision(status=self.status, events=tuple(self.events))


def rolled_out_by(config: EffectiveConfig | None) -> tuple[str, ...]:
    """The parts of revisions that deployments take in waves under this config. A lost cache needs no config."""
    if config is None or config.too_large:
        return (CACHE,)
    settings = (SETTINGS, TEMPLATE) if config.rollout is Rollout.IMMEDIATELY else ()
    return (CACHE, *settings, *((PROVIDER,) if config.rolls_out_providers else ()))


def _holders(deployment: Resource) -> list[str]:
    """The providers whose finalizers a deployment has."""
    return [name for each in finalizers_of(deployment) if (name := names.provider_of_finalizer(each))]


def _unless_only_newer(before: Resource | None, condition: Resource) -> Resource:
    """The condition; the one before if only its generation differs: a spec that is edited under a pause is not read."""
    if before is None or condition["type"] != CONFIG_READY:
        return condition
    same = all(before.get(field) == condition[field] for field in ("status", "reason", "message"))
    return before if same else condition
