"""Which Ray an image has: it decides what Ray Serve LLM can be asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from airunway.sdk import Context, Finding, Launch, ModelDeployment, dig, launch
from airunway_kuberay.settings import Settings

__all__ = ["ray_container", "ray_version", "version_findings"]

_TAG = re.compile(r":v?(\d+\.\d+\.\d+)[^/:]*$")
_SINCE = {"aggregated": ("build_openai_app", (2, 44)), "disaggregated": ("build_pd_openai_app", (2, 49))}
"""What builds the application, and the release of Ray that has it first (ray.serve.llm of 2.44.1 and 2.49.0)."""
_REMEDY = "name an image whose tag begins with the version of Ray, or set provider.overrides.rayVersion"


def ray_container(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    """The image of head and workers. What they start is KubeRay's to say, and when they are ready too."""
    found = launch(deployment, "vllm", port=0, image=context.settings.image, gpus=1)
    return replace(found, command=(), args=(), port=0, startup={}, readiness={})


def ray_version(deployment: ModelDeployment, image: str) -> str:
    """``2.56.0``: as the deployment says, else by the image's tag; empty where neither tells."""
    named = dig(deployment.spec.provider.overrides, "rayVersion")
    found = _TAG.search(image.partition("@")[0])
    return str(named) if named else found[1] if found else ""


def version_findings(deployment: ModelDeployment, image: str) -> Iterator[tuple[bool, Finding]]:
    """What the version forbids (True), or leaves open."""
    spec = deployment.spec
    path = "spec.engine.image" if spec.engine.image else "spec.image"
    version = ray_version(deployment, image)
    builder, since = _SINCE[spec.serving.mode]
    needed = ".".join(map(str, since))
    if not version:
        decides = spec.serving.mode == "disaggregated"
        text = f"the version of Ray in {image!r} is not known, and {builder} needs {needed}: {_REMEDY}"
        reason = "IncompatibleConfiguration" if decides else "RayVersionUnknown"
        yield decides, Finding(path=path, reason=reason, message=text)
    elif tuple(map(int, version.split(".")[:2])) < since:
        text = f"Ray {version} of {image!r} has no {builder}, which needs {needed}: {_REMEDY}"
        yield True, Finding(path=path, reason="IncompatibleConfiguration", message=text)
