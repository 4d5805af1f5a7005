"""The CEL rules for what the core's account may write for its parts: the gateway and the model cache. Pure.

They refuse what a part never writes, so that a forged owner reference gives no choice of names, images or contents.
Example: a Job of the artifact ``llama-4f1c09ab2e`` is called ``llama-4f1c09ab2e-download-1b2c3d4e``, runs the image of
the downloader with its own arguments, and mounts the claim ``llama-4f1c09ab2e-cache-5f6a7b8c`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.api.paths import RESERVED_PATHS, RESERVED_SEGMENTS
from airunway.artifacts.jobs import CA_PATH, CACHE_PATH, ENVIRONMENT, PROGRESS_PORT, SCRATCH_PATH, USER, JobStep
from airunway.gateway.application import DEFAULT_PICKER_IMAGE
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import JOB, PERSISTENT_VOLUME_CLAIM
from airunway.modelcache.application import DEFAULT_DOWNLOADER_IMAGE
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
    BY_DEPLOYMENT,
    CA_BUNDLE_MOUNTED,
    CA_BUNDLE_ONLY,
    IMAGES,
    OPT_IN,
    RBAC,
    VARIABLES,
    PolicyRule,
    as_before,
    controlled_by,
    image_is_allowed,
    images_of,
    literals,
    name_after,
    only_for,
    quoted,
    service_accounts,
    services,
    subjects,
    whose_kind,
)
from airunway.sdk.picker import ACCOUNT
from airunway.sdk.picker import ENVIRONMENT as OF_PICKERS
from airunway.sdk.workloads import DEPLOYMENT

# --------------------------------------------------------------------------------------------------------- the gateway


def _rules(test: str) -> str:
    """CEL: `test` is true of every rule `r` of an HTTPRoute."""
    return f"variables.o.spec.?rules.orValue([]).all(r, {test})"


_PREFIX = "m.?path.?type.orValue('PathPrefix') == 'PathPrefix'"
_BY_MODEL_NAME = (
    f"(m.all(k, k in ['path', 'headers']) && {_PREFIX} && m.?path.?value.orValue('/') == '/' && "
    f"m.?headers.orValue([]).size() == 1 && m.headers.all(h, h.name == '{names.MODEL_HEADER}' && "
    "h.?type.orValue('Exact') == 'Exact' && h.?value.orValue('') != ''))"
)
_BY_PATH = f"(m.all(k, k in ['path']) && {_PREFIX} && m.?path.?value.orValue('/').matches('^(/[^/]+)+$'))"
_RESERVED = "variables.reserved.exists(s, m.path.value.lowerAscii().split('/')[1] == s)"
_DEFAULT_PATH = "variables.after.exists(w, m.path.value == '/' + variables.o.metadata.namespace + '/' + w.uid)"
_ANNOTATIONS_OF_NO_DOMAIN = ("app.kubernetes.io/", "helm.sh/", "checksum/", f"{names.GROUP}/")
"""Prefixes of annotations of a route that no controller takes orders from, and our own."""


ANNOTATION_KEYS = "annotationKeys"
"""The variable with the keys that an installation allows besides."""


def gateway_contents(images: Sequence[str], annotations: Sequence[str]) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules for the objects of the gateway part: routes, pools and endpoint pickers.

    The names follow from the deployment's, so that a forged owner reference gives no choice of names. `images` are the
    repositories of endpoint pickers; the one of this release (`DEFAULT_PICKER_IMAGE`) needs no entry. `annotations` are
    the keys with a domain that routes may have.
    """
    picker = name_after(ACCOUNT)
    variables = {
        **VARIABLES,
        **pod_variables([DEPLOYMENT]),
        # Containers as they were: what others have added does not stop a write of the core.
        "kept": f"oldObject == null || variables.kind != {whose_kind('apps', 'deployments')} ? [] : "
        "variables.old.spec.template.spec.containers + variables.old.spec.template.spec.?initContainers.orValue([])",
        IMAGES: images_of(DEFAULT_PICKER_IMAGE, images),
        "reserved": literals(RESERVED_SEGMENTS),
        ANNOTATION_KEYS: f"{quoted(','.join(annotations))}.split(',')",
    }
    of_kinds: dict[tuple[str, str], list[PolicyRule]] = {
        ("apps", "deployments"): [
            PolicyRule(
                expression="variables.pods.all(p, p.?serviceAccountName.orValue('') == variables.o.metadata.name && "
                "p.?serviceAccount.orValue(variables.o.metadata.name) == variables.o.metadata.name)",
                message="an endpoint picker runs as the service account of its own name",
            ),
            PolicyRule(
                expression="variables.pods.all(p, p.?volumes.orValue([]).all(v, "
                "v.all(k, k in ['name', 'configMap', 'emptyDir']))) && "
                + of_containers(
                    "c.?envFrom.orValue([]) == [] && c.?env.orValue([]).all(e, !has(e.valueFrom) || "
                    "!has(e.valueFrom.secretKeyRef))"
                ),
                message="an endpoint picker gets no Secrets: its volumes are ConfigMaps, its environment is its own",
            ),
            PolicyRule(
                expression="variables.o.spec.?replicas.orValue(1) <= 1 && "
                + as_before("spec.template.spec.?priorityClassName", empty="''"),
                message="an endpoint picker is one pod without a priority class",
            ),
            environment_rule("an endpoint picker", tuple(OF_PICKERS), unless="c in variables.kept"),
            PolicyRule(
                expression=of_containers(f"c in variables.kept || {image_is_allowed()}"),
                message="an endpoint picker has an image of the repository of --epp-image; the value "
                "endpointPicker.images of the chart airunway allows others",
            ),
            PolicyRule(
                expression=of_containers(
                    "c in variables.kept || (c.?command.orValue([]) == [] && !has(c.lifecycle) && "
                    "c.?args.orValue([]).all(a, a.startsWith('--')) && "
                    "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe].all(t, !t.?exec.hasValue()))"
                ),
                message="an endpoint picker runs the program of its image, with flags only",
            ),
        ],
        ("", "services"): services("the gateway part"),
        ("", "serviceaccounts"): service_accounts("the gateway part"),
        (RBAC, "rolebindings"): [
            PolicyRule(
                expression="variables.o.roleRef.kind == 'ClusterRole' && "
                f"variables.o.roleRef.name == {quoted(names.ENDPOINT_PICKER_ROLE)}",
                message=f"the core's RoleBindings refer to the ClusterRole {names.ENDPOINT_PICKER_ROLE} and to no "
                "other role",
            ),
            subjects("the core"),
        ],
        (names.GATEWAY_GROUP, "httproutes"): [
            PolicyRule(
                expression="variables.o.spec.?rules.orValue([]).all(r, "
                "r.?filters.orValue([]).all(f, f.type == 'URLRewrite') && "
                "r.?backendRefs.orValue([]).all(b, b.?filters.orValue([]) == [] && "
                "b.?namespace.orValue(variables.o.metadata.namespace) == variables.o.metadata.namespace))",
                message="the core's routes lead to backends of their own namespace, without redirects or mirrors",
            ),
            PolicyRule(
                expression="variables.o.spec.?hostnames.orValue([]) == [] && "
                "variables.o.spec.?parentRefs.orValue([]).all(p, p.?kind.orValue('Gateway') == 'Gateway')",
                message="the core's routes take no hostnames, and are attached to Gateways only",
            ),
            PolicyRule(
                expression="variables.o.spec.?rules.orValue([]).size() > 0 && "
                + _rules(f"r.?matches.orValue([]).size() > 0 && r.matches.all(m, {_BY_MODEL_NAME} || {_BY_PATH})"),
                message="the core's routes match a path below / or a model name: none takes all requests of a Gateway",
            ),
            PolicyRule(
                expression=_rules(
                    "r.?matches.orValue([]).all(m, has(m.headers) || !has(m.path) || !has(m.path.value) || "
                    f"!({_RESERVED} || m.path.value.lowerAscii() in {literals(RESERVED_PATHS)}) || {_DEFAULT_PATH})"
                ),
                message="the core's routes take no path that model servers or gateways answer themselves, such as /v1",
            ),
            PolicyRule(
                expression="variables.o.metadata.?annotations.orValue({}).all(k, !(k.contains('/') || k.contains('.')) "
                f"|| {literals(_ANNOTATIONS_OF_NO_DOMAIN)}.exists(p, k.startsWith(p)) || "
                f"k in variables.{ANNOTATION_KEYS} || "
                "oldObject != null && oldObject.metadata.?annotations[?k].orValue('') == "
                "variables.o.metadata.annotations[k])",
                message="the core's routes have no annotations that controllers take orders from; the value "
                "gateway.annotations of the chart airunway allows some",
            ),
            PolicyRule(
                expression=_rules(
                    "r.?filters.orValue([]).all(f, f.?urlRewrite.?hostname.orValue('') == '' && "
                    "f.?urlRewrite.?path.?type.orValue('') == 'ReplacePrefixMatch' && "
                    "f.?urlRewrite.?path.?replacePrefixMatch.orValue('') == '/')"
                ),
                message="the core's routes rewrite the prefix of a path to / and nothing else",
            ),
            PolicyRule(
                expression=_rules(
                    "r.all(k, k in ['name', 'matches', 'filters', 'backendRefs', 'timeouts']) && "
                    "r.?backendRefs.orValue([]).all(b, b.?kind.orValue('Service') in ['Service', 'InferencePool'])"
                ),
                message="the core's routes lead to Services and InferencePools, with the fields that it writes",
            ),
        ],
        ("inference.networking.k8s.io", "inferencepools"): [
            PolicyRule(
                expression="variables.o.spec.endpointPickerRef.?kind.orValue('Service') == 'Service' && "
                f"variables.owners.exists(n, variables.o.spec.endpointPickerRef.name == {picker})",
                message="the core's InferencePools refer to the endpoint picker of their deployment",
            )
        ],
        ("networking.istio.io", "destinationrules"): [
            PolicyRule(
                expression="variables.o.spec.host == variables.o.metadata.name",
                message="the core's DestinationRules are for the Service of the same name",
            )
        ],
    }
    named_as_deployment = " || ".join(
        f"variables.kind == {whose_kind(*kind)}"
        for kind in ((names.GATEWAY_GROUP, "httproutes"), ("inference.networking.k8s.io", "inferencepools"))
    )
    name = PolicyRule(
        expression=f"variables.owners.exists(n, variables.o.metadata.name == (({named_as_deployment}) ? n : {picker}))",
        message="the core's objects are called as the ModelDeployment or as its endpoint picker",
    )
    # The annotations of a route are its deployment's, and have rules of their own.
    marks = annotation_rule(but=[(names.GATEWAY_GROUP, "httproutes")])
    return variables, [name, *POD_RULES, *scheduling_rules(), marks, *only_for(of_kinds)]


