"""``airunway explain`` shows why a deployment gets its engine and provider, what would change that, and which
template, runtime config, route and model cache it has.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from airunway.cli import inputs
from airunway.cli.explained_cache import cache_explanation, cache_lines
from airunway.cli.explained_config import config_explanation, config_lines
from airunway.cli.explained_template import origin_of, template_explanation, template_lines
from airunway.cli.options import Context, Kubeconfig
from airunway.cli.printing import as_document, terminal_width
from airunway.redaction import printable
from airunway.table import format_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airunway.resource import Resource
    from airunway.view.explanation import CandidateRow, ExplanationView

__all__ = ["explain"]

INSTALLED = "installed"
"""Value of ``--providers`` for the installed plugins."""


def explain(
    target: Annotated[list[str] | None, typer.Argument(metavar="md/NAME", help="A deployment of the cluster.")] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--filename", "-f", help="Deployments of a file instead; - for standard input.")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace (default: the context's).")] = "",
    providers: Annotated[
        str,
        typer.Option(
            help="InferenceProviderConfigs from a file or directory, or 'installed' for the installed plugins: "
            "no cluster is needed. Default: those of the cluster."
        ),
    ] = "",
    policy: Annotated[
        Path | None,
        typer.Option(
            help="The policy file of the controller (its --policy), so that the answer is the controller's. Labels of "
            "namespaces come from the cluster; with --providers from Namespaces in the file of -f."
        ),
    ] = None,
    runtime_config: Annotated[
        list[Path] | None,
        typer.Option(
            help="File with RuntimeConfigs or ClusterRuntimeConfigs, with -f; may be repeated. Those in FILENAME count."
        ),
    ] = None,
    why_not: Annotated[str, typer.Option(help="Show why this provider is not selected.")] = "",
    output: Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Format.")] = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Explain the selection: every provider with its verdict, failed checks, rules and score, and what would change it.

    Then the model template with each value that comes from it, the runtime config with the origin of each field, what
    of it waits, the route, and the model cache: its artifact, how far it is, and why it is shared or not.

    airunway explain md/llama -n ml

    airunway explain -f llama.yaml --providers installed --why-not kaito
    """
    if bool(target) == (file is not None):
        raise typer.BadParameter("name one ModelDeployment (md/NAME), or a file with -f")
    if target and providers:
        raise typer.BadParameter(
            "--providers needs -f: a deployment of the cluster is explained with the providers of the cluster"
        )
    if target and runtime_config:
        raise typer.BadParameter(
            "--runtime-config needs -f: a deployment of the cluster is explained with the configs of the cluster"
        )
    from airunway.cli.template_inputs import with_templates
    from airunway.resource import key_of
    from airunway.selection import provider_facts
    from airunway.selection.explanation import explain as explained
    from airunway.selection.explanation import undecided
    from airunway.view.explanation import explanation_view

    with inputs.reporting():
        rules = inputs.policy_in(policy) if policy is not None else None
        given = inputs.manifests_in(file, runtime_config or (), namespace=namespace) if file is not None else None
        deployments, configs, now = _read(target, given, namespace, providers, kubeconfig, context)
        if given is not None:
            runtime_configs = given.configs
        else:
            runtime_configs = inputs.read_runtime_configs(deployments[0], kubeconfig=kubeconfig, context=context)
        found = with_templates(
            deployments,
            given.templates if given is not None else (),
            kubeconfig=kubeconfig,
            context=context,
            on_cluster=not providers,
        )
        deployments = [each.deployment for each in found]
        labels: dict[str, dict[str, str]] = {}
        if policy is not None and file is not None and providers:
            labels = inputs.namespace_labels_in(file)
        elif policy is not None:
            names = {key_of(deployment).namespace for deployment in deployments}
            labels = inputs.read_namespace_labels(names, kubeconfig=kubeconfig, context=context)
    facts = [provider_facts(config) for config in configs]
    if why_not and all(provider.name != why_not for provider in facts):
        known = ", ".join(sorted(provider.name for provider in facts)) or "none"
        inputs.fail(f"unknown provider {why_not!r} (providers: {known})")
    explanations = [
        explained(
            each.deployment,
            facts,
            now=now,
            policy=rules,
            namespace_labels=labels.get(key_of(each.own).namespace),
            asked=inputs.asking_plugins(each.deployment, now=now),
        )
        if not each.problem
        else undecided(each.own, message=each.reason)
        for each in found
    ]
    explanations = [
        replace(
            explanation,
            warnings=inputs.warnings_of(deployment, explanation.provider, explanation.engine.engine, now=now),
        )
        if explanation.provider and explanation.engine and explanation.engine.engine and not explanation.violations
        else explanation
        for deployment, explanation in zip(deployments, explanations, strict=True)
    ]
    artifacts: list[Resource] = []
    if file is None:
        artifacts = inputs.read_artifacts(deployments[0], kubeconfig=kubeconfig, context=context)
    followed = [
        {
            **template_explanation(each),
            **config_explanation(each.deployment, runtime_configs, own=each.own, template=origin_of(each)),
            **cache_explanation(each.deployment, runtime_configs, artifacts),
        }
        for each in found
    ]
    if output == "table":
        blocks = []
        for deployment, explanation, following in zip(deployments, explanations, followed, strict=True):
            lines = [*_lines(explanation_view(explanation), why_not)]
            if template := [*template_lines(following)]:
                lines += ["", *template]
            if target or _says_something(following):
                lines += ["", *config_lines(following, warnings=_waiting(deployment))]
            lines += cache_lines(following)
            blocks.append("\n".join(map(printable, lines)))
        typer.echo("\n\n".join(blocks))
        for deployment in deployments if target else ():
            typer.echo("\n".join(["", *map(printable, _state(deployment))]))
    else:
        documents = [
            {**explanation.as_resource(), **following}
            for explanation, following in zip(explanations, followed, strict=True)
        ]
        typer.echo(as_document(documents, output), nl=False)


def _read(
    target: list[str] | None,
    given: inputs.Manifests | None,
    namespace: str,
    providers: str,
    kubeconfig: Path | None,
    context: str | None,
) -> tuple[list[Resource], list[Resource], datetime]:
    """Deployments, provider configs, and the time for which they are evaluated."""
    if given is None:
        name = inputs.parse_target(target or [])
        deployment, configs = inputs.read_cluster(
            kubeconfig=kubeconfig, context=context, namespace=namespace, name=name
        )
        return [deployment] if deployment is not None else [], configs, datetime.now(UTC)
    deployments = given.deployments
    if providers == INSTALLED:
        return deployments, inputs.installed_configs(), datetime.now(UTC)
    if providers:
        configs = inputs.provider_configs_in(Path(providers))
        return deployments, configs, inputs.time_of(configs)
    _, configs = inputs.read_cluster(kubeconfig=kubeconfig, context=context, namespace=namespace, name=None)
    return deployments, configs, datetime.now(UTC)


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


def _waiting(deployment: Resource) -> list[str]:
    """The warnings of the status that say which settings of the runtime config wait: names, never values."""
    warnings = (deployment.get("status") or {}).get("warnings") or ()
    return [str(warning) for warning in warnings if "(runtime config " in str(warning)]


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
