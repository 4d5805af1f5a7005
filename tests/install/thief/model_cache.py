"""What a thief tries with the rights that the model cache part gives the core's account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.install.thief.attempt import (
    ANNOTATIONS,
    CUSTOMER,
    LOADERS,
    MINE,
    OPERATOR,
    ORDERS,
    OWNER,
    PROFILES,
    Attempt,
    customer_of,
    moved,
    pods,
)

from airunway.api import names
from airunway.api.modeldeployment import volume_claim_name
from airunway.artifacts.claims import Wish, artifact_labels, claim_name, claim_of, job_name
from airunway.artifacts.deployments import request_of
from airunway.artifacts.jobs import CA_PATH, CA_VOLUME, JobStep, job_of
from airunway.kinds import MODEL_ARTIFACT, MODEL_TEMPLATE
from airunway.kube import JOB, PERSISTENT_VOLUME_CLAIM, Kind
from airunway.modelcache.application import DEFAULT_DOWNLOADER_IMAGE
from airunway.modelcache.caches import MARK
from airunway.owned.objects import complete, our_labels
from airunway.rbac.policy_rules import repository_of
from airunway.resource import Resource, copy_of
from airunway.templates.contribution import contribution_of, warm_requests

_WEIGHTS = "llama-4f1c09ab2e"
_ARTIFACTS = (_WEIGHTS, "acme.model--v1", "x" * 44 + ".y-12345")
"""Names of artifacts: one that the part gives, one with what its claim cannot have, one that is cut."""


def _artifact(name: str) -> Resource:
    metadata = {"name": name, "namespace": CUSTOMER, "uid": OWNER["uid"]}
    source = {"uri": "hf://acme/tiny", "include": ["*.safetensors"]}
    spec = {"source": source, "secrets": {"huggingFaceToken": "token"}, "serviceAccountName": "buckets"}
    return {"apiVersion": names.API_VERSION, "kind": MODEL_ARTIFACT.kind, "metadata": metadata, "spec": spec}


def _claim_of_artifact(name: str = _WEIGHTS) -> Resource:
    called = claim_name(name, uid=OWNER["uid"], attempt=0)
    made = claim_of(called, Wish(size="1Gi", class_name=None, access_mode="ReadWriteMany"))
    return complete(made, owner=_artifact(name), labels=artifact_labels(name))


def _job_of_artifact(name: str = _WEIGHTS, step: JobStep = JobStep.DOWNLOAD) -> Resource:
    owner = _artifact(name)
    made = job_of(
        owner,
        step,
        name=job_name(name, step, uid=OWNER["uid"], attempt=1),
        image=DEFAULT_DOWNLOADER_IMAGE,
        revision="main",
        claim=claim_name(name, uid=OWNER["uid"], attempt=0),
        config=None,
    )
    return complete(made, owner=owner, labels={**artifact_labels(name), **made["metadata"]["labels"]})


def _claim_of_volume(deployment: str = MINE) -> Resource:
    owner: Resource = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
    owner["metadata"] = {"name": deployment, "namespace": CUSTOMER, "uid": OWNER["uid"]}
    wish = Wish(size="1Gi", class_name="fast", access_mode="ReadWriteOnce")
    made = claim_of(volume_claim_name(deployment, "scratch-space"), wish)
    return complete(made, owner=owner, labels=our_labels(owner, MARK))


def made_of_the_cache(mode: str = "Shared") -> Resource:
    """A ModelArtifact as the part makes it for a deployment."""
    model = {"id": "acme/tiny", "cache": {"mode": mode, "revision": "v1"}}
    deployment: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": MINE, "namespace": CUSTOMER, "uid": OWNER["uid"], "labels": {}},
        "spec": {"model": model, "secrets": {"huggingFaceToken": "t"}, "nodeSelector": {"gpu": "a"}},
    }
    request = request_of(deployment, None)
    assert request is not None
    assert request.artifact is not None
    return request.artifact


def made_for_a_template() -> list[Resource]:
    """ModelArtifacts as the part makes them for a ModelTemplate: of the hub, and of a bucket."""
    template: Resource = {
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": "fast", "namespace": CUSTOMER, "labels": {}},
        "spec": {
            "modelName": "acme/warm",
            "caching": {"enabled": True},
            "modelSources": [{"uri": "hf://acme/warm"}, {"uri": "s3://bucket/warm", "modelId": "acme/adapter"}],
        },
    }
    requests = warm_requests(template, contribution_of(template), None)
    found = [copy_of(each.artifact) for each in requests if each.artifact is not None]
    assert len(found) == 2
    for body in found:
        body["metadata"]["labels"][names.TEMPLATE] = "fast"
    return found


_CACHED = {kind.kind: kind for kind in (JOB, PERSISTENT_VOLUME_CLAIM, MODEL_ARTIFACT)}


def _created(family: str, what: str, words: str, body: Resource) -> Attempt:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    kind = _CACHED[body["kind"]]
    return Attempt(
        family=family, what=what, verb="create", kind=kind, words=words, namespace=namespace, name=name, body=body
    )


def honest_of_the_cache() -> list[Attempt]:
    """What the model cache part writes, which its guard allows."""
    bodies = [_job_of_artifact(name, step) for name in _ARTIFACTS for step in JobStep]
    bodies += [_claim_of_artifact(name) for name in _ARTIFACTS]
    bodies += [_claim_of_volume(name) for name in (MINE, "y" * 52)]
    bodies += [made_of_the_cache(mode) for mode in ("Shared", "Dedicated")]
    bodies += made_for_a_template()
    found = [_created("honest", f"{body['kind']} {body['metadata']['name']}", "(allowed)", body) for body in bodies]
    return [moved(attempt, customer_of("core")) for attempt in found]


def _changed(body: Resource, path: str, value: object) -> Resource:
    """A copy with another value at a path of fields and positions."""
    made = copy_of(body)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    place: Any = made
    for step in steps:
        place = place[step]
    place[last] = value
    return made


def _of_downloads() -> Iterator[Attempt]:
    """What a thief tries with the right to make Jobs."""
    honest = _job_of_artifact()
    spec, pod = honest["spec"], honest["spec"]["template"]["spec"]
    container = pod["containers"][0]
    unruled = copy_of(honest)
    del unruled["spec"]["podFailurePolicy"]  # names the container
    for what, fields, words in pods():
        if not any(field.startswith("serviceAccount") for field in fields):
            body = _changed(unruled, "spec/template/spec", {**pod, **copy_of(fields)})
            yield _created("pods of Jobs", what, words, body)
    mounts, program = "mounts the claim of its ModelArtifact and empty folders", "arguments of the downloader"
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    for what, source in (
        ("a Secret", {"secret": {"secretName": "precious"}}),
        ("a Secret, projected", {"projected": {"sources": [{"secret": {"name": "precious"}}]}}),
        ("a ConfigMap", {"configMap": {"name": "tenant"}}),
        ("a whole ConfigMap as authorities", {"name": CA_VOLUME, "configMap": {"name": "tenant"}}),
        (
            "another file as authorities",
            {"name": CA_VOLUME, "configMap": {"name": "tenant", "items": [{"key": "a", "path": "sitecustomize.py"}]}},
        ),
        ("a volume of its own", {"ephemeral": {"volumeClaimTemplate": template}}),
        ("a tenant's claim", {"persistentVolumeClaim": {"claimName": "training-data"}}),
        ("another artifact's claim", {"persistentVolumeClaim": {"claimName": "other-4f1c09ab2e-cache-12345678"}}),
    ):
        body = _changed(honest, "spec/template/spec/volumes", [*pod["volumes"], {"name": "x", **source}])
        yield _created("mounts of Jobs", what, mounts, body)
    authorities = {"configMap": {"name": "tenant", "items": [{"key": "a", "path": "ca.crt"}]}}
    body = _changed(honest, "spec/template/spec/volumes", [*pod["volumes"], {"name": CA_VOLUME, **authorities}])
    mount = {"name": CA_VOLUME, "mountPath": "/cache", "readOnly": True}
    body = _changed(body, "spec/template/spec/containers", [{**container, "volumeMounts": [mount]}])
    yield _created("program of Jobs", "authorities in place of the weights", "mounts and the port", body)
    image, hardened = "an image of the repository of --downloader-image", "no capabilities and a read-only file system"
    context = container["securityContext"]
    exec_ = {"exec": {"command": ["sh"]}}
    repository = repository_of(DEFAULT_DOWNLOADER_IMAGE)
    for what, fields, words in (
        ("an image of its choice", {"image": "registry.example/evil"}, image),
        ("an image called alike", {"image": f"{repository}-evil:v1"}, image),
        ("an image below it", {"image": f"{repository}:5000/evil"}, image),
        ("a command", {"command": ["sh", "-c", "evil"]}, program),
        ("another program", {"args": ["sh", "hf://a/b"]}, program),
        ("no source", {"args": ["download"]}, program),
        ("a source that is no store", {"args": ["download", "file:///etc"]}, program),
        ("another folder", {"args": ["download", "hf://a/b", "--into", "/etc"]}, program),
        ("another flag", {"args": [*container["args"], "--evil=1"]}, program),
        ("a hook", {"lifecycle": {"preStop": exec_}}, program),
        ("a command as a probe", {"livenessProbe": exec_}, program),
        ("all of a Secret", {"envFrom": [{"secretRef": {"name": "precious"}}]}, "gets only the variables"),
        ("a mount of its choice", {"volumeMounts": [{"name": "scratch", "mountPath": "/etc"}]}, "mounts and the port"),
        (
            "another volume in place of authorities",
            {"volumeMounts": [{"name": "scratch", "mountPath": CA_PATH, "readOnly": True}]},
            "mounts and the port",
        ),
        ("a port", {"ports": [{"containerPort": 22}]}, "mounts and the port"),
        (
            "a file system that it can write",
            {"securityContext": {**context, "readOnlyRootFilesystem": False}},
            hardened,
        ),
        ("capabilities", {"securityContext": {**context, "capabilities": {"drop": ["KILL"]}}}, hardened),
        ("root", {"securityContext": {**context, "runAsUser": 0}}, hardened),
        ("any profile", {"securityContext": {**context, "seccompProfile": {"type": "Unconfined"}}}, PROFILES),
    ):
        body = _changed(honest, "spec/template/spec/containers", [{**container, **fields}])
        yield _created("program of Jobs", what, words, body)
    for name in LOADERS:
        variables = [*container["env"], {"name": name, "value": "/cache/model"}]
        body = _changed(honest, "spec/template/spec/containers", [{**container, "env": variables}])
        yield _created("environment of Jobs", name, "the downloader gets only the variables", body)
    for key, order in ORDERS.items():
        body = _changed(honest, "spec/template/metadata/annotations", {key: order})
        yield _created("annotations", f"{key} on pods of Jobs", ANNOTATIONS, body)
        yield _created(
            "annotations", f"{key} on a Job", ANNOTATIONS, _changed(honest, "metadata/annotations", {key: order})
        )
    elsewhere = _changed(honest, "metadata/namespace", customer_of("vllm"))
    words = f"kubectl label namespace {customer_of('vllm')} {names.MODEL_CACHE_LABEL}=allowed"
    yield _created("namespaces", "a Job where no administrator allows it", words, elsewhere)
    other = {"name": "evil", "image": DEFAULT_DOWNLOADER_IMAGE, "securityContext": context}
    one = "has one container"
    yield _created(
        "program of Jobs", "beside it", one, _changed(honest, "spec/template/spec/containers", [container, other])
    )
    yield _created("program of Jobs", "before it", one, _changed(honest, "spec/template/spec/initContainers", [other]))
    secure, users = pod["securityContext"], "run as user"
    single, names_ = "one pod at a time, without a priority class", "resolve names as all pods do"
    for what, path, value, words in (
        ("a token", "automountServiceAccountToken", True, "hold no token of the API"),
        ("root", "securityContext", {**secure, "runAsUser": 0}, users),
        ("any user", "securityContext", {**secure, "runAsNonRoot": False}, users),
        ("any profile", "securityContext", {**secure, "seccompProfile": {"type": "Unconfined"}}, PROFILES),
        ("a priority", "priorityClassName", "high", single),
        ("a runtime", "runtimeClassName", "evil", single),
        ("names of hosts", "hostAliases", [{"ip": "1.2.3.4", "hostnames": ["huggingface.co"]}], names_),
        ("name servers", "dnsConfig", {"nameservers": ["1.2.3.4"]}, names_),
    ):
        yield _created("pods of Jobs", what, words, _changed(honest, f"spec/template/spec/{path}", value))
    yield _created("pods of Jobs", "many", single, _changed(honest, "spec/parallelism", 50))
    labels = spec["template"]["metadata"]["labels"]
    for what, changed in (
        ("labels of a deployment's pods", {**labels, names.MODEL_DEPLOYMENT: MINE}),
        ("without the label", {key: value for key, value in labels.items() if key != names.PART}),
    ):
        body = _changed(honest, "spec/template/metadata/labels", changed)
        yield _created("pods of Jobs", what, "and none of a ModelDeployment's pods", body)
    for name in ("thief", honest["metadata"]["name"].replace("download", "check-size"), "evil-download-12345678"):
        yield _created("names", f"a Job {name}", "is called as", _changed(honest, "metadata/name", name))
    yield from _of_others(honest)
    for verb, name, words in (
        ("patch", "ours", "the core never changes a Job"),
        ("patch", "users", "that it has not made for a ModelArtifact"),
        ("delete", "users", "that it has not made for a ModelArtifact"),
    ):
        yield _changing(JOB, verb, name, words, {"spec": {"parallelism": 2}} if verb == "patch" else None)


def _of_others(honest: Resource) -> Iterator[Attempt]:
    """What is refused of Jobs and claims alike."""
    kind = honest["kind"]
    belongs, (owner,) = "must belong to a ModelArtifact", honest["metadata"]["ownerReferences"]
    for what, owners in (
        ("without an owner", []),
        ("of a ConfigMap", [{**owner, "apiVersion": "v1", "kind": "ConfigMap"}]),
        ("of another group", [{**owner, "apiVersion": "evil.io/v1"}]),
        ("that nothing controls", [{**owner, "controller": False}]),
    ):
        body = _changed(honest, "metadata/ownerReferences", owners)
        yield _created("owners", f"a {kind} {what}", belongs, body)
    labels = honest["metadata"]["labels"]
    unmarked = {key: value for key, value in labels.items() if key != names.PART}
    words = "must have the label airunway.ai/part"
    yield _created("labels", f"a {kind} without the label", words, _changed(honest, "metadata/labels", unmarked))
    mislabelled = {**labels, names.ARTIFACT: "another"}
    words = f"has the label {names.ARTIFACT}"
    yield _created("labels", f"a {kind} of another", words, _changed(honest, "metadata/labels", mislabelled))
    held = _changed(honest, "metadata/finalizers", ["evil.io/hold"])
    yield _created("finalizers", f"a {kind} that cannot go", "must not change the finalizers", held)
    yield from _elsewhere(honest)


def _elsewhere(honest: Resource) -> Iterator[Attempt]:
    for where, words in (("kube-system", "namespaces of the system"), (OPERATOR, "the namespace of the operator")):
        body = _changed(honest, "metadata/namespace", where)
        yield _created("namespaces", f"a {honest['kind']} in {where}", words, body)


def _changing(kind: Kind, verb: str, name: str, words: str, body: Resource | None) -> Attempt:
    return Attempt(
        family="objects of others" if name != "ours" else "objects",
        what=f"{verb} {kind.kind} {name}",
        verb="patch" if verb == "patch" else "delete",
        kind=kind,
        words=words,
        name=name,
        body=body,
    )


def _of_claims() -> Iterator[Attempt]:
    """What a thief tries with the right to make claims."""
    honest, volume = _claim_of_artifact(), _claim_of_volume()
    empty, called = "name no volume, snapshot or other claim", "is called as the artifact"
    for what, field, value, words in (
        ("a volume of others", "volumeName", "pv-of-others", empty),
        ("a copy of a claim", "dataSource", {"kind": "PersistentVolumeClaim", "name": "training-data"}, empty),
        ("a volume by label", "selector", {"matchLabels": {"tenant": "b"}}, empty),
        ("a device", "volumeMode", "Block", "file systems with one access mode"),
        ("all modes", "accessModes", ["ReadWriteOnce", "ReadWriteMany"], "file systems with one access mode"),
    ):
        yield _created("claims", what, words, _changed(honest, f"spec/{field}", value))
        yield _created("claims", f"{what}, as a volume", words, _changed(volume, f"spec/{field}", value))
    for name in ("thief", "thief-cache-12345678", f"{_WEIGHTS}-cache"):
        yield _created("names", f"a claim {name}", called, _changed(honest, "metadata/name", name))
    words = "called as the ModelDeployment and the volume"
    for name in ("thief", "another-scratch-space", "thief-12345678"):
        yield _created("names", f"a volume {name}", words, _changed(volume, "metadata/name", name))
    labels = {**volume["metadata"]["labels"], names.MODEL_DEPLOYMENT: "another"}
    words = f"the claim of a volume has the label {names.MODEL_DEPLOYMENT}"
    yield _created("labels", "a volume of another", words, _changed(volume, "metadata/labels", labels))
    yield from _of_others(honest)
    body = {"metadata": {"labels": {names.PART: names.MODEL_CACHE_PART}, "ownerReferences": [OWNER]}}
    for verb in ("patch", "delete"):
        words = "that it has not made for a ModelArtifact"
        yield _changing(PERSISTENT_VOLUME_CLAIM, verb, "users", words, body if verb == "patch" else None)


def _of_artifacts() -> Iterator[Attempt]:
    """What a thief tries with the right to make ModelArtifacts."""
    honest, none = made_of_the_cache(), "has none of env, imagePullSecrets"
    env = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "precious", "key": "x"}}}
    for what, field, value, words in (
        ("a variable", "env", [env], none),
        ("an account", "serviceAccountName", "cluster-admin", none),
        ("an image", "downloaderImage", "registry.example/evil", none),
        ("pull secrets", "imagePullSecrets", [{"name": "precious"}], none),
        ("a bucket", "source", {"uri": "s3://evil/x"}, "a repository of Hugging Face as its source"),
    ):
        yield _created("artifacts", what, words, _changed(honest, f"spec/{field}", value))
    foreign = [{**OWNER, "apiVersion": "v1", "kind": "ConfigMap"}]
    belongs = "belongs to no object, or to a ModelDeployment"
    yield _created("artifacts", "of a ConfigMap", belongs, _changed(honest, "metadata/ownerReferences", foreign))
    yield _created("artifacts", "by name", "ends with ten digits", _changed(honest, "metadata/name", "thief"))
    yield _created("artifacts", "as a user's", "has the labels", _changed(honest, "metadata/labels", {}))
    held = _changed(honest, "metadata/finalizers", ["evil.io/hold"])
    yield _created("artifacts", "one that cannot go", "must not change the finalizers", held)
    yield from _elsewhere(honest)
    theirs, only = "a ModelArtifact that it has not made", "changes only labels of a ModelArtifact"
    ours = {names.PART: names.MODEL_CACHE_PART, names.MANAGED_BY: names.MANAGED_BY_VALUE}
    for name, words, body in (
        ("users", theirs, {"spec": {"size": "2Gi"}}),
        ("users", theirs, {"metadata": {"labels": ours}}),
        ("ours", only, {"spec": {"size": "2Gi"}}),
        ("ours", only, {"spec": {"downloaderImage": "registry.example/evil"}}),
        ("ours", only, {"metadata": {"annotations": {"a": "b"}}}),
        ("ours", only, {"metadata": {"ownerReferences": [OWNER]}}),
    ):
        yield _changing(MODEL_ARTIFACT, "patch", name, words, body)
    yield _changing(MODEL_ARTIFACT, "delete", "users", theirs, None)


def of_the_model_cache() -> list[Attempt]:
    """All attempts with the rights of the model cache part."""
    return [*_of_downloads(), *_of_claims(), *_of_artifacts()]
