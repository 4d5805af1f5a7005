"""Which template a deployment uses, and what of it counts (docs/catalogue.md). Pure.

Example: a deployment serves with the template ``fast``, whose flags are edited. The record in its status keeps the old
flags, so nothing restarts. The next change of its own spec takes the new ones; so does a deployment that never served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airunway.api import names
from airunway.api.base import ParseError, parse_model
from airunway.api.bounds import EXCESS
from airunway.api.modeldeployment import ModelDeploymentSpec
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    dig,
    digest,
    filled,
    finalizers_of,
    is_true,
    key_of,
    text_at,
)
from airunway.revisions.same_spec import lasting_spec
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
    granted: bool = False,
    refused: Sequence[Violation] = (),
) -> TemplatePart:
    """Returns the template's part of the core's decision on a cached deployment.

    `granted` is whether it may take a newer contribution although it serves; `refused` is why it must not take it, and
    keeps its record.
    """
    spec = own_spec(deployment)
    request, record = request_of(spec), _record(deployment)
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
    taken = taken_for(deployment)
    if record is not None and record.get("takenForSpec") == taken["takenFor"]:
        taken = _taken_in(record)  # the adopt annotation was removed, which is no new value: the last one stays
    unchanged = record is not None and record.get("takenFor") == taken["takenFor"]
    if record is not None and (refused or (unchanged and _keeps(deployment, record, contribution, granted=granted))):
        given, hash_ = record["spec"], str(record.get("hash", ""))
    else:
        given, hash_ = contribution.spec, contribution.hash
    key = key_of(template)
    published = {
        "ref": filled(kind=KIND if key.namespace else CLUSTER_KIND, namespace=key.namespace, name=key.name),
        "scope": "Namespace" if key.namespace else "Cluster",
        "hash": hash_,
        "asked": request.digest,
        **(taken if unchanged or hash_ == contribution.hash else _taken_in(record)),
        "spec": given,
    }
    text = f"Uses {_named(template)}"
    if hash_ != contribution.hash:
        published["newerHash"] = contribution.hash
        new = contribution.spec
        changed = ", ".join(sorted(key for key in given.keys() | new.keys() if given.get(key) != new.get(key)))
        text += " as it was before its last change: "
        if refused:
            text += f"the new values ({changed}) are refused ({'; '.join(map(str, refused))})"
        else:
            text += (
                f"the next change of the deployment's own spec, or a new value of the annotation {names.ADOPT}, takes "
                f"the new values ({changed})"
            )
    elif given != contribution.spec and not refused:
        nodes = "with the node affinity for the nodes that were there when its values were taken"
        if _without_nodes(published, contribution):
            nodes = "without the node affinity for its GPUs, which was not known when its values were taken"
        text += (
            f", {nodes}: the next change of the deployment's own spec, or a new value of the annotation {names.ADOPT}, "
            "takes that for the nodes of today"
        )
    text = "; ".join((text, *contribution.ignored))
    status = {**(deployment.get("status") or {}), "effectiveTemplate": published}
    return TemplatePart(
        deployment={**deployment, "spec": effective({"spec": spec, "status": status})["spec"]},
        status={"effectiveTemplate": published},
        condition=Condition(type=TEMPLATE_READY, status=True, reason="TemplateFound", message=text),
    )


def is_judged(deployment: Resource, part: TemplatePart) -> bool:
    """Whether this generation was accepted with what its template gives now. Other values make another spec without a
    new generation, which nothing has judged yet.
    """
    return is_validated(deployment) and given_by(part.status) == given_by(deployment.get("status"))


def keeps_record(deployment: Resource, part: TemplatePart) -> bool:
    """Whether the deployment goes on with what is recorded if the values of `part` are refused: it has served with it,
    and a template must not stop what serves.
    """
    record = _record(deployment)
    asked = dig(part.status, "effectiveTemplate", "asked")
    return (
        record is not None
        and EXCESS not in deployment
        and record.get("asked") == asked
        and record["spec"] != given_by(part.status)
        and is_true(deployment, SERVED)
    )


def newest_hash(deployment: Resource, templates: TemplateSource) -> str:
    """The hash of what the template in use gives now; empty where there is none, or it cannot be used."""
    request, record = request_of(own_spec(deployment)), _record(deployment)
    if request is None or record is None:
        return ""
    template, _ = _template(deployment, request, record, templates)
    contribution = templates.contribution(template) if template is not None else None
    return contribution.hash if contribution is not None and not contribution.unusable else ""


def taken_for(deployment: Resource) -> Resource:
    """What a record says of the deployment for which its values are taken: digests of the deployment's own spec.

    What counts as another spec is defined in `revisions.same_spec`, as for pod settings and transformers.
    """
    spec = own_spec(deployment)
    with suppress(ParseError):  # it is refused
        spec = parse_model(ModelDeploymentSpec, spec).to_essence()
    own = {key: value for key, value in lasting_spec(spec).items() if value != {}}
    adopted = annotations_of(deployment).get(names.ADOPT, "")
    return filled(takenFor=digest([own, adopted]), takenForSpec=digest([own, ""]) if adopted else "")


def _taken_in(record: Resource | None) -> Resource:
    return filled(**{key: dig(record, key) for key in ("takenFor", "takenForSpec")})


def judged_digest(deployment: Resource, part: TemplatePart) -> str:
    """The digest of the effective spec that rules and policy judge, but for replica counts, which scaling changes."""
    return digest([_without_replicas(own_spec(deployment)), given_by(part.status)])


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


def _record(deployment: Resource) -> Resource | None:
    record = dig(deployment, "status", "effectiveTemplate")
    return record if isinstance(record, dict) and isinstance(record.get("spec"), dict) else None


def given_by(status: object) -> object:
    """What a template gives by this status; None: nothing."""
    return dig(status, "effectiveTemplate", "spec")


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
    return TemplatePart(deployment=deployment, status={"effectiveTemplate": record})


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


def _keeps(deployment: Resource, record: Resource, contribution: Contribution, *, granted: bool) -> bool:
    """Whether what is recorded goes on while the deployment's own spec is the same.

    What serves keeps its record when the template is edited. If only what nodes must have is another, everything that
    exists keeps it: a node that comes must not replace a pod that runs. A deployment whose only replica finds no node
    takes the newest. So does one that has not served, if its record was made before the catalogue had looked for nodes:
    its pods may be on any.
    """
    if record.get("hash") == contribution.hash:
        if not is_true(deployment, SERVED) and _without_nodes(record, contribution):
            return False
        made = bool(dig(deployment, "status", "provider", "resourceName"))  # an object, which may have pods
        return made and not _waits_for_a_node(deployment)
    return is_true(deployment, SERVED) and not granted


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
        status={"effectiveTemplate": record} if record is not None else {},
        condition=Condition(type=TEMPLATE_READY, status=False, reason=problem.reason, message=message),
        fault=Fault(
            component=TEMPLATE_READY, reason=problem.reason, message=message, pending=not served, only_degrades=served
        ),
        unresolved=not known,
    )


def _named(template: Resource) -> str:
    key = key_of(template)
    return f"{KIND} '{key.name}' of namespace '{key.namespace}'" if key.namespace else f"{CLUSTER_KIND} '{key.name}'"
