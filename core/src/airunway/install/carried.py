"""What installs a part, as a release puts it into the wheels: its chart, and what the chart renders to.

CRDs and core are in the core's own distribution, a provider in that which registers it: found by its entry point, and
nothing of it is imported. See docs/decisions/0014-what-wheels-carry.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from airunway.install.parts import CORE, NAMESPACE, provider_of
from airunway.plugins.registry import discover
from airunway.resource import Resource

__all__ = ["Carried", "NotCarried", "carried", "placed", "released_to"]

_FOLDER = "charts"
_REGISTRY = "registry"
"""A file in the core's folder: where the images of the release are."""

_NOBODY = ".example"
"""The top-level domain that is nobody's: in a wheel that was built for no registry."""


class NotCarried(Exception):
    """No distribution here carries what was asked for; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A part's chart as a package, and what it renders to for the namespace `NAMESPACE`."""

    name: str
    chart: Path
    manifests: Path


def carried(part: str) -> Carried:
    """The files of a part. Raises NotCarried."""
    folder = _package(part) / _FOLDER
    found = Carried(name=part, chart=folder / f"{part}.tgz", manifests=folder / f"{part}.yaml")
    if not found.chart.is_file() or not found.manifests.is_file():
        raise NotCarried(
            f"the distribution of {part} that is installed here carries no chart, as a checkout does not: install a "
            "release's wheel, or its charts (docs/install)"
        )
    return found


def released_to(*, needed: bool) -> str:
    """The registry of this release's images. If it is `needed`, a wheel that was built for none raises NotCarried."""
    found = (carried(CORE).manifests.parent / _REGISTRY).read_text(encoding="utf-8").strip()
    if needed and found.partition("/")[0].endswith(_NOBODY):
        raise NotCarried("these wheels were built for no registry: say where the images are with --registry")
    return found


def placed(obj: Resource, *, namespace: str, images: tuple[str, str]) -> Resource:
    """An object of a chart for a namespace, as helm would render it; `images` are the registry that it names and the
    one that it is to name.
    """
    before, after = images

    def renamed(text: str) -> str:
        text = text.replace(NAMESPACE, namespace)
        return f"{after}/{text.removeprefix(f'{before}/')}" if text.startswith(f"{before}/") else text

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
    """The folder of the package that carries a part. Raises NotCarried."""
    provider = provider_of(part)
    if not provider:
        return Path(__file__).parents[1]
    found = [each for each in discover() if each.name == provider]
    if not found:
        installed = ", ".join(each.name for each in discover()) or "none"
        raise NotCarried(
            f"no distribution that is installed here brings provider {provider} (installed: {installed}): "
            f"install it beside airunway, e.g. pip install airunway-{provider}"
        )
    if len(found) > 1:
        raise NotCarried(f"provider {provider} is brought by {', '.join(each.distribution for each in found)}")
    package = found[0].entry_point.module.partition(".")[0]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise NotCarried(f"{found[0].distribution} has no package {package}, which its entry point names")
    return Path(spec.submodule_search_locations[0])
