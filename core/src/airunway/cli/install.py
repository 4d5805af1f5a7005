"""``airunway install``, ``upgrade``, ``uninstall``: run helm with the charts in the wheels. ``manifests``: without."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from airunway.api import names
from airunway.cli import inputs
from airunway.cli.cluster import Access, fail, on_cluster
from airunway.cli.options import cluster_options, namespace_option, providers_option
from airunway.cli.parameters import Command, option
from airunway.redaction import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from airunway.install.helm import Helm
    from airunway.kube import Client
    from airunway.resource import Resource


def _registry(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise click.BadParameter(f"{text!r} is not HOST/PATH: remove the scheme and the slash at the end")
    return text


_namespace_option = namespace_option("Namespace that AI Runway runs in.", default=names.DEFAULT_NAMESPACE)
_providers_option = providers_option("Names of providers, separated by commas.")
_catalogue_option = option(
    "--catalogue", is_flag=True, help="With the catalogue: hardware of templates, discovery, scans of registries."
)
_registry_option = option(
    "--registry", callback=_registry, help="Registry of the images, as HOST/PATH (default: that of the release)."
)
_timeout_option = option("--timeout", default=300.0, help="Seconds to wait until each part is ready; 0: do not wait.")
_dry_run_option = option("--dry-run", is_flag=True, help="List every object, and change nothing.")


@click.command(cls=Command)
@_providers_option
@_catalogue_option
@_registry_option
@_namespace_option
@_dry_run_option
@_timeout_option
@cluster_options
def install(
    *,
    providers: str,
    catalogue: bool,
    registry: str,
    namespace: str,
    dry_run: bool,
    timeout: float,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Install CRDs, core and providers: pip install airunway airunway-kaito, then airunway install --providers kaito

    Each part becomes a release of Helm, from the chart in its wheel, with the helm (3.17 or newer) on PATH. Without
    helm: airunway manifests.

    Before the first write it checks for problems: what helm refuses, CRDs that would take fields from objects, an
    installation in another namespace for the same deployments.
    """
    from airunway.install.bundled_charts import CATALOGUE, CORE, DEFINITIONS, provider_part

    wanted = [DEFINITIONS, CORE, *([CATALOGUE] if catalogue else []), *map(provider_part, _names(providers))]

    async def work(client: Client, helm: Helm) -> None:
        await _bring(client, helm, wanted, dry_run=dry_run, timeout=timeout)

    _run(work, namespace=namespace, registry=registry, access=Access(kubeconfig, context))


@click.command(cls=Command)
@_registry_option
@_namespace_option
@_dry_run_option
@_timeout_option
@cluster_options
def upgrade(
    *, registry: str, namespace: str, dry_run: bool, timeout: float, kubeconfig: Path | None, context: str | None
) -> None:
    """Upgrade the releases of Helm in the namespace to the charts in the installed wheels, keeping their values.

    Parts without a chart here are not changed. Running models are not touched: `airunway preflight` shows what an
    upstream's upgrade would do.
    """
    from airunway.install.bundled_charts import ChartNotBundled, bundled, in_order

    async def work(client: Client, helm: Helm) -> None:
        chosen, listed = [], in_order(await helm.releases())
        if not listed:
            _fail_without_releases(namespace)
        for name in listed:
            try:
                bundled(name)
                chosen.append(name)
            except ChartNotBundled as reason:
                click.echo(printable(f"{name} not changed: {reason}"))
        if not chosen:
            fail("nothing was changed: no installed wheel has the chart of a release in that namespace")
        await _bring(client, helm, chosen, dry_run=dry_run, timeout=timeout)

    _run(work, namespace=namespace, registry=registry, access=Access(kubeconfig, context))


@click.command(cls=Command)
@providers_option("Only these providers, separated by commas (default: all parts but the CRDs).")
@_namespace_option
@_dry_run_option
@option("--yes", "-y", is_flag=True, help="Do not ask, as in a script.")
@cluster_options
def uninstall(
    *, providers: str, namespace: str, dry_run: bool, yes: bool, kubeconfig: Path | None, context: str | None
) -> None:
    """Uninstall core, catalogue and providers. No ModelDeployment, no model and no CRD is deleted.

    Running models keep serving but are no longer managed. To delete models too, delete the ModelDeployments first.
    A release that lists objects of others is not touched.
    """
    from airunway.install.bundled_charts import CATALOGUE, CORE, in_order, provider_of, provider_part
    from airunway.install.helm import what_stays

    async def work(client: Client, helm: Helm) -> None:
        releases = await helm.releases()
        listed = in_order(releases)
        chosen = [provider_part(name) for name in _names(providers)] or list(filter(provider_of, listed))
        if not providers:
            chosen += [part for part in (CATALOGUE, CORE) if part in listed]
        if not listed or not chosen:
            _fail_without_releases(namespace)
        if unknown := ", ".join(name for name in chosen if name not in listed):
            fail(f"helm has no release {unknown} in {namespace} (it has: {', '.join(listed)})")
        _refuse(helm.foreign(releases, chosen))
        for name, objects in (await _owned(client, helm, chosen)).items():
            _list(name, "to be deleted", objects)
        stays = await what_stays(client, namespace=namespace)
        if not dry_run:
            _confirm(yes=yes)
            for name in chosen:
                await helm.remove(name)
                click.echo(f"{name}: uninstalled")
        for line in stays:
            click.echo(printable(f"stays: {line}"))

    _run(work, namespace=namespace, access=Access(kubeconfig, context))


