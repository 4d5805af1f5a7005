"""Checks 09: runtime configs, and the routes that the core makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from airunway.api import names
from airunway.configs.resolution import DEFAULT, Resolution, RoutingRequest, Scope, config_name, routing_request
from airunway.configs.resolution import check as problems_of
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import POOL_GROUPS, ProcessDeployment, Snapshot, named
from airunway.gateway.application import DEFAULT_PICKER_IMAGE
from airunway.plugins.settings import resolve_among
from airunway.rbac.rights import picker_role
from airunway.resource import (
    ObjectKey,
    Resource,
    dig,
    entries_at,
    is_deleting,
    key_of,
    labels_of,
    mapping_at,
    text_at,
)
from airunway.routing.backends import picker_for
from airunway.routing.gateways import Detection, admits, choose, listeners, unserved
from airunway.validation.policy import PolicyError, read_selector

_UPGRADE = "helm upgrade of the chart airunway, or kubectl apply the ClusterRole of docs/reference/core-roles.yaml"


def _configs(seen: Snapshot) -> Iterator[tuple[str, Resource]]:
    """Every runtime config with its name in a finding."""
    for config in (*(seen.runtime_configs or ()), *(seen.cluster_runtime_configs or ())):
        yield named("RuntimeConfig" if key_of(config).namespace else "ClusterRuntimeConfig", config), config


def configs_by_name(seen: Snapshot) -> Mapping[str, list[Resource]]:
    """The configs by their name, with the kind that objects of a list lack."""
    found: dict[str, list[Resource]] = defaultdict(list)
    for name, config in _configs(seen):
        found[key_of(config).name].append({**config, "kind": name.partition("/")[0]})
    return found


def resolved(obj: Resource, configs: Mapping[str, list[Resource]]) -> Resolution:
    """The runtime config that a deployment or an artifact follows, of those of `configs_by_name`."""
    return resolve_among(obj, configs.get(config_name(obj), ()))


def asking(cores: Iterable[ProcessDeployment], deployments: Sequence[Resource]) -> Iterator[Found]:
    """A finding for each core that watches one of these deployments, which ask for a part that is off there."""
    for core in cores:
        mine = [each for each in deployments if not core.watched or key_of(each).namespace in core.watched]
        if mine:
            yield Found(core.name, f"{len(mine)} deployments ask, {key_of(mine[0])} first.")


def _routing(seen: Snapshot) -> Iterator[ProcessDeployment]:
    """The cores whose gateway part is on."""
    return (core for core in seen.cores if core.has_gateway)


@error(
    "ARW0901",
    "The ClusterRole of endpoint pickers is missing",
    why="Endpoint pickers may not read pods and pools, never get ready, and the condition GatewayReady says Forbidden. "
    "The models are served.",
    do=f"Create it: {_UPGRADE}.",
    needs=("components", "served", "picker_roles"),
)
def _no_role(seen: Snapshot) -> Iterator[Found]:
    pools = "InferencePool" in (seen.served or {}).get(POOL_GROUPS[0], {}).get("v1", {})
    if any(_routing(seen)) and pools and not seen.picker_roles:
        yield Found(f"ClusterRole/{names.ENDPOINT_PICKER_ROLE}", "It does not exist.")


@warning(
    "ARW0902",
    "The ClusterRole of endpoint pickers has other rules than this release",
    why="There is one for all installations in a cluster, and the first one owns it. A picker that lacks a right never "
    "gets ready.",
    do=f"Delete it (pickers keep their bindings) and create it anew: {_UPGRADE}.",
    needs=("components", "picker_roles"),
)
def _other_rules(seen: Snapshot) -> Iterator[Found]:
    live = (seen.picker_roles or {}).get(names.ENDPOINT_PICKER_ROLE)
    if live is not None and any(_routing(seen)) and (live.get("rules") or []) != picker_role()["rules"]:
        yield Found(f"ClusterRole/{names.ENDPOINT_PICKER_ROLE}", "Its rules differ.")


def _choices(seen: Snapshot, core: ProcessDeployment) -> list[Resource]:
    """The Gateways that may be chosen without being named: those of the namespaces for Gateways."""
    listed = [name for part in core.option("gateway-namespaces").split(",") if (name := part.strip())]

    def trusts(namespace: str) -> bool:
        if listed:
            return namespace in listed
        return namespace == core.key.namespace or seen.labels_of(namespace).get(names.GATEWAY_NAMESPACE) == "allowed"

    return [each for each in seen.gateways or () if not is_deleting(each) and trusts(key_of(each).namespace)]


def _detection(seen: Snapshot, core: ProcessDeployment) -> Detection:
    """What the core knows for a deployment that names no Gateway."""
    namespaces = {key_of(each).namespace for each in _choices(seen, core)}
    return Detection(flag=core.option("gateway-name"), namespaces=namespaces)


def _live(deployment: Resource) -> Resource:
    """What is known of a route without reading it: the Gateway in the deployment's status."""
    published = dig(deployment, "status", "gateway")
    ref = {"name": text_at(published, "gatewayName"), "namespace": text_at(published, "gatewayNamespace")}
    return {"metadata": {"namespace": key_of(deployment).namespace}, "spec": {"parentRefs": [ref]}}


