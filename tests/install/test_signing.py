"""Signatures are what cosign and openssl take, and stand for one content and one key."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from tests.install.keys import new_key
from tools.supply.oci import INDEX, Layout
from tools.supply.provenance import BILL, PREDICATE, Build, bill_statement, statement
from tools.supply.signing import KeyFileError, Signer, envelope, is_signed, load_key, sign_layout

from airunway.resource import Resource

SIGNER = Signer(key=new_key())
PUBLIC = SIGNER.key.public_key()
NAME = "registry.internal/team/airunway/controller"


def written(
    path: Path,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    encryption: KeySerializationEncryption | None = None,
) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()))
    return path


def test_a_signature_is_of_one_content_and_one_key() -> None:
    signature = SIGNER.sign(b"content")
    assert is_signed(b"content", signature, PUBLIC)
    assert not is_signed(b"Content", signature, PUBLIC)
    assert not is_signed(b"content", signature, new_key().public_key())
    assert SIGNER.sign(b"content") == signature, "releases can be compared"


def test_a_key_is_read_from_a_file(tmp_path: Path) -> None:
    signer = load_key(written(tmp_path / "plain.pem", SIGNER.key))
    assert signer.sign(b"content") == SIGNER.sign(b"content")
    locked = written(tmp_path / "locked.pem", SIGNER.key, BestAvailableEncryption(b"secret"))
    assert load_key(locked, password="secret").public() == SIGNER.public()


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_key_that_is_not_opened_is_refused(tmp_path: Path, password: str) -> None:
    path = written(tmp_path / "locked.pem", SIGNER.key, BestAvailableEncryption(b"secret"))
    with pytest.raises(KeyFileError, match="is no private key that can be opened"):
        load_key(path, password=password)


def test_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    others = [
        written(tmp_path / "rsa.pem", rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        written(tmp_path / "p384.pem", ec.generate_private_key(ec.SECP384R1())),
    ]
    for path in others:
        with pytest.raises(KeyFileError, match="ECDSA on the curve P-256"):
            load_key(path)
    with pytest.raises(KeyFileError, match=r"gone.pem cannot be read \(No such file"):
        load_key(tmp_path / "gone.pem")


def test_an_envelope_signs_the_payload_and_its_kind() -> None:
    made = json.loads(envelope(b'{"a": 1}', SIGNER))
    assert base64.b64decode(made["payload"]) == b'{"a": 1}'
    (signature,) = made["signatures"]
    # As https://github.com/secure-systems-lab/dsse/blob/master/protocol.md has it.
    assert is_signed(b'DSSEv1 28 application/vnd.in-toto+json 8 {"a": 1}', signature["sig"], PUBLIC)
    assert not is_signed(b'DSSEv1 28 application/vnd.in-toto+json 8 {"a": 2}', signature["sig"], PUBLIC)
    assert not is_signed(b'{"a": 1}', signature["sig"], PUBLIC)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """An image for two architectures, signed."""
    made = Layout(folder=tmp_path / "layout")
    manifests = {name: made.artifact([made.put(name.encode(), "text/plain")]) for name in ("amd64", "arm64")}
    made.tag({"1.0": made.index(manifests)})
    digest = made.tags()["1.0"]["digest"].removeprefix("sha256:")
    build = Build(version="1.0", registry="registry.internal/team", commit="a" * 40)
    statements = [statement({NAME: digest}, build), bill_statement({NAME: digest}, {"bomFormat": "CycloneDX"})]
    sign_layout(made, "1.0", name=NAME, statements=statements, signer=SIGNER)
    return made


def blob(layout: Layout, descriptor: Resource) -> bytes:
    return (layout.folder / "blobs" / str(descriptor["digest"]).replace(":", "/")).read_bytes()


def test_an_image_is_signed_by_its_digest(layout: Layout) -> None:
    tags = layout.tags()
    digest = tags["1.0"]["digest"]
    assert tags["1.0"]["mediaType"] == INDEX
    manifest = json.loads(blob(layout, tags[f"{digest.replace(':', '-')}.sig"]))
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    payload = blob(layout, layer)
    assert is_signed(payload, layer["annotations"]["dev.cosignproject.cosign/signature"], PUBLIC)
    critical = json.loads(payload)["critical"]
    assert critical["image"] == {"docker-manifest-digest": digest}
    assert critical["identity"] == {"docker-reference": NAME}


def test_an_image_has_its_provenance_and_bill(layout: Layout) -> None:
    tags = layout.tags()
    digest = tags["1.0"]["digest"]
    manifest = json.loads(blob(layout, tags[f"{digest.replace(':', '-')}.att"]))
    assert [layer["annotations"]["predicateType"] for layer in manifest["layers"]] == [PREDICATE, BILL]
    for layer in manifest["layers"]:
        statement = json.loads(base64.b64decode(json.loads(blob(layout, layer))["payload"]))
        assert statement["subject"] == [{"name": NAME, "digest": {"sha256": digest.removeprefix("sha256:")}}]


def test_every_blob_is_what_its_name_says(layout: Layout) -> None:
    for path in (layout.folder / "blobs" / "sha256").iterdir():
        assert layout.put(path.read_bytes(), "x")["digest"] == f"sha256:{path.name}"
