"""The component of a provider whose upstream object says all there is to say."""

from __future__ import annotations

from airunway.plugins.contract import Component

__all__ = ["primary_component"]


def primary_component(
    reason: str, message: str = "", *, waits: bool = False, partial: bool = False, firsthand: bool = False
) -> Component:
    """The component ``ProviderResource``: how the primary object is. It is ready with the reason ``Ready`` only.

    `waits`, `partial` and `firsthand` are as in `Component`.
    """
    return Component(
        name="ProviderResource",
        ready=reason == "Ready",
        reason=reason,
        message=message,
        waits=waits,
        partial=partial,
        firsthand=firsthand,
    )
