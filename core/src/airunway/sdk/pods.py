"""The pod of a model server, with every field of a deployment that belongs in a pod, for all providers.

A transformer has the feature `HARDENED` if the security contexts of its pods meet the Pod Security Standard
``restricted``, as far as the image allows; released transformers without it keep their output. Many
engine images run as root and write to root's home, so running as another user is up to the deployment
(``spec.securityContext``). The images of helpers (pickers, sidecars) never need root.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment, Volume
from airunway.configs.patterns import is_reserved
from airunway.engines.arguments import literal
from airunway.plugins.contract import Context, Finding, ModelCache
from airunway.quantity import parse_quantity
from airunway.resource import Resource, digest, filled
from airunway.sdk.deployments import is_disaggregated, replicas_of
from airunway.sdk.findings import blocker, ignored, miswritten, several_parts
from airunway.sdk.launch import Launch, path_of
from airunway.typed_pods import is_pod_spec

HARDENED = "hardened"
"""Feature of a transformer: pods get no ServiceAccount token unless requested, and no privileges."""


def pod_security() -> Resource:
    """The ``securityContext`` of a pod, with the container runtime's default seccomp profile."""
    return {"seccompProfile": {"type": "RuntimeDefault"}}


def container_security(*, helper: bool = False) -> Resource:
    """The ``securityContext`` of a container. A `helper` never runs as root; its image must have a numeric user."""
    user = {"runAsNonRoot": True} if helper else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **user}


RESERVED = (f"{names.GROUP}/",)
"""Prefix of label keys that a user's pod template cannot set, because selectors and ownership depend on them."""

CONTAINER = "model"

