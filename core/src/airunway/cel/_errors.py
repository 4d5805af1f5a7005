"""The exceptions of the package."""

from __future__ import annotations

__all__ = ["CelCompileError", "CelError", "CelEvaluationError"]


class CelError(ValueError):
    """Base of all errors that this package raises."""


class CelCompileError(CelError):
    """The expression is not valid CEL, uses an unknown name, or exceeds a limit."""


class CelEvaluationError(CelError):
    """The expression has no value for these bindings: absent field, type error, overflow, or too expensive."""
