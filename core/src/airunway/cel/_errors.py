"""The exceptions of the package."""

from __future__ import annotations

__all__ = ["CelCompileError", "CelError", "CelEvaluationError"]


class CelError(ValueError):
    """Base of everything that this package raises."""


class CelCompileError(CelError):
    """The expression is not valid CEL, names something unknown, or is refused by a limit of the adapter."""


class CelEvaluationError(CelError):
    """The expression has no value for these bindings: absent field, type error, overflow, or too expensive."""
