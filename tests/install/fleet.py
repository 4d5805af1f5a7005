"""An installation of the release before, on which models run while its parts are upgraded and rolled back."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.install.helm import NAMESPACE, Helm
from tests.install.installation import Installation, account, installation, simulated
from tests.install.kept import Release
from tests.install.node import Node, either
from tests.support.audit import AuditReader

from airunway.resource import dig
from airunway_testing.controlplane.nodes import cpu_node, gpu_node
from airunway_testing.controlplane.ports import reserved_ports

__all__ = ["TEAM", "Fleet", "fleet_of"]

TEAM = "team-a"
_GPUS = 8
"""Of a node, unless the models ask for more."""

# What is the operator's own and of the API's, and no model's: leases, registrations, events, statuses, finalizers.
_OWN = {"leases", "events", "modeldeployments/status", "inferenceproviderconfigs", "inferenceproviderconfigs/status"}
_OWN |= {"validatingwebhookconfigurations", "secrets", "subjectaccessreviews"}


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """An installation on which the models run, and the release before this one."""

    made: Installation
    audit: AuditReader
    before: Release

    def move(self, part: str) -> None:
        """Upgrade one part to this release."""
        self.made.bring("upgrade", part, None)

    def back(self, part: str) -> None:
        """Roll one part back to its release before."""
        name = "airunway-crds" if part == "crds" else self.made.charts[part]
        self.made.helm("rollback", name, "-n", NAMESPACE)

    def reinstalled(self, helm: Helm, *, pods: int) -> Fleet:
        """The same models, and the release before installed anew by another helm, with so many pods of each part."""
        self.made.uninstall()
        helm = replace(helm, kubeconfig=self.made.plane.kubeconfig)
        fleet = replace(self, made=replace(self.made, helm=helm, values=_values(self.made.charts, pods)))
        for part in ("crds", *fleet.made.charts):
            fleet.made.bring("install", part, self.before)
        fleet.passed()
        deadline = time.monotonic() + 60
        while not fleet.made.authority():  # the leader writes it
            assert time.monotonic() < deadline, "the core has not written the webhook's authority"
            time.sleep(0.2)
        return fleet

    def running(self) -> None:
        """Wait until every deployment runs."""
        deadline = time.monotonic() + 240
        while waiting := {
            md["metadata"]["name"]: f"{dig(md, 'status', 'phase')}: {dig(md, 'status', 'message')}"
            for md in self.made.objects("md", "-n", TEAM)
            if dig(md, "status", "phase") != "Running"
        }:
            assert time.monotonic() < deadline, waiting
            time.sleep(1)

    def settled(self) -> None:
        """Wait until every process works again."""
        self.made.kubectl("rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=180s")
        for process in self.made.charts:
            self.made.until_ready(process)

    def passed(self) -> None:
        """Wait until every process that runs now has looked at every deployment, woken by an annotation of each."""
        self.settled()
        before = {process: self._passes(process) for process in self.made.charts}
        stamp = f"airunway.ai/looked-at={time.monotonic_ns()}"  # others' annotations bring no pass
        self.made.kubectl("annotate", "md", "--all", "-n", TEAM, "--overwrite", stamp)
        of = Counter(str(dig(md, "status", "provider", "name")) for md in self.made.objects("md", "-n", TEAM))
        deadline = time.monotonic() + 120
        for process in self.made.charts:
            wanted = before[process] + (of[process] if process in of else of.total())
            while self._passes(process) < wanted:
                assert time.monotonic() < deadline, f"{process} has not looked at every deployment"
                time.sleep(0.2)

    def _passes(self, process: str) -> float:
        port = self.made.sandbox(process)["ports"]["metrics"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            found = text_string_to_metric_families(answer.read().decode())
            return sum(
                sample.value
                for family in found
                for sample in family.samples
                if sample.name == "airunway_reconcile_total"
            )

    def identities(self) -> dict[str, tuple[str, int, str]]:
        """uid, generation and resourceVersion of everything that the models are made of."""
        kinds = self.made.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
        wanted = [kind for kind in kinds if not kind.startswith(("events", "modeldeployments.", "leases."))]
        found = self.made.objects(",".join(wanted), "-n", TEAM)
        return {
            f"{obj['kind']}/{obj['metadata']['name']}": (
                obj["metadata"]["uid"],
                obj["metadata"].get("generation", 0),
                obj["metadata"]["resourceVersion"],
            )
            for obj in found
        }

    def upstream_writes(self) -> list[str]:
        """What our accounts have written since last asked that is a model's."""
        accounts = {account(process) for process in self.made.charts}
        return [
            f"{request.user} {request.verb} {request.resource} {request.namespace}/{request.name}"
            for request in self.audit.read()
            if request.user in accounts and request.writes and request.resource not in _OWN
        ]


@contextmanager
def fleet_of(
    helm: Helm, before: Release, folder: Path, charts: Mapping[str, str], *, pods: int, gpus: int = _GPUS
) -> Iterator[Fleet]:
    """The release before, with `charts` and their upstreams.

    Each of the four GPU nodes has `gpus`. With as many as all models ask for together, every pod fits on every node, in
    whichever order they are scheduled.
    """
    servers = [gpu_node(f"gpu-{number}") for number in range(4)]
    room = {"nvidia.com/gpu": str(gpus), "cpu": str(24 * gpus), "memory": f"{256 * gpus}Gi"}
    nodes = [replace(server, capacity={**server.capacity, **room}) for server in servers]
    with ExitStack() as stack:
        ports = stack.enter_context(reserved_ports(3 * len(charts)))
        made = stack.enter_context(
            installation(
                helm,
                ports,
                _values(charts, pods),
                namespaces=[TEAM],
                charts=charts,
                before=before,
                nodes=[*nodes, cpu_node("cpu-0")],
            )
        )
        audit = AuditReader(made.plane.audit_log or Path())
        stack.enter_context(simulated(made, folder, *(name for name in charts if name not in ("core", "vllm"))))
        stack.enter_context(Node(made, folder, either(before)))
        fleet = Fleet(made=made, audit=audit, before=before)
        fleet.settled()
        yield fleet


def _values(charts: Mapping[str, str], pods: int) -> Mapping[str, Sequence[str]]:
    """Options of helm by process. Passes are counted in the metrics."""
    return {process: [f"--set=replicas={pods}", "--set=metrics.enabled=true"] for process in charts}
