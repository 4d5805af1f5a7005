"""A played endpoint picker as a program: ``python -m tests.support.gatewayapi.picker_program --pool-name=llama …``.

It takes the flags and the configuration of llm-d-router 0.10 and refuses all others, follows its pool with the rights
of its account, and answers health checks, ``ext_proc`` and ``/metrics``, as recorded in
``tests/recordings/llmd-lws.md``, #22–#31.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from tests.support.gatewayapi.health import running_health
from tests.support.gatewayapi.picker import Holding, PlayedPicker, running_picker

from airunway.configs.canonical import parse_duration
from airunway.kube import POD, Client, Kind, NotFound, Reflector, is_served, load_config
from airunway.resource import ObjectKey, Resource, dig, is_deleting, is_true, labels_of
from airunway_testing.gatewayapi.kinds import INFERENCE_POOL

_EXT_PROC, _HEALTH, _METRICS = 9002, 9003, 9090
_FLAGS: dict[str, str] = {
    "pool-name": "",
    "pool-namespace": "default",
    "pool-group": "inference.networking.k8s.io",
    "config-file": "",
    "grpc-port": str(_EXT_PROC),
    "grpc-health-port": str(_HEALTH),
    "metrics-port": str(_METRICS),
    "tracing": "true",
    "metrics-endpoint-auth": "true",
    "enable-pprof": "true",
}
"""Flags and defaults."""
_OBJECTIVES = ("inferenceobjectives", "inferencemodelrewrites")
_API_VERSIONS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
_GATE = "flowControl"
_BY_COUNT, _BY_LOAD = "concurrency-detector", "utilization-detector"
"""The detectors that say when requests are held; the second is the default."""
_PLUGINS = frozenset(
    (
        *("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "max-score-picker"),
        *("decode-filter", "prefill-filter", "disagg-profile-handler", "disagg-headers-handler"),
        *("always-disagg-pd-decider", "prefix-based-pd-decider", "single-profile-handler"),
        *(_BY_COUNT, _BY_LOAD),
    )
)
_FIELDS = frozenset(("apiVersion", "kind", "featureGates", "plugins", "schedulingProfiles", "flowControl"))
_FLOW_FIELDS = frozenset(("defaultRequestTTL", "saturationDetector"))
_NEVER_SYNCED = 120.0
"""Seconds without a synced cache after which it exits."""
_DRAIN = 2.0
"""Seconds for which it answers after SIGTERM; a real one takes 30."""
_CERTIFICATE = 0.5
"""Seconds for which it answers health checks before it listens for a gateway; a real one takes some four."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 after SIGTERM, 1 for a bad configuration or a cluster without pools, 2 for an unknown flag."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag, default in _FLAGS.items():
        parser.add_argument(f"--{flag}", default=default)
    given = parser.parse_args(arguments)
    file = Path(given.config_file)
    config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
    if problem := _problem_in(config):
        _say(f"Failed to parse configuration: {problem}")
        return 1
    return asyncio.run(_serve(given, _holding(config)))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _problem_in(found: Any) -> str:
    if found is None:
        return ""  # missing or empty: the defaults
    if not isinstance(found, dict) or found.get("apiVersion") not in _API_VERSIONS:
        return f"no kind EndpointPickerConfig is registered for {dig(found, 'apiVersion')}"
    flow = found.get(_GATE) or {}
    if unknown := sorted((found.keys() - _FIELDS) | (flow.keys() - _FLOW_FIELDS)):
        return f"unknown field {unknown[0]}"
    if unknown := [gate for gate in found.get("featureGates") or () if gate != _GATE]:
        return f"feature gate {unknown[0]} is not registered"
    types = [plugin.get("type") for plugin in found.get("plugins") or ()]
    if missing := [each for each in types if each not in _PLUGINS]:
        return f"plugin type {missing[0]} is not registered"
    known = {plugin.get("name") or plugin.get("type") for plugin in found.get("plugins") or ()}
    if (detector := dig(flow, "saturationDetector", "pluginRef")) not in (None, *known):
        return f"there is no plugin {detector}"
    for profile in found.get("schedulingProfiles") or ():
        for entry in profile.get("plugins") or ():
            if entry.get("pluginRef") not in known:
                return f"there is no plugin {entry.get('pluginRef')}"
    return ""


