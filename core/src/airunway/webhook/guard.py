"""Keeping provider accounts from changing specs (spec/quality.md, "Security"): data, for charts and tests.

A provider holds a finalizer on its deployments, for which RBAC has no smaller right than ``patch`` on the whole object.
A ValidatingAdmissionPolicy, which the API server evaluates by itself, takes back what the provider has no use for.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.resource import Resource

__all__ = ["GUARD", "provider_guard"]

GUARD = "airunway-provider-guard"
_VERSION = "admissionregistration.k8s.io/v1"


def provider_guard(users: Sequence[str], *, name: str = GUARD) -> list[Resource]:
    """A policy and its binding: these users change no spec, label or annotation of a ModelDeployment.

    `users` are names as the API server knows them: ``system:serviceaccount:NAMESPACE:NAME`` for an account.
    """
    accounts = ", ".join(_quoted(user) for user in sorted(set(users)))
    policy: Resource = {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [names.GROUP],
                        "apiVersions": [names.VERSION],
                        "operations": ["UPDATE"],
                        "resources": [MODEL_DEPLOYMENT.plural],
                    }
                ]
            },
            "matchConditions": [
                {"name": "by-a-controller", "expression": f"request.userInfo.username in [{accounts}]"}
            ],
            "validations": [
                {
                    "expression": "object.spec == oldObject.spec",
                    "message": "a controller must not change the spec of a deployment: it is its user's",
                    "reason": "Forbidden",
                },
                *(_unchanged_metadata(field) for field in ("labels", "annotations")),
            ],
        },
    }
    binding: Resource = {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _unchanged_metadata(field: str) -> Resource:
    new, old = f"object.metadata.?{field}", f"oldObject.metadata.?{field}"
    return {
        "expression": f"{new}.orValue({{}}) == {old}.orValue({{}})",
        "message": f"a controller must not change the {field} of a deployment: they are its user's",
        "reason": "Forbidden",
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
