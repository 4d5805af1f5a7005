"""The lines of ``airunway status``: headline, root cause, remedy, tree, what is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from airunway.cli.screens import Line, wrapped
from airunway.templates import TEMPLATE_READY
from airunway.view import DeploymentView, EndingRow, Health, PodRow, TimelineEntry, TreeNode, Unseen, short_age

__all__ = ["change_lines", "status_lines"]

_MARKS = {Health.PROBLEM: "✖", Health.PROGRESS: "◌", Health.UNKNOWN: "?", Health.OK: "✔"}
_LETTERS = {Health.PROBLEM: "X", Health.PROGRESS: "~", Health.UNKNOWN: "?", Health.OK: "+"}
_STYLES = {Health.PROBLEM: "red", Health.PROGRESS: "yellow", Health.UNKNOWN: "cyan", Health.OK: "green"}

_RECENT = 6
"""Entries of the timeline that are shown."""

_WIDEST_NAME = 56
"""Columns of the tree's names; longer ones move the rest of their line."""


def status_lines(view: DeploymentView, *, now: datetime, width: int | None, ascii_only: bool) -> list[Line]:
    """The whole screen. Lines are wrapped to `width`; None: not at all."""
    found = [*_headline(view, now, ascii_only), Line(""), *_facts(view), Line("")]
    found += _tree(view.tree, now, width=width, ascii_only=ascii_only)
    if isinstance(view.pods, Unseen):
        found.append(Line(f"  pods not seen: {_why(view.pods)}", "cyan", 4))
    for title, section in (
        ("Not as it should be", list(_conditions(view, now))),
        ("Recently", list(_recently(view, now))),
        ("Warnings", [Line(f"  {text}", "yellow", 4) for text in view.warnings]),
        ("Not seen", [Line(f"  {each.what}: {_why(each)}", "cyan", 4) for each in view.unseen if each != view.pods]),
    ):
        if section:
            found += [Line(""), Line(f"{title}:", "bold"), *section]
    return list(wrapped(found, width))


def change_lines(before: DeploymentView | None, now: DeploymentView) -> Iterator[str]:
    """What has changed between two views, a line each: the deployment first, then its pods."""
    if before is None or _state(before) != _state(now):
        cause = f" {now.cause.code} {now.cause.object}" if now.cause is not None else ""
        replicas = f" {now.replicas}" if now.replicas else ""
        yield f"md/{now.name} {now.phase} {now.reason}{replicas}{cause}"
    old = {} if before is None or isinstance(before.pods, Unseen) else {pod.name: pod for pod in before.pods}
    new = {} if isinstance(now.pods, Unseen) else {pod.name: pod for pod in now.pods}
    for name, pod in new.items():
        if name not in old or _pod_state(old[name]) != _pod_state(pod):
            yield " ".join(filter(None, [f"pod/{name}", pod.state, pod.node, _restarts(pod), _ending(pod.ending)]))
    yield from (f"pod/{name} gone" for name in old if name not in new)


def _state(view: DeploymentView) -> tuple[object, ...]:
    cause = (view.cause.code, view.cause.object) if view.cause is not None else None
    return view.phase, view.reason, view.replicas, cause


def _pod_state(pod: PodRow) -> tuple[object, ...]:
    return pod.state, pod.node, pod.restarts, pod.ready


def _headline(view: DeploymentView, now: datetime, ascii_only: bool) -> Iterator[Line]:
    mark = (_LETTERS if ascii_only else _MARKS)[view.health]
    stale = "" if view.current else " (an older spec: the newest is not reported on yet)"
    since = view.cause.since if view.cause is not None else view.since
    age = f" for {short_age(since, now)}" if since is not None and since.year > 1970 else ""
    why = view.cause.code if view.cause is not None else view.reason
    head = f"{mark} {view.name} in {view.namespace} is {view.phase}{stale}: {why}{age}".replace(": :", ":")
    yield Line(head if why else head.partition(": ")[0], _STYLES[view.health], 2)
    if view.cause is None:
        if view.message:
            yield Line(f"  {view.message}", "", 2)
        return
    kind, _, rest = view.cause.object.partition("/")
    name = rest.rpartition("/")[2]
    evidence = view.cause.evidence.removeprefix(f"{kind} {name}, ").removeprefix(f"{kind} {name}: ")
    yield Line(f"  {view.cause.object}: {evidence}", "", 2)
    field = f" (field {view.cause.field})" if view.cause.field else ""
    yield Line(f"  Remedy: {view.cause.remedy or 'see the message above.'}{field}", "", 2)
    if kind == "Pod":
        yield Line(f"  Logs: airunway logs md/{view.name} -n {view.namespace}", "dim", 2)


