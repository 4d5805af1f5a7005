"""What a provider's InferenceProviderConfig says of it: its manifest, as an object."""

from __future__ import annotations

import orjson

from airunway.api import names
from airunway.plugins.contract import ProviderManifest
from airunway.resource import Resource, filled


def config_object(manifest: ProviderManifest) -> Resource:
    """The InferenceProviderConfig (spec and annotations) for a manifest."""
    engines = [
        filled(
            name=engine.name,
            servingModes=list(engine.serving_modes),
            gpuSupport=engine.gpu_support,
            cpuSupport=engine.cpu_support,
            apiFormats=list(engine.api_formats),
            tasks=list(engine.tasks) if engine.tasks != ("generate",) else None,
            requiresCRD=engine.requires_crd,
            modelCache=engine.model_cache or None,
            imageVolumes=engine.image_volumes or None,
            pathRouting=engine.path_routing or None,
            scaleToZero=engine.scale_to_zero or None,
            autoscaling=engine.autoscaling if engine.autoscaling != "Scale" else None,
            multiNode=engine.multi_node or None,
            modelCacheHelpers=(engine.model_cache and engine.cache_helpers) or None,
            gateway=dict(engine.gateway or {}),
        )
        for engine in manifest.engines
    ]
    help_ = manifest.installation
    installation = filled(
        description=help_.description,
        defaultNamespace=help_.default_namespace,
        helmRepos=[dict(repo) for repo in help_.helm_repos],
        helmCharts=[dict(chart) for chart in help_.helm_charts],
        steps=[dict(step) for step in help_.steps],
    )
    upstream = [
        {
            "group": kind.group,
            "kind": kind.kind,
            "versions": list(kind.versions),
            "requiresCRD": kind.required and not kind.builtin,
        }
        for kind in sorted(manifest.upstream, key=lambda kind: not kind.primary)
    ]
    spec = filled(
        capabilities={"engines": engines},
        selection=manifest.selection.value,
        contractVersions=list(manifest.contract_versions),
        upstream=upstream,
        selectionRules=[{"condition": rule.condition, "priority": rule.priority} for rule in manifest.selection_rules],
        installation=installation,
        documentation=manifest.documentation,
    )
    # The Go project's dashboards read these annotations.
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
        "metadata": {"name": manifest.name, "annotations": filled(**annotations)},
        "spec": spec,
    }
