"""``airunway preflight`` shows the effect of an upstream's new CRDs on the deployments of a provider."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import inputs
from airunway.cli.cluster import Access, fail, on_cluster, remark
from airunway.cli.manifests import manifests_in, objects_in
from airunway.cli.options import cluster_options, file_option, namespace_option, output_option, parse_settings
from airunway.cli.parameters import PATH, Command, option
from airunway.cli.printing import as_document, terminal_width
from airunway.redaction import printable
from airunway.resource import Resource, key_of
from airunway.table import format_table
from airunway.tools.manifests import ManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airunway.kube import Client
    from airunway.plugins.host import ProviderHost
    from airunway.tools.assignment import Assigned
    from airunway.upgrades.forecast import Effect, Forecast
    from airunway.upgrades.preflight import Preflight, ProviderInUse, ProviderRun

HARMS = 3
"""Exit code: something would break or be recreated at once."""

HARMS_LATER = 5
"""Exit code: nothing breaks now, but because of the upgrade the next change would break or recreate something."""

_FILES = (".yaml", ".yml", ".json")


@click.command(cls=Command)
@option(
    "--upstream",
    required=True,
    metavar="PROVIDER=DIR|VERSION",
    help="The provider, and its upstream's new CRDs: a file or folder, or a release in the folder of --recordings.",
)
@option(
    "--recordings",
    type=PATH,
    envvar="AIRUNWAY_UPSTREAM_CRDS",
    help="Folder with CRDs of many releases, as PROVIDER/vX.Y.Z/*.yaml; a release that is not there has those "
    "of the newest one before it.",
)
@file_option("Deployments of a file instead of the cluster's; - for standard input.")
@namespace_option("Only this namespace (default: all).")
@option(
    "settings",
    "--set",
    multiple=True,
    help="A setting of the provider, KEY=VALUE, instead of what it runs with; may be repeated.",
)
@output_option("table", "json", "yaml")
@cluster_options
def preflight(
    *,
    upstream: str,
    recordings: Path | None,
    file: Path | None,
    namespace: str,
    settings: tuple[str, ...],
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show what an upstream's new CRDs would do to each deployment: leave, update, recreate or break it.

    airunway preflight --upstream kaito=./kaito-0.13/crds

    The provider's settings are read from its Lease; the output shows what was assumed instead.

    NOW is the effect at once, ON CHANGE the worst effect of the next change of the spec (or of airunway.ai/adopt).
    The forecast is made with the plugin that is installed here. The cluster is only read.

    Exits with 0 if nothing breaks or is recreated, with 3 if something is at once, with 5 if something is at its next
    change and would not be without the upgrade, with 1 if the forecast cannot be made.
    """
    from airunway.plugins.errors import PluginError
    from airunway.plugins.registry import load
    from airunway.upgrades import preflight as reading
    from airunway.upgrades.preflight import ProviderRun

    name, separator, where = upstream.partition("=")
    if not separator or not name or not where:
        raise click.BadParameter(f"--upstream {upstream}: write PROVIDER=DIR, or PROVIDER=VERSION")
    values = parse_settings(settings or [])
    with inputs.reporting():
        host = load(name)
        read = _definitions(host, _sources(name, where, recordings))
        definitions = {crd: definition for crd, (definition, _) in read.items()}
        origins = {crd: origin for crd, (_, origin) in read.items()}
        if file is not None:
            running = _from_file(host, file, namespace, definitions, access=Access(kubeconfig, context))
            provider = ProviderRun(assumed="default settings and --unknown-schema Verify: no cluster was read")
        else:
            running, provider = _from_cluster(host, namespace, Access(kubeconfig, context))
        values = {**provider.settings, **values}
        try:
            found = reading.preflight(
                host, definitions, running, settings=host.settings(values), verify=provider.verify
            )
        except PluginError as error:
            fail(str(error))
    if output == "table":
        click.echo("\n".join(map(printable, [*_provider_lines(provider, values), *_lines(found, origins)])))
    else:
        document = {**_document(found, origins), "running": _running(provider, values)}
        click.echo(as_document([document], output), nl=False)
    if not found.is_safe:
        raise click.exceptions.Exit(HARMS)
    if found.harmed_later:
        raise click.exceptions.Exit(HARMS_LATER)


