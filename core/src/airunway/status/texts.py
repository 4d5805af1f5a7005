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

_LINE = r"(?m:^)"
"""For two words on one line, in any order, the search starts at the line: ``a.*b`` from each ``a`` is quadratic."""

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


def _row(pattern: str, reason: str, code: str, source: str) -> MessagePattern:
    return MessagePattern(re.compile(pattern, re.IGNORECASE), reason, code, source)


IMAGE_PULL: tuple[MessagePattern, ...] = (
    _row(
        r"toomanyrequests|too many requests|\b429\b|pull rate limit|pull QPS exceeded",
        "RateLimited",
        "ImagePull.RateLimited",
        "registries (HTTP 429); kubelet's own limit",
    ),
    # Before the refusals: a token that cannot be fetched because of the network is also called "failed to authorize".
    _row(r"no such host|server misbehaving|name resolution", "DNSFailure", "", "container runtimes: name lookup"),
    _row(r"connection refused", "ConnectionRefused", "", "container runtimes: TCP"),
    _row(
        r"i/o timeout|deadline exceeded|timed out|TLS handshake timeout", "Timeout", "", "container runtimes: TCP, TLS"
    ),
    _row(r"x509:", "DependenciesUnreachable", "", "container runtimes: the registry's certificate"),
    _row(
        r"\b50[0-9] (Internal|Bad|Service|Gateway)|internal server error",
        "ServerError",
        "",
        "registries (HTTP 5xx)",
    ),
    _row(
        r"insufficient_scope|authorization failed|failed to authorize|unauthorized|authentication required"
        r"|\b40[13]\b|no basic auth credentials|access to the resource is denied|access forbidden|\bdenied\b",
        "ImagePullAuthFailure",
        "ImagePull.Auth",
        "registries (HTTP 401 and 403) through containerd, CRI-O and Docker",
    ),
    _row(
        r"no match for platform|no matching manifest for|no image found in (manifest list|image index)",
        "ImageNotFound",
        "ImagePull.NotFound",
        "containerd, Docker, CRI-O: the image has no variant for the node's architecture",
    ),
    _row(
        r"couldn't parse image|invalid reference format|InvalidImageName",
        "InvalidImageReference",
        "ImagePull.NotFound",
        "kubelet: the reference is no image name",
    ),
    _row(r"no space left on device", "StorageFull", "Storage.Full", "container runtimes: the node's disk is full"),
    _row(
        r"manifest unknown|name unknown|\b404\b|not found|ErrImageNeverPull|not present with pull policy of Never",
        "ImageNotFound",
        "ImagePull.NotFound",
        "registries (HTTP 404, MANIFEST_UNKNOWN, NAME_UNKNOWN) through containerd, CRI-O and Docker",
    ),
)
"""For ``ErrImagePull``, ``ImagePullBackOff`` and the kubelet's event ``Failed``; image names are removed first."""

SCHEDULING: tuple[MessagePattern, ...] = (
    _row(
        r"Insufficient [\w.-]+/[\w.-]+|cannot allocate all claims",
        "InsufficientCapacity",
        "Unschedulable.InsufficientGPU",
        "kube-scheduler, plugins NodeResourcesFit and DynamicResources",
    ),
    _row(
        r'persistentvolumeclaim "[^"]*" not found',
        "ReferenceNotFound",
        "Storage.PvcPending",
        "kube-scheduler, plugin VolumeBinding",
    ),
    _row(
        r"unbound immediate PersistentVolumeClaims?|PersistentVolumeClaim is not bound"
        r"|didn't find available persistent volumes",
        "PvcPending",
        "Storage.PvcPending",
        "kube-scheduler, plugin VolumeBinding",
    ),
    _row(
        r"Insufficient \S+|Too many pods",
        "InsufficientCapacity",
        "",
        "kube-scheduler, plugin NodeResourcesFit: processors, memory, disk or the number of pods",
    ),
    _row(
        r"untolerated taint|didn't match|didn't satisfy|node\(s\) were unschedulable|volume node affinity conflict",
        "FailedScheduling",
        "Unschedulable.TaintOrSelector",
        "kube-scheduler, plugins TaintToleration, NodeAffinity, NodeUnschedulable, PodTopologySpread",
    ),
)
"""For the condition ``PodScheduled=False/Unschedulable``."""

