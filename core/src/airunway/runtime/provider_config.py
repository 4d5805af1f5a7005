"""The InferenceProviderConfig that a provider's manifest amounts to. Pure."""

from __future__ import annotations

import orjson

from airunway.api import names
from airunway.plugins.contract import ProviderManifest
from airunway.resource import Resource

__all__ = ["config_object"]


def config_object(manifest: ProviderManifest) -> Resource:
    """The InferenceProviderConfig (spec and annotations) that the manifest amounts to."""
    engines = []
    for engine in manifest.engines:
        entry: Resource = {
            "name": engine.name,
            "servingModes": list(engine.serving_modes),
            "gpuSupport": engine.gpu_support,
            "cpuSupport": engine.cpu_support,
        }
        if engine.api_formats:
            entry["apiFormats"] = list(engine.api_formats)
        if engine.requires_crd is not None:
            entry["requiresCRD"] = engine.requires_crd
        for flag, value in (
            ("modelCache", engine.model_cache),
            ("pathRouting", engine.path_routing),
            ("scaleToZero", engine.scale_to_zero),
            ("multiNode", engine.multi_node),
        ):
            if value:
                entry[flag] = True
        if engine.gateway is not None:
            entry["gateway"] = dict(engine.gateway)
        engines.append(entry)
    help_ = manifest.installation
    installation: Resource = {
        "description": help_.description,
        "defaultNamespace": help_.default_namespace,
        "helmRepos": [dict(repo) for repo in help_.helm_repos],
        "helmCharts": [dict(chart) for chart in help_.helm_charts],
        "steps": [dict(step) for step in help_.steps],
    }
    installation = {key: value for key, value in installation.items() if value}
    spec: Resource = {
        "capabilities": {"engines": engines},
        "selection": manifest.selection.value,
        "contractVersions": list(manifest.contract_versions),
        "upstream": [
            {
                "group": kind.group,
                "kind": kind.kind,
                "versions": list(kind.versions),
                "requiresCRD": kind.required and not kind.builtin,
            }
            for kind in sorted(manifest.upstream, key=lambda kind: not kind.primary)
        ],
    }
    if manifest.selection_rules:
        spec["selectionRules"] = [
            {"condition": rule.condition, "priority": rule.priority} for rule in manifest.selection_rules
        ]
    if installation:
        spec["installation"] = installation
    if manifest.documentation:
        spec["documentation"] = manifest.documentation
    # The Go project's dashboards read these annotations (spec/api.md, "InferenceProviderConfig").
    annotations = {
        f"{names.GROUP}/display-name": manifest.display_name or manifest.name,
        f"{names.GROUP}/description": manifest.description,
        f"{names.GROUP}/default-namespace": help_.default_namespace,
        f"{names.GROUP}/documentation-url": manifest.documentation,
        f"{names.GROUP}/documentation": manifest.documentation,
        f"{names.GROUP}/capabilities": orjson.dumps({"engines": engines}).decode(),
        f"{names.GROUP}/installation": orjson.dumps(installation).decode() if installation else "",
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "InferenceProviderConfig",
        "metadata": {"name": manifest.name, "annotations": {key: text for key, text in annotations.items() if text}},
        "spec": spec,
    }
