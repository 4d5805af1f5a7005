"""The messages of Kubernetes, container runtimes, registries and engines that reveal a cause, as data.

The first row of a table that matches decides, so precise patterns stand before vague ones. Users can write such texts:
every pattern takes time linear in the text, which ``core/tests/test_patterns.py`` checks for all patterns of the
project.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson

from airunway.redaction import sanitized

_NAMES = re.compile(r'"[^"]*"|(?<!\S)(?!i/o)\S*/\S*')

LINE = r"(?m:^)"
"""For two words on one line, in any order, the search starts at the line: ``a.*b`` from each ``a`` is quadratic."""

_PREFIX = re.compile(
    r"(?:\([\w .:-]{1,96}pid=\d+[^)\n]{0,64}\)\s?)?(?:\[rank\d+\]: ?)?(?:(?:ERROR|WARNING|INFO|CRITICAL) )?"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[[\w./-]{1,96}\.py:\d+\] ?|\[\d{4}-\d\d-\d\d[T ][^]\n]{1,48}\] ?)?"
)
"""What engines and Ray put before a line: process, level, time and place. It differs from try to try."""

_FIELD = re.compile(r'"(msg|message|error|err)"\s*+:\s*+"((?:[^"\\]|\\.)*+)')
"""A message field in a line of a JSON log, up to the end of the value or of the line."""

EXCERPT = 400
"""Characters of a quoted text in a message."""


@dataclass(frozen=True)
class MessagePattern:
    """The meaning of a text that matches `pattern`."""

    pattern: re.Pattern[str]
    reason: str
    """A reason of the registry."""
    code: str
    """A root-cause code; empty if there is none."""
    source: str
    """Who writes such a text."""
    remedy: str = ""
    """What to do; empty: what the code says."""
    field: str = ""
    """JSON path of the deployment to look at; empty: the code's own."""


def row(pattern: str, reason: str, code: str, source: str, *, remedy: str = "", field: str = "") -> MessagePattern:
    """A row of a table; case does not matter."""
    return MessagePattern(re.compile(pattern, re.IGNORECASE), reason, code, source, remedy, field)


IMAGE_PULL: tuple[MessagePattern, ...] = (
    row(
        r"toomanyrequests|too many requests|\b429\b|pull rate limit|pull QPS exceeded",
        "RateLimited",
        "ImagePull.RateLimited",
        "registries (HTTP 429); kubelet's own limit",
    ),
    # Before the refusals: a token that cannot be fetched because of the network is also called "failed to authorize".
    row(r"no such host|server misbehaving|name resolution", "DNSFailure", "", "container runtimes: name lookup"),
    row(r"connection refused", "ConnectionRefused", "", "container runtimes: TCP"),
    row(
        r"i/o timeout|deadline exceeded|timed out|TLS handshake timeout", "Timeout", "", "container runtimes: TCP, TLS"
    ),
    row(r"x509:", "DependenciesUnreachable", "", "container runtimes: the registry's certificate"),
    row(
        r"\b50[0-9] (Internal|Bad|Service|Gateway)|internal server error",
        "ServerError",
        "",
        "registries (HTTP 5xx)",
    ),
    row(
        r"insufficient_scope|authorization failed|failed to authorize|unauthorized|authentication required"
        r"|\b40[13]\b|no basic auth credentials|access to the resource is denied|access forbidden|\bdenied\b",
        "ImagePullAuthFailure",
        "ImagePull.Auth",
        "registries (HTTP 401 and 403) through containerd, CRI-O and Docker",
    ),
    row(
        r"no match for platform|no matching manifest for|no image found in (manifest list|image index)",
        "ImageNotFound",
        "ImagePull.NotFound",
        "containerd, Docker, CRI-O: the image has no variant for the node's architecture",
    ),
    row(
        r"couldn't parse image|invalid reference format|InvalidImageName",
        "InvalidImageReference",
        "ImagePull.NotFound",
        "kubelet: the reference is no image name",
    ),
    row(r"no space left on device", "StorageFull", "Storage.Full", "container runtimes: the node's disk is full"),
    row(
        r"manifest unknown|name unknown|\b404\b|not found|ErrImageNeverPull|not present with pull policy of Never",
        "ImageNotFound",
        "ImagePull.NotFound",
        "registries (HTTP 404, MANIFEST_UNKNOWN, NAME_UNKNOWN) through containerd, CRI-O and Docker",
    ),
)
"""For ``ErrImagePull``, ``ImagePullBackOff`` and the kubelet's event ``Failed``; image names are removed first."""

