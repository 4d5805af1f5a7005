"""``airunway install``, ``upgrade`` and ``uninstall``: the charts that wheels carry, by helm or as rendered."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from airunway.cli import inputs
from airunway.cli.options import Context, Kubeconfig
from airunway.words import plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from airunway.install.cluster import Installer, Inventory
    from airunway.install.helm import Helm
    from airunway.install.parts import Part
    from airunway.kube import Client

__all__ = ["install", "uninstall", "upgrade"]

TIMED_OUT = 4
"""Exit code: everything was applied, and is not ready in time."""

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace that AI Runway runs in.")]
Manifests = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="Folder with the rendered manifests of the charts, instead of those that are carried here, one file for "
        "each: airunway-crds.yaml, airunway.yaml, airunway-provider-NAME.yaml.",
    ),
]
Providers = Annotated[str, typer.Option(help="Names of providers, separated by commas.")]


def _registry(text: str) -> str:
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise typer.BadParameter(
            f"{text!r} is not HOST/PATH: write it without a scheme, and without a slash at the end"
        )
    return text


Registry = Annotated[
    str,
    typer.Option(callback=_registry, help="Where the images are, as HOST/PATH (default: where the release has them)."),
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait until everything is ready; 0: do not wait.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, with everything rehearsed.")]


def install(
    *,
    providers: Providers = "",
    manifests: Manifests = None,
    registry: Registry = "",
    no_helm: Annotated[bool, typer.Option("--no-helm", help="Apply, even where helm is on PATH.")] = False,
    namespace: Namespace = "airunway-system",
    dry_run: DryRun = False,
    timeout: Timeout = 300.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Install CRDs, core and providers: pip install airunway airunway-kaito, then airunway install --providers kaito

    Where helm is on PATH each part becomes a release of Helm, from the chart that its distribution carries; else what
    the chart renders to is applied server-side. What was installed one way stays with it.

    Everything that can be known is said before the first write: rights that are missing, objects that belong to another
    tool, CRDs that would take fields from objects, what the API server refuses.

    Ends with 0 once everything is ready, with 4 if it is not in time, with 1 if it cannot be done.
    """
    from airunway.install.parts import CORE, DEFINITIONS, provider_part
    from airunway.kube import Forbidden

    wanted = [DEFINITIONS, CORE, *map(provider_part, _names(providers))]

    async def work(installer: Installer) -> None:
        noted: Inventory = {}
        with suppress(Forbidden):  # then that is among what stands in the way
            noted = await installer.inventory()
        helm = None
        if manifests is None and not no_helm:
            helm = _helm(noted, namespace, registry, kubeconfig, context)
        releases = await helm.releases() if helm else {}
        _refuse_unfinished(helm, releases, wanted)
        parts = [
            await _part(name, namespace, manifests, registry, helm if name in releases else None) for name in wanted
        ]
        await _bring(installer, parts, helm=helm, noted=noted, dry_run=dry_run, timeout=timeout)

    _run(work, namespace, kubeconfig, context)


