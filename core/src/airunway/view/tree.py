"""The objects below a deployment as a tree: by owner references, problems first, equal healthy siblings as one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from airunway.resource import Resource, dig, labels_of, uid_of
from airunway.view.base import View, word
from airunway.view.objects import state_of
from airunway.view.pods import Health, PodRow, pod_row
from airunway.view.snapshot import DeploymentSnapshot
from airunway.view.unseen import Unseen

__all__ = ["TreeNode", "tree_of"]

GROUPED_FROM = 4
"""Equal healthy siblings from this number on are one node."""

MOST_PROBLEMS = 12
"""Siblings with the same problem that have a node each; the others are one node."""

_DEEPEST = 16


@dataclass(frozen=True, kw_only=True)
class TreeNode(View):
    """An object, or several equal siblings."""

    kind: str
    """Kind."""
    name: str
    """Name; of several siblings that of the first."""
    state: str
    """State as one word; empty for an object without one, or that was not read."""
    health: Health
    """Whether it is all right."""
    message: str
    """Why it is not all right; empty otherwise."""
    read: bool
    """Whether the object was read. If not, it is known only because another object names it."""
    count: int
    """How many equal siblings the node stands for: 1, or more."""
    names: tuple[str, ...]
    """Names of all siblings that the node stands for."""
    pod: PodRow | None
    """The row of a pod; null for other objects, and for several siblings."""
    nodes: tuple[str, ...]
    """Nodes of the pods that the node stands for, each once."""
    children: tuple[TreeNode, ...]
    """Objects that it owns."""


@dataclass(frozen=True, kw_only=True)
class _Object:
    """An object before the tree is built."""

    id: str
    parent: str
    node: TreeNode


def tree_of(snapshot: DeploymentSnapshot, *, culprit: str = "") -> TreeNode:
    """Returns the deployment with the objects below it; `culprit` is the object of the root cause (``Kind/ns/name``).

    An owner that was not read has a node of its own, below the provider's object if nothing tells its own owner.
    """
    deployment = snapshot.deployment
    root = _node(deployment, kind="ModelDeployment")
    top = uid_of(deployment) or "deployment"
    found: dict[str, _Object] = {top: _Object(id=top, parent="", node=replace(root, health=_health_of(deployment)))}
    for obj in snapshot.objects:
        identity = uid_of(obj)
        if identity and identity not in found:
            found[identity] = _Object(id=identity, parent=_owner_uid(obj), node=_node(obj))
    pods = () if isinstance(snapshot.pods, Unseen) else snapshot.pods
    for pod in pods:
        identity = uid_of(pod)
        if identity and identity not in found:
            found[identity] = _Object(id=identity, parent=_owner_uid(pod), node=_pod_node(pod_row(pod, deployment)))
    primary = _primary(snapshot, found) or top
    for pod in (*pods, *snapshot.objects):
        _add_owners(pod, found, primary)
    _add_named(culprit, found, primary)
    return _assembled(top, found, primary, culprit)


def _health_of(deployment: Resource) -> Health:
    phase = dig(deployment, "status", "phase")
    if phase in ("Failed", "Degraded"):
        return Health.PROBLEM
    return Health.OK if phase == "Running" else Health.PROGRESS


def _node(obj: Resource, *, kind: str = "") -> TreeNode:
    state = state_of(obj)
    name = word(dig(obj, "metadata", "name"))
    return TreeNode(
        kind=kind or word(obj.get("kind")),
        name=name,
        state=word(dig(obj, "status", "phase")) if kind else state.word,
        health=state.health,
        message="" if kind or state.health is Health.OK else state.message,
        read=True,
        count=1,
        names=(name,),
        pod=None,
        nodes=(),
        children=(),
    )


def _pod_node(row: PodRow) -> TreeNode:
    return TreeNode(
        kind="Pod",
        name=row.name,
        state=row.state,
        health=row.health,
        message=row.message,
        read=True,
        count=1,
        names=(row.name,),
        pod=row,
        nodes=(row.node,) if row.node else (),
        children=(),
    )


def _unread(kind: str, name: str) -> TreeNode:
    return TreeNode(
        kind=word(kind),
        name=word(name),
        state="",
        health=Health.OK,
        message="",
        read=False,
        count=1,
        names=(word(name),),
        pod=None,
        nodes=(),
        children=(),
    )


def _references(obj: Resource) -> Iterator[Mapping[str, object]]:
    listed = dig(obj, "metadata", "ownerReferences")
    for each in listed[:64] if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("uid"), str):
            yield each


def _owner_uid(obj: Resource) -> str:
    """The uid of the controlling owner, else of the first; empty if there is none."""
    references = list(_references(obj))
    chosen = next((each for each in references if each.get("controller")), references[0] if references else None)
    return str(chosen["uid"]) if chosen is not None else ""


def _primary(snapshot: DeploymentSnapshot, found: Mapping[str, _Object]) -> str:
    """The uid of the provider's own object; empty if it was not read."""
    provider = dig(snapshot.deployment, "status", "provider")
    kind, name = word(dig(provider, "resourceKind")), word(dig(provider, "resourceName"))
    return next((o.id for o in found.values() if (o.node.kind, o.node.name) == (kind, name)), "") if name else ""


