"""A kubelet for the pods of the model cache's Jobs: each runs as a process of this machine, on a real API server.

    async with running_pod_runner(kubeconfig, provisioner.volumes, folder) as runner:
        ...                                    # a Job's pod with the label airunway.ai/artifact runs
        played = await runner.started("llama-download-1a2b3c4d")
        await runner.kill(played.key)          # or evict(...), lose_node(played.node), runner.unpullable.add(image)

The Job controller and the scheduler are the real ones (level "cluster"); KWOK leaves pods with that label alone. A pod
has one container, and init containers before it; the program of each (`command`, else the image's entrypoint
``airunway-download``) must be one of `programs`.

Folders in place of mounts: in `command`, `args` and values of `env`, a word that is a mount path, begins with one, or
has one after ``=`` gets the folder of the volume in its place (``--into=/cache/a`` → ``--into=/tmp/.../pvc-1/a``).
`TMPDIR` is the volume at ``/tmp``. The termination message is the file that AIRUNWAY_TERMINATION_LOG names; with the
policy FallbackToLogsOnError that of a failure is else the end of the log.

Each pod has an address of its own (127.x.y.z, Linux). The port ``progress`` of the container is served there and passed
on to the port that the process got in AIRUNWAY_PROGRESS_PORT.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import logging
import os
import random
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from airunway.kube import (
    CONFIG_MAP,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Client,
    Conflict,
    Forbidden,
    Kind,
    NotFound,
    Reflector,
    load_config,
    strip_managed_fields,
    user_agent_of,
)
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    dig,
    format_time,
    is_deleting,
    labels_of,
    uid_of,
)
from airunway_testing.background import in_background
from airunway_testing.controlplane.stages import PLAYED_BY_RUNNER, UNPULLABLE
from airunway_testing.eventually import eventually
from airunway_testing.storage.volumes import Volumes

log = logging.getLogger(__name__)

ENTRYPOINT = "airunway-download"
"""Program of the image, where a container names none."""


def downloader_command() -> tuple[str, ...]:
    """The program of the downloader's image, as it starts there: an isolated interpreter and the package's folder.

    Raises ModuleNotFoundError where the downloader is not installed.
    """
    found = importlib.util.find_spec("airunway_downloader")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("airunway_downloader is not installed: pip install airunway-downloader")
    return (sys.executable, "-I", "-B", "-u", found.submodule_search_locations[0])


Progress: TypeAlias = Literal["forwarded", "refused", "silent"] | bytes
"""What asking for progress gets: the process's answer, an ended connection, no answer ever, or 200 with this body."""