def _used(seen: Snapshot) -> list[Resource]:
    """The Gateways that routes are attached to, or would be."""
    wanted = {key_of(each) for core in _routing(seen) for each in _choices(seen, core)}
    for core in _routing(seen):
        namespace, _, name = core.option("gateway-name").partition("/")
        wanted.add(ObjectKey(namespace, name))
    for deployment in seen.deployments or ():
        found = dig(deployment, "status", "gateway", default={})
        wanted.add(ObjectKey(str(found.get("gatewayNamespace")), str(found.get("gatewayName"))))
    return [each for each in seen.gateways or () if key_of(each) in wanted]


@warning(
    "ARW0903",
    "There are several Gateways and none is chosen",
    why="Deployments that name no Gateway, themselves or by their runtime config, get no route (AmbiguousGateway).",
    do=f"Label one with {names.INFERENCE_GATEWAY}=true. Or set the value "
    "gateway.name of the chart airunway, or spec.routing.gatewayRef of a runtime config.",
    needs=("components", "gateways", "namespaces"),
)
def _no_choice(seen: Snapshot) -> Iterator[Found]:
    for core in _routing(seen):
        gateways = _choices(seen, core)
        labelled = [each for each in gateways if labels_of(each).get(names.INFERENCE_GATEWAY) == "true"]
        if len(gateways) > 1 and len(labelled) != 1 and not core.option("gateway-name"):
            listed = ", ".join(str(key_of(gateway)) for gateway in gateways[:5])
            key = key_of(gateways[0])
            yield Found(
                core.name,
                f"It can choose among {len(gateways)} ({listed}); {len(labelled)} have the label.",
                do=f"Label one: kubectl label gateway {key.name} --namespace {key.namespace} "
                f"{names.INFERENCE_GATEWAY}=true. Or set the value gateway.name of the chart airunway, or "
                "spec.routing.gatewayRef of a runtime config.",
            )


@warning(
    "ARW0912",
    "No Gateway is in a namespace for Gateways",
    why="Deployments that name no Gateway, themselves or by their runtime config, get no route (NoGateway): a Gateway "
    "in any other namespace is not trusted with everybody's requests.",
    do=f"Allow its namespace: kubectl label namespace NAMESPACE {names.GATEWAY_NAMESPACE}=allowed. Or set gateway.name "
    "or gateway.namespaces of the chart airunway, or spec.routing.gatewayRef of a runtime config.",
    needs=("components", "gateways", "namespaces"),
)
def _none_trusted(seen: Snapshot) -> Iterator[Found]:
    alive = [each for each in seen.gateways or () if not is_deleting(each)]
    named_by_config = any(dig(config, "spec", "routing", "gatewayRef") for _, config in _configs(seen))
    for core in _routing(seen):
        if alive and not named_by_config and not core.option("gateway-name") and not _choices(seen, core):
            yield Found(core.name, f"It may choose none of {len(alive)} ({key_of(alive[0])} first).")


@warning(
    "ARW0913",
    "A Gateway with routes serves nothing",
    why="It is not programmed, or has no address: no request reaches what it has accepted. Its deployments are "
    "Degraded (GatewayNotProgrammed).",
    do="Look at what its controller says: kubectl describe gateway NAME --namespace NAMESPACE.",
    needs=("components", "gateways", "namespaces", "deployments"),
)
def _serves_nothing(seen: Snapshot) -> Iterator[Found]:
    for gateway in _used(seen):
        if (found := unserved(gateway)) is not None and not is_deleting(gateway):
            yield Found(named("Gateway", gateway), f"It {found.words}.")


