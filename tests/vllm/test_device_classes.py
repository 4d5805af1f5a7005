"""GPUs of a device class on the real scheduler and controllers: a class that is missing, a claim template that goes."""

from __future__ import annotations

import pytest
from tests.support.faults import has_cause

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.resource import ObjectKey, dig
from airunway_testing.eventually import eventually
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

GROUP = "resource.k8s.io"
DEVICE_CLASS = Kind(GROUP, "v1", "DeviceClass", "deviceclasses", namespaced=False)
TEMPLATE = Kind(GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates")


async def test_a_missing_class_is_the_root_cause_and_the_claim_template_goes_with_the_wish(
    deploy: Deploy, client: Client, namespace: str
) -> None:
    name = f"{namespace}.example"
    gpu = {"count": 1, "deviceClass": name}
    key = await deploy("llama", resources={"gpu": gpu})
    missing = await until(client, key, has_cause("DeviceClass.NotFound"), what="the missing class")
    cause = dig(missing, "status", "rootCause")
    assert cause["field"] == "spec.resources.gpu.deviceClass"
    assert f"device class {name} does not exist" in cause["message"]
    assert "kubectl get deviceclasses" in cause["message"]

    made = {"apiVersion": DEVICE_CLASS.api_version, "kind": DEVICE_CLASS.kind, "metadata": {"name": name}, "spec": {}}
    await client.create(DEVICE_CLASS, made)
    try:
        await until(client, key, has_cause("Unschedulable.InsufficientGPU"), what="a class without devices")
    finally:
        await client.delete(DEVICE_CLASS, ObjectKey("", name))
    assert len(await client.list_all(TEMPLATE, namespace=namespace)) == 1

    edit = {"spec": {"resources": {"gpu": {"count": 1, "deviceClass": None}}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, edit)

    async def is_gone() -> bool:
        return await client.list_all(TEMPLATE, namespace=namespace) == []

    await eventually(is_gone)
