"""The component of a provider that reads its state from the primary object alone."""

from __future__ import annotations

from airunway.plugins.contract import Component
from airunway.resource import Resource, dig

__all__ = ["absent_component", "primary_component"]


def primary_component(
    reason: str, message: str = "", *, pending: bool = False, only_degrades: bool = False, authoritative: bool = False
) -> Component:
    """The component ``ProviderResource``, the state of the primary object; it is ready if the reason is ``Ready``.

    `pending`, `only_degrades` and `authoritative` are as in `Component`.
    """
    return Component(
        name="ProviderResource",
        ready=reason == "Ready",
        reason=reason,
        message=message,
        pending=pending,
        only_degrades=only_degrades,
        authoritative=authoritative,
    )


def absent_component(primary: Resource | None, kind: str) -> Component | None:
    """The component of a primary object that does not exist yet or is being deleted; None for any other."""
    if not primary:
        return primary_component("Starting", f"the {kind} does not exist yet", pending=True)
    if dig(primary, "metadata", "deletionTimestamp"):
        return primary_component("Terminating", f"the {kind} is being deleted")
    return None
