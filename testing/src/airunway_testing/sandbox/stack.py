"""Everything on one machine: a control plane, CRDs, the core, the providers, and simulated upstream operators.

The parts are processes of their own, as in a cluster, but for core and providers where there are few cores. They end
with the process that started them, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path

import yaml

from airunway.api.crds import custom_resource_definitions
from airunway.api.names import GATEWAY_NAMESPACE
from airunway.kube import (
    CLUSTER_ROLE,
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    Client,
    load_config,
    user_agent_of,
    wait_until_established,
)
from airunway.process.effective_settings import operator_namespace
from airunway.rbac.rights import picker_role
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway_testing.controlplane import Cluster, Level, learn_kinds, running
from airunway_testing.controlplane.nodes import DEFAULT_NODES, SimulatedNode, gpu_node
from airunway_testing.controlplane.processes import Processes, ending_of, log_tail
from airunway_testing.controlplane.readiness import REPORT_EVERY, still_waiting
from airunway_testing.gatewayapi import simulator as gateway_simulator
from airunway_testing.gatewayapi.kinds import GATEWAY, GATEWAY_CLASS, gateway_class
from airunway_testing.gatewayapi.kinds import definitions as gateway_definitions
from airunway_testing.gatewayapi.kinds import gateway as gateway_object
from airunway_testing.sandbox.choice import Choice, choose
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.samples import (
    CACHED,
    MODEL,
    Sample,
    at_gateway,
    models_of_hub,
    without_gateway,
    write_registry_samples,
)
from airunway_testing.simulators import Simulator
from airunway_testing.storage.program import CLASS_NAME as STORAGE_CLASS_NAME

Say = Callable[[str], None]
"""Called with a sentence about what happens now."""

PATIENCE = 600.0
"""Seconds in which the control plane, and then the parts, must be ready; while their processes live it is waited."""

_GATEWAY = ObjectKey("default", "inference")
"""The Gateway of a sandbox; it admits routes of every namespace."""

FEW_CORES = 2
"""With so many cores, or fewer, core and providers are one process: each Python process takes seconds to start."""


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A running sandbox: its kubeconfig, and where each part's log is."""

    kubeconfig: Path
    logs: Path
    providers: tuple[str, ...]
    simulators: tuple[str, ...]
    samples: tuple[Sample, ...]
    parts: Processes
    answers: bool = False
    """Pods of deployments answer."""
    manifests: Path | None = None
    """The folder with manifests for its registry, where it has one."""

    def failed(self) -> str | None:
        """What to tell about a part that has ended by itself, or None."""
        for name, code in self.parts.exited().items():
            return f"{name} {ending_of(code)}\n{log_tail(self.parts.log(name))}"
        return None


@contextmanager
def sandbox(
    *,
    level: Level,
    say: Say,
    providers: Sequence[str] = (),
    kubeconfig: Path | None = None,
    context: str | None = None,
    upstream_crds: Path | None = None,
    keep: bool = False,
    patience: float = PATIENCE,
    together: bool | None = None,
    gateway: bool = False,
    storage: bool = False,
    catalogue: bool = False,
) -> Iterator[Sandbox]:
    """A sandbox of these `providers` (`choose`), while the context lasts. Raises SandboxError, ControlPlaneError.

    With `together` core and providers are one process (None: where there are few cores), else one each. With `gateway`
    it also has the Gateway API, a Gateway and a simulated gateway controller, which start when all else is ready. With
    `storage` (level "cluster", a control plane of its own) it has a default StorageClass, runs download Jobs, and has a
    hub with the models of the samples. With `catalogue` (and storage) it has a registry, and manifests for it. In a
    control plane of its own with pods, those of deployments answer.
    """
    if catalogue and not storage:
        raise SandboxError("the catalogue needs storage: it asks images in pods that the storage part runs")
    if storage and (level == "api" or kubeconfig is not None):
        raise SandboxError("storage needs --level cluster and a control plane that the sandbox starts")
    together = (os.cpu_count() or 1) <= FEW_CORES if together is None else together
    chosen = choose(providers)
    with ExitStack() as stack:
        say("Starting a Kubernetes control plane." if kubeconfig is None else f"Using the cluster of {kubeconfig}.")
        nodes = _nodes(len(chosen))
        cluster = stack.enter_context(
            running(
                level,
                kubeconfig=kubeconfig,
                context=context,
                nodes=nodes,
                egress=level == "cluster",
                timeout=patience,
                report=say,
            )
        )
        folder = Path(tempfile.mkdtemp(prefix="airunway-sandbox-"))
        if not keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        simulators = _simulators(chosen, say)
        say("Installing the CRDs: ours, and those of the simulated upstreams.")
        definitions = [*custom_resource_definitions(), *_upstream_definitions(simulators, upstream_crds)]
        _install(cluster, definitions, patience=patience)
        parts = Processes(folder, keep=keep)
        stack.callback(parts.close, grace=5.0)
        result = Sandbox(
            kubeconfig=cluster.kubeconfig,
            logs=folder / "logs",
            providers=tuple(choice.provider for choice in chosen),
            simulators=tuple(simulator.name for simulator in simulators),
            samples=(
                *(sample for choice in chosen for sample in choice.samples),
                *(_cached(chosen, folder / "samples", gateway=gateway) if storage else ()),
            ),
            parts=parts,
        )
        names = _start(result, cluster, level, together=together)
        say(
            f"Started the core, {_listed('provider', result.providers)} and {_listed('simulator', result.simulators)}; "
            "waiting until all are ready."
        )
        _wait_until_ready(result, names, say=say, patience=patience)
        if gateway:
            _start_gateway(result, cluster, level, installed=definitions, patience=patience)
            say(
                f"Added the Gateway {_GATEWAY.namespace}/{_GATEWAY.name} with a simulated gateway controller, which "
                "answers about routes and passes on no requests: nothing listens at its address. A RuntimeConfig "
                "'default' with spec.routing.enabled: true routes all deployments of its namespace."
            )
        if storage or cluster.egress_socket is not None:
            manifests = _start_servers(
                result, cluster, storage=storage, catalogue=catalogue, say=say, patience=patience
            )
            result = replace(result, answers=cluster.egress_socket is not None, manifests=manifests)
        yield result


