"""A node for the operator's own pods: what they say is run for real, as processes or as containers of this machine.

The nodes of the cluster are simulated. Here is what a kubelet would do for pods of one namespace: arguments, variables,
volumes and a token of the pod's own account. A pod is ready when its program says so by its probe. All of them share
the network of this machine, so that of the pods of one part one runs at a time: the newest.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

import yaml
from tests.install.helm import NAMESPACE
from tests.install.installation import Installation
from tests.install.kept import TAG, Release

from airunway.kube import CONFIG_MAP, POD, Client, Kind, NotFound, load_config
from airunway.resource import Resource, annotations_of, dig, is_deleting, key_of, uid_of
from airunway_testing.controlplane.stages import OUTCOME

__all__ = ["Node", "Run", "Start", "containers", "either", "processes"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a pod's container is run; `stop` is a command that ends it as a kubelet would (empty: SIGTERM does)."""

    command: Sequence[str]
    environment: Mapping[str, str]
    stop: Sequence[str] = ()


Start: TypeAlias = Callable[["Pod"], Run]

_NOT_YET = "NotReady"
"""What pods are annotated with until they are ready (values of the installation)."""

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod with its volumes as folders: `mounts` gives the folder of a path, None for an empty one.

    `token` is one of its account that ends with the pod, `configurations` are the namespace's ConfigMaps by name.
    """

    made: Installation
    live: Resource
    folder: Path
    token: str
    configurations: Mapping[str, Resource]

    @property
    def container(self) -> Resource:
        (container,) = self.live["spec"]["containers"]
        return dict(container)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the container, as the kubelet resolves them."""
        server = urlsplit(self.made.plane.url)
        found = {"KUBERNETES_SERVICE_HOST": server.hostname or "", "KUBERNETES_SERVICE_PORT": str(server.port)}
        for variable in self.container["env"]:
            path = dig(variable, "valueFrom", "fieldRef", "fieldPath")
            found[variable["name"]] = str(dig(self.live, *path.split("."))) if path else variable["value"]
        return found

    def mounts(self) -> Mapping[str, Path | None]:
        """Every mount of the container, with what is in it; the account's token is bound to the pod."""
        volumes = {volume["name"]: volume for volume in self.live["spec"]["volumes"]}
        found: dict[str, Path | None] = {}
        for mount in self.container["volumeMounts"]:
            volume, folder = volumes[mount["name"]], self.folder / mount["name"]
            if "emptyDir" in volume:
                found[mount["mountPath"]] = None
                continue
            folder.mkdir(exist_ok=True)
            if "configMap" in volume:
                for key, text in self.configurations[volume["configMap"]["name"]]["data"].items():
                    (folder / key).write_text(text)
            else:
                assert mount["mountPath"] == _ACCOUNT, mount
                self._account(folder)
            found[mount["mountPath"]] = folder
        return found

    def _account(self, folder: Path) -> None:
        admin = yaml.load(self.made.plane.kubeconfig.read_text(), Loader=yaml.CSafeLoader)
        authority = base64.b64decode(admin["clusters"][0]["cluster"]["certificate-authority-data"])
        (folder / "ca.crt").write_bytes(authority)
        (folder / "namespace").write_text(NAMESPACE)
        (folder / "token").write_text(self.token)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)


def processes(pod: Pod) -> Run:
    """The program of this environment, with the pod's arguments; paths of mounts are those of the folders."""
    return _process(pod, Path(sys.executable))


def either(before: Release) -> Start:
    """The program of the release that the tag of the pod's image means: the one before, or that of this checkout."""

    def start(pod: Pod) -> Run:
        is_before = str(pod.container["image"]).endswith(f":{TAG}")
        return _process(pod, before.python if is_before else Path(sys.executable))

    return start


def _process(pod: Pod, python: Path) -> Run:
    content = yaml.load(pod.made.plane.kubeconfig.read_text(), Loader=yaml.CSafeLoader)
    content["users"] = [{"name": entry["name"], "user": {"token": pod.token}} for entry in content["users"]]
    kubeconfig = pod.folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(content))
    arguments = list(pod.container["args"])
    for path, folder in pod.mounts().items():
        if folder is not None:
            arguments = [argument.replace(path, str(folder)) for argument in arguments]
    command = [str(python), "-m", "airunway", *arguments, f"--kubeconfig={kubeconfig}"]
    return Run(command=command, environment={**os.environ, **pod.environment})


def containers(configuration: Path) -> Start:
    """The pod's image in podman, with the pod's own security context; `configuration` is podman's."""

    def start(pod: Pod) -> Run:
        container, name = pod.container, pod.live["metadata"]["name"]
        security = container["securityContext"]
        command = ["podman", "run", "--rm", "--pull=never", "--network=host", f"--name={name}"]
        if security["readOnlyRootFilesystem"]:
            command += ["--read-only", "--read-only-tmpfs=false"]
        if not security["allowPrivilegeEscalation"]:
            command.append("--security-opt=no-new-privileges")
        command += [f"--cap-drop={capability}" for capability in security["capabilities"]["drop"]]
        command += [f"--env={name}={value}" for name, value in pod.environment.items()]
        for path, folder in pod.mounts().items():
            command.append(f"--tmpfs={path}" if folder is None else f"--volume={folder}:{path}:ro")
        return Run(
            command=[*command, container["image"], *container["args"]],
            environment={**os.environ, "CONTAINERS_CONF": str(configuration)},
            stop=["podman", "stop", "--ignore", "--time=20", name],
        )

    return start


