"""Pods and containers at places that the manifest has to name: a guard and a site's wrappers go by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airunway.sdk import ProviderManifest, Resource, UpstreamKind
from airunway_testing.conformance.places import guarded_faults
from airunway_testing.toy.provider import MANIFEST

BARE: Resource = {"containers": [{"name": "main", "image": "vllm", "args": ["serve"]}]}


def manifest(**places: Any) -> ProviderManifest:
    kind = UpstreamKind(group="acme.io", kind="Server", plural="servers", versions=("v1",), primary=True, **places)
    return replace(MANIFEST, upstream=(kind,))


def faults(spec: Resource, **places: Any) -> list[str]:
    server = {"apiVersion": "acme.io/v1", "kind": "Server", "metadata": {"name": "model"}, "spec": spec}
    return list(guarded_faults(manifest(**places), "model", [server]))


def test_pods_outside_of_a_template_are_to_be_named() -> None:
    (fault,) = faults({"template": BARE}, labels={})
    assert "pods at a place that the manifest does not name" in fault


def test_pods_outside_of_a_template_are_to_have_a_place_for_labels_or_none() -> None:
    (fault,) = faults({"template": BARE, "labels": {}}, pods=("spec.template",))
    assert "the pods of spec.template stand outside of a pod template" in fault
    assert "say in the kind's labels" in fault
    for place in ("spec.labels", ""):
        assert faults({"template": BARE}, pods=("spec.template",), labels={"spec.template": place}) == []


def test_pods_in_a_template_need_no_place_for_labels() -> None:
    assert faults({"template": {"metadata": {}, "spec": BARE}}, pods=("spec.template.spec",)) == []


def test_containers_that_no_pod_has_are_to_be_named() -> None:
    spec = {"main": {"image": "vllm", "env": []}, "others": [{"image": "busybox"}]}
    (fault,) = faults(spec)
    assert fault.startswith("Server.acme.io: spec.main looks like a container")
    assert faults(spec, containers=("spec.main",)) == []