SCHEDULING: tuple[MessagePattern, ...] = (
    row(
        r"device class \S+ does not exist",
        "ReferenceNotFound",
        "DeviceClass.NotFound",
        "kube-scheduler, plugin DynamicResources (recorded, 1.36)",
    ),
    row(
        r"Insufficient [\w.-]+/[\w.-]+|cannot allocate all claims",
        "InsufficientCapacity",
        "Unschedulable.InsufficientGPU",
        "kube-scheduler, plugins NodeResourcesFit and DynamicResources",
    ),
    row(
        r'persistentvolumeclaim "[^"]*" not found',
        "ReferenceNotFound",
        "Storage.PvcPending",
        "kube-scheduler, plugin VolumeBinding",
    ),
    row(
        r"unbound immediate PersistentVolumeClaims?|PersistentVolumeClaim is not bound"
        r"|didn't find available persistent volumes",
        "PvcPending",
        "Storage.PvcPending",
        "kube-scheduler, plugin VolumeBinding",
    ),
    row(
        r"Insufficient \S+|Too many pods",
        "InsufficientCapacity",
        "",
        "kube-scheduler, plugin NodeResourcesFit: processors, memory, disk or the number of pods",
    ),
    row(
        r"untolerated taint|didn't match|didn't satisfy|node\(s\) were unschedulable|volume node affinity conflict",
        "FailedScheduling",
        "Unschedulable.TaintOrSelector",
        "kube-scheduler, plugins TaintToleration, NodeAffinity, NodeUnschedulable, PodTopologySpread",
    ),
)
"""For the condition ``PodScheduled=False/Unschedulable``."""

_GROUP_IS_FULL = (
    "Raise the maximum of the node group, or of the autoscaler for the whole cluster; or free a node of the group."
)

AUTOSCALING: tuple[MessagePattern, ...] = (
    row(
        r"max (node group size|cluster [\w, /.-]{1,128} limit|limit) reached|exceed limits|limit exceeded",
        "FailedScheduling",
        "",
        "cluster autoscaler, Karpenter: at their maximum",
        remedy=_GROUP_IS_FULL,
    ),
    row(
        r"in backoff after failed scale-up|associated with this pod failed",
        "FailedScheduling",
        "",
        "cluster autoscaler: the cloud gave no node when it last asked",
        remedy="The cloud gave no node when the autoscaler last asked (its quota, or nothing in stock): the "
        "autoscaler's log says why. It asks again by itself.",
    ),
    row(
        r"",
        "FailedScheduling",
        "",
        "cluster autoscaler, Karpenter: no node that they could add fits the pod",
        remedy="No node that the autoscaler may add fits the pod: add a node group or NodePool with what it asks for, "
        "or correct spec.nodeSelector, spec.tolerations and spec.resources.",
        field="spec.nodeSelector",
    ),
)
"""For the events ``NotTriggerScaleUp`` of the cluster autoscaler and ``FailedScheduling`` of Karpenter."""

