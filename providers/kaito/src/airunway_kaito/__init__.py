"""The AI Runway provider for KAITO, which translates a ModelDeployment to a `kaito.sh` Workspace and its status back.

`provider` is the plugin object that the entry point names; the provider runtime applies and watches the objects.
"""

from airunway.sdk import Provider
from airunway_kaito.compatibility import compatibility
from airunway_kaito.manifest import MANIFEST, TRANSFORMERS
from airunway_kaito.objects import desired
from airunway_kaito.status import observation

__all__ = ["provider"]

provider = Provider(
    MANIFEST,
    TRANSFORMERS,
    can_handle=compatibility,
    translate_spec=desired,
    # The status needs no context.
    translate_status=lambda deployment, observed, _: observation(deployment, observed),
)
