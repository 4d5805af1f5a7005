"""``airunway install``, ``upgrade`` and ``uninstall``: the charts' rendered manifests, without helm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airunway.cli import inputs
from airunway.cli.options import Context, Kubeconfig
from airunway.words import plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunway.install.cluster import Installer
    from airunway.install.parts import Part
    from airunway.kube import Client

__all__ = ["install", "uninstall", "upgrade"]

TIMED_OUT = 4
"""Exit code: everything was applied, and is not ready in time."""

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace that AI Runway runs in.")]
Manifests = Annotated[
    Path,
    typer.Option(
        file_okay=False,
        help="Folder with the rendered manifests of the charts, one file for each: airunway-crds.yaml, airunway.yaml, "
        "airunway-provider-NAME.yaml.",
    ),
]
Providers = Annotated[str, typer.Option(help="Names of providers, separated by commas.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait until everything is ready; 0: do not wait.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, with everything rehearsed.")]


def install(
    *,
    manifests: Manifests,
    providers: Providers = "",
    namespace: Namespace = "airunway-system",
    dry_run: DryRun = False,
    timeout: Timeout = 300.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Install CRDs, core and providers from the charts' rendered manifests: helm template CHART > CHART.yaml

    Everything that can be known is said before the first write: rights that are missing, objects that belong to another
    tool, CRDs that would take fields from objects, what the API server refuses. With helm, use helm.

    Ends with 0 once everything is ready, with 4 if it is not in time, with 1 if nothing was written.
    """
    _bring(_parts(manifests, providers, everything=True), namespace, dry_run, timeout, kubeconfig, context, new=True)


def upgrade(
    *,
    manifests: Manifests,
    namespace: Namespace = "airunway-system",
    dry_run: DryRun = False,
    timeout: Timeout = 300.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Upgrade what `airunway install` has installed to the manifests of another release.

    Parts without a file stay as they are; objects that the new release has no more are deleted. What runs is not
    touched: `airunway preflight` says what an upstream's upgrade would do.
    """
    _bring(_parts(manifests, "", everything=False), namespace, dry_run, timeout, kubeconfig, context, new=False)


def uninstall(
    *,
    providers: Annotated[
        str, typer.Option(help="Only these providers, separated by commas (default: all parts).")
    ] = "",
    namespace: Namespace = "airunway-system",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Take away what `airunway install` has installed. No ModelDeployment, no model and no CRD is deleted.

    Models go on serving, and nobody looks after them. To take them away too, delete the ModelDeployments first.
    """
    from airunway.install.parts import CORE, DEFINITIONS, provider_part

    async def work(installer: Installer) -> None:
        listed = await installer.inventory()
        chosen = [provider_part(name) for name in _names(providers)] or sorted(set(listed) - {DEFINITIONS, CORE})
        if not providers and CORE in listed:
            chosen.append(CORE)
        if unknown := sorted(set(chosen) - set(listed)):
            there = ", ".join(sorted(listed)) or "nothing"
            inputs.fail(
                f"{', '.join(unknown)} was not installed by this command in {namespace} (it has installed: {there})"
            )
        if not chosen:
            inputs.fail(f"nothing was installed by this command in {namespace}")
        remains = await installer.remains(chosen)
        for name in chosen:
            if dry_run:
                typer.echo(plain(f"{name}: {len(listed[name])} objects would be deleted"))
            else:
                typer.echo(plain(f"{name}: {len(await installer.remove(name))} objects deleted"))
        for line in remains:
            typer.echo(plain(f"stays: {line}"))

    _run(work, namespace, kubeconfig, context)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _parts(folder: Path, providers: str, *, everything: bool) -> list[Part]:
    """The parts that the folder has, in the order in which they are applied. Ends with 1 for one that is missing."""
    from airunway.cli.validate import ManifestError, read_manifests
    from airunway.install.parts import CORE, DEFINITIONS, Part, ordered, provider_part

    with inputs.reporting():
        there = sorted(path.stem for path in folder.glob("*.yaml"))
        wanted = [DEFINITIONS, CORE, *(provider_part(name) for name in _names(providers))]
        if not everything:
            wanted = [name for name in dict.fromkeys([*wanted, *there]) if name in there]
        if missing := [name for name in wanted if name not in there]:
            raise ManifestError(
                f"{folder} has no {', '.join(f'{name}.yaml' for name in missing)}: helm template charts/{missing[0]} "
                f"--namespace NAMESPACE > {folder / missing[0]}.yaml"
            )
        found = []
        for name in wanted:
            with (folder / f"{name}.yaml").open(encoding="utf-8") as stream:
                found.append(Part(name=name, objects=ordered(read_manifests(stream))))
        return found


def _bring(
    parts: list[Part],
    namespace: str,
    dry_run: bool,
    timeout: float,
    kubeconfig: Path | None,
    context: str | None,
    *,
    new: bool,
) -> None:
    async def work(installer: Installer) -> None:
        listed = await installer.inventory()
        chosen = parts if new else [part for part in parts if part.name in listed]
        if not chosen:
            there = ", ".join(sorted(listed)) or "nothing"
            inputs.fail(f"there is nothing to upgrade in {namespace}: this command has installed {there} there")
        if obstacles := await installer.obstacles(chosen):
            inputs.fail("\n".join(["nothing was written:", *(f"  {obstacle}" for obstacle in obstacles)]))
        if dry_run:
            for part in chosen:
                typer.echo(plain(f"{part.name}: {len(part.objects)} objects would be applied"))
            return
        await installer.apply(chosen, on_part=lambda name: typer.echo(plain(f"{name}: applying")))
        if timeout:
            await _wait(installer, chosen, timeout)

    _run(work, namespace, kubeconfig, context)


async def _wait(installer: Installer, parts: list[Part], timeout: float) -> None:
    try:
        async for state in installer.progress(parts, timeout=timeout):
            typer.echo(plain(f"{state.part}: {state.text}"))
    except TimeoutError as error:
        typer.echo(
            plain(f"airunway: not ready after {timeout:g} s: {error}. `airunway doctor` says what is wrong"), err=True
        )
        raise typer.Exit(TIMED_OUT) from error


def _run(
    work: Callable[[Installer], Awaitable[None]], namespace: str, kubeconfig: Path | None, context: str | None
) -> None:
    from airunway.install.cluster import Installer
    from airunway.kube import Conflict

    async def main(client: Client) -> None:
        try:
            await work(Installer(client, namespace=namespace))
        except Conflict as error:
            inputs.fail(f"another tool has set these fields: {error}")

    inputs.on_cluster(main, kubeconfig=kubeconfig, context=context)
