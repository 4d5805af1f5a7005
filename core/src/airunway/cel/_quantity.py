"""The Kubernetes ``quantity`` library in plain Python, for cel-python.

In the evaluator a quantity is a map with one entry, its exact amount. Maps compare by content, so ``quantity('1Gi') ==
quantity('1024Mi')``, and ``<`` between them is a type error, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext

from airunway.quantity import MAX_EXPONENT, parse_quantity

__all__ = [
    "add",
    "as_approximate_float",
    "as_integer",
    "compare",
    "is_integer",
    "is_quantity",
    "quantity",
    "sign",
    "subtract",
]

_KEY = "quantity.amount"
_INT64 = range(-(2**63), 2**63)


def quantity(text: str) -> dict[str, str]:
    """Returns the value of ``quantity(text)``. Raises ValueError if the text is not a quantity."""
    return _wrap(parse_quantity(text))


def is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def compare(left: Mapping[str, str], right: Mapping[str, str]) -> int:
    """Returns -1, 0 or 1."""
    a, b = _unwrap(left), _unwrap(right)
    return (a > b) - (a < b)


def sign(value: Mapping[str, str]) -> int:
    amount = _unwrap(value)
    return (amount > 0) - (amount < 0)


def is_integer(value: Mapping[str, str]) -> bool:
    amount = _unwrap(value)
    return amount == amount.to_integral_value() and int(amount) in _INT64


def as_integer(value: Mapping[str, str]) -> int:
    if not is_integer(value):
        raise ValueError("the quantity is not a 64-bit integer")
    return int(_unwrap(value))


def as_approximate_float(value: Mapping[str, str]) -> float:
    return float(_unwrap(value))


def add(left: Mapping[str, str], right: Mapping[str, str] | int) -> dict[str, str]:
    return _wrap(_exact(_unwrap(left), _operand(right)))


def subtract(left: Mapping[str, str], right: Mapping[str, str] | int) -> dict[str, str]:
    return _wrap(_exact(_unwrap(left), -_operand(right)))


def _exact(a: Decimal, b: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 100
        return a + b


def _operand(value: Mapping[str, str] | int) -> Decimal:
    return Decimal(value) if isinstance(value, int) else _unwrap(value)


def _wrap(amount: Decimal) -> dict[str, str]:
    return {_KEY: format(_bounded(amount).normalize(), "f") if amount else "0"}


def _unwrap(value: Mapping[str, str]) -> Decimal:
    try:
        amount = Decimal(value[_KEY])
    except (KeyError, TypeError, ArithmeticError):
        raise ValueError("not a quantity") from None
    return _bounded(amount)


def _bounded(amount: Decimal) -> Decimal:
    if not amount.is_finite() or abs(amount.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"a quantity beyond 10^{MAX_EXPONENT} is out of range")
    return amount
