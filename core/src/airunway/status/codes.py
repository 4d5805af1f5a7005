"""The codes of root causes: meaning, field of the deployment, and remedy of each (spec/status.md)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CODES", "PAGE", "Code", "code_of_download", "code_of_reason"]

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

    def remedy_for(self, object_: str) -> str:
        """Returns the remedy with the names from `object_` (``Kind/namespace/name``) filled in, ready to be run."""
        kind, _, rest = object_.partition("/")
        namespace, _, name = rest.partition("/")
        of_pod = kind == "Pod" and bool(name)
        text = self.remedy if of_pod else self.without_pod or self.remedy
        text = text.replace("<namespace>", namespace) if namespace else text
        return text.replace("<pod>", name) if of_pod else text


_REGISTERED = (
    Code(
        name="Secret.NotFound",
        tier=0,
        reasons=("SecretNotFound",),
        field="spec.secrets",
        meaning="A pod names a Secret, or a key of one, that does not exist.",
        remedy="Create the Secret in the deployment's namespace, or correct its name or key.",
    ),
    Code(
        name="Model.AuthGated",
        tier=0,
        reasons=("GatedModel", "AuthFailed"),
        field="spec.secrets.huggingFaceToken",
        meaning="The model is gated or private, and the token has no access to it or was refused.",
        remedy="Ask for access on the model's page and name a Secret with the token of an account that has it.",
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
        remedy="Give it more memory or more GPUs, or lower the context length.",
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
        name="Unschedulable.TaintOrSelector",
        tier=1,
        reasons=("FailedScheduling",),
        field="spec.tolerations",
        meaning="Nodes have room, but their taints or labels keep the pod away.",
        remedy="Add a toleration or correct the node selector; kubectl describe nodes shows taints and labels.",
    ),
    Code(
        name="Storage.PvcPending",
        tier=1,
        reasons=("PvcPending", "ReferenceNotFound", "QuotaExceeded"),
        field="spec.model.storage.volumes",
        meaning="A volume claim is missing or has no volume yet, or the volume cannot be attached.",
        remedy="Look at the claim (kubectl describe pvc -n <namespace>) and at the provisioner of its StorageClass.",
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
        remedy="Change what the message names, or the policy that refuses it.",
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

CODES: dict[str, Code] = {code.name: code for code in _REGISTERED}
"""Every root cause by its name; the order is the precedence between equals."""

_BY_REASON = {
    "SecretNotFound": "Secret.NotFound",
    "GatedModel": "Model.AuthGated",
    "SourceNotFound": "Model.NotFound",
    "BadArguments": "Engine.BadArgs",
    "StorageFull": "Storage.Full",
    "PodOOMKilled": "Engine.OutOfMemory",
    "GPUOutOfMemory": "Engine.OutOfMemory",
    "ImagePullAuthFailure": "ImagePull.Auth",
    "ImageNotFound": "ImagePull.NotFound",
    "InvalidImageReference": "ImagePull.NotFound",
    "QuotaExceeded": "Unschedulable.Quota",
    "StorageClassNotFound": "Storage.ClassMissing",
    "PvcPending": "Storage.PvcPending",
    "ProbeTimeout": "Probe.Timeout",
    "CrashLoopBackOff": "Engine.CrashLoop",
    "RestartLoop": "Engine.CrashLoop",
    "InvalidSpec": "Provider.Rejected",
    "Forbidden": "Provider.Rejected",
    "UpstreamNotInstalled": "Upstream.NotInstalled",
    "StaleStatus": "Provider.Stale",
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
