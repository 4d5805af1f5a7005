"""Issues and reads the webhook's certificates, and decides when to rotate them.

Pure except for the random numbers of keys: input and output are PEM, and `now` is an argument. The rules are those of
A CA is valid for 10 years, a serving certificate for 1, and both are replaced 90 days before they end.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3650)
SERVING_LIFETIME = timedelta(days=365)
ROTATE_AHEAD = timedelta(days=90)
RENEWED_BY = ROTATE_AHEAD - timedelta(days=30)
"""If less than this time is left of a certificate, its renewal has failed."""

OVERLAP = timedelta(hours=1)
"""Time for which a replaced CA stays trusted: replicas follow within seconds; this covers one that hangs."""

BACKDATED = timedelta(hours=1)
"""Certificates are valid from a time in the past, for API servers whose clocks are behind."""

_COMMON_NAME = "airunway-webhook"
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


@dataclass(frozen=True, kw_only=True)
class Material:
    """The contents of the Secret, all PEM."""

    authority: bytes = b""
    """Certificate of the CA."""
    authority_key: bytes = b""
    serving: bytes = b""
    """Serving certificate."""
    serving_key: bytes = b""
    previous: bytes = b""
    """Certificates of earlier CAs, which are trusted until `previous_until`."""
    previous_until: datetime | None = None

    @property
    def bundle(self) -> bytes:
        """The CA certificates that a client of the webhook must trust."""
        return b"".join(
            part if part.endswith(b"\n") else part + b"\n" for part in (self.authority, self.previous) if part
        )


class CertificateAction(StrEnum):
    """What has to be done to the certificates."""

    KEEP = "keep"
    DROP_PREVIOUS = "drop the previous authority"
    ISSUE_SERVING = "issue a serving certificate"
    NEW_AUTHORITY = "make a new authority"


@dataclass(frozen=True, kw_only=True)
class CertificateDecision:
    """The action and its reason."""

    action: CertificateAction
    why: str
    look_again: datetime | None = None
    """Latest time of the next check; None: at once, after the action."""


def decide(material: Material | None, *, now: datetime, hosts: Collection[str]) -> CertificateDecision:
    """What has to be done so that `material` (None: there is none) serves `hosts` at `now` and for a while.

    There is a decision for any content of the Secret.
    """
    if material is None:
        return CertificateDecision(action=CertificateAction.NEW_AUTHORITY, why="there is none")
    if (fault := _authority_fault(material, now)) is not None:
        return CertificateDecision(action=CertificateAction.NEW_AUTHORITY, why=fault)
    if (fault := _serving_fault(material, now, hosts)) is not None:
        return CertificateDecision(action=CertificateAction.ISSUE_SERVING, why=fault)
    ends = min(_load(material.authority).not_valid_after_utc, _load(material.serving).not_valid_after_utc)
    again = ends - ROTATE_AHEAD
    if material.previous:
        until = material.previous_until
        if until is None or until <= now:
            return CertificateDecision(
                action=CertificateAction.DROP_PREVIOUS, why="all replicas have had time to follow"
            )
        again = min(again, until)
    return CertificateDecision(action=CertificateAction.KEEP, why=f"valid until {ends:%Y-%m-%d}", look_again=again)


def new_authority(
    *, now: datetime, hosts: Sequence[str], previous: bytes = b"", overlap: timedelta = OVERLAP
) -> Material:
    """A new CA and a serving certificate signed by it; valid CAs of `previous` stay trusted for the time `overlap`."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A unique subject: while two CAs are trusted, a verifier must be able to distinguish them.
    name = f"{_COMMON_NAME}-ca-{x509.random_serial_number():x}"[:40]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    kept = b"".join(pem for pem in authorities_in(previous) if _load(pem).not_valid_after_utc > now)
    material = Material(
        authority=_pem(certificate),
        authority_key=_key_pem(key),
        previous=kept,
        previous_until=now + overlap if kept else None,
    )
    return issue_serving(material, now=now, hosts=hosts)


def issue_serving(material: Material, *, now: datetime, hosts: Sequence[str]) -> Material:
    """The material with a new serving certificate for `hosts` (DNS names and addresses), signed by its CA.

    The certificate never outlives the CA. Raises ValueError if the CA cannot be used, or for no hosts.
    """
    if not hosts:
        raise ValueError("a serving certificate needs a host name")
    authority = _load(material.authority)
    authority_key = _load_key(material.authority_key)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(host) for host in hosts]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _COMMON_NAME)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - BACKDATED, authority.not_valid_before_utc))
        .not_valid_after(min(now + SERVING_LIFETIME, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return replace(material, serving=_pem(certificate), serving_key=_key_pem(key))


def without_previous(material: Material) -> Material:
    """The material with only its own CA trusted."""
    return replace(material, previous=b"", previous_until=None)


def authorities_in(bundle: bytes) -> list[bytes]:
    """The distinct certificates of a bundle as PEM; empty for an invalid bundle."""
    try:
        return list(dict.fromkeys(_pem(certificate) for certificate in x509.load_pem_x509_certificates(bundle)))
    except _UNREADABLE:
        return []


def authority_ends(bundle: bytes) -> datetime | None:
    """When the last certificate of a bundle ends, after which nothing is trusted; None for an empty bundle."""
    return max((_load(pem).not_valid_after_utc for pem in authorities_in(bundle)), default=None)


def serving_ends(serving: bytes) -> datetime | None:
    """When a serving certificate ends; None for one that cannot be read."""
    try:
        return _load(serving).not_valid_after_utc
    except _UNREADABLE:
        return None


def _authority_fault(material: Material, now: datetime) -> str | None:
    try:
        certificate, key = _load(material.authority), _load_key(material.authority_key)
        fits = certificate.public_key() == key.public_key()
    except _UNREADABLE:
        return "the authority cannot be read"
    if not fits:
        return "the authority's key is that of another certificate"
    return _time_fault(certificate, now, "the authority")


def _serving_fault(material: Material, now: datetime, hosts: Collection[str]) -> str | None:
    try:
        certificate, key = _load(material.serving), _load_key(material.serving_key)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        fits = certificate.public_key() == key.public_key()
    except (*_UNREADABLE, x509.ExtensionNotFound):
        return "the serving certificate cannot be read"
    if not fits:
        return "the serving key is that of another certificate"
    try:
        certificate.verify_directly_issued_by(_load(material.authority))
    except (ValueError, TypeError, InvalidSignature):
        return "the serving certificate is not by the authority"
    covered = {str(name.value) for name in names}
    if missing := sorted(set(hosts) - covered):
        return f"the serving certificate does not cover {', '.join(missing)}"
    return _time_fault(certificate, now, "the serving certificate")


def _time_fault(certificate: x509.Certificate, now: datetime, what: str) -> str | None:
    if certificate.not_valid_before_utc > now:
        return f"{what} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    ends = certificate.not_valid_after_utc
    if ends <= now:
        return f"{what} ended on {ends:%Y-%m-%d}"
    if ends - ROTATE_AHEAD <= now:
        return f"{what} ends on {ends:%Y-%m-%d}"
    return None


def _load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:  # an encrypted key
        raise ValueError(str(error)) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an ECDSA key")  # noqa: TRY004 - what is wrong is the content of the Secret
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
