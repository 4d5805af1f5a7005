"""``airunway provider new`` and ``airunway provider check``: for those who write a provider."""

from __future__ import annotations

from collections.abc import Collection
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


@app.command(short_help="Say which rules of the contract an installed provider breaks.")
@argument(
    "name", metavar="PROVIDER", shell_complete=completers.providers, help="The provider's name (its entry point)."
)
@option("--cluster", is_flag=True, help="Also check the rules that need an API server, in the kubeconfig's cluster.")
@option("--kubeconfig", type=PATH, help="With --cluster: the kubeconfig file (default: as kubectl).")
@option("--context", help="With --cluster: the context of it (default: the current one).")
@option("--i-know", is_flag=True, help="With --cluster: go on although the cluster has ModelDeployments of its users.")
@option("--patience", type=float, default=180.0, help="With --cluster: seconds for each step (default: 180).")
@option("--rule", "rules", multiple=True, help="Check only this rule (AR-C-014); may be repeated.")
@option("--skip", "skips", multiple=True, metavar="RULE=REASON", help="Do not check this rule, for that reason.")
@option("--report", type=PATH, metavar="DIR", help="Write report.json, junit.xml and report.html into this folder.")
def check(
    name: str,
    *,
    cluster: bool,
    kubeconfig: Path | None,
    context: str,
    i_know: bool,
    patience: float,
    rules: tuple[str, ...],
    skips: tuple[str, ...],
    report: Path | None,
) -> None:
    """Hold an installed provider against the rules of the contract, and say which of them it breaks.

    airunway provider check acme --report reports

    It is loaded, and asked about plain deployments for each of its engines and about each field of one, in this process
    and in others. What it writes is held against the CRDs of its simulator, if one is installed. With --cluster it also
    lives through its samples, as an account with the rights of its manifest. What there was nothing to compare with is
    reported. Ends with 1 if a rule is broken.
    """
    from airunway_testing.conformance.checks import examined
    from airunway_testing.conformance.report import lines_of, written
    from airunway_testing.conformance.rules import RULES

    skipped = dict(_skip_of(text, RULES) for text in skips)
    for rule in rules:
        _known(rule, RULES)
    if (kubeconfig or context or i_know) and not cluster:
        raise click.BadParameter("--kubeconfig, --context and --i-know need --cluster")
    found = examined(name, wanted=rules, skipped=skipped)
    if cluster and found.facts.contract:
        from airunway_testing.e2e.in_cluster import Refused, examine_in_cluster

        try:
            examine_in_cluster(
                found,
                kubeconfig=kubeconfig,
                context=context,
                i_know=i_know,
                patience=patience,
                wanted=rules,
                skipped=skipped,
            )
        except Refused as error:
            click.echo(f"airunway provider check: {error}", err=True)
            raise click.exceptions.Exit(2) from error
    if report is not None:
        try:
            written(found, report)
        except OSError as error:
            click.echo(f"airunway provider check: the report cannot be written: {error}", err=True)
            raise click.exceptions.Exit(2) from error
    lines, summary = lines_of(found)
    for line in lines:
        click.echo(f"airunway provider check: {line}", err=True)
    if summary:
        click.echo(summary)
    if not found.ok:
        raise click.exceptions.Exit(1)


def _skip_of(text: str, known: Collection[str]) -> tuple[str, str]:
    rule, equals, reason = text.partition("=")
    if not equals or not reason.strip():
        raise click.BadParameter(f"--skip {text}: write RULE=REASON; the reason is printed in the report")
    return _known(rule, known), reason.strip()


def _known(rule: str, known: Collection[str]) -> str:
    if rule not in known:
        raise click.BadParameter(
            f"{rule!r} is no rule of the contract: the table in docs/providers/contract.md has them"
        )
    return rule
