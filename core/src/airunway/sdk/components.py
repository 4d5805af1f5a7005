"""The component of a provider whose upstream object says all there is to say."""

from __future__ import annotations

from airunway.plugins.contract import Component

__all__ = ["primary_component"]


def primary_component(
    reason: str, message: str = "", *, pending: bool = False, only_degrades: bool = False, authoritative: bool = False
) -> Component:
    """The component ``ProviderResource``: how the primary object is. It is ready with the reason ``Ready`` only.

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