_SHARED_MEMORY = "airunway-dshm"
_SCRATCH_VOLUME, _SCRATCH = "airunway-tmp", "/tmp"
_HOMES, _WHO = ("/root", "/home"), frozenset({"HOME", "USER"})
_CACHE = "airunway-model-cache"
_CACHE_VARIABLES = {"modelCache": "HF_HOME", "compilationCache": "VLLM_CACHE_ROOT"}
ONE_POD = ("ReadWriteOnce", "ReadWriteOncePod")
"""Access modes with which one pod may mount a model cache (docs/model-cache.md)."""


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """The resources that one pod requests."""

    gpu_type: str
    """Resource name of the GPUs."""
    gpus: int
    memory: str = ""
    """A quantity; empty: no request."""
    cpu: str = ""
    """A quantity; empty: no request."""
    cpu_limit: str = ""
    """A quantity; empty: no limit."""
    extended: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Counts of extended resources of each pod, by their names."""
    device_class: str = ""
    """DeviceClass of the GPUs, which a claim then asks for in place of `gpu_type` (`airunway.sdk.device_claims`)."""

    @property
    def cores(self) -> int:
        """Whole cores, rounded up; 0 without a request."""
        return ceil(parse_quantity(self.cpu)) if self.cpu else 0

    def divided(self, parts: int) -> Sizing:
        """An equal share, rounded up, for each of `parts` pods that form one replica."""
        memory = str(ceil(parse_quantity(self.memory) / parts)) if self.memory else ""
        cpu, limit = (
            f"{ceil(parse_quantity(each) * 1000 / parts)}m" if each else "" for each in (self.cpu, self.cpu_limit)
        )
        return replace(self, gpus=ceil(self.gpus / parts), memory=memory, cpu=cpu, cpu_limit=limit)


def sizing(deployment: ModelDeployment, role: str = "") -> Sizing:
    """The resources of a replica, or in disaggregated mode of a worker with that `role` (``prefill`` or ``decode``)."""
    spec = deployment.spec
    resources = spec.resources
    limit, extended = resources.limits.cpu or "", _counts(deployment)
    if role:
        worker = spec.scaling.prefill if role == "prefill" else spec.scaling.decode
        if worker is not None:
            gpu = worker.gpu
            return Sizing(
                gpu_type=gpu.type,
                gpus=gpu.count,
                memory=worker.memory or "",
                cpu=worker.cpu or "",
                cpu_limit=worker.limits.cpu or limit,
                extended=extended,
                device_class=gpu.device_class or "",
            )
    return Sizing(
        gpu_type=resources.gpu.type,
        gpus=resources.gpu.count,
        memory=resources.memory or "",
        cpu=resources.cpu or "",
        cpu_limit=limit,
        extended=extended,
        device_class=resources.gpu.device_class or "",
    )


def _counts(deployment: ModelDeployment) -> dict[str, str]:
    return {name: count for name, count in sorted(deployment.spec.resources.extended.items()) if count}


def helper_size(deployment: ModelDeployment, *, cpu: str, memory: str) -> Sizing:
    """The resources of a pod beside the model's: a frontend, a Ray head.

    It has a CPU limit, of what it requests, where the deployment limits the model's CPU: a quota that demands limits
    demands them of every pod.
    """
    limited = limits_cpu(deployment)
    return Sizing(gpu_type="", gpus=0, cpu=cpu, memory=memory, cpu_limit=cpu if limited else "")


def limits_cpu(deployment: ModelDeployment) -> bool:
    """Whether the deployment limits the CPU of its pods."""
    spec = deployment.spec
    workers = (spec.scaling.prefill, spec.scaling.decode)
    limits = [spec.resources.limits, *(worker.limits for worker in workers if worker is not None)]
    return any(each.cpu for each in limits)


HELPER_LIMITS: Mapping[str, str] = {"cpu": "2", "memory": "2Gi"}
"""Limits of a small helper container, such as a picker, where the deployment limits the CPU of its pods."""


def helper_resources(deployment: ModelDeployment, requests: Mapping[str, str]) -> Resource:
    """The ``resources`` of a small helper container with these `requests`; empty if there is nothing to say.

    Limits are at least what it requests.
    """
    if not limits_cpu(deployment):
        return filled(requests=dict(requests))
    limits = {
        name: max(limit, requests.get(name, "0"), key=lambda text: parse_quantity(text))
        for name, limit in HELPER_LIMITS.items()
    }
    return {"requests": {"cpu": "100m", "memory": "128Mi", **requests}, "limits": limits}


def model_pod(
    deployment: ModelDeployment,
    context: Context[Any],
    launch: Launch,
    *,
    size: Sizing | None = None,
    labels: Mapping[str, str] | None = None,
    reserved: Sequence[str] = (),
    node_selector: Mapping[str, str] | None = None,
    container: str = CONTAINER,
    shared_memory: bool = True,
    own_volumes: bool = True,
    hardened: bool | None = None,
    calls_api: bool = False,
    without: Collection[str] = (),
) -> Resource:
    """A pod template (metadata and spec) with one container, called `container`, that runs `launch`.

    `size` defaults to the deployment's. `labels` are added to the pod and override the user's. `reserved` are further
    label keys that the user cannot set; one that ends with ``/``, ``-`` or ``.`` is a prefix of keys. `node_selector`
    are node labels required by default; the deployment's override them. Without `shared_memory` nothing is mounted at
    ``/dev/shm``, for upstreams that do so themselves. Without `own_volumes` the deployment's volumes are not mounted
    and no variables point to them, for helpers that load no weights. `hardened` defaults to the feature `HARDENED` of
    the primary kind's transformer. A server with `calls_api` keeps its ServiceAccount token; otherwise a hardened pod
    has a token only if the deployment names a ServiceAccount. `without` names fields of the pod spec and of its
    container that the upstream sets itself.
    """
    spec = deployment.spec
    hardened = context.has(HARDENED) if hardened is None else hardened
    size = size or sizing(deployment)
    of_model = bool(size.gpu_type)  # helpers have none
    shared = shared_memory and bool(size.gpus)
    volumes, mounts = _storage(deployment, context, shared_memory=shared, own_volumes=own_volumes)
    main = {
        "name": container,
        "image": launch.image,
        "command": list(launch.command),
        "args": list(launch.args),
        "ports": [{"name": "http", "containerPort": launch.port}] if launch.port else [],
        "env": environment(deployment, context, launch, own_volumes=own_volumes, token=False),
        "envFrom": environment_sources(deployment, context),
        "resources": container_resources(size),
        "startupProbe": launch.startup,
        "readinessProbe": launch.readiness,
        "livenessProbe": launch.liveness,
        "volumeMounts": mounts,
        "securityContext": {
            **_capable(container_security() if hardened else {}, deployment if of_model else None),
            **({"readOnlyRootFilesystem": True} if spec.security_context.read_only_root_filesystem else {}),
        },
        # The end of an engine's log (a gated model, a wrong argument) reaches the pod's status only with this policy.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    secrets = dict.fromkeys([*(ref.name for ref in spec.image_pull_secrets), *context.runtime.image_pull_secrets])
    pod = {
        "containers": [filled(**_left(main, without))],
        "volumes": volumes,
        "resourceClaims": pod_claims(deployment, size),
        "nodeSelector": {**(node_selector or {}), **spec.node_selector},
        "tolerations": [toleration.to_resource() for toleration in spec.tolerations],
        "affinity": spec.affinity,
        "topologySpreadConstraints": spec.topology_spread_constraints,
        "serviceAccountName": spec.service_account_name,
        "automountServiceAccountToken": None if not hardened or calls_api or spec.service_account_name else False,
        "securityContext": {**(pod_security() if hardened else {}), **_user(deployment)},
        "imagePullSecrets": [{"name": name} for name in secrets],
        "priorityClassName": spec.priority_class_name,
        "runtimeClassName": _runtime_class(deployment, context, size) if of_model else None,
    }
    metadata = {
        "labels": {**context.runtime.labels, **pod_labels(deployment, reserved=reserved), **(labels or {})},
        "annotations": dict(spec.pod_template.metadata.annotations),
    }
    # A Service called "vllm" would give every pod of its namespace VLLM_PORT=tcp://…, which vLLM takes for its own.
    return {"metadata": filled(**metadata), "spec": {**filled(**_left(pod, without)), "enableServiceLinks": False}}


def _runtime_class(deployment: ModelDeployment, context: Context[Any], size: Sizing) -> str | None:
    """The deployment's own class, else with GPUs that of its runtime config."""
    return deployment.spec.runtime_class_name or (context.runtime.runtime_class if size.gpus else None) or None


