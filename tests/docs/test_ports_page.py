"""docs/providers/ports.md names the ports that the code writes, and its NetworkPolicy is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from airunway.kube import Client, Kind
from airunway.plugins.registry import load
from airunway.sdk import picker
from airunway.sdk.launch import GROUP_PORT
from airunway_testing.conformance.cases import bases, judged

PAGE = (Path(__file__).resolve().parents[2] / "docs/providers/ports.md").read_text(encoding="utf-8")
(POLICY,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
LISTENS = PAGE.partition("## What listens")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LISTENS.splitlines() if line.startswith("| ")]
POLICIES = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")


def ports(node: object) -> set[int]:
    """The numbers of all ports that containers name, in any object."""
    if isinstance(node, dict):
        own = {node["containerPort"]} if "containerPort" in node else set()
        return own.union(*(ports(value) for value in node.values()))
    return set().union(*(ports(value) for value in node)) if isinstance(node, list) else set()


@pytest.mark.parametrize("name", ["vllm", "llmd", "dynamo", "kaito"])
def test_every_port_that_a_provider_writes_has_a_row(name: str) -> None:
    host = load(name)
    written = {port for base in bases(host) for obj in judged(host, base, base.spec).objects for port in ports(obj)}
    title = {"kaito": "KAITO", "dynamo": "Dynamo"}.get(name, name)
    told = {int(number) for row in ROWS if title in " ".join(row) for number in re.findall(r"\b\d{4,5}\b", row[2])}
    assert written - told - {8200} == set(), "8200 is told beside the sidecar's"
    assert "8200" in PAGE


def test_the_ports_of_groups_and_transfers_have_a_row() -> None:
    told = " ".join(row[2] for row in ROWS)
    assert str(GROUP_PORT) in told
    assert {str(port) for port in ports(picker._pod("p-epp", pool="p", image="i", resources={}, hardened=True))} <= {
        *re.findall(r"\b\d{4}\b", told)
    }


@pytest.mark.apiserver
async def test_the_policy_is_one(client: Client, namespace: str) -> None:
    policy = yaml.safe_load(POLICY)
    policy["metadata"]["namespace"] = namespace
    made = await client.create(POLICIES, policy, field_validation="Strict")
    assert made["spec"]["policyTypes"] == ["Ingress"]