CREATION: tuple[MessagePattern, ...] = (
    row(
        r"must specify \S",
        "QuotaExceeded",
        "Unschedulable.Quota",
        "API server, admission plugin ResourceQuota: the quota counts what the pod does not say",
        remedy="Set what the quota counts: requests by spec.resources.cpu and spec.resources.memory, limits.cpu by "
        "spec.resources.limits.cpu. Or have a LimitRange with defaults made in the namespace: it gives them to every "
        "container that says nothing.",
    ),
    row(
        r"exceeded quota|failed quota",
        "QuotaExceeded",
        "Unschedulable.Quota",
        "API server, admission plugin ResourceQuota",
    ),
    row(
        r"must be less than or equal to \S+ limit",
        "InvalidSpec",
        "Provider.Rejected",
        "API server: a LimitRange's default limit is below what the container requests",
        remedy="A LimitRange of the namespace (kubectl describe limitrange -n <namespace>) gives containers that "
        "limit: set a limit of your own (spec.resources.limits.cpu), ask for less, or have the default raised.",
        field="spec.resources",
    ),
    row(
        r"(maximum|minimum) \S+ usage per \w+ is|max limit to request ratio per",
        "InvalidSpec",
        "Provider.Rejected",
        "API server, admission plugin LimitRanger",
        remedy="Ask for what the LimitRange of the namespace allows (kubectl describe limitrange -n <namespace>), or "
        "have it changed.",
        field="spec.resources",
    ),
    row(
        r"unable to create new content in namespace \S+ because it is being terminated",
        "Terminating",
        "",
        "API server, admission plugin NamespaceLifecycle",
    ),
    row(
        r"not allowed while custom resource definition is terminating",
        "UpstreamNotInstalled",
        "",
        "API server, while a CRD is being deleted whose objects are still there",
    ),
    row(
        r'(?:^|forbidden: )User "[^"]*" cannot |cannot set blockOwnerDeletion|attempting to grant RBAC permissions',
        "Forbidden",
        "Provider.Rejected",
        "API server, the authorizer and what asks it: no role allows a controller to create the object",
    ),
    row(
        r'serviceaccount "[^"]*" not found|error looking up service account',
        "ReferenceNotFound",
        "Provider.Rejected",
        "API server, admission plugin ServiceAccount",
    ),
    row(
        r'RuntimeClass "[^"]*" not found',
        "ReferenceNotFound",
        "RuntimeClass.NotFound",
        "API server, admission plugin RuntimeClass (recorded, 1.36)",
    ),
    row(
        r"failed calling webhook",
        "ServerError",
        "",
        "API server: a webhook for pods does not answer (recorded: LeaderWorkerSet's, while its manager is down)",
    ),
    row(
        r"is forbidden: |denied the request|\" is invalid: ",
        "InvalidSpec",
        "Provider.Rejected",
        "API server: LimitRange, PodSecurity, admission policies and webhooks",
    ),
)
"""For the event ``FailedCreate`` of a workload controller."""

REFUSAL: tuple[MessagePattern, ...] = (
    row(
        r"field is immutable",
        "InvalidSpec",
        "Provider.Rejected",
        "API server, webhooks of upstreams (recorded: Kueue 0.17, a LeaderWorkerSet in a queue)",
        remedy="What the message names cannot be changed in an object that exists: undo the edit, or set spec.suspend "
        "to true, wait until status.message is Suspended, and set it to false: then the object is made anew. The model "
        "does not serve meanwhile.",
    ),
)
"""For an object that was refused to us."""

PREPARATION: tuple[MessagePattern, ...] = (
    row(
        r'secrets? "[^"]*" not found|couldn\'t find key \S+ in Secret',
        "SecretNotFound",
        "Secret.NotFound",
        "kubelet, CreateContainerConfigError",
    ),
    row(
        r'configmaps? "[^"]*" not found|couldn\'t find key \S+ in ConfigMap',
        "ReferenceNotFound",
        "ConfigMap.NotFound",
        "kubelet, CreateContainerConfigError",
    ),
    row(
        r"exec format error",
        "WrongArchitecture",
        "Engine.WrongArchitecture",
        "container runtimes: the program is for another processor",
    ),
    row(
        r"unsatisfied condition: (cuda|driver)",
        "DriverTooOld",
        "Engine.DriverTooOld",
        "NVIDIA's container runtime: the image needs a newer driver",
    ),
    row(
        r"nvidia-container-cli|could not select device driver|unresolvable CDI devices|RuntimeHandler \S+ not supported"
        r"|no runtime for \"[^\"]*\" is configured",
        "GPUNotVisible",
        "Engine.NoGPU",
        "container runtimes: the node cannot give the container its GPU",
    ),
    row(
        r'failed to (mkdir|stat) ""|field Source must not be empty',
        "ImageVolumeUnsupported",
        "ImageVolume.Unsupported",
        "containerd before 2.1 and Docker, about an image that is mounted as a volume",
    ),
    row(
        r"executable file not found|no such file or directory|permission denied",
        "BadArguments",
        "Engine.BadArgs",
        "container runtimes: the command cannot be started",
    ),
    row(r"runAsNonRoot", "InvalidSpec", "", "kubelet: the image wants to run as root and may not"),
)
"""For ``CreateContainerConfigError``, ``CreateContainerError``, ``RunContainerError`` and ``StartError``."""