@warning(
    "ARW0904",
    "A runtime config names a Gateway that does not exist",
    why="Its deployments get no route (NoGateway) until there is a Gateway of that name.",
    do="Correct spec.routing.gatewayRef of the config, or create the Gateway.",
    needs=("runtime_configs", "cluster_runtime_configs", "gateways"),
)
def _gateway_gone(seen: Snapshot) -> Iterator[Found]:
    known = {key_of(gateway) for gateway in seen.gateways or ()}
    for name, config in _configs(seen):
        ref = dig(config, "spec", "routing", "gatewayRef")
        if not isinstance(ref, dict) or not ref.get("name"):
            continue
        namespace = str(ref.get("namespace") or key_of(config).namespace)
        # Without a namespace a ClusterRuntimeConfig means the one of each deployment.
        if namespace and ObjectKey(namespace, str(ref["name"])) not in known:
            yield Found(name, f"There is no Gateway {namespace}/{ref['name']}.")


@warning(
    "ARW0905",
    "A runtime config names a StorageClass that does not exist",
    why="Volumes of that class stay unbound.",
    do="Correct spec.storage.defaultStorageClassName of the config, or create the StorageClass.",
    needs=("runtime_configs", "cluster_runtime_configs", "storage_classes"),
)
def _class_gone(seen: Snapshot) -> Iterator[Found]:
    known = {key_of(found).name for found in seen.storage_classes or ()}
    for name, config in _configs(seen):
        asked = dig(config, "spec", "storage", "defaultStorageClassName") or dig(
            config, "spec", "defaultStorageClassName"
        )
        if asked and asked not in known:
            yield Found(name, f"There is no StorageClass {asked}.")


@warning(
    "ARW0906",
    "A runtime config has parts that cannot be used",
    why="What cannot be used is left out. Where the pod settings are too large, deployments that serve keep what they "
    "have and new ones wait.",
    do="Correct the field; the condition ConfigValid of the config names it too.",
    needs=("runtime_configs", "cluster_runtime_configs"),
)
def _invalid(seen: Snapshot) -> Iterator[Found]:
    for name, config in _configs(seen):
        for problem in problems_of(config):
            yield Found(name, f"{problem.field}: {problem.message}.")


_USERS = ("deployments", "artifacts", "templates", "sources")
"""The parts with objects that follow runtime configs."""


@warning(
    "ARW0907",
    "No deployment uses a runtime config",
    why=f"Only configs named {DEFAULT} apply to deployments that name none. No ModelArtifact, template or ModelSource "
    "uses it either.",
    do=f"Set spec.runtimeConfigName of deployments to its name, name it {DEFAULT}, or delete it.",
    needs=("runtime_configs", "cluster_runtime_configs", *_USERS),
)
def _unused(seen: Snapshot) -> Iterator[Found]:
    if any(part in seen.unseen for part in _USERS):
        return  # more objects than were read
    configs = configs_by_name(seen)
    used: set[ObjectKey] = set()
    for user in (*(seen.deployments or ()), *(seen.artifacts or ())):
        if (config := resolved(user, configs).config) is not None:
            used.add(ObjectKey(config.namespace, config.name))
            if config.scope is Scope.MERGED:
                used.add(ObjectKey("", config.name))
    for user in (*(seen.templates or ()), *(seen.sources or ())):
        # Those without a namespace follow the config in the operator's.
        name = config_name(user)
        used |= {ObjectKey("", name), ObjectKey(key_of(user).namespace or seen.namespace, name)}
    for name, found in _configs(seen):
        key = key_of(found)
        if key.name != DEFAULT and key not in used:
            yield Found(name, f"None of {len(seen.deployments or ())} deployments does.")


