"""How much memory a value takes."""

from __future__ import annotations

import sys
from typing import Any


def memory_of(value: Any) -> int:
    """Bytes of a JSON value as Python objects; what is shared inside it counts each time."""
    below = 0
    if isinstance(value, dict):
        below = sum(memory_of(key) + memory_of(child) for key, child in value.items())
    elif isinstance(value, list | tuple):
        below = sum(map(memory_of, value))
    return sys.getsizeof(value) + below
