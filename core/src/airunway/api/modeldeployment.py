"""Placeholder so that the workspace imports; replaced by the real types."""

from pydantic import BaseModel


class ModelDeployment(BaseModel):
    pass
