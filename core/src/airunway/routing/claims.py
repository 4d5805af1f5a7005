"""Knows which deployment holds a path or a model name on a Gateway (docs/routing.md).

The older deployment holds a claim: by creation time, then namespace, then name. The answers depend only on the set of
claims, so they are the same after a restart, in whatever order the deployments are read. A claim on one listener does
not overlap with a claim on another one; a claim on all listeners (an empty section) overlaps with every claim.

    a/x claims /chat on all listeners, b/y claims /chat on listener `https`: a/x is older, b/y conflicts with it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

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

    @property
    def key(self) -> ObjectKey:
        """The deployment."""
        return ObjectKey(self.namespace, self.name)


class Conflict(NamedTuple):
    """A claim that another deployment holds."""

    claim: Claim
    holder: ObjectKey


def claimant_of(deployment: Resource) -> Claimant:
    """The claimant for any deployment; one without a creation time counts as the youngest."""
    return Claimant(
        text_at(deployment, "metadata", "creationTimestamp") or "~",
        text_at(deployment, "metadata", "namespace"),
        text_at(deployment, "metadata", "name"),
    )


class _Subject(NamedTuple):
    gateway: ObjectKey
    kind: ClaimKind
    value: str


@dataclass(slots=True)
class _Group:
    """All claims with the same Gateway, kind and value."""

    everyone: list[tuple[Claimant, str]] = field(default_factory=list)
    """Claimants with their sections, the oldest first."""
    sections: dict[str, list[Claimant]] = field(default_factory=dict)

    def add(self, claimant: Claimant, section: str) -> None:
        insort(self.everyone, (claimant, section))
        insort(self.sections.setdefault(section, []), claimant)

    def remove(self, claimant: Claimant, section: str) -> None:
        del self.everyone[bisect_left(self.everyone, (claimant, section))]
        same = self.sections[section]
        del same[bisect_left(same, claimant)]
        if not same:
            del self.sections[section]

    def heads(self, section: str) -> tuple[Claimant | None, str, Claimant | None]:
        """What the answers for the group depend on, as far as a change in `section` can change it."""
        if not self.everyone:
            return None, "", None
        same = self.sections.get(section)
        return *self.everyone[0], same[0] if same else None

    def affected(
        self, before: tuple[Claimant | None, str, Claimant | None], section: str
    ) -> Iterable[tuple[Claimant, str]]:
        """Those whose answer may have changed since `before`."""
        now = self.heads(section)
        if now == before:
            return ()
        if now[:2] != before[:2]:
            # Where both oldest ones are on one listener, claims on listeners of their own are decided among themselves.
            both = bool(now[1]) and bool(before[1])
            return [entry for entry in self.everyone if not both or entry[1] in ("", section)]
        return [(claimant, section) for claimant in self.sections.get(section, ())]


class Claims:
    """All claims of all deployments; a change returns the deployments whose conflicts may have changed by it."""

    def __init__(self) -> None:
        self._of: dict[ObjectKey, tuple[Claimant, frozenset[Claim]]] = {}
        self._groups: dict[_Subject, _Group] = {}

    def __len__(self) -> int:
        """How many deployments claim something."""
        return len(self._of)

    def rebuild(self, claims: Iterable[tuple[Claimant, Iterable[Claim]]]) -> None:
        """Replaces everything. Fastest with the oldest first, which this method sees to."""
        self._of.clear()
        self._groups.clear()
        for claimant, its in sorted(claims, key=lambda entry: entry[0]):
            self.put(claimant, its)

    def put(self, claimant: Claimant, claims: Iterable[Claim]) -> frozenset[ObjectKey]:
        """Sets the claims of a deployment; returns the *others* to be woken. No claims: it releases all."""
        key, wanted = claimant.key, frozenset(claims)
        before, had = self._of.get(key, (claimant, frozenset()))
        if before == claimant and had == wanted:
            return frozenset()
        # A deployment that was made anew under the same name has another age.
        gone, new = (had - wanted, wanted - had) if before == claimant else (had, wanted)
        woken: set[ObjectKey] = set()
        for claim in sorted(gone):
            woken |= self._change(claim, before, add=False)
        for claim in sorted(new):
            woken |= self._change(claim, claimant, add=True)
        if wanted:
            self._of[key] = (claimant, wanted)
        else:
            self._of.pop(key, None)
        woken.discard(key)
        return frozenset(woken)

    def drop(self, key: ObjectKey) -> frozenset[ObjectKey]:
        """Removes a deployment that is gone; returns the others to be woken."""
        found = self._of.get(key)
        return self.put(found[0], ()) if found is not None else frozenset()

    def conflicts(self, key: ObjectKey) -> tuple[Conflict, ...]:
        """The claims of a deployment that others hold, each with its holder; sorted."""
        found = self._of.get(key)
        if found is None:
            return ()
        claimant, claims = found
        lost = []
        for claim in sorted(claims):
            holder = self.holder(claim)
            if holder is not None and holder != claimant.key:
                lost.append(Conflict(claim, holder))
        return tuple(lost)

    def holder(self, claim: Claim) -> ObjectKey | None:
        """The deployment that holds a claim: the oldest one that overlaps and holds; None if it is free."""
        group = self._groups.get(_Subject(claim.gateway, claim.kind, claim.value))
        if group is None:
            return None
        oldest, its_section = group.everyone[0]
        # The oldest on all listeners excludes all others. Else those on all listeners overlap with the oldest one,
        # never hold, and cannot exclude those on other listeners.
        if not its_section or not claim.section:
            return oldest.key
        same = group.sections.get(claim.section)
        return same[0].key if same else None

    def _change(self, claim: Claim, claimant: Claimant, *, add: bool) -> set[ObjectKey]:
        subject = _Subject(claim.gateway, claim.kind, claim.value)
        group = self._groups.setdefault(subject, _Group())
        before = group.heads(claim.section)
        if add:
            group.add(claimant, claim.section)
        else:
            group.remove(claimant, claim.section)
        affected = {other.key for other, _ in group.affected(before, claim.section)}
        if not group.everyone:
            del self._groups[subject]
        return affected
