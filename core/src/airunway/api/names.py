"""The names that AI Runway puts on objects: group, labels, annotations, finalizers, field managers; and limits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

GROUP = "airunway.ai"
"""API group, and the prefix of all labels and annotations."""
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MANAGED_BY = f"{GROUP}/managed-by"
"""Label with the value ``airunway``, on every object created for a deployment."""
MANAGED_BY_VALUE = "airunway"
MODEL_DEPLOYMENT = f"{GROUP}/model-deployment"
"""Label with the deployment's name, on every object created for it, and on its pods if the upstream allows that."""

PROVIDER = f"{GROUP}/provider"
"""Label with the provider's name, on every object and pod that it creates. It changes no others."""

COMPONENT = f"{GROUP}/component"
"""Label for the role of a pod in its deployment, where we write the pods: ``server``, ``prefill``, ``decode``, …"""

PICKER_COMPONENT = "picker"
"""Value of that label on the pod of an endpoint picker, which serves no model."""

PART = f"{GROUP}/part"
"""Label on objects and pods that a part of the core creates: ``gateway`` or ``model-cache``."""

ARTIFACT = f"{GROUP}/artifact"
"""Label with the ModelArtifact's name, on its claim, its Jobs and their pods."""

TEMPLATE = f"{GROUP}/template"
"""Label with the name of a template, on its discovery Jobs and on the ModelArtifacts that it keeps warm."""

MODEL_SOURCE = f"{GROUP}/model-source"
"""Label of a ClusterModelTemplate that was made from an image: the ModelSource that named it."""

CACHE_TYPE = f"{GROUP}/cache.type"
"""Label on what a ModelArtifact owns: ``artifact``."""

GATEWAY_PART = "gateway"
"""Value of the label `PART` on what the gateway part makes; its name in ``status.parts``."""

MODEL_CACHE_PART = "model-cache"
MODEL_CACHE_LABEL = f"{GROUP}/model-cache"
"""Label on namespaces in which the model cache may run its Jobs: ``allowed``. Only administrators label namespaces."""
"""Value of the label `PART` on what the model cache part makes; its name in ``status.parts``."""

CLAIM_UID = f"{GROUP}/claim-uid"
"""Annotation on the Job of a download: the uid of the claim that it fills."""

INFERENCE_GATEWAY = f"{GROUP}/inference-gateway"
"""Label on a Gateway: ``"true"`` chooses it among several for deployments that name none."""

GATEWAY_NAMESPACE = f"{GROUP}/gateways"
"""Label on a Namespace: ``allowed`` lets its Gateways be chosen for deployments that name none. Only who may label
namespaces can set it, unlike a label on a Gateway.
"""

MODEL_HEADER = "X-Gateway-Model-Name"
"""Header of a request that names the model; the rule by model name of a route matches it."""

NEVER_PROPAGATED = frozenset(
    f"{GROUP}/{name}"
    for name in (
        "managed-by",
        "model-deployment",
        "provider",
        "part",
        "component",
        "artifact",
        "template",
        "cache.type",
        "inference-pool",
        "engine-type",
        "model-source",
        "nodes-of",
    )
)
"""Labels with our prefix that are never copied from a deployment to its objects: our code sets them there."""

ADOPT = f"{GROUP}/adopt"
"""Annotation on a ModelDeployment: a new value switches what runs to the newest transformer and version."""

WRITTEN_FOR = f"{GROUP}/written-for"
"""Annotation on the primary upstream object: digests of the spec that it was written for, without and with what takes
nothing newer (replica counts, ``suspend``), separated by a dot.
"""

REVISION = f"{GROUP}/revision"
"""Annotation on the primary upstream object: hash of the ``status.revision`` that it was written from."""

REPLACE_ON_CHANGE = f"{GROUP}/replace-on-change"
"""Annotation: JSON map of digests of everything whose change needs a new object, in three groups.

They are digests of what *we* requested, not of the live object, because upstream webhooks set further fields, and a
value that we no longer set must count as a change. ``deployment`` is its identity; ``topology`` is the plugin's
``replace_on``; ``object`` are paths of the object itself, which are valid in one API version only.
"""

