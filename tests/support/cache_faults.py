"""The faults of the model cache, and what artifact and deployment report: shared by the test and the reference page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Parent: TypeAlias = Literal["ConfigValid", "AuthValid", "DependenciesReachable", ""]


@dataclass(frozen=True, kw_only=True)
class CacheFault:
    """One fault of a download or its claim."""

    name: str
    """A short name for tests: letters and dashes."""
    what: str
    """The fault, for the page."""
    reason: str
    """The reason of the artifact's child condition, and of the deployment's ModelCacheReady."""
    child: Literal["StorageReady", "DownloadReady"] = "DownloadReady"
    """The artifact's condition that is False for it."""
    phase: str
    """The artifact's phase; of what is out of reach after the grace period of the config (10 s)."""
    parent: Parent = ""
    """The artifact's parent condition that is False; empty: none."""
    code: str = ""
    """The code of the root cause; empty: there is none."""
    words: str
    """A part of the message."""
    remedy: str
    """What clears it, for the page."""


_DELETE = "delete the failed Job to try at once"

CACHE_FAULTS = (
    CacheFault(
        name="anonymous",
        what="The model is gated and no token is set",
        reason="GatedModel",
        phase="Degraded",
        parent="AuthValid",
        code="Model.AuthGated",
        words="set a token",
        remedy=f"Set `secrets.huggingFaceToken` to a Secret with the token of an account with access; {_DELETE}",
    ),
    CacheFault(
        name="gated",
        what="The token's account has no access to the gated model",
        reason="GatedModel",
        phase="Degraded",
        parent="AuthValid",
        code="Model.AuthGated",
        words="ask for access",
        remedy=f"Ask for access on the model's page; {_DELETE}",
    ),
    CacheFault(
        name="refused",
        what="The hub refuses the token",
        reason="Unauthorized",
        phase="Degraded",
        parent="AuthValid",
        code="Model.AuthGated",
        words="token",
        remedy=f"Put a valid token into the Secret; {_DELETE}",
    ),
    CacheFault(
        name="no-secret",
        what="The Secret with the token does not exist",
        reason="SecretNotFound",
        phase="Degraded",
        parent="AuthValid",
        code="Secret.NotFound",
        words='secret "nowhere" not found',
        remedy="Create the Secret; the waiting pod starts by itself",
    ),
    CacheFault(
        name="no-model",
        what="The repository does not exist, or is private (the hub answers 401 to both)",
        reason="SourceNotFound",
        phase="Failed",
        parent="ConfigValid",
        code="Model.NotFound",
        words="acme/missing",
        remedy=f"Correct the model's id, or set a token that may see it; {_DELETE}",
    ),
    CacheFault(
        name="hub-down",
        what="The hub refuses connections",
        reason="ConnectionRefused",
        phase="Degraded",
        parent="DependenciesReachable",
        code="Model.DownloadStalled",
        words="refuses connections",
        remedy="The Job tries again, then the part after 60 s, 120 s, … up to an hour; "
        "`HF_ENDPOINT` and egress rules are the first to look at",
    ),
    CacheFault(
        name="dns",
        what="The hub's name cannot be resolved",
        reason="DNSFailure",
        phase="Degraded",
        parent="DependenciesReachable",
        code="Model.DownloadStalled",
        words="hub.invalid",
        remedy="As above; look at `HF_ENDPOINT`, the proxy and the cluster's name resolution",
    ),
    CacheFault(
        name="rate-limit",
        what="The hub limits requests (429) and says how long",
        reason="RateLimited",
        phase="Degraded",
        parent="DependenciesReachable",
        code="Model.DownloadStalled",
        words="limits requests",
        remedy="Tried again when the hub's time is over; a token raises most limits",
    ),
    CacheFault(
        name="poison",
        what="The hub's bytes do not have the stated digest, three times",
        reason="VerificationFailed",
        phase="Failed",
        words="is not what the source states",
        remedy="Tried again with backoff; good files are not fetched again. A mirror or proxy in between is the first "
        "to look at",
    ),
    CacheFault(
        name="disk-full",
        what="The claim is full",
        reason="StorageFull",
        phase="Failed",
        code="Storage.Full",
        words="Set size to at least",
        remedy="Raise `size`; the claim grows, or is made anew where its class cannot",
    ),
    CacheFault(
        name="no-class",
        what="The StorageClass does not exist",
        reason="StorageClassNotFound",
        child="StorageReady",
        phase="NotAvailable",
        code="Storage.ClassMissing",
        words="there is no StorageClass",
        remedy="Create the class, or name another one",
    ),
    CacheFault(
        name="quota",
        what="A ResourceQuota forbids the claim",
        reason="QuotaExceeded",
        child="StorageReady",
        phase="Starting",
        code="Unschedulable.Quota",
        words="exceeded quota",
        remedy="Have the quota raised, or remove another claim",
    ),
    CacheFault(
        name="access-mode",
        what="The class cannot serve the access mode",
        reason="PvcPending",
        phase="Starting",
        code="Storage.PvcPending",
        words="not supported. Only AccessModes",
        remedy="Name a class with `ReadWriteMany`, or set `accessMode: ReadWriteOnce` where one pod mounts the claim",
    ),
    CacheFault(
        name="image",
        what="The downloader's image cannot be pulled",
        reason="ImageNotFound",
        phase="Failed",
        parent="ConfigValid",
        code="ImagePull.NotFound",
        words="registry.example/no-such-image",
        remedy="Correct `--downloader-image` or the artifact's `downloaderImage`; the waiting pod starts by itself",
    ),
)
"""Every fault. An evicted pod and a lost node are no faults: the Job replaces the pod, and the attempt goes on."""
