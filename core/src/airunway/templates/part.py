"""Which template a deployment uses, and what of it counts (docs/catalogue.md). Pure.

Example: a deployment serves with the template ``fast``, whose flags are edited. The record in its status keeps the old
flags, so nothing restarts. The next change of its own spec takes the new ones; so does a deployment that never served.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.resource import (
    ObjectKey,
    Resource,
    dig,
    digest,
    filled,
    finalizers_of,
    is_true,
    key_of,
    text_at,
)
from airunway.revisions.revision import TEMPLATE, Standing, revision_in, takes
from airunway.revisions.same_spec import adopted_by, taken_for
from airunway.status.conditions import SERVED, Condition, is_validated
from airunway.status.rollup import Fault
from airunway.templates.choice import CLUSTER_KIND, KIND, Choice, Request, answers, choose, request_of
from airunway.templates.contribution import Contribution, contribution_of
from airunway.templates.expansion import TEMPLATE_READY, effective, own_spec
from airunway.validation import Violation

_NO_NODE = frozenset({"Unschedulable.InsufficientGPU", "Unschedulable.TaintOrSelector"})
"""Root causes of a pod that other nodes may help."""


@dataclass(frozen=True, kw_only=True)
class TemplateSource:
    """Where templates are looked up."""

    choose: Callable[[Request, str], Choice]
    """Returns the template for a request of a namespace."""
    find: Callable[[ObjectKey], Resource | None]
    """Returns a template by its key."""
    contribution: Callable[[Resource], Contribution]
    """Returns what a template gives."""


def source_among(templates: Sequence[Resource]) -> TemplateSource:
    """Returns where templates are looked up that were read as a list, with their kinds; of two of a key the last."""
    found = {key_of(each): each for each in templates}

    def chosen(request: Request, namespace: str) -> Choice:
        own = [each for key, each in found.items() if key.namespace == namespace]
        shared = [each for key, each in found.items() if not key.namespace]
        return choose(
            request, namespaced=own, cluster=shared, unusable=lambda template: contribution_of(template).unusable
        )

    return TemplateSource(choose=chosen, find=found.get, contribution=contribution_of)


NO_TEMPLATES = source_among(())
"""A cluster without templates."""


@dataclass(frozen=True, kw_only=True)
class TemplatePart:
    """What the template adds to a decision."""

    deployment: Resource
    """The deployment with its effective spec."""
    status: Mapping[str, Any]
    """``effectiveTemplate``; empty without one."""
    value: Resource = field(default_factory=dict)
    """The part ``template`` of the revision that the effective spec has; empty without a template."""
    newest: Resource = field(default_factory=dict)
    """What that part would be if it were taken now."""
    unusable: bool = False
    """Whether the newest values cannot be used, or are refused: what is recorded stays."""
    condition: Condition | None = None
    """``TemplateReady``; None: the deployment names no template."""
    fault: Fault | None = None
    """Why the template cannot be used, or not be found any more."""
    unresolved: bool = False
    """Nothing can be decided on the deployment: what its template gives is not known."""


def template_part(
    deployment: Resource,
    templates: TemplateSource,
    *,
    taken: str | None = None,
    granted: Collection[str] = (),
    refused: Sequence[Violation] = (),
) -> TemplatePart:
    """Returns the template's part of the core's decision on a cached deployment.

    `taken` is the digest of its own spec (`taken_of`, computed if None); `granted` are the parts of its revision that
    it may take although it serves; `refused` is why it must not take newer values, and keeps those that it has.
    """
    spec = own_spec(deployment)
    request, current = request_of(spec), revision_in(deployment)
    record = _record(current)
    if request is None:
        return TemplatePart(deployment=deployment, status={})
    if EXCESS in deployment:
        return _of_outline(deployment, request, record, templates)
    template, problem = _template(deployment, request, record, templates)
    if template is None:
        return _without(deployment, request, record, problem)
    contribution = templates.contribution(template)
    if contribution.unusable:
        problem = Choice(reason="InvalidSpec", message=f"{_named(template)} cannot be used: {contribution.unusable}")
        return _without(deployment, request, record, problem)
    changed = current.get("takenFor") != (taken_of(deployment) if taken is None else taken)
    found = value = newest = _value(template, contribution, request)
    if record is not None and (
        refused or not _takes(deployment, record, contribution, changed=changed, granted=granted)
    ):
        value = record
        if not refused and record.get("hash") == contribution.hash:
            newest = record  # nothing but what nodes must have differs: it is no newer value
    published = {"ref": found["ref"], "scope": _scope(found), "hash": str(value.get("hash", ""))}
    given = value["spec"]
    text = f"Uses {_named(template)}"
    if published["hash"] != contribution.hash:
        published["newerHash"] = contribution.hash
        new = contribution.spec
        differing = ", ".join(sorted(key for key in given.keys() | new.keys() if given.get(key) != new.get(key)))
        text += " as it was before its last change: "
        if refused:
            text += f"the new values ({differing}) are refused ({'; '.join(map(str, refused))})"
        else:
            text += (
                f"the next change of the deployment's own spec, or a new value of the annotation {names.ADOPT}, takes "
                f"the new values ({differing})"
            )
    elif given != contribution.spec and not refused:
        nodes = "with the node affinity for the nodes that were there when its values were taken"
        if _without_nodes(value, contribution):
            nodes = "without the node affinity for its GPUs, which was not known when its values were taken"
        text += (
            f", {nodes}: the next change of the deployment's own spec, or a new value of the annotation {names.ADOPT}, "
            "takes that for the nodes of today"
        )
    text = "; ".join((text, *contribution.ignored))
    status = {**(deployment.get("status") or {}), "revision": {TEMPLATE: value}}
    return TemplatePart(
        deployment={**deployment, "spec": effective({"spec": spec, "status": status})["spec"]},
        status={"effectiveTemplate": published},
        value=value,
        newest=newest,
        unusable=bool(refused),
        condition=Condition(type=TEMPLATE_READY, status=True, reason="TemplateFound", message=text),
    )


def _value(template: Resource, contribution: Contribution, request: Request) -> Resource:
    """The part ``template`` of a revision."""
    key = key_of(template)
    return {
        "ref": filled(kind=KIND if key.namespace else CLUSTER_KIND, namespace=key.namespace, name=key.name),
        "hash": contribution.hash,
        "asked": request.digest,
        "spec": contribution.spec,
    }


def _scope(part: Resource) -> str:
    return "Namespace" if text_at(part, "ref", "namespace") else "Cluster"


def taken_of(deployment: Resource) -> str:
    """The digest of the deployment's own spec, and of its adopt annotation's last value."""
    return taken_for(own_spec(deployment), adopted_by(deployment, text_at(revision_in(deployment), "adopted")))


def is_judged(deployment: Resource, part: TemplatePart) -> bool:
    """Whether this generation was accepted with what its template gives now. Other values make another spec without a
    new generation, which nothing has judged yet.
    """
    return is_validated(deployment) and part.value.get("spec") == given_by(deployment.get("status"))


def keeps_record(deployment: Resource, part: TemplatePart) -> bool:
    """Whether the deployment goes on with what is recorded if the values of `part` are refused: it has served with it,
    and a template must not stop what serves.
    """
    record = _record(revision_in(deployment))
    return (
        record is not None
        and EXCESS not in deployment
        and record.get("asked") == part.value.get("asked")
        and record["spec"] != part.value.get("spec")
        and is_true(deployment, SERVED)
    )


def judged_digest(deployment: Resource, part: TemplatePart) -> str:
    """The digest of the effective spec that rules and policy judge, but for replica counts, which scaling changes."""
    return digest([_without_replicas(own_spec(deployment)), part.value.get("spec")])


def _without_replicas(spec: Resource) -> Resource:
    scaling = spec.get("scaling")
    if not isinstance(scaling, dict):
        return spec
    kept = {key: value for key, value in scaling.items() if key != "replicas"}
    return {
        **spec,
        "scaling": {
            key: {field: each for field, each in value.items() if field != "replicas"}
            if isinstance(value, dict)
            else value
            for key, value in kept.items()
        },
    }


def _record(revision: Resource) -> Resource | None:
    record = revision.get(TEMPLATE)
    return record if isinstance(record, dict) and isinstance(record.get("spec"), dict) else None


def given_by(status: object) -> object:
    """What a template gives by this status; None: nothing."""
    return dig(status, "revision", TEMPLATE, "spec")


def _of_outline(
    deployment: Resource, request: Request, record: Resource | None, templates: TemplateSource
) -> TemplatePart:
    """The part of a deployment that is too large, of which the cache has only an outline: what it has served with goes
    on. Otherwise the newest values of the template are taken, because they may be smaller; with another request the
    record goes, and the next pass looks for that template.
    """
    if record is None:
        return TemplatePart(deployment=deployment, status={})
    if not is_true(deployment, SERVED):
        template = templates.find(_key_in(record))
        if record.get("asked") != request.digest or template is None or not answers(template, request):
            return TemplatePart(deployment=deployment, status={})
        contribution = templates.contribution(template)
        if not contribution.unusable:
            record = {**record, "hash": contribution.hash, "spec": contribution.spec}
    return TemplatePart(deployment=deployment, status=_published(record), value=record, newest=record)


def _published(record: Resource) -> Mapping[str, Any]:
    """``effectiveTemplate`` while nothing else is known than the record."""
    return {
        "effectiveTemplate": {"ref": record.get("ref"), "scope": _scope(record), "hash": str(record.get("hash", ""))}
    }


def _template(
    deployment: Resource, request: Request, record: Resource | None, templates: TemplateSource
) -> tuple[Resource | None, Choice]:
    """The template to use: the recorded one for as long as it exists, the request is the same and it still answers it,
    else the best one. A template that was deleted and made again may be for another model.
    """
    namespace = key_of(deployment).namespace
    held = any(map(names.provider_of_finalizer, finalizers_of(deployment)))  # by a provider: something of it exists
    if held and record is not None and record.get("asked") == request.digest:
        key = _key_in(record)
        found = templates.find(key) if key.namespace in ("", namespace) else None
        if found is not None and answers(found, request):
            return found, Choice()
    choice = templates.choose(request, namespace)
    return (choice.chosen.template if choice.chosen is not None else None), choice


def _key_in(record: Resource) -> ObjectKey:
    """The key of the template that a record is of."""
    return ObjectKey(text_at(record, "ref", "namespace"), text_at(record, "ref", "name"))


def _takes(
    deployment: Resource, record: Resource, contribution: Contribution, *, changed: bool, granted: Collection[str]
) -> bool:
    """Whether the newest values are taken.

    What serves keeps its record when the template is edited. If only what nodes must have is another, everything that
    exists keeps it: a node that comes must not replace a pod that runs. A deployment whose only replica finds no node
    takes the newest. So does one that has not served, if its record was made before the catalogue had looked for nodes:
    its pods may be on any.
    """
    served = is_true(deployment, SERVED)
    if not changed and record.get("hash") == contribution.hash:
        if not served and _without_nodes(record, contribution):
            return True
        made = bool(dig(deployment, "status", "provider", "resourceName"))  # an object, which may have pods
        return not made or _waits_for_a_node(deployment)
    return takes(TEMPLATE, {TEMPLATE: record}, changed=changed, standing=Standing(served=served, granted=granted))


def _without_nodes(record: Resource, contribution: Contribution) -> bool:
    """Whether the record of the same hash lacks what nodes must have, which the template gives now: the hash is that of
    a contribution without it.
    """
    return record["spec"] != contribution.spec and digest(record["spec"]) == contribution.hash


def _waits_for_a_node(deployment: Resource) -> bool:
    """Whether its only replica is not ready because a pod of it can be scheduled nowhere. Of several replicas another
    one may run without being ready yet, which the status does not say.
    """
    counts, code = dig(deployment, "status", "replicas"), dig(deployment, "status", "rootCause", "code")
    alone = dig(counts, "desired") == 1 and not dig(counts, "ready")
    return alone and code in _NO_NODE and not is_true(deployment, "Ready")


def _without(deployment: Resource, request: Request, record: Resource | None, problem: Choice) -> TemplatePart:
    """The part while there is no template to use: what was recorded for the same request goes on."""
    known = record is not None and record.get("asked") == request.digest
    message = f"spec.templateRef: {problem.message}"
    if known:
        message += "; what it gave is kept"
    served = is_true(deployment, SERVED)
    return TemplatePart(
        deployment=effective(deployment),
        status=_published(record) if record is not None else {},
        value=record or {},
        newest=record or {},
        unusable=True,
        condition=Condition(type=TEMPLATE_READY, status=False, reason=problem.reason, message=message),
        fault=Fault(
            component=TEMPLATE_READY, reason=problem.reason, message=message, pending=not served, only_degrades=served
        ),
        unresolved=not known,
    )


def _named(template: Resource) -> str:
    key = key_of(template)
    return f"{KIND} '{key.name}' of namespace '{key.namespace}'" if key.namespace else f"{CLUSTER_KIND} '{key.name}'"
