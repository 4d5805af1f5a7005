"""Names and kinds of the toy upstream."""

from __future__ import annotations

from airunway.kube import Kind

GROUP = "testing.airunway.ai"
TOY = Kind(GROUP, "v1beta1", "Toy", "toys")
TOY_OLD = Kind(GROUP, "v1alpha1", "Toy", "toys")
TOY_BOX = Kind(GROUP, "v1", "ToyBox", "toyboxes")
PART = Kind(GROUP, "v1", "ToyPart", "toyparts")

TOY_LABEL = f"{GROUP}/toy"
"""Label with the Toy's name on its pods and parts."""
FINALIZER = f"toy.{GROUP}/parts"
MANAGER = "toy-operator"
"""Field manager of the simulator's writes; different from every manager of AI Runway."""
