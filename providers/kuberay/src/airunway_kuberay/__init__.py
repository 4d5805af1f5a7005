"""The AI Runway provider for KubeRay, which translates a ModelDeployment to a RayService that runs Ray Serve LLM.

`provider` is the plugin object that the entry point names.
"""

from airunway.sdk import Provider
from airunway_kuberay.compatibility import compatibility
from airunway_kuberay.manifest import MANIFEST, TRANSFORMERS
from airunway_kuberay.objects import desired_objects
from airunway_kuberay.status import observation

__all__ = ["provider"]

provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=compatibility, translate_spec=desired_objects, translate_status=observation
)
