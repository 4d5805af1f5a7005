"""Weights from an OCI image (``spec.model.source: oci``): each pod mounts it as an ``image`` volume, read-only. Pure.

Nothing is fetched by us: the kubelet of each node pulls the image with the pull secrets of the pod. Kubernetes has
such volumes since 1.33, behind the feature gate ``ImageVolume`` (off by default before 1.35). An API server without
it, and a CRD whose pod schema is older, drop the volume without an error (`dropped`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.api.rules import MODEL_CACHE_PATH
from airunway.plugins.contract import Context, Finding, ModelCache
from airunway.plugins.host import ProviderHost
from airunway.references import OCI
from airunway.resource import Resource, annotations_of, dig

SINCE = (1, 33)
"""The first version of Kubernetes whose pods can mount an image."""

_SOURCE, _URI = "spec.model.source", "spec.model.uri"
_OTHERWISE = (
    "or let the model cache fetch the weights (source huggingface, cache.mode Shared), or mount a claim that has them "
    "(storage.volumes, and its path as model.id)"
)


def with_image(deployment: ModelDeployment, context: Context[Any]) -> Context[Any]:
    """The context in which the weights come from the deployment's image, if it names one."""
    model = deployment.spec.model
    if model.source != "oci" or not model.uri:
        return context
    cache = ModelCache(image=model.uri.removeprefix(OCI), mount_path=MODEL_CACHE_PATH, access_mode="ReadOnlyMany")
    return replace(context, cache=cache)


def image_findings(
    deployment: ModelDeployment, context: Context[Any], host: ProviderHost
) -> Iterator[tuple[bool, Finding]]:
    """Findings about weights from an image. True: a blocker."""
    cache = context.cache
    if cache is None or not cache.image:
        return
    if not any(each.image_volumes for each in host.manifest.engines if each.name == context.engine):
        text = f"{context.engine} engine of provider {host.name} mounts no weights from an image: use another provider"
        yield True, _finding(_SOURCE, "IncompatibleConfiguration", f"{text}, {_OTHERWISE}")
    if context.kubernetes < SINCE:
        version, since = (".".join(map(str, each)) for each in (context.kubernetes, SINCE))
        text = f"pods mount images since Kubernetes {since}, and this cluster has {version}: upgrade it, {_OTHERWISE}"
        yield True, _finding(_SOURCE, "IncompatibleConfiguration", text)
    if "@" not in cache.image:
        text = (
            "without a digest the image is found by its tag, which can be moved: replicas on different nodes may then "
            "serve different weights; append @sha256:…"
        )
        yield False, _finding(_URI, "MutableTag", text)


def dropped(live: Resource | None, desired: Resource, context: Context[Any]) -> Iterator[Finding]:
    """The blocker for an object that was written with the image and has lost it, with the same spec."""
    image = context.cache.image if context.cache is not None else ""
    notes = annotations_of(live or {}).get(names.WRITTEN_FOR), annotations_of(desired).get(names.WRITTEN_FOR)
    if not image or live is None or notes[0] != notes[1] or _mounts(live, image) or not _mounts(desired, image):
        return
    text = (
        f"the volume with {image:.300} was dropped from {live.get('kind')} {dig(live, 'metadata', 'name')}: switch on "
        "the feature gate ImageVolume of API server and kubelets (it is off by default before Kubernetes 1.35) or, for "
        f"an object of an operator, upgrade its CRDs; {_OTHERWISE}"
    )
    yield _finding(_SOURCE, "IncompatibleConfiguration", text)


def _mounts(node: object, image: str) -> bool:
    if isinstance(node, dict):
        return dig(node, "image", "reference") == image or any(_mounts(each, image) for each in node.values())
    return isinstance(node, list) and any(_mounts(each, image) for each in node)


def _finding(path: str, reason: str, message: str) -> Finding:
    return Finding(path=path, reason=reason, message=message)
