"""What a validation rule is, and those that every quantity has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from airunway.quantity import MAX_EXPONENT, parse_quantity, same_quantity
from airunway.resource import Resource

__all__ = ["FORBIDDEN", "INVALID", "REQUIRED", "ValidationRule", "amount_of", "is_quantity", "quantity_rules"]

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
# Not FieldValueDuplicate: the API server would leave the message out.

Check = Callable[[Resource, Resource | None], bool]
"""Whether a node holds, given the one that it replaces (None if new). Nodes fit the schema."""


@dataclass(frozen=True, kw_only=True)
class ValidationRule:
    """One rule. `field` is the path below the node that an error names; `message_expression`, when given, makes the
    message (with `message` for when it cannot). A rule whose expression has `oldSelf` speaks of changes and runs on
    updates only.

    The API server passes over a rule whose node an update leaves as it was, so that no object is stuck which came in
    before the rule. The object as a whole is never left as it was (its finalizers are part of it): rules on it have
    `unless_unchanged`, the field below it that they are about.

    `check` is the expression as a function of `self` and `oldSelf`: sizes are any user's to vary, and a function costs
    no evaluator's memory or time for each of them.
    """

    path: str
    expression: str
    message: str
    message_expression: str = ""
    field: str = ""
    reason: str = INVALID
    unless_unchanged: str = ""
    check: Check | None = None

    @property
    def is_transition(self) -> bool:
        return "oldSelf" in self.expression


def quantity_rules(path: str, field: str, *, maximum: str = "", example: str) -> Iterator[ValidationRule]:
    text = f"string(self.{field})"
    absent = f"!has(self.{field}) || {text} == ''"
    yield ValidationRule(
        path=path,
        expression=f"{absent} || (isQuantity({text}) && !quantity({text}).isLessThan(quantity('0')))",
        message=f"invalid resource quantity (write it like {example})",
        field=f".{field}",
        check=lambda node, _: (
            _is_absent(node, field) or ((amount := amount_of(node[field])) is not None and amount >= 0)
        ),
    )
    if maximum:
        yield ValidationRule(
            path=path,
            expression=f"{absent} || !isQuantity({text}) || quantity({text}).compareTo(quantity('{maximum}')) <= 0",
            message=f"exceeds maximum allowed ({maximum})",
            field=f".{field}",
            check=lambda node, _: _is_absent(node, field) or _is_within(node[field], parse_quantity(maximum)),
        )


def _is_absent(node: Resource, field: str) -> bool:
    return bool(node.get(field, "") == "")


def amount_of(value: object) -> Decimal | None:
    """The amount; None for what is no quantity, or one that is out of range."""
    try:
        amount = parse_quantity(value)
    except ValueError:
        return None
    return amount if abs(amount.adjusted()) <= MAX_EXPONENT or not amount else None


def _is_within(value: object, maximum: Decimal) -> bool:
    """False for what is out of range too; what is no quantity is another rule's matter."""
    amount = amount_of(value)
    return amount <= maximum if amount is not None else not is_quantity(value)


def is_quantity(value: object) -> bool:
    return same_quantity(value, value)
