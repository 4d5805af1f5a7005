"""The table of templates, one template with its users, and a choice among templates."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.resource import Resource, dig, key_of, text_at
from airunway.templates.choice import Choice, Request, TemplateCandidate
from airunway.templates.contribution import contribution_of
from airunway.unseen import Unseen

LIST_HEADER = ("namespace", "name", "phase", "model", "hardware", "metric", "precision", "used by", "reason")


def list_row(template: Resource) -> tuple[str, ...]:
    """Returns the cells of one template."""
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
                "verdict": verdict(each, choice),
                "against": each.against or beaten(each, choice),
                "reason": each.reason,
            }
            for each in choice.candidates
        ],
        "unseen": [each.as_resource() for each in unseen],
    }


def _reference(candidate: TemplateCandidate) -> Resource:
    namespace = {"namespace": candidate.key.namespace} if candidate.key.namespace else {}
    return {"apiKind": candidate.kind, **namespace, "name": candidate.key.name}


def verdict(candidate: TemplateCandidate, choice: Choice) -> str:
    """Returns ``chosen``, ``usable`` or ``rejected``."""
    if candidate.against:
        return "rejected"
    if choice.chosen is not None and candidate.key == choice.chosen.key:
        return "chosen"
    return "usable"


def beaten(candidate: TemplateCandidate, choice: Choice) -> str:
    """Returns what puts a usable template behind the best one; empty for the best, and for one that is as good."""
    best = next((each for each in choice.candidates if not each.against), candidate)
    if candidate.scope != best.scope:
        return "a usable template of the namespace comes before those of the cluster"
    names = ("an administrator wrote it", "optimized", "the tier of its GPUs", "metric", "precision")
    for name, own, other in zip(names, candidate.rank, best.rank, strict=True):
        if own != other:
            return f"{best.key.name} is better: {name}"
    return "" if candidate.key == best.key else f"it is as good as {best.key.name}"


def optimized(template: Resource) -> str:
    """Returns whether a template is optimized, as a word."""
    value = dig(template, "spec", "optimized")
    return "yes" if value is True else "no" if value is False else "not known"