def _facts(view: DeploymentView) -> Iterator[Line]:
    yield Line(f"Model:    {view.model or 'none'}", "", 10)
    if (template := view.template) is not None:
        used = f"{template.kind} {template.name}" if template.name else f"none ({template.asked} was asked for)"
        state = f", {TEMPLATE_READY}={template.status} {template.reason}" if template.status else ""
        yield Line(f"Template: {used}{state}", "", 10)
    engine = view.engine or "no engine yet"
    replicas = f", {view.replicas} replicas ready" if view.replicas else ""
    yield Line(f"Runs on:  {engine} by {view.provider or 'no provider yet'}{replicas}", "", 10)
    if view.endpoint:
        yield Line(f"Endpoint: {view.endpoint}", "", 10)
    if view.url:
        yield Line(f"Gateway:  {view.url}", "", 10)


def _tree(root: TreeNode, now: datetime, *, width: int | None, ascii_only: bool) -> list[Line]:
    rows = list(_rows(root, "", "", ascii_only))
    most = _WIDEST_NAME if width is None else min(_WIDEST_NAME, width // 2)
    widest = min(max((len(label) for label, _, _ in rows), default=0), most)
    lines = []
    for label, node, indent in rows:
        text = "  ".join(filter(None, [label.ljust(widest), *_columns(node, now)])).rstrip()
        lines.append(Line(text, "" if node.health is Health.OK else _STYLES[node.health], indent + 4))
        if node.message and node.pod is None:
            lines.append(Line(f"{' ' * (indent + 4)}{node.message}", "dim", indent + 4))
    return lines


def _rows(node: TreeNode, first: str, further: str, ascii_only: bool) -> Iterator[tuple[str, TreeNode, int]]:
    mark = (_LETTERS if ascii_only else _MARKS)[node.health]
    if node.health is Health.OK and not node.state:
        mark = "." if ascii_only else "·"  # it exists, and has no state of its own or was not read
    many = f"{node.count} {node.kind}s: {node.name} …" if node.count > 1 else f"{node.kind} {node.name}"
    role = f" ({node.pod.role})" if node.pod is not None and node.pod.role else ""
    yield f"{first}{mark} {many}{role}", node, len(further)
    corner, tee, bar = ("`- ", "|- ", "|  ") if ascii_only else ("└─ ", "├─ ", "│  ")
    for place, child in enumerate(node.children):
        last = place == len(node.children) - 1
        yield from _rows(child, further + (corner if last else tee), further + ("   " if last else bar), ascii_only)


def _columns(node: TreeNode, now: datetime) -> Iterator[str]:
    if node.state:
        yield node.state
    if node.count > 1 and node.nodes:
        yield f"on {len(node.nodes)} nodes" if len(node.nodes) > 1 else f"on {node.nodes[0]}"
    if node.pod is not None:
        yield node.pod.node or "no node"
        yield _restarts(node.pod)
        ending = _ending(node.pod.ending)
        if ending and node.pod.ending is not None and node.pod.ending.finished is not None:
            ending += f" {short_age(node.pod.ending.finished, now)} ago"
        yield ending


def _restarts(pod: PodRow) -> str:
    return f"{pod.restarts} restart{'' if pod.restarts == 1 else 's'}" if pod.restarts else ""


def _ending(ending: EndingRow | None) -> str:
    return f"ended: {ending.reason or 'Error'}, exit code {ending.code}" if ending is not None else ""


def _conditions(view: DeploymentView, now: datetime) -> Iterator[Line]:
    told = {view.message, *((view.cause.evidence,) if view.cause is not None else ())}
    for row in view.conditions:
        if row.good or (row.status == "Unknown" and not row.message):
            continue
        age = f" for {short_age(row.since, now)}" if row.since is not None and row.since.year > 1970 else ""
        text = "" if row.message in told or not row.message else f": {row.message}"
        yield Line(f"  {row.type}={row.status} {row.reason}{age}{text}", "", 4)


def _recently(view: DeploymentView, now: datetime) -> Iterator[Line]:
    if isinstance(view.timeline, Unseen):
        return
    told = view.cause.evidence if view.cause is not None else ""
    entries = [e for e in view.timeline if e.source != "condition" and not (told and told in e.message)]
    for entry in entries[-_RECENT:]:
        yield Line(f"  {_entry(entry, now)}", "", 8)


def _entry(entry: TimelineEntry, now: datetime) -> str:
    often = f" ({entry.count} times)" if entry.count > 1 else ""
    return f"{short_age(entry.time, now)} ago  {entry.object} {entry.reason}{often}: {entry.message}"


def _why(unseen: Unseen) -> str:
    return unseen.why + (f" ({unseen.right})" if unseen.right else "")
