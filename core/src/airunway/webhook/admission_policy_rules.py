"""CEL rules for the objects that a provider writes. Pure.

All of it is what no translation ever writes, whatever the owner reference says: pods that reach the node, ways from
outside, rights for others. An owner reference is a text that its author chooses, and proves nothing.

CEL cannot walk a tree that it does not know, so the places of pods are data of each kind (`UpstreamKind.pods`). The
object is looked at as it would be stored, and a place with anything but what the test expects (a text for a list) is an
error, for which the API server refuses the request (``failurePolicy: Fail``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.plugins.contract import ProviderManifest, UpstreamKind
from airunway.resource import Resource

__all__ = [
    "BY_DEPLOYMENT",
    "OWNER_NAMES",
    "PolicyRule",
    "account_is_known",
    "contents",
    "literal",
    "literals",
    "places_of",
    "pods_of",
    "quoted",
    "whose_kind",
]

_RBAC = "rbac.authorization.k8s.io"

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
"""Kubernetes' own kinds by group and plural, so that a provider that forgets the places of one leaves no gap."""

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
"""Sources of volumes that reach neither the node nor a storage system past its claims."""

BY_DEPLOYMENT = (
    f"r.kind == '{MODEL_DEPLOYMENT.kind}' && r.apiVersion.startsWith('{names.GROUP}/') && r.?controller.orValue(false)"
)
"""Whether the owner reference `r` says that a ModelDeployment controls the object."""

OWNER_NAMES = f"object.metadata.?ownerReferences.orValue([]).filter(r, {BY_DEPLOYMENT}).map(r, r.name)"
"""The names of the ModelDeployments that an object says it belongs to."""


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """Something that must be true of a request; `message` is what the API server says otherwise."""

    expression: str
    message: str