def _sources(provider: str, where: str, recordings: Path | None) -> list[Path]:
    """The files and folders that may have the CRDs, in order of precedence.

    Raises ManifestError.
    """
    given = Path(where)
    if given.exists():
        return [given]
    wanted = _numbers(where)
    if not wanted:
        raise ManifestError(f"{where}: no such file or folder, and not a release number")
    if recordings is None:
        raise ManifestError(
            f"the CRDs of {provider} {where} are not here: give the folder that has them, or a folder of many releases "
            "with --recordings"
        )
    if not (recordings / provider).is_dir():
        raise ManifestError(
            f"there is no folder {recordings / provider}: --recordings must have CRDs as {provider}/vX.Y.Z/*.yaml"
        )
    found = [path for path in (recordings / provider).glob("v*") if path.is_dir() and _numbers(path.name)]
    older = [path for path in found if _numbers(path.name)[: len(wanted)] <= wanted]
    if not older:
        raise ManifestError(f"{recordings / provider} has no release {where} and no earlier one")
    return sorted(older, key=lambda path: _numbers(path.name), reverse=True)


def _numbers(release: str) -> tuple[int, ...]:
    match = re.fullmatch(r"v?(\d+(?:\.\d+)*)", release)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _definitions(host: ProviderHost, sources: list[Path]) -> dict[str, tuple[Resource, Path]]:
    """The CRDs of the provider's kinds by name, each with its source. Raises ManifestError."""
    from airunway.upgrades.preflight import definition_names

    wanted = set(definition_names(host))
    found: dict[str, tuple[Resource, Path]] = {}
    for source in sources:
        if missing := wanted - set(found):
            found |= {name: (crd, source) for name, crd in _read_definitions(source, missing).items()}
    if not found:
        kinds = ", ".join(sorted(wanted)) or "none"
        raise ManifestError(f"{sources[0]}: no CRD of provider {host.name} found (its CRDs: {kinds})")
    return found


def _read_definitions(path: Path, wanted: set[str]) -> dict[str, Resource]:
    """The wanted CRDs in a file or folder. Raises ManifestError for a duplicate or malformed one."""
    from airunway.schema import malformed

    files = sorted(each for each in path.rglob("*") if each.suffix in _FILES) if path.is_dir() else [path]
    found: dict[str, Resource] = {}
    for each in files:
        content = each.read_bytes()
        if not any(name.encode() in content for name in wanted):
            continue  # CRDs of others may be megabytes
        for crd in objects_in(each):
            name = key_of(crd).name
            if crd.get("kind") != "CustomResourceDefinition" or name not in wanted:
                continue
            if name in found:
                raise ManifestError(f"{path} has more than one CustomResourceDefinition {name}; name one file")
            if problem := malformed(crd):
                raise ManifestError(f"{each}: CustomResourceDefinition {name}: {problem}")
            found[name] = crd
    return found


def _from_cluster(host: ProviderHost, namespace: str, access: Access) -> tuple[ProviderInUse, ProviderRun]:
    from airunway.upgrades.preflight import read_provider_run, read_running

    async def read(client: Client) -> tuple[ProviderInUse, ProviderRun]:
        return await read_running(client, host, namespace=namespace), await read_provider_run(client, host.name)

    return on_cluster(read, access)


def _from_file(
    host: ProviderHost,
    path: Path,
    namespace: str,
    definitions: Mapping[str, Resource],
    *,
    access: Access,
) -> ProviderInUse:
    """The deployments of a file as the core would assign them to the provider, in a cluster with the new CRDs."""
    from datetime import UTC, datetime

    from airunway.tools.assignment import Unchosen, choose
    from airunway.upgrades.forecast import Cluster
    from airunway.upgrades.preflight import ProviderInUse, with_definitions

    given = []
    manifests = manifests_in(path, namespace=namespace)
    found = inputs.with_templates(manifests.deployments, manifests.templates, access=access, on_cluster=False)
    for each in found:
        deployment = each.deployment
        if each.problem:
            fail(f"{key_of(deployment)}: {each.problem}")
        try:
            choice = choose(deployment, now=datetime.now(UTC))
        except Unchosen as error:
            fail(f"{key_of(deployment)}: {error}")
        if choice.provider == host.name:
            given.append(_as_given(choice))
        else:
            remark(f"airunway preflight: {key_of(deployment)} skipped: its provider is {choice.provider}")
    return ProviderInUse(
        cluster=with_definitions(host, definitions, Cluster(definitions={}, kubernetes=(1, 30))),
        deployments=tuple(given),
        objects={},
        configs=tuple(manifests.configs),
        planned=True,
    )


