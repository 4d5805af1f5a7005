"""The rules of admission, run in process: the same definition as in the CRDs (spec/api.md, "Validation in the CRD")."""

from airunway.validation._structural import Violation
from airunway.validation._validate import bounded_violations, excesses, prepare, validate, warnings, without_effect

__all__ = ["Violation", "bounded_violations", "excesses", "prepare", "validate", "warnings", "without_effect"]
