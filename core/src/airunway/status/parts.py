"""The parts of the core that are on: the core says so (``status.parts``) on deployments that ask for one of them."""

from __future__ import annotations

from airunway.api.names import GATEWAY_PART, MODEL_CACHE_PART
from airunway.resource import Resource, dig

__all__ = ["PART_NAMES", "parts_of"]

PART_NAMES = (GATEWAY_PART, MODEL_CACHE_PART)
"""All parts that there are."""


def parts_of(deployment: Resource) -> list[str]:
    """The names of those that are on; empty where none was asked for."""
    found = dig(deployment, "status", "parts")
    return found if isinstance(found, list) else []
