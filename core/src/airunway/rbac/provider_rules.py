"""CEL rules for what a provider's account writes. Pure.

They refuse what no translation ever writes: pods with access to the node, access from outside of the cluster, rights
for others (`pod_rules` has those for pods).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from airunway.api import names
from airunway.plugins.contract import ProviderManifest, UpstreamKind
from airunway.plugins.host import SCALED_OBJECT
from airunway.rbac.pod_rules import (
    KUEUE_ANNOTATIONS,
    POD_RULES,
    PROBES,
    REPLICAS,
    annotation_rule,
    pod_variables,
    scheduling_rules,
)
from airunway.rbac.policy_rules import (
    RBAC,
    VARIABLES,
    PolicyRule,
    absent_at,
    literals,
    name_after,
    only_for,
    service_accounts,
    services,
    subjects,
    whose_kind,
)


def contents(manifest: ProviderManifest) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules for the contents of the objects that a provider writes.

    Raises ValueError for a path that CEL cannot walk.
    """
    kinds = [kind for kind in manifest.upstream if kind.write]
    found = pod_variables(kinds)
    variables = {**VARIABLES, **{name: found[name] for name in ("pods", "olds", "further", "probes", "counts")}}
    written = {(kind.group, kind.plural) for kind in kinds}
    of_kinds = {kind: rules for kind, rules in _of_kinds(manifest).items() if kind in written}
    return variables, [*POD_RULES, PROBES, REPLICAS, *_unused(kinds), *only_for(of_kinds)]


def uses(manifest: ProviderManifest, *, noted: str) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules for what only some deployments may use, which the CEL list `noted` has."""
    found = pod_variables([kind for kind in manifest.upstream if kind.write])
    variables = {name: found[name] for name in ("pods", "olds", "further", "marks", "oldMarks")}
    rules = [
        _account_is_known(manifest, listed=noted),
        *scheduling_rules(noted),
        annotation_rule((*manifest.annotations, *KUEUE_ANNOTATIONS), noted=noted),
    ]
    return variables, rules


def _account_is_known(manifest: ProviderManifest, *, listed: str) -> PolicyRule:
    """Pods run as the namespace's default account, as one in the CEL list `listed`, or as one that the plan creates."""
    own = "".join(
        f" || variables.owners.exists(n, a.value() == {name_after(pattern)})" for pattern in manifest.accounts
    )
    return PolicyRule(
        expression="variables.pods.all(p, [p.?serviceAccountName, p.?serviceAccount].all(a, "
        f"a.orValue('') in ['', 'default'] || a.value() in {listed}{own}))",
        message="pods may only run as a service account that a ModelDeployment of the namespace names",
    )


# ---------------------------------------------------------------------------------------------------- what is by kind


_DEVICES = PolicyRule(
    expression="variables.o.spec.?metadata.orValue({}) == {} && variables.o.spec.spec.all(k, k == 'devices') && "
    "variables.o.spec.spec.devices.all(k, k == 'requests') && "
    "variables.o.spec.spec.devices.requests.all(r, r.all(k, k in ['name', 'exactly']) && "
    "r.exactly.all(k, k in ['deviceClassName', 'count', 'allocationMode']) && "
    "r.exactly.?allocationMode.orValue('ExactCount') == 'ExactCount')",
    message="a provider's ResourceClaimTemplates ask for a number of devices of a class and nothing else: no access as "
    "administrator, no configuration of drivers, no toleration of taints of devices, not all devices of a node",
)


_SCALED_OBJECTS = (
    PolicyRule(
        expression="variables.o.spec.scaleTargetRef.?kind.orValue('') == 'ModelDeployment' && "
        f"variables.o.spec.scaleTargetRef.?apiVersion.orValue('').startsWith('{names.GROUP}/') && "
        "variables.owners.exists(n, n == variables.o.spec.scaleTargetRef.name)",
        message="a provider's ScaledObjects scale the ModelDeployment that they belong to and nothing else",
    ),
    PolicyRule(
        expression="variables.o.spec.triggers.all(t, t.type in ['prometheus', 'cpu', 'memory'] && "
        "t.?authenticationRef.orValue({}).all(k, k in ['kind', 'name']))",
        message="a provider's ScaledObjects ask a Prometheus or measure CPU and memory: no trigger reads what others "
        "have, or with credentials of another namespace",
    ),
    PolicyRule(
        expression="!variables.o.spec.?advanced.?scalingModifiers.?formula.hasValue()",
        message="a provider's ScaledObjects have no formula: KEDA computes by the trigger alone",
    ),
)
"""KEDA acts with rights of its own: it may scale anything, and asks any URL."""


def _of_kinds(manifest: ProviderManifest) -> dict[tuple[str, str], list[PolicyRule]]:
    accounts = ", ".join(map(name_after, manifest.accounts))
    granted = json.dumps(list(manifest.rbac_rules), sort_keys=True)  # CEL reads JSON
    own = PolicyRule(
        expression=f"variables.owners.exists(n, [{accounts}].exists(a, a == variables.o.metadata.name))",
        message="service accounts, their Roles and RoleBindings are called as those of this provider's plans are",
    )
    return {
        ("", "services"): services("a provider"),
        ("", "serviceaccounts"): [own, *service_accounts("a provider")],
        (RBAC, "roles"): [
            own,
            PolicyRule(
                expression=f"variables.o.?rules.orValue([]).all(r, r in {granted})",
                message="a provider's Roles grant the rules of its manifest and nothing else",
            ),
        ],
        (RBAC, "rolebindings"): [
            own,
            PolicyRule(
                expression="variables.o.roleRef.kind == 'Role' && "
                "variables.o.roleRef.name == variables.o.metadata.name",
                message="a provider's RoleBindings refer to the Role of the same name",
            ),
            subjects("a provider"),
        ],
        ("networking.k8s.io", "networkpolicies"): [
            _own_pods(manifest),
        ],
        ("resource.k8s.io", "resourceclaimtemplates"): [_DEVICES],
        (SCALED_OBJECT.group, SCALED_OBJECT.plural): [*_SCALED_OBJECTS],
    }


def _unused(kinds: Sequence[UpstreamKind]) -> Iterator[PolicyRule]:
    for kind in kinds:
        for path in kind.unused:
            yield PolicyRule(
                expression=f"variables.kind != {whose_kind(kind.group, kind.plural)} || ({absent_at(path)})",
                message=f"no translation writes {path} of a {kind.kind}",
            )


def _own_pods(manifest: ProviderManifest) -> PolicyRule:
    """A NetworkPolicy that selects pods of another deployment opens them to everyone whom it names.

    The name of the deployment is in the owner reference, which a thief can forge. So a label that only the upstream
    sets is needed too, where there is one.
    """
    keys = literals((names.MODEL_DEPLOYMENT, *manifest.pod_labels))
    upstream = [prefix for prefix in manifest.reserved_labels if prefix.endswith("/")]
    marked = f" && m.exists(k, {literals(upstream)}.exists(p, k.startsWith(p)))" if upstream else ""
    return PolicyRule(
        expression="[variables.o.spec.?podSelector.?matchLabels.orValue({})].all(m, "
        f"m.exists(k, k in {keys} && m[k] in variables.owners){marked})",
        message="a provider's NetworkPolicies select pods of its own ModelDeployment only",
    )
