"""``airunway explain`` shows why a deployment gets its engine and provider, what would change that, and which
template, runtime config, route and model cache it has.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import completers, inputs
from airunway.cli.cluster import Access, about_deployment, fail, on_cluster, remark
from airunway.cli.manifests import Manifests, manifests_in, namespace_labels_in, provider_configs_in
from airunway.cli.options import (
    cluster_options,
    deployment_argument,
    file_option,
    namespace_option,
    output_option,
    providers_option,
)
from airunway.cli.parameters import PATH, Command, option
from airunway.cli.printing import as_document, terminal_width
from airunway.redaction import printable
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of, parse_time
from airunway.table import format_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from airunway.kube import Client
    from airunway.tools.expanded import Expanded
    from airunway.view.explanation import CandidateRow, ExplanationView

INSTALLED = "installed"
"""Value of ``--providers`` for the installed plugins."""


@click.command(cls=Command)
@deployment_argument("A deployment of the cluster.", "md/NAME")
@file_option("Deployments of a file instead; - for standard input.")
@namespace_option()
@providers_option(
    "InferenceProviderConfigs from a file or directory, or 'installed' for the installed plugins: "
    "no cluster is needed. Default: those of the cluster."
)
@option(
    "--policy",
    type=PATH,
    help="The policy file of the controller (its --policy), so that the answer is the controller's. Labels of "
    "namespaces come from the cluster; with --providers from Namespaces in the file of -f.",
)
@option(
    "--runtime-config",
    multiple=True,
    type=PATH,
    help="File with RuntimeConfigs or ClusterRuntimeConfigs, with -f; may be repeated. Those in FILENAME count.",
)
@option("--why-not", shell_complete=completers.providers, help="Show why this provider is not selected.")
@output_option("table", "json", "yaml")
@cluster_options
def explain(
    target: tuple[str, ...],
    *,
    file: Path | None,
    namespace: str,
    providers: str,
    policy: Path | None,
    runtime_config: tuple[Path, ...],
    why_not: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Explain the selection: every provider with its verdict, failed checks, rules and score, and what would change it.

    Then the model template with each value that comes from it, the runtime config with the origin of each field, what
    of it waits, the route, and the model cache: its artifact, how far it is, and why it is shared or not.

    airunway explain md/llama -n ml

    airunway explain -f llama.yaml --providers installed --why-not kaito
    """
    if bool(target) == (file is not None):
        raise click.BadParameter("name one ModelDeployment (md/NAME), or a file with -f")
    if target and providers:
        raise click.BadParameter(
            "--providers needs -f: a deployment of the cluster is explained with the providers of the cluster"
        )
    if target and runtime_config:
        raise click.BadParameter(
            "--runtime-config needs -f: a deployment of the cluster is explained with the configs of the cluster"
        )
    from airunway.cli.explained import cache_lines, config_lines, template_lines
    from airunway.selection.facts import provider_facts
    from airunway.tools.explained import (
        cache_explanation,
        config_explanation,
        selection_explanation,
        template_explanation,
    )
    from airunway.view.explanation import explanation_view

    access = Access(kubeconfig, context)
    with inputs.reporting():
        rules = inputs.policy_in(policy) if policy is not None else None
        given = manifests_in(file, runtime_config or (), namespace=namespace) if file is not None else None
        deployments, configs, now = _read(target, given, namespace, providers, access)
        templates = given.templates if given is not None else ()
        found = inputs.with_templates(deployments, templates, access=access, on_cluster=not providers)
        runtime_configs, artifacts = _read_followed(found[0], access) if given is None else (given.configs, [])
        labels: dict[str, dict[str, str]] = {}
        if policy is not None and file is not None and providers:
            labels = namespace_labels_in(file)
        elif policy is not None:
            names = {key_of(each.own).namespace for each in found}
            labels = _read_namespace_labels(names, access)
    facts = [provider_facts(config) for config in configs]
    if why_not and all(provider.name != why_not for provider in facts):
        known = ", ".join(sorted(provider.name for provider in facts)) or "none"
        hint = ""
        if file is not None and not providers:
            hint = "; --providers installed compares with those that are installed here"
        fail(f"unknown provider {why_not!r} (providers: {known}){hint}")
    explanations = [selection_explanation(each, facts, now=now, policy=rules, labels=labels) for each in found]
    followed = [
        {
            **template_explanation(each),
            **config_explanation(each.deployment, runtime_configs, own=each.own, template=each.origin),
            **cache_explanation(each.deployment, runtime_configs, artifacts),
        }
        for each in found
    ]
    if output != "table":
        documents = [
            {**explanation.as_resource(), **following}
            for explanation, following in zip(explanations, followed, strict=True)
        ]
        click.echo(as_document(documents, output), nl=False)
        return
    blocks = []
    for explanation, following in zip(explanations, followed, strict=True):
        lines = [*_lines(explanation_view(explanation), why_not)]
        if template := [*template_lines(following)]:
            lines += ["", *template]
        if target or _says_something(following):
            lines += ["", *config_lines(following)]
        lines += cache_lines(following)
        blocks.append("\n".join(map(printable, lines)))
    click.echo("\n\n".join(blocks))
    for each in found if target else ():
        click.echo("\n".join(["", *map(printable, _state(each.deployment))]))