_SECRET = Kind("", "v1", "Secret", "secrets")
_LOOK = 0.05
"""Seconds between two looks at what sends no event, e.g. whether an image can be pulled by now."""
_MESSAGE_LIMIT, _LOG_LIMIT = 4096, 2048
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.][-\w.]*)\)")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(kw_only=True)
class PlayedPod:
    """A pod, and the process that it is."""

    key: ObjectKey
    uid: str
    ip: str
    folder: Path
    """Its temporary volumes and its termination message."""
    log: Path
    """Output of the processes."""
    container: str = ""
    """Name of the container that runs, or ran last."""
    states: dict[str, Resource] = field(default_factory=dict)
    """Last state of each container that was started, by name."""
    output_from: int = 0
    """Where the output of the container begins in the log."""
    node: str = ""
    """Empty: not scheduled yet."""
    process: asyncio.subprocess.Process | None = None
    """None: not started yet."""
    started_at: str = ""
    finished: bool = False
    """The last status is written."""
    evicted: bool = False
    reason: str = ""
    """Reason of a container that was killed, where it is not ``Error``."""
    progress_port: int = field(default_factory=_free_port)
    """Port on which the process itself answers for its progress."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def running(self) -> bool:
        """Whether the process runs, whatever the API server knows of it."""
        return self.process is not None and self.process.returncode is None

    @property
    def termination_message(self) -> Path:
        """The file that the process writes its message to."""
        return self.folder / f"termination-log-{self.container}"


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    """Why a container cannot be started."""

    reason: str
    message: str = ""


class _Leaving(Exception):
    """The pod is being deleted, or is gone."""


class PodRunner:
    """Runs pods until cancelled; processes end with it.

    `environment` is what every process has unless its pod says otherwise, as the network of a cluster would: the
    address of a hub. `pods` are all pods that it has played, in the order in which they came; `unpullable` images
    cannot be pulled (nor can ``no-such-image``); `progress` is what asking for progress gets; `failures` are its own
    errors.
    """

    def __init__(
        self,
        client: Client,
        volumes: Volumes,
        folder: Path,
        *,
        programs: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
        label: str = PLAYED_BY_RUNNER,
    ) -> None:
        self._client, self._volumes, self._folder = client, volumes, folder
        self._programs = {ENTRYPOINT: downloader_command()} if programs is None else programs
        self._usual = dict(environment or {})
        self._pods = Reflector(client, POD, label_selector=label, project=strip_managed_fields())
        self._lost: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.pods: dict[str, PlayedPod] = {}
        self.unpullable: set[str] = set()
        self.failures: list[Exception] = []
        self.progress: Progress = "forwarded"

    async def run(self) -> None:
        """Work until cancelled."""
        reading = asyncio.create_task(self._pods.run(), name="pod-runner")
        try:
            await self._pods.synced.wait()
            self._pods.add_handler(self._on_pod)
            await reading
        finally:
            reading.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(reading, *self._tasks.values(), return_exceptions=True)

    # ---------------------------------------------------------------------------------------------- what a test does

    async def started(self, job: str) -> PlayedPod:
        """The newest pod of a Job, once its process runs or has run."""

        def look() -> PlayedPod | None:
            named = [each for each in self.pods.values() if each.key.name.startswith(f"{job}-")]
            return named[-1] if named and named[-1].process is not None else None

        found = await eventually(look)
        assert isinstance(found, PlayedPod)
        return found

    async def kill(self, key: ObjectKey, *, number: signal.Signals = signal.SIGKILL, reason: str = "") -> None:
        """End the process of a pod by a signal; with the `reason` ``OOMKilled`` as the kernel does it."""
        played = self._named(key)
        played.reason = reason
        _signal(played, number)

    async def evict(self, key: ObjectKey) -> None:
        """Evict a pod as a kubelet under pressure does: the pod is Failed, with the condition DisruptionTarget."""
        played = self._named(key)
        played.evicted = True
        _signal(played, signal.SIGKILL)

    def lose_node(self, node: str) -> None:
        """Cut a node off: its processes go on, and nothing is written about them or done to them.

        The Node object stays Ready, as KWOK plays it: a test deletes the pods, or taints the node.
        """
        self._lost.add(node)

    def find_node(self, node: str) -> None:
        """Connect a node again: its pods get the statuses that they missed, and those deleted meanwhile end."""
        self._lost.discard(node)
        for played in self.pods.values():
            played.changed.set()

    def _named(self, key: ObjectKey) -> PlayedPod:
        for played in reversed(self.pods.values()):
            if played.key == key and played.running:
                return played
        raise LookupError(f"no process runs for pod {key}")

    # -------------------------------------------------------------------------------------------------- life of a pod

    def _on_pod(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        for pod in (old, new):
            if pod is not None and uid_of(pod) in self.pods:
                self.pods[uid_of(pod)].changed.set()
        if new is None or uid_of(new) in self.pods or dig(new, "status", "phase") in ("Succeeded", "Failed"):
            return
        uid = uid_of(new)
        folder = self._folder / "pods" / uid
        folder.mkdir(parents=True, exist_ok=True)
        logs = self._folder / f"{key.namespace}-{key.name}.log"
        ip = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(2, 254)}"
        self.pods[uid] = PlayedPod(key=key, uid=uid, ip=ip, folder=folder, log=logs)
        self._tasks[uid] = asyncio.create_task(self._live(self.pods[uid]), name=f"pod-{key.name}")

    async def _live(self, played: PlayedPod) -> None:
        try:
            try:
                await self._run(played)
                while True:
                    await self._pause(played, patience=None)
            except _Leaving:
                await self._leave(played)
        except Exception as error:
            log.exception("pod %s: the pod runner failed", played.key)
            self.failures.append(error)
        finally:
            _signal(played, signal.SIGKILL)
            if played.process is not None:
                await played.process.wait()

    async def _run(self, played: PlayedPod) -> None:
        """Run the containers one after the other; the others of a pod in which one fails are not started."""
        pod = await self._current(played)
        init = [each["name"] for each in dig(pod, "spec", "initContainers", default=[])]
        containers = [*dig(pod, "spec", "initContainers", default=[]), *dig(pod, "spec", "containers")]
        for container in containers:
            played.container = container["name"]
            await self._start(played, container)
            await self._follow(played, container, phase="Pending" if played.container in init else "Running")
            assert played.process is not None
            if played.process.returncode:
                break
            if container is not containers[-1]:
                played.states[played.container] = {"terminated": _ending(played, container)}
        await self._finish(played)

    async def _start(self, played: PlayedPod, container: Resource) -> None:
        pod = await self._current(played)
        while not (node := dig(pod, "spec", "nodeName", default="")):
            await self._pause(played)
            pod = await self._current(played)
        played.node = node
        while node in self._lost:
            await self._pause(played)
        shown: _Waiting | None = None
        while isinstance(found := await self._prepared(played, pod, container), _Waiting):
            if found != shown:
                shown = found
                await self._write(played, "Pending", {"waiting": {"reason": found.reason, "message": found.message}})
            await self._pause(played)
        prefix, argv, environment = found
        played.output_from = played.log.stat().st_size if played.log.exists() else 0
        with played.log.open("ab") as output:
            played.process = await asyncio.create_subprocess_exec(
                *prefix,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=played.folder,
                start_new_session=True,
            )
        played.started_at = format_time(datetime.now(UTC))

    async def _follow(self, played: PlayedPod, container: Resource, *, phase: str) -> None:
        assert played.process is not None
        ended = asyncio.create_task(played.process.wait())
        try:
            async with self._serving(played, container):
                await self._write(played, phase, {"running": {"startedAt": played.started_at}})
                while not ended.done():
                    changed = asyncio.create_task(self._pause(played, patience=None))
                    await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                    if changed.done():
                        changed.result()
                    changed.cancel()
        finally:
            ended.cancel()
        while played.node in self._lost:
            await self._pause(played)

    async def _leave(self, played: PlayedPod) -> None:
        """End a pod that is being deleted; of one that is gone only the process."""
        pod = self._pods.get(played.key)
        if pod is None or uid_of(pod) != played.uid:
            return
        if played.running:
            assert played.process is not None
            _signal(played, signal.SIGTERM)
            with suppress(TimeoutError):
                grace = dig(pod, "metadata", "deletionGracePeriodSeconds", default=30)
                await asyncio.wait_for(played.process.wait(), grace)
            _signal(played, signal.SIGKILL)
            await played.process.wait()
        if not played.finished:
            await self._finish(played)
        with suppress(NotFound, Conflict):
            await self._client.delete(POD, played.key, uid=played.uid, grace_seconds=0)

    def _is_leaving(self, played: PlayedPod) -> bool:
        pod = self._pods.get(played.key)
        gone = pod is None or uid_of(pod) != played.uid or is_deleting(pod)
        return gone and played.node not in self._lost

    async def _pause(self, played: PlayedPod, *, patience: float | None = _LOOK) -> None:
        """Wait for a change of the pod, for so many seconds. Raises _Leaving once it is to end."""
        if not self._is_leaving(played):
            with suppress(TimeoutError):
                await asyncio.wait_for(played.changed.wait(), patience)
            played.changed.clear()
        if self._is_leaving(played):
            raise _Leaving

    async def _current(self, played: PlayedPod) -> Resource:
        pod = self._pods.get(played.key)
        if pod is None or uid_of(pod) != played.uid:
            raise _Leaving
        return pod

    # ------------------------------------------------------------------------------------------- starting a container

    async def _prepared(
        self, played: PlayedPod, pod: Resource, container: Resource
    ) -> _Waiting | tuple[list[str], list[str], dict[str, str]]:
        """What to start: what comes before the command line, the command line, the environment."""
        mounts = await self._mounts(played, pod, container)
        if isinstance(mounts, _Waiting):
            return mounts
        image = str(container["image"])
        if image in self.unpullable or re.search(UNPULLABLE, image):
            text = f'Back-off pulling image "{image}": ErrImagePull: failed to resolve reference "{image}": not found'
            return _Waiting(reason="ImagePullBackOff", message=text)
        given = await self._environment(played, pod, container)
        if isinstance(given, _Waiting):
            return given
        prefix, folders = mounts
        words = [*(container.get("command") or [ENTRYPOINT]), *container.get("args", [])]
        argv = [_on_this_machine(_expanded(word, given), folders) for word in words]
        program = self._programs.get(argv[0])
        if program is None:
            return _Waiting(
                reason="RunContainerError", message=f'exec: "{argv[0]}": not among {sorted(self._programs)}'
            )
        environment = {
            "PATH": os.defpath,
            "HOME": str(played.folder),
            "TMPDIR": folders.get("/tmp", str(played.folder)),
            **self._usual,
            **{name: _on_this_machine(value, folders) for name, value in given.items()},
            "AIRUNWAY_TERMINATION_LOG": str(played.termination_message),
        }
        if _progress_port(container):
            environment["AIRUNWAY_PROGRESS_PORT"] = str(played.progress_port)
        setpriv = shutil.which("setpriv")  # the process must end with this one, however this one ends
        if setpriv is not None:
            prefix = [*prefix, setpriv, "--pdeathsig=KILL", "--"]
        return prefix, [*program, *argv[1:]], environment

    async def _mounts(
        self, played: PlayedPod, pod: Resource, container: Resource
    ) -> _Waiting | tuple[list[str], dict[str, str]]:
        """What the command line must begin with to see the volumes, and the folders by mount path."""
        prefix: list[str] = []
        found: dict[str, str] = {}
        volumes = {each["name"]: each for each in dig(pod, "spec", "volumes", default=[])}
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                claim = await self._client.find(PERSISTENT_VOLUME_CLAIM, ObjectKey(played.key.namespace, name))
                bound = dig(claim, "spec", "volumeName", default="")
                if bound not in self._volumes:
                    return _Waiting(reason="ContainerCreating")
                prefix = self._volumes.entering(bound) or prefix
                folder = self._volumes.folder(bound)
            elif "emptyDir" in volume:
                folder = played.folder / str(volume["name"])
                folder.mkdir(exist_ok=True)
            elif "projected" in volume:
                continue  # the token of a service account, which admission adds
            else:
                return _Waiting(reason="ContainerCreating", message=f"volume {volume['name']}: its kind is not played")
            found[mount["mountPath"].rstrip("/")] = str(folder / mount.get("subPath", "."))
        return prefix, found

    async def _environment(self, played: PlayedPod, pod: Resource, container: Resource) -> _Waiting | dict[str, str]:
        values: dict[str, str] = {}
        for source in container.get("envFrom", []):
            for kind, reference in ((_SECRET, source.get("secretRef")), (CONFIG_MAP, source.get("configMapRef"))):
                if reference is not None:
                    data = await self._data(kind, played.key.namespace, reference["name"])
                    if data is None and not reference.get("optional"):
                        return _missing(kind, reference["name"])
                    prefix = source.get("prefix", "")
                    values |= {f"{prefix}{name}": value for name, value in (data or {}).items()}
        for entry in container.get("env", []):
            origin = entry.get("valueFrom", {})
            if "fieldRef" in origin:
                values[entry["name"]] = _field(pod, origin["fieldRef"]["fieldPath"])
            for kind, reference in ((_SECRET, origin.get("secretKeyRef")), (CONFIG_MAP, origin.get("configMapKeyRef"))):
                if reference is not None:
                    data = await self._data(kind, played.key.namespace, reference["name"])
                    if data is not None and reference["key"] in data:
                        values[entry["name"]] = data[reference["key"]]
                    elif not reference.get("optional"):
                        return _missing(kind, reference["name"], reference["key"] if data is not None else "")
            if not origin:
                values[entry["name"]] = _expanded(entry.get("value", ""), values)
        return values

    async def _data(self, kind: Kind, namespace: str, name: str) -> dict[str, str] | None:
        found = await self._client.find(kind, ObjectKey(namespace, name))
        if found is None:
            return None
        data: dict[str, str] = found.get("data") or {}
        return {key: _decoded(value) for key, value in data.items()} if kind is _SECRET else data

    # ------------------------------------------------------------------------------------------------------- progress

    @asynccontextmanager
    async def _serving(self, played: PlayedPod, container: Resource) -> AsyncIterator[None]:
        """The port ``progress`` on the pod's address while the context lasts."""
        port = _progress_port(container)
        if not port:
            yield
            return

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._answer_progress(played.progress_port, reader, writer)
            except OSError as error:  # the process does not listen (any more), or the client has left
                log.debug("pod %s: progress: %s", played.key, error)
            finally:
                writer.close()

        try:
            server = await asyncio.start_server(connected, played.ip, port)
        except OSError as error:
            log.warning("pod %s: nothing listens on %s:%s: %s", played.key, played.ip, port, error)
            yield
            return
        try:
            yield
        finally:
            # A connection that was accepted just now would stay open for ever if its server closed before it began.
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            await asyncio.sleep(0)
            server.close()

    async def _answer_progress(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match self.progress:
            case "refused":
                writer.transport.abort()
            case "silent":
                while await reader.read(65536):
                    pass
            case bytes() as body:
                await reader.readuntil(b"\r\n\r\n")
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
            case _:
                inner, outer = await asyncio.open_connection("127.0.0.1", port)
                copying = asyncio.create_task(_copy(reader, outer))
                try:
                    await _copy(inner, writer)
                finally:
                    copying.cancel()
                    outer.close()

    # --------------------------------------------------------------------------------------------------------- status

    async def _finish(self, played: PlayedPod) -> None:
        """Write how the pod ended."""
        played.finished = True
        if played.process is None:  # never started
            await self._write(played, "Failed", {"waiting": {"reason": "ContainerCreating"}})
            return
        pod = self._pods.get(played.key)
        containers = [*dig(pod, "spec", "initContainers", default=[]), *dig(pod, "spec", "containers", default=[])]
        container: Resource = next((each for each in containers if each["name"] == played.container), {})
        phase = "Failed" if played.process.returncode else "Succeeded"
        await self._write(played, phase, {"terminated": _ending(played, container)})

    async def _write(self, played: PlayedPod, phase: str, state: Resource) -> None:
        while True:
            try:
                pod = await self._client.get(POD, played.key)
                if uid_of(pod) != played.uid:
                    return
                patch = {
                    "metadata": {"resourceVersion": dig(pod, "metadata", "resourceVersion")},
                    "status": _status(played, pod, phase, state),
                }
                await self._client.merge_patch(POD, played.key, patch, subresource="status")
            except Conflict:
                continue
            except (NotFound, Forbidden):
                pass
            return


def _ending(played: PlayedPod, container: Resource) -> Resource:
    """The state of a container that has ended."""
    assert played.process is not None
    assert played.process.returncode is not None
    code = played.process.returncode
    ended: Resource = {
        "exitCode": 128 - code if code < 0 else code,
        "reason": played.reason or ("Error" if code else "Completed"),
        "startedAt": played.started_at,
        "finishedAt": format_time(datetime.now(UTC)),
    }
    message = _tail(played.termination_message, _MESSAGE_LIMIT)
    if not message and code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        message = _tail(played.log, min(_LOG_LIMIT, played.log.stat().st_size - played.output_from))
    if message:
        ended["message"] = message
    return ended


def _status(played: PlayedPod, pod: Resource, phase: str, state: Resource) -> Resource:
    now = format_time(datetime.now(UTC))
    running = phase == "Running"
    ready = {"status": "True"} if running else {"status": "False", "reason": "ContainersNotReady"}
    conditions = {each["type"]: each for each in dig(pod, "status", "conditions", default=[])}
    for name, content in {"Initialized": {"status": "True"}, "ContainersReady": ready, "Ready": ready}.items():
        if dig(conditions.get(name), "status") != content["status"]:
            conditions[name] = {"type": name, **content, "lastTransitionTime": now}
    played.states[played.container] = state
    lists = {
        listed: [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": running,
                "started": running,
                "restartCount": 0,
                "state": played.states.get(container["name"], {"waiting": {"reason": "PodInitializing"}}),
                "lastState": {},
            }
            for container in dig(pod, "spec", kind, default=[])
        ]
        for kind, listed in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))
    }
    status: Resource = {
        "phase": phase,
        "startTime": dig(pod, "status", "startTime") or now,
        "hostIP": "127.0.0.1",
        **{listed: statuses for listed, statuses in lists.items() if statuses},
    }
    if played.process is not None:
        status |= {"podIP": played.ip, "podIPs": [{"ip": played.ip}]}
    if played.evicted:
        message = "The node was low on resource: ephemeral-storage."
        status |= {"reason": "Evicted", "message": message}
        conditions["DisruptionTarget"] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": now,
        }
    return {**status, "conditions": list(conditions.values())}


