"""Knows which deployment holds a path or a model name on a Gateway (docs/routing.md, "Conflicts").

A claim that a route already serves comes before one that no route serves yet; among equals the older deployment comes
first: by creation time, then namespace, then name. Each holds what nobody before it holds. So nothing that serves is
lost to an edit of another deployment, and the answers depend only on what is stored: they are the same after a restart,
in whatever order the deployments are read.

Two claims overlap on the same value. Of two namespaces, paths overlap also where one is a prefix of the other by
segments: the longer one would take a part of the requests for the shorter one. A claim on one listener does not overlap
with a claim on another one; a claim on all listeners (an empty section) overlaps with every claim.

Deployments of one namespace with the same group share a claim: one of them holds it, for all of them, and it is no
conflict for the others (docs/side-by-side.md).

    a/x claims /ml on all listeners, b/y claims /ml/chat on listener `https`: a/x is older, b/y conflicts with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from airunway.resource import ObjectKey, Resource, text_at


class ClaimKind(StrEnum):
    """What is claimed."""

    PATH = "path"
    MODEL_NAME = "model name"


class Claim(NamedTuple):
    """One path or model name on a Gateway."""

    gateway: ObjectKey
    section: str
    """Name of the listener; empty: all listeners."""
    kind: ClaimKind
    value: str


class Claimant(NamedTuple):
    """A deployment that claims; the smallest one is the oldest."""

    created: str
    """Creation time as the API server writes it: RFC 3339 in UTC with whole seconds, which sorts as text."""
    namespace: str
    name: str
    group: str = ""
    """``spec.gateway.group``; empty: it shares nothing."""

    @property
    def key(self) -> ObjectKey:
        """The deployment."""
        return ObjectKey(self.namespace, self.name)

    def shares_with(self, other: Claimant) -> bool:
        """Whether both are of one group."""
        return bool(self.group) and (self.namespace, self.group) == (other.namespace, other.group)


class ClaimConflict(NamedTuple):
    """A claim that another deployment holds."""

    claim: Claim
    holder: ObjectKey
    held: str = ""
    """What the holder has, where it is another path; empty: the same."""
    group: str = ""
    """The holder's group, which is not the deployment's."""


def claimant_of(deployment: Resource) -> Claimant:
    """The claimant for any deployment; one without a creation time counts as the youngest."""
    return Claimant(
        text_at(deployment, "metadata", "creationTimestamp") or "~",
        text_at(deployment, "metadata", "namespace"),
        text_at(deployment, "metadata", "name"),
        text_at(deployment, "spec", "gateway", "group"),
    )


_Order: TypeAlias = tuple[bool, Claimant, str, str]
"""Which of two claims comes first: whether no route serves it yet, claimant, section, value."""


@dataclass(slots=True, eq=False)
class _HeldClaim:
    """A claim, and who holds what it claims."""

    order: _Order
    claim: Claim
    node: _Node
    key: ObjectKey
    """The deployment; made once, because it is compared often."""
    holds: bool = False
    holder: _HeldClaim | None = None
    """The first claim that it overlaps with and that holds; None for one that holds itself."""

    @property
    def claimant(self) -> Claimant:
        return self.order[1]

    def overlaps(self, other: _HeldClaim) -> bool:
        """Whether the listeners of both overlap, and their claimants differ."""
        mine, theirs = self.claim.section, other.claim.section
        return (not mine or not theirs or mine == theirs) and self.key != other.key

    def shares(self, other: _HeldClaim) -> bool:
        """Whether both are the same claim of one group."""
        return self.claim == other.claim and self.claimant.shares_with(other.claimant)


def _order(entry: _HeldClaim) -> _Order:
    return entry.order


def _order_of(claim: Claim, claimant: Claimant, serving: Collection[Claim]) -> _Order:
    return claim not in serving, claimant, claim.section, claim.value


@dataclass(slots=True, eq=False)
class _Node:
    """A path, or a model name, in the tree of all that is claimed on one Gateway; children are one segment longer."""

    parent: _Node | None
    segment: str
    children: dict[str, _Node] = field(default_factory=dict)
    entries: list[_HeldClaim] = field(default_factory=list)
    """All claims on it, in their order."""
    holding: list[_HeldClaim] = field(default_factory=list)
    """Those that hold, in their order."""
    below: list[_HeldClaim] = field(default_factory=list)
    """The claims on longer paths that hold, in their order."""

    def ancestors(self) -> Iterator[_Node]:
        """The shorter paths; not the root, on which nothing is claimed."""
        node = self.parent
        while node is not None and node.parent is not None:
            yield node
            node = node.parent

    def descendants(self) -> Iterator[_Node]:
        """The longer paths."""
        waiting = list(self.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())


def _first(holding: Iterable[_HeldClaim], entry: _HeldClaim, *, other_namespace: bool) -> _HeldClaim | None:
    """The first of these that overlaps with an entry and comes before it."""
    for other in holding:
        if other.order >= entry.order:
            return None
        if entry.overlaps(other) and not (other_namespace and other.claimant.namespace == entry.claimant.namespace):
            return other
    return None


class Claims:
    """All claims of all deployments; a change returns the deployments whose conflicts may have changed by it."""

    def __init__(self) -> None:
        self._of: dict[ObjectKey, dict[Claim, _HeldClaim]] = {}
        self._roots: dict[tuple[ObjectKey, ClaimKind], _Node] = {}
        self._groups: dict[tuple[str, str], dict[ObjectKey, Claimant]] = {}

    def __len__(self) -> int:
        """How many deployments claim something."""
        return len(self._of)

    def rebuild(self, claims: Iterable[tuple[Claimant, Iterable[Claim], Collection[Claim]]]) -> None:
        """Replaces everything: claimants with their claims, and those claims that their routes serve."""
        self._of.clear()
        self._roots.clear()
        self._groups.clear()
        entries = []
        for claimant, its, serving in claims:
            mine = self._of.setdefault(claimant.key, {})
            for claim in its:
                mine[claim] = entry = self._entry(claim, claimant, serving)
                entries.append(entry)
            if not mine:
                del self._of[claimant.key]
            else:
                self._enter(claimant)
        # In their order: each is decided once, because none that comes later changes it.
        for entry in sorted(entries, key=_order):
            entry.node.entries.append(entry)
            self._decide(entry)

    def put(self, claimant: Claimant, claims: Iterable[Claim], serving: Collection[Claim] = ()) -> frozenset[ObjectKey]:
        """Sets the claims of a deployment, and those that its route serves; returns the *others* to be woken. No
        claims: it releases all.
        """
        key, wanted = claimant.key, frozenset(claims)
        had = self._of.get(key, {})
        before = next(iter(had.values())).claimant if had else None
        orders = {claim: _order_of(claim, claimant, serving) for claim in wanted}
        gone = [entry for claim, entry in sorted(had.items()) if orders.get(claim) != entry.order]
        new = sorted(claim for claim, order in orders.items() if claim not in had or had[claim].order != order)
        if not gone and not new:
            return frozenset()
        waiting: list[tuple[_Order, int, _HeldClaim]] = []
        known: set[int] = set()

        def look_at(entries: Iterable[_HeldClaim]) -> None:
            for entry in entries:
                if id(entry) not in known:
                    known.add(id(entry))
                    heappush(waiting, (entry.order, id(entry), entry))

        kept = {claim: entry for claim, entry in had.items() if orders.get(claim) == entry.order}
        for entry in gone:
            self._remove(entry)
            if entry.holds:
                look_at(_behind(entry))
        for claim in new:
            kept[claim] = entry = self._entry(claim, claimant, serving)
            insort(entry.node.entries, entry, key=_order)
            look_at([entry])
        woken = self._settle(waiting, look_at)
        for entry in gone:
            self._prune(entry)
        if kept:
            self._of[key] = kept
        else:
            self._of.pop(key, None)
        if before is not None:
            woken.update(self._leave(before))
        if kept:
            woken.update(self._enter(claimant))
        woken.discard(key)
        return frozenset(woken)

    def drop(self, key: ObjectKey) -> frozenset[ObjectKey]:
        """Removes a deployment that is gone; returns the others to be woken."""
        found = self._of.get(key)
        return self.put(next(iter(found.values())).claimant, ()) if found else frozenset()

    def conflicts(self, key: ObjectKey) -> tuple[ClaimConflict, ...]:
        """The claims of a deployment that others hold, each with its holder; sorted. Those that its own group holds are
        left out.
        """
        lost = []
        for claim, entry in sorted(self._of.get(key, {}).items()):
            if entry.holder is not None and not entry.shares(entry.holder):
                theirs, holder = entry.holder.claim.value, entry.holder.claimant
                lost.append(ClaimConflict(claim, holder.key, "" if theirs == claim.value else theirs, holder.group))
        return tuple(lost)

    def group(self, claimant: Claimant) -> tuple[Claimant, ...]:
        """The deployments of its group that claim anything, in the order of their age."""
        return tuple(sorted(self._groups.get((claimant.namespace, claimant.group), {}).values()))

    def shared(self, key: ObjectKey) -> dict[Claim, tuple[Claimant, tuple[Claimant, ...]]]:
        """What a deployment and others of its group claim: the holder, and all that share it in the order of age."""
        found = {}
        for claim, entry in sorted(self._of.get(key, {}).items()):
            holder = entry.holder or entry
            members = sorted(
                each.claimant
                for each in entry.node.entries
                if each is holder or (each.holder is holder and each.shares(holder))
            )
            if len(members) > 1 and (entry is holder or entry.shares(holder)):
                found[claim] = (holder.claimant, tuple(members))
        return found

    def _enter(self, claimant: Claimant) -> Iterable[ObjectKey]:
        """Note the group of a claimant; returns all of it."""
        if not claimant.group:
            return ()
        members = self._groups.setdefault((claimant.namespace, claimant.group), {})
        members[claimant.key] = claimant
        return members

    def _leave(self, claimant: Claimant) -> Iterable[ObjectKey]:
        """Forget the group of a claimant; returns the others of it."""
        if not claimant.group:
            return ()
        members = self._groups.get((claimant.namespace, claimant.group), {})
        members.pop(claimant.key, None)
        if not members:
            self._groups.pop((claimant.namespace, claimant.group), None)
        return members

    def holder(self, claim: Claim) -> ObjectKey | None:
        """The deployment that holds this very path or model name: the first that overlaps; None if it is free."""
        node = self._roots.get((claim.gateway, claim.kind))
        for segment in _segments(claim):
            node = node.children.get(segment) if node is not None else None
        for entry in node.holding if node is not None else ():
            if not claim.section or entry.claim.section in ("", claim.section):
                return entry.key
        return None

    # ------------------------------------------------------------------------------------------------------ the tree

    def _entry(self, claim: Claim, claimant: Claimant, serving: Collection[Claim]) -> _HeldClaim:
        """A new entry, which is not in its node yet."""
        node = self._roots.setdefault((claim.gateway, claim.kind), _Node(None, ""))
        for segment in _segments(claim):
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node(node, segment)
            node = child
        return _HeldClaim(_order_of(claim, claimant, serving), claim, node, claimant.key)

    def _settle(
        self, waiting: list[tuple[_Order, int, _HeldClaim]], look_at: Callable[[Iterable[_HeldClaim]], None]
    ) -> set[ObjectKey]:
        """Decides the entries that wait, and those that this changes; returns whose answer has changed.

        In their order: what decides an entry comes before it, and is settled already.
        """
        woken = set()
        while waiting:
            _, _, entry = heappop(waiting)
            held, answer = entry.holds, _answer(entry)
            if held:
                self._let_go(entry)
            self._decide(entry)
            if _answer(entry) != answer:
                woken.add(entry.key)
            if entry.holds != held:
                look_at(_behind(entry))
        return woken

    @staticmethod
    def _decide(entry: _HeldClaim) -> None:
        """Whether an entry holds, by those that come before it."""
        node = entry.node
        found = [
            _first(node.holding, entry, other_namespace=False),
            _first(node.below, entry, other_namespace=True),
            *(_first(above.holding, entry, other_namespace=True) for above in node.ancestors()),
        ]
        entry.holder = min(filter(None, found), key=_order, default=None)
        entry.holds = entry.holder is None
        if entry.holds:
            insort(node.holding, entry, key=_order)
            for above in node.ancestors():
                insort(above.below, entry, key=_order)

    @staticmethod
    def _let_go(entry: _HeldClaim) -> None:
        """Take an entry out of the lists of those that hold."""
        _take(entry.node.holding, entry)
        for above in entry.node.ancestors():
            _take(above.below, entry)

    def _remove(self, entry: _HeldClaim) -> None:
        _take(entry.node.entries, entry)
        if entry.holds:
            self._let_go(entry)

    def _prune(self, entry: _HeldClaim) -> None:
        """Remove nodes on which nothing is claimed any more."""
        node = entry.node
        while node.parent is not None and not node.entries and not node.children:
            if node.parent.children.get(node.segment) is node:
                del node.parent.children[node.segment]
            node = node.parent
        root = (entry.claim.gateway, entry.claim.kind)
        if root in self._roots and not self._roots[root].children:
            del self._roots[root]


def _answer(entry: _HeldClaim) -> ClaimConflict | None:
    """What the deployment is told about its claim."""
    if entry.holder is None:
        return None
    return ClaimConflict(entry.claim, entry.holder.key, entry.holder.claim.value)


def _segments(claim: Claim) -> list[str]:
    return claim.value.strip("/").split("/") if claim.kind is ClaimKind.PATH else [claim.value]


def _take(entries: list[_HeldClaim], entry: _HeldClaim) -> None:
    """Remove an entry of a sorted list."""
    del entries[bisect_left(entries, entry.order, key=_order)]


def _behind(entry: _HeldClaim) -> Iterator[_HeldClaim]:
    """The claims that an entry takes from others if it holds: those that overlap with it and come later."""

    def later(entries: list[_HeldClaim]) -> Iterator[_HeldClaim]:
        for other in entries[bisect_right(entries, entry.order, key=_order) :]:
            if entry.overlaps(other):
                yield other

    yield from later(entry.node.entries)
    for nodes in (entry.node.ancestors(), entry.node.descendants()):
        for node in nodes:
            yield from (each for each in later(node.entries) if each.claimant.namespace != entry.claimant.namespace)
