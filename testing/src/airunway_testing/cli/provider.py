"""``airunway provider new`` and ``airunway provider check``: for those who write a provider."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(short_help="Write the skeleton of a provider that runs.")
def new(
    name: Annotated[str, typer.Argument(help="The provider's name: small letters, digits and '-'.")],
    *,
    directory: Annotated[
        Path | None, typer.Option(help="Folder to write into, new or empty (default: airunway-NAME).")
    ] = None,
) -> None:
    """Write the skeleton of a provider: plugin, simulated upstream, tests, samples and a chart.

    It is a whole provider of an invented upstream: its tests pass, and the sandbox runs it. Ends with 1, and nothing
    written, for a name that no provider can have or a folder that is not empty.
    """
    from airunway_testing.scaffold import ScaffoldError, write_skeleton

    folder = directory or Path(f"airunway-{name}")
    try:
        written = write_skeleton(name, folder)
    except (ScaffoldError, OSError) as error:
        typer.echo(f"airunway provider new: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"Wrote {len(written)} files into {folder}. What to do next is in {folder / 'README.md'}.")


@app.command(short_help="Say what is wrong with an installed provider.")
def check(name: Annotated[str, typer.Argument(help="The provider's name (its entry point).")]) -> None:
    """Hold an installed provider against the contract, without a cluster, and say what is wrong with it.

    It is loaded, asked about plain deployments for each of its engines and about each field of one, in this process and
    in others; the CRDs of its simulator, if one is installed, are compared with its manifest. Ends with 1 if anything
    is wrong.
    """
    from airunway.plugins.registry import load
    from airunway_testing.conformance.cases import TOGGLES
    from airunway_testing.conformance.checks import problems

    found = list(problems(name))
    for problem in found:
        typer.echo(f"airunway provider check: {problem}", err=True)
    if found:
        raise typer.Exit(1)
    host = load(name)
    engines = ", ".join(engine.name for engine in host.manifest.engines)
    typer.echo(
        f"{name} ({host.origin}) holds contract {host.contract_version}: engines {engines}; primary kind "
        f"{host.primary_kind.key}; none of {len(TOGGLES)} fields is lost without a word"
    )
