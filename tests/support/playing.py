"""Starts the containers of a translation with a played engine, against weights in a temporary folder.

    with cached_weights() as ground:
        for start in starts(objects, claim=ground.cache.claim):
            report = play(start, ground)

`tests.support.played_engine` is the program; it refuses what a real engine could not do with a model cache.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import played_engine

from airunway.plugins.contract import ModelCache
from airunway.resource import Resource, dig
from airunway.sdk import pod_specs

FILE = "file.gguf"
"""The GGUF file beside ``config.json``, as in the model id ``<owner>/<name>/file.gguf``."""

_VARIABLE = re.compile(r"\$\$|\$\(([^)]+)\)")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Weights that nobody may write beside, and a home that everybody may write to."""

    weights: Path
    home: Path

    @property
    def cache(self) -> ModelCache:
        """The cache with this folder as mount path."""
        return ModelCache(claim="weights", sub_path="model", mount_path=str(self.weights))

    def tree(self) -> list[str]:
        """The files below the mount."""
        return sorted(str(path.relative_to(self.weights)) for path in self.weights.rglob("*"))


@contextmanager
def cached_weights() -> Iterator[Ground]:
    """A folder with a repository's tree, read-only, outside of folders that are private to a user."""
    with tempfile.TemporaryDirectory(prefix="airunway-weights-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        ground = Ground(weights=folder / "model-cache", home=folder / "home")
        ground.home.mkdir()
        ground.home.chmod(0o777)
        ground.weights.mkdir()
        (ground.weights / "config.json").write_text("{}", encoding="utf-8")
        (ground.weights / FILE).touch()
        ground.weights.chmod(0o555)
        try:
            yield ground
        finally:
            ground.weights.chmod(0o755)


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a container starts an engine: its words after the kubelet has expanded them, and its variables."""

    container: str
    words: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a played engine did."""

    weights: tuple[str, ...]
    names: tuple[str, ...]
    """What ``/v1/models`` answers; an empty name is the engine's own choice."""
    host: str
    port: int
    """0: it does not listen."""
    wrote: tuple[str, ...]


def starts(objects: Sequence[Resource], *, claim: str) -> Iterator[Start]:
    """Each container that mounts `claim` and runs an engine; of Ray's the application, in a worker's environment."""
    for obj in objects:
        config = dig(obj, "spec", "serveConfigV2")
        for spec in (*pod_specs(obj), *_services(obj)):
            mounted = {
                volume["name"]
                for volume in spec.get("volumes", ())
                if dig(volume, "persistentVolumeClaim", "claimName") == claim
            }
            for container in spec["containers"]:
                if not mounted & {mount["name"] for mount in container.get("volumeMounts", ())}:
                    continue
                env = {entry["name"]: str(entry.get("value", "10.0.0.1")) for entry in container.get("env", ())}
                words = expanded([*container.get("command", ()), *container.get("args", ())], env)
                if "llama.cpp" in container["image"] and not container.get("command"):
                    words = ("llama-server", *words)  # the image's entry point
                if config and not words:
                    words = ("ray", config)
                if words and words[:1] != ("-m",):  # a Frontend beside a worker
                    yield Start(container=container["name"], words=words, env=env)


def _services(obj: Resource) -> Iterator[Resource]:
    """Dynamo's v1alpha1 has the parts of a container in several places."""
    services = dig(obj, "spec", "services")
    for service in (services or {}).values() if isinstance(services, dict) else ():
        pod = service["extraPodSpec"]
        container = {"name": "main", "env": service.get("envs", ()), **pod["mainContainer"]}
        yield {**pod, "containers": [container]}


def expanded(words: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The words as the kubelet hands them over: ``$(NAME)`` replaced where there is such a variable, ``$$`` by ``$``.

    >>> expanded(["$(A)-$$(A)-$(B)"], {"A": "1"})
    ('1-$(A)-$(B)',)
    """

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else env.get(found[1], found[0])

    return tuple(_VARIABLE.sub(value, word) for word in words)


def play(start: Start, ground: Ground) -> Report:
    """Starts the engine, asks it for its models and ends it. Raises RuntimeError with its words if it refuses."""
    process = _process(start, ground)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(process.stderr.read())
        said = json.loads(line)
        with urllib.request.urlopen(f"http://127.0.0.1:{said['answers']}/v1/models", timeout=10) as answer:
            names = tuple(model["id"] for model in json.load(answer)["data"])
    finally:
        process.kill()
        process.communicate()
    return Report(
        weights=tuple(said["models"].values()),
        names=names,
        host=said["host"],
        port=said["port"],
        wrote=tuple(said["wrote"]),
    )


def engine_refusal(start: Start, ground: Ground) -> str:
    """Why the engine does not start; empty if it does."""
    try:
        play(start, ground)
    except RuntimeError as refused:
        return str(refused)
    return ""


def _process(start: Start, ground: Ground) -> subprocess.Popen[str]:
    """The engine with the container's variables and nothing of ours."""
    env = {"HOME": str(ground.home), "PATH": os.environ.get("PATH", ""), **start.env}
    program = [sys.executable, "-I", str(Path(played_engine.__file__)), *start.words]
    return subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
