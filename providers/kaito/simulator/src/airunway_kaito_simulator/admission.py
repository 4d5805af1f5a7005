"""The checks of KAITO's admission webhook that depend only on the objects (bring-your-own nodes).

A webhook server and tests can use these functions. The minimal CRD in this package makes the checks of
`refusals_on_update` with CEL and the same messages. Checks that need KAITO's model catalog or the model hub are
missing: unknown preset names, and a ``max-model-len`` above the model's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from airunway.resource import Resource, dig, key_of
from airunway_kaito_simulator import names
from airunway_kaito_simulator.nodes import matching_nodes

_INSTANCE_TYPE = (
    "invalid value: instanceType must be empty when node auto-provisioning is disabled (BYO scenario): "
    "resource.instanceType"
)


def denial(refusals: Sequence[str]) -> str:
    """The API server's message for errors of the webhook (HTTP 400, reason BadRequest)."""
    listed = "\n".join(refusals)
    return f'admission webhook "validation.workspace.kaito.sh" denied the request: validation failed: {listed}'


def refusals_on_create(workspace: Resource, *, nodes: Iterable[Resource], config_map: Resource | None) -> list[str]:
    """Errors for a new Workspace; empty if it is valid.

    `config_map` is the ConfigMap that ``inference.config`` names; None if the webhook does not know it. The real
    webhook also reports it as missing for some time after its creation (fact 30).
    """
    refusals = []
    preset, template = (dig(workspace, "inference", field) is not None for field in ("preset", "template"))
    if preset and template:
        refusals.append("Preset and Template cannot be set at the same time")
    if dig(workspace, "resource", "instanceType", default=""):
        refusals.append(_INSTANCE_TYPE)
    partitioned = dig(workspace, "resource", "partition") is not None
    if preset and not partitioned and not matching_nodes(workspace, nodes):
        refusals.append("No nodes found matching the specified label selector: ")
    refusals += _adapter_refusals(workspace) if preset else []
    refusals += _config_refusals(workspace, config_map)
    return refusals


def refusals_on_update(old: Resource, new: Resource) -> list[str]:
    """Errors for an edit; empty if it is valid (fact 16)."""
    if ("inference" in old) != ("inference" in new):
        return ["Inference field cannot be toggled once set: spec.inference"]
    refusals = []
    if dig(new, "resource", "instanceType", default="") != dig(old, "resource", "instanceType", default=""):
        refusals.append(_INSTANCE_TYPE)
    refusals += [
        f"field is immutable: resource.{field}"
        for field in ("count", "labelSelector", "partition")
        if dig(old, "resource", field) != dig(new, "resource", field)
    ]
    if (dig(old, "inference", "template") is None) != (dig(new, "inference", "template") is None):
        refusals.append("field cannot be unset/set if it was set/unset: inference.template")
    if dig(old, "inference", "preset") != dig(new, "inference", "preset"):
        refusals.append("field is immutable: inference.preset")
    return refusals


def _adapter_refusals(workspace: Resource) -> list[str]:
    adapters = dig(workspace, "inference", "adapters", default=[])
    refusals = []
    if any(adapter.get("strength") for adapter in adapters):
        refusals.append("Runtime validation: vLLM does not support adapter strength: ")
    seen: set[str] = set()
    for adapter in adapters:
        name = str(dig(adapter, "source", "name", default=""))
        if name in seen:
            refusals.append(f"Duplicate adapter source name found: {name}: ")
        seen.add(name)
    return refusals


def _config_refusals(workspace: Resource, config_map: Resource | None) -> list[str]:
    name = dig(workspace, "inference", "config", default="")
    if not name:
        return []
    if config_map is None:
        namespace = key_of(workspace).namespace
        return [f"ConfigMap '{name}' specified in 'config' not found in namespace '{namespace}': config"]
    text = dig(config_map, "data", names.CONFIG_KEY)
    if text is None:
        return [f"missing field(s): {names.CONFIG_KEY} in ConfigMap"]
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"Failed to parse {names.CONFIG_KEY}: {error}: {names.CONFIG_KEY}"]
    length = dig(content, "vllm", "max-model-len")
    if length is None or str(length).removeprefix("-").isdecimal():
        return []
    parsing = f'strconv.Atoi: parsing "{length}": invalid syntax'
    return [f"invalid value: max-model-len must be an integer: {parsing}: max-model-len"]
