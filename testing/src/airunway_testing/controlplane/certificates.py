"""The control plane's own certificate authorities, certificates and keys.

Keys are ECDSA P-256, which are made in milliseconds, but those of authorities are RSA: an API server checks the
signature of a client's certificate with every request, for which RSA takes a third of the time.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(hours=1)
_RSA_BITS = 2048  # programs refuse fewer

_PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A certificate (or, for service accounts, a public key) and its private key, as files in PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A certificate authority whose files are at `files`."""

    files: KeyPair
    _certificate: x509.Certificate
    _key: _PrivateKey

    def client(self, path: Path, *, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Issue a client certificate: Kubernetes reads the user from CN and the groups from O. Files are
        ``<path>.crt``/``.key``.
        """
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(path, subject=x509.Name(names), usages=[ExtendedKeyUsageOID.CLIENT_AUTH], hosts=())

    def server(self, path: Path, *, name: str, hosts: Sequence[str]) -> KeyPair:
        """Issue a certificate that serves `hosts` (DNS names and IP addresses) and may also be shown by a client
        (etcd asks so).
        """
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(path, subject=subject, usages=usages, hosts=hosts)

    def _issue(
        self, path: Path, *, subject: x509.Name, usages: Sequence[x509.ObjectIdentifier], hosts: Sequence[str]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject=subject, issuer=self._certificate.subject, public_key=key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return _write(path, certificate=builder.sign(self._key, hashes.SHA256()), key=key)


def new_authority(path: Path, *, name: str) -> Authority:
    """Make a self-signed authority with files ``<path>.crt`` and ``<path>.key``."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject=subject, issuer=subject, public_key=key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(files=_write(path, certificate=certificate, key=key), _certificate=certificate, _key=key)


def load_authority(path: Path) -> Authority:
    """Read an authority that `new_authority` made.

    Raises OSError when a file is missing and ValueError when one does not hold a certificate or a key of either kind.
    """
    files = _files(path)
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ValueError(f"{files.key}: neither an RSA nor an ECDSA key")  # noqa: TRY004 - the file's content is wrong, not an argument's type
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    return Authority(files=files, _certificate=certificate, _key=key)


def key_pair_of_service_accounts(path: Path) -> KeyPair:
    """Make the key that signs service account tokens; `certificate` holds the bare public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    files = _files(path)
    _write_private(files.key, _pem(key))
    files.certificate.write_bytes(public)
    return files


def _builder(
    *, subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _files(path: Path) -> KeyPair:
    return KeyPair(certificate=path.with_name(path.name + ".crt"), key=path.with_name(path.name + ".key"))


def _write(path: Path, *, certificate: x509.Certificate, key: _PrivateKey) -> KeyPair:
    files = _files(path)
    _write_private(files.key, _pem(key))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files


def _pem(key: _PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
