"""The admission rules, evaluated in process from the CRDs' own definitions (spec/api.md, "Validation in the CRD")."""

from airunway.schema import Violation
from airunway.validation._validate import bounded_violations, excesses, prepare, validate, warnings

__all__ = ["Violation", "bounded_violations", "excesses", "prepare", "validate", "warnings"]
