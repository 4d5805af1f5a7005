"""Volumes with a size on the provider's side: refused without the part, mounted by name, waited for only while no claim
is made.
"""

from __future__ import annotations

from typing import Any

import pytest
from core.tests.conftest import MakeHost
from core.tests.runtime.views import state

from airunway.resource import Resource
from airunway.revisions.same_spec import taken_for
from airunway.runtime.gate import claims_hinder
from airunway.runtime.records import written_for
from airunway.runtime.translate import parsed, unclaimed_volumes

SIZED = {"name": "kernels", "size": "20Gi", "mountPath": "/kernels"}
NAMED = {"name": "data", "claimName": "data", "mountPath": "/data"}


def deployment(*volumes: Resource, parts: list[str] | None = None, **condition: Any) -> Resource:
    said = {"type": "StorageReady", "observedGeneration": 2, **condition}
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "ml", "uid": "u", "generation": 2},
        "spec": {"model": {"id": "a/b", "storage": {"volumes": list(volumes)}}},
        "status": {"parts": ["model-cache"] if parts is None else parts, "conditions": [said] if condition else []},
    }


@pytest.mark.parametrize(
    ("given", "hinders"),
    [
        (deployment(NAMED), None),
        (deployment(SIZED, parts=[]), None),
        (deployment(SIZED), "Waiting until the claims of the volumes are created"),
        (deployment(SIZED, status="True", reason="Bound", observedGeneration=1), "Waiting until"),
        (deployment(SIZED, status="True", reason="Bound"), None),
        (deployment(SIZED, status="False", reason="PvcPending"), None),
        (deployment(SIZED, status="False", reason="ResourceConflict"), ""),
        (deployment(SIZED, status="False", reason="Starting"), ""),
        (deployment(SIZED, status="False", reason="DryRun"), None),
    ],
    ids=["named", "part off", "not said", "of an older spec", "bound", "pending", "conflict", "not made", "dry run"],
)
def test_the_first_object_waits_for_claims_that_are_not_made(
    toy: MakeHost, given: Resource, hinders: str | None
) -> None:
    found = claims_hinder(state(toy(), given))
    assert (found is None) is (hinders is None)
    assert (found or "").startswith(hinders or "")


def test_without_the_part_the_flag_is_named() -> None:
    (found,) = unclaimed_volumes(parsed(deployment(NAMED, SIZED)))
    assert found.path == "spec.model.storage.volumes[1].size"
    assert "--model-cache=on" in found.message


def test_a_claim_that_grows_is_no_change_for_what_mounts_it() -> None:
    small, large, moved = (deployment({**SIZED, **change}) for change in ({}, {"size": "40Gi"}, {"mountPath": "/x"}))
    digests = [(written_for(each, parsed(each)), taken_for(each["spec"], "")) for each in (small, large, moved)]
    assert digests[0] == digests[1]
    assert all(before != after for before, after in zip(digests[0], digests[2], strict=True))
