"""A refusal as the ``metav1.Status`` that the user gets."""

from __future__ import annotations

from airunway.resource import ObjectKey
from airunway.validation import Violation
from airunway.webhook.admission import Denial


def test_every_cause_has_its_own_reason_field_and_message() -> None:
    causes = (
        Violation(path="spec.a", message="is missing", reason="FieldValueRequired"),
        Violation(path="spec.b", message="is not allowed", reason="FieldValueForbidden"),
    )
    status = Denial(code=422, reason="Invalid", message="no", causes=causes).status(ObjectKey("ml", "llama"))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == 'ModelDeployment.airunway.ai "llama" is invalid: no'
    assert status["details"]["causes"] == [
        {"reason": "FieldValueRequired", "field": "spec.a", "message": "is missing"},
        {"reason": "FieldValueForbidden", "field": "spec.b", "message": "is not allowed"},
    ]
