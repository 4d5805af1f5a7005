"""``airunway explain`` shows why a deployment gets its engine and provider, what would change that, and which
template, runtime config, route and model cache it has.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import completers, inputs
from airunway.cli.cluster import Access, about_deployment, fail, on_cluster, parse_target
from airunway.cli.explained import (
    cache_explanation,
    cache_lines,
    config_explanation,
    config_lines,
    origin_of,
    template_explanation,
    template_lines,
)
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
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from airunway.cli.template_inputs import Expanded
    from airunway.kube import Client
    from airunway.selection.explanation import Explanation
    from airunway.selection.facts import ProviderFacts
    from airunway.validation.policy import Policy
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
    from airunway.cli.template_inputs import with_templates
    from airunway.selection.facts import provider_facts
    from airunway.view.explanation import explanation_view

    access = Access(kubeconfig, context)
    with inputs.reporting():
        rules = inputs.policy_in(policy) if policy is not None else None
        given = manifests_in(file, runtime_config or (), namespace=namespace) if file is not None else None
        deployments, configs, now = _read(target, given, namespace, providers, access)
        runtime_configs = given.configs if given is not None else _read_runtime_configs(deployments[0], access)
        found = with_templates(
            deployments,
            given.templates if given is not None else (),
            access=access,
            on_cluster=not providers,
        )
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
    explanations = [_explanation(each, facts, now=now, policy=rules, labels=labels) for each in found]
    artifacts: list[Resource] = []
    if file is None:
        artifacts = _read_artifacts(found[0].deployment, access)
    followed = [
        {
            **template_explanation(each),
            **config_explanation(each.deployment, runtime_configs, own=each.own, template=origin_of(each)),
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


def _explanation(
    found: Expanded,
    facts: Sequence[ProviderFacts],
    *,
    now: datetime,
    policy: Policy | None,
    labels: Mapping[str, Mapping[str, str]],
) -> Explanation:
    """The selection of a deployment, with the warnings of the provider that it gets; `labels` are by namespace."""
    from airunway.selection import explanation as selection

    if found.problem:
        return selection.undecided(found.own, message=found.reason)
    explanation = selection.explain(
        found.deployment,
        facts,
        now=now,
        policy=policy,
        namespace_labels=labels.get(key_of(found.own).namespace),
        asked=inputs.asking_plugins(found.deployment, now=now),
    )
    engine = explanation.engine.engine if explanation.engine is not None else None
    if not explanation.provider or not engine or explanation.violations:
        return explanation
    warnings = inputs.warnings_of(found.deployment, explanation.provider, engine, now=now)
    return replace(explanation, warnings=warnings)


# ------------------------------------------------------------------------------------------------------ what is read


def _read(
    target: Sequence[str],
    given: Manifests | None,
    namespace: str,
    providers: str,
    access: Access,
) -> tuple[list[Resource], list[Resource], datetime]:
    """Deployments, provider configs, and the time for which they are evaluated."""
    if given is None:
        name = parse_target(target or [])
        deployments, configs = _read_cluster(access, namespace=namespace, name=name)
        return deployments, configs, datetime.now(UTC)
    deployments = given.deployments
    if providers == INSTALLED:
        return deployments, inputs.installed_configs(), datetime.now(UTC)
    if providers:
        configs = provider_configs_in(Path(providers))
        return deployments, configs, _time_of(configs)
    _, configs = _read_cluster(access, namespace=namespace, name="")
    return deployments, configs, datetime.now(UTC)


def _read_cluster(access: Access, *, namespace: str, name: str) -> tuple[list[Resource], list[Resource]]:
    """The ModelDeployment `name` (empty: none), all InferenceProviderConfigs of a cluster; exits with 1 on errors."""
    from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT

    async def read(client: Client, key: ObjectKey) -> tuple[list[Resource], list[Resource]]:
        return [await client.get(MODEL_DEPLOYMENT, key)], await client.list_all(INFERENCE_PROVIDER_CONFIG)

    if name:
        return about_deployment([name], read, namespace=namespace, access=access)
    return [], on_cluster(lambda client: client.list_all(INFERENCE_PROVIDER_CONFIG), access)


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


def _read_runtime_configs(deployment: Resource, access: Access) -> list[Resource]:
    """The RuntimeConfig and the ClusterRuntimeConfig of the name that the deployment follows, if they exist.

    A cluster without these kinds has none. One that may not be read is reported on stderr, and counts as absent.
    Exits with 1 on other errors.
    """
    from airunway.configs.resolution import config_name
    from airunway.kinds import CLUSTER_RUNTIME_CONFIG, RUNTIME_CONFIG
    from airunway.kube import Forbidden

    name, namespace = config_name(deployment), key_of(deployment).namespace

    async def read(client: Client) -> list[Resource]:
        configs = []
        for kind, key in (
            (RUNTIME_CONFIG, ObjectKey(namespace, name)),
            (CLUSTER_RUNTIME_CONFIG, ObjectKey("", name)),
        ):
            try:
                found = await client.find(kind, key)
            except Forbidden as error:
                click.echo(printable(f"airunway: {error}: it counts as absent here"), err=True)
                continue
            if found is not None:
                configs.append({**found, "kind": kind.kind})
        return configs

    return on_cluster(read, access)


def _read_artifacts(deployment: Resource, access: Access) -> list[Resource]:
    """The ModelArtifacts of the deployment's namespace, if it asks for a model cache.

    A cluster without the kind has none. Without the right to list them, standard error names it. Exits with 1 on
    other errors.
    """
    from airunway.kinds import MODEL_ARTIFACT
    from airunway.kube import Forbidden

    if dig(deployment, "spec", "model", "cache", "mode") in (None, "None"):
        return []

    async def read(client: Client) -> list[Resource]:
        try:
            return await client.list_if_served(MODEL_ARTIFACT, namespace=key_of(deployment).namespace)
        except Forbidden as error:
            click.echo(printable(f"airunway: {error}: they count as absent here"), err=True)
            return []

    return on_cluster(read, access)


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
