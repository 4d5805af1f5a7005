"""Kubernetes quantities (``32Gi``, ``500m``, ``2``) as exact numbers."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal

MAX_EXPONENT = 1000
"""Largest exponent in calculations: ``1e999999`` is a megabyte of text, and takes seconds as an integer."""

_SCALE = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?\Z", re.ASCII)
_EXACT = Context(prec=1024)
"""More digits than any quantity has that an API server accepts; the default of decimal rounds to 28."""


def parse_quantity(value: object) -> Decimal:
    """Returns the exact value of a quantity, in its base unit (bytes, cores, pieces).

    Raises ValueError, which names the value, if it is not a quantity.
    """
    match = _QUANTITY.match(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if match is None:
        raise ValueError(f"{value!r} is not a Kubernetes quantity (examples: 8, 500m, 32Gi)")
    number, suffix = match[1], match[2] or ""
    try:
        return _EXACT.multiply(Decimal(number), _SCALE[suffix]) if suffix in _SCALE else Decimal(number + suffix)
    except ArithmeticError:
        raise ValueError(f"{value!r} has an exponent that is out of range") from None


def same_quantity(left: object, right: object) -> bool:
    """Whether both are quantities of the same amount (``1Gi`` and ``1024Mi``)."""
    try:
        return parse_quantity(left) == parse_quantity(right)
    except ValueError:
        return False


def canonical_quantity(value: object) -> str:
    """Returns a quantity as Kubernetes' Go types write it: ``1024Mi`` as ``1Gi``, ``0.5`` as ``500m``.

    Quantities with an exponent, and what is no quantity, are returned as they are.
    """
    text = str(value)
    match = _QUANTITY.match(text)
    if match is None or ((match[2] or "")[:1] in ("e", "E") and match[2] not in ("E", "Ei")):
        return text
    amount = parse_quantity(text)
    if (match[2] or "").endswith("i") and abs(amount) >= 1024 and amount == amount.to_integral_value():
        whole, power = int(amount), 0
        while power < len(_BINARY) - 1 and whole % 1024 == 0:
            whole, power = whole // 1024, power + 1
        return f"{whole}{_BINARY[power]}"
    # Billionths are the smallest that Go keeps.
    pieces = int(_EXACT.multiply(amount, Decimal(10**9)).to_integral_value(rounding=ROUND_UP))
    power = 0
    while pieces and power < len(_DECIMAL) - 1 and pieces % 1000 == 0:
        pieces, power = pieces // 1000, power + 1
    return f"{pieces}{_DECIMAL[power]}" if pieces else "0"
