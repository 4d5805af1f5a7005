"""What a deployment would use of its namespace and its cluster, besides images, engines and GPUs. Pure.

Fields of the spec are read directly. Overrides have no schema here, and the core does not know the providers: their
keys are found by name at any depth, by the names that Kubernetes and its operators commonly use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from airunway.json_path import entries
from airunway.resource import Resource, dig

_EVERYTHING = "*"
"""The value of a use that covers everything: a toleration without a key. Only the list entry ``*`` allows it."""

_HOSTNAME = "kubernetes.io/hostname"
_INSTANCE_TYPE_LABELS = frozenset({"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"})


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One list of a policy."""

    noun: str
    """The word for it in messages."""
    refused: tuple[str, ...] = ()
    """Patterns of what is refused if no rule has this list."""
    free: tuple[str, ...] = ()
    """Exceptions from `refused`."""

    def is_refused(self, value: str) -> bool:
        """Whether this is refused unless a rule lists it."""
        return fits(value, self.refused) and not fits(value, self.free)


def fits(value: str, patterns: tuple[str, ...]) -> bool:
    """Whether a value matches one of the patterns."""
    return any(fnmatchcase(value, pattern) for pattern in patterns)


_OF_A_DOMAIN = ("*/*", "*.*")
"""Keys of labels and annotations that a component in the cluster may act on.

Such keys name their owner, before a slash or (container runtimes) with dots. Their effect is unknown here: identities,
GPUs, networks, queues, mounts. There are too many container runtimes, meshes, schedulers and clouds to list them.
"""

_SHARES_OF_GPUS = ("gpu-*", "runai-*")
"""KAI and Run:ai assign GPUs by annotations of these names, bypassing the pod's requests and the policy's GPU types."""


