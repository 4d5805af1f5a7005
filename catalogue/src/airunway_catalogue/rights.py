"""The RBAC rules of the catalogue, and its guard: ValidatingAdmissionPolicies that keep its account to what it writes.

The process itself does not import this module. Example: a stolen token of the account makes a Job in the operator's
namespace that reads a Secret there. RBAC allows that; the guard refuses it, because Jobs in that namespace take no
values out of other objects.

What the guard cannot limit: which image a ClusterModelTemplate names, and for which model; which image a Job in a
template's namespace runs, which program of that image and with which arguments besides ``dry-run --format=json``, and
which Secrets of that namespace it gets as variables. They are the registry's, the template's and the image's, and a
policy can read none of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE
from airunway.kube import CONFIG_MAP, JOB, NODE, POD
from airunway.rbac.pod_rules import (
    JOBS,
    POD_RULES,
    TOKEN_RULES,
    annotation_rule,
    environment_rule,
    of_containers,
    pod_variables,
    restricted_rules,
    scheduling_rules,
)
from airunway.rbac.policy_rules import (
    CA_BUNDLE_MOUNTED,
    CA_BUNDLE_ONLY,
    FURTHER_NAMES,
    HELD,
    OWNERS,
    VARIABLES,
    PolicyRule,
    controlled_by,
    if_present,
    is_account,
    keeps_finalizers,
    literals,
    own_records,
    policy_and_binding,
    quoted,
    resource_rules,
    whereabouts,
)
from airunway.rbac.rights import AddOn, Rights, leader_election_rights
from airunway.resource import Resource
from airunway_catalogue.discovery import ENVIRONMENT, PARTS, command_of
from airunway_catalogue.names import CATALOGUE_MANAGER, DISCOVERY
from airunway_catalogue.pull_secrets import SECRET
from airunway_catalogue.scan import MODEL_SOURCE_LABEL

_FOLLOW = ["list", "watch"]


def catalogue_rules(secrets: Sequence[str] = ()) -> Rights:
    """The rights of ``airunway catalogue``, its Lease included.

    Of Secrets it reads these in the operator's namespace (none: registries are asked anonymously).
    """
    return template_rights() + source_rights(secrets)


def template_rights() -> Rights:
    """What the states of templates and discovery need, and the Lease.

    With ``--watch-namespaces`` the operator's namespace is one of the watched ones: Jobs of ClusterModelTemplates are
    there. Logs and Secrets are never read.
    """
    group = names.GROUP
    return Rights(
        cluster=(
            {"apiGroups": [NODE.group], "resources": [NODE.plural], "verbs": _FOLLOW},
            {"apiGroups": [group], "resources": ["clustermodeltemplates", "clusterruntimeconfigs"], "verbs": _FOLLOW},
            {"apiGroups": [group], "resources": ["clustermodeltemplates/status"], "verbs": ["patch"]},
            # blockOwnerDeletion needs this where the admission plugin OwnerReferencesPermissionEnforcement is on.
            {"apiGroups": [group], "resources": ["clustermodeltemplates/finalizers"], "verbs": ["update"]},
        ),
        watched=(
            {
                "apiGroups": [group],
                "resources": ["modelartifacts", "modeldeployments", "modeltemplates", "runtimeconfigs"],
                "verbs": _FOLLOW,
            },
            {"apiGroups": [group], "resources": ["modeltemplates/status"], "verbs": ["patch"]},
            {"apiGroups": [group], "resources": ["modeltemplates/finalizers"], "verbs": ["update"]},
            # Get: the name of a Job may be taken by one that the watch does not show.
            {
                "apiGroups": [JOB.group],
                "resources": [JOB.plural],
                "verbs": ["get", *_FOLLOW, "create", "patch", "delete"],
            },
            # The output of an image is in the status of its pod.
            {"apiGroups": [POD.group], "resources": [POD.plural], "verbs": _FOLLOW},
            # Followed: why the pod of a Job cannot be made is told in events only.
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", *_FOLLOW]},
        ),
    ) + leader_election_rights(CATALOGUE_MANAGER)


def source_rights(secrets: Sequence[str] = ()) -> Rights:
    """What scans of ModelSources need besides; `secrets` are the pull Secrets that are read, for templates too."""
    group = names.GROUP
    # By name: the webhook's key and other credentials are in that namespace, too.
    pull = {"apiGroups": [SECRET.group], "resources": [SECRET.plural], "resourceNames": [*secrets], "verbs": ["get"]}
    # A ModelSource names them; there is nothing secret in ConfigMaps.
    authorities = {"apiGroups": [CONFIG_MAP.group], "resources": [CONFIG_MAP.plural], "verbs": ["get"]}
    return Rights(
        cluster=(
            # Get: a source may have been edited while its registry was read.
            {"apiGroups": [group], "resources": ["modelsources"], "verbs": ["get", *_FOLLOW]},
            {"apiGroups": [group], "resources": ["modelsources/status"], "verbs": ["patch"]},
            # An apply that makes an object needs both; the guard refuses it every change of one.
            {"apiGroups": [group], "resources": ["clustermodeltemplates"], "verbs": ["create", "patch"]},
        ),
        own=(authorities, *((pull,) if secrets else ())),
    )


_WHO = "the catalogue"
_BY_SHARED, _BY_OWN = controlled_by(CLUSTER_MODEL_TEMPLATE.kind), controlled_by(MODEL_TEMPLATE.kind)


def catalogue_guard(
    user: str, *, own: str, namespaces: Sequence[str] = (), variables: Sequence[str] = (), name: str
) -> list[Resource]:
    """The policies and their bindings for the account `user` (``system:serviceaccount:NAMESPACE:NAME``).

    The account may make and delete discovery Jobs that a template controls, in the form that the catalogue gives them;
    it may make ClusterModelTemplates of a ModelSource, and change nothing of a template but its status and the labels
    of one of a ModelSource. `own` is the namespace in which it runs, `namespaces` are those that it watches (empty:
    all), and `variables` further ones that a discovery may get, by name or with ``*`` at the end.
    """
    condition = is_account(user)
    known = {
        **OWNERS,
        **HELD,
        **{name: VARIABLES[name] for name in ("o", "old", "kind")},
        **pod_variables([JOBS]),
        FURTHER_NAMES: f"{quoted(','.join(variables))}.split(',')",
        "script": json.dumps(command_of("")[:-1]),
    }
    rules = if_present(_job_rules(own))
    templates = [(kind.group, kind.plural) for kind in (CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE)]
    return [
        *policy_and_binding(
            f"{name}-discovery",
            condition=condition,
            resources=resource_rules([(JOB.group, JOB.plural)]),
            variables=known,
            rules=[
                *whereabouts([], namespaces, who=_WHO, home=own),
                PolicyRule(
                    expression=f"oldObject == null || variables.before.exists(r, {_owner(own)})",
                    message=f"{_WHO} must not touch a Job that it has not made for a template",
                ),
                keeps_finalizers(_WHO, "batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"),
                *rules,
            ],
        ),
        *policy_and_binding(
            f"{name}-templates",
            condition=condition,
            resources=resource_rules(templates),
            variables={"o": "dyn(object)"},
            rules=[
                PolicyRule(
                    expression=f"request.operation == 'CREATE' || request.operation == 'UPDATE' && {_LABELS_ALONE}",
                    message=f"{_WHO} changes nothing of a template but its status and the labels of one of a "
                    "ModelSource, and deletes none",
                ),
                PolicyRule(
                    expression=f"request.operation != 'CREATE' || {_OF_CLUSTER} && object.{_SOURCE_LABEL} != '' && "
                    "object.metadata.?ownerReferences.orValue([]) == [] && "
                    "object.metadata.?finalizers.orValue([]) == []",
                    message=f"{_WHO} makes ClusterModelTemplates with the label {MODEL_SOURCE_LABEL}, and no owner or "
                    "finalizer",
                ),
                PolicyRule(
                    expression=f"request.operation != 'CREATE' || {_only_fields(('spec',), _WRITTEN)}",
                    message=f"{_WHO} writes of a template only {', '.join(_written_fields())}",
                ),
            ],
        ),
        *own_records(name, condition, CATALOGUE_MANAGER),
    ]


_SOURCE_LABEL = f"?metadata.?labels[?{quoted(MODEL_SOURCE_LABEL)}].orValue('')"
_KEPT = ("annotations", "finalizers", "ownerReferences")
_OF_CLUSTER = f"request.resource.resource == {quoted(CLUSTER_MODEL_TEMPLATE.plural)}"
_LABELS_ALONE = (
    f"{_OF_CLUSTER} && object.{_SOURCE_LABEL} != '' && object.spec == oldObject.spec && "
    f"object.{_SOURCE_LABEL} == oldObject.{_SOURCE_LABEL} && "
    + " && ".join(f"object.metadata.?{each} == oldObject.metadata.?{each}" for each in _KEPT)
)
"""CEL: an update changes nothing but labels, and not the one that names the source."""


ADD_ON = AddOn(rights=catalogue_rules(), guard=catalogue_guard)
"""For `airunway doctor`. The Secrets that it may read depend on its chart."""


_ALONE = (
    "p.containers.size() == 1 && p.?initContainers.orValue([]) == [] && p.containers.all(c, "
    f"c.name == {quoted(DISCOVERY)} && c.?command.orValue([]) == [])"
)
"""CEL: the pod `p` has the image's own program in its only container."""

