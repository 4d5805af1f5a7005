"""Computes the effect of an upstream's new CRDs on one deployment, with the runtime's own plan. Pure.

`runtime.plan.decide` makes the plan from the objects as the API server would return them under the new schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from airunway.api import names
from airunway.artifacts.deployments import CONDITION as CACHE_READY
from airunway.configs.resolution import CONFIG_READY, Resolution, is_published, is_refused
from airunway.owned.objects import identity_in, named
from airunway.owned.plan import Action, Plan, Step
from airunway.plugins.contract import UpstreamKind, api_version
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import kept_settings, resolve_among, with_defaults
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    is_deleting,
    is_true,
    key_of,
    mapping_at,
    text_at,
)
from airunway.revisions.revision import Standing, next_revision, revision_in
from airunway.revisions.same_spec import adopted_by, taken_for
from airunway.revisions.wanted import wanted_revision
from airunway.runtime.crd_versions import CrdFacts, Installed, crd_facts, detect, translation_status
from airunway.runtime.gate import Gate, assumed_cache, core_faults, is_cached
from airunway.runtime.plan import Decision, Do, decide
from airunway.runtime.state import ClusterState
from airunway.schema import defaulted, dropped, gained, pruned, refusals, schema_in
from airunway.status.conditions import SERVED
from airunway.templates.expansion import own_spec

Edit = Callable[[Resource], Resource]


def _with_variable(spec: Resource) -> Resource:
    return {**spec, "env": [*(spec.get("env") or ()), {"name": "AIRUNWAY_PREFLIGHT", "value": "1"}]}


def _with_replica(spec: Resource) -> Resource:
    scaling = spec.get("scaling") or {}
    return {**spec, "scaling": {**scaling, "replicas": scaling.get("replicas", 1) + 1}}


def _with_gpu(spec: Resource) -> Resource:
    resources = spec.get("resources") or {}
    gpu = resources.get("gpu") or {}
    return {**spec, "resources": {**resources, "gpu": {**gpu, "count": gpu.get("count", 0) + 1}}}


CHANGES: Mapping[str, Edit] = {
    "env": _with_variable,
    "scaling.replicas": _with_replica,
    "resources.gpu.count": _with_gpu,
}
"""Fields that users change, each with a sample change; the effect depends on the field and the upstream."""


class Effect(StrEnum):
    """What happens to the objects of a deployment."""

    LEAVE = "leave"
    """Nothing is written."""
    CREATE = "create"
    """It does not run yet and can be created."""
    UPDATE = "update"
    """It is updated in place, or gets other default values."""
    RECREATE = "recreate"
    """It is deleted and created again."""
    BREAK = "break"
    """It loses fields or objects, or the provider can no longer manage it."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The kinds of a provider in a cluster: CRDs by (group, kind), without those that are not installed."""

    definitions: Mapping[tuple[str, str], Resource]
    kubernetes: tuple[int, int]

    def facts(self, kind: UpstreamKind) -> CrdFacts | None:
        crd = self.definitions.get((kind.group, kind.kind))
        return None if crd is None else replace(crd_facts(crd), established=not is_deleting(crd))

    def schema_of(self, obj: Resource) -> Resource | None:
        """The schema by which an object is read and written; None for a built-in kind."""
        identity = identity_in(obj)
        crd = self.definitions.get((identity.group, identity.kind))
        return None if crd is None else schema_in(crd, str(obj.get("apiVersion")).rpartition("/")[2])


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The effects on one deployment: at once, and when its spec changes after the upgrade."""

    deployment: ObjectKey
    at_once: Effect
    why: str = ""
    on_adopt: Effect = Effect.LEAVE
    """The effect of any change of the spec: the newest transformer is taken."""
    changes: Mapping[str, Effect] = field(default_factory=dict)
    """The effect of each change in `CHANGES`, except those that the provider refuses with and without the upgrade."""
    on_change: Effect = Effect.LEAVE
    """The worst of `on_adopt` and `changes`."""
    why_on_change: str = ""
    harmed_later: bool = False
    """Whether a change breaks or recreates the deployment, and would do less without the upgrade."""
    already: str = ""
    """What is wrong without the upgrade, too, or is deleted: an object of which a roll-out takes the place, for
    example. Empty if nothing is.
    """


def forecast(
    host: ProviderHost,
    deployment: Resource,
    objects: Sequence[Resource],
    *,
    before: Cluster | None,
    after: Cluster,
    settings: object,
    now: datetime,
    verify: bool = True,
    configs: Sequence[Resource] = (),
) -> Forecast:
    """The forecast for a deployment of the provider.

    `objects` are its present upstream objects; `before` is None for a deployment that is only planned. `configs` are
    the runtime configs that it may follow.
    Raises PluginFault for a broken plugin.
    """
    resolution, was = resolve_among(deployment, configs), _essence(deployment)

    def look(cluster: Cluster, of: Resource) -> tuple[Effect, str]:
        state = state_in(host, of, objects, cluster, now=now, verify=verify)
        recorded = with_revision(state, host, resolution, settings=settings, changed=_essence(of) != was, now=now)
        state = replace(state, deployment=recorded)
        return _effect(decide(state, host, settings=settings), cluster, state, host)

    if before is None:
        deployment = _with_cache(deployment, host, configs)
    already, trouble = look(before, deployment) if before is not None else (Effect.LEAVE, "")
    trouble = trouble if already is Effect.BREAK else ""

    def news(effect: Effect, why: str) -> tuple[Effect, str]:
        """Drop a problem that existed before the upgrade."""
        return (Effect.LEAVE, "") if effect is Effect.BREAK and why == trouble else (effect, why)

    effect, why = news(*look(after, deployment))
    if effect is Effect.LEAVE and before is not None:
        if lost := _lost(objects, before, after):
            effect, why = Effect.BREAK, "; ".join(lost)
        elif more := _gained(objects, after):
            effect, why = Effect.UPDATE, "; ".join(more)
    if effect in (Effect.CREATE, Effect.RECREATE):  # the newest transformer makes it
        later = [_Later(what="", effect=Effect.UPDATE, before=Effect.UPDATE)]
    else:
        later = list(_later(look, news, deployment, before=before, after=after))
    worst = max(later, key=lambda each: (_RANK[each.effect], each.is_news))
    return Forecast(
        deployment=key_of(deployment),
        at_once=effect,
        why=why,
        on_adopt=later[0].effect,
        changes={each.what: each.effect for each in later[1:]},
        on_change=worst.effect,
        why_on_change=worst.text,
        harmed_later=any(each.is_news for each in later),
        already=trouble,
    )


_RANK = {effect: rank for rank, effect in enumerate(Effect)}


@dataclass(frozen=True, kw_only=True)
class _Later:
    """The effect of a change after the upgrade."""

    what: str
    """The changed field; empty for any change."""
    effect: Effect
    before: Effect
    """The effect of the same change without the upgrade."""
    why: str = ""

    @property
    def is_news(self) -> bool:
        return self.effect in (Effect.RECREATE, Effect.BREAK) and _RANK[self.effect] > _RANK[self.before]

    @property
    def text(self) -> str:
        if not self.what or not self.why:
            return self.why
        return f"a change of {self.what}: {self.why}{'' if self.is_news else ' (as without the upgrade)'}"


_Look = Callable[[Cluster, Resource], tuple[Effect, str]]


def _later(
    look: _Look,
    news: Callable[[Effect, str], tuple[Effect, str]],
    deployment: Resource,
    *,
    before: Cluster | None,
    after: Cluster,
) -> Iterator[_Later]:
    """The effects of changes after the upgrade: first of any change, then of single fields."""

    def judged(what: str, changed: Resource) -> _Later:
        effect, why = news(*look(after, changed))
        harmful = effect in (Effect.RECREATE, Effect.BREAK)
        now = look(before, changed)[0] if harmful and before is not None else Effect.LEAVE
        return _Later(what=what, effect=effect, before=now, why=why)

    # Like any change, a new value of the adopt annotation takes the newest transformer.
    annotations = {**annotations_of(deployment), names.ADOPT: "preflight"}
    yield judged("", {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}})
    for what, edit in CHANGES.items():
        found = judged(what, {**deployment, "spec": edit(deployment.get("spec") or {})})
        if found.effect is not Effect.BREAK or found.is_news:
            yield found


def state_in(
    host: ProviderHost,
    deployment: Resource,
    objects: Sequence[Resource],
    cluster: Cluster,
    *,
    now: datetime,
    verify: bool,
    selected: Sequence[Resource] = (),
    foreign: Sequence[Resource] = (),
) -> ClusterState:
    """The state that the provider would gather, as far as its plan depends on it: no pods and no events.

    `selected` are the objects that the upstream made of the primary object; `foreign` are others that have the name of
    a wanted object.
    """
    verdicts = {
        (kind.group, kind.kind): detect(
            kind, host.transformers_of(kind), cluster.facts(kind), verify=verify, kubernetes=cluster.kubernetes
        )
        for kind in host.manifest.upstream
    }
    live = {identity_in(read): read for obj in objects if (read := _read(obj, host, verdicts, cluster)) is not None}
    named = {identity_in(obj): obj for obj in foreign}
    return ClusterState(
        provider=host.name,
        deployment=deployment,
        live=live,
        selected=tuple(selected),
        find=lambda _wanted: {**named, **live},
        evidence=None,
        events=(),
        installed=verdicts,
        settled=True,
        rolled_out=True,
        kubernetes=cluster.kubernetes,
        now=now,
    )


def _essence(deployment: Resource) -> tuple[str, str]:
    """What of a deployment takes newer things when it changes."""
    return taken_for(own_spec(deployment), ""), adopted_by(deployment, "")


def with_revision(
    state: ClusterState, host: ProviderHost, resolution: Resolution, *, settings: object, changed: bool, now: datetime
) -> Resource:
    """The deployment with the revision that the core would record, and what it says about its runtime config. What the
    policy refuses stays refused. The values of its template stay what they are.
    """
    deployment, config = state.deployment, resolution.config
    status, current = deployment.get("status") or {}, revision_in(deployment)
    refused = config is not None and is_refused(deployment) and is_published(deployment, config)
    if not refused:
        condition = {
            "type": CONFIG_READY,
            "status": "False" if resolution.missing else "True",
            "reason": "ConfigNotFound" if resolution.missing else "ConfigFound",
            "message": f"no runtime config '{resolution.name}' exists" if resolution.missing else "",
            "observedGeneration": deployment["metadata"].get("generation"),
        }
        others = [each for each in status.get("conditions") or () if each.get("type") != CONFIG_READY]
        effective = config.status_for_provider(deployment) if config is not None else None
        status = {**status, "conditions": [*others, condition], "effectiveRuntimeConfig": effective}
        deployment = {**deployment, "status": status}
    verdicts = {kind.key: state.installed[kind.group, kind.kind] for kind in host.manifest.upstream}
    newest = verdicts[host.primary_kind.key].upstream
    defaults = newest.transformer.defaults if newest is not None else {}
    translation = translation_status(verdicts, settings=kept_settings(with_defaults(settings, defaults)))
    taken = text_at(current, "takenFor") if current and not changed else "+".join(_essence(deployment))
    wanted = wanted_revision(
        deployment,
        current=current,
        taken_for=taken,
        adopted=text_at(current, "adopted"),
        template=mapping_at(current, "template"),
        template_unusable=False,
        template_hash=text_at(deployment, "status", "effectiveTemplate", "hash"),
        resolution=resolution,
        config_unusable=refused or resolution.missing or (config is not None and config.too_large),
        provider=host.name,
        translation=translation,
        wants_cache=is_cached(deployment, host),
        makes_pool=False,
        gateway_on=False,
    )
    standing = Standing(served=is_true(deployment, SERVED), made=state.primary is not None)
    made = next_revision(current, wanted, standing, now=now)
    return {**deployment, "status": {**status, "revision": made}}


def _with_cache(deployment: Resource, host: ProviderHost, configs: Sequence[Resource]) -> Resource:
    """A planned deployment with the model cache that it asks for: its weights are there before its objects are made."""
    cache = assumed_cache(deployment, resolve_among(deployment, configs).config, host)
    if cache is None:
        return deployment
    status, generation = deployment.get("status") or {}, deployment["metadata"].get("generation")
    ready = [
        {"type": each, "status": "True", "observedGeneration": generation} for each in (CACHE_READY, "StorageReady")
    ]
    published = {
        "claimName": cache.claim,
        "mountPath": cache.mount_path,
        "path": cache.path,
        "accessMode": cache.access_mode,
        "ready": True,
    }
    conditions = [*(status.get("conditions") or ()), *ready]
    parts = [names.MODEL_CACHE_PART]
    return {**deployment, "status": {**status, "conditions": conditions, "parts": parts, "modelCache": published}}


def _read(
    obj: Resource, host: ProviderHost, verdicts: Mapping[tuple[str, str], Installed], cluster: Cluster
) -> Resource | None:
    """The object as the API server would return it: in its own version if served, else in the newest, and pruned.

    None if its kind is no longer served.
    """
    identity = identity_in(obj)
    kind = host.kinds.get(identity[:2])
    if kind is None or kind.builtin:
        return obj
    facts, installed = cluster.facts(kind), verdicts[identity[:2]]
    there = [api_version(kind, version) for version, _ in facts.served] if facts is not None else []
    version = obj.get("apiVersion")
    if version not in there:
        if installed.upstream is None:
            return None
        version = installed.upstream.api_version
    read: Resource = {**obj, "apiVersion": version}
    schema = cluster.schema_of(read) or {}
    return defaulted(pruned(read, schema), schema)


def _lost(objects: Sequence[Resource], before: Cluster, after: Cluster) -> list[str]:
    """Fields that objects would lose, except those of the status, which their operator writes again."""
    found = []
    for obj in objects:
        schema = after.schema_of(obj)
        if schema is not None:
            known = set(dropped(obj, before.schema_of(obj) or {}))
            lost = [path for path in dropped(obj, schema) if path not in known and not path.startswith("status.")]
            found += [f"{named(obj)} loses {path}" for path in lost]
    return found


def _gained(objects: Sequence[Resource], after: Cluster) -> list[str]:
    """Default values that objects would get; their operator acts on them."""
    return [
        f"{named(obj)} gets {what} by default"
        for obj in objects
        for what in gained(obj, after.schema_of(obj) or {})
        if not what.startswith("status")
    ]


def _effect(decision: Decision, cluster: Cluster, state: ClusterState, host: ProviderHost) -> tuple[Effect, str]:
    plan = decision.plan
    if decision.do is not Do.APPLY or plan is None:
        faults = [fault for result in decision.results if (fault := result.as_fault()) is not None]
        if decision.gate.closed and not faults:
            return Effect.BREAK, _why_closed(decision.gate, state, host)
        if decision.do is Do.OBSERVE_ONLY and faults:
            return Effect.BREAK, f"{faults[-1].reason}: {faults[-1].message}"
        return Effect.LEAVE, ""
    steps = [step for step in plan.steps if step.action is not Action.KEEP]
    for step in steps:
        schema = cluster.schema_of(step.wanted) if step.wanted is not None else None
        if step.wanted is not None and schema is not None and (refused := refusals(step.wanted, schema)):
            return Effect.BREAK, f"{named(step.wanted)} would be refused: {'; '.join(refused)}"
    if plan.primary.action is Action.REPLACE:
        return Effect.RECREATE, plan.primary.text()
    if plan.primary.action is Action.CREATE:
        return Effect.CREATE, plan.primary.text()
    foreign = plan.of(Action.FOREIGN)
    if foreign:
        return Effect.BREAK, f"{named(foreign[0].subject)} is not owned by the deployment"
    if lost := _deleted(decision, plan):
        return Effect.BREAK, "; ".join(step.text() for step in lost)
    return (Effect.UPDATE, "; ".join(step.text() for step in steps)) if steps else (Effect.LEAVE, "")


def _deleted(decision: Decision, plan: Plan) -> list[Step]:
    """The deletions that no change of the spec asks for, without objects that another of their kind takes the place of:
    a ConfigMap may have a new name for its new content.
    """
    if decision.context is None or decision.context.spec_changed:
        return []
    made = {identity_in(step.subject)[:2] for step in plan.of(Action.CREATE)}
    return [step for step in plan.of(Action.DELETE) if identity_in(step.subject)[:2] not in made]


def _why_closed(gate: Gate, state: ClusterState, host: ProviderHost) -> str:
    """What keeps the provider from writing: a condition of the core or a part, or what the gate waits for."""
    # A route that is missing closes no gate.
    faults = (fault for fault in core_faults(state, host) if fault.component != "Gateway")
    found = next(faults, None) or gate.late
    return f"{found.reason}: {found.message}" if found is not None else "WaitingForRevision: nothing is recorded yet"
