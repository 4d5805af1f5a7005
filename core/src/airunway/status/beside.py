"""What is said of a change that interrupts a deployment with a route (docs/side-by-side.md)."""

from __future__ import annotations

from airunway.resource import Resource, dig, key_of


def beside(deployment: Resource) -> str:
    """How it can be changed without an outage, as the end of a message; empty if it has no route."""
    if not dig(deployment, "status", "gateway", "url"):
        return ""
    return (
        f"without an outage: airunway new --beside md/{key_of(deployment).name} prints a second version in the same "
        "group with weight 0; apply it, and shift the weights once it is Ready (docs/side-by-side.md)"
    )


def with_beside(text: str, deployment: Resource) -> str:
    """The message with that end."""
    return "; ".join(filter(None, (text, beside(deployment))))
