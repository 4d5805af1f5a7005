"""The kinds that only this simulated operator reads and writes."""

from __future__ import annotations

from airunway.kube import Kind
from airunway_dynamo_simulator import names

COMPONENT_DEPLOYMENT = Kind(names.API_GROUP, "v1alpha1", "DynamoComponentDeployment", "dynamocomponentdeployments")
POD_CLIQUE = Kind(names.GROVE_GROUP, "v1alpha1", "PodClique", "podcliques")


def graphs(version: str) -> Kind:
    """DynamoGraphDeployments in one version."""
    return Kind(names.API_GROUP, version, "DynamoGraphDeployment", "dynamographdeployments")