def upgrade(
    *,
    manifests: Manifests = None,
    registry: Registry = "",
    namespace: Namespace = "airunway-system",
    dry_run: DryRun = False,
    timeout: Timeout = 300.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Upgrade what is installed to the release of the distributions here, in the way in which it was installed.

    Parts that nothing here carries stay as they are, and so do the values of a release of Helm; objects that the new
    release has no more are deleted. What runs is not touched: `airunway preflight` says what an upstream's upgrade
    would do.
    """
    from airunway.install.carried import NotCarried
    from airunway.install.parts import in_order

    async def work(installer: Installer) -> None:
        noted = await installer.inventory()
        helm = None if manifests else _helm(noted, namespace, registry, kubeconfig, context)
        releases = await helm.releases() if helm else {}
        listed = in_order(releases if helm else noted)
        chosen = []
        for name in listed:
            try:
                _source(name, namespace, manifests)
                chosen.append(name)
            except NotCarried as reason:
                typer.echo(plain(f"{name} stays as it is: {reason}"))
        if not chosen:
            there = ", ".join(listed) or "nothing"
            await _fail_with_strangers(
                installer, f"there is nothing to upgrade in {namespace}: this command has installed {there} there"
            )
        _refuse_unfinished(helm, releases, chosen)
        parts = [await _part(name, namespace, manifests, registry, helm) for name in chosen]
        await _bring(installer, parts, helm=helm, noted=noted, dry_run=dry_run, timeout=timeout)

    _run(work, namespace, kubeconfig, context)


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
    """Take core and providers away. No ModelDeployment, no model and no CRD is deleted.

    Models go on serving, and nobody looks after them. To take them away too, delete the ModelDeployments first.
    """
    from airunway.install.parts import CORE, in_order, provider_of, provider_part

    async def work(installer: Installer) -> None:
        noted = await installer.inventory()
        helm = _helm(noted, namespace, "", kubeconfig, context)
        listed = in_order(await helm.releases() if helm else noted)
        chosen = [provider_part(name) for name in _names(providers)] or list(filter(provider_of, listed))
        if not providers and CORE in listed:
            chosen.append(CORE)
        if unknown := sorted(set(chosen) - set(listed)):
            there = ", ".join(listed) or "nothing"
            await _fail_with_strangers(
                installer,
                f"{', '.join(unknown)} was not installed by this command in {namespace} (it has installed: {there})",
            )
        if not chosen:
            await _fail_with_strangers(installer, f"nothing was installed by this command in {namespace}")
        remains = await installer.remains(chosen)
        if helm:
            for name in chosen:
                if not dry_run:
                    await helm.remove(name)
                typer.echo(f"{name}: the release {'would be' if dry_run else 'is'} uninstalled")
        elif dry_run:
            for name in chosen:
                typer.echo(plain(f"{name}: {len(noted[name])} objects would be deleted"))
        else:
            async for name, gone in installer.remove(chosen, noted):
                typer.echo(plain(f"{name}: {len(gone)} objects deleted"))
        for line in remains:
            typer.echo(plain(f"stays: {line}"))

    _run(work, namespace, kubeconfig, context)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _helm(noted: Inventory, namespace: str, registry: str, kubeconfig: Path | None, context: str | None) -> Helm | None:
    """The helm that looks after the namespace: None where there is none, or where parts were applied without it."""
    from airunway.install.helm import Helm

    program = shutil.which("helm")
    if program is None or noted:
        return None
    return Helm(program=program, namespace=namespace, images=registry, kubeconfig=kubeconfig, context=context)


def _refuse_unfinished(helm: Helm | None, releases: Mapping[str, str], wanted: Iterable[str]) -> None:
    """Ends with 1 where one of the releases that are `wanted` was left halfway."""
    if helm and (unfinished := helm.unfinished(releases, wanted)):
        inputs.fail("\n".join(["nothing was written:", *(f"  {each}" for each in unfinished)]))


async def _fail_with_strangers(installer: Installer, message: str) -> NoReturn:
    """The message, and who runs there that was installed in another way."""
    inputs.fail("\n".join([message, *(f"  {each}" for each in await installer.strangers())]))


def _source(name: str, namespace: str, manifests: Path | None) -> Path:
    """The file with what a part renders to. Raises NotCarried."""
    from airunway.install.carried import NotCarried, carried

    if manifests is None:
        return carried(name).manifests
    path = manifests / f"{name}.yaml"
    if not path.is_file():
        raise NotCarried(
            f"{manifests} has no {path.name}: helm template charts/{name} --namespace {namespace} > {path}"
        )
    return path


async def _part(name: str, namespace: str, manifests: Path | None, registry: str, helm: Helm | None) -> Part:
    """A part as it is to be; `helm` is given where it has a release of the part, which may have values of its own.

    Raises NotCarried, ManifestError, OSError, HelmError.
    """
    from airunway.cli.validate import read_manifests
    from airunway.install.carried import carried, placed, released_to
    from airunway.install.parts import Part, ordered

    source = _source(name, namespace, manifests)
    released = "" if manifests else released_to(needed=not registry)
    if helm is not None:
        return Part(name=name, objects=ordered(read_manifests(StringIO(await helm.rendered(carried(name))))))
    objects = list(read_manifests(StringIO(source.read_text(encoding="utf-8"))))
    if released:
        objects = [placed(obj, namespace=namespace, images=(released, registry or released)) for obj in objects]
    return Part(name=name, objects=ordered(objects))


async def _bring(
    installer: Installer, parts: list[Part], *, helm: Helm | None, noted: Inventory, dry_run: bool, timeout: float
) -> None:
    """By `helm`; where there is none they are applied, over what is `noted` of before."""
    from airunway.install.carried import carried

    if obstacles := await installer.obstacles(parts, releases=helm is not None):
        inputs.fail("\n".join(["nothing was written:", *(f"  {obstacle}" for obstacle in obstacles)]))
    if dry_run:
        for part in parts:
            typer.echo(plain(f"{part.name}: {len(part.objects)} objects would be applied{' by helm' * bool(helm)}"))
        return
    if helm is None:
        await installer.apply(parts, noted, on_part=lambda name: typer.echo(plain(f"{name}: applying")))
    else:
        for part in parts:
            typer.echo(plain(f"{part.name}: helm upgrade --install"))
            await helm.bring(carried(part.name))
            await installer.served(part)
    if timeout:
        await _wait(installer, parts, timeout)


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

    async def main(client: Client) -> None:
        with _reporting():
            await work(Installer(client, namespace=namespace))

    inputs.on_cluster(main, kubeconfig=kubeconfig, context=context)


@contextmanager
def _reporting() -> Iterator[None]:
    from airunway.install.carried import NotCarried
    from airunway.install.helm import HelmError
    from airunway.kube import Conflict

    try:
        with inputs.reporting():
            yield
    except (NotCarried, HelmError) as error:
        inputs.fail(str(error))
    except Conflict as error:
        inputs.fail(f"another tool has set these fields: {error}")