@warning(
    "ARW0908",
    "Deployments ask for a route and the gateway part is off",
    why="No route is made: their condition GatewayReady is False (GatewayNotConfigured), and they are Degraded.",
    do="Set the value gateway.mode of the chart airunway to auto (--gateway=auto), or spec.gateway.enabled to false.",
    needs=("components", "deployments", "runtime_configs", "cluster_runtime_configs"),
)
def _off(seen: Snapshot) -> Iterator[Found]:
    off = [core for core in seen.cores if core.option("gateway") == "off"]
    if not off:
        return
    configs = configs_by_name(seen)
    yield from asking(
        off,
        [
            deployment
            for deployment in seen.deployments or ()
            if routing_request(deployment, resolved(deployment, configs).config) is RoutingRequest.REQUIRED
        ],
    )


@error(
    "ARW0909",
    "The release of the endpoint picker is not known",
    why="Flags and configuration of a picker depend on its release: the gateway part is not ready and makes no routes. "
    "Models are served.",
    do="Set the value endpointPicker.version of the chart airunway (--epp-version) to the release of the image, or use "
    "an image of a known release.",
    needs=("components",),
)
def _unknown_release(seen: Snapshot) -> Iterator[Found]:
    for core in _routing(seen):
        image = core.option("epp-image") or DEFAULT_PICKER_IMAGE
        found = picker_for(image, version=core.option("epp-version"))
        if isinstance(found, str):
            yield Found(core.name, f"{found[:1].upper()}{found[1:]}.")


@error(
    "ARW0910",
    "HTTPRoute v1 is not served",
    why="The Gateway API is installed without the kind that routes are made of: no route is made or changed.",
    do="Install the standard channel of the Gateway API, release 1.0 or newer; if HTTPRoute has other versions alone, "
    "set served of v1 to true in its CRD.",
    needs=("components", "served"),
)
def _no_routes(seen: Snapshot) -> Iterator[Found]:
    group = (seen.served or {}).get(names.GATEWAY_GROUP, {})
    if any(_routing(seen)) and any(group.values()) and "HTTPRoute" not in group.get("v1", {}):
        others = sorted(version for version, kinds in group.items() if "HTTPRoute" in kinds)
        what = f"It is served as {', '.join(others)} only." if others else "The API server does not know the kind."
        yield Found(f"CustomResourceDefinition/httproutes.{names.GATEWAY_GROUP}", what)


@warning(
    "ARW0911",
    "A Gateway admits no namespace that has deployments",
    why="Deployments that ask for a route are not reached (RouteNotAccepted); those that do not ask get none.",
    do="Set allowedRoutes.namespaces of a listener for HTTP to from: All, or to a selector of these namespaces.",
    needs=("components", "gateways", "deployments", "runtime_configs", "cluster_runtime_configs", "namespaces"),
)
def _shut(seen: Snapshot) -> Iterator[Found]:
    configs = configs_by_name(seen)
    for core in _routing(seen):
        asking_: dict[ObjectKey, set[str]] = defaultdict(set)
        gateways: dict[ObjectKey, Resource] = {}
        for deployment in seen.deployments or ():
            config = resolved(deployment, configs).config
            if is_deleting(deployment) or routing_request(deployment, config) is RoutingRequest.OFF:
                continue
            chosen = choose(
                seen.gateways or (),
                deployment=deployment,
                config=config,
                detection=_detection(seen, core),
                live=_live(deployment),
            ).gateway
            if chosen is not None and (not core.watched or key_of(deployment).namespace in core.watched):
                gateways[key_of(chosen)] = chosen
                asking_[key_of(chosen)].add(key_of(deployment).namespace)
        for key, gateway in sorted(gateways.items()):
            if not any(_admits(gateway, namespace, seen) for namespace in asking_[key]):
                listed = ", ".join(sorted(asking_[key])[:5])
                yield Found(named("Gateway", gateway), f"No listener for HTTP admits routes of {listed}.")


def _admits(gateway: Resource, namespace: str, seen: Snapshot) -> bool:
    """Whether a listener for HTTP admits routes of a namespace; yes where the namespace's labels are not known."""
    selectors = {
        text_at(entry, "name"): mapping_at(entry, "allowedRoutes", "namespaces", "selector")
        for entry in entries_at(gateway, "spec", "listeners")
    }
    for listener in listeners(gateway):
        if not admits(listener, gateway=key_of(gateway), namespace=namespace):
            continue
        if listener.admitted != "Selector" or (live := (seen.namespaces or {}).get(namespace)) is None:
            return True
        with suppress(PolicyError):
            if read_selector(selectors.get(listener.name) or {}, "selector").matches(labels_of(live)):
                return True
    return False
