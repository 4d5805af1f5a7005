"""The configuration of the picker that stands behind a gateway's pool: which workers it may choose, by what."""

from __future__ import annotations

from airunway.sdk import Resource

__all__ = ["picker_config"]

_TYPE, _SUB_TYPE = "nvidia.com/dynamo-component-type", "nvidia.com/dynamo-sub-component-type"


def picker_config(*, split: bool, listed: bool) -> Resource:
    """One profile for the worker that answers, and where prefill is `split` off one for that before it.

    A graph whose components are `listed` (v1beta1) has the role of a worker in the type itself.
    """
    roles = ("prefill", "decode") if split else ("decode",)
    plugins: list[Resource] = [{"type": "disagg-profile-handler"}, {"name": "picker", "type": "max-score-picker"}]
    profiles = []
    for role in roles:
        type_ = role if split or not listed else "worker"
        label = _TYPE if listed else _SUB_TYPE
        workers = {"label": label, "validValues": [type_], "allowsNoLabel": not split and not listed}
        plugins += [
            {"name": f"{role}-filter", "type": "label-filter", "parameters": workers},
            {"name": f"dyn-{role}", "type": f"dyn-{role}-scorer"},
        ]
        used = (f"{role}-filter", f"dyn-{role}", "picker")
        profiles.append({"name": role, "plugins": [{"pluginRef": name, "weight": 1} for name in used]})
    return {"config": {"plugins": plugins, "schedulingProfiles": profiles}}