def _capable(security: Resource, deployment: ModelDeployment | None) -> Resource:
    """The security context of a container with the capabilities that the deployment adds."""
    added = deployment.spec.security_context.capabilities.add if deployment is not None else []
    if not added:
        return security
    return {**security, "capabilities": {**security.get("capabilities", {}), "add": list(added)}}


def _left(fields: Resource, without: Collection[str]) -> Resource:
    return {name: value for name, value in fields.items() if name not in without}


def _user(deployment: ModelDeployment) -> Resource:
    """User and groups of the pod, from the deployment."""
    wanted = deployment.spec.security_context
    return filled(
        runAsNonRoot=wanted.run_as_non_root or None,
        runAsUser=wanted.run_as_user,
        runAsGroup=wanted.run_as_group,
        fsGroup=wanted.fs_group,
    )


def pod_labels(deployment: ModelDeployment, *, reserved: Sequence[str] = ()) -> dict[str, str]:
    """The user's pod labels without reserved ones (see `model_pod`)."""
    wanted = deployment.spec.pod_template.metadata.labels
    return {key: value for key, value in wanted.items() if not is_reserved(key, (*RESERVED, *reserved))}


def pod_findings(deployment: ModelDeployment, *, reserved: Sequence[str] = ()) -> Iterator[Finding]:
    """Warnings for fields of a deployment that `model_pod` cannot honour."""
    spec = deployment.spec
    yield from (finding for refuses, finding in several_parts(deployment) if not refuses)
    yield from miswritten(deployment)
    for key in spec.pod_template.metadata.labels:
        if is_reserved(key, (*RESERVED, *reserved)):
            text = f"the label {key} is reserved for the operators and is not put on the pods"
            yield ignored(f"spec.podTemplate.metadata.labels[{key}]", text)
    if spec.secrets.hugging_face_token and any(entry.name == TOKEN for entry in spec.env):
        yield ignored("spec.secrets.huggingFaceToken", f"spec.env sets {TOKEN}, which is used instead of this Secret's")
    path = posixpath.normpath(path_of(deployment)) if path_of(deployment).startswith("/") else ""
    if path and spec.model.cache.mode == "None":
        mounted = [volume.mount_path for volume in spec.model.storage.volumes if volume.mount_path]
        if not any(_is_within(path, posixpath.normpath(each)) for each in mounted):
            text = (
                f"no volume is mounted at {path:.200} or above it, so that the image itself must have it: add a volume "
                f"to spec.model.storage.volumes with mountPath {posixpath.dirname(path):.200}"
            )
            named = "spec.engine.args[ggufUrl]" if spec.engine.args.get("ggufUrl") else "spec.model.id"
            yield Finding(path=named, reason="MayNotStart", message=text)


