"""The bill of materials of an image (CycloneDX), and whether all of it may be there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution
from typing import Any

import yaml
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from license_expression import ExpressionError, ParseError, get_spdx_licensing
from packageurl import PackageURL
from tools.generated import ROOT
from tools.images.base import Package
from tools.images.programs import Program

__all__ = ["LicenceError", "bill", "licence_of", "problems"]

_LICENCES = ROOT / "images" / "licences.yaml"
_SPDX = get_spdx_licensing()


class LicenceError(Exception):
    """Something must not be in an image, or nobody knows whether it may."""


def licence_of(distribution: Distribution) -> str:
    """Its licence as an SPDX expression. Raises LicenceError if its metadata has none that is known."""
    rules, metadata = _rules(), distribution.metadata
    name = str(metadata["Name"])
    fields = ("License-Expression", "License", "Classifier")
    for text in (text for field in fields for text in metadata.get_all(field) or []):
        licence = str(rules["words"].get(text, text))
        try:
            _SPDX.parse(licence, validate=True, strict=True)
        except (ExpressionError, ParseError):  # words, or a whole licence
            continue
        return licence
    stated = rules["stated"].get(name.lower())
    if stated is None:
        raise LicenceError(f"{name} names no licence that is known: look into it, and enter it in images/licences.yaml")
    return str(stated)


def problems(distributions: Iterable[Distribution]) -> list[str]:
    """What is wrong with the licences of these, one sentence each."""
    allowed = set(_rules()["allowed"])
    found = []
    for distribution in distributions:
        name = distribution.metadata["Name"]
        try:
            licence = licence_of(distribution)
        except LicenceError as error:
            found.append(str(error))
            continue
        others = set(map(str, _SPDX.parse(licence).objects)) - allowed
        if others:
            found.append(f"{name} is under {licence}; images/licences.yaml does not allow {', '.join(sorted(others))}")
    return found


def bill(
    title: str,
    version: str,
    distributions: Iterable[Distribution],
    packages: Sequence[Package],
    time: int,
    *,
    programs: Sequence[Program] = (),
) -> str:
    """The bill as JSON (CycloneDX 1.6), the same for the same contents; Debian's copyright files have its licences."""
    made = Bom()
    made.metadata.component = Component(name=title, version=version, type=ComponentType.CONTAINER, bom_ref=title)
    made.metadata.timestamp = datetime.fromtimestamp(time, UTC)
    for distribution in distributions:
        name, release = str(distribution.metadata["Name"]), distribution.version
        url = PackageURL(type="pypi", name=re.sub(r"[-_.]+", "-", name).lower(), version=release)
        made.components.add(
            Component(
                name=name,
                version=release,
                purl=url,
                bom_ref=str(url),
                licenses=[LicenseExpression(value=licence_of(distribution))],
            )
        )
    for package in packages:
        url = PackageURL(
            type="deb",
            namespace="debian",
            name=package.name,
            version=package.version,
            qualifiers={"arch": package.architecture, "distro": "debian-13"},
        )
        made.components.add(Component(name=package.name, version=package.version, purl=url, bom_ref=str(url)))
    for program in programs:
        licence = LicenseExpression(value="Apache-2.0")
        made.components.add(
            Component(
                name=program.name,
                version=program.version,
                purl=program.url,
                bom_ref=str(program.url),
                licenses=[licence],
            )
        )
    made.register_dependency(made.metadata.component, made.components)
    made.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(sorted(str(each.purl) for each in made.components)))
    return JsonV1Dot6(made).output_as_string(indent=2) + "\n"


def _rules() -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(_LICENCES.read_text(encoding="utf-8"))
    return rules
