"""What the guards are made of: a policy with its binding, CEL rules for what a provider writes, and CEL notation. Pure.

The rules refuse what no translation ever writes: pods with access to the node, access from outside of the cluster,
rights for others. They do not rely on the owner reference, which the author of an object can set to any text.

CEL cannot walk an unknown tree, so the paths of pods are data of each kind (`UpstreamKind.pods`). The rules see the
object as it would be stored. A value of an unexpected type (a text instead of a list) is an error, for which the API
server refuses the request (``failurePolicy: Fail``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.artifacts.jobs import CA_FILE, CA_PATH, CA_VOLUME
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, LEASE
from airunway.plugins.contract import ProviderManifest, UpstreamKind
from airunway.resource import Resource
from airunway.sdk.deployments import tag_of

RBAC = "rbac.authorization.k8s.io"

_POD_TEMPLATE = ("spec.template.spec",)
_BUILTIN_PODS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): ("spec",),
    ("", "replicationcontrollers"): _POD_TEMPLATE,
    ("apps", "daemonsets"): _POD_TEMPLATE,
    ("apps", "deployments"): _POD_TEMPLATE,
    ("apps", "replicasets"): _POD_TEMPLATE,
    ("apps", "statefulsets"): _POD_TEMPLATE,
    ("batch", "cronjobs"): ("spec.jobTemplate.spec.template.spec",),
    ("batch", "jobs"): _POD_TEMPLATE,
}
"""Kubernetes' own kinds by group and plural, in case a manifest does not list the pod specs of one."""

