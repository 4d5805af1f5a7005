"""The registry of reasons: the contract between provider plugins and the core (spec/status.md, "Reason → category").

A component reports a problem with one reason; the category of that reason decides how it affects the phase and the
parent conditions. The list is open: a reason that is not registered counts as a workload fault, so that a third party's
reason is shown unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["REASONS", "Category", "Reason", "category_of"]


class Category(StrEnum):
    """The kind of problem (or progress) that a reason stands for."""

    CONFIG = "Config"
    SCOPED_CONFIG = "ScopedConfig"
    AUTH = "Auth"
    CONNECTIVITY = "Connectivity"
    CAPACITY = "Capacity"
    EXHAUSTION = "Exhaustion"
    PROGRESS = "Progress"
    WORKLOAD = "Workload"
    STALE = "Stale"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Reason:
    """A reason of conditions and events."""

    name: str
    category: Category
    meaning: str
    """What the reason means to a user."""


_REGISTERED = (
    Reason("InvalidSpec", Category.CONFIG, "the upstream or the API server refused what the spec asks for"),
    Reason("ValidationFailed", Category.CONFIG, "the spec breaks a rule of the ModelDeployment itself"),
    Reason("ConfigNotFound", Category.CONFIG, "the named RuntimeConfig does not exist"),
    Reason("ReferenceNotFound", Category.CONFIG, "an object that the spec names does not exist"),
    Reason("IncompatibleConfiguration", Category.CONFIG, "the chosen provider cannot honour a field of the spec"),
    Reason("InvalidOverride", Category.CONFIG, "a key of spec.provider.overrides has the wrong type or is not allowed"),
    Reason("ImageNotFound", Category.CONFIG, "the registry has no such image"),
    Reason("InvalidImageReference", Category.CONFIG, "the image reference cannot be parsed"),
    Reason("SourceNotFound", Category.CONFIG, "the model does not exist at its source"),
    Reason("NameTooLong", Category.CONFIG, "a derived name would not fit the limits of Kubernetes or of the upstream"),
    Reason("BadArguments", Category.CONFIG, "the engine refused its arguments"),
    Reason("AccessModeConflict", Category.CONFIG, "more pods would mount a volume than its access mode allows"),
    Reason("ModelCacheNotEnabled", Category.CONFIG, "the deployment asks for a model cache and that part is off"),
    Reason("TemplateNotFound", Category.CONFIG, "no template has that name, or none of that model can be used"),
    Reason("TemplateSelectionAmbiguous", Category.CONFIG, "several templates of the model are equally good"),
    Reason("InvalidConstraint", Category.CONFIG, "a version constraint of a ModelSource cannot be read"),
    Reason("UnsupportedSchema", Category.CONFIG, "no transformer fits the upstream's installed schema"),
    Reason(
        "ResourceConflict",
        Category.CONFIG,
        "an object of the needed name, or a field of one of our objects, belongs to another owner",
    ),
    Reason("PathTemplateInvalid", Category.SCOPED_CONFIG, "the route's path template cannot be rendered"),
    Reason(
        "GatewayNotConfigured", Category.SCOPED_CONFIG, "the deployment asks for a route and no gateway is configured"
    ),
    Reason("NoGateway", Category.SCOPED_CONFIG, "no usable Gateway was found"),
    Reason("GatewayAPINotInstalled", Category.SCOPED_CONFIG, "the cluster does not serve the Gateway API"),
    Reason("RouteConflict", Category.SCOPED_CONFIG, "an older deployment has the same path or model name"),
    Reason("RouteNotAccepted", Category.SCOPED_CONFIG, "the gateway does not accept the route"),
    Reason("ModelNameUnknown", Category.SCOPED_CONFIG, "the name that the model server answers to is not known"),
    Reason("PathRoutingNotSupported", Category.SCOPED_CONFIG, "the engine cannot be served under a path of its own"),
    Reason("AuthFailed", Category.AUTH, "credentials were refused"),
    Reason("ImagePullAuthFailure", Category.AUTH, "the registry refused the pull credentials"),
    Reason("Unauthorized", Category.AUTH, "a server answered 401"),
    Reason("Forbidden", Category.AUTH, "a server answered 403: a permission is missing"),
    Reason("SecretNotFound", Category.AUTH, "a Secret that the spec names does not exist"),
    Reason("GatedModel", Category.AUTH, "the model is gated and the token has no access to it"),
    Reason(
        "DependenciesUnreachable", Category.CONNECTIVITY, "something that the deployment depends on does not answer"
    ),
    Reason("ConnectionRefused", Category.CONNECTIVITY, "a connection was refused"),
    Reason("Timeout", Category.CONNECTIVITY, "a server did not answer in time"),
    Reason("DNSFailure", Category.CONNECTIVITY, "a name could not be resolved"),
    Reason("RateLimited", Category.CONNECTIVITY, "a server answered 429"),
    Reason("ServerError", Category.CONNECTIVITY, "a server answered 5xx"),
    Reason("ImagePullBackOff", Category.CONNECTIVITY, "the image cannot be pulled just now"),
    Reason("PodEvicted", Category.CONNECTIVITY, "the node evicted the pod"),
    Reason("InsufficientCapacity", Category.CAPACITY, "no node has what the pod, or the template, asks for"),
    Reason("PendingResources", Category.CAPACITY, "nodes or devices are not there yet"),
    Reason("FailedScheduling", Category.CAPACITY, "the scheduler finds no node for the pod"),
    Reason("QuotaExceeded", Category.CAPACITY, "a ResourceQuota forbids more pods or devices"),
    Reason("StorageClassNotFound", Category.CAPACITY, "the StorageClass does not exist"),
    Reason("GPUNotAvailable", Category.CAPACITY, "no node has the GPUs that the template needs"),
    Reason("PodOOMKilled", Category.EXHAUSTION, "the container used more memory than its limit"),
    Reason("GPUOutOfMemory", Category.EXHAUSTION, "the engine needs more memory than the GPUs have"),
    Reason("StorageFull", Category.EXHAUSTION, "a volume is full"),
    Reason("Starting", Category.PROGRESS, "work begins"),
    Reason("Progressing", Category.PROGRESS, "the upstream works on it"),
    Reason("Pulling", Category.PROGRESS, "images are being pulled"),
    Reason("PvcPending", Category.PROGRESS, "a volume claim waits for its volume"),
    Reason("JobRunning", Category.PROGRESS, "a job runs"),
    Reason("Downloading", Category.PROGRESS, "the model is being downloaded"),
    Reason("Verifying", Category.PROGRESS, "the download is being verified"),
    Reason(
        "Recreating", Category.PROGRESS, "the upstream object is deleted and made again, because the change needs it"
    ),
    Reason("WaitingForController", Category.PROGRESS, "no controller has looked at the deployment yet"),
    Reason("WaitingForProvider", Category.PROGRESS, "a provider was selected and has not reported yet"),
    Reason("WaitingForValidation", Category.PROGRESS, "the newest generation of the spec has not been validated yet"),
    Reason("WaitingForConfig", Category.PROGRESS, "core and provider do not see the same runtime config yet"),
    Reason("TemplateNotReady", Category.PROGRESS, "the template is not ready yet"),
    Reason("WaitingForEndpoint", Category.PROGRESS, "the provider has not published where the model is served yet"),
    Reason("WaitingForGateway", Category.PROGRESS, "no gateway controller has answered yet"),
    Reason(
        "WaitingForPool",
        Category.PROGRESS,
        "the InferencePool does not exist, or its endpoint picker is not ready, yet",
    ),
    Reason("WaitingForModelCache", Category.PROGRESS, "the weights of the model cache are not complete yet"),
    Reason("Queued", Category.PROGRESS, "other work of this kind comes first"),
    Reason("Terminating", Category.PROGRESS, "the deployment, or its namespace, is being deleted"),
    Reason("UpstreamNotInstalled", Category.PROGRESS, "the upstream's CRD is not installed in the cluster"),
    Reason("NoProviderSelected", Category.PROGRESS, "no provider could be selected yet"),
    Reason("NoEngineSelected", Category.PROGRESS, "no engine could be selected yet"),
    Reason("ProviderNotFound", Category.PROGRESS, "the named provider is not registered"),
    Reason("DryRun", Category.PROGRESS, "only a plan was asked for: nothing upstream is changed"),
    Reason("Suspended", Category.PROGRESS, "spec.suspend is true"),
    Reason("CrashLoopBackOff", Category.WORKLOAD, "a container keeps crashing"),
    Reason("RestartLoop", Category.WORKLOAD, "pods are recreated again and again: none lives long enough to show why"),
    Reason("ProbeTimeout", Category.WORKLOAD, "a container does not answer its probe"),
    Reason("PodsNotReady", Category.WORKLOAD, "pods that were ready are not any more"),
    Reason("PodFailed", Category.WORKLOAD, "a pod failed, or a container of it cannot be started"),
    Reason("JobFailed", Category.WORKLOAD, "a job failed"),
    Reason("PvcLost", Category.WORKLOAD, "a volume claim lost its volume"),
    Reason("CacheLost", Category.WORKLOAD, "the model cache is gone"),
    Reason("VerificationFailed", Category.WORKLOAD, "downloaded files are not what their source says"),
    Reason("UpstreamFailed", Category.WORKLOAD, "the upstream reports a failure"),
    Reason("ProviderStale", Category.STALE, "no heartbeat from the provider for five minutes"),
    Reason("StaleStatus", Category.STALE, "no report from the upstream for five minutes"),
    Reason("Unknown", Category.UNKNOWN, "the state is not known"),
)

REASONS: dict[str, Reason] = {reason.name: reason for reason in _REGISTERED}
"""Every registered reason by name."""


def category_of(reason: str) -> Category:
    """Returns the category of a reason; one that is not registered counts as a workload fault."""
    registered = REASONS.get(reason)
    return registered.category if registered else Category.WORKLOAD