_IN_PARTS = (
    f"p.?initContainers.orValue([]).map(c, c.name) + p.containers.map(c, c.name) == {literals(PARTS)} && "
    "p.containers.size() == 1 && "
    "(p.?initContainers.orValue([]) + p.containers).all(c, c.image == p.containers[0].image && has(c.command))"
)
"""CEL: the pod `p` has the containers of the script."""

_PROGRAM = (
    "(c.?command.orValue([]) == [] "
    "? c.?args.orValue([]).size() > 1 && c.args[0] == 'dry-run' && c.args[1] == '--format=json' "
    f": c.command == variables.script + [c.name] && (c.name == {quoted(DISCOVERY)} "
    "? ['dry-run', '--format=json'].all(w, w in c.?args.orValue([])) : c.?args.orValue([]) == []))"
)
"""CEL: the container `c` runs the image's own program, or the script of the variable ``script``."""


_FURTHER = (
    f"variables.{FURTHER_NAMES}.exists(n, n == e.name || "
    "n.endsWith('*') && e.name.startsWith(n.substring(0, size(n) - 1)))"
)
"""CEL: the chart's value has the variable `e`."""


_WRITTEN: dict[str, object] = {
    "modelName": None,
    "metric": None,
    "precision": None,
    "optimized": None,
    "runtimeConfigName": None,
    "hardware": {"gpu": {"count": None, "model": None, "type": None}},
    "defaults": {"image": None},
    "discovery": {"image": None},
}
"""The fields of a spec that the catalogue writes (`scan.templates_of`); those of an object are in it."""


