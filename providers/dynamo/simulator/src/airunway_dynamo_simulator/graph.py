"""Reads the components and pod templates of a graph, in either API version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.resource import Resource, annotations_of, copy_of, dig, digest, key_of
from airunway_dynamo_simulator import names


@dataclass(frozen=True, kw_only=True)
class Component:
    """One component of a graph."""

    name: str
    type: str
    """Type as in v1beta1."""
    label: str
    """Type in the label of its pods."""
    replicas: int
    nodes: int
    template: Resource
    """Pod template as in the graph; its main container is called ``main``."""

    @property
    def works(self) -> bool:
        return self.type in names.WORKERS

    @property
    def lower(self) -> str:
        return self.name.lower()

    @property
    def hash(self) -> str:
        """Digest (8 characters) of a worker's template, without its number of replicas."""
        return digest([self.type, self.nodes, self.template], length=8)


def components_of(graph: Resource) -> list[Component]:
    """All components, sorted by name."""
    found = [*_services(graph), *_listed(graph)]
    return sorted(found, key=lambda component: component.name)


def on_grove(graph: Resource, *, installed: bool) -> bool:
    """Whether the graph runs on Grove."""
    return installed and annotations_of(graph).get(names.ENABLE_GROVE, "").lower() != "false"


def refusals(graph: Resource, *, grove: bool) -> Iterator[str]:
    """Validation errors of the operator's webhook; without the webhook the operator reports them itself."""
    components = components_of(graph)
    if not components:
        listed = "components" in (dig(graph, "spec") or {})
        yield (
            "spec.components: Required value: must have at least one component"
            if listed
            else "spec.services must have at least one service"
        )
    for component in components:
        if not any(container.get("image") for container in dig(component.template, "spec", "containers", default=[])):
            yield f"spec.components[{component.name}].podTemplate.spec.containers: image is required"
        length = _combined(key_of(graph).name, component)
        if grove and length > names.LONGEST_COMBINED:
            yield (
                f"component {component.name}: combined resource name length {length} exceeds the "
                f"{names.LONGEST_COMBINED}-character limit"
            )


def _combined(graph: str, component: Component) -> int:
    own = len(component.lower)
    return len(graph) + own + (own + len("-ldr") if component.nodes > 1 else 0)


def _services(graph: Resource) -> Iterator[Component]:
    for name, service in (dig(graph, "spec", "services") or {}).items():
        type_ = service.get("componentType", "worker")
        pod = copy_of(service.get("extraPodSpec") or {})
        main = {"name": "main", **(pod.pop("mainContainer", None) or {}), "env": service.get("envs") or []}
        main["resources"] = _native(service.get("resources") or {})
        yield Component(
            name=name,
            type=service.get("subComponentType") or type_,
            label=type_,
            replicas=int(service.get("replicas", 1)),
            nodes=int(dig(service, "multinode", "nodeCount", default=1)),
            template={
                "metadata": copy_of(service.get("extraPodMetadata") or {}),
                "spec": {**pod, "containers": [main, *(pod.get("containers") or [])]},
            },
        )


def _listed(graph: Resource) -> Iterator[Component]:
    for component in dig(graph, "spec", "components") or []:
        yield Component(
            name=component["name"],
            type=component.get("type", "worker"),
            label=component.get("type", "worker"),
            replicas=int(component.get("replicas", 1)),
            nodes=int(dig(component, "multinode", "nodeCount", default=1)),
            template=copy_of(component.get("podTemplate") or {}),
        )


def _native(resources: Resource) -> Resource:
    """Resources of a v1alpha1 service in the format of Kubernetes."""
    native: Resource = {}
    for side in ("requests", "limits"):
        amounts = dict(resources.get(side) or {})
        custom, kind = amounts.pop("custom", None) or {}, amounts.pop("gpuType", "nvidia.com/gpu")
        if gpus := amounts.pop("gpu", ""):
            amounts[kind] = gpus
        if amounts or custom:
            native[side] = {**amounts, **custom}
    return native