MOUNT: tuple[MessagePattern, ...] = (
    row(r'secrets? "[^"]*" not found', "SecretNotFound", "Secret.NotFound", "kubelet, event FailedMount"),
    row(
        r'configmaps? "[^"]*" not found|references non-existent config key',
        "ReferenceNotFound",
        "ConfigMap.NotFound",
        "kubelet, event FailedMount",
    ),
    row(
        r"timed out waiting for the condition|unmounted volumes|Multi-Attach|AttachVolume|MountVolume",
        "PvcPending",
        "Storage.PvcPending",
        "kubelet and attach-detach controller, events FailedMount and FailedAttachVolume",
    ),
)
"""For events about volumes of a pod whose containers are still being created."""

PROVISIONING: tuple[MessagePattern, ...] = (
    row(
        r'storageclass\.storage\.k8s\.io "[^"]*" not found',
        "ReferenceNotFound",
        "Storage.ClassMissing",
        "persistent volume controller, event ProvisioningFailed",
    ),
    row(r"exceeded quota", "QuotaExceeded", "Storage.PvcPending", "storage provisioners"),
    row(r"", "PvcPending", "Storage.PvcPending", "storage provisioners, event ProvisioningFailed"),
)
"""For events about a claim that is not bound."""


def first_meaning(text: str, table: Sequence[MessagePattern]) -> tuple[MessagePattern, str] | None:
    """Returns the first row that matches the text, and the matching line; None without a match."""
    read = _remembered if len(text) <= _LONGEST_REMEMBERED else _meaning_of
    return read(text, tuple(table))


def _meaning_of(text: str, table: tuple[MessagePattern, ...]) -> tuple[MessagePattern, str] | None:
    for meaning in table:
        if found := meaning.pattern.search(text):
            return meaning, line_of(text, found.start())
    return None


# Each pass reads the same texts of all pods again; a match takes half a millisecond for each KiB.
_remembered = lru_cache(maxsize=512)(_meaning_of)
_LONGEST_REMEMBERED = 4096
"""Characters; the kept message of a container is shorter."""


def without_names(text: str) -> str:
    """Returns `text` without quoted parts, images and addresses: a tag may be called ``404``."""
    return _NAMES.sub(" ", text)


def _logged(line: str) -> str:
    """Returns the message and the error of a line of a JSON log (zap, slog, logrus), without the stack trace.

    The end of the line may be missing, because a container's last message is cut; the rest is used.
    """
    if not line.lstrip().startswith("{"):
        return line
    found: dict[str, str] = {}
    for match in _FIELD.finditer(line):
        found.setdefault(match[1], match[2])
    texts = [text for name in ("msg", "message", "error", "err") if (text := _unquoted(found.get(name, "")))]
    return ": ".join(texts) or line


def _unquoted(text: str) -> str:
    """Decodes the content of a JSON string; returns it unchanged if it is cut within an escape sequence."""
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return text


def without_prefix(line: str) -> str:
    """Returns a line of a log without process, level, time and place."""
    start = _PREFIX.match(line)
    return line[start.end() :] if start else line


def line_of(text: str, position: int = -1) -> str:
    """Returns the line around `position` (-1: the last non-empty one), redacted, cut, and without a full stop."""
    if position < 0:
        line = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    else:
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        line = text[start : end if end >= 0 else len(text)]
    line = sanitized(_logged(without_prefix(line))).strip()
    if line.endswith(".") and not line.endswith(".."):
        line = line[:-1]
    if len(line) <= EXCERPT:
        return line
    # The start names the object, the end has the innermost error.
    half = (EXCERPT - 3) // 2
    return f"{line[:half]} … {line[-half:]}"
