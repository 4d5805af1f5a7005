"""CEL rules for pods that our accounts write, wherever an object carries them. Pure.

The rules are an allow-list: what translations write, what the API server adds to it, and what a user may set. That is
narrower than the Pod Security Standard ``baseline``. They do not rely on the owner reference, which the author of an
object can set to any text. Example: ``tolerations: [{operator: Exists}]`` is refused unless an accepted ModelDeployment
of the namespace has it, which the core notes for the guards (`airunway.controller.guarded`).

CEL cannot walk an unknown tree, so the paths of pods are data of each kind (`UpstreamKind.pods`). What another account
has put into an existing object stays: a value that was there before is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airunway.api import names
from airunway.plugins.contract import UpstreamKind
from airunway.rbac.policy_rules import PolicyRule, literals, quoted, sum_of
from airunway.validation.uses import DIMENSIONS, note_of

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


_POD_FIELDS = (
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "imagePullSecrets",
    "initContainers",
    "mainContainer",  # Dynamo's name for the first container
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
"""Fields of a pod spec that translations write, that the API server adds, or that a user may set. Some have rules of
their own; others, such as ``priority`` and ``ephemeralContainers``, have no business in a template of ours."""

_CONTAINER_FIELDS = (
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "resources",
    "restartPolicy",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
)
"""The same for containers."""

_SECURITY_FIELDS = (
    "allowPrivilegeEscalation",
    "appArmorProfile",
    "capabilities",
    "fsGroup",
    "fsGroupChangePolicy",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "sysctls",
    "windowsOptions",
)
"""The same for the security contexts of both."""

MOST_REPLICAS = 1000
"""Pods of one kind that an object may ask for. More is no model server, and fills a cluster."""


def places_of(kind: UpstreamKind) -> tuple[str, ...]:
    """The paths of pod specs in objects of the kind."""
    return tuple(sorted({*kind.pods, *_BUILTIN_PODS.get((kind.group, kind.plural), ())}))


def pod_variables(kinds: Sequence[UpstreamKind]) -> dict[str, str]:
    """Variables with what the rules here look at, for objects of these kinds and for what they were before."""
    marks = {base: sum_of(kinds, marks_of, base=base) for base in ("variables.o", "variables.old")}
    return {
        "pods": sum_of(kinds, places_of),
        "olds": f"oldObject == null ? [] : ({sum_of(kinds, places_of, base='variables.old')})",
        "further": sum_of(kinds, lambda kind: kind.containers),
        "probes": sum_of(kinds, lambda kind: kind.probes),
        "counts": sum_of(kinds, lambda kind: kind.replicas),
        "marks": f"[variables.o.metadata.?annotations.orValue({{}})] + {marks['variables.o']}",
        "oldMarks": "oldObject == null ? [] : [variables.old.metadata.?annotations.orValue({})] + "
        f"{marks['variables.old']}",
    }


def marks_of(kind: UpstreamKind) -> tuple[str, ...]:
    """Paths of annotations in objects of the kind: beside its pod specs, and those that the kind names."""
    beside = (path.removesuffix(".spec") for path in places_of(kind) if path.endswith(".spec"))
    return tuple(sorted({*(f"{path}.metadata.annotations" for path in beside), *kind.annotations}))


# --------------------------------------------------------------------------------------------------------- every pod


def of_containers(test: str) -> str:
    """CEL: `test` is true of every container `c`."""
    lists = "[p.?containers, p.?initContainers, p.?ephemeralContainers]"
    return f"variables.pods.all(p, {lists}.all(l, l.orValue([]).all(c, {test}))) && variables.further.all(c, {test})"


_PROFILES = "['', 'RuntimeDefault']"


def _secure(whose: str) -> str:
    """CEL: the security context of `whose` names no label, profile or field that loosens the runtime's defaults."""
    return (
        f"[{whose}.?securityContext].all(s, s.orValue({{}}).all(k, k in {literals(_SECURITY_FIELDS)}) && "
        "s.?seLinuxOptions.orValue({}) == {} && "
        f"s.?seccompProfile.?type.orValue('') in {_PROFILES} && s.?appArmorProfile.?type.orValue('') in {_PROFILES})"
    )


