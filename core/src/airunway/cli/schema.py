"""``airunway provider schema``: what a manifest says of an upstream's CRD, out of its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from airunway.cli import inputs
from airunway.cli.printing import as_document
from airunway.redaction import printable
from airunway.table import format_table

if TYPE_CHECKING:
    from airunway.resource import Resource
    from airunway.upgrades.definitions import Definition

__all__ = ["schema"]


def schema(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CRDs as YAML or JSON; - for standard input.")],
    *,
    kind: Annotated[str, typer.Option(help="Only this kind (default: every kind of the file).")] = "",
    output: Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Format.")] = "table",
) -> None:
    """Print group, kind, versions and schema hashes of a CRD, as a manifest and its transformers name them.

    airunway provider schema config/crd/servers.yaml

    IMMUTABLE are the fields that rules of the schema (self == oldSelf) refuse to change; what only the operator refuses
    is not in a CRD. Descriptions make no difference to a hash. Ends with 1 for what is no CRD, or none that a provider
    can write.
    """
    from airunway.upgrades.definitions import DefinitionError, chosen, definition_of

    usable: list[Definition] = []
    refused: list[str] = []
    with inputs.reporting():
        crds = inputs.definitions_in(file)
    try:
        found = [definition_of(crd) for crd in crds]
        if kind:
            found = [chosen(found, kind=kind)]
    except DefinitionError as error:
        inputs.fail(f"{file}: {error}")
    for definition in found:
        try:
            usable.append(chosen([definition]))
        except DefinitionError as error:
            refused.append(f"{file}: {error}")
    if not usable:
        inputs.fail("\n".join(refused))
    for text in refused:
        typer.echo(printable(f"airunway: {text}"), err=True)
    if output == "table":
        typer.echo("\n\n".join(map(_told, usable)))
    else:
        typer.echo(as_document([_document(definition) for definition in usable], output), nl=False)


def _told(definition: Definition) -> str:
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
