"""Quantities are read as apimachinery reads them, exactly."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airunway.quantity import parse_quantity, same_quantity


@pytest.mark.parametrize("text", ["1Gi\n", "１Gi", "1Gi ", "٣", "1\n", "", "Gi", "1 Gi"])
def test_l2_what_no_api_server_takes_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


def test_l2_values_of_many_digits_are_exact() -> None:
    digits = "1234567890123456789012345678901234567890"
    assert parse_quantity(f"{digits}Ki") == Decimal(int(digits) * 1024)
    assert not same_quantity(f"{digits}Ki", f"{int(digits) * 1024 + 1}")
    assert same_quantity(f"{digits}Ki", str(int(digits) * 1024))
