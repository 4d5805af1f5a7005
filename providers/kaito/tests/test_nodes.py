"""Which nodes and machines a deployment gets is not for its user alone to say (security review, M2)."""

from typing import Any

import pytest

from airunway.plugins.contract import Context
from airunway.plugins.errors import SettingsError
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.objects import desired

AUTO = {"nodeProvisioner": "karpenter", "instanceType": "Standard_NC24"}


def paths_of(deployment: Any, context: Context) -> list[str]:
    return [finding.path for finding in can_handle(deployment, context).blockers]


def matching(**labels: str | None) -> dict[str, Any]:
    return {"overrides": {"resource": {"labelSelector": {"matchLabels": labels}}}}


def test_m2_the_nodes_of_another_deployment_cannot_be_selected(vllm: Any, context: Any) -> None:
    key = "airunway.ai/nodes-of"
    selecting = vllm(nodeSelector={key: "other-12345678"})
    assert paths_of(selecting, context(**AUTO)) == [f"spec.nodeSelector[{key}]"]
    labels = desired(selecting, context(**AUTO)).objects[0]["resource"]["labelSelector"]["matchLabels"]
    assert labels[key].startswith("llama-8b-")  # and if it came so far, ours is there
    for value in ("other-12345678", None):
        overriding = vllm(provider=matching(**{key: value}))
        at = f"spec.provider.overrides.resource.labelSelector.matchLabels[{key}]"
        assert paths_of(overriding, context(**AUTO)) == [at]


def test_m2_new_nodes_get_no_label_of_kubernetes_own(vllm: Any, context: Any) -> None:
    refused = (
        "node-role.kubernetes.io/control-plane",
        "kubernetes.io/hostname",
        "node.kubernetes.io/instance-type",
        "node-restriction.kubernetes.io/tenant",
        "x.k8s.io/y",
    )
    free = ("pool", "example.com/kubernetes.io", "topology.kubernetes.io/zone", "kubernetes.io/arch")
    for key in (*refused, *free):
        for deployment in (vllm(nodeSelector={key: "a"}), vllm(provider=matching(**{key: "a"}))):
            assert bool(paths_of(deployment, context(**AUTO))) is (key in refused), key
            assert paths_of(deployment, context()) == []  # existing nodes are only selected


@pytest.mark.parametrize(
    ("wanted", "settings", "allowed"),
    [
        ("Standard_ND96isr_H100_v5", AUTO, False),
        ("Standard_NC24", AUTO, True),
        ("Standard_NC48", {**AUTO, "instanceTypes": ["Standard_NC*"]}, True),
        ("Standard_ND96", {**AUTO, "instanceTypes": ["Standard_NC*"]}, False),
        ("Standard_ND96", {"nodeProvisioner": "karpenter"}, True),
        ("Standard_ND96", {"nodeProvisioner": "karpenter", "instanceTypes": ["Standard_NC*"]}, False),
    ],
)
def test_m2_an_instance_type_is_the_administrators_to_allow(
    vllm: Any, context: Any, wanted: str, settings: dict[str, Any], allowed: bool
) -> None:
    deployment = vllm(provider={"overrides": {"resource": {"instanceType": wanted}}})
    path = "spec.provider.overrides.resource.instanceType"
    assert paths_of(deployment, context(**settings)) == ([] if allowed else [path])


def test_m2_the_list_of_instance_types_is_a_list_of_texts(context: Any) -> None:
    with pytest.raises(SettingsError, match=r"setting 'instanceTypes': .*list, not 'Standard_NC24'"):
        context(instanceTypes="Standard_NC24")