def before(path: str, *, empty: str) -> str:
    """CEL: a pod of the object as it was has the same value at `path` as the pod `p`."""
    return f"variables.olds.exists(q, q.{path}.orValue({empty}) == p.{path}.orValue({empty}))"


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
            "c.?securityContext.?windowsOptions.?hostProcess.orValue(false) == false"
        ),
        message="containers must not be privileged or gain privileges",
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
    PolicyRule(
        expression=f"variables.pods.all(p, {_secure('p')} || {before('?securityContext', empty='{}')})",
        message="pods must not choose SELinux labels, or a seccomp or AppArmor profile but RuntimeDefault",
    ),
    PolicyRule(
        expression=of_containers(_secure("c")),
        message="containers must not choose SELinux labels, or a seccomp or AppArmor profile but RuntimeDefault",
    ),
    PolicyRule(
        expression=f"variables.pods.all(p, p.all(k, k in {literals(_POD_FIELDS)} || "
        "variables.olds.exists(q, k in q && q[k] == p[k])))",
        message="pods have only fields that translations write or users may set",
    ),
    PolicyRule(
        expression="variables.pods.all(p, [p.?containers, p.?initContainers].all(l, l.orValue([]).all(c, "
        f"c.all(k, k in {literals(_CONTAINER_FIELDS)}))))",
        message="containers have only fields that translations write or users may set",
    ),
)
"""For every object of ours with pods."""


def scheduling_rules(noted: str = "[]") -> tuple[PolicyRule, ...]:
    """What pods ask of scheduler and kernel, within what users may ask without a policy, or what is in `noted` (CEL).

    `noted` has what accepted deployments use beyond that (`airunway.validation.uses.note_of`). The patterns are those
    of the policy (`DIMENSIONS`).
    """

    def may(dimension: str, value: str) -> str:
        return f"(!({_refused(dimension, value)}) || {quoted(note_of(dimension, ''))} + {value} in {noted})"

    node = may("nodeSelectorKeys", "k")
    of_nodes = f"x.?matchExpressions.orValue([]).all(e, e.operator == 'DoesNotExist' || [e.key].all(k, {node}))"
    every = quoted(note_of("affinityNamespaces", "*"))
    own = (
        f"(!has(t.namespaceSelector) || {every} in {noted}) && t.?namespaces.orValue([]).all(n, "
        f"n == request.namespace || {every} in {noted} || {quoted(note_of('affinityNamespaces', ''))} + n in {noted})"
    )
    terms = "DuringSchedulingIgnoredDuringExecution"
    unless = "unless an accepted ModelDeployment of the namespace does"
    return (
        PolicyRule(
            expression=f"variables.pods.all(p, [p.?priorityClassName.orValue('')].all(k, "
            f"{may('priorityClasses', 'k')}) || {before('?priorityClassName', empty=quoted(''))})",
            message=f"pods must not take a priority class of the system (system-*), {unless}",
        ),
        PolicyRule(
            expression=f"variables.pods.all(p, p.?tolerations.orValue([]).all(t, [t.?key.orValue('')].all(x, "
            f"[x == '' ? '*' : x].all(k, {may('tolerations', 'k')}))) || {before('?tolerations', empty='[]')})",
            message="pods must not tolerate every taint, or those of the control plane and of the cluster's add-ons, "
            + unless,
        ),
        PolicyRule(
            expression=f"variables.pods.all(p, p.?nodeSelector.orValue({{}}).all(k, {node}) || "
            f"{before('?nodeSelector', empty='{}')})",
            message=f"pods must not select nodes of the control plane, or those of another deployment, {unless}",
        ),
        PolicyRule(
            expression="variables.pods.all(p, [p.?affinity.?nodeAffinity].all(a, "
            f"a.?required{terms}.?nodeSelectorTerms.orValue([]).all(x, {of_nodes}) && "
            f"a.?preferred{terms}.orValue([]).all(w, [w.preference].all(x, {of_nodes}))) || "
            f"{before('?affinity', empty='{}')})",
            message=f"pods must not prefer nodes of the control plane, or those of another deployment, {unless}",
        ),
        PolicyRule(
            expression="variables.pods.all(p, [p.?affinity.?podAffinity, p.?affinity.?podAntiAffinity].all(a, "
            f"a.?required{terms}.orValue([]).all(t, {own}) && "
            f"a.?preferred{terms}.orValue([]).all(w, [w.podAffinityTerm].all(t, {own}))) || "
            f"{before('?affinity', empty='{}')})",
            message=f"the affinity of pods must not look at other namespaces, {unless}",
        ),
        PolicyRule(
            expression=f"variables.pods.all(p, [p.?schedulerName.orValue('default-scheduler')].all(k, k == '' || "
            f"{may('schedulers', 'k')}) || {before('?schedulerName', empty=quoted(''))})",
            message=f"pods must not choose another scheduler, {unless}",
        ),
        PolicyRule(
            expression=of_containers(
                f"c.?securityContext.?capabilities.?add.orValue([]).all(k, {may('capabilities', 'k')})"
            ),
            message=f"containers must not have capabilities added, {unless}",
        ),
    )


