"""What an upstream's new CRDs would do to one deployment: the runtime's own decision, on a cluster that has them. Pure.

Nothing here knows how a deployment is handled: `runtime.plan.decide` says that, of the objects as they would be
read under the new schemas, and of the kinds as they would be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from airunway.api import names
from airunway.plugins.contract import UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.plugins.manifest import api_version
from airunway.resource import ObjectKey, Resource, annotations_of, is_deleting, key_of
from airunway.runtime.crd_versions import CrdFacts, Installed, crd_facts, detect
from airunway.runtime.plan import Action, Decision, Do, decide
from airunway.runtime.state import ClusterState, identity_in, named
from airunway.schema import defaulted, dropped, gained, pruned, refusals, schema_in

__all__ = ["CHANGES", "Cluster", "Effect", "Forecast", "forecast"]

_ADOPTED = "preflight"

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
"""Fields that users change, each with such a change: what it does differs from field to field, with each upstream."""


class Effect(StrEnum):
    """What becomes of what runs."""

    LEAVE = "leave"
    """Nothing of it is written."""
    CREATE = "create"
    """It does not run yet, and can be made."""
    UPDATE = "update"
    """It is written anew in place, or gets other values by default."""
    RECREATE = "recreate"
    """It is deleted and made again."""
    BREAK = "break"
    """It loses fields, or the provider cannot look after it any more."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The kinds of a provider as a cluster has them: CRDs by (group, kind); one that is missing is not installed."""

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
    """What becomes of one deployment: at once, and when its spec changes afterwards, each with why.

    `on_adopt` is what any change does, as adopting does: the newest way is taken. `changes` are what changes of certain
    fields do besides (`CHANGES`; those that the provider refuses, before the upgrade as after it, are left out), and
    `on_change` is the worst of all these. `harmed_later` says that one of them is a break or a recreation, and that it
    is the upgrade's doing: without it the same change would do less. `already` is what is wrong with the deployment
    before anything is upgraded, empty for nothing.
    """

    deployment: ObjectKey
    at_once: Effect
    why: str = ""
    on_adopt: Effect = Effect.LEAVE
    changes: Mapping[str, Effect] = field(default_factory=dict)
    on_change: Effect = Effect.LEAVE
    why_on_change: str = ""
    harmed_later: bool = False
    already: str = ""


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
) -> Forecast:
    """The forecast for a deployment of the provider.

    `objects` are what the provider made for it, as they are now; `before` is None for one that is only planned.
    Raises PluginFault where the plugin cannot be asked.
    """

    def look(cluster: Cluster, of: Resource) -> tuple[Effect, str]:
        state = _seen(host, of, objects, cluster, now=now, verify=verify)
        return _effect(decide(state, host, settings=settings), cluster)

    already, trouble = look(before, deployment) if before is not None else (Effect.LEAVE, "")
    trouble = trouble if already is Effect.BREAK else ""

    def news(effect: Effect, why: str) -> tuple[Effect, str]:
        """What is wrong with it as it is now is no news."""
        return (Effect.LEAVE, "") if effect is Effect.BREAK and why == trouble else (effect, why)

    effect, why = news(*look(after, deployment))
    lost = _lost(objects, before, after) if before is not None else []
    if lost and effect is Effect.LEAVE:
        effect, why = Effect.BREAK, "; ".join(lost)
    more = _gained(objects, after) if before is not None else []
    if more and effect is Effect.LEAVE:
        effect, why = Effect.UPDATE, "; ".join(more)
    if effect is Effect.CREATE:  # then it is there, and as the newest way has it
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
    """What a change after the upgrade does: of a field, or (empty) any. `before` is what it would do without it."""

    what: str
    effect: Effect
    before: Effect
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
    """What changes after the upgrade do: first that of any, then those of single fields."""

    def judged(what: str, changed: Resource) -> _Later:
        effect, why = news(*look(after, changed))
        harmful = effect in (Effect.RECREATE, Effect.BREAK)
        now = look(before, changed)[0] if harmful and before is not None else Effect.LEAVE
        return _Later(what=what, effect=effect, before=now, why=why)

    yield judged("", _adopting(deployment))
    for what, edit in CHANGES.items():
        found = judged(what, {**deployment, "spec": edit(deployment.get("spec") or {})})
        if found.effect is not Effect.BREAK or found.is_news:
            yield found