_VOLUMES = (
    "configMap",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
"""Volume sources without access to the node, or to storage without a claim."""


def controlled_by(kind: str) -> str:
    """CEL: the owner reference `r` names an object of one of our kinds as the object's controller."""
    return f"r.kind == '{kind}' && r.apiVersion.startsWith('{names.GROUP}/') && r.?controller.orValue(false)"


BY_DEPLOYMENT = controlled_by(MODEL_DEPLOYMENT.kind)
"""CEL: the owner reference `r` names a ModelDeployment as the object's controller."""

IMAGES = "images"
"""The variable of the core's guards with the repositories of endpoint pickers, or of the model downloader."""

OWNER_NAMES = f"object.metadata.?ownerReferences.orValue([]).filter(r, {BY_DEPLOYMENT}).map(r, r.name)"
"""CEL: the names of the ModelDeployments in an object's owner references."""


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """One validation of a policy."""

    expression: str
    """CEL that must be true for a request."""
    message: str
    """The API server's message if it is false."""


VARIABLES = {
    "o": "dyn(object)",  # objects of several kinds have no fields in common for CEL's types
    "old": "dyn(oldObject)",
    "kind": "request.resource.group + '/' + request.resource.resource",
    "owners": OWNER_NAMES,
}
"""The variables that rules for contents have in common."""


def only_for(rules: Mapping[tuple[str, str], Sequence[PolicyRule]]) -> list[PolicyRule]:
    """Rules that hold for objects of one kind, which are given by group and plural."""
    return [
        PolicyRule(expression=f"variables.kind != {whose_kind(*kind)} || ({rule.expression})", message=rule.message)
        for kind, found in rules.items()
        for rule in found
    ]


def if_present(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Rules about the contents of an object, which hold for a deletion, too."""
    return [replace(rule, expression=f"object == null || ({rule.expression})") for rule in rules]


def contents(manifest: ProviderManifest) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules for the contents of the objects that a provider writes.

    Raises ValueError for a path that CEL cannot walk.
    """
    kinds = [kind for kind in manifest.upstream if kind.write]
    variables = {**VARIABLES, "pods": pods_of(kinds), "further": _sum(kinds, lambda kind: kind.containers)}
    written = {(kind.group, kind.plural) for kind in kinds}
    of_kinds = {kind: rules for kind, rules in _of_kinds(manifest).items() if kind in written}
    return variables, [*POD_RULES, *_unused(kinds), *only_for(of_kinds)]


def pods_of(kinds: Iterable[UpstreamKind]) -> str:
    """CEL: the pod specs in ``variables.o``, for any of the kinds; needs ``variables.kind``."""
    return _sum(kinds, places_of)


def places_of(kind: UpstreamKind) -> tuple[str, ...]:
    """The paths of pod specs in objects of the kind."""
    return tuple(sorted({*kind.pods, *_BUILTIN_PODS.get((kind.group, kind.plural), ())}))


def account_is_known(manifest: ProviderManifest, *, listed: str) -> PolicyRule:
    """Pods run as the namespace's default account, as one in the CEL list `listed`, or as one that the plan creates."""
    own = "".join(
        f" || variables.owners.exists(n, a.value() == {name_after(pattern)})" for pattern in manifest.accounts
    )
    return PolicyRule(
        expression="variables.pods.all(p, [p.?serviceAccountName, p.?serviceAccount].all(a, "
        f"a.orValue('') in ['', 'default'] || a.value() in {listed}{own}))",
        message="pods may only run as a service account that a ModelDeployment of the namespace names",
    )


# --------------------------------------------------------------------------------------------------------------- pods


def of_containers(test: str) -> str:
    """CEL: `test` is true of every container `c`."""
    lists = "[p.?containers, p.?initContainers, p.?ephemeralContainers]"
    return f"variables.pods.all(p, {lists}.all(l, l.orValue([]).all(c, {test}))) && variables.further.all(c, {test})"


POD_RULES = (
    PolicyRule(
        expression="variables.pods.all(p, [p.?hostNetwork, p.?hostPID, p.?hostIPC, "
        "p.?securityContext.?windowsOptions.?hostProcess].all(h, h.orValue(false) == false) && "
        "p.?securityContext.?sysctls.orValue([]) == [])",
        message="pods must not share the network, processes or memory of their node, or change its kernel's settings",
    ),
    PolicyRule(
        expression="variables.pods.all(p, p.?nodeName.orValue('') == '')",
        message="pods must not name the node that they run on: the scheduler chooses it",
    ),
    PolicyRule(
        expression="variables.pods.all(p, p.?volumes.orValue([]).all(v, v.all(k, k == 'name' || "
        f"k in [{', '.join(map(repr, _VOLUMES))}])))",
        message="pods must not mount the file system of their node, or storage past its claims: volumes are of "
        f"{', '.join(_VOLUMES)}",
    ),
    PolicyRule(
        expression=of_containers(
            "c.?securityContext.?privileged.orValue(false) == false && "
            "c.?securityContext.?allowPrivilegeEscalation.orValue(false) == false && "
            "c.?securityContext.?procMount.orValue('Default') == 'Default' && "
            "c.?securityContext.?windowsOptions.?hostProcess.orValue(false) == false && "
            "c.?securityContext.?capabilities.?add.orValue([]) == []"
        ),
        message="containers must not be privileged, gain privileges, or have capabilities added",
    ),
    PolicyRule(
        expression=of_containers(
            "c.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0 && port.?hostIP.orValue('') == '')"
        ),
        message="containers must not take ports of their node",
    ),
    PolicyRule(
        expression=of_containers(
            "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe, c.?lifecycle.?postStart, c.?lifecycle.?preStop]"
            ".all(t, t.?httpGet.?host.orValue('') == '' && t.?tcpSocket.?host.orValue('') == '')"
        ),
        message="probes must not name a host: the node itself would ask it",
    ),
)


TOKEN_RULES = (
    PolicyRule(
        expression="variables.pods.all(p, p.?automountServiceAccountToken.orValue(true) == false)",
        message="the pods of a Job hold no token of the API: automountServiceAccountToken is false",
    ),
    PolicyRule(
        expression="variables.pods.all(p, p.?hostAliases.orValue([]) == [] && !has(p.dnsConfig))",
        message="the pods of a Job resolve names as all pods do",
    ),
)
"""For Jobs of ours."""


def restricted_rules(user: int | None = None) -> tuple[PolicyRule, PolicyRule]:
    """Rules for Jobs of ours: their pods run as this user (None: as any but root), without capabilities."""
    is_user, default = (f"== {user}", user) if user is not None else ("> 0", 1)
    who = f"run as user {user}," if user is not None else "do not run as root, and"
    return (
        PolicyRule(
            expression="variables.pods.all(p, p.?securityContext.?runAsNonRoot.orValue(false) && "
            f"p.?securityContext.?runAsUser.orValue(0) {is_user} && "
            "p.?securityContext.?seccompProfile.?type.orValue('') == 'RuntimeDefault')",
            message=f"the pods of a Job {who} with the seccomp profile RuntimeDefault",
        ),
        PolicyRule(
            expression=of_containers(
                "c.?securityContext.?allowPrivilegeEscalation.orValue(true) == false && "
                "c.?securityContext.?readOnlyRootFilesystem.orValue(false) && "
                "c.?securityContext.?capabilities.?drop.orValue([]) == ['ALL'] && "
                "c.?securityContext.?runAsNonRoot.orValue(true) && "
                f"c.?securityContext.?runAsUser.orValue({default}) {is_user} && "
                "c.?securityContext.?seccompProfile.?type.orValue('RuntimeDefault') == 'RuntimeDefault'"
            ),
            message="the container of a Job has no capabilities and a read-only file system",
        ),
    )


# ---------------------------------------------------------------------------------------------------- what is by kind


def _of_kinds(manifest: ProviderManifest) -> dict[tuple[str, str], list[PolicyRule]]:
    accounts = ", ".join(map(name_after, manifest.accounts))
    granted = json.dumps(list(manifest.rbac_rules), sort_keys=True)  # CEL reads JSON
    own = PolicyRule(
        expression=f"variables.owners.exists(n, [{accounts}].exists(a, a == variables.o.metadata.name))",
        message="service accounts, their Roles and RoleBindings are called as those of this provider's plans are",
    )
    labels = ", ".join(quoted(label) for label in (names.MODEL_DEPLOYMENT, *manifest.pod_labels))
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
            PolicyRule(
                expression=f"[{labels}].exists(k, k in variables.o.spec.?podSelector.?matchLabels.orValue({{}}))",
                message="a provider's NetworkPolicies select pods of ModelDeployments only",
            )
        ],
    }


