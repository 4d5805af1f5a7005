"""Write the generated files of charts/, or check that they are up to date: python -m tools.charts.generate [--check]

The templates of airunway-common, airunway-crds, airunway, airunway-catalogue and airunway-stack are written by hand. A
provider's chart is generated as a whole: it gets one by being a distribution in providers/ that is installed.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import yaml
from tools.charts.facts import catalogue_files, core_files, policy_property
from tools.charts.metadata import COMMON, chart_file, dependency, readme_file
from tools.charts.scaffold import SCAFFOLD, as_templates, scaffold_manifest
from tools.charts.values import fragment, schema_file, united, values_file
from tools.generated import ROOT, write

from airunway.api.crds import custom_resource_definitions, to_yaml
from airunway.install.bundled_charts import CATALOGUE
from airunway.plugins.contract import ProviderManifest
from airunway.plugins.registry import discover, load
from airunway.resource import Resource
from airunway_testing.conformance.chart import provider_files
from airunway_testing.conformance.settings import settings_property

__all__ = ["generated", "manifests"]

_HERE = Path(__file__).parent
_SHOWN = "vllm"
"""The provider that the umbrella switches on by itself: it needs no other operator."""


def manifests() -> list[ProviderManifest]:
    """The providers of this repository, by name."""
    projects = {
        tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]
        for path in (ROOT / "providers").glob("*/pyproject.toml")
    }
    names = sorted(found.name for found in discover() if found.distribution in projects)
    return [load(name).manifest for name in names]


def generated() -> dict[str, str]:
    """Every generated file's text by its path from the root."""
    charts = {
        COMMON: {"Chart.yaml": chart_file(COMMON, "What the charts of AI Runway have in common", library=True)},
        "airunway-crds": _crds(),
        "airunway": _core(),
        "airunway-catalogue": _catalogue(),
        **{f"airunway-provider-{manifest.name}": _provider(manifest) for manifest in manifests()},
        "airunway-stack": _stack(),
    }
    found = {f"charts/{chart}/{path}": text for chart, files in charts.items() for path, text in files.items()}
    return found | {f"{SCAFFOLD}/{path}": text for path, text in as_templates(_provider(scaffold_manifest())).items()}


def _crds() -> dict[str, str]:
    name, description = "airunway-crds", "The CustomResourceDefinitions of AI Runway, which helm upgrade upgrades too"
    properties = fragment("crds")
    definitions = {
        f"files/crds/{crd['metadata']['name']}.yaml": to_yaml([crd]) for crd in custom_resource_definitions()
    }
    return {
        "Chart.yaml": chart_file(name, description, operator=False),
        "README.md": readme_file(name, description, properties),
        "values.yaml": values_file(properties, title=description),
        "values.schema.json": schema_file(properties, title=name),
        **definitions,
        **_cases("crds"),
    }


def _core() -> dict[str, str]:
    name, description = "airunway", "The core of AI Runway: one Kubernetes API for LLM inference"
    policy = {"policy": {"properties": policy_property()}}
    properties = united(fragment("workload"), fragment("core"), policy, _image("airunway/controller"))
    rooted = {
        "files/dashboard.json": (ROOT / "dashboards" / "airunway.json").read_text(encoding="utf-8"),
        "files/alerts.yaml": (ROOT / "dashboards" / "alerts.yaml").read_text(encoding="utf-8"),
    }
    return {
        "Chart.yaml": chart_file(name, description, dependencies=[dependency(COMMON)]),
        "README.md": readme_file(name, description, properties),
        "values.yaml": values_file(properties, title=description),
        "values.schema.json": schema_file(properties, title=name, dependencies=[COMMON]),
        **core_files(),
        **rooted,
        **_cases("workload", "core"),
    }


def _catalogue() -> dict[str, str]:
    name, description = (
        CATALOGUE,
        "The catalogue of AI Runway: which templates can be used, and images of registries",
    )
    properties = united(fragment("workload"), fragment("catalogue"), _image("airunway/catalogue"))
    return {
        "Chart.yaml": chart_file(name, description, dependencies=[dependency(COMMON)]),
        "README.md": readme_file(name, description, properties),
        "values.yaml": values_file(properties, title=description),
        "values.schema.json": schema_file(properties, title=name, dependencies=[COMMON]),
        **catalogue_files(),
        **_cases("workload", "catalogue"),
    }


def _provider(manifest: ProviderManifest) -> dict[str, str]:
    name = f"airunway-provider-{manifest.name}"
    title = manifest.display_name or manifest.name
    description = f"AI Runway's provider {title}: {manifest.description or 'an upstream of its own'}"
    settings = settings_property(manifest.settings)
    image = _image(f"airunway/provider-{manifest.name}")
    properties = united(fragment("workload"), fragment("provider"), {"settings": settings}, image)
    given = {key: schema["default"] for key, schema in settings["properties"].items()}
    return {
        "Chart.yaml": chart_file(name, description, dependencies=[dependency(COMMON)]),
        "README.md": readme_file(name, description, properties, settings=settings["properties"]),
        "values.yaml": values_file(properties, title=description),
        "values.schema.json": schema_file(properties, title=name, dependencies=[COMMON]),
        **{
            f"templates/{path.name}": path.read_text(encoding="utf-8")
            for path in sorted((_HERE / "provider" / "templates").iterdir())
        },
        **provider_files(manifest),
        **_cases("workload", "provider"),
        "ci/settings-values.yaml": yaml.safe_dump({"settings": given}, sort_keys=False),
    }


def _stack() -> dict[str, str]:
    name, description = "airunway-stack", "All of AI Runway in one release, for a first look"
    providers = [manifest.name for manifest in manifests()]
    parts = {"airunway-crds": True, "airunway": True, CATALOGUE: False}
    parts |= {f"airunway-provider-{provider}": provider == _SHOWN for provider in providers}
    properties: Resource = {
        part: {
            "type": "object",
            "description": f"The values of the chart {part}, and whether it is part of the release.",
            "additionalProperties": True,
            "properties": {"enabled": {"type": "boolean", "default": on, "description": f"Whether {part} is there."}},
        }
        for part, on in parts.items()
    }
    dependencies = [dependency(part, condition=f"{part}.enabled") for part in parts]
    return {
        "Chart.yaml": chart_file(name, description, dependencies=dependencies),
        "README.md": readme_file(name, description, properties, notes=_STACK),
        "values.yaml": values_file(properties, title=description),
        "values.schema.json": schema_file(properties, title=name),
        "ci/default-values.yaml": "{}\n",
        "ci/all-values.yaml": yaml.safe_dump({part: {"enabled": True} for part in parts}, sort_keys=False),
    }


_STACK = (
    "For anything that lasts, install the parts by themselves: each is upgraded and rolled back alone, and the CRDs "
    "have a release of their own."
)


def _image(repository: str) -> Resource:
    return {"image": {"properties": {"repository": {"default": repository}}}}


def _cases(*folders: str) -> dict[str, str]:
    """The values with which a chart is tried."""
    return {
        f"ci/{path.name}": path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((_HERE / "ci" / folder).glob("*-values.yaml"))
    }


if __name__ == "__main__":
    sys.exit(write(generated()))