def pod_blockers(deployment: ModelDeployment, context: Context[Any], *, mounts: int | None = None) -> Iterator[Finding]:
    """Blockers for fields that `model_pod` would have to leave out although they change what runs.

    `mounts` is the number of pods that mount the model cache (default: `cache_pods`). More than one cannot mount a
    claim that allows one pod.
    """
    model, cache = deployment.spec.model, context.cache
    yield from (finding for refuses, finding in several_parts(deployment) if refuses)
    if model.cache.mode != "None" and cache is None:
        text = (
            "this provider has no model cache for the deployment: set spec.model.cache.mode to None, or mount a claim "
            "with spec.model.storage.volumes"
        )
        yield blocker("spec.model.cache.mode", text)
    if cache is not None:
        yield from _cache_blockers(deployment, cache, mounts)
    for i, volume in enumerate(model.storage.volumes):
        if not _source(volume) or not volume.mount_path:
            text = f"volume {volume.name} needs claimName (or size), configMap or secret, and mountPath to be mounted"
            yield blocker(f"spec.model.storage.volumes[{i}]", text)


def _cache_blockers(deployment: ModelDeployment, cache: ModelCache, mounts: int | None) -> Iterator[Finding]:
    if cache.access_mode in ONE_POD:
        # Read only where it decides: fields that nothing read are reported as ignored.
        mounts = cache_pods(deployment) if mounts is None else mounts
        if mounts > 1:
            text = (
                f"{mounts} pods would mount the model cache, and its access mode {cache.access_mode} allows one: set "
                "spec.model.cache.accessMode to ReadWriteMany, with a storageClassName that supports it"
            )
            yield blocker("spec.model.cache.accessMode", text, "AccessModeConflict")
    for i, volume in enumerate(deployment.spec.model.storage.volumes):
        if _is_within(volume.mount_path or "", cache.mount_path):
            text = (
                f"volume {volume.name} is mounted at {volume.mount_path}, inside the model cache at "
                f"{cache.mount_path}, which is read-only: choose another path"
            )
            yield blocker(f"spec.model.storage.volumes[{i}].mountPath", text)


def cache_pods(deployment: ModelDeployment, *, helpers: int = 0) -> int:
    """How many pods mount the model cache, if each replica, or worker of each role, is one pod.

    `helpers` are further ones (`EngineCapability.cache_helpers`). A model that is scaled to zero counts as one replica:
    that is what it needs to come back.
    """
    roles = ("prefill", "decode") if is_disaggregated(deployment) else ("",)
    return helpers + sum(max(1, replicas_of(deployment, role)) for role in roles)


def _is_within(path: str, folder: str) -> bool:
    """Whether an absolute path is the folder or below it."""
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


TOKEN = "HF_TOKEN"
"""The variable, and the key of a Secret, with the Hugging Face token."""


def environment(
    deployment: ModelDeployment,
    context: Context[Any],
    launch: Launch | None = None,
    *,
    own_volumes: bool = True,
    token: bool = True,
) -> list[Resource]:
    """The variables of the model's container: the runtime config's, then the deployment's, then derived ones.

    Later ones override earlier ones, with two exceptions: a derived variable overrides a variable of the deployment
    only if the launch itself needs it, and a derived ``HOME`` or ``USER`` overrides none. Without `own_volumes` none is
    derived from a volume, for a container that mounts none. Without `token` there is no variable for the token, for a
    container with `environment_sources`.
    """
    spec = deployment.spec
    own = {entry.name: entry.to_resource() for entry in spec.env}
    variables: dict[str, Resource] = {str(entry.get("name")): dict(entry) for entry in context.runtime.env}
    if token_secret(deployment, context):
        variables.pop(TOKEN, None)  # variables go before sources, and the Secret is nearer than the config's variable
    variables.update(own)
    derived = _derived(deployment, context, own_volumes=own_volumes, token=token)
    # Where an engine may write, administrators know as well.
    fixed = {*own, *(_WHO & variables.keys())}
    variables.update({name: entry for name, entry in derived if name not in fixed})
    variables.update({str(entry["name"]): dict(entry) for entry in (launch.env if launch is not None else ())})
    # Kubernetes' own types leave an empty value out (`typed_pods`), also where a provider puts these outside of a pod.
    return [{key: value for key, value in entry.items() if value != ""} for entry in variables.values()]


