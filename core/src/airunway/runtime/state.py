"""The state of one deployment at the beginning of a pass, read from the caches, and which objects are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from airunway.api import names
from airunway.owned.objects import Identity, Mark, is_ours
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    condition_of,
    dig,
    finalizers_of,
    key_of,
    managed_by,
    text_at,
)
from airunway.revisions.revision import revision_in
from airunway.runtime.crd_versions import Installed
from airunway.runtime.records import is_primary
from airunway.status.conditions import is_dry_run, is_paused, parts_of, served_before
from airunway.status.evidence import EventFacts, Evidence, parse_moment


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The cached objects of one deployment at one moment."""

    provider: str
    """The provider that reconciles."""
    deployment: Resource
    """The ModelDeployment."""
    live: Mapping[Identity, Resource]
    """Objects of the written kinds that carry the deployment's label."""
    selected: tuple[Resource, ...]
    """Objects of the kinds that the provider only reads and that belong to the deployment."""
    find: Callable[[Sequence[Resource]], Mapping[Identity, Resource]]
    """Returns `live` and any other objects with the names of the given objects."""
    evidence: Evidence | None
    """Pods, claims, Jobs and events; None without a primary object."""
    events: tuple[EventFacts, ...]
    """Events about the objects themselves."""
    installed: Mapping[tuple[str, str], Installed]
    """The served upstream version of each kind, by (group, kind)."""
    settled: bool
    """False while a cache is incomplete: then absence means nothing."""
    rolled_out: bool
    """False while pods are known to be of an older revision."""
    kubernetes: tuple[int, int]
    """Major and minor version of the cluster."""
    now: datetime
    """The time of the pass."""
    written: Resource | None = None
    """The primary object as this pass has written it; None if it has not."""

    @cached_property
    def key(self) -> ObjectKey:
        return key_of(self.deployment)

    @cached_property
    def ours(self) -> tuple[Resource, ...]:
        """The objects that this provider has created for the deployment, the primary first."""
        found = [obj for obj in self.live.values() if is_ours(obj, self.deployment, provider_mark(self.provider))]
        return tuple(sorted(found, key=lambda obj: not is_primary(obj)))

    @cached_property
    def primary(self) -> Resource | None:
        """The primary object, of any kind and name."""
        return self.written or next((obj for obj in self.ours if is_primary(obj)), None)

    @cached_property
    def applied(self) -> datetime | None:
        """When we last changed the primary object."""
        return applied_at(self.primary, names.provider_manager(self.provider)) if self.primary is not None else None

    @cached_property
    def revision(self) -> Resource:
        """What the deployment runs with, as the core has recorded it; empty if there is no such record."""
        return revision_in(self.deployment)

    @cached_property
    def revision_hash(self) -> str:
        """Hash of the revision; empty as long as it is not whole."""
        return text_at(self.revision, "hash")

    @property
    def in_effect(self) -> bool:
        """Whether the primary object was written from the present revision."""
        written = annotations_of(self.primary or {}).get(names.REVISION)
        return self.primary is not None and bool(written) and written == self.revision_hash

    @property
    def written_for(self) -> str:
        """The digests of the spec that the primary object was written for; empty without one."""
        return annotations_of(self.primary or {}).get(names.WRITTEN_FOR, "")

    @property
    def spec_changed(self) -> bool:
        """Whether the deployment's own spec has changed, in more than what takes nothing newer (`revisions.same_spec`),
        since the primary object was written; True without one.
        """
        return self.primary is None or self.written_for.partition(".")[0] != text_at(self.revision, "takenFor")

    @cached_property
    def served(self) -> bool:
        """Whether the present primary object has served."""
        if self.primary is None:
            return False
        created = parse_moment(dig(self.primary, "metadata", "creationTimestamp"))
        return served_before(self.deployment.get("status") or {}, created=created) is not None

    def condition(self, type_: str) -> Resource | None:
        """A condition of the deployment; None if it is not about this generation."""
        found = condition_of(self.deployment, type_)
        generation = dig(self.deployment, "metadata", "generation")
        return found if found is not None and found.get("observedGeneration") == generation else None

    @property
    def validated(self) -> Resource | None:
        """The core's verdict on this generation; None until there is one."""
        return self.condition("Validated")

    @property
    def parts(self) -> list[str]:
        """The parts of the core that are on."""
        return parts_of(self.deployment)

    @property
    def is_mine(self) -> bool:
        """Whether the core has assigned the deployment to this provider."""
        return bool(dig(self.deployment, "status", "provider", "name") == self.provider)

    @property
    def is_lost(self) -> bool:
        """Whether the status names neither a chosen provider nor an object, as after the restore of a backup, although
        objects of ours may be there: no other provider was given the deployment.
        """
        if any(dig(self.deployment, "status", "provider", field) for field in ("name", "resourceName")):
            return False
        return self.validated is None or bool(self.ours) or not self.settled

    @property
    def named_instead(self) -> str:
        """Another provider that the spec names while the deployment is still ours; empty if there is none."""
        named = dig(self.deployment, "spec", "provider", "name")
        return named if isinstance(named, str) and named != self.provider and self.is_mine else ""

    @property
    def paused(self) -> bool:
        return is_paused(self.deployment)

    @property
    def dry_run(self) -> bool:
        """Whether only a plan is requested; only the exact value counts."""
        return is_dry_run(self.deployment)

    @property
    def previous_provider(self) -> str:
        """Another provider that has not cleaned up its objects yet; empty if there is none."""
        others = (names.provider_of_finalizer(finalizer) for finalizer in finalizers_of(self.deployment))
        return next((other for other in others if other not in ("", self.provider)), "")


def provider_mark(provider: str) -> Mark:
    """The mark of the objects that a provider creates."""
    return Mark(names.PROVIDER, provider)


def applied_at(primary: Resource, manager: str) -> datetime | None:
    """When we last changed the object: the time of our entry in managedFields, otherwise its creation."""
    times = [parse_moment(entry.get("time")) for entry in managed_by(primary, manager) if not entry.get("subresource")]
    known = [moment for moment in times if moment is not None]
    return max(known, default=None) or parse_moment(dig(primary, "metadata", "creationTimestamp"))
