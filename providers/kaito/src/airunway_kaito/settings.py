"""The provider's own configuration (`context.settings`, from its chart) as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BRING_YOUR_OWN", "Settings", "SettingsError", "settings_from"]

BRING_YOUR_OWN = "byo"


class SettingsError(ValueError):
    """A provider setting is unknown or has the wrong type."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How KAITO is run in this cluster.

    `node_provisioner` is KAITO's own `--node-provisioner`: ``byo`` (nodes exist) or the name of what makes them; then
    `instance_type` (GPU) and `cpu_instance_type` say which machines, and `instance_types` (patterns with * and ?) which
    others a deployment may name; where none is configured and none is listed, it may name any. The node selectors are
    what a node must carry to be used at all. `partition` holds presets to exactly ``gpu.count`` GPUs (needs KAITO's
    gate enableAccelerator).
    """

    node_provisioner: str = BRING_YOUR_OWN
    instance_type: str = ""
    cpu_instance_type: str = ""
    instance_types: tuple[str, ...] = ()
    partition: bool = False
    vllm_image: str = "vllm/vllm-openai:v0.23.0"
    gpu_node_selector: Mapping[str, str] = field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    cpu_node_selector: Mapping[str, str] = field(default_factory=lambda: {"kubernetes.io/os": "linux"})

    @property
    def provisions_nodes(self) -> bool:
        return self.node_provisioner != BRING_YOUR_OWN


_NAMES = {
    "nodeProvisioner": "node_provisioner",
    "instanceType": "instance_type",
    "cpuInstanceType": "cpu_instance_type",
    "instanceTypes": "instance_types",
    "partition": "partition",
    "vllmImage": "vllm_image",
    "gpuNodeSelector": "gpu_node_selector",
    "cpuNodeSelector": "cpu_node_selector",
}


def settings_from(values: Mapping[str, Any]) -> Settings:
    """The settings as given, defaults where absent.

    Raises SettingsError, naming the setting, on an unknown name or a value of the wrong type.
    """
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _NAMES:
            raise SettingsError(f"unknown KAITO provider setting {name!r}; known: {', '.join(_NAMES)}")
        if name == "instanceTypes":
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                raise SettingsError(f"KAITO provider setting {name!r} must be a list of texts")
            given[_NAMES[name]] = tuple(value)
            continue
        kind = bool if name == "partition" else dict if name.endswith("NodeSelector") else str
        if not isinstance(value, kind):
            raise SettingsError(
                f"KAITO provider setting {name!r} must be a {kind.__name__}, not {type(value).__name__}"
            )
        given[_NAMES[name]] = value
    return Settings(**given)
