"""Parses the literals of cel-python's grammar: texts with their escapes, numbers, true, false, null."""

from __future__ import annotations

import re
from typing import Any

from airunway.cel._errors import CelCompileError

__all__ = ["literal_value"]

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xX][0-9a-fA-F]{2}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\'\"`?"}


def literal_value(token: Any) -> tuple[str, Any]:
    """Returns the static type and the value of a literal. Raises CelCompileError for types that are not supported."""
    text = str(token)
    match token.type:
        case "BOOL_LIT":
            return "bool", text == "true"
        case "NULL_LIT":
            return "null", None
        case "FLOAT_LIT":
            if re.match(r"-?[0-9]+\.(?![0-9])", text):
                raise CelCompileError(f"the number {text} needs a digit after its point")
            return "double", float(text)
        case "INT_LIT":
            value = int(text, 16 if "0x" in text else 10)
            if not -(2**63) <= value < 2**63:
                raise CelCompileError(f"{text} is out of the range of an integer")
            return "int", value
        case "STRING_LIT" | "MLSTRING_LIT":
            return "string", _unquoted(text)
        case _:
            raise CelCompileError(f"the literal {text} is of a type that is not supported by cel-python")


def _unquoted(text: str) -> str:
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    width = 3 if body[:3] in ("'''", '"""') and len(body) >= 6 else 1
    body = body[width:-width]
    if raw and body.endswith("\\") and width == 1:
        raise CelCompileError("a raw text cannot end with a backslash")
    return body if raw else _ESCAPE.sub(_unescape, body)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code in _ESCAPES:
        return _ESCAPES[code]
    digits, base = (code, 8) if code[0].isdigit() else (code[1:], 16)
    try:
        point = int(digits, base)
    except ValueError:
        raise CelCompileError(f"unknown escape \\{code} in a text") from None
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise CelCompileError(f"\\{code} is not a character")
    return chr(point)