def _seen(
    host: ProviderHost,
    deployment: Resource,
    objects: Sequence[Resource],
    cluster: Cluster,
    *,
    now: datetime,
    verify: bool,
) -> ClusterState:
    """What the provider would see."""
    verdicts = {
        (kind.group, kind.kind): detect(kind, host.transformers_of(kind), cluster.facts(kind), verify=verify)
        for kind in host.manifest.upstream
    }
    live = {identity_in(read): read for obj in objects if (read := _read(obj, host, verdicts, cluster)) is not None}
    return ClusterState(
        provider=host.name,
        deployment=deployment,
        live=live,
        selected=(),
        find=lambda _wanted: live,
        evidence=None,
        events=(),
        installed=verdicts,
        settled=True,
        rolled_out=True,
        kubernetes=cluster.kubernetes,
        now=now,
    )


def _read(
    obj: Resource, host: ProviderHost, verdicts: Mapping[tuple[str, str], Installed], cluster: Cluster
) -> Resource | None:
    """The object as the API server would give it: in its own version if that is served, else in the newest one, and
    without what the schema does not have. None for one of a kind that nobody serves any more.
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


def _adopting(deployment: Resource) -> Resource:
    """The deployment as one that asks for the newest way, as any change of its spec does."""
    metadata = deployment["metadata"]
    annotations = {**annotations_of(deployment), names.ADOPT: _ADOPTED}
    return {**deployment, "metadata": {**metadata, "annotations": annotations}}


def _lost(objects: Sequence[Resource], before: Cluster, after: Cluster) -> list[str]:
    """Fields that objects have now, and would not have: those of the status are their operator's to write again."""
    found = []
    for obj in objects:
        schema = after.schema_of(obj)
        if schema is not None:
            known = set(dropped(obj, before.schema_of(obj) or {}))
            lost = [path for path in dropped(obj, schema) if path not in known and not path.startswith("status.")]
            found += [f"{named(obj)} loses {path}" for path in lost]
    return found


def _gained(objects: Sequence[Resource], after: Cluster) -> list[str]:
    """What objects would be given by default: their operator acts on it as if somebody had written it."""
    return [
        f"{named(obj)} gets {what} by default"
        for obj in objects
        for what in gained(obj, after.schema_of(obj) or {})
        if not what.startswith("status")
    ]


def _effect(decision: Decision, cluster: Cluster) -> tuple[Effect, str]:
    plan = decision.plan
    if decision.do is not Do.APPLY or plan is None:
        return _held_back(decision)
    steps = [step for step in plan.steps if step.action is not Action.KEEP]
    refused = [
        f"{named(step.wanted)} would be refused: {'; '.join(results)}"
        for step in steps
        if step.wanted is not None and (results := _refused(step.wanted, cluster))
    ]
    if refused:
        return Effect.BREAK, refused[0]
    if plan.primary.action is Action.REPLACE:
        return Effect.RECREATE, plan.primary.text()
    if plan.primary.action is Action.CREATE:
        return Effect.CREATE, plan.primary.text()
    foreign = plan.of(Action.FOREIGN)
    if foreign:
        return Effect.BREAK, f"{named(foreign[0].subject)} belongs to somebody else"
    return (Effect.UPDATE, "; ".join(step.text() for step in steps)) if steps else (Effect.LEAVE, "")


def _held_back(decision: Decision) -> tuple[Effect, str]:
    """Nothing would be done: because nothing is asked for, or because it cannot be."""
    faults = [fault for result in decision.results if (fault := result.as_fault()) is not None]
    if decision.do is Do.OBSERVE_ONLY and faults:
        return Effect.BREAK, f"{faults[-1].reason}: {faults[-1].message}"
    return Effect.LEAVE, ""


def _refused(wanted: Resource, cluster: Cluster) -> list[str]:
    schema = cluster.schema_of(wanted)
    return [] if schema is None else refusals(wanted, schema)
