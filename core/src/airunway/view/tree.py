"""The objects below a deployment as a tree: by owner references, problems first, equal healthy siblings as one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from airunway.api import names
from airunway.resource import Resource, dig, is_deleting, labels_of, list_at, uid_of
from airunway.status.reasons import REASONS, Category, category_of
from airunway.view.base import ViewModel, line, word
from airunway.view.pods import Health, PodRow

GROUPED_FROM = 4
"""Equal healthy siblings from this number on are one node."""

MOST_PROBLEMS = 12
"""Siblings with the same problem that have a node each; the others are one node."""

_DEEPEST = 16


@dataclass(frozen=True, kw_only=True)
class TreeNode(ViewModel):
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
    """Why it is not all right, or what the route's deployment gets of its group; empty otherwise."""
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


class _Object(NamedTuple):
    """An object before the tree is built."""

    parent: str
    """The uid of its owner; empty if it has none."""
    node: TreeNode


def tree_of(
    deployment: Resource,
    pods: Sequence[tuple[Resource, PodRow]],
    objects: Sequence[Resource],
    *,
    phase: str,
    culprit: str = "",
    share: str = "",
) -> TreeNode:
    """Returns the deployment with the objects below it; `phase` is that of the deployment, `culprit` the object
    of the root cause (``Kind/ns/name``), `share` what its route says about its group.

    An owner that was not read has a node of its own, below the provider's object if nothing tells its own owner.
    """
    top = uid_of(deployment) or "deployment"
    health = _PHASES.get(phase, Health.PROGRESS)
    root = _node("ModelDeployment", word(dig(deployment, "metadata", "name")), phase, health)
    found = {top: _Object("", root)}
    for obj, node in (*((obj, _node_of(obj)) for obj in objects), *((pod, _pod_node(row)) for pod, row in pods)):
        if (identity := uid_of(obj)) and identity not in found:
            found[identity] = _Object(_owner_uid(obj), node)
    for obj in objects:
        if obj.get("kind") == _GATEWAY and (identity := uid_of(obj)):  # it belongs to nobody: its route leads to it
            found[identity] = _Object(_uid_of(found, "HTTPRoute", root.name) or top, found[identity].node)
    route = found.get(_uid_of(found, "HTTPRoute", root.name))
    if route is not None and not route.node.message:
        found[_uid_of(found, "HTTPRoute", root.name)] = route._replace(node=replace(route.node, message=share))
    provider = dig(deployment, "status", "provider")
    name = word(dig(provider, "resourceName"))
    primary = (_uid_of(found, word(dig(provider, "resourceKind")), name) if name else "") or top
    for obj in (*(pod for pod, _ in pods), *objects):
        _add_owner(obj, found, primary)
    kind, _, rest = culprit.partition("/")
    name = rest.rpartition("/")[2]
    # Nothing else leads to some objects at fault, e.g. to a StatefulSet that may not create pods.
    if name and not _uid_of(found, kind, name):
        found[culprit] = _Object(primary, _unread(kind, name))
    return _assembled(top, found, primary, at_fault=(kind, name))


def _node(
    kind: str, name: str, state: str, health: Health, message: str = "", *, pod: PodRow | None = None
) -> TreeNode:
    return TreeNode(
        kind=kind,
        name=name,
        state=state,
        health=health,
        message=message,
        read=True,
        count=1,
        names=(name,),
        pod=pod,
        nodes=(pod.node,) if pod is not None and pod.node else (),
        children=(),
    )


def _node_of(obj: Resource) -> TreeNode:
    state = state_of(obj)
    message = "" if state.health is Health.OK else state.message
    name = word(dig(obj, "metadata", "name"))
    if obj.get("kind") == _GATEWAY:
        name = f"{word(dig(obj, 'metadata', 'namespace'))}/{name}"
    return _node(word(obj.get("kind")), name, state.word, state.health, message=message)


def _pod_node(row: PodRow) -> TreeNode:
    return _node("Pod", row.name, row.state, row.health, message=row.message, pod=row)


def _unread(kind: str, name: str) -> TreeNode:
    return replace(_node(word(kind), word(name), "", Health.OK), read=False)


