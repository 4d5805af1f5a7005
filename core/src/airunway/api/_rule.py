"""The type of a validation rule, and the rules that every quantity and every cluster-scoped kind has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from airunway.quantity import MAX_EXPONENT, parse_quantity, same_quantity
from airunway.resource import Resource

__all__ = [
    "FORBIDDEN",
    "INVALID",
    "REQUIRED",
    "ValidationRule",
    "amount_of",
    "credential_rules",
    "is_quantity",
    "quantity_rules",
]

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
# Not FieldValueDuplicate: with it the API server would omit the message.

Check = Callable[[Resource, Resource | None], bool]
"""``check(node, old)``: whether the rule holds for a node; `old` is the node that it replaces, None if it is new.

The nodes fit the schema.
"""


@dataclass(frozen=True, kw_only=True)
class ValidationRule:
    """One CEL rule of the CRD.

    The API server skips a rule if an update does not change its node, so that an object that is older than the rule can
    still be updated. The whole object changes with every update (its finalizers belong to it), so rules on it have
    `unless_unchanged`.
    """

    path: str
    """Path of the schema node that the rule is attached to; empty: the whole object."""
    expression: str
    """The rule in CEL. A rule with `oldSelf` is about changes, and is evaluated on updates only."""
    message: str
    message_expression: str = ""
    """CEL expression for the message; `message` is used if it cannot be evaluated. Empty: always `message`."""
    field: str = ""
    """Path below the node that an error names."""
    reason: str = INVALID
    unless_unchanged: str = ""
    """For rules on the whole object: the field that the rule is about; an update that keeps it skips the rule."""
    check: Check | None = None
    """The same rule in Python, run in process instead of the CEL: it takes no evaluator's memory for each new size."""

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


def credential_rules(kind: str, *, namespaced: str, below: str = "") -> Iterator[ValidationRule]:
    """The rules that the cluster-scoped `kind` names no Secrets; they belong in the `namespaced` kind.

    `below` is the field of the spec that has ``secrets`` and ``env``; empty: the spec itself.
    """
    path, prefix = (f"spec.{below}", f"{below}.") if below else ("spec", "")
    for at, expression, where, field in (
        (
            path,
            "!has(self.secrets) || !has(self.secrets.huggingFaceToken) || self.secrets.huggingFaceToken == ''",
            f"{prefix}secrets.huggingFaceToken",
            ".secrets",
        ),
        (
            "spec",
            "!has(self.imagePullSecrets) || self.imagePullSecrets.size() == 0",
            "imagePullSecrets",
            ".imagePullSecrets",
        ),
        (
            path,
            "!has(self.env) || self.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))",
            f"{prefix}env[].valueFrom.secretKeyRef",
            ".env",
        ),
    ):
        message = f"a {kind} holds no credentials: put {where} into a {namespaced}"
        yield ValidationRule(path=at, expression=expression, message=message, field=field, reason=FORBIDDEN)


def _is_absent(node: Resource, field: str) -> bool:
    return bool(node.get(field, "") == "")


def amount_of(value: object) -> Decimal | None:
    """Returns the amount; None if it is not a quantity, or is out of range."""
    try:
        amount = parse_quantity(value)
    except ValueError:
        return None
    return amount if abs(amount.adjusted()) <= MAX_EXPONENT or not amount else None


def _is_within(value: object, maximum: Decimal) -> bool:
    """Whether an amount is in range and within `maximum`; true for a non-quantity, which another rule reports."""
    amount = amount_of(value)
    return amount <= maximum if amount is not None else not is_quantity(value)


def is_quantity(value: object) -> bool:
    return same_quantity(value, value)
