"""The one adapter to a CEL evaluator: Kubernetes CEL over plain Python values, with bounded cost.

`compile_expression` gives a `Program`. There are two evaluators: ``cel-cpp`` (from cel-expr-python), preferred, and
``cel-python``, for platforms where the first has no wheel. Callers never see which one is in use, except through
`evaluator_name` for logs. A corpus of expressions runs on both and on a real API server; every expression that compiles
gives the same answer on all three, with these exceptions:

=============================================  ======================  ===========================  ====================
expression                                     cel-cpp                 cel-python                   Kubernetes
=============================================  ======================  ===========================  ====================
optional syntax (``spec.?a``), ``format``,     yes                     does not compile             yes
times, bytes, unsigned numbers, ``type``
``math.*``, ``quote``, ``reverse``             yes                     does not compile             no
``cel.bind``                                   yes                     yes                          no
lists (``sum``, ``min``, ``isSorted``, …),     do not compile          do not compile               yes
``find``, ``url``, ``ip``, ``cidr``, sets,
``semver``, two-variable macros
``has(spec.text.x)`` on what is not a map      error                   error                        false
``int(true)``                                  1                       1                            error
``{'a': 1, 'a': 2}``                           error                   error                        the last one counts
static type errors inside a list               does not compile        false or an error            does not compile
(``1 in ['a']``), ``size(1)``
=============================================  ======================  ===========================  ====================

Limits (`CelCompileError`, or `CelEvaluationError` where only the data shows it): 2048 characters, nesting 32 deep, 8
loops, 10,000 loop steps in all, and an estimate of the work that includes the size of the data (`airunway.cel._cost`).
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