# ----------------------------------------------------------------------------------------------------- the model cache

BY_ARTIFACT = controlled_by(MODEL_ARTIFACT.kind)
"""CEL: the owner reference `r` names a ModelArtifact as the object's controller."""

_HASH = 8
"""Digits of the hash at the end of the names of claims and Jobs (`airunway.artifacts.claims`)."""
_LONGEST = 63
_CLAIM_STEP = "cache"
_FLAGS = ("--revision=", "--include=", "--exclude=")
_MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")

_SLUG = "n.replace('.', '-')" + ".replace('--', '-')" * 6
"""CEL: the name `n` of an artifact as it stands in the names of its claim and Jobs; six times make one of 64 dashes."""


def model_cache_contents(images: Sequence[str], *, where: str) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules for the claims and Jobs of the part. `images` are further repositories of the downloader; the
    one of this release needs no entry. `where` Jobs run: in namespaces that are ``Labelled``, or in ``All``.
    """
    variables = {
        **VARIABLES,
        "artifacts": f"object.metadata.?ownerReferences.orValue([]).filter(r, {BY_ARTIFACT}).map(r, r.name)",
        "slugs": f"variables.artifacts.map(n, {_SLUG})",
        **pod_variables([JOBS]),
        IMAGES: images_of(DEFAULT_DOWNLOADER_IMAGE, images),
        OPT_IN: quoted(where),
    }
    of_kinds = {
        (JOB.group, JOB.plural): _job_rules(),
        (PERSISTENT_VOLUME_CLAIM.group, PERSISTENT_VOLUME_CLAIM.plural): _claim_rules(),
    }
    labelled = PolicyRule(
        expression=f"variables.artifacts.all(n, object.metadata.?labels[?{quoted(names.ARTIFACT)}].orValue('') == n)",
        message=f"what belongs to a ModelArtifact has the label {names.ARTIFACT} with its name",
    )
    return variables, [labelled, *POD_RULES, *scheduling_rules(), annotation_rule(), *only_for(of_kinds)]


def artifact_contents() -> list[PolicyRule]:
    """The rules for a ModelArtifact that the part makes; of an existing one it changes labels only."""
    users = ("env", "imagePullSecrets", "serviceAccountName", "downloaderImage", "retention")
    fields = " && ".join(f"!has(variables.o.spec.{field})" for field in users)
    return [
        PolicyRule(
            expression="oldObject == null || object.spec == oldObject.spec && "
            "object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({}) && "
            "variables.after == variables.before",
            message="the core changes only labels of a ModelArtifact",
        ),
        PolicyRule(
            expression=f"oldObject != null || variables.after.all(r, {BY_DEPLOYMENT})",
            message="a ModelArtifact that the core makes belongs to no object, or to a ModelDeployment",
        ),
        PolicyRule(
            expression="oldObject != null || "
            "object.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9a-f]{10}$')",
            message="the name of a ModelArtifact that the core makes ends with ten digits of its key",
        ),
        PolicyRule(
            # Deployments ask for weights of the hub only; a template may have them in a bucket.
            expression="oldObject != null || (variables.o.spec.source.uri.startsWith('hf://') || "
            f"object.metadata.?labels[?{quoted(names.TEMPLATE)}].orValue('') != '') && "
            "!has(variables.o.spec.source.include) && !has(variables.o.spec.source.exclude)",
            message="a ModelArtifact that the core makes has a repository of Hugging Face as its source, or is kept "
            "for a ModelTemplate",
        ),
        PolicyRule(
            expression=f"oldObject != null || {fields}",
            message=f"a ModelArtifact that the core makes has none of {', '.join(users)}",
        ),
    ]


def _job_rules() -> list[PolicyRule]:
    steps = [step.value for step in JobStep]
    own = " || ".join(
        f"variables.pods[0].containers[0].name == {quoted(step)} && {_called('object.metadata.name', step)}"
        for step in steps
    )
    label = names.MODEL_CACHE_LABEL
    return [
        PolicyRule(
            expression="oldObject == null",
            message="the core never changes a Job: it makes and deletes them",
        ),
        PolicyRule(
            # A thief would have to label the namespace as well, which no account of ours may do.
            expression=f"variables.{OPT_IN} == 'All' || "
            f"namespaceObject.metadata.?labels[?{quoted(label)}].orValue('') == 'allowed'",
            message=f"downloads run only in namespaces with the label {label}=allowed",
            told=f"'an administrator has not allowed downloads in this namespace: kubectl label namespace ' + "
            f"request.namespace + ' {label}=allowed'",
        ),
        PolicyRule(
            expression="variables.pods.all(p, p.containers.size() == 1 && p.?initContainers.orValue([]) == []) && "
            f"({own})",
            message=f"a Job has one container, {' or '.join(steps)}, and is called as the ModelArtifact and the step",
        ),
        PolicyRule(
            expression="[variables.o.spec.?parallelism, variables.o.spec.?completions].all(n, n.orValue(1) <= 1) && "
            "variables.pods.all(p, [p.?priorityClassName, p.?runtimeClassName].all(n, n.orValue('') == ''))",
            message="a Job runs one pod at a time, without a priority class",
        ),
        *TOKEN_RULES,
        PolicyRule(
            expression="[variables.o.spec.template.?metadata.?labels.orValue({})].all(l, "
            f"!({quoted(names.MODEL_DEPLOYMENT)} in l) && "
            f"l[?{quoted(names.PART)}].orValue('') == {quoted(names.MODEL_CACHE_PART)})",
            message=f"the pods of a Job have the label {names.PART}: {names.MODEL_CACHE_PART}, and none of a "
            "ModelDeployment's pods",
        ),
        *restricted_rules(USER),
        PolicyRule(
            expression="variables.pods.all(p, p.?volumes.orValue([]).all(v, "
            f"v.all(k, k in ['name', 'emptyDir', 'persistentVolumeClaim', 'configMap']) && {CA_BUNDLE_ONLY} && "
            "(!has(v.persistentVolumeClaim) || "
            f"{_called('v.persistentVolumeClaim.claimName', _CLAIM_STEP)})))",
            message="a Job mounts the claim of its ModelArtifact and empty folders, besides authorities to trust",
        ),
        PolicyRule(
            expression=of_containers(
                f"c.?volumeMounts.orValue([]).all(m, {CA_BUNDLE_MOUNTED} && "
                f"m.mountPath in {literals((SCRATCH_PATH, CACHE_PATH, CA_PATH))}) && "
                "c.?volumeDevices.orValue([]) == [] && "
                f"c.?ports.orValue([]).all(port, port.containerPort == {PROGRESS_PORT})"
            ),
            message="the container of a Job has the mounts and the port of the downloader",
        ),
        environment_rule("the downloader", ENVIRONMENT),
        PolicyRule(
            expression=of_containers(image_is_allowed()),
            message="a Job has an image of the repository of --downloader-image; the value modelCache.images of the "
            "chart airunway allows others",
        ),
        PolicyRule(
            expression=of_containers(
                "c.?command.orValue([]) == [] && !has(c.lifecycle) && "
                "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe].all(t, !t.hasValue()) && "
                f"c.?args.orValue([]).size() > 1 && c.args[0] == c.name && ['hf://', 's3://'].exists(s, "
                "c.args[1].startsWith(s)) && c.args.all(a, a in [c.args[0], c.args[1]] || "
                f"a in ['--into', {quoted(CACHE_PATH)}] || {literals(_FLAGS)}.exists(f, a.startsWith(f)))"
            ),
            message="a Job runs the program of its image with the arguments of the downloader",
        ),
    ]


def _claim_rules() -> list[PolicyRule]:
    # The claim of a sized volume: <deployment>-<volume>, of which what is too long ends with a hash.
    cut = (
        f"size(n) > {_LONGEST - _HASH - 2} && object.metadata.name.matches('-[0-9a-f]{{{_HASH}}}$') && "
        f"n.startsWith(object.metadata.name.substring(0, size(object.metadata.name) - {_HASH + 1}))"
    )
    return [
        PolicyRule(
            expression="variables.artifacts.size() == 0 || " + _called("object.metadata.name", _CLAIM_STEP),
            message="the claim of a ModelArtifact is called as the artifact",
        ),
        PolicyRule(
            expression=f"variables.owners.all(n, object.metadata.name.startsWith(n + '-') || {cut})",
            message="the claim of a volume is called as the ModelDeployment and the volume",
        ),
        PolicyRule(
            expression="variables.owners.all(n, "
            f"object.metadata.?labels[?{quoted(names.MODEL_DEPLOYMENT)}].orValue('') == n)",
            message=f"the claim of a volume has the label {names.MODEL_DEPLOYMENT} with its deployment's name",
        ),
        PolicyRule(
            expression=" && ".join(
                as_before(f"spec.?{field}", empty=empty)
                for field, empty in (
                    ("volumeName", "''"),
                    ("selector", "{}"),
                    ("dataSource", "{}"),
                    ("dataSourceRef", "{}"),
                    ("volumeAttributesClassName", "''"),
                )
            ),
            message="the core's claims are empty new volumes: they name no volume, snapshot or other claim",
        ),
        PolicyRule(
            expression="variables.o.spec.?volumeMode.orValue('Filesystem') == 'Filesystem' && "
            f"variables.o.spec.accessModes.size() == 1 && variables.o.spec.accessModes[0] in {literals(_MODES)}",
            message="the core's claims are file systems with one access mode",
        ),
    ]


def _called(name: str, step: str) -> str:
    """CEL: `name` is that of the step (or claim) of one of the artifacts in ``variables.slugs``."""
    ending = len(step) + _HASH + 2
    stem = f"{name}.substring(0, size({name}) - {ending})"
    # Of a long name as much as fits is left, without a dash at the end.
    return (
        f"{name}.matches('-{step}-[0-9a-f]{{{_HASH}}}$') && variables.slugs.exists(s, s.startsWith({stem}) && "
        f"(s == {stem} || size({stem}) >= {_LONGEST - ending - 1}))"
    )
