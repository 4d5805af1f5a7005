"""The registry of events: every reason that the core and the provider runtime emit (docs/reference/events.md).

Events report changes; the state itself is in conditions, with reasons from the same vocabulary. The reference page is
generated from this list, and a test compares the list with the events that the source emits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airunway.resource import Resource, text_at
from airunway.status.conditions import change_of


class Emitter(StrEnum):
    """Who emits an event: its ``reportingController`` without the group."""

    CORE = "airunway-controller"
    GATEWAY = "airunway-gateway"
    MODEL_CACHE = "airunway-model-cache"
    CATALOGUE = "airunway-catalogue"
    PROVIDER = "airunway-provider-<name>"


@dataclass(frozen=True, kw_only=True)
class EventReason:
    """One event reason."""

    name: str
    emitters: tuple[Emitter, ...]
    action: str
    """The event's field ``action``: what was being done to the deployment."""
    note: str
    """The text of the event, with <variables>."""
    meaning: str
    warning: bool = False
    """The type is ``Warning`` if true, else ``Normal``."""

    @property
    def type(self) -> str:
        return "Warning" if self.warning else "Normal"


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event to emit; only for a change, never for a state. The registry has its action and type."""

    reason: str
    note: str
    related: Resource | None = None
    """The other object that it is about, if any."""

    @property
    def action(self) -> str:
        return EVENTS[self.reason].action

    @property
    def warning(self) -> bool:
        return EVENTS[self.reason].warning

    @property
    def arguments(self) -> dict[str, Any]:
        """What `EventRecorder.emit` takes besides the object."""
        named = {"reason": self.reason, "note": self.note, "related": self.related}
        return named | {"warning": self.warning, "action": self.action}


@dataclass(frozen=True, kw_only=True)
class ConditionEvents:
    """The events of one condition, by their reasons."""

    type: str
    when_true: str = ""
    """Where it became True."""
    when_fault: str = ""
    """Where it reports a fault that it did not report before."""
    faults: tuple[str, ...] = ()
    """Faults with an event of their own, which has the same reason."""

    def of(self, obj: Resource, status: Resource, *, note: str = "", more: str = "") -> Iterator[Event]:
        """The events of a write of `status`. Of a condition that became True, the note is its message (or `note`), and
        `more` after a colon.
        """
        change = change_of(obj, status, self.type)
        message = text_at(change.after, "message")
        if self.when_true and change.became_true:
            yield Event(reason=self.when_true, note=": ".join(filter(None, (note or message, more))))
        if self.when_fault and change.is_new_fault:
            if (reason := change.after["reason"]) in self.faults:
                yield Event(reason=reason, note=message)
            else:
                yield Event(reason=self.when_fault, note=change.text)


_REGISTERED = (
    EventReason(
        name="RevisionMadeAgain",
        emitters=(Emitter.CORE,),
        action="ResolveConfig",
        note="The status was lost: revision <hash> was made again; objects of another one are changed to it",
        meaning="What a deployment with objects runs with was not recorded any more, as after the restore of a backup: "
        "the newest is used.",
    ),
    EventReason(
        name="DefaultRuntimeConfigNotFound",
        emitters=(Emitter.CORE,),
        action="ResolveConfig",
        note="No RuntimeConfig or ClusterRuntimeConfig 'default' exists; built-in defaults are used",
        meaning="The deployment names no runtime config, and there is no default one. Emitted once.",
    ),
    EventReason(
        name="RuntimeConfigChanged",
        emitters=(Emitter.CORE,),
        action="ResolveConfig",
        note="<config> changed: <what takes its new pod settings, and when>",
        meaning="The runtime config that the deployment follows was edited, or another one took its place.",
    ),
    EventReason(
        name="EngineSelected",
        emitters=(Emitter.CORE,),
        action="SelectEngine",
        note="Selected engine '<engine>': <why>",
        meaning="The engine was chosen, or taken from the spec.",
    ),
    EventReason(
        name="ProviderSelected",
        emitters=(Emitter.CORE,),
        action="SelectProvider",
        note="Selected provider '<provider>': <why>",
        meaning="The provider was chosen, or taken from the spec.",
    ),
    EventReason(
        name="ResourceCreated",
        emitters=(Emitter.PROVIDER, Emitter.GATEWAY, Emitter.MODEL_CACHE),
        action="Create",
        note="Created <Kind> '<name>'",
        meaning="An upstream object was made.",
    ),
    EventReason(
        name="ResourceUpdated",
        emitters=(Emitter.PROVIDER, Emitter.GATEWAY, Emitter.MODEL_CACHE),
        action="Update",
        note="Updated <Kind> '<name>'",
        meaning="An upstream object was changed because the deployment was.",
    ),
    EventReason(
        name="ScaledObjectReady",
        emitters=(Emitter.PROVIDER,),
        action="Autoscale",
        note="<min> to <max> replicas by <metric>, <target> each",
        meaning="KEDA has taken over the number of replicas.",
    ),
    EventReason(
        name="AutoscalerNotReady",
        emitters=(Emitter.PROVIDER,),
        action="Autoscale",
        note="<reason>: <message>",
        meaning="Nothing follows the load; replicas stay as they are. The condition AutoscalerReady says more.",
        warning=True,
    ),
    EventReason(
        name="ResourceRecreated",
        emitters=(Emitter.PROVIDER, Emitter.GATEWAY, Emitter.MODEL_CACHE),
        action="Recreate",
        note="<Kind> '<name>' is deleted and made again: <fields> cannot be changed in place",
        meaning="A change needs a new upstream object; the event is emitted before the old one is deleted.",
    ),
    EventReason(
        name="ServiceInterrupted",
        emitters=(Emitter.PROVIDER, Emitter.GATEWAY, Emitter.MODEL_CACHE),
        action="Update",
        note="<Kind> '<name>' is changed in place: <what is not served meanwhile>",
        meaning="A change in place interrupts the model for a while; the event is emitted before the write.",
        warning=True,
    ),
    EventReason(
        name="DriftDetected",
        emitters=(Emitter.PROVIDER, Emitter.GATEWAY, Emitter.MODEL_CACHE),
        action="Revert",
        note="<Kind> '<name>' was modified directly, reconciling: <field> (by <manager>)",
        meaning="Another client changed a field that the provider manages; the change was reverted.",
        warning=True,
    ),
    EventReason(
        name="RouteReady",
        emitters=(Emitter.GATEWAY,),
        action="Route",
        note="<what the gateway says of the route>: <url>",
        meaning="GatewayReady became True: requests reach the model through the Gateway.",
    ),
    EventReason(
        name="RouteNotReady",
        emitters=(Emitter.GATEWAY,),
        action="Route",
        note="<reason>: <why the route does not work, as in the message of GatewayReady>",
        meaning="GatewayReady became False for a fault, or for another fault than before; of a conflict RouteConflict "
        "speaks. There is no event while the route only waits for something.",
        warning=True,
    ),
    EventReason(
        name="RouteConflict",
        emitters=(Emitter.GATEWAY,),
        action="Route",
        note="<which older deployment has the path or the model name, as in the message of GatewayReady>",
        meaning="GatewayReady became False because an older deployment has the same path or model name.",
        warning=True,
    ),
    EventReason(
        name="ShareChanged",
        emitters=(Emitter.GATEWAY,),
        action="Route",
        note="<who has which percent of what the group shares>",
        meaning="The shares of a group of deployments at the gateway changed. Emitted on the holder of the shared "
        "rule, at most once a minute.",
    ),
    EventReason(
        name="ModelCacheReady",
        emitters=(Emitter.MODEL_CACHE,),
        action="Download",
        note="<what is complete, as in the message of ModelCacheReady>",
        meaning="The cached weights are complete and verified. Emitted on the ModelArtifact and on each deployment "
        "that uses it.",
    ),
    EventReason(
        name="DownloadFailed",
        emitters=(Emitter.MODEL_CACHE,),
        action="Download",
        note="<reason>: <why the weights cannot be fetched>",
        meaning="Weights cannot be fetched, or for another reason than before. Emitted on the ModelArtifact and on "
        "each deployment that uses it; there is no event while a download only waits or runs.",
        warning=True,
    ),
    EventReason(
        name="TemplateReady",
        emitters=(Emitter.CATALOGUE,),
        action="Check",
        note="The template can be used",
        meaning="A ModelTemplate or ClusterModelTemplate became Ready. Emitted on the template.",
    ),
    EventReason(
        name="GPUNotAvailable",
        emitters=(Emitter.CATALOGUE,),
        action="Check",
        note="no node has <what the template needs>: <what the nodes have>",
        meaning="A template became NotAvailable: no node has its GPUs. Emitted on the template.",
        warning=True,
    ),
    EventReason(
        name="InsufficientCapacity",
        emitters=(Emitter.CATALOGUE,),
        action="Check",
        note="no node has <what the template needs>: <what the largest node has>",
        meaning="A template became NotAvailable: no node has its CPU, of those with its GPUs. Emitted on the template.",
        warning=True,
    ),
    EventReason(
        name="DiscoveryStarted",
        emitters=(Emitter.CATALOGUE,),
        action="Discover",
        note="Created Job '<name>': the image is asked for its profile",
        meaning="The image of a template is asked for its profile. Emitted on the template.",
    ),
    EventReason(
        name="DiscoveryFailed",
        emitters=(Emitter.CATALOGUE,),
        action="Discover",
        note="<reason>: try <number> failed: <why>; the next one is at <time>",
        meaning="An image did not report its profile. Emitted on the template, once for each try.",
        warning=True,
    ),
    EventReason(
        name="TemplatesMade",
        emitters=(Emitter.CATALOGUE,),
        action="Scan",
        note="<number> ClusterModelTemplates were made from images of <registry>",
        meaning="A scan found images that had no templates. Emitted on the ModelSource, once for a scan.",
    ),
    EventReason(
        name="ScanFailed",
        emitters=(Emitter.CATALOGUE,),
        action="Scan",
        note="<reason>: <which filters failed, and why>",
        meaning="A filter of a ModelSource failed. Emitted on the ModelSource, once for each reason.",
        warning=True,
    ),
    EventReason(
        name="SecretNotFound",
        emitters=(Emitter.PROVIDER,),
        action="Observe",
        note="Secret '<name>' not found in namespace '<namespace>': <what the pod shows>",
        meaning="A pod waits for a Secret that does not exist, or (then without its name in front) for a key of one.",
        warning=True,
    ),
    EventReason(
        name="ProviderError",
        emitters=(Emitter.PROVIDER,),
        action="Observe",
        note="<Kind> '<name>' is in error state: <what is wrong, as in status.message>",
        meaning="The deployment became Failed or Degraded; without an upstream object that has an error, only why.",
        warning=True,
    ),
    EventReason(
        name="UnverifiedSchema",
        emitters=(Emitter.PROVIDER,),
        action="Translate",
        note="<upstream> has a schema (<hash>) that this release of the provider does not know",
        meaning="The upstream is newer than the provider; objects are checked by a server-side dry-run first.",
        warning=True,
    ),
    EventReason(
        name="UnsupportedSchema",
        emitters=(Emitter.PROVIDER,),
        action="Translate",
        note="<why nothing can be written for the schema that the upstream has now>",
        meaning="No transformer fits the upstream's schema; what runs is left as it is, nothing new is made.",
        warning=True,
    ),
    EventReason(
        name="UnknownOverride",
        emitters=(Emitter.PROVIDER,),
        action="Translate",
        note="unknown override '<key>' is passed over; did you mean '<key>'?",
        meaning="spec.provider.overrides has a key that the provider does not know. Several are one event, which names "
        "the first three and counts the rest.",
        warning=True,
    ),
    EventReason(
        name="FinalizerTimeout",
        emitters=(Emitter.PROVIDER, Emitter.CORE),
        action="Release",
        note="Finalizer removed after timeout, <objects> may be orphaned",
        meaning="Upstream objects could not be removed within five minutes; the finalizer was removed all the same. "
        "From the core: the provider that should have removed them is gone.",
        warning=True,
    ),
)

EVENTS: dict[str, EventReason] = {event.name: event for event in _REGISTERED}
"""Every event reason by name."""
