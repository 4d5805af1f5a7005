"""Simulates pods for scenarios (`airunway_testing.simulators.scenarios`) without nodes.

``fails:TEXT`` is an application that cannot be deployed, ``degrades:TEXT`` one that becomes unhealthy, ``no-nodes``
workers without a node, ``never-ready`` an application that stays in deployment, and ``error:TEXT`` a configuration that
Ray Serve refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from airunway.resource import Resource, copy_of, dig, format_time, key_of, labels_of
from airunway_kuberay_simulator import names
from airunway_testing.simulators.scenarios import INSTANT, Scenario, parse_scenario, scenario_of

_WORDS = {"never-ready": "never", "fails": "DEPLOY_FAILED:", "degrades": "UNHEALTHY:", "error": "refused:"}


class Pretended:
    """Simulated pods for a cluster without nodes, with states by scenario."""

    def __init__(self, scenario: str) -> None:
        self._default = parse_scenario(scenario or INSTANT)
        self._pods: dict[tuple[str, str], dict[str, Resource]] = {}

    def scenario(self, service: Resource) -> Scenario:
        """The RayService's own scenario, else the default."""
        return scenario_of(service, self._default)

    def ignores(self, service: Resource) -> bool:
        """Whether the operator does not react; a deleted object that lingers keeps its finalizer."""
        scenario = self.scenario(service)
        return scenario.silent or (scenario.lingers and bool(dig(service, "metadata", "deletionTimestamp")))

    def word(self, service: Resource) -> str:
        """The state of the application, as in the annotation `names.APPLICATION`."""
        scenario = self.scenario(service)
        return f"{_WORDS.get(scenario.kind, '')}{scenario.argument}"

    def pods(self, cluster: Resource) -> list[Resource]:
        """The pods of a RayCluster."""
        key = key_of(cluster)
        return list(self._pods.get((key.namespace, key.name), {}).values())

    def make(self, pod: Resource, service: Resource) -> None:
        """Add a pod, which is Ready at once unless its scenario says otherwise."""
        key, made = key_of(pod), copy_of(pod)
        waits = self.scenario(service).kind == "no-nodes" and labels_of(pod)[names.NODE_TYPE] == "worker"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": format_time(datetime.now(UTC))}
        made["metadata"]["uid"] = key.name
        made["status"] = {"phase": "Pending"} if waits else {"phase": "Running", "conditions": [ready]}
        self._pods.setdefault((key.namespace, labels_of(pod)[names.CLUSTER]), {})[key.name] = made

    def remove(self, name: str) -> None:
        for pods in self._pods.values():
            pods.pop(name, None)

    def label(self, name: str, labels: Mapping[str, str]) -> None:
        for pods in self._pods.values():
            if name in pods:
                pods[name]["metadata"]["labels"].update(labels)
