"""The registries of reasons (docs/reference/conditions.md) and of the codes of root causes.

A component reports a problem with one reason; the category of that reason decides how it affects the phase and the
parent conditions. The list is open: a reason that is not registered counts as a workload fault, so that a third party's
reason is shown unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """The kind of problem (or progress) that a reason stands for."""

    CONFIG = "Config"
    SCOPED_CONFIG = "ScopedConfig"
    AUTH = "Auth"
    CONNECTIVITY = "Connectivity"
    PASSING = "Passing"
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


_REGISTERED_REASONS = (
    Reason("InvalidSpec", Category.CONFIG, "the upstream or the API server refused what the spec asks for"),
    Reason("ValidationFailed", Category.CONFIG, "the spec breaks a rule of the ModelDeployment itself"),
    Reason("ConfigNotFound", Category.CONFIG, "the named RuntimeConfig does not exist"),
    Reason("NotAllowed", Category.CONFIG, "the policy does not allow what the RuntimeConfig gives to pods"),
    Reason("ReferenceNotFound", Category.CONFIG, "an object that the spec names does not exist"),
    Reason("IncompatibleConfiguration", Category.CONFIG, "the chosen provider cannot honour a field of the spec"),
    Reason("ProviderNotFound", Category.CONFIG, "the named provider is not registered"),
    Reason("NoFittingEngine", Category.CONFIG, "none of the providers' engines can run the spec"),
    Reason("InvalidOverride", Category.CONFIG, "a key of spec.provider.overrides has the wrong type or is not allowed"),
    Reason("ImageNotFound", Category.CONFIG, "the registry has no such image"),
    Reason("InvalidImageReference", Category.CONFIG, "the image reference cannot be parsed"),
    Reason("SourceNotFound", Category.CONFIG, "the model does not exist at its source"),
    Reason("NameTooLong", Category.CONFIG, "a derived name would not fit the limits of Kubernetes or of the upstream"),
    Reason("BadArguments", Category.CONFIG, "the engine refused its arguments"),
    Reason("WrongArchitecture", Category.CONFIG, "the image is for another processor than the node has"),
    Reason("GPUUnsupported", Category.CONFIG, "this GPU cannot compute what the model or the image needs"),
    Reason("ModelUnsupported", Category.CONFIG, "the engine of this image cannot load the model"),
    Reason("MetricsNotAvailable", Category.CONFIG, "no metric is known by which the engine could be scaled"),
    Reason("AccessModeConflict", Category.CONFIG, "more pods would mount a volume than its access mode allows"),
    Reason("ModelCacheNotEnabled", Category.CONFIG, "the deployment asks for a model cache and that part is off"),
    Reason("TemplateNotFound", Category.CONFIG, "no template has that name, or none of that model can be used"),
    Reason("TemplateSelectionAmbiguous", Category.CONFIG, "several templates of the model are equally good"),
    Reason("InvalidConstraint", Category.CONFIG, "a version constraint of a ModelSource cannot be read"),
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
    Reason("AmbiguousGateway", Category.SCOPED_CONFIG, "several Gateways could be meant and none is named"),
    Reason("GatewayNotProgrammed", Category.SCOPED_CONFIG, "the Gateway is not programmed, or has no address"),
    Reason("PathNotAllowed", Category.SCOPED_CONFIG, "the namespace may not have that path at a Gateway"),
    Reason("ModelNameNotAllowed", Category.SCOPED_CONFIG, "the namespace may not have that model name at a Gateway"),
    Reason("RouteConflict", Category.SCOPED_CONFIG, "another deployment has the path or model name that was asked for"),
    Reason(
        "GroupMismatch",
        Category.SCOPED_CONFIG,
        "the deployment cannot share requests with its group: another Gateway or listener, no Service, or too many",
    ),
    Reason("GroupHasNoWeight", Category.SCOPED_CONFIG, "no deployment of the group has a weight above 0"),
    Reason("AutoscalerNotInstalled", Category.SCOPED_CONFIG, "the cluster does not serve KEDA's ScaledObject"),
    Reason("AutoscalerNotConfigured", Category.SCOPED_CONFIG, "no runtime config names the Prometheus of autoscalers"),
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
    Reason("MetricsUnavailable", Category.CONNECTIVITY, "the autoscaler does not get the load; replicas do not fall"),
    Reason("RateLimited", Category.CONNECTIVITY, "a server answered 429"),
    Reason("ServerError", Category.CONNECTIVITY, "a server answered 5xx"),
    Reason("ImagePullBackOff", Category.CONNECTIVITY, "the image cannot be pulled just now"),
    Reason("PodEvicted", Category.CONNECTIVITY, "the node evicted the pod"),
    Reason("UpstreamError", Category.PASSING, "the upstream reports an error and tries again by itself"),
    Reason(
        "WriteFailed", Category.PASSING, "the API server has answered, an object is not written, and it is tried again"
    ),
    Reason("InsufficientCapacity", Category.CAPACITY, "no node has what the pod, or the template, asks for"),
    Reason("PendingResources", Category.CAPACITY, "nodes or devices are not there yet"),
    Reason("SchedulingGated", Category.CAPACITY, "a scheduling gate holds the pod back"),
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
    Reason("Paused", Category.PROGRESS, "the deployment is paused, and nothing was decided before"),
    Reason("WaitingForProvider", Category.PROGRESS, "a provider was selected and has not reported yet"),
    Reason("WaitingForValidation", Category.PROGRESS, "the newest generation of the spec has not been validated yet"),
    Reason("WaitingForConfig", Category.PROGRESS, "the runtime config is not known yet, or it cannot be used"),
    Reason("WaitingForRevision", Category.PROGRESS, "it is not decided yet what the deployment runs with"),
    Reason("TemplateNotReady", Category.PROGRESS, "the template is not ready yet"),
    Reason("WaitingForReplicas", Category.PROGRESS, "the autoscaler is made once a replica has been ready"),
    Reason("AutoscalerPending", Category.PROGRESS, "KEDA has not answered yet"),
    Reason("WaitingForEndpoint", Category.PROGRESS, "the provider has not published where the model is served yet"),
    Reason("WaitingForGroup", Category.PROGRESS, "the deployment is not ready yet to take a share of its group"),
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
    Reason("DryRun", Category.PROGRESS, "only a plan was asked for: nothing upstream is changed"),
    Reason("Suspended", Category.PROGRESS, "spec.suspend is true"),
    Reason("CrashLoopBackOff", Category.WORKLOAD, "a container keeps crashing"),
    Reason("GPUNotVisible", Category.WORKLOAD, "the container sees no GPU, or no driver for it"),
    Reason("ImageVolumeUnsupported", Category.WORKLOAD, "the node cannot mount the image with the weights"),
    Reason("DriverTooOld", Category.WORKLOAD, "the GPU driver of the node is too old for the image"),
    Reason("NotWritable", Category.WORKLOAD, "the engine may not read or write a file that it needs"),
    Reason("EngineCommunication", Category.WORKLOAD, "processes of the engine do not reach each other"),
    Reason("RestartLoop", Category.WORKLOAD, "pods are recreated again and again: none lives long enough to show why"),
    Reason("ProbeTimeout", Category.WORKLOAD, "a container does not answer its probe"),
    Reason("PodsNotReady", Category.WORKLOAD, "pods that were ready are not any more"),
    Reason("PodFailed", Category.WORKLOAD, "a pod failed, or a container of it cannot be started"),
    Reason("JobFailed", Category.WORKLOAD, "a job failed"),
    Reason("PvcLost", Category.WORKLOAD, "a volume claim lost its volume"),
    Reason("CacheLost", Category.WORKLOAD, "the model cache is gone"),
    Reason("VerificationFailed", Category.WORKLOAD, "downloaded files are not what their source says"),
    Reason("UpstreamFailed", Category.WORKLOAD, "the upstream reports a failure"),
    Reason("UnsupportedSchema", Category.WORKLOAD, "no transformer fits the upstream's installed schema"),
    Reason("ProviderStale", Category.STALE, "no heartbeat from the provider for five minutes"),
    Reason("StaleStatus", Category.STALE, "no report from the upstream for five minutes"),
    Reason("Unknown", Category.UNKNOWN, "the state is not known"),
)

REASONS: dict[str, Reason] = {reason.name: reason for reason in _REGISTERED_REASONS}
"""Every registered reason by name."""


def category_of(reason: str) -> Category:
    """Returns the category of a reason; one that is not registered counts as a workload fault."""
    registered = REASONS.get(reason)
    return registered.category if registered else Category.WORKLOAD


# ------------------------------------------------------------------------------------------------ codes of root causes


PAGE = "docs/reference/conditions.md"
"""The page that `tools/conditions_page.py` writes; remedies link into it."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """One root cause."""

    name: str
    tier: int
    """How specific it is, from 0 (most) to 3; within a tier the nearest and then the oldest symptom counts."""
    reasons: tuple[str, ...]
    """The condition reasons that it sets."""
    field: str = ""
    """JSON path of the deployment to look at; empty if no field is the cause."""
    meaning: str
    remedy: str
    """What to do; ``<pod>`` and ``<namespace>`` stand for those of the object that shows the fault."""
    without_pod: str = ""
    """The remedy if that object is not a pod; empty: the same."""

    @property
    def link(self) -> str:
        """The link to the explanation of the remedy."""
        return f"{PAGE}#{self.name.lower().replace('.', '')}"

    def remedy_for(self, object_: str, text: str = "") -> str:
        """Returns the remedy with the names from `object_` (``Kind/namespace/name``) filled in, ready to be run.

        `text` is the one for this case; empty: that of the code.
        """
        kind, _, rest = object_.partition("/")
        namespace, _, name = rest.partition("/")
        of_pod = kind == "Pod" and bool(name)
        text = text or (self.remedy if of_pod else self.without_pod or self.remedy)
        text = text.replace("<namespace>", namespace) if namespace else text
        return text.replace("<pod>", name) if of_pod else text


_REGISTERED_CODES = (
    Code(
        name="Secret.NotFound",
        tier=0,
        reasons=("SecretNotFound",),
        field="spec.secrets",
        meaning="A pod names a Secret, or a key of one, that does not exist.",
        remedy="Create the Secret in the deployment's namespace, or correct its name or key.",
    ),
    Code(
        name="ConfigMap.NotFound",
        tier=0,
        reasons=("ReferenceNotFound",),
        field="spec.model.storage.volumes",
        meaning="A pod names a ConfigMap, or a key of one, that does not exist.",
        remedy="Create the ConfigMap in the deployment's namespace, or correct its name or key.",
    ),
    Code(
        name="RuntimeClass.NotFound",
        tier=0,
        reasons=("ReferenceNotFound",),
        field="spec.runtimeClassName",
        meaning="The RuntimeClass of the pods does not exist.",
        remedy="Install it, or correct runtimeClassName in the deployment or in its runtime config.",
    ),
    Code(
        name="DeviceClass.NotFound",
        tier=0,
        reasons=("ReferenceNotFound",),
        field="spec.resources.gpu.deviceClass",
        meaning="The DeviceClass of the GPUs does not exist.",
        remedy="Install the driver that has it (kubectl get deviceclasses lists those that there are), correct "
        "deviceClass, or ask for GPUs by their resource name (gpu.type).",
    ),
    Code(
        name="Model.AuthGated",
        tier=0,
        reasons=("GatedModel", "AuthFailed"),
        field="spec.secrets.huggingFaceToken",
        meaning="The model is gated or private, and the token has no access to it or was refused.",
        remedy="Check that the token is valid; ask for access on the model's page, and name a Secret with the token of "
        "an account that has it.",
    ),
    Code(
        name="Model.NotFound",
        tier=0,
        reasons=("SourceNotFound",),
        field="spec.model.id",
        meaning="The model does not exist at its source. Hugging Face gives the same answer for a private model.",
        remedy="Correct the model's id or revision; for a private model name a Secret with a token.",
    ),
    Code(
        name="Engine.BadArgs",
        tier=0,
        reasons=("BadArguments",),
        field="spec.engine.args",
        meaning="The engine refused its command line, or its command does not exist in the image.",
        remedy="Correct the argument that the message names, for the engine version in the image.",
    ),
    Code(
        name="Engine.WrongArchitecture",
        tier=0,
        reasons=("WrongArchitecture",),
        field="spec.image",
        meaning="The image is for another processor (amd64, arm64) than the node has.",
        remedy="Set spec.image to an image for the node's architecture, or spec.nodeSelector to nodes of the image's "
        "(kubernetes.io/arch).",
    ),
    Code(
        name="Engine.NoGPU",
        tier=0,
        reasons=("GPUNotVisible",),
        field="spec.resources.gpu",
        meaning="The engine finds no GPU, or no driver library, in its container.",
        remedy="If the pod has a GPU, the node's container runtime does not pass it on: set spec.runtimeClassName (for "
        "NVIDIA usually nvidia), or make that runtime the default of the node. If the pod has none, ask for one "
        "(spec.resources.gpu.count), or use an image for CPUs.",
    ),
    Code(
        name="Engine.DriverTooOld",
        tier=0,
        reasons=("DriverTooOld",),
        field="spec.image",
        meaning="The image is built for a newer GPU driver than the node has.",
        remedy="Update the driver of the node, or set spec.image to one for an older CUDA.",
    ),
    Code(
        name="Engine.GPUUnsupported",
        tier=0,
        reasons=("GPUUnsupported",),
        field="spec.image",
        meaning="The GPU cannot compute what the model's data type or quantization, or the image's code, needs.",
        remedy="Use an image that is built for this GPU, or another GPU (spec.nodeSelector).",
    ),
    Code(
        name="Engine.ModelUnsupported",
        tier=0,
        reasons=("ModelUnsupported",),
        field="spec.image",
        meaning="The engine in this image cannot load the model: it does not know its architecture, or a file or a "
        "package is missing.",
        remedy="Set spec.image to a newer release of the engine, or choose another engine (spec.engine.type).",
    ),
    Code(
        name="Engine.NotWritable",
        tier=0,
        reasons=("NotWritable",),
        field="spec.env",
        meaning="The user of the container may not write a cache, or not read a file.",
        remedy="Let caches go to a folder in which every user may write: spec.env HOME=/tmp (and variables of that "
        "program, such as HF_HOME, which go before HOME).",
    ),
    Code(
        name="Engine.Communication",
        tier=0,
        reasons=("EngineCommunication",),
        field="spec.resources.memory",
        meaning="Processes of one replica do not reach each other, by shared memory or by the network.",
        remedy="Raise spec.resources.memory for shared memory; let the pods of the deployment reach each other on all "
        "ports.",
    ),
    Code(
        name="Storage.Full",
        tier=0,
        reasons=("StorageFull",),
        field="spec.model.storage.volumes",
        meaning="A volume, or the disk of the node, is full.",
        remedy="Enlarge the volume or free space on it.",
    ),
    Code(
        name="Engine.OutOfMemory",
        tier=0,
        reasons=("PodOOMKilled", "GPUOutOfMemory"),
        field="spec.resources.memory",
        meaning="A container used more memory than its limit, or the engine more than the GPUs have.",
        remedy="Raise spec.resources.memory for a container that exceeded its limit; for the GPUs' memory lower "
        "spec.engine.contextLength, or use more or larger GPUs.",
    ),
    Code(
        name="ImagePull.Auth",
        tier=0,
        reasons=("ImagePullAuthFailure",),
        field="spec.imagePullSecrets",
        meaning="The registry refused to hand the image out. Some registries answer so for an image that is not there.",
        remedy="Name a pull secret whose account may read the image, and check the image's name.",
    ),
    Code(
        name="ImagePull.NotFound",
        tier=0,
        reasons=("ImageNotFound", "InvalidImageReference"),
        field="spec.image",
        meaning="The registry has no such image, or none for the architecture of the node.",
        remedy="Correct the image's name or tag.",
    ),
    Code(
        name="ImagePull.RateLimited",
        tier=0,
        reasons=("RateLimited",),
        field="spec.imagePullSecrets",
        meaning="The registry limits how often images are pulled. Kubernetes goes on trying.",
        remedy="Wait, pull with an account, or use a mirror.",
    ),
    Code(
        name="ImageVolume.Unsupported",
        tier=0,
        reasons=("ImageVolumeUnsupported",),
        field="spec.model.source",
        meaning="The node's container runtime cannot mount an image as a volume.",
        remedy="Use nodes with containerd 2.1 or CRI-O 1.33 (spec.nodeSelector), or another source of the weights: the "
        "model cache, or a volume.",
    ),
    Code(
        name="Storage.ClassMissing",
        tier=0,
        reasons=("ReferenceNotFound", "StorageClassNotFound"),
        field="spec.model.storage.volumes",
        meaning="A volume claim names a StorageClass that does not exist.",
        remedy="Name a StorageClass of the cluster (kubectl get storageclass), or none for the default.",
    ),
    Code(
        name="Unschedulable.Quota",
        tier=0,
        reasons=("QuotaExceeded",),
        field="spec.resources",
        meaning="A ResourceQuota of the namespace, or a quota of the cloud, forbids what is asked for.",
        remedy="Ask for less, remove something else from the namespace, or have the quota raised.",
    ),
    Code(
        name="Unschedulable.InsufficientGPU",
        tier=0,
        reasons=("InsufficientCapacity",),
        field="spec.resources.gpu.count",
        meaning="No node that may be used has as many free GPUs as the pod asks for.",
        remedy="Ask for fewer GPUs, free some, or add a node.",
    ),
    Code(
        name="Unschedulable.Gated",
        tier=0,
        reasons=("SchedulingGated",),
        meaning="A scheduling gate keeps the scheduler from the pod until the gate's own controller removes it.",
        remedy="See what the controller of the gate waits for: kubectl describe pod <pod> -n <namespace>.",
        without_pod="See what the controller of the gate waits for.",
    ),
    Code(
        name="Unschedulable.TaintOrSelector",
        tier=1,
        reasons=("FailedScheduling",),
        field="spec.tolerations",
        meaning="Nodes have room, but their taints or labels keep the pod away, or they are cordoned.",
        remedy="Add a toleration, correct the node selector, or uncordon a node; kubectl describe nodes shows taints, "
        "labels and what is unschedulable.",
    ),
    Code(
        name="Storage.PvcPending",
        tier=1,
        reasons=("PvcPending", "ReferenceNotFound", "QuotaExceeded"),
        field="spec.model.storage.volumes",
        meaning="A volume claim is missing or has no volume yet, or the volume cannot be attached.",
        remedy="Look at the claim (kubectl describe pvc -n <namespace>), and whether its StorageClass exists and its "
        "provisioner runs; a claim of your own that is missing has to be created.",
    ),
    Code(
        name="Model.DownloadStalled",
        tier=1,
        reasons=("DNSFailure", "Timeout", "RateLimited"),
        field="spec.model.id",
        meaning="The model cannot be downloaded at the moment: its source is out of reach or limits requests.",
        remedy="Check that pods can reach the source (egress rules, proxy, name resolution), or cache the model.",
    ),
    Code(
        name="Probe.Timeout",
        tier=1,
        reasons=("ProbeTimeout",),
        meaning="The engine does not answer its probe in time, so that it gets no traffic or is restarted.",
        remedy=(
            "See what the engine does: kubectl logs <pod> -n <namespace>. Loading a large model may need more time, "
            "memory or CPU."
        ),
        without_pod="See what the engine does in its log. Loading a large model may need more time, memory or CPU.",
    ),
    Code(
        name="Engine.CrashLoop",
        tier=2,
        reasons=("CrashLoopBackOff", "RestartLoop"),
        meaning="A container ends again and again, and its termination message does not say why.",
        remedy="Read its log while the pod exists: kubectl logs <pod> -n <namespace> --previous.",
        without_pod=(
            "Read the log of its pods; where those that fail are deleted, follow that of the next one while it runs "
            "(kubectl logs -f)."
        ),
    ),
    Code(
        name="Provider.Rejected",
        tier=3,
        reasons=("InvalidSpec", "Forbidden", "ReferenceNotFound"),
        meaning="The API server, or a webhook of the upstream, refused an object that the deployment needs.",
        remedy="Change what the message names, or the policy that refuses it; where a right is missing, grant it to "
        "the provider's account (airunway doctor names it).",
    ),
    Code(
        name="Upstream.NotInstalled",
        tier=3,
        reasons=("UpstreamNotInstalled",),
        field="spec.provider.name",
        meaning="The upstream of the provider is not installed in the cluster.",
        remedy="Install it (kubectl describe inferenceproviderconfig has the steps), or choose another provider.",
    ),
    Code(
        name="Provider.Stale",
        tier=3,
        reasons=("StaleStatus",),
        meaning="The upstream's controller has not looked at the newest state of its object for five minutes.",
        remedy="See whether the upstream's controller runs, and what its log says.",
    ),
)

CODES: dict[str, Code] = {code.name: code for code in _REGISTERED_CODES}
"""Every root cause by its name; the order is the precedence between equals."""

_AMBIGUOUS = frozenset(
    (
        "AuthFailed",
        "RateLimited",
        "ReferenceNotFound",
        "InsufficientCapacity",
        "FailedScheduling",
        "DNSFailure",
        "Timeout",
    )
)
"""Reasons that alone name no cause."""

_BY_REASON = {
    reason: code.name for code in reversed(_REGISTERED_CODES) for reason in code.reasons if reason not in _AMBIGUOUS
}


def code_of_reason(reason: str) -> str:
    """Returns the code for a reason alone (a report of another party has nothing else); empty if there is none."""
    return _BY_REASON.get(reason, "")


_OF_DOWNLOADS = {
    "ConnectionRefused": "Model.DownloadStalled",
    "DNSFailure": "Model.DownloadStalled",
    "DependenciesUnreachable": "Model.DownloadStalled",
    "RateLimited": "Model.DownloadStalled",
    "ServerError": "Model.DownloadStalled",
    "Timeout": "Model.DownloadStalled",
    "Unauthorized": "Model.AuthGated",
}


def code_of_download(reason: str) -> str:
    """Returns the code for a reason of a model cache, where some reasons can only mean the source of the weights."""
    return _OF_DOWNLOADS.get(reason) or code_of_reason(reason)