def contents(manifest: ProviderManifest) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules about what is in the objects that a provider writes.

    Raises ValueError for a place that cannot be looked at.
    """
    kinds = [kind for kind in manifest.upstream if kind.write]
    variables = {
        "o": "dyn(object)",  # objects of several kinds: their types have no fields in common
        "old": "dyn(oldObject)",
        "kind": "request.resource.group + '/' + request.resource.resource",
        "owners": OWNER_NAMES,
        "pods": pods_of(kinds),
        "further": _sum(kinds, lambda kind: kind.containers),
    }
    rules = [*_PODS, *_unused(kinds)]
    written = {(kind.group, kind.plural) for kind in kinds}
    rules += [
        PolicyRule(
            expression=f"variables.kind != {whose_kind(group, plural)} || ({rule.expression})", message=rule.message
        )
        for (group, plural), found in _of_kinds(manifest).items()
        if (group, plural) in written
        for rule in found
    ]
    return variables, rules


def pods_of(kinds: Iterable[UpstreamKind]) -> str:
    """The pod specs in ``variables.o``, whichever of the kinds it is of; needs ``variables.kind``."""
    return _sum(kinds, places_of)


def places_of(kind: UpstreamKind) -> tuple[str, ...]:
    """The places of pod specs in objects of the kind."""
    return tuple(sorted({*kind.pods, *_BUILTIN_PODS.get((kind.group, kind.plural), ())}))


def account_is_known(manifest: ProviderManifest, *, listed: str) -> PolicyRule:
    """Pods run as the namespace's default account, as one that is in the CEL list `listed`, or as the plan's own."""
    own = "".join(f" || variables.owners.exists(n, a.value() == {_named(pattern)})" for pattern in manifest.accounts)
    return PolicyRule(
        expression="variables.pods.all(p, [p.?serviceAccountName, p.?serviceAccount].all(a, "
        f"a.orValue('') in ['', 'default'] || a.value() in {listed}{own}))",
        message="pods may only run as a service account that a ModelDeployment of the namespace names",
    )


# --------------------------------------------------------------------------------------------------------------- pods


def _containers(test: str) -> str:
    """That `test` is true of every container `c`."""
    lists = "[p.?containers, p.?initContainers, p.?ephemeralContainers]"
    return f"variables.pods.all(p, {lists}.all(l, l.orValue([]).all(c, {test}))) && variables.further.all(c, {test})"


_PODS = (
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
        expression=_containers(
            "c.?securityContext.?privileged.orValue(false) == false && "
            "c.?securityContext.?allowPrivilegeEscalation.orValue(false) == false && "
            "c.?securityContext.?procMount.orValue('Default') == 'Default' && "
            "c.?securityContext.?windowsOptions.?hostProcess.orValue(false) == false && "
            "c.?securityContext.?capabilities.?add.orValue([]) == []"
        ),
        message="containers must not be privileged, gain privileges, or have capabilities added",
    ),
    PolicyRule(
        expression=_containers(
            "c.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0 && port.?hostIP.orValue('') == '')"
        ),
        message="containers must not take ports of their node",
    ),
    PolicyRule(
        expression=_containers(
            "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe, c.?lifecycle.?postStart, c.?lifecycle.?preStop]"
            ".all(t, t.?httpGet.?host.orValue('') == '' && t.?tcpSocket.?host.orValue('') == '')"
        ),
        message="probes must not name a host: the node itself would ask it",
    ),
)


# ---------------------------------------------------------------------------------------------------- what is by kind


def _of_kinds(manifest: ProviderManifest) -> dict[tuple[str, str], list[PolicyRule]]:
    named = f"variables.owners.exists(n, [{', '.join(map(_named, manifest.accounts))}].exists(a, a == %s))"
    own = PolicyRule(
        expression=named % "variables.o.metadata.name",
        message="service accounts, their Roles and RoleBindings are called as those of this provider's plans are",
    )
    labels = ", ".join(quoted(label) for label in (names.MODEL_DEPLOYMENT, *manifest.pod_labels))
    return {
        ("", "services"): [
            # What somebody else has made of a Service stays as it is.
            PolicyRule(
                expression=_as_before("spec.?type", empty="'ClusterIP'"),
                message="a provider's Services are of type ClusterIP: none opens a way from outside",
            ),
            PolicyRule(
                expression=" && ".join(
                    _as_before(f"spec.?{field}", empty=empty)
                    for field, empty in (("externalIPs", "[]"), ("externalName", "''"), ("loadBalancerIP", "''"))
                ),
                message="a provider's Services take no addresses from outside of the cluster",
            ),
        ],
        ("", "serviceaccounts"): [
            own,
            PolicyRule(
                expression=" && ".join(
                    _as_before(f"?{field}", empty="[]") for field in ("secrets", "imagePullSecrets")
                ),
                message="a provider must not give a service account Secrets",
            ),
            PolicyRule(
                expression=" && ".join(
                    f"variables.o.metadata.?{field}.orValue({{}}).all(k, k.startsWith('{names.GROUP}/') || "
                    f"oldObject != null && variables.old.metadata.?{field}[?k].orValue('') == "
                    f"variables.o.metadata.{field}[k])"
                    for field in ("labels", "annotations")
                ),
                message="a provider must not label or annotate a service account: clouds give identities for it",
            ),
        ],
        (_RBAC, "roles"): [
            own,
            PolicyRule(
                expression=f"variables.o.?rules.orValue([]).all(r, r in {literal(list(manifest.rbac_rules))})",
                message="a provider's Roles grant the rules of its manifest and nothing else",
            ),
        ],
        (_RBAC, "rolebindings"): [
            own,
            PolicyRule(
                expression="variables.o.roleRef.kind == 'Role' && "
                "variables.o.roleRef.name == variables.o.metadata.name",
                message="a provider's RoleBindings refer to the Role of the same name",
            ),
            PolicyRule(
                expression="variables.o.?subjects.orValue([]).all(s, s.kind == 'ServiceAccount' && "
                "s.name == variables.o.metadata.name && "
                "s.?namespace.orValue(variables.o.metadata.namespace) == variables.o.metadata.namespace)",
                message="a provider's RoleBindings are for the service account of the same name and namespace",
            ),
        ],
        ("networking.k8s.io", "networkpolicies"): [
            PolicyRule(
                expression=f"[{labels}].exists(k, k in variables.o.spec.?podSelector.?matchLabels.orValue({{}}))",
                message="a provider's NetworkPolicies select pods of ModelDeployments only",
            )
        ],
    }


def _as_before(path: str, *, empty: str) -> str:
    """That what stands at `path` (after a dot) is `empty` in a new object, and unchanged in an older one."""
    before = f"(oldObject == null ? {empty} : variables.old.{path}.orValue({empty}))"
    return f"variables.o.{path}.orValue({empty}) == {before}"


def _unused(kinds: Sequence[UpstreamKind]) -> Iterator[PolicyRule]:
    for kind in kinds:
        for path in kind.unused:
            absent = _each("variables.o", _steps(path), lambda found: f"{found} == null")
            yield PolicyRule(
                expression=f"variables.kind != {whose_kind(kind.group, kind.plural)} || ({absent})",
                message=f"no translation writes {path} of a {kind.kind}",
            )


def _named(pattern: str) -> str:
    """The name that `pattern` gives for the deployment `n`."""
    before, _, after = pattern.partition("{name}")
    return " + ".join(part for part in (before and quoted(before), "n", after and quoted(after)) if part)


# ------------------------------------------------------------------------------------------------------------- places


def whose_kind(group: str, plural: str) -> str:
    """What ``variables.kind`` is for objects of that kind."""
    return quoted(f"{group}/{plural}")


def _sum(kinds: Iterable[UpstreamKind], places: Callable[[UpstreamKind], Sequence[str]]) -> str:
    """The list of what stands at the places of the object's kind."""
    found = [(whose_kind(kind.group, kind.plural), " + ".join(map(_list, sorted(places(kind))))) for kind in kinds]
    return " + ".join(f"(variables.kind == {kind} ? {there} : [])" for kind, there in found if there) or "[]"


def _list(path: str) -> str:
    """What stands at a place, as a list; an empty map where an element of a list or map has nothing there."""
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
    """That `test` is true of whatever stands at a place."""
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
    """A text in CEL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literals(texts: Iterable[str]) -> str:
    """A list of texts in CEL."""
    return f"[{', '.join(map(quoted, texts))}]"


def literal(value: list[Resource]) -> str:
    """Rules of a Role in CEL, which reads JSON."""
    return json.dumps(value, sort_keys=True)
