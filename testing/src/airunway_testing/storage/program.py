"""``python -m airunway_testing.storage.program``: storage and a hub for a cluster of this machine.

Makes a default StorageClass, serves its claims, runs the pods of download Jobs and plays a hub with small models, until
SIGTERM. Downloads go to that hub unless their pods name another one. Not for a cluster with real nodes: pods would run
there and here.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from airunway.kube import STORAGE_CLASS, Client, load_config, user_agent_of
from airunway_testing.modelhub.hub import Hub, Repository, model_hub
from airunway_testing.modelhub.serving import Content, Pattern, Slow, content_of
from airunway_testing.storage.pod_runner import running_pod_runner
from airunway_testing.storage.provisioner import running_provisioner, storage_class
from airunway_testing.storage.volumes import Volumes

CLASS_NAME = "airunway-sandbox"
"""The StorageClass: the default one; every access mode, volumes that can grow, a binding that waits for a pod."""

PODS = "pods"
"""Folder with what belongs to pods."""

_SIZE = 96 * 2**20
_SPEED = 8 * 2**20
"""Bytes of the weights of a model, and bytes per second: a download takes some seconds, so that it can be watched."""


def repositories(models: Iterable[str]) -> list[Repository]:
    """Repositories for these ids; what an id has beyond owner and name is a file of its repository."""
    files: dict[str, dict[str, str | bytes | Content]] = {}
    for model in sorted(set(models)):
        owner, _, rest = model.partition("/")
        name, _, path = rest.partition("/")
        found = files.setdefault(f"{owner}/{name}", {"config.json": content_of("{}\n")})
        found[path if path.endswith(".gguf") else "model.safetensors"] = Pattern(_SIZE, seed=len(files))
    return [Repository(name, contents) for name, contents in files.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until SIGTERM or Ctrl-C; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m airunway_testing.storage.program", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the cluster, whose nodes KWOK plays")
    parser.add_argument("--folder", type=Path, required=True, help="takes volumes, logs and temporary files")
    parser.add_argument("--ready-file", type=Path, required=True, help="gets the hub's URL once all is ready")
    parser.add_argument("--model", action="append", default=[], help="a model id that the hub has (several times)")
    given = parser.parse_args(arguments)
    asyncio.run(_run(given.kubeconfig, given.folder, given.ready_file, given.model))
    return 0


async def _run(kubeconfig: Path, folder: Path, ready: Path, models: Sequence[str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running_storage(kubeconfig, folder, models) as running:
        written = ready.with_suffix(".part")
        written.write_text(running.hub.endpoint)
        written.rename(ready)  # a reader never finds an empty file
        await stop.wait()


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Storage and a hub that run."""

    hub: Hub
    """The hub, to which downloads go."""
    volumes: Volumes
    """The volumes of its claims."""


@asynccontextmanager
async def running_storage(kubeconfig: Path, folder: Path, models: Iterable[str]) -> AsyncIterator[Storage]:
    """A default StorageClass, its provisioner, the pods of downloads and a hub with `models` while the context lasts.

    The pods' logs are in the folder `PODS` below `folder`.
    """
    async with (
        model_hub(repositories(models)) as hub,
        running_provisioner(kubeconfig, folder / "volumes") as provisioner,
        running_pod_runner(kubeconfig, provisioner.volumes, folder / PODS, environment={"HF_ENDPOINT": hub.endpoint}),
    ):
        hub.inject(Slow(bytes_per_second=_SPEED), times=None)
        made = storage_class(CLASS_NAME, waits=True, expandable=True, default=True)
        async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("sandbox")) as client:
            await client.apply(STORAGE_CLASS, made, manager="airunway-sandbox", force=True)
        yield Storage(hub=hub, volumes=provisioner.volumes)


if __name__ == "__main__":
    sys.exit(main())
