"""``airunway crds``: the CRDs, for ``airunway crds | kubectl apply --server-side -f -``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["crds"]


def crds(
    *,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Write one file per CRD into this directory instead of printing.", file_okay=False
        ),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions as YAML: airunway crds | kubectl apply --server-side -f -"""
    from airunway.api import crds as definitions

    if write is None:
        typer.echo(definitions.to_yaml(definitions.custom_resource_definitions()), nl=False)
        return
    write.mkdir(parents=True, exist_ok=True)
    for path in definitions.write(write):
        typer.echo(path)
