"""``airunway provider new`` and ``airunway provider check``: for those who write a provider."""

from __future__ import annotations

from pathlib import Path

import click

from airunway.cli import completers
from airunway.cli.parameters import PATH, Group, argument, option
from airunway.resource import key_of

app = Group("provider")


@app.command(short_help="Write the skeleton of a provider that runs.")
@argument("name", metavar="NAME", help="The provider's name: small letters, digits and '-'.")
@option("--directory", type=PATH, help="Folder to write into, new or empty (default: airunway-NAME).")
@option("--crd", type=PATH, help="The upstream's CRDs as YAML or JSON (default: an invented upstream).")
@option("--kind", help="Which kind of the CRDs (default: the only one).")
@option("--version", help="Which version of the kind (default: the one that is stored).")
def new(name: str, *, directory: Path | None, crd: Path | None, kind: str, version: str) -> None:
    """Write the skeleton of a provider: plugin, simulated upstream, tests, samples and a chart.

    airunway provider new acme --crd config/crd/servers.yaml

    It is a whole provider: its tests pass, and the sandbox runs it. With --crd group, kind, version, schema hash, and
    where pods, replicas and status stand are the upstream's; else all of it is invented. Ends with 1, and nothing
    written, for a name that no provider can have, a CRD that none can be written for, or a folder that is not empty.
    """
    from airunway.cli.inputs import reporting
    from airunway.cli.manifests import definitions_in
    from airunway.upgrades.definitions import DefinitionError, chosen, definition_of
    from airunway_testing.scaffold import ScaffoldError, write_skeleton

    folder = directory or Path(f"airunway-{name}")
    if crd is None and (kind or version):
        raise click.BadParameter("--kind and --version choose from a CRD: name its file with --crd")
    try:
        with reporting():
            definitions = definitions_in(crd) if crd is not None else []
        wanted = chosen([definition_of(each) for each in definitions], kind=kind).name if definitions else ""
        found = next((each for each in definitions if key_of(each).name == wanted), None)
        written = write_skeleton(name, folder, crd=found, version=version)
    except (DefinitionError, ScaffoldError, OSError) as error:
        click.echo(f"airunway provider new: {error}", err=True)
        raise click.exceptions.Exit(1) from error
    click.echo(f"Wrote {len(written)} files into {folder}. What to do next is in {folder / 'README.md'}.")


@app.command(short_help="Say what is wrong with an installed provider.")
@argument(
    "name", metavar="PROVIDER", shell_complete=completers.providers, help="The provider's name (its entry point)."
)
def check(name: str) -> None:
    """Hold an installed provider against the contract, without a cluster, and say what is wrong with it.

    It is loaded, asked about plain deployments for each of its engines and about each field of one, in this process and
    in others; the CRDs of its simulator, if one is installed, are compared with its manifest. What there was nothing
    to compare with is reported. Ends with 1 if anything is wrong.
    """
    from airunway.plugins.registry import load
    from airunway_testing.conformance.cases import TOGGLES
    from airunway_testing.conformance.checks import problems, uncompared

    found = list(problems(name))
    for problem in found:
        click.echo(f"airunway provider check: {problem}", err=True)
    if found:
        raise click.exceptions.Exit(1)
    host = load(name)
    for gap in uncompared(host):
        click.echo(f"airunway provider check: not compared: {gap}", err=True)
    engines = ", ".join(engine.name for engine in host.manifest.engines)
    click.echo(
        f"{name} ({host.origin}) holds contract {host.contract_version}: engines {engines}; primary kind "
        f"{host.primary_kind.key}; none of {len(TOGGLES)} fields is lost without a word"
    )
