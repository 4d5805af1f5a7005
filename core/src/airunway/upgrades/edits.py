"""Plans what an edited deployment makes of its upstream objects, with the decisions of core, model cache and provider.

Pure. Example: another image is one step, ``update Workspace 'llama'``, as the provider would carry it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from airunway.api import names
from airunway.artifacts.claims import access_mode_of
from airunway.artifacts.deployments import CONDITION, CacheFacts, artifact_of, decide_cache, request_of
from airunway.configs.resolution import is_refused
from airunway.controller.decision import decide as decide_core
from airunway.kube import previous_content
from airunway.owned.objects import is_ours
from airunway.owned.plan import Action, Step, conflict_text
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import resolve_among
from airunway.resource import Resource, annotations_of, condition_of, dig, filled, finalizers_of
from airunway.runtime.plan import Decision, Do, decide
from airunway.runtime.report import located
from airunway.runtime.state import ClusterState, provider_mark
from airunway.schema import defaulted
from airunway.selection.choice import unsettled
from airunway.selection.facts import engine_entry, provider_facts
from airunway.status.conditions import PART_NAMES, parts_of, written_on
from airunway.templates.expansion import TEMPLATE_READY
from airunway.templates.part import is_judged, source_among, taken_of, template_part
from airunway.upgrades.forecast import Cluster, state_in
from airunway.validation import validate
from airunway.view.plan import PlanStep, plan_step

_OF_CORE = ("Validated", TEMPLATE_READY, "EngineSelected", "ProviderSelected", "RuntimeConfigReady")

_WORDS = {Action.REPLACE: "recreate", Action.FOREIGN: "conflict"}


@dataclass(frozen=True, kw_only=True)
class EditFacts:
    """What the decisions of core and parts depend on beside the deployment."""

    providers: tuple[Resource, ...]
    """The InferenceProviderConfigs."""
    configs: tuple[Resource, ...] = ()
    """RuntimeConfigs and ClusterRuntimeConfigs of the name that the deployment follows."""
    artifacts: tuple[Resource, ...] = ()
    """The ModelArtifacts of the namespace, if the deployment asks for a model cache."""
    templates: tuple[Resource, ...] = ()
    """ModelTemplates of the namespace and ClusterModelTemplates, if the deployment names one, or its model."""
    parts: tuple[str, ...] = PART_NAMES
    """The parts of the core that are on."""


@dataclass(frozen=True, kw_only=True)
class LiveUpstream:
    """What a provider sees of a deployment."""

    cluster: Cluster
    """The provider's kinds."""
    settings: object
    """The provider's settings."""
    verify: bool = True
    """Whether it writes under unknown schemas."""
    objects: tuple[Resource, ...] = ()
    """The deployment's objects of the kinds that the provider writes."""
    selected: tuple[Resource, ...] = ()
    """The objects that the upstream made of the primary one, of the kinds that the provider only reads."""
    foreign: tuple[Resource, ...] = ()
    """Other objects with the name of a wanted one."""


@dataclass(frozen=True, kw_only=True)
class UpstreamPlan:
    """What happens to the upstream objects."""

    steps: tuple[PlanStep, ...] = ()
    """One for each object."""
    waits: tuple[str, ...] = ()
    """Why nothing, or not all, is written."""
    warnings: tuple[str, ...] = ()
    """The provider's warnings."""
    notes: tuple[str, ...] = ()
    """What else follows."""


# -------------------------------------------------------------------------------------------------------- the decisions


def assigned(deployment: Resource, around: EditFacts, *, now: datetime) -> Resource:
    """The deployment as the provider reads it: with its effective spec, and the verdicts of the core and of the model
    cache on it.
    """
    taken = taken_of(deployment)
    template = template_part(deployment, source_among(around.templates), taken=taken)
    judged = deployment if template.unresolved else template.deployment
    deployment = template.deployment
    resolution = resolve_among(deployment, around.configs)
    decide = partial(
        decide_core,
        violations=unsettled(deployment, validate(judged), accepted=is_judged(deployment, template)),
        providers=[provider_facts(config) for config in around.providers],
        selector=True,
        now=now,
        resolution=resolution,
        parts=around.parts,
        template=template,
        taken=taken,
    )
    decision = decide(deployment)
    live = deployment.get("status") or {}
    before, chosen = dig(live, "provider", "name"), dig(decision.status, "provider", "name")
    if before and chosen and before != chosen:
        live = {}  # the previous provider drops its part of the status before the next one begins
    elif before and chosen:
        decision.status["provider"] = {**live["provider"], **decision.status["provider"]}
    ours = decision.status.get("conditions") or []
    types = {each["type"] for each in ours}
    others = [each for each in live.get("conditions") or () if each.get("type") not in types]
    status = {**live, **decision.status, "conditions": [*others, *ours]}
    answered = _with_cache({**deployment, "status": status}, around, now=now)
    if dig(answered, "status", "modelCache") == dig(status, "modelCache"):
        return answered
    before = {**answered, "status": {**answered["status"], "revision": live.get("revision")}}
    return {**answered, "status": {**answered["status"], **filled(revision=decide(before).status.get("revision"))}}


