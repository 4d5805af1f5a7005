"""The charts in the installed wheels: CRDs, core, catalogue and providers; each chart has the name of its Helm release.

`airunway` has the charts ``airunway-crds`` and ``airunway``, `airunway-kaito` has ``airunway-provider-kaito``. A
provider's wheel is found by its entry point, without importing it. See docs/decisions/0014-what-wheels-carry.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from airunway.api import names
from airunway.plugins.registry import discover
from airunway.resource import Resource

DEFINITIONS, CORE, CATALOGUE = "airunway-crds", "airunway", "airunway-catalogue"

_ADD_ON = "airunway_catalogue"
"""The package with the chart of the catalogue."""
_FOLDER = "charts"
_REGISTRY = "registry"
"""The file that names the registry of the release's images."""

_UNSET = ".example"
"""The reserved top-level domain: the registry in wheels that were built without one."""


class ChartNotBundled(Exception):
    """No installed wheel has the chart; the message says what to install."""


@dataclass(frozen=True, kw_only=True)
class BundledChart:
    """A chart, and its manifests for the default namespace."""

    name: str
    chart: Path
    manifests: Path


provider_part = names.provider_manager
"""The part of a provider: its chart and release have the name of its field manager."""
provider_of = names.provider_of_manager
"""The provider of a part; empty for the CRDs, the core and the catalogue."""


def in_order(names: Iterable[str]) -> list[str]:
    """The parts among these names, in the order of installation."""
    found = set(names)
    return [part for part in (DEFINITIONS, CORE, CATALOGUE) if part in found] + sorted(filter(provider_of, found))


def bundled(part: str) -> BundledChart:
    """The files of a part. Raises ChartNotBundled."""
    folder = _package(part) / _FOLDER
    found = BundledChart(name=part, chart=folder / f"{part}.tgz", manifests=folder / f"{part}.yaml")
    if not found.chart.is_file() or not found.manifests.is_file():
        raise ChartNotBundled(
            f"the installed wheel of {part} has no chart (a checkout has none): install the wheel of a release, or "
            "install the chart with helm (docs/install)"
        )
    return found


def released_to(*, needed: bool) -> str:
    """The registry of this release's images. Raises ChartNotBundled if it is `needed` and the wheel has none."""
    found = (bundled(CORE).manifests.parent / _REGISTRY).read_text(encoding="utf-8").strip()
    if needed and found.partition("/")[0].endswith(_UNSET):
        raise ChartNotBundled(
            "these wheels were built without a registry: name the one that has the images with --registry"
        )
    return found


def placed(obj: Resource, *, namespace: str, images: tuple[str, str]) -> Resource:
    """An object of a chart with another namespace and another registry; `images` are the old and the new one.

    Images are also named in options of commands and in the expressions of guards, not only in fields of their own.
    """
    before, after = images
    registry = re.compile(rf"(?<![\w./:@-]){re.escape(before)}/")

    def renamed(text: str) -> str:
        return registry.sub(lambda _: f"{after}/", text.replace(names.DEFAULT_NAMESPACE, namespace))

    return cast("Resource", _with_texts(obj, renamed))


def _with_texts(node: Any, change: Callable[[str], str]) -> Any:
    if isinstance(node, str):
        return change(node)
    if isinstance(node, list):
        return [_with_texts(each, change) for each in node]
    if isinstance(node, dict):
        return {key: _with_texts(value, change) for key, value in node.items()}
    return node


def _package(part: str) -> Path:
    """The folder of the package that has the chart of a part. Raises ChartNotBundled."""
    provider = provider_of(part)
    if part == CATALOGUE:
        return _folder_of(_ADD_ON, missing=f"install its wheel beside airunway: pip install {CATALOGUE}")
    if not provider:
        return Path(__file__).parents[1]
    found = [each for each in discover() if each.name == provider]
    if not found:
        installed = ", ".join(each.name for each in discover()) or "none"
        raise ChartNotBundled(
            f"provider {provider} is not installed here (installed: {installed}): install its wheel beside airunway, "
            f"e.g. pip install airunway-{provider}"
        )
    if len(found) > 1:
        raise ChartNotBundled(
            f"several distributions register provider {provider}: {', '.join(each.distribution for each in found)}; "
            "uninstall all but one"
        )
    package = found[0].entry_point.module.partition(".")[0]
    return _folder_of(package, missing=f"{found[0].distribution} has no package {package}, which its entry point names")


def _folder_of(package: str, *, missing: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ChartNotBundled(missing)
    return Path(spec.submodule_search_locations[0])