@click.command(cls=Command)
@_providers_option
@option("--core/--no-core", default=True, help="With the core.")
@_catalogue_option
@_registry_option
@_namespace_option
@option(
    "--for-deletion",
    is_flag=True,
    help="Only what an uninstallation deletes: without the ClusterRole of endpoint pickers, which those of "
    "running models need.",
)
def manifests(
    *, providers: str, core: bool, catalogue: bool, registry: str, namespace: str, for_deletion: bool
) -> None:
    """Print what the charts render to, without the CRDs: airunway manifests | kubectl apply --server-side -f -

    For machines without helm, and for GitOps repositories. The CRDs (airunway crds) and the namespace are not included,
    so that `airunway manifests --for-deletion | kubectl delete -f -` deletes no ModelDeployment.
    """
    import yaml

    from airunway.install.bundled_charts import CATALOGUE, CORE, bundled, is_kept, placed, provider_part, released_to

    with _reporting():
        released = released_to(needed=not registry)
        parts = [name for name, wanted in ((CORE, core), (CATALOGUE, catalogue)) if wanted]
        for name in [*parts, *map(provider_part, _names(providers))]:
            for obj in _objects(bundled(name).manifests.read_text(encoding="utf-8")):
                if for_deletion and is_kept(obj):
                    continue
                found = placed(obj, namespace=namespace, images=(released, registry or released))
                click.echo(yaml.safe_dump(found, explicit_start=True, sort_keys=False), nl=False)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _objects(text: str) -> list[Resource]:
    """The objects of manifests. Raises ManifestError."""
    from io import StringIO

    from airunway.tools.manifests import read_manifests

    return list(read_manifests(StringIO(text)))


async def _bring(client: Client, helm: Helm, names: Sequence[str], *, dry_run: bool, timeout: float) -> None:
    """Install or upgrade these parts with helm, after all checks have passed."""
    from airunway.install.bundled_charts import bundled, released_to
    from airunway.install.helm import HelmError
    from airunway.upgrades.definitions import harms_in

    released_to(needed=not helm.images)
    parts = [bundled(name) for name in names]
    releases = await helm.releases()
    _refuse([*helm.foreign(releases, names), *helm.unfinished(releases, names)])
    await _owned(client, helm, [name for name in names if name in releases])
    try:
        rendered = {part.name: _objects(await helm.rendered(part)) for part in parts}
    except HelmError as error:  # the charts also refuse a second installation for the same deployments
        raise HelmError(f"nothing was changed: {error}") from error
    definitions = [obj for found in rendered.values() for obj in found if obj["kind"] == "CustomResourceDefinition"]
    _refuse(map(str, await harms_in(client, definitions)))
    for part in parts:
        if dry_run:
            _list(part.name, "to be applied by helm", rendered[part.name])
        else:
            click.echo(f"{part.name}: helm upgrade --install")
            await helm.apply(part, timeout=timeout)
    if not dry_run:
        click.echo("next: airunway doctor checks the installation")


async def _owned(client: Client, helm: Helm, names: Iterable[str]) -> Mapping[str, Sequence[Resource]]:
    """The objects of each release. Exits with 1 if one lists foreign objects, which helm would delete.

    Every account that may write Secrets in the namespace can forge the Secret of a release.
    """
    from airunway.install.helm import not_of_release

    found = {name: _objects(await helm.manifest(name)) for name in names}
    _refuse(
        [
            f"Helm's release {name} lists objects that it did not create: {', '.join(foreign)}. helm would delete them."
            f" Check who wrote it (kubectl get secrets -n {helm.namespace} -l owner=helm,name={name} "
            "--show-managed-fields -o yaml), and delete the forged Secret"
            for name, objects in found.items()
            if (foreign := await not_of_release(client, objects, name=name, namespace=helm.namespace))
        ]
    )
    return found


def _refuse(reasons: Iterable[str]) -> None:
    if found := list(reasons):
        fail("\n".join(["nothing was changed:", *(f"  {each}" for each in found)]))


def _list(name: str, what: str, objects: Iterable[Resource]) -> None:
    from airunway.install.helm import named

    click.echo(printable(f"{name}, {what}:"))
    for obj in objects:
        click.echo(printable(f"  {named(obj)}"))


def _confirm(*, yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        fail("nothing was changed: cannot ask for confirmation without a terminal; use --yes")
    if not yes and not click.confirm("Uninstall?"):
        fail("nothing was changed")


def _without_helm(namespace: str) -> str:
    return f"""
  airunway crds --apply
  kubectl create namespace {namespace}
  airunway manifests --providers NAMES --namespace {namespace} | kubectl apply --server-side -f -
To uninstall:
  airunway manifests --for-deletion --providers NAMES --namespace {namespace} | kubectl delete -f -"""


def _fail_without_releases(namespace: str) -> NoReturn:
    fail(
        f"helm has no release of AI Runway in {namespace} (helm list -A shows others). To upgrade an installation "
        f"without helm:{_without_helm(namespace)}"
    )


def _run(
    work: Callable[[Client, Helm], Awaitable[None]],
    *,
    namespace: str,
    registry: str = "",
    access: Access,
) -> None:
    from airunway.install.helm import Helm

    program = shutil.which("helm")
    if program is None:
        fail(f"helm is not on PATH. Install helm 3.17 or newer, or install without helm:{_without_helm(namespace)}")
    helm = Helm(program=program, namespace=namespace, images=registry, **access._asdict())

    async def main(client: Client) -> None:
        with _reporting():
            await work(client, helm)

    on_cluster(main, access)


@contextmanager
def _reporting() -> Iterator[None]:
    from airunway.install.bundled_charts import ChartNotBundled
    from airunway.install.helm import HelmError

    try:
        with inputs.reporting():
            yield
    except (ChartNotBundled, HelmError) as error:
        fail(str(error))
