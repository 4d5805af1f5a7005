"""An installation by helm on a cluster of its own, and the programs of its pods as processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from tests.charts.conftest import NAMESPACE, Helm

from airunway.resource import Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.kubetools import kubectl_path

__all__ = ["CHARTS_OF", "Installation", "account", "command_of", "installation", "programs"]

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
            timeout=120,
            check=False,
        )
        assert done.returncode == 0 or not check, f"kubectl {arguments}: {done.stderr}{done.stdout}"
        return done.stdout if check else done.stdout + done.stderr

    def objects(self, *arguments: str) -> list[Resource]:
        found: list[Resource] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def options(self, process: str) -> list[str]:
        """The values that this machine needs: a port for everything, and a webhook that is reached without Services."""
        first = list(CHARTS_OF).index(process) * 3
        health, metrics, webhook = self.ports[first : first + 3]
        given = [f"--set=ports.health={health}", f"--set=ports.metrics={metrics}"]
        if process == "core":
            given += [f"--set=ports.webhook={webhook}", f"--set=webhook.url=https://127.0.0.1:{webhook}"]
        return [*given, *self.values.get(process, ())]

    def install(self, verb: str, process: str, *more: str, chart: str = "") -> str:
        """``helm install`` or ``upgrade`` of one process's chart."""
        name = CHARTS_OF[process]
        return self.helm(verb, name, chart or name, "-n", NAMESPACE, *self.options(process), *more).stdout

    def ready_port(self, process: str) -> int:
        return self.ports[list(CHARTS_OF).index(process) * 3]


@contextmanager
def installation(
    helm: Helm, ports: Sequence[int], values: Mapping[str, Sequence[str]], *, namespaces: Sequence[str]
) -> Iterator[Installation]:
    """CRDs, core and both providers on a cluster that has `namespaces` and nothing else, in a namespace for restricted
    pods."""
    with ControlPlane("cluster", audit="Metadata") as plane:
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


def command_of(deployment: Resource) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables of the container, as the kubelet would give them to the first pod."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    fields = {
        "metadata.name": f"{deployment['metadata']['name']}-0",
        "metadata.namespace": deployment["metadata"]["namespace"],
    }
    environment = {
        variable["name"]: variable.get("value", fields.get(dig(variable, "valueFrom", "fieldRef", "fieldPath"), ""))
        for variable in container["env"]
    }
    return container["args"], environment


@contextmanager
def programs(made: Installation, folder: Path, *processes: str) -> Iterator[dict[str, Path]]:
    """What the Deployments say, run once each as processes under their own accounts; gives the logs."""
    with ExitStack() as stack:
        logs = {}
        for process in processes or CHARTS_OF:
            name = component(process)
            deployment = json.loads(made.kubectl("get", "deployment", name, "-n", NAMESPACE, "-o", "json"))
            arguments, environment = command_of(deployment)
            logs[process] = folder / f"{name}.log"
            kubeconfig = _kubeconfig(made, name, folder)
            output = stack.enter_context(logs[process].open("a"))
            started = subprocess.Popen(
                [sys.executable, "-m", "airunway", *arguments, f"--kubeconfig={kubeconfig}"],
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
            )
            stack.callback(_end, started)
        yield logs


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def _kubeconfig(made: Installation, name: str, folder: Path) -> Path:
    """One with a token of the service account, as the pod would have it mounted."""
    token = made.kubectl("create", "token", name, "-n", NAMESPACE).strip()
    content: Any = yaml.safe_load(made.plane.kubeconfig.read_text())
    content["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in content["users"]]
    path = folder / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path
