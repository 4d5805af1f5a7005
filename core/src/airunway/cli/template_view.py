"""What ``airunway template`` prints of a template and of a choice among templates."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from airunway.redaction import printable
from airunway.resource import Resource, dig, key_of, list_at, text_at
from airunway.table import format_table
from airunway.templates.choice import Choice, Request
from airunway.templates.contribution import contribution_of
from airunway.tools.explained import leaves
from airunway.unseen import Unseen
from airunway.view.templates import beaten, hardware_text, optimized, verdict


def template_text(template: Resource, users: Sequence[Resource] | Unseen) -> Iterator[str]:
    """The lines about one template."""
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
    yield f"Optimized:  {optimized(template)}"
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


def choice_text(request: Request, choice: Choice, *, namespace: str, width: int | None) -> Iterator[str]:
    """The lines about a choice."""
    result = choice.chosen.label if choice.chosen is not None else f"none ({choice.reason})"
    for text in (f"For {request.text} in namespace {namespace}: {result}", f"  {choice.message}"):
        yield from textwrap.wrap(printable(text), width, subsequent_indent="  ") if width else [printable(text)]
    if not choice.candidates:
        return
    yield ""
    rows = [
        (
            each.key.namespace or "(cluster)",
            each.key.name,
            verdict(each, choice),
            text_at(each.template, "status", "phase") or "unknown",
            optimized(each.template),
            str(dig(each.template, "status", "hardware", "tier", default="-")),
            text_at(each.template, "spec", "metric") or "-",
            text_at(each.template, "spec", "precision") or "-",
            each.against or beaten(each, choice),
        )
        for each in choice.candidates
    ]
    header = ("namespace", "name", "verdict", "phase", "optimized", "tier", "metric", "precision", "against it")
    yield from format_table(header, rows, width=width).split("\n")
