"""The numbers that docs/admission.md promises: each stands here once more, as the page has it and as the code has it.

A test that takes a number from the constant says nothing about the number.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airunway.controller import policies
from airunway.doctor.checks_cluster import OLDEST
from airunway.process import probes
from airunway.webhook import admission, certificates
from airunway.webhook.server import Limits

PAGE = " ".join((Path(__file__).parents[2] / "docs/admission.md").read_text(encoding="utf-8").split())
LIMITS = Limits()
MIB = 1_048_576


@pytest.mark.parametrize(
    ("promised", "held", "number"),
    [
        # What happens | what follows
        ("and the old one for an hour more", certificates.OVERLAP, timedelta(hours=1)),
        ("the authority (10 years)", certificates.AUTHORITY_LIFETIME, timedelta(days=3650)),
        ("or the certificate (1 year)", certificates.SERVING_LIFETIME, timedelta(days=365)),
        ("ends in less than 90 days", certificates.ROTATE_AHEAD, timedelta(days=90)),
        # What reaches its port
        ("| connections | 128; above", LIMITS.connections, 128),
        ("one is accepted every 10 ms", LIMITS.accept_seconds, 0.01),
        ("| TLS handshake | 5 s |", LIMITS.handshake_seconds, 5),
        ("| head of a request | 5 s,", LIMITS.head_seconds, 5),
        ("5 s, 32 headers,", LIMITS.head_lines, 32),
        ("4 KiB each", LIMITS.line_bytes, 4096),
        ("| body | 4 MiB:", LIMITS.body_bytes, 4 * MIB),
        ("| body | 5 s |", LIMITS.body_seconds, 5),
        ("large bodies (above 32 KiB)", LIMITS.large_bytes, 32_768),
        ("| 64 MiB at a time;", LIMITS.memory_bytes, 64 * MIB),
        ("they have to wait 3 s at most", LIMITS.wait_seconds, 3),
        ("| reviews | 32 at a time;", LIMITS.reviews, 32),
        ("| time between requests | 120 s |", LIMITS.idle_seconds, 120),
        ("The ports of the probes and of the metrics take 128 connections each", probes.LIMITS.connections, 128),
        ("wait 5 s for the head of a request", probes.LIMITS.head_seconds, 5),
        # Who may ask
        ("A no is kept for 2 seconds,", admission.REFUSED, 2),
        ("a yes for 10,", admission.REMEMBERED, 10),
        ("and 16 questions are asked at a time", admission.QUESTIONS, 16),
        # The policy, and the rest of the page
        ("The file is read every 5 seconds", policies.REREAD, 5),
        ("Kubernetes 1.30 or newer is needed", OLDEST, (1, 30)),
    ],
)
def test_the_page_and_the_code_have_the_same_number(promised: str, held: object, number: object) -> None:
    assert held == number
    assert promised in PAGE