def _add_owners(obj: Resource, found: dict[str, _Object], primary: str) -> None:
    """Add the owner of an object where it was not read."""
    uid = _owner_uid(obj)
    if not uid or uid in found:
        return
    reference = next(each for each in _references(obj) if each["uid"] == uid)
    kind, name = str(reference.get("kind")), str(reference.get("name"))
    parent = primary
    hash_ = labels_of(obj).get("pod-template-hash") if isinstance(labels_of(obj), dict) else None
    if kind == "ReplicaSet" and isinstance(hash_, str):
        # A ReplicaSet has the name of its Deployment and this hash: it need not be read.
        of = name.removesuffix(f"-{hash_}")
        parent = next((o.id for o in found.values() if (o.node.kind, o.node.name) == ("Deployment", of)), primary)
    found[uid] = _Object(id=uid, parent=parent, node=_unread(kind, name))


def _add_named(culprit: str, found: dict[str, _Object], primary: str) -> None:
    """Add the object of the root cause where nothing else led to it, e.g. a StatefulSet that may not create pods."""
    kind, _, rest = culprit.partition("/")
    name = rest.rpartition("/")[2]
    if not name or any((o.node.kind, o.node.name) == (kind, name) for o in found.values()):
        return
    found[culprit] = _Object(id=culprit, parent=primary, node=_unread(kind, name))


def _assembled(top: str, found: Mapping[str, _Object], primary: str, culprit: str) -> TreeNode:
    children: dict[str, list[_Object]] = {}
    for each in found.values():
        if each.id == top:
            continue
        known = each.parent in found and each.parent != each.id
        parent = each.parent if known else (primary if each.node.kind == "Pod" and primary != each.id else top)
        children.setdefault(parent, []).append(each)
    kind, _, rest = culprit.partition("/")
    at_fault = (kind, rest.rpartition("/")[2])
    seen: set[str] = set()

    def built(each: _Object, depth: int) -> TreeNode:
        seen.add(each.id)
        below = [
            built(child, depth + 1) for child in children.get(each.id, ()) if child.id not in seen and depth < _DEEPEST
        ]
        node = each.node
        if (node.kind, node.name) == at_fault and node.health is not Health.PROBLEM:
            node = replace(node, health=Health.PROBLEM)
        return replace(node, children=tuple(_grouped(below)))

    tree = built(found[top], 0)
    # Owner references can form a circle, which nothing leads to from the top.
    lost = [replace(each.node, children=()) for each in found.values() if each.id not in seen]
    return replace(tree, children=tuple(_grouped([*tree.children, *lost]))) if lost else tree


def _order(node: TreeNode) -> tuple[object, ...]:
    return _worst(node).position, node.kind == "Pod", node.kind, node.name


def _worst(node: TreeNode) -> Health:
    """The health of an object or of what is below it, whichever is worse."""
    return min([node.health, *(_worst(child) for child in node.children)], key=lambda health: health.position)


def _grouped(siblings: Iterable[TreeNode]) -> Iterator[TreeNode]:
    """Siblings in order, equal ones as one node: healthy ones from `GROUPED_FROM` on, others beyond `MOST_PROBLEMS`."""
    groups: dict[tuple[object, ...], list[TreeNode]] = {}
    for node in sorted(siblings, key=_order):
        # An object with something below it stands alone, and so does a pod whose containers ended.
        alone = bool(node.children) or (node.health is Health.OK and node.pod is not None and node.pod.restarts > 0)
        role = node.pod.role if node.pod is not None else ""
        key = (node.kind, node.name) if alone else (node.kind, node.state, node.health, role, node.read)
        groups.setdefault(key, []).append(node)
    for members in groups.values():
        first = members[0]
        shown = 0 if first.health is Health.OK and len(members) >= GROUPED_FROM else MOST_PROBLEMS
        if len(members) <= max(shown, 1) or (shown and len(members) == MOST_PROBLEMS + 1):
            yield from members
            continue
        yield from members[:shown]
        rest = members[shown:]
        yield replace(
            rest[0],
            message="",
            count=len(rest),
            names=tuple(node.name for node in rest),
            pod=None,
            nodes=tuple(sorted({name for node in rest for name in node.nodes})),
        )