def _as_given(choice: Assigned) -> Resource:
    """A deployment with the status that the core would give it."""
    metadata = {"uid": "", "generation": 1, **choice.deployment["metadata"]}
    valid = {"type": "Validated", "status": "True", "observedGeneration": metadata["generation"]}
    status = {"provider": {"name": choice.provider}, "engine": {"type": choice.engine}, "conditions": [valid]}
    return {**choice.deployment, "metadata": metadata, "status": status}


# ---------------------------------------------------------------------------------------------------- what is printed


def _provider_lines(provider: ProviderRun, values: Mapping[str, object]) -> Iterator[str]:
    """How the provider runs, as far as known."""
    if provider.source:
        policy = f"--unknown-schema {'Verify' if provider.verify else 'Fail'}"
        given = ", ".join(f"{key}={value}" for key, value in values.items()) or "default settings"
        yield f"Settings of {provider.source}: {given}, {policy}"
    if provider.assumed:
        yield f"Assumed: {provider.assumed}"
    yield ""


def _running(provider: ProviderRun, values: Mapping[str, object]) -> Resource:
    return {
        "source": provider.source,
        "settings": dict(values),
        "unknownSchema": "Verify" if provider.verify else "Fail",
        "assumed": provider.assumed,
    }


def _lines(found: Preflight, origins: Mapping[str, Path]) -> Iterator[str]:
    for change in found.changes:
        yield f"{change.crd} of {origins[change.crd]}: {change.verdict.message}"
        for refusal in change.refused:
            yield f"  {change.crd}: the API server would refuse it: {refusal}"
        for note in change.notes:
            yield f"  {change.crd}: {note}"
    yield ""
    if found.refused:
        yield "The API server would refuse the upgrade; nothing that runs would change."
        return
    if not found.forecasts:
        yield "No deployments."
        return
    rows = [(str(each.deployment), each.at_once.value, each.on_change.value, _reason(each)) for each in found.forecasts]
    yield from format_table(("deployment", "now", "on change", "why"), rows, width=terminal_width()).split("\n")
    yield ""
    now, on_change = _counted(found.counts), _counted(found.counts_on_change)
    yield f"{len(found.forecasts)} deployments: now {now}; on change {on_change}"
    if later := found.harmed_later:
        yield (
            f"Because of the upgrade the next change of {len(later)} of them would break or recreate it: see ON CHANGE."
        )


def _counted(counts: Mapping[Effect, int]) -> str:
    return ", ".join(f"{count} {effect.value}" for effect, count in sorted(counts.items()))


def _reason(found: Forecast) -> str:
    parts = [found.why] if found.why else []
    if found.already:
        parts.append(f"without the upgrade, too: {found.already}")
    if found.why_on_change and found.why_on_change != found.why:
        parts.append(
            f"on change: {found.why_on_change}" if found.at_once is not found.on_change else found.why_on_change
        )
    return "; ".join(parts) or "-"


def _document(found: Preflight, origins: Mapping[str, Path]) -> Resource:
    """The report as JSON. Fields are only ever added."""
    return {
        "kind": "PreflightReport",
        "provider": found.provider,
        "safe": found.is_safe,
        "harmedLater": len(found.harmed_later),
        "changes": [
            {
                "crd": change.crd,
                "from": str(origins[change.crd]),
                "reason": change.verdict.reason,
                "message": change.verdict.message,
                "refused": list(change.refused),
                "notes": list(change.notes),
            }
            for change in found.changes
        ],
        "deployments": [
            {
                "namespace": each.deployment.namespace,
                "name": each.deployment.name,
                "now": each.at_once.value,
                "why": each.why,
                "onChange": each.on_change.value,
                "whyOnChange": each.why_on_change,
                "onAdopt": each.on_adopt.value,
                "changes": {field: effect.value for field, effect in each.changes.items()},
                "harmedLater": each.harmed_later,
                "already": each.already,
            }
            for each in found.forecasts
        ],
    }