def _cached(chosen: Sequence[Choice], folder: Path, *, gateway: bool) -> Sequence[Sample]:
    """The samples with a cache, where a provider is chosen that a deployment gets without naming it."""
    if not any(choice.caches for choice in chosen):
        return ()
    return [at_gateway(sample) if gateway else without_gateway(sample, folder) for sample in CACHED]


def _nodes(providers: int) -> tuple[SimulatedNode, ...]:
    """A GPU server for each provider's samples, and two at least."""
    further = (gpu_node(f"gpu-{number}") for number in range(2, providers))
    return (*DEFAULT_NODES, *further)


def _simulators(chosen: Sequence[Choice], say: Say) -> list[Simulator]:
    """The simulators, each once."""
    found: list[Simulator] = []
    for choice in chosen:
        if choice.missing:
            whose = f"provider {choice.provider} ({choice.missing})"
            say(f"There is no simulated upstream for {whose}: install the real one.")
        found += [simulator for simulator in choice.simulators if simulator not in found]
    return found


def _upstream_definitions(simulators: Sequence[Simulator], directory: Path | None) -> list[Resource]:
    """The minimal CRDs that come with the simulators, or the upstream's own ones out of a directory.

    The latter lose their conversion webhook, because no operator answers for it: the API server could read no object in
    another version than the stored one. Raises SandboxError if a needed kind is missing, or is there more than once.
    """
    if directory is None:
        return [crd for simulator in simulators for crd in simulator.custom_resource_definitions()]
    documents: dict[tuple[object, object], Resource] = {}
    files: dict[tuple[object, object], Path] = {}
    for path in sorted(directory.rglob("*.yaml")):
        for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
                continue
            kind = dig(document, "spec", "group"), dig(document, "spec", "names", "kind")
            if kind in documents:
                raise SandboxError(
                    f"{directory} has the CustomResourceDefinition of {kind[1]} ({kind[0]}) more than once, in "
                    f"{files[kind]} and {path}: name a directory with one release of each upstream"
                )
            spec = {key: value for key, value in document["spec"].items() if key != "conversion"}
            documents[kind], files[kind] = {**document, "spec": spec}, path
    needed = {kind for simulator in simulators for kind in simulator.kinds}
    missing = sorted(f"{kind} ({group})" for group, kind in needed - documents.keys())
    if missing:
        raise SandboxError(f"{directory} has no CustomResourceDefinition of {', '.join(missing)}")
    return list(documents.values())


def _install(cluster: Cluster, definitions: Sequence[Resource], *, patience: float) -> None:
    asyncio.run(_apply(cluster.kubeconfig, definitions, patience=patience))


async def _apply(kubeconfig: Path, definitions: Sequence[Resource], *, patience: float) -> None:
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("sandbox")) as client:
        for definition in definitions:
            await client.apply(CUSTOM_RESOURCE_DEFINITION, definition, manager="airunway-sandbox", force=True)
        await wait_until_established(client, (key_of(definition).name for definition in definitions), timeout=patience)
        await asyncio.to_thread(learn_kinds, client.config.server)


