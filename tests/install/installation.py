"""An installation by helm on a cluster of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from tests.install.helm import NAMESPACE, Helm

from airunway.resource import Resource
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.kubetools import kubectl_path
from airunway_testing.simulators import load_simulator

__all__ = ["CHARTS_OF", "RESTRICTED", "Installation", "account", "component", "installation", "simulated_kaito"]

CHARTS_OF = {"core": "airunway", "kaito": "airunway-provider-kaito", "vllm": "airunway-provider-vllm"}
"""The chart of each process."""

RESTRICTED = f"""
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/enforce-version: latest}}
"""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What was installed where: `values` are the options of helm by process."""

    plane: ControlPlane
    helm: Helm
    ports: Sequence[int]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl says as the administrator; with `check` off, its complaints too."""
        done = subprocess.run(
            [kubectl_path(), f"--kubeconfig={self.plane.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0 or not check, f"kubectl {arguments}: {done.stderr}{done.stdout}"
        return done.stdout if check else done.stdout + done.stderr

    def objects(self, *arguments: str) -> list[Resource]:
        found: list[Resource] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def sandbox(self, process: str) -> Resource:
        """The values that this machine needs: a port for everything, a webhook that is reached without Services, and
        pods that get ready when a `Node` says so.
        """
        first = list(CHARTS_OF).index(process) * 3
        health, metrics, webhook = self.ports[first : first + 3]
        found: Resource = {"ports": {"health": health, "metrics": metrics}, "podAnnotations": {OUTCOME: "NotReady"}}
        if process == "core":
            found["ports"]["webhook"] = webhook
            found["webhook"] = {"url": f"https://127.0.0.1:{webhook}"}
        return found

    def options(self, process: str) -> list[str]:
        """All values of a process's chart, as options of helm."""
        given = [f"--set-json={key}={json.dumps(value)}" for key, value in self.sandbox(process).items()]
        return [*given, *self.values.get(process, ())]

    def install(self, verb: str, process: str, *more: str, chart: str = "") -> str:
        """``helm install`` or ``upgrade`` of one process's chart."""
        name = CHARTS_OF[process]
        return self.helm(verb, name, chart or name, "-n", NAMESPACE, *self.options(process), *more).stdout

    def until_ready(self, process: str, *, patience: float = 60) -> None:
        """Wait until a process says by its probe that it is ready. Raises AssertionError."""
        url = f"http://127.0.0.1:{self.ports[list(CHARTS_OF).index(process) * 3]}/readyz"
        deadline, said = time.monotonic() + patience, "nothing"
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except OSError as error:
                said = str(error)
                time.sleep(0.05)
        raise AssertionError(f"{process} does not get ready: {said}")


@contextmanager
def installation(
    helm: Helm, ports: Sequence[int], values: Mapping[str, Sequence[str]], *, namespaces: Sequence[str]
) -> Iterator[Installation]:
    """CRDs, core and both providers on a cluster that has `namespaces` and nothing else, in a namespace for restricted
    pods."""
    with ControlPlane("cluster", audit="Metadata", roomy=True) as plane:
        made = Installation(plane=plane, helm=replace(helm, kubeconfig=plane.kubeconfig), ports=ports, values=values)
        made.kubectl("apply", "-f", "-", stdin=RESTRICTED)
        for name in namespaces:
            made.kubectl("create", "namespace", name)
        made.helm("install", "airunway-crds", "airunway-crds", "-n", NAMESPACE)
        for process in CHARTS_OF:
            made.install("install", process)
        yield made


def account(process: str) -> str:
    """The user name of a process's account."""
    return f"system:serviceaccount:{NAMESPACE}:{component(process)}"


def component(process: str) -> str:
    return "airunway-controller" if process == "core" else f"airunway-provider-{process}"


@contextmanager
def simulated_kaito(made: Installation, folder: Path) -> Iterator[None]:
    """KAITO's CRD, and a program that plays its operator."""
    definitions = load_simulator("kaito").custom_resource_definitions()
    made.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(definitions))
    command = [sys.executable, "-m", "airunway", "simulate", "kaito", "--kubeconfig", str(made.plane.kubeconfig)]
    with (folder / "simulator.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as simulator:
        try:
            yield
        finally:
            simulator.terminate()
