"""What the guards have in common: a policy with its binding, and rules for events, Leases, places and finalizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airunway.api import names
from airunway.kube import EVENT, LEASE
from airunway.rbac.policy_rules import PolicyRule, literals, quoted
from airunway.resource import Resource

__all__ = [
    "EVENTS",
    "LEASES",
    "OWNERS",
    "is_account",
    "keeps_finalizers",
    "own_events",
    "own_lease",
    "policy_and_binding",
    "resource_rule",
    "resource_rules",
    "whereabouts",
]

_VERSION = "admissionregistration.k8s.io/v1"

OWNERS = {
    "before": "oldObject == null ? [] : oldObject.metadata.?ownerReferences.orValue([])",
    "after": "object == null ? [] : object.metadata.?ownerReferences.orValue([])",
}
"""Variables with the owner references before and after; empty lists where there is no object."""


def keeps_finalizers(who: str, *admitted: str) -> PolicyRule:
    """An object keeps the finalizers that it had; the API server may add the `admitted` ones."""
    known = f"f in variables.held || f in {literals(admitted)}" if admitted else "f in variables.held"
    return PolicyRule(
        expression="object == null || [object.metadata.?finalizers.orValue([])].all(a, "
        f"a.all(f, {known}) && variables.held.all(f, f in a))",
        message=f"{who} must not change the finalizers of the objects that it writes",
    )


def whereabouts(
    refused: Sequence[str], listed: Iterable[str], *, who: str = "a provider", home: str = ""
) -> list[PolicyRule]:
    """Controllers must not write into namespaces of the system, of the operator (`refused`), or that they do not watch:
    `listed` are those that they do (empty: all), and `home` is one besides.
    """
    watched = quoted(",".join(listed))
    known = f"[{quoted(home)}] + {watched}.split(',')" if home else f"{watched}.split(',')"
    operators = PolicyRule(
        expression=f"!(request.namespace in {literals(refused)})",
        message=f"{who} must not write into the namespace of the operator: deploy models in another",
    )
    return [
        PolicyRule(
            expression="!request.namespace.startsWith('kube-')",
            message=f"{who} must not write into namespaces of the system (kube-*)",
        ),
        *([operators] if refused else []),
        PolicyRule(
            expression=f"{watched} == '' || request.namespace in {known}",
            message=f"{who} must not write into a namespace that it does not watch",
        ),
    ]


def own_events(*managers: str) -> PolicyRule:
    own = literals(f"{names.GROUP}/{manager}" for manager in managers)
    return PolicyRule(
        expression=f"[object, oldObject].all(o, o == null || o.?reportingController.orValue('') in {own})",
        message="a controller must not write events of another controller",
    )


def own_lease(*managers: str) -> PolicyRule:
    # RBAC cannot limit ``create`` to a name; it limits updates.
    return PolicyRule(
        expression=f"object.metadata.name in {literals(managers)}",
        message="a controller must not create the Lease of another",
    )


def policy_and_binding(
    name: str,
    *,
    condition: str,
    resources: Sequence[Resource],
    rules: Sequence[PolicyRule],
    variables: Mapping[str, str] | None = None,
    namespaces: Sequence[str] = (),
) -> list[Resource]:
    """A policy and its binding. The match condition on the account skips the requests of other accounts."""
    spec: Resource = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": list(resources)},
        "matchConditions": [{"name": "account", "expression": condition}],
    }
    if variables:
        spec["variables"] = [{"name": key, "expression": text} for key, text in variables.items()]
    spec["validations"] = [
        {"expression": rule.expression, "message": rule.message, "reason": "Forbidden"} for rule in rules
    ]
    bound: Resource = {"policyName": name, "validationActions": ["Deny"]}
    if namespaces:
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(set(namespaces))}
        bound["matchResources"] = {"namespaceSelector": {"matchExpressions": [named]}}
    return [
        {
            "apiVersion": _VERSION,
            "kind": f"ValidatingAdmissionPolicy{suffix}",
            "metadata": {"name": name},
            "spec": content,
        }
        for suffix, content in (("", spec), ("Binding", bound))
    ]


def resource_rule(group: str, *resources: str, operations: Sequence[str]) -> Resource:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": list(resources)}


def resource_rules(kinds: Iterable[tuple[str, str]], *, operations: Sequence[str]) -> list[Resource]:
    """The resource rules of kinds, each by group and plural."""
    return [resource_rule(group, plural, operations=operations) for group, plural in kinds]


EVENTS = resource_rule(EVENT.group, EVENT.plural, operations=("CREATE", "UPDATE"))
LEASES = resource_rule(LEASE.group, LEASE.plural, operations=("CREATE",))


def is_account(user: str) -> str:
    return f"request.userInfo.username == {quoted(user)}"
