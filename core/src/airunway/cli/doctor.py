"""``airunway doctor`` checks an installation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.api import names
from airunway.cli.cluster import Access, on_cluster
from airunway.cli.options import cluster_options, namespace_option, output_option
from airunway.cli.parameters import Command, option
from airunway.cli.printing import as_document, is_ascii, terminal_width
from airunway.redaction import printable

if TYPE_CHECKING:
    from airunway.doctor import DoctorReport, Snapshot
    from airunway.plugins.host import ProviderHost
    from airunway.rbac.rights import AddOn

FOUND = 3
"""Exit code: there are findings at or above the threshold."""

INCOMPLETE = 4
"""Exit code: nothing was found, and checks could not be made."""


@click.command(cls=Command)
@namespace_option("Namespace that AI Runway runs in.", default=names.DEFAULT_NAMESPACE)
@output_option("text", "json", "yaml")
@option(
    "--failure-threshold",
    default="error",
    type=click.Choice(["error", "warning"]),
    help="The lowest severity that makes the exit code 3.",
)
@option("--ignore", multiple=True, metavar="CODE", help="Skip a check, such as ARW0705; may be repeated.")
@cluster_options
def doctor(
    *,
    namespace: str,
    output: str,
    failure_threshold: str,
    ignore: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Check an installation: report what is wrong, why, and what to do.

    CRDs, processes, their upgrades and Leases, webhook, rights, guards, providers, upstreams, nodes, storage, gateway.
    Nothing is changed. Of Secrets only the labels of Helm's releases are read. Checks for which you lack rights are
    listed and skipped. Every code has an entry in docs/reference/doctor.md.

    Exits with 0 if nothing is wrong, with 3 if there are findings, with 4 if there are none and checks were skipped for
    want of rights (--ignore leaves a check out), with 1 if the cluster cannot be read.
    """
    from airunway.doctor import CHECKS, run_checks
    from airunway.doctor.report import document

    if unknown := sorted(set(ignore or ()) - set(CHECKS)):
        raise click.BadParameter(f"--ignore: unknown check {', '.join(unknown)}")
    found = run_checks(_snapshot(namespace, Access(kubeconfig, context)), ignored=frozenset(ignore or ()))
    if output == "text":
        _print(found)
    else:
        click.echo(as_document([document(found)], output), nl=False)
    if any(failure_threshold == "warning" or finding.severity.value == "error" for finding in found.findings):
        raise click.exceptions.Exit(FOUND)
    if found.skipped:
        raise click.exceptions.Exit(INCOMPLETE)


def _snapshot(namespace: str, access: Access) -> Snapshot:
    from dataclasses import replace

    from airunway.doctor import gather
    from airunway.unseen import Unseen

    hosts, broken = _hosts()
    add_ons, unusable = _add_ons()
    snapshot = on_cluster(
        lambda client: gather(client, namespace=namespace, hosts=hosts, add_ons=add_ons), access, timeout=15.0
    )
    broken = {**{f"provider {name}": why for name, why in broken.items()}, **unusable}
    unseen = tuple(Unseen(what=what, why=why) for what, why in broken.items())
    return replace(snapshot, unseen={**snapshot.unseen, "plugins": unseen})


def _hosts() -> tuple[list[ProviderHost], dict[str, str]]:
    """The installed provider plugins, and the errors of those that cannot be loaded."""
    from airunway.plugins.errors import PluginError
    from airunway.plugins.registry import discover, load

    hosts, broken = [], {}
    for name in dict.fromkeys(distribution.name for distribution in discover(on_request=True)):
        try:
            hosts.append(load(name))
        except PluginError as error:
            broken[name] = str(error)
    return hosts, broken


def _add_ons() -> tuple[dict[str, AddOn], dict[str, str]]:
    """The installed add-ons by field manager, and why others cannot be used."""
    from collections import defaultdict
    from importlib.metadata import EntryPoint, entry_points

    from airunway.rbac.rights import ADD_ONS

    points: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=ADD_ONS):
        points[point.name].append(point)
    found, broken = {}, {}
    for name, candidates in points.items():
        if len(candidates) > 1:
            brought_by = ", ".join(sorted(f"{each.dist.name} {each.dist.version}" for each in candidates if each.dist))
            broken[f"add-on {name}"] = f"more than one distribution has it: {brought_by}; uninstall one"
            continue
        try:
            found[name] = _usable(candidates[0].load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of another distribution
            broken[f"add-on {name}"] = f"{type(error).__name__}: {error}"
    return found, broken


def _usable(loaded: object) -> AddOn:
    """What an entry point has loaded, if it is an add-on. Raises TypeError."""
    from airunway.rbac.rights import AddOn, Rights

    if not isinstance(loaded, AddOn) or not isinstance(loaded.rights, Rights) or not callable(loaded.guard):
        raise TypeError(f"the entry point must name an airunway.rbac.rights.AddOn, not {type(loaded).__name__}")
    return loaded


def _print(found: DoctorReport) -> None:
    from airunway.doctor.report import lines

    width = terminal_width()
    report = lines(found, width=width, ascii_only=is_ascii())
    if width is None:
        click.echo("\n".join(printable(line.text) for line in report))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in report:
        console.print(Text(printable(line.text), style=line.style))