def _only_fields(at: tuple[str, ...], fields: dict[str, object]) -> str:
    """CEL: the object at that path of ``variables.o`` has no other fields, nor have those in it."""
    found = f"variables.o.{'.?'.join(at)}{'.orValue({})' if len(at) > 1 else ''}"
    inner = [_only_fields((*at, name), value) for name, value in fields.items() if isinstance(value, dict)]
    return " && ".join((f"{found}.all(k, k in {literals(fields)})", *inner))


def _written_fields() -> list[str]:
    """The same fields as paths in ``spec``."""

    def leaves(fields: dict[str, object], at: str) -> list[str]:
        return [
            path
            for name, value in fields.items()
            for path in (leaves(value, f"{at}{name}.") if isinstance(value, dict) else [f"{at}{name}"])
        ]

    return leaves(_WRITTEN, "spec.")


def _owner(own: str) -> str:
    """CEL: `r` names the template that controls the Job: a ClusterModelTemplate in the operator's namespace only."""
    return f"({_BY_OWN} || request.namespace == {quoted(own)} && {_BY_SHARED})"


def _job_rules(own: str) -> list[PolicyRule]:
    return [
        PolicyRule(
            expression=f"variables.after.exists(r, {_owner(own)})",
            message=f"a Job that {_WHO} makes belongs to a template: of a ClusterModelTemplate it is in the operator's "
            "namespace",
        ),
        PolicyRule(
            expression="oldObject == null || object.spec == oldObject.spec",
            message=f"{_WHO} never changes a Job: it makes and deletes them",
        ),
        PolicyRule(
            expression="object.metadata.name.startsWith('discover-') && variables.pods.all(p, "
            f"({_ALONE}) || ({_IN_PARTS}))",
            message=f"a Job is called discover-…, and has one container, {DISCOVERY}, or {', '.join(PARTS)}, one after "
            "the other and of one image",
        ),
        PolicyRule(
            expression="[variables.o.spec.?parallelism, variables.o.spec.?completions].all(n, n.orValue(1) <= 1) && "
            "variables.o.spec.?backoffLimit.orValue(6) == 0 && "
            "variables.pods.all(p, [p.?priorityClassName, p.?runtimeClassName].all(n, n.orValue('') == ''))",
            message="a Job runs one pod once, without a priority class",
        ),
        *TOKEN_RULES,
        PolicyRule(
            expression="[variables.o.spec.template.?metadata.?labels.orValue({})].all(l, "
            f"!({quoted(names.MODEL_DEPLOYMENT)} in l))",
            message="the pods of a Job have none of the labels of a ModelDeployment's pods",
        ),
        *restricted_rules(),
        PolicyRule(
            expression="variables.pods.all(p, p.?volumes.orValue([]).all(v, v.all(k, k in ['name', 'emptyDir', "
            f"'configMap']) && {CA_BUNDLE_ONLY})) && "
            + of_containers(f"c.?volumeMounts.orValue([]).all(m, {CA_BUNDLE_MOUNTED})"),
            message="a Job mounts empty folders and authorities to trust, and nothing else",
        ),
        PolicyRule(
            expression=of_containers(
                f"{_PROGRAM} && !has(c.lifecycle) && c.?envFrom.orValue([]) == [] && "
                "c.?ports.orValue([]) == [] && c.?volumeDevices.orValue([]) == [] && "
                "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe].all(t, !t.hasValue()) && "
                "c.?restartPolicy.orValue('') == ''"
            ),
            message="a Job runs the program of its image with the arguments dry-run --format=json, by itself or by the "
            "script of the catalogue, and nothing else",
        ),
        environment_rule(
            "discovery",
            ENVIRONMENT,
            further=_FURTHER,
            more="; the value discovery.variables of the chart airunway-catalogue allows others",
        ),
        # By the namespace: the author of a Job can name any owner.
        PolicyRule(
            expression=f"request.namespace != {quoted(own)} || "
            "variables.pods.all(p, p.?serviceAccountName.orValue('') in ['', 'default']) && "
            + of_containers("c.?env.orValue([]).all(e, !has(e.valueFrom))"),
            message="a Job in the operator's namespace runs as the default account, and takes no values out of other "
            "objects",
        ),
        *POD_RULES,
        *scheduling_rules(),
        annotation_rule(),
    ]