PLAN_SUFFIX = "-airunway-plan"
"""How the name of the ConfigMap with a dry run's plan ends, after the deployment's name."""

INTERRUPTS_ON_CHANGE = f"{GROUP}/interrupts-on-change"
"""Annotation of the primary object: JSON map of what interrupts serving when it changes in place, with a digest and the
message.
"""

PAUSED = f"{GROUP}/reconcile-paused"
"""Annotation: exactly ``"true"`` stops reconciliation (deletion continues)."""
DRY_RUN = f"{GROUP}/dry-run"
SPEC_HASH = f"{GROUP}/spec-hash"
"""Annotation on upstream objects: digest of what was last applied."""

TRANSFORMER = f"{GROUP}/transformer"
"""Annotation on the primary upstream object: the transformer that wrote it."""

DEPLOYMENT_UID = f"{GROUP}/deployment-uid"
"""Annotation on upstream objects: the uid of their deployment, in case the owner reference is removed."""

MAX_NAME_LENGTH = 52
"""Longest name of a ModelDeployment: derived names (pods, revisions, routes) must fit into 63 characters."""

FINALIZER_TIMEOUT = timedelta(minutes=5)
"""Time after the deletion at which the finalizer is removed from a deployment, whatever the cause."""

CORE_MANAGER = "airunway-controller"
GATEWAY_MANAGER = "airunway-gateway"
MODEL_CACHE_MANAGER = "airunway-model-cache"
PART_MANAGERS = (GATEWAY_MANAGER, MODEL_CACHE_MANAGER)
CORE_MANAGERS = (CORE_MANAGER, *PART_MANAGERS)

DEFAULT_NAMESPACE = "airunway-system"
"""The namespace that AI Runway runs in unless another one is named."""

DEFAULT_GPU_TYPE = "nvidia.com/gpu"
"""Resource name of the GPUs if a deployment names none."""
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a device class, the resource name that Kubernetes gives its devices (resource.k8s.io/v1)."""

GATEWAY_GROUP = "gateway.networking.k8s.io"
"""Group of Gateways and HTTPRoutes."""

ENDPOINT_PICKER_ROLE = "airunway-endpoint-picker"
"""ClusterRole that the installation has; the gateway part binds endpoint pickers to it and to no other role."""


def provider_manager(provider: str) -> str:
    """Returns the field manager of a provider's writes."""
    return f"airunway-provider-{provider}"


def provider_of_manager(manager: str) -> str:
    """Returns the provider with this field manager; empty if it is not a provider's."""
    prefix = provider_manager("")
    return manager.removeprefix(prefix) if manager.startswith(prefix) else ""


def guard_manager(namespace: str) -> str:
    """Returns the field manager with which the core in that namespace writes the data for the guards of providers."""
    return f"airunway-guard-{namespace}"


def provider_finalizer(provider: str) -> str:
    """Returns the finalizer that a provider keeps on its ModelDeployments while upstream objects may exist."""
    return f"{GROUP}/{provider}-provider"


def provider_of_finalizer(finalizer: str) -> str:
    """Returns the provider with this finalizer; empty if it is not a provider's."""
    prefix, suffix = f"{GROUP}/", "-provider"
    if not (finalizer.startswith(prefix) and finalizer.endswith(suffix)):
        return ""
    return finalizer[len(prefix) : -len(suffix)]


def foreign_finalizers(finalizers: Iterable[str]) -> list[str]:
    """Returns the finalizers that other programs have put on an object."""
    return [each for each in finalizers if not each.startswith(f"{GROUP}/")]


def whose(deployment: str, *, provider: str) -> dict[str, str]:
    """Returns the labels with the names of the deployment and the provider that an object or a pod belongs to."""
    return {MANAGED_BY: MANAGED_BY_VALUE, MODEL_DEPLOYMENT: deployment, PROVIDER: provider}
