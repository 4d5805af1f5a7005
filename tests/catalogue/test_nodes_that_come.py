"""A pool of nodes with another product name of the same GPU: what runs goes on, what waits for a node takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalogue.conftest import MODEL, Ground, running_catalogue
from tests.support.audit import AuditReader
from tests.support.cluster_fixtures import with_nodes

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT, MODEL_TEMPLATE, RUNTIME_CONFIG
from airunway.kube import NODE, POD, Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, uid_of
from airunway_testing.controlplane.nodes import gpu_node
from airunway_testing.expectations import phase_is
from airunway_testing.operator import deployments, gone, playing, pods_of, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PRODUCT = "nvidia.com/gpu.product"
OLD, NEW, THIRD = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-SXM4-80GB"


async def test_a_pod_that_finds_no_node_gets_the_nodes_that_come_and_one_that_runs_is_not_restarted(
    ground: Ground, kubeconfig: Path, client: Client, audit_log: Path
) -> None:
    await _restarts_at_once(ground)
    spec = {"templateRef": {"name": "tiny"}, "provider": {"name": "vllm"}}
    audit = AuditReader(audit_log)
    async with (
        playing(kubeconfig, client, load("vllm"), level="cluster"),
        deployments(client, ground.namespace, spec) as deploy,
        running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home),
        with_nodes(client, gpu_node("a100-old", product=OLD)),
    ):
        await client.merge_patch(NODE, ObjectKey("", "a100-old"), {"spec": {"unschedulable": True}})
        gpu = {"count": 1, "model": "A100"}
        template = await ground.template(hardware={"gpu": gpu}, defaults={"engine": {"type": "vllm"}})
        await ground.until(template, "Ready")
        key = await deploy("served")
        waiting = await until(client, key, lambda md: str(dig(md, "status", "rootCause", "code")).startswith("Unsched"))
        assert _required(waiting) == [OLD]

        async with with_nodes(client, gpu_node("a100-new", product=NEW)):
            found = await until(client, key, phase_is("Running"), what="Running on the node that came")
            assert sorted(_required(found)) == sorted([NEW, OLD])
            (pod,) = await pods_of(client, key)
            assert pod["spec"]["nodeName"] == "a100-new"
            assert dig(found, "status", "effectiveTemplate", "hash") == dig(
                waiting, "status", "effectiveTemplate", "hash"
            )

            audit.read()
            async with with_nodes(client, gpu_node("a100-third", product=THIRD)):
                text = "with the node affinity for the nodes that were there"
                found = await until(client, key, lambda md: text in str(condition_of(md, "TemplateReady")))
                assert sorted(_required(found)) == sorted([NEW, OLD])
            await ground.eventually(lambda: _nodes(ground, template, 2))
            written = [
                each
                for each in audit.read()
                if each.writes and each.namespace == key.namespace and each.name == key.name
            ]
            assert {each.resource for each in written} <= {"modeldeployments/status"}
            assert [uid_of(each) for each in await pods_of(client, key)] == [uid_of(pod)]
            assert MODEL in str(found["status"]["revision"]["template"])
            # While its node is there: pods of a node that is gone stay for a minute.
            await client.delete(MODEL_DEPLOYMENT, key)
            await gone(client, MODEL_DEPLOYMENT, key)
            await gone(client, POD, key_of(pod))
        # A catalogue of another test would report that its nodes are gone, while the namespace is deleted.
        await client.delete(MODEL_TEMPLATE, template)


async def _restarts_at_once(ground: Ground) -> None:
    """The config of the namespace takes edits of templates at once."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": RUNTIME_CONFIG.kind,
        "metadata": {"name": "default", "namespace": ground.namespace},
        "spec": {"rollout": "Immediately"},
    }
    await ground.client.apply(RUNTIME_CONFIG, body, manager="platform", force=True)


async def _nodes(ground: Ground, template: ObjectKey, number: int) -> bool:
    return bool(dig(await ground.get(template), "status", "hardware", "nodes") == number)


def _required(deployment: Resource) -> list[str]:
    """The values of the label that nodes must have, as recorded."""
    affinity = dig(deployment, "status", "revision", "template", "spec", "affinity", "nodeAffinity")
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert expression["key"] == PRODUCT
    found: list[str] = expression["values"]
    return found
