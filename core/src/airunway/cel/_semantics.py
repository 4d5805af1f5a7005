"""CEL's operators and functions on plain Python values, for the evaluator that uses cel-python's parser.

Values are JSON: None, bool, int (64 bit), float, str, list, dict. Every function raises CelEvaluationError if CEL has
an error. None uses Python's coercions: a bool is not a number here, and 1 == 1.0 is true as in CEL.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, NoReturn, TypeAlias

import orjson
import re2  # type: ignore[import-untyped]  # google-re2, which cel-python requires

from airunway.cel._cost import CelEvaluationError
from airunway.quantity import MAX_EXPONENT, parse_quantity, same_quantity

_INT64 = range(-(2**63), 2**63)
_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    for kind, type_ in (("int", int), ("double", float), ("string", str), ("list", list), ("map", dict)):
        if isinstance(value, type_):
            return kind
    raise CelEvaluationError(f"a value of type {type(value).__name__} is not JSON")


def _no_overload(name: str, *values: object) -> NoReturn:
    raise CelEvaluationError(f"no matching overload for {name} on ({', '.join(map(_kind, values))})")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_range(value: int) -> int:
    if value not in _INT64:
        raise CelEvaluationError("integer overflow")
    return value


def _as_numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """Returns two numbers for a comparison: if one is a double, both as doubles, like CEL's evaluators."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def equal(left: Any, right: Any) -> bool:
    """``==``: numbers compare across types, everything else only within its type; lists and maps by content."""
    if _is_number(left) and _is_number(right):
        left, right = _as_numbers(left, right)
        return bool(left == right)
    if _kind(left) != _kind(right):
        return False
    if isinstance(left, list | dict) and _same_text(left, right):
        return True
    if isinstance(left, list):
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def _same_text(left: Any, right: Any) -> bool:
    """Whether two lists or maps have the same JSON: fast for large ones. False does not mean that they differ.

    A ``null`` in the text is not trusted: it may come from a NaN, which equals nothing.
    """
    try:
        text = orjson.dumps(left, option=orjson.OPT_SORT_KEYS)
        return b"null" not in text and text == orjson.dumps(right, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return False


def compare(name: str, left: Any, right: Any) -> bool:
    """``<``, ``<=``, ``>``, ``>=`` on numbers, texts and bools."""
    numbers = _is_number(left) and _is_number(right)
    if not numbers and (_kind(left) != _kind(right) or not isinstance(left, str | bool)):
        _no_overload(name, left, right)
    if numbers:
        left, right = _as_numbers(left, right)
    return _ORDER[name](left, right)


def contains(item: Any, container: Any) -> bool:
    """``item in container``."""
    if isinstance(container, list):
        return any(equal(item, element) for element in container)
    if isinstance(container, dict) and _kind(item) not in ("null", "list", "map"):
        return isinstance(item, str) and item in container
    _no_overload("in", item, container)


def add(left: Any, right: Any) -> Any:
    """``+`` on numbers, texts and lists."""
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    return arithmetic("+", left, right)


def arithmetic(name: str, left: Any, right: Any) -> Any:
    """``+ - * / %`` on two integers or two doubles; integers raise on overflow and divide towards zero."""
    if _kind(left) == _kind(right) == "int":
        if name in "/%" and right == 0:
            raise CelEvaluationError("divide by zero" if name == "/" else "modulus by zero")
        if name in "/%":
            quotient = _in_range(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
            return quotient if name == "/" else left - quotient * right
        return _in_range({"+": operator.add, "-": operator.sub, "*": operator.mul}[name](left, right))
    if _kind(left) == _kind(right) == "double" and name != "%":
        if name == "/" and right == 0:
            return (
                math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
            )
        return {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[name](left, right)
    _no_overload(name, left, right)


def negate(value: Any) -> Any:
    """Unary ``-``."""
    if not _is_number(value):
        _no_overload("-", value)
    return _in_range(-value) if isinstance(value, int) else -value


def checked(value: Any) -> Any:
    """Returns `value` if CEL has such a value. Raises CelEvaluationError beyond 64 bits and for other types."""
    if isinstance(value, int):
        return _in_range(value)
    _kind(value)
    return value


def select(value: Any, name: str) -> Any:
    """``value.name``: an entry of a map."""
    if not isinstance(value, dict):
        raise CelEvaluationError(f"a {_kind(value)} has no field {name}")
    if name not in value:
        raise CelEvaluationError(f"no such key: {name}")
    return checked(value[name])


def index(value: Any, key: Any) -> Any:
    """``value[key]``."""
    if isinstance(value, dict):
        if isinstance(key, str) and key in value:
            return checked(value[key])
        raise CelEvaluationError(f"no such key: {key}")
    if not isinstance(value, list) or not _is_number(key) or key != int(key):
        _no_overload("[]", value, key)
    if not 0 <= key < len(value):
        raise CelEvaluationError(f"index {key} out of range, the list has {len(value)} items")
    return checked(value[int(key)])


def _size(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    _no_overload("size", value)


def _string(value: Any) -> str:
    match _kind(value):
        case "string":
            return str(value)
        case "bool":
            return "true" if value else "false"
        case "int":
            return str(value)
        case "double" if not math.isnan(value):
            return _double_text(value)
        case _:
            _no_overload("string", value)


def _double_text(value: float) -> str:
    """Returns the shortest digits that identify the double, with an exponent from 10^6 on and below 10^-4."""
    if math.isinf(value):
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    point = len(digits) + int(exponent) - 1
    if value and not -4 <= point < 6:
        mantissa = "".join(map(str, digits))
        mantissa = f"{mantissa[0]}.{mantissa[1:]}" if mantissa[1:] else mantissa
        return f"{'-' * sign}{mantissa}e{point:+03d}"
    return repr(value).removesuffix(".0")


def _int(value: Any) -> int:
    match _kind(value):
        case "int" | "bool":
            return int(value)
        case "double" if math.isfinite(value) and abs(value) < 2**63:
            return int(value)
        case "string" if match := re2.fullmatch(r"[ \t-\r]*([-+]?)0*([0-9]+)[ \t-\r]*", value):
            return _in_range(int(match[1] + match[2]) if len(match[2]) <= 19 else 2**63)
        case "string" | "double":
            raise CelEvaluationError("cannot convert to int")
        case _:
            _no_overload("int", value)


_DOUBLE = r"(?i)[ \t-\r]*([-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|inf|infinity|nan))[ \t-\r]*"
"""What cel-cpp parses as a double, without hexadecimal numbers. Kubernetes allows no spaces around it."""


def _double(value: Any) -> float:
    match _kind(value):
        case "int" | "double":
            return float(value)
        case "string" if match := re2.fullmatch(_DOUBLE, value):
            return float(match[1])
        case "string":
            raise CelEvaluationError("cannot convert to double")
        case _:
            _no_overload("double", value)


def _matches(text: str, pattern: str) -> bool:
    try:
        return re2.search(pattern, text, options=_RE2) is not None
    except re2.error:
        raise CelEvaluationError("invalid regular expression") from None


_RE2 = re2.Options()
_RE2.log_errors = False


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise CelEvaluationError("offset out of range")
    return text.find(part, start)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise CelEvaluationError("substring out of range")
    return text[start:stop]


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise CelEvaluationError("offset out of range")
    return text[position : position + 1]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator and text:
        return list(text) if limit < 0 or limit >= len(text) else [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, -1 if limit < 0 else limit - 1) if text else [""]


def _join(parts: list[Any], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise CelEvaluationError("join needs a list of strings")
    return separator.join(parts)


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(letter) if letter.isascii() else letter for letter in text)


# A quantity is a map with one entry, its exact amount. Maps compare by content, so that ``quantity('1Gi') ==
# quantity('1024Mi')``, and ``<`` between them is a type error, as in Kubernetes.

_AMOUNT = "quantity.amount"
_EXACT = Context(prec=MAX_EXPONENT + 24)
"""Enough digits for every amount in range; the default of decimal rounds to 28."""

Quantity: TypeAlias = Mapping[str, str]


def _in_bounds(amount: Decimal) -> Decimal:
    if not amount.is_finite() or abs(amount.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"a quantity beyond 10^{MAX_EXPONENT} is out of range")
    return amount


def _wrapped(amount: Decimal) -> dict[str, str]:
    return {_AMOUNT: format(_in_bounds(amount).normalize(_EXACT), "f") if amount else "0"}


def _amount(value: Quantity) -> Decimal:
    try:
        amount = Decimal(value[_AMOUNT])
    except (KeyError, TypeError, ArithmeticError):
        raise ValueError("not a quantity") from None
    return _in_bounds(amount)


def _quantity(text: str) -> dict[str, str]:
    return _wrapped(parse_quantity(text))


def _is_quantity(text: str) -> bool:
    return same_quantity(text, text)


def _order(left: Decimal, right: Decimal | int) -> int:
    return (left > right) - (left < right)


def _is_integer(value: Quantity) -> bool:
    amount = _amount(value)
    return amount == amount.to_integral_value() and int(amount) in _INT64


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise ValueError("the quantity is not a 64-bit integer")
    return int(_amount(value))


def _plus(left: Quantity, right: Quantity | int, calculate: Callable[[Decimal, Decimal], Decimal]) -> dict[str, str]:
    """The sum, or with `calculate` the difference; the right side may be an integer."""
    return _wrapped(calculate(_amount(left), Decimal(right) if isinstance(right, int) else _amount(right)))


class Overload:
    """A function of CEL: its parameter types, its result type, and how many parameters at the end are optional."""

    def __init__(self, parameters: str, result: str, call: Callable[..., Any], *, optional: int = 0) -> None:
        self.parameters = tuple(parameters.split())
        self.result = result
        self._call = call
        self._fewest = len(self.parameters) - optional

    def accepts(self, count: int) -> bool:
        return self._fewest <= count <= len(self.parameters)

    def __call__(self, name: str, values: list[Any]) -> Any:
        for wanted, value in zip(self.parameters, values, strict=False):
            kind = _kind(value)
            if wanted != "dyn" and kind not in wanted.split("|") and not (wanted == "quantity" and kind == "map"):
                _no_overload(name, *values)
        try:
            return self._call(*values)
        except CelEvaluationError:
            raise
        except ValueError as error:
            raise CelEvaluationError(str(error)) from error


FUNCTIONS: Mapping[tuple[str, bool], Overload] = {
    ("size", False): Overload("string|list|map", "int", _size),
    ("size", True): Overload("string|list|map", "int", _size),
    ("string", False): Overload("dyn", "string", _string),
    ("int", False): Overload("int|double|string|bool", "int", _int),
    ("double", False): Overload("int|double|string", "double", _double),
    ("dyn", False): Overload("dyn", "dyn", lambda value: value),
    ("matches", False): Overload("string string", "bool", _matches),
    ("matches", True): Overload("string string", "bool", _matches),
    ("contains", True): Overload("string string", "bool", lambda text, part: part in text),
    ("startsWith", True): Overload("string string", "bool", str.startswith),
    ("endsWith", True): Overload("string string", "bool", str.endswith),
    ("lowerAscii", True): Overload("string", "string", _ascii(str.lower)),
    ("upperAscii", True): Overload("string", "string", _ascii(str.upper)),
    ("trim", True): Overload("string", "string", lambda text: text.strip(_SPACE)),
    ("charAt", True): Overload("string int", "string", _char_at),
    ("indexOf", True): Overload("string string int", "int", _index_of, optional=1),
    ("lastIndexOf", True): Overload("string string", "int", str.rfind),
    ("substring", True): Overload("string int int", "string", _substring, optional=1),
    ("replace", True): Overload("string string string int", "string", str.replace, optional=1),
    ("split", True): Overload("string string int", "list", _split, optional=1),
    ("join", True): Overload("list string", "string", _join, optional=1),
    ("quantity", False): Overload("string", "quantity", _quantity),
    ("isQuantity", False): Overload("string", "bool", _is_quantity),
    ("sign", False): Overload("quantity", "int", lambda a: _order(_amount(a), 0)),
    ("compareTo", True): Overload("quantity quantity", "int", lambda a, b: _order(_amount(a), _amount(b))),
    ("isLessThan", True): Overload("quantity quantity", "bool", lambda a, b: _amount(a) < _amount(b)),
    ("isGreaterThan", True): Overload("quantity quantity", "bool", lambda a, b: _amount(a) > _amount(b)),
    ("isInteger", True): Overload("quantity", "bool", _is_integer),
    ("asInteger", True): Overload("quantity", "int", _as_integer),
    ("asApproximateFloat", True): Overload("quantity", "double", lambda a: float(_amount(a))),
    ("add", True): Overload("quantity dyn", "quantity", lambda a, b: _plus(a, b, _EXACT.add)),
    ("sub", True): Overload("quantity dyn", "quantity", lambda a, b: _plus(a, b, _EXACT.subtract)),
}
"""By name, and whether it is called on a value."""
