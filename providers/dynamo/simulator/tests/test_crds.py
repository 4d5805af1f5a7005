"""What the simulated operator writes is a status that Dynamo's own CRDs take, in each version that they have."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from airunway.resource import Resource
from airunway_dynamo_simulator.scenarios import scripted_status
from airunway_testing.simulators.scenarios import parse_scenario

WORDS = ["instant", "never-ready", "no-nodes", "fails:rolling_update_failed", "error:words"]
MAIN = {"name": "main", "image": "registry.example/runtime:1.3.1"}
GRAPHS = {
    "v1alpha1": {
        "services": {
            "Frontend": {"componentType": "frontend", "extraPodSpec": {"mainContainer": MAIN}},
            "worker": {"componentType": "worker", "extraPodSpec": {"mainContainer": MAIN}},
        }
    },
    "v1beta1": {
        "components": [
            {"name": "Frontend", "type": "frontend", "podTemplate": {"spec": {"containers": [MAIN]}}},
            {"name": "worker", "type": "worker", "podTemplate": {"spec": {"containers": [MAIN]}}},
        ]
    },
}


def closed(schema: Any) -> Any:
    """The same, but that nothing is taken which it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.parametrize("release", ["v1.0.0", "v1.1.0-cut", "v1.2.0-cut", "v1.4.0-cut", "main-2a6da14"])
def test_statuses_fit_the_schemas(recordings: Path, release: str) -> None:
    path = recordings / "upstream-crds" / "dynamo" / release / "dynamographdeployments.yaml"
    if not path.exists():
        pytest.skip(f"not beside the checkout: {path.parent}")
    versions = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    for version in versions:
        schema = closed(version["schema"]["openAPIV3Schema"]["properties"]["status"])
        for word in WORDS:
            graph: Resource = {
                "metadata": {"name": "llama", "namespace": "default", "generation": 1},
                "spec": GRAPHS[version["name"]],
            }
            status = scripted_status(graph, parse_scenario(word), "2026-01-01T00:00:00Z")
            jsonschema.validate(status, schema)
