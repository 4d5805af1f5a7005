"""What ``airunway template`` prints of templates and of a choice among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airunway.cli.explained import leaves
from airunway.redaction import printable
from airunway.resource import Resource, dig, key_of, list_at, text_at
from airunway.table import format_table
from airunway.templates.choice import Choice, Request, TemplateCandidate
from airunway.templates.contribution import contribution_of
from airunway.view import Unseen

LIST_HEADER = ("namespace", "name", "phase", "model", "hardware", "metric", "precision", "used by", "reason")


def list_row(template: Resource) -> tuple[str, ...]:
    """One line of ``list``."""
    key, status = key_of(template), template.get("status")
    used = dig(status, "usedBy")
    reason = text_at(status, "reason")
    return (
        key.namespace or "(cluster)",
        key.name,
        text_at(status, "phase") or "unknown",
        text_at(template, "spec", "modelName"),
        hardware_text(template) or "-",
        text_at(template, "spec", "metric") or "-",
        text_at(template, "spec", "precision") or "-",
        str(used) if isinstance(used, int) else "-",
        reason if reason and text_at(status, "phase") != "Ready" else "",
    )


def hardware_text(template: Resource) -> str:
    """The hardware of one replica: as the catalogue found it, else as the spec asks for it."""
    if found := text_at(template, "status", "hardware", "summary"):
        return found
    gpu, cpu = dig(template, "spec", "hardware", "gpu"), dig(template, "spec", "hardware", "cpu")
    parts = []
    if isinstance(gpu, dict):
        vram = f"GPU with {gpu['minVram']}" if gpu.get("minVram") else "GPU"
        parts.append(f"{gpu.get('count') or 1} x {gpu.get('model') or vram}")
    if cpu:
        parts.append(f"{cpu} CPUs")
    return ", ".join(parts)


# ----------------------------------------------------------------------------------------------------------------- show


def template_resource(template: Resource, users: Sequence[Resource] | Unseen) -> Resource:
    """A template with what it gives and who uses it, in a stable form for scripts."""
    contribution = contribution_of(template)
    return {
        "kind": "TemplateReport",
        "template": template,
        "gives": contribution.spec,
        "hash": contribution.hash,
        "problems": [{"field": each.field, "message": each.message} for each in contribution.problems],
        "unusable": contribution.unusable,
        "usedBy": None
        if isinstance(users, Unseen)
        else [{"namespace": key_of(each).namespace, "name": key_of(each).name} for each in users],
        "unseen": [users.as_resource()] if isinstance(users, Unseen) else [],
    }


def template_text(template: Resource, users: Sequence[Resource] | Unseen) -> Iterator[str]:
    """The same for people."""
    key, status = key_of(template), template.get("status")
    reason = text_at(status, "reason")
    where = f"{key.namespace}/" if key.namespace else ""
    phase = text_at(status, "phase") or "not looked at by the catalogue yet"
    yield f"{template['kind']} {where}{key.name} is {phase}{f': {reason}' if reason not in ('', phase) else ''}"
    if message := text_at(status, "message"):
        yield f"  {message}"
    cause = dig(status, "rootCause")
    if isinstance(cause, dict):
        yield f"  Cause: {cause.get('code')}: {cause.get('object')}: {cause.get('message')}"
    yield ""
    yield from _facts(template)
    for condition in list_at(status, "conditions"):
        if dig(condition, "status") not in ("True", None):
            yield f"  {dig(condition, 'type')}={dig(condition, 'status')} {dig(condition, 'reason')}: " + (
                text_at(condition, "message")
            )
    yield ""
    yield from _gives(template)
    yield ""
    yield from _used_by(users, contribution_of(template).hash)


def _facts(template: Resource) -> Iterator[str]:
    status = template.get("status")
    yield f"Model:      {text_at(template, 'spec', 'modelName')}"
    metric, precision = text_at(template, "spec", "metric"), text_at(template, "spec", "precision")
    yield f"Tuned for:  {metric or 'neither latency nor throughput'}, precision {precision or 'not given'}"
    yield f"Optimized:  {_optimized(template)}"
    nodes = dig(status, "hardware", "nodes")
    there = ""
    if nodes is not None:
        listed = ", ".join(map(str, list_at(status, "hardware", "models")))
        held = dig(status, "hardware", "nodesOutOfService")
        out = f", {held} of them cordoned or not Ready" if held else ""
        there = f" (nodes that have it: {nodes}{out}{', ' if listed else ''}{listed})"
    yield f"Hardware:   {hardware_text(template) or 'as the deployment says'}{there}"
    discovery = dig(status, "discovery")
    if isinstance(discovery, dict):
        following = discovery.get("nextAttemptTime")
        then = f", the next one at {following}" if following else ""
        yield f"Discovery:  {discovery.get('attempts', 0)} tries{then}"
    cache = dig(status, "cache")
    if isinstance(cache, dict) and (artifacts := ", ".join(map(str, list_at(cache, "artifacts")))):
        yield f"Cache:      {cache.get('ready', 0)} of {cache.get('total', 0)}: {artifacts}"


def _gives(template: Resource) -> Iterator[str]:
    contribution = contribution_of(template)
    yield f"Gives (hash {contribution.hash}):"
    for field, value in leaves(contribution.spec):
        yield f"  {field}{f': {value}' if value else ''}"
    for problem in contribution.problems:
        yield f"  problem: {problem.field}: {problem.message}"
    if contribution.unusable:
        yield f"  no deployment can use it: {contribution.unusable}"


def _used_by(users: Sequence[Resource] | Unseen, current: str) -> Iterator[str]:
    if isinstance(users, Unseen):
        yield f"Not seen: {users}"
        return
    yield f"Used by {len(users)} deployment{'' if len(users) == 1 else 's'}{':' if users else '.'}"
    for each in sorted(users, key=key_of):
        used = text_at(each, "status", "effectiveTemplate", "hash")
        phase = text_at(each, "status", "phase") or "Unknown"
        older = "" if used == current else f", with values from before the last change (hash {used[:12]}…)"
        yield f"  {key_of(each)} is {phase}{older}"


# ------------------------------------------------------------------------------------------------------------------ why


def choice_resource(request: Request, choice: Choice, unseen: Sequence[Unseen]) -> Resource:
    """A choice, in a stable form for scripts."""
    chosen = choice.chosen
    return {
        "kind": "TemplateChoice",
        "asked": request.text,
        "chosen": _reference(chosen) if chosen is not None else None,
        "reason": choice.reason,
        "message": choice.message,
        "candidates": [
            {
                **_reference(each),
                "phase": text_at(each.template, "status", "phase"),
                "optimized": dig(each.template, "spec", "optimized"),
                "tier": dig(each.template, "status", "hardware", "tier"),
                "metric": text_at(each.template, "spec", "metric"),
                "precision": text_at(each.template, "spec", "precision"),
                "verdict": _verdict(each, choice),
                "against": each.against or _beaten(each, choice),
                "reason": each.reason,
            }
            for each in choice.candidates
        ],
        "unseen": [each.as_resource() for each in unseen],
    }


def choice_text(request: Request, choice: Choice, *, namespace: str, width: int | None) -> Iterator[str]:
    """The same for people."""
    result = choice.chosen.label if choice.chosen is not None else f"none ({choice.reason})"
    yield printable(f"For {request.text} in namespace {namespace}: {result}")
    yield printable(f"  {choice.message}")
    if not choice.candidates:
        return
    yield ""
    rows = [
        (
            each.key.namespace or "(cluster)",
            each.key.name,
            _verdict(each, choice),
            text_at(each.template, "status", "phase") or "unknown",
            _optimized(each.template),
            str(dig(each.template, "status", "hardware", "tier", default="-")),
            text_at(each.template, "spec", "metric") or "-",
            text_at(each.template, "spec", "precision") or "-",
            each.against or _beaten(each, choice),
        )
        for each in choice.candidates
    ]
    header = ("namespace", "name", "verdict", "phase", "optimized", "tier", "metric", "precision", "against it")
    yield from format_table(header, rows, width=width).split("\n")


def _reference(candidate: TemplateCandidate) -> Resource:
    namespace = {"namespace": candidate.key.namespace} if candidate.key.namespace else {}
    return {"apiKind": candidate.kind, **namespace, "name": candidate.key.name}


def _verdict(candidate: TemplateCandidate, choice: Choice) -> str:
    if candidate.against:
        return "rejected"
    if choice.chosen is not None and candidate.key == choice.chosen.key:
        return "chosen"
    return "usable"


def _beaten(candidate: TemplateCandidate, choice: Choice) -> str:
    """What puts a usable template behind the best one; empty for that itself, and for one that is equally good."""
    best = next((each for each in choice.candidates if not each.against), candidate)
    if candidate.scope != best.scope:
        return "a usable template of the namespace comes before those of the cluster"
    names = ("an administrator wrote it", "optimized", "the tier of its GPUs", "metric", "precision")
    for name, own, other in zip(names, candidate.rank, best.rank, strict=True):
        if own != other:
            return f"{best.key.name} is better: {name}"
    return "" if candidate.key == best.key else f"it is as good as {best.key.name}"


def _optimized(template: Resource) -> str:
    value = dig(template, "spec", "optimized")
    return "yes" if value is True else "no" if value is False else "not known"
