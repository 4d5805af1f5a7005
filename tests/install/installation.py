"""An installation by helm on a cluster of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from tests.install.helm import NAMESPACE, Helm
from tests.install.kept import TAG, Release

from airunway.api.names import ENDPOINT_PICKER_ROLE
from airunway.resource import Resource, dig
from airunway_testing.controlplane import ControlPlane, learn_kinds
from airunway_testing.controlplane.nodes import DEFAULT_NODES, SimulatedNode
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.kubetools import kubectl_path
from airunway_testing.simulators import load_simulator

__all__ = [
    "ALL_CHARTS_OF",
    "CHARTS_OF",
    "RESTRICTED",
    "Installation",
    "account",
    "component",
    "installation",
    "simulated",
]

PROVIDERS = ("dynamo", "kaito", "kuberay", "llmd", "vllm")
ALL_CHARTS_OF = {"core": "airunway", **{name: f"airunway-provider-{name}" for name in PROVIDERS}}
"""The chart of each process."""
CHARTS_OF = {name: ALL_CHARTS_OF[name] for name in ("core", "kaito", "vllm")}
"""Those of an installation of which nothing else is said."""

RESTRICTED = f"""
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/enforce-version: latest}}
"""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What was installed where: `values` are the options of helm by process, `charts` the chart of each process."""

    plane: ControlPlane
    helm: Helm
    ports: Sequence[int]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    charts: Mapping[str, str] = field(default_factory=lambda: CHARTS_OF)

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
        first = list(self.charts).index(process) * 3
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
        name = self.charts[process]
        return self.helm(verb, name, chart or name, "-n", NAMESPACE, *self.options(process), *more).stdout

    def bring(self, verb: str, part: str, before: Release | None) -> None:
        """``helm install`` or ``upgrade`` of a process or of ``crds``, to the release `before` or to this one."""
        name = "airunway-crds" if part == "crds" else self.charts[part]
        chart = before.chart(name) if before else name
        if part == "crds":
            self.helm(verb, name, chart, "-n", NAMESPACE)
        else:
            self.install(verb, part, *([f"--set=image.tag={TAG}"] if before else []), chart=chart)

    def authority(self) -> str:
        """The certificate authority by which the API server trusts the webhook; the core writes it."""
        (configuration,) = self.objects("validatingwebhookconfigurations")
        return str(dig(configuration, "webhooks")[0]["clientConfig"].get("caBundle", ""))

    def uninstall(self) -> None:
        """Uninstall everything; what the CRDs define stays."""
        for chart in reversed(list(self.charts.values())):
            self.helm("uninstall", chart, "-n", NAMESPACE)
        self.helm("uninstall", "airunway-crds", "-n", NAMESPACE)

    def left(self) -> list[str]:
        """What an uninstallation should have taken along. Raises AssertionError if it took the pickers' ClusterRole."""
        kinds = ["clusterroles", "clusterrolebindings", "validatingwebhookconfigurations"]
        kinds += ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
        left = self.objects(",".join(kinds), "-l", "app.kubernetes.io/part-of=airunway")
        left += self.objects("secrets", "-n", NAMESPACE)  # the chart brought the certificates' Secret
        found = {f"{obj['kind']}/{obj['metadata']['name']}" for obj in left}
        kept = f"ClusterRole/{ENDPOINT_PICKER_ROLE}"
        assert kept in found, "pickers of another installation may need it"
        return sorted(found - {kept})

    def until_ready(self, process: str, *, patience: float = 60) -> None:
        """Wait until a process says by its probe that it is ready. Raises AssertionError."""
        url = f"http://127.0.0.1:{self.ports[list(self.charts).index(process) * 3]}/readyz"
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
    helm: Helm,
    ports: Sequence[int],
    values: Mapping[str, Sequence[str]],
    *,
    namespaces: Sequence[str],
    charts: Mapping[str, str] = CHARTS_OF,
    before: Release | None = None,
    nodes: Sequence[SimulatedNode] = DEFAULT_NODES,
) -> Iterator[Installation]:
    """CRDs and the processes of `charts` on a cluster that has `namespaces` and nothing else, in a namespace for
    restricted pods; those of the release `before` if it is given.
    """
    with ControlPlane("cluster", audit="Metadata", roomy=True, nodes=nodes) as plane:
        made = Installation(
            plane=plane, helm=replace(helm, kubeconfig=plane.kubeconfig), ports=ports, values=values, charts=charts
        )
        made.kubectl("apply", "-f", "-", stdin=RESTRICTED)
        for name in namespaces:
            made.kubectl("create", "namespace", name)
        for part in ("crds", *charts):
            made.bring("install", part, before)
        learn_kinds(plane.url)
        yield made


def account(process: str) -> str:
    """The user name of a process's account."""
    return f"system:serviceaccount:{NAMESPACE}:{component(process)}"


def component(process: str) -> str:
    return "airunway-controller" if process == "core" else f"airunway-provider-{process}"


@contextmanager
def simulated(made: Installation, folder: Path, *upstreams: str) -> Iterator[None]:
    """The CRDs of these upstreams, and programs that play their operators."""
    with ExitStack() as stack:
        for name in upstreams:
            definitions = load_simulator(name).custom_resource_definitions()
            made.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions))
            learn_kinds(made.plane.url)
            command = [sys.executable, "-m", "airunway", "simulate", name, "--kubeconfig", str(made.plane.kubeconfig)]
            log = stack.enter_context((folder / f"simulator-{name}.log").open("w"))
            stack.callback(stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log)).terminate)
        yield
