"""Deployments of a file or a cluster with what their templates give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunway.resource import Resource, dig, key_of
from airunway.status.rollup import Fault
from airunway.templates.choice import request_of
from airunway.templates.expansion import effective, recorded_contribution

if TYPE_CHECKING:
    from airunway.templates.part import TemplatePart


class SpecError(ValueError):
    """A spec that no API server would store; the message names the deployment."""


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A deployment that a command works on."""

    own: Resource
    """As it was read."""
    deployment: Resource
    """With its effective spec; as it was read where that is not known."""
    part: TemplatePart | None = None
    """What its template adds; None: it names no template."""

    @property
    def problem(self) -> str:
        """Why it is not known what its template gives; empty if it is."""
        return self._fault.message if self._fault is not None else ""

    @property
    def reason(self) -> str:
        """The same as one word."""
        return self._fault.reason if self._fault is not None else ""

    @property
    def record(self) -> Resource | None:
        """What is recorded of the template in use, or would be: reference, hash and values."""
        part = self.part
        record = dig(part.status if part is not None else self.own.get("status"), "effectiveTemplate")
        given = part.value if part is not None else dig(self.own, "status", "revision", "template")
        return {**record, "spec": dig(given, "spec", default={})} if isinstance(record, dict) else None

    @property
    def origin(self) -> str:
        """Kind, namespace and name of the template in use; empty without one."""
        ref = dig(self.record, "ref")
        return reference_text(ref) if isinstance(ref, dict) else ""

    @property
    def _fault(self) -> Fault | None:
        return self.part.fault if self.part is not None and self.part.unresolved else None


def expanded(deployments: Sequence[Resource], templates: Sequence[Resource]) -> list[Expanded]:
    """Returns each deployment with what its template gives: as the core has recorded it, else found among these.

    Raises SpecError for a spec that no API server would store.
    """
    return [
        _expanded(each, templates) if is_open(each) else Expanded(own=each, deployment=effective(each))
        for each in deployments
    ]


def _expanded(deployment: Resource, templates: Sequence[Resource]) -> Expanded:
    from airunway.templates.part import source_among, template_part

    try:
        part = template_part(deployment, source_among(templates))
    except TypeError as error:  # nested deeper than is written as JSON, or a number beyond 64 bits
        raise SpecError(f"ModelDeployment {key_of(deployment)}: its spec cannot be read: {error}") from error
    return Expanded(own=deployment, deployment=part.deployment, part=part)


def is_open(deployment: Resource) -> bool:
    """Returns whether it asks for a template, and the core has not recorded what that gives."""
    spec = deployment.get("spec")
    request = request_of(spec) if isinstance(spec, dict) else None
    if request is None:
        return False
    asked = dig(deployment, "status", "revision", "template", "asked")
    return recorded_contribution(deployment) is None or asked != request.digest


def reference_text(ref: Resource) -> str:
    """Returns kind, namespace and name of a reference."""
    where = f"{ref['namespace']}/" if ref.get("namespace") else ""
    return f"{ref.get('kind')} {where}{ref.get('name')}"
