"""Reflectors that tests let run."""

from __future__ import annotations

from airunway.kube import Backoff


def quick() -> Backoff:
    return Backoff(base=0.02, cap=0.1)
