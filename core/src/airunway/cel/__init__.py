"""The one adapter to a CEL evaluator: Kubernetes CEL over plain Python values, with bounded cost.

`compile_expression` gives a `Program`; both evaluators (``cel-cpp``, preferred, and ``cel-python``, where the first has
no wheel) answer the same for every expression that compiles, or refuse to compile it (docs/reference/cel.md lists what
is refused where). Callers never see which one is in use, except through `evaluator_name` for logs.
"""

from airunway.cel._program import (
    MAX_EXPRESSION_LENGTH,
    CelCompileError,
    CelError,
    CelEvaluationError,
    Evaluator,
    Program,
    available_evaluators,
    compile_expression,
    evaluator_name,
)

__all__ = [
    "MAX_EXPRESSION_LENGTH",
    "CelCompileError",
    "CelError",
    "CelEvaluationError",
    "Evaluator",
    "Program",
    "available_evaluators",
    "compile_expression",
    "evaluator_name",
]
