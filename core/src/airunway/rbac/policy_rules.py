"""What the guards are made of: a policy with its binding, rules for Services and accounts, and CEL notation. Pure.

The rules see the object as it would be stored. A value of an unexpected type (a text instead of a list) is an error,
for which the API server refuses the request (``failurePolicy: Fail``). Rules for pods are in `pod_rules`, those for
what a provider or a part writes in `provider_rules` and `part_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.artifacts.jobs import CA_FILE, CA_PATH, CA_VOLUME
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, LEASE
from airunway.plugins.contract import UpstreamKind
from airunway.resource import Resource
from airunway.sdk.deployments import tag_of

RBAC = "rbac.authorization.k8s.io"


def controlled_by(kind: str) -> str:
    """CEL: the owner reference `r` names an object of one of our kinds as the object's controller."""
    return f"r.kind == '{kind}' && r.apiVersion.startsWith('{names.GROUP}/') && r.?controller.orValue(false)"


BY_DEPLOYMENT = controlled_by(MODEL_DEPLOYMENT.kind)
"""CEL: the owner reference `r` names a ModelDeployment as the object's controller."""

IMAGES = "images"
"""The variable of the core's guards with the repositories of endpoint pickers, or of the model downloader."""

OPT_IN = "optIn"
"""The variable of the model cache's guard that says in which namespaces Jobs run: ``Labelled``, or ``All``."""

FURTHER_NAMES = "furtherNames"
"""The variable of the catalogue's guard with further names of variables of discovery Jobs."""

CHOSEN = (IMAGES, OPT_IN, FURTHER_NAMES)
"""Variables of guards that values of charts fill in."""

OWNER_NAMES = f"object.metadata.?ownerReferences.orValue([]).filter(r, {BY_DEPLOYMENT}).map(r, r.name)"
"""CEL: the names of the ModelDeployments in an object's owner references."""


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """One validation of a policy."""

    expression: str
    """CEL that must be true for a request."""
    message: str
    """The API server's message if it is false."""
    told: str = ""
    """CEL that gives the message, where it has a name out of the request."""


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
        replace(rule, expression=f"variables.kind != {whose_kind(*kind)} || ({rule.expression})")
        for kind, found in rules.items()
        for rule in found
    ]


def if_present(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Rules about the contents of an object, which hold for a deletion, too."""
    return [replace(rule, expression=f"object == null || ({rule.expression})") for rule in rules]


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


def name_after(pattern: str) -> str:
    """CEL: the name that `pattern` gives for the deployment `n`."""
    before, _, after = pattern.partition("{name}")
    return " + ".join(part for part in (before and quoted(before), "n", after and quoted(after)) if part)


# ------------------------------------------------------------------------------------------------------------- places


def whose_kind(group: str, plural: str) -> str:
    """The value of ``variables.kind`` for objects of that kind."""
    return quoted(f"{group}/{plural}")


def sum_of(
    kinds: Iterable[UpstreamKind], places: Callable[[UpstreamKind], Sequence[str]], *, base: str = "variables.o"
) -> str:
    """CEL: the list of the values at the paths of the object's kind, in `base`; needs ``variables.kind``."""
    found = [
        (whose_kind(kind.group, kind.plural), " + ".join(_list(path, base) for path in sorted(places(kind))))
        for kind in kinds
    ]
    return " + ".join(f"(variables.kind == {kind} ? {there} : [])" for kind, there in found if there) or "[]"


def _list(path: str, base: str) -> str:
    """CEL: the values at a path, as a list; an empty map for each element without a value."""
    steps = _steps(path)
    several = [position for position, step in enumerate(steps) if step in _EVERY]
    if not several:
        return f"[{_chain(base, steps)}.orValue({{}})]"
    if len(several) > 1 or several[0] == len(steps) - 1:
        raise ValueError(f"the place {path!r}: at most one of [*] and .* is possible, and not as the last step")
    position = several[0]
    before, after = steps[:position], steps[position + 1 :]
    found = _chain(base, before)
    if steps[position] == _EACH:
        return f"{found}.orValue([]).map(e, {_chain('e', after)}.orValue({{}}))"
    value = f"{_plain(base, before)}[k]"
    return f"{found}.orValue({{}}).map(k, {_chain(value, after)}.orValue({{}}))"


def absent_at(path: str) -> str:
    """CEL: there is no value at the path of the object."""
    return _each("variables.o", _steps(path), lambda found: f"{found} == null")


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
        {
            "expression": rule.expression,
            "message": rule.message,
            **({"messageExpression": rule.told} if rule.told else {}),
            "reason": "Forbidden",
        }
        for rule in rules
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
