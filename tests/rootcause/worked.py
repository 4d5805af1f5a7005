"""The seven worked faults as a kubelet writes them, and what must be said of each, whoever provides the model."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.resource import Resource
from airunway.status.engine_texts import MORE_MEMORY
from airunway_testing.faults import BACK_OFF, ended, waiting

__all__ = ["FAULTS", "IMAGE", "Fault"]

IMAGE = "registry.example/team/vllm:1.0"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a kubelet writes, and what must be said of it.

    `says` must all be in the message; ``{pod}`` in it stands for the pod's name.
    """

    code: str
    reason: str
    phase: str
    says: tuple[str, ...]
    state: Resource
    last: Resource | None = None
    parent: str = ""
    remedy: str = ""
    """The remedy of this case; empty: that of the code."""


GATED = """Traceback (most recent call last):
huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2)

Cannot access gated repo for url https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/resolve/main/config.json.
Access to model meta-llama/Llama-3.1-8B-Instruct is restricted and you are not in the authorized list.
"""

FAULTS = {
    "image-not-found": Fault(
        code="ImagePull.NotFound",
        reason="ImageNotFound",
        phase="Failed",
        parent="ConfigValid",
        says=(IMAGE, "not found"),
        state=waiting(
            "ErrImagePull",
            f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found',
        ),
    ),
    "private-image": Fault(
        code="ImagePull.Auth",
        reason="ImagePullAuthFailure",
        phase="Degraded",
        parent="AuthValid",
        says=(IMAGE, "401 Unauthorized", "pull secret"),
        state=waiting(
            "ImagePullBackOff",
            f'Back-off pulling image "{IMAGE}": ErrImagePull: failed to pull and unpack image "{IMAGE}": failed to '
            f'resolve reference "{IMAGE}": unexpected status from HEAD request to '
            "https://registry.example/v2/team/vllm/manifests/1.0: 401 Unauthorized",
        ),
    ),
    "gated-model": Fault(
        code="Model.AuthGated",
        reason="GatedModel",
        phase="Degraded",
        parent="AuthValid",
        says=("meta-llama/Llama-3.1-8B-Instruct", "restricted", "token"),
        state=BACK_OFF,
        last=ended(1, "Error", GATED),
    ),
    "out-of-memory": Fault(
        remedy=MORE_MEMORY,
        code="Engine.OutOfMemory",
        reason="PodOOMKilled",
        phase="Failed",
        says=("memory", "exit code 137"),
        state=BACK_OFF,
        last=ended(137, "OOMKilled"),
    ),
    "crash-loop": Fault(
        code="Engine.CrashLoop",
        reason="CrashLoopBackOff",
        phase="Failed",
        says=("exit code 1", "KeyError: 'layers.0'", "kubectl logs {pod}"),
        state=BACK_OFF,
        last=ended(1, "Error", "KeyError: 'layers.0'\n"),
    ),
    "bad-arguments": Fault(
        code="Engine.BadArgs",
        reason="BadArguments",
        phase="Failed",
        parent="ConfigValid",
        says=("unrecognized arguments: --no-such-flag",),
        state=BACK_OFF,
        last=ended(
            2, "Error", "usage: vllm serve [options]\nvllm serve: error: unrecognized arguments: --no-such-flag\n"
        ),
    ),
    "secret-missing": Fault(
        code="Secret.NotFound",
        reason="SecretNotFound",
        phase="Degraded",
        parent="AuthValid",
        says=('secret "hf-token" not found',),
        state=waiting("CreateContainerConfigError", 'secret "hf-token" not found'),
    ),
}
