"""Finds the templates of deployments that a command has read: in the same file, else in the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from airunway.cli import cluster
from airunway.cli.manifests import ManifestError
from airunway.redaction import printable
from airunway.resource import ObjectKey, Resource, dig, key_of

if TYPE_CHECKING:
    from airunway.controller.templates import TemplatePart
    from airunway.kube import Client, Kind
    from airunway.status.rollup import Fault
    from airunway.view import Unseen


@dataclass(frozen=True, kw_only=True)
class TemplateSet:
    """Templates that were read."""

    templates: tuple[Resource, ...] = ()
    """With their kinds."""
    unseen: tuple[Unseen, ...] = ()
    """What was not read, and which right would show it."""


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
    def _fault(self) -> Fault | None:
        return self.part.fault if self.part is not None and self.part.unresolved else None


def with_templates(
    deployments: Sequence[Resource],
    given: Sequence[Resource],
    *,
    access: cluster.Access,
    on_cluster: bool,
) -> list[Expanded]:
    """Each deployment with what its template gives, found among those `given` and those of the cluster.

    With `on_cluster` the command reads a cluster anyway: templates of both are candidates, and those given replace
    those of the same name. Without it the cluster is read only for deployments whose template is not given. What may
    not be read is printed on standard error. Exits with 1 on other errors of the cluster.
    """
    asking = [each for each in deployments if _is_open(each)]
    found = expanded(deployments, given)
    if not asking:
        return found
    if not on_cluster:
        missing = next((each for each in found if each.reason == "TemplateNotFound"), None)
        if missing is None:
            return found
        text = f"{key_of(missing.own)}: its template is in none of the files: the cluster's templates are read"
        click.echo(printable(f"airunway: {text}"), err=True)
    read = cluster.on_cluster(lambda client: read_for(client, asking), access)
    for each in read.unseen:
        click.echo(printable(f"airunway: {each}: they count as absent here"), err=True)
    return expanded(deployments, with_given(read.templates, given))


def expanded(deployments: Sequence[Resource], templates: Sequence[Resource]) -> list[Expanded]:
    """Each deployment with what its template gives: as the core has recorded it, else found among these templates.

    Raises ManifestError for a spec that no API server would store.
    """
    from airunway.templates.expansion import effective

    return [
        _expanded(each, templates) if _is_open(each) else Expanded(own=each, deployment=effective(each))
        for each in deployments
    ]


def _expanded(deployment: Resource, templates: Sequence[Resource]) -> Expanded:
    from airunway.controller.templates import source_among, template_part

    try:
        part = template_part(deployment, source_among(templates))
    except TypeError as error:  # nested deeper than is written as JSON, or a number beyond 64 bits
        raise ManifestError(f"ModelDeployment {key_of(deployment)}: its spec cannot be read: {error}") from error
    return Expanded(own=deployment, deployment=part.deployment, part=part)


def _is_open(deployment: Resource) -> bool:
    """Whether it asks for a template, and the core has not recorded what that gives."""
    from airunway.templates.choice import request_of
    from airunway.templates.expansion import recorded_contribution

    spec = deployment.get("spec")
    request = request_of(spec) if isinstance(spec, dict) else None
    if request is None:
        return False
    asked = dig(deployment, "status", "effectiveTemplate", "asked")
    return recorded_contribution(deployment) is None or asked != request.digest


def with_given(templates: Sequence[Resource], given: Sequence[Resource]) -> list[Resource]:
    """Templates of a cluster with those of a file, which replace those of the same kind and name."""
    replaced = {(each["kind"], key_of(each)) for each in given}
    return [*(each for each in templates if (each["kind"], key_of(each)) not in replaced), *given]


async def read_for(client: Client, deployments: Iterable[Resource]) -> TemplateSet:
    """The templates that deployments name, use, or could get for their model. Raises KubeError."""
    from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE
    from airunway.templates.choice import request_of

    wanted: dict[tuple[Kind, ObjectKey], None] = {}
    for deployment in deployments:
        spec, namespace = deployment.get("spec"), key_of(deployment).namespace
        request = request_of(spec) if isinstance(spec, dict) else None
        if request is None:
            continue
        # A name without text is a list: any template may have the model.
        for name in {
            request.name,
            str(dig(deployment, "status", "effectiveTemplate", "ref", "name", default="") or ""),
        }:
            if name or not request.name:
                wanted[(MODEL_TEMPLATE, ObjectKey(namespace, name))] = None
                wanted[(CLUSTER_MODEL_TEMPLATE, ObjectKey("", name))] = None
    return await _read(client, list(wanted))


async def read_all(client: Client, *, namespace: str) -> TemplateSet:
    """All templates of a namespace (empty: of all), and those of the cluster. Raises KubeError."""
    from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE

    wanted = [(MODEL_TEMPLATE, ObjectKey(namespace, "")), (CLUSTER_MODEL_TEMPLATE, ObjectKey("", ""))]
    return await _read(client, wanted, required=True)


async def _read(client: Client, wanted: Sequence[tuple[Kind, ObjectKey]], *, required: bool = False) -> TemplateSet:
    """The objects, and the lists where a key has no name. A cluster without the kinds has none; where they are
    `required`, that is an error.
    """
    from airunway.kube import ApiError, ErrorKind, Forbidden
    from airunway.view import Unseen

    found: dict[tuple[str, ObjectKey], Resource] = {}
    unseen: list[Unseen] = []
    for kind, key in wanted:
        try:
            if key.name:
                one = await client.find(kind, key)
                listed = [one] if one is not None else []
            else:
                listed = await client.list_all(kind, namespace=key.namespace)
        except Forbidden:
            where = f" in namespace {key.namespace}" if key.namespace else " in all namespaces" * kind.namespaced
            right = f"{'get' if key.name else 'list'} {kind}{where}"
            unseen.append(Unseen(what=f"{kind.plural}{where}", why="you have no right to them", right=right))
            continue
        except ApiError as error:
            if required or error.kind is not ErrorKind.KIND_NOT_SERVED:
                raise
            continue
        found |= {(kind.kind, key_of(each)): {**each, "kind": kind.kind} for each in listed}
    return TemplateSet(templates=tuple(found.values()), unseen=tuple(dict.fromkeys(unseen)))
