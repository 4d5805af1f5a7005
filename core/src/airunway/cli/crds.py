"""``airunway crds`` prints, checks or applies our CRDs; ``airunway provider schema`` describes an upstream's CRD."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import inputs
from airunway.cli.cluster import Access, fail, on_cluster
from airunway.cli.manifests import definitions_in
from airunway.cli.options import cluster_options, file_option, output_option
from airunway.cli.parameters import DIRECTORY, PATH, Command, argument, option
from airunway.cli.printing import as_document
from airunway.redaction import printable
from airunway.table import format_table

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.resource import Resource
    from airunway.upgrades.definitions import Definition, Harm

HARMS = 3
"""Exit code: the CRDs would drop fields of objects or reject them."""


@click.command(cls=Command)
@option(
    "--write",
    type=DIRECTORY,
    metavar="DIRECTORY",
    help="Write one file per CRD into this directory instead of printing.",
)
@option("--check", is_flag=True, help="Only check what they would take from the objects of the cluster.")
@option("--apply", is_flag=True, help="Apply them to the cluster, unless they would take something.")
@file_option("CRDs of a file instead of this release's; - for standard input.")
@cluster_options
def crds(
    *, write: Path | None, check: bool, apply: bool, file: Path | None, kubeconfig: Path | None, context: str | None
) -> None:
    """Print the CustomResourceDefinitions as YAML: airunway crds | kubectl apply --server-side -f -

    An API server accepts a CRD that has lost a field and drops that field from every object. --check and --apply
    refuse such a CRD: they list the fields and the objects that use them, and exit with 3.
    """
    from airunway.api import crds as definitions

    if sum((write is not None, check, apply)) > 1:
        raise click.BadParameter("use only one of --write, --check and --apply")
    if write is not None and file is not None:
        raise click.BadParameter("--write writes this release's CRDs and cannot be used with --filename")
    with inputs.reporting():
        wanted = definitions_in(file) if file is not None else definitions.custom_resource_definitions()
    if check or apply:
        _guarded(wanted, access=Access(kubeconfig, context), apply=apply)
    elif write is None:
        click.echo(definitions.to_yaml(wanted), nl=False)
    else:
        write.mkdir(parents=True, exist_ok=True)
        for path in definitions.write(write):
            click.echo(path)


def _guarded(wanted: list[Resource], *, access: Access, apply: bool) -> None:
    from airunway.kube import Conflict
    from airunway.resource import key_of
    from airunway.upgrades.definitions import apply_definitions, harms_in

    async def work(client: Client) -> list[Harm]:
        found = await harms_in(client, wanted)
        if apply and not found:
            try:
                await apply_definitions(client, wanted)
            except Conflict as error:
                fail(
                    f"another tool owns these CRDs: {error}. Upgrade them with that tool (helm upgrade, kubectl apply "
                    "--server-side)"
                )
            except TimeoutError:
                fail("the API server accepted the CRDs but does not serve them: `airunway doctor` shows why")
        return found

    found = on_cluster(work, access)
    for harm in found:
        click.echo(printable(str(harm)))
    if found:
        raise click.exceptions.Exit(HARMS)
    done = "applied" if apply else "takes nothing from any object"
    for crd in wanted:
        click.echo(f"{key_of(crd).name} {done}")


@click.command(cls=Command)
@argument("file", type=PATH, metavar="FILE", help="CRDs as YAML or JSON; - for standard input.")
@option("--kind", help="Only this kind (default: every kind of the file).")
@output_option("table", "json", "yaml")
def schema(file: Path, *, kind: str, output: str) -> None:
    """Print group, kind, versions and schema hashes of a CRD, as a manifest and its transformers name them.

    airunway provider schema config/crd/servers.yaml

    IMMUTABLE are the fields that rules of the schema (self == oldSelf) protect; fields that only the operator protects
    are not known. Descriptions do not change a hash. Exits with 1 for a file without a CRD that a provider can write.
    """
    from airunway.upgrades.definitions import DefinitionError, chosen, definition_of

    usable: list[Definition] = []
    refused: list[str] = []
    with inputs.reporting():
        crds = definitions_in(file)
    try:
        found = [definition_of(crd) for crd in crds]
        if kind:
            found = [chosen(found, kind=kind)]
    except DefinitionError as error:
        fail(f"{file}: {error}")
    for definition in found:
        try:
            usable.append(chosen([definition]))
        except DefinitionError as error:
            refused.append(f"{file}: {error}")
    if not usable:
        fail("\n".join(refused))
    for text in refused:
        click.echo(printable(f"airunway: {text}"), err=True)
    if output == "table":
        click.echo("\n\n".join(map(_as_table, usable)))
    else:
        click.echo(as_document([_document(definition) for definition in usable], output), nl=False)


def _as_table(definition: Definition) -> str:
    rows = [
        (
            version.name,
            version.schema_hash,
            "yes" if version.served else "no",
            "yes" if version.storage else "no",
            ", ".join(version.immutable) or "-",
        )
        for version in definition.versions
    ]
    heading = f"kind {definition.kind}, plural {definition.plural}, group {definition.group}"
    return f"{printable(heading)}\n{format_table(('version', 'schema hash', 'served', 'stored', 'immutable'), rows)}"


def _document(definition: Definition) -> Resource:
    return {
        "group": definition.group,
        "kind": definition.kind,
        "plural": definition.plural,
        "versions": [
            {
                "name": version.name,
                "schemaHash": version.schema_hash,
                "served": version.served,
                "stored": version.storage,
                "immutable": list(version.immutable),
            }
            for version in definition.versions
        ],
    }
