"""The AI Runway provider for NVIDIA Dynamo: a ModelDeployment becomes a `nvidia.com` DynamoGraphDeployment.

Translation and data only. What runs is decided once (`plan`); the two API versions are two ways of writing it down
(`v1alpha1`, `v1beta1`). `provider` is the plugin object that the entry point names.
"""

from airunway_dynamo.provider import provider

__all__ = ["provider"]