def services(who: str) -> list[PolicyRule]:
    """Services stay within the cluster. Changes of a Service by other accounts are accepted."""
    return [
        PolicyRule(
            expression=as_before("spec.?type", empty="'ClusterIP'"),
            message=f"{who}'s Services are of type ClusterIP: none opens a way from outside",
        ),
        PolicyRule(
            expression=" && ".join(
                as_before(f"spec.?{field}", empty=empty)
                for field, empty in (("externalIPs", "[]"), ("externalName", "''"), ("loadBalancerIP", "''"))
            ),
            message=f"{who}'s Services take no addresses from outside of the cluster",
        ),
    ]


_IDENTITY_LABELS = ("azure.workload.identity/", "eks.amazonaws.com/", "iam.gke.io/")
"""Prefixes of labels by which a cloud gives a service account an identity; other labels may be propagated ones."""


def service_accounts(who: str) -> list[PolicyRule]:
    """Service accounts have no Secrets and no identity of a cloud."""
    kept = "oldObject != null && variables.old.metadata.?{0}[?k].orValue('') == variables.o.metadata.{0}[k]"
    return [
        PolicyRule(
            expression=" && ".join(as_before(f"?{field}", empty="[]") for field in ("secrets", "imagePullSecrets")),
            message=f"{who} must not give a service account Secrets",
        ),
        PolicyRule(
            expression=f"variables.o.metadata.?labels.orValue({{}}).all(k, !{literals(_IDENTITY_LABELS)}"
            f".exists(p, k.startsWith(p)) || {kept.format('labels')}) && "
            f"variables.o.metadata.?annotations.orValue({{}}).all(k, k.startsWith('{names.GROUP}/') || "
            f"{kept.format('annotations')})",
            message=f"{who} must not label or annotate a service account so that a cloud gives it an identity: "
            "clouds give identities for it",
        ),
    ]


