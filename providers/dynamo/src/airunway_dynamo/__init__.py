"""The AI Runway provider for NVIDIA Dynamo, which translates a ModelDeployment to a `nvidia.com` DynamoGraphDeployment.

`provider` is the plugin object that the entry point names.
"""

from airunway.sdk import Provider
from airunway_dynamo.compatibility import compatibility
from airunway_dynamo.graph import desired
from airunway_dynamo.manifest import MANIFEST, TRANSFORMERS
from airunway_dynamo.status import observation

__all__ = ["provider"]

provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=compatibility, translate_spec=desired, translate_status=observation
)
