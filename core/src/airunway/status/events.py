"""The registry of events: every reason that the core and the provider runtime emit (spec/core.md, "Events").

Events tell of changes; the state itself is in conditions, with reasons from the same vocabulary. The reference page is
made from this list, and a test compares it with what the source emits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["EVENTS", "Emitter", "EventReason"]


class Emitter(StrEnum):
    """Who says it, as ``reportingController`` shows it without its group."""

    CORE = "airunway-controller"
    PROVIDER = "airunway-provider-<name>"


@dataclass(frozen=True, kw_only=True)
class EventReason:
    """One reason: its type is ``Warning`` if `warning`, else ``Normal``; `note` shows the text with <variables>."""

    name: str
    emitter: Emitter
    note: str
    meaning: str
    warning: bool = False

    @property
    def type(self) -> str:
        return "Warning" if self.warning else "Normal"


_REGISTERED = (
    EventReason(
        name="EngineSelected",
        emitter=Emitter.CORE,
        note="Selected engine '<engine>': <why>",
        meaning="The engine was chosen, or taken from the spec.",
    ),
    EventReason(
        name="ProviderSelected",
        emitter=Emitter.CORE,
        note="Selected provider '<provider>': <why>",
        meaning="The provider was chosen, or taken from the spec.",
    ),
    EventReason(
        name="ResourceCreated",
        emitter=Emitter.PROVIDER,
        note="Created <Kind> '<name>'",
        meaning="An upstream object was made.",
    ),
    EventReason(
        name="ResourceUpdated",
        emitter=Emitter.PROVIDER,
        note="Updated <Kind> '<name>'",
        meaning="An upstream object was changed because the deployment was.",
    ),
    EventReason(
        name="ResourceRecreated",
        emitter=Emitter.PROVIDER,
        note="<Kind> '<name>' is deleted and made again: <fields> cannot be changed in place",
        meaning="A change needs a new upstream object; this is said before the old one is deleted.",
    ),
    EventReason(
        name="DriftDetected",
        emitter=Emitter.PROVIDER,
        note="<Kind> '<name>' was modified directly, reconciling: <field> (by <manager>)",
        meaning="Somebody else changed a field of an upstream object that is ours; it was put back.",
        warning=True,
    ),
    EventReason(
        name="SecretNotFound",
        emitter=Emitter.PROVIDER,
        note="<what the pod's status says of the Secret>",
        meaning="A pod waits for a Secret, or for a key of one, that does not exist.",
        warning=True,
    ),
    EventReason(
        name="ProviderError",
        emitter=Emitter.PROVIDER,
        note="<what is wrong, as in status.message>",
        meaning="The deployment became Failed or Degraded.",
        warning=True,
    ),
    EventReason(
        name="UnverifiedSchema",
        emitter=Emitter.PROVIDER,
        note="<upstream> has a schema (<hash>) that this release of the provider does not know",
        meaning="The upstream is newer than the provider; objects are checked by a server-side dry-run first.",
        warning=True,
    ),
    EventReason(
        name="UnknownOverride",
        emitter=Emitter.PROVIDER,
        note="unknown override '<key>' is passed over; did you mean '<key>'?",
        meaning="spec.provider.overrides has a key that the provider does not know.",
        warning=True,
    ),
    EventReason(
        name="FinalizerTimeout",
        emitter=Emitter.PROVIDER,
        note="Finalizer removed after timeout, <objects> may be orphaned",
        meaning="Upstream objects could not be removed within five minutes; the deployment was let go all the same.",
        warning=True,
    ),
)

EVENTS: dict[str, EventReason] = {event.name: event for event in _REGISTERED}
"""Every event reason by name."""