def subjects(who: str) -> PolicyRule:
    """RoleBindings are for the service account of their own name."""
    return PolicyRule(
        expression="variables.o.?subjects.orValue([]).all(s, s.kind == 'ServiceAccount' && "
        "s.name == variables.o.metadata.name && "
        "s.?namespace.orValue(variables.o.metadata.namespace) == variables.o.metadata.namespace)",
        message=f"{who}'s RoleBindings are for the service account of the same name and namespace",
    )


def as_before(path: str, *, empty: str) -> str:
    """CEL: the value at `path` (after a dot) is `empty` in a new object, and unchanged in an existing one."""
    before = f"(oldObject == null ? {empty} : variables.old.{path}.orValue({empty}))"
    return f"variables.o.{path}.orValue({empty}) == {before}"


def repository_of(image: str) -> str:
    """The image without its tag and digest."""
    name = image.partition("@")[0]
    tag = tag_of(image)
    return name.removesuffix(f":{tag}") if tag else name


def images_of(default: str, further: Sequence[str]) -> str:
    """CEL: the repositories of the image of this release and of further images, for the variable `IMAGES`."""
    return f"[{quoted(repository_of(default))}] + {quoted(','.join(further))}.split(',')"


def image_is_allowed() -> str:
    """CEL: the image of the container `c` is of one of the repositories in the variable `IMAGES`."""
    return (
        f"variables.{IMAGES}.exists(i, c.image == i || "
        "[':', '@'].exists(s, c.image.startsWith(i + s)) && !c.image.substring(size(i)).contains('/'))"
    )


def _unused(kinds: Sequence[UpstreamKind]) -> Iterator[PolicyRule]:
    for kind in kinds:
        for path in kind.unused:
            absent = _each("variables.o", _steps(path), lambda found: f"{found} == null")
            yield PolicyRule(
                expression=f"variables.kind != {whose_kind(kind.group, kind.plural)} || ({absent})",
                message=f"no translation writes {path} of a {kind.kind}",
            )


def name_after(pattern: str) -> str:
    """CEL: the name that `pattern` gives for the deployment `n`."""
    before, _, after = pattern.partition("{name}")
    return " + ".join(part for part in (before and quoted(before), "n", after and quoted(after)) if part)


# ------------------------------------------------------------------------------------------------------------- places


def whose_kind(group: str, plural: str) -> str:
    """The value of ``variables.kind`` for objects of that kind."""
    return quoted(f"{group}/{plural}")


def _sum(kinds: Iterable[UpstreamKind], places: Callable[[UpstreamKind], Sequence[str]]) -> str:
    """CEL: the list of the values at the paths of the object's kind."""
    found = [(whose_kind(kind.group, kind.plural), " + ".join(map(_list, sorted(places(kind))))) for kind in kinds]
    return " + ".join(f"(variables.kind == {kind} ? {there} : [])" for kind, there in found if there) or "[]"


def _list(path: str) -> str:
    """CEL: the values at a path, as a list; an empty map for each element without a value."""
    steps = _steps(path)
    several = [position for position, step in enumerate(steps) if step in _EVERY]
    if not several:
        return f"[{_chain('variables.o', steps)}.orValue({{}})]"
    if len(several) > 1 or several[0] == len(steps) - 1:
        raise ValueError(f"the place {path!r}: at most one of [*] and .* is possible, and not as the last step")
    position = several[0]
    before, after = steps[:position], steps[position + 1 :]
    found = _chain("variables.o", before)
    if steps[position] == _EACH:
        return f"{found}.orValue([]).map(e, {_chain('e', after)}.orValue({{}}))"
    value = f"{_plain('variables.o', before)}[k]"
    return f"{found}.orValue({{}}).map(k, {_chain(value, after)}.orValue({{}}))"


