"""``python -m airunway_testing.sandbox.program``: what answers in a sandbox, in one process, until SIGTERM.

Model servers behind the simulated pods, on request storage with a hub, and a registry with a model's image.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from airunway_testing.modelservers.pods import pods_answer
from airunway_testing.registry import model_image
from airunway_testing.registry.server import Image, LocalRegistry, container_registry
from airunway_testing.sandbox.samples import MODEL
from airunway_testing.storage.pod_runner import ENTRYPOINT, running_pod_runner
from airunway_testing.storage.program import PODS, Storage, running_storage

IMAGE = "models/tiny"
"""Repository of the registry's image."""

_RECOMMENDED = [
    {"gpuModel": "H100", "gpuCount": 1, "metric": "latency", "precision": "fp8", "optimized": True},
    {"gpuModel": "H100", "gpuCount": 2, "metric": "throughput", "precision": "bf16"},
    {"gpuModel": "MI300X", "gpuCount": 1, "metric": "latency", "precision": "fp8"},
]
"""Hardware that the image is recommended for; a sandbox has no node of the last one."""

_SHELL = "/bin/sh"
"""What runs the image's program in a discovery Job."""

_ASKED = "discovery"
"""Folder of the pods that ask images."""

_DISCOVERY = "airunway.ai/template"
"""Label of the pods of discovery Jobs."""


def images() -> list[Image]:
    """The images of the registry."""
    labels = {
        "ai.airunway.model.canonicalName": MODEL,
        "ai.airunway.model.recommendedDeployments": json.dumps(_RECOMMENDED),
    }
    return [Image(IMAGE, "1.0", labels=labels, entrypoint=[model_image.MODEL_SERVER])]


@asynccontextmanager
async def running_registry(kubeconfig: Path, folder: Path, storage: Storage) -> AsyncIterator[LocalRegistry]:
    """A registry with `images`, and the pods that ask them for their profile, while the context lasts."""
    server = model_image.install(folder / "bin")
    programs = {ENTRYPOINT: (str(server),), _SHELL: (_SHELL,)}
    environment = {"PATH": f"{server.parent}:{os.defpath}"}
    async with (
        container_registry(images()) as registry,
        running_pod_runner(
            kubeconfig, storage.volumes, folder, programs=programs, environment=environment, label=_DISCOVERY
        ),
    ):
        yield registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until SIGTERM or Ctrl-C; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m airunway_testing.sandbox.program", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the sandbox's cluster")
    parser.add_argument("--folder", type=Path, required=True, help="takes volumes, logs and temporary files")
    parser.add_argument("--ready-file", type=Path, required=True, help="gets the addresses, as JSON, once all is ready")
    parser.add_argument("--egress-socket", type=Path, help="where the proxy of the API server has to listen")
    parser.add_argument("--storage", action="store_true", help="add storage and a hub")
    parser.add_argument("--registry", action="store_true", help="add a registry; it needs storage")
    parser.add_argument("--model", action="append", default=[], help="a model id that the hub has (several times)")
    given = parser.parse_args(arguments)
    asyncio.run(_run(given))
    return 0


async def _run(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    folder: Path = given.folder
    addresses: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        if given.egress_socket is not None:
            processes = (folder / PODS, folder / _ASKED)
            servers = pods_answer(given.kubeconfig, given.egress_socket, folder / "servers", processes=processes)
            await stack.enter_async_context(servers)
        if given.storage:
            storage = await stack.enter_async_context(running_storage(given.kubeconfig, folder, given.model))
            addresses["hub"] = storage.hub.endpoint
            if given.registry:
                playing = running_registry(given.kubeconfig, folder / _ASKED, storage)
                registry = await stack.enter_async_context(playing)
                addresses["registry"] = registry.host
        written = given.ready_file.with_suffix(".part")
        written.write_text(json.dumps(addresses))
        written.rename(given.ready_file)  # a reader never finds half a file
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