def _missing(kind: Kind, name: str, key: str = "") -> _Waiting:
    word = kind.kind.lower()
    text = f"couldn't find key {key} in {kind.kind} {name}" if key else f'{word} "{name}" not found'
    return _Waiting(reason="CreateContainerConfigError", message=text)


def _field(pod: Resource, path: str) -> str:
    """The value of a `fieldRef`."""
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        values = labels_of(pod) if found[1] == "labels" else annotations_of(pod)
        return values.get(found[2], "")
    return str(dig(pod, *path.split("."), default=""))


def _decoded(value: str) -> str:
    return base64.b64decode(value).decode(errors="surrogateescape")


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced as Kubernetes does it: unknown names stay, ``$$`` is a dollar."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else values.get(found[1], found[0]), text)


def _on_this_machine(word: str, folders: Mapping[str, str]) -> str:
    """The word with the folder in place of a mount path that it begins with, or that stands after an ``=``."""
    head, equals, path = word.rpartition("=")
    for mount in sorted(folders, key=len, reverse=True):
        if word == mount or word.startswith(f"{mount}/"):
            return folders[mount] + word.removeprefix(mount)
        if equals and (path == mount or path.startswith(f"{mount}/")):
            return f"{head}={folders[mount]}{path.removeprefix(mount)}"
    return word


