"""``airunway diff`` shows what an edited deployment would create, update, recreate, restart or delete upstream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import inputs
from airunway.cli.cluster import Access, explained, on_cluster, parse_target
from airunway.cli.manifests import manifests_in
from airunway.cli.options import cluster_options, deployment_argument, file_option, namespace_option, output_option
from airunway.cli.parameters import Command
from airunway.cli.printing import as_document
from airunway.redaction import printable
from airunway.resource import key_of

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.view.plan import DeploymentPlan

DIFFERENT = 1
"""Exit code: something would change, as of ``kubectl diff``."""
WRONG = 2
"""Exit code: there is no plan."""

_SIGNS = {"create": "+", "update": "~", "recreate": "!", "delete": "-", "keep": "=", "conflict": "x"}


@click.command(cls=Command)
@deployment_argument("Only this deployment of the file.", "[md/NAME]")
@file_option("The edited deployments; - for standard input.", required=True)
@namespace_option("Namespace where the file names none (default: the context's).")
@output_option("text", "json", "yaml", "name")
@cluster_options
def diff(
    target: tuple[str, ...], *, file: Path, namespace: str, output: str, kubeconfig: Path | None, context: str | None
) -> None:
    """Show what an edit would do: to the deployment, and to each object of its provider: create, update, restart its
    pods, recreate, delete.

    airunway diff -f llama.yaml

    The API server judges the edit by a dry run, with its rules and webhooks; nothing is written. The plan is made by
    the provider's plugin that is installed here, for what runs in the cluster. Runtime configs and model templates in
    the file count as applied. Credentials in the diff are hidden.

    Exits with 0 if nothing would change, with 1 if something would, with 2 if there is no plan.
    """
    with _errors(), inputs.reporting():
        name = parse_target(target) if target else ""
        plans, problems = on_cluster(lambda client: _plans(client, file, name, namespace), Access(kubeconfig, context))
    for problem in problems:
        click.echo(f"airunway: {printable(problem)}", err=True)
    if output == "text":
        click.echo("\n\n".join("\n".join(map(printable, _lines(plan))) for plan in plans), nl=bool(plans))
    elif output == "name":
        for line in (each for plan in plans for each in _names(plan)):
            click.echo(printable(line))
    else:
        click.echo(as_document([plan.as_resource() for plan in plans], output), nl=False)
    if problems:
        raise click.exceptions.Exit(WRONG)
    if any(plan.differs for plan in plans):
        raise click.exceptions.Exit(DIFFERENT)


@contextmanager
def _errors() -> Iterator[None]:
    """Errors end with `WRONG`: 1 says that there are differences."""
    try:
        yield
    except click.exceptions.Exit as ended:
        raise click.exceptions.Exit(WRONG) from ended


async def _plans(client: Client, file: Path, name: str, namespace: str) -> tuple[list[DeploymentPlan], list[str]]:
    """The plans of the deployments of a file, and why there is none for others. Raises ManifestError and OSError."""
    from airunway.kube import ApiError, Forbidden
    from airunway.plugins.errors import PluginError, PluginFault
    from airunway.snapshots.reader import denied
    from airunway.tools.assignment import installed_plugin, provider_among
    from airunway.tools.manifests import ManifestError
    from airunway.upgrades.edit_reading import EditReader

    given = manifests_in(file, namespace=namespace or client.config.namespace)
    wanted = [each for each in given.deployments if not name or key_of(each).name == name]
    if not wanted:
        raise ManifestError(f"{file}: contains no ModelDeployment {name!r}")
    reader = EditReader(
        client, load=installed_plugin, choose=provider_among, configs=given.configs, templates=given.templates
    )
    plans: list[DeploymentPlan] = []
    problems: list[str] = []
    for deployment in wanted:
        key = key_of(deployment)
        if not key.name:
            problems.append(f"{file}: a ModelDeployment has no metadata.name")
            continue
        try:
            plans.append(await reader.plan(deployment))
        except Forbidden as error:
            problems.append(f"{key}: {denied(error, key.namespace)}")
        except ApiError as error:
            problems.append(f"{key}: {explained(error, client.config.server)}")
        except (PluginError, PluginFault) as error:
            problems.append(f"{key}: {error}")
    return plans, problems


# ------------------------------------------------------------------------------------------------------ what is printed


def _lines(plan: DeploymentPlan) -> Iterator[str]:
    from airunway.view.plan import step_words, summary_of

    head = f"ModelDeployment {plan.namespace}/{plan.name}"
    by = f"{plan.engine or 'no engine'} by {plan.provider or 'no provider'}"
    if plan.provider_before and plan.provider_before != plan.provider:
        by += f" (before: {plan.provider_before})"
    yield f"{head}, {by}: {summary_of(plan)}"
    waits = "Waits" if any(step.changes for step in plan.steps) else "Nothing is written upstream"
    for text in plan.waits:
        yield f"  {waits}: {text}"
    for text in plan.warnings:
        yield f"  Warning: {text}"
    for text in plan.notes:
        yield f"  Note: {text}"
    for each in plan.unseen:
        yield f"  Not seen: {each}"
    for step in (plan.deployment, *plan.steps):
        yield f"{_SIGNS[step.action]} {step.kind}/{step.name}: {step_words(step)}"
        for line in step.diff:
            yield f"    {line}"


def _names(plan: DeploymentPlan) -> Iterator[str]:
    for step in (plan.deployment, *plan.steps):
        if step.changes:
            group = step.api_version.rpartition("/")[0]
            yield f"{step.kind.lower()}{f'.{group}' if group else ''}/{step.name}"