def _references(obj: Resource) -> Iterator[Mapping[str, object]]:
    for each in list_at(obj, "metadata", "ownerReferences")[:64]:
        if isinstance(each, dict) and isinstance(each.get("uid"), str):
            yield each


def _owner_uid(obj: Resource) -> str:
    """The uid of the controlling owner, else of the first; empty if there is none."""
    references = list(_references(obj))
    chosen = next((each for each in references if each.get("controller")), references[0] if references else None)
    return str(chosen["uid"]) if chosen is not None else ""


def _uid_of(found: Mapping[str, _Object], kind: str, name: str) -> str:
    """The uid of the object of that kind and name; empty if there is none."""
    return next((uid for uid, each in found.items() if (each.node.kind, each.node.name) == (kind, name)), "")


def _add_owner(obj: Resource, found: dict[str, _Object], primary: str) -> None:
    """Add the owner of an object where it was not read."""
    uid = _owner_uid(obj)
    if not uid or uid in found:
        return
    reference = next(each for each in _references(obj) if each["uid"] == uid)
    kind, name = str(reference.get("kind")), str(reference.get("name"))
    labels: Mapping[str, object] = labels_of(obj) if isinstance(labels_of(obj), dict) else {}
    parent, hash_ = primary, labels.get("pod-template-hash")
    if kind == "ReplicaSet" and isinstance(hash_, str):
        # A ReplicaSet has the name of its Deployment and this hash: it need not be read.
        deployment = name.removesuffix(f"-{hash_}")
        parent = _uid_of(found, "Deployment", deployment)
        if not parent and labels.get(names.COMPONENT) == names.PICKER_COMPONENT and names.PROVIDER not in labels:
            # A picker without the label of a provider is the core's own.
            parent = f"Deployment/{deployment}"
            found[parent] = _Object("", _unread("Deployment", deployment))
        parent = parent or primary
    elif isinstance(artifact := labels.get(names.ARTIFACT), str):
        parent = _uid_of(found, "ModelArtifact", artifact) or primary
    found[uid] = _Object(parent, _unread(kind, name))


def _assembled(top: str, found: Mapping[str, _Object], primary: str, *, at_fault: tuple[str, str]) -> TreeNode:
    children: dict[str, list[str]] = {}
    for uid, each in found.items():
        if uid == top:
            continue
        known = each.parent in found and each.parent != uid
        parent = each.parent if known else (primary if each.node.kind == "Pod" and primary != uid else top)
        children.setdefault(parent, []).append(uid)
    seen: set[str] = set()

    def built(uid: str, depth: int) -> TreeNode:
        seen.add(uid)
        below = [built(child, depth + 1) for child in children.get(uid, ()) if child not in seen and depth < _DEEPEST]
        node = found[uid].node
        if (node.kind, node.name) == at_fault and node.health is not Health.PROBLEM:
            node = replace(node, health=Health.PROBLEM)
        return replace(node, children=tuple(_grouped(below)))

    tree = built(top, 0)
    # Owner references can form a circle, which nothing leads to from the top.
    lost = [replace(each.node, children=()) for uid, each in found.items() if uid not in seen]
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


# ----------------------------------------------------------------------------------------------- the state of an object


_PROGRESS = frozenset({Category.PROGRESS, Category.CAPACITY, Category.UNKNOWN, Category.STALE})
"""Categories of reasons that do not make an object that is not ready a problem."""

_READY = ("Ready", "Available", "Complete", "Programmed", "Accepted")
"""Conditions that say whether an object is ready, the most telling first."""

_PHASES = {
    "Bound": Health.OK,
    "Ready": Health.OK,
    "Running": Health.OK,
    "Lost": Health.PROBLEM,
    "Failed": Health.PROBLEM,
    "Degraded": Health.PROBLEM,
    "NotAvailable": Health.PROBLEM,
}


class ObjectState(NamedTuple):
    """How an object is doing."""

    word: str
    """State as one word, such as ``Ready``; empty for an object without a state of its own."""
    health: Health
    message: str
    """Why it is not all right; empty otherwise."""