DIMENSIONS: Mapping[str, Dimension] = {
    "serviceAccounts": Dimension(noun="service account"),
    "secrets": Dimension(noun="secret"),
    "claims": Dimension(noun="claim"),
    # These classes preempt everything else in the cluster.
    "priorityClasses": Dimension(noun="priority class", refused=("system-*",)),
    "tolerations": Dimension(
        noun="toleration of taint",
        # Nodes of the control plane, and those that are reserved for the cluster's own add-ons.
        refused=(f"[{_EVERYTHING}]", "node-role.kubernetes.io/*", "CriticalAddonsOnly"),
    ),
    "nodeSelectorKeys": Dimension(
        noun="node selector key",
        # Nodes of the control plane, and those that were created for another deployment (airunway.ai/nodes-of).
        refused=("node-role.kubernetes.io/*", "airunway.ai/*"),
    ),
    "podLabels": Dimension(
        noun="pod label",
        # The names without a domain are those of identities (Azure), and of queues and priorities of schedulers.
        refused=(*_OF_A_DOMAIN, "aadpodidbinding", "queue", "priorityClassName", *_SHARES_OF_GPUS),
        # Labels that users are advised to put on their own objects.
        free=("app.kubernetes.io/*", "helm.sh/*", "tags.datadoghq.com/*"),
    ),
    "podAnnotations": Dimension(
        noun="pod annotation",
        refused=(*_OF_A_DOMAIN, *_SHARES_OF_GPUS),
        # They configure metrics scraping and the container that kubectl shows, and cause pods to be replaced.
        free=("app.kubernetes.io/*", "prometheus.io/*", "kubectl.kubernetes.io/*", "checksum/*"),
    ),
    "workloadLabels": Dimension(
        noun="workload label", refused=_OF_A_DOMAIN, free=("app.kubernetes.io/*", "helm.sh/*", "tags.datadoghq.com/*")
    ),
    "workloadAnnotations": Dimension(noun="workload annotation", refused=_OF_A_DOMAIN),
    "instanceTypes": Dimension(noun="instance type"),
    "environment": Dimension(
        noun="environment variable",
        # Container runtimes assign devices by these, bypassing the device plugin and its accounting.
        refused=(
            "*_VISIBLE_*",
            "NVIDIA_MIG_*",
            "NVIDIA_IMEX_*",
            "NVIDIA_MOFED*",
            "NVIDIA_GDS*",
            "NVIDIA_GDRCOPY*",
            "NVIDIA_NVSWITCH*",
            "ASCEND_RUNTIME_OPTIONS",
            "ASCEND_ALLOW_LINK",
            "ASCEND_VNPU_SPECS",
            # HAMi limits a container to its share of a GPU by these.
            "CUDA_DISABLE_CONTROL",
            "CUDA_DEVICE_MEMORY_LIMIT*",
            "CUDA_DEVICE_SM_LIMIT*",
        ),
        # With these a process selects among the devices of its container.
        free=(
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ASCEND_RT_VISIBLE_DEVICES",
            "TPU_VISIBLE_*",
        ),
    ),
    "schedulers": Dimension(
        noun="scheduler",
        # Another scheduler may ignore the queues, quotas and taints of the cluster.
        refused=("*",),
        free=("default-scheduler",),
    ),
    "routeAnnotations": Dimension(
        noun="annotation of the route",
        # DNS and gateway controllers take orders from such keys: host names, plugins, snippets of configuration.
        refused=_OF_A_DOMAIN,
        free=("app.kubernetes.io/*", "helm.sh/*", "checksum/*"),
    ),
    "runtimeClasses": Dimension(noun="runtime class"),
    "capabilities": Dimension(noun="capability", refused=("*",)),
    "extendedResources": Dimension(
        noun="extended resource",
        # Accelerators are requested, counted and limited by resources.gpu.
        refused=(
            "*gpu*",
            "*/mig-*",
            "*/gaudi*",
            "*/tpu*",
            "*/neuron*",
            "*/npu*",
            "huawei.com/*",
        ),
    ),
    # A pod that must not run beside others' pods keeps those off its node.
    "affinityNamespaces": Dimension(noun="namespace in an affinity", refused=("*",)),
    # Name resolution only affects the pod itself, unless a site filters by name.
    "nameResolution": Dimension(noun="address for names"),
}
"""The lists of a policy that `uses_of` is about, by their keys in the file."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """One thing that a deployment uses."""

    dimension: str
    """Key of its dimension."""
    path: str
    """Path of the field that requests it."""
    value: str
    is_pattern: bool = False
    """Whether the value is a pattern of keys (`covers`)."""


def note_of(dimension: str, value: str) -> str:
    """How the core notes for the guards that an accepted deployment uses something; no service account is called so."""
    return f"{dimension}={value}"


_NOTED = (
    "affinityNamespaces",
    "capabilities",
    "nodeSelectorKeys",
    "podAnnotations",
    "priorityClasses",
    "schedulers",
    "tolerations",
    "workloadAnnotations",
)
_ONE_WORD = re.compile(r"[!-~]{1,320}", re.ASCII)


def notes_of(spec: Resource) -> frozenset[str]:
    """What a spec uses of what the guards of providers refuse by themselves: it needs a policy, or an exception of one.

    Never raises, for any `spec`.
    """
    return frozenset(
        note_of(use.dimension, use.value)
        for use in uses_of(spec)
        if use.dimension in _NOTED
        and DIMENSIONS[use.dimension].is_refused(use.value)
        and _ONE_WORD.fullmatch(use.value)
    )


_OPEN = re.compile(r"[*?]|[\[\\].*", re.DOTALL)
"""What in a pattern of labels may match more than itself; from the first class or backslash on, that is everything."""


def covers(entries: tuple[str, ...], pattern: str) -> bool:
    """Whether a list of a policy allows every label key that a pattern of ``labelPropagation`` may match.

    Cautious: an entry with ``?`` or a class covers only the same pattern, and the keys that it matches.
    """
    known = _OPEN.sub("\0", pattern)
    comparable = (entry for entry in entries if known == pattern or not {"?", "["} & set(entry))
    return pattern in entries or fits(known, tuple(comparable))


def uses_of_config(spec: Resource) -> Iterator[Use]:
    """Yields everything that a RuntimeConfig adds to pods and routes, and the patterns of the labels that it copies.

    With ``inherit: Cluster`` its patterns also count if the ClusterRuntimeConfig switches them on. Never raises.
    """
    yield from uses_of({field: spec.get(field) for field in ("env", "imagePullSecrets", "runtimeClassName", "secrets")})
    yield from _keys("routeAnnotations", "spec.routing.annotations", dig(spec, "routing", "annotations"))
    enabled = dig(spec, "labelPropagation", "enabled")
    if enabled is True or (enabled is None and spec.get("inherit") == "Cluster"):
        for path, pattern in _items("spec.labelPropagation.match", dig(spec, "labelPropagation", "match")):
            if isinstance(pattern, str):
                yield Use(dimension="podLabels", path=path, value=pattern, is_pattern=True)


def uses_of(spec: Resource) -> Iterator[Use]:
    """Yields everything that `spec` uses, its overrides included.

    A claim that is created for the deployment (a volume with size) is its own. Never raises, for any `spec`.
    """
    yield from _texts("serviceAccounts", "spec.serviceAccountName", dig(spec, "serviceAccountName"))
    yield from _texts("priorityClasses", "spec.priorityClassName", dig(spec, "priorityClassName"))
    yield from _texts("runtimeClasses", "spec.runtimeClassName", dig(spec, "runtimeClassName"))
    added = "spec.securityContext.capabilities.add"
    for path, capability in _items(added, dig(spec, "securityContext", "capabilities", "add")):
        yield from _texts("capabilities", path, capability)
    yield from _keys("extendedResources", "spec.resources.extended", dig(spec, "resources", "extended"))
    yield from _texts("secrets", "spec.secrets.huggingFaceToken", dig(spec, "secrets", "huggingFaceToken"))
    yield from _references("secrets", "spec.imagePullSecrets", dig(spec, "imagePullSecrets"))
    yield from _variables("spec.env", dig(spec, "env"))
    for path, volume in _items("spec.model.storage.volumes", dig(spec, "model", "storage", "volumes")):
        if not dig(volume, "size"):
            yield from _texts("claims", f"{path}.claimName", dig(volume, "claimName"))
        yield from _texts("secrets", f"{path}.secret.name", dig(volume, "secret", "name"))
    yield from _tolerations("spec.tolerations", dig(spec, "tolerations"))
    yield from _node_labels("spec.nodeSelector", dig(spec, "nodeSelector"))
    yield from _node_affinity(dig(spec, "affinity", "nodeAffinity"))
    yield from _affinity_namespaces("spec.affinity", dig(spec, "affinity"))
    for name in ("labels", "annotations"):
        for owner, whose in (("podTemplate", "pod"), ("workload", "workload")):
            path, given = f"spec.{owner}.metadata.{name}", dig(spec, owner, "metadata", name)
            yield from _keys(f"{whose}{name.title()}", path, given)
    yield from _keys("routeAnnotations", "spec.gateway.annotations", dig(spec, "gateway", "annotations"))
    for place, key, value in entries(dig(spec, "provider", "overrides"), "spec.provider.overrides"):
        yield from _overridden(str(place), key, value)


def _overridden(path: str, key: str, value: object) -> Iterator[Use]:
    match key:
        case "priorityClassName":
            yield from _texts("priorityClasses", path, value)
        case "claimName" | "persistentVolumeClaim":
            yield from _texts("claims", path, value)
        case "schedulerName":
            yield from _texts("schedulers", path, value)
        case "nameservers":
            for at, address in _items(path, value):
                yield from _texts("nameResolution", at, address)
        case "hostAliases":
            for at, alias in _items(path, value):
                yield from _texts("nameResolution", f"{at}.ip", dig(alias, "ip"))
        case "instanceType":
            yield from _texts("instanceTypes", path, value)
        case "imagePullSecrets":
            yield from _references("secrets", path, value)
        case "secretKeyRef" | "secretRef" | "secret" if isinstance(value, dict):
            yield from _texts("secrets", f"{path}.name", value.get("name"))
        case "env" | "envs":
            yield from _variables(path, value, references=False)  # references are entries of their own
        case "tolerations":
            yield from _tolerations(path, value)
        case "nodeSelector" | "matchLabels":
            yield from _node_labels(path, value)
        case "matchExpressions" | "matchFields":
            yield from _expressions(path, value)
        case "podAffinity" | "podAntiAffinity":
            yield from _affinity_namespaces(path, value)
        case "preferredNodes":
            if value:
                yield Use(dimension="nodeSelectorKeys", path=path, value=_HOSTNAME)
        case "labels" | "podLabels":
            yield from _keys("podLabels", path, value)
        case "annotations" | "podAnnotations":
            yield from _keys("podAnnotations", path, value)
        case _ if isinstance(key, str) and key.lower().endswith(("secret", "secretname")):
            yield from _texts("secrets", path, value)


def _texts(dimension: str, path: str, value: object) -> Iterator[Use]:
    if isinstance(value, str) and value:
        yield Use(dimension=dimension, path=path, value=value)


def _keys(dimension: str, path: str, value: object) -> Iterator[Use]:
    for key in value if isinstance(value, dict) else ():
        yield Use(dimension=dimension, path=f"{path}[{key}]", value=str(key))


def _items(path: str, value: object) -> Iterator[tuple[str, object]]:
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield f"{path}[{index}]", item


def _references(dimension: str, path: str, value: object) -> Iterator[Use]:
    """Names, or objects with a name; operators use both forms."""
    for at, item in _items(path, value):
        yield from _texts(dimension, at, item)
        yield from _texts(dimension, f"{at}.name", dig(item, "name"))


def _variables(path: str, value: object, *, references: bool = True) -> Iterator[Use]:
    for at, variable in _items(path, value):
        yield from _texts("environment", f"{at}.name", dig(variable, "name"))
        if references:
            reference = f"{at}.valueFrom.secretKeyRef.name"
            yield from _texts("secrets", reference, dig(variable, "valueFrom", "secretKeyRef", "name"))


def _tolerations(path: str, value: object) -> Iterator[Use]:
    """By the keys of the taints. Without a key every taint is tolerated, also those of the control plane."""
    for at, toleration in _items(path, value):
        key = dig(toleration, "key")
        keyed = isinstance(key, str) and key
        yield Use(dimension="tolerations", path=f"{at}.key" if keyed else at, value=str(key) if keyed else _EVERYTHING)


def _node_labels(path: str, value: object) -> Iterator[Use]:
    for key, wanted in value.items() if isinstance(value, dict) else ():
        yield Use(dimension="nodeSelectorKeys", path=f"{path}[{key}]", value=str(key))
        if key in _INSTANCE_TYPE_LABELS:
            yield from _texts("instanceTypes", f"{path}[{key}]", wanted)


def _expressions(path: str, value: object) -> Iterator[Use]:
    """Requirements on nodes. DoesNotExist is skipped, because it selects no nodes that are reserved by a label."""
    for at, requirement in _items(path, value):
        key, operator = dig(requirement, "key"), dig(requirement, "operator")
        if not isinstance(key, str) or operator == "DoesNotExist":
            continue
        yield Use(dimension="nodeSelectorKeys", path=f"{at}.key", value=_HOSTNAME if key == "metadata.name" else key)
        if key in _INSTANCE_TYPE_LABELS:
            if operator == "In":
                for place, wanted in _items(f"{at}.values", dig(requirement, "values")):
                    yield from _texts("instanceTypes", place, wanted)
            else:
                yield Use(dimension="instanceTypes", path=f"{at}.operator", value=_EVERYTHING)


def _affinity_namespaces(at: str, affinity: object) -> Iterator[Use]:
    """Namespaces whose pods an affinity looks at. One that selects them by labels may mean all."""
    for place, key, value in entries(affinity, at):
        if key == "namespaceSelector" and value is not None:
            yield Use(dimension="affinityNamespaces", path=str(place), value=_EVERYTHING)
        elif key == "namespaces":
            for path, name in _items(str(place), value):
                yield from _texts("affinityNamespaces", path, name)


def _node_affinity(value: object) -> Iterator[Use]:
    at = "spec.affinity.nodeAffinity"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = list(_items(f"{at}.{required}.nodeSelectorTerms", dig(value, required, "nodeSelectorTerms")))
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    terms += [
        (f"{path}.preference", dig(item, "preference"))
        for path, item in _items(f"{at}.{preferred}", dig(value, preferred))
    ]
    for path, term in terms:
        for field in ("matchExpressions", "matchFields"):
            yield from _expressions(f"{path}.{field}", dig(term, field))