def _progress_port(container: Resource) -> int:
    ports = [each["containerPort"] for each in container.get("ports", []) if each.get("name") == "progress"]
    return int(ports[0]) if ports else 0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def _tail(path: Path, limit: int) -> str:
    """The last bytes of a file, as text."""
    return path.read_bytes()[-limit:].decode(errors="replace") if limit > 0 and path.exists() else ""


def _signal(played: PlayedPod, number: signal.Signals) -> None:
    """Send a signal to the process and those that it started; harmless when it has ended."""
    if played.process is not None and played.process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(played.process.pid, number)


@asynccontextmanager
async def running_pod_runner(
    kubeconfig: Path,
    volumes: Volumes,
    folder: Path,
    *,
    programs: Mapping[str, Sequence[str]] | None = None,
    environment: Mapping[str, str] | None = None,
    label: str = PLAYED_BY_RUNNER,
) -> AsyncIterator[PodRunner]:
    """The pod runner for as long as the context lasts; `folder` takes logs and temporary volumes.

    `programs` are command lines by the first word of a container's command; without them ``airunway-download`` is the
    installed script. `environment` are variables that a process has unless its pod sets them. Pods with
    the label are played.
    """
    folder.mkdir(parents=True, exist_ok=True)
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("pod-runner")) as client:
        runner = PodRunner(client, volumes, folder, programs=programs, environment=environment, label=label)
        async with in_background(runner.run()):
            yield runner
        if runner.failures:
            raise ExceptionGroup("the pod runner failed", runner.failures)
