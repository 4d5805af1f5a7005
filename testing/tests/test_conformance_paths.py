"""Paths of findings: users look for them in their manifest."""

import pytest

from airunway_testing.conformance.paths import is_field


@pytest.mark.parametrize(
    "path",
    [
        "",
        "spec.scaling.replicas",
        "spec.env[0].value",
        "spec.env.name",
        "spec.engine.args[kv-transfer-config]",
        "spec.podTemplate.metadata.labels[a.example/b]",
        "spec.provider.overrides.spec.whatever",
        "spec.affinity.nodeAffinity",
        "spec.model.storage.volumes[3].size",
        "metadata.name",
    ],
)
def test_what_a_user_can_write(path: str) -> None:
    assert is_field(path)


@pytest.mark.parametrize(
    "path",
    [
        "spec.spec.containers[0].env[0].value",
        "spec.replicas",
        "scaling.replicas",
        "spec.env[0].values",
        "spec.image.tag",
    ],
)
def test_what_no_deployment_has(path: str) -> None:
    assert not is_field(path)
