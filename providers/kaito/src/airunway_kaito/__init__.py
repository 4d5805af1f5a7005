"""The AI Runway provider for KAITO: a ModelDeployment becomes a `kaito.sh` Workspace, and its status comes back.

Translation and data only; the loop that applies and watches is the provider runtime's (spec/providers.md). `provider`
is the plugin object that the entry point names.
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
    # A status says all that there is to know: nothing of the context is needed.
    translate_status=lambda deployment, observed, _: observation(deployment, observed),
)