def _with_cache(deployment: Resource, around: EditFacts, *, now: datetime) -> Resource:
    """The deployment with what the model cache part says about this spec."""
    status = deployment["status"]
    if names.MODEL_CACHE_PART not in parts_of(deployment):
        return deployment
    resolution = resolve_among(deployment, around.configs)
    used = dig(status, "modelCache", "artifactName")
    named = {str(dig(each, "metadata", "name")): each for each in around.artifacts}
    request = artifact_of(deployment, request_of(deployment, resolution.config), named.get(str(used)))
    name = request.name if request is not None else ""
    artifact, access_mode = named.get(name), ""
    if artifact is not None:  # its claim is not read: what was published about it has the mode
        published = dig(status, "modelCache", "accessMode") if name == used else None
        access_mode = published or access_mode_of(artifact, resolve_among(artifact, around.configs).config, None)
    provider = dig(status, "provider", "name")
    config = next((each for each in around.providers if dig(each, "metadata", "name") == provider), None)
    decision = decide_cache(
        CacheFacts(
            deployment=deployment,
            request=request,
            artifact=artifact,
            access_mode=access_mode,
            config_unusable=resolution.missing or is_refused(deployment),
            engine=engine_entry(config, deployment),
        )
    )
    if not decision.write_status:
        return deployment
    before = status.get("conditions") or []
    kept = [each for each in before if each.get("type") != CONDITION]
    if decision.condition is not None:
        kept += written_on(deployment, [decision.condition], now=now)
    others = {key: value for key, value in status.items() if key != "modelCache"}
    return {**deployment, "status": {**others, **filled(modelCache=decision.model_cache), "conditions": kept}}


# ------------------------------------------------------------------------------------------------------------- the plan


def unnamed(
    host: ProviderHost, deployment: Resource, around: EditFacts, live: LiveUpstream, *, now: datetime
) -> list[Resource]:
    """The wanted objects that the deployment does not have: others may have their names already. Raises PluginFault."""
    _, decision = _decided(host, deployment, around, live, now=now)
    return [step.wanted for step in _steps(decision) if step.action is Action.CREATE and step.wanted is not None]


def planned(
    host: ProviderHost, deployment: Resource, around: EditFacts, live: LiveUpstream, *, now: datetime
) -> UpstreamPlan:
    """What the provider makes of a deployment of `assigned`. Raises PluginFault for a broken plugin."""
    state, decision = _decided(host, deployment, around, live, now=now)
    warnings = tuple(located(finding) for finding in decision.warnings)
    faults = [fault for result in decision.results if (fault := result.as_fault()) is not None]
    waits = [f"{fault.reason}: {fault.message}" for fault in faults]
    if state.paused:
        waits.append(f"it is paused (annotation {names.PAUSED}): nothing is written")
    elif state.dry_run:
        waits.append(f"it is a dry run (annotation {names.DRY_RUN}): its provider writes nothing upstream")
    elif decision.do in (Do.SKIP, Do.OBSERVE_ONLY) and not waits:
        waits += _of_core(deployment) or ["the provider writes nothing yet"]
    if decision.do is Do.SUSPEND:
        return UpstreamPlan(steps=deletions(state.ours), waits=tuple(waits), warnings=warnings)
    if decision.do is not Do.APPLY:
        kept = tuple(plan_step("keep", obj, obj, primary=obj is state.primary) for obj in state.ours)
        return UpstreamPlan(steps=kept, waits=tuple(waits), warnings=warnings)
    steps = _steps(decision)
    later = any(step.action is Action.DELETE for step in steps) and not decision.deletes_obsolete
    for step in steps:
        if step.action is Action.FOREIGN and step.wanted and step.live:
            waits.append(conflict_text(step.wanted, step.live))
    shown = tuple(_shown(step, live.cluster, manager=names.provider_manager(host.name)) for step in steps)
    notes = ["what is no longer wanted is deleted once the new spec serves"] if later else []
    return UpstreamPlan(steps=shown, waits=tuple(waits), warnings=warnings, notes=tuple(notes))


def deletions(objects: Sequence[Resource]) -> tuple[PlanStep, ...]:
    """The steps that delete these objects."""
    return tuple(
        plan_step("delete", _without_status(obj), None, primary=names.TRANSFORMER in annotations_of(obj))
        for obj in objects
    )


def _decided(
    host: ProviderHost, deployment: Resource, around: EditFacts, live: LiveUpstream, *, now: datetime
) -> tuple[ClusterState, Decision]:
    own = names.provider_finalizer(host.name)
    # A previous provider deletes its objects first; the plan is about what comes then.
    held = [each for each in finalizers_of(deployment) if each == own or not names.provider_of_finalizer(each)]
    state = state_in(
        host,
        {**deployment, "metadata": {**deployment["metadata"], "finalizers": held}},
        live.objects,
        live.cluster,
        now=now,
        verify=live.verify,
        selected=live.selected,
        foreign=[obj for obj in live.foreign if not is_ours(obj, deployment, provider_mark(host.name))],
    )
    return state, decide(state, host, settings=live.settings)


def _steps(decision: Decision) -> tuple[Step, ...]:
    return decision.plan.steps if decision.plan is not None else ()


def _shown(step: Step, cluster: Cluster, *, manager: str) -> PlanStep:
    wanted = step.wanted
    if wanted is not None:
        wanted = defaulted(wanted, cluster.schema_of(wanted) or {})
    before = _without_status(step.live) if step.live is not None else None
    if step.live is not None and wanted is not None and step.action in (Action.UPDATE, Action.REPLACE):
        before = previous_content(wanted, step.live, manager=manager)
    return plan_step(
        _WORDS.get(step.action, step.action.value),
        before,
        wanted,
        primary=step.primary,
        causes=step.causes,
        interrupts=step.outages,
    )


def _without_status(obj: Resource) -> Resource:
    return {key: value for key, value in obj.items() if key != "status"}


def _of_core(deployment: Resource) -> list[str]:
    """Why the core has assigned the deployment to no provider, or holds it back."""
    found = (condition_of(deployment, type_) or {} for type_ in (*_OF_CORE, CONDITION, "StorageReady"))
    return [f"{each.get('reason')}: {each.get('message')}" for each in found if each.get("status") == "False"]