_ANNOTATIONS = ("podAnnotations", "workloadAnnotations")
"""The lists of the policy whose annotations an object of a provider may have."""


KUEUE_ANNOTATIONS = (
    "kueue.x-k8s.io/pod-group-serving",
    "kueue.x-k8s.io/pod-index-offset",
    "kueue.x-k8s.io/pod-suspending-parent",
)
"""What Kueue adds to pod templates of a workload in a queue, before a guard sees them. They can only hold pods."""


def annotation_rule(
    written: Collection[str] = (), *, noted: str = "[]", but: Sequence[tuple[str, str]] = ()
) -> PolicyRule:
    """Operators, meshes and container runtimes take orders from annotations, whose keys begin with their domain.

    `written` are those that we write ourselves. Service accounts have a stricter rule of their own, and so may have the
    kinds in `but`, by group and plural.
    """
    others = literals(f"{group}/{plural}" for group, plural in (("", "serviceaccounts"), *but))
    own = f"k.startsWith({quoted(names.GROUP + '/')})" + (f" || k in {literals(written)}" if written else "")
    noted_ = " || ".join(f"{quoted(note_of(each, ''))} + k in {noted}" for each in _ANNOTATIONS)
    return PolicyRule(
        expression=f"variables.kind in {others} || variables.marks.all(m, m.all(k, {own} || "
        f"!({_refused('podAnnotations', 'k')}) || {noted_} || "
        "variables.oldMarks.exists(q, k in q && q[k] == m[k])))",
        message="operators, meshes and runtimes act on annotations with their domain: only such may be written as a "
        "translation writes, or as an accepted ModelDeployment of the namespace has (the policy's podAnnotations and "
        "workloadAnnotations)",
    )


REPLICAS = PolicyRule(
    expression=f"variables.counts.all(n, n == {{}} || int(n) <= {MOST_REPLICAS})",
    message=f"an object asks for at most {MOST_REPLICAS} pods or nodes of one kind",
)
"""For kinds with `UpstreamKind.replicas`."""

PROBES = PolicyRule(
    expression="variables.probes.all(t, t.?httpGet.?host.orValue('') == '' && t.?tcpSocket.?host.orValue('') == '')",
    message="probes must not name a host: the node itself would ask it",
)
"""For kinds with `UpstreamKind.probes`; those of containers have a rule in `POD_RULES`."""


def _refused(dimension: str, value: str) -> str:
    """CEL: the policy refuses `value` if no rule has this list (`Dimension.is_refused`)."""
    found = DIMENSIONS[dimension]
    refused = " || ".join(_fits(value, pattern) for pattern in found.refused)
    free = " || ".join(_fits(value, pattern) for pattern in found.free)
    return f"({refused}) && !({free})" if free else refused


def _fits(value: str, pattern: str) -> str:
    """CEL: the text matches the pattern of a policy, which has ``*`` at its ends, or once within."""
    stem = pattern.strip("*")
    if pattern in ("*", "[*]"):
        return "true" if pattern == "*" else f"{value} == '*'"
    if pattern == f"*{stem}*":
        return f"{value}.contains({quoted(stem)})"
    if pattern == f"{stem}*":
        return f"{value}.startsWith({quoted(stem)})"
    if pattern == f"*{stem}":
        return f"{value}.endsWith({quoted(stem)})"
    if pattern == stem and "*" not in stem:
        return f"{value} == {quoted(stem)}"
    raise ValueError(f"the pattern {pattern!r} of a policy has no form in CEL here")


# ------------------------------------------------------------------------------------------------------------ our Jobs


JOBS = UpstreamKind(group="batch", kind="Job", plural="jobs", versions=("v1",), builtin=True)
"""For `pod_variables`."""


def environment_rule(
    who: str, patterns: Sequence[str], *, further: str = "", unless: str = "false", more: str = ""
) -> PolicyRule:
    """A program that we start for others gets variables by an allow-list: others name code that a program loads.

    `further` is CEL over the variable `e`, `unless` over the container `c`; `more` is the end of the message.
    """
    known = " || ".join([*(_fits("e.name", pattern) for pattern in patterns), *filter(None, [further])])
    return PolicyRule(
        expression=of_containers(f"{unless} || (c.?envFrom.orValue([]) == [] && c.?env.orValue([]).all(e, {known}))"),
        message=f"{who} gets only the variables {', '.join(patterns)}, one by one: others may name code that a program "
        f"loads{more}",
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