def _holding(found: Any) -> Holding | None:
    if _GATE not in (dig(found, "featureGates") or ()):
        return None
    limit = parse_duration(dig(found, _GATE, "defaultRequestTTL", default="1m"))
    assert limit is not None
    detector = dig(found, _GATE, "saturationDetector", "pluginRef")
    types = {plugin.get("name") or plugin["type"]: plugin["type"] for plugin in found["plugins"]}
    return Holding(seconds=limit.total_seconds(), by_load=types.get(detector, _BY_LOAD) == _BY_LOAD)


async def _serve(given: argparse.Namespace, holding: Holding | None) -> int:
    draining, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, draining.set)
    pool = ObjectKey(given.pool_namespace, given.pool_name)
    async with Client(load_config(kubeconfig=Path(os.environ["KUBECONFIG"]))) as client, AsyncExitStack() as stack:
        if not await is_served(client, INFERENCE_POOL):
            _say(f"no matches for kind InferencePool in version {INFERENCE_POOL.api_version}")
            return 1
        pods = Reflector(client, POD, namespace=pool.namespace)
        pools = Reflector(client, INFERENCE_POOL, namespace=pool.namespace, field_selector=f"metadata.name={pool.name}")
        followed = [pods, pools, *await _objectives(client, pool.namespace)]
        tasks = [asyncio.create_task(each.run()) for each in followed]
        stack.callback(lambda: [task.cancel() for task in tasks])

        def serving() -> bool:
            synced = all(each.synced.is_set() and not each.missing for each in followed)
            return synced and pools.get(pool) is not None and not draining.is_set()

        pickers: list[PlayedPicker] = []

        async def metrics(_: web.Request) -> web.Response:
            held = sum(each.held for each in pickers)
            queue = f'llm_d_epp_flow_control_queue_size{{inference_pool="{pool.name}"}} {held}\n' if holding else ""
            ready = f'llm_d_epp_ready_endpoints{{name="{pool.name}"}} {len(_ready(pools.get(pool), pods))}\n'
            open_ = given.metrics_endpoint_auth == "false"
            return web.Response(text=ready + queue) if open_ else web.Response(status=401)

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "0.0.0.0", int(given.metrics_port)).start()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="played-picker-")))
        await stack.enter_async_context(running_health("0.0.0.0", int(given.grpc_health_port), serving))
        await asyncio.sleep(_CERTIFICATE)
        listening = running_picker(
            "0.0.0.0", int(given.grpc_port), lambda: _ready(pools.get(pool), pods), folder=folder, holding=holding
        )
        pickers.append(await stack.enter_async_context(listening))
        ended = asyncio.create_task(draining.wait())
        synced = asyncio.create_task(_all_synced(followed))
        await asyncio.wait({synced, ended}, timeout=_NEVER_SYNCED, return_when=asyncio.FIRST_COMPLETED)
        if not synced.done() and not ended.done():
            _say("failed to wait for caches to sync")
            return 1
        await ended
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _DRAIN)
        synced.cancel()
    return 0


async def _all_synced(followed: Sequence[Reflector]) -> bool:
    for each in followed:
        await each.synced.wait()
    return True


async def _objectives(client: Client, namespace: str) -> list[Reflector]:
    """Caches of the kinds of llm-d, or of the older group: of those that are served now."""
    for group, version in (("llm-d.ai", "v1alpha2"), ("inference.networking.x-k8s.io", "v1alpha2")):
        with suppress(NotFound):
            found = await client.get_path(f"/apis/{group}/{version}")
            served = {str(each.get("name")) for each in found.get("resources", ())}
            kinds = [Kind(group, version, plural, plural) for plural in _OBJECTIVES if plural in served]
            if kinds:
                return [Reflector(client, kind, namespace=namespace) for kind in kinds]
    return []


def _ready(pool: Resource | None, pods: Reflector) -> list[str]:
    """``ip:port`` of the ready pods that the pool selects."""
    wanted: dict[str, Any] = dig(pool, "spec", "selector", "matchLabels", default={}) if pool is not None else {}
    ports = [entry["number"] for entry in dig(pool, "spec", "targetPorts", default=[])] if pool is not None else []
    return [
        f"{dig(pod, 'status', 'podIP')}:{port}"
        for pod in pods.values()
        if wanted and wanted.items() <= labels_of(pod).items() and is_true(pod, "Ready") and not is_deleting(pod)
        for port in ports
    ]


if __name__ == "__main__":
    sys.exit(main())