def _each(base: str, steps: Sequence[str], test: Callable[[str], str], depth: int = 0) -> str:
    """CEL: `test` is true of every value at a path."""
    several = next((position for position, step in enumerate(steps) if step in _EVERY), None)
    name = f"e{depth}"
    if several is None:
        return f"[?{_chain(base, steps)}].all({name}, {test(name)})"
    found, rest = _chain(base, steps[:several]), steps[several + 1 :]
    if steps[several] == _EACH:
        inner = _each(name, rest, test, depth + 1) if rest else test(name)
        return f"{found}.orValue([]).all({name}, {inner})"
    value = f"{_plain(base, steps[:several])}[{name}]"
    inner = _each(value, rest, test, depth + 1) if rest else test(value)
    return f"{found}.orValue({{}}).all({name}, {inner})"


_EACH, _ALL = "[*]", "*"
_EVERY = (_EACH, _ALL)


def _steps(path: str) -> list[str]:
    return path.replace("[*]", ".[*]").split(".")


def _chain(base: str, steps: Sequence[str]) -> str:
    return base + "".join(f".?{step}" for step in steps)


def _plain(base: str, steps: Sequence[str]) -> str:
    return base + "".join(f".{step}" for step in steps)


# ---------------------------------------------------------------------------------------------------------- notation


def quoted(text: str) -> str:
    """A text as a CEL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literals(texts: Iterable[str]) -> str:
    """A list of texts as a CEL literal."""
    return f"[{', '.join(map(quoted, texts))}]"


# ------------------------------------------------------------------------------------------------------------ policies


_VERSION = "admissionregistration.k8s.io/v1"

OWNERS = {
    "before": "oldObject == null ? [] : oldObject.metadata.?ownerReferences.orValue([])",
    "after": "object == null ? [] : object.metadata.?ownerReferences.orValue([])",
}
"""Variables with the owner references before and after; empty lists where there is no object."""

HELD = {"held": "oldObject == null ? [] : oldObject.metadata.?finalizers.orValue([])"}
"""The variable with the finalizers before."""


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


_WRITES = ("CREATE", "UPDATE", "DELETE")


def resource_rule(group: str, *resources: str, operations: Sequence[str] = _WRITES) -> Resource:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": list(resources)}


def resource_rules(kinds: Iterable[tuple[str, str]], *, operations: Sequence[str] = _WRITES) -> list[Resource]:
    """The resource rules of kinds, each by group and plural."""
    return [resource_rule(group, plural, operations=operations) for group, plural in kinds]


def own_records(name: str, condition: str, *managers: str) -> list[Resource]:
    """The policies and bindings by which an account writes events and Leases of these managers only."""
    own = literals(f"{names.GROUP}/{manager}" for manager in managers)
    of_events = PolicyRule(
        expression=f"[object, oldObject].all(o, o == null || o.?reportingController.orValue('') in {own})",
        message="a controller must not write events of another controller",
    )
    # RBAC cannot limit ``create`` to a name; it limits updates.
    of_leases = PolicyRule(
        expression=f"object.metadata.name in {literals(managers)}",
        message="a controller must not create the Lease of another",
    )
    events = resource_rule(EVENT.group, EVENT.plural, operations=("CREATE", "UPDATE"))
    leases = resource_rule(LEASE.group, LEASE.plural, operations=("CREATE",))
    return [
        *policy_and_binding(f"{name}-events", condition=condition, resources=[events], rules=[of_events]),
        *policy_and_binding(f"{name}-leases", condition=condition, resources=[leases], rules=[of_leases]),
    ]


def is_account(user: str) -> str:
    return f"request.userInfo.username == {quoted(user)}"


CA_BUNDLE_ONLY = (
    f"(!has(v.configMap) || v.name == {quoted(CA_VOLUME)} && v.configMap.?items.orValue([]).size() == 1 && "
    f"v.configMap.items[0].path == {quoted(CA_FILE.removeprefix(CA_PATH + '/'))})"
)
"""CEL: of ConfigMaps, the volume `v` of a Job has one file only: authorities that it trusts."""

CA_BUNDLE_MOUNTED = (
    f"(m.name == {quoted(CA_VOLUME)} ? m.mountPath == {quoted(CA_PATH)} && m.?readOnly.orValue(false) && "
    f"m.?subPath.orValue('') == '' : m.mountPath != {quoted(CA_PATH)})"
)
"""CEL: that file is mounted at its place, and nothing else is mounted there."""
