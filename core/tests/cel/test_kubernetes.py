"""The corpus on a real API server: what we call Kubernetes semantics is what Kubernetes does.

Each case becomes a validation of a ValidatingAdmissionPolicy on a kind without schema; the API server evaluates it when
such an object is created (dry-run). The policy only warns, so one request tells about a whole batch of cases.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, ApiError, Client, Invalid, Kind, is_served, load_config
from airunway.resource import Resource
from airunway_testing.controlplane import Cluster

CORPUS = yaml.load((Path(__file__).parent / "corpus.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
PROBE = Kind(group="cel.example.com", version="v1", kind="Probe", plural="probes", namespaced=False)
POLICY = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    namespaced=False,
)
BINDING = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    namespaced=False,
)
BATCH = 25  # an API server cuts off warnings after 4 KiB

pytestmark = pytest.mark.apiserver


def on_kubernetes(case: dict[str, Any]) -> object:
    """The documented outcome on Kubernetes: ``refused``, ``error`` or the value."""
    if "kubernetes" in case:
        return case["kubernetes"]
    if case.get("refused"):
        return "refused"
    return "error" if case.get("error") else case["value"]


def cases_of(outcome: str) -> list[dict[str, Any]]:
    def wanted(case: dict[str, Any]) -> bool:
        found = on_kubernetes(case)
        return (found if found in ("refused", "error") else "value") == outcome

    return [case for case in CORPUS["cases"] if wanted(case)]


def literal(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: dyn({literal(v)})' for k, v in value.items())}}}"
    return json.dumps(value)


def bound(case: dict[str, Any], body: str) -> str:
    """`body` with the case's spec as the variable `spec`, dynamically typed."""
    spec = literal(case["spec"]) if "spec" in case else "object.spec"
    return f"[dyn({spec})].all(spec, {body})"


def validation(index: int, case: dict[str, Any]) -> Resource:
    if on_kubernetes(case) == "error":
        # Always fails; says V where the expression has a value, and E (the fixed message) where it has none.
        evaluated = bound(case, f"[dyn({case['expression']})].exists(x, x == x)")
        message = f"{evaluated} ? 'V{index};' : 'V{index};'"
        return {"expression": "false", "message": f"E{index};", "messageExpression": message}
    body = f"dyn({case['expression']}) == dyn({literal(on_kubernetes(case))})"
    return {"expression": bound(case, body), "message": f"D{index};"}


def policy(name: str, validations: list[Resource]) -> Resource:
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [PROBE.group],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": [PROBE.plural],
                    }
                ]
            },
            "matchConditions": [{"name": "batch", "expression": f"object.metadata.name == '{name}'"}],
            "validations": validations,
        },
    }


def binding(name: str) -> Resource:
    return {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Warn"]},
    }


@pytest.fixture(scope="module")
def warnings() -> list[str]:
    return []


@pytest.fixture
async def client(control_plane: Cluster, warnings: list[str]) -> AsyncIterator[Client]:
    config = load_config(kubeconfig=control_plane.kubeconfig)
    async with Client(config, user_agent="airunway-tests", on_warning=warnings.append) as client:
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{PROBE.plural}.{PROBE.group}"},
            "spec": {
                "group": PROBE.group,
                "names": {"kind": PROBE.kind, "plural": PROBE.plural},
                "scope": "Cluster",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager="airunway-tests", force=True)
        while not await is_served(client, PROBE):
            await asyncio.sleep(0.1)
        yield client


async def verdicts(client: Client, warnings: list[str], cases: list[dict[str, Any]]) -> dict[int, str]:
    """The letter that each case's validation warned with, by index. A last, false one shows that the policy works."""
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    validations = [validation(index, case) for index, case in enumerate(cases)]
    canary = {"expression": "false", "message": "C;"}
    await client.create(POLICY, policy(name, [*validations, canary]))
    await client.create(BINDING, binding(name))
    probe = {
        "apiVersion": PROBE.api_version,
        "kind": PROBE.kind,
        "metadata": {"name": name},
        "spec": CORPUS["spec"],
    }
    for _ in range(300):
        warnings.clear()
        await client.create(PROBE, probe, dry_run=True)
        told = " ".join(warnings)
        if "C;" in told:
            return {int(number): letter for letter, number in re.findall(r"\b([DEV])(\d+);", told)}
        assert not told, f"the last validation did not warn, but others did: {told}"
        await asyncio.sleep(0.1)
    raise AssertionError("the policy did not come into force within 30 s")


async def test_values(client: Client, warnings: list[str]) -> None:
    cases = cases_of("value")
    for start in range(0, len(cases), BATCH):
        batch = cases[start : start + BATCH]
        different = await verdicts(client, warnings, batch)
        assert [batch[index]["expression"] for index in different] == []


async def test_errors(client: Client, warnings: list[str]) -> None:
    cases = cases_of("error")
    for start in range(0, len(cases), BATCH):
        batch = cases[start : start + BATCH]
        letters = await verdicts(client, warnings, batch)
        assert [case["expression"] for index, case in enumerate(batch) if letters.get(index) != "E"] == []


async def test_refusals(client: Client) -> None:
    cases = cases_of("refused")
    validations = [{"expression": bound(case, f"dyn({case['expression']}) == dyn(0)")} for case in cases]
    with pytest.raises(ApiError) as refusal:
        await client.create(POLICY, policy("refused", validations), dry_run=True)
    assert isinstance(refusal.value, Invalid)
    fields = {cause.get("field") for cause in refusal.value.causes}
    compiled = [c["expression"] for i, c in enumerate(cases) if f"spec.validations[{i}].expression" not in fields]
    assert compiled == []