def environment_sources(deployment: ModelDeployment, context: Context[Any]) -> list[Resource]:
    """The ``envFrom`` of the model's container: every key of the token's Secret is a variable there."""
    name = token_secret(deployment, context)
    return [{"secretRef": {"name": name}}] if name else []


def token_secret(deployment: ModelDeployment, context: Context[Any]) -> str:
    """The Secret whose keys are variables of the model: the deployment's, else the runtime config's; or empty."""
    return deployment.spec.secrets.hugging_face_token or context.runtime.token


def _derived(
    deployment: ModelDeployment, context: Context[Any], *, own_volumes: bool, token: bool
) -> Iterator[tuple[str, Resource]]:
    spec = deployment.spec
    if _needs_home(deployment):
        yield "HOME", {"name": "HOME", "value": _SCRATCH}
        # PyTorch looks up its user name, and exits if the image has no user with that id.
        yield "USER", {"name": "USER", "value": CONTAINER}
    if token and (secret := token_secret(deployment, context)):
        yield TOKEN, {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": secret, "key": TOKEN}}}
    cache = context.cache
    for volume in spec.model.storage.volumes if own_volumes else ():
        # With a cache the weights come from there, and engines write into HF_HOME only (modules, compiled code).
        unused = cache is not None and volume.purpose == "modelCache" and volume.read_only
        if (name := _CACHE_VARIABLES.get(volume.purpose)) and volume.mount_path and not unused:
            yield name, {"name": name, "value": literal(volume.mount_path)}
    # HF_HOME stays the image's: the cache is read-only, and transformers write modules into HF_HOME. A container with
    # a model of its own decides itself what it does with the cache.
    if cache is not None and cache.offline and spec.model.source != "custom":
        # huggingface_hub reads the first; transformers of older images read the second.
        yield "HF_HUB_OFFLINE", {"name": "HF_HUB_OFFLINE", "value": "1"}
        yield "TRANSFORMERS_OFFLINE", {"name": "TRANSFORMERS_OFFLINE", "value": "1"}


def _needs_home(deployment: ModelDeployment) -> bool:
    """Whether the image's own home may be no place to write: engines put weights and compiled code there.

    OpenShift runs a container as a user whose id is in no image, with ``/`` as home, and nothing in the pod's spec says
    so. A volume that the user mounts in a home directory is meant to be used, and a container with a model of its own
    knows its home, unless either runs as another user than the image's.
    """
    spec, wanted = deployment.spec, deployment.spec.security_context
    if wanted.run_as_user is not None or wanted.run_as_non_root or wanted.read_only_root_filesystem:
        return True
    mounted = (volume.mount_path or "" for volume in spec.model.storage.volumes)
    return spec.model.source != "custom" and not any(_is_within(path, home) for path in mounted for home in _HOMES)


def container_resources(size: Sizing) -> Resource:
    """Requests and limits of a container of that size."""
    by_claim = bool(size.gpus and size.device_class)
    gpus = {size.gpu_type: str(size.gpus)} if size.gpus and not by_claim else {}
    memory = {"memory": size.memory} if size.memory else {}
    cpu = {"cpu": size.cpu} if size.cpu else {}
    # No limit on CPU unless it is asked for: it would only throttle.
    limit = {"cpu": size.cpu_limit} if size.cpu_limit else {}
    return filled(
        requests={**gpus, **memory, **cpu, **size.extended},
        limits={**gpus, **memory, **limit, **size.extended},
        claims=[{"name": CLAIM}] if by_claim else [],
    )


CLAIM = "gpus"
"""The name of the claim in a pod, and of its request."""


def claim_template_name(deployment: ModelDeployment, size: Sizing) -> str:
    """Name of the ResourceClaimTemplate for the GPUs of such pods.

    It changes with what it asks for: a template cannot be changed, and the pods that name another are rolled out anew.
    """
    return f"{deployment.metadata.name}-{CLAIM}-{digest([size.device_class, size.gpus], length=8)}"


def pod_claims(deployment: ModelDeployment, size: Sizing) -> list[Resource]:
    """The ``resourceClaims`` of a pod of that size: one if it has GPUs of a device class."""
    if not (size.gpus and size.device_class):
        return []
    return [{"name": CLAIM, "resourceClaimTemplateName": claim_template_name(deployment, size)}]


def _storage(
    deployment: ModelDeployment, context: Context[Any], *, shared_memory: bool, own_volumes: bool
) -> tuple[list[Resource], list[Resource]]:
    """Volumes and mounts: shared memory for GPUs, model cache, the deployment's own claims, a writable ``/tmp``."""
    volumes: list[Resource] = []
    mounts: list[Resource] = []
    if shared_memory:
        # Engines pass tensors between their processes through it; the default of 64 MiB is too little.
        volumes.append({"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": _SHARED_MEMORY, "mountPath": "/dev/shm"})
    cache_volumes, cache_volume_mounts = cache_mounts(context)
    volumes += cache_volumes
    mounts += cache_volume_mounts
    for volume in deployment.spec.model.storage.volumes if own_volumes else ():
        source = _source(volume)
        if not source or not volume.mount_path:
            continue
        only = {"readOnly": True} if volume.read_only or "persistentVolumeClaim" not in source else {}
        volumes.append({"name": volume.name, **source})
        mounts.append({"name": volume.name, "mountPath": volume.mount_path, **only})
    if deployment.spec.security_context.read_only_root_filesystem and all(m["mountPath"] != _SCRATCH for m in mounts):
        volumes.append({"name": _SCRATCH_VOLUME, "emptyDir": {}})
        mounts.append({"name": _SCRATCH_VOLUME, "mountPath": _SCRATCH})
    return volumes, mounts


def _source(volume: Volume) -> Resource:
    """What is mounted; empty without a source."""
    if volume.config_map is not None:
        return {"configMap": {"name": volume.config_map.name}}
    if volume.secret is not None:
        return {"secret": {"secretName": volume.secret.name}}
    only = {"readOnly": True} if volume.read_only else {}
    return {"persistentVolumeClaim": {"claimName": volume.claim_name, **only}} if volume.claim_name else {}


def cache_mounts(context: Context[Any]) -> tuple[list[Resource], list[Resource]]:
    """The volume of the model cache and its mount, for pods and containers that `model_pod` does not give them to.

    Both empty without a cache.
    """
    cache = context.cache
    if cache is None:
        return [], []
    if cache.image:
        source = {"reference": cache.image, "pullPolicy": "IfNotPresent"}
        mount = {"name": _CACHE, "mountPath": cache.mount_path, "readOnly": True}
        return [{"name": _CACHE, "image": source}], [mount]
    only = {"readOnly": True} if cache.read_only else {}
    where = {"subPath": cache.sub_path} if cache.sub_path else {}
    return (
        [{"name": _CACHE, "persistentVolumeClaim": {"claimName": cache.claim, **only}}],
        [{"name": _CACHE, "mountPath": cache.mount_path, **where, **only}],
    )


def pod_templates(obj: object) -> Iterator[Resource]:
    """Every pod template in an object of any kind: each map with a ``spec`` that has a list of named containers."""
    for node in _nodes(obj):
        if is_pod_spec(node.get("spec")):
            yield node


def pod_specs(obj: object) -> Iterator[Resource]:
    """Every pod spec in an object of any kind, for changes in place, such as a site's rule for all pods.

    A pod spec is any map with a list of named ``containers``, in a pod template or elsewhere (KServe's
    ``spec.worker``).
    """
    for node in _nodes(obj):
        if is_pod_spec(node):
            yield node


def _nodes(obj: object) -> Iterator[Resource]:
    """Every map in an object, starting with the object itself."""
    if isinstance(obj, dict):
        yield obj
        for value in obj.values():
            yield from _nodes(value)
    elif isinstance(obj, list):
        for value in obj:
            yield from _nodes(value)
