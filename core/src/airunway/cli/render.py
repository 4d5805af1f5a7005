"""``airunway render`` prints the upstream objects that a provider would create, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from airunway.cli import completers, inputs
from airunway.cli.cluster import Access
from airunway.cli.manifests import manifests_in, namespace_labels_in
from airunway.cli.options import cluster_options, file_option, namespace_option, output_option, parse_settings
from airunway.cli.parameters import PATH, Command, option
from airunway.cli.printing import as_document
from airunway.redaction import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from airunway.configs.resolution import Resolution
    from airunway.plugins.contract import Context
    from airunway.plugins.host import ProviderHost
    from airunway.resource import Resource
    from airunway.tools.expanded import Expanded
    from airunway.validation.policy import Policy


@click.command(cls=Command)
@file_option("Deployments to render; - for standard input.", required=True)
@option(
    "--provider",
    shell_complete=completers.providers,
    help="The provider (default: the one of the spec, else as selection chooses).",
)
@namespace_option("Namespace where the file names none.")
@option("settings", "--set", multiple=True, help="A setting of the provider, KEY=VALUE; may be repeated.")
@option(
    "--runtime-config",
    multiple=True,
    type=PATH,
    help="File with RuntimeConfigs or ClusterRuntimeConfigs; may be repeated. Those in FILENAME count.",
)
@option("--upstream-version", help="Release of the upstream to write for (default: the newest known), e.g. 0.9.")
@option(
    "--policy",
    type=PATH,
    help="The policy file of the controller (its --policy). Labels of namespaces come from Namespaces in "
    "FILENAME. Default: only what is refused everywhere.",
)
@output_option("yaml", "json")
@cluster_options
def render(
    *,
    file: Path,
    provider: str,
    namespace: str,
    settings: tuple[str, ...],
    runtime_config: tuple[Path, ...],
    upstream_version: str,
    policy: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print what a provider would create: no cluster is needed, only the provider's plugin.

    The output is for the newest upstream that the provider knows, or for --upstream-version. Owner references are
    left out because they need the uid from the cluster. A deployment follows the runtime configs that are given, as
    in a cluster; one that names a config that is not given is refused. A model template counts if it is in FILENAME,
    else that of the cluster, which is read for nothing else. A model cache and claims of volumes are
    mounted as if they were there; the digits at the end of a cache's claim are known in a cluster only. Exits with 1
    if the deployment is invalid or refused.
    """
    from airunway.resource import key_of

    values = parse_settings(settings or [])
    objects: list[Resource] = []
    refused = False
    with inputs.reporting():
        given = manifests_in(file, runtime_config or (), namespace=namespace)
        rules = inputs.policy_in(policy) if policy is not None else None
        labels = namespace_labels_in(file) if rules is not None else {}
        found = inputs.with_templates(
            given.deployments, given.templates, access=Access(kubeconfig, context), on_cluster=False
        )
        for each in found:
            made = None
            if each.problem:
                _say(f"{key_of(each.own)}: {each.problem} ({each.reason})")
            else:
                made = _rendered(
                    each,
                    provider,
                    values,
                    upstream_version=upstream_version,
                    configs=given.configs,
                    policy=rules,
                    labels=labels.get(key_of(each.deployment).namespace, {}),
                )
            refused = refused or made is None
            objects += made or []
    click.echo(as_document(objects, output), nl=False)
    if refused:
        raise click.exceptions.Exit(1)


def _rendered(
    given: Expanded,
    provider: str,
    settings: dict[str, object],
    *,
    upstream_version: str,
    configs: Sequence[Resource],
    policy: Policy | None,
    labels: Mapping[str, str],
) -> list[Resource] | None:
    """The objects, or None if the provider refuses; warnings and errors are printed on standard error."""
    from datetime import UTC, datetime

    from airunway.api.modeldeployment import parse_deployment
    from airunway.plugins.host import assumed_context
    from airunway.plugins.registry import load
    from airunway.plugins.settings import resolve_among, runtime_settings
    from airunway.resource import key_of, labels_of
    from airunway.runtime.gate import assumed_cache
    from airunway.runtime.translate import translate
    from airunway.tools.assignment import Unchosen, choose, with_engine

    deployment, now = given.deployment, datetime.now(UTC)
    key = key_of(deployment)
    try:
        choice = choose(deployment, provider=provider, now=now, policy=policy, namespace_labels=labels)
    except Unchosen as error:
        for reason in error.reasons:
            _say(f"{key}: {reason}")
        return None
    deployment, host = choice.deployment, load(choice.provider)
    typed = parse_deployment(deployment)
    found = resolve_among(deployment, configs)
    if found.missing:
        kinds = "RuntimeConfig or ClusterRuntimeConfig"
        _say(f"{key}: spec.runtimeConfigName: no {kinds} '{found.name}' is given: name its file with --runtime-config")
        return None
    if found.config is not None:
        for problem in found.config.problems:
            _say(f"{key}: warning: {found.config.title}: {problem.field}: {problem.message}")
    context = assumed_context(
        host,
        engine=choice.engine,
        now=now,
        settings=settings,
        upstream_version=upstream_version,
        runtime=runtime_settings(found.config, labels_of(deployment), reserved=host.manifest.reserved_labels),
    )
    assigned = with_engine(deployment, context.engine)
    context = replace(context, cache=assumed_cache(assigned, found.config, host))
    if context.cache is not None:
        _say(f"{key}: weights come from claim {context.cache.claim}-…, which the model cache part makes")
    if found.config is not None:
        assigned["status"]["effectiveRuntimeConfig"] = found.config.status_for_provider(assigned)
    assigned["status"]["revision"] = _revision(given, assigned, host, context, found, now=now)
    judged = translate(host, assigned, typed, context)
    for finding in judged.warnings:
        _say(f"{key}: warning: {finding.path}: {finding.message}")
    if judged.blockers:
        for finding in judged.blockers:
            _say(f"{key}: {finding.path}: {finding.message} ({finding.reason})")
        return None
    return [_without_owner(obj) for obj in judged.objects]


def _revision(
    given: Expanded,
    assigned: Resource,
    host: ProviderHost,
    context: Context[Any],
    resolution: Resolution,
    *,
    now: datetime,
) -> Resource:
    """What the core would record for a new deployment; not whole with a model cache, whose claim has no name yet."""
    from airunway.plugins.settings import kept_settings, with_defaults
    from airunway.revisions.revision import Standing, next_revision
    from airunway.revisions.same_spec import adopted_by, taken_for
    from airunway.revisions.wanted import wanted_revision

    own, template = given.own, given.part.value if given.part is not None else {}
    adopted = adopted_by(own, "")
    names = {key: upstream.transformer.name for key, upstream in context.served.items()}
    settings = kept_settings(with_defaults(context.settings, context.upstream.transformer.defaults))
    wanted = wanted_revision(
        assigned,
        current={},
        taken_for=taken_for(own.get("spec") or {}, adopted),
        adopted=adopted,
        template=template,
        template_unusable=False,
        template_hash=str(template.get("hash", "")),
        resolution=resolution,
        config_unusable=False,
        provider=host.name,
        translation={"transformers": {key: name for key, name in names.items() if name}, "settings": settings},
        wants_cache=context.cache is not None,
        makes_pool=False,
        gateway_on=False,
    )
    return next_revision({}, wanted, Standing(served=False), now=now)


def _without_owner(obj: Resource) -> Resource:
    metadata = {field: value for field, value in obj["metadata"].items() if field != "ownerReferences"}
    return {**obj, "metadata": metadata}


def _say(text: str) -> None:
    click.echo(printable(f"airunway render: {text}"), err=True)