def _start(box: Sandbox, cluster: Cluster, level: Level, *, together: bool) -> list[str]:
    """Start the parts as processes; returns the names of those that say in a file of their own that they are ready."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "airunway"]
    common = ["--kubeconfig", str(cluster.kubeconfig)]
    if together:
        programs = [("airunway", ["run", *box.providers, *common])]
    else:
        programs = [("controller", ["controller", *common])]
        programs += [(f"provider-{name}", ["provider", "run", name, *common]) for name in box.providers]
    for name, arguments in programs:
        ready = ["--ready-file", str(_ready_file(box, name))]
        box.parts.start(name, [*command, *arguments, *ready], environment=environment)
    for name in box.simulators:
        box.parts.start(
            f"simulator-{name}", [*command, "simulate", name, *common, "--level", level], environment=environment
        )
    return [name for name, _ in programs]


def _start_gateway(
    box: Sandbox, cluster: Cluster, level: Level, *, installed: Sequence[Resource], patience: float
) -> None:
    """Install the Gateway API where the directory of the upstreams' CRDs had none, one Gateway and the ClusterRole of
    pickers (the chart brings it in a cluster), and start the controller.
    """
    there = {key_of(definition) for definition in installed}
    _install(cluster, [each for each in gateway_definitions() if key_of(each) not in there], patience=patience)
    asyncio.run(_make_gateway(cluster.kubeconfig))
    name = gateway_simulator.name
    command = [sys.executable, "-m", "airunway", "simulate", name, "--kubeconfig", str(cluster.kubeconfig)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    box.parts.start(f"simulator-{name}", [*command, "--level", level], environment=environment)


async def _make_gateway(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("sandbox")) as client:
        made = gateway_object(_GATEWAY.name, _GATEWAY.namespace)
        await client.apply(GATEWAY_CLASS, gateway_class(), manager="airunway-sandbox", force=True)
        await client.apply(GATEWAY, made, manager="airunway-sandbox", force=True)
        # A Gateway in another namespace than the operator's is chosen only if an administrator allows that namespace.
        allowed = {"metadata": {"labels": {GATEWAY_NAMESPACE: "allowed"}}}
        await client.merge_patch(NAMESPACE, ObjectKey("", _GATEWAY.namespace), allowed)
        await client.apply(CLUSTER_ROLE, picker_role(), manager="airunway-sandbox", force=True)


def _start_servers(
    box: Sandbox, cluster: Cluster, *, storage: bool, catalogue: bool, say: Say, patience: float
) -> Path | None:
    """Start what answers, in one process, and the catalogue; say where what is. Gives the folder of the manifests."""
    name, environment = "servers", {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "airunway_testing.sandbox.program", "--kubeconfig", str(cluster.kubeconfig)]
    folder, ready = box.logs.parent / "servers", _ready_file(box, name)
    command += ["--folder", str(folder), "--ready-file", str(ready)]
    if cluster.egress_socket is not None:
        command += ["--egress-socket", str(cluster.egress_socket)]
    if storage:
        command += ["--storage", *(f"--model={model}" for model in models_of_hub(box.samples))]
    if catalogue:
        command.append("--registry")
    box.parts.start(name, command, environment=environment)
    _wait_until_ready(box, [name], say=say, patience=patience)
    addresses = json.loads(ready.read_text())
    if cluster.egress_socket is not None:
        say("Added a played model server behind each pod of a deployment.")
    if storage:
        say(
            f"Added the default StorageClass {STORAGE_CLASS_NAME} and a hub at {addresses['hub']}; deployments with "
            "spec.model.cache.mode: Shared really fetch their weights from it."
        )
    if not catalogue:
        return None
    _install_namespace(cluster.kubeconfig)
    program = [sys.executable, "-m", "airunway", "catalogue", "--kubeconfig", str(cluster.kubeconfig)]
    # It is not waited for: what was applied before it is ready is read then.
    box.parts.start("catalogue", program, environment=environment)
    manifests = box.logs.parent / "samples"
    write_registry_samples(manifests, addresses["registry"])
    say(f"Added the catalogue, and a registry at {addresses['registry']} with an image of {MODEL}.")
    return manifests


def has_catalogue() -> bool:
    """Whether the distribution of the catalogue is installed."""
    return bool(entry_points(group="airunway.commands", name="catalogue"))


def _install_namespace(kubeconfig: Path) -> None:
    """Make the operator's namespace: Jobs that ask for cluster templates run there."""
    asyncio.run(_make_namespace(kubeconfig))


async def _make_namespace(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("sandbox")) as client:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": operator_namespace(os.environ)}}
        await client.apply(NAMESPACE, made, manager="airunway-sandbox", force=True)


def _ready_file(box: Sandbox, name: str) -> Path:
    return box.logs.parent / f"{name}.ready"


def _wait_until_ready(box: Sandbox, names: Sequence[str], *, say: Say, patience: float) -> None:
    """Wait as long as all processes live; what takes long is said. Raises SandboxError."""
    begun = said = time.monotonic()
    while waiting := [name for name in names if not _ready_file(box, name).exists()]:
        if problem := box.failed():
            raise SandboxError(problem)
        now = time.monotonic()
        if now - begun > patience:
            raise SandboxError(
                f"{', '.join(waiting)}: not ready after {patience:.0f} s (--patience SECONDS waits longer)\n"
                f"{log_tail(box.parts.log(waiting[0]))}"
            )
        if now - said >= REPORT_EVERY:
            said = now
            say(still_waiting(", ".join(waiting), now - begun))
        time.sleep(0.05)


def _listed(word: str, names: Sequence[str]) -> str:
    return f"{len(names)} {word}{'' if len(names) == 1 else 's'} ({', '.join(names) or 'none'})"