CREATION: tuple[MessagePattern, ...] = (
    _row(
        r"exceeded quota|must specify [^:\n]{1,256} for:|failed quota",
        "QuotaExceeded",
        "Unschedulable.Quota",
        "API server, admission plugin ResourceQuota",
    ),
    _row(
        r"unable to create new content in namespace \S+ because it is being terminated",
        "Terminating",
        "",
        "API server, admission plugin NamespaceLifecycle",
    ),
    _row(
        r"not allowed while custom resource definition is terminating",
        "UpstreamNotInstalled",
        "",
        "API server, while a CRD is being deleted whose objects are still there",
    ),
    _row(
        r'(?:^|forbidden: )User "[^"]*" cannot |cannot set blockOwnerDeletion|attempting to grant RBAC permissions',
        "Forbidden",
        "Provider.Rejected",
        "API server, the authorizer and what asks it: no role allows a controller to create the object",
    ),
    _row(
        r'serviceaccount "[^"]*" not found|error looking up service account',
        "ReferenceNotFound",
        "Provider.Rejected",
        "API server, admission plugin ServiceAccount",
    ),
    _row(
        r'RuntimeClass "[^"]*" not found',
        "ReferenceNotFound",
        "RuntimeClass.NotFound",
        "API server, admission plugin RuntimeClass (recorded, 1.36)",
    ),
    _row(
        r"failed calling webhook",
        "ServerError",
        "",
        "API server: a webhook for pods does not answer (recorded: LeaderWorkerSet's, while its manager is down)",
    ),
    _row(
        r"is forbidden: |denied the request|\" is invalid: ",
        "InvalidSpec",
        "Provider.Rejected",
        "API server: LimitRange, PodSecurity, admission policies and webhooks",
    ),
)
"""For the event ``FailedCreate`` of a workload controller."""

PREPARATION: tuple[MessagePattern, ...] = (
    _row(
        r'secrets? "[^"]*" not found|couldn\'t find key \S+ in Secret',
        "SecretNotFound",
        "Secret.NotFound",
        "kubelet, CreateContainerConfigError",
    ),
    _row(
        r'configmaps? "[^"]*" not found|couldn\'t find key \S+ in ConfigMap',
        "ReferenceNotFound",
        "ConfigMap.NotFound",
        "kubelet, CreateContainerConfigError",
    ),
    _row(
        r"executable file not found|no such file or directory|permission denied",
        "BadArguments",
        "Engine.BadArgs",
        "container runtimes: the command cannot be started",
    ),
    _row(r"runAsNonRoot", "InvalidSpec", "", "kubelet: the image wants to run as root and may not"),
)
"""For ``CreateContainerConfigError``, ``CreateContainerError``, ``RunContainerError`` and ``StartError``."""

MOUNT: tuple[MessagePattern, ...] = (
    _row(r'secrets? "[^"]*" not found', "SecretNotFound", "Secret.NotFound", "kubelet, event FailedMount"),
    _row(
        r'configmaps? "[^"]*" not found|references non-existent config key',
        "ReferenceNotFound",
        "ConfigMap.NotFound",
        "kubelet, event FailedMount",
    ),
    _row(
        r"timed out waiting for the condition|unmounted volumes|Multi-Attach|AttachVolume|MountVolume",
        "PvcPending",
        "Storage.PvcPending",
        "kubelet and attach-detach controller, events FailedMount and FailedAttachVolume",
    ),
)
"""For events about volumes of a pod whose containers are still being created."""

PROVISIONING: tuple[MessagePattern, ...] = (
    _row(
        r'storageclass\.storage\.k8s\.io "[^"]*" not found',
        "ReferenceNotFound",
        "Storage.ClassMissing",
        "persistent volume controller, event ProvisioningFailed",
    ),
    _row(r"exceeded quota", "QuotaExceeded", "Storage.PvcPending", "storage provisioners"),
    _row(r"", "PvcPending", "Storage.PvcPending", "storage provisioners, event ProvisioningFailed"),
)
"""For events about a claim that is not bound."""

