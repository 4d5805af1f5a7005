"""Every kind of error has a meaning, and the page for readers has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airunway.kube import ApiError, ConnectionFailed, ErrorKind, RequestTimedOut
from airunway.owned.writer import POLICIES, policy_of
from airunway.status import REASONS

PAGE = Path(__file__).parents[3] / "docs" / "write-errors.md"


def test_the_page_has_every_error_kind_with_its_reason() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| .* \| `(\w+)` \| (at once|once it lasts) \|", PAGE.read_text(), re.MULTILINE)
    assert {(name, reason, when == "at once") for name, reason, when in rows} == {
        (kind.value, POLICIES[kind].reason, POLICIES[kind].refuses) for kind in ErrorKind
    }


def test_every_reason_is_registered() -> None:
    assert {policy.reason for policy in POLICIES.values()} <= REASONS.keys()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RequestTimedOut("slow"), "Timeout"),
        (ConnectionFailed("reset"), "ConnectionRefused"),
        (ApiError(403, "Forbidden", 'x "a" is forbidden: User "u" cannot create x'), "Forbidden"),
        (ApiError(403, "Forbidden", "whatever an admission plugin says"), "InvalidSpec"),
        # A webhook and a policy quote what a user wrote: who denied counts, not what is quoted.
        *(
            (ApiError(403, "Forbidden", denied + quoted), "InvalidSpec")
            for denied in (
                'admission webhook "v.example.org" denied the request: ',
                *(
                    f"{what} is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
                    for what in ('workspaces.kaito.sh "a"', "workspaces.kaito.sh")
                ),
            )
            for quoted in (
                "x is forbidden: exceeded quota",
                "create not allowed while custom resource definition is terminating",
                'x is forbidden: User "u" cannot create y',
            )
        ),
        (ApiError(418), "DependenciesUnreachable"),
    ],
)
def test_a_failure_gets_its_reason(error: ApiError, reason: str) -> None:
    assert policy_of(error).reason == reason