async def _token(client: Client, pod: Resource) -> str:
    """A token of the pod's account that ends with the pod. Raises NotFound for a pod that is gone already."""
    kind = Kind("", "v1", "TokenRequest", f"serviceaccounts/{pod['spec']['serviceAccountName']}/token")
    bound = {"kind": "Pod", "apiVersion": "v1", "name": key_of(pod).name, "uid": uid_of(pod)}
    metadata = {"namespace": key_of(pod).namespace, "name": pod["spec"]["serviceAccountName"]}
    made = await client.create(kind, {"metadata": metadata, "spec": {"boundObjectRef": bound}})
    return str(made["status"]["token"])


def _template(pod: Resource) -> str:
    return str(pod["metadata"]["labels"]["pod-template-hash"])


def _is_ready(pod: Resource) -> bool:
    """What the readiness probe of the pod says."""
    (container,) = pod["spec"]["containers"]
    (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "health")
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{container['readinessProbe']['httpGet']['path']}", timeout=5
        ):
            return True
    except OSError:
        return False


class Node:
    """Runs the pods of the operator's namespace for as long as the context lasts; `log` has what each part said."""

    def __init__(self, made: Installation, folder: Path, start: Start) -> None:
        self._made, self._folder, self._start = made, folder, start
        self._running: dict[str, tuple[str, Run, subprocess.Popen[bytes]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="node", daemon=True)
        self._failed: BaseException | None = None
        self._since: dict[str, float] = {}
        self.took: dict[str, float] = {}
        """Seconds from when the first program of each part was started until it was seen to be ready."""

    def log(self, part: str) -> Path:
        return self._folder / f"{part}.log"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)
        for part in list(self._running):
            self._end(part)
        if self._failed is not None:
            raise self._failed

    def _work(self) -> None:
        try:
            asyncio.run(self._watch())
        except BaseException as error:  # noqa: BLE001  # told to the test
            self._failed = error

    async def _watch(self) -> None:
        """Look at the pods again and again; a kubectl each time would cost as much as all that is tested."""
        config = load_config(kubeconfig=self._made.plane.kubeconfig)
        async with Client(config, user_agent="airunway-tests-node") as client:
            while not self._stop.is_set():
                await self._look(client)
                await asyncio.sleep(0.2)

    async def _look(self, client: Client) -> None:
        pods: dict[str, list[Resource]] = {}
        for pod in await client.list_all(POD, namespace=NAMESPACE):
            if not is_deleting(pod) and annotations_of(pod).get(OUTCOME, _NOT_YET) == _NOT_YET:
                pods.setdefault(pod["metadata"]["labels"]["app.kubernetes.io/name"], []).append(pod)
        for part in {*pods, *self._running}:
            live = sorted(pods.get(part, []), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
            newest = [pod for pod in live if _template(pod) == _template(live[-1])]
            if part in self._running and self._running[part][0] not in map(uid_of, newest):
                self._end(part)
            if newest and part not in self._running:
                with suppress(NotFound):  # gone while it was looked at: there will be another
                    await self._run(client, part, newest[-1])
            waiting = [key_of(pod) for pod in newest if OUTCOME in annotations_of(pod)]
            if waiting and _is_ready(newest[-1]):
                self.took.setdefault(part, time.monotonic() - self._since[part])
                for key in waiting:
                    with suppress(NotFound):
                        await client.merge_patch(POD, key, {"metadata": {"annotations": {OUTCOME: None}}})

    async def _run(self, client: Client, part: str, live: Resource) -> None:
        folder = self._folder / live["metadata"]["name"]
        folder.mkdir(exist_ok=True)
        token = await _token(client, live)
        found = {key_of(each).name: each for each in await client.list_all(CONFIG_MAP, namespace=NAMESPACE)}
        self._begin(part, Pod(made=self._made, live=live, folder=folder, token=token, configurations=found))

    def _begin(self, part: str, pod: Pod) -> None:
        run = self._start(pod)
        with self.log(part).open("a") as output:
            process = subprocess.Popen(run.command, stdout=output, stderr=output, env=run.environment)
        self._running[part] = (uid_of(pod.live), run, process)
        self._since[part] = time.monotonic()

    def _end(self, part: str) -> None:
        _, run, process = self._running.pop(part)
        if run.stop:
            subprocess.run(run.stop, env=run.environment, check=False, capture_output=True, timeout=60)
        else:
            process.terminate()
        code = process.wait(60)
        # A program that has only begun to start is ended by the signal itself.
        ended = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        said = self.log(part).read_text()[-4000:]
        # A token goes with its pod: what asks with it a moment before it is told to end is refused.
        disowned = code == 1 and any(word in said for word in ("Ran out of valid credentials", "401 Unauthorized"))
        assert code in ended or disowned, f"{part} ended with {code}: {said}"