ENGINE: tuple[MessagePattern, ...] = (
    _row(
        r"access to model \S+ is restricted|awaiting a review from the repo",
        "GatedModel",
        "Model.AuthGated",
        "huggingface_hub: the line that names the model",
    ),
    _row(
        r"GatedRepoError|cannot access gated repo|you are trying to access a gated repo",
        "GatedModel",
        "Model.AuthGated",
        "huggingface_hub, transformers",
    ),
    # Before the refusals: the hub answers 401 for a repository that does not exist.
    _row(
        r"(Repository|Revision|Entry) Not Found for url|is not a valid model identifier",
        "SourceNotFound",
        "Model.NotFound",
        "huggingface_hub, transformers: the line that names the model",
    ),
    _row(
        r"RepositoryNotFoundError|Repository Not Found|RevisionNotFoundError|(?<!Local)EntryNotFoundError"
        r"|NoSuchKey|NoSuchBucket",
        "SourceNotFound",
        "Model.NotFound",
        "huggingface_hub, transformers, S3 clients",
    ),
    _row(
        r"401 Client Error|403 Client Error|Invalid user token|Invalid username or password"
        r"|InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|NoCredentialsError",
        "AuthFailed",
        "Model.AuthGated",
        "huggingface_hub, S3 clients: the token or key was refused",
    ),
    _row(
        r'is forbidden: User "[^"]*" cannot ',
        "Forbidden",
        "Provider.Rejected",
        "client-go: a program that reads the cluster (an endpoint picker) has not the right to (recorded)",
    ),
    _row(r"no space left on device|ENOSPC|disk quota exceeded", "StorageFull", "Storage.Full", "libc"),
    _row(
        r"unrecognized arguments?:|the following arguments are required|error: argument |invalid choice:"
        r"|No such option|unexpected extra argument|error: (invalid|unknown) argument",
        "BadArguments",
        "Engine.BadArgs",
        "argparse (vLLM, SGLang), click (TensorRT-LLM), llama.cpp",
    ),
    _row(
        r"greater than the derived max_model_len|trust_remote_code=True|must be divisible by (the )?tensor parallel",
        "BadArguments",
        "Engine.BadArgs",
        "vLLM, transformers",
    ),
    _row(
        r"unknown engine argument|EngineArgs.__init__\(\) got an unexpected keyword argument",
        "BadArguments",
        "Engine.BadArgs",
        "Ray Serve LLM, which gives vLLM its arguments by keyword",
    ),
    _row(
        r"CUDA out of memory|HIP out of memory|OutOfMemoryError|available KV cache memory"
        r"|No available memory for the cache blocks|Free memory on device",
        "GPUOutOfMemory",
        "Engine.OutOfMemory",
        "PyTorch, vLLM",
    ),
    _row(r"429 Client Error|Too Many Requests", "RateLimited", "Model.DownloadStalled", "huggingface_hub"),
    _row(
        rf"{_LINE}(?=.*(?:huggingface|hf\.co|s3\.|LocalEntryNotFoundError))"
        r".*(?:name resolution|Name or service not known|no such host)",
        "DNSFailure",
        "Model.DownloadStalled",
        "requests, httpx: the model's host cannot be looked up",
    ),
    _row(
        rf"{_LINE}(?=.*(?:huggingface|hf\.co|s3\.)).*(?:timed out|ReadTimeout|ConnectTimeout)"
        r"|LocalEntryNotFoundError|couldn't connect to '?https://huggingface\.co",
        "Timeout",
        "Model.DownloadStalled",
        "requests, httpx, huggingface_hub: the model's host does not answer",
    ),
)
"""For ``terminated.message`` of a container: the end of its log if the pod's termination message policy says so."""


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


def line_of(text: str, position: int = -1) -> str:
    """Returns the line around `position` (-1: the last non-empty one), redacted, cut, and without a full stop."""
    if position < 0:
        line = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    else:
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        line = text[start : end if end >= 0 else len(text)]
    line = sanitized(_logged(line)).strip()
    if line.endswith(".") and not line.endswith(".."):
        line = line[:-1]
    if len(line) <= EXCERPT:
        return line
    # The start names the object, the end has the innermost error.
    half = (EXCERPT - 3) // 2
    return f"{line[:half]} … {line[-half:]}"
