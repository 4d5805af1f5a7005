"""The ModelDeployment: what the user writes and what the controllers report (spec/api.md)."""

from __future__ import annotations

from pydantic import Field, model_validator

from airunway.api._base import ApiModel, ObjectMeta, ParseError, parse_model
from airunway.api._deployment_spec import (
    DEFAULT_GPU_TYPE,
    Engine,
    GatewayReference,
    GatewaySpec,
    Gpu,
    Model,
    ModelCacheSpec,
    ModelDeploymentSpec,
    PodTemplate,
    PodTemplateMetadata,
    ProviderSpec,
    Resources,
    RoleSpec,
    Scaling,
    Secrets,
    Serving,
    Storage,
    Volume,
)
from airunway.api._deployment_status import ModelDeploymentStatus
from airunway.api._deployment_storage import volume_claim_name
from airunway.api._pods import EnvVar, LocalObjectReference, Toleration
from airunway.api.names import API_VERSION
from airunway.resource import Resource

__all__ = [
    "DEFAULT_GPU_TYPE",
    "KIND",
    "PLURAL",
    "Engine",
    "EnvVar",
    "GatewayReference",
    "GatewaySpec",
    "Gpu",
    "LocalObjectReference",
    "Model",
    "ModelCacheSpec",
    "ModelDeployment",
    "ModelDeploymentSpec",
    "ModelDeploymentStatus",
    "ObjectMeta",
    "ParseError",
    "PodTemplate",
    "PodTemplateMetadata",
    "ProviderSpec",
    "Resources",
    "RoleSpec",
    "Scaling",
    "Secrets",
    "Serving",
    "Storage",
    "Toleration",
    "Volume",
    "parse_deployment",
    "volume_claim_name",
]

KIND = "ModelDeployment"
PLURAL = "modeldeployments"


class ModelDeployment(ApiModel):
    """A model to serve: one object, whatever engine and provider run it."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: ModelDeploymentSpec = Field(description="What is to run. Required.")
    status: ModelDeploymentStatus = Field(
        default_factory=ModelDeploymentStatus, description="What is running, written by the controllers only."
    )

    @model_validator(mode="after")
    def _name_created_claims(self) -> ModelDeployment:
        for volume in self.spec.model.storage.volumes:
            if volume.size is not None and volume.claim_name is None:
                volume.claim_name = volume_claim_name(self.metadata.name, volume.name)
        return self


def parse_deployment(obj: Resource) -> ModelDeployment:
    """Parses a ModelDeployment and fills in every default (spec ruling 4: no GPU is ever added).

    Never fails for an object that the CRD accepts. Otherwise raises ParseError with the path and the problem.
    """
    return parse_model(ModelDeployment, obj)
