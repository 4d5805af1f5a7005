"""How long does the catalogue take for a scan of many tags, and how much does it write for each new template?

The catalogue as a process of its own on an API server, and a local registry whose images each recommend one way to run
them. A scan that makes a template for each tag, a second scan that finds all of them there, and rest. Prints JSON.

    uv run python -m benchmarks.catalogue --tags 1000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.common import cpu_seconds, heading, rss_mib, say
from tests.support.audit import AuditReader, Request

from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE
from airunway.kube import NAMESPACE, Client, load_config
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.registry.server import Image, LocalRegistry, container_registry

SCAN_BUDGET = 60.0
"""Seconds for a scan of 1,000 tags (issue 23)."""
WRITES_BUDGET = 1.0
"""Writes for each new template (issue 23)."""

HOME = "airunway-system"
SOURCE = ObjectKey("", "models")
REPOSITORY = "team/llama"
_RECOMMENDED = '[{"gpuModel": "H100", "gpuCount": 1, "precision": "fp8", "metric": "latency"}]'


class Catalogue:
    """The catalogue as a process of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-catalogue-"))
        self._kubeconfig = kubeconfig
        self.processes = Processes(self._folder, keep=False)
        self.pid = 0

    async def start(self) -> None:
        """Start, and return when it is ready."""
        marker = self._folder / "ready"
        command = [sys.executable, "-m", "airunway", "catalogue", "--kubeconfig", str(self._kubeconfig)]
        quiet = ["--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--ready-file", str(marker)]
        environment = {**os.environ, "AIRUNWAY_OPERATOR_NAMESPACE": HOME}
        self.processes.start("catalogue", [*command, *quiet], environment=environment)
        while not marker.exists():
            if self.processes.exited():
                sys.exit(self.processes.log("catalogue").read_text())
            await asyncio.sleep(0.02)
        self.pid = self.processes.pids["catalogue"]


def images(count: int) -> list[Image]:
    """One image for each tag, each with labels of its own."""
    labels = {"ai.airunway.model.name": "org/llama", "ai.airunway.model.recommendedDeployments": _RECOMMENDED}
    return [Image(REPOSITORY, f"1.{number}", labels={**labels, "number": str(number)}) for number in range(count)]


async def scanned(client: Client, host: str, *, limit: int) -> tuple[float, Resource]:
    """Write the source, and return the seconds until its newest generation was scanned, and its status."""
    body = {
        "apiVersion": MODEL_SOURCE.api_version,
        "kind": MODEL_SOURCE.kind,
        "metadata": {"name": SOURCE.name},
        "spec": {"registry": host, "insecure": True, "filters": [{"image": REPOSITORY}], "maxModels": limit},
    }
    started = monotonic()
    await client.apply(MODEL_SOURCE, body, manager="benchmark", force=True)
    while True:
        source = await client.get(MODEL_SOURCE, SOURCE)
        status = source.get("status") or {}
        if status.get("observedGeneration") == source["metadata"]["generation"]:
            return round(monotonic() - started, 2), status
        await asyncio.sleep(0.05)


def written(requests: list[Request]) -> dict[str, int]:
    """The writes of the catalogue by resource."""
    ours = (each for each in requests if each.writes and each.agent == "airunway-catalogue")
    return dict(Counter(each.resource for each in ours if each.resource != "leases"))


async def measured(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    assert plane.audit_log is not None
    reader = AuditReader(plane.audit_log)
    catalogue = Catalogue(plane.kubeconfig)
    async with (
        Client(load_config(kubeconfig=plane.kubeconfig), user_agent="airunway-benchmark") as client,
        container_registry(images(arguments.tags), page_size=100) as registry,
    ):
        await install_definitions(client)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}
        await client.create(NAMESPACE, namespace)
        await catalogue.start()
        try:
            return await _scans(arguments, client, registry, reader, catalogue)
        finally:
            catalogue.processes.stop("catalogue", grace=10.0)


async def _scans(
    arguments: argparse.Namespace, client: Client, registry: LocalRegistry, reader: AuditReader, catalogue: Catalogue
) -> dict[str, Any]:
    count = arguments.tags
    say(f"scanning {count} tags")
    reader.read()
    before = cpu_seconds(catalogue.pid)
    first, status = await scanned(client, registry.host, limit=count)
    writes = written(reader.read())
    asked = registry.asked()
    cpu = cpu_seconds(catalogue.pid) - before
    made = len(await client.list_all(CLUSTER_MODEL_TEMPLATE))
    if (status.get("phase"), made, status.get("models")) != ("Ready", count, count):
        sys.exit(f"the scan ended otherwise than expected: {made} templates, {json.dumps(status)}")
    say("settling")
    await asyncio.sleep(arguments.settle)
    reader.read()
    say("scanning again")
    registry.requests.clear()
    second, status = await scanned(client, registry.host, limit=count + 1)
    await asyncio.sleep(1)
    again = {key: value for key, value in written(reader.read()).items() if key.startswith(("modelsources", "cluster"))}
    per_template = writes.get("clustermodeltemplates", 0) / count
    return {
        "tags": count,
        "scan": {"seconds": first, "cpu_seconds": round(cpu, 2), "requests_to_registry": asked, "writes": writes},
        "writes_per_new_template": per_template,
        "second_scan": {
            "seconds": second,
            "requests_to_registry": registry.asked(),
            "writes": again,
            "models": dig(status, "models"),
        },
        "most_requests_at_once": registry.most_at_once,
        "rss_mib": rss_mib(catalogue.pid),
        "within_budget": {"scan": first <= SCAN_BUDGET, "writes": per_template <= WRITES_BUDGET},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tags", type=int, default=1000)
    parser.add_argument("--settle", type=float, default=5.0, help="seconds between the two scans")
    arguments = parser.parse_args()
    with ControlPlane("api", audit="Metadata", report=say) as plane:
        found = asyncio.run(measured(arguments, plane))
    print(json.dumps({**heading("catalogue"), **found}, indent=2))


if __name__ == "__main__":
    main()
