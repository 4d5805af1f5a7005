"""``airunway status`` on a cluster: the first three lines name cause, object and remedy of what is wrong."""

from __future__ import annotations

import json

import pytest
from tests.rootcause.worked import FAULTS
from tests.view.conftest import Run

from airunway.kube import Client
from airunway.resource import dig
from airunway.status.codes import CODES
from airunway_testing.faults import has_cause, pod_of, write_pod
from airunway_testing.operator import Deploy, until
from airunway_testing.surroundings import gpu_quota

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CASES = {
    "no-gpu-node": "Unschedulable.InsufficientGPU",
    "quota": "Unschedulable.Quota",
    **{name: FAULTS[name].code for name in ("image-not-found", "private-image", "gated-model")},
    **{name: FAULTS[name].code for name in ("out-of-memory", "crash-loop")},
}


@pytest.mark.parametrize("name", CASES)
async def test_cause_object_and_remedy_come_first(
    name: str, deploy: Deploy, client: Client, namespace: str, run: Run
) -> None:
    code = CASES[name]
    if name == "quota":
        await gpu_quota(client, namespace, 0)
    key = await deploy(name, gpus=16 if name == "no-gpu-node" else 1, by_hand=name in FAULTS)
    if name in FAULTS:
        await write_pod(client, await pod_of(client, key), state=FAULTS[name].state, last=FAULTS[name].last)
    deployment = await until(client, key, has_cause(code), what=code)
    cause = deployment["status"]["rootCause"]

    text = await run("status", f"md/{name}", "-n", namespace)
    assert (text.code, text.err) == (0, "")
    first = text.out.splitlines()[:3]
    assert code in first[0]
    assert cause["object"] in first[1]
    assert CODES[code].remedy_for(cause["object"]) in first[2]

    shown = await run("status", f"md/{name}", "-n", namespace, "-o", "json")
    view = json.loads(shown.out)
    assert {part: view["cause"][part] for part in ("code", "object", "field", "since")} == {
        part: cause.get(part, "") for part in ("code", "object", "field", "since")
    }
    assert view["cause"]["evidence"] + f" {view['cause']['remedy']} See {view['cause']['link']}" == cause["message"]
    assert view["unseen"] == []
    kinds = [view["tree"]]
    for node in kinds:
        kinds += node["children"]
    named = {f"{node['kind']}/{namespace}/{node['name']}": node["health"] for node in kinds}
    assert named[cause["object"]] == "problem"

    waited = await run("status", f"md/{name}", "-n", namespace, "--wait=1s")
    assert waited.code == (5 if dig(deployment, "status", "phase") == "Failed" else 4), waited
