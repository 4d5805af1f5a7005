"""The kinds that only the simulated KAITO reads and writes."""

from __future__ import annotations

from airunway.kube import Kind
from airunway_kaito_simulator import names

WORKSPACE = Kind(names.GROUP, "v1beta1", "Workspace", "workspaces")
INFERENCE_SET = Kind(names.GROUP, "v1beta1", "InferenceSet", "inferencesets")
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
SECRET = Kind("", "v1", "Secret", "secrets")
