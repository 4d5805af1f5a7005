"""The only interface to CEL evaluators: Kubernetes CEL over plain Python values, with bounded cost.

`compile_expression` returns a `CelProgram`. There are two evaluators. ``cel-cpp`` (from cel-expr-python) is preferred.
``cel-python`` is for platforms for which cel-cpp has no wheel, and for all expressions with quantities: cel-cpp's
binding never frees the arguments of functions written in Python (`airunway.cel._cel_cpp`). Callers do not see which one
is in use, except through `evaluator_name` for logs. A corpus of expressions runs on both and on a real API server;
every expression that compiles gives the same answer on all three, with these exceptions:

=============================================  ======================  ===========================  ====================
expression                                     cel-cpp                 cel-python                   Kubernetes
=============================================  ======================  ===========================  ====================
optional syntax (``spec.?a``), ``format``,     yes                     does not compile             yes
times, bytes, unsigned numbers, ``type``
quantities                                     do not compile          yes                          yes
``math.*``, ``quote``, ``reverse``             yes                     does not compile             no
``cel.bind``                                   yes                     yes                          no
lists (``sum``, ``min``, ``isSorted``, …),     do not compile          do not compile               yes
``find``, ``url``, ``ip``, ``cidr``, sets,
``semver``, two-variable macros
``has(spec.text.x)`` on what is not a map      error                   error                        false
``int(true)``                                  1                       1                            error
``{'a': 1, 'a': 2}``                           error                   error                        the last one counts
static type errors inside a list or map        does not compile        a value or an error          does not compile
(``1 in ['a']``, ``[1] == [1.0]``)
numbers in texts: with spaces (``int(' 1')``)  yes                     yes                          error
``double('0x1f')``, ``double('nan(1)')``       yes                     error                        error
``double('1_0')``                              error                   error                        10.0
``string()`` of an infinity; of a NaN          inf; nan                inf; error                   +Inf; NaN
``''.split('')``                               ``['']``                ``['']``                     ``[]``
``'ab'.indexOf('', 3)``                        error                   error                        3
``null``, a list or a map ``in`` a map         error                   error                        false
a raw text that ends with a backslash          does not compile        does not compile             yes
quantities beyond 10^1000, calculated with     error                   error                        yes
the order in which a loop sees a map's keys    any                     any                          any
=============================================  ======================  ===========================  ====================

Limits (`CelCompileError`, or `CelEvaluationError` if it depends on the data): 2048 characters, 32 levels of nesting, 8
loops, 10,000 loop steps in all, and an estimate of the work that includes the size of the data (`airunway.cel._cost`).
"""

from airunway.cel._program import (
    MAX_EXPRESSION_LENGTH,
    CelCompileError,
    CelError,
    CelEvaluationError,
    CelProgram,
    DataSize,
    Evaluator,
    available_evaluators,
    compile_expression,
    evaluator_name,
    size_of,
)

__all__ = [
    "MAX_EXPRESSION_LENGTH",
    "CelCompileError",
    "CelError",
    "CelEvaluationError",
    "CelProgram",
    "DataSize",
    "Evaluator",
    "available_evaluators",
    "compile_expression",
    "evaluator_name",
    "size_of",
]
