"""Keys that sign for the length of a test."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["new_key"]


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key that can sign a release."""
    return ec.generate_private_key(ec.SECP256R1())