def state_of(obj: Resource) -> ObjectState:
    """Returns the state of an object of any kind but Pod; total over any JSON object."""
    if is_deleting(obj):
        return ObjectState("Terminating", Health.PROGRESS, "")
    conditions = _conditions(obj)
    if obj.get("kind") == _GATEWAY:
        return _state_of_gateway(obj, conditions.get("Programmed") or {})
    for type_ in ("Stalled", "Failed", "ReplicaFailure"):
        if (found := conditions.get(type_)) is not None and found.get("status") == "True":
            return ObjectState(word(found.get("reason")) or type_, Health.PROBLEM, line(found.get("message")))
    phase = word(dig(obj, "status", "phase"))
    counts = _counts(obj)
    # Some objects say with a condition alone that their replicas are ready.
    reported = any(dig(obj, "status", name) is not None for name in ("replicas", "readyReplicas"))
    counted = counts if reported else ""
    for type_ in _READY:
        if (found := conditions.get(type_)) is not None:
            return _by_condition(found, type_, phase=phase, counts=counted)
    ending = [(name, each) for name, each in conditions.items() if name.endswith(("Ready", "Succeeded"))]
    if ending:
        # The upstream's own words, such as WorkspaceSucceeded: the one that is not True says most.
        name, each = next(((n, c) for n, c in ending if c.get("status") != "True"), ending[-1])
        return _by_condition(each, name, phase=phase, counts=counted)
    if counts:
        ready, _, wanted = counts.partition("/")
        return ObjectState(f"{counts} ready", Health.OK if ready == wanted else Health.PROGRESS, "")
    if phase:
        return ObjectState(phase, _PHASES.get(phase, Health.PROGRESS), line(dig(obj, "status", "message")))
    return ObjectState("", Health.OK, "")


_GATEWAY = "Gateway"


def _state_of_gateway(gateway: Resource, programmed: Resource) -> ObjectState:
    """Programmed, with its address: without either no request reaches what it has accepted."""
    if programmed.get("status") != "True":
        reason = word(programmed.get("reason")) or "not Programmed"
        return ObjectState(reason, Health.PROBLEM, line(programmed.get("message")) or "it is not programmed")
    addresses = (word(dig(each, "value")) for each in list_at(gateway, "status", "addresses")[:16])
    address = next(filter(None, addresses), "")
    if not address:
        return ObjectState("no address", Health.PROBLEM, "it has no address: no request reaches it")
    return ObjectState(f"Programmed at {address}", Health.OK, "")


def _by_condition(condition: Resource, type_: str, *, phase: str, counts: str) -> ObjectState:
    status, reason = condition.get("status"), word(condition.get("reason"))
    if status == "True":
        ready, _, wanted = counts.partition("/")
        if ready != wanted:
            return ObjectState(f"{counts} ready", Health.PROGRESS, "")
        return ObjectState(f"{counts} ready" if counts else (phase or type_), Health.OK, "")
    if status != "False":
        return ObjectState(phase or f"{type_} unknown", Health.UNKNOWN, line(condition.get("message")))
    # Upstreams use reasons of their own for what is merely not ready yet.
    problem = reason in REASONS and category_of(reason) not in _PROGRESS
    health = Health.PROBLEM if problem or _PHASES.get(phase) is Health.PROBLEM else Health.PROGRESS
    return ObjectState(phase or reason or f"not {type_}", health, line(condition.get("message")))


def _conditions(obj: Resource) -> dict[str, Resource]:
    """The conditions by type; those of a route are those of its first parent."""
    listed = dig(obj, "status", "conditions")
    if not isinstance(listed, list):
        parents = dig(obj, "status", "parents")
        listed = dig(parents[0], "conditions") if isinstance(parents, list) and parents else None
    if not isinstance(listed, list):
        return {}
    return {str(each.get("type")): each for each in listed[:64] if isinstance(each, dict)}


def _counts(obj: Resource) -> str:
    """Ready and wanted replicas as ``1/2``; empty for an object that has none."""
    wanted = dig(obj, "spec", "replicas")
    if not isinstance(wanted, int):
        return ""
    ready = dig(obj, "status", "readyReplicas", default=0)
    return f"{ready}/{wanted}" if isinstance(ready, int) else ""
