"""Every kind of error has a meaning, and the page for readers has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airunway.kube import ApiError, ConnectionFailed, ErrorKind, RequestTimedOut
from airunway.owned.writer import POLICIES, policy_of
from airunway.status.reasons import REASONS
from airunway.status.texts import CREATION, first_meaning

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
        (ApiError(418), "WriteFailed"),
    ],
)
def test_a_failure_gets_its_reason(error: ApiError, reason: str) -> None:
    assert policy_of(error).reason == reason


@pytest.mark.parametrize(
    "message",
    [
        'pods "a" is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"',
        'pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can\'t '
        "set finalizers on: , <nil>",
        'roles.rbac.authorization.k8s.io "a" is forbidden: user "u" (groups=["g"]) is attempting to grant RBAC '
        'permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',
        'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
        'pods "a" is forbidden: failed quota: q: must specify limits.cpu for: main',
        'pods "a" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
        "create not allowed while custom resource definition is terminating",
    ],
)
def test_a_refusal_has_one_reason_whether_we_or_an_upstream_sent_the_request(message: str) -> None:
    found = first_meaning(message, CREATION)
    assert found is not None
    assert policy_of(ApiError(403, "Forbidden", message)).reason == found[0].reason
