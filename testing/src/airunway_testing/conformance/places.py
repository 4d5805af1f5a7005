"""What the guard of a provider's account has to know of the objects that the provider writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airunway.json_path import values_at
from airunway.plugins.contract import ProviderManifest, UpstreamKind
from airunway.rbac.pod_rules import places_of
from airunway.resource import Resource, dig
from airunway.sdk.pods import pod_specs, pod_templates


def guarded_faults(manifest: ProviderManifest, deployment: str, objects: Sequence[Resource]) -> Iterator[str]:
    """What of the objects of a translation, for the deployment of that name, the guard would refuse or not look at."""
    kinds = {(kind.group, kind.kind): kind for kind in manifest.upstream}
    accounts = {pattern.replace("{name}", deployment) for pattern in manifest.accounts}
    for obj in objects:
        kind = kinds[str(obj["apiVersion"]).rpartition("/")[0], obj["kind"]]
        yield from _of_pods(kind, obj)
        if kind.kind in ("ServiceAccount", "Role", "RoleBinding") and dig(obj, "metadata", "name") not in accounts:
            yield (
                f"{kind.key} {dig(obj, 'metadata', 'name')}: the guard of the provider's account refuses the name: add "
                "it to the manifest's accounts, {name} for the deployment's"
            )
        if any(rule not in manifest.rbac_rules for rule in dig(obj, "rules", default=[]) if kind.kind == "Role"):
            yield f"Role {dig(obj, 'metadata', 'name')}: grants what the manifest's rbac_rules do not have"


def _of_pods(kind: UpstreamKind, obj: Resource) -> Iterator[str]:
    places = {path: list(values_at(obj, path)) for path in places_of(kind)}
    declared = [found for values in places.values() for found in values]
    inside = [template["spec"] for template in pod_templates(obj)]
    for spec in pod_specs(obj):
        place = next((path for path, values in places.items() if _among(spec, values)), None)
        if place is None:
            yield (
                f"{kind.key}: there are pods at a place that the manifest does not name, so that the guard of the "
                "provider's account does not look at them: add it to the kind's pods "
                f"(now: {', '.join(places_of(kind))})"
            )
        elif not _among(spec, inside) and place not in kind.labels:
            yield (
                f"{kind.key}: the pods of {place} stand outside of a pod template, so that no label of ours is on "
                f"them: say in the kind's labels where their labels are written ({{{place!r}: 'spec.labels'}}), or '' "
                "if the upstream has no place for them, and they are known by pod_labels of the manifest alone"
            )
    declared += [found for path in kind.containers for found in values_at(obj, path)]
    declared += pod_specs(obj)
    for at in _containers(obj, declared, ""):
        yield (
            f"{kind.key}: {at} looks like a container outside of the pods that pod_specs finds, where no site's "
            "wrapper and no guard comes: name the place in the kind's pods or containers"
        )
    for path in kind.unused:
        if list(values_at(obj, path)):
            yield f"{kind.key}: {path} is written, although the manifest says that it is unused"


def _among(node: object, nodes: Sequence[object]) -> bool:
    return any(node is each for each in nodes)


_OF_A_CONTAINER = frozenset({"args", "command", "env", "envFrom", "volumeMounts"})


def _containers(node: object, declared: Sequence[object], at: str) -> Iterator[str]:
    """Where an object has an image with a command, arguments or variables, outside of what is declared and of pods."""
    if _among(node, declared):
        return
    if isinstance(node, dict):
        if isinstance(node.get("image"), str) and not _OF_A_CONTAINER.isdisjoint(node):
            yield at
            return
        for key, value in node.items():
            yield from _containers(value, declared, f"{at}.{key}".lstrip("."))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from _containers(value, declared, f"{at}[{i}]")
