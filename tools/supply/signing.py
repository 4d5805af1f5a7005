"""Signatures with a key of ours, in the form in which cosign makes and checks them.

A file has a signature beside it (``FILE.sig``: base64 of an ECDSA signature in DER over its SHA-256). An image or
chart has a payload with its digest, signed, as an artifact ``sha256-DIGEST.sig`` in its own repository ("simple
signing"), and attestations as ``sha256-DIGEST.att`` (DSSE envelopes, https://github.com/secure-systems-lab/dsse).
Nothing is asked of a transparency log: who checks trusts the key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from tools.supply.oci import Layout

if TYPE_CHECKING:
    from airunway.resource import Resource

__all__ = ["IN_TOTO", "KeyFileError", "Signer", "envelope", "is_signed", "key_of", "load_key", "sign_layout"]

IN_TOTO = "application/vnd.in-toto+json"
_SIMPLE = "application/vnd.dev.cosign.simplesigning.v1+json"
_DSSE = "application/vnd.dsse.envelope.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"
_KIND = "kind"


class KeyFileError(Exception):
    """A key cannot sign a release; one sentence says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A private key (ECDSA, curve P-256)."""

    key: ec.EllipticCurvePrivateKey

    def sign(self, content: bytes) -> str:
        """Base64 of the signature; the same for the same content (RFC 6979), so that releases can be compared."""
        return base64.b64encode(self.key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True))).decode()

    def public(self) -> bytes:
        """The public key (PEM)."""
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def load_key(path: Path, *, password: str = "") -> Signer:
    """The key in a file (PEM, PKCS #8 or SEC 1), opened with `password` if that is given. Raises KeyFileError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read ({error.strerror}): name a file with a private key") from error
    return key_of(content, password=password, name=str(path))


def key_of(content: bytes, *, password: str, name: str) -> Signer:
    """The key in a text (PEM) that messages call `name`. Raises KeyFileError."""
    try:
        key = load_pem_private_key(content, password.encode() or None)
    except (ValueError, TypeError) as error:
        raise KeyFileError(
            f"{name} is no private key that can be opened ({error}): make one with `openssl genpkey -algorithm EC "
            "-pkeyopt ec_paramgen_curve:P-256 -out FILE`, and give its password, if it has one, as SIGNING_PASSWORD"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise KeyFileError(f"{name} is a key of another kind: signatures are made with ECDSA on the curve P-256")
    return Signer(key=key)


def is_signed(content: bytes, signature: str, key: ec.EllipticCurvePublicKey) -> bool:
    """Whether the base64 text `signature` is that of the key over the content."""
    try:
        key.verify(base64.b64decode(signature), content, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def envelope(payload: bytes, signer: Signer, *, kind: str = IN_TOTO) -> bytes:
    """A DSSE envelope: the payload, and a signature over it and its kind."""
    signed = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(payload)).encode(), payload])
    made = {
        "payloadType": kind,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": "", "sig": signer.sign(signed)}],
    }
    return json.dumps(made, separators=(",", ":")).encode()


def sign_layout(layout: Layout, tag: str, *, name: str, statements: Sequence[Resource], signer: Signer) -> None:
    """Add a signature and attestations of what `tag` names to a layout.

    `name` is the repository as the signature names it. `statements` are in-toto statements.
    """
    tags = layout.tags()
    digest: str = tags[tag]["digest"]
    stem = digest.replace(":", "-")
    payload = {
        "critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": None,
    }
    content = json.dumps(payload, separators=(",", ":")).encode()
    signed = {**layout.put(content, _SIMPLE), "annotations": {_SIGNATURE: signer.sign(content)}}
    attested = []
    for statement in statements:
        made = layout.put(envelope(json.dumps(statement, separators=(",", ":")).encode(), signer), _DSSE)
        attested.append({**made, "annotations": {_SIGNATURE: "", "predicateType": statement["predicateType"]}})
    # `kind` is how cosign finds them in a layout on disk (cosign verify --local-image).
    main = "imageIndex" if "index" in tags[tag]["mediaType"] else "image"
    layout.tag(
        {
            tag: {**tags[tag], "annotations": {_KIND: f"dev.cosignproject.cosign/{main}"}},
            f"{stem}.sig": {**layout.artifact([signed]), "annotations": {_KIND: "dev.cosignproject.cosign/sigs"}},
            f"{stem}.att": {**layout.artifact(attested), "annotations": {_KIND: "dev.cosignproject.cosign/atts"}},
        }
    )
