"""Certificates by the clock that is given: what is made, when it is renewed, and that an OpenSSL client accepts it."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.webhook.certificates import (
    AUTHORITY_LIFETIME,
    OVERLAP,
    ROTATE_AHEAD,
    SERVING_LIFETIME,
    CertificateAction,
    Material,
    authorities_in,
    decide,
    issue_serving,
    new_authority,
    without_previous,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTS = ["hook.system.svc", "127.0.0.1"]
DAY = timedelta(days=1)


def action(material: Material | None, now: datetime, hosts: list[str] | None = None) -> CertificateAction:
    return decide(material, now=now, hosts=hosts or HOSTS).action


@pytest.fixture(scope="module")
def material() -> Material:
    return new_authority(now=NOW, hosts=HOSTS)


def test_lifetimes(material: Material) -> None:
    authority = x509.load_pem_x509_certificate(material.authority)
    serving = x509.load_pem_x509_certificate(material.serving)
    assert authority.not_valid_after_utc == NOW + AUTHORITY_LIFETIME
    assert serving.not_valid_after_utc == NOW + SERVING_LIFETIME
    assert authority.not_valid_before_utc < NOW
    assert serving.not_valid_before_utc < NOW
    serving.verify_directly_issued_by(authority)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (timedelta(0), CertificateAction.KEEP),
        (SERVING_LIFETIME - ROTATE_AHEAD - DAY, CertificateAction.KEEP),
        (SERVING_LIFETIME - ROTATE_AHEAD, CertificateAction.ISSUE_SERVING),
        (SERVING_LIFETIME + DAY, CertificateAction.ISSUE_SERVING),
        (AUTHORITY_LIFETIME - ROTATE_AHEAD - DAY, CertificateAction.ISSUE_SERVING),
        (AUTHORITY_LIFETIME - ROTATE_AHEAD, CertificateAction.NEW_AUTHORITY),
        (AUTHORITY_LIFETIME + DAY, CertificateAction.NEW_AUTHORITY),
        (-DAY, CertificateAction.NEW_AUTHORITY),
    ],
)
def test_renewal_by_the_clock(material: Material, later: timedelta, expected: CertificateAction) -> None:
    assert action(material, NOW + later) is expected


def test_the_next_look_is_when_something_is_due(material: Material) -> None:
    verdict = decide(material, now=NOW, hosts=HOSTS)
    assert verdict.look_again == NOW + SERVING_LIFETIME - ROTATE_AHEAD
    follower = new_authority(now=NOW, hosts=HOSTS, previous=material.bundle)
    assert decide(follower, now=NOW, hosts=HOSTS).look_again == NOW + OVERLAP


def test_a_serving_certificate_never_outlives_its_authority(material: Material) -> None:
    late = NOW + AUTHORITY_LIFETIME - timedelta(days=100)
    renewed = issue_serving(material, now=late, hosts=HOSTS)
    assert x509.load_pem_x509_certificate(renewed.serving).not_valid_after_utc == NOW + AUTHORITY_LIFETIME
    assert action(renewed, late) is CertificateAction.KEEP


def test_a_new_authority_stays_with_the_old_one_for_a_while(material: Material) -> None:
    follower = new_authority(now=NOW, hosts=HOSTS, previous=material.bundle)
    assert authorities_in(follower.bundle) == [follower.authority, material.authority]
    assert action(follower, NOW) is CertificateAction.KEEP
    assert action(follower, NOW + OVERLAP) is CertificateAction.DROP_PREVIOUS
    alone = without_previous(follower)
    assert authorities_in(alone.bundle) == [follower.authority]
    assert action(alone, NOW + OVERLAP) is CertificateAction.KEEP


def test_an_authority_that_has_ended_is_not_kept(material: Material) -> None:
    late = NOW + AUTHORITY_LIFETIME + DAY
    follower = new_authority(now=late, hosts=HOSTS, previous=material.bundle)
    assert follower.previous == b""
    assert follower.previous_until is None


@pytest.mark.parametrize(
    ("change", "expected", "why"),
    [
        ({"authority": b""}, CertificateAction.NEW_AUTHORITY, "cannot be read"),
        ({"authority": b"garbage"}, CertificateAction.NEW_AUTHORITY, "cannot be read"),
        ({"authority_key": b""}, CertificateAction.NEW_AUTHORITY, "cannot be read"),
        ({"serving": b"-----BEGIN CERTIFICATE-----\nAA==\n"}, CertificateAction.ISSUE_SERVING, "cannot be read"),
        ({"serving_key": b""}, CertificateAction.ISSUE_SERVING, "cannot be read"),
        ({"previous": b"garbage"}, CertificateAction.DROP_PREVIOUS, "time to follow"),
    ],
)
def test_a_garbled_secret(material: Material, change: dict[str, bytes], expected: CertificateAction, why: str) -> None:
    verdict = decide(replace(material, **change), now=NOW, hosts=HOSTS)  # type: ignore[arg-type] # all are bytes
    assert verdict.action is expected
    assert why in verdict.why


def test_parts_of_two_secrets_do_not_mix(material: Material) -> None:
    other = new_authority(now=NOW, hosts=HOSTS)
    assert action(replace(material, authority_key=other.authority_key), NOW) is CertificateAction.NEW_AUTHORITY
    assert action(replace(material, serving_key=other.serving_key), NOW) is CertificateAction.ISSUE_SERVING
    mixed = replace(material, serving=other.serving, serving_key=other.serving_key)
    assert decide(mixed, now=NOW, hosts=HOSTS).why == "the serving certificate is not by the authority"


def test_another_name_needs_another_certificate(material: Material) -> None:
    verdict = decide(material, now=NOW, hosts=[*HOSTS, "other.system.svc"])
    assert verdict.action is CertificateAction.ISSUE_SERVING
    assert verdict.why == "the serving certificate does not cover other.system.svc"
    assert action(material, NOW, hosts=HOSTS[:1]) is CertificateAction.KEEP


def test_no_host_is_an_error(material: Material) -> None:
    with pytest.raises(ValueError, match="host name"):
        issue_serving(material, now=NOW, hosts=[])


def test_a_bundle_of_both_authorities_verifies_both(tmp_path: Path) -> None:
    """An API server that has the bundle accepts the old and the new serving certificate."""
    now = datetime.now(UTC)
    old = new_authority(now=now, hosts=HOSTS)
    new = new_authority(now=now, hosts=HOSTS, previous=old.bundle)
    for material in (old, new):
        assert handshake(material, trusted=new.bundle, folder=tmp_path) == "127.0.0.1"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(old, trusted=without_previous(new).bundle, folder=tmp_path)


def handshake(material: Material, *, trusted: bytes, folder: Path) -> str:
    """Shake hands in memory as a client that trusts `trusted`; returns the verified address."""
    path = folder / "serving.pem"
    path.write_bytes(material.serving + material.serving_key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(path)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.load_verify_locations(cadata=trusted.decode())
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    server = server_context.wrap_bio(pipes[0], pipes[1], server_side=True)
    client = client_context.wrap_bio(pipes[1], pipes[0], server_hostname="127.0.0.1")
    done = [False, False]
    while not all(done):
        for index, side in enumerate((client, server)):
            try:
                side.do_handshake()
                done[index] = True
            except ssl.SSLWantReadError:
                continue
    certificate = client.getpeercert() or {}
    addresses = [value for kind, value in certificate["subjectAltName"] if kind == "IP Address"]  # type: ignore[str-unpack]
    return str(addresses[0])


STEPS = st.lists(st.integers(-30, 4000).map(lambda days: timedelta(days=days)), max_size=8)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_wherever_the_clock_goes_one_action_after_another_ends_in_order(steps: list[timedelta]) -> None:
    """From any material at any time, at most three actions lead to material that is good."""
    material: Material | None = None
    now = NOW
    for step in [timedelta(0), *steps]:
        now = max(now + step, datetime(2000, 1, 1, tzinfo=UTC))
        if now.year > 2200:
            break
        for _ in range(4):
            verdict = decide(material, now=now, hosts=HOSTS)
            if verdict.action is CertificateAction.KEEP:
                break
            if verdict.action is CertificateAction.NEW_AUTHORITY:
                material = new_authority(now=now, hosts=HOSTS, previous=material.bundle if material else b"")
            else:
                assert material is not None
                renew = verdict.action is CertificateAction.ISSUE_SERVING
                material = issue_serving(material, now=now, hosts=HOSTS) if renew else without_previous(material)
        assert verdict.action is CertificateAction.KEEP
        assert material is not None
        serving = x509.load_pem_x509_certificate(material.serving)
        assert serving.not_valid_before_utc <= now < serving.not_valid_after_utc


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_get_a_verdict(authority: bytes, key: bytes, previous: bytes) -> None:
    assert (
        action(Material(authority=authority, authority_key=key, previous=previous), NOW)
        is CertificateAction.NEW_AUTHORITY
    )
    assert authorities_in(previous) == []
