"""The CEL rules for what the core's account may write for the model cache part: claims, Jobs, ModelArtifacts. Pure.

They refuse what the part never writes, so that a forged owner reference gives no choice of names, images or contents.
Example: a Job of the artifact ``llama-4f1c09ab2e`` is called ``llama-4f1c09ab2e-download-1b2c3d4e``, runs the image of
the downloader with its own arguments, and mounts the claim ``llama-4f1c09ab2e-cache-5f6a7b8c`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.artifacts.jobs import CACHE_PATH, PROGRESS_PORT, SCRATCH_PATH, USER, Step
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import JOB, PERSISTENT_VOLUME_CLAIM
from airunway.modelcache.application import DEFAULT_DOWNLOADER_IMAGE
from airunway.rbac.policy_rules import (
    BY_DEPLOYMENT,
    IMAGES,
    OWNER_NAMES,
    POD_RULES,
    TOKEN_RULES,
    PolicyRule,
    as_before,
    controlled_by,
    image_is_allowed,
    images_of,
    literals,
    of_containers,
    quoted,
    restricted_rules,
    whose_kind,
)

__all__ = ["BY_ARTIFACT", "artifact_contents", "model_cache_contents"]

BY_ARTIFACT = controlled_by(MODEL_ARTIFACT.kind)
"""CEL: the owner reference `r` names a ModelArtifact as the object's controller."""

_JOBS, _CLAIMS = (whose_kind(kind.group, kind.plural) for kind in (JOB, PERSISTENT_VOLUME_CLAIM))
_HASH = 8
"""Digits of the hash at the end of the names of claims and Jobs (`airunway.artifacts.claims`)."""
_LONGEST = 63
_CLAIM_STEP = "cache"
_FLAGS = ("--revision=", "--include=", "--exclude=")
_MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")

_ARTIFACT_NAMES = f"object.metadata.?ownerReferences.orValue([]).filter(r, {BY_ARTIFACT}).map(r, r.name)"
_SLUG = "n.replace('.', '-')" + ".replace('--', '-')" * 6
"""CEL: the name `n` of an artifact as it stands in the names of its claim and Jobs; six times make one of 64 dashes."""


def model_cache_contents(images: Sequence[str]) -> tuple[dict[str, str], list[PolicyRule]]:
    """Variables and rules for the claims and Jobs of the part. `images` are further repositories of the downloader; the
    one of this release needs no entry.
    """
    pods = f"variables.kind == {_JOBS} ? [variables.o.spec.template.spec] : []"
    variables = {
        "o": "dyn(object)",
        "old": "dyn(oldObject)",
        "kind": "request.resource.group + '/' + request.resource.resource",
        "owners": OWNER_NAMES,
        "artifacts": _ARTIFACT_NAMES,
        "slugs": f"variables.artifacts.map(n, {_SLUG})",
        "pods": pods,
        "further": "[]",
        IMAGES: images_of(DEFAULT_DOWNLOADER_IMAGE, images),
    }
    of_kinds = ((_JOBS, _job_rules()), (_CLAIMS, _claim_rules()))
    rules = [
        PolicyRule(expression=f"variables.kind != {kind} || ({rule.expression})", message=rule.message)
        for kind, found in of_kinds
        for rule in found
    ]
    labelled = PolicyRule(
        expression=f"variables.artifacts.all(n, object.metadata.?labels[?{quoted(names.ARTIFACT)}].orValue('') == n)",
        message=f"what belongs to a ModelArtifact has the label {names.ARTIFACT} with its name",
    )
    return variables, [labelled, *POD_RULES, *rules]


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
    steps = [step.value for step in Step]
    own = " || ".join(
        f"variables.pods[0].containers[0].name == {quoted(step)} && {_called('object.metadata.name', step)}"
        for step in steps
    )
    return [
        PolicyRule(
            expression="oldObject == null",
            message="the core never changes a Job: it makes and deletes them",
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
            "v.all(k, k in ['name', 'emptyDir', 'persistentVolumeClaim']) && "
            "(!has(v.persistentVolumeClaim) || "
            f"{_called('v.persistentVolumeClaim.claimName', _CLAIM_STEP)})))",
            message="a Job mounts the claim of its ModelArtifact and empty folders, and nothing else",
        ),
        PolicyRule(
            expression=of_containers(
                f"c.?volumeMounts.orValue([]).all(m, m.mountPath in {literals((SCRATCH_PATH, CACHE_PATH))}) && "
                "c.?volumeDevices.orValue([]) == [] && "
                f"c.?ports.orValue([]).all(port, port.containerPort == {PROGRESS_PORT})"
            ),
            message="the container of a Job has the mounts and the port of the downloader",
        ),
        PolicyRule(
            expression=of_containers(image_is_allowed()),
            message="a Job has an image of the repository of --downloader-image; the value modelCache.images of the "
            "chart airunway allows others",
        ),
        PolicyRule(
            expression=of_containers(
                "c.?command.orValue([]) == [] && !has(c.lifecycle) && c.?envFrom.orValue([]) == [] && "
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