# ------------------------------------------------------------------------------------------------------ what is read


def _read(
    target: Sequence[str], given: Manifests | None, namespace: str, providers: str, access: Access
) -> tuple[list[Resource], list[Resource], datetime]:
    """Deployments, provider configs, and the time for which they are evaluated. Exits with 1 on errors."""
    now = datetime.now(UTC)
    if given is not None and providers == INSTALLED:
        from airunway.tools.assignment import installed_configs

        return given.deployments, installed_configs(), now
    if given is not None and providers:
        configs = provider_configs_in(Path(providers))
        return given.deployments, configs, _time_of(configs)
    from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT

    async def read(client: Client, key: ObjectKey) -> tuple[list[Resource], list[Resource]]:
        return [await client.get(MODEL_DEPLOYMENT, key)], await client.list_all(INFERENCE_PROVIDER_CONFIG)

    if given is None:
        return *about_deployment(target, read, namespace=namespace, access=access), now
    return given.deployments, on_cluster(lambda client: client.list_all(INFERENCE_PROVIDER_CONFIG), access), now


def _time_of(configs: list[Resource]) -> datetime:
    """The time when the configs in files were recorded: the newest heartbeat, or now if there is none."""
    beats = [parse_time(dig(config, "status", "lastHeartbeat")) for config in configs]
    return max((beat for beat in beats if beat is not None), default=datetime.now(UTC))


def _read_namespace_labels(names: Collection[str], access: Access) -> dict[str, dict[str, str]]:
    """The labels of these namespaces of a cluster; none for one that does not exist. Exits with 1 on errors."""
    from airunway.kube import NAMESPACE, NotFound

    async def read(client: Client) -> dict[str, dict[str, str]]:
        found = {}
        for name in names:
            with suppress(NotFound):
                found[name] = labels_of(await client.get(NAMESPACE, ObjectKey("", name)))
        return found

    return on_cluster(read, access)


def _read_followed(found: Expanded, access: Access) -> tuple[list[Resource], list[Resource]]:
    """The runtime configs that a deployment follows, and the artifacts beside which it is. Exits with 1 on errors.

    What may not be read is named on stderr, and counts as absent.
    """
    from airunway.kinds import MODEL_ARTIFACT
    from airunway.snapshots.followed import read_followed

    read = on_cluster(lambda client: read_followed(client, found.own, found.deployment), access)
    for each in read.unseen:
        remark(f"airunway: {each}: it counts as absent here")
    artifacts = [each for each in read.items if each["kind"] == MODEL_ARTIFACT.kind]
    return [each for each in read.items if each not in artifacts], artifacts


# ---------------------------------------------------------------------------------------------------- what is printed


def _lines(view: ExplanationView, why_not: str) -> Iterator[str]:
    yield f"ModelDeployment {'/'.join(filter(None, (view.namespace, view.name)))}  {view.model}".rstrip()
    yield f"Valid:     {'no' if view.violations else 'yes'}"
    yield from (f"  {violation}" for violation in view.violations)
    if not view.parsed:
        if view.provider_reason:
            yield f"Provider:  none ({view.provider_reason})"
        return
    if view.violations:
        yield "  While the spec is invalid, nothing is created or changed. With a valid spec this would be selected:"
    yield f"Engine:    {view.engine or 'none'} ({view.engine_reason})"
    yield f"Provider:  {view.provider or 'none'} ({view.provider_reason})"
    yield from (f"Warning:   {warning}" for warning in view.warnings)
    if view.candidates:
        yield ""
        rows = [row for candidate in view.candidates for row in _rows(candidate)]
        yield from format_table(
            ("provider", "verdict", "score", "check", "detail"), rows, width=terminal_width()
        ).split("\n")
    for candidate in view.candidates:
        if candidate.name == why_not or (not view.provider and not why_not):
            yield ""
            yield candidate.why_not
            yield from (f"  {change}" for change in candidate.changes)


def _says_something(following: Resource) -> bool:
    """Whether there is a config, one is missing, or a route was asked for or refused; else a file's table is as short
    as without runtime configs.
    """
    config, routing = following["runtimeConfig"], following["routing"]
    return bool(config["found"] or config.get("message") or routing["request"] != "WherePossible")


def _state(deployment: Resource) -> Iterator[str]:
    """The state of a deployment of the cluster, and its root cause if something is wrong."""
    status = deployment.get("status") or {}
    yield f"State:     {status.get('phase', 'none')} ({status.get('reason', 'not reconciled yet')})"
    cause = status.get("rootCause")
    if cause:
        field = f", look at {cause['field']}" if cause.get("field") else ""
        yield f"Cause:     {cause.get('code')}: {cause.get('object')} since {cause.get('since')}{field}"
    if status.get("message"):
        yield f"           {status['message']}"


def _rows(candidate: CandidateRow) -> list[tuple[str, ...]]:
    """One row for each failed check and each rule; the first of them carries the verdict."""
    checks = [(check.name, check.detail) for check in candidate.checks]
    first = (candidate.name, candidate.verdict, str(candidate.score))
    rows = checks or [("-", "no objection; it has no rules")]
    return [(*(first if position == 0 else ("", "", "")), *row) for position, row in enumerate(rows)]
